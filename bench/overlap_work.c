/* SPDX-License-Identifier: MIT */
/* The computations of the workers of bench_overlap: the ops of a training step of LeNet or
 * ResNet-18, one by one, or spin kernels, which only take time. overlap.h explains the terms. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "nn/replica_impl.h"
#include "overlap.h"

#include <string.h>

enum { SPIN_FLOATS = 4096, CALIBRATION = 1 << 22 };
#define LEARNING_RATE 0.05f

static double spins_per_us;

uint32_t device_crc(ls_device *device, const float *data, size_t floats)
{
    enum { PART = 4096 };
    float part[PART];
    uint32_t crc = 0;
    ls_error err;
    for (size_t done = 0; done < floats; done += PART) {
        const size_t n = floats - done < PART ? floats - done : PART;
        if (device->ops->download(device, NULL, part, data + done, n * sizeof *part, &err) ||
            device->ops->sync(device, NULL, &err))
            return 0;
        crc = ls_crc32(crc, part, n * sizeof *part);
    }
    return crc;
}

/* ---- spin kernels --------------------------------------------------------------------------- */

/* The computation of a spin kernel. It takes a fixed amount of CPU time, even if another thread
 * uses the CPU at the same time. (A loop that waits until a certain time would take less CPU time
 * in this case.) Returns a result, which is checked. */
static uint64_t spin(uint64_t state, uint64_t times)
{
    for (uint64_t i = 0; i < times; i++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    return state;
}

void spin_set_rate(double per_us)
{
    spins_per_us = per_us;
}

uint64_t spin_times(const work *job)
{
    return (uint64_t)(job->spin_us * spins_per_us);
}

void spin_calibrate(void)
{
    volatile uint64_t sink = 0;
    for (int i = 0; i < 5; i++) {
        const uint64_t begin = ls_now_ns();
        sink = spin(sink, CALIBRATION);
        const double rate = CALIBRATION / ((double)(ls_now_ns() - begin) * 1e-3);
        spins_per_us = rate > spins_per_us ? rate : spins_per_us;
    }
}

uint64_t spin_shard(const work *job, uint64_t step, int shard)
{
    uint64_t state = step * SHARDS + (uint64_t)shard;
    for (int i = 0; i < job->pieces; i++)
        state = spin(state, spin_times(job));
    return state;
}

static int run_spin(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    const work *job = w->of->desc.work;
    (void)err;
    if (index == 0)
        w->spin = step * SHARDS + (uint64_t)shard;
    w->spin = spin(w->spin, spin_times(job));
    return LS_OK;
}

void spin_gradient(float *leaf, size_t floats, uint64_t state)
{
    for (size_t i = 0; i < floats; i++)
        leaf[i] = (float)((state >> (i % 48)) & 15);
}

static int finish_spin(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)index;
    spin_gradient(w->leaf, w->floats, w->spin);
    if (w->of->checking)
        w->leaf_crc[shard] = device_crc(w->device, w->leaf, w->floats);
    return ls_fold_push(&w->fold, err);
}

static int apply_spin(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)shard;
    (void)index;
    (void)err;
    for (size_t i = 0; i < w->floats; i++)
        w->weights[i] += w->of->desc.merge ? w->total[i] : 0;
    return LS_OK;
}

const spin_kind cpu_spin = {.run = run_spin, .finish = finish_spin, .apply = apply_spin};

/* ---- LeNet ---------------------------------------------------------------------------------- */

static void shard_of(const worker *w, int shard, uint32_t *first, uint32_t *count)
{
    *count = (uint32_t)w->of->desc.work->batch / (uint32_t)w->of->desc.work->shards;
    *first = (uint32_t)shard * *count;
}

/* Chooses the rows of a minibatch: consecutive rows of the data. The first row follows the last
 * row. */
static int begin_step(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    const uint32_t batch = (uint32_t)w->of->desc.work->batch;
    (void)shard;
    (void)index;
    (void)err;
    for (uint32_t i = 0; i < batch; i++)
        w->rows[i] = (uint32_t)((step * batch + i) % DATA_ROWS);
    ls_fold_begin(&w->fold);
    return LS_OK;
}

static uint32_t block_of(const ls_replica *r, uint32_t count, uint32_t done)
{
    return ls_replica_block_rows(r, count, done);
}

