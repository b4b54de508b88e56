/* cuDNN's graph API, as much of it as convolutions need.
 *
 *     ls_graph g;
 *     ls_graph_init(&g);
 *     int64_t x = ls_graph_tensor(&g, 1, CUDNN_DATA_FLOAT, dims, strides, 0), …;
 *     ls_graph_conv(&g, LS_MATH_CONV, x, w, y, &shape);
 *     ls_graph_close(&g, math);
 *     if (g.status != CUDNN_STATUS_SUCCESS) … g.text
 *     ls_graph_fini(&g);
 *
 * The first failure is kept and makes the rest do nothing.
 */
#ifndef CUDA_CUDNN_GRAPH_H
#define CUDA_CUDNN_GRAPH_H

#include "cuda/math_inside.h"

enum { LS_GRAPH_OBJECTS = 48, LS_GRAPH_OPERATIONS = 4 };

typedef cudnnBackendDescriptor_t ls_graph_object;

typedef struct ls_graph {
    ls_graph_object object[LS_GRAPH_OBJECTS]; /* all of them, to be destroyed */
    int objects;
    ls_graph_object operation[LS_GRAPH_OPERATIONS];
    int operations;
    ls_graph_object graph; /* after close */
    cudnnStatus_t status;
    char text[256]; /* of the first failure */
} ls_graph;

enum { LS_GRAPH_VIRTUAL = 1 /* lives inside the graph alone */ };

void ls_graph_init(ls_graph *g);
void ls_graph_fini(ls_graph *g);

/* A tensor with four dimensions, n c h w, and their strides; `number` is what a run binds memory to. */
ls_graph_object ls_graph_tensor(ls_graph *g, int64_t number, cudnnDataType_t type,
                                const int64_t dims[4], const int64_t strides[4], int flags);

/* A convolution's pass (LS_MATH_CONV, _DATA or _WEIGHTS) between x, w and y, or their gradients. */
void ls_graph_conv(ls_graph *g, ls_math_kind kind, ls_graph_object x, ls_graph_object w,
                   ls_graph_object y, const ls_math_shape *shape);

/* y ← mode(x, b); b may be NULL. In fp32. */
void ls_graph_pointwise(ls_graph *g, cudnnPointwiseMode_t mode, ls_graph_object x,
                        ls_graph_object b, ls_graph_object y);

/* Puts the operations together. */
void ls_graph_close(ls_graph *g, const ls_math *math);

/* An object that the graph destroys, or NULL. */
ls_graph_object ls_graph_object_new(ls_graph *g, cudnnBackendDescriptorType_t type);

#endif
