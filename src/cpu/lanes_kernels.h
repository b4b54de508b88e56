/* SPDX-License-Identifier: MIT */
/* The vector kernels of the CPU back end: one table of functions per instruction set.
 *
 * lanes_op.h explains the words. Activations are stored as [packet][c][h][w][16]. Lanes beyond the
 * last row hold finite numbers in activations and zeros in gradients. Therefore a sum of gradients
 * over all lanes is a sum over the rows. All pointers are aligned to 64 bytes. No kernel fails,
 * allocates, or keeps state. Sums of products use vec_fma (kernels/vec.inc), which rounds once.
 * Therefore they have the same bits on every CPU and with every compiler.
 *
 * In the comments below "a ← b" means that b is computed and stored to a. "a (+)= b" means that b
 * is stored to a, or added to a if `add` is non-zero. */
#ifndef CPU_LANES_KERNELS_H
#define CPU_LANES_KERNELS_H

#include "cpu/few_kernels.h"
#include "cpu/wino.h"

#include <lockstep/sys/plugin.h>
#include <stddef.h>
#include <stdint.h>

/* Value of `add` of conv_correlate */
#define LS_LANES_RESUME 2

/* Number of packets of a block. Gradients of parameters are summed over a block, and then added to
 * the sum of the earlier blocks. The number is a constant, so that the order of the sum is always
 * the same. */
#define LS_LANES_BLOCK_PACKETS 2

/* Returns the number of packets of the block that starts at packet `first`. */
static inline int ls_lanes_block(int packets, int first)
{
    int left = packets - first;
    return left < LS_LANES_BLOCK_PACKETS ? left : LS_LANES_BLOCK_PACKETS;
}

/* number of output channels of an eight; weights of convolutions are stored as
 * [ceil(oc/8)][ic][kh][kw][8], zero-padded */
#define LS_LANES_OC 8
/* Largest number of channels over which products are added to one sum. A sum over more channels is
 * computed in parts of this size, and the parts are then added. */
#define LS_LANES_DEPTH 64
/* number of outputs of a *sixteen*; weights of dense layers are stored as [ceil(out/16)][in][16],
 * zero-padded */
#define LS_LANES_OUT 16

/* Geometry of a convolution of one packet. The kernels leave filter rows over the padding above and
 * below an image (ph) out of the sums. For the padding left and right (pw), the caller copies x
 * with columns of zeros, but not for conv_forward if `patches` is set. The output has only what the
 * fused pool reads. */
typedef struct ls_lanes_conv {
    int ic, ih, iw; /* input channels, height, width; iw includes the padding */
    int oc, oh, ow; /* output channels, and the used height and width before pooling */
    /* height and width of the filter, strides, padding above and below, dilations */
    int kh, kw, sh, sw, ph, dh, dw;
    int x_w, pw; /* columns of x and dx without padding; columns of padding on the left */
    int relu;
    int pool_h, pool_w; /* window of the fused average pool; 1 × 1: no pool */
    int y_h, y_w;       /* size after pooling: oh / pool_h, ow / pool_w */
    int patches;        /* ls_lanes_patches of the whole convolution; only conv_forward uses it */
} ls_lanes_conv;

/* Location of d, the gradient of a convolution's result before the fused relu and pool. */
typedef struct ls_lanes_grad {
    const float *d;
    ptrdiff_t packet, channel, row; /* steps; the step of a column is 16 */
} ls_lanes_grad;

/* One channel of up to sixteen images of bytes; the channel begins at byte `first` of each image.
 * If there are fewer than sixteen images (`rows`), the other lanes of the result are zeros, and the
 * image pointers of these lanes must be readable too. */
typedef struct ls_lanes_images {
    const uint8_t *image[16];
    int rows;
    size_t first, pixels;
    float mean, std;
} ls_lanes_images;

/* `values` adjacent floats of each of up to sixteen rows. Lanes without a row become zeros. */
typedef struct ls_lanes_rows {
    const float *row[16]; /* need not be aligned; [rows] are read */
    int rows;
    size_t values;
    float mean, std;
} ls_lanes_rows;

typedef struct ls_lanes_pool {
    int c, ih, iw, oh, ow; /* channels; height and width of x (ih, iw) and of y (oh, ow) */
    ls_pool2d p;
} ls_lanes_pool;

