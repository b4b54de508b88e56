/* SPDX-License-Identifier: MIT */
/* Tests the ops of the CPU back end, which compute 16 images side by side (lanes), on random
 * shapes, with the kernels (functions of src/cpu/kernels) of every instruction set that this CPU
 * has. The results must have the same bits
 * - with every instruction set
 * - if the rows (examples) are processed in several blocks
 * - with a team of threads
 * - in inference
 * tests/ops shows that the results of the best instruction set are right. For shapes that tests/ops
 * does not have, such as wide ones and edge cases, this test compares the results with the
 * reference back end. In the names of this file, as in the public headers, `kernel` is the filter
 * of a convolution. */
#include "base/rng.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_conv.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_op.h"
#include "lanes/lanes_check.h"
#include "runner.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Number of cases to run out of `n` large cases. A build with a sanitizer runs only the first
 * third. */
#ifdef __SANITIZE_ADDRESS__
#define LARGE(n) (((n) + 2) / 3)
#else
#define LARGE(n) (n)
#endif

/* ---- random descriptions --------------------------------------------------------------------- */

typedef struct dice {
    uint64_t seed, next;
} dice;

static int roll(dice *d, int low, int high)
{
    return low + (int)(ls_rng_uniform(d->seed, 99, 0, d->next++) * (float)(high - low + 1));
}

static ls_op_desc start(dice *d, ls_op_kind kind, int rows, int c, int h, int w)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = kind, .training = 1};
    desc.x = (ls_tensor){LS_F32, rows, c, h, w, NULL, 0};
    desc.needs_dx = roll(d, 0, 3) > 0;
    return desc;
}

/* Fuses an average pool over windows side by side, if one fits. */
static void fuse_pool(dice *d, ls_op_desc *desc)
{
    const ls_conv2d *k = &desc->u.conv2d;
    int oh = (desc->x.h + 2 * k->ph - k->kh) / k->sh + 1;
    int ow = (desc->x.w + 2 * k->pw - k->kw) / k->sw + 1;
    int h = roll(d, 1, oh < 3 ? oh : 3), w = roll(d, 1, ow < 3 ? ow : 3);
    desc->fuse_pool = 1;
    desc->pool = (ls_pool2d){.kh = h, .kw = w, .sh = h, .sw = w};
}

/* Draws a convolution with odd sizes, strides and paddings. Every fifth case has many channels,
 * every seventh has a 1 × 1 filter. */
static ls_op_desc random_conv(dice *d, int number)
{
    int many = number % 5 == 0, side = many ? 9 : 17;
    int in = roll(d, 1, many ? 70 : 9), out = roll(d, 1, many ? 70 : 21);
    ls_conv2d k = {.out = out,
                   .kh = roll(d, 1, 7),
                   .kw = roll(d, 1, 7),
                   .sh = roll(d, 1, 3),
                   .sw = roll(d, 1, 3),
                   .ph = roll(d, 0, 3),
                   .pw = roll(d, 0, 3),
                   .bias = roll(d, 0, 3) > 0};
    if (number % 7 == 0)
        k.kh = k.kw = 1;
    int h = roll(d, 1, side), w = roll(d, 1, side);
    h = h + 2 * k.ph < k.kh ? k.kh : h;
    w = w + 2 * k.pw < k.kw ? k.kw : w;
    ls_op_desc desc = start(d, LS_OP_CONV2D, roll(d, 1, many ? 18 : 40), in, h, w);
    desc.u.conv2d = k;
    desc.fuse_relu = roll(d, 0, 1);
    if (roll(d, 0, 1))
        fuse_pool(d, &desc);
    return desc;
}

/* Draws shapes for Winograd's algorithm, with odd sizes and any number of channels. */
static ls_op_desc random_winograd(dice *d, int number)
{
    int side = number % 3 ? 5 : 1, kernel = number % 2 ? 3 : 5;
    int h = roll(d, kernel, 9 + side), w = roll(d, kernel, 9 + side);
    ls_op_desc desc = start(d, LS_OP_CONV2D, roll(d, 1, 20), roll(d, 16, 70), h, w);
    desc.u.conv2d = (ls_conv2d){.out = roll(d, 16, 70),
                                .kh = kernel,
                                .kw = kernel,
                                .sh = 1,
                                .sw = 1,
                                .ph = roll(d, 0, kernel - 1),
                                .pw = roll(d, 0, kernel - 1),
                                .bias = roll(d, 0, 1)};
    desc.fuse_relu = roll(d, 0, 1);
    if (roll(d, 0, 1) && h + 2 * desc.u.conv2d.ph > kernel && w + 2 * desc.u.conv2d.pw > kernel) {
        desc.fuse_pool = 1;
        desc.pool = (ls_pool2d){.kh = 2, .kw = 2, .sh = 2, .sw = 2};
    }
    return desc;
}

/* Draws shapes with more channels than are added up at a time (LS_LANES_DEPTH), with many weights
 * and few pixels. */
static ls_op_desc random_wide(dice *d, int number)
{
    int kernel = number % 2 ? 1 : roll(d, 2, 3), side = roll(d, kernel, 6);
    ls_op_desc desc = start(d, LS_OP_CONV2D, roll(d, 1, 34), roll(d, 60, 200), side, side);
    desc.u.conv2d = (ls_conv2d){.out = roll(d, 60, 150),
                                .kh = kernel,
                                .kw = kernel,
                                .sh = roll(d, 1, 2),
                                .sw = roll(d, 1, 3),
                                .ph = roll(d, 0, kernel / 2),
                                .pw = roll(d, 0, kernel / 2),
                                .bias = roll(d, 0, 1)};
    desc.fuse_relu = roll(d, 0, 1);
    if (number % 3 == 0)
        fuse_pool(d, &desc);
    return desc;
}

/* Draws shapes with many weights and few tiles, for which Winograd's algorithm computes the
 * gradient of the weights in parts. */
