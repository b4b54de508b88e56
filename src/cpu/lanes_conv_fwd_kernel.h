/* Convolution forward, with bias, relu and average pooling.
 *
 *     for output rows
 *       for tiles of columns           their x stays in the caches
 *         for input channels, 64 at a time
 *           for channels               J channels × T columns of sums, over (ic, ky, kx)
 *             epilogue: signs, relu, pool
 *
 * Weights are read again for every tile of columns: of what a tile reads they are the small part. Where they
 * are more than the pixels (ls_lanes_few_pixels) it is the other way round.
 *
 * A tile leaves the registers into a small buffer and the epilogue reads it back from there, so
 * that one inner kernel serves every form. A pooled row is written by its first convolution row
 * and added to by the others. Only sums of few products that are pooled two by two have a kernel from x to y.
 */
#ifndef CPU_LANES_CONV_FWD_KERNEL_H
#define CPU_LANES_CONV_FWD_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_tile_kernel.h"

/* ---- several columns of a kernel at once ----------------------------------------------------- */

/* The inner kernel of a forward convolution with stride 1 and a kernel of 3, 5 or 7 columns.
 *
 * The sums are those of lanes_tile_kernel.h, in the same order. T neighbouring pixels under K
 * kernel columns are T + K − 1 pixels in all, and here these are loaded once and kept in
 * registers: T + K − 1 + J·K loads for J·T·K multiply-adds, which leaves room for the loads of
 * cache lines. It needs 32 registers; elsewhere there are no such kernels.
 */

#define LANES_WINDOW_J 4 /* most output channels of a tile */
#define LANES_WINDOW_T 5 /* most pixels: 4 · 5 sums, 11 pixels and a weight fill 32 registers */

#if LANES_SUMS >= 24

LANES_INLINE void lanes_window_run(const lanes_tile *tile, const int K, const int J, const int T)
{
    lanes_sums sum;
    lanes_tile_start(tile, sum, J, T);
    for (int a = 0; a < tile->n[0]; a++) {
        const float *x = tile->x + a * tile->x_step[0];
        const float *w = tile->w + a * tile->w_step[0];
        for (int b = tile->n[1]; b > 0; b--) {
            vec in[LANES_WINDOW_T + 6];
            LANES_UNROLL
            for (int t = 0; t < T + K - 1; t++)
                in[t] = vec_load(x + t * 16);
            LANES_UNROLL
            for (int k = 0; k < K; k++) {
                LANES_UNROLL
                for (int j = 0; j < J; j++) {
                    vec factor = vec_all(w[k * LS_LANES_OC + j]);
                    LANES_UNROLL
                    for (int t = 0; t < T; t++)
                        sum[j][t] = vec_fma(factor, in[t + k], sum[j][t]);
                }
            }
            x += tile->x_step[1];
            w += tile->w_step[1];
        }
    }
    lanes_tile_finish(tile, sum, J, T);
}

#define LANES_WINDOW(K, J, T)                                                                      \
    static void lanes_window_##K##_##J##_##T(const lanes_tile *tile)                               \
    {                                                                                              \
        lanes_window_run(tile, K, J, T);                                                           \
    }

/* clang-format off */
#define LANES_WINDOWS(K, J) \
    LANES_WINDOW(K, J, 1) LANES_WINDOW(K, J, 2) LANES_WINDOW(K, J, 3) \
    LANES_WINDOW(K, J, 4) LANES_WINDOW(K, J, 5)
LANES_WINDOWS(3, 2) LANES_WINDOWS(3, 4)
LANES_WINDOWS(5, 2) LANES_WINDOWS(5, 4)
LANES_WINDOWS(7, 2) LANES_WINDOWS(7, 4)

