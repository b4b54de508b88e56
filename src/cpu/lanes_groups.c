/* Grouped convolution (ls_conv2d.groups), and the choice of the op for any convolution. In this
 * file a group is a group of channels. (In the other files a group is sixteen rows, that is
 * examples. base.groups is the number of groups in that sense.) Each group is a convolution of its
 * own. One inner op for sixteen rows computes all groups, one after another: before each group its
 * buffers are set to the channels and parameters of that group. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/few.h"

#include <string.h>

typedef struct groups_op {
    ls_lanes_op base; /* base; must be first */
    ls_op *one;       /* the op of one group */
    int groups;
    ls_tensor whole; /* shape of x, for a batch of one to eight rows (few.h) */
    size_t x, y;     /* floats of sixteen rows of one group's channels, in x and in y */
    /* step from the parameter of one group to that of the next group: whole cache lines */
    size_t param[LS_OP_PARAMS];
    size_t canonical[LS_OP_PARAMS]; /* the same step in the canonical order of files */
} groups_op;

/* ---- run ------------------------------------------------------------------------------------- */

static void *at(const void *floats, size_t offset)
{
    return floats ? (float *)floats + offset : NULL;
}

/* Sets the buffers of the inner op to group `group` of the sixteen rows number `rows`. */
static int bind_to(const groups_op *op, int rows, int group, ls_error *err)
{
    ls_op_buffers b = op->base.b;
    const size_t part = (size_t)rows * (size_t)op->groups + (size_t)group;
    b.x = at(b.x, part * op->x);
    b.y = at(b.y, part * op->y);
    b.dx = at(b.dx, part * op->x);
    b.dy = at(b.dy, part * op->y);
    b.saved = op->one->saved_bytes ? (char *)b.saved + part * op->one->saved_bytes : NULL;
    for (int i = 0; i < op->one->params; i++) {
        b.param[i] = at(b.param[i], (size_t)group * op->param[i]);
        b.grad[i] = at(b.grad[i], (size_t)group * op->param[i]);
    }
    return op->one->impl->bind(op->one, &b, err);
}

typedef int pass_fn(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);

/* Runs a pass for all groups, with one call for each sixteen rows. `later`: flags that are added in
 * each group's calls after its first call. */
static int run_groups(const groups_op *op, pass_fn *pass, ls_stream *stream, unsigned flags,
                      unsigned later, ls_error *err)
{
    int status = LS_OK;
    for (int group = 0; group < op->groups; group++)
        for (int rows = 0; rows < op->base.groups && status == LS_OK; rows++) {
            status = bind_to(op, rows, group, err);
            if (status == LS_OK)
                status = pass(op->one, stream, rows ? flags | later : flags, err);
        }
    return status;
}

/* Forward of few rows, which are stored one after another (few.h): computes one row and one group
 * at a time. */
static void forward_few(ls_lanes_op *base)
{
    const groups_op *op = (const groups_op *)base;
    const ls_tensor *y = &base->op.y, *x = &op->whole;
    const size_t in = (size_t)(x->c / op->groups) * ls_few_plane(x);
    const size_t out = (size_t)(y->c / op->groups) * ls_few_plane(y);
    ls_lanes_op *one = (ls_lanes_op *)op->one;
    for (size_t r = 0; r < (size_t)y->rows; r++)
        for (size_t g = 0; g < (size_t)op->groups; g++) {
            one->b = base->b;
            one->b.x = at(base->b.x, r * ls_few_row(x) + g * in);
            one->b.y = at(base->b.y, r * ls_few_row(y) + g * out);
            for (int i = 0; i < op->one->params; i++)
                one->b.param[i] = at(base->b.param[i], g * op->param[i]);
            one->few(one);
        }
}

static int groups_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const groups_op *op = (groups_op *)base;
    return run_groups(op, op->one->impl->forward, stream, flags, 0, err);
}

/* Clears the padding between the gradients of two groups' parameters. */
static void clear_ends(const groups_op *op)
{
    for (int i = 0; i < op->one->params; i++)
        for (int group = 0; group < op->groups; group++)
            memset((float *)op->base.b.grad[i] + (size_t)group * op->param[i] +
                       op->one->param_floats[i],
                   0, (op->param[i] - op->one->param_floats[i]) * sizeof(float));
}

