/* SPDX-License-Identifier: MIT */
/* Cases of kernels: arenas, element-wise work, data and loss. */
#include "cuda_gpu/kernels_run.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Numbers of elements: some fill whole blocks and some do not, and with one of them loads are not
 * aligned. */
static const size_t counts[] = {1, 1000, 16384, 40003};
static const char *const count_names[] = {"1", "1000", "16384", "40003"};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- arenas --------------------------------------------------------------------------------- */

/* Returns the arguments of the last of several training steps. */
static ls_k_args *step_args(run *r, float *stats_copy, uint64_t *digest)
{
    ls_k_steps value = {.step = {[LS_K_STEPS - 1] = {.stats_copy = stats_copy,
                                                     .digest = digest,
                                                     .step = 7,
                                                     .seed = 11,
                                                     .epoch = 3,
                                                     .lr = 0.1f,
                                                     .scale = 0.25f,
                                                     .row_scale = 0.125f}}};
    ls_k_args *args = run_room(r, LS_K_STEPS * sizeof *args);
    run_ok(r, ls_k_set_args(args, &value, LS_K_STEPS, r->stream));
    return args + LS_K_STEPS - 1;
}

/* Returns a guard with `skip` and the loss `loss`, which may be infinite or NaN. */
static ls_k_guard guard(run *r, float loss, float skip)
{
    const float stats[2] = {loss, 3};
    return (ls_k_guard){.loss = run_copy(r, stats, sizeof stats),
                        .skip = run_copy(r, &skip, sizeof skip)};
}

/* Adds bf16 shadows: the weights are written to a shadow, and every other 16 gradients are read
 * from one. */
static ls_k_update with_shadows(run *r, size_t n, ls_k_update of)
{
    uint32_t marks[40016 / 16 / 32 + 1];
    memset(marks, 0x55, sizeof marks);
    of.count = n;
    of.sums = 1;
    of.shadow = run_halves(r, n, 1);
    of.shadow_grad = run_halves(r, n, 1);
    of.in_shadow = run_copy(r, marks, sizeof marks);
    return of;
}

/* Returns memory for a digest, which is not 0. */
static uint64_t *digest_room(run *r)
{
    const uint64_t begin = UINT64_C(0xfedcba9876543210);
    return run_copy(r, &begin, sizeof begin);
}

static void keep_digest(run *r, const char *name, const uint64_t *digest)
{
    run_keep(r, name, digest, RUN_INT, 2);
}

/* An update that must be skipped changes nothing, and later updates are skipped too. The loss of
 * each step is reported. */
static void skipped_updates(run *r, size_t n)
{
    const ls_k_adamw adamw = {0.9f, 0.999f, 1e-8f, 0.01f};
    const float nowhere[4] = {9, 9, 9, 9};
    float *stats_copy = run_copy(r, nowhere, sizeof nowhere);
    uint64_t *digest = digest_room(r);
    ls_k_args *args[2] = {step_args(r, stats_copy, digest), step_args(r, stats_copy + 2, NULL)};
    float *g = run_floats(r, n, 1);
    /* 0: the update is applied; 1: the loss is not finite; 2: an earlier loss was not finite */
    for (int form = 0; form < 3; form++) {
        float *w = run_floats(r, n, 1), *m = run_floats(r, n, 0.1f), *v = run_floats(r, n, 1);
        float *stats = run_floats(r, n, 1);
        ls_k_guard of = guard(r, form == 1 ? NAN : 2.5f, form == 2);
        run_ok(r, ls_k_add(v, v, v, 0, 1, n, r->stream));
        ls_k_update u = with_shadows(
            r, n, (ls_k_update){.w = w, .slot = {m, v}, .grad = g, .args = args[0], .guard = of});
        run_ok(r, ls_k_sgd(&u, 0.9f, 0.01f, 0, r->stream));
        run_keep(r, "guarded shadow", u.shadow, RUN_HALF, n);
        u.args = args[1];
        run_ok(r, ls_k_adamw_step(&u, &adamw, r->stream));
        run_keep(r, "guarded shadow", u.shadow, RUN_HALF, n);
        const ls_k_update s = {
            .w = stats, .grad = g, .args = args[0], .guard = of, .count = n, .sums = 1};
        run_ok(r, ls_k_running(&s, 0.1f, 0, r->stream));
        keep_digest(r, "guarded digest", digest);
        run_keep(r, "guarded weights", w, RUN_FLOAT, n);
        run_keep(r, "guarded first", m, RUN_FLOAT, n);
        run_keep(r, "guarded second", v, RUN_FLOAT, n);
        run_keep(r, "guarded running", stats, RUN_FLOAT, n);
        run_keep(r, "skip", of.skip, RUN_FLOAT, 1);
        /* compared as bits, because one of them is NaN */
        run_keep(r, "stats_copy", stats_copy, RUN_INT, 4);
    }
}

