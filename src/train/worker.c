/* A worker's side of training: how the coordinator has a job done on every worker, and jobs that run on a worker's
 * thread, with its device and its replica. */
#include "train/worker.h"
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "merge/group.h"
#include "train/coordinator.h"

#include <lockstep/split.h>
#include <stdio.h>
#include <string.h>

/* ---- jobs, as the coordinator has them done --------------------------------------------------- */

/* Runs the worker's `job`. Its result is the worker's `job_status` and `error`. */
static int run_job(const ls_worker *thread, void *arg, ls_error *err)
{
    (void)err;
    const ls_exchange *e = arg;
    ls_train_worker *w = &e->trainer->worker[thread->index];
    /* A worker that lost its device only leaves its group. */
    const bool idle = w->idle && w->job != ls_worker_join;
    w->device = ls_worker_device(thread);
    w->job_status = idle ? LS_OK : w->job(w, e);
    ls_beat(&w->heartbeat, LS_PLACE_IDLE);
    return LS_OK;
}

/* Those that were left behind already are not asked. */
static int submit(struct ls_trainer *t, ls_worker_job *job, ls_error *err)
{
    for (int i = 0; i < t->workers; i++) {
        if (t->worker[i].presence == LS_STALLED)
            continue;
        t->worker[i].job = job;
        int status = ls_pool_submit(t->pool, i, run_job, t->exchange, err);
        if (status)
            return status;
    }
    return LS_OK;
}

int ls_gang(struct ls_trainer *t, ls_worker_job *job, ls_error *err)
{
    int status = submit(t, job, err);
    ls_await_jobs(t);
    for (int i = 0; i < t->workers; i++) {
        ls_train_worker *w = &t->worker[i];
        const bool stalled = w->presence == LS_STALLED;
        if (!stalled)
            w->status = w->job_status;
        const int job_status = stalled ? (w->loss_recorded ? LS_OK : LS_ESTALLED) : w->status;
        if (job_status == LS_OK || job_status == LS_EABORTED)
            continue;
        w->fault_step = t->position.steps;
        if (status == LS_OK)
            status = ls_fail(err, job_status, "worker %d: %.480s", i,
                             stalled ? w->verdict.text : w->error.text);
    }
    return status;
}

/* With three or more, the odd one out; with two it cannot be told. */
static int compare_checksums(const struct ls_trainer *t, ls_error *err)
{
    const int first = ls_first_worker(t, LS_LIVE);
    char list[300] = "";
    size_t used = 0;
    bool differ = false;
    for (int w = first; w < t->workers && used < sizeof list; w++) {
        const ls_train_worker *worker = &t->worker[w];
        if (worker->presence != LS_LIVE)
            continue;
        differ |= worker->checksum != t->worker[first].checksum;
        used += (size_t)snprintf(list + used, sizeof list - used, "%sworker %d %08x",
                                 used ? ", " : "", w, (unsigned)worker->checksum);
    }
    if (!differ)
        return LS_OK;
    return ls_fail(
        err, LS_EDIVERGED,
        "after step %llu the replicas are no longer equal (checksums: %s); a device or its "
        "memory is faulty; resume from a checkpoint before that",
        (unsigned long long)t->position.steps, list);
}

int ls_read_replicas(struct ls_trainer *t, bool exports, ls_error *err)
{
    t->exchange->exporter = exports ? ls_first_worker(t, LS_LIVE) : -1;
    t->exchange->steps = t->position.steps;
    int status = ls_gang(t, ls_worker_snapshot, err);
    return status ? status : compare_checksums(t, err);
}

