/* The convolution op: geometry, creation, forward, parameters and gradients.
 *
 * Each of the three passes is direct or by Winograd's algorithm (wino.h), as the shape alone decides: the
 * same on every CPU and for any number of rows.
 */
#include "base/error.h"
#include "cpu/lanes_op.h"

#include <lockstep/split.h>
#include <string.h>

/* A pass by Winograd's algorithm, if it is. */
typedef struct conv_wino {
    bool used;
    ls_wino wino;
} conv_wino;

typedef struct conv_op {
    ls_lanes_op base; /* first */
    ls_lanes_conv conv;
    conv_wino forward, weights, data;
    bool bias;
    bool staged; /* dy has to go back through pool and relu before use */
    bool panels; /* the gradient of the weights, where it is direct, is a product of panels */
    bool
        sampled; /* a kernel of one element with a stride: a plain product over the pixels it sees */
    int x_h, x_w, sh, sw;                /* of x itself, where it is sampled */
    size_t x_group;                      /* floats of a group of x (and of dx) */
    size_t padded_group;                 /* the same with padded columns, or of the pixels seen */
    size_t y_group, d_group, mask_group; /* floats, floats, bytes */
} conv_op;

/* ---- forward --------------------------------------------------------------------------------- */

static conv_op *self_of(ls_op *op)
{
    return (conv_op *)op;
}

static void conv_pad(const ls_lanes_conv *c, const float *x, float *out)
{
    const size_t line = (size_t)c->x_w * LS_LANES, side = (size_t)c->pw * LS_LANES;
    for (int i = 0; i < c->ic * c->ih; i++) {
        memset(out, 0, side * sizeof *out);
        memcpy(out + side, x, line * sizeof *out);
        memset(out + side + line, 0, side * sizeof *out);
        out += line + 2 * side;
        x += line;
    }
}

/* The pixels that a kernel of one element sees, and back: where it sees none there is no gradient. */
static void conv_sample(const conv_op *op, const float *x, float *out)
{
    const size_t line = (size_t)op->x_w * LS_LANES, plane = (size_t)op->x_h * line;
    for (int i = 0; i < op->conv.ic; i++, x += plane)
        for (int y = 0; y < op->x_h; y += op->sh)
            for (int at = 0; at < op->x_w; at += op->sw, out += LS_LANES)
                memcpy(out, x + (size_t)y * line + (size_t)at * LS_LANES, LS_LANES * sizeof *out);
}

static void conv_unsample(const conv_op *op, const float *d, float *dx)
{
    const size_t line = (size_t)op->x_w * LS_LANES, plane = (size_t)op->x_h * line;
    memset(dx, 0, op->x_group * sizeof *dx);
    for (int i = 0; i < op->conv.ic; i++, dx += plane)
        for (int y = 0; y < op->x_h; y += op->sh)
            for (int at = 0; at < op->x_w; at += op->sw, d += LS_LANES)
                memcpy(dx + (size_t)y * line + (size_t)at * LS_LANES, d, LS_LANES * sizeof *d);
}

/* One group of x as the direct kernels read it, made in `room` where it does not lie so. */
static const float *conv_x(const conv_op *op, int group, float *room)
{
    const float *x = (const float *)op->base.b.x + (size_t)group * op->x_group;
    if (op->sampled)
        conv_sample(op, x, room);
    else if (op->conv.pw)
        conv_pad(&op->conv, x, room);
    else
        return x;
    return room;
}

static void forward_by_winograd(const conv_op *op)
{
    const ls_op_buffers *b = &op->base.b;
    const ls_wino *w = &op->forward.wino;
    float *values = b->scratch;
    const ls_wino_finish finish = {.bias = op->bias ? b->param[1] : NULL,
                                   .mask = op->mask_group ? b->saved : NULL,
                                   .relu = op->conv.relu,
                                   .pool = op->conv.pool_h > 1};
    ls_wino_weights(w, values, b->param[0]);
    ls_wino_conv(w, op->base.groups, b->y, b->x, values, &finish,
                 values + ls_wino_weight_floats(w));
}

/* Scratch memory of a group of the direct form: the tile, and x where it does not lie as it is read. */
static size_t forward_room(const conv_op *op)
{
    return (ls_lanes_tile_floats(&op->conv) + op->padded_group + 15) / 16 * 16;
}

