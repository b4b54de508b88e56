/* Pooling; see lanes_kernels.h. */
#ifndef CPU_LANES_POOL_KERNEL_H
#define CPU_LANES_POOL_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#include <string.h>

/* ---- pooling --------------------------------------------------------------------------------- */

/* Pooling on its own: any window, stride and padding, sixteen rows at a time.
 *
 * An average divides by the pixels of the window that lie inside the image. Of equal maxima the
 * first wins; NaN wins over everything, so that it is not lost.
 */

typedef uint16_t lanes_short __attribute__((vector_size(LANES_VEC * 2)));
typedef uint16_t lanes_short_memory __attribute__((vector_size(LANES_VEC * 2), may_alias));

/* The part of a window that lies inside the image. */
typedef struct lanes_window {
    int y0, y1, x0, x1; /* kernel rows and columns, end excluded */
    ptrdiff_t corner;   /* offset of kernel element (0, 0), in floats; may be outside */
} lanes_window;

LANES_INLINE lanes_window lanes_window_at(const ls_lanes_pool *p, int oy, int ox)
{
    lanes_window w;
    int top = oy * p->p.sh - p->p.ph, left = ox * p->p.sw - p->p.pw;
    ls_lanes_taps_inside(top, p->p.kh, 1, p->ih, &w.y0, &w.y1);
    ls_lanes_taps_inside(left, p->p.kw, 1, p->iw, &w.x0, &w.x1);
    w.corner = ((ptrdiff_t)top * p->iw + left) * 16;
    return w;
}

/* Of each pixel in the window's average. */
LANES_INLINE float lanes_window_share(lanes_window w)
{
    int count = (w.y1 - w.y0) * (w.x1 - w.x0);
    return 1.0f / (float)(count ? count : 1);
}

LANES_INLINE vec lanes_window_average(const ls_lanes_pool *p, lanes_window w, const float *x)
{
    vec sum = {0};
    for (int ky = w.y0; ky < w.y1; ky++)
        for (int kx = w.x0; kx < w.x1; kx++)
            sum += vec_load(x + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16);
    return sum * lanes_window_share(w);
}

LANES_INLINE vec lanes_window_max(const ls_lanes_pool *p, lanes_window w, const float *x,
                                  uint16_t *which)
{
    vec best = vec_all(-__builtin_inff());
    ivec at = {0};
    int first = 1;
    for (int ky = w.y0; ky < w.y1; ky++) {
        for (int kx = w.x0; kx < w.x1; kx++) {
            vec v = vec_load(x + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16);
            /* NaN wins, and stays. NOLINTNEXTLINE(misc-redundant-expression) */
            ivec better = first ? ~(ivec){0} : (v > best) | (v != v);
            ivec here = ky * p->p.kw + kx - (ivec){0};
            best = vec_select(better, v, best);
            at = (here & better) | (at & ~better);
            first = 0;
        }
    }
    if (which)
        *(lanes_short_memory *)which = __builtin_convertvector(at, lanes_short);
    return best;
}

static void lanes_pool_forward(const ls_lanes_pool *p, const float *x, float *y, uint16_t *which)
{
    for (int c = 0; c < p->c; c++) {
        for (int oy = 0; oy < p->oh; oy++) {
            for (int ox = 0; ox < p->ow; ox++) {
                lanes_window w = lanes_window_at(p, oy, ox);
                for (int lane = 0; lane < 16; lane += LANES_VEC)
                    vec_store(y + lane, p->p.max ? lanes_window_max(p, w, x + lane,
                                                                    which ? which + lane : NULL)
                                                 : lanes_window_average(p, w, x + lane));
                y += 16;
                which = which ? which + 16 : NULL;
            }
        }
        x += (ptrdiff_t)p->ih * p->iw * 16;
    }
}

/* To each pixel of a window its share, or all to the largest. `max` is constant in each call; which: NULL unless max. */
LANES_INLINE void lanes_spread(const ls_lanes_pool *p, lanes_window w, vec dy,
                               const uint16_t *which, float *dx, const int max)
{
    const vec share = max ? dy : dy * lanes_window_share(w);
    const ivec at =
        max ? __builtin_convertvector(*(const lanes_short_memory *)which, ivec) : (ivec){0};
    for (int ky = w.y0; ky < w.y1; ky++) {
        for (int kx = w.x0; kx < w.x1; kx++) {
            float *to = dx + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16;
            ivec here = at == (ky * p->p.kw + kx - (ivec){0});
            vec_store(to, vec_load(to) + (max ? vec_select(here, share, (vec){0}) : share));
        }
    }
}

static void lanes_pool_backward(const ls_lanes_pool *p, const float *dy, const uint16_t *which,
                                float *dx)
{
    ptrdiff_t plane = (ptrdiff_t)p->ih * p->iw * 16;
    memset(dx, 0, (size_t)p->c * (size_t)plane * sizeof *dx);
    for (int c = 0; c < p->c; c++) {
        for (int oy = 0; oy < p->oh; oy++) {
            for (int ox = 0; ox < p->ow; ox++) {
                lanes_window w = lanes_window_at(p, oy, ox);
                for (int lane = 0; lane < 16; lane += LANES_VEC) {
                    if (p->p.max)
                        lanes_spread(p, w, vec_load(dy + lane), which + lane, dx + lane, 1);
                    else
                        lanes_spread(p, w, vec_load(dy + lane), NULL, dx + lane, 0);
                }
                dy += 16;
                which = which ? which + 16 : NULL;
            }
        }
        dx += plane;
    }
}

#endif
