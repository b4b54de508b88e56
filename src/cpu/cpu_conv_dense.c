/* Convolution and the dense layer by oneDNN. */
#include "cpu/cpu_linear.h"

#include "base/error.h"
#include "cpu/cpu_isa.h"

/* ---- convolution ----------------------------------------------------------------------------- */

/* Two-dimensional convolution by oneDNN's direct form.
 *
 * Which of oneDNN's layouts is best depends on the channels. Its blocked layouts pad both channel
 * counts to multiples of 16; that is the fastest form where the padding is small. Where less than
 * three quarters of the padded products are useful (20 → 50 channels: 49 %), channels last is
 * faster: 1.4 times for LeNet. An input of few channels does not count as padding: its kernels do
 * not block it. Channels last needs both sides to be channels last, also an input of one channel,
 * whose NHWC is the same memory as its plain form: described as plain, it falls to the reference
 * loops.
 *
 * A row's result does not depend on its neighbours except through the number of rows, by which
 * another kernel may be chosen; a weight gradient sums over rows in the kernel's order. */

#define LIMIT 1000000 /* of every number, so that sums of them fit an int */

static int make_conv(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc, ls_pass pass,
                     const ls_linear_mds *mds, ls_pd hint, ls_error *err)
{
    int relu = desc->fuse_relu && pass == LS_PASS_FORWARD;
    return ls_pd_conv(out, device, pass, mds, &desc->u.conv2d, 0, relu, hint, err);
}

static double padded(int channels)
{
    return (channels + 15) / 16 * 16;
}

static bool channels_last_is_better(int in, int out)
{
    double useful = out / padded(out);
    if (in > 4)
        useful *= in / padded(in);
    return useful < 0.75;
}

/* The same list for any number of rows: twins find each other's choice by its place. */
static int list_candidates(ls_linear_candidate list[3], const ls_op_desc *desc)
{
    const ls_linear_candidate last = {LS_MD_NHWC, LS_MD_NHWC, 0};
    const ls_linear_candidate blocked = {LS_MD_ANY, LS_MD_ANY, 0};
    const ls_tensor *x = &desc->x;
    int n = 0;
    if (channels_last_is_better(x->c, desc->u.conv2d.out)) {
        list[n++] = last;
        list[n++] = blocked;
    } else {
        list[n++] = blocked;
        list[n++] = last;
    }
    list[n++] = (ls_linear_candidate){LS_MD_PLAIN, LS_MD_PLAIN, 0};
    return n;
}

static int check(const ls_tensor *x, const ls_conv2d *k, ls_error *err)
{
    if (k->out < 1 || k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: %d outputs, kernel %d×%d, stride %d×%d, padding %d×%d: outputs, "
                       "kernel and stride must be at least 1, padding at least 0",
                       k->out, k->kh, k->kw, k->sh, k->sw, k->ph, k->pw);
    if (k->out > LIMIT || k->kh > LIMIT || k->kw > LIMIT || k->sh > LIMIT || k->sw > LIMIT ||
        k->ph > LIMIT || k->pw > LIMIT)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: outputs, kernel, stride and padding can be at most %d", LIMIT);
    if (x->h + 2 * k->ph < k->kh || x->w + 2 * k->pw < k->kw)
        return ls_fail(err, LS_EINVAL,
                       "conv2d: a kernel of %d×%d does not fit an input of %d×%d with padding "
                       "%d×%d",
                       k->kh, k->kw, x->h, x->w, k->ph, k->pw);
    return LS_OK;
}