static void updates(run *r, size_t n)
{
    enum { AT = 320, AT_FIRST = 16 * 70000, AT_SECOND = 16 * 90000 }; /* positions in the digest */
    const ls_k_adamw adamw = {0.9f, 0.999f, 1e-8f, 0.01f};
    uint64_t *digest = digest_room(r);
    ls_k_args *args = step_args(r, NULL, digest);
    float *g = run_floats(r, n, 1);
    for (int form = 0; form < 3; form++) {
        float *w = run_floats(r, n, 1), *v = form > 0 ? run_floats(r, n, 1) : NULL;
        const ls_k_update u = {.w = w,
                               .slot = {v},
                               .grad = g,
                               .args = args,
                               .count = n,
                               .sums = 1,
                               .digest_at = {AT, AT_FIRST}};
        run_ok(r, ls_k_sgd(&u, form > 0 ? 0.9f : 0, 0.01f, form == 2, r->stream));
        keep_digest(r, "sgd digest", digest);
        run_keep(r, form == 2 ? "sgd nesterov" : form ? "sgd momentum" : "sgd", w, RUN_FLOAT, n);
        if (v)
            run_keep(r, "sgd velocity", v, RUN_FLOAT, n);
    }
    float *w = run_floats(r, n, 1), *m = run_floats(r, n, 0.1f), *v = run_floats(r, n, 1);
    run_ok(r, ls_k_add(v, v, v, 0, 1, n, r->stream)); /* so that no value is below 0 */
    const ls_k_update u = {.w = w,
                           .slot = {m, v},
                           .grad = g,
                           .args = args,
                           .count = n,
                           .sums = 1,
                           .digest_at = {AT, AT_FIRST, AT_SECOND}};
    run_ok(r, ls_k_adamw_step(&u, &adamw, r->stream));
    keep_digest(r, "adamw digest", digest);
    run_keep(r, "adamw", w, RUN_FLOAT, n);
    run_keep(r, "adamw first", m, RUN_FLOAT, n);
    run_keep(r, "adamw second", v, RUN_FLOAT, n);
    float *stats = run_floats(r, n, 1);
    const ls_k_update s = {
        .w = stats, .grad = g, .args = args, .count = n - 1, .sums = 1, .digest_at = {AT_FIRST}};
    run_ok(r, ls_k_digest(stats, args, AT, n - 2, r->stream));
    keep_digest(r, "digest", digest);
    run_ok(r, ls_k_running(&s, 0.1f, 0, r->stream));
    keep_digest(r, "running digest", digest);
    run_keep(r, "running", stats, RUN_FLOAT, n);
}

static void tree(run *r, size_t n, int arenas, const uint8_t *order)
{
    const float *in[16];
    float *out = run_room(r, n * sizeof *out);
    for (int i = 0; i < arenas; i++)
        in[i] = run_floats(r, n, 1);
    run_ok(r, ls_k_add_arenas(out, in, arenas, order, n, r->stream));
    run_keep(r, "add_arenas", out, RUN_FLOAT, n);
}

/* More floats than a grid has threads. */
static void large_digest(run *r)
{
    enum { FLOATS = (1 << 20) + 21 };
    uint64_t *digest = digest_room(r);
    const float *x = run_floats(r, FLOATS, 1);
    r->shape = "large";
    run_ok(r, ls_k_digest(x, step_args(r, NULL, digest), 48, FLOATS, r->stream));
    keep_digest(r, "digest", digest);
    run_drop(r);
}

