/* SPDX-License-Identifier: MIT */
/* A network as a list of ops on one device (net.h). */
#include "net.h"

#include "demo.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -2, GRAIN = 16 };

/* ---- describing ----------------------------------------------------------------------------- */

void net_init(net *n, ls_device *device, int rows, int c, int h, int w)
{
    memset(n, 0, sizeof *n);
    n->device = device;
    n->input = (ls_tensor){.dtype = LS_F32, .rows = rows, .c = c, .h = h, .w = w};
    n->input.bytes = (size_t)rows * (size_t)(c * h * w) * sizeof(float);
}

static const ls_tensor *output_of(const net *n, int node)
{
    return node == NET_INPUT ? &n->input : &n->node[node].op->y;
}

/* Appends a node and creates its op, which then has the shape and the layout of its output. */
static int append(net *n, int x, int x2, const ls_op_desc *desc)
{
    if (n->status)
        return 0;
    if (n->nodes == NET_NODES) {
        n->status = n->error.status = LS_EINVAL;
        strcpy(n->error.text, "a network of too many ops; raise NET_NODES");
        return 0;
    }
    net_node *node = &n->node[n->nodes];
    node->desc = *desc;
    node->desc.size = sizeof node->desc;
    node->desc.x = *output_of(n, x);
    if (x2 != NONE)
        node->desc.x2 = *output_of(n, x2);
    node->desc.training = 1;
    node->desc.needs_dx = x != NET_INPUT;
    node->x = x;
    node->x2 = x2;
    n->status = n->device->ops->op_create(&node->op, n->device, &node->desc, &n->error);
    return n->status ? 0 : n->nodes++;
}

int net_conv2d(net *n, int x, int out, int kernel, int stride, int padding)
{
    ls_op_desc d = {.kind = LS_OP_CONV2D};
    d.u.conv2d = (ls_conv2d){out, kernel, kernel, stride, stride, padding, padding, 1, 1, 1, 1};
    return append(n, x, NONE, &d);
}

int net_dense(net *n, int x, int out)
{
    ls_op_desc d = {.kind = LS_OP_DENSE};
    d.u.dense = (ls_dense){out, 1};
    return append(n, x, NONE, &d);
}

int net_relu(net *n, int x)
{
    return append(n, x, NONE, &(ls_op_desc){.kind = LS_OP_RELU});
}

static int pool(net *n, int x, int kh, int kw)
{
    ls_op_desc d = {.kind = LS_OP_POOL};
    d.pool = (ls_pool2d){.kh = kh, .kw = kw, .sh = kh, .sw = kw};
    return append(n, x, NONE, &d);
}

int net_avg_pool(net *n, int x, int kernel)
{
    return pool(n, x, kernel, kernel);
}

int net_global_avg_pool(net *n, int x)
{
    return n->status ? 0 : pool(n, x, output_of(n, x)->h, output_of(n, x)->w);
}

int net_batchnorm(net *n, int x)
{
    ls_op_desc d = {.kind = LS_OP_BATCHNORM};
    d.u.batchnorm.epsilon = 1e-5f;
    return append(n, x, NONE, &d);
}

int net_add(net *n, int x, int x2)
{
    return append(n, x, x2, &(ls_op_desc){.kind = LS_OP_ADD});
}

int net_export(net *n, int x)
{
    return append(n, x, NONE, &(ls_op_desc){.kind = LS_OP_EXPORT});
}

int net_loss(net *n, int x)
{
    return append(n, x, NONE, &(ls_op_desc){.kind = LS_OP_SOFTMAX_XENT});
}

/* ---- building ------------------------------------------------------------------------------- */

/* Allocates device memory, which net_free frees. Returns NULL if `bytes` is 0 or after a
 * failure. */
static void *take(net *n, size_t bytes)
{
    void *memory = NULL;
    if (n->status || bytes == 0)
        return NULL;
    n->status = n->device->ops->alloc(&memory, n->device, bytes, &n->error);
    if (memory)
        n->memory[n->memories++] = memory;
    return memory;
}

static void place_params(net *n)
{
    for (int i = 0; i < n->nodes; i++)
        for (int p = 0; p < n->node[i].op->params; p++) {
            n->node[i].param_at[p] = n->floats;
            n->floats += (n->node[i].op->param_floats[p] + GRAIN - 1) / GRAIN * GRAIN;
        }
    n->weights = take(n, n->floats * sizeof(float));
    n->grads = take(n, n->floats * sizeof(float));
}

/* Allocates the running statistics of a batch norm, with their initial values: mean 0, variance
 * 1. */
static float *fresh_statistics(net *n, int channels)
{
    const size_t half = (size_t)channels * sizeof(float);
    float *statistics = take(n, 2 * half), *ones = demo_alloc((size_t)channels, sizeof *ones);
    for (int c = 0; c < channels; c++)
        ones[c] = 1.0f;
    if (statistics)
        n->status = demo_upload(n->device, statistics + channels, ones, half, &n->error);
    free(ones);
    return statistics;
}

/* Gives an op its buffers. A tensor has one gradient buffer: it is `dy` of the op that computes the
 * tensor, and `dx` of the op that reads the tensor. */
