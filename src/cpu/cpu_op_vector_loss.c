/* SPDX-License-Identifier: MIT */
/* Losses with target vectors. They are computed in plain C, because a training step has only a few
 * thousand of their numbers.
 *
 * The loss of a row is summed in double, value after value. The losses of a block are summed in
 * double too. The sum of the first block is stored as a float, or added to the stored float if
 * LS_RUN_ACCUMULATE is set. The sums of the other blocks are added to the stored float. The bits of
 * a shard's loss therefore do not depend on the calls into which the shard is divided. */
#include "base/error.h"
#include "base/portable_math.h"
#include "cpu/lanes_op.h"

#include <math.h>
#include <stdbool.h>

/* Returns the loss of one output z with target t. `*slope` receives the derivative of the loss by
 * z. `parameter`: delta of the Huber loss, or the quantile; not used by the other losses. */
typedef double loss_fn(double *slope, double z, double t, double parameter);

static double mse(double *slope, double z, double t, double parameter)
{
    (void)parameter;
    *slope = 2 * (z - t);
    return (z - t) * (z - t);
}

static double bce(double *slope, double z, double t, double parameter)
{
    (void)parameter;
    const double e = ls_exp(-fabs(z));
    *slope = (z > 0 ? 1 : e) / (1 + e) - t;
    return fmax(z, 0) - z * t + ls_log1p(e);
}

static double mae(double *slope, double z, double t, double parameter)
{
    (void)parameter;
    *slope = (double)((z > t) - (z < t));
    return fabs(z - t);
}

static double huber(double *slope, double z, double t, double delta)
{
    const double d = z - t, far = fabs(d);
    *slope = far < delta ? d : d < 0 ? -delta : delta;
    return far < delta ? 0.5 * d * d : delta * (far - 0.5 * delta);
}

static double pinball(double *slope, double z, double t, double q)
{
    const double d = t - z;
    *slope = d > 0 ? -q : d < 0 ? 1 - q : 0.5 - q;
    return d > 0 ? q * d : (q - 1) * d;
}

static double poisson(double *slope, double z, double t, double parameter)
{
    const double rate = ls_exp(z);
    (void)parameter;
    *slope = rate - t;
    return rate - z * t;
}

static const struct rule {
    loss_fn *lose;
    bool bits; /* true: each output is a yes/no decision, so that a row can be correct */
} rules[] = {
    [LS_VECTOR_MSE] = {mse, false},          [LS_VECTOR_BCE] = {bce, true},
    [LS_VECTOR_MAE] = {mae, false},          [LS_VECTOR_HUBER] = {huber, false},
    [LS_VECTOR_QUANTILE] = {pinball, false}, [LS_VECTOR_POISSON] = {poisson, false},
};

enum { RULES = sizeof rules / sizeof *rules, BLOCK = LS_LANES_BLOCK_PACKETS * LS_LANES };

typedef struct loss_op {
    ls_lanes_op base; /* base; must be first */
    const struct rule *rule;
    int parts;   /* number of outputs for each target: the number of quantiles, or 1 */
    int targets; /* number of numbers in a row's target */
    double parameter[LS_QUANTILES_MOST]; /* [parts]: parameter of the loss (loss_fn) */
} loss_op;

/* Multiplies a row's loss and gradient, which may be NULL, by the row's weight. Returns the loss. A
 * row of weight 0 gets zeros, even if its loss is not finite. */
static double weigh(float *dx, double loss, int n, float weight)
{
    for (int j = 0; dx && j < n; j++)
        dx[j] = weight == 0 ? 0 : dx[j] * weight;
    return weight == 0 ? 0 : loss * (double)weight;
}

/* Returns the loss of one row of n outputs. Stores whether the row is correct in *correct, and the
 * gradient in dx, which may be NULL. */
static double lose_row(float *dx, int *correct, const loss_op *l, const float *z, const float *t,
                       int n)
{
    double sum = 0, slope;
    int j = 0;
    *correct = l->rule->bits;
    for (int q = 0; q < l->parts; q++)
        for (int k = 0; k < l->targets; k++, j++) {
            sum += l->rule->lose(&slope, (double)z[j], (double)t[k], l->parameter[q]);
            if (dx)
                dx[j] = (float)(slope / n);
            *correct = *correct && (z[j] > 0) == (t[k] > 0.5f);
        }
    return sum / n;
}

static int loss_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const loss_op *l = (const loss_op *)op;
    const ls_op_buffers *b = &l->base.b;
    const size_t n = (size_t)op->y.c, rows = (size_t)op->y.rows, targets = (size_t)l->targets;
    const float *z = b->x, *t = (const float *)(const void *)b->labels;
    (void)stream;
    (void)err;
    for (size_t r = 0; r < rows;) {
        const size_t end = rows - r < BLOCK ? rows : r + BLOCK;
        const bool add = r > 0 || (flags & LS_RUN_ACCUMULATE) != 0;
        double loss = 0;
        int correct = 0, right;
        for (; r < end; r++, correct += right) {
            float *dx = l->base.needs_dx ? (float *)b->dx + r * n : NULL;
            const double each = lose_row(dx, &right, l, z + r * n, t + r * targets, op->y.c);
            loss += b->weights ? weigh(dx, each, op->y.c, b->weights[r]) : each;
        }
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

/* Sets the numbers that depend on the quantiles, and the parameters of the loss. */
static int set_parameters(loss_op *l, const ls_vector_loss *v, int outputs, ls_error *err)
{
    l->parts = v->rule == LS_VECTOR_QUANTILE ? v->quantiles : 1;
    if (l->parts < 1 || l->parts > LS_QUANTILES_MOST || outputs % l->parts != 0)
        return ls_fail(err, LS_EINVAL, "vector loss: %d outputs for %d quantiles", outputs,
                       l->parts);
    l->targets = outputs / l->parts;
    for (int q = 0; q < l->parts; q++)
        l->parameter[q] = v->rule == LS_VECTOR_QUANTILE ? v->quantile[q] : v->delta;
    return LS_OK;
}

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
    const int status = set_parameters(l, &desc->u.vector_loss, x->c, err);
    if (status)
        ls_lanes_op_destroy(&l->base.op);
    else
        *out = &l->base.op;
    return status;
}
