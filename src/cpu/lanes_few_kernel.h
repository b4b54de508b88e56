/* Few rows (few.h): what lies as everywhere is brought into lanes, and a dense layer whose lanes are outputs.
 *
 * Sums are those of sixteen rows in lanes, in the same order: a dense layer's over 128 inputs at a time.
 */
#ifndef CPU_LANES_FEW_KERNEL_H
#define CPU_LANES_FEW_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#define LANES_FEW_INPUTS 128 /* as LANES_DENSE_INPUTS */

LANES_INLINE vec vec_load_any(const float *p)
{
    return *(const vec_unaligned *)p;
}

/* Sixteen numbers of `from`, or those of a part. */
LANES_INLINE vec lanes_few_picked(const float *from, const int32_t *index)
{
#if defined(__AVX512F__)
    return (vec)_mm512_i32gather_ps(_mm512_loadu_si512(index), from, 4);
#else
    vec v = {0};
    for (int l = 0; l < LANES_VEC; l++)
        v[l] = from[index[l]];
    return v;
#endif
}

static void lanes_few_pick(const ls_few_pick *p, const float *from, float *to)
{
    for (int r = 0; r < p->rows; r++, from += p->from_row, to += p->to_row)
        for (int c = 0; c < p->columns; c++)
            for (int part = 0; part < 16; part += LANES_VEC)
                vec_store(to + c * 16 + part, p->side_by_side
                                                  ? vec_load_any(from + p->index[0] + c + part)
                                                  : lanes_few_picked(from + c, p->index + part));
}

static void lanes_few_turn(const float *from, size_t plane, int channels, size_t pixels, float *to)
{
    for (size_t i = 0; i < pixels; i++, to += 16)
        for (int c = 0; c < 16; c++)
            to[c] = c < channels ? from[(size_t)c * plane + i] : 0;
}

static void lanes_few_turn_back(float *to, size_t plane, int channels, size_t pixels,
                                const float *from)
{
    for (size_t i = 0; i < pixels; i++, from += 16)
        for (int c = 0; c < channels; c++)
            to[(size_t)c * plane + i] = from[c];
}

/* ---- dense ----------------------------------------------------------------------------------- */

/* Rows at once, and sixteens of their outputs: as many sums as registers hold, and at least eight of them where that
 * can be, which hide the latency of an addition. */
#if LANES_VEC == 16
#define LANES_FEW_AT_ONCE 8
#define LANES_FEW_SIXTEENS(R) ((R) == 1 ? 8 : (R) <= 4 ? 4 : (R) <= 6 ? 3 : 2)
#elif LANES_VEC == 8
#define LANES_FEW_AT_ONCE 5
#define LANES_FEW_SIXTEENS(R) ((R) == 1 ? 4 : (R) == 2 ? 2 : 1)
#else
#define LANES_FEW_AT_ONCE 3
#define LANES_FEW_SIXTEENS(R) ((R) == 1 ? 2 : 1)
#endif

/* P sixteens of outputs of R rows, n inputs. */
LANES_INLINE void lanes_few_tile(const ls_few_dense *d, const float *x, const float *w,
                                 const float *first, float *y, int n, int add, int relu,
                                 const int P, const int R)
{
    const ptrdiff_t panel = (ptrdiff_t)d->in * 16, x_row = (ptrdiff_t)d->x_row;
    const ptrdiff_t y_row = (ptrdiff_t)d->y_row;
    vec sum[LANES_FEW_SIXTEENS(1) * LANES_PARTS][LANES_FEW_AT_ONCE];
    LANES_UNROLL
    for (int p = 0; p < P * LANES_PARTS; p++) {
        vec start = first ? vec_load(first + p * LANES_VEC) : (vec){0};
        LANES_UNROLL
        for (int r = 0; r < R; r++)
            sum[p][r] = start;
    }
    for (int i = 0; i < n; i++, w += 16, x++) {
        vec factor[LANES_FEW_AT_ONCE];
        LANES_UNROLL
        for (int r = 0; r < R; r++)
            factor[r] = vec_all(x[r * x_row]);
        LANES_UNROLL
        for (int p = 0; p < P * LANES_PARTS; p++) {
            vec v = vec_load(w + p / LANES_PARTS * panel + p % LANES_PARTS * LANES_VEC);
            LANES_UNROLL
            for (int r = 0; r < R; r++)
                sum[p][r] = vec_fma(v, factor[r], sum[p][r]);
        }
    }
    LANES_UNROLL
    for (int p = 0; p < P * LANES_PARTS; p++) {
        LANES_UNROLL
        for (int r = 0; r < R; r++) {
            float *to = y + r * y_row + p * LANES_VEC;
            vec v = add ? vec_load(to) + sum[p][r] : sum[p][r];
            vec_store(to, relu ? vec_relu(v) : v);
        }
    }
}

/* All inputs of P sixteens from the s-th on. */
LANES_INLINE void lanes_few_sixteens(const ls_few_dense *d, int row, int s, const int P,
                                     const int R)
{
    for (int first = 0; first < d->in; first += LANES_FEW_INPUTS) {
        const int n = d->in - first < LANES_FEW_INPUTS ? d->in - first : LANES_FEW_INPUTS;
        lanes_few_tile(
            d, d->x + (size_t)row * d->x_row + first, d->w + ((ptrdiff_t)s * d->in + first) * 16,
            d->b && first == 0 ? d->b + s * 16 : NULL, d->y + (size_t)row * d->y_row + s * 16, n,
            first > 0, d->relu && first + n == d->in, P, R);
    }
}

LANES_INLINE void lanes_few_rows(const ls_few_dense *d, int row, const int P, const int R)
{
    int s = d->from;
    for (; s + P <= d->to; s += P)
        lanes_few_sixteens(d, row, s, P, R);
    for (; s < d->to; s++)
        lanes_few_sixteens(d, row, s, 1, R);
}

/* A function for each number of rows: their sums have registers. */
#define LANES_FEW_DENSE(R)                                                                         \
    static __attribute__((noinline)) void lanes_few_dense_##R(const ls_few_dense *d, int row)      \
    {                                                                                              \
        lanes_few_rows(d, row, LANES_FEW_SIXTEENS(R), R);                                          \
    }
LANES_FEW_DENSE(1)
LANES_FEW_DENSE(2)
LANES_FEW_DENSE(3)
#if LANES_FEW_AT_ONCE > 3
LANES_FEW_DENSE(4)
LANES_FEW_DENSE(5)
#endif
#if LANES_FEW_AT_ONCE > 5
LANES_FEW_DENSE(6)
LANES_FEW_DENSE(7)
LANES_FEW_DENSE(8)
#endif

/* As few passes over the weights as there can be, of nearly equal numbers of rows. */
static void lanes_few_dense(const ls_few_dense *d)
{
    static void (*const of[])(const ls_few_dense *, int) = {
        NULL,
        lanes_few_dense_1,
        lanes_few_dense_2,
        lanes_few_dense_3,
#if LANES_FEW_AT_ONCE > 3
        lanes_few_dense_4,
        lanes_few_dense_5,
#endif
#if LANES_FEW_AT_ONCE > 5
        lanes_few_dense_6,
        lanes_few_dense_7,
        lanes_few_dense_8,
#endif
    };
    int passes = (d->rows + LANES_FEW_AT_ONCE - 1) / LANES_FEW_AT_ONCE;
    for (int row = 0, n; row < d->rows; row += n, passes--) {
        n = (d->rows - row + passes - 1) / passes;
        of[n](d, row);
    }
}

#endif
