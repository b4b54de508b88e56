#include "nn/plan.h"

#include "base/error.h"
#include "base/host.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>

/* ---- making the ops ------------------------------------------------------------------------- */

/* A tensor of this shape as a description before anybody made it. */
static ls_tensor tensor_of(const ls_shape *s, int rows, ls_dtype dtype)
{
    size_t element = dtype == LS_F32 ? sizeof(float) : 1;
    return (ls_tensor){.dtype = dtype,
                       .rows = rows,
                       .c = s->c,
                       .h = s->h,
                       .w = s->w,
                       .bytes =
                           element * (size_t)rows * (size_t)s->c * (size_t)s->h * (size_t)s->w};
}

static ls_op_desc loss_desc(void)
{
    return (ls_op_desc){.size = sizeof(ls_op_desc), .kind = LS_OP_SOFTMAX_XENT};
}

/* The first layer at or after `layer` that has an op, or the number of layers. */
static int next_with_op(const ls_model *model, int layer)
{
    while (layer < model->layers && model->layer[layer].op.kind == 0)
        layer++;
    return layer;
}

/* Whether a layer before this one has parameters, so that gradients must reach that far. */
static int learns_before(const ls_model *model, int layer)
{
    for (int i = 0; i < layer; i++)
        if (model->layer[i].params > 0)
            return 1;
    return 0;
}

/* What the op that comes at `layer` would like a tensor of this shape to look like. */
static const ls_layout *hint_for(const ls_plan *plan, int layer, const ls_shape *shape)
{
    const ls_device_ops *ops = plan->device->ops;
    if (!ops->preferred_layout)
        return NULL;
    ls_op_desc desc = loss_desc();
    layer = next_with_op(plan->model, layer);
    if (layer < plan->model->layers) {
        ls_fuse_form form[LS_FUSE_FORMS];
        ls_fuse_forms(form, plan->model, layer);
        desc = ls_fuse_desc(plan->model, &form[0]);
    }
    desc.x = tensor_of(shape, plan->rows, LS_F32);
    desc.training = plan->training;
    desc.needs_dx = plan->training && learns_before(plan->model, layer);
    return ops->preferred_layout(plan->device, &desc);
}

static int make_gathers(ls_plan *plan, const ls_plan_desc *desc, ls_error *err)
{
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_GATHER};
    d.x = tensor_of(&plan->model->input, plan->rows, LS_U8);
    d.y_hint = hint_for(plan, 0, &plan->model->input);
    d.u.gather = desc->normalisation;
    for (int s = 0; s < LS_SUBSETS; s++) {
        d.twin = desc->twin ? desc->twin->gather[s] : NULL;
        if (!desc->uses[s])
            continue;
        int rc = plan->device->ops->op_create(&plan->gather[s], plan->device, &d, err);
        if (rc != LS_OK)
            return rc;
    }
    return LS_OK;
}

static const ls_tensor *gathered(const ls_plan *plan)
{
    return &(plan->gather[LS_TRAIN] ? plan->gather[LS_TRAIN] : plan->gather[LS_TEST])->y;
}

/* What node `k` reads; for k = nodes, what the loss reads. */
static const ls_tensor *input_of(const ls_plan *plan, int k)
{
    return k > 0 ? &plan->node[k - 1].op->y : gathered(plan);
}

static const ls_op *twin_of(const ls_plan *twin, int layer)
{
    for (int k = 0; twin && k < twin->nodes; k++)
        if (twin->node[k].form.first == layer)
            return twin->node[k].op;
    return NULL;
}

/* Another op of the same layer must have the same parameters, or arenas cannot be shared. */
static int check_params(const ls_op *op, const ls_op *twin, const ls_layer *layer, ls_error *err)
{
    int same = op->params == layer->params;
    for (int i = 0; same && twin && i < op->params; i++)
        same = op->param_floats[i] == twin->param_floats[i];
    for (int i = 0; same && i < op->params; i++)
        same = op->param_floats[i] >= layer->param[i].count;
    if (same)
        return LS_OK;
    return ls_fail(err, LS_EDEVICE,
                   "%s '%s': the back end's op \"%s\" does not keep the layer's parameters",
                   layer->type->name, layer->name, op->kernel ? op->kernel : "?");
}

