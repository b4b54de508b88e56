#include "nn/fuse.h"

int ls_fuse_reader(const ls_model *model, int layer)
{
    for (int i = layer + 1; i < model->layers; i++)
        if (model->layer[i].input == layer)
            return i;
    return -1;
}

/* The reader of `layer` when it is of this kind, else −1. A flatten layer in between has no op and
 * ends the chain. */
static int next_of_kind(const ls_model *model, int layer, ls_op_kind kind)
{
    int next = ls_fuse_reader(model, layer);
    return next >= 0 && model->layer[next].op.kind == kind ? next : -1;
}

int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_model *model, int first)
{
    const ls_op_kind kind = model->layer[first].op.kind;
    int n = 0;
    int relu = -1;
    int pool = -1;
    if (kind == LS_OP_CONV2D || kind == LS_OP_DENSE)
        relu = next_of_kind(model, first, LS_OP_RELU);
    if (kind == LS_OP_CONV2D)
        pool = next_of_kind(model, relu >= 0 ? relu : first, LS_OP_POOL);
    if (pool >= 0)
        out[n++] = (ls_fuse_form){first, pool, relu, pool};
    if (relu >= 0)
        out[n++] = (ls_fuse_form){first, relu, relu, -1};
    out[n++] = (ls_fuse_form){first, first, -1, -1};
    return n;
}

ls_op_desc ls_fuse_desc(const ls_model *model, const ls_fuse_form *form)
{
    ls_op_desc desc = model->layer[form->first].op;
    desc.fuse_relu = form->relu >= 0;
    desc.fuse_pool = form->pool >= 0;
    if (form->pool >= 0)
        desc.pool = model->layer[form->pool].op.pool;
    return desc;
}
