/* The vector kernels of the CPU back end: one table of functions per instruction set.
 *
 * Activations are stored as [group][c][h][w][16] (lanes_op.h); a group is sixteen rows. Lanes
 * beyond the last row hold finite numbers in activations and zeros in gradients, so that a sum over
 * all lanes is a sum over the rows. All pointers are aligned to 64 bytes. No kernel fails,
 * allocates, or keeps state. Sums use fused multiply-adds where the instruction set has them
 * (vec_fma): the same operations with every compiler.
 *
 * In the comments below "←" means "is assigned"; "(+)=" means that the result is assigned or, with
 * `add`, added. */
#ifndef CPU_LANES_KERNELS_H
#define CPU_LANES_KERNELS_H

#include "cpu/wino.h"

#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

/* number of groups of a block, for which gradients of parameters are summed before they are added
 * to those of earlier blocks: a constant, so that the order of the sum is always the same */
#define LS_LANES_BLOCK_GROUPS 2

/* Returns the number of groups of the block that starts at group `first`. */
static inline int ls_lanes_block(int groups, int first)
{
    int left = groups - first;
    return left < LS_LANES_BLOCK_GROUPS ? left : LS_LANES_BLOCK_GROUPS;
}

/* number of output channels of a block of convolution weights, which are stored as
 * [ceil(oc/8)][ic][kh][kw][8], zero-padded */
#define LS_LANES_OC 8
/* largest number of channels over which products are added to one sum; the sums of more channels
 * are computed in parts of this size, which are then added */
#define LS_LANES_DEPTH 64
/* number of outputs of a block of dense weights, which are stored as [ceil(out/16)][in][16],
 * zero-padded */
#define LS_LANES_OUT 16

/* Geometry of a convolution of one group of rows. The input's columns are already padded. Padding
 * above and below (ph) is done by leaving rows of the kernel out of the sum; padding left and right
 * (pw) is done by a copy with columns of zeros. The output has only those rows and columns that the
 * fused pool reads. */
typedef struct ls_lanes_conv {
    int ic, ih, iw; /* input channels, height, width; iw includes the padding */
    int oc, oh, ow; /* output channels, and the used height and width before pooling */
    int kh, kw, sh, sw, ph, dh, dw;
    int x_w, pw; /* columns of x and dx; columns of padding left of them */
    int relu;
    int pool_h, pool_w; /* window of the fused average pool; 1 × 1: no pool */
    int y_h, y_w;       /* size after pooling: oh / pool_h, ow / pool_w */
} ls_lanes_conv;

/* Location of d, the gradient of a convolution's result before the fused relu and pool. */
typedef struct ls_lanes_grad {
    const float *d;
    ptrdiff_t group, channel, row; /* distances in floats; columns are 16 floats apart */
} ls_lanes_grad;

/* One plane of sixteen images of bytes, from byte `first` of each image on. Lanes `rows` … 15
 * become zeros; their image pointers must be readable all the same. */
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

/* largest number of elements in the kernel of a depthwise convolution */
#define LS_LANES_DEPTH_TAPS 64
/* Geometry of a depthwise convolution of one channel. */
typedef struct ls_lanes_depth {
    int ih, iw, oh, ow;
    ls_conv2d k; /* filled in (ls_conv2d_filled) */
} ls_lanes_depth;

/* Depthwise convolution. Each call computes one channel; forward and data compute one group. `b`
 * points to one number or is NULL. */
typedef struct ls_lanes_depth_kernels {
    void (*forward)(const ls_lanes_depth *d, const float *x, const float *w, const float *b,
                    float *y);
    void (*data)(const ls_lanes_depth *d, const float *dy, const float *w, float *dx);
    /* gw[kh][kw] (+)= the gradient of the channel's weights, summed over `groups` groups that are
     * x_group and dy_group floats apart. */
    void (*weights)(const ls_lanes_depth *d, const float *x, const float *dy, ptrdiff_t x_group,
                    ptrdiff_t dy_group, int groups, float *gw, int add);
} ls_lanes_depth_kernels;

/* Picks sixteen patches of tensors of few rows (few.h) into lanes: lane l receives the patch
 * [rows][columns] that begins at from[index[l]]. */
typedef struct ls_few_pick {
    const int32_t *index;
    int side_by_side; /* non-zero: index[l] = index[0] + l */
    int rows, columns;
    /* floats from one row to the next; columns are 1 float apart in `from`, 16 in `to` */
    ptrdiff_t from_row, to_row;
} ls_few_pick;

/* A dense layer of `rows` rows of the layout for few rows. Weights are stored as for lanes. y has
 * room for whole blocks of sixteen outputs. */
