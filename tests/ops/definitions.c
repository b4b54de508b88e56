/* SPDX-License-Identifier: MIT */
#include "ops/definitions.h"

#include "ops/op_chain.h"

#include "base/rng.h"

#include <math.h>

static size_t at(const ls_tensor *t, int n, int c, int i, int j)
{
    return (((size_t)n * (size_t)t->c + (size_t)c) * (size_t)t->h + (size_t)i) * (size_t)t->w +
           (size_t)j;
}

static int is_inside(const ls_tensor *t, int i, int j)
{
    return i >= 0 && i < t->h && j >= 0 && j < t->w;
}

static double conv_at(const ls_op_desc *d, const double *x, const double *weight, int n, int o,
                      int i, int j)
{
    const ls_conv2d v = ls_conv2d_filled(d->u.conv2d);
    const int each = d->x.c / v.groups, first = o / (v.out / v.groups) * each;
    double sum = 0;
    for (int c = 0; c < each; c++)
        for (int a = 0; a < v.kh; a++)
            for (int b = 0; b < v.kw; b++) {
                int row = i * v.sh - v.ph + a * v.dh, column = j * v.sw - v.pw + b * v.dw;
                if (is_inside(&d->x, row, column))
                    sum += x[at(&d->x, n, first + c, row, column)] *
                           weight[((o * each + c) * v.kh + a) * v.kw + b];
            }
    return sum;
}

static size_t conv(double *y, const ls_op_desc *d, const double *x, const double *weight,
                   const double *bias)
{
    const ls_conv2d v = ls_conv2d_filled(d->u.conv2d);
    const int high = v.dh * (v.kh - 1), wide = v.dw * (v.kw - 1);
    size_t count = 0;
    for (int n = 0; n < d->x.rows; n++)
        for (int o = 0; o < v.out; o++)
            for (int i = 0; i * v.sh + high < d->x.h + 2 * v.ph; i++)
                for (int j = 0; j * v.sw + wide < d->x.w + 2 * v.pw; j++)
                    y[count++] = conv_at(d, x, weight, n, o, i, j) + (bias ? bias[o] : 0);
    return count;
}

static size_t dense(double *y, const ls_op_desc *d, const double *x, const double *weight,
                    const double *bias)
{
    int in = d->x.c * d->x.h * d->x.w, out = d->u.dense.out;
    for (int n = 0; n < d->x.rows; n++)
        for (int o = 0; o < out; o++) {
            y[n * out + o] = bias ? bias[o] : 0;
            for (int i = 0; i < in; i++)
                y[n * out + o] += x[n * in + i] * weight[o * in + i];
        }
    return (size_t)d->x.rows * (size_t)out;
}

static double pool_at(const ls_op_desc *d, const double *x, int n, int c, int i, int j)
{
    const ls_pool2d *p = &d->pool;
    double sum = 0, most = -INFINITY;
    int pixels = 0;
    for (int a = 0; a < p->kh; a++)
        for (int b = 0; b < p->kw; b++) {
            int row = i * p->sh - p->ph + a, column = j * p->sw - p->pw + b;
            if (is_inside(&d->x, row, column)) {
                sum += x[at(&d->x, n, c, row, column)];
                most = fmax(most, x[at(&d->x, n, c, row, column)]);
                pixels++;
            } else if (p->count_padding && row < d->x.h + p->ph + p->eh &&
                       column < d->x.w + p->pw + p->ew) {
                pixels++;
            }
        }
    return p->max ? most : sum / pixels;
}

/* Returns whether there is a window number i along a side: it ends inside the padded image, or,
 * with `ceil`, it is the first one that does not, and does not begin in the padding behind the
 * image. */
static int is_window(const ls_pool2d *p, int i, int stride, int kernel, int before, int extra,
                     int size)
{
    const int first = i * stride - before, end = size + before + extra;
    if (first + kernel <= end)
        return 1;
    return p->ceil && first < size && (i == 0 || first - stride + kernel < end);
}

static size_t pool(double *y, const ls_op_desc *d, const double *x)
{
    const ls_pool2d *p = &d->pool;
    size_t count = 0;
    for (int n = 0; n < d->x.rows; n++)
        for (int c = 0; c < d->x.c; c++)
            for (int i = 0; is_window(p, i, p->sh, p->kh, p->ph, p->eh, d->x.h); i++)
                for (int j = 0; is_window(p, j, p->sw, p->kw, p->pw, p->ew, d->x.w); j++)
                    y[count++] = pool_at(d, x, n, c, i, j);
    return count;
}

static double row_weight(const definition_inputs *in, int row)
{
    return in->row_weights ? (double)op_row_weight((size_t)row) : 1;
}

