/* The matrix products of Winograd's algorithm. See wino.h.
 *
 * Both keep a tile of sums in registers: WINO_TILES or WINO_FROM scalars, each in all lanes, times
 * WINO_BLOCKS blocks of sixteen channels. An element's sum is made in the order of its terms,
 * whatever tile it belongs to: results do not depend on what is computed beside it. */
#ifndef CPU_WINO_MULTIPLY_KERNEL_H
#define CPU_WINO_MULTIPLY_KERNEL_H

#include "cpu/wino.h"

#include "cpu/lanes_vec.h"

#if LANES_VEC == 16
#define WINO_TILES 14
#define WINO_BLOCKS 2
#define WINO_FROM 8
#elif LANES_VEC == 8
#define WINO_TILES 6
#define WINO_BLOCKS 1
#define WINO_FROM 4
#else
#define WINO_TILES 3
#define WINO_BLOCKS 1
#define WINO_FROM 2
#endif

#define WINO_WIDTH (WINO_BLOCKS * LANES_PARTS) /* vectors of the widest tile */

/* `blocks` blocks that are `apart` floats apart, as vectors side by side. */
LANES_INLINE void wino_load(vec *to, const float *p, size_t apart, const int blocks)
{
    LANES_UNROLL
    for (int b = 0; b < blocks; b++) {
        LANES_UNROLL
        for (int part = 0; part < LANES_PARTS; part++)
            to[b * LANES_PARTS + part] = vec_load(p + (size_t)b * apart + part * LANES_VEC);
    }
}

LANES_INLINE void wino_store(float *p, const vec *from, size_t apart, const int blocks)
{
    LANES_UNROLL
    for (int b = 0; b < blocks; b++) {
        LANES_UNROLL
        for (int part = 0; part < LANES_PARTS; part++)
            vec_store(p + (size_t)b * apart + part * LANES_VEC, from[b * LANES_PARTS + part]);
    }
}

/* A tile's sums to memory, or to what is there. */
LANES_INLINE void wino_finish(float *p, vec *sum, size_t apart, int add, const int blocks)
{
    if (add) {
        vec before[WINO_WIDTH];
        wino_load(before, p, apart, blocks);
        LANES_UNROLL
        for (int i = 0; i < blocks * LANES_PARTS; i++)
            sum[i] += before[i];
    }
    wino_store(p, sum, apart, blocks);
}

/* One point, WINO_TILES tiles, `blocks` blocks of outputs, `depth` blocks of inputs. */
LANES_INLINE void wino_multiply_tile(float *out, const float *weights, size_t apart,
                                     const float *in, int depth, size_t line, int add,
                                     const int blocks)
{
    vec sum[WINO_TILES][WINO_WIDTH];
    LANES_UNROLL
    for (int t = 0; t < WINO_TILES; t++) {
        LANES_UNROLL
        for (int i = 0; i < blocks * LANES_PARTS; i++)
            sum[t][i] = (vec){0};
    }
    for (int block = 0; block < depth; block++, in += line) {
        const float *scalar = in;
        for (int c = 0; c < 16; c++, weights += 16, scalar++) {
            vec factor[WINO_WIDTH];
            wino_load(factor, weights, apart, blocks);
            LANES_UNROLL
            for (int t = 0; t < WINO_TILES; t++) {
                vec all = vec_all(scalar[t * 16]);
                LANES_UNROLL
                for (int i = 0; i < blocks * LANES_PARTS; i++)
                    sum[t][i] = vec_fma(factor[i], all, sum[t][i]);
            }
        }
    }
    LANES_UNROLL
    for (int t = 0; t < WINO_TILES; t++)
        wino_finish(out + t * 16, sum[t], line, add, blocks);
}

/* All tiles and inputs for `blocks` blocks of outputs: a few weights at a time for all tiles, so that
 * they and the sums stay in the L1 cache. */
LANES_INLINE void wino_multiply_blocks(float *out, const float *weights, const float *in, int from,
                                       size_t line, int count, const int blocks)
{
    for (int first = 0; first < from; first += LS_WINO_DEPTH) {
        int depth = from - first < LS_WINO_DEPTH ? from - first : LS_WINO_DEPTH;
        for (int t = 0; t < count; t += WINO_TILES)
            wino_multiply_tile(out + t * 16, weights + (size_t)first * 256, (size_t)from * 256,
                               in + (size_t)first * line + t * 16, depth, line, first > 0, blocks);
    }
}

static void wino_multiply(float *out, const float *weights, const float *in, int to, int from,
                          int tiles, int count)
{
    size_t line = (size_t)tiles * 16, row = (size_t)from * 256;
    int b = 0;
    for (; b + WINO_BLOCKS <= to; b += WINO_BLOCKS)
        wino_multiply_blocks(out + (size_t)b * line, weights + (size_t)b * row, in, from, line,
                             count, WINO_BLOCKS);
    for (; b < to; b++)
        wino_multiply_blocks(out + (size_t)b * line, weights + (size_t)b * row, in, from, line,
                             count, 1);
}

/* WINO_FROM channels of x and `blocks` blocks of dy. */
LANES_INLINE void wino_correlate_tile(float *out, const float *dy, const float *x, size_t out_apart,
                                      size_t dy_apart, int count, int add, const int blocks)
{
    vec sum[WINO_FROM][WINO_WIDTH];
    LANES_UNROLL
    for (int c = 0; c < WINO_FROM; c++) {
        LANES_UNROLL
        for (int i = 0; i < blocks * LANES_PARTS; i++)
            sum[c][i] = (vec){0};
    }
    for (int t = 0; t < count; t++, dy += 16, x += 16) {
        vec factor[WINO_WIDTH];
        wino_load(factor, dy, dy_apart, blocks);
        LANES_UNROLL
        for (int c = 0; c < WINO_FROM; c++) {
            vec all = vec_all(x[c]);
            LANES_UNROLL
            for (int i = 0; i < blocks * LANES_PARTS; i++)
                sum[c][i] = vec_fma(factor[i], all, sum[c][i]);
        }
    }
    LANES_UNROLL
    for (int c = 0; c < WINO_FROM; c++)
        wino_finish(out + c * 16, sum[c], out_apart, add, blocks);
}

static void wino_correlate(float *out, const float *dy, const float *x, int to, int from, int tiles,
                           int count, int add)
{
    size_t block = (size_t)tiles * 16, row = (size_t)from * 256;
    for (int c = 0; c < from * 16; c += WINO_FROM) {
        const float *scalars = x + (size_t)(c / 16) * block + c % 16;
        float *column = out + (size_t)c * 16;
        int b = 0;
        for (; b + WINO_BLOCKS <= to; b += WINO_BLOCKS)
            wino_correlate_tile(column + (size_t)b * row, dy + (size_t)b * block, scalars, row,
                                block, count, add, WINO_BLOCKS);
        for (; b < to; b++)
            wino_correlate_tile(column + (size_t)b * row, dy + (size_t)b * block, scalars, row,
                                block, count, add, 1);
    }
}

#endif
