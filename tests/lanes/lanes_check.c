/* SPDX-License-Identifier: MIT */
#include "lanes/lanes_check.h"

#include "base/rng.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_op.h"
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *lanes_text(const ls_op_desc *d)
{
    static char text[256];
    const ls_conv2d *v = &d->u.conv2d;
    const ls_pool2d *p = &d->pool;
    int n = snprintf(text, sizeof text, "kind %d of %d×%d×%d×%d", d->kind, d->x.rows, d->x.c,
                     d->x.h, d->x.w);
    if (d->kind == LS_OP_CONV2D)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      ": %d channels, %d×%d, stride %d×%d, padding %d×%d, bias %d", v->out, v->kh,
                      v->kw, v->sh, v->sw, v->ph, v->pw, v->bias);
    if (d->kind == LS_OP_DENSE)
        n += snprintf(text + n, sizeof text - (size_t)n, ": %d outputs, bias %d", d->u.dense.out,
                      d->u.dense.bias);
    if (d->kind == LS_OP_POOL || d->fuse_pool)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      ", pool %s %d×%d, stride %d×%d, padding %d×%d", p->max ? "max" : "avg", p->kh,
                      p->kw, p->sh, p->sw, p->ph, p->pw);
    snprintf(text + n, sizeof text - (size_t)n, "%s%s", d->fuse_relu ? ", relu" : "",
             d->needs_dx ? ", dx" : "");
    return text;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns aligned memory in which every byte is 0xFF, so that every float is NaN. */
static void *poisoned(size_t bytes)
{
    size_t n = (bytes + 63) / 64 * 64;
    void *memory = aligned_alloc(64, n ? n : 64);
    assert_non_null(memory);
    return memset(memory, 0xFF, n ? n : 64);
}

static float *draws(uint64_t seed, uint32_t stream, size_t n, float scale)
{
    float *out = poisoned(n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = scale * (2 * ls_rng_uniform(seed, stream, 0, i) - 1);
    return out;
}

static size_t row_of(const ls_tensor *t)
{
    return (size_t)t->c * (size_t)t->h * (size_t)t->w;
}

/* ---- the reference --------------------------------------------------------------------------- */

static ls_device *reference(void)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    if (ls_ref64_backend()->open(&device, &request, &err) != LS_OK)
        fail_msg("%s", err.text);
    return device;
}

static ls_op *reference_op(ls_device *device, const ls_op_desc *desc)
{
    ls_op *op = NULL;
    ls_error err = {0};
    if (device->ops->op_create(&op, device, desc, &err) != LS_OK)
        fail_msg("%s\n    reference: %s", lanes_text(desc), err.text);
    return op;
}

/* Creates the ops of the reference back end for `desc`. Returns the op without its fused pool.
 * Stores an op for the fused pool in *pool, or NULL if there is no pool. */
static ls_op *reference_ops(ls_device *device, const ls_op_desc *desc, ls_op **pool)
{
    ls_op_desc d = *desc;
    d.fuse_pool = 0;
    ls_op *op = reference_op(device, &d);
    *pool = NULL;
    if (desc->fuse_pool) {
        d.kind = LS_OP_POOL;
        d.fuse_relu = 0;
        d.x = op->y;
        d.needs_dx = 1;
        *pool = reference_op(device, &d);
    }
    return op;
}

static void run_reference(ls_op *op, const ls_op_buffers *buffers, int training, int backward)
{
    ls_op_buffers b = *buffers;
    ls_error err = {0};
    b.saved = b.saved ? b.saved : poisoned(op->saved_bytes);
    b.scratch = poisoned(op->scratch_bytes);
    int status = op->impl->bind(op, &b, &err);
    if (!status && !backward)
        status = op->impl->forward(op, NULL, 0, &err);
    if (!status && backward && training && op->impl->backward)
        status = op->impl->backward(op, NULL, 0, &err);
    free(b.scratch);
    if (status)
        fail_msg("reference: %s", err.text);
}

static lanes_data *results_like(const lanes_data *in)
{
    lanes_data *out = calloc(1, sizeof *out);
    assert_non_null(out);
    out->x_n = in->x_n;
    out->y_n = in->y_n;
    out->y = poisoned(in->y_n * sizeof(float));
    out->dx = poisoned(in->x_n * sizeof(float));
    out->dx2 = poisoned(in->x_n * sizeof(float));
    for (int i = 0; i < LS_OP_PARAMS; i++) {
        out->param_n[i] = in->param_n[i];
        out->grad[i] = poisoned(in->param_n[i] * sizeof(float));
    }
    return out;
}