static ls_op_desc random_many(dice *d, int number)
{
    int side = roll(d, 2, 4);
    ls_op_desc desc = start(d, LS_OP_CONV2D, roll(d, 1, 40), roll(d, 150, 200), side, side);
    (void)number;
    desc.u.conv2d =
        (ls_conv2d){.out = roll(d, 150, 200), .kh = 3, .kw = 3, .sh = 1, .sw = 1, .ph = 1, .pw = 1};
    return desc;
}

/* Draws shapes whose gradient of the weights is a product of panels (src/cpu/lanes_conv.h). An
 * image is divided into several panels, and the last panel of outputs is not full. */
static ls_op_desc random_plane(dice *d, int number)
{
    int kernel = number % 2 ? 1 : 3;
    ls_op_desc desc =
        start(d, LS_OP_CONV2D, roll(d, 1, 34), roll(d, 8, 20), roll(d, 8, 20), roll(d, 30, 70));
    desc.u.conv2d = (ls_conv2d){.out = 16 * roll(d, 1, 3) - roll(d, 0, 2),
                                .kh = kernel,
                                .kw = kernel,
                                .sh = roll(d, 1, 2),
                                .sw = roll(d, 1, 2),
                                .ph = kernel / 2,
                                .pw = kernel / 2,
                                .bias = 1};
    return desc;
}

/* Draws a convolution with a dilated filter. */
static ls_op_desc random_dilated(dice *d, int number)
{
    ls_op_desc desc = random_conv(d, number);
    ls_conv2d *k = &desc.u.conv2d;
    k->dh = roll(d, 1, 3);
    k->dw = roll(d, 1, 3);
    desc.x.h += (k->dh - 1) * (k->kh - 1);
    desc.x.w += (k->dw - 1) * (k->kw - 1);
    return desc;
}

/* Draws a convolution with groups of channels. In every second case each channel is a group. */
static ls_op_desc random_groups(dice *d, int number)
{
    ls_op_desc desc = (number % 3 ? random_conv : random_dilated)(d, number + 1);
    ls_conv2d *k = &desc.u.conv2d;
    if (number % 2) {
        k->groups = roll(d, 2, 4);
        desc.x.c *= k->groups;
        k->out *= k->groups;
        return desc;
    }
    desc.x.c += desc.x.c == 1;
    k->out = k->groups = desc.x.c;
    desc.fuse_relu = desc.fuse_pool = 0;
    if (number % 4) {
        k->kh = k->kw = roll(d, 0, 1) ? 3 : 5;
        desc.x.h += 4 * (k->dh ? k->dh : 1);
        desc.x.w += 4 * (k->dw ? k->dw : 1);
    }
    return desc;
}

static ls_op_desc random_dense(dice *d, int number)
{
    ls_op_desc desc =
        start(d, LS_OP_DENSE, roll(d, 1, 70), roll(d, 1, 20), roll(d, 1, 5), roll(d, 1, 5));
    desc.u.dense = (ls_dense){roll(d, 1, number % 2 ? 40 : 150), roll(d, 0, 3) > 0};
    desc.fuse_relu = roll(d, 0, 1);
    return desc;
}

static ls_op_desc random_pool(dice *d, int number)
{
    ls_op_desc desc =
        start(d, LS_OP_POOL, roll(d, 1, 40), roll(d, 1, 8), roll(d, 4, 13), roll(d, 4, 13));
    int kh = roll(d, 1, 4), kw = roll(d, 1, 4);
    desc.pool = (ls_pool2d){.max = number % 2, .kh = kh, .kw = kw};
    desc.pool.sh = roll(d, 1, 3);
    desc.pool.sw = roll(d, 1, 3);
    desc.pool.ph = roll(d, 0, kh / 2);
    desc.pool.pw = roll(d, 0, kw / 2);
    if (number % 3 == 0) {
        desc.pool.eh = roll(d, 0, kh - 1) - desc.pool.ph;
        desc.pool.ew = roll(d, 0, kw - 1) - desc.pool.pw;
        desc.pool.ceil = number % 4 < 2;
        desc.pool.count_padding = number % 5 < 2;
    }
    return desc;
}

static ls_op_desc random_relu(dice *d, int number)
{
    (void)number;
    return start(d, LS_OP_RELU, roll(d, 1, 40), roll(d, 1, 9), roll(d, 1, 9), roll(d, 1, 9));
}

/* Draws a batch norm. The smallest size is one row (example) of one pixel. */
static ls_op_desc random_norm(dice *d, int number)
{
    const int side = number % 4 ? roll(d, 1, 9) : 1;
    ls_op_desc desc =
        start(d, LS_OP_BATCHNORM, roll(d, 1, 40), roll(d, 1, 9), side, roll(d, 1, side));
    desc.u.batchnorm.epsilon = 1e-5f;
    desc.fuse_relu = roll(d, 0, 1);
    desc.fuse_add = roll(d, 0, 1);
    desc.x2 = desc.x;
    return desc;
}

static ls_op_desc random_add(dice *d, int number)
{
    ls_op_desc desc = start(d, number % 3 ? LS_OP_ADD : LS_OP_MULTIPLY, roll(d, 1, 40),
                            roll(d, 1, 9), roll(d, 1, 9), roll(d, 1, 9));
    desc.fuse_relu = desc.kind == LS_OP_ADD && number % 2;
    desc.x2 = desc.x;
    return desc;
}

static ls_op_desc random_curve(dice *d, int number)
{
    static const ls_op_kind kinds[] = {LS_OP_SIGMOID,    LS_OP_TANH,      LS_OP_GELU,
                                       LS_OP_SILU,       LS_OP_CLAMP,     LS_OP_HARD_SIGMOID,
                                       LS_OP_HARD_SWISH, LS_OP_GELU_TANH, LS_OP_AFFINE};
    ls_op_desc desc =
        start(d, kinds[number % 9], roll(d, 1, 40), roll(d, 1, 9), roll(d, 1, 9), roll(d, 1, 9));
    if (desc.kind == LS_OP_HARD_SIGMOID)
        desc.u.hard_sigmoid = (ls_hard_sigmoid){0.4f, 0.3f};
    if (desc.kind == LS_OP_CLAMP)
        desc.u.clamp = number % 2 ? (ls_clamp){0, 6} : (ls_clamp){-0.4f, 0.3f};
    if (desc.kind == LS_OP_AFFINE)
        desc.u.affine = (ls_affine){0.4f, 0.3f};
    return desc;
}

