/* Softmax and cross-entropy, in plain C: a few thousand numbers a step.
 *
 * Per row, with m the largest logit: e = exp(z − m) in float, their sum s in double,
 * loss = log s − (z[label] − m), dx = e / s − [j = label]. With smoothing q the target is
 * (1 − q)·[j = label] + q / classes instead of [j = label]. Losses are added up in double, row after
 * row, and stored (or added, with LS_RUN_ACCUMULATE) as float. */
#include "cpu/cpu_op.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

typedef struct row_result {
    double loss;
    int correct;
} row_result;

static int argmax(const float *z, int n)
{
    int best = 0;
    for (int j = 1; j < n; j++)
        if (z[j] > z[best])
            best = j;
    return best;
}

/* What the row's target adds to log s: −Σ target·(z − m). */
static double target_term(const float *z, int n, int label, float m, double smoothing)
{
    double at_label = (double)z[label] - (double)m, sum = 0;
    if (smoothing == 0)
        return -at_label;
    for (int j = 0; j < n; j++)
        sum += (double)z[j] - (double)m;
    return -((1 - smoothing) * at_label + smoothing / n * sum);
}

/* e ← e / sum − target */
static void gradient_row(float *e, int n, int label, double sum, double smoothing)
{
    float everywhere = (float)(smoothing / n);
    for (int j = 0; j < n; j++)
        e[j] = (float)((double)e[j] / sum) - everywhere;
    e[label] -= (float)(1 - smoothing);
}

/* `e` has room for n floats and may be dx. */
static row_result softmax_row(const float *z, int n, int label, double smoothing, float *e,
                              int with_gradient)
{
    int best = argmax(z, n);
    float m = z[best];
    double sum = 0;
    for (int j = 0; j < n; j++) {
        e[j] = expf(z[j] - m);
        sum += (double)e[j];
    }
    if (with_gradient)
        gradient_row(e, n, label, sum, smoothing);
    row_result r = {log(sum) + target_term(z, n, label, m, smoothing), best == label};
    return r;
}

static int run(ls_cpu_op *op, const float *z, float *e, int with_gradient, unsigned flags,
               ls_error *err)
{
    int rows = op->op.y.rows, classes = op->op.y.c;
    const int32_t *labels = op->buffers.labels;
    float *stats = op->buffers.stats;
    double loss = 0;
    int correct = 0;
    for (int i = 0; i < rows; i++) {
        if (labels[i] < 0 || labels[i] >= classes)
            return ls_fail(err, LS_EDATA, "softmax: row %d has label %d, but there are %d classes",
                           i, labels[i], classes);
        /* Without a gradient every row uses the same scratch. */
        float *out = with_gradient ? e + (size_t)i * (size_t)classes : e;
        row_result r = softmax_row(z + (size_t)i * (size_t)classes, classes, labels[i],
                                   op->smoothing, out, with_gradient);
        loss += r.loss;
        correct += r.correct;
    }
    int add = (flags & LS_RUN_ACCUMULATE) != 0;
    stats[0] = (add ? stats[0] : 0.0f) + (float)loss;
    stats[1] = (add ? stats[1] : 0.0f) + (float)correct;
    return LS_OK;
}

static int with_gradient(void *self, float *z, float *dx, unsigned flags, ls_error *err)
{
    return run(self, z, dx, 1, flags, err);
}

static int without_gradient(void *self, float *z, float *scratch, unsigned flags, ls_error *err)
{
    return run(self, z, scratch, 0, flags, err);
}

int ls_cpu_loss_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_cpu_op *op;
    *out = NULL;
    if (x->h != 1 || x->w != 1)
        return ls_fail(err, LS_EINVAL, "softmax: logits must be vectors, not %d×%d×%d", x->c, x->h,
                       x->w);
    if (!(desc->u.softmax_xent.smoothing >= 0 && desc->u.softmax_xent.smoothing <= 1))
        return ls_fail(err, LS_EINVAL, "softmax: smoothing of %g; it must be from 0 to 1",
                       (double)desc->u.softmax_xent.smoothing);
    int status = ls_cpu_op_create(&op, device, desc, "softmax_xent", err);
    if (status)
        return status;
    snprintf(op->kernel, sizeof op->kernel, "plain C");
    op->smoothing = (double)desc->u.softmax_xent.smoothing;
    op->op.y = (ls_tensor){LS_F32, x->rows, x->c, 1, 1, NULL, 0};
    ls_program *p = &op->program;
    ls_md plain = ls_md_image(x->rows, x->c, 1, 1, LS_MD_PLAIN);
    int z = ls_program_convert(p, ls_program_tensor(p, x, LS_AT_X), &plain, LS_AT_TEMP);
    if (desc->needs_dx) {
        int dx = ls_program_tensor(p, x, LS_AT_DX);
        int target = ls_program_target(p, dx, &plain);
        ls_program_call(p, with_gradient, op, z, target);
        ls_program_deliver(p, target, dx);
    } else {
        ls_md row = ls_md_make(1, &x->c, LS_MD_PLAIN);
        ls_program_call(p, without_gradient, op, z, ls_program_value(p, &row, LS_AT_TEMP));
    }
    return ls_cpu_op_finish(out, op);
}
