/* SPDX-License-Identifier: MIT */
/* The arenas of a replica: their layout, the ops that update them, and the import and export of
 * weights. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

#include <stdbool.h>

enum { GRAIN = 16 /* number of floats: each parameter starts at a multiple of it */ };

static size_t rounded(size_t floats)
{
    return (floats + GRAIN - 1) / GRAIN * GRAIN;
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Computes the offsets of the parameters in the arenas. The parameters are in reverse layer order,
 * because their gradients become complete in that order. */
static void place_params(ls_replica *r)
{
    const ls_plan *first = r->plan[0];
    for (int k = first->nodes - 1; k >= 0; k--) {
        const ls_op *op = first->node[k].op;
        for (int i = 0; i < op->params; i++) {
            const int layer = first->node[k].form.first;
            r->param_at[layer * LS_OP_PARAMS + i] = r->floats;
            r->rate_of[r->param_begins] = r->model->layer[layer].param[i].rate;
            r->param_begin[r->param_begins++] = r->floats;
            r->floats += rounded(op->param_floats[i]);
        }
    }
}

static size_t stat_floats(const ls_layer *layer)
{
    return layer->stats > 0 ? layer->stat[0].count + layer->stat[1].count : 0;
}

int ls_replica_lay_out(ls_replica *r, ls_error *err)
{
    const size_t layers = (size_t)r->model->layers;
    r->param_at = ls_alloc_array(r->host, layers * LS_OP_PARAMS, sizeof *r->param_at);
    r->stat_at = ls_alloc_array(r->host, layers, sizeof *r->stat_at);
    r->param_begin = ls_alloc_array(r->host, (size_t)r->model->params + 2, sizeof *r->param_begin);
    r->rate_of = ls_alloc_array(r->host, (size_t)r->model->params + 1, sizeof *r->rate_of);
    if (!r->param_at || !r->stat_at || !r->param_begin || !r->rate_of)
        return ls_replica_no_memory(err);
    place_params(r);
    r->tail_at = r->floats;
    r->param_begin[r->param_begins++] = r->floats;
    r->floats += LS_TAIL;
    for (int i = 0; i < r->model->layers; i++) {
        r->stat_at[i] = r->floats;
        r->floats += rounded(stat_floats(&r->model->layer[i]));
    }
    r->param_begin[r->param_begins] = r->floats;
    return LS_OK;
}

/* Creates a bit mask that tells the update which gradients it must read from their shadows: one bit
 * for every GRAIN floats of an arena. */
static int mark_shadows(ls_replica *r, ls_error *err)
{
    const size_t words = r->tail_at / GRAIN / 32 + 1;
    int status = LS_OK;
    uint32_t *mark = ls_alloc_array(r->host, words, sizeof *mark);
    if (!mark)
        return ls_replica_no_memory(err);
    for (int k = 0; k < r->plan[0]->nodes; k++) {
        const ls_node *node = &r->plan[0]->node[k];
        for (int i = 0; i < node->op->params; i++) {
            const size_t begin = r->param_at[node->form.first * LS_OP_PARAMS + i] / GRAIN;
            const size_t grains = rounded(node->op->param_floats[i]) / GRAIN;
            for (size_t g = begin; node->op->shadow_grads >> i & 1 && g < begin + grains; g++)
                mark[g / 32] |= 1u << g % 32;
        }
    }
    r->in_shadow = ls_replica_alloc(r, words * sizeof *mark, &r->memory.arenas, &status, err);
    if (status == LS_OK)
        status =
            r->device->ops->upload(r->device, NULL, r->in_shadow, mark, words * sizeof *mark, err);
    ls_free(r->host, mark);
    return status;
}

/* Allocates the shadow of the weights. If the replica trains, also allocates the shadow of the
 * gradient and the bit mask. Does nothing if the device uses no shadows. */
static int alloc_shadows(ls_replica *r, ls_error *err)
{
    const size_t bytes = r->tail_at * (size_t)r->info.shadow_bytes;
    int status = LS_OK;
    if (bytes == 0)
        return LS_OK;
    r->shadow = ls_replica_alloc(r, bytes, &r->memory.arenas, &status, err);
    if (!r->optimizer)
        return status;
    r->shadow_grad = ls_replica_alloc(r, bytes, &r->memory.arenas, &status, err);
    return status == LS_OK ? mark_shadows(r, err) : status;
}

int ls_replica_alloc_arenas(ls_replica *r, bool total_later, ls_error *err)
{
    int arenas = r->optimizer ? SLOT + ls_optimizer_states(r->optimizer) : 1;
    int status = LS_OK;
    for (int a = 0; a < arenas; a++)
        if (a != TOTAL || !total_later)
            r->arena[a] =
                ls_replica_alloc(r, r->floats * sizeof(float), &r->memory.arenas, &status, err);
    r->own_gradient = r->arena[GRADIENT];
    r->own_total = r->arena[TOTAL];
    return status == LS_OK ? alloc_shadows(r, err) : status;
}

int ls_replica_make_tails(ls_replica *r, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const size_t bytes = (size_t)r->plans * LS_TAIL * sizeof(float);
    int status = LS_OK;
    r->row_tails = ls_replica_alloc(r, bytes, &r->memory.arenas, &status, err);
    for (int i = 0; i < r->plans && status == LS_OK; i++) {
        const float rows = (float)r->plan[i]->rows;
        float *tail = r->row_tails + (size_t)i * LS_TAIL;
        status = ops->upload(r->device, NULL, tail + LS_TAIL_ROWS, &rows, sizeof rows, err);
        r->plan[i]->tail = tail;
    }
    return status;
}

/* ---- updates -------------------------------------------------------------------------------- */

bool ls_replica_next_params(ls_arena_range *s, const ls_replica *r)
{
    const int params = r->param_begins - 1;
    int i = s->next;
    while (i < params && r->rate_of[i] == 0)
        i++;
    if (i == params)
        return false;
    s->at = r->param_begin[i];
    s->rate = r->rate_of[i];
    while (i < params && r->rate_of[i] == s->rate)
        i++;
    s->end = r->param_begin[i];
    s->next = i;
    return true;
}

/* Returns whether the layer has running statistics that change in training. Running statistics do
 * not change if neither the layer nor a layer that it depends on has parameters that are
 * trained. */
static bool stats_change(const ls_replica *r, int layer)
{
    const ls_plan *plan = r->plan[0];
    return r->model->layer[layer].stats > 0 && plan->node[plan->node_of[layer] - 1].backward;
}

/* Finds the next range of adjacent running statistics that change in training and have the same
 * momentum. Returns false if there is no further range. */
static bool next_stats(ls_arena_range *s, const ls_replica *r)
{
    const ls_layer *layer = r->model->layer;
    int i = s->next;
    while (i < r->model->layers && !stats_change(r, i))
        i++;
    if (i == r->model->layers)
        return false;
    s->at = r->stat_at[i];
    s->momentum = layer[i].momentum;
    for (; i < r->model->layers &&
           (layer[i].stats == 0 || (stats_change(r, i) && layer[i].momentum == s->momentum));
         i++)
        if (layer[i].stats > 0)
            s->end = r->stat_at[i] + stat_floats(&layer[i]);
    s->next = i;
    return true;
}

/* Returns whether a range of floats of the weights' arena is read by no update: the range is that
 * of parameter number `i`, or of the running statistics of layer i − r->param_begins. */
static bool is_unread(const ls_replica *r, int i)
{
    const int params = r->param_begins - 1;
    if (i < params)
        return r->rate_of[i] == 0;
    const int layer = i - r->param_begins;
    return layer >= 0 && r->model->layer[layer].stats > 0 && !stats_change(r, layer);
}

static int add_update(ls_replica *r, ls_updates *u, const ls_op_desc *desc, size_t at,
                      unsigned flags, ls_error *err)
{
    ls_update *next = &u->list[u->count];
    int status = r->device->ops->op_create(&next->op, r->device, desc, err);
    if (status != LS_OK)
        return status;
    next->at = at;
    next->flags = flags;
    u->count++;
    if (next->op->scratch_bytes > r->update_scratch)
        r->update_scratch = next->op->scratch_bytes;
    return LS_OK;
}

/* The next three functions each create one op for every range of adjacent parameters or statistics
 * that an update treats in the same way. The ops of make_clips compute the factor by which the
 * gradient is shortened if its norm is too large. */
static int make_clips(ls_replica *r, ls_updates *u, ls_error *err)
{
    int status = LS_OK;
    for (ls_arena_range s = {0};
         status == LS_OK && r->optimizer->clip_norm > 0 && ls_replica_next_params(&s, r);) {
        ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_CLIP, .count = s.end - s.at};
        desc.u.clip.most = (float)r->optimizer->clip_norm;
        status = add_update(r, u, &desc, s.at, u->count > 0 ? LS_RUN_ACCUMULATE : 0, err);
    }
    return status;
}