/* Draws layer norm, upsampling, concatenation, and padding, in turn. */
static ls_op_desc random_row(dice *d, int number)
{
    static const ls_op_kind kinds[] = {LS_OP_LAYERNORM, LS_OP_UPSAMPLE, LS_OP_CONCAT, LS_OP_PAD};
    ls_op_desc desc =
        start(d, kinds[number % 4], roll(d, 1, 40), roll(d, 1, 9), roll(d, 1, 9), roll(d, 1, 9));
    if (desc.kind == LS_OP_LAYERNORM)
        desc.u.layernorm.epsilon = 0.01f;
    if (desc.kind == LS_OP_UPSAMPLE)
        desc.u.upsample = (ls_upsample){roll(d, 1, 3), roll(d, 1, 3)};
    if (desc.kind == LS_OP_PAD)
        desc.u.pad = (ls_pad){roll(d, 0, 2), roll(d, 0, 2), roll(d, 0, 2), roll(d, 0, 2)};
    desc.x2 = desc.x;
    return desc;
}

static ls_op_desc random_layer_norm(dice *d, int number)
{
    return random_row(d, 4 * number);
}

static ls_op_desc random_loss(dice *d, int number)
{
    (void)number;
    return start(d, LS_OP_SOFTMAX_XENT, roll(d, 1, 70), roll(d, 2, 40), 1, 1);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

typedef ls_op_desc draw_desc(dice *d, int number);

/* Compares one description with one set of kernels. */
typedef void compare(const ls_lanes_kernels *kernels, const ls_op_desc *desc, const lanes_data *in,
                     const char *what);

static void for_each_case(draw_desc *draw, compare *check, uint64_t seed, int cases)
{
    for (int i = 0; i < cases; i++) {
        dice d = {seed + (uint64_t)i, 0};
        ls_op_desc desc = draw(&d, i);
        lanes_data *in = lanes_data_create(&desc, seed + (uint64_t)i);
        const ls_lanes_kernels *isa;
        for (int k = 0; (isa = ls_cpu_isa_at(k)); k++) {
            char what[400];
            snprintf(what, sizeof what, "%s, case %d: %s", isa->name, i, lanes_text(&desc));
            check(isa, &desc, in, what);
        }
        lanes_data_destroy(in);
    }
}

static void like_the_reference(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                               const lanes_data *in, const char *what)
{
    lanes_data *want = lanes_oracle(desc, in), *twice = lanes_run(kernels, desc, in, 0, 1);
    lanes_expect_near(what, twice, want, 2);
    lanes_data_destroy(want);
    lanes_data_destroy(twice);
}

static void same_in_blocks(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                           const lanes_data *in, const char *what)
{
    lanes_data *whole = lanes_run(kernels, desc, in, 0, 0);
    lanes_data *blocks = lanes_run(kernels, desc, in, 32, 0);
    lanes_expect_same(what, whole, blocks);
    lanes_data_destroy(whole);
    lanes_data_destroy(blocks);
}

/* Checks that y is the same with an op for training and with an op for inference. */
static void same_in_inference(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                              const lanes_data *in, const char *what)
{
    ls_op_desc inference = *desc, training = *desc;
    inference.training = inference.needs_dx = training.needs_dx = 0;
    lanes_data *a = lanes_run(kernels, &inference, in, 0, 0);
    lanes_data *b = lanes_run(kernels, &training, in, 0, 0);
    for (int i = 0; i < LS_OP_PARAMS; i++)
        a->param_n[i] = 0; /* only one of the two ops has gradients */
    lanes_expect_same(what, a, b);
    lanes_data_destroy(a);
    lanes_data_destroy(b);
}

/* [form]: number of cases whose dx is computed by a spread pass (src/cpu/wino.h) */
static int spread[LS_WINO_FORMS];

static void like_the_reference_by_winograd(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                                           const lanes_data *in, const char *what)
{
    ls_cpu_device device = {.kernels = kernels};
    ls_op_desc lanes = *desc;
    ls_op *op;
    ls_error err;
    lanes.x = ls_lanes_tensor(&lanes.x);
    assert_int_equal(ls_cpu_op_create(&op, &device, &lanes, &err), LS_OK);
    const ls_conv_op *conv = (const ls_conv_op *)op;
    spread[conv->dx.wino.form] += desc->needs_dx && conv->dx.by_winograd && conv->dx.wino.spread;
    op->impl->destroy(op);
    like_the_reference(kernels, desc, in, what);
}

static void convolution_by_winograd_matches_double_sums(void **state)
{
    (void)state;
    memset(spread, 0, sizeof spread);
    for_each_case(random_winograd, like_the_reference_by_winograd, 1322, LARGE(36));
    assert_true(spread[LS_WINO_2_3] > 0 && spread[LS_WINO_4_3] > 0 && spread[LS_WINO_2_5] > 0);
}

static void wide_convolution_matches_double_sums(void **state)
{
    (void)state;
    for_each_case(random_wide, like_the_reference, 1500, 16);
}

static void weights_in_parts_and_panels_match_double_sums(void **state)
{
    (void)state;
    for_each_case(random_many, like_the_reference, 1600, LARGE(4));
    for_each_case(random_plane, like_the_reference, 1700, LARGE(8));
}

/* An image of 56 × 56 is divided into several panels, because panels of the whole image would take
 * 50 MB. */
static void a_kernel_of_one_element_needs_little_memory(void **state)
{
    dice d = {1, 0};
    ls_op *op;
    ls_error err;
    (void)state;
    ls_op_desc desc = start(&d, LS_OP_CONV2D, 32, 64, 56, 56);
    desc.u.conv2d = (ls_conv2d){.out = 128, .kh = 1, .kw = 1, .sh = 1, .sw = 1};
    desc.x = ls_lanes_tensor(&desc.x);
    ls_cpu_device device = {.kernels = ls_cpu_isa_at(0)};
    assert_int_equal(ls_cpu_op_create(&op, &device, &desc, &err), LS_OK);
    assert_in_range(op->scratch_bytes, 1, 1u << 20);
    op->impl->destroy(op);
}

/* Offsets within one channel of an image are counted in 32 bits, so larger images are refused. */
static void planes_that_cannot_be_counted_are_refused(void **state)
{
    static const int size[] = {8192, 11586, 16384};
    (void)state;
    for (int i = 0; i < 3; i++) {
        dice d = {1, 0};
        ls_op *op;
        ls_error err;
        ls_op_desc desc = start(&d, LS_OP_CONV2D, 1, 1, size[i], size[i]);
        desc.u.conv2d = (ls_conv2d){.out = 1, .kh = 1, .kw = 1, .sh = 1, .sw = 1};
        desc.x = ls_lanes_tensor(&desc.x);
        ls_cpu_device device = {.kernels = ls_cpu_isa_at(0)};
        assert_int_equal(ls_cpu_op_create(&op, &device, &desc, &err), LS_EUNSUPPORTED);
    }
}

/* Checks that y and dx of the first row stay the same if all other rows have other numbers. */
static void first_row_alone(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                            const lanes_data *in, const char *what)
{
    lanes_data *a = lanes_run(kernels, desc, in, 0, 0);
    const size_t rows = (size_t)desc->x.rows;
    for (size_t i = in->x_n / rows; i < in->x_n; i++)
        in->x[i] = 1e6f;
    for (size_t i = in->y_n / rows; i < in->y_n; i++)
        in->dy[i] = 1e6f;
    lanes_data *b = lanes_run(kernels, desc, in, 0, 0);
    for (int i = 0; i < LS_OP_PARAMS; i++)
        a->param_n[i] = 0; /* gradients of parameters are sums over rows, and differ */
    a->y_n /= rows;
    a->x_n /= rows;
    lanes_expect_same(what, a, b);
    lanes_data_destroy(a);
    lanes_data_destroy(b);
}

static ls_op_desc several_rows(dice *d, int number)
{
    static draw_desc *const draws[] = {random_wide, random_winograd, random_groups};
    ls_op_desc desc = draws[number % 3](d, number / 3);
    desc.x.rows = 20;
    return desc;
}

static void rows_do_not_see_their_neighbours(void **state)
{
    (void)state;
    for_each_case(several_rows, first_row_alone, 7500, 12);
}

/* Draws an op for 70 rows. Its results in one call are compared with those of calls for 32, 32 and
 * 6 rows with LS_RUN_ACCUMULATE. */
static ls_op_desc seventy_rows(dice *d, int number)
{
    static draw_desc *const draws[] = {random_conv,     random_dense, random_loss,
                                       random_winograd, random_wide,  random_layer_norm,
                                       random_groups};
    ls_op_desc desc = draws[number % 7](d, number + 1);
    desc.x.rows = 70;
    return desc;
}

static void blocks_of_a_shard_give_the_same_bits(void **state)
{
    (void)state;
    for_each_case(seventy_rows, same_in_blocks, 6000, LARGE(42));
}

/* Adds the loss and the number of correct rows of `rows` rows from row `first` on to `stats`. */
static void add_vector_loss(float stats[2], int rule, int rows, int first, const float *numbers)
{
    enum { WIDE = 6, ALL = 200 }; /* with quantiles, half of the targets are used */
    static float dx[ALL * WIDE];
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_VECTOR_LOSS, .training = 1};
    ls_cpu_device device = {.kernels = ls_cpu_isa_at(0)};
    ls_op *op;
    ls_error err = {0};
    desc.x = (ls_tensor){LS_F32, rows, WIDE, 1, 1, NULL, 0};
    desc.u.vector_loss = (ls_vector_loss){(ls_vector_rule)rule, 2, 0.7, {0.1, 0.8}};
    desc.needs_dx = 1;
    assert_int_equal(ls_cpu_op_create(&op, &device, &desc, &err), LS_OK);
    const int targets = rule == LS_VECTOR_QUANTILE ? WIDE / 2 : WIDE;
    const ls_op_buffers b = {
        .x = numbers + (ptrdiff_t)first * WIDE,
        .labels = (const void *)(numbers + (ptrdiff_t)ALL * WIDE + (ptrdiff_t)first * targets),
        .dx = dx,
        .stats = stats};
    assert_int_equal(op->impl->bind(op, &b, &err), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, first ? LS_RUN_ACCUMULATE : 0, &err), LS_OK);
    op->impl->destroy(op);
}