int ls_worker_inject(ls_train_worker *w, uint64_t step, ls_stage stage)
{
    return ls_inject_at(&w->trainer->injections, w->index, step, stage, &w->error);
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* The numbers of rows that this run's shards can have. */
enum { SIZES = LS_SHARD_SIZES * (LS_SUBSETS + 1 + LS_STEP_ROWS) };

/* Returns how many there are; the first `trained` of them are of training. */
static int list_shard_sizes(uint32_t sizes[SIZES], int *trained, const struct ls_trainer *t)
{
    const uint32_t batch = (uint32_t)t->config.batch_size, shards = (uint32_t)t->shards;
    int count = ls_add_shard_sizes(sizes, 0, ls_dataset_rows(t->data[LS_TRAIN]), batch, shards);
    if (t->feed)
        count = ls_add_shard_sizes(sizes, count, batch, batch, shards);
    for (int i = 0; i < t->options.step_row_count; i++) {
        const uint32_t rows = t->options.step_rows[i];
        count = ls_add_shard_sizes(sizes, count, rows, rows, shards);
    }
    *trained = count;
    return ls_add_shard_sizes(sizes, count, ls_dataset_rows(t->data[LS_TEST]),
                              ls_evaluation_batch(batch, shards), shards);
}

/* Where state `i` of the optimizer lies. */
static float *arena_of(const ls_train_worker *w, int i)
{
    ls_replica *r = w->replica;
    const int average = ls_optimizer_average(&w->trainer->config.optimizer);
    return i == average ? ls_replica_weight_arena(r) : ls_replica_slot_arena(r, i);
}

/* The exchange's weights and, unless it is that of a beginning, optimizer state. */
static int import_state(ls_train_worker *w, const ls_exchange *e, bool slots)
{
    ls_replica *r = w->replica;
    const int average = ls_optimizer_average(&w->trainer->config.optimizer);
    int status = ls_replica_import(r, ls_replica_weight_arena(r), e->canonical, &w->error);
    if (status == LS_OK && average >= 0)
        status = ls_replica_import(r, ls_replica_slot_arena(r, average), e->canonical, &w->error);
    for (int i = 0; status == LS_OK && slots && i < LS_STATES; i++)
        if (e->slot[i])
            status = ls_replica_import(r, arena_of(w, i), e->slot[i], &w->error);
    return status;
}

/* Whether the group provides the total's memory after joining (not where the total also holds the moving average). */
static bool has_total_later(const ls_train_worker *w)
{
    return ls_worker_rebinds(w) && w->trainer->config.optimizer.ema == 0;
}

static int open_replica(ls_train_worker *w, const ls_exchange *e)
{
    struct ls_trainer *t = w->trainer;
    uint32_t sizes[SIZES];
    int trained = 0;
    const int size_count = list_shard_sizes(sizes, &trained, t);
    ls_replica_desc desc = {
        .device = w->device,
        .model = t->model,
        .optimizer = &t->config.optimizer,
        .normalisation = t->config.preprocessing,
        .loss = t->config.loss,
        .label_smoothing = (float)t->config.label_smoothing,
        .class_weight = t->class_weight,
        .scores = ls_metrics_need_scores(t->config.metrics),
        .total_later = has_total_later(w),
        .shard_rows = sizes,
        .shard_row_counts = size_count,
        .trained_row_counts = trained,
        .seed = t->config.seed,
        .heartbeat = &w->heartbeat,
        .host = t->host,
    };
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_dataset_view view = ls_dataset_resident(t->data[s]);
        const uint32_t rows = ls_dataset_rows(t->data[s]);
        if (rows > 0)
            desc.data[s] =
                (ls_replica_data){.images = view.images, .labels = view.labels, .rows = view.rows};
    }
    if (t->feed)
        desc.data[LS_TRAIN] = ls_feed_data(t->feed);
    int status = ls_replica_create(&w->replica, &desc, &w->error);
    return status ? status : import_state(w, e, t->dir.resumed != NULL || t->members.resumed);
}

static int open_fold(ls_train_worker *w)
{
    int status = ls_fold_init(&w->fold, w->device, ls_replica_gradient_arena(w->replica),
                              ls_replica_floats(w->replica), w->trainer->shards, w->shard_lo,
                              w->shard_hi, &w->error);
    const bool spreads = w->trainer->merge == &ls_comm_ordered && ls_worker_rebinds(w) &&
                         w->info.threads <= 1; /* a team adds up leaf by leaf, with all threads */
    return status == LS_OK && spreads ? ls_fold_spread(&w->fold, &w->error) : status;
}

