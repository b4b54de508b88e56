/* SPDX-License-Identifier: MIT */
/* Creates the ops of a plan, runs them, and describes them. The layout of memory is in
 * plan_memory.c. */
#include "nn/plan.h"

#include "base/error.h"
#include "base/host.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- creating the ops ------------------------------------------------------------------------ */

/* Returns the description of a row-major tensor of this shape. */
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

/* Returns whether a layer before `layer` has parameters that are trained, so that the backward pass
 * must reach that layer. */
static bool learns_before(const ls_network *model, int layer)
{
    for (int i = 0; i < layer; i++)
        if (ls_layer_learns(&model->layer[i]))
            return true;
    return false;
}

/* Returns the memory layout that the device prefers for the output of `layer`, a tensor of this
 * shape. The preference is that of the first op that reads the output, or of the loss if no op
 * reads it. NULL: the device has no preference. */
static const ls_layout *hint_for(const ls_plan *plan, int layer, const ls_shape *shape)
{
    const ls_device_ops *ops = plan->device->ops;
    const int reader = ls_fuse_reader(plan->model, layer);
    ls_op_desc desc = plan->loss_desc;
    if (!ops->preferred_layout)
        return NULL;
    if (reader >= 0) {
        ls_fuse_form form[LS_FUSE_FORMS];
        ls_fuse_forms(form, plan->model, reader);
        desc = ls_fuse_desc(plan->model, &form[0]);
    }
    desc.x = tensor_of(shape, plan->rows, LS_F32);
    if (desc.kind == LS_OP_ADD || desc.kind == LS_OP_CONCAT || desc.kind == LS_OP_MULTIPLY ||
        desc.fuse_add)
        desc.x2 = desc.x;
    desc.training = plan->training;
    desc.needs_dx =
        plan->training && learns_before(plan->model, reader >= 0 ? reader : plan->model->layers);
    /* The layout belongs to the device, so the returned pointer does not point into desc. */
    /* cppcheck-suppress returnDanglingLifetime */
    return ops->preferred_layout(plan->device, &desc);
}

/* Checks that the gather op for training and the gather op for evaluation write the same layout and
 * size. The nodes are created once, and read the output of both gather ops in the same memory. */
static int check_gathers(const ls_plan *plan, ls_error *err)
{
    const ls_op *const *gather = (const ls_op *const *)plan->gather;
    if (!gather[LS_TRAIN] || !gather[LS_TEST] ||
        (gather[LS_TRAIN]->y.layout == gather[LS_TEST]->y.layout &&
         gather[LS_TRAIN]->y.bytes == gather[LS_TEST]->y.bytes))
        return LS_OK;
    return ls_fail(err, LS_EDEVICE,
                   "gather: the back end lays rows for training (\"%s\", %zu bytes) and for "
                   "evaluation (\"%s\", %zu bytes) out differently",
                   gather[LS_TRAIN]->kernel, gather[LS_TRAIN]->y.bytes, gather[LS_TEST]->kernel,
                   gather[LS_TEST]->y.bytes);
}

static int make_gathers(ls_plan *plan, const ls_plan_desc *desc, ls_error *err)
{
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_GATHER};
    d.x = tensor_of(&plan->model->input, plan->rows, desc->normalisation.floats ? LS_F32 : LS_U8);
    d.y_hint = hint_for(plan, LS_INPUT, &plan->model->input);
    d.u.gather = desc->normalisation;
    for (int s = 0; s < LS_SUBSETS; s++) {
        d.twin = desc->twin ? desc->twin->gather[s] : NULL;
        /* random crops and flips are for training only */
        d.training = desc->training && s == LS_TRAIN;
        if (!desc->uses[s])
            continue;
        int status = plan->device->ops->op_create(&plan->gather[s], plan->device, &d, err);
        if (status != LS_OK)
            return status;
    }
    return check_gathers(plan, err);
}

static const ls_op *twin_of(const ls_plan *twin, int layer)
{
    for (int k = 0; twin && k < twin->nodes; k++)
        if (twin->node[k].form.first == layer)
            return twin->node[k].op;
    return NULL;
}