void run_arena_kernels(run *r)
{
    enum { MOST = 13 };
    uint8_t in_turn[2 * MOST] = {0}, halves[] = {0, 1, LS_K_ADD, 2, 3, LS_K_ADD, LS_K_ADD};
    for (int k = 1; k < MOST; k++) {
        in_turn[2 * k - 1] = (uint8_t)k;
        in_turn[2 * k] = LS_K_ADD;
    }
    for (int i = 0; i < COUNTS; i++) {
        r->shape = count_names[i];
        updates(r, (counts[i] + 15) / 16 * 16); /* rounded up, as in arenas */
        skipped_updates(r, (counts[i] + 15) / 16 * 16);
        for (int arenas = 1; arenas <= MOST; arenas += 4)
            tree(r, counts[i], arenas, in_turn);
        tree(r, counts[i], 4, halves);
        run_drop(r);
    }
    if (!r->small)
        large_digest(r);
}

/* ---- element by element --------------------------------------------------------------------- */

static void points(run *r, size_t n)
{
    const size_t bytes = n * sizeof(float);
    float *x = run_floats(r, n, 3), *x2 = run_floats(r, n, 3), *dy = run_floats(r, n, 1);
    float *y = run_room(r, bytes), *dx = run_room(r, bytes), *dx2 = run_room(r, bytes);
    run_ok(r, ls_k_sum(y, x, x2, n, r->stream));
    run_keep(r, "sum", y, RUN_FLOAT, n);
    for (int relu = 0; relu < 2; relu++) {
        run_ok(r, ls_k_add(y, x, x2, 0, relu, n, r->stream));
        run_keep(r, relu ? "add relu" : "add", y, RUN_FLOAT, n);
        run_ok(r, ls_k_add_back(dx, dx2, dy, relu ? y : NULL, 0, n, r->stream));
        run_keep(r, "add_back", dx, RUN_FLOAT, n);
        run_keep(r, "add_back second", dx2, RUN_FLOAT, n);
        const ls_k_shape slope = {.slope = relu ? 0.1f : 0};
        run_ok(r, ls_k_curve_of(y, x, LS_K_RELU, slope, n, r->stream));
        run_keep(r, "relu", y, RUN_FLOAT, n);
        run_ok(r, ls_k_curve_back(dx, dy, y, LS_K_RELU, slope, n, r->stream));
        run_keep(r, "relu_back", dx, RUN_FLOAT, n);
    }
    static const char *const curves[] = {"relu",      "sigmoid", "tanh",         "gelu",
                                         "silu",      "clamp",   "hard_sigmoid", "hard_swish",
                                         "gelu_tanh", "affine"};
    const ls_k_shape shape = {0.3f, 0.4f, -0.25f, 0.5f};
    for (int curve = LS_K_SIGMOID; curve <= LS_K_AFFINE; curve++) {
        const int by_x = curve == LS_K_GELU || curve == LS_K_SILU || curve == LS_K_HARD_SWISH ||
                         curve == LS_K_GELU_TANH;
        run_ok(r, ls_k_curve_of(y, x, (ls_k_curve)curve, shape, n, r->stream));
        run_keep(r, curves[curve], y, RUN_FLOAT, n);
        run_ok(r, ls_k_curve_back(dx, dy, by_x ? x : y, (ls_k_curve)curve, shape, n, r->stream));
        run_keep(r, "curve_back", dx, RUN_FLOAT, n);
    }
    uint16_t *half = run_room(r, n * sizeof *half);
    run_ok(r, ls_k_to_bf16(half, x, n, r->stream));
    run_keep(r, "to_bf16", half, RUN_HALF, n);
    for (int add = 0; add < 2; add++) {
        run_ok(r, ls_k_from_bf16(dx, half, n, add, r->stream));
        run_keep(r, add ? "from_bf16 added" : "from_bf16", dx, RUN_FLOAT, n);
    }
}

static void half_points(run *r, size_t n)
{
    const size_t bytes = n * sizeof(uint16_t);
    uint16_t *x = run_halves(r, n, 3), *x2 = run_halves(r, n, 3), *dy = run_halves(r, n, 1);
    uint16_t *y = run_room(r, bytes), *dx = run_room(r, bytes), *dx2 = run_room(r, bytes);
    for (int relu = 0; relu < 2; relu++) {
        run_ok(r, ls_k_add(y, x, x2, 1, relu, n, r->stream));
        run_keep(r, relu ? "bf16 add relu" : "bf16 add", y, RUN_HALF, n);
        run_ok(r, ls_k_add_back(dx, dx2, dy, relu ? y : NULL, 1, n, r->stream));
        run_keep(r, "bf16 add_back", dx, RUN_HALF, n);
        run_keep(r, "bf16 add_back second", dx2, RUN_HALF, n);
    }
    run_ok(r, ls_k_add(dx, dx, dy, 1, 0, n, r->stream));
    run_keep(r, "bf16 add in place", dx, RUN_HALF, n);
}