static void blocks_of_a_vector_loss_give_the_same_bits(void **state)
{
    static float numbers[2 * 200 * 6];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = ls_rng_normal(6500, 1, 0, i);
    for (int rule = LS_VECTOR_MSE; rule <= LS_VECTOR_POISSON; rule++)
        for (int rows = 33; rows <= 200; rows++) {
            float once[2], parts[2];
            add_vector_loss(once, rule, rows, 0, numbers);
            for (int first = 0, count; first < rows; first += count) {
                count = first == 32 && rows > 96 ? 64 : rows - first < 32 ? rows - first : 32;
                add_vector_loss(parts, rule, count, first, numbers);
            }
            assert_memory_equal(once, parts, sizeof once);
        }
}

static void inference_gives_the_same_bits(void **state)
{
    (void)state;
    for_each_case(random_conv, same_in_inference, 7000, 20);
    for_each_case(random_pool, same_in_inference, 7100, 10);
    for_each_case(random_row, same_in_inference, 7200, 9);
    for_each_case(random_groups, same_in_inference, 7300, 12);
}

/* ---- the same bits on every CPU -------------------------------------------------------------- */

/* Checks that the results with `kernels` have the same bits as with the best instruction set of
 * this CPU. */
static void as_on_the_best(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                           const lanes_data *in, const char *what)
{
    const ls_lanes_kernels *best = ls_cpu_isa_at(0);
    if (kernels == best)
        return;
    lanes_data *a = lanes_run(best, desc, in, 0, 0), *b = lanes_run(kernels, desc, in, 0, 0);
    lanes_expect_same(what, a, b);
    lanes_data_destroy(a);
    lanes_data_destroy(b);
}

