/* SPDX-License-Identifier: MIT */
/* Cases of kernels: pooling, sums over positions and batch norm. */
#include "cuda_gpu/kernels_run.h"

/* ---- pooling -------------------------------------------------------------------------------- */

/* Runs the pooling kernels with the average `p`, and with the maximum over the same windows. */
static void pool(run *r, const ls_k_pool *p)
{
    ls_k_pool max = *p;
    max.max = 1;
    const size_t x_count = (size_t)p->rows * (size_t)p->c * (size_t)p->h * (size_t)p->w;
    const size_t y_count = (size_t)p->rows * (size_t)p->c * (size_t)p->y_h * (size_t)p->y_w;
    float *x = run_floats(r, x_count, 1), *dy = run_floats(r, y_count, 1);
    float *y = run_room(r, y_count * sizeof *y), *dx = run_room(r, x_count * sizeof *dx);
    int32_t *at = run_room(r, y_count * sizeof *at);
    run_ok(r, ls_k_pool_forward(y, at, x, &max, r->stream));
    run_keep(r, "pool_max", y, RUN_FLOAT, y_count);
    run_keep(r, "pool_max at", at, RUN_INT, y_count);
    run_ok(r, ls_k_pool_back(dx, dy, at, &max, r->stream));
    run_keep(r, "pool_max_back", dx, RUN_FLOAT, x_count);
    run_ok(r, ls_k_pool_forward(y, NULL, x, p, r->stream));
    run_keep(r, "pool_average", y, RUN_FLOAT, y_count);
    run_ok(r, ls_k_pool_back(dx, dy, NULL, p, r->stream));
    run_keep(r, "pool_average_back", dx, RUN_FLOAT, x_count);
    run_drop(r);
}

static void *tensor(run *r, size_t n, float scale, int half);
static void *room(run *r, size_t n, int half);
static void keep(run *r, const char *name, const void *at, size_t n, int half);

static void quads(run *r, ls_k_quads k, int c, int add)
{
    k.c = c;
    const size_t x_count = (size_t)(k.rows * c * k.h * k.w), channels = (size_t)c;
    const size_t m = (size_t)(k.rows * (k.h / 2) * (k.w / 2)), y_count = m * channels;
    void *x = tensor(r, x_count, 1, k.half), *dy = tensor(r, y_count, 1, k.half);
    void *y = room(r, y_count, k.half), *dx = room(r, x_count, k.half);
    float *bias = run_floats(r, channels, 0.3f), *sum = run_floats(r, channels, 1);
    float *partial = run_room(r, ls_k_partial_floats(m, c) * sizeof *partial + 4);
    uint8_t *bits = run_room(r, y_count);
    run_ok(r, ls_k_quads_forward(y, NULL, x, bias, &k, r->stream));
    keep(r, "quads evaluated", y, y_count, k.half);
    run_ok(r, ls_k_quads_forward(y, bits, x, add ? bias : NULL, &k, r->stream));
    keep(r, "quads", y, y_count, k.half);
    run_keep(r, "quads bits", bits, RUN_BYTE, y_count);
    run_ok(r, ls_k_quads_back(dx, NULL, 0, dy, bits, NULL, &k, r->stream));
    keep(r, "quads_back", dx, x_count, k.half);
    run_ok(r, ls_k_quads_back(dx, sum, add, dy, bits, partial, &k, r->stream));
    keep(r, "quads_back with sums", dx, x_count, k.half);
    run_keep(r, "quads_back bias", sum, RUN_FLOAT, channels);
    run_drop(r);
}

static void run_quads(run *r)
{
    for (int form = 0; form < 8; form++) {
        const ls_k_quads k = {9, 0, 12, 10, form & 1, form >> 1 & 1, form >> 2};
        const ls_k_quads odd = {2, 0, 5, 7, form & 1, form >> 1 & 1, form >> 2};
        r->shape = "12 x 10 of 24";
        quads(r, k, 24, 1);
        r->shape = "12 x 10 of 5";
        quads(r, k, 5, 0);
        r->shape = "5 x 7 of 72";
        quads(r, odd, 72, 0);
        r->shape = "5 x 7 of 1";
        quads(r, odd, 1, 1);
    }
}

void run_pool_kernels(run *r)
{
    run_quads(r);
    r->shape = "2 x 2";
    pool(r, &(ls_k_pool){33, 20, 26, 26, 13, 13, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0});
    r->shape = "3 x 3 overlapping";
    pool(r, &(ls_k_pool){5, 7, 9, 9, 5, 5, 3, 3, 2, 2, 1, 1, 0, 0, 0, 0});
    r->shape = "3 x 3 overlapping, of 8";
    pool(r, &(ls_k_pool){3, 8, 10, 7, 5, 4, 3, 3, 2, 2, 1, 1, 0, 0, 0, 0});
    r->shape = "3 x 2, floor";
    pool(r, &(ls_k_pool){4, 3, 8, 7, 2, 3, 3, 2, 3, 2, 0, 0, 0, 0, 0, 0});
    r->shape = "3 x 3, sides that differ, padding counted";
    pool(r, &(ls_k_pool){4, 8, 9, 8, 5, 4, 3, 3, 2, 2, 1, 0, 0, 10, 10, 1});
    r->shape = "global 7 x 7";
    pool(r, &(ls_k_pool){16, 512, 7, 7, 1, 1, 7, 7, 1, 1, 0, 0, 0, 0, 0, 0});
}