/* Checks the parameters of a layer's op:
 * - The op must have as many parameters as the layer.
 * - Each parameter of the op must be at least as large as the layer's parameter.
 * - Each parameter must have the same size as in the op `twin` of another plan, because all plans
 *   use the same arenas. */
static int check_params(const ls_op *op, const ls_op *twin, const ls_layer *layer, ls_error *err)
{
    int same = op->params == layer->params;
    if (layer->stats > 0)
        same = same && op->contribution_floats == layer->stat[0].count + layer->stat[1].count;
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

/* Sets the node's inputs, whether the node runs in the backward pass, and whether it computes the
 * gradients of its inputs. */
static void connect_node(ls_node *node, const ls_plan *plan, const ls_fuse_form *form)
{
    int layer[LS_INPUTS];
    *node = (ls_node){.form = *form};
    node->inputs = ls_fuse_inputs(layer, plan->model, form);
    node->learns = ls_layer_learns(&plan->model->layer[form->first]);
    for (int i = 0; i < node->inputs; i++) {
        int producer = ls_fuse_producer(plan->model, layer[i]);
        int k = producer == LS_INPUT ? LS_INPUT : plan->node_of[producer] - 1;
        node->input[i] = k;
        node->learns = node->learns || (k != LS_INPUT && plan->node[k].learns);
        node->needs_dx = node->needs_dx || (k != LS_INPUT && plan->node[k].backward);
    }
    node->backward = plan->training && node->learns;
}

/* Returns whether the form must be rejected because it fuses a frozen batch norm with an addition
 * whose other input learns. A batch norm is *frozen* if neither it nor a layer that it depends on
 * has parameters that are trained. A frozen batch norm uses its running statistics in training as
 * well (is_frozen_norm). The fused op would use those of the shard, because one of its inputs
 * learns. The form is rejected in plans for evaluation as well: bf16 values are rounded between two
 * ops, and a row must give the same bits in all plans of a run. */
static bool would_fuse_frozen_norm(const ls_plan *plan, const ls_fuse_form *form,
                                   const ls_node *node)
{
    const ls_fuse_form norm_form = {form->first, form->first, -1, -1, -1};
    ls_node norm_only;
    if (form->add < 0 || plan->model->layer[form->first].stats == 0 || !node->learns)
        return false;
    connect_node(&norm_only, plan, &norm_form);
    return !norm_only.learns;
}

static int try_form(ls_plan *plan, const ls_plan *twin, const ls_fuse_form *form, ls_error *err)
{
    ls_node *node = &plan->node[plan->nodes];
    connect_node(node, plan, form);
    if (would_fuse_frozen_norm(plan, form, node))
        return LS_EUNSUPPORTED;
    ls_op_desc d = ls_fuse_desc(plan->model, form);
    d.x = *ls_plan_tensor(plan, node->input[0]);
    if (node->inputs == 2)
        d.x2 = *ls_plan_tensor(plan, node->input[1]);
    d.y_hint = hint_for(plan, form->last, &plan->model->layer[form->last].y);
    d.twin = twin_of(twin, form->first);
    d.needs_dx = node->needs_dx;
    d.training = node->backward;
    return plan->device->ops->op_create(&node->op, plan->device, &d, err);
}

static void set_node_of(ls_plan *plan, const ls_fuse_form *form, int node)
{
    const int layer[] = {form->first, form->add, form->relu, form->pool};
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        if (layer[i] >= 0)
            plan->node_of[layer[i]] = node + 1;
}

static int make_node(ls_plan *plan, const ls_plan *twin, int layer, ls_error *err)
{
    ls_fuse_form form[LS_FUSE_FORMS];
    ls_error why = {0};
    int status = LS_EUNSUPPORTED;
    int forms = ls_fuse_forms(form, plan->model, layer);
    for (int i = 0; i < forms && status == LS_EUNSUPPORTED; i++)
        status = try_form(plan, twin, &form[i], &why);
    if (status != LS_OK)
        return ls_fail(err, status, "%s", why.text);
    const ls_node *node = &plan->node[plan->nodes];
    set_node_of(plan, &node->form, plan->nodes++);
    return check_params(node->op, twin_of(twin, layer), &plan->model->layer[layer], err);
}

static int make_nodes(ls_plan *plan, const ls_plan *twin, ls_error *err)
{
    const ls_network *model = plan->model;
    int status = LS_OK;
    for (int i = 0; i < model->layers && status == LS_OK; i++)
        if (model->layer[i].op.kind != 0 && plan->node_of[i] == 0)
            status = make_node(plan, twin, i, err);
    return status;
}

/* Appends an export if the loss cannot read the output of the last op. A loss reads vectors: the
 * export converts a flattened image to c, h, w order. `plain_logits`: the output must be row-major,
 * because the loss has vector targets or a caller reads the logits too. */
static int make_export(ls_plan *plan, bool plain_logits, ls_error *err)
{
    const int from = ls_plan_output(plan);
    const ls_tensor *last = ls_plan_tensor(plan, from);
    if (last->h == 1 && last->w == 1 && (!plain_logits || !last->layout))
        return LS_OK;
    ls_node *node = &plan->node[plan->nodes];
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_EXPORT, .x = *last};
    d.training = d.needs_dx = plan->training;
    *node = (ls_node){.form = {-1, -1, -1, -1, -1},
                      .inputs = 1,
                      .input = {from},
                      .backward = d.training,
                      .needs_dx = d.needs_dx};
    int status = plan->device->ops->op_create(&node->op, plan->device, &d, err);
    plan->nodes += status == LS_OK;
    return status;
}