/* The groups of one thread of the team. */
static void forward_some(void *arg, uint32_t part)
{
    const conv_op *op = arg;
    const ls_op_buffers *b = &op->base.b;
    float *tile = (float *)b->scratch + part * forward_room(op);
    float *room = tile + ls_lanes_tile_floats(&op->conv);
    uint32_t first, count;
    ls_split((uint32_t)op->base.groups, (uint32_t)ls_team_size(op->base.team), part, &first,
             &count);
    for (int g = (int)first; g < (int)(first + count); g++) {
        uint8_t *mask = op->mask_group ? (uint8_t *)b->saved + (size_t)g * op->mask_group : NULL;
        op->base.kernels->conv_forward(&op->conv, conv_x(op, g, room), b->param[0],
                                       op->bias ? b->param[1] : NULL,
                                       (float *)b->y + (size_t)g * op->y_group, mask, tile);
    }
}

static int conv_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    conv_op *op = self_of(base);
    (void)stream;
    (void)flags;
    (void)err;
    if (op->forward.used)
        forward_by_winograd(op);
    else
        ls_team_run(op->base.team, (uint32_t)ls_team_size(op->base.team), forward_some, op);
    return LS_OK;
}

/* ---- parameters: how they lie says lanes_kernels.h ------------------------------------------- */

static size_t ceil_to(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t conv_weight_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->oc, LS_LANES_OC) * (size_t)c->ic * (size_t)c->kh * (size_t)c->kw;
}

static size_t conv_bias_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->oc, LS_LANES_OC);
}

/* Where weight (o, i, e) lies, e counting kernel elements. */
static size_t place(const ls_lanes_conv *c, int o, int i, int e)
{
    size_t block = (size_t)(o / LS_LANES_OC) * (size_t)c->ic + (size_t)i;
    return (block * (size_t)(c->kh * c->kw) + (size_t)e) * LS_LANES_OC + (size_t)(o % LS_LANES_OC);
}

static int conv_import(ls_op *op, int index, void *dst, const float *src, ls_error *err)
{
    const ls_lanes_conv *c = &((const conv_op *)op)->conv;
    float *to = dst;
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    memset(to, 0, op->param_floats[index] * sizeof *to);
    if (index == 1) {
        memcpy(to, src, (size_t)c->oc * sizeof *to);
        return LS_OK;
    }
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++)
            for (int e = 0; e < c->kh * c->kw; e++)
                to[place(c, o, i, e)] = *src++;
    return LS_OK;
}

static int conv_export(ls_op *op, int index, float *dst, const void *src, ls_error *err)
{
    const ls_lanes_conv *c = &((const conv_op *)op)->conv;
    const float *from = src;
    if (index < 0 || index >= op->params)
        return ls_fail(err, LS_EINVAL, "conv2d has no parameter %d", index);
    if (index == 1) {
        memcpy(dst, from, (size_t)c->oc * sizeof *dst);
        return LS_OK;
    }
    for (int o = 0; o < c->oc; o++)
        for (int i = 0; i < c->ic; i++)
            for (int e = 0; e < c->kh * c->kw; e++)
                *dst++ = from[place(c, o, i, e)];
    return LS_OK;
}

static size_t packed_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->ic, 4) * (size_t)c->oc * (size_t)(c->kh * c->kw);
}

