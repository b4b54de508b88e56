/* SPDX-License-Identifier: MIT */
/* The loss op: softmax and cross-entropy. */
#include "base/error.h"
#include "cpu/lanes_op.h"

typedef struct loss_op {
    ls_lanes_op base; /* base; must be first */
    int classes;
    float smoothing;
    bool weighted;
} loss_op;

static int check_labels(const int32_t *labels, int rows, int classes, ls_error *err)
{
    for (int r = 0; r < rows; r++)
        if (labels[r] < 0 || labels[r] >= classes)
            return ls_fail(err, LS_EDATA, "softmax: row %d has label %d, but there are %d classes",
                           r, labels[r], classes);
    return LS_OK;
}

/* Multiplies the loss and dx of each row, which the kernel has computed, by the weight of the row's
 * class and by that of the row. Each number is multiplied once, so the result is the same on every
 * CPU. A row of weight 0 gets zeros, even if its loss is not finite. */
static void weigh(const loss_op *op, int rows, const int32_t *labels, const float *of_row,
                  float *dx, float *row_loss)
{
    for (int r = 0; r < rows; r++) {
        const float weight = (op->weighted ? op->base.b.class_weight[labels[r]] : 1.0f) *
                             (of_row ? of_row[r] : 1.0f);
        row_loss[r] = weight == 0 ? 0 : row_loss[r] * weight;
        for (int k = 0; dx && k < op->classes; k++) {
            float *const to = &dx[k * LS_LANES + r];
            *to = weight == 0 ? 0 : *to * weight;
        }
    }
}

/* Computes one packet, and adds its loss and its number of correct rows to the block's sums. */
static void packet_loss(const loss_op *op, int packet, double *loss, double *correct)
{
    const ls_op_buffers *b = &op->base.b;
    const size_t floats = (size_t)op->classes * LS_LANES, at = (size_t)packet * floats;
    const int rows = ls_lanes_rows_of(op->base.op.y.rows, packet);
    float row_loss[LS_LANES], row_correct[LS_LANES];
    const int32_t *labels = b->labels + packet * LS_LANES;
    float *dx = op->base.needs_dx ? (float *)b->dx + at : NULL;
    op->base.kernels->loss(op->classes, rows, op->smoothing, (const float *)b->x + at, labels, dx,
                           row_loss, row_correct);
    if (op->weighted || b->weights)
        weigh(op, rows, labels, b->weights ? b->weights + packet * LS_LANES : NULL, dx, row_loss);
    for (int r = 0; r < rows; r++) {
        *loss += (double)row_loss[r];
        *correct += (double)row_correct[r];
    }
}

static int loss_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    loss_op *op = (loss_op *)base;
    float *stats = op->base.b.stats;
    (void)stream;
    if (op->weighted && !op->base.b.class_weight)
        return ls_fail(err, LS_EINVAL, "softmax: it is weighted, without class_weight");
    int status = check_labels(op->base.b.labels, base->y.rows, op->classes, err);
    if (status)
        return status;
    for (int packet = 0; packet < op->base.packets; packet += LS_LANES_BLOCK_PACKETS) {
        int end = packet + ls_lanes_block(op->base.packets, packet);
        int add = packet > 0 || (flags & LS_RUN_ACCUMULATE);
        double loss = 0, correct = 0;
        for (int g = packet; g < end; g++)
            packet_loss(op, g, &loss, &correct);
        stats[0] = (add ? stats[0] : 0) + (float)loss;
        stats[1] = (add ? stats[1] : 0) + (float)correct;
    }
    return LS_OK;
}

static const ls_op_impl loss_impl = LS_LANES_IMPL(loss_forward, NULL);

int ls_cpu_loss_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_op *op;
    if (desc->x.h != 1 || desc->x.w != 1)
        return ls_fail(err, LS_EINVAL, "softmax: logits must be vectors, not %d×%d×%d", desc->x.c,
                       desc->x.h, desc->x.w);
    if (!(desc->u.softmax_xent.smoothing >= 0 && desc->u.softmax_xent.smoothing <= 1))
        return ls_fail(err, LS_EINVAL, "softmax: smoothing of %g; it must be from 0 to 1",
                       (double)desc->u.softmax_xent.smoothing);
    int status = ls_lanes_op_new(&op, sizeof(loss_op), &loss_impl, device, desc, err);
    if (status)
        return status;
    ((loss_op *)op)->classes = desc->x.c;
    ((loss_op *)op)->smoothing = desc->u.softmax_xent.smoothing;
    ((loss_op *)op)->weighted = desc->u.softmax_xent.weighted;
    return ls_lanes_op_finish(out, op, desc, err);
}