/* Returns the tensor that the loss reads. */
static ls_tensor logits(const ls_plan *plan)
{
    ls_tensor x = *ls_plan_tensor(plan, ls_plan_output(plan));
    x.c = x.c * x.h * x.w;
    x.h = x.w = 1;
    return x;
}

static int make_losses(ls_plan *plan, const ls_plan *twin, ls_error *err)
{
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op_desc d = plan->loss_desc;
        d.x = logits(plan);
        d.training = d.needs_dx = s == LS_TRAIN;
        d.twin = twin ? twin->loss[s] : NULL;
        if (s == LS_TRAIN && !plan->training)
            continue;
        int status = plan->device->ops->op_create(&plan->loss[s], plan->device, &d, err);
        if (status != LS_OK)
            return status;
    }
    return LS_OK;
}

/* Creates the op that converts the logits to row-major memory for the caller. The loss still reads
 * the output of the last node in its own layout, so the same kernels run with and without
 * scores. */
static int make_scores(ls_plan *plan, bool wanted, ls_error *err)
{
    const ls_op_desc d = {.size = sizeof d, .kind = LS_OP_EXPORT, .x = logits(plan)};
    return wanted && d.x.layout ? plan->device->ops->op_create(&plan->scores, plan->device, &d, err)
                                : LS_OK;
}

int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err)
{
    const ls_loss *criterion = desc->loss ? desc->loss : ls_loss_find(NULL, false);
    ls_plan *plan = ls_alloc(desc->host, sizeof *plan);
    if (!plan)
        return ls_fail(err, LS_ENOMEM, "replica: no memory for a plan");
    *plan = (ls_plan){.device = desc->device,
                      .model = desc->model,
                      .host = desc->host,
                      .rows = desc->rows,
                      .training = desc->training,
                      .constant = desc->constant,
                      .loss_desc =
                          ls_loss_desc(criterion, desc->smoothing, desc->weighted, &desc->vector),
                      .targets = desc->normalisation.targets ? desc->normalisation.targets : 1,
                      .row_weights = desc->row_weights};
    int status = LS_OK;
    size_t most = (size_t)desc->model->layers + 1; /* + 1 for the export */
    plan->node = ls_alloc_array(desc->host, most, sizeof *plan->node);
    plan->node_of = ls_alloc_array(desc->host, most, sizeof *plan->node_of);
    if (!plan->node || !plan->node_of)
        status = ls_fail(err, LS_ENOMEM, "replica: no memory for a plan");
    if (status == LS_OK)
        status = make_gathers(plan, desc, err);
    if (status == LS_OK)
        status = make_nodes(plan, desc->twin, err);
    if (status == LS_OK)
        status = make_export(plan, desc->plain_logits || criterion->vectors, err);
    if (status == LS_OK)
        status = make_losses(plan, desc->twin, err);
    if (status == LS_OK)
        status = make_scores(plan, desc->scores, err);
    if (status == LS_OK)
        status = ls_plan_assign_offsets(plan, !desc->no_sharing, err);
    if (status == LS_OK)
        *out = plan;
    else
        ls_plan_destroy(plan);
    return status;
}

