/* SPDX-License-Identifier: MIT */
/* Tests Lockstep's own kernels for convolutions of few channels: their twins beside sums in double,
 * and ops that use them beside the reference back end and beside the library's path. (That the
 * kernels have the bits of the twins is tested by gpu_rehearsal_emulated and, on a GPU, by
 * gpu_kernels.) */
#include "cuda/own_conv.h"
#include "cuda_ops/cuda_backend.h"
#include "doubles/control.h"
#include "ops/op_cases.h"
#include "ops/op_devices.h"
#include "runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- beside sums in double --------------------------------------------------------------------
 */

enum { MOST = 1 << 18 }; /* largest number of values of a tensor */

/* The tensors of a case, in device memory, which the doubles let the host access. */
typedef struct tensors {
    void *x, *w, *bias, *y, *dy;
    uint8_t *bits;
    float *partial, *dw, *db;
} tensors;

static double get(const void *from, size_t at, int half)
{
    float value;
    if (!half)
        return (double)((const float *)from)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void *room(size_t count)
{
    void *out = NULL;
    assert_int_equal(cudaMalloc(&out, count * sizeof(float)), cudaSuccess);
    return out;
}

/* Returns numbers between −scale and scale. A bf16 number is the upper half of an fp32 number. */
static void *numbers(size_t count, float scale, int half)
{
    static uint32_t state = 1;
    void *out = room(count);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const float value = (float)(int32_t)state * 0x1p-31f * scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (half)
            ((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)out)[i] = value;
    }
    return out;
}

static size_t x_count(const ls_k_conv *k)
{
    return (size_t)(k->rows * k->h * k->w * k->c);
}

static size_t w_count(const ls_k_conv *k)
{
    return (size_t)(k->out * k->kh * k->kw * k->c);
}

static size_t y_count(const ls_k_conv *k)
{
    const int cut = k->pool ? 2 : 1;
    return (size_t)(k->rows * (k->y_h / cut) * (k->y_w / cut) * k->out);
}

static tensors make_tensors(const ls_k_conv *k)
{
    assert_true(x_count(k) <= MOST && y_count(k) <= MOST);
    return (tensors){.x = numbers(x_count(k), 1, k->x_half),
                     .w = numbers(w_count(k), 0.3f, k->w_half),
                     .bias = numbers((size_t)k->out, 0.3f, k->w_half),
                     .y = room(y_count(k)),
                     .dy = numbers(y_count(k), 1, k->y_half),
                     .bits = room(y_count(k)),
                     .partial = room(ls_k_conv_partial_floats(k)),
                     .dw = room(w_count(k)),
                     .db = room((size_t)k->out)};
}

