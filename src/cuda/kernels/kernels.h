/* SPDX-License-Identifier: MIT */
/* The back end's own kernels. Each C function enqueues one kernel, sometimes two, and returns.
 *
 * All pointers are to device memory unless a comment says "host". Tensors are fp32. If a function
 * has a parameter or field `half`, its void pointers are bf16 tensors when `half` is non-zero. (A
 * bf16 number is a uint16_t: the upper half of an fp32 number, rounded to nearest, ties to even.)
 * All computations are in fp32 in either case. `m × c` is a channels-last tensor: m *positions*
 * (rows · h · w) of c values. "a ← b" means that b overwrites a; "a ← or, with `add`, += b" means
 * that b is added to a if `add` is non-zero. A comment that begins with such a formula says what
 * the function's kernels compute.
 *
 * The order of each sum depends on the shapes alone, not on the grid or the GPU. No kernel uses
 * atomics on floats. (Digests are sums of integers, which are the same in any order.) The
 * translation units are compiled without fused multiply-adds.
 *
 * Each function has a *twin* for tests: a function of the same name in plain C in
 * tests/doubles/kernels_cpu*.c. (The twin of an op, ls_op_desc.twin, is another thing.) Tests link
 * the twins to run the back end without a GPU. On a GPU, tests compare each kernel with its twin.
 * Structures whose address is passed are in host memory; the function copies them before it
 * returns. */
#ifndef CUDA_KERNELS_KERNELS_H
#define CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- arguments of a step --------------------------------------------------------------------- */

/* The fields of ls_step_args that kernels read. The structure is in device memory, at an address
 * that never changes, because each replay of a graph reads the same addresses. */
typedef struct ls_k_args {
    const uint32_t *rows; /* device memory */
    uint32_t rows_before, rows_after;
    float *stats_copy; /* pinned; NULL: the loss is not reported */
    uint64_t *digest;  /* device memory; NULL: no digest is summed */
    uint64_t step, seed;
    uint32_t epoch;
    float lr, scale, row_scale;
} ls_k_args;

/* Arguments of the training steps of one launch of a graph. The structure is small enough to be
 * passed to a kernel by value. */
enum { LS_K_STEPS = 8 };
typedef struct ls_k_steps {
    ls_k_args step[LS_K_STEPS];
} ls_k_steps;

/* to[0 … count) ← value->step (host). */
cudaError_t ls_k_set_args(ls_k_args *to, const ls_k_steps *value, int count, cudaStream_t stream);

/* A fault that a kernel has found in the data. `code` is 0 if there is none. The structure is in
 * pinned host memory, which the device can write. */
typedef struct ls_k_fault {
    int code; /* LS_K_FAULT_LABEL or 0 */
    int row, label, classes;
} ls_k_fault;

enum { LS_K_FAULT_LABEL = 1 /* a label that is not a class */ };

/* ---- data ----------------------------------------------------------------------------------- */

typedef struct ls_k_gather {
    const void *images;    /* [dataset rows][c][h][w], bytes or floats */
    const int32_t *labels; /* labels or targets of the dataset, `words` per row; may be NULL */
    int32_t *labels_out;
    const float *weights; /* [dataset rows] weights of the rows; NULL: they have none */
    float *weights_out;   /* with `weights`: [rows] */
    float *y;             /* [rows][h][w][c] */
    /* the kernel reads the field rows, and seed and epoch if rows are augmented */
    const ls_k_args *args;
    int rows, c, h, w;
    float mean[4], std[4];
    int crop, flip; /* 0: not done */
    int rotate, erase, brightness, mixup, part;
    int floats;  /* non-zero: images are floats, else bytes */
    int words;   /* number of 32-bit words of a row's label or target */
    int vectors; /* non-zero: targets are floats */
} ls_k_gather;

/* y ← the batch of dataset rows, normalised and augmented as ls_gather in plugin.h defines it. */
cudaError_t ls_k_gather_rows(const ls_k_gather *gather, cudaStream_t stream);

