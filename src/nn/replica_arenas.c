/* The arenas of a replica: what lies where in them, and the ops that step over them. */
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
            r->segment[r->segments++] = r->floats;
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
    r->segment = ls_alloc_array(r->host, (size_t)r->model->params + 2, sizeof *r->segment);
    if (!r->param_at || !r->stat_at || !r->segment)
        return ls_replica_no_memory(err);
    place_params(r);
    r->tail_at = r->floats;
    r->segment[r->segments++] = r->floats;
    r->floats += LS_TAIL;
    place_stats(r);
    r->segment[r->segments] = r->floats;
    return LS_OK;
}

int ls_replica_alloc_arenas(ls_replica *r, ls_error *err)
{
    int arenas = r->optimizer ? SLOT + r->optimizer->slots : 1;
    int rc = LS_OK;
    for (int a = 0; a < arenas && rc == LS_OK; a++) {
        void *memory = NULL;
        rc = ls_replica_alloc(r, &memory, r->floats * sizeof(float), &r->memory.arenas, err);
        r->arena[a] = memory;
    }
    return rc;
}

/* ---- updates -------------------------------------------------------------------------------- */

static int make_running(ls_op **out, ls_replica *r, const ls_layer *layer, ls_error *err)
{
    ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_RUNNING};
    desc.u.running.momentum = layer->momentum;
    desc.u.running.count = stat_floats(layer);
    return r->device->ops->op_create(out, r->device, &desc, err);
}

int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    ls_updates *u = &r->updates[sum];
    if (!r->optimizer)
        return LS_OK;
    ls_op_desc desc = r->optimizer->op;
    r->optimizer->type->set_count(&desc, r->tail_at);
    int rc = r->device->ops->op_create(&u->update, r->device, &desc, err);
    if (rc != LS_OK || r->model->stats == 0)
        return rc;
    r->runnings = r->model->stats / LS_STATS;
    u->running = ls_alloc_array(r->host, (size_t)r->runnings, sizeof *u->running);
    if (!u->running)
        return ls_replica_no_memory(err);
    int n = 0;
    for (int i = 0; i < r->model->layers && rc == LS_OK; i++)
        if (r->model->layer[i].stats > 0)
            rc = make_running(&u->running[n++], r, &r->model->layer[i], err);
    return rc;
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
    int rc = u->update->impl->bind(u->update, &b, err);
    int n = 0;
    for (int i = 0; i < r->model->layers && rc == LS_OK; i++)
        if (r->model->layer[i].stats > 0) {
            b = step_buffers(r, sum, r->stat_at[i]);
            rc = u->running[n]->impl->bind(u->running[n], &b, err);
            n++;
        }
    return rc;
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