/* Creates the ops of the optimizer, which change the parameters. */
static int make_steps(ls_replica *r, ls_updates *u, ls_error *err)
{
    int status = LS_OK;
    for (ls_arena_range s = {0}; status == LS_OK && ls_replica_next_params(&s, r);) {
        ls_op_desc desc = r->optimizer->op;
        desc.count = s.end - s.at;
        desc.rate = s.rate;
        status = add_update(r, u, &desc, s.at, 0, err);
    }
    return status;
}

/* Creates the ops that change the running statistics of batch norm. */
static int make_running(ls_replica *r, ls_updates *u, ls_error *err)
{
    int status = LS_OK;
    for (ls_arena_range s = {0}; status == LS_OK && next_stats(&s, r);) {
        ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_RUNNING, .count = s.end - s.at};
        desc.u.running.momentum = s.momentum;
        status = add_update(r, u, &desc, s.at, 0, err);
    }
    return status;
}

/* Creates the op that updates the moving average of the parameters. */
static int make_average(ls_replica *r, ls_updates *u, ls_error *err)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_RUNNING, .count = r->tail_at};
    desc.u.running = (ls_running){(float)(1 - r->optimizer->ema), .of_weights = 1};
    return r->optimizer->ema > 0 ? add_update(r, u, &desc, 0, 0, err) : LS_OK;
}