/* For conv_data. Places of input channels beyond the last are never read. */
static void pack(const ls_lanes_conv *c, const float *w, float *packed)
{
    const size_t elements = (size_t)(c->kh * c->kw), oc = (size_t)c->oc;
    for (int i = 0; i < c->ic; i++) {
        float *to = packed + (size_t)(i / 4) * elements * oc * 4 + i % 4;
        for (int o = 0; o < c->oc; o++)
            for (size_t e = 0; e < elements; e++)
                to[(e * oc + (size_t)o) * 4] = w[place(c, o, i, (int)e)];
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The convolution op's gradients: scratch memory and the order in which kernels run.
 *
 * The gradient in front of the fused pool and relu is made in scratch ("staged"). Where dx is
 * needed a whole block of it is, since dx sums over all channels. In a network's first layer it is
 * made in bands, four channels by a few rows that stay in L1, and consumed at once.
 *
 * A direct gradient of the weights is a sum for each lane, exact in its channels, where they are few, else
 * a product of panels of sixteen output channels, of a few pixels at a time.
 *
 * Scratch: [a block of x with padded columns][staged gradient][sums of the bias][sums of the weights of
 *          eight channels | panels | Winograd's values][those for dx]
 */
#define BAND_FLOATS 6144 /* of a band: half of a 48 KB L1 */
#define BAND_CHANNELS 4
#define BIAS_SUMS (16 * LS_LANES)
#define PANEL_PIXELS 64 /* of all groups of a block */

/* Where the parts of scratch memory start, in floats. */
typedef struct conv_scratch {
    size_t x, d, bias, weights, data, end;
} conv_scratch;

/* In bands: nothing but a direct gradient of the weights needs the staged one. */
static bool is_banded(const conv_op *op)
{
    return op->staged && !op->base.needs_dx && !op->weights.used && !op->panels;
}

/* Rows of a band: whole pooling windows. */
static int band_rows(const ls_lanes_conv *c)
{
    int rows = BAND_FLOATS / (BAND_CHANNELS * c->ow * LS_LANES) / c->pool_h * c->pool_h;
    return rows < c->pool_h ? c->pool_h : rows < c->oh ? rows : c->oh;
}

/* Rows of panels. */
static int panel_rows(const ls_lanes_conv *c)
{
    int rows = PANEL_PIXELS / (LS_LANES_BLOCK_GROUPS * c->ow);
    return rows < 1 ? 1 : rows < c->oh ? rows : c->oh;
}

/* Inputs whose sums exist at a time: those of all in bands, since a band meets every input. */
static int inputs_at_a_time(const conv_op *op)
{
    return is_banded(op) ? ls_lanes_conv_inputs(&op->conv) : 1;
}

static size_t sums_of_an_input(const ls_lanes_conv *c)
{
    return (size_t)c->kh * (size_t)ls_lanes_conv_columns(c) * LS_LANES_OC;
}

static uint32_t eights(const conv_op *op)
{
    return (uint32_t)((op->conv.oc + LS_LANES_OC - 1) / LS_LANES_OC);
}

/* Eights of channels have sums of their own where a team divides them; else one after another has the same,
 * which stay in the cache. */
static size_t slots(const conv_op *op)
{
    return ls_team_size(op->base.team) > 1 ? eights(op) : 1;
}

static size_t slot_of(const conv_op *op, int first)
{
    return (size_t)(first / LS_LANES_OC) % slots(op);
}

/* Whether sums must be cleared before they are those of `first` … + 7: at the first in a slot, and where there
 * are fewer channels. Sums of channels that do not exist stay zero, and with them the gradients' padding. */
static bool is_unclean(const conv_op *op, int first)
{
    return slot_of(op, first) == (size_t)(first / LS_LANES_OC) || op->conv.oc - first < LS_LANES_OC;
}

static size_t band_floats(const conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    return (size_t)BAND_CHANNELS * (size_t)band_rows(c) * (size_t)c->ow * LS_LANES;
}

static size_t staged_floats(const conv_op *op)
{
    if (!op->staged)
        return 0;
    if (is_banded(op))
        return slots(op) * band_floats(op);
    return LS_LANES_BLOCK_GROUPS * op->d_group;
}

/* Floats of the sums of eight channels. */
static size_t weight_sums(const conv_op *op)
{
    return ceil_to((size_t)inputs_at_a_time(op) * sums_of_an_input(&op->conv), 16) * LS_LANES;
}

static uint32_t sixteens(const conv_op *op)
{
    return (uint32_t)((op->conv.oc + 15) / 16);
}

/* Of sixteen outputs. */
static size_t panel_floats(const conv_op *op)
{
    return (size_t)(LS_LANES_BLOCK_GROUPS * panel_rows(&op->conv) * op->conv.ow) * LS_LANES * 16;
}

static size_t weights_floats(const conv_op *op)
{
    if (op->weights.used)
        return ls_wino_gradient_floats(&op->weights.wino);
    if (op->panels)
        return sixteens(op) * panel_floats(op);
    return slots(op) * weight_sums(op);
}

/* dx of the pixels seen, of a block. */
static size_t sampled_floats(const conv_op *op)
{
    return op->sampled ? LS_LANES_BLOCK_GROUPS * op->padded_group : 0;
}

static size_t data_floats(const conv_op *op)
{
    if (!op->base.needs_dx)
        return 0;
    if (op->data.used)
        return ls_wino_weight_floats(&op->data.wino) + ls_wino_work_floats(&op->data.wino);
    return sampled_floats(op) + (ls_lanes_packs(&op->conv) ? packed_floats(&op->conv) : 0);
}

static conv_scratch divide_scratch(const conv_op *op)
{
    conv_scratch s = {0};
    s.d = s.x + (op->sampled || op->conv.pw ? LS_LANES_BLOCK_GROUPS * op->padded_group : 0);
    s.bias = s.d + staged_floats(op);
    s.weights = s.bias + slots(op) * BIAS_SUMS;
    s.data = s.weights + ceil_to(weights_floats(op), 16);
    s.end = s.data + data_floats(op);
    return s;
}

static size_t conv_backward_floats(const conv_op *op)
{
    return divide_scratch(op).end;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* x of a block, as the direct kernels read it. */
static const float *block_x(const conv_op *op, int group, int groups)
{
    float *room = (float *)op->base.b.scratch + divide_scratch(op).x;
    const float *first = conv_x(op, group, room);
    for (int g = 1; g < groups; g++)
        conv_x(op, group + g, room + (size_t)g * op->padded_group);
    return first;
}

/* The gradient in front of pool and relu of some rows and channels of one group. */
static ls_lanes_grad stage(const conv_op *op, int group, int first, int n, int y0, int y1, float *d)
{
    const ls_op_buffers *b = &op->base.b;
    const ptrdiff_t line = (ptrdiff_t)op->conv.ow * LS_LANES;
    const uint8_t *mask =
        op->mask_group ? (const uint8_t *)b->saved + (size_t)group * op->mask_group : NULL;
    op->base.kernels->conv_unpool(&op->conv, (const float *)b->dy + (size_t)group * op->y_group,
                                  mask, first, n, y0, y1, d);
    return (ls_lanes_grad){d, (ptrdiff_t)op->d_group, line, n * line};
}

/* A block of groups whose whole gradient lies at `g`; or, in bands, none. */
typedef struct conv_block {
    const conv_op *op;
    int group, groups, add;
    const float *x;
    ls_lanes_grad g;
} conv_block;

static void stage_group(void *arg, uint32_t g)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    float *d = (float *)op->base.b.scratch + divide_scratch(op).d;
    stage(op, k->group + (int)g, 0, op->conv.oc, 0, op->conv.oh, d + g * op->d_group);
}

/* The gradient of a whole block, staged if it must be. */
static ls_lanes_grad block_gradient(const conv_op *op, int group, int groups)
{
    const ls_lanes_conv *c = &op->conv;
    const ptrdiff_t line = (ptrdiff_t)c->ow * LS_LANES;
    float *d = (float *)op->base.b.scratch + divide_scratch(op).d;
    ls_lanes_grad as_is = {(const float *)op->base.b.dy + (size_t)group * op->y_group,
                           (ptrdiff_t)op->y_group, c->oh * line, line};
    if (!op->staged)
        return as_is;
    conv_block block = {.op = op, .group = group, .groups = groups};
    ls_team_run(op->base.team, (uint32_t)groups, stage_group, &block);
    return (ls_lanes_grad){d, (ptrdiff_t)op->d_group, line, c->oc * line};
}

static float *bias_sums(const conv_op *op, int first)
{
    return (float *)op->base.b.scratch + divide_scratch(op).bias + slot_of(op, first) * BIAS_SUMS;
}

static float *sums_of(const conv_op *op, int first)
{
    return (float *)op->base.b.scratch + divide_scratch(op).weights +
           slot_of(op, first) * weight_sums(op);
}

/* Takes the sums over lanes of eight channels' weights, `inputs` of them from input `i` on. */
static void finish_weights(const conv_op *op, int first, int i, int inputs, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const float *sums = sums_of(op, first);
    size_t each = sums_of_an_input(c);
    size_t at = (size_t)(first / LS_LANES_OC) * (size_t)ls_lanes_conv_inputs(c) + (size_t)i;
    op->base.kernels->sum_lanes(op->base.b.grad[0] + at * each, sums, inputs * (int)each, add);
}

static void finish_bias(const conv_op *op, int first, int add)
{
    op->base.kernels->sum_lanes(op->base.b.grad[1] + first, bias_sums(op, first), LS_LANES_OC, add);
}

/* ---- the weights ----------------------------------------------------------------------------- */

static int eight_or_less(const conv_op *op, int first)
{
    int left = op->conv.oc - first;
    return left < LS_LANES_OC ? left : LS_LANES_OC;
}

static void bias_of_eight(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    float *sums = bias_sums(op, first);
    ls_lanes_grad of = k->g;
    of.d += first * of.channel;
    if (is_unclean(op, first))
        memset(sums, 0, BIAS_SUMS * sizeof *sums);
    op->base.kernels->conv_bias(&op->conv, of, k->groups, n, 0, op->conv.oh, sums, 0);
    finish_bias(op, first, k->add);
}

/* Of one thread's panels, a few rows at a time. */
static void weights_by_panels(void *arg, uint32_t part)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    const int rows = panel_rows(&op->conv);
    uint32_t first, count;
    ls_split(sixteens(op), (uint32_t)ls_team_size(op->base.team), part, &first, &count);
    if (count == 0)
        return;
    ls_lanes_conv c = op->conv; /* of these outputs alone */
    const int left = c.oc - (int)first * 16;
    c.oc = (int)count * 16 < left ? (int)count * 16 : left;
    ls_lanes_grad g = k->g;
    g.d += (ptrdiff_t)first * 16 * g.channel;
    float *panels =
        (float *)op->base.b.scratch + divide_scratch(op).weights + first * panel_floats(op);
    float *gw = op->base.b.grad[0] + first * 2 * (size_t)(c.ic * c.kh * c.kw * LS_LANES_OC);
    for (int y0 = 0; y0 < c.oh; y0 += rows) {
        int y1 = y0 + rows < c.oh ? y0 + rows : c.oh;
        op->base.kernels->conv_panels(&c, g, k->groups, y0, y1, panels);
        op->base.kernels->conv_weights(&c, k->x, panels, k->groups, y0, y1, gw, y0 > 0 || k->add);
    }
}

static void clear_sums(const conv_op *op, int first)
{
    memset(bias_sums(op, first), 0, BIAS_SUMS * sizeof(float));
    memset(sums_of(op, first), 0, weight_sums(op) * sizeof(float));
}

/* Gradients of eight channels out of a block's whole gradient. */
static void weights_of_eight(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    const ls_lanes_conv *c = &op->conv;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    ls_lanes_grad g = k->g;
    g.d += first * g.channel;
    if (is_unclean(op, first))
        clear_sums(op, first);
    for (int i = 0; i < ls_lanes_conv_inputs(c); i++) {
        op->base.kernels->conv_correlate(c, k->x, g, k->groups, n, i, i + 1, 0, c->oh,
                                         sums_of(op, first), 0);
        finish_weights(op, first, i, 1, k->add);
    }
}

/* Adds what four channels of one group contribute to the sums of their eight. */
static void four_in_bands(const conv_op *op, const float *x, int group, int first, int n, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_lanes_kernels *k = op->base.kernels;
    const int rows = band_rows(c);
    float *band =
        (float *)op->base.b.scratch + divide_scratch(op).d + slot_of(op, first) * band_floats(op);
    size_t at = (size_t)(first % LS_LANES_OC) * LS_LANES;
    for (int y0 = 0; y0 < c->oh; y0 += rows, add = 1) {
        int y1 = y0 + rows < c->oh ? y0 + rows : c->oh;
        ls_lanes_grad g = stage(op, group, first, n, y0, y1, band);
        if (op->bias)
            k->conv_bias(c, g, 1, n, y0, y1, bias_sums(op, first) + at, add);
        k->conv_correlate(c, x, g, 1, n, 0, ls_lanes_conv_inputs(c), y0, y1,
                          sums_of(op, first) + at, add);
    }
}

static void eight_in_bands(void *arg, uint32_t eight)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    const int first = (int)eight * LS_LANES_OC, n = eight_or_less(op, first);
    if (is_unclean(op, first))
        clear_sums(op, first);
    for (int g = 0; g < k->groups; g++) {
        const float *of_group = k->x + (size_t)g * op->padded_group;
        for (int o = 0; o < n; o += BAND_CHANNELS)
            four_in_bands(op, of_group, k->group + g, first + o,
                          n - o < BAND_CHANNELS ? n - o : BAND_CHANNELS, g > 0);
    }
    if (op->bias)
        finish_bias(op, first, k->add);
    finish_weights(op, first, 0, ls_lanes_conv_inputs(&op->conv), k->add);
}

static void weights_of_block(conv_block *k)
{
    const conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    if (op->bias)
        ls_team_run(op->base.team, eights(op), bias_of_eight, k);
    if (op->weights.used) {
        ls_wino_gradient(&op->weights.wino, k->groups, b->grad[0],
                         (const float *)b->x + (size_t)k->group * op->x_group, k->g.d, k->add,
                         (float *)b->scratch + divide_scratch(op).weights);
        return;
    }
    k->x = block_x(op, k->group, k->groups);
    if (op->panels)
        ls_team_run(op->base.team, (uint32_t)ls_team_size(op->base.team), weights_by_panels, k);
    else
        ls_team_run(op->base.team, eights(op), weights_of_eight, k);
}

/* ---- x --------------------------------------------------------------------------------------- */

static void data_of_group(void *arg, uint32_t i)
{
    const conv_block *k = arg;
    const conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    float *dx = (float *)b->dx + (size_t)(k->group + (int)i) * op->x_group;
    float *rooms = (float *)b->scratch + divide_scratch(op).data;
    float *room = rooms + i * op->padded_group;
    const float *w = ls_lanes_packs(&op->conv) ? rooms + sampled_floats(op) : b->param[0];
    ls_lanes_grad g = k->g;
    g.d += (ptrdiff_t)i * g.group;
    op->base.kernels->conv_data(&op->conv, g, w, op->sampled ? room : dx);
    if (op->sampled)
        conv_unsample(op, room, dx);
}

static void data_of_block(conv_block *k)
{
    const conv_op *op = k->op;
    const ls_op_buffers *b = &op->base.b;
    const ls_wino_finish nothing = {0};
    float *room = (float *)b->scratch + divide_scratch(op).data;
    if (op->data.used)
        ls_wino_conv(&op->data.wino, k->groups, (float *)b->dx + (size_t)k->group * op->x_group,
                     k->g.d, room, &nothing, room + ls_wino_weight_floats(&op->data.wino));
    else
        ls_team_run(op->base.team, (uint32_t)k->groups, data_of_group, k);
}

/* What all blocks' dx are made of. */
static void prepare_weights(const conv_op *op)
{
    const float *w = op->base.b.param[0];
    float *room = (float *)op->base.b.scratch + divide_scratch(op).data;
    if (op->data.used)
        ls_wino_weights(&op->data.wino, room, w);
    else if (ls_lanes_packs(&op->conv))
        pack(&op->conv, w, room + sampled_floats(op));
}

static int conv_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const conv_op *op = (const conv_op *)base;
    (void)stream;
    (void)err;
    if (op->base.needs_dx)
        prepare_weights(op);
    for (int group = 0; group < op->base.groups; group += LS_LANES_BLOCK_GROUPS) {
        conv_block k = {.op = op, .group = group, .groups = ls_lanes_block(&op->base, group)};
        k.add = group > 0 || (flags & LS_RUN_ACCUMULATE);
        if (is_banded(op)) {
            k.x = block_x(op, group, k.groups);
            ls_team_run(op->base.team, eights(op), eight_in_bands, &k);
            continue;
        }
        k.g = block_gradient(op, group, k.groups);
        weights_of_block(&k);
        if (op->base.needs_dx)
            data_of_block(&k);
    }
    return LS_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

static const ls_op_impl conv_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = conv_forward,
    .backward = conv_backward,
    .import_param = conv_import,
    .export_param = conv_export,
    .destroy = ls_lanes_op_destroy,
};