/* to[r][j][i] ← from[r][i][j], r < rows, i < a, j < b. With a = channels and b = pixels, it
 * converts row-major to channels last; with a = pixels and b = channels, channels last to
 * row-major. */
cudaError_t ls_k_transpose(float *to, const float *from, int rows, int a, int b,
                           cudaStream_t stream);

/* fp32 to bf16, rounded to nearest, ties to even. */
cudaError_t ls_k_to_bf16(uint16_t *to, const float *from, size_t count, cudaStream_t stream);
/* bf16 to fp32: to ← from, or with `add` to += from. */
cudaError_t ls_k_from_bf16(float *to, const uint16_t *from, size_t count, int add,
                           cudaStream_t stream);

/* Keeps `blocks` thread blocks of 1024 threads busy for `rounds` rounds of a random number
 * generator, as load beside other kernels. out[LS_K_BUSY · block + i] ← the number of the first
 * thread of the block's warp i. */
enum { LS_K_BUSY = 32 /* warps of a block */ };
cudaError_t ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream);

/* ---- element by element ---------------------------------------------------------------------- */

/* to[i] ← a[i] + b[i] for i < count; `to` may be a or b. */
cudaError_t ls_k_sum(float *to, const float *a, const float *b, size_t count, cudaStream_t stream);

/* y ← x + x2; with `relu`, 0 where the sum is not above 0. y may be x or x2. */
cudaError_t ls_k_add(void *y, const void *x, const void *x2, int half, int relu, size_t count,
                     cudaStream_t stream);
/* dx, dx2 ← dy where y is above 0, else 0; if y is NULL, ← dy. dx2 may be NULL. */
cudaError_t ls_k_add_back(void *dx, void *dx2, const void *dy, const void *y, int half,
                          size_t count, cudaStream_t stream);

/* A curve is one of the activation functions. */
typedef enum ls_k_curve {
    LS_K_RELU, /* values below 0 are multiplied with shape.slope */
    LS_K_SIGMOID,
    LS_K_TANH,
    LS_K_GELU,
    LS_K_SILU,
    LS_K_CLAMP,        /* uses shape.least and shape.most */
    LS_K_HARD_SIGMOID, /* uses shape.slope and shape.offset */
    LS_K_HARD_SWISH,
    LS_K_GELU_TANH,
    LS_K_AFFINE /* uses shape.slope and shape.offset */
} ls_k_curve;
/* Numbers of a curve, which the curves that do not use them ignore. */
typedef struct ls_k_shape {
    float slope, offset, least, most;
} ls_k_shape;
/* y ← curve(x). */
cudaError_t ls_k_curve_of(float *y, const float *x, ls_k_curve curve, ls_k_shape shape,
                          size_t count, cudaStream_t stream);
/* dx ← dy times the derivative, which is computed from v. v is x for both forms of gelu,
 * silu and hard swish, and y for the other curves. */
cudaError_t ls_k_curve_back(float *dx, const float *dy, const float *v, ls_k_curve curve,
                            ls_k_shape shape, size_t count, cudaStream_t stream);

/* y ← x·x2. */
cudaError_t ls_k_multiply(float *y, const float *x, const float *x2, size_t count,
                          cudaStream_t stream);
/* dx ← dy·x2; dx2 ← dy·x. */
cudaError_t ls_k_multiply_back(float *dx, float *dx2, const float *dy, const float *x,
                               const float *x2, size_t count, cudaStream_t stream);

/* Shape of an image, channels last: x[rows][pixels][c], with one factor for each channel of a row,
 * x2[rows][c]. */
typedef struct ls_k_scale {
    int rows, pixels, c;
} ls_k_scale;
/* y ← x·x2. */
cudaError_t ls_k_scale_by(float *y, const float *x, const float *x2, const ls_k_scale *scale,
                          cudaStream_t stream);
/* dx ← dy·x2; dx2 ← Σ dy·x over the pixels. */
cudaError_t ls_k_scale_back(float *dx, float *dx2, const float *dy, const float *x, const float *x2,
                            const ls_k_scale *scale, cudaStream_t stream);

