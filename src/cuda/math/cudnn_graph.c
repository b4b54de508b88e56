/* SPDX-License-Identifier: MIT */
/* Builds the graph of a convolution from cuDNN's operations. */
#include "cuda/math/inside.h"

#include <stdio.h>
#include <string.h>

/* Numbers of the tensors that exist only inside a graph. (A run binds memory only to the tensors
 * LS_GRAPH_A … LS_GRAPH_BIAS.) */
enum { SUM = 5, BIASED = 6 };

void ls_graph_fini(ls_graph *g)
{
    for (int i = g->objects - 1; i >= 0; i--)
        cudnnBackendDestroyDescriptor(g->object[i]);
    memset(g, 0, sizeof *g);
}

static void graph_note(ls_graph *g, cudnnStatus_t status, const char *what)
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

static ls_graph_object new_object(ls_graph *g, cudnnBackendDescriptorType_t type)
{
    ls_graph_object object = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->objects == LS_GRAPH_OBJECTS) {
        graph_note(g, CUDNN_STATUS_INTERNAL_ERROR, "too many objects of a graph");
        return NULL;
    }
    graph_note(g, cudnnBackendCreateDescriptor(type, &object), "creating an object of a graph");
    if (object)
        g->object[g->objects++] = object;
    return object;
}

static void set(ls_graph *g, ls_graph_object object, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        graph_note(g, cudnnBackendSetAttribute(object, name, type, count, values), "an attribute");
}

static void set_object(ls_graph *g, ls_graph_object object, cudnnBackendAttributeName_t name,
                       ls_graph_object value)
{
    set(g, object, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(ls_graph *g, ls_graph_object object, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        graph_note(g, cudnnBackendFinalize(object), what);
}

static void append(ls_graph *g, ls_graph_object operation, const char *what)
{
    finalize(g, operation, what);
    if (g->operations == LS_GRAPH_OPERATIONS)
        graph_note(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations of a graph");
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->operation[g->operations++] = operation;
}

/* Creates a tensor with dimensions n c h w that is stored channels last. `number` identifies the
 * tensor when a run binds memory to it. */
static ls_graph_object tensor(ls_graph *g, int64_t number, cudnnDataType_t type, int n, int c,
                              int h, int w)
{
    const int64_t line = (int64_t)w * c, alignment = 16;
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * line, 1, line, c};
    const bool inside = number >= SUM;
    ls_graph_object t = new_object(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
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
    const int64_t dilation[2] = {s->dh, s->dw};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    ls_graph_object c = new_object(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
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

/* Appends the convolution of one pass, with x, w and y or their gradients as operands. */
static void conv(ls_graph *g, ls_graph_object x, ls_graph_object w, ls_graph_object y,
                 const ls_math_shape *shape)
{
    const pass_names *p = &passes[shape->kind];
    const float alpha = 1, beta = 0;
    ls_graph_object c = convolution(g, shape), o = new_object(g, p->type);
    set_object(g, o, p->conv, c);
    set_object(g, o, p->x, x);
    set_object(g, o, p->w, w);
    set_object(g, o, p->y, y);
    set(g, o, p->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    set(g, o, p->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    append(g, o, "the convolution's pass");
}

/* Appends y ← mode(x, b), computed in fp32. b may be NULL. */
static void pointwise(ls_graph *g, cudnnPointwiseMode_t mode, ls_graph_object x, ls_graph_object b,
                      ls_graph_object y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    ls_graph_object p = new_object(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finalize(g, p, "a pointwise function");
    ls_graph_object o = new_object(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_object(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    append(g, o, "a pointwise operation");
}

/* Finalizes the graph of all operations. */
static void close_graph(ls_graph *g, const ls_math *math)
{
    ls_graph_object o = new_object(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (math->cudnn)
        set(g, o, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &math->cudnn);
    set(g, o, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
        g->operation);
    finalize(g, o, "the graph");
    g->graph = o;
}

/* ---- the graph of a pass -------------------------------------------------------------------- */

static void build_forward(ls_graph *g, const ls_math_shape *s, ls_graph_object x, ls_graph_object w,
                          cudnnDataType_t type)
{
    const int n = s->rows, c = s->out, high = s->y_h, wide = s->y_w;
    ls_graph_object y = tensor(g, LS_GRAPH_OUT, type, n, c, high, wide);
    if (!s->bias) {
        conv(g, x, w, y, s);
        return;
    }
    ls_graph_object sum = tensor(g, SUM, CUDNN_DATA_FLOAT, n, c, high, wide);
    /* The bias has the type of the other operands, because no engine fuses a bias of another type.
     */
    ls_graph_object bias = tensor(g, LS_GRAPH_BIAS, type, 1, c, 1, 1);
    conv(g, x, w, sum, s);
    if (!s->relu) {
        pointwise(g, CUDNN_POINTWISE_ADD, sum, bias, y);
        return;
    }
    ls_graph_object biased = tensor(g, BIASED, CUDNN_DATA_FLOAT, n, c, high, wide);
    pointwise(g, CUDNN_POINTWISE_ADD, sum, bias, biased);
    pointwise(g, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
}

void ls_graph_of_conv(ls_graph *g, const ls_math *math, const ls_math_shape *s)
{
    const cudnnDataType_t type = s->half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int x_is = s->kind == LS_MATH_CONV_DATA ? LS_GRAPH_OUT : LS_GRAPH_A;
    const int w_is = s->kind == LS_MATH_CONV_WEIGHTS ? LS_GRAPH_OUT : LS_GRAPH_B;
    const int y_is = s->kind == LS_MATH_CONV_DATA ? LS_GRAPH_A : LS_GRAPH_B;
    memset(g, 0, sizeof *g);
    ls_graph_object x = tensor(g, x_is, type, s->rows, s->c, s->h, s->w);
    /* cuDNN derives the number of groups: the channels of x divided by the channels of the
     * weights. */
    ls_graph_object w = tensor(g, w_is, type, s->out, s->c / s->groups, s->kh, s->kw);
    if (s->kind == LS_MATH_CONV) {
        build_forward(g, s, x, w, type);
    } else {
        ls_graph_object dy = tensor(g, y_is, type, s->rows, s->out, s->y_h, s->y_w);
        conv(g, x, w, dy, s);
    }
    close_graph(g, math);
}