lanes_data *lanes_oracle(const ls_op_desc *desc, const lanes_data *in)
{
    ls_device *device = reference();
    ls_op *pool, *op = reference_ops(device, desc, &pool);
    lanes_data *out = results_like(in);
    size_t between = pool ? (size_t)op->y.rows * row_of(&op->y) : 0;
    float *middle = poisoned(between * sizeof(float)), *grad = poisoned(between * sizeof(float));
    ls_op_buffers first = {.x = in->x,
                           .y = pool ? middle : out->y,
                           .dy = pool ? grad : in->dy,
                           .dx = desc->needs_dx ? out->dx : NULL,
                           .x2 = in->x2,
                           .dx2 = out->dx2,
                           .labels = in->labels,
                           .stats = out->stats,
                           .saved = poisoned(op->saved_bytes)};
    for (int i = 0; i < op->params; i++) {
        first.param[i] = in->param[i];
        first.grad[i] = out->grad[i];
    }
    ls_op_buffers second = {.x = middle,
                            .y = out->y,
                            .dy = in->dy,
                            .dx = grad,
                            .saved = pool ? poisoned(pool->saved_bytes) : NULL};
    run_reference(op, &first, desc->training, 0);
    if (pool) {
        run_reference(pool, &second, desc->training, 0);
        run_reference(pool, &second, desc->training, 1);
        pool->impl->destroy(pool);
    }
    run_reference(op, &first, desc->training, 1);
    op->impl->destroy(op);
    device->ops->close(device);
    free(middle);
    free(grad);
    free(first.saved);
    free(second.saved);
    return out;
}

/* ---- data ------------------------------------------------------------------------------------ */

lanes_data *lanes_data_create(const ls_op_desc *desc, uint64_t seed)
{
    ls_device *device = reference();
    ls_op *pool, *op = reference_ops(device, desc, &pool);
    const ls_tensor *y = pool ? &pool->y : &op->y;
    lanes_data *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->x_n = (size_t)desc->x.rows * row_of(&desc->x);
    d->y_n = desc->kind == LS_OP_SOFTMAX_XENT ? 0 : (size_t)y->rows * row_of(y);
    d->x = draws(seed, 1, d->x_n, desc->kind == LS_OP_SOFTMAX_XENT ? 20.0f : 1.0f);
    for (size_t i = 0; desc->kind == LS_OP_POOL && i < d->x_n; i++)
        d->x[i] = rintf(4 * d->x[i]); /* many equal values; of equal maxima the first counts */
    d->x2 = draws(seed, 9, d->x_n, 1);
    d->dy = draws(seed, 2, d->y_n, 1);
    for (int i = 0; i < op->params; i++) {
        d->param_n[i] = op->param_floats[i];
        d->param[i] = draws(seed, 3 + (uint32_t)i, d->param_n[i], 0.5f);
    }
    d->labels = poisoned((size_t)desc->x.rows * sizeof *d->labels);
    for (int r = 0; r < desc->x.rows; r++)
        d->labels[r] = (int32_t)((seed + (uint64_t)r * 7) % (uint64_t)desc->x.c);
    op->impl->destroy(op);
    if (pool)
        pool->impl->destroy(pool);
    device->ops->close(device);
    return d;
}

