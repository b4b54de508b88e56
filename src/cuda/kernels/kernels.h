/* The back end's own kernels: C functions that enqueue one kernel, sometimes two, and return.
 *
 * All pointers are to the device's memory unless a line says "host". Tensors are fp32; where a
 * function says `half`, its tensors, the void pointers, are bf16 when that is set (uint16_t: the
 * upper halves of fp32, rounded to the nearest, ties to even), and everything is computed in
 * fp32 all the same. `m × c` is a tensor with the channel last: m positions (rows · h · w) of c
 * values. Every result has one order of summation, fixed by the shapes alone: it depends neither
 * on the grid nor on the GPU, and no kernel uses atomics on floats. The translation units are
 * compiled without fused multiply-adds.
 *
 * Each function has a twin of the same name in plain C in tests/doubles/kernels_cpu.c, so that the
 * code around it runs without a GPU; on a GPU the twin is what the kernel is compared with.
 * Structures passed by address lie in host memory and are copied before the call returns.
 */
#ifndef CUDA_KERNELS_KERNELS_H
#define CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the numbers of a step ------------------------------------------------------------------ */

/* ls_step_args as kernels read it, in device memory: a graph replays the same addresses. */
typedef struct ls_k_args {
    const uint32_t *rows; /* device memory */
    uint32_t before, behind;
    float *told; /* pinned; NULL: nowhere */
    uint64_t step, seed;
    uint32_t epoch;
    float lr, scale, row_scale;
} ls_k_args;

/* Of the steps of one launch; small enough to go with a kernel's own arguments. */
enum { LS_K_STEPS = 8 };
typedef struct ls_k_steps {
    ls_k_args step[LS_K_STEPS];
} ls_k_steps;

/* to[0 … count) ← value->step (host). */
cudaError_t ls_k_set_args(ls_k_args *to, const ls_k_steps *value, int count, cudaStream_t stream);

/* What a kernel found wrong; `code` 0: nothing. In pinned host memory that the device sees. */
typedef struct ls_k_fault {
    int code; /* LS_K_FAULT_… */
    int row, label, classes;
} ls_k_fault;

enum { LS_K_FAULT_LABEL = 1 /* a label that is no class */ };

/* ---- data ----------------------------------------------------------------------------------- */

typedef struct ls_k_gather {
    const void *images;    /* [dataset rows][c][h][w], bytes or floats */
    const int32_t *labels; /* of the dataset, `words` a row, or NULL */
    int32_t *labels_out;
    float *y;              /* [rows][h][w][c] */
    const ls_k_args *args; /* rows; seed and epoch with crop or flip */
    int rows, c, h, w;
    float mean[4], std[4];
    int crop, flip; /* 0: none */
    int rotate, erase, brightness, mixup;
    int floats;  /* of images; else bytes */
    int words;   /* of a row's label or target */
    int vectors; /* they are floats */
} ls_k_gather;

/* Dataset rows → a batch, normalised and changed as plugin.h says (ls_gather). */
cudaError_t ls_k_gather_rows(const ls_k_gather *gather, cudaStream_t stream);

/* to[r][j][i] ← from[r][i][j], r < rows, i < a, j < b: row-major to channels last with a =
 * channels, b = pixels; back with the two exchanged. */
cudaError_t ls_k_transpose(float *to, const float *from, int rows, int a, int b,
                           cudaStream_t stream);

/* fp32 to bf16, to the nearest, ties to even; and back. With `add`, to += from. */
cudaError_t ls_k_to_bf16(uint16_t *to, const float *from, size_t count, cudaStream_t stream);
cudaError_t ls_k_from_bf16(float *to, const uint16_t *from, size_t count, int add,
                           cudaStream_t stream);

/* ---- element by element --------------------------------------------------------------------- */

/* to[i] ← a[i] + b[i]; `to` may be a or b. */
cudaError_t ls_k_sum(float *to, const float *a, const float *b, size_t count, cudaStream_t stream);

/* y ← x + x2, and 0 for what is not above 0 with `relu`; y may be x or x2. */
cudaError_t ls_k_add(void *y, const void *x, const void *x2, int half, int relu, size_t count,
                     cudaStream_t stream);
/* dx, dx2 ← dy, or 0 where y (may be NULL) is not above 0. dx2 may be NULL. */
cudaError_t ls_k_add_back(void *dx, void *dx2, const void *dy, const void *y, int half,
                          size_t count, cudaStream_t stream);