static int make_node(ls_plan *plan, const ls_plan *twin, int layer, ls_error *err)
{
    const ls_model *model = plan->model;
    const int learns = learns_before(model, layer);
    ls_node *node = &plan->node[plan->nodes];
    ls_fuse_form form[LS_FUSE_FORMS];
    ls_error why = {0};
    int rc = LS_EUNSUPPORTED;
    int forms = ls_fuse_forms(form, model, layer);
    for (int i = 0; i < forms && rc == LS_EUNSUPPORTED; i++) {
        ls_op_desc d = ls_fuse_desc(model, &form[i]);
        d.x = *input_of(plan, plan->nodes);
        d.y_hint = hint_for(plan, form[i].last + 1, &model->layer[form[i].last].y);
        d.twin = twin_of(twin, layer);
        d.needs_dx = plan->training && learns;
        d.training = plan->training && (learns || model->layer[layer].params > 0);
        *node = (ls_node){.form = form[i], .backward = d.training, .needs_dx = d.needs_dx};
        rc = plan->device->ops->op_create(&node->op, plan->device, &d, &why);
    }
    if (rc != LS_OK)
        return ls_fail(err, rc, "%s", why.text);
    plan->nodes++;
    return check_params(node->op, twin_of(twin, layer), &model->layer[layer], err);
}

static int make_nodes(ls_plan *plan, const ls_plan *twin, ls_error *err)
{
    const ls_model *model = plan->model;
    int layer = next_with_op(model, 0);
    while (layer < model->layers) {
        int rc = make_node(plan, twin, layer, err);
        if (rc != LS_OK)
            return rc;
        layer = next_with_op(model, plan->node[plan->nodes - 1].form.last + 1);
    }
    return LS_OK;
}

/* A loss wants vectors. When the last thing in the model was to flatten an image, the image is
 * brought into c, h, w order, which is the vector. */
static int make_export(ls_plan *plan, ls_error *err)
{
    const ls_tensor *last = input_of(plan, plan->nodes);
    if (last->h == 1 && last->w == 1)
        return LS_OK;
    ls_node *node = &plan->node[plan->nodes];
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_EXPORT, .x = *last};
    d.training = d.needs_dx = plan->training;
    *node = (ls_node){.form = {-1, -1, -1, -1}, .backward = d.training, .needs_dx = d.needs_dx};
    int rc = plan->device->ops->op_create(&node->op, plan->device, &d, err);
    plan->nodes += rc == LS_OK;
    return rc;
}

/* What the loss reads. */
static ls_tensor logits(const ls_plan *plan)
{
    ls_tensor x = *input_of(plan, plan->nodes);
    x.c = x.c * x.h * x.w;
    x.h = x.w = 1;
    return x;
}

static int make_losses(ls_plan *plan, const ls_plan *twin, ls_error *err)
{
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op_desc d = loss_desc();
        d.x = logits(plan);
        d.training = d.needs_dx = s == LS_TRAIN;
        d.twin = twin ? twin->loss[s] : NULL;
        if (s == LS_TRAIN && !plan->training)
            continue;
        int rc = plan->device->ops->op_create(&plan->loss[s], plan->device, &d, err);
        if (rc != LS_OK)
            return rc;
    }
    return LS_OK;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Takes `bytes`, from a multiple of LS_ALIGN on. A sum beyond what any machine has stays there, so
 * that the allocation fails and nothing wraps around. */
