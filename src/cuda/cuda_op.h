/* An op of the CUDA back end: what all kinds share.
 *
 * Tensors are dense and come in three forms: fp32 row-major (layout NULL), fp32 channels last,
 * [rows][h][w][c], and bf16 channels last. Where there is one channel or one pixel both orders
 * are the same; then the layout is NULL and the tensor is fp32. An op says in which form it uses
 * x, and what comes in another is converted on its way in, dx on its way out. With
 * LS_PRECISION_BF16 convolutions use and make bf16, and so do batch norm and add where their
 * inputs are bf16; all others work in fp32 on either order.
 *
 * A kind has its setup (ls_cuda_setup) and its row in cuda_ops.c.
 */
#ifndef CUDA_CUDA_OP_H
#define CUDA_CUDA_OP_H

#include "cuda/cuda_device.h"
#include "cuda/math/math_lib.h"

#include <stdbool.h>

/* Rows and sides are limited so that products of them fit; memory runs out long before. */
#define LS_CUDA_MOST_ELEMENTS 2147483647.0

typedef struct ls_cuda_op ls_cuda_op;

/* Enqueues one pass on `on`, which is never NULL; op->flags are those it is run with. Inputs were brought
 * into their form before it, and gradients of inputs are brought to the caller's memory behind it. */
typedef int ls_cuda_pass(ls_cuda_op *op, ls_stream *on, ls_error *err);
/* The same where nothing but enqueuing can fail. */
typedef cudaError_t ls_cuda_kernels(ls_cuda_op *op, cudaStream_t on);
/* One of the two, or none. */
typedef struct ls_cuda_work {
    ls_cuda_pass *pass;
    ls_cuda_kernels *kernels;
} ls_cuda_work;

/* Memory of an op: `at` bytes into saved or scratch memory, nothing when bytes is 0. */
typedef struct ls_cuda_room {
    size_t at, bytes;
    bool saved; /* in saved, else in scratch */
} ls_cuda_room;

/* Passes of a layer that multiplies. */
enum { LS_PASS_FORWARD, LS_PASS_DATA, LS_PASS_WEIGHTS, LS_PASSES };

typedef enum ls_cuda_form {
    LS_FORM_PLAIN, /* fp32 [c][h][w] */
    LS_FORM_LAST,  /* fp32 [h][w][c], and whatever is the same in both orders */
    LS_FORM_HALF   /* bf16 [h][w][c] */
} ls_cuda_form;

struct ls_cuda_op {
    ls_op op; /* first */
    ls_cuda_device *device;
    const char *name; /* "conv2d" */
    ls_op_desc desc;
    ls_op_buffers b;
    bool bound;
    unsigned flags;                 /* of the pass that is enqueued */
    ls_cuda_work forward, backward; /* backward is left out where neither parameters nor inputs want
                                       a gradient */

    /* A parameter is canonical [rows][a][b] and lies here as [rows][b][a]; rows 0: as it is. */
    struct {
        int rows, a, b;
    } turned[LS_OP_PARAMS];

    ls_cuda_form x_form, x2_form; /* in which they are used */
    ls_tensor product;            /* of a convolution: y before it is pooled */
    size_t m;                     /* positions: rows · h · w of x */
    ls_cuda_room x, x2, dx, dx2;  /* converted; no bytes where they are used as they come */
    ls_cuda_room between;         /* from row-major to bf16 it is two steps */
    ls_cuda_room half_x;          /* a factor in bf16 … */
    ls_cuda_room half_dy, half_y; /* … and results */
    ls_cuda_room masked, weight_grad, work; /* dy before the relu; dw beside; a library's */
    ls_cuda_room kept, mean, sums, partial;
    ls_math_plan *plan[LS_PASSES];
    bool needs_shadow; /* of its parameters */
    bool plan_fuses;   /* the forward plan has the bias, and the relu if there is one */
    char kernel[160];  /* its name where a library has it */
};

/* The layouts of channels last. */
extern const ls_layout ls_cuda_channels_last, ls_cuda_channels_last_half;

ls_cuda_form ls_cuda_form_of(const ls_tensor *tensor);

/* A tensor of that form, or where both orders are the same an fp32 one. */
ls_tensor ls_cuda_tensor(int rows, int c, int h, int w, ls_cuda_form form);

size_t ls_cuda_elements(const ls_tensor *tensor);

/* Values of a row. */
static inline size_t ls_cuda_row(const ls_tensor *tensor)
{
    return (size_t)tensor->c * (size_t)tensor->h * (size_t)tensor->w;
}

static inline bool ls_cuda_is_half(const ls_cuda_op *op)
{
    return op->device->precision == LS_PRECISION_BF16;
}