typedef enum ls_k_curve {
    LS_K_RELU, /* below 0 with `slope`, which is of it alone */
    LS_K_SIGMOID,
    LS_K_TANH,
    LS_K_GELU,
    LS_K_SILU
} ls_k_curve;
cudaError_t ls_k_curve_of(float *y, const float *x, ls_k_curve curve, float slope, size_t count,
                          cudaStream_t stream);
/* From y, but gelu and silu from x. */
cudaError_t ls_k_curve_back(float *dx, const float *dy, const float *v, ls_k_curve curve,
                            float slope, size_t count, cudaStream_t stream);

/* Of m positions: y[c1 + c2] ← x[c1], x2[c2]; and back. */
cudaError_t ls_k_concat(float *y, const float *x, const float *x2, size_t m, int c1, int c2,
                        cudaStream_t stream);
cudaError_t ls_k_concat_back(float *dx, float *dx2, const float *dy, size_t m, int c1, int c2,
                             cudaStream_t stream);

/* Which elements stay is drawn from (seed, number, epoch, dataset row · c·pixels + element), the
 * element counted in c, h, w order whatever lies in memory. */
typedef struct ls_k_dropout {
    const ls_k_args *args;
    uint32_t number; /* the random stream */
    float p;
    int rows, c, pixels;
    int channels_last;
} ls_k_dropout;

/* kept[i] ← 1 or 0 (may be NULL); y ← x / (1 − p) where kept, else 0. */
cudaError_t ls_k_drop(float *y, uint8_t *kept, const float *x, const ls_k_dropout *dropout,
                      cudaStream_t stream);
cudaError_t ls_k_drop_back(float *dx, const float *dy, const uint8_t *kept, float p, size_t count,
                           cudaStream_t stream);

/* ---- pooling, channels last ----------------------------------------------------------------- */

typedef struct ls_k_pool {
    int rows, c, h, w; /* of x */
    int y_h, y_w;      /* of y */
    int kh, kw, sh, sw, ph, pw;
    int max; /* else the average over the pixels of the window that lie inside the image */
} ls_k_pool;

/* All offsets are in 32 bits: tensors have fewer than 2³¹ values.
 * `at`, of a maximum (may be NULL) ← where in the image (i·w + j) each window's first largest value is. */
cudaError_t ls_k_pool_forward(float *y, int32_t *at, const float *x, const ls_k_pool *pool,
                              cudaStream_t stream);
cudaError_t ls_k_pool_back(float *dx, const float *dy, const int32_t *at, const ls_k_pool *pool,
                           cudaStream_t stream);

/* Each pixel of x, rows × h × w × c, becomes sh × sw of y; and the sums of these. */
typedef struct ls_k_upsample {
    int rows, c, h, w; /* of x */
    int sh, sw;
} ls_k_upsample;

cudaError_t ls_k_upsample_of(float *y, const float *x, const ls_k_upsample *k, cudaStream_t stream);
cudaError_t ls_k_upsample_back(float *dx, const float *dy, const ls_k_upsample *k,
                               cudaStream_t stream);

/* Windows of 2 × 2 side by side, behind a bias and a relu: y has h/2 × w/2 pixels. */
typedef struct ls_k_quads {
    int rows, c, h, w; /* of x */
    int max;           /* else the average */
    int relu, half;    /* of x, y and their gradients */
} ls_k_quads;

/* y ← the pooled relu of x + bias[c] (may be NULL). bits (may be NULL), a byte for each value of y: which
 * pixels of its window the gradient goes to, bit 2·line + column: the first largest one, or of an
 * average all; of these those above 0 where there is a relu. */
cudaError_t ls_k_quads_forward(void *y, uint8_t *bits, const void *x, const float *bias,
                               const ls_k_quads *quads, cudaStream_t stream);
/* dx of x; bias_sum[c] (may be NULL) ← or += (`add`) the sum of dx over positions, with `partial` as
 * ls_k_partial_floats has it for the positions of y. */
cudaError_t ls_k_quads_back(void *dx, float *bias_sum, int add, const void *dy, const uint8_t *bits,
                            float *partial, const ls_k_quads *quads, cudaStream_t stream);

/* ---- sums over positions -------------------------------------------------------------------- */