static int outputs(int size, int kernel, int stride, int pad)
{
    int room = size + 2 * pad - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

/* Only averages over windows that tile the output can be fused. */
static bool pool_fits(const ls_pool2d *p, int oh, int ow)
{
    return !p->max && p->kh >= 1 && p->kw >= 1 && p->kh == p->sh && p->kw == p->sw && p->ph == 0 &&
           p->pw == 0 && oh >= p->kh && ow >= p->kw;
}

static int geometry(ls_lanes_conv *c, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d filled = ls_conv2d_filled(desc->u.conv2d), *k = &filled;
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0 ||
        k->dh < 1 || k->dw < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d channels, kernel %d×%d, stride %d×%d, padding "
                       "%d×%d, dilation %d×%d",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw, k->dh, k->dw);
    int oh = outputs(desc->x.h, (k->kh - 1) * k->dh + 1, k->sh, k->ph);
    int ow = outputs(desc->x.w, (k->kw - 1) * k->dw + 1, k->sw, k->pw);
    if (oh < 1 || ow < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d, dilated by %d×%d, does not fit into %d×%d with "
                       "padding %d×%d",
                       k->kh, k->kw, k->dh, k->dw, desc->x.h, desc->x.w, k->ph, k->pw);
    if (desc->fuse_pool && !pool_fits(&desc->pool, oh, ow))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "lanes: only averages over windows side by side are "
                       "fused into a convolution");
    *c = (ls_lanes_conv){
        .ic = desc->x.c,
        .ih = desc->x.h,
        .iw = desc->x.w + 2 * k->pw,
        .oc = k->out,
        .kh = k->kh,
        .kw = k->kw,
        .sh = k->sh,
        .sw = k->sw,
        .ph = k->ph,
        .dh = k->dh,
        .dw = k->dw,
        .x_w = desc->x.w,
        .pw = k->pw,
        .relu = desc->fuse_relu,
        .pool_h = desc->fuse_pool ? desc->pool.kh : 1,
        .pool_w = desc->fuse_pool ? desc->pool.kw : 1,
    };
    c->y_h = oh / c->pool_h;
    c->y_w = ow / c->pool_w;
    c->oh = c->y_h * c->pool_h; /* the pool drops what is beyond: it is not computed */
    c->ow = c->y_w * c->pool_w;
    return LS_OK;
}