int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    ls_updates *u = &r->updates[sum];
    if (!r->optimizer)
        return LS_OK;
    const size_t most = 2 * (size_t)r->param_begins + (size_t)r->model->stats + 1;
    u->list = ls_alloc_array(r->host, most, sizeof *u->list);
    int status = u->list ? make_clips(r, u, err) : ls_replica_no_memory(err);
    if (status == LS_OK)
        status = make_steps(r, u, err);
    if (status == LS_OK)
        status = make_running(r, u, err);
    return status == LS_OK ? make_average(r, u, err) : status;
}

int ls_replica_make_unread(ls_replica *r, ls_error *err)
{
    const int ranges = r->param_begins + r->model->layers;
    int status = LS_OK;
    if (!r->optimizer || !(r->info.flags & LS_DEVICE_DIGESTS))
        return LS_OK;
    r->unread.list = ls_alloc_array(r->host, (size_t)ranges, sizeof *r->unread.list);
    if (!r->unread.list)
        return ls_replica_no_memory(err);
    for (int i = 0; i < ranges && status == LS_OK; i++) {
        if (!is_unread(r, i))
            continue;
        const int layer = i - r->param_begins;
        const size_t at = layer < 0 ? r->param_begin[i] : r->stat_at[layer];
        const ls_op_desc desc = {.size = sizeof desc,
                                 .kind = LS_OP_DIGEST,
                                 .count = layer < 0 ? r->param_begin[i + 1] - at
                                                    : stat_floats(&r->model->layer[layer])};
        status = add_update(r, &r->unread, &desc, at, 0, err);
        const ls_op_buffers b = {
            .args = &r->args, .param[0] = r->arena[WEIGHTS] + at, .digest_at[0] = at};
        if (status == LS_OK) {
            ls_op *op = r->unread.list[r->unread.count - 1].op;
            status = op->impl->bind(op, &b, err);
        }
    }
    return status;
}

size_t ls_replica_digest_at(const ls_replica *r, ls_arena arena, size_t at)
{
    return (size_t)(arena == WEIGHTS ? 0 : arena - SLOT + 1) * r->floats + at;
}

/* Returns the buffers of an update op that reads the arena `sum` and updates the range that begins
 * at float `at`. */
