/* Losses with target vectors. They are computed in plain C, because a training step has only a few
 * thousand of their numbers.
 *
 * The loss of a row (example) is summed in double, value after value. The losses of a block (32
 * rows) are summed in double too. The sum of the first block is stored as a float, or added to the
 * stored float if LS_RUN_ACCUMULATE is set. The sums of the other blocks are added to the stored
 * float. The bits of a shard's loss therefore do not depend on the calls into which the shard (a
 * part of the minibatch) is divided. */
#include "base/error.h"
#include "base/portable_math.h"
#include "cpu/lanes_op.h"

#include <math.h>
#include <stdbool.h>

/* Returns the loss of one output z with target t. `*slope` receives the derivative of the loss by
 * z. */
typedef double loss_fn(double *slope, double z, double t);

static double mse(double *slope, double z, double t)
{
    *slope = 2 * (z - t);
    return (z - t) * (z - t);
}

static double bce(double *slope, double z, double t)
{
    const double e = ls_exp(-fabs(z));
    *slope = (z > 0 ? 1 : e) / (1 + e) - t;
    return fmax(z, 0) - z * t + ls_log1p(e);
}

static const struct rule {
    loss_fn *lose;
    bool bits; /* true: each output is a yes/no decision, so that a row can be correct */
} rules[] = {
    [LS_VECTOR_MSE] = {mse, false},
    [LS_VECTOR_BCE] = {bce, true},
};

enum { RULES = sizeof rules / sizeof *rules, BLOCK = LS_LANES_BLOCK_GROUPS * LS_LANES };

typedef struct loss_op {
    ls_lanes_op base; /* base; must be first */
    const struct rule *rule;
} loss_op;

/* Returns the loss of one row of n outputs. Stores whether the row is correct in *correct, and the
 * gradient in dx, which may be NULL. */
static double lose_row(float *dx, int *correct, const struct rule *rule, const float *z,
                       const float *t, int n)
{
    double sum = 0, slope;
    *correct = rule->bits;
    for (int j = 0; j < n; j++) {
        sum += rule->lose(&slope, (double)z[j], (double)t[j]);
        if (dx)
            dx[j] = (float)(slope / n);
        *correct = *correct && (z[j] > 0) == (t[j] > 0.5f);
    }
    return sum / n;
}

static int loss_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const loss_op *l = (const loss_op *)op;
    const ls_op_buffers *b = &l->base.b;
    const size_t n = (size_t)op->y.c, rows = (size_t)op->y.rows;
    const float *z = b->x, *t = (const float *)(const void *)b->labels;
    (void)stream;
    (void)err;
    for (size_t r = 0; r < rows;) {
        const size_t end = rows - r < BLOCK ? rows : r + BLOCK;
        const bool add = r > 0 || (flags & LS_RUN_ACCUMULATE) != 0;
        double loss = 0;
        int correct = 0, right;
        for (; r < end; r++, correct += right)
            loss += lose_row(l->base.needs_dx ? (float *)b->dx + r * n : NULL, &right, l->rule,
                             z + r * n, t + r * n, op->y.c);
        b->stats[0] = (add ? b->stats[0] : 0.0f) + (float)loss;
        b->stats[1] = (add ? b->stats[1] : 0.0f) + (float)correct;
    }
    return LS_OK;
}

static int loss_bind(ls_op *op, const ls_op_buffers *b, ls_error *err)
{
    if (!b->x || !b->labels || !b->stats || (((loss_op *)op)->base.needs_dx && !b->dx))
        return ls_fail(err, LS_EINVAL, "vector loss: a buffer is missing");
    return ls_lanes_op_bind(op, b, err);
}

static const ls_op_impl loss_impl = {
    .size = sizeof(ls_op_impl),
    .bind = loss_bind,
    .forward = loss_forward,
    .destroy = ls_lanes_op_destroy,
};

int ls_cpu_vector_loss_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                              ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const int rule = (int)desc->u.vector_loss.rule;
    *out = NULL;
    if (x->h != 1 || x->w != 1 || x->layout)
        return ls_fail(err, LS_EINVAL, "vector loss: outputs must be row-major vectors");
    if (rule < 0 || rule >= RULES)
        return ls_fail(err, LS_EUNSUPPORTED, "vector loss: the CPU back end has no rule %d", rule);
    loss_op *l = (loss_op *)ls_lanes_op_alloc(sizeof *l, &loss_impl, device, desc);
    if (!l)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of a loss");
    l->base.op.y = (ls_tensor){LS_F32, x->rows, x->c, 1, 1, NULL, 0};
    l->rule = &rules[rule];
    *out = &l->base.op;
    return LS_OK;
}