int ls_cpu_conv_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_conv2d *k = &desc->u.conv2d;
    ls_linear_candidate candidates[3];
    *out = NULL;
    if (desc->fuse_pool)
        return ls_fail(err, LS_EUNSUPPORTED, "oneDNN does not fuse a pooling into conv2d");
    int status = check(x, k, err);
    if (status)
        return status;
    ls_linear l = {.name = "conv2d", .make = make_conv, .candidates = candidates};
    l.c = k->out;
    l.h = (x->h + 2 * k->ph - k->kh) / k->sh + 1;
    l.w = (x->w + 2 * k->pw - k->kw) / k->sw + 1;
    l.count = list_candidates(candidates, desc);
    l.plain.x = ls_md_image(x->rows, x->c, x->h, x->w, LS_MD_PLAIN);
    l.plain.weight = ls_md_image(k->out, x->c, k->kh, k->kw, LS_MD_PLAIN);
    l.plain.bias = ls_md_make(1, &k->out, LS_MD_PLAIN);
    l.plain.y = ls_md_image(x->rows, l.c, l.h, l.w, LS_MD_PLAIN);
    l.plain.has_bias = k->bias != 0;
    return ls_cpu_linear_create(out, device, desc, &l, err);
}

/* ---- dense ----------------------------------------------------------------------------------- */

/* The dense layer by oneDNN's inner product. x keeps its image shape, so that flattening in
 * c, h, w order is a matter of the weights' layout and x is not converted; y is plain. */

/* A dense layer of few outputs: y = weight · x + bias, summed in double.
 *
 * That is a network's last layer. Every gradient is made out of its outputs, so that their rounding
 * errors are in all of them: oneDNN's, which adds a row's products up in one float, were the largest
 * errors of ResNet-18's last layers, and take the same time. */
static int run(void *self, float *x, float *y, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const ls_cpu_kernels *kernels = &ls_cpu_isa_at(0)->kernels;
    const float *weight = ls_program_memory(&op->program, op->head_weight);
    const float *bias = op->op.params > 1 ? op->buffers.param[1] : NULL;
    int out = op->op.y.c;
    size_t in = ls_md_bytes(&op->param_plain[0]) / sizeof(float) / (size_t)out;
    (void)flags;
    (void)err;
    for (int row = 0; row < op->op.y.rows; row++, x += in)
        for (int o = 0; o < out; o++) {
            double sum = kernels->dot(x, weight + (size_t)o * in, in);
            *y++ = (float)(sum + (bias ? (double)bias[o] : 0));
        }
    return LS_OK;
}

void ls_cpu_head_forward(ls_cpu_op *op, const ls_md *plain_x, int x, int weight, int y)
{
    ls_program *p = &op->program;
    int plain = ls_program_convert(p, x, plain_x, LS_AT_TEMP);
    op->head_weight = ls_program_convert(p, weight, &op->param_plain[0], LS_AT_TEMP);
    ls_program_call(p, run, op, plain, y);
}

static int make_dense(ls_pd *out, const ls_cpu_device *device, const ls_op_desc *desc, ls_pass pass,
                      const ls_linear_mds *mds, ls_pd hint, ls_error *err)
{
    int relu = desc->fuse_relu && pass == LS_PASS_FORWARD;
    return ls_pd_dense(out, device, pass, mds, relu, hint, err);
}

int ls_cpu_dense_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    static const ls_linear_candidate candidates[] = {
        {LS_MD_ANY, LS_MD_PLAIN, 1},
        {LS_MD_ANY, LS_MD_PLAIN, 0},
        {LS_MD_PLAIN, LS_MD_PLAIN, 0},
    };
    const ls_tensor *x = &desc->x;
    const ls_dense *k = &desc->u.dense;
    int y[2] = {x->rows, k->out};
    *out = NULL;
    if (k->out < 1)
        return ls_fail(err, LS_EINVAL, "dense: %d outputs; at least 1 is needed", k->out);
    ls_linear l = {.name = "dense", .make = make_dense, .candidates = candidates, .count = 3};
    l.c = k->out;
    l.h = l.w = 1;
    l.plain.x = ls_md_image(x->rows, x->c, x->h, x->w, LS_MD_PLAIN);
    l.plain.weight = ls_md_image(k->out, x->c, x->h, x->w, LS_MD_PLAIN);
    l.plain.bias = ls_md_make(1, &k->out, LS_MD_PLAIN);
    l.plain.y = ls_md_make(2, y, LS_MD_PLAIN);
    l.plain.has_bias = k->bias != 0;
    l.head = k->out <= LS_HEAD_OUTPUTS && !desc->fuse_relu;
    return ls_cpu_linear_create(out, device, desc, &l, err);
}
