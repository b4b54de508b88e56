/* The inner kernel of convolution: a tile of sums that stays in registers.
 *
 *     out[j][t] (+)= init[j] + Σ w[…][j] · x[…][t]       j < J, t < T
 *
 * The sum runs over three nested loops; x and w advance by their own steps in each of them. A
 * forward convolution sums over (input channel, kernel row, kernel column), a tile being J
 * output channels by T pixels; its backward pass to the data over output channels; the gradient
 * of weights over (group, row, column), a tile being J output channels by T taps. Per step there
 * are J + T loads for J · T multiply-adds.
 *
 * `w` is read in one of three ways: as J adjacent scalars, as J scalars any number of floats apart, or as J
 * vectors. J is 1, 2, 4 or 8, of strided scalars 6 too, of vectors at most 4, and T is 1 … 6, as far as J · T
 * sums fit into the registers; each pair is compiled on its own, since registers have no index.
 */
#ifndef CPU_LANES_TILE_KERNEL_H
#define CPU_LANES_TILE_KERNEL_H

#include "cpu/lanes_vec.h"

/* All steps are in floats. */
typedef struct lanes_tile {
    int n[3];                       /* lengths of the loops, outer to inner; may be 0 */
    ptrdiff_t x_step[3], w_step[3]; /* x, w: advance per iteration of each loop */
    ptrdiff_t x_t;                  /* from one t to the next */
    ptrdiff_t w_j;                  /* from one j to the next, where they are not adjacent */
    ptrdiff_t out_j, out_t;
    const float *x, *w;
    const float *init; /* J scalars, or NULL for 0 */
    float *out;
    int add; /* add to what is in `out` */
} lanes_tile;

typedef void lanes_tile_fn(const lanes_tile *tile);

typedef enum lanes_w { LANES_W_ADJACENT, LANES_W_STRIDED, LANES_W_VECTORS } lanes_w;

#define LANES_J_MAX 8
#define LANES_T_MAX 6

/* The widest tile for J sums: J · T ≤ LANES_SUMS. */
LANES_INLINE int lanes_widest(int j)
{
    int t = LANES_SUMS / j;
    return t < LANES_T_MAX ? t : LANES_T_MAX;
}