static void destroy_op(ls_op *op)
{
    if (op)
        op->impl->destroy(op);
}

void ls_plan_drop_recordings(ls_plan *plan, int program)
{
    for (int s = 0; s < plan->program[program].segments; s++) {
        ls_segment *segment = &plan->program[program].segment[s];
        if (segment->recording)
            plan->device->ops->recording_destroy(plan->device, segment->recording);
        segment->recording = NULL;
    }
}

/* Ops are destroyed in reverse order, because a tensor's layout belongs to the op that writes the
 * tensor, and the ops that read the tensor refer to the layout. */
void ls_plan_destroy(ls_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < LS_PROGRAMS; i++)
        ls_plan_drop_recordings(plan, i);
    for (int s = 0; s < LS_SUBSETS; s++)
        destroy_op(plan->loss[s]);
    destroy_op(plan->scores);
    for (int k = plan->nodes - 1; k >= 0; k--)
        destroy_op(plan->node[k].op);
    for (int s = 0; s < LS_SUBSETS; s++)
        destroy_op(plan->gather[s]);
    ls_free(plan->host, plan->node_of);
    ls_free(plan->host, plan->node);
    ls_free(plan->host, plan);
}

/* ---- running --------------------------------------------------------------------------------- */

/* The place in a heartbeat (sync/heartbeat.h) says what the worker does. While the worker runs an
 * op, the place is PHASE · (an AT_ constant) + (number of the node). Places below PHASE are set by
 * the replica's caller (LS_PLACE_IDLE …). */
enum { AT_GATHER = 1, AT_FORWARD, AT_LOSS, AT_BACKWARD, AT_RECORDING, PHASES };
enum { PHASE = 1 << 20 };

static void beat(const ls_plan *plan, int phase, int node)
{
    if (plan->heartbeat)
        ls_beat(plan->heartbeat, phase * PHASE + node);
}

int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err)
{
    ls_op *op = plan->gather[subset];
    beat(plan, AT_GATHER, 0);
    return op->impl->forward(op, NULL, 0, err);
}

/* Returns whether node `k` is a frozen batch norm (would_fuse_frozen_norm), which normalises with
 * its running statistics in training as well. */
static bool is_frozen_norm(const ls_plan *plan, int k)
{
    const ls_node *node = &plan->node[k];
    return !node->backward && node->form.first >= 0 &&
           plan->model->layer[node->form.first].stats > 0;
}

int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err)
{
    const unsigned promises = (plan->constant ? LS_RUN_CONSTANT : 0) | (flags & LS_RUN_SAME);
    for (int k = 0; k < plan->nodes; k++) {
        ls_op *op = plan->node[k].op;
        const unsigned mode =
            promises | (loss == LS_TEST || is_frozen_norm(plan, k) ? LS_RUN_EVALUATE : 0);
        beat(plan, AT_FORWARD, k);
        int status = op->impl->forward(op, NULL, mode, err);
        if (status != LS_OK)
            return status;
    }
    ls_op *op = plan->loss[loss];
    beat(plan, AT_LOSS, 0);
    return op->impl->forward(op, NULL, flags, err);
}

int ls_plan_scores(size_t *at, ls_plan *plan, ls_error *err)
{
    *at = plan->scores ? plan->scores_at : plan->node[ls_plan_output(plan)].y_at;
    return plan->scores ? plan->scores->impl->forward(plan->scores, NULL, LS_RUN_EVALUATE, err)
                        : LS_OK;
}

