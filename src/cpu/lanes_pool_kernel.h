/* Pooling and the loss; see lanes_kernels.h. */
#ifndef CPU_LANES_POOL_KERNEL_H
#define CPU_LANES_POOL_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_vec.h"

#include <math.h>
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

LANES_INLINE void lanes_inside(int top, int kernel, int size, int *from, int *to)
{
    *from = top < 0 ? -top : 0;
    *to = size - top < kernel ? size - top : kernel;
    if (*to < *from)
        *to = *from;
}

LANES_INLINE lanes_window lanes_window_at(const ls_lanes_pool *p, int oy, int ox)
{
    lanes_window w;
    int top = oy * p->p.sh - p->p.ph, left = ox * p->p.sw - p->p.pw;
    lanes_inside(top, p->p.kh, p->ih, &w.y0, &w.y1);
    lanes_inside(left, p->p.kw, p->iw, &w.x0, &w.x1);
    w.corner = ((ptrdiff_t)top * p->iw + left) * 16;
    return w;
}

LANES_INLINE vec lanes_window_average(const ls_lanes_pool *p, lanes_window w, const float *x)
{
    vec sum = {0};
    for (int ky = w.y0; ky < w.y1; ky++)
        for (int kx = w.x0; kx < w.x1; kx++)
            sum += vec_load(x + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16);
    int count = (w.y1 - w.y0) * (w.x1 - w.x0);
    return sum * (1.0f / (float)(count ? count : 1));
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

LANES_INLINE void lanes_spread_average(const ls_lanes_pool *p, lanes_window w, vec dy, float *dx)
{
    int count = (w.y1 - w.y0) * (w.x1 - w.x0);
    vec share = dy * (1.0f / (float)(count ? count : 1));
    for (int ky = w.y0; ky < w.y1; ky++) {
        for (int kx = w.x0; kx < w.x1; kx++) {
            float *to = dx + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16;
            vec_store(to, vec_load(to) + share);
        }
    }
}

LANES_INLINE void lanes_spread_max(const ls_lanes_pool *p, lanes_window w, vec dy,
                                   const uint16_t *which, float *dx)
{
    ivec at = __builtin_convertvector(*(const lanes_short_memory *)which, ivec);
    for (int ky = w.y0; ky < w.y1; ky++) {
        for (int kx = w.x0; kx < w.x1; kx++) {
            float *to = dx + w.corner + ((ptrdiff_t)ky * p->iw + kx) * 16;
            ivec here = at == (ky * p->p.kw + kx - (ivec){0});
            vec_store(to, vec_load(to) + vec_select(here, dy, (vec){0}));
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
                        lanes_spread_max(p, w, vec_load(dy + lane), which + lane, dx + lane);
                    else
                        lanes_spread_average(p, w, vec_load(dy + lane), dx + lane);
                }
                dy += 16;
                which = which ? which + 16 : NULL;
            }
        }
        dx += plane;
    }
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* Softmax with cross-entropy: one row per lane, so that maxima and sums over the classes are
 * element-wise. */

/* e^x for x ≤ 0, relative error below 2e-7; smaller results than e^-87 become that, NaN stays.
 * x = n·ln 2 + r with |r| ≤ ln 2 / 2, ln 2 in two pieces so that r is exact; e^r is its Taylor
 * polynomial of degree 7. */
LANES_INLINE vec vec_exp(vec x)
{
    const vec shift = vec_all(12582912.0f); /* 1.5 · 2^23: adding it rounds to an integer */
    x = vec_select(x < -87.0f, vec_all(-87.0f), x);
    vec t = vec_fma(x, vec_all(1.44269504f), shift);
    vec n = t - shift;
    vec r = vec_fma(n, vec_all(-0.693359375f), x);
    r = vec_fma(n, vec_all(2.12194440e-4f), r);
    vec p = vec_all(1.0f / 5040);
    p = vec_fma(p, r, vec_all(1.0f / 720));
    p = vec_fma(p, r, vec_all(1.0f / 120));
    p = vec_fma(p, r, vec_all(1.0f / 24));
    p = vec_fma(p, r, vec_all(1.0f / 6));
    p = vec_fma(p, r, vec_all(0.5f));
    p = vec_fma(p, r, vec_all(1.0f));
    p = vec_fma(p, r, vec_all(1.0f));
    ivec power = (((ivec)t - (ivec)shift) + 127) << 23;
    return p * (vec)power;
}

LANES_INLINE ivec ivec_all(int value)
{
    return value - (ivec){0};
}

/* The labels of the lanes from `lane` on; −1, which is no class, beyond `rows`. */
LANES_INLINE ivec lanes_labels(const int32_t *labels, int lane, int rows)
{
    ivec label;
    for (int i = 0; i < LANES_VEC; i++)
        label[i] = lane + i < rows ? labels[lane + i] : -1;
    return label;
}

/* The largest logit of each lane, and in `best` its class: the first of equal ones. */
LANES_INLINE vec lanes_largest(int classes, const float *x, ivec *best)
{
    vec top = vec_load(x);
    *best = (ivec){0};
    for (int k = 1; k < classes; k++) {
        vec v = vec_load(x + k * 16);
        ivec better = v > top;
        *best = (ivec_all(k) & better) | (*best & ~better);
        top = vec_select(better, v, top);
    }
    return top;
}

/* The label's gradient is p − 1 = −(the other classes' share), which is computed as such: close to
 * p = 1 the difference would have no digits left. */
static void lanes_loss_part(int classes, int rows, int lane, const float *x, const int32_t *labels,
                            float *dx, float *loss, float *correct)
{
    const ivec label = lanes_labels(labels, lane, rows);
    ivec best;
    const vec top = lanes_largest(classes, x, &best);
    vec others = {0}, own = {0}, logit = {0};
    for (int k = 0; k < classes; k++) {
        vec z = vec_load(x + k * 16), e = vec_exp(z - top);
        ivec is_label = label == ivec_all(k);
        others += vec_select(is_label, (vec){0}, e);
        own = vec_select(is_label, e, own);
        logit = vec_select(is_label, z, logit);
    }
    const vec sum = own + others, inverse = 1.0f / sum;
    for (int i = 0; i < LANES_VEC && lane + i < rows; i++) {
        loss[i] += logf(sum[i]) - (logit[i] - top[i]);
        correct[i] += best[i] == label[i] ? 1.0f : 0.0f;
    }
    for (int k = 0; dx && k < classes; k++) {
        vec p = vec_exp(vec_load(x + k * 16) - top) * inverse;
        p = vec_select(label == ivec_all(k), -(others * inverse), p);
        vec_store(dx + k * 16, vec_select(label >= 0, p, (vec){0}));
    }
}

static void lanes_loss(int classes, int rows, const float *x, const int32_t *labels, float *dx,
                       float *loss, float *correct)
{
    for (int lane = 0; lane < 16; lane += LANES_VEC)
        lanes_loss_part(classes, rows, lane, x + lane, labels, dx ? dx + lane : NULL, loss + lane,
                        correct + lane);
}

#endif
