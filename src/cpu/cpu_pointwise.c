/* What goes element by element: relu, sigmoid, tanh, addition, dropout; and export. y has x's layout, except
 * export's. */
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "cpu/cpu_isa.h"
#include "cpu/cpu_op.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- curves: oneDNN's, whose gradients are functions of y ------------------------------------ */

typedef int make_curve(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc,
                       ls_pass pass, const ls_md *md, ls_pd hint, ls_error *err);

static int make_relu(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc, ls_pass pass,
                     const ls_md *md, ls_pd hint, ls_error *err)
{
    return ls_pd_leaky_relu(out, device, desc->u.relu.slope, pass, md, hint, err);
}

static int make_sigmoid_or_tanh(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc,
                                ls_pass pass, const ls_md *md, ls_pd hint, ls_error *err)
{
    ls_curve curve = desc->kind == LS_OP_TANH ? LS_CURVE_TANH : LS_CURVE_SIGMOID;
    return ls_pd_curve(out, device, curve, pass, md, hint, err);
}

static void add_curve_steps(ls_cpu_op *op, const ls_md *md, ls_pd forward, ls_pd backward)
{
    ls_program *p = &op->program;
    int x = ls_program_value(p, md, LS_AT_X), y = ls_program_value(p, md, LS_AT_Y);
    ls_arg args[] = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
    ls_program_primitive(p, forward, args, 2);
    if (!backward)
        return;
    ls_program_backward(p);
    ls_arg back[] = {{DNNL_ARG_DST, y},
                     {DNNL_ARG_DIFF_DST, ls_program_value(p, md, LS_AT_DY)},
                     {DNNL_ARG_DIFF_SRC, ls_program_value(p, md, LS_AT_DX)}};
    ls_program_primitive(p, backward, back, 3);
}

static int create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, const char *name,
                  bool flat, make_curve *make, ls_error *err)
{
    ls_pd forward = NULL, backward = NULL;
    ls_cpu_op *op;
    *out = NULL;
    int status = ls_cpu_op_create(&op, device, desc, name, err);
    if (status)
        return status;
    ls_cpu_op_set_y_like(op, &desc->x);
    int floats = (int)(op->op.y.bytes / sizeof(float));
    ls_md md = flat ? ls_md_make(1, &floats, LS_MD_PLAIN) : ls_md_of(&desc->x);
    status = make(&forward, device, desc, LS_PASS_FORWARD, &md, NULL, err);
    if (status == LS_OK && desc->training && desc->needs_dx)
        status = make(&backward, device, desc, LS_PASS_BACKWARD_DATA, &md, forward, err);
    if (status == LS_OK) {
        snprintf(op->kernel, sizeof op->kernel, "dnnl %s", ls_pd_kernel(forward));
        add_curve_steps(op, &md, forward, backward);
        status = ls_cpu_op_finish(out, op);
    } else {
        ls_cpu_op_destroy(&op->op);
    }
    ls_pd_destroy(backward);
    ls_pd_destroy(forward);
    return status;
}

/* relu goes element by element over the tensor's memory, so that any layout serves: padding is zero and
 * stays zero. */
int ls_cpu_relu_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    return create(out, device, desc, "relu", true, make_relu, err);
}

/* Sigmoid does not keep zeros, so that the padding of x's layout must be known to it; in lanes there is
 * nothing to know, for what lies beyond the last row need only be finite. */
int ls_cpu_curve_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    return create(out, device, desc, desc->kind == LS_OP_TANH ? "tanh" : "sigmoid",
                  ls_layout_is_lanes(desc->x.layout), make_sigmoid_or_tanh, err);
}

/* ---- addition: y = x + x2, alone or with a relu behind it, padding included ------------------ */