static void dropout(run *r, int rows, int c, int pixels, int channels_last)
{
    const size_t n = (size_t)rows * (size_t)c * (size_t)pixels;
    uint32_t row[64];
    for (int i = 0; i < rows; i++)
        row[i] = (uint32_t)(i * 5 % 61);
    ls_k_args value = {.rows = run_copy(r, row, sizeof row), .seed = 5, .epoch = 2};
    ls_k_args *args = run_copy(r, &value, sizeof value);
    const ls_k_dropout d = {args, 0x1003, 0.4f, rows, c, pixels, channels_last};
    float *x = run_floats(r, n, 1), *y = run_room(r, n * sizeof *y);
    uint8_t *kept = run_room(r, n);
    run_ok(r, ls_k_drop(y, kept, x, &d, r->stream));
    run_keep(r, "drop", y, RUN_FLOAT, n);
    run_keep(r, "drop kept", kept, RUN_BYTE, n);
    run_ok(r, ls_k_drop_back(y, x, kept, d.p, n, r->stream));
    run_keep(r, "drop_back", y, RUN_FLOAT, n);
}

static void products(run *r, int rows, int pixels, int c)
{
    const ls_k_scale k = {rows, pixels, c};
    const size_t n = (size_t)rows * (size_t)pixels * (size_t)c, few = (size_t)rows * (size_t)c;
    float *x = run_floats(r, n, 3), *x2 = run_floats(r, n, 3), *dy = run_floats(r, n, 1);
    float *y = run_room(r, n * sizeof *y), *dx = run_room(r, n * sizeof *dx);
    float *dx2 = run_room(r, n * sizeof *dx2);
    run_ok(r, ls_k_multiply(y, x, x2, n, r->stream));
    run_keep(r, "multiply", y, RUN_FLOAT, n);
    run_ok(r, ls_k_multiply_back(dx, dx2, dy, x, x2, n, r->stream));
    run_keep(r, "multiply_back", dx, RUN_FLOAT, n);
    run_keep(r, "multiply_back second", dx2, RUN_FLOAT, n);
    run_ok(r, ls_k_scale_by(y, x, x2, &k, r->stream));
    run_keep(r, "scale_by", y, RUN_FLOAT, n);
    run_ok(r, ls_k_scale_back(dx, dx2, dy, x, x2, &k, r->stream));
    run_keep(r, "scale_back", dx, RUN_FLOAT, n);
    run_keep(r, "scale_back second", dx2, RUN_FLOAT, few);
}

static void concat(run *r, size_t m, int c1, int c2)
{
    const size_t n = m * (size_t)c1, n2 = m * (size_t)c2;
    float *x = run_floats(r, n, 1), *x2 = run_floats(r, n2, 1);
    float *y = run_room(r, (n + n2) * sizeof *y);
    run_ok(r, ls_k_concat(y, x, x2, m, c1, c2, r->stream));
    run_keep(r, "concat", y, RUN_FLOAT, n + n2);
    float *dx = run_room(r, n * sizeof *dx), *dx2 = run_room(r, n2 * sizeof *dx2);
    run_ok(r, ls_k_concat_back(dx, dx2, y, m, c1, c2, r->stream));
    run_keep(r, "concat_back", dx, RUN_FLOAT, n);
    run_keep(r, "concat_back second", dx2, RUN_FLOAT, n2);
}

static void upsample(run *r, int rows, int c, int sh, int sw)
{
    const ls_k_upsample k = {rows, c, 7, 5, sh, sw};
    const size_t n = (size_t)(rows * c * 35), large = n * (size_t)(sh * sw);
    float *x = run_floats(r, n, 1), *y = run_room(r, large * sizeof *y);
    run_ok(r, ls_k_upsample_of(y, x, &k, r->stream));
    run_keep(r, "upsample", y, RUN_FLOAT, large);
    run_ok(r, ls_k_upsample_back(x, run_floats(r, large, 1), &k, r->stream));
    run_keep(r, "upsample_back", x, RUN_FLOAT, n);
}