static int groups_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const groups_op *op = (groups_op *)base;
    if (!(flags & LS_RUN_ACCUMULATE))
        clear_ends(op);
    return run_groups(op, op->one->impl->backward, stream, flags, LS_RUN_ACCUMULATE, err);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int groups_import(ls_op *base, int index, void *dst, const float *src, ls_error *err)
{
    const groups_op *op = (groups_op *)base;
    if (index < 0 || index >= base->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    memset(dst, 0, base->param_floats[index] * sizeof(float));
    int status = LS_OK;
    for (size_t g = 0; g < (size_t)op->groups && status == LS_OK; g++)
        status = op->one->impl->import_param(op->one, index, (float *)dst + g * op->param[index],
                                             src + g * op->canonical[index], err);
    return status;
}

static int groups_export(ls_op *base, int index, float *dst, const void *src, ls_error *err)
{
    const groups_op *op = (groups_op *)base;
    if (index < 0 || index >= base->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    int status = LS_OK;
    for (size_t g = 0; g < (size_t)op->groups && status == LS_OK; g++)
        status = op->one->impl->export_param(op->one, index, dst + g * op->canonical[index],
                                             (const float *)src + g * op->param[index], err);
    return status;
}

/* ---- creation -------------------------------------------------------------------------------- */

static void groups_destroy(ls_op *base)
{
    groups_op *op = (groups_op *)base;
    if (op && op->one)
        op->one->impl->destroy(op->one);
    ls_lanes_op_destroy(base);
}

static const ls_op_impl groups_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = groups_forward,
    .backward = groups_backward,
    .import_param = groups_import,
    .export_param = groups_export,
    .destroy = groups_destroy,
};

static int create_one(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_op_desc one = *desc;
    one.x.rows = ls_few_wanted(desc) ? 1 : LS_LANES;
    one.x.c /= desc->u.conv2d.groups;
    one.x = ls_lanes_tensor(&one.x);
    one.twin = NULL;
    one.u.conv2d.out /= desc->u.conv2d.groups;
    one.u.conv2d.groups = 1;
    return ls_lanes_conv_create(out, device, &one, err);
}

static void set_sizes(groups_op *op, const ls_op_desc *desc)
{
    const ls_conv2d *k = &desc->u.conv2d;
    const size_t groups = (size_t)k->groups, in = (size_t)desc->x.c / groups;
    const size_t out = (size_t)k->out / groups;
    ls_op *o = &op->base.op;
    op->groups = k->groups;
    op->x = in * (size_t)desc->x.h * (size_t)desc->x.w * LS_LANES;
    op->y = op->one->y.bytes / sizeof(float);
    op->canonical[0] = out * in * (size_t)k->kh * (size_t)k->kw;
    op->canonical[1] = out;
    o->params = op->one->params;
    for (int i = 0; i < o->params; i++) {
        op->param[i] = (op->one->param_floats[i] + LS_LANES - 1) / LS_LANES * LS_LANES;
        o->param_floats[i] = groups * op->param[i];
    }
    o->saved_bytes = (size_t)op->base.groups * groups * op->one->saved_bytes;
    o->scratch_bytes = op->one->scratch_bytes;
    o->kept_bytes = op->one->kept_bytes;
}

static int groups_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d *k = &desc->u.conv2d;
    ls_lanes_op *base;
    if (k->groups < 1 || k->out < 1 || desc->x.c % k->groups || k->out % k->groups)
        return ls_fail(err, LS_EINVAL, "conv2d: %d groups of %d channels to %d", k->groups,
                       desc->x.c, k->out);
    int status = ls_lanes_op_new(&base, sizeof(groups_op), &groups_impl, device, desc, err);
    if (status)
        return status;
    groups_op *op = (groups_op *)base;
    status = create_one(&op->one, device, desc, err);
    if (status) {
        groups_destroy(&base->op);
        return status;
    }
    set_sizes(op, desc);
    ls_lanes_op_set_y(base, k->out, op->one->y.h, op->one->y.w);
    if (ls_few_wanted(desc)) {
        op->whole = desc->x;
        base->few = forward_few;
        base->few_scratch = ((ls_lanes_op *)op->one)->few_scratch;
    }
    return ls_lanes_op_finish(out, base, desc, err);
}

int ls_cpu_conv_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    if (ls_lanes_is_depthwise(desc))
        return ls_lanes_depth_create(out, device, desc, err);
    if (ls_conv2d_filled(desc->u.conv2d).groups != 1)
        return groups_create(out, device, desc, err);
    return ls_lanes_conv_create(out, device, desc, err);
}