typedef struct ls_few_dense {
    int in, rows;
    /* first block of sixteen outputs that the call computes, and the one after the last */
    int from, to;
    size_t x_row, y_row; /* floats from one row to the next */
    const float *x, *w;
    const float *b; /* may be NULL */
    float *y;
    int relu;
} ls_few_dense;

/* Sums of one channel of a depthwise convolution for `n` vectors of sixteen pixels, each over
 * `rows` rows of `columns` taps. The pixels of a vector are adjacent in x, or begin where `index`
 * says. */
typedef struct ls_few_depth {
    int n, rows, columns;
    ptrdiff_t row, column; /* floats of x from one tap to the next, down and across */
    const float *x, *w;
    float init;
    const int32_t *index; /* [n][16], or NULL */
    float *y;             /* aligned to 64 bytes */
} ls_few_depth;

typedef struct ls_few_kernels {
    void (*pick)(const ls_few_pick *p, const float *from, float *to);
    /* to[pixel][16] ← up to sixteen channels that are `plane` floats apart, zeros in the other
     * lanes. */
    void (*turn)(const float *from, size_t plane, int channels, size_t pixels, float *to);
    /* The inverse of `turn`. */
    void (*turn_back)(float *to, size_t plane, int channels, size_t pixels, const float *from);
    void (*dense)(const ls_few_dense *d);
    void (*depth)(const ls_few_depth *d);
} ls_few_kernels;

typedef struct ls_lanes_dense {
    int in, out, groups;
    /* first block of sixteen that the call computes, and the one after the last: blocks of outputs
     * (forward, weights) or of inputs (data) */
    int from, to;
} ls_lanes_dense;

/* Element-wise functions. EXP and LOG have no gradient. */
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

/* y = scale·(x − mean) + shift, for one channel */
typedef struct ls_lanes_norm {
    float mean, scale, shift;
} ls_lanes_norm;

/* The relu after a normalisation, if any. Its backward pass lets dy through only where its output
 * is above zero. The values say from what the sign is computed. */
typedef enum ls_lanes_mask {
    LS_LANES_MASK_NONE, /* no relu */
    LS_LANES_MASK_X,    /* the relu directly follows: the sign is computed again from x */
    LS_LANES_MASK_Y     /* the relu follows an addition: the sign is that of y */
} ls_lanes_mask;