static void bind(net *n, net_node *node)
{
    ls_op *op = node->op;
    net_node *before = node->x == NET_INPUT ? NULL : &n->node[node->x];
    node->y = take(n, op->y.bytes);
    node->dy = take(n, op->y.bytes);
    ls_op_buffers b = {
        .args = &n->args,
        .x = before ? before->y : n->x,
        .y = node->y,
        .dy = node->dy,
        .dx = before ? before->dy : NULL,
        .labels = n->labels,
        .stats = n->stats,
        .contribution = take(n, op->contribution_floats * sizeof(float)),
        .saved = take(n, op->saved_bytes),
        .scratch = take(n, op->scratch_bytes),
    };
    if (node->x2 != NONE) {
        b.x2 = n->node[node->x2].y;
        b.dx2 = n->node[node->x2].dy;
    }
    if (node->desc.kind == LS_OP_BATCHNORM)
        b.running = fresh_statistics(n, node->desc.x.c);
    for (int p = 0; p < op->params; p++) {
        b.param[p] = n->weights + node->param_at[p];
        b.grad[p] = n->grads + node->param_at[p];
    }
    if (n->status == LS_OK)
        n->status = op->impl->bind(op, &b, &n->error);
}

static void make_update(net *n)
{
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_SGD, .count = n->floats};
    if (n->status == LS_OK)
        n->status = n->device->ops->op_create(&n->update, n->device, &d, &n->error);
    if (n->status)
        return;
    ls_op_buffers b = {.args = &n->args, .param = {n->weights}, .grad = {n->grads}};
    b.scratch = take(n, n->update->scratch_bytes);
    if (n->status == LS_OK)
        n->status = n->update->impl->bind(n->update, &b, &n->error);
}

int net_build(net *n, ls_error *err)
{
    n->x = take(n, n->input.bytes);
    n->labels = take(n, (size_t)n->input.rows * sizeof *n->labels);
    n->stats = take(n, GRAIN * sizeof(float));
    place_params(n);
    for (int i = 0; i < n->nodes && n->status == LS_OK; i++)
        bind(n, &n->node[i]);
    make_update(n);
    if (n->status)
        *err = n->error;
    return n->status;
}

void net_free(net *n)
{
    if (n->update)
        n->update->impl->destroy(n->update);
    while (n->nodes > 0) {
        ls_op *op = n->node[--n->nodes].op;
        op->impl->destroy(op);
    }
    while (n->memories > 0)
        n->device->ops->free(n->device, n->memory[--n->memories]);
}

/* ---- parameters and data -------------------------------------------------------------------- */

/* Returns the number of floats of a node's parameter `p` in host memory, without padding. */
static size_t param_size(const net_node *node, int p)
{
    const ls_tensor *x = &node->desc.x;
    const ls_conv2d *v = &node->desc.u.conv2d;
    switch (node->desc.kind) {
    case LS_OP_CONV2D: return (size_t)(p ? v->out : v->out * x->c * v->kh * v->kw);
    case LS_OP_DENSE: return (size_t)(node->desc.u.dense.out * (p ? 1 : x->c * x->h * x->w));
    default: return (size_t)x->c; /* batch norm */
    }
}

size_t net_params(const net *n)
{
    size_t sum = 0;
    for (int i = 0; i < n->nodes; i++)
        for (int p = 0; p < n->node[i].op->params; p++)
            sum += param_size(&n->node[i], p);
    return sum;
}

void net_initial(const net *n, float *params, float std, uint64_t seed)
{
    memset(params, 0, net_params(n) * sizeof *params);
    for (int i = 0; i < n->nodes; i++)
        for (int p = 0; p < n->node[i].op->params; p++) {
            size_t size = param_size(&n->node[i], p);
            if (p == 0 && n->node[i].desc.kind != LS_OP_BATCHNORM)
                demo_normal(params, size, std, &seed);
            for (size_t k = 0; p == 0 && n->node[i].desc.kind == LS_OP_BATCHNORM && k < size; k++)
                params[k] = 1.0f;
            params += size;
        }
}

/* Copies all parameters in order: from the device to `to`, or, if `to` is NULL, from `from` to the
 * device. */
static int move_params(net *n, float *to, const float *from, ls_error *err)
{
    for (int i = 0; i < n->nodes; i++) {
        ls_op *op = n->node[i].op;
        for (int p = 0; p < op->params; p++) {
            float *at = n->weights + n->node[i].param_at[p];
            size_t size = param_size(&n->node[i], p);
            int status = to ? op->impl->export_param(op, p, to, at, err)
                            : op->impl->import_param(op, p, at, from, err);
            if (status)
                return status;
            if (to)
                to += size;
            else
                from += size;
        }
    }
    return LS_OK;
}

int net_import(net *n, const float *params, ls_error *err)
{
    return move_params(n, NULL, params, err);
}

int net_export_params(net *n, float *params, ls_error *err)
{
    return move_params(n, params, NULL, err);
}

int net_load(net *n, const float *images, const int32_t *labels, ls_error *err)
{
    int status = demo_upload(n->device, n->x, images, n->input.bytes, err);
    if (status == LS_OK && labels)
        status =
            demo_upload(n->device, n->labels, labels, (size_t)n->input.rows * sizeof *labels, err);
    return status;
}

/* ---- running -------------------------------------------------------------------------------- */

int net_forward(net *n, unsigned flags, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < n->nodes && status == LS_OK; i++)
        status = n->node[i].op->impl->forward(n->node[i].op, NULL, flags, err);
    return status;
}

/* The last op is the loss. Its forward pass has already stored the gradient of its input, so the
 * backward pass begins with the op before the loss. */
int net_backward(net *n, ls_error *err)
{
    int status = LS_OK;
    for (int i = n->nodes - 2; i >= 0 && status == LS_OK; i--)
        status = n->node[i].op->impl->backward(n->node[i].op, NULL, 0, err);
    return status;
}

int net_step(net *n, float lr, float scale, ls_error *err)
{
    n->args.lr = lr;
    n->args.scale = scale;
    n->args.step++;
    return n->update->impl->forward(n->update, NULL, 0, err);
}