static void free_tensors(const tensors *t)
{
    void *const all[] = {t->x, t->w, t->bias, t->y, t->dy, t->bits, t->partial, t->dw, t->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(cudaFree(all[i]), cudaSuccess);
}

/* A sum in double, and the sum of the magnitudes of its terms. */
typedef struct sum {
    double value, magnitude;
} sum;

static void add(sum *to, double term)
{
    to->value += term;
    to->magnitude += fabs(term);
}

/* Returns the value of x that pixel (i, j) of the result multiplies with a weight. */
static double x_under(const ls_k_conv *k, const tensors *t, int row, int i, int j, size_t weight)
{
    const int c = (int)weight % k->c, column = (int)weight / k->c % k->kw;
    const int line = (int)weight / k->c / k->kw % k->kh;
    const int y = i * k->sh + line * k->dh - k->ph, x = j * k->sw + column * k->dw - k->pw;
    if (y < 0 || x < 0 || y >= k->h || x >= k->w)
        return 0;
    return get(t->x, (size_t)(((row * k->h + y) * k->w + x) * k->c + c), k->x_half);
}

static sum output(const ls_k_conv *k, const tensors *t, int row, int i, int j, int o)
{
    const size_t taps = w_count(k) / (size_t)k->out;
    sum s = {0, 0};
    for (size_t w = 0; w < taps; w++)
        add(&s, get(t->w, (size_t)o * taps + w, k->w_half) * x_under(k, t, row, i, j, w));
    add(&s, get(t->bias, (size_t)o, k->w_half));
    return s;
}

static double above_zero(const ls_k_conv *k, double value)
{
    return k->relu && !(value > 0) ? 0 : value;
}

/* Computes an output, which is pooled if there is a pool. The magnitude of a pooled output is the
 * largest of its pixels. */
static sum pooled_output(const ls_k_conv *k, const tensors *t, int row, int i, int j, int o)
{
    sum s = {0, 0};
    for (int p = 0; p < (k->pool ? 4 : 1); p++) {
        const sum one = k->pool ? output(k, t, row, 2 * i + p / 2, 2 * j + p % 2, o)
                                : output(k, t, row, i, j, o);
        const double value = above_zero(k, one.value);
        s.magnitude = fmax(s.magnitude, one.magnitude);
        if (!k->pool || (k->max && (p == 0 || value > s.value)))
            s.value = value;
        else if (!k->max)
            s.value += value / 4;
    }
    return s;
}

static void expect_near(const char *what, double got, sum want, double bound, int half)
{
    const double rounding = half ? fabs(want.value) * 0x1p-8 : 0;
    if (!(fabs(got - want.value) <= bound * want.magnitude + rounding + 1e-30))
        fail_msg("%s is %g, not %g; magnitude %g", what, got, want.value, want.magnitude);
}

static void check_forward(const ls_k_conv *k, const tensors *t)
{
    const int cut = k->pool ? 2 : 1, h = k->y_h / cut, w = k->y_w / cut;
    const double bound = (double)(k->c * k->kh * k->kw + 4) * 0x1p-24;
    for (int row = 0; row < k->rows; row++)
        for (int i = 0; i < h; i++)
            for (int j = 0; j < w; j++)
                for (int o = 0; o < k->out; o++)
                    expect_near(
                        "y", get(t->y, (size_t)(((row * h + i) * w + j) * k->out + o), k->y_half),
                        pooled_output(k, t, row, i, j, o), bound, k->y_half);
}

/* Returns the gradient of pixel (i, j) of the result. */
static double gradient(const ls_k_conv *k, const tensors *t, int row, int i, int j, int o)
{
    const int h = k->y_h / 2, w = k->y_w / 2;
    const size_t at = (size_t)(((row * k->y_h + i) * k->y_w + j) * k->out + o);
    const size_t pooled = (size_t)(((row * h + i / 2) * w + j / 2) * k->out + o);
    if (!k->pool)
        return k->relu && !(get(t->y, at, k->y_half) > 0) ? 0 : get(t->dy, at, k->y_half);
    if (i / 2 >= h || j / 2 >= w || !(t->bits[pooled] >> (i % 2 * 2 + j % 2) & 1))
        return 0;
    return get(t->dy, pooled, k->y_half) * (k->max ? 1 : 0.25);
}

/* A lane adds up to 4 · 4 terms, and a slice has 32 lanes; all that follows is in double. */
static void check_weights(const ls_k_conv *k, const tensors *t)
{
    const size_t taps = w_count(k) / (size_t)k->out;
    const double bound = (4 * 4 + 32 + 4) * 0x1p-24;
    for (int o = 0; o < k->out; o++)
        for (size_t w = 0; w <= taps; w++) {
            sum s = {0, 0};
            for (int row = 0; row < k->rows; row++)
                for (int i = 0; i < k->y_h; i++)
                    for (int j = 0; j < k->y_w; j++)
                        add(&s, gradient(k, t, row, i, j, o) *
                                    (w < taps ? x_under(k, t, row, i, j, w) : 1));
            expect_near(w < taps ? "dw" : "db",
                        (double)(w < taps ? t->dw[(size_t)o * taps + w] : t->db[o]), s, bound, 0);
        }
}

/* Computes a case in one form: bit 0: relu; 1: pool; 2: maximum; 3: bf16. */
static void compute(ls_k_conv k, unsigned form)
{
    k.y_h = (k.h + 2 * k.ph - (k.kh - 1) * k.dh - 1) / k.sh + 1;
    k.y_w = (k.w + 2 * k.pw - (k.kw - 1) * k.dw - 1) / k.sw + 1;
    k.relu = form & 1;
    k.pool = form >> 1 & 1;
    k.max = form >> 2 & 1;
    k.x_half = k.w_half = k.y_half = form >> 3 & 1;
    const tensors t = make_tensors(&k);
    const ls_k_conv_grad g = {.x = t.x,
                              .dy = t.dy,
                              .y = k.relu && !k.pool ? t.y : NULL,
                              .bits = t.bits,
                              .partial = t.partial,
                              .weight = t.dw,
                              .bias = t.db};
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(ls_k_conv_forward(t.y, t.bits, t.x, t.w, t.bias, &k, stream), cudaSuccess);
    assert_int_equal(ls_k_conv_weights(&g, &k, stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    check_forward(&k, &t);
    check_weights(&k, &t);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    free_tensors(&t);
}

static ls_k_conv conv(int rows, int c, int h, int w, int out, int kernel, int stride, int padding)
{
    return (ls_k_conv){.rows = rows,
                       .c = c,
                       .h = h,
                       .w = w,
                       .out = out,
                       .kh = kernel,
                       .kw = kernel,
                       .sh = stride,
                       .sw = stride,
                       .ph = padding,
                       .pw = padding,
                       .dh = 1,
                       .dw = 1};
}

static void results_are_near_sums_in_double(void **state)
{
    (void)state;
    test_cuda_begin(DBL_EAGER);
    for (unsigned form = 0; form < 16; form++) {
        compute(conv(3, 1, 28, 28, 20, 3, 1, 0), form);
        compute(conv(2, 3, 9, 13, 8, 3, 1, 1), form);
        compute(conv(2, 2, 11, 12, 12, 5, 1, 2), form);
        compute(conv(1, 4, 23, 21, 4, 7, 2, 3), form);
        ls_k_conv uneven = conv(2, 3, 14, 11, 4, 2, 3, 1);
        uneven.kw = uneven.dh = 3;
        uneven.sw = 1;
        compute(uneven, form);
    }
    for (int rows = 1; rows <= 17; rows++)
        compute(conv(rows, 1, 7, 6, 4, 3, 1, rows % 2), (unsigned)rows % 16);
}

/* ---- ops --------------------------------------------------------------------------------------
 */

enum { CASES = 120 };

static int launched[2]; /* number of runs of ls_k_conv_forward and of ls_k_conv_weights */

static void count_launch(const dbl_cost *cost)
{
    launched[0] += strcmp(cost->name, "ls_k_conv_forward") == 0;
    launched[1] += strcmp(cost->name, "ls_k_conv_weights") == 0;
}

/* Draws the first convolution of a network, in any form that the back end fuses. */
static op_chain make_first(uint64_t seed)
{
    op_chain chain = seed % 3 == 0   ? op_make_conv(seed)
                     : seed % 3 == 1 ? op_make_conv_relu(seed)
                                     : op_make_conv_pool(seed);
    ls_op_desc *op = &chain.op[0];
    op->x.c = 1 + (int)(seed % 4);
    op->u.conv2d.out = 4 * (1 + (int)(seed / 4 % 6));
    chain.needs_dx = 0;
    if (op->fuse_pool)
        op->pool = (ls_pool2d){.max = op->pool.max, .kh = 2, .kw = 2, .sh = 2, .sw = 2};
    return chain;
}

/* Returns whether the pooled result would have fewer than two pixels. */
static int pools_too_much(const op_chain *chain)
{
    const ls_op_desc *op = &chain->op[0];
    const ls_conv2d *k = &op->u.conv2d;
    const int h = ((op->x.h + 2 * k->ph - k->kh) / k->sh + 1) / 2;
    const int w = ((op->x.w + 2 * k->pw - k->kw) / k->sw + 1) / 2;
    return op->fuse_pool && h * w < 2;
}

/* In bf16, rounding can make another pixel of a window the largest, or another value pass the
 * relu. */
static int is_rounded_apart(const op_chain *chain, ls_precision precision)
{
    return precision == LS_PRECISION_BF16 && chain->op[0].fuse_pool && chain->op[0].pool.max;
}

static void compare(ls_precision precision, const op_chain *chain, double near)
{
    ls_device *device = test_cuda_open(precision);
    op_inputs *in = op_inputs_create(chain, chain->seed);
    op_result *want = op_reference(chain, in), *got = op_once(device, chain, in);
    if (!got)
        fail_msg("declined: %s", op_chain_text(chain));
    if (!is_rounded_apart(chain, precision))
        op_expect_near("cuda", chain, got, want, near);
    op_result_destroy(got);
    op_result_destroy(want);
    op_inputs_destroy(in);
    device->ops->close(device);
}

/* Every form of the op is near the reference, with the own kernels and without. */
static void first_convolutions_are_near_the_reference(void **state)
{
    static const double near[] = {OP_TOLERANCE, 2e-3, 1.5e-2};
    (void)state;
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++)
        for (int declined = 0; declined < 2; declined++) {
            int made = 0;
            dbl_decline_own_kernels(declined);
            memset(launched, 0, sizeof launched);
            dbl_watch(count_launch);
            for (uint64_t s = 40000; s < 40000 + CASES; s++) {
                const op_chain chain = make_first(s);
                if (pools_too_much(&chain))
                    continue;
                compare((ls_precision)p, &chain, near[p]);
                made++;
            }
            dbl_watch(NULL);
            dbl_decline_own_kernels(0);
            assert_true(made > CASES / 2);
            assert_int_equal(launched[0], declined ? 0 : made);
            assert_int_equal(launched[1], declined ? 0 : made);
        }
}

/* The gradients of a second block of rows are added. */
static void gradients_accumulate(void **state)
{
    (void)state;
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++) {
        ls_device *device = test_cuda_open((ls_precision)p);
        for (uint64_t s = 41000; s < 41040; s++) {
            const op_chain chain = make_first(s);
            if (pools_too_much(&chain))
                continue;
            op_expect_accumulates("cuda twice", device, &chain);
        }
        device->ops->close(device);
    }
}

/* ---- which shapes -----------------------------------------------------------------------------
 */

static void the_kernels_take_few_channels(void **state)
{
    const ls_math_shape first = {LS_MATH_CONV, 0, 1, 1, 256, 1, 28, 28, 20, 26,
                                 26,           3, 3, 1, 1,   0, 0,  1,  1,  1};
    ls_math_shape s = first;
    (void)state;
    assert_true(ls_own_conv_takes(&s) && ls_own_conv_is_first(&s));
    s.kind = LS_MATH_CONV_DATA;
    assert_false(ls_own_conv_takes(&s));
    s.kind = LS_MATH_CONV_WEIGHTS;
    s.c = 4;
    assert_true(ls_own_conv_takes(&s) && !ls_own_conv_is_first(&s));
    s.kh = s.kw = 7;
    assert_true(ls_own_conv_takes(&s));
    s.kw = 8;
    assert_false(ls_own_conv_takes(&s));
    s = first;
    s.c = 5;
    assert_false(ls_own_conv_takes(&s));
    s = first;
    s.out = 22;
    assert_false(ls_own_conv_takes(&s));
    s = first;
    s.groups = s.c = 4;
    assert_false(ls_own_conv_takes(&s));
    s = first;
    s.rows = 1 << 20;
    assert_false(ls_own_conv_takes(&s)); /* y has more than 2³¹ values */
}

LS_TESTS(cuda_own_conv, "integration doubles no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_take_few_channels),
        cmocka_unit_test(results_are_near_sums_in_double),
        cmocka_unit_test(first_convolutions_are_near_the_reference),
        cmocka_unit_test(gradients_accumulate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