void lanes_data_destroy(lanes_data *d)
{
    if (!d)
        return;
    free(d->x);
    free(d->x2);
    free(d->dx2);
    free(d->dy);
    free(d->y);
    free(d->dx);
    free(d->labels);
    for (int i = 0; i < LS_OP_PARAMS; i++) {
        free(d->param[i]);
        free(d->grad[i]);
    }
    free(d);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

ls_team *lanes_team;

static ls_op *lanes_op(const ls_lanes_kernels *kernels, const ls_op_desc *desc, int rows,
                       const ls_op *twin)
{
    ls_op_desc d = *desc;
    ls_op *op = NULL;
    ls_error err = {0};
    d.x.rows = rows;
    d.x = ls_lanes_tensor(&d.x);
    d.x2 = d.x;
    d.twin = twin;
    ls_cpu_device device = {.kernels = kernels, .team = lanes_team};
    if (ls_cpu_op_create(&op, &device, &d, &err) != LS_OK)
        fail_msg("%s\n    %s: %s", lanes_text(desc), kernels->name, err.text);
    return op;
}

static void must(const ls_op_desc *desc, int status, const ls_error *err)
{
    if (status)
        fail_msg("%s\n    %s", lanes_text(desc), err->text);
}

static int has_x2(const ls_op_desc *desc)
{
    return desc->kind == LS_OP_ADD || desc->kind == LS_OP_CONCAT || desc->kind == LS_OP_MULTIPLY ||
           desc->fuse_add;
}

/* Returns the row to which float i of a tensor in lanes belongs. `row`: floats of a row. */
static size_t row_at(size_t i, size_t row)
{
    return i / (row * LS_LANES) * LS_LANES + i % LS_LANES;
}

/* Returns the rows in lanes. Lanes that hold no row get large finite numbers, which are allowed
 * there. */
static float *input_in_lanes(const float *plain, const ls_tensor *t)
{
    const size_t bytes = ls_lanes_bytes(t->rows, t->c, t->h, t->w);
    float *lanes = poisoned(bytes);
    ls_plain_to_lanes(lanes, plain, t);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        if (row_at(i, row_of(t)) >= (size_t)t->rows)
            lanes[i] = 1e30f;
    return lanes;
}

static void check_rest_of_y(const ls_op_desc *desc, const float *y, const ls_tensor *t)
{
    for (size_t i = 0; i < t->bytes / sizeof(float); i++) {
        const bool is_row = row_at(i, row_of(t)) < (size_t)t->rows;
        if (!isfinite(y[i]) || (!is_row && desc->kind == LS_OP_BATCHNORM && y[i] != 0))
            fail_msg("%s\n    y is %g in a lane that is %s row", lanes_text(desc), (double)y[i],
                     is_row ? "a" : "no");
    }
}

/* Runs one block of rows, from row `first` on. */
static void run_block(ls_op *op, const ls_op_desc *desc, const lanes_data *in, lanes_data *out,
                      float *const *param, float *const *grad, int first, unsigned flags)
{
    const int rows = op->y.rows;
    const size_t x_row = row_of(&desc->x), y_row = in->y_n / (size_t)desc->x.rows;
    ls_tensor xs = desc->x;
    xs.rows = rows;
    size_t x_bytes = ls_lanes_bytes(rows, desc->x.c, desc->x.h, desc->x.w);
    float *x = input_in_lanes(in->x + (size_t)first * x_row, &xs), *dx = poisoned(x_bytes);
    float *x2 = has_x2(desc) ? input_in_lanes(in->x2 + (size_t)first * x_row, &xs) : NULL;
    float *dx2 = poisoned(x_bytes);
    float *y = poisoned(op->y.bytes), *dy = poisoned(op->y.bytes);
    ls_op_buffers b = {.x = x,
                       .y = y,
                       .dy = dy,
                       .dx = desc->needs_dx ? dx : NULL,
                       .x2 = x2,
                       .dx2 = has_x2(desc) && desc->needs_dx ? dx2 : NULL,
                       .contribution = poisoned(op->contribution_floats * sizeof(float)),
                       .labels = in->labels + first,
                       .stats = out->stats,
                       .saved = poisoned(op->saved_bytes),
                       .scratch = poisoned(op->scratch_bytes)};
    ls_error err = {0};
    for (int i = 0; i < op->params; i++) {
        b.param[i] = param[i];
        b.grad[i] = grad[i];
    }
    must(desc, op->impl->bind(op, &b, &err), &err);
    must(desc, op->impl->forward(op, NULL, flags, &err), &err);
    if (op->y.bytes) {
        check_rest_of_y(desc, y, &op->y);
        ls_lanes_to_plain(out->y + (size_t)first * y_row, y, &op->y);
        ls_plain_to_lanes(dy, in->dy + (size_t)first * y_row, &op->y);
    }
    if (desc->training && op->impl->backward) {
        memset(b.scratch, 0xFF, op->scratch_bytes);
        must(desc, op->impl->backward(op, NULL, flags, &err), &err);
    }
    if (desc->needs_dx) {
        ls_lanes_to_plain(out->dx + (size_t)first * x_row, dx, &xs);
        /* gradients in lanes that hold no row must be zero */
        for (size_t i = 0; i < x_bytes / sizeof(float); i++) {
            size_t row = row_at(i, x_row);
            if (row >= (size_t)rows && dx[i] != 0)
                fail_msg("%s\n    dx of row %zu is %g", lanes_text(desc), row, (double)dx[i]);
        }
    }
    if (b.dx2)
        ls_lanes_to_plain(out->dx2 + (size_t)first * x_row, dx2, &xs);
    free(x);
    free(dx);
    free(x2);
    free(dx2);
    free(y);
    free(dy);
    free(b.contribution);
    free(b.saved);
    free(b.scratch);
}

static void run_blocks(ls_op *whole, ls_op *rest, const ls_op_desc *desc, const lanes_data *in,
                       lanes_data *out, float *const *param, float *const *grad, int again)
{
    for (int pass = 0; pass <= again; pass++) {
        int first = 0;
        for (; first + whole->y.rows <= desc->x.rows; first += whole->y.rows)
            run_block(whole, desc, in, out, param, grad, first,
                      pass || first ? LS_RUN_ACCUMULATE : 0);
        if (rest)
            run_block(rest, desc, in, out, param, grad, first, LS_RUN_ACCUMULATE);
    }
}

lanes_data *lanes_run(const ls_lanes_kernels *kernels, const ls_op_desc *desc, const lanes_data *in,
                      int block, int again)
{
    const int rows = desc->x.rows;
    if (block == 0 || block > rows)
        block = rows;
    ls_op *whole = lanes_op(kernels, desc, block, NULL);
    ls_op *rest = rows % block ? lanes_op(kernels, desc, rows % block, whole) : NULL;
    lanes_data *out = results_like(in);
    float *param[LS_OP_PARAMS] = {0}, *grad[LS_OP_PARAMS] = {0};
    ls_error err = {0};
    for (int i = 0; i < whole->params; i++) {
        param[i] = poisoned(whole->param_floats[i] * sizeof(float));
        grad[i] = poisoned(whole->param_floats[i] * sizeof(float));
        must(desc, whole->impl->import_param(whole, i, param[i], in->param[i], &err), &err);
    }
    run_blocks(whole, rest, desc, in, out, param, grad, again);
    for (int i = 0; desc->training && i < whole->params; i++) {
        /* padding of gradients must be zero: the sum without padding equals the sum with padding */
        double inside = 0, all = 0;
        must(desc, whole->impl->export_param(whole, i, out->grad[i], grad[i], &err), &err);
        for (size_t k = 0; k < in->param_n[i]; k++)
            inside += fabs((double)out->grad[i][k]);
        for (size_t k = 0; k < whole->param_floats[i]; k++)
            all += fabs((double)grad[i][k]);
        if (!(fabs(all - inside) <= 1e-9 * (1 + inside)))
            fail_msg("%s\n    gradient %d has padding that is not zero", lanes_text(desc), i);
    }
    for (int i = 0; i < LS_OP_PARAMS; i++) {
        free(param[i]);
        free(grad[i]);
    }
    whole->impl->destroy(whole);
    if (rest)
        rest->impl->destroy(rest);
    return out;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void near(const char *what, const char *name, const float *a, const float *b, size_t n,
                 double times)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - times * (double)b[i];
        difference += d * d;
        norm += times * times * (double)b[i] * (double)b[i];
    }
    if (!(sqrt(difference) <= 1e-5 * (sqrt(norm) + 0.1 * sqrt((double)n))))
        fail_msg("%s\n    %s differs by %g of %g", what, name, sqrt(difference), sqrt(norm));
}

