/* The kernels of the lanes family, as one table per instruction set.
 *
 * Activations lie as [group][c][h][w][16] (lanes_op.h); a group is sixteen rows. Lanes beyond
 * the last row hold finite numbers in activations and zeros in gradients, so that sums over all
 * lanes are sums over the rows. All pointers are aligned to 64 bytes. Nothing here fails,
 * allocates, or keeps state. Sums are made of fused multiply-adds where the instruction set has
 * them (vec_fma): the same ones with every compiler.
 */
#ifndef CPU_LANES_KERNELS_H
#define CPU_LANES_KERNELS_H

#include "cpu/wino.h"

#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

/* Gradients of parameters are added up in blocks of this many rows, whatever the schedule. */
#define LS_LANES_BLOCK_GROUPS 2

/* Groups of the block that starts at group `first`. */
static inline int ls_lanes_block(int groups, int first)
{
    int left = groups - first;
    return left < LS_LANES_BLOCK_GROUPS ? left : LS_LANES_BLOCK_GROUPS;
}

/* Weights of a convolution: [ceil(oc/8)][ic][kh][kw][8], zero-padded. */
#define LS_LANES_OC 8
/* Channels whose products are added up at a time; sums over more are sums of those sums. */
#define LS_LANES_DEPTH 64
/* Weights of a dense layer: [ceil(out/16)][in][16], zero-padded. */
#define LS_LANES_OUT 16

/* A convolution of one group. Its input has its columns already padded (ph is done by leaving
 * rows out, pw by a copy with zero columns), and of its output only those rows and columns exist
 * that the fused pool reads. */
typedef struct ls_lanes_conv {
    int ic, ih, iw; /* input; iw includes the padding */
    int oc, oh, ow; /* output before pooling, the live part */
    int kh, kw, sh, sw, ph, dh, dw;
    int x_w, pw; /* columns of x and dx, and the padding left of them */
    int relu;
    int pool_h, pool_w; /* the window of the fused average pool, 1 × 1: none */
    int y_h, y_w;       /* output after pooling: oh / pool_h, ow / pool_w */
} ls_lanes_conv;

/* Where a gradient of a convolution's output before pooling lies; steps in floats. */
typedef struct ls_lanes_grad {
    const float *d;
    ptrdiff_t group, channel, row; /* columns are 16 apart */
} ls_lanes_grad;

/* A plane of sixteen images of bytes, from byte `first` of each on. Lanes from `rows` on become zeros; their images
 * are read all the same. */
typedef struct ls_lanes_images {
    const uint8_t *image[16];
    int rows;
    size_t first, pixels;
    float mean, std;
} ls_lanes_images;

typedef struct ls_lanes_pool {
    int c, ih, iw, oh, ow;
    ls_pool2d p;
} ls_lanes_pool;

/* A depthwise convolution of one channel, whose kernel has at most so many elements. */
#define LS_LANES_DEPTH_TAPS 64
typedef struct ls_lanes_depth {
    int ih, iw, oh, ow;
    ls_conv2d k; /* filled */
} ls_lanes_depth;

/* Each call computes one channel of one group. `b` is one number, or NULL. */
typedef struct ls_lanes_depth_kernels {
    void (*forward)(const ls_lanes_depth *d, const float *x, const float *w, const float *b,
                    float *y);
    void (*data)(const ls_lanes_depth *d, const float *dy, const float *w, float *dx);
    /* gw[kh][kw] ← or, with `add`, += the gradient of its weights, of `groups` groups that lie so
     * many floats apart. */
    void (*weights)(const ls_lanes_depth *d, const float *x, const float *dy, ptrdiff_t x_group,
                    ptrdiff_t dy_group, int groups, float *gw, int add);
} ls_lanes_depth_kernels;

/* Few rows (few.h), whose numbers lie as everywhere. Sixteen of them are brought into lanes: lane l from index[l] on,
 * [rows][columns]. */
typedef struct ls_few_pick {
    const int32_t *index;
    int side_by_side; /* index[l] = index[0] + l */
    int rows, columns;
    ptrdiff_t from_row, to_row; /* floats from one row to the next; columns are 1 and 16 apart */
} ls_few_pick;