/* Checks with the best instruction set that a team has the same bits as one thread. The team
 * divides the work in the same way with every instruction set. */
static void as_by_one_thread(const ls_lanes_kernels *kernels, const ls_op_desc *desc,
                             const lanes_data *in, const char *what)
{
    if (kernels != ls_cpu_isa_at(0))
        return;
    lanes_data *one = lanes_run(kernels, desc, in, 0, 0);
    assert_int_equal(ls_team_create(&lanes_team, 3, NULL, NULL), LS_OK);
    lanes_data *three = lanes_run(kernels, desc, in, 0, 0);
    ls_team_destroy(lanes_team);
    lanes_team = NULL;
    lanes_expect_same(what, one, three);
    lanes_data_destroy(one);
    lanes_data_destroy(three);
}

/* Draws 3 × 3 convolutions of few channels and large images, whose tiles are several blocks of
 * Winograd's algorithm, and the same with a stride. */
static ls_op_desc random_blocks(dice *d, int number)
{
    const int stride = number % 3 == 2 ? 2 : 1, padding = number % 2;
    ls_op_desc desc =
        start(d, LS_OP_CONV2D, roll(d, 1, 40), roll(d, 16, 36), roll(d, 14, 30), roll(d, 14, 30));
    desc.u.conv2d = (ls_conv2d){.out = roll(d, 16, 36),
                                .kh = 3,
                                .kw = 3,
                                .sh = stride,
                                .sw = stride,
                                .ph = padding,
                                .pw = padding,
                                .bias = roll(d, 0, 1)};
    desc.fuse_relu = roll(d, 0, 1);
    return desc;
}

/* Draws convolutions of few channels and images so large that forward copies the pixels of its
 * tiles, and that the gradient of the weights is computed by image rows. Number 3 has more weights
 * than pixels instead: a team divides its channels, and no part copies pixels, although the part
 * alone has fewer weights than pixels. */
static ls_op_desc random_large(dice *d, int number)
{
    if (number == 3) {
        ls_op_desc many = start(d, LS_OP_CONV2D, roll(d, 1, 16), 130, 5, 5);
        many.u.conv2d =
            (ls_conv2d){.out = 256, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .ph = 1, .pw = 1};
        return many;
    }
    ls_op_desc desc =
        start(d, LS_OP_CONV2D, roll(d, 1, 20), roll(d, 1, 4), roll(d, 66, 72), roll(d, 118, 126));
    const int kernel = number % 2 ? 3 : 5;
    desc.u.conv2d = (ls_conv2d){.out = roll(d, 32, 40),
                                .kh = kernel,
                                .kw = kernel,
                                .sh = roll(d, 1, 2),
                                .sw = 2,
                                .ph = roll(d, 0, kernel - 1),
                                .pw = roll(d, 0, kernel - 1),
                                .bias = roll(d, 0, 1)};
    return desc;
}

static void large_images_match_double_sums(void **state)
{
    (void)state;
    for_each_case(random_large, like_the_reference, 1500, 2);
}

enum { IN = 66, OUT = 33, UP = 9, ACROSS = 11, PADDED = ACROSS + 2, SOME = 5, EIGHT = 7 };

/* A convolution of two packets, and memory for its results computed in two ways. */
typedef struct in_parts {
    _Alignas(64) float x[IN * UP * ACROSS * 16], padded[2 * IN * UP * PADDED * 16];
    _Alignas(64) float w[5 * IN * 9 * 8], b[40], d[2 * OUT * UP * ACROSS * 16];
    _Alignas(64) float y[2][OUT * UP * ACROSS * 16], sums[2][SOME * 9 * 8 * 16], tile[1 << 16];
    uint8_t mask[2][OUT * UP * ACROSS * 4];
} in_parts;

static ls_lanes_conv draw_parts(in_parts *m, int stride)
{
    float *const all[] = {m->padded, m->w, m->b, m->d};
    const size_t count[] = {sizeof m->padded, sizeof m->w, sizeof m->b, sizeof m->d};
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < count[i] / sizeof(float); k++)
            all[i][k] = ls_rng_normal(6600, (uint64_t)i, 0, k);
    for (int line = 0; line < 2 * IN * UP; line++) {
        float *from = m->padded + (ptrdiff_t)line * PADDED * 16;
        memset(from, 0, 16 * sizeof *from);
        memset(from + (ptrdiff_t)(ACROSS + 1) * 16, 0, 16 * sizeof *from);
        if (line < IN * UP)
            memcpy(m->x + (ptrdiff_t)line * ACROSS * 16, from + 16, ACROSS * 16 * sizeof *from);
    }
    const int h = (UP - 1) / stride + 1, w = (ACROSS - 1) / stride + 1;
    return (ls_lanes_conv){.ic = IN,
                           .ih = UP,
                           .iw = PADDED,
                           .oc = OUT,
                           .oh = h,
                           .ow = w,
                           .kh = 3,
                           .kw = 3,
                           .sh = stride,
                           .sw = stride,
                           .ph = 1,
                           .dh = 1,
                           .dw = 1,
                           .x_w = ACROSS,
                           .pw = 1,
                           .relu = stride == 2,
                           .pool_h = 1,
                           .pool_w = 1,
                           .y_h = h,
                           .y_w = w};
}

/* Forward in parts, from copies of the pixels, has the bits of forward from an x with columns of
 * zeros. */