void lanes_expect_near(const char *what, const lanes_data *got, const lanes_data *want, int times)
{
    near(what, "y", got->y, want->y, got->y_n, 1);
    if (!isnan(want->dx[0]))
        near(what, "dx", got->dx, want->dx, got->x_n, 1);
    for (int i = 0; i < LS_OP_PARAMS; i++)
        if (got->param_n[i] && !isnan(want->grad[i][0]))
            near(what, i ? "bias" : "weight", got->grad[i], want->grad[i], got->param_n[i], times);
    double loss = times * (double)want->stats[0];
    if (!(fabs((double)got->stats[0] - loss) <= 1e-6 * (1 + fabs(loss))))
        fail_msg("%s\n    loss %.9g, not %.9g", what, (double)got->stats[0], loss);
    if (got->stats[1] != (float)times * want->stats[1])
        fail_msg("%s\n    correct %g, not %g", what, (double)got->stats[1], (double)want->stats[1]);
}

void lanes_expect_same(const char *what, const lanes_data *a, const lanes_data *b)
{
    int same = memcmp(a->y, b->y, a->y_n * sizeof(float)) == 0 &&
               memcmp(a->dx, b->dx, a->x_n * sizeof(float)) == 0 &&
               memcmp(a->dx2, b->dx2, a->x_n * sizeof(float)) == 0 &&
               memcmp(a->stats, b->stats, sizeof a->stats) == 0;
    for (int i = 0; i < LS_OP_PARAMS; i++)
        same = same && memcmp(a->grad[i], b->grad[i], a->param_n[i] * sizeof(float)) == 0;
    if (!same)
        fail_msg("%s\n    bits differ", what);
}