/* For m positions: y[c1 + c2] ← x[c1], x2[c2]. */
cudaError_t ls_k_concat(float *y, const float *x, const float *x2, size_t m, int c1, int c2,
                        cudaStream_t stream);
/* Gradient of ls_k_concat: dx[c1], dx2[c2] ← the parts of dy[c1 + c2]. */
cudaError_t ls_k_concat_back(float *dx, float *dx2, const float *dy, size_t m, int c1, int c2,
                             cudaStream_t stream);

/* A random number decides whether an element is kept. It is drawn with (seed, number, epoch,
 * dataset row · c·pixels + element). Elements are counted in c, h, w order, even if the memory has
 * another order. */
typedef struct ls_k_dropout {
    const ls_k_args *args;
    uint32_t number; /* number of the random stream */
    float p;
    int rows, c, pixels;
    int channels_last;
} ls_k_dropout;

/* kept[i] ← 1 or 0 (may be NULL); y ← x / (1 − p) where kept, else 0. */
cudaError_t ls_k_drop(float *y, uint8_t *kept, const float *x, const ls_k_dropout *dropout,
                      cudaStream_t stream);
/* dx ← dy / (1 − p) where kept, else 0. */
cudaError_t ls_k_drop_back(float *dx, const float *dy, const uint8_t *kept, float p, size_t count,
                           cudaStream_t stream);

/* ---- pooling, channels last ------------------------------------------------------------------ */

typedef struct ls_k_pool {
    int rows, c, h, w; /* size of x */
    int y_h, y_w;      /* size of y */
    int kh, kw, sh, sw, ph, pw;
    int max;          /* non-zero: maximum; 0: average */
    int end_h, end_w; /* height and width of the image and of its padding at the bottom and right */
    int count_padding; /* an average divides by the number of the window's pixels that are inside
                        * the image; non-zero: inside the image or its padding */
} ls_k_pool;

/* y ← the pooled x. For a maximum, `at` (may be NULL) ← the position in the image (i·w + j) of each
 * window's first largest value. All offsets are 32 bits: tensors have fewer than 2³¹ values. */
cudaError_t ls_k_pool_forward(float *y, int32_t *at, const float *x, const ls_k_pool *pool,
                              cudaStream_t stream);
/* dx ← the gradient of x. */
cudaError_t ls_k_pool_back(float *dx, const float *dy, const int32_t *at, const ls_k_pool *pool,
                           cudaStream_t stream);

/* Upsampling: each pixel of x, rows × h × w × c, becomes sh × sw pixels of y. */
typedef struct ls_k_upsample {
    int rows, c, h, w; /* size of x */
    int sh, sw;
} ls_k_upsample;

cudaError_t ls_k_upsample_of(float *y, const float *x, const ls_k_upsample *k, cudaStream_t stream);
/* dx ← the sums of dy over the pixels of y that belong to each pixel of x. */
cudaError_t ls_k_upsample_back(float *dx, const float *dy, const ls_k_upsample *k,
                               cudaStream_t stream);

/* Padding with zeros, and cropping. */
typedef struct ls_k_pad {
    int rows, c, h, w; /* size of x */
    int y_h, y_w;      /* size of y */
    int top, left;     /* position in y of the first pixel of x; negative if y is a part of x */
} ls_k_pad;

/* y ← x, and 0 outside x. */
cudaError_t ls_k_pad_of(float *y, const float *x, const ls_k_pad *k, cudaStream_t stream);

/* Pooling with windows of 2 × 2 and stride 2 (*quads*). The bias is added to x, then the relu is
 * applied, then the result is pooled. y has h/2 × w/2 pixels. */
typedef struct ls_k_quads {
    int rows, c, h, w; /* size of x */
    int max;           /* non-zero: maximum; 0: average */
    int relu, half;    /* relu: there is a relu; half: x, y and their gradients are bf16 */
} ls_k_quads;

