/* What a replica does in every step, and how weights get in and out. Nothing here allocates. */
#include "nn/replica_impl.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

static double seconds_since(uint64_t start)
{
    return (double)(ls_now_ns() - start) * 1e-9;
}

/* ---- accessors ------------------------------------------------------------------------------ */

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
    *count = replica->segments;
    return replica->segment;
}

void ls_replica_memory_used(const ls_replica *replica, ls_replica_memory *out)
{
    *out = replica->memory;
}

const char *ls_replica_plan_line(const ls_replica *replica, int line)
{
    return line >= 0 && line < replica->lines ? replica->line[line] : NULL;
}

ls_phase ls_replica_phase(int place)
{
    return ls_plan_phase(place);
}

/* All plans have the same nodes. */
int ls_replica_place(char *out, size_t size, const ls_replica *replica, int place)
{
    return ls_plan_place_text(out, size, replica->plan[0], place);
}

/* ---- weights in and out --------------------------------------------------------------------- */

/* A layer's statistics lie together in the canonical array as they do in an arena. */
static size_t stat_bytes(const ls_layer *layer)
{
    return (layer->stat[0].count + layer->stat[1].count) * sizeof(float);
}

static int import_stats(ls_replica *r, float *arena, const float *canonical, ls_error *err)
{
    int rc = LS_OK;
    for (int i = 0; i < r->model->layers && rc == LS_OK; i++) {
        const ls_layer *layer = &r->model->layer[i];
        if (layer->stats > 0)
            rc = r->device->ops->upload(r->device, NULL, arena + r->stat_at[i],
                                        canonical + layer->stat[0].offset, stat_bytes(layer), err);
    }
    return rc == LS_OK && r->model->stats > 0 ? ls_replica_sync(r, err) : rc;
}

static int export_stats(ls_replica *r, float *canonical, const float *arena, ls_error *err)
{
    int rc = LS_OK;
    for (int i = 0; i < r->model->layers && rc == LS_OK; i++) {
        const ls_layer *layer = &r->model->layer[i];
        if (layer->stats > 0)
            rc = r->device->ops->download(r->device, NULL, canonical + layer->stat[0].offset,
                                          arena + r->stat_at[i], stat_bytes(layer), err);
    }
    return rc == LS_OK && r->model->stats > 0 ? ls_replica_sync(r, err) : rc;
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
            int rc = op->impl->import_param(op, i, dst, src, err);
            if (rc != LS_OK)
                return rc;
        }
    }
    return import_stats(replica, arena, canonical, err);
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
            int rc = op->impl->export_param(op, i, dst, src, err);
            if (rc != LS_OK)
                return rc;
        }
    }
    return export_stats(replica, canonical, arena, err);
}

/* ---- rows ----------------------------------------------------------------------------------- */

ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows)
{
    for (int i = 0; i < r->plans; i++)
        if ((uint32_t)r->plan[i]->rows == rows)
            return r->plan[i];
    return NULL;
}

/* Rows of the block that begins after `done` of n rows. */
uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done)
{
    uint32_t block = (uint32_t)r->info.block_rows;
    return block > 0 && n - done > block ? block : n - done;
}

static int has_plans(const ls_replica *r, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += ls_replica_block_rows(r, n, done))
        if (!ls_replica_plan_for(r, ls_replica_block_rows(r, n, done)))
            return 0;
    return 1;
}

uint32_t ls_replica_most_calls(const ls_replica *r)
{
    return r->optimizer && r->device->ops->record_next ? LS_UNROLLED : 1;
}

int ls_replica_stage_calls(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                           uint32_t count, ls_error *err)
{
    const char *name = subset == LS_TRAIN ? "training" : "test";
    const size_t all = (size_t)n * count;
    if (!r->data[subset].images)
        return ls_fail(err, LS_EINVAL, "replica: it was made without %s data", name);
    if (n > r->most_rows || !has_plans(r, n))
        return ls_fail(err, LS_EINVAL, "replica: it was not made for shards of %u rows",
                       (unsigned)n);
    if (count > ls_replica_most_calls(r))
        return ls_fail(err, LS_EINVAL, "replica: it was not made for %u steps at once",
                       (unsigned)count);
    for (size_t i = 0; i < all; i++)
        if (rows[i] >= r->data[subset].rows)
            return ls_fail(err, LS_EINVAL, "replica: row %u of %u rows of %s data does not exist",
                           (unsigned)rows[i], (unsigned)r->data[subset].rows, name);
    memcpy(r->staged_rows, rows, all * sizeof *rows);
    if (!r->device_rows)
        return LS_OK;
    return r->device->ops->upload(r->device, NULL, r->device_rows, r->staged_rows,
                                  all * sizeof *rows, err);
}

int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          ls_error *err)
{
    return ls_replica_stage_calls(r, subset, rows, n, 1, err);
}

const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done)
{
    return (r->device_rows ? r->device_rows : r->staged_rows) + done;
}

/* ---- gradient ------------------------------------------------------------------------------- */

/* An empty shard's leaf of the reduction tree. In pieces, so that no second arena is needed. */
static int clear_gradient(ls_replica *r, ls_error *err)
{
    static const float zeros[4096];
    const size_t most = sizeof zeros / sizeof *zeros;
    int rc = LS_OK;
    for (size_t done = 0; done < r->floats && rc == LS_OK;) {
        size_t count = r->floats - done < most ? r->floats - done : most;
        rc = r->device->ops->upload(r->device, NULL, r->arena[GRADIENT] + done, zeros,
                                    count * sizeof *zeros, err);
        done += count;
    }
    for (int p = 0; p < r->pieces && rc == LS_OK; p++)
        rc = ls_replica_tell(r, p, err);
    return rc;
}