/* Returns the number of pieces in one block: gather, forward of each node, loss, backward of each
 * node. */
static int pieces_of_block(const ls_plan *plan)
{
    return 2 * plan->nodes + 2;
}

static int run_node(ls_plan *plan, int k, unsigned flags, ls_error *err)
{
    const int n = plan->nodes;
    if (k == 0)
        return ls_plan_gather(plan, LS_TRAIN, err);
    if (k <= n)
        return plan->node[k - 1].op->impl->forward(plan->node[k - 1].op, NULL, 0, err);
    if (k == n + 1)
        return plan->loss[LS_TRAIN]->impl->forward(plan->loss[LS_TRAIN], NULL, flags, err);
    const ls_node *node = &plan->node[2 * n + 1 - k];
    return node->backward ? node->op->impl->backward(node->op, NULL, flags, err) : LS_OK;
}

/* Runs piece `index` of a shard. Computes from the index which block of rows and which op of that
 * block it is. */
static int run_op(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    ls_replica *r = w->replica;
    uint32_t first, count, done = 0;
    (void)step;
    shard_of(w, shard, &first, &count);
    ls_plan *plan = ls_replica_plan_for(r, block_of(r, count, 0));
    while (index >= pieces_of_block(plan)) {
        index -= pieces_of_block(plan);
        done += block_of(r, count, done);
        plan = ls_replica_plan_for(r, block_of(r, count, done));
    }
    if (index == 0 && done == 0) {
        int status = ls_replica_stage_rows(r, LS_TRAIN, w->rows + first, count, 1, err);
        if (status)
            return status;
    }
    r->args.rows = ls_replica_staged(r, done);
    return run_node(plan, index, done > 0 ? LS_RUN_ACCUMULATE : 0, err);
}

/* Writes the tail of the shard's gradient: floats after the gradient that contain the loss and the
 * number of rows. */
static int finish_shard(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    ls_replica *r = w->replica;
    uint32_t first, count;
    (void)step;
    (void)index;
    shard_of(w, shard, &first, &count);
    memset(r->staged_tail, 0, sizeof r->staged_tail);
    r->staged_tail[LS_TAIL_ROWS] = (float)count;
    int status = w->device->ops->upload(
        w->device, NULL, w->leaf + ls_replica_tail_offset(r) + LS_TAIL_ROWS,
        r->staged_tail + LS_TAIL_ROWS, (LS_TAIL - LS_TAIL_ROWS) * sizeof(float), err);
    if (w->of->checking)
        w->leaf_crc[shard] = device_crc(w->device, w->leaf, w->floats);
    return status ? status : ls_fold_push(&w->fold, err);
}

/* Runs the whole shard as the graph that the replica has recorded; the graph includes the
 * gradient's tail. */
static int run_shard(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    uint32_t first, count;
    (void)step;
    (void)index;
    shard_of(w, shard, &first, &count);
    return ls_replica_gradient(w->replica, w->rows + first, count, 0, NULL, err);
}

static int fold_shard(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)index;
    if (w->of->checking)
        w->leaf_crc[shard] = device_crc(w->device, w->leaf, w->floats);
    return ls_fold_push(&w->fold, err);
}

static int apply(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    const ls_replica_step s = {.lr = w->of->desc.merge ? LEARNING_RATE : 0,
                               .scale = 1.0f / (float)w->of->desc.work->batch,
                               .rows = (uint32_t)w->of->desc.work->batch,
                               .number = step + 1};
    (void)shard;
    (void)index;
    return ls_replica_apply(w->replica, &s, NULL, err);
}

/* ---- merging -------------------------------------------------------------------------------- */

static int merge(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)shard;
    (void)index;
    return w->comm->group->type->all_reduce(w->comm, NULL, w->fold.stack, w->fold.depth, w->total,
                                            &w->times, err);
}

/* Returns the partial sum over exactly the shards a … b − 1, or NULL if no worker has it. */
static const float *partial_of(const cell *c, int a, int b)
{
    for (int i = 0; i < c->desc.workers; i++) {
        const ls_fold *f = &c->worker[i].fold;
        for (int k = 0; k < f->depth; k++)
            if (f->stack[k].span.lo == a && f->stack[k].span.hi == b)
                return f->stack[k].data;
    }
    return NULL;
}

