/* Products over rows, as gradients of weights need them.
 *
 * A gradient sums over pixels and rows: over lanes. Instead of a sum for each lane, and then one over
 * lanes, the gradient of the output is turned around first: a *panel* has sixteen outputs side by side,
 * [pixel][lane][16], and x, a scalar after the other, is multiplied with them. Of the turned ones there
 * are few, and each is read for every input and tap.
 */
#ifndef CPU_LANES_PANEL_KERNEL_H
#define CPU_LANES_PANEL_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_tile_kernel.h"

/* ---- panels ---------------------------------------------------------------------------------- */

/* Eight floats in memory, or as many of them as a register holds. */
typedef float lanes_eight
    __attribute__((vector_size(LANES_VEC > 8 ? 32 : LANES_VEC * 4), may_alias));

/* Exchanges bit s of a lane's number with that of its vector's. */
#define LANES_EXCHANGE(v, s)                                                                       \
    LANES_UNROLL                                                                                   \
    for (int i = 0; i < LANES_VEC; i++) {                                                          \
        if (i & (s))                                                                               \
            continue;                                                                              \
        vec near = VEC_NEAR((v)[i], (v)[i + (s)], s);                                              \
        (v)[i + (s)] = VEC_FAR((v)[i], (v)[i + (s)], s);                                           \
        (v)[i] = near;                                                                             \
    }

/* LANES_VEC rows of as many columns. */
LANES_INLINE void lanes_turn(vec *v)
{
    LANES_EXCHANGE(v, 1)
    LANES_EXCHANGE(v, 2)
#if LANES_VEC >= 8
    LANES_EXCHANGE(v, 4)
#endif
#if LANES_VEC >= 16
    LANES_EXCHANGE(v, 8)
#endif
}

/* panel[pixel][lane][16] ← d[output][pixel][lane] of `n` ≤ 16 outputs `step` floats apart, zeros beyond, whose
 * pixels are `pixel` apart. */
static void lanes_panel(float *panel, const float *d, int n, size_t step, int pixels, size_t pixel)
{
    for (int p = 0; p < pixels; p++, panel += 256, d += pixel)
        for (int lane = 0; lane < 16; lane += LANES_VEC)
            for (int o = 0; o < 16; o += LANES_VEC) {
                vec v[LANES_VEC];
                LANES_UNROLL
                for (int i = 0; i < LANES_VEC; i++)
                    v[i] = o + i < n ? vec_load(d + (size_t)(o + i) * step + lane) : (vec){0};
                lanes_turn(v);
                LANES_UNROLL
                for (int i = 0; i < LANES_VEC; i++)
                    vec_store(panel + (lane + i) * 16 + o, v[i]);
            }
}

/* Sixteen outputs to where weights lie, in two eights `apart` floats apart, those that exist. */
LANES_INLINE void lanes_put_sixteen(float *to, ptrdiff_t apart, const float *from, int outputs,
                                    int add)
{
    const int step = sizeof(lanes_eight) / sizeof(float);
    for (int eight = 0; eight < outputs && eight < 16; eight += 8, to += apart, from += 8)
        for (int i = 0; i < 8; i += step) {
            lanes_eight *p = (lanes_eight *)(to + i), v = *(const lanes_eight *)(from + i);
            if (add)
                v += *p;
            *p = v;
        }
}

#endif
