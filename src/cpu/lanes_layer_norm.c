/* SPDX-License-Identifier: MIT */
/* Layer normalisation: each row is normalised by itself, over all its values. The sixteen rows of a
 * packet are normalised side by side (lanes_op.h). The sums of a lane are added up in double; each
 * addend is a sum of eight floats.
 *
 * Forward saves mean and 1/√(variance + ε) of each lane for backward. Gradients of the parameters
 * are summed lane by lane over the packets of a block, in ascending order, and then over the
 * lanes. */
#include "base/error.h"
#include "cpu/lanes_op.h"

typedef struct layer_norm_op {
    ls_lanes_op base; /* base; must be first */
    size_t n;         /* number of values in a row */
    float epsilon;
} layer_norm_op;

/* Returns the statistics of a packet, [2][16]: the means, then the values 1/√(variance + ε). */
static float *statistics_of(const layer_norm_op *op, size_t packet)
{
    void *memory = op->base.training ? op->base.b.saved : op->base.b.scratch;
    return (float *)memory + packet * 2 * LS_LANES;
}

static void forward_packet(void *arg, uint32_t packet)
{
    const layer_norm_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = packet * op->n * LS_LANES;
    op->base.kernels->layer_forward(op->n, op->epsilon, (const float *)b->x + at, b->param[0],
                                    b->param[1], (float *)b->y + at, statistics_of(op, packet));
}

static void backward_packet(void *arg, uint32_t packet)
{
    const layer_norm_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t at = packet * op->n * LS_LANES;
    op->base.kernels->layer_dx(op->n, (const float *)b->x + at, (const float *)b->dy + at,
                               b->param[0], statistics_of(op, packet), (float *)b->dx + at);
}

/* Computes the gradients of sixteen weights and biases. */
static void weights_of_sixteen(void *arg, uint32_t item)
{
    const layer_norm_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    const size_t first = (size_t)item * LS_LANES, left = op->n - first, packet = op->n * LS_LANES;
    for (int g = 0; g < op->base.packets; g += LS_LANES_BLOCK_PACKETS) {
        const size_t at = (size_t)g * packet + first * LS_LANES;
        op->base.kernels->layer_weights(
            left < LS_LANES ? (int)left : LS_LANES, ls_lanes_block(op->base.packets, g), packet,
            (const float *)b->x + at, (const float *)b->dy + at, statistics_of(op, (size_t)g),
            b->grad[0] + first, b->grad[1] + first, g > 0 || op->base.flags & LS_RUN_ACCUMULATE);
    }
}

int ls_cpu_layer_norm_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                             ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_lanes_op *op;
    if (!(desc->u.layernorm.epsilon > 0))
        return ls_fail(err, LS_EINVAL, "layernorm: an epsilon of %g; it must be above 0",
                       (double)desc->u.layernorm.epsilon);
    int status = ls_lanes_op_new(&op, sizeof(layer_norm_op), &ls_lanes_passes, device, desc, err);
    if (status)
        return status;
    const size_t bytes = (size_t)op->packets * 2 * LS_LANES * sizeof(float);
    const size_t n = (size_t)x->c * (size_t)x->h * (size_t)x->w;
    ((layer_norm_op *)op)->n = n;
    ((layer_norm_op *)op)->epsilon = desc->u.layernorm.epsilon;
    ls_lanes_op_set_y(op, x->c, x->h, x->w);
    ls_lanes_op_set_params(op, x->c * x->h * x->w, 1, 1, true);
    op->forward = (ls_lanes_pass){forward_packet, (uint32_t)op->packets};
    op->gradients = (ls_lanes_pass){weights_of_sixteen, (uint32_t)((n + LS_LANES - 1) / LS_LANES)};
    op->dx = (ls_lanes_pass){backward_packet, (uint32_t)op->packets};
    *(op->training ? &op->op.saved_bytes : &op->op.scratch_bytes) = bytes;
    return ls_lanes_op_finish(out, op, desc, err);
}
