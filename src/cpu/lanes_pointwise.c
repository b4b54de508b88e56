/* SPDX-License-Identifier: MIT */
/* Ops that compute element by element: the activation functions, addition, products and dropout.
 * Also export, which copies to row-major order. */
#include "base/error.h"
#include "base/rng.h"
#include "cpu/few.h"

#include <string.h>

/* Returns the number of vectors of the whole tensor. */
static size_t sixteens(const ls_lanes_op *op)
{
    return op->op.y.bytes / (LS_LANES * sizeof(float));
}

/* number of vectors of an item, which a thread of the team computes at a time */
#define SOME 256

/* Returns the number of items of the tensor. */
static uint32_t items(const ls_lanes_op *op)
{
    return (uint32_t)((sixteens(op) + SOME - 1) / SOME);
}

/* Returns the number of vectors in an item. */
static size_t length_of(const ls_lanes_op *op, uint32_t item)
{
    const size_t left = sixteens(op) - (size_t)item * SOME;
    return left < SOME ? left : SOME;
}

/* Returns the number of vectors of the tensor in the layout `few` (few.h), padding included. */
static size_t few_sixteens(const ls_lanes_op *op)
{
    const ls_tensor *y = &op->op.y;
    return (size_t)y->rows * ls_few_row(y) / LS_LANES;
}

/* ---- curves (activation functions); gradients are computed from y, some from x --------------- */

typedef struct curve_op {
    ls_lanes_op base; /* base; must be first */
    ls_lanes_curve curve;
    ls_lanes_shape shape;
} curve_op;

static void some_forward(void *arg, uint32_t item)
{
    const curve_op *op = arg;
    const size_t at = (size_t)item * SOME * LS_LANES;
    op->base.kernels->curve[op->curve](length_of(&op->base, item), op->shape,
                                       (const float *)op->base.b.x + at,
                                       (float *)op->base.b.y + at);
}

static void some_backward(void *arg, uint32_t item)
{
    const curve_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = (size_t)item * SOME * LS_LANES;
    const bool by_x = op->curve == LS_LANES_GELU || op->curve == LS_LANES_GELU_TANH ||
                      op->curve == LS_LANES_SILU || op->curve == LS_LANES_HARD_SWISH;
    const float *v = by_x ? b->x : b->y;
    op->base.kernels->slope[op->curve](length_of(&op->base, item), op->shape, v + at,
                                       (const float *)b->dy + at, (float *)b->dx + at);
}

static void curve_few(ls_lanes_op *op)
{
    const curve_op *self = (const curve_op *)op;
    op->kernels->curve[self->curve](few_sixteens(op), self->shape, op->b.x, op->b.y);
}

static ls_lanes_curve curve_of(const ls_op_desc *desc)
{
    switch ((int)desc->kind) {
    case LS_OP_SIGMOID: return LS_LANES_SIGMOID;
    case LS_OP_TANH: return LS_LANES_TANH;
    case LS_OP_GELU: return LS_LANES_GELU;
    case LS_OP_SILU: return LS_LANES_SILU;
    case LS_OP_CLAMP: return LS_LANES_CLAMP;
    case LS_OP_HARD_SIGMOID: return LS_LANES_HARD_SIGMOID;
    case LS_OP_HARD_SWISH: return LS_LANES_HARD_SWISH;
    case LS_OP_GELU_TANH: return LS_LANES_GELU_TANH;
    case LS_OP_AFFINE: return LS_LANES_AFFINE;
    default: return desc->u.relu.slope == 0 ? LS_LANES_RELU : LS_LANES_LEAKY;
    }
}

static ls_lanes_shape shape_of(const ls_op_desc *desc)
{
    const ls_hard_sigmoid *hard = &desc->u.hard_sigmoid;
    const ls_clamp *clamp = &desc->u.clamp;
    const ls_affine *affine = &desc->u.affine;
    switch ((int)desc->kind) {
    case LS_OP_RELU: return (ls_lanes_shape){.slope = desc->u.relu.slope};
    case LS_OP_HARD_SIGMOID: return (ls_lanes_shape){.slope = hard->slope, .offset = hard->offset};
    case LS_OP_CLAMP: return (ls_lanes_shape){.least = clamp->least, .most = clamp->most};
    case LS_OP_AFFINE: return (ls_lanes_shape){.slope = affine->slope, .offset = affine->offset};
    default: return (ls_lanes_shape){0};
    }
}

