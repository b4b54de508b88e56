/* The convolution op's gradients: scratch memory and the order in which kernels run.
 *
 * The gradient in front of the fused pool and relu is made in scratch ("staged"). Where dx is
 * needed a whole block of it is, since dx sums over all channels. In a network's first layer it is
 * made in bands, four channels by a few rows that stay in L1, and consumed at once.
 *
 * Scratch: [a block of x with padded columns][staged gradient][weights packed for dx]
 *          [sums of the bias][sums of the weights of eight channels]
 */
#include "cpu/lanes_conv.h"

#define BAND_FLOATS 6144 /* of a band: half of a 48 KB L1 */
#define BAND_CHANNELS 4
#define BIAS_SUMS (16 * LS_LANES)

/* Where the parts of scratch memory start, in floats. */
typedef struct conv_scratch {
    size_t x, d, packed, bias, weights, end;
} conv_scratch;

/* Rows of a band: whole pooling windows. */
static int band_rows(const ls_lanes_conv *c)
{
    int rows = BAND_FLOATS / (BAND_CHANNELS * c->ow * LS_LANES) / c->pool_h * c->pool_h;
    return rows < c->pool_h ? c->pool_h : rows < c->oh ? rows : c->oh;
}

/* Inputs whose sums exist at a time: without dx those of all, since a band meets every input. */
static int inputs_at_a_time(const ls_lanes_conv_op *op)
{
    return op->base.needs_dx ? 1 : ls_lanes_conv_inputs(&op->conv);
}

static size_t sums_of_an_input(const ls_lanes_conv *c)
{
    return (size_t)c->kh * (size_t)ls_lanes_conv_columns(c) * LS_LANES_OC;
}

static size_t staged_floats(const ls_lanes_conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    if (!op->staged)
        return 0;
    if (op->base.needs_dx)
        return LS_LANES_BLOCK_GROUPS * op->d_group;
    return (size_t)BAND_CHANNELS * (size_t)band_rows(c) * (size_t)c->ow * LS_LANES;
}

static conv_scratch divide_scratch(const ls_lanes_conv_op *op)
{
    conv_scratch s = {0};
    size_t packed = op->base.needs_dx ? ls_lanes_conv_packed_floats(&op->conv) : 0;
    size_t sums = (size_t)inputs_at_a_time(op) * sums_of_an_input(&op->conv);
    s.d = s.x + (op->conv.pw ? LS_LANES_BLOCK_GROUPS * op->padded_group : 0);
    s.packed = s.d + staged_floats(op);
    s.bias = s.packed + (packed + 15) / 16 * 16;
    s.weights = s.bias + BIAS_SUMS;
    s.end = s.weights + (sums + 15) / 16 * 16 * LS_LANES;
    return s;
}

size_t ls_lanes_conv_backward_floats(const ls_lanes_conv_op *op)
{
    return divide_scratch(op).end;
}

/* ---- pieces ----------------------------------------------------------------------------------- */

/* x of a block, its columns padded. */
static const float *padded_x(const ls_lanes_conv_op *op, int group, int groups)
{
    const float *x = (const float *)op->base.b.x + (size_t)group * op->x_group;
    float *padded = (float *)op->base.b.scratch + divide_scratch(op).x;
    if (!op->conv.pw)
        return x;
    for (int g = 0; g < groups; g++)
        ls_lanes_conv_pad(&op->conv, x + (size_t)g * op->x_group,
                          padded + (size_t)g * op->padded_group);
    return padded;
}

/* The gradient in front of pool and relu of some rows and channels of one group. */
static ls_lanes_grad stage(const ls_lanes_conv_op *op, int group, int first, int n, int y0, int y1,
                           float *d)
{
    const ls_op_buffers *b = &op->base.b;
    const ptrdiff_t line = (ptrdiff_t)op->conv.ow * LS_LANES;
    const uint8_t *mask =
        op->mask_group ? (const uint8_t *)b->saved + (size_t)group * op->mask_group : NULL;
    op->base.kernels->conv_unpool(&op->conv, (const float *)b->dy + (size_t)group * op->y_group,
                                  mask, first, n, y0, y1, d);
    return (ls_lanes_grad){d, (ptrdiff_t)op->d_group, line, n * line};
}

/* The gradient of a whole block, staged if it must be. */
static ls_lanes_grad block_gradient(const ls_lanes_conv_op *op, int group, int groups)
{
    const ls_lanes_conv *c = &op->conv;
    const ptrdiff_t line = (ptrdiff_t)c->ow * LS_LANES;
    float *d = (float *)op->base.b.scratch + divide_scratch(op).d;
    ls_lanes_grad as_is = {(const float *)op->base.b.dy + (size_t)group * op->y_group,
                           (ptrdiff_t)op->y_group, c->oh * line, line};
    if (!op->staged)
        return as_is;
    for (int g = groups - 1; g > 0; g--)
        stage(op, group + g, 0, c->oc, 0, c->oh, d + (size_t)g * op->d_group);
    return stage(op, group, 0, c->oc, 0, c->oh, d);
}