typedef struct add_state {
    const ls_cpu_kernels *kernels;
    size_t n;
    bool relu;
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

static void add_add_steps(ls_cpu_op *op, const ls_op_desc *desc)
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
    s->kernels = &ls_cpu_isa_at(0)->kernels;
    s->n = op->op.y.bytes / sizeof(float);
    s->relu = desc->fuse_relu;
    snprintf(op->kernel, sizeof op->kernel, "%s", s->kernels->name);
    add_add_steps(op, desc);
    return ls_cpu_op_finish(out, op);
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Which elements stay is drawn in the order of a plain tensor, as a plain tensor of
 * factors (0 or 1 / (1 − p)); brought into x's layout, it is multiplied with x and with dy. */
typedef struct dropout_state {
    ls_dropout dropout;
    int factors; /* the value of the program, in x's layout */
    size_t n;    /* floats of x, padding included */
} dropout_state;

static int draw(void *self, float *factors, float *unused, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const dropout_state *s = op->own;
    const ls_step_args *args = op->buffers.args;
    const ls_tensor *y = &op->op.y;
    size_t row = (size_t)y->c * (size_t)y->h * (size_t)y->w;
    float p = s->dropout.p, keep = 1.0f / (1.0f - p);
    (void)unused;
    if (flags & LS_RUN_EVALUATE)
        return LS_OK;
    if (!args || !args->rows)
        return ls_fail(err, LS_EINVAL, "dropout: no rows are given");
    for (int r = 0; r < y->rows; r++, factors += row) {
        uint64_t first = (uint64_t)args->rows[r] * row;
        for (size_t e = 0; e < row; e++) {
            float u =
                ls_rng_uniform(args->seed, s->dropout.stream, args->epoch, first + (uint64_t)e);
            factors[e] = u < p ? 0.0f : keep;
        }
    }
    return LS_OK;
}

/* `to` ← `from` times the factors. */
static int apply(void *self, float *from, float *to, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const dropout_state *s = op->own;
    const float *factor = ls_program_memory(&op->program, s->factors);
    (void)err;
    if (flags & LS_RUN_EVALUATE) {
        memcpy(to, from, s->n * sizeof(float));
        return LS_OK;
    }
    for (size_t i = 0; i < s->n; i++)
        to[i] = factor[i] == 0 ? 0.0f : from[i] * factor[i];
    return LS_OK;
}

static void add_dropout_steps(ls_cpu_op *op, const ls_op_desc *desc)
{
    dropout_state *s = op->own;
    ls_program *p = &op->program;
    const ls_tensor *t = &desc->x;
    ls_md plain = ls_md_image(t->rows, t->c, t->h, t->w, LS_MD_PLAIN);
    ls_place kept = desc->training ? LS_AT_SAVED : LS_AT_TEMP;
    int x = ls_program_tensor(p, t, LS_AT_X);
    int as_is = !ls_layout_is_lanes(t->layout) && !t->layout;
    int drawn = ls_program_value(p, &plain, as_is ? kept : LS_AT_TEMP);
    ls_program_call(p, draw, op, drawn, drawn);
    s->factors = ls_program_convert_like(p, drawn, x, kept);
    ls_program_call(p, apply, op, x, ls_program_tensor(p, &op->op.y, LS_AT_Y));
    if (!desc->training || !desc->needs_dx)
        return;
    ls_program_backward(p);
    ls_program_call(p, apply, op, ls_program_tensor(p, &op->op.y, LS_AT_DY),
                    ls_program_tensor(p, t, LS_AT_DX));
}

int ls_cpu_dropout_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_cpu_op *op;
    *out = NULL;
    if (!(desc->u.dropout.p >= 0 && desc->u.dropout.p < 1))
        return ls_fail(err, LS_EINVAL, "dropout: p is %g; it must be at least 0 and below 1",
                       (double)desc->u.dropout.p);
    int status = ls_cpu_op_create(&op, device, desc, "dropout", err);
    if (status)
        return status;
    dropout_state *s = op->own = ls_alloc(device->host, sizeof *s);
    if (!s) {
        ls_cpu_op_destroy(&op->op);
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of dropout");
    }
    ls_cpu_op_set_y_like(op, &desc->x);
    s->dropout = desc->u.dropout;
    s->n = op->op.y.bytes / sizeof(float);
    snprintf(op->kernel, sizeof op->kernel, "plain C");
    add_dropout_steps(op, desc);
    return ls_cpu_op_finish(out, op);
}

/* ---- export ---------------------------------------------------------------------------------- */

/* LS_OP_EXPORT: a tensor in any layout as a plain one, and its gradient the other way. */
int ls_cpu_export_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_cpu_op *op;
    *out = NULL;
    int status = ls_cpu_op_create(&op, device, desc, "export", err);
    if (status)
        return status;
    snprintf(op->kernel, sizeof op->kernel, "copy");
    ls_program *p = &op->program;
    ls_md plain = ls_md_image(x->rows, x->c, x->h, x->w, LS_MD_PLAIN);
    ls_cpu_op_set_y(op, x->rows, x->c, x->h, x->w, &plain);
    ls_program_copy(p, ls_program_tensor(p, x, LS_AT_X), ls_program_value(p, &plain, LS_AT_Y));
    if (desc->training && desc->needs_dx) {
        ls_program_backward(p);
        ls_program_copy(p, ls_program_value(p, &plain, LS_AT_DY),
                        ls_program_tensor(p, x, LS_AT_DX));
    }
    return ls_cpu_op_finish(out, op);
}