int ls_worker_describe(ls_train_worker *w, const ls_exchange *e)
{
    (void)e;
    w->device->ops->describe(w->device, &w->info);
    return LS_OK;
}

int ls_worker_choices(ls_train_worker *w, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    if (w->index > 0)
        return LS_OK;
    const size_t bytes = w->device->ops->choices(w->device, NULL, 0) + 1;
    t->members.choices = ls_alloc(t->host, bytes);
    if (!t->members.choices)
        return ls_fail(&w->error, LS_ENOMEM, "out of memory for plans");
    w->device->ops->choices(w->device, t->members.choices, bytes);
    return LS_OK;
}

int ls_worker_open(ls_train_worker *w, const ls_exchange *e)
{
    const char *choices = e->trainer->members.choices;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    w->device->ops->describe(w->device, &w->info);
    ls_trace_device(e->trainer->trace, w->index, w->device);
    w->scratch = ls_alloc(e->trainer->host, LS_SCRATCH);
    int status = w->scratch ? LS_OK : ls_fail(&w->error, LS_ENOMEM, "out of memory");
    if (status == LS_OK && choices)
        status = w->device->ops->choose(w->device, choices, &w->error);
    if (status == LS_OK)
        status = open_replica(w, e);
    return status;
}

/* A stalled peer in the old group may still read this worker's partial sums. */
static int put_fold_away(ls_train_worker *w)
{
    ls_old_fold *old = ls_alloc(w->trainer->host, sizeof *old);
    if (!old)
        return ls_fail(&w->error, LS_ENOMEM, "out of memory for a fold");
    *old = (ls_old_fold){w->fold, w->old_folds};
    w->old_folds = old;
    memset(&w->fold, 0, sizeof w->fold);
    w->keep_fold = false;
    return LS_OK;
}

/* A new group, perhaps with other shards: whatever belonged to the old one goes first. */
int ls_worker_join(ls_train_worker *w, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    if (w->comm)
        w->comm->group->type->leave(w->comm);
    w->comm = NULL;
    w->failed = false;
    /* The fold and the group, in which they may lie, are freed below. */
    ls_replica_own_arenas(w->replica);
    int status = w->keep_fold ? put_fold_away(w) : LS_OK;
    if (status || w->idle)
        return status;
    ls_fold_fini(&w->fold);
    status = open_fold(w);
    if (status == LS_OK && has_total_later(w))
        status = ls_replica_total_at(w->replica, t->total, &w->error);
    if (status == LS_OK)
        status = t->group->type->join(&w->comm, t->group, w->rank, w->device, &w->error);
    if (status == LS_OK)
        status = ls_worker_choose_steps(w);
    return status;
}

int ls_worker_check(ls_train_worker *w, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    ls_replica *r = w->replica;
    ls_beat(&w->heartbeat, LS_PLACE_WAIT);
    const ls_merge_check check = {.comm = w->comm,
                                  .device = w->device,
                                  .shards = t->shards,
                                  .floats = ls_replica_floats(r),
                                  .scratch = ls_replica_gradient_arena(r),
                                  .total = ls_replica_total_arena(r),
                                  .host = t->host};
    int status = ls_merge_check_group(&check, &w->error);
    if (status == LS_OK) /* the gradient of no rows: zeros again */
        status = ls_replica_gradient(r, NULL, 0, 0, NULL, &w->error);
    return status;
}

void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user)
{
    (void)device;
    (void)local;
    struct ls_trainer *t = user;
    if (!t->worker || t->faults.readers_asleep)
        return;
    ls_train_worker *w = &t->worker[thread->index];
    if (w->comm)
        w->comm->group->type->leave(w->comm);
    while (w->old_folds) {
        ls_old_fold *old = w->old_folds;
        w->old_folds = old->next;
        ls_fold_fini(&old->fold);
        ls_free(t->host, old);
    }
    ls_fold_fini(&w->fold);
    ls_replica_destroy(w->replica);
    ls_free(t->host, w->scratch);
}

/* ---- for comparison with other processes ------------------------------------------------------ */

