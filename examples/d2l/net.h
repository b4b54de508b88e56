/* A network from scratch: a list of ops on one device, straight on <lockstep/sys/plugin.h>.
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
 * The book writes lenet(X, params) in ten lines because a framework differentiates it; here every
 * op does its own backward step. All calls on the device's thread. A description that fails shows
 * in net_build. Training is for chains only: each op's output goes to one other op.
 */
#ifndef NET_H
#define NET_H

#include <lockstep/sys/plugin.h>

enum { NET_INPUT = -1, NET_NODES = 96 };

typedef struct net_node {
    ls_op_desc desc;
    ls_op *op;
    int x, x2; /* which nodes it reads; x2 −2: none */
    void *y, *dy;
    size_t param_at[LS_OP_PARAMS]; /* first float in the arenas */
} net_node;

typedef struct net {
    ls_device *device;
    net_node node[NET_NODES];
    int nodes;
    ls_tensor input;
    int status; /* status of the first description that failed */
    ls_error error;
    float *weights, *grads; /* every parameter, and its gradient: arenas of one layout */
    size_t floats;          /* size of an arena, a multiple of 16 */
    void *x;
    int32_t *labels;
    float *stats; /* summed loss, correct predictions */
    ls_step_args args;
    ls_op *update;               /* w ← w − lr·scale·g */
    void *memory[8 * NET_NODES]; /* everything that was allocated */
    int memories;
} net;

void net_init(net *n, ls_device *device, int rows, int c, int h, int w);
void net_free(net *n);

/* Each appends an op that reads node `x` (NET_INPUT: the images) and returns its number. */
int net_conv2d(net *n, int x, int out, int kernel, int stride, int padding);
int net_dense(net *n, int x, int out);
int net_relu(net *n, int x);
int net_avg_pool(net *n, int x, int kernel);
int net_global_avg_pool(net *n, int x);
int net_batchnorm(net *n, int x); /* for evaluation: mean 0 and variance 1, as at first */
int net_add(net *n, int x, int x2);
int net_export(net *n, int x); /* x row by row, whatever the device's own layout */
int net_loss(net *n, int x);   /* softmax and cross-entropy against the labels */

int net_build(net *n, ls_error *err);
/* The batch: rows × c × h × w floats, and a label each (NULL where there is no loss). */
int net_load(net *n, const float *images, const int32_t *labels, ls_error *err);
/* Parameters from and to host memory: weight, bias of the first op that has them, and so on. */
int net_import(net *n, const float *params, ls_error *err);
int net_export_params(net *n, float *params, ls_error *err);
size_t net_params(const net *n); /* how many floats that is */
/* First values for net_import: weights N(0, std²), batch norm's scales 1, all else 0. */
void net_initial(const net *n, float *params, float std, uint64_t seed);

int net_forward(net *n, unsigned flags, ls_error *err); /* LS_RUN_… of plugin.h */
int net_backward(net *n, ls_error *err);
int net_step(net *n, float lr, float scale, ls_error *err);

#endif