/* largest number of taps in the filter of a depthwise convolution, in which each channel is
 * convolved with a filter of its own */
#define LS_LANES_DEPTH_TAPS 64
/* Geometry of a depthwise convolution of one channel. */
typedef struct ls_lanes_depth {
    int ih, iw, oh, ow; /* height and width of x (ih, iw) and of y (oh, ow) */
    ls_conv2d k;        /* filled in (ls_conv2d_filled) */
} ls_lanes_depth;

/* Depthwise convolution. Each call computes one channel. `forward` computes y of one packet, `data`
 * computes dx of one packet. `b` points to the channel's bias or is NULL. */
typedef struct ls_lanes_depth_kernels {
    void (*forward)(const ls_lanes_depth *d, const float *x, const float *w, const float *b,
                    float *y);
    void (*data)(const ls_lanes_depth *d, const float *dy, const float *w, float *dx);
    /* y of one row and sixteen channels, which lie side by side (few.h), and then the operations of
     * `finish`. w: [kh][kw][16]; b: [16]. */
    void (*few)(const ls_lanes_depth *d, const float *x, const float *w, const float *b,
                const ls_few_finish *finish, float *y);
    /* gw[kh][kw] (+)= the gradient of the channel's weights, summed over `packets` packets.
     * x_packet and dy_packet: steps from one packet to the next. */
    void (*weights)(const ls_lanes_depth *d, const float *x, const float *dy, ptrdiff_t x_packet,
                    ptrdiff_t dy_packet, int packets, float *gw, int add);
} ls_lanes_depth_kernels;

typedef struct ls_lanes_dense {
    int in, out, packets;
    /* The call computes the sixteens from … to − 1: sixteens of outputs (dense_forward,
     * dense_weights) or of inputs (dense_data). */
    int from, to;
} ls_lanes_dense;

/* Curves: element-wise functions. Those below LS_LANES_SLOPES have a gradient. */
typedef enum ls_lanes_curve {
    LS_LANES_RELU,
    LS_LANES_LEAKY,
    LS_LANES_SIGMOID,
    LS_LANES_TANH,
    LS_LANES_GELU,
    LS_LANES_SILU,
    LS_LANES_CLAMP,
    LS_LANES_HARD_SIGMOID,
    LS_LANES_HARD_SWISH,
    LS_LANES_GELU_TANH,
    LS_LANES_AFFINE,
    LS_LANES_SLOPES,
    LS_LANES_EXP = LS_LANES_SLOPES,
    LS_LANES_LOG,
    LS_LANES_CURVES
} ls_lanes_curve;

/* Numbers of a curve. The curves that do not use them ignore them. */
typedef struct ls_lanes_shape {
    float slope;       /* leaky relu: slope below zero; hard sigmoid, affine: slope */
    float offset;      /* hard sigmoid, affine */
    float least, most; /* clamp */
} ls_lanes_shape;

/* y = scale·(x − mean) + shift, for one channel */
typedef struct ls_lanes_norm {
    float mean, scale, shift;
} ls_lanes_norm;

/* The relu after a normalisation, if there is one. Backward passes dy on only where the relu's
 * output was above zero. The values say from which tensor this sign is computed. */
typedef enum ls_lanes_mask {
    LS_LANES_MASK_NONE, /* no relu */
    /* the relu directly follows the normalisation: its input is computed again from x */
    LS_LANES_MASK_X,
    LS_LANES_MASK_Y /* the relu follows an addition: its output y is read */
} ls_lanes_mask;

/* One pass of a normalisation's gradient over n vectors, whose lanes below `rows` hold rows. In the
 * comments of the kernels, g is the gradient of the normalised x. Without a relu g is dy; with a
 * relu g is dy where the relu's output was above zero, and 0 elsewhere. */
typedef struct ls_lanes_norm_pass {
    size_t n;
    int rows;
    ls_lanes_mask mask;
    ls_lanes_norm norm;
    const float *x, *y, *dy;
    float *dx, *dx2;
    float a, b, c; /* coefficients of norm_dx */
} ls_lanes_norm_pass;

/* Sums for a digest over vectors (base/digest.h): for number i of a vector, an integer of 32 bits,
 * sum[i] is the sum over all vectors so far, and sums[i] the sum of all values that sum[i] has had.
 * The even numbers of a vector come first, then the odd ones: 0, 2, … 14, 1, 3, … 15. */