/* One pass of a normalisation's gradient over n vectors of sixteen, of which the lanes below `rows`
 * hold rows. In the comments of the kernels g is the gradient of the normalised x: dy, or after a
 * relu dy where the relu's output was above zero and 0 elsewhere. */
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
    const char *name; /* "avx512", "avx2" or "generic" */
    int mask_bytes;   /* bytes that the signs of sixteen lanes take */

    /* y ← pool(relu(w * x + b)) of one group; b may be NULL. `mask` receives the signs before the
     * relu, [oc][oh][ow], unless it is NULL. `tile` is memory of ls_lanes_tile_floats() floats. */
    void (*conv_forward)(const ls_lanes_conv *c, const float *x, const float *w, const float *b,
                         float *y, uint8_t *mask, float *tile);

    /* d ← the gradient before pool and relu, [y1 − y0][n][ow], for rows y0 … y1 − 1 of channels
     * first … first + n − 1, computed from dy and the mask of one group. */
    void (*conv_unpool)(const ls_lanes_conv *c, const float *dy, const uint8_t *mask, int first,
                        int n, int y0, int y1, float *d);

    /* sums[i − i0][kh][kw][8][16] (+)= the gradients of weights, one sum per lane, of `n` ≤ 8
     * output channels and inputs i0 … i1 − 1, over rows y0 … y1 − 1 of `groups` groups. g.d points
     * to row y0 of the first channel. For 1 × 1 kernels see ls_lanes_conv_inputs. */
    void (*conv_correlate)(const ls_lanes_conv *c, const float *x, ls_lanes_grad g, int groups,
                           int n, int i0, int i1, int y0, int y1, float *sums, int add);
    /* sums[8][16] (+)= the same for the bias. */
    void (*conv_bias)(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int n, int y0, int y1,
                      float *sums, int add);
    /* to[i] (+)= the sum of the sixteen lanes of from[i], for i < n. `from` has room for n rounded
     * up to a multiple of sixteen. */
    void (*sum_lanes)(float *to, const float *from, int n, int add);

    /* panels ← d of all channels of rows y0 … y1 − 1, transposed:
     * [ceil(oc/16)][groups][y1 − y0][ow][lane][16] (kernels/panel.inc). With many channels the
     * gradient of the weights is a matrix product of such panels. */
    void (*conv_panels)(const ls_lanes_conv *c, ls_lanes_grad g, int groups, int y0, int y1,
                        float *panels);
    /* gw (+)= the gradient of the weights, from x and panels that conv_panels has made. */
    void (*conv_weights)(const ls_lanes_conv *c, const float *x, const float *panels, int groups,
                         int y0, int y1, float *gw, int add);

    /* dx of one group ← the gradient of x. `w` is stored as usual or packed (ls_lanes_packs). */
    void (*conv_data)(const ls_lanes_conv *c, ls_lanes_grad g, const float *w, float *dx);

    /* y ← w · x + b, then a relu if `relu` is non-zero; b may be NULL. */
    void (*dense_forward)(const ls_lanes_dense *l, const float *x, const float *w, const float *b,
                          int relu, float *y);
    /* dz ← dy, or with `y` dy where y > 0 and 0 elsewhere: [group][out rounded up to 16][16]. dzt ←
     * the same transposed: [ceil(out/16)][group][row][16]. Padding is zero in both. */
    void (*dense_grad)(const ls_lanes_dense *l, const float *dy, const float *y, float *dz,
                       float *dzt);
    /* gw, gb (+)= the gradients of weights and bias; gb may be NULL. */
    void (*dense_weights)(const ls_lanes_dense *l, const float *x, const float *dzt, float *gw,
                          float *gb, int add);
    /* dx ← the gradient of x. */
    void (*dense_data)(const ls_lanes_dense *l, const float *dz, const float *w, float *dx);

    /* Pooling of one group. `which` [c][oh][ow][16] receives the position of each maximum in its
     * window, unless it is NULL. Averages do not use it. */
    void (*pool_forward)(const ls_lanes_pool *p, const float *x, float *y, uint16_t *which);
    void (*pool_backward)(const ls_lanes_pool *p, const float *dy, const uint16_t *which,
                          float *dx);

    /* y ← the function of x, over n vectors of sixteen. `slope` is that of a leaky relu. */
    void (*curve[LS_LANES_CURVES])(size_t n, float slope, const float *x, float *y);
    /* dx ← dy times the derivative, computed from v: v is x for gelu and silu, y for the others. */
    void (*slope[LS_LANES_SLOPES])(size_t n, float slope, const float *v, const float *dy,
                                   float *dx);

    /* y ← a + b, then a relu if `relu` is non-zero, over n vectors of sixteen. */
    void (*add)(size_t n, const float *a, const float *b, int relu, float *y);
    /* dx and dx2 ← dy, or with `y` dy where y > 0 and 0 elsewhere. dx2 may be NULL. */
    void (*add_dx)(size_t n, const float *y, const float *dy, float *dx, float *dx2);

    /* Batch norm over n vectors of sixteen of one channel. sum[0 … 15] ← Σ x of each lane, whether
     * it holds a row or not. At most eight numbers are added up in float before their sum is added
     * in double. */
    void (*norm_sum)(size_t n, const float *x, double *sum);
    /* sum[0 … 15] ← Σ (x − mean)² in the same way. */
    void (*norm_squares)(size_t n, const float *x, float mean, double *sum);
    /* y ← the normalised x, plus x2 unless it is NULL, then a relu if `relu` is non-zero. */
    void (*normalise)(size_t n, const ls_lanes_norm *norm, const float *x, const float *x2,
                      float *y, int relu);
    /* sum[0 … 15] ← Σ g, sum[16 … 31] ← Σ g·(x − mean), dx2 ← g unless dx2 is NULL. */
    void (*norm_sums)(const ls_lanes_norm_pass *pass, double *sum);
    /* dx ← a·g + b·(x − mean) + c, and 0 in lanes that hold no row. */
    void (*norm_dx)(const ls_lanes_norm_pass *pass);

    /* Layer norm of one group of n vectors of sixteen. stats[2][16] ← mean and 1/√(variance +
     * epsilon) of each lane. */
    void (*layer_forward)(size_t n, float epsilon, const float *x, const float *w, const float *b,
                          float *y, float *stats);
    /* dx ← the gradient of x; it is 0 in a lane whose dy are all 0. */
    void (*layer_dx)(size_t n, const float *x, const float *dy, const float *w, const float *stats,
                     float *dx);
    /* gw[i], gb[i] (+)= the sums over lanes and over `groups` groups that are `step` floats apart,
     * for i < n ≤ 16. */
    void (*layer_weights)(int n, int groups, size_t step, const float *x, const float *dy,
                          const float *stats, float *gw, float *gb, int add);

    /* Softmax and cross-entropy of one group of `rows` ≤ 16 rows. dx, unless it is NULL, ←
     * softmax(x) − target, 0 in lanes that hold no row; loss[0 … 15] ← each row's loss;
     * correct[0 … 15] ← 1 where the prediction is right, else 0. The target is (1 − smoothing) for
     * the label plus smoothing / classes for each class. */
    void (*loss)(int classes, int rows, float smoothing, const float *x, const int32_t *labels,
                 float *dx, float *loss, float *correct);

    /* to[pixel][16] ← ((byte / 255) − mean) / std. Each step is correctly rounded, except for some
     * values of std. NULL if a table of the 256 results is faster. */
    void (*gather)(const ls_lanes_images *b, float *to);

    const ls_lanes_depth_kernels *depth;
    const ls_few_kernels *few;
    const ls_wino_kernels *wino;
} ls_lanes_kernels;

