/* SPDX-License-Identifier: MIT */
/* Grouped convolution (ls_conv2d.groups), and the choice of the op for any convolution. Each group
 * of channels is a convolution of its own. One inner op for sixteen rows computes all groups, one
 * after another: before each group its buffers are set to the channels and parameters of that
 * group. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes_conv.h"

#include <string.h>

typedef struct groups_op {
    ls_lanes_op base; /* base; must be first */
    ls_op *one;       /* the op of one group */
    int groups;
    /* Few rows (few.h): the shape of x; the floats of the copies of x and y of one group and row;
     * and [groups] the pack of each group's weights, which belongs to this op or to its twin. */
    ls_tensor whole;
    size_t few_x, few_y;
    ls_kept *own, *kept;
    size_t x, y; /* floats of sixteen rows of one group's channels, in x and in y */
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
        for (int rows = 0; rows < op->base.packets && status == LS_OK; rows++) {
            status = bind_to(op, rows, group, err);
            if (status == LS_OK)
                status = pass(op->one, stream, rows ? flags | later : flags, err);
        }
    return status;
}

/* Copies `channels` channels of a row, in the layout `few` (few.h), from channel `from_first` of
 * `from` on to channel `to_first` of `to` on. `pixels`: number of pixels of a channel. */
static void copy_channels(float *to, size_t to_first, const float *from, size_t from_first,
                          size_t channels, size_t pixels)
{
    for (size_t c = 0; c < channels; c++) {
        const size_t a = from_first + c, b = to_first + c;
        const float *x = from + a / LS_LANES * pixels * LS_LANES + a % LS_LANES;
        float *y = to + b / LS_LANES * pixels * LS_LANES + b % LS_LANES;
        for (size_t i = 0; i < pixels * LS_LANES; i += LS_LANES)
            y[i] = x[i];
    }
}

/* Computes one row and one group of channels. x and y are used in place if the channels of the
 * group begin a sixteen and fill whole sixteens, else they are copied. Scratch memory: [copy of
 * x][copy of y][scratch memory of the inner op]. */
static void few_group(const groups_op *op, size_t row, size_t group)
{
    const ls_op_buffers *b = &op->base.b;
    const ls_tensor *y = &op->base.op.y, *x = &op->whole;
    const size_t in = (size_t)(x->c / op->groups), out = (size_t)(y->c / op->groups);
    const size_t x_pixels = (size_t)x->h * (size_t)x->w, y_pixels = (size_t)y->h * (size_t)y->w;
    const float *from = (const float *)b->x + row * ls_few_row(x);
    float *to = (float *)b->y + row * ls_few_row(y), *room = b->scratch;
    ls_lanes_op *one = (ls_lanes_op *)op->one;
    const bool copies = out % LS_LANES != 0;
    one->b = *b;
    one->b.x = from + group * in * x_pixels;
    one->b.y = copies ? room + op->few_x : to + group * out * y_pixels;
    one->b.scratch = room + op->few_x + op->few_y;
    if (in % LS_LANES) {
        copy_channels(room, 0, from, group * in, in, x_pixels);
        one->b.x = room;
    }
    for (int i = 0; i < op->one->params; i++)
        one->b.param[i] = at(b->param[i], group * op->param[i]);
    ((ls_conv_op *)op->one)->kept[LS_CONV_FEW] = &op->kept[group];
    one->flags = op->base.flags;
    one->few(one);
    if (copies)
        copy_channels(to, group * out, one->b.y, 0, out, y_pixels);
}

/* Forward of few rows (few.h). */
static void forward_few(ls_lanes_op *base)
{
    const groups_op *op = (const groups_op *)base;
    for (size_t group = 0; group < (size_t)op->groups; group++)
        for (size_t row = 0; row < (size_t)base->op.y.rows; row++)
            few_group(op, row, group);
}

static int groups_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const groups_op *op = (groups_op *)base;
    for (int g = 0; g < op->groups; g++)
        ls_kept_begin(&op->kept[g], flags);
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
    for (int g = 0; g < op->groups; g++)
        op->kept[g].source = NULL;
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
    if (!op)
        return;
    for (int g = 0; op->own && g < op->groups; g++)
        ls_free(op->base.host, op->own[g].data);
    ls_free(op->base.host, op->own);
    if (op->one)
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
    one.zero_bias = 0; /* few rows: the op of a group does not compute the batch norm of all */
    one.y_hint = ls_few_wanted(desc) ? &ls_layout_few : NULL;
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
    o->saved_bytes = (size_t)op->base.packets * groups * op->one->saved_bytes;
    o->scratch_bytes = op->one->scratch_bytes;
    o->kept_bytes = op->one->kept_bytes;
}

/* Adds the code for few rows, and the memory for the packs. */
static int plan_few(groups_op *op, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x, *y = &op->base.op.y;
    ls_lanes_op *one = (ls_lanes_op *)op->one;
    const size_t in = ls_few_sixteens(x->c / op->groups), out = ls_few_sixteens(y->c / op->groups);
    int status = LS_OK;
    if (!one->few)
        return LS_OK;
    op->whole = *x;
    op->few_x = x->c / op->groups % LS_LANES ? in * ls_few_plane(x) : 0;
    op->few_y = y->c / op->groups % LS_LANES ? out * ls_few_plane(y) : 0;
    for (int g = 0; g < op->groups && status == LS_OK; g++)
        status = ls_kept_alloc(&op->kept[g], ((ls_conv_op *)op->one)->few.pack, &op->base, err);
    op->base.few = forward_few;
    op->base.few_scratch = (op->few_x + op->few_y) * sizeof(float) + one->few_scratch;
    return status;
}

/* Sets `kept` to the packs of the twin, or to packs of its own. */
static int set_kept(groups_op *op, const ls_op_desc *desc, ls_error *err)
{
    if (!desc->twin)
        op->own = ls_alloc_array(op->base.host, (size_t)op->groups, sizeof *op->own);
    op->kept = desc->twin ? ((const groups_op *)desc->twin)->kept : op->own;
    return op->kept ? LS_OK : ls_fail(err, LS_ENOMEM, "lanes: out of memory for an op");
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
    status = set_kept(op, desc, err);
    if (status == LS_OK && ls_few_wanted(desc))
        status = plan_few(op, desc, err);
    if (status) {
        groups_destroy(&base->op);
        return status;
    }
    return ls_lanes_op_finish(out, base, desc, err);
}

int ls_cpu_conv_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    if (ls_lanes_is_depthwise(desc))
        return ls_lanes_depth_create(out, device, desc, err);
    if (ls_conv2d_filled(desc->u.conv2d).groups != 1)
        return groups_create(out, device, desc, err);
    int status = ls_lanes_conv_create(out, device, desc, err);
    if (status == LS_OK)
        status = ls_few_conv_keep((ls_conv_op *)*out, err);
    if (status && *out) {
        (*out)->impl->destroy(*out);
        *out = NULL;
    }
    return status;
}