/* y ← the pooled relu of x + bias[c] (may be NULL). bits (may be NULL) ← one byte for each value of
 * y. Bit 2·line + column is set if the gradient of y goes to that pixel of its window. For a
 * maximum this is the first of the largest pixels; for an average it is every pixel. With a relu,
 * only bits of pixels above 0 are set. */
cudaError_t ls_k_quads_forward(void *y, uint8_t *bits, const void *x, const float *bias,
                               const ls_k_quads *quads, cudaStream_t stream);
/* dx ← the gradient of x; bias_sum[c] (may be NULL) ← or, with `add`, += the sum of dx over
 * positions. `partial` has ls_k_partial_floats(m, c) floats, where m is the number of positions of
 * y. */
cudaError_t ls_k_quads_back(void *dx, float *bias_sum, int add, const void *dy, const uint8_t *bits,
                            float *partial, const ls_k_quads *quads, cudaStream_t stream);

/* ---- convolutions of few channels ------------------------------------------------------------ */

/* A convolution of x, which has at most LS_K_CONV_CHANNELS channels (usually images), with
 * groups = 1, at most LS_K_CONV_TAPS taps, and a multiple of 4 output channels. A *tap* is a pixel
 * of the filter in one channel. Taps are counted channel by channel, in a channel line by line: tap
 * t = (channel · kh + line) · kw + column. The weights are [out][kh][kw][c].
 *
 * The kernels work on *quads*, 2 × 2 adjacent pixels of the result, which are also the windows that
 * are pooled. Quads are counted row by row, in a row line by line. A quad that reaches over the
 * edge of the result has fewer pixels; if there is a pool, such a quad does not exist. A pixel of x
 * outside the image is 0, and takes part in the sums.
 *
 * All sums are in one fixed order, which depends on the fields of ls_k_conv alone:
 *
 * - An output begins with 0; the taps' products are added in ascending order, each with one fused
 *   multiply-add (fmaf). Then the bias is added.
 * - A weight's gradient is the sum over all quads of gradient · pixel of x. The quads are divided
 *   into *slices* of LS_K_CONV_LANES · n consecutive quads. n is 4, or the smallest number for
 *   which there are at most LS_K_CONV_SLICES slices. Lane l of a slice begins with 0 and adds its
 *   quads l, l + LS_K_CONV_LANES, … with fmaf, and in each quad the pixels (0, 0), (0, 1), (1, 0),
 *   (1, 1); the gradient of a pixel that does not exist is 0. The lanes' sums are added to 0 in
 *   ascending order in fp32; the result is the slice's. Lane l of the end adds the slices l, l +
 *   LS_K_CONV_LANES, … in double, and the sums of these lanes are added in ascending order. The
 *   total is rounded to fp32.
 * - The gradient of a bias is summed in the same way, with + instead of fmaf. */
enum {
    LS_K_CONV_CHANNELS = 4,
    LS_K_CONV_TAPS = 196,
    LS_K_CONV_LANES = 32,
    LS_K_CONV_SLICES = 1024
};

typedef struct ls_k_conv {
    int rows, c, h, w; /* size of x */
    int out, y_h, y_w; /* channels and size of the result, before it is pooled */
    int kh, kw, sh, sw, ph, pw, dh, dw;
    int relu;                   /* non-zero: a relu follows the convolution */
    int pool;                   /* non-zero: then quads are pooled; y has y_h/2 × y_w/2 pixels */
    int max;                    /* pool: non-zero: maximum; 0: average */
    int x_half, w_half, y_half; /* types of x; of the weights and the bias; of y and dy */
} ls_k_conv;

/* y ← the convolution of x with `weight`, plus bias[out] (may be NULL), then the relu and the pool.
 * `bits` (may be NULL) is written only if there is a pool, as by ls_k_quads_forward. */
cudaError_t ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                              const void *bias, const ls_k_conv *conv, cudaStream_t stream);

/* Gradients of a convolution's weights and bias. The gradient of a pixel of the result comes from
 * dy, the gradient of y: with a pool, from the bits of ls_k_conv_forward; without, it is dy where y
 * is above 0, or dy itself if y is NULL. */
