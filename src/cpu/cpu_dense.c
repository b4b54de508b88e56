/* The dense layer by oneDNN's inner product. x keeps its image shape, so that flattening in
 * c, h, w order is a matter of the weights' layout and x is not converted; y is plain. */
#include "cpu/cpu_head.h"
#include "cpu/cpu_linear.h"

#include "base/error.h"

static int make_dense(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc, ls_pass pass,
                      const ls_linear_mds *mds, ls_pd hint, ls_error *err)
{
    int relu = desc->fuse_relu && pass == LS_PASS_FORWARD;
    return ls_pd_dense(out, device, pass, mds, relu, hint, err);
}

int ls_cpu_dense_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    static const ls_linear_candidate candidates[] = {
        {LS_MD_ANY, LS_MD_PLAIN, 1, 0},
        {LS_MD_ANY, LS_MD_PLAIN, 0, 0},
        {LS_MD_PLAIN, LS_MD_PLAIN, 0, 0},
    };
    const ls_tensor *x = &desc->x;
    const ls_dense *k = &desc->u.dense;
    int y[2] = {x->rows, k->out};
    *out = NULL;
    if (k->out < 1)
        return ls_fail(err, LS_EINVAL, "dense: %d outputs; at least 1 is needed", k->out);
    ls_linear l = {.name = "dense", .make = make_dense, .candidates = candidates, .count = 3};
    l.c = k->out;
    l.h = l.w = 1;
    l.plain.x = ls_md_image(x->rows, x->c, x->h, x->w, LS_MD_PLAIN);
    l.plain.weight = ls_md_image(k->out, x->c, x->h, x->w, LS_MD_PLAIN);
    l.plain.bias = ls_md_make(1, &k->out, LS_MD_PLAIN);
    l.plain.y = ls_md_make(2, y, LS_MD_PLAIN);
    l.plain.has_bias = k->bias != 0;
    l.head = k->out <= LS_HEAD_OUTPUTS && !desc->fuse_relu;
    return ls_cpu_linear_create(out, device, desc, &l, err);
}