#define LANES_WINDOW_ROW(K, J) \
    { lanes_window_##K##_##J##_1, lanes_window_##K##_##J##_2, lanes_window_##K##_##J##_3, \
      lanes_window_##K##_##J##_4, lanes_window_##K##_##J##_5 }
#define LANES_WINDOW_TABLE(K) { LANES_WINDOW_ROW(K, 2), LANES_WINDOW_ROW(K, 4) }
    /* clang-format on */

    /* The kernel for this many kernel columns, J and T; NULL where there is none. */
    static lanes_tile_fn *lanes_window_of(int columns, int stride, int j, int t)
{
    static lanes_tile_fn *const table[3][2][LANES_WINDOW_T] = {
        LANES_WINDOW_TABLE(3), LANES_WINDOW_TABLE(5), LANES_WINDOW_TABLE(7)};
    if (stride != 1 || (columns != 3 && columns != 5 && columns != 7) || (j != 2 && j != 4) ||
        t > LANES_WINDOW_T)
        return NULL;
    return table[(columns - 3) / 2][j / 4][t - 1];
}

#else

#define lanes_window_of(columns, stride, j, t) ((lanes_tile_fn *)NULL)

#endif

/* ---- a group --------------------------------------------------------------------------------- */

/* What follows the sums of a tile, for one part of the lanes. */
typedef struct lanes_finish {
    const ls_lanes_conv *c;
    vec share; /* of a pixel in its window's average */
    int x0, columns;
    int first_row;   /* of its pooling windows */
    int pairs;       /* columns come as whole windows of two */
    const float *in; /* one channel's sums */
    uint8_t *mask;   /* of the first column, or NULL; there is a relu if it is not */
    float *row;      /* of y */
} lanes_finish;

/* Sums behind a relu if there is one, their signs kept if they are wanted. */
LANES_INLINE vec lanes_behind(vec v, uint8_t *mask, const int keep, const int relu)
{
    if (keep)
        *(lanes_bits *)mask = vec_positive(v);
    return relu ? vec_relu(v) : v;
}

/* Windows two columns wide, the usual case: pairs are added in registers. */
LANES_INLINE void lanes_finish_pairs(const lanes_finish *f, const int keep, const int relu)
{
    const vec share = f->share;
    const float *in = f->in, *const end = in + f->columns * 16;
    const int first_row = f->first_row;
    uint8_t *mask = f->mask;
    float *out = f->row + f->x0 / 2 * 16;
    for (; in < end; in += 32, out += 16) {
        vec left = lanes_behind(vec_load(in), mask, keep, relu);
        uint8_t *next = keep ? mask + LANES_MASK_BYTES : NULL;
        vec right = lanes_behind(vec_load(in + 16), next, keep, relu);
        vec v = left + right;
        vec_store(out, first_row ? v * share : vec_fma(v, share, vec_load(out)));
        mask += keep ? 2 * LANES_MASK_BYTES : 0;
    }
}

LANES_INLINE void lanes_finish_windows(const lanes_finish *f, const int keep, const int relu)
{
    uint8_t *mask = f->mask;
    for (int t = 0; t < f->columns; t++) {
        int x = f->x0 + t, fresh = f->first_row && x % f->c->pool_w == 0;
        float *out = f->row + x / f->c->pool_w * 16;
        vec v = lanes_behind(vec_load(f->in + t * 16), mask, keep, relu) * f->share;
        vec_store(out, fresh ? v : vec_load(out) + v);
        mask += keep ? LANES_MASK_BYTES : 0;
    }
}

LANES_INLINE void lanes_finish_columns(const lanes_finish *f, const int keep, const int relu)
{
    uint8_t *mask = f->mask;
    const float *in = f->in, *const end =
                                 in + f->columns * 16; /* not `f`, which a store might change */
    float *out = f->row + f->x0 * 16;
    for (; in < end; in += 16, out += 16) {
        vec_store(out, lanes_behind(vec_load(in), mask, keep, relu));
        mask += keep ? LANES_MASK_BYTES : 0;
    }
}

LANES_INLINE void lanes_finish_row(const lanes_finish *f, const int keep, const int relu)
{
    if (f->pairs)
        lanes_finish_pairs(f, keep, relu);
    else if (f->c->pool_h * f->c->pool_w > 1)
        lanes_finish_windows(f, keep, relu);
    else
        lanes_finish_columns(f, keep, relu);
}

/* A function of its own: inlined into the loops around the tiles it ran at half the speed.
 * `tile` is [channels][columns] of row `y` of the convolution's output, from `channel` on. */
static __attribute__((noinline)) void lanes_conv_epilogue(lanes_finish *f, const float *tile,
                                                          int channel, int channels, int y,
                                                          float *out, uint8_t *mask)
{
    const ls_lanes_conv *c = f->c;
    const int pooled = y / c->pool_h;
    ptrdiff_t at = ((ptrdiff_t)channel * c->oh + y) * c->ow + f->x0;
    ptrdiff_t row = ((ptrdiff_t)channel * c->y_h + pooled) * c->y_w * 16;
    f->first_row = y == pooled * c->pool_h;
    f->pairs = c->pool_w == 2 && ((f->x0 | f->columns) & 1) == 0;
    for (int j = 0; j < channels; j++) {
        for (int part = 0; part < LANES_PARTS; part++) {
            f->in = tile + j * f->columns * 16 + part * LANES_VEC;
            f->mask = mask ? mask + at * LANES_MASK_BYTES + part * (int)sizeof(lanes_bits) : NULL;
            f->row = out + row + part * LANES_VEC;
            if (mask)
                lanes_finish_row(f, 1, 1);
            else if (c->relu)
                lanes_finish_row(f, 0, 1);
            else
                lanes_finish_row(f, 0, 0);
        }
        at += (ptrdiff_t)c->oh * c->ow;
        row += (ptrdiff_t)c->y_h * c->y_w * 16;
    }
}

/* How a row is cut into tiles: as wide as registers allow, but whole pooling windows, of `unit`
 * columns, where those are narrower. */
typedef struct lanes_row_cut {
    int tallest, unit;
    lanes_cut units;
} lanes_row_cut;

LANES_INLINE lanes_row_cut lanes_cut_row(const ls_lanes_conv *c)
{
    lanes_row_cut cut = {.tallest = LANES_CHANNELS};
    int widest = lanes_widest(LANES_CHANNELS);
    if (lanes_window_of(c->kw, c->sw * c->dw, LANES_WINDOW_J, 1)) {
        cut.tallest = LANES_WINDOW_J;
        widest = LANES_WINDOW_T;
    }
    cut.unit = c->pool_w <= widest ? c->pool_w : 1;
    cut.units = lanes_cut_into(c->ow / cut.unit, widest / cut.unit);
    return cut;
}

/* What all tiles of a convolution have in common. */
typedef struct lanes_forward {
    const ls_lanes_conv *c;
    const float *x, *w, *b;
    float *y;
    uint8_t *mask;
    float *buffer;
    lanes_row_cut cut;
    lanes_finish finish;
    lanes_tile tile;
} lanes_forward;

/* The sums for output channels o to before `end`, eight or all, of the input channels from `first` on that are
 * added up at a time, for one piece of a row, whose sums start at `buffer`. What is complete is finished. */
LANES_INLINE void lanes_conv_channels(lanes_forward *p, const float *x, const float *w, int first,
                                      int o, int end, int row, float *buffer)
{
    const ls_lanes_conv *c = p->c;
    const ptrdiff_t taps = (ptrdiff_t)c->kh * c->kw * LS_LANES_OC;
    const int whole = c->ic <= LS_LANES_DEPTH, last = first + p->tile.n[0] == c->ic;
    const int plain = whole && !c->relu && c->pool_h * c->pool_w == 1; /* sums are y */
    const ptrdiff_t plane = (ptrdiff_t)c->oh * c->ow * 16;
    int height;
    p->tile.out_j = plain ? plane : p->finish.columns * 16;
    for (; o < end && o < c->oc; o += height) {
        int in_eight = o % LS_LANES_OC, left = LS_LANES_OC - in_eight;
        height = lanes_tallest(left < c->oc - o ? left : c->oc - o, p->cut.tallest);
        lanes_tile_fn *run = lanes_window_of(c->kw, c->sw * c->dw, height, p->finish.columns);
        float *const sums = plain ? p->y + o * plane + ((ptrdiff_t)row * c->ow + p->finish.x0) * 16
                                  : buffer + (whole ? 0 : o * p->tile.out_j);
        p->tile.init = p->b && first == 0 ? p->b + o : NULL;
        p->tile.x = x;
        p->tile.w = w + (o / LS_LANES_OC) * taps * c->ic + in_eight;
        p->tile.out = sums;
        lanes_tile_all(&p->tile, LANES_W_ADJACENT,
                       run ? run : lanes_tile_of(LANES_W_ADJACENT, height, p->finish.columns));
        if (last && !plain)
            lanes_conv_epilogue(&p->finish, sums, o, height, row, p->y, p->mask);
    }
}

LANES_INLINE void lanes_conv_piece(lanes_forward *p, int row, int piece, int first, int o, int end,
                                   float *buffer)
{
    const ls_lanes_conv *c = p->c;
    const lanes_row_cut *cut = &p->cut;
    const int longer = piece < cut->units.longer ? piece : cut->units.longer;
    int from, to;
    ls_lanes_taps_inside(row * c->sh - c->ph, c->kh, c->dh, c->ih, &from, &to);
    p->finish.x0 = (piece * cut->units.size + longer) * cut->unit;
    p->finish.columns = lanes_piece(cut->units, piece) * cut->unit;
    p->tile.n[0] = c->ic - first < LS_LANES_DEPTH ? c->ic - first : LS_LANES_DEPTH;
    p->tile.n[1] = to - from;
    p->tile.add = first > 0;
    const ptrdiff_t line = (ptrdiff_t)first * c->ih + row * c->sh - c->ph + from * c->dh;
    const ptrdiff_t tap = ((ptrdiff_t)first * c->kh + from) * c->kw;
    lanes_conv_channels(p, p->x + (line * c->iw + p->finish.x0 * c->sw) * 16,
                        p->w + tap * LS_LANES_OC, first, o, end, row, buffer);
}

/* For each few pixels all weights. */
LANES_INLINE void lanes_conv_by_pixels(lanes_forward *p)
{
    for (int row = 0; row < p->c->oh; row++)
        for (int piece = 0; piece < p->cut.units.pieces; piece++)
            for (int first = 0; first < p->c->ic; first += LS_LANES_DEPTH)
                lanes_conv_piece(p, row, piece, first, 0, p->c->oc, p->buffer);
}

/* For each few weights all pixels. */
LANES_INLINE void lanes_conv_by_weights(lanes_forward *p)
{
    const ls_lanes_conv *c = p->c;
    const ptrdiff_t sums =
        c->ic > LS_LANES_DEPTH ? (ptrdiff_t)(c->oc + 7) / 8 * 128 : 0; /* of a pixel */
    for (int first = 0; first < c->ic; first += LS_LANES_DEPTH)
        for (int o = 0; o < c->oc; o += LS_LANES_OC)
            for (int row = 0; row < c->oh; row++) {
                float *at = p->buffer + (ptrdiff_t)row * c->ow * sums;
                for (int piece = 0; piece < p->cut.units.pieces; piece++) {
                    lanes_conv_piece(p, row, piece, first, o, o + LS_LANES_OC, at);
                    at += p->finish.columns * sums;
                }
            }
}

/* ---- few products, pooled -------------------------------------------------------------------- */

#define LANES_POOLED_TAPS 32 /* with more of them the epilogue is a small part */
#define LANES_POOLED_J (LANES_SUMS >= 24 ? 4 : 2)

/* J channels of a window of 2 × 2 stay in registers from x to y. Pointers are those of the first window of a row. */
typedef struct lanes_pooled {
    const ls_lanes_conv *c;
    const float *x, *w, *b;
    float *y;
    uint8_t *mask; /* or NULL */
} lanes_pooled;

LANES_INLINE int lanes_is_pooled(const ls_lanes_conv *c)
{
    return c->pool_h == 2 && c->pool_w == 2 && c->sh == 1 && c->sw == 1 && c->dh == 1 &&
           c->dw == 1 && c->ph == 0 && (c->kw == 3 || c->kw == 5) &&
           c->ic * c->kh * c->kw <= LANES_POOLED_TAPS;
}

LANES_INLINE void lanes_pooled_sums(const lanes_pooled *p, const float *x, vec sum[][4],
                                    const int J, const int kw)
{
    const ls_lanes_conv *c = p->c;
    const ptrdiff_t line = (ptrdiff_t)c->iw * 16;
    const float *w = p->w;
    LANES_UNROLL
    for (int j = 0; j < J; j++)
        sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = vec_all(p->b ? p->b[j] : 0);
    for (int i = 0; i < c->ic; i++, x += c->ih * line)
        for (int ky = 0; ky < c->kh; ky++) {
            const float *at = x + ky * line;
            LANES_UNROLL
            for (int kx = 0; kx < kw; kx++, at += 16, w += LS_LANES_OC) {
                const vec in[4] = {vec_load(at), vec_load(at + 16), vec_load(at + line),
                                   vec_load(at + line + 16)};
                LANES_UNROLL
                for (int j = 0; j < J; j++) {
                    const vec factor = vec_all(w[j]);
                    LANES_UNROLL
                    for (int t = 0; t < 4; t++)
                        sum[j][t] = vec_fma(factor, in[t], sum[j][t]);
                }
            }
        }
}

LANES_INLINE vec lanes_pooled_pair(vec left, vec right, uint8_t *mask, const int keep,
                                   const int relu)
{
    return lanes_behind(left, mask, keep, relu) +
           lanes_behind(right, keep ? mask + LANES_MASK_BYTES : NULL, keep, relu);
}

LANES_INLINE void lanes_pooled_row(const lanes_pooled *p, const int J, const int kw, const int keep,
                                   const int relu)
{
    const ls_lanes_conv *c = p->c;
    const ptrdiff_t plane = (ptrdiff_t)c->y_h * c->y_w * 16, bits = c->ow * LANES_MASK_BYTES;
    const vec share = vec_all(0.25f);
    for (int q = 0; q < c->y_w; q++) {
        vec sum[LANES_POOLED_J][4];
        lanes_pooled_sums(p, p->x + q * 32, sum, J, kw);
        LANES_UNROLL
        for (int j = 0; j < J; j++) {
            uint8_t *mask = keep ? p->mask + j * c->oh * bits + q * 2 * LANES_MASK_BYTES : NULL;
            vec upper = lanes_pooled_pair(sum[j][0], sum[j][1], mask, keep, relu) * share;
            uint8_t *below = keep ? mask + bits : NULL;
            vec lower = lanes_pooled_pair(sum[j][2], sum[j][3], below, keep, relu);
            vec_store(p->y + j * plane + q * 16, vec_fma(lower, share, upper));
        }
    }
}

LANES_INLINE void lanes_pooled_kind(const lanes_pooled *p, const int J, const int kw)
{
    if (p->mask)
        lanes_pooled_row(p, J, kw, 1, 1);
    else if (p->c->relu)
        lanes_pooled_row(p, J, kw, 0, 1);
    else
        lanes_pooled_row(p, J, kw, 0, 0);
}

/* A function for each number of channels: their sums have registers. */
#define LANES_POOLED(J)                                                                            \
    static __attribute__((noinline)) void lanes_pooled_##J(const lanes_pooled *p)                  \
    {                                                                                              \
        if (p->c->kw == 3)                                                                         \
            lanes_pooled_kind(p, J, 3);                                                            \
        else                                                                                       \
            lanes_pooled_kind(p, J, 5);                                                            \
    }
LANES_POOLED(1)
LANES_POOLED(2)
#if LANES_SUMS >= 24
LANES_POOLED(4)
#define LANES_POOLED_TALL lanes_pooled_4
#else
#define LANES_POOLED_TALL lanes_pooled_2
#endif

static void lanes_conv_pooled(const ls_lanes_conv *c, const float *x, const float *w,
                              const float *b, float *y, uint8_t *mask)
{
    const ptrdiff_t eight = (ptrdiff_t)c->ic * c->kh * c->kw * LS_LANES_OC;
    for (int row = 0; row < c->y_h; row++)
        for (int o = 0, height; o < c->oc; o += height) {
            height = lanes_tallest(c->oc - o, LANES_POOLED_J);
            for (int lane = 0; lane < 16; lane += LANES_VEC) {
                const ptrdiff_t at = ((ptrdiff_t)o * c->oh + 2 * row) * c->ow * LANES_MASK_BYTES;
                const lanes_pooled p = {
                    .c = c,
                    .x = x + (ptrdiff_t)2 * row * c->iw * 16 + lane,
                    .w = w + o / LS_LANES_OC * eight + o % LS_LANES_OC,
                    .b = b ? b + o : NULL,
                    .y = y + ((ptrdiff_t)o * c->y_h + row) * c->y_w * 16 + lane,
                    .mask = mask ? mask + at + lane / LANES_VEC * (int)sizeof(lanes_bits) : NULL};
                (height == LANES_POOLED_J ? LANES_POOLED_TALL
                 : height == 2            ? lanes_pooled_2
                                          : lanes_pooled_1)(&p);
            }
        }
}

static void lanes_conv_forward(const ls_lanes_conv *c, const float *x, const float *w,
                               const float *b, float *y, uint8_t *mask, float *buffer)
{
    if (lanes_is_pooled(c)) {
        lanes_conv_pooled(c, x, w, b, y, mask);
        return;
    }
    lanes_forward p = {
        .c = c,
        .x = x,
        .w = w,
        .b = b,
        .y = y,
        .mask = mask,
        .buffer = buffer,
        .cut = lanes_cut_row(c),
        .finish = {.c = c, .share = vec_all(1.0f / (float)(c->pool_h * c->pool_w))},
        .tile =
            {
                .n = {0, 0, c->kw},
                .x_step = {(ptrdiff_t)c->ih * c->iw * 16, (ptrdiff_t)c->dh * c->iw * 16,
                           (ptrdiff_t)c->dw * 16},
                .w_step = {(ptrdiff_t)c->kh * c->kw * LS_LANES_OC, (ptrdiff_t)c->kw * LS_LANES_OC,
                           LS_LANES_OC},
                .x_t = (ptrdiff_t)c->sw * 16,
                .out_t = 16,
            },
    };
    if (ls_lanes_few_pixels(c))
        lanes_conv_by_weights(&p);
    else
        lanes_conv_by_pixels(&p);
}

#endif