/* ---- the choice of kernels ------------------------------------------------------------------- */

/* F(2×2, 3×3) has rounding errors smaller than the direct form's; F(4×4, 3×3) has three times as
 * much and takes three quarters of the time; F(2×2, 5×5), of the same points, has twice as much.
 *
 *   y    Errors decide which side of a relu a number near zero falls on, and a unit on the wrong
 *        side moves all gradients below by a thousand times as much: F(2×2, 3×3), and 5×5 is direct.
 *        (By F(2×2, 5×5) LeNet's second layer takes three quarters of the time, but the error of its
 *        last bias's gradient, 2.4 of PyTorch's, is beyond the bound, and ten steps part from float64.)
 *   dx   Errors stay what they are, but go into all gradients below: F(4×4, 3×3) where it saves a
 *        third of the products, which it does not where tiles reach far beyond the image (14 × 14), and
 *        not in images of one tile: they belong to layers of many channels, late in a network.
 *   dw   Errors stay in this gradient alone, and sums over rows average them: what is fastest. */

/* Products of a pass over h × w outputs, a pair of channels. */
static int products(int form, int h, int w)
{
    int m = form == LS_WINO_4_3 ? 4 : 2, n = form == LS_WINO_2_3 ? 4 : 6;
    return (h + m - 1) / m * ((w + m - 1) / m) * n * n;
}