static size_t loss(double *y, const ls_op_desc *d, const definition_inputs *in)
{
    const double *x = in->x;
    const int32_t *labels = in->labels;
    int classes = d->x.c * d->x.h * d->x.w;
    double smoothing = (double)d->u.softmax_xent.smoothing;
    y[0] = 0;
    for (int n = 0; n < d->x.rows; n++)
        for (int i = 0; i < classes; i++) {
            const double weight =
                (d->u.softmax_xent.weighted ? (double)op_class_weight(labels[n]) : 1) *
                row_weight(in, n);
            double sum = 0, target = smoothing / classes + (i == labels[n] ? 1 - smoothing : 0);
            for (int k = 0; k < classes; k++)
                sum += exp(x[n * classes + k] - x[n * classes + i]);
            y[0] += weight * target * log(sum); /* −log of the softmax of logit i */
        }
    return 1;
}

static double mean_of(const ls_tensor *t, const double *x, int c)
{
    double sum = 0;
    for (int n = 0; n < t->rows; n++)
        for (int k = 0; k < t->h * t->w; k++)
            sum += x[at(t, n, c, k / t->w, k % t->w)];
    return sum / (t->rows * t->h * t->w);
}

/* Returns the mean of the squared deviations from the mean. */
static double variance_of(const ls_tensor *t, const double *x, int c)
{
    double sum = 0, mean = mean_of(t, x, c);
    for (int n = 0; n < t->rows; n++)
        for (int k = 0; k < t->h * t->w; k++)
            sum += pow(x[at(t, n, c, k / t->w, k % t->w)] - mean, 2);
    return sum / (t->rows * t->h * t->w);
}

static void norm(double *y, const ls_op_desc *d, const definition_inputs *in)
{
    const ls_tensor *t = &d->x;
    for (int c = 0; c < t->c; c++) {
        double mean = mean_of(t, in->x, c), variance = variance_of(t, in->x, c);
        double deviation = sqrt(variance + (double)d->u.batchnorm.epsilon);
        for (int n = 0; n < t->rows; n++)
            for (int k = 0; k < t->h * t->w; k++) {
                size_t e = at(t, n, c, k / t->w, k % t->w);
                y[e] = (in->x[e] - mean) / deviation * in->weight[c] + in->bias[c];
            }
    }
}

void define_contribution(double *out, const ls_op_desc *d, const double *x, const float *running)
{
    const ls_tensor *t = &d->x;
    int n = t->rows * t->h * t->w;
    for (int c = 0; c < t->c; c++) {
        out[c] = n > 1 ? t->rows * mean_of(t, x, c) : (double)running[c];
        out[t->c + c] = n > 1 ? t->rows * variance_of(t, x, c) * (double)n / (n - 1)
                              : (double)running[t->c + c];
    }
}

/* Returns the loss of output number `j` of a row, z, with the target t. */
static double output_loss(const ls_vector_loss *v, int j, int targets, double z, double t)
{
    const double p = 1 / (1 + exp(-z)), d = t - z, q = v->quantile[j / targets];
    switch (v->rule) {
    case LS_VECTOR_BCE: return -t * log(p) - (1 - t) * log(1 - p);
    case LS_VECTOR_MAE: return fabs(d);
    case LS_VECTOR_HUBER:
        return fabs(d) < v->delta ? d * d / 2 : v->delta * (fabs(d) - v->delta / 2);
    case LS_VECTOR_QUANTILE: return fmax(q * d, (q - 1) * d);
    case LS_VECTOR_POISSON: return exp(z) - t * z;
    case LS_VECTOR_MSE: break;
    }
    return d * d;
}

static size_t vector_loss(double *y, const ls_op_desc *d, const definition_inputs *in)
{
    const double *z = in->x;
    const float *t = (const float *)(const void *)in->labels;
    const ls_vector_loss *v = &d->u.vector_loss;
    const int n = d->x.c, targets = v->rule == LS_VECTOR_QUANTILE ? n / v->quantiles : n;
    *y = 0;
    for (int i = 0; i < d->x.rows * n; i++)
        *y += row_weight(in, i / n) / n *
              output_loss(v, i % n, targets, z[i], (double)t[i / n * targets + i % n % targets]);
    return 1;
}

static double dropped(const ls_op_desc *d, const definition_inputs *in, size_t i)
{
    size_t row = (size_t)d->x.c * (size_t)d->x.h * (size_t)d->x.w;
    float u = ls_rng_uniform(in->seed, d->u.dropout.stream, in->epoch,
                             in->rows[i / row] * (uint64_t)row + i % row);
    return u < d->u.dropout.p ? 0 : in->x[i] / (1 - (double)d->u.dropout.p);
}