/* A dense layer of `rows` rows; weights lie as for lanes, y has room for whole sixteens of outputs. */
typedef struct ls_few_dense {
    int in, rows;
    int from, to;        /* sixteens of outputs that a call computes */
    size_t x_row, y_row; /* floats from one row to the next */
    const float *x, *w;
    const float *b; /* or NULL */
    float *y;
    int relu;
} ls_few_dense;

/* Sums of one channel of a depthwise convolution, of `n` sixteens of pixels that lie side by side in x or begin where
 * `index` says: over `rows` rows of `columns` taps each. */
typedef struct ls_few_depth {
    int n, rows, columns;
    ptrdiff_t row, column; /* floats of x from one tap to the next */
    const float *x, *w;
    float init;
    const int32_t *index; /* [n][16], or NULL */
    float *y;             /* aligned */
} ls_few_depth;

typedef struct ls_few_kernels {
    void (*pick)(const ls_few_pick *p, const float *from, float *to);
    /* to[pixel][16] ← up to sixteen channels, `plane` floats apart, zeros beyond; and back. */
    void (*turn)(const float *from, size_t plane, int channels, size_t pixels, float *to);
    void (*turn_back)(float *to, size_t plane, int channels, size_t pixels, const float *from);
    void (*dense)(const ls_few_dense *d);
    void (*depth)(const ls_few_depth *d);
} ls_few_kernels;

typedef struct ls_lanes_dense {
    int in, out, groups;
    int from,
        to; /* sixteens of outputs (forward, weights) or of inputs (data) that a call computes */
} ls_lanes_dense;

/* The last two have no gradient. */
typedef enum ls_lanes_curve {
    LS_LANES_RELU,
    LS_LANES_LEAKY,
    LS_LANES_SIGMOID,
    LS_LANES_TANH,
    LS_LANES_GELU,
    LS_LANES_SILU,
    LS_LANES_SLOPES,
    LS_LANES_EXP = LS_LANES_SLOPES,
    LS_LANES_LOG,
    LS_LANES_CURVES
} ls_lanes_curve;

/* y = scale·(x − mean) + shift, of one channel. */
typedef struct ls_lanes_norm {
    float mean, scale, shift;
} ls_lanes_norm;

/* What lies behind a normalisation: dy counts where relu's output is above zero. */
typedef enum ls_lanes_mask {
    LS_LANES_MASK_NONE, /* no relu */
    LS_LANES_MASK_X,    /* relu directly: the sign is computed again from x */
    LS_LANES_MASK_Y     /* relu behind an addition: the sign is y's */
} ls_lanes_mask;

/* A pass of its gradient over n sixteens, of which the lanes below `rows` are rows; g is dy where the mask
 * lets it through, else 0. */
typedef struct ls_lanes_norm_pass {
    size_t n;
    int rows;
    ls_lanes_mask mask;
    ls_lanes_norm norm;
    const float *x, *y, *dy;
    float *dx, *dx2;
    float a, b, c;
} ls_lanes_norm_pass;