static size_t take(size_t *used, size_t bytes)
{
    const size_t limit = SIZE_MAX / 4;
    size_t at = *used;
    size_t rounded = bytes > limit ? limit : (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    *used = at > limit - rounded ? limit : at + rounded;
    return at;
}

static void need_scratch(ls_plan *plan, const ls_op *op)
{
    if (op && op->scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = op->scratch_bytes;
}

static void place(ls_plan *plan)
{
    size_t *used = &plan->activation_bytes;
    size_t gradient[2] = {0, 0};
    plan->labels_at = take(used, (size_t)plan->rows);
    plan->x_at = take(used, gathered(plan)->bytes);
    for (int k = 0; k < plan->nodes; k++) {
        ls_node *node = &plan->node[k];
        node->y_at = take(used, node->op->y.bytes);
        node->saved_at = take(used, node->op->saved_bytes);
        if (node->op->y.bytes > gradient[k % 2])
            gradient[k % 2] = node->op->y.bytes;
        need_scratch(plan, node->op);
    }
    for (int s = 0; s < LS_SUBSETS; s++) {
        if (plan->training)
            plan->gradient_at[s] = take(used, gradient[s]);
        plan->loss_saved_at[s] = take(used, plan->loss[s] ? plan->loss[s]->saved_bytes : 0);
        need_scratch(plan, plan->loss[s]);
        need_scratch(plan, plan->gather[s]);
    }
}

int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err)
{
    ls_plan *plan = ls_alloc(desc->host, sizeof *plan);
    if (!plan)
        return ls_fail(err, LS_ENOMEM, "replica: no memory for a plan");
    *plan = (ls_plan){.device = desc->device,
                      .model = desc->model,
                      .host = desc->host,
                      .rows = desc->rows,
                      .training = desc->training};
    int rc = LS_OK;
    size_t most = (size_t)desc->model->layers + 1; /* and an export */
    plan->node = ls_alloc_array(desc->host, most, sizeof *plan->node);
    if (!plan->node)
        rc = ls_fail(err, LS_ENOMEM, "replica: no memory for a plan");
    if (rc == LS_OK)
        rc = make_gathers(plan, desc, err);
    if (rc == LS_OK)
        rc = make_nodes(plan, desc->twin, err);
    if (rc == LS_OK)
        rc = make_export(plan, err);
    if (rc == LS_OK)
        rc = make_losses(plan, desc->twin, err);
    if (rc != LS_OK) {
        ls_plan_destroy(plan);
        return rc;
    }
    place(plan);
    *out = plan;
    return LS_OK;
}

static void destroy_op(ls_op *op)
{
    if (op)
        op->impl->destroy(op);
}

/* In reverse order: layouts belong to the ops that produce tensors. */
void ls_plan_destroy(ls_plan *plan)
{
    if (!plan)
        return;
    for (int s = 0; s < LS_SUBSETS; s++)
        destroy_op(plan->loss[s]);
    for (int k = plan->nodes - 1; k >= 0; k--)
        destroy_op(plan->node[k].op);
    for (int s = 0; s < LS_SUBSETS; s++)
        destroy_op(plan->gather[s]);
    ls_free(plan->host, plan->node);
    ls_free(plan->host, plan);
}

/* ---- bind ----------------------------------------------------------------------------------- */

static int bind(ls_op *op, ls_op_buffers *b, ls_error *err)
{
    return op->impl->bind(op, b, err);
}

static void *at(const ls_plan_memory *m, size_t offset, size_t bytes)
{
    return bytes ? m->activations + offset : NULL;
}

/* Where node k's output is, for k = −1 the gathered rows. */
static char *output_at(const ls_plan *plan, const ls_plan_memory *m, int k)
{
    return m->activations + (k < 0 ? plan->x_at : plan->node[k].y_at);
}

static int bind_gathers(ls_plan *plan, const ls_plan_memory *m, ls_error *err)
{
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op_buffers b = {
            .args = m->args,
            .x = m->images[s],
            .y = output_at(plan, m, -1),
            .labels = m->labels[s],
            .labels_out = (uint8_t *)m->activations + plan->labels_at,
            .scratch = m->scratch,
        };
        int rc = plan->gather[s] ? bind(plan->gather[s], &b, err) : LS_OK;
        if (rc != LS_OK)
            return rc;
    }
    return LS_OK;
}

static int bind_node(ls_plan *plan, const ls_plan_memory *m, int k, ls_error *err)
{
    ls_node *node = &plan->node[k];
    ls_op_buffers b = {
        .args = m->args,
        .x = output_at(plan, m, k - 1),
        .y = output_at(plan, m, k),
        .saved = at(m, node->saved_at, node->op->saved_bytes),
        .scratch = m->scratch,
    };
    if (node->backward)
        b.dy = m->activations + plan->gradient_at[k % 2];
    if (node->needs_dx)
        b.dx = m->activations + plan->gradient_at[(k + 1) % 2];
    for (int i = 0; i < node->op->params; i++) {
        size_t offset = m->param_at[node->form.first * LS_OP_PARAMS + i];
        b.param[i] = m->weights + offset;
        b.grad[i] = m->gradient ? m->gradient + offset : NULL;
    }
    return bind(node->op, &b, err);
}