static void forward_in_parts(const ls_lanes_kernels *k, in_parts *m, ls_lanes_conv c)
{
    uint8_t *const mask[] = {c.relu ? m->mask[0] : NULL, c.relu ? m->mask[1] : NULL};
    memset(m->y, 0, sizeof m->y);
    memset(m->mask, 0, sizeof m->mask);
    k->conv_forward(&c, m->padded, m->w, m->b, m->y[0], mask[0], m->tile, 0, 1);
    c.patches = 1;
    assert_true(ls_lanes_patches(&c));
    assert_true(ls_lanes_tile_floats(&c) <= sizeof m->tile / sizeof *m->tile);
    for (int part = 0; part < 4; part++)
        k->conv_forward(&c, m->x, m->w, m->b, m->y[1], mask[1], m->tile, part, 4);
    assert_memory_equal(m->y[0], m->y[1], sizeof m->y[0]);
    assert_memory_equal(m->mask[0], m->mask[1], sizeof m->mask[0]);
}

/* Sums for the gradient of the weights that are continued have the bits of those of one call. */
static void sums_in_parts(const ls_lanes_kernels *k, in_parts *m, const ls_lanes_conv *c)
{
    const ptrdiff_t row = (ptrdiff_t)c->ow * 16;
    const ls_lanes_grad g = {m->d, OUT * c->oh * row, c->oh * row, row};
    int add = 0;
    memset(m->sums, 0, sizeof m->sums);
    k->conv_correlate(c, m->padded, g, 2, EIGHT, 0, SOME, 0, c->oh, m->sums[0], 0);
    for (int packet = 0; packet < 2; packet++)
        for (int y = 0; y < c->oh; y += 2, add = LS_LANES_RESUME) {
            ls_lanes_grad some = g;
            some.d += packet * g.packet + y * g.row;
            k->conv_correlate(c, m->padded + (ptrdiff_t)packet * IN * UP * PADDED * 16, some, 1,
                              EIGHT, 0, SOME, y, y + 2 < c->oh ? y + 2 : c->oh, m->sums[1], add);
        }
    assert_memory_equal(m->sums[0], m->sums[1], sizeof m->sums[0]);
}

static void a_convolution_in_parts_has_the_same_bits(void **state)
{
    static in_parts m;
    const ls_lanes_kernels *kernels;
    (void)state;
    for (int stride = 1; stride <= 2; stride++) {
        const ls_lanes_conv c = draw_parts(&m, stride);
        for (int i = 0; (kernels = ls_cpu_isa_at(i)); i++) {
            forward_in_parts(kernels, &m, c);
            sums_in_parts(kernels, &m, &c);
        }
    }
}

static void a_team_of_three_gives_the_same_bits(void **state)
{
    static draw_desc *const draws[] = {random_conv,   random_winograd, random_wide, random_many,
                                       random_plane,  random_dense,    random_pool, random_norm,
                                       random_curve,  random_add,      random_loss, random_dilated,
                                       random_groups, random_blocks,   random_large};
    (void)state;
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++)
        for_each_case(draws[i], as_by_one_thread, 9500 + 100 * i,
                      draws[i] == random_conv || draws[i] == random_groups ? 12 : 4);
}

/* Forward, the gradient of the weights and dx of sixteen rows are one job or two each, however many
 * blocks of tiles the images have. */
static void a_convolution_is_few_jobs_of_a_team(void **state)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_CONV2D, .training = 1, .needs_dx = 1};
    desc.x = (ls_tensor){LS_F32, 16, 16, 32, 32, NULL, 0};
    (void)state;
    for (int stride = 1; stride <= 2; stride++) {
        desc.u.conv2d =
            (ls_conv2d){.out = 32, .kh = 3, .kw = 3, .sh = stride, .sw = stride, .ph = 1, .pw = 1};
        lanes_data *in = lanes_data_create(&desc, 1);
        assert_int_equal(ls_team_create(&lanes_team, 3, NULL, NULL), LS_OK);
        lanes_data *got = lanes_run(ls_cpu_isa_at(0), &desc, in, 0, 0);
        const ls_team_counts counts = ls_team_counted(lanes_team);
        if (counts.jobs > 4)
            fail_msg("stride %d: %d jobs", stride, (int)counts.jobs);
        assert_true(counts.items >= 2 * counts.jobs);
        ls_team_destroy(lanes_team);
        lanes_team = NULL;
        lanes_data_destroy(got);
        lanes_data_destroy(in);
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    static draw_desc *const draws[] = {random_conv,    random_dense,    random_pool, random_relu,
                                       random_loss,    random_winograd, random_wide, random_norm,
                                       random_row,     random_curve,    random_add,  random_plane,
                                       random_dilated, random_groups};
    (void)state;
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++)
        for_each_case(draws[i], as_on_the_best, 8000 + 100 * i, LARGE(i < 2 ? 40 : 15));
}

/* Depthwise convolutions
 * - with image rows of every width up to 17
 * - with filters for which a function of their own is compiled (src/cpu/kernels/depth.inc)
 * - with other filters
 * - with strides 1 … 3
 * - with padding of 0, of half a filter, of nearly a filter, and of more than a filter
 * - of 1 and of 17 rows (examples) */
enum { DEPTHWISE_EDGES = 4 * 3 * 4 * 17 };

static ls_op_desc narrow_depthwise(dice *d, int number)
{
    const int k = 2 + number % 4, s = 1 + number / 4 % 3, w = 1 + number / 48 % 17;
    const int pads[] = {0, k / 2, k - 1, k + 1}, p = pads[number / 12 % 4];
    const int side = w + 2 * p < k ? k : w;
    ls_op_desc desc = start(d, LS_OP_CONV2D, number % 2 ? 17 : 1, 3, side < 4 ? side : 4, side);
    if (desc.x.h + 2 * p < k)
        desc.x.h = k;
    desc.needs_dx = 1;
    desc.u.conv2d = (ls_conv2d){.out = 3,
                                .kh = k,
                                .kw = k,
                                .sh = s,
                                .sw = s,
                                .ph = p,
                                .pw = p,
                                .bias = number % 3 == 0,
                                .groups = 3};
    return desc;
}

