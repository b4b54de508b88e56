/* An op of the CUDA back end: what all kinds share.
 *
 * Tensors are dense fp32, either row-major (layout NULL) or channels last, [rows][h][w][c]. Where
 * there is one channel or one pixel both are the same, and the layout is NULL. Convolutions,
 * pools and batch norm work on channels last and turn a row-major x first; the others take either.
 *
 * A creator makes an op with ls_cuda_op_new, describes y and the parameters, reserves memory with
 * ls_cuda_saved and ls_cuda_scratch, and sets forward and backward.
 */
#ifndef CUDA_CUDA_OP_H
#define CUDA_CUDA_OP_H

#include "cuda/cuda_device.h"
#include "cuda/math_lib.h"

/* Rows and sides are limited so that products of them fit; memory runs out long before. */
#define LS_CUDA_MOST_ELEMENTS 2147483647.0

typedef struct ls_cuda_op ls_cuda_op;

/* Enqueues one pass. */
typedef int ls_cuda_pass(ls_cuda_op *op, ls_stream *stream, unsigned flags, ls_error *err);

/* Memory of an op: `at` bytes into saved or scratch memory, nothing when bytes is 0. */
typedef struct ls_cuda_room {
    size_t at, bytes;
    int saved; /* non-zero: in saved, else in scratch */
} ls_cuda_room;

/* Passes of a layer that multiplies. */
enum { LS_PASS_FORWARD, LS_PASS_DATA, LS_PASS_WEIGHTS, LS_PASSES };

struct ls_cuda_op {
    ls_op op; /* first */
    ls_cuda_device *device;
    const char *name; /* "conv2d" */
    ls_op_desc desc;
    ls_op_buffers b;
    int bound;
    ls_cuda_pass *forward, *backward; /* backward NULL: there is none */
    void (*release)(ls_cuda_op *op);  /* or NULL */

    /* A parameter is canonical [rows][a][b] and lies here as [rows][b][a]; rows 0: as it is. */
    struct {
        int rows, a, b;
    } turned[LS_OP_PARAMS];

    int x_turned, x2_turned; /* x (x2) is row-major and is used channels last, or the other way */
    size_t m;                /* positions: rows · h · w of x */
    ls_cuda_room x, x2, dx, dx2;            /* turned */
    ls_cuda_room half_x, half_weights;      /* factors in bf16 … */
    ls_cuda_room half_dy, half_y, half_dx;  /* … and results */
    ls_cuda_room masked, weight_grad, work; /* dy before the relu; dw beside; a library's */
    ls_cuda_room kept, mean, sums, partial;
    ls_math_plan *plan[LS_PASSES];
    int plan_fuses; /* the forward plan has the bias, and the relu if there is one */
    char kernel[160];
};

/* The layout of channels last, and of a tensor of that shape so arranged (maybe NULL). */
extern const ls_layout ls_cuda_channels_last;
const ls_layout *ls_cuda_layout(const ls_tensor *shape);

/* Non-zero: the tensor is row-major and would lie otherwise channels last. */
int ls_cuda_is_plain(const ls_tensor *tensor);

/* A dense fp32 tensor. */
ls_tensor ls_cuda_tensor(int rows, int c, int h, int w, int channels_last);

size_t ls_cuda_elements(const ls_tensor *tensor);

/* The device table's op_create, after it has checked the description: an op without memory, y,
 * parameters. The twin must be of the same kind. */
int ls_cuda_op_new(ls_cuda_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                   const char *name, ls_error *err);
void ls_cuda_op_destroy(ls_op *base);
/* *out ← the op when `status` is LS_OK, else destroys it; returns `status`. */
int ls_cuda_op_finish(ls_op **out, ls_cuda_op *op, int status);

/* Appends a parameter that is canonical [rows][a][b]; rows 0: [a], kept as it is. */
void ls_cuda_op_param(ls_cuda_op *op, int rows, int a, int b);

/* LS_EINVAL unless the twin, if there is one, has the parameters of this op, lying in the same way. */
int ls_cuda_op_match_twin(const ls_cuda_op *op, ls_error *err);

/* Reserves memory; 0 bytes is allowed. */
ls_cuda_room ls_cuda_saved(ls_cuda_op *op, size_t bytes);
ls_cuda_room ls_cuda_scratch(ls_cuda_op *op, size_t bytes);
/* Where it is, NULL when it has no bytes. */
void *ls_cuda_at(const ls_cuda_op *op, const ls_cuda_room *room);

/* x channels last: where it is, after turning it into its room if it must be. `fresh` non-zero: in
 * forward, which turns; backward finds what forward made. */
int ls_cuda_take_x(const float **out, ls_cuda_op *op, cudaStream_t stream, int fresh,
                   ls_error *err);
int ls_cuda_take_x2(const float **out, ls_cuda_op *op, cudaStream_t stream, ls_error *err);
/* Where dx (dx2) is to be computed, and bringing it to the caller's memory. */
float *ls_cuda_dx(ls_cuda_op *op);
float *ls_cuda_dx2(ls_cuda_op *op);
int ls_cuda_give_dx(ls_cuda_op *op, cudaStream_t stream, ls_error *err);
int ls_cuda_give_dx2(ls_cuda_op *op, cudaStream_t stream, ls_error *err);

/* LS_OK, or the failure of enqueuing a pass of this op. */
int ls_cuda_done(const ls_cuda_op *op, cudaError_t error, ls_error *err);

/* ---- the creators, one for each kind --------------------------------------------------------- */

typedef int ls_cuda_create(ls_op **out, ls_cuda_device *device, const ls_op_desc *desc,
                           ls_error *err);
ls_cuda_create ls_cuda_gather_create, ls_cuda_conv_create, ls_cuda_dense_create;
ls_cuda_create ls_cuda_pool_create, ls_cuda_loss_create, ls_cuda_norm_create;
ls_cuda_create ls_cuda_pointwise_create; /* relu, add, sigmoid, tanh, dropout, export */
ls_cuda_create ls_cuda_update_create;    /* sgd, adamw, running */

#endif
