/* The arenas of a replica: what lies where in them, the ops that update them, weights in and out. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

enum { GRAIN = 16 /* floats: a parameter starts at a multiple of it */ };

static size_t rounded(size_t floats)
{
    return (floats + GRAIN - 1) / GRAIN * GRAIN;
}

/* ---- places --------------------------------------------------------------------------------- */

/* Reverse layer order: gradients become final in it. */
static void place_params(ls_replica *r)
{
    const ls_plan *first = r->plan[0];
    for (int k = first->nodes - 1; k >= 0; k--) {
        const ls_op *op = first->node[k].op;
        for (int i = 0; i < op->params; i++) {
            r->param_at[first->node[k].form.first * LS_OP_PARAMS + i] = r->floats;
            r->param_begin[r->param_begins++] = r->floats;
            r->floats += rounded(op->param_floats[i]);
        }
    }
}

static size_t stat_floats(const ls_layer *layer)
{
    return layer->stats > 0 ? layer->stat[0].count + layer->stat[1].count : 0;
}

static void place_stats(ls_replica *r)
{
    for (int i = 0; i < r->model->layers; i++) {
        r->stat_at[i] = r->floats;
        r->floats += rounded(stat_floats(&r->model->layer[i]));
    }
}

int ls_replica_lay_out(ls_replica *r, ls_error *err)
{
    const size_t layers = (size_t)r->model->layers;
    r->param_at = ls_alloc_array(r->host, layers * LS_OP_PARAMS, sizeof *r->param_at);
    r->stat_at = ls_alloc_array(r->host, layers, sizeof *r->stat_at);
    r->param_begin = ls_alloc_array(r->host, (size_t)r->model->params + 2, sizeof *r->param_begin);
    if (!r->param_at || !r->stat_at || !r->param_begin)
        return ls_replica_no_memory(err);
    place_params(r);
    r->tail_at = r->floats;
    r->param_begin[r->param_begins++] = r->floats;
    r->floats += LS_TAIL;
    place_stats(r);
    r->param_begin[r->param_begins] = r->floats;
    return LS_OK;
}

/* Which gradients come in their shadows: a bit for each GRAIN of an arena. */
static int mark_shadows(ls_replica *r, ls_error *err)
{
    const size_t words = r->tail_at / GRAIN / 32 + 1;
    void *memory = NULL;
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
    int status = ls_replica_alloc(r, &memory, words * sizeof *mark, &r->memory.arenas, err);
    r->in_shadow = memory;
    if (status == LS_OK)
        status = r->device->ops->upload(r->device, NULL, memory, mark, words * sizeof *mark, err);
    ls_free(r->host, mark);
    return status;
}

static int alloc_shadows(ls_replica *r, ls_error *err)
{
    const size_t bytes = r->tail_at * (size_t)r->info.shadow_bytes;
    void *memory = NULL;
    if (bytes == 0)
        return LS_OK;
    int status = ls_replica_alloc(r, &memory, bytes, &r->memory.arenas, err);
    r->shadow = memory;
    if (status != LS_OK || !r->optimizer)
        return status;
    status = ls_replica_alloc(r, &memory, bytes, &r->memory.arenas, err);
    r->shadow_grad = memory;
    return status == LS_OK ? mark_shadows(r, err) : status;
}

int ls_replica_alloc_arenas(ls_replica *r, ls_error *err)
{
    int arenas = r->optimizer ? SLOT + r->optimizer->slots : 1;
    int status = LS_OK;
    for (int a = 0; a < arenas && status == LS_OK; a++) {
        void *memory = NULL;
        status = ls_replica_alloc(r, &memory, r->floats * sizeof(float), &r->memory.arenas, err);
        r->arena[a] = memory;
    }
    return status == LS_OK ? alloc_shadows(r, err) : status;
}

/* ---- updates -------------------------------------------------------------------------------- */

/* Statistics of several layers that lie one behind another and move alike: one op does them all. */
typedef struct stretch {
    int next; /* the layer to go on with */
    size_t at, end;
    float momentum;
} stretch;

/* The next one; 0: there is none. */
static int next_stretch(stretch *s, const ls_replica *r)
{
    const ls_layer *layer = r->model->layer;
    int i = s->next;
    while (i < r->model->layers && layer[i].stats == 0)
        i++;
    if (i == r->model->layers)
        return 0;
    s->at = r->stat_at[i];
    s->momentum = layer[i].momentum;
    for (; i < r->model->layers && (layer[i].stats == 0 || layer[i].momentum == s->momentum); i++)
        if (layer[i].stats > 0)
            s->end = r->stat_at[i] + stat_floats(&layer[i]);
    s->next = i;
    return 1;
}

static int make_running(ls_op **out, ls_replica *r, const stretch *s, ls_error *err)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_RUNNING};
    desc.u.running.momentum = s->momentum;
    desc.u.running.count = s->end - s->at;
    return r->device->ops->op_create(out, r->device, &desc, err);
}

int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    ls_updates *u = &r->updates[sum];
    if (!r->optimizer)
        return LS_OK;
    ls_op_desc desc = r->optimizer->op;
    r->optimizer->type->set_count(&desc, r->tail_at);
    int status = r->device->ops->op_create(&u->update, r->device, &desc, err);
    if (status != LS_OK || r->model->stats == 0)
        return status;
    u->running = ls_alloc_array(r->host, (size_t)r->model->stats / LS_STATS, sizeof *u->running);
    if (!u->running)
        return ls_replica_no_memory(err);
    int n = 0;
    for (stretch s = {0}; status == LS_OK && next_stretch(&s, r);)
        status = make_running(&u->running[n++], r, &s, err);
    r->runnings = n > r->runnings ? n : r->runnings;
    return status;
}

