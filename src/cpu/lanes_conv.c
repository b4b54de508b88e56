/* The convolution op: geometry, creation, forward, parameters and gradients.
 *
 * Forward scratch: [a tile][one group of x with padded columns, if there is padding].
 */
#include "base/error.h"
#include "cpu/lanes_op.h"

#include <string.h>

typedef struct conv_op {
    ls_lanes_op base; /* first */
    ls_lanes_conv conv;
    bool bias;
    bool staged;                         /* dy has to go back through pool and relu before use */
    size_t x_group;                      /* floats of a group of x (and of dx) */
    size_t padded_group;                 /* the same with padded columns */
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

static int conv_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    conv_op *op = self_of(base);
    const ls_op_buffers *b = &op->base.b;
    float *tile = b->scratch, *padded = tile + LS_LANES_TILE;
    (void)stream;
    (void)flags;
    (void)err;
    for (int g = 0; g < op->base.groups; g++) {
        const float *x = (const float *)b->x + (size_t)g * op->x_group;
        uint8_t *mask = op->mask_group ? (uint8_t *)b->saved + (size_t)g * op->mask_group : NULL;
        if (op->conv.pw) {
            conv_pad(&op->conv, x, padded);
            x = padded;
        }
        op->base.kernels->conv_forward(&op->conv, x, b->param[0], op->bias ? b->param[1] : NULL,
                                       (float *)b->y + (size_t)g * op->y_group, mask, tile);
    }
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

static size_t conv_packed_floats(const ls_lanes_conv *c)
{
    return ceil_to((size_t)c->ic, LS_LANES_IC) * (size_t)c->oc * (size_t)c->kh * (size_t)c->kw;
}

/* Both sides are walked in runs: eight output channels are adjacent in `w`, four input channels
 * in `packed`. Places of input channels beyond the last are never read. */
static void conv_pack(const ls_lanes_conv *c, const float *w, float *packed)
{
    const int elements = c->kh * c->kw;
    for (int i = 0; i < c->ic; i++) {
        float *to = packed +
                    (size_t)(i / LS_LANES_IC) * (size_t)elements * (size_t)c->oc * LS_LANES_IC +
                    i % LS_LANES_IC;
        for (int o = 0; o < c->oc; o += LS_LANES_OC) {
            const float *from = w + place(c, o, i, 0);
            int n = c->oc - o < LS_LANES_OC ? c->oc - o : LS_LANES_OC;
            for (int e = 0; e < elements; e++)
                for (int j = 0; j < n; j++)
                    to[((size_t)e * (size_t)c->oc + (size_t)(o + j)) * LS_LANES_IC] =
                        from[e * LS_LANES_OC + j];
        }
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The convolution op's gradients: scratch memory and the order in which kernels run.
 *
 * The gradient in front of the fused pool and relu is made in scratch ("staged"). Where dx is
 * needed a whole block of it is, since dx sums over all channels. In a network's first layer it is
 * made in bands, four channels by a few rows that stay in L1, and consumed at once.
 *
 * Scratch: [a block of x with padded columns][staged gradient][weights packed for dx]
 *          [sums of the bias][sums of the weights of eight channels]
 */
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
static int inputs_at_a_time(const conv_op *op)
{
    return op->base.needs_dx ? 1 : ls_lanes_conv_inputs(&op->conv);
}

static size_t sums_of_an_input(const ls_lanes_conv *c)
{
    return (size_t)c->kh * (size_t)ls_lanes_conv_columns(c) * LS_LANES_OC;
}

static size_t staged_floats(const conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    if (!op->staged)
        return 0;
    if (op->base.needs_dx)
        return LS_LANES_BLOCK_GROUPS * op->d_group;
    return (size_t)BAND_CHANNELS * (size_t)band_rows(c) * (size_t)c->ow * LS_LANES;
}

static conv_scratch divide_scratch(const conv_op *op)
{
    conv_scratch s = {0};
    size_t packed = op->base.needs_dx ? conv_packed_floats(&op->conv) : 0;
    size_t sums = (size_t)inputs_at_a_time(op) * sums_of_an_input(&op->conv);
    s.d = s.x + (op->conv.pw ? LS_LANES_BLOCK_GROUPS * op->padded_group : 0);
    s.packed = s.d + staged_floats(op);
    s.bias = s.packed + (packed + 15) / 16 * 16;
    s.weights = s.bias + BIAS_SUMS;
    s.end = s.weights + (sums + 15) / 16 * 16 * LS_LANES;
    return s;
}

static size_t conv_backward_floats(const conv_op *op)
{
    return divide_scratch(op).end;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* x of a block, its columns padded. */
static const float *padded_x(const conv_op *op, int group, int groups)
{
    const float *x = (const float *)op->base.b.x + (size_t)group * op->x_group;
    float *padded = (float *)op->base.b.scratch + divide_scratch(op).x;
    if (!op->conv.pw)
        return x;
    for (int g = 0; g < groups; g++)
        conv_pad(&op->conv, x + (size_t)g * op->x_group, padded + (size_t)g * op->padded_group);
    return padded;
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
    for (int g = groups - 1; g > 0; g--)
        stage(op, group + g, 0, c->oc, 0, c->oh, d + (size_t)g * op->d_group);
    return stage(op, group, 0, c->oc, 0, c->oh, d);
}

/* Takes the sums over lanes of eight channels' weights, `inputs` of them from input `i` on. */
static void finish_weights(const conv_op *op, int first, int i, int inputs, int add)
{
    const ls_lanes_conv *c = &op->conv;
    const float *sums = (const float *)op->base.b.scratch + divide_scratch(op).weights;
    size_t each = sums_of_an_input(c);
    size_t at = (size_t)(first / LS_LANES_OC) * (size_t)ls_lanes_conv_inputs(c) + (size_t)i;
    op->base.kernels->sum_lanes(op->base.b.grad[0] + at * each, sums, inputs * (int)each, add);
}

static void finish_bias(const conv_op *op, int first, int add)
{
    const float *sums = (const float *)op->base.b.scratch + divide_scratch(op).bias;
    op->base.kernels->sum_lanes(op->base.b.grad[1] + first, sums, LS_LANES_OC, add);
}

/* ---- the two ways ---------------------------------------------------------------------------- */

/* Gradients of eight channels out of a block's whole gradient. */
static void eight_of_block(const conv_op *op, const float *x, ls_lanes_grad g, int groups,
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
static void four_in_bands(const conv_op *op, const float *x, int group, int first, int n, int add)
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

static void eight_in_bands(const conv_op *op, const float *x, int group, int groups, int first,
                           int n, int add)
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
static void clear_sums(const conv_op *op)
{
    const conv_scratch s = divide_scratch(op);
    float *scratch = op->base.b.scratch;
    for (size_t i = s.bias; i < s.end; i++)
        scratch[i] = 0;
}

static void backward_block(const conv_op *op, int group, int groups, int add)
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

static int conv_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const conv_op *op = (const conv_op *)base;
    const ls_op_buffers *b = &op->base.b;
    (void)stream;
    (void)err;
    if (op->base.needs_dx)
        conv_pack(&op->conv, b->param[0], (float *)b->scratch + divide_scratch(op).packed);
    for (int group = 0; group < op->base.groups; group += LS_LANES_BLOCK_GROUPS)
        backward_block(op, group, ls_lanes_block(&op->base, group),
                       group > 0 || (flags & LS_RUN_ACCUMULATE));
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
    const ls_conv2d *k = &desc->u.conv2d;
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d channels, kernel %d×%d, stride %d×%d, padding "
                       "%d×%d",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw);
    int oh = outputs(desc->x.h, k->kh, k->sh, k->ph), ow = outputs(desc->x.w, k->kw, k->sw, k->pw);
    if (oh < 1 || ow < 1)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d does not fit into %d×%d with "
                       "padding %d×%d",
                       k->kh, k->kw, desc->x.h, desc->x.w, k->ph, k->pw);
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

static void set_sizes(conv_op *op)
{
    const ls_lanes_conv *c = &op->conv;
    ls_op *o = &op->base.op;
    op->x_group = (size_t)c->ic * (size_t)c->ih * (size_t)c->x_w * LS_LANES;
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
    size_t forward = LS_LANES_TILE + (c->pw ? op->padded_group : 0);
    size_t backward = op->base.training ? conv_backward_floats(op) : 0;
    o->scratch_bytes = (forward > backward ? forward : backward) * sizeof(float);
}

int ls_lanes_conv_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                         const ls_op_desc *desc, ls_error *err)
{
    ls_lanes_conv c;
    ls_lanes_op *base;
    int status = geometry(&c, desc, err);
    if (!status)
        status = ls_lanes_op_new(&base, sizeof(conv_op), &conv_impl, host, kernels, desc, err);
    if (status)
        return status;
    conv_op *op = (conv_op *)base;
    op->conv = c;
    op->bias = desc->u.conv2d.bias;
    ls_lanes_op_set_y(base, c.oc, c.y_h, c.y_w);
    set_sizes(op);
    return ls_lanes_op_finish(out, base, desc, err);
}