typedef struct ls_lanes_kernels {
    const char *name; /* "avx512", "avx2", "generic" */
    int mask_bytes;   /* of the signs of sixteen lanes */

    /* y ← pool(relu(w * x + b)); b may be NULL. `mask` receives the signs in front of relu,
     * [oc][oh][ow], unless it is NULL. `tile` holds ls_lanes_tile_floats. */
    void (*conv_forward)(const ls_lanes_conv *c, const float *x, const float *w, const float *b,
                         float *y, uint8_t *mask, float *tile);

    /* d ← the gradient in front of pool and relu, [y1 − y0][n][ow], of rows y0 … y1 − 1 of
     * channels first … first + n − 1, out of dy and the mask of one group. */
    void (*conv_unpool)(const ls_lanes_conv *c, const float *dy, const uint8_t *mask, int first,
                        int n, int y0, int y1, float *d);

    /* Gradients of weights, still one sum per lane: sums[i − i0][kh][kw][8][16] (+)= those of `n`
     * (up to eight) channels and inputs i0 … i1 − 1, over rows y0 … y1 − 1 of `groups` groups.
     * g.d is row y0 of the first channel. See ls_lanes_conv_inputs for 1 × 1 kernels. */
    void (*conv_correlate)(const ls_lanes_conv *c, const float *x, ls_lanes_grad g, int groups,
                           int n, int i0, int i1, int y0, int y1, float *sums, int add);
    /* The same for the bias: sums[8][16]. */
    void (*conv_bias)(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int n, int y0, int y1,
                      float *sums, int add);
    /* to[i] (+)= the sum of the sixteen lanes of from[i], i < n; `from` has room for n rounded up
     * to a multiple of sixteen. */
    void (*sum_lanes)(float *to, const float *from, int n, int add);

    /* The same gradient where there are many channels, out of panels of d (kernels/panel.inc): those of
     * all channels of rows y0 … y1 − 1, [ceil(oc/16)][groups][y1 − y0][ow][lane][16]. To gw itself. */
    void (*conv_panels)(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int y0, int y1,
                        float *panels);
    void (*conv_weights)(const ls_lanes_conv *c, const float *x, const float *panels, int groups,
                         int y0, int y1, float *gw, int add);

    /* dx of one group; `w` as it lies or packed (ls_lanes_packs). */
    void (*conv_data)(const ls_lanes_conv *c, ls_lanes_grad g, const float *w, float *dx);

    /* y ← w · x + b with an optional relu. */
    void (*dense_forward)(const ls_lanes_dense *l, const float *x, const float *w, const float *b,
                          int relu, float *y);
    /* dz ← dy, where y > 0 unless y is NULL, [group][out rounded up to 16][16], and transposed dzt
     * [out / 16][group][row][16]. Both zero where they are padding. */
    void (*dense_grad)(const ls_lanes_dense *l, const float *dy, const float *y, float *dz,
                       float *dzt);
    void (*dense_weights)(const ls_lanes_dense *l, const float *x, const float *dzt, float *gw,
                          float *gb, int add);
    void (*dense_data)(const ls_lanes_dense *l, const float *dz, const float *w, float *dx);

    /* One group. `which` [c][oh][ow][16] receives where in its window each maximum was found,
     * unless it is NULL; it is not used by averages. */
    void (*pool_forward)(const ls_lanes_pool *p, const float *x, float *y, uint16_t *which);
    void (*pool_backward)(const ls_lanes_pool *p, const float *dy, const uint16_t *which,
                          float *dx);

    /* Curves over n sixteens; slope: of a leaky relu. Gradients are functions
     * of `v`: of y, but gelu's and silu's of x. */
    void (*curve[LS_LANES_CURVES])(size_t n, float slope, const float *x, float *y);
    void (*slope[LS_LANES_SLOPES])(size_t n, float slope, const float *v, const float *dy,
                                   float *dx);

    /* y ← a + b, then relu if asked for. dx and dx2 (may be NULL) ← dy, or with `y` dy where y > 0
     * and 0 elsewhere. n sixteens. */
    void (*add)(size_t n, const float *a, const float *b, int relu, float *y);
    void (*add_dx)(size_t n, const float *y, const float *dy, float *dx, float *dx2);

    /* Batch norm, over n sixteens of one channel. sum[0 … 15] ← Σ x, or Σ (x − mean)²: of each lane,
     * whether it is a row or not. Eight numbers at most are added up in float. */
    void (*norm_sum)(size_t n, const float *x, double *sum);
    void (*norm_squares)(size_t n, const float *x, float mean, double *sum);
    /* y ← the normalised x, plus x2 unless it is NULL, then relu if asked for */
    void (*normalise)(size_t n, const ls_lanes_norm *norm, const float *x, const float *x2,
                      float *y, int relu);
    /* sum[0 … 15] ← Σ g, sum[16 … 31] ← Σ g·(x − mean), dx2 ← g unless it is NULL */
    void (*norm_sums)(const ls_lanes_norm_pass *pass, double *sum);
    /* dx ← a·g + b·(x − mean) + c, 0 beyond the rows */
    void (*norm_dx)(const ls_lanes_norm_pass *pass);

    /* Layer norm of a group of n sixteens. stats[2][16] ← mean and 1/√(variance + epsilon) of each lane; dx is 0
     * where all of the lane's dy is. */
    void (*layer_forward)(size_t n, float epsilon, const float *x, const float *w, const float *b,
                          float *y, float *stats);
    void (*layer_dx)(size_t n, const float *x, const float *dy, const float *w, const float *stats,
                     float *dx);
    /* gw[i], gb[i] (+)= the sums over lanes and groups, which are `step` floats apart, of i < n ≤ 16. */
    void (*layer_weights)(int n, int groups, size_t step, const float *x, const float *dy,
                          const float *stats, float *gw, float *gb, int add);

    /* Softmax and cross-entropy of one group of `rows` ≤ 16 rows: dx, unless it is NULL, ← softmax(x)
     * − target, 0 in unused lanes; loss[0 … 15] ← each row's loss, correct[…] ← 1 where it is right,
     * else 0. The target is (1 − smoothing) for the label plus smoothing / classes for each. */
    void (*loss)(int classes, int rows, float smoothing, const float *x, const int32_t *labels,
                 float *dx, float *loss, float *correct);

    /* to[pixel][16] ← ((byte / 255) − mean) / std, correctly rounded at each step but for some numbers std. NULL: a table
     * of the 256 results is quicker. */
    void (*gather)(const ls_lanes_images *b, float *to);

    const ls_lanes_depth_kernels *depth;
    const ls_few_kernels *few;
    const ls_wino_kernels *wino;
} ls_lanes_kernels;