/* Of an arena's parameters, and of the running statistics where the arena has some. */
static int add_checksum(ls_train_worker *w, const float *arena, size_t floats)
{
    const ls_device_ops *ops = w->device->ops;
    const size_t most = LS_SCRATCH / sizeof *arena;
    for (size_t done = 0; done < floats;) {
        size_t count = floats - done < most ? floats - done : most;
        int status = ops->download(w->device, NULL, w->scratch, arena + done, count * sizeof *arena,
                                   &w->error);
        if (status == LS_OK)
            status = ops->sync(w->device, NULL, &w->error);
        if (status)
            return status;
        w->checksum = ls_crc32(w->checksum, w->scratch, count * sizeof *arena);
        ls_beat(&w->heartbeat, LS_PLACE_EXPORT);
        done += count;
    }
    return LS_OK;
}

int ls_worker_probe(ls_train_worker *w, const ls_exchange *e)
{
    const struct ls_trainer *t = e->trainer;
    const uint32_t all = ls_dataset_rows(t->data[LS_TRAIN]);
    const uint32_t batch = (uint32_t)t->config.batch_size;
    uint32_t first, count;
    if (w->index > 0)
        return LS_OK;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    ls_split(t->feed || all > batch ? batch : all, (uint32_t)t->shards, 0, &first, &count);
    for (uint32_t i = 0; i < count && !t->feed; i++)
        e->permutation[0][i] = i;
    int status =
        ls_replica_gradient(w->replica, t->feed ? ls_feed_rows(t->feed, 0) : e->permutation[0],
                            count, 0, NULL, &w->error);
    w->checksum = 0;
    return status ? status
                  : add_checksum(w, ls_replica_gradient_arena(w->replica),
                                 ls_replica_floats(w->replica));
}

/* ---- evaluation ----------------------------------------------------------------------------- */

int ls_worker_evaluate(ls_train_worker *w, const ls_exchange *e)
{
    int status = ls_worker_inject(w, e->steps, LS_STAGE_EVALUATE);
    if (status == LS_OK)
        status = ls_replica_use_average(w->replica, true, &w->error);
    if (status)
        return status;
    /* Asked to stop, the coordinator drops the result. */
    status = ls_infer_shards(&e->test, w->replica, w->shard_lo, w->shard_hi, &w->error);
    const int reset_status = ls_replica_use_average(w->replica, false, status ? NULL : &w->error);
    return status ? status : reset_status;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static int compute_checksum(ls_train_worker *w)
{
    ls_replica *r = w->replica;
    w->checksum = 0;
    int status = add_checksum(w, ls_replica_weight_arena(r), ls_replica_floats(r));
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (ls_replica_slot_arena(r, i))
            status = add_checksum(w, ls_replica_slot_arena(r, i), ls_replica_tail_offset(r));
    return status;
}

/* What is evaluated, the weights or their average. */
static int export_weights(ls_train_worker *w, float *canonical)
{
    ls_replica *r = w->replica;
    int status = ls_replica_use_average(r, true, &w->error);
    if (status)
        return status;
    status = ls_replica_export(r, canonical, ls_replica_weight_arena(r), &w->error);
    const int reset_status = ls_replica_use_average(r, false, status ? NULL : &w->error);
    return status ? status : reset_status;
}

static int export_state(ls_train_worker *w, const ls_exchange *e)
{
    int status = ls_worker_inject(w, e->steps, LS_STAGE_EXPORT);
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (e->slot[i])
            status = ls_replica_export(w->replica, e->slot[i], arena_of(w, i), &w->error);
    return status ? status : export_weights(w, e->canonical);
}

int ls_worker_snapshot(ls_train_worker *w, const ls_exchange *e)
{
    ls_beat(&w->heartbeat, LS_PLACE_EXPORT);
    int status = compute_checksum(w);
    if (status == LS_OK && e->exporter == w->index)
        status = export_state(w, e);
    return status;
}

/* ---- otherwise than by training ------------------------------------------------------------- */

int ls_worker_load(ls_train_worker *w, const ls_exchange *e)
{
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    return import_state(w, e, true);
}

int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err)
{
    (void)err;
    ls_worker_close(thread, NULL, NULL, arg);
    return LS_OK;
}
