/* The inner kernel of a forward convolution with stride 1 and a kernel of 3, 5 or 7 columns.
 *
 * The sums are those of lanes_tile_kernel.h, in the same order. T neighbouring pixels under K
 * kernel columns are T + K − 1 pixels in all, and here these are loaded once and kept in
 * registers: T + K − 1 + J·K loads for J·T·K multiply-adds, which leaves room for the loads of
 * cache lines. It needs 32 registers; elsewhere there are no such kernels.
 */
#ifndef CPU_LANES_WINDOW_KERNEL_H
#define CPU_LANES_WINDOW_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_tile_kernel.h"

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

static lanes_tile_fn *lanes_window_of(int columns, int stride, int j, int t)
{
    (void)columns;
    (void)stride;
    (void)j;
    (void)t;
    return NULL;
}

#endif

#endif