static double pointwise(const ls_op_desc *d, const definition_inputs *in, size_t i)
{
    switch (d->kind) {
    case LS_OP_SIGMOID: return 1 / (1 + exp(-in->x[i]));
    case LS_OP_TANH: return tanh(in->x[i]);
    case LS_OP_GELU: return in->x[i] * (1 + erf(in->x[i] / sqrt(2))) / 2;
    case LS_OP_SILU: return in->x[i] / (1 + exp(-in->x[i]));
    case LS_OP_GELU_TANH:
        return in->x[i] *
               (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                         (in->x[i] + 0.044715 * in->x[i] * in->x[i] * in->x[i]))) /
               2;
    case LS_OP_CLAMP:
        return fmin(fmax(in->x[i], (double)d->u.clamp.least), (double)d->u.clamp.most);
    case LS_OP_AFFINE: return (double)d->u.affine.slope * in->x[i] + (double)d->u.affine.offset;
    case LS_OP_HARD_SIGMOID:
        return fmin(
            fmax((double)d->u.hard_sigmoid.slope * in->x[i] + (double)d->u.hard_sigmoid.offset, 0),
            1);
    case LS_OP_HARD_SWISH: return in->x[i] * fmin(fmax(in->x[i] + 3, 0), 6) / 6;
    case LS_OP_RELU: return fmax(in->x[i], 0) + (double)d->u.relu.slope * fmin(in->x[i], 0);
    case LS_OP_MULTIPLY:
        return in->x[i] * in->x2[i / (size_t)(d->x.h * d->x.w / (d->x2.h * d->x2.w))];
    case LS_OP_ADD: return in->x[i] + in->x2[i];
    case LS_OP_DROPOUT: return dropped(d, in, i);
    default: return in->x[i];
    }
}

/* Normalises each value by the mean and variance of its row. */
static void layer_norm(double *y, const ls_op_desc *d, const definition_inputs *in)
{
    const int n = d->x.c * d->x.h * d->x.w;
    for (int i = 0; i < d->x.rows * n; i++) {
        const double *row = in->x + i / n * n;
        double mean = 0, variance = 0;
        for (int k = 0; k < n; k++)
            mean += row[k] / n;
        for (int k = 0; k < n; k++)
            variance += (row[k] - mean) * (row[k] - mean) / n;
        y[i] = (row[i % n] - mean) / sqrt(variance + (double)d->u.layernorm.epsilon) *
                   in->weight[i % n] +
               in->bias[i % n];
    }
}

static size_t upsample(double *y, const ls_op_desc *d, const double *x)
{
    ls_tensor t = d->x;
    t.h *= d->u.upsample.sh;
    t.w *= d->u.upsample.sw;
    for (int n = 0; n < t.rows; n++)
        for (int c = 0; c < t.c; c++)
            for (int i = 0; i < t.h; i++)
                for (int j = 0; j < t.w; j++)
                    y[at(&t, n, c, i, j)] =
                        x[at(&d->x, n, c, i / d->u.upsample.sh, j / d->u.upsample.sw)];
    return at(&t, t.rows, 0, 0, 0);
}

static size_t pad(double *y, const ls_op_desc *d, const double *x)
{
    const ls_pad *p = &d->u.pad;
    ls_tensor t = d->x;
    t.h += p->top + p->bottom;
    t.w += p->left + p->right;
    for (int n = 0; n < t.rows; n++)
        for (int c = 0; c < t.c; c++)
            for (int i = 0; i < t.h; i++)
                for (int j = 0; j < t.w; j++) {
                    const int line = i - p->top, column = j - p->left;
                    const int inside = line >= 0 && line < d->x.h && column >= 0 && column < d->x.w;
                    y[at(&t, n, c, i, j)] = inside ? x[at(&d->x, n, c, line, column)] : 0;
                }
    return at(&t, t.rows, 0, 0, 0);
}

static size_t concat(double *y, const ls_op_desc *d, const definition_inputs *in)
{
    ls_tensor t = d->x;
    t.c += d->x2.c;
    for (int n = 0; n < t.rows; n++)
        for (int c = 0; c < t.c; c++)
            for (int k = 0; k < t.h * t.w; k++)
                y[at(&t, n, c, 0, k)] = c < d->x.c ? in->x[at(&d->x, n, c, 0, k)]
                                                   : in->x2[at(&d->x2, n, c - d->x.c, 0, k)];
    return at(&t, t.rows, 0, 0, 0);
}

size_t define(double *y, const ls_op_desc *desc, const definition_inputs *in)
{
    size_t n = (size_t)desc->x.rows * (size_t)desc->x.c * (size_t)desc->x.h * (size_t)desc->x.w;
    switch (desc->kind) {
    case LS_OP_CONV2D: n = conv(y, desc, in->x, in->weight, in->bias); break;
    case LS_OP_DENSE: n = dense(y, desc, in->x, in->weight, in->bias); break;
    case LS_OP_POOL: n = pool(y, desc, in->x); break;
    case LS_OP_VECTOR_LOSS: n = vector_loss(y, desc, in); break;
    case LS_OP_SOFTMAX_XENT: n = loss(y, desc, in); break;
    case LS_OP_BATCHNORM: norm(y, desc, in); break;
    case LS_OP_LAYERNORM: layer_norm(y, desc, in); break;
    case LS_OP_UPSAMPLE: n = upsample(y, desc, in->x); break;
    case LS_OP_PAD: n = pad(y, desc, in->x); break;
    case LS_OP_CONCAT: n = concat(y, desc, in); break;
    default:
        for (size_t i = 0; i < n; i++)
            y[i] = pointwise(desc, in, i);
        break;
    }
    for (size_t i = 0; desc->fuse_add && i < n; i++)
        y[i] += in->x2[i];
    for (size_t i = 0; desc->fuse_relu && i < n; i++)
        y[i] = fmax(y[i], 0);
    return n;
}