/* Positions that are summed as one block; the blocks' sums are then added in order. A tensor has fewer
 * than 2³¹ values and begins at a multiple of 16 bytes. */
enum { LS_K_BLOCK = 256 };

/* Floats of scratch that the functions of this section need for m × c. */
size_t ls_k_partial_floats(size_t m, int c);

/* sum[c] ← Σ over positions of g, where g is dy, or 0 where y (may be NULL) is not above 0.
 * `masked` (may be NULL, may be dy) ← g. With `add`, sum += instead. */
cudaError_t ls_k_bias_grad(float *sum, void *masked, const void *dy, const void *y, int half,
                           int add, float *partial, size_t m, int c, cudaStream_t stream);
/* y (m × c) ← y + bias[c] (may be NULL), then 0 for what is not above 0 with `relu`. */
cudaError_t ls_k_bias(void *y, const float *bias, int half, int relu, size_t m, int c,
                      cudaStream_t stream);

/* ---- batch norm ----------------------------------------------------------------------------- */

/* Bytes of a relu's mask: a bit for each value, 1 where y is above 0, and a byte for as many values of a
 * position as 16 bytes hold, or for one where c does not divide by them. */
size_t ls_k_mask_bytes(size_t m, int c, int half);

typedef struct ls_k_norm {
    size_t m;
    int c;
    int rows; /* of the batch: the contribution is rows · mean */
    float epsilon;
    int relu;
    int half; /* of x, x2, y and their gradients */
} ls_k_norm;

/* mean[c], inverse[c] = 1/√(variance + ε) of x; contribution (may be NULL): rows·mean [c], rows ·
 * variance·m/(m − 1) [c], added to what is there with `add`. */
cudaError_t ls_k_norm_statistics(float *mean, float *inverse, float *contribution, int add,
                                 const void *x, float *partial, const ls_k_norm *norm,
                                 cudaStream_t stream);
/* The same from running statistics: mean [c], variance [c]. */
cudaError_t ls_k_norm_running(float *mean, float *inverse, const float *running,
                              const ls_k_norm *norm, cudaStream_t stream);
/* y ← (x − mean)·(inverse·weight) + bias (+ x2, may be NULL), then the relu if there is one; `mask`
 * (may be NULL) ← where that left y above 0. */
cudaError_t ls_k_norm_apply(void *y, uint8_t *mask, const void *x, const void *x2,
                            const float *mean, const float *inverse, const float *weight,
                            const float *bias, const ls_k_norm *norm, cudaStream_t stream);
/* sums[0 … c) ← Σ g, sums[c … 2c) ← Σ g·(x − mean)·inverse, with g = dy or, when there is a relu, 0
 * where its mask has no bit. weight_grad, bias_grad ← or += (`add`) the second and the first. */
cudaError_t ls_k_norm_grad(float *weight_grad, float *bias_grad, float *sums, int add,
                           const void *x, const void *dy, const uint8_t *mask, const float *mean,
                           const float *inverse, float *partial, const ls_k_norm *norm,
                           cudaStream_t stream);
/* dx ← weight·inverse·(g − sums[c]/m − x̂·sums[c + C]/m); dx2 (may be NULL) ← g. */
cudaError_t ls_k_norm_dx(void *dx, void *dx2, const void *x, const void *dy, const uint8_t *mask,
                         const float *mean, const float *inverse, const float *weight,
                         const float *sums, const ls_k_norm *norm, cudaStream_t stream);

/* ---- layer norm: of each of `rows` rows of n values, whose order is that of weight and bias -- */

/* y ← (x − mean)·inverse·weight + bias; stats[rows][2] ← mean and inverse = 1/√(variance + ε). */
cudaError_t ls_k_layer_norm(float *y, float *stats, const float *x, const float *weight,
                            const float *bias, float epsilon, int rows, size_t n,
                            cudaStream_t stream);
cudaError_t ls_k_layer_norm_dx(float *dx, const float *x, const float *dy, const float *weight,
                               const float *stats, int rows, size_t n, cudaStream_t stream);
/* weight_grad, bias_grad ← or += (`add`) the sums over rows of dy·(x − mean)·inverse and of dy. */
cudaError_t ls_k_layer_norm_grad(float *weight_grad, float *bias_grad, int add, const float *x,
                                 const float *dy, const float *stats, int rows, size_t n,
                                 cudaStream_t stream);

/* ---- loss ----------------------------------------------------------------------------------- */

