/* How a convolution's parameters lie in lanes ops; see lanes_kernels.h. */
#include "cpu/lanes_conv.h"

#include "base/error.h"

#include <string.h>

static size_t ceil_to(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t ls_lanes_conv_weight_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->oc, LS_LANES_OC) * (size_t)c->ic * (size_t)c->kh * (size_t)c->kw;
}

size_t ls_lanes_conv_bias_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->oc, LS_LANES_OC);
}

/* Where weight (o, i, e) lies, e counting kernel elements. */
static size_t place(const ls_lanes_conv *c, int o, int i, int e)
{
    size_t block = (size_t)(o / LS_LANES_OC) * (size_t)c->ic + (size_t)i;
    return (block * (size_t)(c->kh * c->kw) + (size_t)e) * LS_LANES_OC + (size_t)(o % LS_LANES_OC);
}

int ls_lanes_conv_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    const ls_lanes_conv *c = &((const ls_lanes_conv_op *)op)->conv;
    float *to = dst;
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    memset(to, 0, op->param_floats[index] * sizeof *to);
    if (index == 1) {
        memcpy(to, src, (size_t)c->oc * sizeof *to);
        return LS_OK;
    }
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++)
            for (int e = 0; e < c->kh * c->kw; e++)
                to[place(c, o, i, e)] = *src++;
    return LS_OK;
}

int ls_lanes_conv_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    const ls_lanes_conv *c = &((const ls_lanes_conv_op *)op)->conv;
    const float *from = src;
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    if (index == 1) {
        memcpy(dst, from, (size_t)c->oc * sizeof *dst);
        return LS_OK;
    }
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++)
            for (int e = 0; e < c->kh * c->kw; e++)
                *dst++ = from[place(c, o, i, e)];
    return LS_OK;
}

size_t ls_lanes_conv_packed_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->ic, LS_LANES_IC) * (size_t)c->oc * (size_t)c->kh * (size_t)c->kw;
}

/* Both sides are walked in runs: eight output channels are adjacent in `w`, four input channels
 * in `packed`. Places of input channels beyond the last are never read. */
void ls_lanes_conv_pack(const ls_lanes_conv *c, const float *w, float *packed)
{
    const int elements = c->kh * c->kw;
    for (int i = 0; i < c->ic; i++) {
        float *to = packed +
                    (size_t)(i / LS_LANES_IC) * (size_t)elements * (size_t)c->oc * LS_LANES_IC +
                    i % LS_LANES_IC;
        for (int o = 0; o < c->oc; o += LS_LANES_OC) {
            const float *from = w + place(c, o, i, 0);
            int n = c->oc - o < LS_LANES_OC ? c->oc - o : LS_LANES_OC;
            for (int e = 0; e < elements; e++)
                for (int j = 0; j < n; j++)
                    to[((size_t)e * (size_t)c->oc + (size_t)(o + j)) * LS_LANES_IC] =
                        from[e * LS_LANES_OC + j];
        }
    }
}