#define CHANNELS 16 /* so many pay for the transforms */

/* h × w: of the outputs of the pass. */
static bool winograd_fits(const ls_lanes_conv *c, int form, int h, int w)
{
    const int taps = c->kh * c->kw, side = form == LS_WINO_2_5 ? 5 : 3;
    return c->kh == side && c->kw == side && c->sh == 1 && c->sw == 1 && c->dh == 1 && c->dw == 1 &&
           c->ph < side && c->pw < side && c->ic >= CHANNELS && c->oc >= CHANNELS &&
           (c->pool_h * c->pool_w == 1 || (c->pool_h == 2 && c->pool_w == 2)) &&
           3 * products(form, h, w) < 2 * taps * c->oh * c->ow;
}

/* Steps of a staged gradient: [row][channel][column]. */
static void lie_as_staged(const conv_op *op, ls_wino_image *d)
{
    if (!op->staged)
        return;
    d->channel = (size_t)op->conv.ow * LS_LANES;
    d->line = (size_t)op->conv.oc * d->channel;
    d->group = op->d_group;
}

/* y's steps where it is pooled. */
static void lie_as_pooled(const conv_op *op, ls_wino_image *y)
{
    y->line = (size_t)op->conv.y_w * LS_LANES;
    y->channel = (size_t)op->conv.y_h * y->line;
    y->group = op->y_group;
}