static ls_op_buffers step_buffers(const ls_replica *r, ls_sum sum, size_t at)
{
    const size_t shadow = at * (size_t)r->info.shadow_bytes;
    float *from = r->arena[sum == OF_TOTAL ? TOTAL : GRADIENT];
    ls_op_buffers b = {.args = &r->args, .scratch = r->scratch, .clip = r->clip};
    b.param[0] = r->arena[WEIGHTS] + at;
    b.grad[0] = from + at;
    b.guard = from + r->tail_at + LS_TAIL_LOSS;
    b.skip = r->skip;
    b.digest_at[0] = ls_replica_digest_at(r, WEIGHTS, at);
    for (int i = 0; i < r->optimizer->slots; i++) {
        b.slot[i] = r->arena[SLOT + i] + at;
        b.digest_at[1 + i] = ls_replica_digest_at(r, SLOT + i, at);
    }
    b.shadow[0] = r->shadow ? r->shadow + shadow : NULL;
    b.shadow_grad[0] = r->shadow_grad ? r->shadow_grad + shadow : NULL;
    b.in_shadow = sum == OF_GRADIENT && ls_replica_updates_read_shadows(r) ? r->in_shadow : NULL;
    return b;
}

void ls_replica_gradient_at(ls_replica *r, float *gradient)
{
    r->arena[GRADIENT] = gradient ? gradient : r->own_gradient;
}

void ls_replica_own_arenas(ls_replica *r)
{
    r->arena[GRADIENT] = r->own_gradient;
    r->arena[TOTAL] = r->own_total;
}

int ls_replica_renew_gradient(ls_replica *r, ls_error *err)
{
    int status = LS_OK;
    float *gradient =
        ls_replica_alloc(r, r->floats * sizeof(float), &r->memory.arenas, &status, err);
    if (status == LS_OK)
        r->arena[GRADIENT] = r->own_gradient = gradient;
    return status;
}

int ls_replica_total_at(ls_replica *r, float *total, ls_error *err)
{
    int status = LS_OK;
    r->arena[TOTAL] = total ? total : r->own_total;
    if (!r->arena[TOTAL])
        r->arena[TOTAL] = r->own_total =
            ls_replica_alloc(r, r->floats * sizeof(float), &r->memory.arenas, &status, err);
    return status == LS_OK ? ls_replica_bind_updates(r, OF_TOTAL, err) : status;
}

bool ls_replica_updates_read_shadows(const ls_replica *r)
{
    for (int i = 0; i < r->param_begins - 1; i++)
        if (r->rate_of[i] != r->rate_of[0] || r->rate_of[i] == 0)
            return false;
    return r->optimizer->clip_norm == 0;
}

int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    const ls_updates *u = &r->updates[sum];
    int status = LS_OK;
    for (int i = 0; i < u->count && status == LS_OK; i++) {
        ls_op_buffers b = step_buffers(r, sum, u->list[i].at);
        if (r->optimizer->ema > 0 && i == u->count - 1) {
            b.param[0] = r->arena[SLOT + r->optimizer->slots];
            b.digest_at[0] = ls_replica_digest_at(r, SLOT + r->optimizer->slots, 0);
            b.grad[0] = r->arena[WEIGHTS];
        }
        status = u->list[i].op->impl->bind(u->list[i].op, &b, err);
    }
    return status;
}

void ls_replica_destroy_piece_updates(ls_replica *r)
{
    for (int i = 0; i < r->piece_updates; i++)
        for (int k = 0; k < 2; k++)
            if (r->pieces[i].op[k])
                r->pieces[i].op[k]->impl->destroy(r->pieces[i].op[k]);
    ls_free(r->host, r->pieces);
    r->pieces = NULL;
    r->piece_updates = 0;
}

void ls_replica_destroy_updates(ls_replica *r)
{
    for (int s = 0; s < SUMS; s++) {
        const ls_updates *u = &r->updates[s];
        for (int i = 0; i < u->count; i++)
            u->list[i].op->impl->destroy(u->list[i].op);
        ls_free(r->host, u->list);
    }
    for (int i = 0; i < r->unread.count; i++)
        r->unread.list[i].op->impl->destroy(r->unread.list[i].op);
    ls_free(r->host, r->unread.list);
    ls_replica_destroy_piece_updates(r);
}