/* Whether the weights of an image's convolution are more than its pixels, or x stays in the caches anyhow: then
 * the kernels go through all pixels for each few weights, else through all weights for each few pixels. */
static inline int ls_lanes_few_pixels(const ls_lanes_conv *c)
{
    size_t weights = (size_t)c->ic * (size_t)c->oc * (size_t)c->kh * (size_t)c->kw;
    size_t x = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * 16;
    return x <= (1 << 16) || weights > x + (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * 16;
}

/* Whether conv_data's weights are packed, [ceil(ic/4)][kh][kw][oc][4]: where the last eight outputs are not
 * whole, and sums over them would be in two parts. */
static inline int ls_lanes_packs(const ls_lanes_conv *c)
{
    return c->oc % LS_LANES_OC != 0;
}

/* Floats of conv_forward's `tile`: sums of eight channels, or of all, of a few pixels or of all, where they are
 * made in parts. */
static inline size_t ls_lanes_tile_floats(const ls_lanes_conv *c)
{
    size_t channels = c->ic > LS_LANES_DEPTH ? (size_t)(c->oc + 7) / 8 * 8 : 8;
    size_t pixels =
        c->ic > LS_LANES_DEPTH && ls_lanes_few_pixels(c) ? (size_t)c->oh * (size_t)c->ow : 6;
    return channels * (pixels > 6 ? pixels : 6) * 16;
}

/* [*from, *to): the taps k with 0 <= top + k*apart < size. */
static inline void ls_lanes_taps_inside(int top, int taps, int apart, int size, int *from, int *to)
{
    *from = top < 0 ? (apart - 1 - top) / apart : 0;
    *to = taps;
    if (top + (taps - 1) * apart >= size)
        *to = size > top ? (size - top + apart - 1) / apart : 0;
    *to = *to < *from ? *from : *to;
}

/* [*from, *to): the results r of [y0, y1) with 0 <= r*stride - up < size. */
static inline void ls_lanes_results_inside(int up, int stride, int size, int y0, int y1, int *from,
                                           int *to)
{
    int first = up > 0 ? (up + stride - 1) / stride : 0;
    int end = size + up > 0 ? (size + up + stride - 1) / stride : 0;
    *from = first > y0 ? first : y0;
    *to = end < y1 ? end : y1;
    *to = *to < *from ? *from : *to;
}

/* A kernel of one element has one tap only; its gradient is computed as that of a kernel over one
 * input that has the input channels as its columns, which lies the same way. How many inputs and
 * columns conv_correlate takes a convolution to have: */
static inline int ls_lanes_conv_inputs(const ls_lanes_conv *c)
{
    return c->kh * c->kw == 1 ? 1 : c->ic;
}

static inline int ls_lanes_conv_columns(const ls_lanes_conv *c)
{
    return c->kh * c->kw == 1 ? c->ic : c->kw;
}

/* ---- the instruction sets that they are compiled for, and which of them this CPU has ------------ */

/* The i-th best that this CPU runs; NULL behind the last. Any thread. */
const ls_lanes_kernels *ls_cpu_isa_at(int i);

extern const ls_lanes_kernels ls_cpu_isa_avx512, ls_cpu_isa_avx2, ls_cpu_isa_generic;

#endif
