/* y = x + x2, alone or with a relu behind it: element by element in the layout that x has, padding
 * included. */
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>

typedef struct add_state {
    const ls_cpu_kernels *kernels;
    size_t n;
    int relu;
    int x, x2, y, dy, dx, dx2; /* values of the program */
} add_state;

static int add_forward(void *self, float *x, float *y, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const add_state *s = op->own;
    (void)flags;
    (void)err;
    s->kernels->add(x, ls_program_memory(&op->program, s->x2), y, s->n, s->relu);
    return LS_OK;
}

static int add_backward(void *self, float *dy, float *dx, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const add_state *s = op->own;
    (void)flags;
    (void)err;
    s->kernels->add_dx(s->relu ? ls_program_memory(&op->program, s->y) : NULL, dy, dx,
                       ls_program_memory(&op->program, s->dx2), s->n);
    return LS_OK;
}

static void add_steps(ls_cpu_op *op, const ls_op_desc *desc)
{
    add_state *s = op->own;
    ls_program *p = &op->program;
    s->x = ls_program_tensor(p, &desc->x, LS_AT_X);
    s->y = ls_program_tensor(p, &op->op.y, LS_AT_Y);
    s->x2 = ls_program_convert_like(p, ls_program_tensor(p, &desc->x2, LS_AT_X2), s->x, LS_AT_TEMP);
    ls_program_call(p, add_forward, op, s->x, s->y);
    if (!desc->training || !desc->needs_dx)
        return;
    ls_program_backward(p);
    s->dy = ls_program_tensor(p, &op->op.y, LS_AT_DY);
    s->dx = ls_program_tensor(p, &desc->x, LS_AT_DX);
    int dx2 = ls_program_tensor(p, &desc->x2, LS_AT_DX2);
    s->dx2 = ls_program_target_like(p, dx2, s->x);
    ls_program_call(p, add_backward, op, s->dy, s->dx);
    ls_program_deliver(p, s->dx2, dx2);
}

int ls_cpu_add_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x, *x2 = &desc->x2;
    ls_cpu_op *op;
    *out = NULL;
    if (x->rows != x2->rows || x->c != x2->c || x->h != x2->h || x->w != x2->w)
        return ls_fail(err, LS_EINVAL, "add: %d rows of %d×%d×%d plus %d rows of %d×%d×%d", x->rows,
                       x->c, x->h, x->w, x2->rows, x2->c, x2->h, x2->w);
    int status = ls_cpu_op_create(&op, device, desc, "add", err);
    if (status)
        return status;
    add_state *s = op->own = ls_alloc(device->host, sizeof *s);
    if (!s) {
        ls_cpu_op_destroy(&op->op);
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of add");
    }
    ls_cpu_op_set_y_like(op, x);
    s->kernels = ls_cpu_kernels_best();
    s->n = op->op.y.bytes / sizeof(float);
    s->relu = desc->fuse_relu;
    snprintf(op->kernel, sizeof op->kernel, "%s", s->kernels->name);
    add_steps(op, desc);
    return ls_cpu_op_finish(out, op);
}
