/* SPDX-License-Identifier: MIT */
/* The parts that all ops of the CUDA back end share. In names, `half` means bf16.
 *
 * Tensors are dense and have one of three *forms*: fp32 row-major (layout NULL), fp32 channels
 * last, [rows][h][w][c], and bf16 channels last. The *order* of a tensor is row-major or channels
 * last. If a tensor has one channel or one pixel, both orders are the same. Its layout is then
 * NULL, and it is fp32; its form counts as channels last. An op declares the form in which it uses
 * its input x. An x in another form is converted before the op runs, and dx is converted back
 * afterwards. With LS_PRECISION_BF16, convolutions read and write bf16. Batch norm and add use bf16
 * if their inputs are bf16. All other ops use fp32 in either order.
 *
 * Each kind of op has a setup function (ls_cuda_setup) and a row in cuda_ops.c. */
#ifndef CUDA_CUDA_OP_H
#define CUDA_CUDA_OP_H

#include "cuda/cuda_device.h"
#include "cuda/math/math_lib.h"

#include <stdbool.h>

/* Largest number of elements of a tensor: products of rows, channels, height and width must fit an
 * int. */
#define LS_CUDA_MOST_ELEMENTS 2147483647.0

typedef struct ls_cuda_op ls_cuda_op;

/* Enqueues the work of a pass, one call of an op's forward or backward, on `on`, which is never
 * NULL. op->flags are the flags of the call. The caller has enqueued the conversion of the inputs
 * to the op's form, and then enqueues that of their gradients. */
typedef int ls_cuda_pass(ls_cuda_op *op, ls_stream *on, ls_error *err);
/* Does the same as an ls_cuda_pass, for a pass that fails only if a kernel cannot be enqueued. */
typedef cudaError_t ls_cuda_kernels(ls_cuda_op *op, cudaStream_t on);
/* The work of a pass: at most one of the two functions is set. */
typedef struct ls_cuda_work {
    ls_cuda_pass *pass;
    ls_cuda_kernels *kernels;
} ls_cuda_work;

/* A region of an op's saved or scratch memory: `bytes` bytes at offset `at`. 0 bytes: the op has no
 * such region. */
typedef struct ls_cuda_room {
    size_t at, bytes;
    bool saved; /* true: in saved memory; false: in scratch memory */
} ls_cuda_room;

/* The products (convolutions or matrix products) of a layer that multiplies, which is a convolution
 * or a dense layer: y in forward; dx (DATA) and the gradient of the weights (WEIGHTS) in
 * backward. */
enum { LS_PASS_FORWARD, LS_PASS_DATA, LS_PASS_WEIGHTS, LS_PASSES };

typedef enum ls_cuda_form {
    LS_FORM_PLAIN, /* fp32 [c][h][w] */
    LS_FORM_LAST,  /* fp32 [h][w][c], and any tensor that is the same in both orders */
    LS_FORM_HALF   /* bf16 [h][w][c] */
} ls_cuda_form;

struct ls_cuda_op {
    ls_op op; /* base; must be first */
    ls_cuda_device *device;
    const char *name; /* "conv2d" */
    ls_op_desc desc;
    ls_op_buffers b;
    bool bound;
    unsigned flags; /* flags (LS_RUN_…) of the pass that is being enqueued */
    /* Passes. `backward` is not called if neither parameters nor inputs need a gradient. */
    ls_cuda_work forward, backward;

    /* Shape of a parameter whose canonical order is [rows][a][b] and which is stored as
     * [rows][b][a]. `rows` is 0 if the parameter is stored in canonical order. */
    struct {
        int rows, a, b;
    } turned[LS_OP_PARAMS];