typedef struct ls_k_conv_grad {
    const void *x, *dy, *y;
    const uint8_t *bits;
    float *partial; /* scratch memory of ls_k_conv_partial_floats floats */
    /* Result: weight_half if it is not NULL, else `weight`. If `rounded` is set, the gradient is
     * rounded to bf16 first. */
    float *weight;
    uint16_t *weight_half;
    int rounded;
    float *bias; /* may be NULL */
    int add;     /* non-zero: adds to `weight` and `bias`; weight_half is overwritten */
} ls_k_conv_grad;

size_t ls_k_conv_partial_floats(const ls_k_conv *conv);
cudaError_t ls_k_conv_weights(const ls_k_conv_grad *grad, const ls_k_conv *conv,
                              cudaStream_t stream);

/* ---- sums over positions --------------------------------------------------------------------- */

/* Number of positions that are summed as one block. The sums of the blocks are then added in
 * ascending order. A tensor has fewer than 2³¹ values and begins at a multiple of 16 bytes. */
enum { LS_K_BLOCK = 256 };

/* Returns the floats of scratch memory (`partial`) that the functions of this section need for m ×
 * c. */
size_t ls_k_partial_floats(size_t m, int c);

/* sum[c] ← or, with `add`, += Σ over positions of g. g is dy where y is above 0, and 0 elsewhere;
 * if y is NULL, g is dy. `masked` (may be NULL, may be dy) ← g. */
cudaError_t ls_k_bias_grad(float *sum, void *masked, const void *dy, const void *y, int half,
                           int add, float *partial, size_t m, int c, cudaStream_t stream);
/* y (m × c) ← y + bias[c] (may be NULL); with `relu`, 0 where the sum is not above 0. */
cudaError_t ls_k_bias(void *y, const float *bias, int half, int relu, size_t m, int c,
                      cudaStream_t stream);

/* ---- batch norm ----------------------------------------------------------------------------- */

/* Returns the bytes of a relu's mask: one bit for each value, 1 where y is above 0. One byte of the
 * mask holds the bits of V values of a position: V is the number of values that fit into 16 bytes,
 * or 1 if c is not a multiple of that number. */
size_t ls_k_mask_bytes(size_t m, int c, int half);

typedef struct ls_k_norm {
    size_t m;
    int c;
    int rows; /* number of rows of the batch; the contribution to the running mean is rows · mean */
    float epsilon;
    int relu;
    int half; /* type of x, x2, y and their gradients */
} ls_k_norm;

/* mean[c], inverse[c] ← mean and 1/√(variance + ε) of x. contribution (may be NULL), [2][c] ← or,
 * with `add`, += rows·mean, then rows·variance·m/(m − 1). */
cudaError_t ls_k_norm_statistics(float *mean, float *inverse, float *contribution, int add,
                                 const void *x, float *partial, const ls_k_norm *norm,
                                 cudaStream_t stream);
/* mean[c], inverse[c] ← mean and 1/√(variance + ε) from the running statistics: mean [c], then
 * variance [c]. */
cudaError_t ls_k_norm_running(float *mean, float *inverse, const float *running,
                              const ls_k_norm *norm, cudaStream_t stream);
/* y ← (x − mean)·(inverse·weight) + bias, plus x2 unless it is NULL, then the relu if there is one.
 * `mask` (may be NULL) ← a bit for each value of y, set where y is above 0. */
cudaError_t ls_k_norm_apply(void *y, uint8_t *mask, const void *x, const void *x2,
                            const float *mean, const float *inverse, const float *weight,
                            const float *bias, const ls_k_norm *norm, cudaStream_t stream);
/* sums[0 … c) ← Σ g, sums[c … 2c) ← Σ g·(x − mean)·inverse. g is dy; with a relu, g is 0 where the
 * mask has no bit. bias_grad ← or, with `add`, += Σ g. weight_grad ← or, with `add`, +=
 * Σ g·(x − mean)·inverse. */