typedef struct ls_lanes_digest {
    uint64_t sum[16], sums[16];
} ls_lanes_digest;

typedef struct ls_lanes_kernels {
    const char *name; /* "avx512", "avx2" or "generic" */
    int mask_bytes;   /* bytes of a mask for one vector: the signs of sixteen lanes */

    /* y ← pool(relu(w * x + b)) of one packet, where * is the convolution; b may be NULL. The call
     * computes part `part` of `parts` parts of y (ls_lanes_forward_parts). `mask`, [oc][oh][ow],
     * receives the signs before the relu; it may be NULL. `tile` is working memory of
     * ls_lanes_tile_floats() floats. */
    void (*conv_forward)(const ls_lanes_conv *c, const float *x, const float *w, const float *b,
                         float *y, uint8_t *mask, float *tile, int part, int parts);

    /* d ← the gradient of the convolution's result before relu and pool, [y1 − y0][n][ow], for
     * image rows y0 … y1 − 1 of channels first … first + n − 1 of one packet, computed from dy and
     * the mask. */
    void (*conv_unpool)(const ls_lanes_conv *c, const float *dy, const uint8_t *mask, int first,
                        int n, int y0, int y1, float *d);

    /* sums[i − i0][kh][kw][8][16] (+)= the gradients of the weights of `n` ≤ 8 output channels and
     * of inputs i0 … i1 − 1, as one sum per lane, over image rows y0 … y1 − 1 of `packets` packets.
     * g.d points to image row y0 of the first channel. If `add` is LS_LANES_RESUME, there is one
     * packet, and the sums in memory are continued as if this and the earlier calls were one. For 1
     * × 1 filters see ls_lanes_conv_inputs. */
    void (*conv_correlate)(const ls_lanes_conv *c, const float *x, ls_lanes_grad g, int packets,
                           int n, int i0, int i1, int y0, int y1, float *sums, int add);
    /* sums[8][16] (+)= the gradients of the bias of `n` ≤ 8 output channels, as one sum per lane,
     * over image rows y0 … y1 − 1 of `packets` packets. */
    void (*conv_bias)(const ls_lanes_conv *c, ls_lanes_grad g, int packets, int n, int y0, int y1,
                      float *sums, int add);
    /* to[i] (+)= the sum of the sixteen lanes of from[i], for i < n. `from` has room for n rounded
     * up to a multiple of sixteen. */
    void (*sum_lanes)(float *to, const float *from, int n, int add);

    /* panels ← d of all channels and of image rows y0 … y1 − 1, transposed:
     * [ceil(oc/16)][packets][y1 − y0][ow][lane][16 channels] (kernels/panel.inc). With many
     * channels the gradient of the weights is computed from such panels. */
    void (*conv_panels)(const ls_lanes_conv *c, ls_lanes_grad g, int packets, int y0, int y1,
                        float *panels);
    /* gw (+)= the gradient of the weights of inputs i0 … i1 − 1, from x and panels that conv_panels
     * has made. */
    void (*conv_weights)(const ls_lanes_conv *c, const float *x, const float *panels, int packets,
                         int i0, int i1, int y0, int y1, float *gw, int add);

    /* dx ← the gradient of x of one packet, for inputs i0 … i1 − 1; i0 is a multiple of four. If
     * ls_lanes_packs returns true, `w` is packed as that function describes. Otherwise it is stored
     * as [ceil(oc/8)][ic][kh][kw][8]. */
    void (*conv_data)(const ls_lanes_conv *c, ls_lanes_grad g, const float *w, int i0, int i1,
                      float *dx);

    /* y ← w · x + b, then a relu if `relu` is non-zero; b may be NULL. */
    void (*dense_forward)(const ls_lanes_dense *l, const float *x, const float *w, const float *b,
                          int relu, float *y);
    /* Backward of the relu. dz ← dy where y > 0, and 0 elsewhere; if y is NULL, dz ← dy. dz:
     * [packet][out rounded up to 16][16]. dzt ← dz transposed: [ceil(out/16)][packet][lane][16
     * outputs]. Padding is zero in both. */
    void (*dense_grad)(const ls_lanes_dense *l, const float *dy, const float *y, float *dz,
                       float *dzt);
    /* gw, gb (+)= the gradients of weights and bias; gb may be NULL. */
    void (*dense_weights)(const ls_lanes_dense *l, const float *x, const float *dzt, float *gw,
                          float *gb, int add);
    /* dx ← the gradient of x. */
    void (*dense_data)(const ls_lanes_dense *l, const float *dz, const float *w, float *dx);

    /* Pooling of one packet. `which`, [c][oh][ow][16], receives the position of each maximum in its
     * window; it may be NULL, and averages do not use it. */
    void (*pool_forward)(const ls_lanes_pool *p, const float *x, float *y, uint16_t *which);
    void (*pool_backward)(const ls_lanes_pool *p, const float *dy, const uint16_t *which,
                          float *dx);

    /* y ← the function of x, over n vectors. */
    void (*curve[LS_LANES_CURVES])(size_t n, ls_lanes_shape shape, const float *x, float *y);
    /* dx ← dy times the derivative. The derivative is computed from v: x for both forms of
     * gelu, silu and hard swish, y for the other functions. */
    void (*slope[LS_LANES_SLOPES])(size_t n, ls_lanes_shape shape, const float *v, const float *dy,
                                   float *dx);

    /* y ← a + b, then a relu if `relu` is non-zero, over n vectors. */
    void (*add)(size_t n, const float *a, const float *b, int relu, float *y);
    /* dx and dx2 ← dy where y > 0, and 0 elsewhere; if y is NULL, ← dy. dx2 may be NULL. */
    void (*add_dx)(size_t n, const float *y, const float *dy, float *dx, float *dx2);

    /* Batch norm over n vectors of one channel. sum[0 … 15] ← Σ x of each lane, including lanes
     * that hold no row. At most eight numbers are added up in float; their sum is then added in
     * double. */
    void (*norm_sum)(size_t n, const float *x, double *sum);
    /* sum[0 … 15] ← Σ (x − mean)² of each lane, with additions as in norm_sum. */
    void (*norm_squares)(size_t n, const float *x, float mean, double *sum);
    /* y ← the normalised x, plus x2 unless it is NULL, then a relu if `relu` is non-zero. */
    void (*normalise)(size_t n, const ls_lanes_norm *norm, const float *x, const float *x2,
                      float *y, int relu);
    /* sum[0 … 15] ← Σ g, sum[16 … 31] ← Σ g·(x − mean), dx2 ← g unless dx2 is NULL. */
    void (*norm_sums)(const ls_lanes_norm_pass *pass, double *sum);
    /* dx ← a·g + b·(x − mean) + c, and 0 in lanes that hold no row. */
    void (*norm_dx)(const ls_lanes_norm_pass *pass);

    /* Layer norm of one packet, with n elements in each row. stats[2][16] ← mean and 1/√(variance +
     * epsilon) of each lane. */
    void (*layer_forward)(size_t n, float epsilon, const float *x, const float *w, const float *b,
                          float *y, float *stats);
    /* dx ← the gradient of x; it is 0 in a lane whose dy are all 0. */
    void (*layer_dx)(size_t n, const float *x, const float *dy, const float *w, const float *stats,
                     float *dx);
    /* gw[i], gb[i] (+)= the gradients of weight and bias i for i < n ≤ 16, summed over the lanes of
     * `packets` packets that are `step` floats apart. */
    void (*layer_weights)(int n, int packets, size_t step, const float *x, const float *dy,
                          const float *stats, float *gw, float *gb, int add);

    /* Softmax and cross-entropy of one packet of `rows` ≤ 16 rows. dx ← softmax(x) − target, and 0
     * in lanes that hold no row; dx may be NULL. loss[16] ← each row's loss. correct[16] ← 1 if the
     * row is predicted right, else 0. The target of a class is smoothing / classes, plus
     * 1 − smoothing for the label. */
    void (*loss)(int classes, int rows, float smoothing, const float *x, const int32_t *labels,
                 float *dx, float *loss, float *correct);

    /* Adds n vectors to the sums of a digest. Prefetches n vectors at `ahead`, which the caller
     * reads next. */
    void (*digest)(size_t n, const float *x, const float *ahead, ls_lanes_digest *sums);

    /* to[pixel][16] ← ((byte / 255) − mean) / std. Each operation is correctly rounded, except for
     * some values of std. The pointer is NULL if it is faster to look the result up in a table of
     * the 256 results. */
    void (*gather)(const ls_lanes_images *b, float *to);
    /* to[value][16] ← (float − mean) / std. Each operation is correctly rounded. */
    void (*gather_floats)(const ls_lanes_rows *b, float *to);

    const ls_lanes_depth_kernels *depth;
    const ls_few_kernels *few;
    const ls_wino_kernels *wino;
} ls_lanes_kernels;

