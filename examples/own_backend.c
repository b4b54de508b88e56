/* SPDX-License-Identifier: MIT */
/* A back end (code that computes on one kind of device) inside a user's own program. It has a
 * single op, relu. Its devices compute in host memory; each worker of a pool has one of them. A
 * model that needs another op is refused, with a message that names the op.
 *
 *     cc own_backend.c $(pkg-config --cflags --libs lockstep) -o own_backend
 */
#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, VALUES = 4, COUNT = ROWS * VALUES };

/* ---- the op --------------------------------------------------------------------------------- */

typedef struct relu {
    ls_op base; /* first */
    size_t count;
    float slope;
    ls_op_buffers at;
} relu;

static int relu_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    (void)err;
    ((relu *)op)->at = *buffers;
    return LS_OK;
}

static int relu_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const relu *r = (const relu *)op;
    const float *x = r->at.x;
    float *y = r->at.y;
    (void)stream, (void)flags, (void)err;
    for (size_t i = 0; i < r->count; i++)
        y[i] = x[i] > 0 ? x[i] : r->slope * x[i];
    return LS_OK;
}

static int relu_backward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const relu *r = (const relu *)op;
    const float *x = r->at.x, *dy = r->at.dy;
    float *dx = r->at.dx;
    (void)stream, (void)flags, (void)err;
    for (size_t i = 0; dx && i < r->count; i++)
        dx[i] = x[i] > 0 ? dy[i] : r->slope * dy[i];
    return LS_OK;
}

static void relu_destroy(ls_op *op)
{
    free(op);
}

static const ls_op_impl relu_impl = {.size = sizeof relu_impl,
                                     .bind = relu_bind,
                                     .forward = relu_forward,
                                     .backward = relu_backward,
                                     .destroy = relu_destroy};

/* ---- the device ----------------------------------------------------------------------------- */

typedef struct device {
    ls_device base; /* first */
    int index;
} device;

/* Returns `status`, and stores it in `err` with a message of one line. Functions of a back
 * end report failures in this way. */
static int fail(ls_error *err, int status, const char *text)
{
    if (err) {
        *err = (ls_error){.status = status};
        snprintf(err->text, sizeof err->text, "%s", text);
    }
    return status;
}

static int create_op(ls_op **out, ls_device *d, const ls_op_desc *desc, ls_error *err)
{
    (void)d;
    if (desc->kind != LS_OP_RELU)
        return fail(err, LS_EUNSUPPORTED, "the back end tiny has no op but relu");
    relu *r = calloc(1, sizeof *r);
    if (!r)
        return fail(err, LS_ENOMEM, "out of memory for a relu");
    r->base = (ls_op){.impl = &relu_impl, .y = desc->x, .kernel = "tiny"};
    r->count = desc->x.bytes / sizeof(float);
    r->slope = desc->u.relu.slope;
    *out = &r->base;
    return LS_OK;
}

static void describe(const ls_device *d, ls_device_info *out)
{
    *out =
        (ls_device_info){.model = "a program's own", .flags = LS_DEVICE_HOST_MEMORY, .threads = 1};
    snprintf(out->name, sizeof out->name, "tiny(%d)", ((const device *)d)->index);
}

static int bind_device(ls_device *d, ls_error *err)
{
    (void)d, (void)err;
    return LS_OK;
}

static void close_device(ls_device *d)
{
    free(d);
}

static int allocate(void **out, ls_device *d, size_t bytes, ls_error *err)
{
    const size_t rounded = (bytes + 63) / 64 * 64;
    (void)d;
    *out = aligned_alloc(64, rounded ? rounded : 64);
    return *out ? (memset(*out, 0, rounded), LS_OK) : fail(err, LS_ENOMEM, "out of memory");
}

static void release(ls_device *d, void *memory)
{
    (void)d;
    free(memory);
}

static int copy(ls_device *d, ls_stream *stream, void *dst, const void *src, size_t bytes,
                ls_error *err)
{
    (void)d, (void)stream, (void)err;
    memcpy(dst, src, bytes);
    return LS_OK;
}

static int add(ls_device *d, ls_stream *stream, float *dst, const float *a, const float *b,
               size_t count, ls_error *err)
{
    (void)d, (void)stream, (void)err;
    for (size_t i = 0; i < count; i++)
        dst[i] = a[i] + b[i];
    return LS_OK;
}

static int sync_device(ls_device *d, ls_stream *stream, ls_error *err)
{
    (void)d, (void)stream, (void)err;
    return LS_OK;
}

static const ls_device_ops device_ops = {.size = sizeof device_ops,
                                         .describe = describe,
                                         .bind = bind_device,
                                         .close = close_device,
                                         .alloc = allocate,
                                         .free = release,
                                         .upload = copy,
                                         .download = copy,
                                         .copy = copy,
                                         .add = add,
                                         .sync = sync_device,
                                         .op_create = create_op};

/* ---- the back end --------------------------------------------------------------------------- */

static void probe(ls_backend_info *out)
{
    *out = (ls_backend_info){.devices = 8, .version = "1"};
}

static int open_device(ls_device **out, const ls_device_request *request, ls_error *err)
{
    device *d = calloc(1, sizeof *d);
    if (!d)
        return fail(err, LS_ENOMEM, "out of memory for a device");
    *d = (device){.base = {.ops = &device_ops}, .index = request->index};
    *out = &d->base;
    return LS_OK;
}

static const ls_backend tiny = {.abi = LS_PLUGIN_ABI,
                                .size = sizeof tiny,
                                .name = "tiny",
                                .counted = 1,
                                .probe = probe,
                                .open = open_device};

/* ---- its use, on every worker of a pool ----------------------------------------------------- */

static int run_relu(const ls_worker *worker, void *arg, ls_error *err)
{
    ls_device *d = ls_worker_device(worker);
    const float x[COUNT] = {-2, -1, 0, 1, 2, 3, -4, 4};
    float(*y)[COUNT] = arg;
    const ls_op_desc desc = {.size = sizeof desc,
                             .kind = LS_OP_RELU,
                             .x = {.rows = ROWS, .c = VALUES, .h = 1, .w = 1, .bytes = sizeof x},
                             .u.relu = {.slope = 0.5f}};
    const ls_op_buffers buffers = {.x = x, .y = y[worker->index]};
    ls_op *op = NULL;
    int status = d->ops->op_create(&op, d, &desc, err);
    if (status == LS_OK)
        status = op->impl->bind(op, &buffers, err);
    if (status == LS_OK)
        status = op->impl->forward(op, NULL, LS_RUN_EVALUATE, err);
    if (op)
        op->impl->destroy(op);
    return status;
}

int main(void)
{
    float y[2][COUNT];
    ls_error err;
    ls_registry *registry = NULL;
    ls_pool *pool = NULL;
    int status = ls_registry_create(&registry, NULL, &err);
    if (status == LS_OK)
        status = ls_registry_add(registry, &tiny, &err);
    const ls_device_pool_options options = {
        .size = sizeof options, .registry = registry, .devices = "tiny:2"};
    if (status == LS_OK)
        status = ls_device_pool_create(&pool, &options, &err);
    if (status == LS_OK)
        status = ls_pool_run(pool, run_relu, y, LS_FOREVER, &err);
    for (int i = 0; status == LS_OK && i < COUNT; i++)
        printf("%g%c", (double)y[1][i], i + 1 < COUNT ? ' ' : '\n');
    if (status != LS_OK)
        fprintf(stderr, "own_backend: %s\n", err.text);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    ls_registry_destroy(registry);
    return status != LS_OK || y[0][0] != -1 || y[1][7] != 4;
}
