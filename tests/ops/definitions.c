#include "ops/definitions.h"

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
    const ls_conv2d *v = &d->u.conv2d;
    double sum = 0;
    for (int c = 0; c < d->x.c; c++)
        for (int a = 0; a < v->kh; a++)
            for (int b = 0; b < v->kw; b++) {
                int row = i * v->sh - v->ph + a, column = j * v->sw - v->pw + b;
                if (is_inside(&d->x, row, column))
                    sum += x[at(&d->x, n, c, row, column)] *
                           weight[((o * d->x.c + c) * v->kh + a) * v->kw + b];
            }
    return sum;
}

static size_t conv(double *y, const ls_op_desc *d, const double *x, const double *weight,
                   const double *bias)
{
    const ls_conv2d *v = &d->u.conv2d;
    size_t count = 0;
    for (int n = 0; n < d->x.rows; n++)
        for (int o = 0; o < v->out; o++)
            for (int i = 0; i * v->sh + v->kh <= d->x.h + 2 * v->ph; i++)
                for (int j = 0; j * v->sw + v->kw <= d->x.w + 2 * v->pw; j++)
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
            }
        }
    return p->max ? most : sum / pixels;
}

static size_t pool(double *y, const ls_op_desc *d, const double *x)
{
    const ls_pool2d *p = &d->pool;
    size_t count = 0;
    for (int n = 0; n < d->x.rows; n++)
        for (int c = 0; c < d->x.c; c++)
            for (int i = 0; i * p->sh + p->kh <= d->x.h + 2 * p->ph; i++)
                for (int j = 0; j * p->sw + p->kw <= d->x.w + 2 * p->pw; j++)
                    y[count++] = pool_at(d, x, n, c, i, j);
    return count;
}

static size_t loss(double *y, const ls_op_desc *d, const double *x, const uint8_t *labels)
{
    int classes = d->x.c * d->x.h * d->x.w;
    y[0] = 0;
    for (int n = 0; n < d->x.rows; n++) {
        double sum = 0;
        for (int i = 0; i < classes; i++)
            sum += exp(x[n * classes + i] - x[n * classes + labels[n]]);
        y[0] += log(sum);
    }
    return 1;
}

size_t define(double *y, const ls_op_desc *desc, const double *x, const double *weight,
              const double *bias, const uint8_t *labels)
{
    size_t n = (size_t)desc->x.rows * (size_t)desc->x.c * (size_t)desc->x.h * (size_t)desc->x.w;
    switch (desc->kind) {
    case LS_OP_CONV2D: n = conv(y, desc, x, weight, bias); break;
    case LS_OP_DENSE: n = dense(y, desc, x, weight, bias); break;
    case LS_OP_POOL: n = pool(y, desc, x); break;
    case LS_OP_SOFTMAX_XENT: n = loss(y, desc, x, labels); break;
    default:
        for (size_t i = 0; i < n; i++)
            y[i] = x[i];
        break;
    }
    if (desc->kind == LS_OP_RELU || desc->fuse_relu)
        for (size_t i = 0; i < n; i++)
            y[i] = fmax(y[i], 0);
    return n;
}
