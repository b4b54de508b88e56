/* SPDX-License-Identifier: MIT */
/* Decides which neighbouring layers are offered to a back end as one op (plan.h). */
#include "nn/plan.h"

int ls_fuse_producer(const ls_network *model, int layer)
{
    while (layer != LS_INPUT && model->layer[layer].op.kind == 0)
        layer = model->layer[layer].input[0];
    return layer;
}

int ls_fuse_reader(const ls_network *model, int layer)
{
    for (int i = layer + 1; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].inputs && model->layer[i].op.kind != 0; k++)
            if (ls_fuse_producer(model, model->layer[i].input[k]) == layer)
                return i;
    return -1;
}

/* Returns the layer that reads the output of `layer`, or −1 if several layers, or no layer, read
 * that output. A layer that reads the output twice counts as two layers. */
static int only_reader(const ls_network *model, int layer)
{
    int reader = -1;
    for (int i = layer + 1; i < model->layers; i++) {
        for (int k = 0; k < model->layer[i].inputs; k++) {
            if (model->layer[i].input[k] != layer)
                continue;
            if (reader >= 0)
                return -1;
            reader = i;
        }
    }
    return reader;
}

/* Returns the only reader of `layer` if the reader's op is of the given kind, otherwise −1. A
 * flatten layer has no op, so the result is −1 if the reader is a flatten layer. */
static int next_of_kind(const ls_network *model, int layer, ls_op_kind kind)
{
    int next = only_reader(model, layer);
    return next >= 0 && model->layer[next].op.kind == kind ? next : -1;
}

/* Returns the relu that can be fused with `layer` before it, or −1. A leaky relu cannot be
 * fused. */
static int next_relu(const ls_network *model, int layer)
{
    int next = next_of_kind(model, layer, LS_OP_RELU);
    return next >= 0 && model->layer[next].op.u.relu.slope == 0 ? next : -1;
}

/* Returns the other input of layer `add`, one of whose inputs is `layer`. */
static int other_input(const ls_network *model, int add, int layer)
{
    const int *input = model->layer[add].input;
    return input[input[0] == layer ? 1 : 0];
}

/* Writes the forms in which a relu follows layer `first`. If `pools` is true, also writes the form
 * in which a pool follows layer `first` or its relu. Returns the number of forms. */
static int forms_of(ls_fuse_form *out, const ls_network *model, int first, bool pools)
{
    int n = 0;
    int relu = next_relu(model, first);
    int pool = pools ? next_of_kind(model, relu >= 0 ? relu : first, LS_OP_POOL) : -1;
    if (pool >= 0)
        out[n++] = (ls_fuse_form){first, pool, relu, pool, -1};
    if (relu >= 0)
        out[n++] = (ls_fuse_form){first, relu, relu, -1, -1};
    return n;
}

static int forms_of_norm(ls_fuse_form *out, const ls_network *model, int first)
{
    int add = next_of_kind(model, first, LS_OP_ADD);
    if (add >= 0 && other_input(model, add, first) >= first)
        add = -1;
    int relu = next_relu(model, add >= 0 ? add : first);
    int last = relu >= 0 ? relu : add;
    if (last < 0)
        return 0;
    out[0] = (ls_fuse_form){first, last, relu, -1, add};
    return 1;
}

int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_network *model, int first)
{
    int n = 0;
    switch ((int)model->layer[first].op.kind) {
    case LS_OP_CONV2D: n = forms_of(out, model, first, true); break;
    case LS_OP_BATCHNORM: n = forms_of_norm(out, model, first); break;
    case LS_OP_DENSE:
    case LS_OP_ADD: n = forms_of(out, model, first, false); break;
    default: break;
    }
    out[n++] = (ls_fuse_form){first, first, -1, -1, -1};
    return n;
}

ls_op_desc ls_fuse_desc(const ls_network *model, const ls_fuse_form *form)
{
    ls_op_desc desc = model->layer[form->first].op;
    desc.fuse_relu = form->relu >= 0;
    desc.fuse_add = form->add >= 0;
    desc.fuse_pool = form->pool >= 0;
    desc.zero_bias = desc.kind == LS_OP_CONV2D && form->last == form->first &&
                     next_of_kind(model, form->first, LS_OP_BATCHNORM) >= 0;
    if (form->pool >= 0)
        desc.pool = model->layer[form->pool].op.pool;
    return desc;
}

int ls_fuse_inputs(int out[LS_INPUTS], const ls_network *model, const ls_fuse_form *form)
{
    const ls_layer *layer = &model->layer[form->first];
    out[0] = layer->input[0];
    if (layer->inputs == 2) {
        out[1] = layer->input[1];
        return 2;
    }
    if (form->add < 0)
        return 1;
    out[1] = other_input(model, form->add, form->first);
    return 2;
}
