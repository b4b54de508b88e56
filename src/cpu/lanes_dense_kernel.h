/* The dense layer on lanes: three products, each as tiles of J × T sums that stay in registers.
 *
 *     forward    J outputs × rows, over the inputs, 128 at a time: sums of so few are exact enough, x stays in L1
 *     data       J inputs × rows, over the outputs, 128 at a time: so many lines of weights are read side by
 *                side, which the hardware still fetches ahead
 *     weights    J inputs × outputs, over the rows of a block, block after block
 *
 * In the third form a vector holds outputs of one row, not rows of one output: the gradient of the output is
 * transposed first, which is small, and no sum over lanes is left. A tile's T vectors are those of one group
 * or sixteen (two where registers are many), all its parts, so that weights are read once.
 */
#ifndef CPU_LANES_DENSE_KERNEL_H
#define CPU_LANES_DENSE_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_panel_kernel.h"

#define LANES_DENSE_INPUTS 128
#define LANES_DENSE_SIXTEENS 8
#define LANES_DENSE_AHEAD 32 /* lines of a gradient that are asked for before they are written */

#if LANES_VEC == 16
#define LANES_DENSE_J 8
#define LANES_DENSE_GROUPS 2
#elif LANES_VEC == 8
#define LANES_DENSE_J 6 /* twelve sums, two vectors and a factor: fifteen registers of sixteen */
#define LANES_DENSE_GROUPS 1
#else
#define LANES_DENSE_J 4
#define LANES_DENSE_GROUPS 1
#endif
#define LANES_DENSE_T (LANES_DENSE_GROUPS * LANES_PARTS)

/* sum[j][t] = first[j] + Σ w[…][j] · x[…][t], over two nested loops; all steps are in floats. The inner one goes from
 * one sixteen of x to the next; the J factors of each are adjacent in w, or (`apart`) sixteen floats from one another
 * and the next ones adjacent. Sums go to J sixteens one behind another. Steps that compilers know need no registers. */
typedef struct lanes_dense {
    int n[2];
    ptrdiff_t w_step, x_step;     /* of the outer loop */
    ptrdiff_t x_group, out_group; /* from one group's T to the next's */
    const float *w, *x;
    const float *first; /* J scalars, or NULL for 0 */
    float *out;
    int add;  /* to what is in `out` */
    int relu; /* follows */
} lanes_dense;

LANES_INLINE void lanes_dense_tile(const lanes_dense *d, const int apart, const int J,
                                   const int groups)
{
    const int T = groups * LANES_PARTS;
    const ptrdiff_t w_next = apart ? 1 : 16, w_j = apart ? 16 : 1;
    float *const out = d->out; /* in locals: a store might change what `d` points to */
    const ptrdiff_t out_group = d->out_group;
    const int add = d->add, relu = d->relu;
    vec sum[LANES_DENSE_J][LANES_DENSE_T];
    LANES_UNROLL
    for (int j = 0; j < J; j++) {
        LANES_UNROLL
        for (int t = 0; t < T; t++)
            sum[j][t] = vec_all(d->first ? d->first[j] : 0);
    }
    for (int a = 0; a < d->n[0]; a++) {
        const float *w = d->w + a * d->w_step, *x = d->x + a * d->x_step;
        for (int b = d->n[1]; b > 0; b--, w += w_next, x += 16) {
            vec in[LANES_DENSE_T];
            LANES_UNROLL
            for (int t = 0; t < T; t++)
                in[t] = vec_load(x + t / LANES_PARTS * d->x_group + t % LANES_PARTS * LANES_VEC);
            LANES_UNROLL
            for (int j = 0; j < J; j++) {
                vec factor = vec_all(w[j * w_j]);
                LANES_UNROLL
                for (int t = 0; t < T; t++)
                    sum[j][t] = vec_fma(factor, in[t], sum[j][t]);
            }
        }
    }
    LANES_UNROLL
    for (int j = 0; j < J; j++) {
        LANES_UNROLL
        for (int t = 0; t < T; t++) {
            float *to = out + j * 16 + t / LANES_PARTS * out_group + t % LANES_PARTS * LANES_VEC;
            vec v = add ? vec_load(to) + sum[j][t] : sum[j][t];
            vec_store(to, relu ? vec_relu(v) : v);
        }
    }
}