/* Returns true if a convolution has more weights than its input and output have floats, or if x is
 * so small that it stays in the caches. If so, the outer loops of the kernels run over the weights,
 * and the inner loops over all pixels. Otherwise the outer loops run over the pixels.
 */
static inline int ls_lanes_few_pixels(const ls_lanes_conv *c)
{
    size_t weights = (size_t)c->ic * (size_t)c->oc * (size_t)c->kh * (size_t)c->kw;
    size_t x = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * 16;
    return x <= (1 << 16) || weights > x + (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * 16;
}

/* Returns true if conv_data reads packed weights, [ceil(ic/4)][kh][kw][oc][4]. It does so if the
 * last eight of output channels is not full. conv_data sums over the output channels; with packed
 * weights one loop runs over all of them. */
static inline int ls_lanes_packs(const ls_lanes_conv *c)
{
    return c->oc % LS_LANES_OC != 0;
}

/* fewest output channels for which conv_forward copies pixels to patches */
#define LS_LANES_PATCH_OC 32

/* Returns true if conv_forward first copies the pixels that a few neighbouring results read to a
 * *patch*, and computes all their output channels from it. In x the channels are often a multiple
 * of a page apart, so that few of them fit the L1 cache together. A patch has the zeros of the
 * padding. */
static inline int ls_lanes_patches(const ls_lanes_conv *c)
{
    return c->oc >= LS_LANES_PATCH_OC && c->kh * c->kw > 1 && c->pool_h * c->pool_w == 1 &&
           !ls_lanes_few_pixels(c);
}

/* Returns the largest number of parts into which conv_forward can divide y of one packet: 1 if the
 * outer loops run over the weights. Otherwise a part is image rows of y, or, if y has only one,
 * columns of it. */
static inline int ls_lanes_forward_parts(const ls_lanes_conv *c)
{
    if (ls_lanes_few_pixels(c))
        return 1;
    return c->y_h == 1 && c->pool_h * c->pool_w == 1 ? (c->ow + 5) / 6 : c->y_h;
}

/* Returns the number of floats of conv_forward's sums: usually those of eight channels and up to
 * six pixels. If sums are computed in parts (LS_LANES_DEPTH), there are sums of all channels. If in
 * addition the outer loops run over the weights, there are sums of all channels and all pixels. */
static inline size_t ls_lanes_sum_floats(const ls_lanes_conv *c)
{
    size_t channels = c->ic > LS_LANES_DEPTH ? (size_t)(c->oc + 7) / 8 * 8 : 8;
    size_t pixels =
        c->ic > LS_LANES_DEPTH && ls_lanes_few_pixels(c) ? (size_t)c->oh * (size_t)c->ow : 6;
    return channels * (pixels > 6 ? pixels : 6) * 16;
}

/* Returns the number of floats of conv_forward's memory `tile`: sums, then a patch of up to six
 * pixels and as many channels as are added to one sum. */
static inline size_t ls_lanes_tile_floats(const ls_lanes_conv *c)
{
    const size_t depth = (size_t)(c->ic < LS_LANES_DEPTH ? c->ic : LS_LANES_DEPTH);
    const size_t columns = (size_t)(5 * c->sw + (c->kw - 1) * c->dw + 1);
    return ls_lanes_sum_floats(c) + (c->patches ? depth * (size_t)c->kh * columns * 16 : 0);
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

/* conv_correlate treats a 1 × 1 filter, which has only one tap, as a filter over one input channel:
 * the columns of this filter are the input channels. The gradient has the same layout either way.
 * Returns the number of input channels as conv_correlate counts them. */
static inline int ls_lanes_conv_inputs(const ls_lanes_conv *c)
{
    return c->kh * c->kw == 1 ? 1 : c->ic;
}

/* Returns the number of the filter's columns as conv_correlate counts them. */
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