    ls_cuda_form x_form, x2_form; /* forms in which x and x2 are used */
    ls_tensor product;            /* y of a convolution before it is pooled */
    size_t m;                     /* number of positions of x: rows · h · w */
    /* the converted tensors; 0 bytes if the tensor is used in the caller's form */
    ls_cuda_room x, x2, dx, dx2;
    /* intermediate tensor of a conversion between row-major and bf16, which takes two kernels */
    ls_cuda_room between;
    ls_cuda_room half_x;          /* x in bf16, as a factor of a product */
    ls_cuda_room half_dy, half_y; /* dy and y in bf16 */
    ls_cuda_room masked, /* gradient of the product's result: dy after backward of relu and pool. In
                          * forward with a fused pool: the product's result */
        weight_grad,     /* gradient of the weights, which a kernel then adds to the caller's */
        work;            /* working memory of a library, a loss or clipping */
    ls_cuda_room kept,   /* data that forward keeps for backward: positions of maxima, the relu's
                          * mask, or the mask of the elements that dropout keeps */
        mean,            /* means and 1 / standard deviations of a normalisation */
        sums,            /* batch norm: sums over the batch, 2 floats per channel */
        partial;         /* partial sums of a sum over positions */
    ls_math_plan *plan[LS_PASSES]; /* how the library computes each product; NULL: not needed */
    bool needs_shadow; /* the op reads a bf16 copy of its parameters (ls_op_buffers.shadow) */
    bool plan_fuses;   /* the forward plan includes the bias, and the relu if there is one */
    char kernel[160];  /* name of the library's kernel */
};

/* Layouts for channels last. */
extern const ls_layout ls_cuda_channels_last, ls_cuda_channels_last_half;

/* Returns the form of a tensor. */
ls_cuda_form ls_cuda_form_of(const ls_tensor *tensor);

/* Returns a tensor of the form `form`, or an fp32 tensor with layout NULL if both orders are the
 * same. */
ls_tensor ls_cuda_tensor(int rows, int c, int h, int w, ls_cuda_form form);

/* Returns the number of elements of a tensor. */
size_t ls_cuda_elements(const ls_tensor *tensor);

/* Returns the number of elements in a row. */
static inline size_t ls_cuda_row(const ls_tensor *tensor)
{
    return (size_t)tensor->c * (size_t)tensor->h * (size_t)tensor->w;
}

static inline bool ls_cuda_is_half(const ls_cuda_op *op)
{
    return op->device->precision == LS_PRECISION_BF16;
}

/* Completes an op of one kind whose description is set: checks the description, sets y, the
 * parameters, forward and backward, and reserves memory. */
typedef int ls_cuda_setup(ls_cuda_op *op, ls_error *err);
ls_cuda_setup ls_cuda_gather_setup, ls_cuda_conv_setup, ls_cuda_dense_setup;
ls_cuda_setup ls_cuda_pool_setup, ls_cuda_loss_setup, ls_cuda_vector_loss_setup;
ls_cuda_setup ls_cuda_norm_setup, ls_cuda_layer_norm_setup;
ls_cuda_setup ls_cuda_upsample_setup, ls_cuda_pad_setup;
/* activation functions, add, multiply, concat, dropout, and export (a copy in row-major order) */
ls_cuda_setup ls_cuda_pointwise_setup;
/* the optimizers sgd and adamw, the update of running statistics, gradient clipping */
ls_cuda_setup ls_cuda_update_setup;

/* Creates an op. Called by the device table's op_create, which has checked the description. A
 * *twin* (ls_op_desc.twin) is an op of the same layer for another number of rows; both use the same
 * parameters. Errors: those of the setup; LS_EINVAL if the twin is an op of another kind or has
 * other parameters; LS_ENOMEM. */
int ls_cuda_op_make(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc, const char *name,
                    ls_cuda_setup *setup, ls_error *err);

/* Appends a parameter with the canonical shape [rows][a][b], which is stored as [rows][b][a]. If
 * `rows` is 0, its shape is [a][b], and it is stored in that order. */
void ls_cuda_op_param(ls_cuda_op *op, int rows, int a, int b);

/* Reserves `bytes` bytes, also 0, of saved memory. */
ls_cuda_room ls_cuda_saved(ls_cuda_op *op, size_t bytes);
/* Reserves `bytes` bytes, also 0, of scratch memory. */
ls_cuda_room ls_cuda_scratch(ls_cuda_op *op, size_t bytes);
/* Returns the address of reserved memory; NULL if `room` has 0 bytes. */
void *ls_cuda_at(const ls_cuda_op *op, const ls_cuda_room *room);