static void depthwise_edges_match_double_sums_on_every_set(void **state)
{
    (void)state;
    for_each_case(narrow_depthwise, like_the_reference, 1900, DEPTHWISE_EDGES);
    for_each_case(narrow_depthwise, as_on_the_best, 1900, DEPTHWISE_EDGES);
}

/* ---- functions ------------------------------------------------------------------------------- */

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* silu, and below it gelu, are the definitions in double; at −∞ both return the limit. */
static double silu(double x)
{
    return x == -INFINITY ? 0 : x * logistic(x);
}

static double gelu(double x)
{
    return x == -INFINITY ? 0 : x * 0.5 * erfc(-x / sqrt(2));
}

/* numbers of the curves that are tested */
static const ls_lanes_shape hard = {.slope = 0.3f, .offset = 0.4f, .least = -0.5f, .most = 6};

static double hard_swish(double x)
{
    return x == -INFINITY ? 0 : x * fmin(fmax(x + 3, 0), 6) / 6;
}

static double gelu_tanh(double x)
{
    return x == -INFINITY ? 0 : x * logistic(1.5957691216057308 * (x + 0.044715 * x * x * x));
}

static double clamp(double x)
{
    return isnan(x) ? x : fmin(fmax(x, (double)hard.least), (double)hard.most);
}

static double affine(double x)
{
    return (double)hard.slope * x + (double)hard.offset;
}

static double hard_sigmoid(double x)
{
    return isnan(x) ? x : fmin(fmax((double)hard.slope * x + (double)hard.offset, 0), 1);
}

/* Functions and their error bounds, in units in the last place of a float. For results below
 * 2^smallest, a unit is that of 2^smallest, because a product with a factor below the normal range
 * has the absolute error of that factor. */
static const struct function {
    const char *name;
    ls_lanes_curve curve;
    double (*wanted)(double x);
    double units;
    int smallest;
} functions[] = {{"exp", LS_LANES_EXP, exp, 2, -125},
                 {"log", LS_LANES_LOG, log, 2, -125},
                 {"tanh", LS_LANES_TANH, tanh, 2, -125},
                 {"sigmoid", LS_LANES_SIGMOID, logistic, 2, -125},
                 {"silu", LS_LANES_SILU, silu, 3, -118},
                 {"gelu", LS_LANES_GELU, gelu, 8, -121},
                 {"gelu_tanh", LS_LANES_GELU_TANH, gelu_tanh, 8, -4},
                 {"affine", LS_LANES_AFFINE, affine, 0.51, -125},
                 {"clamp", LS_LANES_CLAMP, clamp, 0, -125},
                 {"hard_sigmoid", LS_LANES_HARD_SIGMOID, hard_sigmoid, 0.51, -125},
                 {"hard_swish", LS_LANES_HARD_SWISH, hard_swish, 3, -125}};

/* Returns the difference between `got` and `wanted`, in units in the last place of a float of that
 * size. */
static double units(float got, double wanted, int smallest)
{
    int exponent;
    if (isnan(wanted) || isnan(got))
        return isnan(wanted) && isnan(got) ? 0 : INFINITY;
    if (isinf(got) || isinf((float)wanted)) /* both must be the same infinity */
        return got == (float)wanted ? 0 : INFINITY;
    frexp(wanted, &exponent);
    return fabs((double)got - wanted) / ldexp(1, (exponent < smallest ? smallest : exponent) - 24);
}

/* Returns the float with the i-th bit pattern. The first patterns are special values, such as
 * zeros, infinities and NaN. As integers, the other patterns are a prime number apart. */
static float pattern(uint32_t i)
{
    static const uint32_t special[] = {0,          0x80000000, 1,          0x80000001, 0x007FFFFF,
                                       0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
                                       0x7FC00000, 0x42B17218, 0xC2CFF1B5, 0x3F800000, 0x3F800001};
    const uint32_t count = sizeof special / sizeof *special;
    uint32_t bits = i < count ? special[i] : (i - count) * 2039;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

#define PATTERNS (2 * 1024 * 1024) /* spaced 2039 apart, they cover the range of 32 bits */
#define CHUNK 4096

static void functions_are_within_few_units_of_the_truth_and_the_same_everywhere(void **state)
{
    static _Alignas(64) float x[CHUNK], y[CHUNK], first[CHUNK];
    double worst[sizeof functions / sizeof *functions] = {0};
    (void)state;
    for (uint32_t at = 0; at < PATTERNS; at += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++)
            x[i] = pattern(at + i);
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
            const ls_lanes_kernels *isa;
            for (int k = 0; (isa = ls_cpu_isa_at(k)); k++) {
                isa->curve[functions[f].curve](CHUNK / 16, hard, x, k ? y : first);
                for (int i = 0; k && i < CHUNK; i++)
                    if (memcmp(&y[i], &first[i], sizeof *y) != 0 &&
                        !(isnan(y[i]) && isnan(first[i])))
                        fail_msg("%s(%a): %a on %s, not %a", functions[f].name, (double)x[i],
                                 (double)y[i], isa->name, (double)first[i]);
            }
            for (int i = 0; i < CHUNK; i++) {
                double off =
                    units(first[i], functions[f].wanted((double)x[i]), functions[f].smallest);
                if (!(off <= functions[f].units))
                    fail_msg("%s(%a) is %a: %g units off", functions[f].name, (double)x[i],
                             (double)first[i], off);
                worst[f] = off > worst[f] ? off : worst[f];
            }
        }
    }
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        print_message("             %s: at most %.2f units\n", functions[f].name, worst[f]);
}

/* ---- declining ------------------------------------------------------------------------------- */