static void choose_winograd(conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    const ls_wino_kernels *k = &op->base.kernels->wino;
    const ls_wino_shape s = {c->ic, c->oc, c->ih, c->x_w, c->oh, c->ow, c->ph, c->pw};
    const int small = c->kh == 5 ? LS_WINO_2_5 : LS_WINO_2_3;
    const int two = products(LS_WINO_2_3, c->oh, c->ow), four = products(LS_WINO_4_3, c->oh, c->ow);
    const int for_weights = c->kh == 3 && four < two ? LS_WINO_4_3 : small;
    const bool one_tile = c->oh <= 4 && c->ow <= 4;
    const int for_data = c->kh == 3 && 3 * four < 2 * two && !one_tile ? LS_WINO_4_3 : small;
    op->forward.used = winograd_fits(c, LS_WINO_2_3, c->oh, c->ow);
    op->weights.used = winograd_fits(c, for_weights, c->oh, c->ow);
    op->data.used = winograd_fits(c, for_data, c->ih, c->x_w);
    ls_wino_init(&op->forward.wino, k, LS_WINO_2_3, &s);
    ls_wino_init(&op->weights.wino, k, for_weights, &s);
    ls_wino_init_data(&op->data.wino, k, for_data, &s);
    lie_as_pooled(op, &op->forward.wino.y);
    lie_as_staged(op, &op->weights.wino.y);
    lie_as_staged(op, &op->data.wino.x);
    op->forward.wino.team = op->weights.wino.team = op->data.wino.team = op->base.team;
}