/* Returns the sum of the gradients of shards a … b − 1, added in the order of the shard tree
 * (merge/tree.h). `doer` is the worker on whose device the additions are made. The sum is in the
 * array `total` of the worker to which shard a belongs. */
static const float *sum_tree(cell *c, worker *doer, int a, int b, ls_error *err)
{
    const float *whole = partial_of(c, a, b);
    if (whole)
        return whole;
    int half = 1;
    while (2 * half < b - a)
        half *= 2;
    const float *left = sum_tree(c, doer, a, a + half, err),
                *right = sum_tree(c, doer, a + half, b, err);
    worker *w = &c->worker[a / shards_each(c)];
    if (!left || !right ||
        doer->device->ops->add(doer->device, NULL, w->total, left, right, w->floats, err))
        return NULL;
    return w->total;
}

/* If one thread drives several streams: makes the next work on the stream of `to` wait for the work
 * on the stream of `from`. If the device has no streams, its work is finished when a call returns,
 * and the function does nothing. */
static int follow(worker *to, worker *from, ls_error *err)
{
    if (to->device == from->device || !from->device->ops->record)
        return LS_OK;
    int status = from->device->ops->record(&from->event, from->device, NULL, err);
    return status ? status : to->device->ops->wait(to->device, NULL, from->event, err);
}

/* Merges the gradients of all workers, in a piece of the last worker. It is used if one lane or one
 * thread serves all workers, because a worker that waits for another one would then block it. */
static int merge_alone(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    cell *c = w->of;
    const uint64_t begin = ls_now_ns();
    int status = LS_OK;
    (void)step;
    (void)shard;
    (void)index;
    if (w->index < c->desc.workers - 1)
        return LS_OK;
    for (int i = 0; status == LS_OK && i < c->desc.workers; i++)
        status = follow(w, &c->worker[i], err);
    const float *sum = status ? NULL : sum_tree(c, w, 0, c->desc.work->shards, err);
    if (!sum)
        return status ? status : LS_EDEVICE;
    for (int i = 0; status == LS_OK && i < c->desc.workers; i++)
        if (c->worker[i].total != sum)
            status = w->device->ops->copy(w->device, NULL, c->worker[i].total, sum,
                                          w->floats * sizeof *sum, err);
    for (int i = 0; status == LS_OK && i < c->desc.workers; i++)
        status = follow(&c->worker[i], w, err);
    w->times.exposed += (double)(ls_now_ns() - begin) * 1e-9;
    return status;
}

int meet(worker *w, ls_error *err)
{
    const uint64_t begin = ls_now_ns();
    int status = ls_barrier_wait(&w->of->barrier, w->index, ls_deadline_ns(DEADLINE_NS), err);
    w->barrier_s += (double)(ls_now_ns() - begin) * 1e-9;
    return status;
}

static int meet_piece(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)shard;
    (void)index;
    return meet(w, err);
}

/* ---- the list ------------------------------------------------------------------------------- */

static void add(worker *w, piece p)
{
    cell *c = w->of;
    if (c->pieces[w->index] < PIECES_MOST)
        c->piece[w->index][c->pieces[w->index]++] = p;
}

int shards_each(const cell *c)
{
    return c->desc.work->shards / c->desc.workers;
}

static int pieces_of_shard(const worker *w)
{
    uint32_t first, count, done = 0;
    int pieces = 0;
    if (!w->replica)
        return w->of->desc.work->pieces;
    for (shard_of(w, 0, &first, &count); done < count; done += block_of(w->replica, count, done))
        pieces +=
            pieces_of_block(ls_replica_plan_for(w->replica, block_of(w->replica, count, done)));
    return pieces;
}