/* J rows of sums from `count` of them, and how many that were. */
LANES_INLINE int lanes_dense_rows(const lanes_dense *d, const int apart, int count,
                                  const int groups)
{
    if (count >= LANES_DENSE_J) {
        lanes_dense_tile(d, apart, LANES_DENSE_J, groups);
        return LANES_DENSE_J;
    }
    if (count >= 4) {
        lanes_dense_tile(d, apart, 4, groups);
        return 4;
    }
    lanes_dense_tile(d, apart, 1, groups);
    return 1;
}

/* The same of one group, or of as many as a tile has. */
LANES_INLINE int lanes_dense_of(const lanes_dense *d, const int apart, int count, int groups)
{
#if LANES_DENSE_GROUPS > 1
    if (groups > 1)
        return lanes_dense_rows(d, apart, count, LANES_DENSE_GROUPS);
#endif
    (void)groups;
    return lanes_dense_rows(d, apart, count, 1);
}

/* J outputs, J inputs. */
static int lanes_dense_outs(const lanes_dense *d, int count, int groups)
{
    return lanes_dense_of(d, 0, count, groups);
}

static int lanes_dense_ins(const lanes_dense *d, int count, int groups)
{
    return lanes_dense_of(d, 1, count, groups);
}

static inline int lanes_dense_together(int left)
{
    return left < LANES_DENSE_GROUPS ? left : LANES_DENSE_GROUPS;
}

LANES_INLINE int lanes_sixteens(int n)
{
    return (n + 15) / 16;
}

/* Adds the share of inputs first … first + n − 1 to sixteen outputs (or the last few) of all groups. */
static void lanes_dense_outputs(const ls_lanes_dense *l, int o, int first, int n, const float *x,
                                const float *w, const float *b, int relu, float *y)
{
    const int many = l->out - o < 16 ? l->out - o : 16;
    lanes_dense d = {
        .n = {1, n},
        .x_group = (ptrdiff_t)l->in * 16,
        .out_group = (ptrdiff_t)l->out * 16,
        .add = first > 0,
        .relu = relu && first + n == l->in,
    };
    for (int g = 0, together; g < l->groups; g += together) {
        together = lanes_dense_together(l->groups - g);
        for (int j = 0, done; j < many; j += done) {
            d.w = w + ((ptrdiff_t)(o / 16) * l->in + first) * 16 + j;
            d.x = x + ((ptrdiff_t)g * l->in + first) * 16;
            d.first = b && first == 0 ? b + o + j : NULL;
            d.out = y + ((ptrdiff_t)g * l->out + o + j) * 16;
            done = lanes_dense_outs(&d, many - j, together);
        }
    }
}

/* Asks for the weights of `n` inputs from `first` on to sixteen outputs: a piece too short to be foreseen. */
LANES_INLINE void lanes_dense_ask(const ls_lanes_dense *l, const float *w, int s, int first, int n)
{
    const float *line = w + ((ptrdiff_t)s * l->in + first) * 16;
    for (int i = 0; i < n; i++)
        __builtin_prefetch(line + i * 16);
}

static void lanes_dense_forward(const ls_lanes_dense *l, const float *x, const float *w,
                                const float *b, int relu, float *y)
{
    for (int first = 0; first < l->in; first += LANES_DENSE_INPUTS) {
        int n = l->in - first < LANES_DENSE_INPUTS ? l->in - first : LANES_DENSE_INPUTS;
        for (int s = l->from; s < l->to; s++) {
            if (s + 1 < l->to)
                lanes_dense_ask(l, w, s + 1, first, n);
            lanes_dense_outputs(l, s * 16, first, n, x, w, b, relu, y);
        }
    }
}