static int add_gradient(ls_plan *plan, const ls_node_dx *dx, const ls_tensor *tensor, ls_error *err)
{
    const ls_device_ops *ops = plan->device->ops;
    if (ops->add_tensor)
        return ops->add_tensor(plan->device, NULL, tensor, dx->sum, dx->part, err);
    return ops->add(plan->device, NULL, dx->sum, dx->sum, dx->part, dx->count, err);
}

static int run_backward(ls_plan *plan, const ls_node *node, unsigned flags, ls_error *err)
{
    int status = node->op->impl->backward(node->op, NULL, flags, err);
    for (int i = 0; i < node->inputs && status == LS_OK; i++) {
        const ls_node_dx *dx = &node->dx[i];
        if (dx->add)
            status = add_gradient(plan, dx, ls_plan_tensor(plan, node->input[i]), err);
    }
    return status;
}

int ls_plan_backward(ls_plan *plan, int first, int last, unsigned flags, ls_error *err)
{
    int status = LS_OK;
    for (int k = first; k >= last && status == LS_OK; k--) {
        if (!plan->node[k].backward)
            continue;
        beat(plan, AT_BACKWARD, k);
        status = run_backward(plan, &plan->node[k], flags, err);
    }
    return status;
}

int ls_plan_launch(ls_plan *plan, ls_recording *recording, const ls_step_args *args, ls_error *err)
{
    beat(plan, AT_RECORDING, 0);
    return plan->device->ops->launch(plan->device, NULL, recording, args, err);
}

/* ---- descriptions for people ----------------------------------------------------------------- */

/* Writes a node's name, such as "conv1+relu+avg_pool". If the first layer has no name in the
 * config, the function writes the layer's type instead. */
static void node_name(char *out, size_t size, const ls_plan *plan, const ls_node *node)
{
    const ls_fuse_form *f = &node->form;
    const ls_layer *layer = plan->model->layer;
    if (f->first < 0) {
        snprintf(out, size, "export");
        return;
    }
    const ls_layer *first = &layer[f->first];
    const char *dot = strrchr(first->name, '.');
    /* the layer's own name: the part after the prefix that a use of a block adds (blocks.c) */
    const char *own = dot ? dot + 1 : first->name;
    snprintf(out, size, "%.*s%s%s%s%s%s", (int)(own - first->name), first->name,
             isdigit((unsigned char)own[0]) ? first->type->name : own, f->add >= 0 ? "+add" : "",
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

ls_phase ls_replica_phase(int place)
{
    static const ls_phase phase[PHASES] = {LS_PHASE_NONE,    LS_PHASE_GATHER,   LS_PHASE_FORWARD,
                                           LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_RECORDED};
    return place >= 0 && place / PHASE < PHASES ? phase[place / PHASE] : LS_PHASE_NONE;
}

int ls_plan_position_name(char *out, size_t size, const ls_plan *plan, int place)
{
    static const char *const verb[PHASES] = {NULL,   "gather",       "forward of ",
                                             "loss", "backward of ", "a recorded step"};
    const int phase = place / PHASE, node = place % PHASE;
    char name[96] = "";
    if (phase < AT_GATHER || phase >= PHASES || node >= plan->nodes)
        return 0;
    if (phase == AT_FORWARD || phase == AT_BACKWARD)
        node_name(name, sizeof name, plan, &plan->node[node]);
    snprintf(out, size, "%s%s", verb[phase], name);
    return 1;
}

int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line)
{
    char name[96] = "loss";
    const ls_tensor x = logits(plan);
    if (line > plan->nodes + 1)
        return 0;
    if (line == 0) {
        const ls_op *op = plan->gather[LS_TRAIN] ? plan->gather[LS_TRAIN] : plan->gather[LS_TEST];
        const ls_tensor rows = tensor_of(&plan->model->input, plan->rows, LS_U8);
        op_line(out, size, "gather", &rows, &op->y, op);
    } else if (line <= plan->nodes) {
        const ls_node *node = &plan->node[line - 1];
        node_name(name, sizeof name, plan, node);
        op_line(out, size, name, ls_plan_tensor(plan, node->input[0]), &node->op->y, node->op);
    } else {
        op_line(out, size, name, &x, NULL, plan->loss[plan->training ? LS_TRAIN : LS_TEST]);
    }
    return 1;
}
