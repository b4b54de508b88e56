/* The loss; see lanes_kernels.h. One row a lane, so that maxima and sums over the classes go element by
 * element. */
#ifndef CPU_LANES_LOSS_KERNEL_H
#define CPU_LANES_LOSS_KERNEL_H

#include "cpu/lanes_kernels.h"
#include "cpu/lanes_math.h"

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
        vec v = vec_load(x + (ptrdiff_t)k * 16);
        ivec better = v > top;
        *best = (ivec_all(k) & better) | (*best & ~better);
        top = vec_select(better, v, top);
    }
    return top;
}

/* What a row's softmax is made of; e = exp(z − top), the sums over classes in double. */
typedef struct lanes_softmax {
    vec top;
    vec own, others; /* e of the label, and the sum of the others' */
    vec logit, drop; /* z of the label, and the sum of all top − z */
} lanes_softmax;

/* Σ (top − z) is needed for smoothing alone. */
LANES_INLINE lanes_softmax lanes_softmax_of(int classes, ivec label, vec top, const float *x,
                                            const int smooth)
{
    lanes_softmax s = {top, {0}, {0}, {0}, {0}};
    vec_wide others = {{0}, {0}}, drop = {{0}, {0}};
    for (int k = 0; k < classes;) {
        int end = classes - k < LANES_FEW ? classes : k + LANES_FEW;
        vec few = {0}, few_drop = {0};
        for (; k < end; k++) {
            vec z = vec_load(x + (ptrdiff_t)k * 16), e = vec_exp(z - top);
            ivec is_label = label == ivec_all(k);
            few += vec_select(is_label, (vec){0}, e);
            few_drop += smooth ? top - z : (vec){0};
            s.own = vec_select(is_label, e, s.own);
            s.logit = vec_select(is_label, z, s.logit);
        }
        vec_wide_add(&others, few);
        vec_wide_add(&drop, few_drop);
    }
    s.others = vec_narrow(&others);
    s.drop = vec_narrow(&drop);
    return s;
}

/* The label's gradient is p − 1 = −(the other classes' share), which is computed as such: close to
 * p = 1 the difference would have no digits left. */
LANES_INLINE void lanes_loss_dx(int classes, ivec label, float smoothing, const lanes_softmax *s,
                                const float *x, float *dx)
{
    const vec inverse = 1.0f / (s->own + s->others);
    const float everywhere = smoothing / (float)classes;
    const vec at_label = (smoothing - everywhere) - s->others * inverse;
    for (int k = 0; k < classes; k++) {
        vec p = vec_exp(vec_load(x + (ptrdiff_t)k * 16) - s->top) * inverse - everywhere;
        p = vec_select(label == ivec_all(k), at_label, p);
        vec_store(dx + (ptrdiff_t)k * 16, vec_select(label >= 0, p, (vec){0}));
    }
}

static void lanes_loss_part(int classes, int rows, float smoothing, int lane, const float *x,
                            const int32_t *labels, float *dx, float *loss, float *correct)
{
    const ivec label = lanes_labels(labels, lane, rows);
    ivec best;
    const vec top = lanes_largest(classes, x, &best);
    const lanes_softmax s = smoothing == 0 ? lanes_softmax_of(classes, label, top, x, 0)
                                           : lanes_softmax_of(classes, label, top, x, 1);
    vec far = top - s.logit;
    if (smoothing != 0) /* (1 − q)·(top − z) of the label, and q / classes of each */
        far = vec_fma(s.drop, vec_all(smoothing / (float)classes), far * (1.0f - smoothing));
    const vec value = vec_log(s.own + s.others) + far;
    for (int i = 0; i < LANES_VEC; i++) {
        loss[i] = lane + i < rows ? value[i] : 0;
        correct[i] = best[i] == label[i] ? 1.0f : 0.0f;
    }
    if (dx)
        lanes_loss_dx(classes, label, smoothing, &s, x, dx);
}

static void lanes_loss(int classes, int rows, float smoothing, const float *x,
                       const int32_t *labels, float *dx, float *loss, float *correct)
{
    for (int lane = 0; lane < 16; lane += LANES_VEC)
        lanes_loss_part(classes, rows, smoothing, lane, x + lane, labels, dx ? dx + lane : NULL,
                        loss + lane, correct + lane);
}

#endif
