/* SPDX-License-Identifier: MIT */
/* Cases of kernels: convolutions of few channels. The order of their sums is fixed (kernels.h), so
 * all results are compared as integers and bytes, which must be the same to the bit. */
#include "cuda_gpu/kernels_run.h"

static void *tensor(run *r, size_t n, float scale, int half)
{
    return half ? (void *)run_halves(r, n, scale) : (void *)run_floats(r, n, scale);
}

static size_t bytes_of(size_t n, int half)
{
    return n * (half ? sizeof(uint16_t) : sizeof(float));
}

static void keep(run *r, const char *name, const void *at, size_t n, int half)
{
    run_keep(r, name, at, RUN_BYTE, bytes_of(n, half));
}

/* Operands and results of a case. */
typedef struct memory {
    void *x, *w, *bias, *dy, *y;
    uint8_t *bits;
    size_t weights, y_count;
} memory;

static memory make_memory(run *r, const ls_k_conv *k)
{
    memory m;
    const int cut = k->pool ? 2 : 1;
    m.weights = (size_t)(k->out * k->c * k->kh * k->kw);
    m.y_count = (size_t)(k->rows * (k->y_h / cut) * (k->y_w / cut) * k->out);
    m.x = tensor(r, (size_t)(k->rows * k->h * k->w * k->c), 1, k->x_half);
    m.w = tensor(r, m.weights, 0.3f, k->w_half);
    m.bias = tensor(r, (size_t)k->out, 0.3f, k->w_half);
    m.dy = tensor(r, m.y_count, 1, k->y_half);
    m.y = run_room(r, bytes_of(m.y_count, k->y_half));
    m.bits = run_room(r, m.y_count);
    return m;
}

static void forward(run *r, const ls_k_conv *k, const memory *m, int bias)
{
    run_ok(r, ls_k_conv_forward(m->y, NULL, m->x, m->w, m->bias, k, r->stream));
    keep(r, "conv evaluated", m->y, m->y_count, k->y_half);
    run_ok(r, ls_k_conv_forward(m->y, m->bits, m->x, m->w, bias ? m->bias : NULL, k, r->stream));
    keep(r, "conv", m->y, m->y_count, k->y_half);
    if (k->pool)
        run_keep(r, "conv bits", m->bits, RUN_BYTE, m->y_count);
}

/* add: adds to gradients; half: writes the gradient of the weights in bf16. */
static void backward(run *r, const ls_k_conv *k, const memory *m, int add, int half)
{
    const ls_k_conv_grad g = {
        .x = m->x,
        .dy = m->dy,
        .y = k->relu && !k->pool ? m->y : NULL,
        .bits = m->bits,
        .partial = run_room(r, ls_k_conv_partial_floats(k) * sizeof(float)),
        .weight = run_floats(r, m->weights, 1),
        .weight_half = half ? run_halves(r, m->weights, 1) : NULL,
        .rounded = k->y_half,
        .bias = half && !k->relu ? NULL : run_floats(r, (size_t)k->out, 1),
        .add = add,
    };
    run_ok(r, ls_k_conv_weights(&g, k, r->stream));
    run_keep(r, "conv weights", g.weight, RUN_INT, m->weights);
    if (half)
        keep(r, "conv weights bf16", g.weight_half, m->weights, 1);
    if (g.bias)
        run_keep(r, "conv bias", g.bias, RUN_INT, (size_t)k->out);
}

/* Runs a convolution, whose y_h and y_w are not set, in one form: bit 0: relu; 1: pool; 2: maximum;
 * 3: bf16. */
static void convolve(run *r, ls_k_conv k, unsigned form)
{
    k.y_h = (k.h + 2 * k.ph - (k.kh - 1) * k.dh - 1) / k.sh + 1;
    k.y_w = (k.w + 2 * k.pw - (k.kw - 1) * k.dw - 1) / k.sw + 1;
    k.relu = form & 1;
    k.pool = form >> 1 & 1;
    k.max = form >> 2 & 1;
    k.y_half = form >> 3 & 1;
    k.x_half = k.y_half && k.c > 1;
    k.w_half = k.y_half && k.relu;
    const memory m = make_memory(r, &k);
    forward(r, &k, &m, k.relu);
    backward(r, &k, &m, 0, 0);
    backward(r, &k, &m, 1, k.y_half);
    run_drop(r);
}

enum { EVERY_FORM = 16 };

static const struct shape {
    const char *name;
    ls_k_conv k;
} shapes[] = {
    {"9 x 28 x 28 to 20, 3 x 3",
     {9, 1, 28, 28, 20, 0, 0, 3, 3, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
    {"2 x 13 x 14 to 64, 3 x 3",
     {2, 1, 13, 14, 64, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}},
    {"5 x 3 x 9 x 7 to 36, 3 x 3",
     {5, 3, 9, 7, 36, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}},
    {"3 x 3 x 11 x 9 to 4, 5 x 5",
     {3, 3, 11, 9, 4, 0, 0, 5, 5, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0}},
    {"2 x 4 x 19 x 17 to 12, 7 x 7",
     {2, 4, 19, 17, 12, 0, 0, 7, 7, 2, 2, 3, 3, 1, 1, 0, 0, 0, 0, 0, 0}},
    {"3 x 2 x 12 x 15 to 8, 3 x 2",
     {3, 2, 12, 15, 8, 0, 0, 3, 2, 1, 2, 2, 0, 2, 3, 0, 0, 0, 0, 0, 0}},
    {"1 x 3 x 3 to 4, 3 x 3", {1, 1, 3, 3, 4, 0, 0, 3, 3, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0}},
};

void run_conv_kernels(run *r)
{
    static const ls_k_conv batch = {0, 1, 6, 5, 8, 0, 0, 3, 3, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i + 1 < sizeof shapes / sizeof *shapes; i++)
        for (unsigned form = 0; form < EVERY_FORM; form++) {
            r->shape = shapes[i].name;
            convolve(r, shapes[i].k, form);
        }
    /* the result has one column, so nothing is pooled */
    r->shape = shapes[sizeof shapes / sizeof *shapes - 1].name;
    convolve(r, shapes[sizeof shapes / sizeof *shapes - 1].k, 1);
    r->shape = "1 to 17 rows";
    for (int rows = 1; rows <= 17; rows++) {
        ls_k_conv k = batch;
        k.rows = rows;
        convolve(r, k, (unsigned)rows % EVERY_FORM);
    }
    if (r->small)
        return;
    /* more slices than lanes of the end, and more quads than slices of the usual size */
    r->shape = "40 x 28 x 28 to 64, 3 x 3";
    convolve(r, (ls_k_conv){40, 1, 28, 28, 64, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, 8);
    r->shape = "40 x 128 x 128 to 4, 2 x 2";
    convolve(r, (ls_k_conv){40, 1, 128, 128, 4, 0, 0, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, 1);
}
