/* SPDX-License-Identifier: MIT */
/* A network without a framework: a list of ops (operations such as a convolution) on one device,
 * built directly on <lockstep/sys/plugin.h>.
 *
 *     net_init(&net, device, rows, 1, 28, 28);
 *     int x = net_conv2d(&net, NET_INPUT, 20, 3, 1, 0);    // describe it …
 *     x = net_relu(&net, x);
 *     net_loss(&net, net_dense(&net, x, 10));
 *     net_build(&net, &err);                                  // … then memory, and every pointer
 *     net_load(&net, images, labels, &err);
 *     net_import(&net, params, &err);
 *     net_forward(&net, 0, &err);
 *     net_backward(&net, &err);
 *     net_free(&net);
 *
 * The book (d2l.ai) writes lenet(X, params) in ten lines because a framework differentiates it.
 * Here each op computes its own gradient. All functions must be called on the device's thread. If
 * one of the functions that describe the network fails, net_build returns the error. A network can
 * be trained only if it is a chain: each op's output is read by one other op.
 */
#ifndef NET_H
#define NET_H

#include <lockstep/sys/plugin.h>

enum { NET_INPUT = -1, NET_NODES = 96 };

typedef struct net_node {
    ls_op_desc desc;
    ls_op *op;
    int x, x2; /* indices of the nodes whose outputs the op reads; x2 −2: there is no second one */
    void *y, *dy;
    /* index of each parameter's first float in the arrays `weights` and `grads` */
    size_t param_at[LS_OP_PARAMS];
} net_node;

typedef struct net {
    ls_device *device;
    net_node node[NET_NODES];
    int nodes;
    ls_tensor input;
    int status; /* status of the first function that failed */
    ls_error error;
    /* device memory: all parameters, and all gradients at the same indices */
    float *weights, *grads;
    size_t floats; /* number of floats in `weights`, a multiple of 16 */
    void *x;
    int32_t *labels;
    float *stats; /* sum of the rows' losses, number of correct predictions */
    ls_step_args args;
    ls_op *update;               /* w ← w − lr·scale·g */
    void *memory[8 * NET_NODES]; /* device memory that net_free frees */
    int memories;
} net;

void net_init(net *n, ls_device *device, int rows, int c, int h, int w);
void net_free(net *n);

/* The functions from net_conv2d to net_loss append an op that reads the output of node `x`
 * (NET_INPUT: the images). They return the index of the new node. */
int net_conv2d(net *n, int x, int out, int kernel, int stride, int padding);
int net_dense(net *n, int x, int out);
int net_relu(net *n, int x);
int net_avg_pool(net *n, int x, int kernel);
int net_global_avg_pool(net *n, int x);
/* For evaluation only: uses the initial statistics, mean 0 and variance 1. */
int net_batchnorm(net *n, int x);
int net_add(net *n, int x, int x2);
/* Copies x to row-major order from the layout that the device uses. */
int net_export(net *n, int x);
int net_loss(net *n, int x); /* computes softmax and its cross-entropy with the labels */

int net_build(net *n, ls_error *err);
/* Copies the batch to the device: `images` [rows][c][h][w] and `labels` [rows] (NULL if the network
 * has no loss). */
int net_load(net *n, const float *images, const int32_t *labels, ls_error *err);
/* Copies all parameters from host memory to the device: weight and bias of the first op with
 * parameters, then those of the next one, without padding. net_export_params copies them back. */
int net_import(net *n, const float *params, ls_error *err);
int net_export_params(net *n, float *params, ls_error *err);
size_t net_params(const net *n); /* number of floats of all parameters in host memory */
/* Writes initial values for net_import to `params`: weights from N(0, std²), the scales of batch
 * norm 1, all others 0. */
void net_initial(const net *n, float *params, float std, uint64_t seed);

int net_forward(net *n, unsigned flags, ls_error *err); /* `flags`: LS_RUN_… of plugin.h */
int net_backward(net *n, ls_error *err);
int net_step(net *n, float lr, float scale, ls_error *err);

#endif