int ls_replica_use_average(ls_replica *r, bool on, ls_error *err)
{
    const int average = r->optimizer ? ls_optimizer_average(r->optimizer) : -1;
    const size_t bytes = r->tail_at * sizeof(float);
    const ls_device_ops *ops = r->device->ops;
    if (average < 0)
        return LS_OK;
    int status =
        on ? ops->copy(r->device, NULL, r->arena[TOTAL], r->arena[WEIGHTS], bytes, err) : LS_OK;
    const float *from = r->arena[on ? SLOT + average : TOTAL];
    if (status == LS_OK)
        status = ops->copy(r->device, NULL, r->arena[WEIGHTS], from, bytes, err);
    if (status == LS_OK && r->shadow)
        status = ops->shadow(r->device, NULL, r->shadow, r->arena[WEIGHTS], r->tail_at, err);
    return status == LS_OK ? ls_replica_sync(r, err) : status;
}

/* ---- accessors ------------------------------------------------------------------------------- */

size_t ls_replica_floats(const ls_replica *replica)
{
    return replica->floats;
}

size_t ls_replica_tail_offset(const ls_replica *replica)
{
    return replica->tail_at;
}

float *ls_replica_gradient_arena(ls_replica *replica)
{
    return replica->arena[GRADIENT];
}

float *ls_replica_total_arena(ls_replica *replica)
{
    return replica->arena[TOTAL];
}

float *ls_replica_weight_arena(ls_replica *replica)
{
    return replica->arena[WEIGHTS];
}

float *ls_replica_slot_arena(ls_replica *replica, int slot)
{
    return slot >= 0 && slot < LS_STATES ? replica->arena[SLOT + slot] : NULL;
}

const ls_buckets *ls_replica_buckets(const ls_replica *replica)
{
    return &replica->buckets;
}

const size_t *ls_replica_param_offsets(const ls_replica *replica, int *count)
{
    *count = replica->param_begins;
    return replica->param_begin;
}

/* ---- import and export of weights ------------------------------------------------------------ */

/* Copies parameters and running statistics: if `in` is true, from the canonical array to the arena;
 * if `in` is false, from the arena to the canonical array. The two statistics of a layer are
 * adjacent in the arena, and also in the canonical array. */
static int transfer_weights(ls_replica *r, float *arena, float *canonical, bool in, ls_error *err)
{
    const ls_plan *plan = r->plan[0];
    const ls_device_ops *ops = r->device->ops;
    int status = LS_OK;
    for (int k = 0; k < plan->nodes; k++) {
        ls_op *op = plan->node[k].op;
        const int layer = plan->node[k].form.first;
        for (int i = 0; i < op->params && status == LS_OK; i++) {
            float *device = arena + r->param_at[layer * LS_OP_PARAMS + i];
            float *host = canonical + r->model->layer[layer].param[i].offset;
            status = in ? op->impl->import_param(op, i, device, host, err)
                        : op->impl->export_param(op, i, host, device, err);
        }
    }
    for (int i = 0; i < r->model->layers && status == LS_OK; i++) {
        const ls_layer *layer = &r->model->layer[i];
        const size_t bytes = stat_floats(layer) * sizeof(float);
        float *device = arena + r->stat_at[i], *host = canonical + layer->stat[0].offset;
        if (layer->stats > 0)
            status = in ? ops->upload(r->device, NULL, device, host, bytes, err)
                        : ops->download(r->device, NULL, host, device, bytes, err);
    }
    return status == LS_OK && r->model->stats > 0 ? ls_replica_sync(r, err) : status;
}

int ls_replica_import(ls_replica *r, float *arena, const float *canonical, ls_error *err)
{
    int status = transfer_weights(r, arena, (float *)canonical, true, err);
    if (status != LS_OK || arena != r->arena[WEIGHTS] || !r->shadow)
        return status;
    return r->device->ops->shadow(r->device, NULL, r->shadow, arena, r->tail_at, err);
}

int ls_replica_export(ls_replica *r, float *canonical, const float *arena, ls_error *err)
{
    return transfer_weights(r, (float *)arena, canonical, false, err);
}