/* ---- sums over positions -------------------------------------------------------------------- */

/* Returns n generated numbers in fp32 or bf16. */
static void *tensor(run *r, size_t n, float scale, int half)
{
    return half ? (void *)run_halves(r, n, scale) : run_floats(r, n, scale);
}

static void *room(run *r, size_t n, int half)
{
    return run_room(r, n * (half ? sizeof(uint16_t) : sizeof(float)));
}

static void keep(run *r, const char *name, const void *at, size_t n, int half)
{
    char title[48];
    snprintf(title, sizeof title, "%s%s", half ? "bf16 " : "", name);
    run_keep(r, title, at, half ? RUN_HALF : RUN_FLOAT, n);
}

static void keep_sums(run *r, const char *name, const float *at, size_t n, int half)
{
    char title[48];
    snprintf(title, sizeof title, "%s%s", half ? "of bf16 " : "", name);
    run_keep(r, title, at, RUN_FLOAT, n);
}

static void bias(run *r, size_t m, int c, int half)
{
    const size_t n = m * (size_t)c, channels = (size_t)c;
    void *y = tensor(r, n, 1, half), *dy = tensor(r, n, 1, half), *masked = room(r, n, half);
    float *b = run_floats(r, channels, 1), *sum = run_floats(r, channels, 1);
    float *partial = run_room(r, ls_k_partial_floats(m, c) * sizeof *partial + 4);
    run_ok(r, ls_k_bias_grad(sum, masked, dy, y, half, 0, partial, m, c, r->stream));
    keep_sums(r, "bias_grad", sum, channels, half);
    keep(r, "bias_grad masked", masked, n, half);
    run_ok(r, ls_k_bias_grad(sum, NULL, dy, NULL, half, 1, partial, m, c, r->stream));
    keep_sums(r, "bias_grad added", sum, channels, half);
    for (int relu = 0; relu < 2; relu++) {
        run_ok(r, ls_k_bias(y, b, half, relu, m, c, r->stream));
        keep(r, relu ? "bias relu" : "bias", y, n, half);
    }
    run_ok(r, ls_k_bias(y, NULL, half, 1, m, c, r->stream));
    keep(r, "bias of nothing", y, n, half);
}

/* A bias with more outputs than a grid has blocks along y. */
static void wide_bias(run *r)
{
    enum { WIDE = 8 * 65535 + 11 };
    r->shape = "1 x 524291";
    float *y = run_floats(r, WIDE, 1), *b = run_floats(r, WIDE, 1);
    run_ok(r, ls_k_bias(y, b, 0, 1, 1, WIDE, r->stream));
    run_keep(r, "bias relu", y, RUN_FLOAT, WIDE);
    run_drop(r);
}

/* ---- batch norm ----------------------------------------------------------------------------- */