cudaError_t ls_k_norm_grad(float *weight_grad, float *bias_grad, float *sums, int add,
                           const void *x, const void *dy, const uint8_t *mask, const float *mean,
                           const float *inverse, float *partial, const ls_k_norm *norm,
                           cudaStream_t stream);
/* dx ← weight·inverse·(g − Σg/m − x̂·Σ(g·x̂)/m), where x̂ = (x − mean)·inverse and the two sums are
 * those of ls_k_norm_grad. dx2 (may be NULL) ← g. */
cudaError_t ls_k_norm_dx(void *dx, void *dx2, const void *x, const void *dy, const uint8_t *mask,
                         const float *mean, const float *inverse, const float *weight,
                         const float *sums, const ls_k_norm *norm, cudaStream_t stream);

/* layer norm: `rows` rows of n values; weight and bias have the order of a row's values */

/* y ← (x − mean)·inverse·weight + bias; stats[rows][2] ← mean and inverse = 1/√(variance + ε). */
cudaError_t ls_k_layer_norm(float *y, float *stats, const float *x, const float *weight,
                            const float *bias, float epsilon, int rows, size_t n,
                            cudaStream_t stream);
/* dx ← the gradient of x. */
cudaError_t ls_k_layer_norm_dx(float *dx, const float *x, const float *dy, const float *weight,
                               const float *stats, int rows, size_t n, cudaStream_t stream);
/* weight_grad, bias_grad ← or, with `add`, += the sums over rows of dy·(x − mean)·inverse and of
 * dy. */
cudaError_t ls_k_layer_norm_grad(float *weight_grad, float *bias_grad, int add, const float *x,
                                 const float *dy, const float *stats, int rows, size_t n,
                                 cudaStream_t stream);

/* ---- loss ----------------------------------------------------------------------------------- */

typedef struct ls_k_xent {
    const float *x;        /* [rows][classes] */
    const int32_t *labels; /* [rows] */
    /* [classes], factor of a row's loss and gradient, by the row's label; NULL: 1 */
    const float *weight;
    const float *row_weight; /* [rows], the same, by the row; NULL: 1 */
    float *dx;               /* may be NULL */
    float *stats;            /* [0] summed loss, [1] number of correct rows */
    float *row;              /* scratch: 2 · rows */
    ls_k_fault *fault;       /* set for the first row whose label is not a class */
    int rows, classes;
    float smoothing;
    int add; /* non-zero: adds to stats */
} ls_k_xent;

cudaError_t ls_k_softmax_xent(const ls_k_xent *xent, cudaStream_t stream);

/* The losses of ls_vector_loss, as plugin.h defines them. The constants equal those of
 * ls_vector_rule. */
enum {
    LS_K_MSE = 0,
    LS_K_BCE = 1,
    LS_K_MAE = 2,
    LS_K_HUBER = 3,
    LS_K_QUANTILE = 4,
    LS_K_POISSON = 5,
    LS_K_RULES = 6,
    LS_K_QUANTILES = 16
};
typedef struct ls_k_vector_loss {
    const float *x;          /* [rows][n] */
    const float *targets;    /* [rows][each] */
    const float *row_weight; /* [rows], factor of a row's loss and gradient; NULL: 1 */
    float *dx;               /* may be NULL */
    float *stats;            /* [0] summed loss, [1] number of correct rows */
    float *row;              /* scratch: 2 · rows */
    int rows, n;
    int each;     /* number of numbers in a row's target: n / (number of quantiles), or n */
    int rule;     /* LS_K_MSE and so on */
    int add;      /* non-zero: adds to stats */
    double delta; /* LS_K_HUBER */
    double quantile[LS_K_QUANTILES]; /* LS_K_QUANTILE */
} ls_k_vector_loss;

cudaError_t ls_k_vector_loss_of(const ls_k_vector_loss *loss, cudaStream_t stream);

/* ---- updates of arenas ---------------------------------------------------------------------- */

/* Decides whether and how an optimizer's update is applied. `loss` and `skip` are the fields
 * `guard` and `skip` of ls_op_buffers in plugin.h. If `loss` and `skip` are NULL, each update is
 * applied. The optimizers copy the first two floats at `loss` to args->stats_copy. */