typedef struct ls_k_xent {
    const float *x;        /* [rows][classes] */
    const int32_t *labels; /* [rows] */
    const float *weight;   /* [classes], of a row by its label; NULL: 1 */
    float *dx;             /* or NULL */
    float *stats;          /* [0] summed loss, [1] correct */
    float *row;            /* scratch: 2 · rows */
    ls_k_fault *fault;     /* set for the first row whose label is no class */
    int rows, classes;
    float smoothing;
    int add; /* stats += */
} ls_k_xent;

cudaError_t ls_k_softmax_xent(const ls_k_xent *xent, cudaStream_t stream);

/* As plugin.h says of ls_vector_loss; the numbers are those of ls_vector_rule. */
enum { LS_K_MSE = 0, LS_K_BCE = 1 };
typedef struct ls_k_vector_loss {
    const float *x, *targets; /* [rows][n] */
    float *dx;                /* or NULL */
    float *stats;             /* [0] summed loss, [1] correct */
    float *row;               /* scratch: 2 · rows */
    int rows, n;
    int rule; /* LS_K_… */
    int add;  /* stats += */
} ls_k_vector_loss;

cudaError_t ls_k_vector_loss_of(const ls_k_vector_loss *loss, cudaStream_t stream);

/* ---- steps over arenas ---------------------------------------------------------------------- */

/* Whether a step may be applied, as plugin.h says of guard and held; both NULL: it may. The optimizers
 * put the first two floats at `loss` where args->told says. */
typedef struct ls_k_guard {
    const float *loss;
    float *held;
    const float *clip; /* the gradient is multiplied with its first besides; NULL: with 1 */
    float rate;        /* lr is multiplied with it; 0 counts as 1 */
} ls_k_guard;

/* What an optimizer works on: arenas of `count` floats; slots may be NULL. */
typedef struct ls_k_update {
    float *w, *slot[2];
    const float *grad;
    uint16_t *shadow;            /* ← w in bf16; NULL: none is kept */
    const uint16_t *shadow_grad; /* in bf16, read in place of grad … */
    const uint32_t
        *in_shadow; /* … where bit i is set, for 16 of them from 16·i on; NULL: nowhere */
    const ls_k_args *args;
    ls_k_guard guard;
    size_t count;
} ls_k_update;

/* As plugin.h says of ls_sgd; slot[0] NULL when momentum is 0. lr and scale from args. */
cudaError_t ls_k_sgd(const ls_k_update *update, float momentum, float weight_decay, int nesterov,
                     cudaStream_t stream);
typedef struct ls_k_adamw {
    float beta1, beta2, epsilon, weight_decay;
} ls_k_adamw;
cudaError_t ls_k_adamw_step(const ls_k_update *update, const ls_k_adamw *adamw,
                            cudaStream_t stream);
/* to[i] += momentum · (sum[i]·row_scale − to[i]); `of_weights`: the scale is 1 */
cudaError_t ls_k_running(float *to, const float *sum, const ls_k_args *args, ls_k_guard guard,
                         float momentum, int of_weights, size_t count, cudaStream_t stream);

/* As plugin.h says of ls_clip. `partial`: LS_K_CLIP_SUMS doubles of scratch; `add`: on top of what an earlier call
 * has left in clip. */
enum { LS_K_CLIP_SUMS = 256 };
cudaError_t ls_k_clip(float *clip, double *partial, const float *grad, const ls_k_args *args,
                      float most, int add, size_t count, cudaStream_t stream);

/* ---- sums of arenas ------------------------------------------------------------------------- */

/* Most arenas of one call. */
enum { LS_K_ARENAS = 128 };

/* A step of `order`: a number below LS_K_ARENAS puts that arena's value on a stack, LS_K_ADD
 * replaces the two topmost values, a below b, with a + b. */
enum { LS_K_ADD = 255 };

/* out[i] ← the sum of in[k][i], k < count, i < floats, in the order of a binary tree in postfix
 * form: 2·count − 1 steps that leave one value. The stack holds at most LS_K_STACK values. `in` and `order` are host
 * arrays, copied before the call returns; out may be one of `in`. Any float count and alignment; 16-byte aligned is
 * fastest. */
enum { LS_K_STACK = 16 };
cudaError_t ls_k_add_arenas(float *out, const float *const *in, int count, const uint8_t *order,
                            size_t floats, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