/* Set the forms in which the op uses x (ls_cuda_use_x) and x2 (ls_cuda_use_x2), and reserve the
 * memory for conversions. `again` is non-zero if backward reads the
 * tensor too. */
void ls_cuda_use_x(ls_cuda_op *op, ls_cuda_form form, int again);
void ls_cuda_use_x2(ls_cuda_op *op, ls_cuda_form form, int again);

/* ls_cuda_x and ls_cuda_x2 return the inputs in the op's form; ls_cuda_dx and ls_cuda_dx2 return
 * the memory for their gradients in that form. In backward, an input is valid only if it was
 * set with `again`. */
const void *ls_cuda_x(const ls_cuda_op *op);
const void *ls_cuda_x2(const ls_cuda_op *op);
void *ls_cuda_dx(const ls_cuda_op *op);
void *ls_cuda_dx2(const ls_cuda_op *op);

/* Returns true for windows of 2 × 2 with stride 2 and no padding (quads), which have kernels of
 * their own. */
bool ls_cuda_pools_quads(const ls_pool2d *pool);
/* Returns the arguments of the kernels for quads; x is the tensor that is pooled. */
ls_k_quads ls_cuda_quads_of(const ls_tensor *x, const ls_pool2d *pool, int relu, int half);

/* Returns true if the pass that is being enqueued adds to gradients instead of overwriting them. */
static inline bool ls_cuda_accumulates(const ls_cuda_op *op)
{
    return (op->flags & LS_RUN_ACCUMULATE) != 0;
}

/* Translates the result of enqueuing a kernel of this op: returns LS_OK for cudaSuccess, else fills
 * `err` with a text that names the device and the op, and returns the status (cuda_check). */
int ls_cuda_done(const ls_cuda_op *op, cudaError_t error, ls_error *err);

/* ---- layers that multiply (cuda_product.c) --------------------------------------------------- */

/* Called at the end of a setup: creates the plans of the products that the op needs, and reserves
 * their workspace. `forward`: shape of the forward product, from which the shapes of the other
 * products follow. If the library does not support a fused bias or relu, the forward plan does not
 * include it, and ls_cuda_product_bias adds it. */
int ls_cuda_product_plan(ls_cuda_op *op, const ls_math_shape *forward, ls_error *err);

/* Reserves memory for copies of x and dy in bf16, if the op multiplies in bf16 and x or dy is not
 * in bf16 already. Also reserves `masked`, if there is a relu without a pool. `x_form`: form in
 * which the op uses x. */
void ls_cuda_product_reserve(ls_cuda_op *op, ls_cuda_form x_form);

/* Returns a parameter as a factor of the op's product: its bf16 copy (shadow) if there is one, else
 * the parameter itself. */
const void *ls_cuda_param(const ls_cuda_op *op, int index);

/* Sets *out to a tensor as a factor of a product. If `room` is reserved memory, enqueues the
 * conversion of `from` to bf16 into it, and sets *out to this memory. If `room` has 0 bytes, sets
 * *out to `from`. */
int ls_cuda_factor(const void **out, ls_cuda_op *op, const ls_cuda_room *room, const void *from,
                   size_t count, cudaStream_t stream, ls_error *err);

/* Adds the bias to y and applies the relu, unless the forward plan does so. */
int ls_cuda_product_bias(ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* Sets *out to the gradient of the product's result, in y's form: dy where the relu's output is
 * above zero, or dy itself if there is no relu. Also writes the gradient of the bias. */
int ls_cuda_product_dy(const void **out, ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* Computes dx from dy, which must be the result of ls_cuda_factor. */
int ls_cuda_product_dx(ls_cuda_op *op, const void *dy, cudaStream_t stream, ls_error *err);

/* Enqueues one of the op's products, `pass` (LS_PASS_…): out ← a · b, or out += a · b if `add` is
 * non-zero. If the plan includes the bias, passes the bias to it. */
int ls_cuda_product_run(ls_cuda_op *op, int pass, const void *a, const void *b, void *out, int add,
                        cudaStream_t stream, ls_error *err);

#endif