typedef struct ls_k_guard {
    const float *loss;
    float *skip;
    const float *clip; /* factor clip[0] of the gradient; NULL: 1 */
    float rate;        /* factor of lr; 0 counts as 1 */
} ls_k_guard;

/* Arenas of an optimizer, `count` floats each. `slot`: arenas of its state; may be NULL. If `sums`
 * is not 0, an update that is applied adds the digest of w and of each slot, as they were before
 * the update, to *args->digest (base/digest.h), unless args->digest is NULL. */
typedef struct ls_k_update {
    float *w, *slot[2];
    const float *grad;
    uint16_t *shadow;            /* receives w in bf16; NULL: there is no such copy */
    const uint16_t *shadow_grad; /* gradients in bf16, see in_shadow */
    /* bit i set: elements 16·i … 16·i + 15 of the gradient are read from shadow_grad instead of
     * grad; NULL: all are read from grad */
    const uint32_t *in_shadow;
    const ls_k_args *args;
    ls_k_guard guard;
    size_t count;
    int sums;            /* non-zero: the update sums a digest; another kernel is chosen */
    size_t digest_at[3]; /* positions in the digest of w[0], slot[0][0] and slot[1][0]; multiples of
                          * 16 */
} ls_k_update;

/* One update of SGD, as ls_sgd in plugin.h defines it. slot[0] is NULL if momentum is 0. lr and
 * scale come from args. */
cudaError_t ls_k_sgd(const ls_k_update *update, float momentum, float weight_decay, int nesterov,
                     cudaStream_t stream);
typedef struct ls_k_adamw {
    float beta1, beta2, epsilon, weight_decay;
} ls_k_adamw;
/* One update of AdamW, as ls_adamw in plugin.h defines it. */
cudaError_t ls_k_adamw_step(const ls_k_update *update, const ls_k_adamw *adamw,
                            cudaStream_t stream);
/* w[i] += momentum · (grad[i]·row_scale − w[i]); with `of_weights` the scale is 1. The other arenas
 * of `update` are not used. `count` can be any number. */
cudaError_t ls_k_running(const ls_k_update *update, float momentum, int of_weights,
                         cudaStream_t stream);
/* Adds the digest of the `count` floats at x, the first of which is at position `at`, to
 * *args->digest, unless args->digest is NULL. */
cudaError_t ls_k_digest(const float *x, const ls_k_args *args, size_t at, size_t count,
                        cudaStream_t stream);

enum { LS_K_CLIP_SUMS = 256 }; /* number of partial sums of ls_k_clip */
/* Computes the clip factor, as ls_clip in plugin.h defines it. `partial`: LS_K_CLIP_SUMS doubles of
 * scratch memory. With `add`, the sum of squares that an earlier call has stored in clip[2] and
 * clip[3] is included. */
cudaError_t ls_k_clip(float *clip, double *partial, const float *grad, const ls_k_args *args,
                      float most, int add, size_t count, cudaStream_t stream);

/* ---- sums of arenas ------------------------------------------------------------------------- */

/* largest number of arenas in one call */
enum { LS_K_ARENAS = 128 };

/* An element of `order` (below): a number below LS_K_ARENAS pushes that arena's value on a stack.
 * LS_K_ADD replaces the two topmost values of the stack, a below b, with a + b. */
enum { LS_K_ADD = 255 };

enum { LS_K_STACK = 16 }; /* largest number of values on the stack of ls_k_add_arenas */
/* out[i] ← the sum of in[k][i], k < count, for i < floats, in the order of a binary tree. `order`
 * is the tree in postfix form: 2·count − 1 elements that leave one value on the stack. The stack
 * holds at most LS_K_STACK values. `in` and `order` are host arrays, which the function copies
 * before it returns. `out` may be one of `in`. Any number of floats and any alignment is
 * allowed. */
cudaError_t ls_k_add_arenas(float *out, const float *const *in, int count, const uint8_t *order,
                            size_t floats, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