/* What a step whose sum is `sum` reads. */
static ls_op_buffers step_buffers(const ls_replica *r, ls_sum sum, size_t at)
{
    float *from = r->arena[sum == OF_TOTAL ? TOTAL : GRADIENT];
    ls_op_buffers b = {.args = &r->args, .scratch = r->scratch};
    b.param[0] = r->arena[WEIGHTS] + at;
    b.grad[0] = from + at;
    b.guard = from + r->tail_at + LS_TAIL_LOSS;
    b.held = r->held;
    return b;
}

int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    const ls_updates *u = &r->updates[sum];
    if (!u->update)
        return LS_OK;
    ls_op_buffers b = step_buffers(r, sum, 0);
    for (int i = 0; i < r->optimizer->slots; i++)
        b.slot[i] = r->arena[SLOT + i];
    b.shadow[0] = r->shadow;
    b.shadow_grad[0] = r->shadow_grad;
    b.in_shadow = sum == OF_GRADIENT ? r->in_shadow : NULL;
    int status = u->update->impl->bind(u->update, &b, err);
    int n = 0;
    for (stretch s = {0}; status == LS_OK && next_stretch(&s, r); n++) {
        b = step_buffers(r, sum, s.at);
        status = u->running[n]->impl->bind(u->running[n], &b, err);
    }
    return status;
}

void ls_replica_destroy_updates(ls_replica *r)
{
    for (int s = 0; s < SUMS; s++) {
        const ls_updates *u = &r->updates[s];
        for (int i = 0; u->running && i < r->runnings; i++)
            if (u->running[i])
                u->running[i]->impl->destroy(u->running[i]);
        if (u->update)
            u->update->impl->destroy(u->update);
        ls_free(r->host, u->running);
    }
}

/* ---- for callers ---------------------------------------------------------------------------- */

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
    return slot >= 0 && slot < LS_OP_SLOTS ? replica->arena[SLOT + slot] : NULL;
}

const ls_buckets *ls_replica_buckets(const ls_replica *replica)
{
    return &replica->buckets;
}

const size_t *ls_replica_segments(const ls_replica *replica, int *count)
{
    *count = replica->param_begins;
    return replica->param_begin;
}

/* ---- weights in and out --------------------------------------------------------------------- */

/* A layer's statistics lie together in the canonical array as they do in an arena. */
static int import_stats(ls_replica *r, float *arena, const float *canonical, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < r->model->layers && status == LS_OK; i++) {
        const ls_layer *layer = &r->model->layer[i];
        if (layer->stats > 0)
            status = r->device->ops->upload(r->device, NULL, arena + r->stat_at[i],
                                            canonical + layer->stat[0].offset,
                                            stat_floats(layer) * sizeof(float), err);
    }
    return status == LS_OK && r->model->stats > 0 ? ls_replica_sync(r, err) : status;
}

static int export_stats(ls_replica *r, float *canonical, const float *arena, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < r->model->layers && status == LS_OK; i++) {
        const ls_layer *layer = &r->model->layer[i];
        if (layer->stats > 0)
            status = r->device->ops->download(r->device, NULL, canonical + layer->stat[0].offset,
                                              arena + r->stat_at[i],
                                              stat_floats(layer) * sizeof(float), err);
    }
    return status == LS_OK && r->model->stats > 0 ? ls_replica_sync(r, err) : status;
}

/* Behind the parameters: the statistics, and the shadows of weights. */
static int after_import(ls_replica *r, float *arena, const float *canonical, ls_error *err)
{
    int status = import_stats(r, arena, canonical, err);
    if (status != LS_OK || arena != r->arena[WEIGHTS] || !r->shadow)
        return status;
    return r->device->ops->shadow(r->device, NULL, r->shadow, arena, r->tail_at, err);
}

int ls_replica_import(ls_replica *replica, float *arena, const float *canonical, ls_error *err)
{
    const ls_plan *plan = replica->plan[0];
    for (int k = 0; k < plan->nodes; k++) {
        ls_op *op = plan->node[k].op;
        const int layer = plan->node[k].form.first;
        for (int i = 0; i < op->params; i++) {
            float *dst = arena + replica->param_at[layer * LS_OP_PARAMS + i];
            const float *src = canonical + replica->model->layer[layer].param[i].offset;
            int status = op->impl->import_param(op, i, dst, src, err);
            if (status != LS_OK)
                return status;
        }
    }
    return after_import(replica, arena, canonical, err);
}

int ls_replica_export(ls_replica *replica, float *canonical, const float *arena, ls_error *err)
{
    const ls_plan *plan = replica->plan[0];
    for (int k = 0; k < plan->nodes; k++) {
        ls_op *op = plan->node[k].op;
        const int layer = plan->node[k].form.first;
        for (int i = 0; i < op->params; i++) {
            const float *src = arena + replica->param_at[layer * LS_OP_PARAMS + i];
            float *dst = canonical + replica->model->layer[layer].param[i].offset;
            int status = op->impl->export_param(op, i, dst, src, err);
            if (status != LS_OK)
                return status;
        }
    }
    return export_stats(replica, canonical, arena, err);
}