/* Runs the kernels of batch norm. With `relu`, x2 is added before the relu. */
static void norm(run *r, size_t m, int c, int relu, int half)
{
    const size_t n = m * (size_t)c, channels = (size_t)c, bytes = channels * sizeof(float);
    const ls_k_norm k = {m, c, (int)(m > 8 ? 8 : m), 1e-5f, relu, half};
    void *x = tensor(r, n, 2, half), *x2 = tensor(r, n, 1, half), *dy = tensor(r, n, 1, half);
    void *y = room(r, n, half), *dx = room(r, n, half), *dx2 = room(r, n, half);
    float *weight = run_floats(r, channels, 1), *shift = run_floats(r, channels, 1);
    float *mean = run_room(r, bytes), *inverse = run_room(r, bytes), *sums = run_room(r, 2 * bytes);
    float *contribution = run_floats(r, 2 * channels, 1);
    float *partial = run_room(r, ls_k_partial_floats(m, c) * sizeof *partial + 4);
    /* The numbers are not below zero, because the rounding error of a mean that nearly cancels
     * exceeds the tolerance. */
    run_ok(r, ls_k_bias(x, NULL, half, 1, m, c, r->stream));
    for (int add = 0; add < 2; add++) {
        run_ok(r,
               ls_k_norm_statistics(mean, inverse, contribution, add, x, partial, &k, r->stream));
        keep_sums(r, "norm contribution", contribution, 2 * channels, half);
    }
    keep_sums(r, "norm mean", mean, channels, half);
    keep_sums(r, "norm inverse", inverse, channels, half);
    const size_t mask_bytes = ls_k_mask_bytes(m, c, half);
    uint8_t *mask = relu ? run_room(r, mask_bytes) : NULL;
    run_ok(r, ls_k_norm_apply(y, mask, x, relu ? x2 : NULL, mean, inverse, weight, shift, &k,
                              r->stream));
    keep(r, "norm_apply", y, n, half);
    if (relu)
        run_keep(r, half ? "bf16 norm_apply mask" : "norm_apply mask", mask, RUN_BYTE, mask_bytes);
    run_ok(r, ls_k_norm_apply(y, NULL, x, NULL, mean, inverse, weight, shift, &k, r->stream));
    keep(r, "norm_apply alone", y, n, half);
    run_ok(r, ls_k_norm_dx(dx, relu ? NULL : dx2, x, dy, mask, mean, inverse, weight, contribution,
                           &k, r->stream));
    keep(r, "norm_dx of any sums", dx, n, half);
    if (!relu)
        keep(r, "norm_dx of any sums, second", dx2, n, half);
    float *wg = run_floats(r, channels, 1), *bg = run_floats(r, channels, 1);
    for (int add = 0; add < 2; add++) {
        run_ok(r, ls_k_norm_grad(wg, bg, sums, add, x, dy, mask, mean, inverse, partial, &k,
                                 r->stream));
        keep_sums(r, "norm_grad weight", wg, channels, half);
        keep_sums(r, "norm_grad bias", bg, channels, half);
    }
    keep_sums(r, "norm_grad sums", sums, 2 * channels, half);
    run_ok(r, ls_k_norm_dx(dx, relu ? dx2 : NULL, x, dy, mask, mean, inverse, weight, sums, &k,
                           r->stream));
    keep(r, "norm_dx", dx, n, half);
    if (relu)
        keep(r, "norm_dx second", dx2, n, half);
    /* The statistics are separate numbers that are not below zero, because sums that nearly cancel
     * differ by more than the tolerance. */
    float *given = run_floats(r, 2 * channels, 1), *offset = run_floats(r, 2 * channels, 1);
    run_ok(r, ls_k_bias(given, offset, 0, 1, 1, 2 * c, r->stream));
    run_ok(r, ls_k_norm_running(mean, inverse, given, &k, r->stream));
    run_keep(r, "norm_running mean", mean, RUN_FLOAT, channels);
    run_keep(r, "norm_running inverse", inverse, RUN_FLOAT, channels);
}

static void layer_norm(run *r, int rows, size_t n)
{
    const size_t all = (size_t)rows * n, bytes = n * sizeof(float);
    float *x = run_floats(r, all, 2), *dy = run_floats(r, all, 1), *y = run_room(r, all * 4);
    float *weight = run_floats(r, n, 1), *bias = run_floats(r, n, 1);
    float *stats = run_room(r, (size_t)rows * 2 * sizeof *stats);
    float *grad[2] = {run_room(r, bytes), run_room(r, bytes)};
    run_ok(r, ls_k_layer_norm(y, stats, x, weight, bias, 1e-3f, rows, n, r->stream));
    run_keep(r, "layer_norm", y, RUN_FLOAT, all);
    run_keep(r, "layer_norm statistics", stats, RUN_FLOAT, (size_t)rows * 2);
    run_ok(r, ls_k_layer_norm_dx(y, x, dy, weight, stats, rows, n, r->stream));
    run_keep(r, "layer_norm_dx", y, RUN_FLOAT, all);
    for (int add = 0; add < 2; add++) {
        run_ok(r, ls_k_layer_norm_grad(grad[0], grad[1], add, x, dy, stats, rows, n, r->stream));
        run_keep(r, "layer_norm_grad weight", grad[0], RUN_FLOAT, n);
        run_keep(r, "layer_norm_grad bias", grad[1], RUN_FLOAT, n);
    }
}

void run_norm_kernels(run *r)
{
    r->shape = "rows";
    layer_norm(r, 37, 19);
    layer_norm(r, 5, 3001);
    run_drop(r);
    static const struct {
        size_t m;
        int c;
        const char *name;
    } shapes[] = {{7, 1, "7 x 1"},         {25, 3, "25 x 3"},          {512, 64, "512 x 64"},
                  {33, 75, "33 x 75"},     {1500, 8, "1500 x 8"},      {5000, 64, "5000 x 64"},
                  {513, 515, "513 x 515"}, {12544, 128, "12544 x 128"}};
    enum { LARGE = 5 }; /* shapes from this index on are large */
    if (!r->small)
        wide_bias(r);
    for (size_t i = 0; i < (r->small ? LARGE : sizeof shapes / sizeof *shapes); i++) {
        r->shape = shapes[i].name;
        for (int half = 0; half < 2; half++) {
            bias(r, shapes[i].m, shapes[i].c, half);
            norm(r, shapes[i].m, shapes[i].c, 0, half);
            norm(r, shapes[i].m, shapes[i].c, 1, half);
            run_drop(r);
        }
    }
}