/* The largest compiled J that is at most `left` and `limit`. */
LANES_INLINE int lanes_tallest(int left, int limit)
{
    int n = left < limit ? left : limit;
    return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* The same of strided scalars, for tiles that are so wide: eight sums are too few for two units of latency four. */
LANES_INLINE int lanes_tallest_of(int left, int wide)
{
    int n = left < LANES_SUMS / wide ? left : LANES_SUMS / wide;
    return n >= 8 ? 8 : n >= 6 ? 6 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

typedef vec lanes_sums[LANES_J_MAX][LANES_T_MAX];

LANES_INLINE void lanes_tile_start(const lanes_tile *tile, lanes_sums sum, const int J, const int T)
{
    LANES_UNROLL
    for (int j = 0; j < J; j++) {
        vec first = vec_all(tile->init ? tile->init[j] : 0);
        LANES_UNROLL
        for (int t = 0; t < T; t++)
            sum[j][t] = first;
    }
}

LANES_INLINE void lanes_tile_finish(const lanes_tile *tile, lanes_sums sum, const int J,
                                    const int T)
{
    float *const out = tile->out; /* in locals: a store might change what `tile` points to */
    const ptrdiff_t out_j = tile->out_j, out_t = tile->out_t;
    if (tile->add) {
        LANES_UNROLL
        for (int j = 0; j < J; j++) {
            LANES_UNROLL
            for (int t = 0; t < T; t++)
                sum[j][t] = vec_load(out + j * out_j + t * out_t) + sum[j][t];
        }
    }
    LANES_UNROLL
    for (int j = 0; j < J; j++) {
        LANES_UNROLL
        for (int t = 0; t < T; t++)
            vec_store(out + j * out_j + t * out_t, sum[j][t]);
    }
}

LANES_INLINE void lanes_tile_run(const lanes_tile *tile, const lanes_w kind, const int J,
                                 const int T)
{
    lanes_sums sum;
    lanes_tile_start(tile, sum, J, T);
    const ptrdiff_t x_t = tile->x_t, x_step = tile->x_step[2], w_step = tile->w_step[2];
    const ptrdiff_t w_j = kind == LANES_W_ADJACENT ? 1 : tile->w_j;
    for (int a = 0; a < tile->n[0]; a++) {
        for (int b = 0; b < tile->n[1]; b++) {
            const float *x = tile->x + a * tile->x_step[0] + b * tile->x_step[1];
            const float *w = tile->w + a * tile->w_step[0] + b * tile->w_step[1];
            for (int c = tile->n[2]; c > 0; c--) {
                vec in[LANES_T_MAX];
                LANES_UNROLL
                for (int t = 0; t < T; t++)
                    in[t] = vec_load(x + t * x_t);
                LANES_UNROLL
                for (int j = 0; j < J; j++) {
                    vec factor =
                        kind == LANES_W_VECTORS ? vec_load(w + j * w_j) : vec_all(w[j * w_j]);
                    LANES_UNROLL
                    for (int t = 0; t < T; t++)
                        sum[j][t] = vec_fma(factor, in[t], sum[j][t]);
                }
                x += x_step;
                w += w_step;
            }
        }
    }
    lanes_tile_finish(tile, sum, J, T);
}

#define LANES_TILE(kind, J, T)                                                                     \
    static void lanes_tile_##kind##_##J##_##T(const lanes_tile *tile)                              \
    {                                                                                              \
        lanes_tile_run(tile, LANES_W_##kind, J, T);                                                \
    }

/* clang-format off */
#define LANES_TO_3(kind, J) LANES_TILE(kind, J, 1) LANES_TILE(kind, J, 2) LANES_TILE(kind, J, 3)
#define LANES_TO_6(kind, J) \
    LANES_TO_3(kind, J) LANES_TILE(kind, J, 4) LANES_TILE(kind, J, 5) LANES_TILE(kind, J, 6)
LANES_TO_6(ADJACENT, 1) LANES_TO_6(ADJACENT, 2) LANES_TO_6(ADJACENT, 4) LANES_TO_3(ADJACENT, 8)
LANES_TO_6(STRIDED, 1) LANES_TO_6(STRIDED, 2) LANES_TO_6(STRIDED, 4) LANES_TO_3(STRIDED, 8)
LANES_TO_6(VECTORS, 1) LANES_TO_6(VECTORS, 2) LANES_TO_6(VECTORS, 4)
LANES_TO_3(STRIDED, 6)

#define LANES_THREE(kind, J) \
    lanes_tile_##kind##_##J##_1, lanes_tile_##kind##_##J##_2, lanes_tile_##kind##_##J##_3
#define LANES_SIX(kind, J) \
    LANES_THREE(kind, J), \
    lanes_tile_##kind##_##J##_4, lanes_tile_##kind##_##J##_5, lanes_tile_##kind##_##J##_6
#define LANES_TABLE(kind) {LANES_SIX(kind, 1)}, {LANES_SIX(kind, 2)}, {LANES_SIX(kind, 4)}
    /* clang-format on */

    /* The kernel for a tile of `j` by `t` (1 … lanes_widest(j)). j 1, 2, 4, 6, 8: rows 0 … 4; what is not compiled is
     * NULL, and no caller asks for it. */
    static lanes_tile_fn *lanes_tile_of(lanes_w kind, int j, int t)
{
    static lanes_tile_fn *const table[3][5][LANES_T_MAX] = {
        {LANES_TABLE(ADJACENT), {0}, {LANES_THREE(ADJACENT, 8)}},
        {LANES_TABLE(STRIDED), {LANES_THREE(STRIDED, 6)}, {LANES_THREE(STRIDED, 8)}},
        {LANES_TABLE(VECTORS)}};
    return table[kind][j / 2][t - 1];
}

/* Runs one tile over all lanes. Where `w` holds scalars it is the same for every part. */
LANES_INLINE void lanes_tile_all(lanes_tile *tile, lanes_w kind, lanes_tile_fn *run)
{
    run(tile);
    for (int part = 1; part < LANES_PARTS; part++) {
        tile->x += LANES_VEC;
        tile->out += LANES_VEC;
        tile->w += kind == LANES_W_VECTORS ? LANES_VEC : 0;
        run(tile);
    }
}

/* `n` columns cut into the fewest nearly equal pieces of at most `widest`: the first `longer`
 * pieces have `size` + 1 columns, the others `size`. */
typedef struct lanes_cut {
    int pieces, size, longer;
} lanes_cut;

LANES_INLINE lanes_cut lanes_cut_into(int n, int widest)
{
    lanes_cut cut = {n <= widest ? n > 0 : (n + widest - 1) / widest, n, 0};
    if (cut.pieces > 1) {
        cut.size = n / cut.pieces;
        cut.longer = n - cut.size * cut.pieces;
    }
    return cut;
}

LANES_INLINE int lanes_piece(lanes_cut cut, int piece)
{
    return cut.size + (piece < cut.longer);
}

#endif
