/* Dropout. Which elements stay is drawn in the order of a plain tensor, as a plain tensor of
 * factors (0 or 1 / (1 − p)); brought into x's layout, it is multiplied with x and with dy. */
#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

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

static void add_steps(ls_cpu_op *op, const ls_op_desc *desc)
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
    add_steps(op, desc);
    return ls_cpu_op_finish(out, op);
}