static int bind_losses(ls_plan *plan, const ls_plan_memory *m, ls_error *err)
{
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op *op = plan->loss[s];
        if (!op)
            continue;
        ls_op_buffers b = {
            .args = m->args,
            .x = output_at(plan, m, plan->nodes - 1),
            .labels = (const uint8_t *)m->activations + plan->labels_at,
            .stats = m->stats[s],
            .saved = at(m, plan->loss_saved_at[s], op->saved_bytes),
            .scratch = m->scratch,
        };
        if (s == LS_TRAIN)
            b.dx = m->activations + plan->gradient_at[(plan->nodes - 1) % 2];
        int rc = bind(op, &b, err);
        if (rc != LS_OK)
            return rc;
    }
    return LS_OK;
}

int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err)
{
    int rc = bind_gathers(plan, memory, err);
    for (int k = 0; k < plan->nodes && rc == LS_OK; k++)
        rc = bind_node(plan, memory, k, err);
    return rc == LS_OK ? bind_losses(plan, memory, err) : rc;
}

/* ---- run ------------------------------------------------------------------------------------ */

int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err)
{
    ls_op *op = plan->gather[subset];
    return op->impl->forward(op, NULL, 0, err);
}

int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err)
{
    const unsigned mode = loss == LS_TEST ? LS_RUN_EVALUATE : 0;
    for (int k = 0; k < plan->nodes; k++) {
        ls_op *op = plan->node[k].op;
        int rc = op->impl->forward(op, NULL, mode, err);
        if (rc != LS_OK)
            return rc;
    }
    ls_op *op = plan->loss[loss];
    return op->impl->forward(op, NULL, flags, err);
}

int ls_plan_backward(ls_plan *plan, unsigned flags, ls_error *err)
{
    for (int k = plan->nodes - 1; k >= 0 && plan->node[k].backward; k--) {
        ls_op *op = plan->node[k].op;
        int rc = op->impl->backward(op, NULL, flags, err);
        if (rc != LS_OK)
            return rc;
    }
    return LS_OK;
}

/* ---- for people ----------------------------------------------------------------------------- */

/* "conv1+relu+avg_pool"; a layer without a name of its own goes by its type. */
static void node_name(char *out, size_t size, const ls_plan *plan, const ls_node *node)
{
    const ls_fuse_form *f = &node->form;
    const ls_layer *layer = plan->model->layer;
    if (f->first < 0) {
        snprintf(out, size, "export");
        return;
    }
    const ls_layer *first = &layer[f->first];
    int unnamed = isdigit((unsigned char)first->name[0]);
    snprintf(out, size, "%s%s%s%s", unnamed ? first->type->name : first->name,
             f->relu >= 0 ? "+relu" : "", f->pool >= 0 ? "+" : "",
             f->pool >= 0 ? layer[f->pool].type->name : "");
}

static void op_line(char *out, size_t size, const char *name, const ls_tensor *x,
                    const ls_tensor *y, const ls_op *op)
{
    const char *kernel = op->kernel ? op->kernel : "";
    if (y)
        snprintf(out, size, "%s %d×%d×%d×%d → %d×%d×%d×%d %s", name, x->rows, x->c, x->h, x->w,
                 y->rows, y->c, y->h, y->w, kernel);
    else
        snprintf(out, size, "%s %d×%d×%d×%d %s", name, x->rows, x->c, x->h, x->w, kernel);
}

int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line)
{
    char name[96] = "loss";
    const ls_tensor x = logits(plan);
    if (line > plan->nodes + 1)
        return 0;
    if (line == 0) {
        const ls_op *op = plan->gather[LS_TRAIN] ? plan->gather[LS_TRAIN] : plan->gather[LS_TEST];
        ls_tensor rows = tensor_of(&plan->model->input, plan->rows, LS_U8);
        op_line(out, size, "gather", &rows, &op->y, op);
    } else if (line <= plan->nodes) {
        const ls_node *node = &plan->node[line - 1];
        node_name(name, sizeof name, plan, node);
        op_line(out, size, name, input_of(plan, line - 1), &node->op->y, node->op);
    } else {
        op_line(out, size, name, &x, NULL, plan->loss[plan->training ? LS_TRAIN : LS_TEST]);
    }
    return 1;
}