int ls_cpu_curve_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *op;
    int status = ls_lanes_op_new(&op, sizeof(curve_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    ((curve_op *)op)->curve = curve_of(desc);
    ((curve_op *)op)->shape = shape_of(desc);
    ls_lanes_op_set_y(op, desc->x.c, desc->x.h, desc->x.w);
    op->few = curve_few;
    op->forward = (ls_lanes_pass){some_forward, items(op)};
    op->dx = (ls_lanes_pass){some_backward, items(op)};
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- addition: y = x + x2, alone or followed by a relu --------------------------------------- */

typedef struct add_op {
    ls_lanes_op base; /* base; must be first */
    bool relu;
} add_op;

static void add_some(void *arg, uint32_t item)
{
    const add_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = (size_t)item * SOME * LS_LANES;
    op->base.kernels->add(length_of(&op->base, item), (const float *)b->x + at,
                          (const float *)b->x2 + at, op->relu, (float *)b->y + at);
}

static void add_few(ls_lanes_op *op)
{
    op->kernels->add(few_sixteens(op), op->b.x, op->b.x2, ((const add_op *)op)->relu, op->b.y);
}

static void add_some_back(void *arg, uint32_t item)
{
    const add_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = (size_t)item * SOME * LS_LANES;
    op->base.kernels->add_dx(length_of(&op->base, item), op->relu ? (const float *)b->y + at : NULL,
                             (const float *)b->dy + at, (float *)b->dx + at,
                             b->dx2 ? (float *)b->dx2 + at : NULL);
}

int ls_cpu_add_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *op;
    int status = ls_lanes_op_new(&op, sizeof(add_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    ((add_op *)op)->relu = desc->fuse_relu;
    ls_lanes_op_set_y(op, desc->x.c, desc->x.h, desc->x.w);
    op->few = add_few;
    op->forward = (ls_lanes_pass){add_some, items(op)};
    op->dx = (ls_lanes_pass){add_some_back, items(op)};
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- products: y = x·x2; x2 has the shape of x, or one value for each channel ------------------
 */

typedef struct multiply_op {
    ls_lanes_op base; /* base; must be first */
    size_t pixels;    /* vectors of x for each vector of x2 */
} multiply_op;

/* Writes x·x2 to `y`, over `count` floats. */
static void multiply(size_t count, const float *x, const float *x2, float *y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] * x2[i];
}

/* Sets the lanes that hold no row to 0, in `count` vectors from number `first` on of a tensor that
 * has `pixels` pixels and the channels of y. Such lanes of x, x2 and dy hold any finite numbers,
 * whose products can overflow. */
static void clear_empty(const ls_lanes_op *op, void *lanes, int pixels, size_t first, size_t count)
{
    float *y = lanes;
    const size_t full = (size_t)op->packets - 1, used = (size_t)op->op.y.rows - full * LS_LANES,
                 begin = full * (size_t)op->op.y.c * (size_t)pixels;
    for (size_t v = first < begin ? begin : first; v < first + count; v++)
        for (size_t l = used; l < LS_LANES; l++)
            y[v * LS_LANES + l] = 0;
}

static void multiply_some(void *arg, uint32_t item)
{
    const ls_lanes_op *op = arg;
    const size_t first = (size_t)item * SOME, at = first * LS_LANES, n = length_of(op, item);
    multiply(n * LS_LANES, (const float *)op->b.x + at, (const float *)op->b.x2 + at,
             (float *)op->b.y + at);
    clear_empty(op, op->b.y, op->op.y.h * op->op.y.w, first, n);
}

static void multiply_some_back(void *arg, uint32_t item)
{
    const ls_lanes_op *op = arg;
    const size_t first = (size_t)item * SOME, at = first * LS_LANES, n = length_of(op, item);
    const float *dy = (const float *)op->b.dy + at;
    multiply(n * LS_LANES, dy, (const float *)op->b.x2 + at, (float *)op->b.dx + at);
    multiply(n * LS_LANES, dy, (const float *)op->b.x + at, (float *)op->b.dx2 + at);
    clear_empty(op, op->b.dx, op->op.y.h * op->op.y.w, first, n);
    clear_empty(op, op->b.dx2, op->op.y.h * op->op.y.w, first, n);
}

/* Multiplies the pixels of a channel of a packet by the channel's vector of x2. In the layout `few`
 * a plane is sixteen channels of a row instead. */
static void scale_plane(const multiply_op *op, size_t plane)
{
    const ls_op_buffers *b = &op->base.b;
    const size_t at = plane * op->pixels * LS_LANES;
    for (size_t i = 0; i < op->pixels * LS_LANES; i += LS_LANES)
        multiply(LS_LANES, (const float *)b->x + at + i, (const float *)b->x2 + plane * LS_LANES,
                 (float *)b->y + at + i);
}

static void scale_lanes(void *arg, uint32_t plane)
{
    const multiply_op *op = arg;
    scale_plane(op, plane);
    clear_empty(&op->base, op->base.b.y, (int)op->pixels, plane * op->pixels, op->pixels);
}

/* Computes dx, and dx2: the sum of dy·x over the pixels, lane by lane. The products are exact in
 * double. */
static void scale_lanes_back(void *arg, uint32_t plane)
{
    const multiply_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = plane * op->pixels * LS_LANES, factor = (size_t)plane * LS_LANES;
    const float *x = (const float *)b->x + at, *dy = (const float *)b->dy + at;
    double sum[LS_LANES] = {0};
    for (size_t i = 0; i < op->pixels * LS_LANES; i += LS_LANES) {
        multiply(LS_LANES, dy + i, (const float *)b->x2 + factor, (float *)b->dx + at + i);
        for (size_t l = 0; l < LS_LANES; l++)
            sum[l] += (double)dy[i + l] * (double)x[i + l];
    }
    for (size_t l = 0; l < LS_LANES; l++)
        ((float *)b->dx2)[factor + l] = (float)sum[l];
    clear_empty(&op->base, b->dx, (int)op->pixels, plane * op->pixels, op->pixels);
    clear_empty(&op->base, b->dx2, 1, plane, 1);
}

static void multiply_few(ls_lanes_op *op)
{
    const size_t pixels = ((const multiply_op *)op)->pixels;
    if (pixels == 1)
        multiply(few_sixteens(op) * LS_LANES, op->b.x, op->b.x2, op->b.y);
    for (size_t plane = 0; pixels > 1 && plane < few_sixteens(op) / pixels; plane++)
        scale_plane((const multiply_op *)op, plane);
}

int ls_cpu_multiply_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                           ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    ls_lanes_op *op;
    int status = ls_lanes_op_new(&op, sizeof(multiply_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    const size_t pixels = (size_t)(x->h * x->w) / (size_t)(x2->h * x2->w);
    ((multiply_op *)op)->pixels = pixels;
    ls_lanes_op_set_y(op, x->c, x->h, x->w);
    op->few = multiply_few;
    op->forward = (ls_lanes_pass){multiply_some, items(op)};
    op->dx = (ls_lanes_pass){multiply_some_back, items(op)};
    if (pixels > 1) {
        op->forward = (ls_lanes_pass){scale_lanes, (uint32_t)(op->packets * x->c)};
        op->dx = (ls_lanes_pass){scale_lanes_back, (uint32_t)(op->packets * x->c)};
    }
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- dropout --------------------------------------------------------------------------------- */

typedef struct dropout_op {
    ls_lanes_op base; /* base; must be first */
    ls_dropout dropout;
    size_t row; /* number of elements of a row */
} dropout_op;

/* Returns the mask, one byte for each float of x: non-zero if dropout keeps the element; zero in
 * lanes that hold no row. */
static uint8_t *kept_of(const dropout_op *op)
{
    return op->base.training ? op->base.b.saved : op->base.b.scratch;
}

static void draw_row(const dropout_op *op, int row, uint8_t *kept)
{
    const ls_step_args *args = op->base.b.args;
    const uint64_t first = (uint64_t)args->rows[row] * op->row;
    for (size_t e = 0; e < op->row; e++)
        kept[e * LS_LANES] = !(ls_rng_uniform(args->seed, op->dropout.stream, args->epoch,
                                              first + (uint64_t)e) < op->dropout.p);
}

static void draw(const dropout_op *op)
{
    uint8_t *kept = kept_of(op);
    const size_t values = op->base.op.y.bytes / sizeof(float);
    memset(kept, 0, values); /* one byte for each float */
    for (int r = 0; r < op->base.op.y.rows; r++)
        draw_row(op, r, kept + (size_t)(r / LS_LANES) * op->row * LS_LANES + r % LS_LANES);
}

static void apply(const dropout_op *op, const float *from, float *to)
{
    const uint8_t *kept = kept_of(op);
    const float factor = 1.0f / (1.0f - op->dropout.p);
    const size_t n = op->base.op.y.bytes / sizeof(float);
    for (size_t i = 0; i < n; i++)
        to[i] = kept[i] ? from[i] * factor : 0.0f;
}

static int dropout_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const dropout_op *op = (const dropout_op *)base;
    const ls_op_buffers *b = &op->base.b;
    (void)stream;
    if (flags & LS_RUN_EVALUATE) {
        memcpy(b->y, b->x, base->y.bytes);
        return LS_OK;
    }
    if (!b->args || !b->args->rows)
        return ls_fail(err, LS_EINVAL, "dropout: no rows are given");
    draw(op);
    apply(op, b->x, b->y);
    return LS_OK;
}

/* Copies x to y, because dropout drops nothing in evaluation. */
static void dropout_few(ls_lanes_op *op)
{
    memcpy(op->b.y, op->b.x, few_sixteens(op) * LS_LANES * sizeof(float));
}

static void dropout_dx(void *arg, uint32_t item)
{
    const dropout_op *op = arg;
    (void)item;
    apply(op, op->base.b.dy, op->base.b.dx);
}

static const ls_op_impl dropout_impl = LS_LANES_IMPL(dropout_forward, ls_lanes_op_backward);

int ls_cpu_dropout_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_lanes_op *op;
    if (!(desc->u.dropout.p >= 0 && desc->u.dropout.p < 1))
        return ls_fail(err, LS_EINVAL, "dropout: p is %g; it must be at least 0 and below 1",
                       (double)desc->u.dropout.p);
    int status = ls_lanes_op_new(&op, sizeof(dropout_op), &dropout_impl, device, desc, err);
    if (status)
        return status;
    ((dropout_op *)op)->dropout = desc->u.dropout;
    ((dropout_op *)op)->row = (size_t)x->c * (size_t)x->h * (size_t)x->w;
    ls_lanes_op_set_y(op, x->c, x->h, x->w);
    *(op->training ? &op->op.saved_bytes : &op->op.scratch_bytes) = op->op.y.bytes / sizeof(float);
    op->few = dropout_few;
    op->dx = (ls_lanes_pass){dropout_dx, 1};
    return ls_lanes_op_finish(out, op, desc, err);
}

/* ---- export: copies to a plain (row-major) tensor, and the gradient back --------------------- */

static void export_all(void *arg, uint32_t item)
{
    const ls_lanes_op *op = arg;
    (void)item;
    ls_lanes_to_plain(op->b.y, op->b.x, &op->op.y);
}

static void export_few(ls_lanes_op *op)
{
    const ls_tensor *x = &op->op.y;
    ls_few_to_plain(op->b.y, (size_t)x->c * (size_t)x->h * (size_t)x->w, op->b.x, x);
}

static void export_all_back(void *arg, uint32_t item)
{
    const ls_lanes_op *op = arg;
    (void)item;
    ls_plain_to_lanes(op->b.dx, op->b.dy, &op->op.y);
}

int ls_cpu_export_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_lanes_op *op;
    int status = ls_lanes_op_new(&op, sizeof *op, &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    op->op.y = (ls_tensor){LS_F32, x->rows, x->c, x->h, x->w, NULL, 0};
    op->op.y.bytes = (size_t)x->rows * (size_t)x->c * (size_t)x->h * (size_t)x->w * sizeof(float);
    op->few = export_few;
    op->forward = (ls_lanes_pass){export_all, 1};
    op->dx = (ls_lanes_pass){export_all_back, 1};
    return ls_lanes_op_finish(out, op, desc, err);
}