static void pad(run *r, int c, int top, int left, int h, int w)
{
    const ls_k_pad k = {3, c, 7, 5, h, w, top, left};
    const size_t n = (size_t)(3 * c * h * w);
    float *x = run_floats(r, (size_t)(3 * c * 35), 1), *y = run_room(r, n * sizeof *y);
    run_ok(r, ls_k_pad_of(y, x, &k, r->stream));
    run_keep(r, "pad", y, RUN_FLOAT, n);
}

static void busy(run *r)
{
    uint32_t *out = run_room(r, 2 * LS_K_BUSY * sizeof *out);
    run_ok(r, ls_k_busy(out, 2, 5, r->stream));
    run_keep(r, "busy", out, RUN_INT, 2 * LS_K_BUSY);
}

void run_point_kernels(run *r)
{
    for (int i = 0; i < COUNTS; i++) {
        r->shape = count_names[i];
        points(r, counts[i]);
        half_points(r, counts[i]);
        run_drop(r);
    }
    r->shape = "17 rows of 5 x 12";
    dropout(r, 17, 5, 12, 0);
    dropout(r, 17, 5, 12, 1);
    products(r, 3, 49, 40);
    products(r, 2, 1000, 5);
    concat(r, 204, 5, 8);
    concat(r, 3001, 1, 17);
    upsample(r, 17, 5, 2, 2);
    upsample(r, 3, 40, 1, 3);
    pad(r, 5, 2, 0, 10, 8);
    pad(r, 40, 0, 1, 7, 6);
    pad(r, 9, -3, -1, 3, 4);
    busy(r);
    run_drop(r);
}

/* ---- data ----------------------------------------------------------------------------------- */

/* Gathers rows of bytes with a label each, or, with `floats`, rows of floats with four targets
 * each. */
static void gather(run *r, bool floats, int c, int side, int augment, bool more)
{
    enum { IMAGES = 40, ROWS = 33, TARGETS = 4 };
    static uint8_t images[IMAGES * 3 * 32 * 32];
    int32_t labels[IMAGES];
    uint32_t row[ROWS];
    const size_t values = (size_t)(c * side * side), words = floats ? TARGETS : 1;
    for (size_t i = 0; i < sizeof images; i++)
        images[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < IMAGES; i++)
        labels[i] = i % 10;
    for (int i = 0; i < ROWS; i++)
        row[i] = (uint32_t)(i * 7 % IMAGES);
    ls_k_args value = {.rows = run_copy(r, row, sizeof row), .seed = 9, .epoch = 4};
    ls_k_gather k = {
        .images = floats ? (const void *)run_floats(r, IMAGES * values, 3)
                         : run_copy(r, images, IMAGES * values),
        .labels = floats ? (const void *)run_floats(r, IMAGES * TARGETS, 1)
                         : run_copy(r, labels, sizeof labels),
        .labels_out = run_room(r, ROWS * words * sizeof(float)),
        .y = run_room(r, ROWS * values * sizeof(float)),
        .args = run_copy(r, &value, sizeof value),
        .rows = ROWS,
        .c = c,
        .h = side,
        .w = side,
        .mean = {0.5f, 0.4f, 0.3f, 0},
        .std = {0.25f, 0.2f, 0.3f, 1},
        .crop = augment ? 4 : 0,
        .flip = augment,
        .rotate = more ? 20 : 0,
        .erase = more ? side / 3 : 0,
        .brightness = more ? 64 : 0,
        .mixup = more ? 128 : 0,
        .part = more ? 20000 : 0,
        .floats = floats,
        .words = (int)words,
        .vectors = floats,
    };
    run_ok(r, ls_k_gather_rows(&k, r->stream));
    run_keep(r,
             more      ? "gather changed"
             : augment ? "gather augmented"
                       : "gather",
             k.y, RUN_FLOAT, ROWS * values);
    run_keep(r, floats ? "gather targets" : "gather labels", k.labels_out, RUN_INT, ROWS * words);
}

static void transpose(run *r, int rows, int a, int b)
{
    const size_t n = (size_t)rows * (size_t)a * (size_t)b;
    float *x = run_floats(r, n, 1), *y = run_room(r, n * sizeof *y);
    run_ok(r, ls_k_transpose(y, x, rows, a, b, r->stream));
    run_keep(r, "transpose", y, RUN_FLOAT, n);
}