void worker_list_pieces(worker *w)
{
    const cell_desc *d = &w->of->desc;
    const spin_kind *s = w->of->engine->spin;
    const int each = shards_each(w->of), alone = d->merge && !w->of->group;
    w->of->pieces[w->index] = 0;
    add(w, (piece){begin_step, 0, 0, 0});
    for (int shard = w->index * each; shard < (w->index + 1) * each; shard++) {
        for (int i = 0; !d->graph && i < pieces_of_shard(w); i++)
            add(w, (piece){w->replica ? run_op : s->run, shard, i, 1});
        if (d->graph)
            add(w, (piece){w->replica ? run_shard : s->replay, shard, 0, 1});
        add(w, (piece){!w->replica ? s->finish
                       : d->graph  ? fold_shard
                                   : finish_shard,
                       shard, 0, !d->graph});
    }
    if (d->merge)
        add(w, (piece){alone ? merge_alone : merge, 0, 0, 0});
    add(w, (piece){w->replica ? apply : s->apply, 0, 0, 1});
    if (d->barrier && d->host != HOST_ONE_STREAM && !w->of->engine->meets_itself)
        add(w, (piece){meet_piece, 0, 0, 0});
}

/* ---- life ----------------------------------------------------------------------------------- */

static int open_replica(worker *w, ls_error *err)
{
    const cell *c = w->of;
    const uint32_t rows = (uint32_t)c->desc.work->batch / (uint32_t)c->desc.work->shards;
    const ls_replica_desc desc = {
        .device = w->device,
        .model = c->model,
        .optimizer = c->optimizer,
        .normalisation = {.std = {1, 1, 1, 1}},
        .data[LS_TRAIN] = c->data,
        .shard_rows = &rows,
        .shard_row_counts = 1,
        .no_recording = !c->desc.graph,
    };
    int status = ls_replica_create(&w->replica, &desc, err);
    if (status)
        return status;
    w->leaf = ls_replica_gradient_arena(w->replica);
    w->total = ls_replica_total_arena(w->replica);
    w->weights = ls_replica_weight_arena(w->replica);
    w->floats = ls_replica_floats(w->replica);
    return ls_replica_import(w->replica, w->weights, c->first_weights, err);
}

static int open_spin(worker *w, ls_error *err)
{
    const ls_device_ops *ops = w->device->ops;
    const size_t bytes = SPIN_FLOATS * sizeof(float);
    void *arena[3] = {NULL, NULL, NULL};
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < 3; i++)
        status = ops->alloc(&arena[i], w->device, bytes, err);
    w->leaf = arena[0];
    w->total = arena[1];
    w->weights = arena[2];
    w->floats = SPIN_FLOATS;
    const spin_kind *s = w->of->engine->spin;
    return status == LS_OK && s->open ? s->open(w, err) : status;
}

int worker_open(worker *w, ls_error *err)
{
    const cell *c = w->of;
    const int each = shards_each(c);
    const ls_device_request request = {
        .size = sizeof request,
        .index = c->device ? c->device[w->index % c->device_count] : w->index,
        .threads = 1,
        .precision = c->precision,
        .cache_dir = c->cache_dir,
    };
    w->busy = ls_alloc_array(NULL, SPANS_MOST, sizeof *w->busy);
    if (!w->busy)
        return ls_fail(err, LS_ENOMEM, "out of memory for measurements");
    w->borrows = c->device && c->desc.host == HOST_ONE_STREAM && w->index > 0;
    w->device = w->borrows ? c->worker[0].device : NULL;
    int status = w->borrows ? LS_OK : c->backend->open(&w->device, &request, err);
    if (status == LS_OK && !w->borrows)
        status = w->device->ops->bind(w->device, err);
    if (status == LS_OK)
        status = c->desc.work->batch ? open_replica(w, err) : open_spin(w, err);
    if (status == LS_OK)
        status = ls_fold_init(&w->fold, w->device, w->leaf, w->floats, c->desc.work->shards,
                              w->index * each, (w->index + 1) * each, err);
    return status;
}

void worker_close(worker *w)
{
    const spin_kind *s = w->of->engine->spin;
    ls_fold_fini(&w->fold);
    if (!w->replica && w->device) {
        if (s->close)
            s->close(w);
        w->device->ops->free(w->device, w->leaf);
        w->device->ops->free(w->device, w->total);
        w->device->ops->free(w->device, w->weights);
    }
    ls_replica_destroy(w->replica);
    if (w->device && !w->borrows)
        w->device->ops->close(w->device);
    w->device = NULL;
    ls_free(NULL, w->busy);
}

uint32_t worker_checksum(const worker *w)
{
    return device_crc(w->device, w->weights,
                      w->replica ? ls_replica_tail_offset(w->replica) : w->floats);
}