static int creates(const ls_op_desc *desc)
{
    ls_cpu_device device = {.kernels = ls_cpu_isa_at(0)};
    ls_op *op = NULL;
    ls_error err = {0};
    int status = ls_cpu_op_create(&op, &device, desc, &err);
    assert_true((status == LS_OK) == (op != NULL));
    assert_true((status == LS_OK) == (err.text[0] == '\0'));
    if (op)
        op->impl->destroy(op);
    return status;
}

static ls_op_desc conv_between(int in, int out)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_CONV2D};
    ls_tensor x = {LS_F32, 8, in, 9, 9, NULL, 0};
    desc.x = ls_lanes_tensor(&x);
    desc.u.conv2d = (ls_conv2d){.out = out, .kh = 3, .kw = 3, .sh = 1, .sw = 1};
    return desc;
}

static void pools_that_cannot_be_fused_are_declined(void **state)
{
    (void)state;
    ls_op_desc overlapping = conv_between(1, 20), maximum = overlapping;
    overlapping.fuse_pool = maximum.fuse_pool = 1;
    overlapping.pool = (ls_pool2d){.kh = 3, .kw = 3, .sh = 2, .sw = 2};
    maximum.pool = (ls_pool2d){.max = 1, .kh = 2, .kw = 2, .sh = 2, .sw = 2};
    assert_int_equal(creates(&overlapping), LS_EUNSUPPORTED);
    assert_int_equal(creates(&maximum), LS_EUNSUPPORTED);
}

static void a_kernel_larger_than_its_image_is_an_error(void **state)
{
    (void)state;
    ls_op_desc desc = conv_between(1, 20);
    desc.u.conv2d.kh = 10;
    assert_int_equal(creates(&desc), LS_EINVAL);
}

/* The functions of src/cpu/kernels count in ints, so sizes that exceed an int are refused. */
static void kernels_that_cannot_be_counted_are_refused(void **state)
{
    static const ls_conv2d absurd[] = {
        {.out = 1, .kh = 65536, .kw = 65536, .sh = 1, .sw = 1, .ph = 32768, .pw = 32768},
        {.out = 1, .kh = 65537, .kw = 65537, .sh = 1, .sw = 1, .ph = 32768, .pw = 32768},
        {.out = 1, .kh = 1, .kw = 1, .sh = 1, .sw = 1, .ph = 1 << 30, .pw = 1},
        {.out = 1, .kh = 1, .kw = 1, .sh = 1, .sw = 1, .ph = 1, .pw = 1, .dh = INT_MAX, .dw = 1},
        {.out = 1, .kh = 3, .kw = 3, .sh = INT_MAX, .sw = 1, .ph = 2, .pw = 2},
        {.out = 1, .kh = 2, .kw = 2, .sh = 1, .sw = 1, .ph = 32768, .pw = 32768}}; /* 2^32 pixels */
    (void)state;
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        ls_op_desc desc = conv_between(1, 1);
        desc.x.h = desc.x.w = 1;
        desc.u.conv2d = absurd[i];
        assert_int_equal(creates(&desc), LS_EUNSUPPORTED);
        /* depthwise: each channel is a group */
        desc.x.c = desc.u.conv2d.out = desc.u.conv2d.groups = 2;
        assert_int_equal(creates(&desc), LS_EUNSUPPORTED);
    }
}

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    ++*(int *)user;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counted_free(void *user, void *memory)
{
    --*(int *)user;
    free(memory);
}

/* A wrong twin (an op of another layer) is detected only when the op is complete. A grouped
 * convolution contains another op, which must then be freed too. */
static void a_twin_of_another_layer_is_refused_and_leaves_nothing_behind(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 4; groups++) {
        int held = 0;
        const ls_host host = {sizeof host, counted_alloc, counted_free, NULL, &held};
        ls_cpu_device device = {.kernels = ls_cpu_isa_at(0), .host = &host};
        ls_op_desc desc = conv_between(12, 12);
        ls_op *first, *second;
        ls_error err = {0};
        desc.u.conv2d.groups = groups == 4 ? 12 : groups; /* 12: depthwise */
        assert_int_equal(ls_cpu_op_create(&first, &device, &desc, &err), LS_OK);
        const int alone = held;
        desc.twin = first;
        assert_int_equal(ls_cpu_op_create(&second, &device, &desc, &err), LS_OK);
        second->impl->destroy(second);
        assert_int_equal(held, alone);
        desc.u.conv2d.bias = 1;
        assert_int_equal(ls_cpu_op_create(&second, &device, &desc, &err), LS_EINVAL);
        assert_null(second);
        assert_int_equal(held, alone);
        first->impl->destroy(first);
        assert_int_equal(held, 0);
    }
}

LS_TESTS(lanes, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_convolution_matches_double_sums),
        cmocka_unit_test(large_images_match_double_sums),
        cmocka_unit_test(a_kernel_of_one_element_needs_little_memory),
        cmocka_unit_test(planes_that_cannot_be_counted_are_refused),
        cmocka_unit_test(depthwise_edges_match_double_sums_on_every_set),
        cmocka_unit_test(functions_are_within_few_units_of_the_truth_and_the_same_everywhere),
        cmocka_unit_test(pools_that_cannot_be_fused_are_declined),
        cmocka_unit_test(kernels_that_cannot_be_counted_are_refused),
        cmocka_unit_test(a_kernel_larger_than_its_image_is_an_error),
        cmocka_unit_test(a_twin_of_another_layer_is_refused_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS(lanes_winograd, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_by_winograd_matches_double_sums),
        cmocka_unit_test(weights_in_parts_and_panels_match_double_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS(lanes_same_bits, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_see_their_neighbours),
        cmocka_unit_test(blocks_of_a_shard_give_the_same_bits),
        cmocka_unit_test(blocks_of_a_vector_loss_give_the_same_bits),
        cmocka_unit_test(inference_gives_the_same_bits),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(a_team_of_three_gives_the_same_bits),
        cmocka_unit_test(a_convolution_in_parts_has_the_same_bits),
        cmocka_unit_test(a_convolution_is_few_jobs_of_a_team),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