void run_data_kernels(run *r)
{
    r->shape = "1 x 28 x 28";
    gather(r, false, 1, 28, 0, false);
    gather(r, false, 1, 28, 1, false);
    gather(r, false, 1, 28, 1, true);
    r->shape = "3 x 32 x 32";
    gather(r, false, 3, 32, 0, false);
    gather(r, false, 3, 32, 1, false);
    gather(r, false, 3, 32, 1, true);
    gather(r, true, 3, 32, 1, false);
    gather(r, true, 3, 32, 1, true);
    r->shape = "30 x 1 x 1";
    gather(r, true, 30, 1, 0, false);
    r->shape = "3 x 32 x 32";
    transpose(r, 3, 5, 7);
    transpose(r, 9, 64, 784);
    transpose(r, 300, 33, 49);
    run_drop(r);
}

/* ---- loss ----------------------------------------------------------------------------------- */

static void loss(run *r, int rows, int classes, float smoothing, int weighted)
{
    const size_t n = (size_t)rows * (size_t)classes;
    int32_t labels[800];
    const float zeros[2] = {0, 0};
    const ls_k_fault none = {0, 0, 0, 0};
    for (int i = 0; i < rows; i++)
        labels[i] = i * 3 % classes;
    ls_k_xent k = {
        .x = run_floats(r, n, 4),
        .labels = run_copy(r, labels, (size_t)rows * sizeof *labels),
        .weight = weighted ? run_floats(r, (size_t)classes, 9) : NULL,
        .dx = run_room(r, n * sizeof(float)),
        .stats = run_copy(r, zeros, sizeof zeros),
        .row = run_room(r, 2 * (size_t)rows * sizeof(float)),
        .fault = run_copy(r, &none, sizeof none),
        .rows = rows,
        .classes = classes,
        .smoothing = smoothing,
    };
    for (k.add = 0; k.add < 2; k.add++) {
        run_ok(r, ls_k_softmax_xent(&k, r->stream));
        run_keep(r, "softmax", k.stats, RUN_FLOAT, 2);
    }
    run_keep(r, "softmax dx", k.dx, RUN_FLOAT, n);
    run_keep(r, "softmax fault", k.fault, RUN_INT, sizeof none / sizeof(int32_t));
}

static void vector_loss(run *r, int rows, int each, int rule)
{
    const size_t n = (size_t)rows * (size_t)each;
    const float zeros[2] = {0, 0};
    ls_k_vector_loss k = {
        .x = run_floats(r, n, 4),
        .targets = run_floats(r, n, 1),
        .dx = run_room(r, n * sizeof(float)),
        .stats = run_copy(r, zeros, sizeof zeros),
        .row = run_room(r, 2 * (size_t)rows * sizeof(float)),
        .rows = rows,
        .n = each,
        .each = rule == LS_K_QUANTILE ? each / 3 : each,
        .rule = rule,
        .delta = 0.75,
        .quantile = {0.05, 0.5, 0.9},
    };
    for (k.add = 0; k.add < 2; k.add++) {
        run_ok(r, ls_k_vector_loss_of(&k, r->stream));
        run_keep(r, "vector loss", k.stats, RUN_FLOAT, 2);
    }
    run_keep(r, "vector loss dx", k.dx, RUN_FLOAT, n);
}

void run_loss_kernels(run *r)
{
    for (int rule = LS_K_MSE; rule < LS_K_RULES; rule++) {
        r->shape = "256 x 3";
        vector_loss(r, 256, 3, rule);
        r->shape = "33 x 783";
        vector_loss(r, 33, 783, rule);
    }
    r->shape = "256 x 10";
    loss(r, 256, 10, 0, 0);
    loss(r, 256, 10, 0.1f, 1);
    r->shape = "800 x 10";
    loss(r, 800, 10, 0.1f, 1);
    r->shape = "300 x 32";
    loss(r, 300, 32, 0.1f, 1);
    r->shape = "300 x 33";
    loss(r, 300, 33, 0, 0);
    r->shape = "7 x 100";
    loss(r, 7, 100, 0.1f, 1);
    r->shape = "1 x 1";
    loss(r, 1, 1, 0, 0);
    run_drop(r);
}
