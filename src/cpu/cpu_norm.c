/* Batch normalisation, alone, with a relu, or with an addition and a relu behind it. */
#include "cpu/cpu_norm.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>

static int norm_forward(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    ls_norm_state *s = ((ls_cpu_op *)self)->own;
    (void)a;
    (void)b;
    if ((flags & LS_RUN_EVALUATE) && !s->op->buffers.running)
        return ls_fail(err, LS_EINVAL, "batchnorm: evaluation without running statistics");
    if (!(flags & LS_RUN_EVALUATE) && s->training && !s->op->buffers.contribution)
        return ls_fail(err, LS_EINVAL, "batchnorm: no room for the contribution");
    ls_norm_run_forward(s, flags);
    return LS_OK;
}

static int norm_backward(void *self, float *a, float *b, unsigned flags, ls_error *err)
{
    (void)a;
    (void)b;
    (void)err;
    ls_norm_run_backward(((ls_cpu_op *)self)->own, flags);
    return LS_OK;
}

static size_t lane_floats(const ls_planes *p)
{
    return (size_t)p->parts * LS_RUN_LANES;
}

static ls_norm_state *new_state(ls_cpu_op *op, const ls_planes *planes)
{
    size_t n = lane_floats(planes),
           head = (sizeof(ls_norm_state) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    char *memory = ls_alloc(op->device->host, head + n * (6 * sizeof(float) + 3 * sizeof(double)));
    ls_norm_state *s = (ls_norm_state *)(void *)memory;
    op->own = s;
    if (!s)
        return NULL;
    double *doubles = (double *)(void *)(memory + head);
    float *floats = (float *)(void *)(doubles + 3 * n);
    s->op = op;
    s->pieces = ls_pieces_of(planes, op->device->threads);
    s->inverse = doubles;
    s->first = doubles + n;
    s->second = doubles + 2 * n;
    s->mean = floats;
    s->scale = floats + n;
    s->shift = floats + 2 * n;
    s->to = floats + 3 * n;
    return s;
}

static void describe_desc(ls_norm_state *s, const ls_op_desc *desc)
{
    const ls_tensor *x = &desc->x;
    s->kernels = ls_cpu_kernels_best();
    s->channels = x->c;
    s->training = desc->training;
    s->needs_dx = desc->training && desc->needs_dx;
    s->fuse_relu = desc->fuse_relu;
    s->fuse_add = desc->fuse_add;
    s->epsilon = desc->u.batchnorm.epsilon;
    s->n = (double)x->rows * x->h * x->w;
}

/* x as it lies, or in channels last where its arrangement is none of ours. */
static int planes_of(ls_planes *out, ls_md *md, const ls_tensor *x)
{
    *md = ls_md_of(x);
    if (ls_layout_is_lanes(x->layout)) {
        *out = ls_planes_of_lanes(x->rows, x->c, x->h, x->w);
        return LS_OK;
    }
    if (ls_md_planes(out, md) == LS_OK)
        return LS_OK;
    *md = ls_md_as(md, LS_MD_NHWC);
    return ls_md_planes(out, md);
}

static void add_steps(ls_norm_state *s, const ls_op_desc *desc, const ls_md *md)
{
    ls_cpu_op *op = s->op;
    ls_program *p = &op->program;
    int lanes = ls_layout_is_lanes(desc->x.layout);
    int x = ls_program_tensor(p, &desc->x, LS_AT_X);
    s->x = lanes ? x : ls_program_convert(p, x, md, LS_AT_SAVED);
    s->y = ls_program_tensor(p, &op->op.y, LS_AT_Y);
    if (s->fuse_add)
        s->x2 =
            ls_program_convert_like(p, ls_program_tensor(p, &desc->x2, LS_AT_X2), s->x, LS_AT_TEMP);
    ls_program_call(p, norm_forward, op, s->x, s->y);
    if (!desc->training)
        return;
    ls_program_backward(p);
    s->dy = ls_program_tensor(p, &op->op.y, LS_AT_DY);
    int dx = 0, dx2 = 0;
    if (s->needs_dx) {
        dx = ls_program_tensor(p, &desc->x, LS_AT_DX);
        s->dx = ls_program_target_like(p, dx, s->x);
    }
    if (s->needs_dx && s->fuse_add) {
        dx2 = ls_program_tensor(p, &desc->x2, LS_AT_DX2);
        s->dx2 = ls_program_target_like(p, dx2, s->x);
    }
    ls_program_call(p, norm_backward, op, s->x, s->dy);
    if (s->needs_dx)
        ls_program_deliver(p, s->dx, dx);
    if (s->needs_dx && s->fuse_add)
        ls_program_deliver(p, s->dx2, dx2);
}

static int same_shape(const ls_tensor *a, const ls_tensor *b)
{
    return a->rows == b->rows && a->c == b->c && a->h == b->h && a->w == b->w;
}

static int check(const ls_op_desc *desc, const ls_cpu_op *twin, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    if (!(desc->u.batchnorm.epsilon >= 0))
        return ls_fail(err, LS_EINVAL, "batchnorm: an epsilon of %g; it must not be negative",
                       (double)desc->u.batchnorm.epsilon);
    if (desc->fuse_add && !same_shape(x, x2))
        return ls_fail(err, LS_EINVAL, "batchnorm: %d rows of %d×%d×%d plus %d rows of %d×%d×%d",
                       x->rows, x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
    if (twin && twin->op.param_floats[0] != (size_t)x->c)
        return ls_fail(err, LS_EINVAL, "batchnorm: the twin is another layer's");
    return LS_OK;
}

int ls_cpu_norm_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_cpu_op *twin;
    ls_cpu_op *op;
    ls_planes planes;
    ls_md md, channels = ls_md_make(1, &x->c, LS_MD_PLAIN);
    *out = NULL;
    int status = ls_cpu_op_twin(&twin, desc, err);
    if (status == LS_OK)
        status = check(desc, twin, err);
    if (status == LS_OK && planes_of(&planes, &md, x) != LS_OK)
        status = ls_fail(err, LS_EUNSUPPORTED, "batchnorm: x lies in an unknown way");
    if (status == LS_OK)
        status = ls_cpu_op_create(&op, device, desc, "batchnorm", err);
    if (status)
        return status;
    ls_norm_state *s = new_state(op, &planes);
    if (!s) {
        ls_cpu_op_destroy(&op->op);
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of batchnorm");
    }
    for (int i = 0; i < 2; i++)
        ls_cpu_op_set_param(op, i, &channels, &channels);
    op->op.contribution_floats = 2 * (size_t)x->c;
    if (planes.lanes)
        ls_cpu_op_set_y_like(op, x);
    else
        ls_cpu_op_set_y(op, x->rows, x->c, x->h, x->w, &md);
    snprintf(op->kernel, sizeof op->kernel, "%s %s", ls_cpu_kernels_best()->name,
             planes.lanes ? "lanes" : ls_md_name(&md));
    describe_desc(s, desc);
    add_steps(s, desc, &md);
    return ls_cpu_op_finish(out, op);
}