/* The tail but for what the loss op has put there. */
static int write_tail(ls_replica *r, uint32_t n, ls_error *err)
{
    float *tail = r->staged_tail;
    memset(tail, 0, sizeof r->staged_tail);
    tail[LS_TAIL_ROWS] = (float)n;
    return r->device->ops->upload(r->device, NULL, r->arena[GRADIENT] + r->tail_at + LS_TAIL_ROWS,
                                  tail + LS_TAIL_ROWS, (LS_TAIL - LS_TAIL_ROWS) * sizeof *tail,
                                  err);
}

/* One block of a shard; all but the first add to what is there. */
static int run_block(ls_replica *r, uint32_t n, uint32_t done, ls_replica_times *times,
                     ls_error *err)
{
    const unsigned flags = done > 0 ? LS_RUN_ACCUMULATE : 0;
    const uint32_t count = ls_replica_block_rows(r, n, done);
    ls_plan *plan = ls_replica_plan_for(r, count);
    r->args.rows = ls_replica_staged(r, done);
    uint64_t start = ls_now_ns();
    int rc = ls_plan_gather(plan, LS_TRAIN, err);
    times->gather += seconds_since(start);
    if (rc != LS_OK)
        return rc;
    start = ls_now_ns();
    rc = ls_plan_forward(plan, LS_TRAIN, flags, err);
    times->forward += seconds_since(start);
    if (rc != LS_OK)
        return rc;
    start = ls_now_ns();
    rc = ls_replica_backward(r, plan, flags, done + count == n, err);
    times->backward += seconds_since(start);
    return rc;
}

/* A shard's gradient as it was recorded, tail included. */
static int launch_shard(ls_replica *r, ls_plan *plan, ls_replica_times *times, ls_error *err)
{
    uint64_t start = ls_now_ns();
    int rc = LS_OK;
    r->args.rows = ls_replica_staged(r, 0);
    if (!ls_replica_in_pieces(r))
        rc = ls_plan_launch(plan, plan->recording, &r->args, err);
    for (int p = 0; ls_replica_in_pieces(r) && p < r->pieces && rc == LS_OK; p++) {
        rc = ls_plan_launch(plan, plan->piece[p], &r->args, err);
        if (rc == LS_OK)
            rc = ls_replica_tell(r, p, err);
    }
    times->forward += seconds_since(start);
    return rc;
}

static int run_shard(ls_replica *r, uint32_t n, ls_replica_times *times, ls_error *err)
{
    ls_plan *whole = ls_replica_plan_for(r, n);
    int rc = LS_OK;
    if (whole && (ls_replica_in_pieces(r) ? whole->piece[0] : whole->recording))
        return launch_shard(r, whole, times, err);
    for (uint32_t done = 0; done < n && rc == LS_OK; done += ls_replica_block_rows(r, n, done))
        rc = run_block(r, n, done, times, err);
    return rc == LS_OK ? write_tail(r, n, err) : rc;
}

int ls_replica_gradient(ls_replica *replica, const uint32_t *rows, uint32_t n, uint32_t epoch,
                        ls_replica_times *times, ls_error *err)
{
    ls_replica_times unused = {0};
    if (!replica->optimizer)
        return ls_fail(err, LS_EINVAL, "replica: it was made without an optimizer");
    if (n == 0)
        return clear_gradient(replica, err);
    int rc = ls_replica_stage_rows(replica, LS_TRAIN, rows, n, err);
    replica->args.epoch = epoch;
    return rc == LS_OK ? run_shard(replica, n, times ? times : &unused, err) : rc;
}

/* ---- update --------------------------------------------------------------------------------- */

int ls_replica_enqueue_step(ls_replica *r, ls_sum sum, ls_error *err)
{
    const ls_updates *u = &r->updates[sum];
    int rc = u->update->impl->forward(u->update, NULL, 0, err);
    for (int i = 0; i < r->runnings && rc == LS_OK; i++)
        rc = u->running[i]->impl->forward(u->running[i], NULL, 0, err);
    return rc;
}

void ls_replica_set_step(ls_replica *r, const ls_replica_step *step)
{
    r->args.lr = step->lr;
    r->args.scale = step->scale;
    r->args.row_scale = step->rows > 0 ? 1.0f / (float)step->rows : 0.0f;
    r->args.step = step->number;
}

int ls_replica_apply(ls_replica *replica, const ls_replica_step *step, ls_replica_times *times,
                     ls_error *err)
{
    if (!replica->optimizer)
        return ls_fail(err, LS_EINVAL, "replica: it was made without an optimizer");
    uint64_t start = ls_now_ns();
    ls_replica_set_step(replica, step);
    int rc = replica->step ? replica->device->ops->launch(replica->device, NULL, replica->step,
                                                          &replica->args, err)
                           : ls_replica_enqueue_step(replica, OF_TOTAL, err);
    if (times)
        times->apply += seconds_since(start);
    return rc;
}

int ls_replica_sync(ls_replica *replica, ls_error *err)
{
    return replica->device->ops->sync(replica->device, NULL, err);
}
