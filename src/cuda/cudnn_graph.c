#include "cuda/cudnn_graph.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void ls_graph_init(ls_graph *g)
{
    memset(g, 0, sizeof *g);
}

void ls_graph_fini(ls_graph *g)
{
    for (int i = g->objects - 1; i >= 0; i--)
        cudnnBackendDestroyDescriptor(g->object[i]);
    memset(g, 0, sizeof *g);
}

static void note(ls_graph *g, cudnnStatus_t status, const char *what)
{
    char why[160];
    if (g->status != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS)
        return;
    why[0] = '\0';
    cudnnGetLastErrorString(why, sizeof why);
    for (char *c = why; *c; c++)
        if (*c == '\n')
            *c = ' ';
    snprintf(g->text, sizeof g->text, "%s: %s %s", what, cudnnGetErrorString(status), why);
    g->status = status;
}

ls_graph_object ls_graph_object_new(ls_graph *g, cudnnBackendDescriptorType_t type)
{
    ls_graph_object object = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->objects == LS_GRAPH_OBJECTS) {
        note(g, CUDNN_STATUS_INTERNAL_ERROR, "too many objects of a graph");
        return NULL;
    }
    note(g, cudnnBackendCreateDescriptor(type, &object), "creating an object of a graph");
    if (object)
        g->object[g->objects++] = object;
    return object;
}

static void set(ls_graph *g, ls_graph_object object, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendSetAttribute(object, name, type, count, values), "an attribute");
}

static void set_object(ls_graph *g, ls_graph_object object, cudnnBackendAttributeName_t name,
                       ls_graph_object value)
{
    set(g, object, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(ls_graph *g, ls_graph_object object, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        note(g, cudnnBackendFinalize(object), what);
}

static void append(ls_graph *g, ls_graph_object operation, const char *what)
{
    finalize(g, operation, what);
    if (g->operations == LS_GRAPH_OPERATIONS)
        note(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations of a graph");
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->operation[g->operations++] = operation;
}

ls_graph_object ls_graph_tensor(ls_graph *g, int64_t number, cudnnDataType_t type,
                                const int64_t dims[4], const int64_t strides[4], int flags)
{
    const int64_t alignment = 16;
    const bool inside = (flags & LS_GRAPH_VIRTUAL) != 0;
    ls_graph_object t = ls_graph_object_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (inside)
        set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    finalize(g, t, "a tensor");
    return t;
}

static ls_graph_object convolution(ls_graph *g, const ls_math_shape *s)
{
    const int64_t sides = 2, padding[2] = {s->ph, s->pw}, stride[2] = {s->sh, s->sw};
    const int64_t dilation[2] = {1, 1};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    ls_graph_object c = ls_graph_object_new(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides);
    set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
    set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    finalize(g, c, "a convolution");
    return c;
}

/* The three passes have the same attributes under different names. */
typedef struct pass_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} pass_names;

static const pass_names passes[] = {
    [LS_MATH_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [LS_MATH_CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [LS_MATH_CONV_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void ls_graph_conv(ls_graph *g, ls_math_kind kind, ls_graph_object x, ls_graph_object w,
                   ls_graph_object y, const ls_math_shape *shape)
{
    const pass_names *p = &passes[kind];
    const float alpha = 1, beta = 0;
    ls_graph_object c = convolution(g, shape), o = ls_graph_object_new(g, p->type);
    set_object(g, o, p->conv, c);
    set_object(g, o, p->x, x);
    set_object(g, o, p->w, w);
    set_object(g, o, p->y, y);
    set(g, o, p->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    set(g, o, p->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    append(g, o, "the convolution's pass");
}

void ls_graph_pointwise(ls_graph *g, cudnnPointwiseMode_t mode, ls_graph_object x,
                        ls_graph_object b, ls_graph_object y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    ls_graph_object p = ls_graph_object_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finalize(g, p, "a pointwise function");
    ls_graph_object o = ls_graph_object_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    append(g, o, "a pointwise operation");
}

void ls_graph_close(ls_graph *g, const ls_math *math)
{
    ls_graph_object o = ls_graph_object_new(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (math->cudnn)
        set(g, o, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &math->cudnn);
    set(g, o, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
        g->operation);
    finalize(g, o, "the graph");
    g->graph = o;
}
