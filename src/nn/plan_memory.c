/* SPDX-License-Identifier: MIT */
/* The memory of a plan: computes when each buffer is needed, computes the offsets of the buffers,
 * and binds the ops to the buffers. */
#include "base/error.h"
#include "base/host.h"
#include "nn/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- placing buffers ------------------------------------------------------------------------- */

/* A size that no machine has. The sum of a few such sizes does not overflow. */
#define LIMIT (SIZE_MAX / 4)

static size_t rounded(size_t bytes)
{
    return bytes > LIMIT ? LIMIT : (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

static size_t add(size_t a, size_t b)
{
    return a > LIMIT - b ? LIMIT : a + b;
}

/* Returns whether two buffers are needed at the same time. */
static bool needed_together(const ls_live_buffer *a, const ls_live_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Returns the index of the largest buffer that has not been placed yet, or −1 if all have been
 * placed. If several buffers are equally large, returns the first of them. */
static int largest_unplaced(const ls_live_buffer *buffer, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!buffer[i].placed && (best < 0 || buffer[i].bytes > buffer[best].bytes))
            best = i;
    return best;
}

/* Returns the lowest offset at which buffer `b` shares no memory with a placed buffer that is
 * needed at the same time. `head`: first entry of the list of placed buffers, which is ordered by
 * offset. */
static size_t lowest_offset(const ls_live_buffer *buffer, int head, const ls_live_buffer *b)
{
    size_t at = 0;
    for (int i = head; i >= 0; i = buffer[i].next) {
        if (!needed_together(&buffer[i], b))
            continue;
        if (add(at, rounded(b->bytes)) <= buffer[i].at)
            break;
        size_t end = add(buffer[i].at, rounded(buffer[i].bytes));
        at = end > at ? end : at;
    }
    return at;
}

static void insert_placed(ls_live_buffer *buffer, int *head, int k)
{
    int *link = head;
    while (*link >= 0 && buffer[*link].at <= buffer[k].at)
        link = &buffer[*link].next;
    buffer[k].next = *link;
    *link = k;
}

size_t ls_place_buffers(ls_live_buffer *buffer, int count, bool share)
{
    size_t total = 0;
    int head = -1;
    for (int i = 0; i < count; i++) {
        buffer[i].placed = buffer[i].bytes == 0;
        buffer[i].at = 0;
    }
    for (int k = largest_unplaced(buffer, count); k >= 0; k = largest_unplaced(buffer, count)) {
        buffer[k].at = share ? lowest_offset(buffer, head, &buffer[k]) : total;
        buffer[k].placed = true;
        insert_placed(buffer, &head, k);
        size_t end = add(buffer[k].at, rounded(buffer[k].bytes));
        total = end > total ? end : total;
    }
    return total;
}

size_t ls_live_bytes(const ls_live_buffer *buffer, int count)
{
    size_t most = 0;
    for (int i = 0; i < count; i++) {
        size_t live = 0; /* bytes in use when buffer i begins to be needed */
        for (int k = 0; k < count; k++)
            if (buffer[k].first <= buffer[i].first && buffer[i].first <= buffer[k].last)
                live = add(live, rounded(buffer[k].bytes));
        most = live > most ? live : most;
    }
    return most;
}

/* ---- the tensors of a plan ------------------------------------------------------------------- */

const ls_tensor *ls_plan_tensor(const ls_plan *plan, int k)
{
    const ls_op *gather = plan->gather[plan->gather[LS_TRAIN] ? LS_TRAIN : LS_TEST];
    return k == LS_INPUT ? &gather->y : &plan->node[k].op->y;
}

int ls_plan_output(const ls_plan *plan)
{
    const ls_network *model = plan->model;
    if (plan->nodes > 0 && plan->node[plan->nodes - 1].form.first < 0)
        return plan->nodes - 1; /* the export: form.first, its first layer, is −1 */
    int layer = ls_fuse_producer(model, model->layers - 1);
    return layer == LS_INPUT ? LS_INPUT : plan->node_of[layer] - 1;
}

/* ---- the schedule: gather, forward of the nodes, loss, backward in reverse ------------------- *
 * A *time* is a number of this sequence, from 0, the gather. (The parameters called `step` below
 * are times too, not steps of the training.) */

static int forward_at(int k)
{
    return k + 1;
}

static int loss_at(const ls_plan *plan)
{
    return plan->nodes + 1;
}

static int backward_at(const ls_plan *plan, int k)
{
    return 2 * plan->nodes + 1 - k;
}

/* Returns the time in the schedule at which node `k` reads its inputs and its output for the last
 * time. */
static int last_read_at(const ls_plan *plan, int k)
{
    return plan->node[k].backward ? backward_at(plan, k) : forward_at(k);
}

/* ---- buffers -------------------------------------------------------------------------------- */

/* Indices in the list of buffers. First come the buffers of the whole plan, which the first enum
 * names; NODES is their number. From index NODES on there are PER_NODE buffers for each node, which
 * the second enum names. */
enum { LABELS, ROW_WEIGHTS, X, SCORES, LOSS_SAVED, NODES = LOSS_SAVED + LS_SUBSETS };
enum { Y, SAVED, DY, PART, PER_NODE = PART + LS_INPUTS };

static ls_live_buffer *buffer_of(ls_live_buffer *list, int node, int which)
{
    return &list[NODES + PER_NODE * node + which];
}

static void extend_until(ls_live_buffer *b, int step)
{
    b->last = step > b->last ? step : b->last;
}

/* Returns the node whose buffer contains the output of node `k`: `k` itself, unless the output
 * replaces the node's input, and has no bytes of its own. LS_INPUT: the gather's buffer contains
 * it. */
static int owner_of(const ls_plan *plan, int k)
{
    while (k != LS_INPUT && plan->node[k].op->y.bytes == 0)
        k = plan->node[k].input[0];
    return k;
}

/* Returns the buffer that contains the output of node `k`; LS_INPUT: of the gather. */
static ls_live_buffer *output_of(const ls_plan *plan, ls_live_buffer *list, int k)
{
    const int owner = owner_of(plan, k);
    return owner == LS_INPUT ? &list[X] : buffer_of(list, owner, Y);
}

/* Lists the outputs of the gather and of the nodes. The forward pass of a node writes the node's
 * output y. The backward pass of the node, and of the nodes that read y, can read y. */
static void list_outputs(const ls_plan *plan, ls_live_buffer *list)
{
    const int output = ls_plan_output(plan);
    list[X] = (ls_live_buffer){.bytes = ls_plan_tensor(plan, LS_INPUT)->bytes};
    for (int k = 0; k < plan->nodes; k++) {
        const ls_node *node = &plan->node[k];
        const int born = forward_at(k);
        const int dies = last_read_at(plan, k);
        if (node->op->y.bytes == 0)
            extend_until(output_of(plan, list, k), dies);
        else
            *buffer_of(list, k, Y) = (ls_live_buffer){node->op->y.bytes, born, dies, 0, 0, 0};
        *buffer_of(list, k, SAVED) = (ls_live_buffer){node->op->saved_bytes, born, dies, 0, 0, 0};
        for (int i = 0; i < node->inputs; i++)
            extend_until(output_of(plan, list, node->input[i]), dies);
    }
    extend_until(output_of(plan, list, output), loss_at(plan));
}

static void begin_gradient(const ls_plan *plan, ls_live_buffer *list, int k, int step)
{
    *buffer_of(list, k, DY) =
        (ls_live_buffer){plan->node[k].op->y.bytes, step, backward_at(plan, k), 0, 0, 0};
}

/* Lists the gradients. The first reader of a tensor in the backward pass writes its dx directly to
 * the tensor's gradient (DY of its writer). Each later reader needs a buffer for its dx (PART). An
 * op writes the dx of all its inputs or of none; an unused dx goes to a PART that nothing reads. */
static void list_gradients(ls_plan *plan, ls_live_buffer *list)
{
    if (!plan->training)
        return;
    begin_gradient(plan, list, ls_plan_output(plan), loss_at(plan));
    for (int k = plan->nodes - 1; k >= 0; k--) {
        ls_node *node = &plan->node[k];
        const int step = backward_at(plan, k);
        for (int i = 0; i < node->inputs && node->needs_dx; i++) {
            const int from = node->input[i];
            const bool wanted = from != LS_INPUT && plan->node[from].backward;
            node->dx[i].add = wanted && buffer_of(list, from, DY)->bytes > 0;
            if (wanted && !node->dx[i].add)
                begin_gradient(plan, list, from, step);
            else
                *buffer_of(list, k, PART + i) =
                    (ls_live_buffer){ls_plan_tensor(plan, from)->bytes, step, step, 0, 0, 0};
        }
    }
}

/* Lists the buffers at the two ends of the forward pass: the labels, which the gather writes, and
 * the scores and saved values of the loss ops. list_outputs lists the gather's other output, X. */
static void list_ends(const ls_plan *plan, ls_live_buffer *list)
{
    const int loss = loss_at(plan);
    list[LABELS] = (ls_live_buffer){
        (size_t)plan->rows * (size_t)plan->targets * sizeof(int32_t), 0, loss, 0, 0, 0};
    list[ROW_WEIGHTS] = (ls_live_buffer){
        plan->row_weights ? (size_t)plan->rows * sizeof(float) : 0, 0, loss, 0, 0, 0};
    list[SCORES] = (ls_live_buffer){plan->scores ? plan->scores->y.bytes : 0, loss, loss, 0, 0, 0};
    for (int s = 0; s < LS_SUBSETS; s++)
        list[LOSS_SAVED + s] =
            (ls_live_buffer){plan->loss[s] ? plan->loss[s]->saved_bytes : 0, loss, loss, 0, 0, 0};
}

/* ---- offsets --------------------------------------------------------------------------------- */

static void store_offsets(ls_plan *plan, ls_live_buffer *list)
{
    plan->x_at = list[X].at;
    plan->labels_at = list[LABELS].at;
    plan->weights_at = list[ROW_WEIGHTS].at;
    plan->scores_at = list[SCORES].at;
    for (int s = 0; s < LS_SUBSETS; s++)
        plan->loss_saved_at[s] = list[LOSS_SAVED + s].at;
    for (int k = 0; k < plan->nodes; k++) {
        ls_node *node = &plan->node[k];
        node->y_at = output_of(plan, list, k)->at;
        node->dy_at = buffer_of(list, k, DY)->at;
        node->saved_at = buffer_of(list, k, SAVED)->at;
    }
    for (int k = 0; k < plan->nodes; k++) {
        ls_node *node = &plan->node[k];
        for (int i = 0; i < node->inputs; i++) {
            const ls_live_buffer *part = buffer_of(list, k, PART + i);
            int from = node->input[i];
            node->dx[i].at = part->bytes || from == LS_INPUT ? part->at : plan->node[from].dy_at;
        }
    }
}

static void grow_scratch(ls_plan *plan, const ls_op *op)
{
    if (op && op->scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = op->scratch_bytes;
}

int ls_plan_assign_offsets(ls_plan *plan, bool share, ls_error *err)
{
    const int count = NODES + PER_NODE * plan->nodes;
    ls_live_buffer *list = ls_alloc_array(plan->host, (size_t)count, sizeof *list);
    if (!list)
        return ls_fail(err, LS_ENOMEM, "replica: no memory for a plan");
    list_ends(plan, list);
    list_outputs(plan, list);
    list_gradients(plan, list);
    plan->unshared_bytes = ls_place_buffers(list, count, false);
    plan->live_bytes = ls_live_bytes(list, count);
    plan->activation_bytes = ls_place_buffers(list, count, share);
    store_offsets(plan, list);
    ls_free(plan->host, list);
    for (int k = 0; k < plan->nodes; k++) {
        grow_scratch(plan, plan->node[k].op);
        plan->kept_bytes += plan->node[k].op->kept_bytes;
    }
    grow_scratch(plan, plan->scores);
    for (int s = 0; s < LS_SUBSETS; s++) {
        grow_scratch(plan, plan->loss[s]);
        grow_scratch(plan, plan->gather[s]);
    }
    return LS_OK;
}

/* ---- binding --------------------------------------------------------------------------------- */

static int bind(ls_op *op, ls_op_buffers *b, ls_error *err)
{
    return op->impl->bind(op, b, err);
}

static void *at(const ls_plan_memory *m, size_t offset, size_t bytes)
{
    return bytes ? m->activations + offset : NULL;
}

static char *output_at(const ls_plan *plan, const ls_plan_memory *m, int k)
{
    return m->activations + (k == LS_INPUT ? plan->x_at : plan->node[k].y_at);
}

/* Returns the weights of the batch's rows; NULL: the rows of the subset have no weights. */
static float *row_weights_at(const ls_plan *plan, const ls_plan_memory *m, int subset)
{
    return plan->row_weights && m->row_weights[subset]
               ? (float *)(void *)(m->activations + plan->weights_at)
               : NULL;
}

static int bind_gathers(ls_plan *plan, const ls_plan_memory *m, ls_error *err)
{
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op_buffers b = {
            .args = m->args,
            .x = m->images[s],
            .y = output_at(plan, m, LS_INPUT),
            .labels = m->labels[s],
            .labels_out = (int32_t *)(void *)(m->activations + plan->labels_at),
            .weights = m->row_weights[s],
            .weights_out = row_weights_at(plan, m, s),
            .scratch = m->scratch,
        };
        int status = plan->gather[s] ? bind(plan->gather[s], &b, err) : LS_OK;
        if (status != LS_OK)
            return status;
    }
    return LS_OK;
}

static void bind_tensors(const ls_node *node, const ls_plan *plan, const ls_plan_memory *m,
                         ls_op_buffers *b)
{
    b->x = output_at(plan, m, node->input[0]);
    if (node->inputs == 2)
        b->x2 = output_at(plan, m, node->input[1]);
    if (node->backward)
        b->dy = m->activations + node->dy_at;
    if (node->needs_dx)
        b->dx = m->activations + node->dx[0].at;
    if (node->needs_dx && node->inputs == 2)
        b->dx2 = m->activations + node->dx[1].at;
}

/* Sets the buffers with values of parameters. `shadow` and `shadow_grad`: second copies of the
 * weights and of the gradient in the number type of the device's matrix products. `contribution`:
 * what this shard contributes to the running statistics of batch norm. */
static void bind_weights(const ls_node *node, const ls_plan *plan, const ls_plan_memory *m,
                         ls_op_buffers *b)
{
    for (int i = 0; i < node->op->params; i++) {
        size_t offset = m->param_at[node->form.first * LS_OP_PARAMS + i];
        b->param[i] = m->weights + offset;
        b->grad[i] = m->gradient ? m->gradient + offset : NULL;
        b->shadow[i] = m->shadow ? m->shadow + offset * m->shadow_bytes : NULL;
        b->shadow_grad[i] = m->shadow_grad ? m->shadow_grad + offset * m->shadow_bytes : NULL;
    }
    if (node->form.first >= 0 && plan->model->layer[node->form.first].stats > 0) {
        size_t offset = m->stat_at[node->form.first];
        b->running = m->weights + offset;
        b->contribution = m->gradient ? m->gradient + offset : NULL;
    }
}

static void bind_sums(ls_node *node, const ls_plan *plan, const ls_plan_memory *m)
{
    for (int i = 0; i < node->inputs; i++) {
        ls_node_dx *dx = &node->dx[i];
        if (!dx->add)
            continue;
        dx->sum = (float *)(void *)(m->activations + plan->node[node->input[i]].dy_at);
        dx->part = (const float *)(const void *)(m->activations + dx->at);
        dx->count = ls_plan_tensor(plan, node->input[i])->bytes / sizeof(float);
    }
}

static int bind_node(ls_plan *plan, const ls_plan_memory *m, ls_node *node, int k, ls_error *err)
{
    ls_op_buffers b = {
        .args = m->args,
        .y = output_at(plan, m, k),
        .saved = at(m, node->saved_at, node->op->saved_bytes),
        .scratch = m->scratch,
    };
    bind_tensors(node, plan, m, &b);
    bind_weights(node, plan, m, &b);
    bind_sums(node, plan, m);
    return bind(node->op, &b, err);
}

static int bind_losses(ls_plan *plan, const ls_plan_memory *m, ls_error *err)
{
    const int output = ls_plan_output(plan);
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_op *op = plan->loss[s];
        if (!op)
            continue;
        ls_op_buffers b = {
            .args = m->args,
            .x = output_at(plan, m, output),
            .labels = (const int32_t *)(const void *)(m->activations + plan->labels_at),
            .weights = row_weights_at(plan, m, s),
            .stats = m->stats[s],
            .class_weight = m->class_weight,
            .saved = at(m, plan->loss_saved_at[s], op->saved_bytes),
            .scratch = m->scratch,
        };
        if (s == LS_TRAIN)
            b.dx = m->activations + plan->node[output].dy_at;
        int status = bind(op, &b, err);
        if (status != LS_OK)
            return status;
    }
    return LS_OK;
}

static int bind_scores(ls_plan *plan, const ls_plan_memory *m, ls_error *err)
{
    ls_op_buffers b = {
        .args = m->args,
        .x = output_at(plan, m, ls_plan_output(plan)),
        .y = m->activations + plan->scores_at,
        .scratch = m->scratch,
    };
    return plan->scores ? bind(plan->scores, &b, err) : LS_OK;
}

int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err)
{
    int status = bind_gathers(plan, memory, err);
    plan->heartbeat = memory->heartbeat;
    plan->gradient = memory->gradient;
    for (int k = 0; k < plan->nodes && status == LS_OK; k++)
        status = bind_node(plan, memory, &plan->node[k], k, err);
    if (status == LS_OK)
        status = bind_scores(plan, memory, err);
    return status == LS_OK ? bind_losses(plan, memory, err) : status;
}