static void lanes_dense_grad(const ls_lanes_dense *l, const float *dy, const float *y, float *dz,
                             float *dzt)
{
    const int padded = lanes_sixteens(l->out) * 16;
    for (int g = 0; g < l->groups; g++) {
        for (int o = 0; o < padded; o++) {
            const ptrdiff_t from = ((ptrdiff_t)g * l->out + o) * 16;
            float *to = dz + ((ptrdiff_t)g * padded + o) * 16;
            for (int part = 0; part < 16; part += LANES_VEC) {
                vec v = o < l->out ? vec_load(dy + from + part) : (vec){0};
                if (y && o < l->out)
                    v = vec_where_positive(vec_load(y + from + part), v);
                vec_store(to + part, v);
            }
        }
        for (int o = 0; o < padded; o += 16)
            lanes_panel(dzt + ((ptrdiff_t)(o / 16) * l->groups + g) * 256,
                        dz + ((ptrdiff_t)g * padded + o) * 16, 16, 16, 1, 0);
    }
}

static void lanes_dense_bias(const ls_lanes_dense *l, const float *dzt, float *gb, int add)
{
    for (int s = l->from; s < l->to; s++)
        for (int g = 0; g < l->groups; g += LS_LANES_BLOCK_GROUPS)
            for (int part = 0; part < 16; part += LANES_VEC) {
                const float *d = dzt + ((ptrdiff_t)s * l->groups + g) * 256 + part;
                float *to = gb + s * 16 + part;
                vec sum = {0};
                for (int r = 0; r < ls_lanes_block(l->groups, g) * 16; r++)
                    sum += vec_load(d + (ptrdiff_t)r * 16);
                vec_store(to, add || g > 0 ? vec_load(to) + sum : sum);
            }
}

/* All blocks of a tile, one after another, so that gradients are written once. */
static void lanes_dense_weights(const ls_lanes_dense *l, const float *x, const float *dzt,
                                float *gw, float *gb, int add)
{
    lanes_dense d = {
        .w_step = (ptrdiff_t)l->in * 16,
        .x_step = 256,
        .x_group = (ptrdiff_t)l->groups * 256,
        .out_group = (ptrdiff_t)l->in * 16,
    };
    for (int s = l->from, together; s < l->to; s += together) {
        together = lanes_dense_together(l->to - s);
        for (int i = 0, done = 0; i < l->in; i += done) {
            d.out = gw + ((ptrdiff_t)s * l->in + i) * 16;
            for (int line = LANES_DENSE_AHEAD; line < LANES_DENSE_AHEAD + LANES_DENSE_J; line++)
                for (int t = 0; t < together; t++)
                    __builtin_prefetch(d.out + line * 16 + t * d.out_group, 1);
            for (int g = 0; g < l->groups; g += LS_LANES_BLOCK_GROUPS) {
                d.n[0] = ls_lanes_block(l->groups, g);
                d.n[1] = 16;
                d.w = x + ((ptrdiff_t)g * l->in + i) * 16;
                d.x = dzt + ((ptrdiff_t)s * l->groups + g) * 256;
                d.add = add || g > 0;
                done = lanes_dense_ins(&d, l->in - i, together);
            }
        }
    }
    if (gb)
        lanes_dense_bias(l, dzt, gb, add);
}

static void lanes_dense_data(const ls_lanes_dense *l, const float *dz, const float *w, float *dx)
{
    const int sixteens = lanes_sixteens(l->out), end = l->to * 16 < l->in ? l->to * 16 : l->in;
    for (int s = 0; s < sixteens; s += LANES_DENSE_SIXTEENS) {
        lanes_dense d = {
            .n = {sixteens - s < LANES_DENSE_SIXTEENS ? sixteens - s : LANES_DENSE_SIXTEENS, 16},
            .w_step = (ptrdiff_t)l->in * 16,
            .x_step = 256,
            .x_group = (ptrdiff_t)sixteens * 256,
            .out_group = (ptrdiff_t)l->in * 16,
            .add = s > 0,
        };
        for (int i = l->from * 16, done = 1; i < end; i += done) {
            for (int g = 0, together; g < l->groups; g += together) {
                together = lanes_dense_together(l->groups - g);
                d.w = w + ((ptrdiff_t)s * l->in + i) * 16;
                d.x = dz + ((ptrdiff_t)g * sixteens + s) * 256;
                d.out = dx + ((ptrdiff_t)g * l->in + i) * 16;
                done = lanes_dense_ins(&d, end - i, together);
            }
        }
    }
}

#endif