/* Returns true if a convolution has more weights than its input and output have floats, or if x is
 * so small that it stays in the caches. The outer loops of the kernels are then over the weights, a
 * few at a time, and all pixels are computed with these; else the outer loops are over the pixels.
 */
static inline int ls_lanes_few_pixels(const ls_lanes_conv *c)
{
    size_t weights = (size_t)c->ic * (size_t)c->oc * (size_t)c->kh * (size_t)c->kw;
    size_t x = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * 16;
    return x <= (1 << 16) || weights > x + (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * 16;
}

/* Returns true if conv_data reads packed weights, [ceil(ic/4)][kh][kw][oc][4]. It does if the last
 * block of eight output channels is not full: with the usual layout the loop over the output
 * channels, which is the sum, would have to be in two parts. */
static inline int ls_lanes_packs(const ls_lanes_conv *c)
{
    return c->oc % LS_LANES_OC != 0;
}

/* Returns the number of floats of conv_forward's memory `tile`, in which sums are kept. Usually
 * these are the sums of eight channels for a few pixels. If sums are computed in parts
 * (LS_LANES_DEPTH), they are those of all channels, and, if the outer loops are over the weights,
 * of all pixels. */
static inline size_t ls_lanes_tile_floats(const ls_lanes_conv *c)
{
    size_t channels = c->ic > LS_LANES_DEPTH ? (size_t)(c->oc + 7) / 8 * 8 : 8;
    size_t pixels =
        c->ic > LS_LANES_DEPTH && ls_lanes_few_pixels(c) ? (size_t)c->oh * (size_t)c->ow : 6;
    return channels * (pixels > 6 ? pixels : 6) * 16;
}

/* Computes [*from, *to): the taps k with 0 <= top + k*apart < size. */
static inline void ls_lanes_taps_inside(int top, int taps, int apart, int size, int *from, int *to)
{
    *from = top < 0 ? (apart - 1 - top) / apart : 0;
    *to = taps;
    if (top + (taps - 1) * apart >= size)
        *to = size > top ? (size - top + apart - 1) / apart : 0;
    *to = *to < *from ? *from : *to;
}

/* Computes [*from, *to): the results r in [y0, y1) with 0 <= r*stride - up < size. */
static inline void ls_lanes_results_inside(int up, int stride, int size, int y0, int y1, int *from,
                                           int *to)
{
    int first = up > 0 ? (up + stride - 1) / stride : 0;
    int end = size + up > 0 ? (size + up + stride - 1) / stride : 0;
    *from = first > y0 ? first : y0;
    *to = end < y1 ? end : y1;
    *to = *to < *from ? *from : *to;
}

/* A 1 × 1 kernel has only one tap. conv_correlate computes its gradient as that of a kernel over
 * one input whose columns are the input channels, which has the same layout. This is the number of
 * inputs that conv_correlate takes the convolution to have. */
static inline int ls_lanes_conv_inputs(const ls_lanes_conv *c)
{
    return c->kh * c->kw == 1 ? 1 : c->ic;
}

/* Returns the number of columns that conv_correlate takes the kernel to have. */
static inline int ls_lanes_conv_columns(const ls_lanes_conv *c)
{
    return c->kh * c->kw == 1 ? c->ic : c->kw;
}

/* ---- instruction sets that the kernels are compiled for -------------------------------------- */

/* Returns the kernels of the i-th best instruction set that this CPU runs; NULL after the last.
 * Thread: any. */
const ls_lanes_kernels *ls_cpu_isa_at(int i);

extern const ls_lanes_kernels ls_cpu_isa_avx512, ls_cpu_isa_avx2, ls_cpu_isa_generic;

#endif