/* Completes an op of its kind, which has its description and nothing else: checks that, sets y, parameters, forward
 * and backward, and reserves memory. */
typedef int ls_cuda_setup(ls_cuda_op *op, ls_error *err);
ls_cuda_setup ls_cuda_gather_setup, ls_cuda_conv_setup, ls_cuda_dense_setup;
ls_cuda_setup ls_cuda_pool_setup, ls_cuda_loss_setup, ls_cuda_vector_loss_setup;
ls_cuda_setup ls_cuda_norm_setup, ls_cuda_layer_norm_setup, ls_cuda_upsample_setup;
ls_cuda_setup ls_cuda_pointwise_setup; /* relu, add, curves, dropout, export */
ls_cuda_setup ls_cuda_update_setup;    /* sgd, adamw, running, clip */

/* The device table's op_create, after it has checked the description. Errors: the setup's; LS_EINVAL for a twin of
 * another kind or with other parameters; LS_ENOMEM. */
int ls_cuda_op_make(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc, const char *name,
                    ls_cuda_setup *setup, ls_error *err);

/* Appends a parameter that is canonical [rows][a][b]; rows 0: [a], kept as it is. */
void ls_cuda_op_param(ls_cuda_op *op, int rows, int a, int b);

/* Reserves memory; 0 bytes is allowed. */
ls_cuda_room ls_cuda_saved(ls_cuda_op *op, size_t bytes);
ls_cuda_room ls_cuda_scratch(ls_cuda_op *op, size_t bytes);
/* Where it is, NULL when it has no bytes. */
void *ls_cuda_at(const ls_cuda_op *op, const ls_cuda_room *room);

/* The forms in which the op uses x and x2; reserves what converting takes. `again` non-zero:
 * backward reads x too. */
void ls_cuda_use_x(ls_cuda_op *op, ls_cuda_form form, int again);
void ls_cuda_use_x2(ls_cuda_op *op, ls_cuda_form form);

/* Where x and x2 are in the op's form, and dx and dx2 are to be. Backward finds what forward had of x
 * where it is used `again`; x2 is forward's alone. */
const void *ls_cuda_x(const ls_cuda_op *op);
const void *ls_cuda_x2(const ls_cuda_op *op);
void *ls_cuda_dx(const ls_cuda_op *op);
void *ls_cuda_dx2(const ls_cuda_op *op);

/* Windows of 2 × 2 side by side, for which there are kernels of their own: x is what is pooled. */
bool ls_cuda_pools_quads(const ls_pool2d *pool);
ls_k_quads ls_cuda_quads_of(const ls_tensor *x, const ls_pool2d *pool, int relu, int half);

/* Whether gradients are added to what is there. */
static inline bool ls_cuda_accumulates(const ls_cuda_op *op)
{
    return (op->flags & LS_RUN_ACCUMULATE) != 0;
}

/* LS_OK, or the failure of enqueuing a pass of this op. */
int ls_cuda_done(const ls_cuda_op *op, cudaError_t error, ls_error *err);

/* ---- what layers that multiply share (cuda_product.c) ---------------------------------------- */

/* The end of a setup: makes the plans of the passes that the op needs from `forward`, whose kind is
 * that of the forward pass and is followed by the kinds of the other two. A fused form that the
 * library declines is replaced by the plain one. Reserves the workspace. */
int ls_cuda_product_plan(ls_cuda_op *op, const ls_math_shape *forward, ls_error *err);

/* Reserves x (which is used in that form) and dy in bf16 where the op multiplies so and they are not
 * bf16 already, and the masked dy. */
void ls_cuda_product_reserve(ls_cuda_op *op, ls_cuda_form x_form);

/* A parameter as the op multiplies it: its shadow in bf16, else itself. */
const void *ls_cuda_param(const ls_cuda_op *op, int index);

/* `from` as a factor: itself, or rounded into `room` if that has bytes. */
int ls_cuda_factor(const void **out, ls_cuda_op *op, const ls_cuda_room *room, const void *from,
                   size_t count, cudaStream_t stream, ls_error *err);

/* Adds the bias to y and applies the relu, unless the forward plan has done so. */
int ls_cuda_product_bias(ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* dy as it is before the fused relu, in y's form; writes the bias's gradient on the way. */
int ls_cuda_product_dy(const void **out, ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* dx from dy as a factor. */
int ls_cuda_product_dx(ls_cuda_op *op, const void *dy, cudaStream_t stream, ls_error *err);

/* Runs one of the op's plans, with the bias where that has it. */
int ls_cuda_product_run(ls_cuda_op *op, int pass, const void *a, const void *b, void *out, int add,
                        cudaStream_t stream, ls_error *err);

#endif