/* Takes the sums over lanes of eight channels' weights, `inputs` of them from input `i` on. */
static void finish_weights(const ls_lanes_conv_op *op, int first, int i, int inputs, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const float *sums = (const float *)op->base.b.scratch + divide_scratch(op).weights;
    size_t each = sums_of_an_input(c);
    size_t at = (size_t)(first / LS_LANES_OC) * (size_t)ls_lanes_conv_inputs(c) + (size_t)i;
    op->base.kernels->sum_lanes(op->base.b.grad[0] + at * each, sums, inputs * (int)each, add);
}

static void finish_bias(const ls_lanes_conv_op *op, int first, int add)
{
    const float *sums = (const float *)op->base.b.scratch + divide_scratch(op).bias;
    op->base.kernels->sum_lanes(op->base.b.grad[1] + first, sums, LS_LANES_OC, add);
}

/* ---- the two ways ----------------------------------------------------------------------------- */

/* Gradients of eight channels out of a block's whole gradient. */
static void eight_of_block(const ls_lanes_conv_op *op, const float *x, ls_lanes_grad g, int groups,
                           int first, int n, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_lanes_kernels *k = op->base.kernels;
    const conv_scratch s = divide_scratch(op);
    float *scratch = op->base.b.scratch;
    g.d += first * g.channel;
    if (op->bias) {
        k->conv_bias(c, g, groups, n, 0, c->oh, scratch + s.bias, 0);
        finish_bias(op, first, add);
    }
    int step = inputs_at_a_time(op);
    for (int i = 0; i < ls_lanes_conv_inputs(c); i += step) {
        k->conv_correlate(c, x, g, groups, n, i, i + step, 0, c->oh, scratch + s.weights, 0);
        finish_weights(op, first, i, step, add);
    }
}

/* Adds what four channels of one group contribute to the sums of their eight. */
static void four_in_bands(const ls_lanes_conv_op *op, const float *x, int group, int first, int n,
                          int add)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_lanes_kernels *k = op->base.kernels;
    const conv_scratch s = divide_scratch(op);
    const int rows = band_rows(c);
    float *scratch = op->base.b.scratch;
    size_t at = (size_t)(first % LS_LANES_OC) * LS_LANES;
    for (int y0 = 0; y0 < c->oh; y0 += rows, add = 1) {
        int y1 = y0 + rows < c->oh ? y0 + rows : c->oh;
        ls_lanes_grad g = stage(op, group, first, n, y0, y1, scratch + s.d);
        if (op->bias)
            k->conv_bias(c, g, 1, n, y0, y1, scratch + s.bias + at, add);
        k->conv_correlate(c, x, g, 1, n, 0, ls_lanes_conv_inputs(c), y0, y1,
                          scratch + s.weights + at, add);
    }
}

static void eight_in_bands(const ls_lanes_conv_op *op, const float *x, int group, int groups,
                           int first, int n, int add)
{
    for (int g = 0; g < groups; g++) {
        const float *of_group = x + (size_t)g * op->padded_group;
        for (int o = 0; o < n; o += BAND_CHANNELS)
            four_in_bands(op, of_group, group + g, first + o,
                          n - o < BAND_CHANNELS ? n - o : BAND_CHANNELS, g > 0);
    }
    if (op->bias)
        finish_bias(op, first, add);
    finish_weights(op, first, 0, ls_lanes_conv_inputs(&op->conv), add);
}

/* Sums of channels that do not exist stay zero, and with them the gradients' padding. */
static void clear_sums(const ls_lanes_conv_op *op)
{
    const conv_scratch s = divide_scratch(op);
    float *scratch = op->base.b.scratch;
    for (size_t i = s.bias; i < s.end; i++)
        scratch[i] = 0;
}

static void backward_block(const ls_lanes_conv_op *op, int group, int groups, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const int banded = op->staged && !op->base.needs_dx;
    const float *x = padded_x(op, group, groups);
    ls_lanes_grad g = {0};
    if (!banded)
        g = block_gradient(op, group, groups);
    for (int first = 0; first < c->oc; first += LS_LANES_OC) {
        int n = c->oc - first < LS_LANES_OC ? c->oc - first : LS_LANES_OC;
        if (first == 0 || n < LS_LANES_OC)
            clear_sums(op);
        if (banded)
            eight_in_bands(op, x, group, groups, first, n, add);
        else
            eight_of_block(op, x, g, groups, first, n, add);
    }
    for (int i = 0; op->base.needs_dx && i < groups; i++) {
        ls_lanes_grad one = g;
        one.d += i * g.group;
        op->base.kernels->conv_data(c, one,
                                    (const float *)op->base.b.scratch + divide_scratch(op).packed,
                                    (float *)op->base.b.dx + (size_t)(group + i) * op->x_group);
    }
}

int ls_lanes_conv_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const ls_lanes_conv_op *op = (const ls_lanes_conv_op *)base;
    const ls_op_buffers *b = &op->base.b;
    (void)stream;
    (void)err;
    if (op->base.needs_dx)
        ls_lanes_conv_pack(&op->conv, b->param[0], (float *)b->scratch + divide_scratch(op).packed);
    for (int group = 0; group < op->base.groups; group += LS_LANES_BLOCK_GROUPS)
        backward_block(op, group, ls_lanes_block(&op->base, group),
                       group > 0 || (flags & LS_RUN_ACCUMULATE));
    return LS_OK;
}