/* Panels have sixteen outputs each: where the last one is nearly full, and inputs are many. */
static bool panels_pay(const ls_lanes_conv *c)
{
    return c->ic >= 8 && 10 * c->oc >= 9 * (c->oc + 15) / 16 * 16;
}

/* A kernel of one element becomes a product over pixels in one line. */
static void sample(conv_op *op)
{
    ls_lanes_conv *c = &op->conv;
    if (c->kh * c->kw != 1 || c->ph || c->pw || c->pool_h * c->pool_w > 1)
        return;
    op->sampled = c->sh > 1 || c->sw > 1;
    c->iw = c->x_w = c->ow = c->y_w = c->oh * c->ow;
    c->ih = c->oh = c->y_h = c->sh = c->sw = 1;
}

static void set_sizes(conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    ls_op *o = &op->base.op;
    op->x_group = (size_t)c->ic * (size_t)op->x_h * (size_t)op->x_w * LS_LANES;
    op->padded_group = (size_t)c->ic * (size_t)c->ih * (size_t)c->iw * LS_LANES;
    op->y_group = (size_t)c->oc * (size_t)c->y_h * (size_t)c->y_w * LS_LANES;
    op->d_group = (size_t)c->oc * (size_t)c->oh * (size_t)c->ow * LS_LANES;
    op->staged = c->relu || c->pool_h * c->pool_w > 1;
    if (op->base.training && c->relu)
        op->mask_group = op->d_group / LS_LANES * (size_t)op->base.kernels->mask_bytes;
    o->params = op->bias ? 2 : 1;
    o->param_floats[0] = conv_weight_floats(c);
    o->param_floats[1] = op->bias ? conv_bias_floats(c) : 0;
    o->saved_bytes = (size_t)op->base.groups * op->mask_group;
    choose_winograd(op);
    op->panels = panels_pay(c);
    size_t forward = (size_t)ls_team_size(op->base.team) * forward_room(op);
    if (op->forward.used)
        forward = ls_wino_weight_floats(&op->forward.wino) + ls_wino_work_floats(&op->forward.wino);
    size_t backward = op->base.training ? conv_backward_floats(op) : 0;
    o->scratch_bytes = (forward > backward ? forward : backward) * sizeof(float);
}

int ls_cpu_conv_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_conv c = {0};
    ls_lanes_op *base;
    if (ls_conv2d_filled(desc->u.conv2d).groups != 1)
        return ls_lanes_groups_create(out, device, desc, err);
    int status = geometry(&c, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(conv_op), &conv_impl, device, desc, err);
    if (status)
        return status;
    conv_op *op = (conv_op *)base;
    op->conv = c;
    op->x_h = c.ih;
    op->x_w = c.x_w;
    op->sh = c.sh;
    op->sw = c.sw;
    op->bias = desc->u.conv2d.bias;
    sample(op);
    ls_lanes_op_set_y(base, c.oc, c.y_h, c.y_w);
    set_sizes(op);
    return ls_lanes_op_finish(out, base, desc, err);
}
