/* A worker's side of training: jobs that run on its thread, with its device and its replica. */
#include "train/worker.h"
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "merge/group.h"

#include <lockstep/split.h>
#include <string.h>

int ls_worker_run(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    const ls_exchange *e = arg;
    ls_train_worker *mine = &e->trainer->worker[w->index];
    /* One that takes no part any more has no more to do than to leave its group. */
    const bool idle = mine->idle && mine->job != ls_worker_join;
    mine->device = ls_worker_device(w);
    mine->job_status = idle ? LS_OK : mine->job(mine, e);
    ls_beat(&mine->heartbeat, LS_PLACE_REST);
    return LS_OK;
}

int ls_worker_inject(ls_train_worker *mine, uint64_t step, ls_stage stage)
{
    return ls_inject_at(&mine->trainer->injections, mine->index, step, stage, &mine->error);
}

/* ---- opening and closing -------------------------------------------------------------------- */

void ls_worker_shard_rows(const struct ls_trainer *t, uint32_t n, int shard, uint32_t *first,
                          uint32_t *count)
{
    ls_split(n, (uint32_t)t->shards, (uint32_t)shard, first, count);
}

/* The numbers of rows that this run's shards can have. */
enum { SIZES = LS_SHARD_SIZES * (LS_SUBSETS + 1 + LS_STEP_ROWS) };

/* Returns how many there are; the first `trained` of them are of training. */
static int list_shard_sizes(uint32_t sizes[SIZES], int *trained, const struct ls_trainer *t)
{
    const uint32_t batch = (uint32_t)t->config.batch_size, shards = (uint32_t)t->shards;
    int count = ls_add_shard_sizes(sizes, 0, ls_subset_rows(t, LS_TRAIN), batch, shards);
    if (t->feed)
        count = ls_add_shard_sizes(sizes, count, batch, batch, shards);
    for (int i = 0; i < t->options.step_row_count; i++) {
        const uint32_t rows = t->options.step_rows[i];
        count = ls_add_shard_sizes(sizes, count, rows, rows, shards);
    }
    *trained = count;
    return ls_add_shard_sizes(sizes, count, ls_subset_rows(t, LS_TEST), batch, shards);
}

/* Where state `i` of the optimizer lies. */
static float *arena_of(const ls_train_worker *mine, int i)
{
    ls_replica *r = mine->replica;
    const int average = ls_optimizer_average(&mine->trainer->config.optimizer);
    return i == average ? ls_replica_weight_arena(r) : ls_replica_slot_arena(r, i);
}

/* The exchange's weights and, unless it is that of a beginning, optimizer state. */
static int import_state(ls_train_worker *mine, const ls_exchange *e, bool slots)
{
    ls_replica *r = mine->replica;
    const int average = ls_optimizer_average(&mine->trainer->config.optimizer);
    int status = ls_replica_import(r, ls_replica_weight_arena(r), e->canonical, &mine->error);
    if (status == LS_OK && average >= 0)
        status =
            ls_replica_import(r, ls_replica_slot_arena(r, average), e->canonical, &mine->error);
    for (int i = 0; status == LS_OK && slots && i < LS_STATES; i++)
        if (e->slot[i])
            status = ls_replica_import(r, arena_of(mine, i), e->slot[i], &mine->error);
    return status;
}

/* Where the total lies is the group's to say, unless it has another use. */
static bool has_total_later(const ls_train_worker *mine)
{
    return ls_worker_rebinds(mine) && mine->trainer->config.optimizer.ema == 0;
}

static int open_replica(ls_train_worker *mine, const ls_exchange *e)
{
    struct ls_trainer *t = mine->trainer;
    uint32_t sizes[SIZES];
    int trained = 0;
    const int size_count = list_shard_sizes(sizes, &trained, t);
    ls_replica_desc desc = {
        .device = mine->device,
        .model = t->model,
        .optimizer = &t->config.optimizer,
        .normalisation = t->config.preprocessing,
        .loss = t->config.loss,
        .label_smoothing = (float)t->config.label_smoothing,
        .class_weight = t->class_weight,
        .scores = ls_metrics_need_scores(t->config.metrics),
        .total_later = has_total_later(mine),
        .shard_rows = sizes,
        .shard_row_counts = size_count,
        .trained_row_counts = trained,
        .seed = t->config.seed,
        .heartbeat = &mine->heartbeat,
        .host = t->host,
    };
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_dataset_view view = ls_dataset_resident(t->data[s]);
        const uint32_t rows = ls_subset_rows(t, (ls_subset)s);
        if (rows > 0)
            desc.data[s] =
                (ls_replica_data){.images = view.images, .labels = view.labels, .rows = view.rows};
    }
    if (t->feed)
        desc.data[LS_TRAIN] = ls_feed_data(t->feed);
    int status = ls_replica_create(&mine->replica, &desc, &mine->error);
    return status ? status : import_state(mine, e, t->dir.resumed != NULL || t->members.goes_on);
}

static int open_fold(ls_train_worker *mine)
{
    int status = ls_fold_init(&mine->fold, mine->device, ls_replica_gradient_arena(mine->replica),
                              ls_replica_floats(mine->replica), mine->trainer->shards,
                              mine->shard_lo, mine->shard_hi, &mine->error);
    const bool spreads =
        mine->trainer->merge == &ls_comm_ordered && ls_worker_rebinds(mine) &&
        mine->info.threads <= 1; /* a team adds up leaf by leaf, with all threads */
    return status == LS_OK && spreads ? ls_fold_spread(&mine->fold, &mine->error) : status;
}

int ls_worker_describe(ls_train_worker *mine, const ls_exchange *e)
{
    (void)e;
    mine->device->ops->describe(mine->device, &mine->info);
    return LS_OK;
}

int ls_worker_choices(ls_train_worker *mine, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    if (mine->index > 0)
        return LS_OK;
    const size_t bytes = mine->device->ops->choices(mine->device, NULL, 0) + 1;
    t->members.choices = ls_alloc(t->host, bytes);
    if (!t->members.choices)
        return ls_fail(&mine->error, LS_ENOMEM, "out of memory for plans");
    mine->device->ops->choices(mine->device, t->members.choices, bytes);
    return LS_OK;
}

int ls_worker_open(ls_train_worker *mine, const ls_exchange *e)
{
    const char *choices = e->trainer->members.choices;
    ls_beat(&mine->heartbeat, LS_PLACE_OPEN);
    mine->device->ops->describe(mine->device, &mine->info);
    ls_trace_device(e->trainer->trace, mine->index, mine->device);
    mine->scratch = ls_alloc(e->trainer->host, LS_SCRATCH);
    int status = mine->scratch ? LS_OK : ls_fail(&mine->error, LS_ENOMEM, "out of memory");
    if (status == LS_OK && choices)
        status = mine->device->ops->choose(mine->device, choices, &mine->error);
    if (status == LS_OK)
        status = open_replica(mine, e);
    return status;
}

/* Somebody who sleeps in the old group may still read what this worker showed there. */
static int put_fold_away(ls_train_worker *mine)
{
    ls_old_fold *old = ls_alloc(mine->trainer->host, sizeof *old);
    if (!old)
        return ls_fail(&mine->error, LS_ENOMEM, "out of memory for a fold");
    *old = (ls_old_fold){mine->fold, mine->old_folds};
    mine->old_folds = old;
    memset(&mine->fold, 0, sizeof mine->fold);
    mine->keep_fold = 0;
    return LS_OK;
}

/* A new group, perhaps with other shards: whatever belonged to the old one goes first. */
int ls_worker_join(ls_train_worker *mine, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    ls_beat(&mine->heartbeat, LS_PLACE_OPEN);
    if (mine->comm)
        mine->comm->group->type->leave(mine->comm);
    mine->comm = NULL;
    mine->failed = 0;
    ls_replica_own_arenas(mine->replica); /* not in the fold and the group, which go */
    int status = mine->keep_fold ? put_fold_away(mine) : LS_OK;
    if (status || mine->idle)
        return status;
    ls_fold_fini(&mine->fold);
    status = open_fold(mine);
    if (status == LS_OK && has_total_later(mine))
        status = ls_replica_total_at(mine->replica, t->total, &mine->error);
    if (status == LS_OK)
        status =
            t->group->type->join(&mine->comm, t->group, mine->rank, mine->device, &mine->error);
    if (status == LS_OK)
        status = ls_worker_choose_steps(mine);
    return status;
}

int ls_worker_check(ls_train_worker *mine, const ls_exchange *e)
{
    struct ls_trainer *t = e->trainer;
    ls_replica *r = mine->replica;
    ls_beat(&mine->heartbeat, LS_PLACE_WAIT);
    const ls_merge_check check = {.comm = mine->comm,
                                  .device = mine->device,
                                  .shards = t->shards,
                                  .floats = ls_replica_floats(r),
                                  .scratch = ls_replica_gradient_arena(r),
                                  .total = ls_replica_total_arena(r),
                                  .host = t->host};
    int status = ls_merge_check_group(&check, &mine->error);
    if (status == LS_OK) /* the gradient of no rows: zeros again */
        status = ls_replica_gradient(r, NULL, 0, 0, NULL, &mine->error);
    return status;
}

void ls_worker_close(const ls_worker *w, ls_device *device, void *local, void *user)
{
    (void)device;
    (void)local;
    struct ls_trainer *t = user;
    if (!t->worker || t->faults.readers_asleep)
        return;
    ls_train_worker *mine = &t->worker[w->index];
    if (mine->comm)
        mine->comm->group->type->leave(mine->comm);
    while (mine->old_folds) {
        ls_old_fold *old = mine->old_folds;
        mine->old_folds = old->next;
        ls_fold_fini(&old->fold);
        ls_free(t->host, old);
    }
    ls_fold_fini(&mine->fold);
    ls_replica_destroy(mine->replica);
    ls_free(t->host, mine->scratch);
}

/* ---- for comparison with other processes ------------------------------------------------------ */

/* Of an arena's parameters, and of the running statistics where the arena has some. */
static int add_checksum(ls_train_worker *mine, const float *arena, size_t floats)
{
    const ls_device_ops *ops = mine->device->ops;
    const size_t most = LS_SCRATCH / sizeof *arena;
    for (size_t done = 0; done < floats;) {
        size_t count = floats - done < most ? floats - done : most;
        int status = ops->download(mine->device, NULL, mine->scratch, arena + done,
                                   count * sizeof *arena, &mine->error);
        if (status == LS_OK)
            status = ops->sync(mine->device, NULL, &mine->error);
        if (status)
            return status;
        mine->checksum = ls_crc32(mine->checksum, mine->scratch, count * sizeof *arena);
        ls_beat(&mine->heartbeat, LS_PLACE_EXPORT);
        done += count;
    }
    return LS_OK;
}

int ls_worker_probe(ls_train_worker *mine, const ls_exchange *e)
{
    const struct ls_trainer *t = e->trainer;
    const uint32_t all = ls_subset_rows(t, LS_TRAIN);
    const uint32_t batch = (uint32_t)t->config.batch_size;
    uint32_t first, count;
    if (mine->index > 0)
        return LS_OK;
    ls_beat(&mine->heartbeat, LS_PLACE_OPEN);
    ls_worker_shard_rows(t, t->feed || all > batch ? batch : all, 0, &first, &count);
    for (uint32_t i = 0; i < count && !t->feed; i++)
        e->permutation[0][i] = i;
    int status =
        ls_replica_gradient(mine->replica, t->feed ? ls_feed_rows(t->feed, 0) : e->permutation[0],
                            count, 0, NULL, &mine->error);
    mine->checksum = 0;
    return status ? status
                  : add_checksum(mine, ls_replica_gradient_arena(mine->replica),
                                 ls_replica_floats(mine->replica));
}

/* ---- evaluation ----------------------------------------------------------------------------- */

int ls_worker_evaluate(ls_train_worker *mine, const ls_exchange *e)
{
    int status = ls_worker_inject(mine, e->steps, LS_STAGE_EVALUATE);
    if (status == LS_OK)
        status = ls_replica_use_average(mine->replica, true, &mine->error);
    if (status)
        return status;
    /* Asked to stop, the coordinator drops the result. */
    status = ls_infer_shards(&e->test, mine->replica, mine->shard_lo, mine->shard_hi, &mine->error);
    const int back = ls_replica_use_average(mine->replica, false, status ? NULL : &mine->error);
    return status ? status : back;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static int compute_checksum(ls_train_worker *mine)
{
    ls_replica *r = mine->replica;
    mine->checksum = 0;
    int status = add_checksum(mine, ls_replica_weight_arena(r), ls_replica_floats(r));
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (ls_replica_slot_arena(r, i))
            status = add_checksum(mine, ls_replica_slot_arena(r, i), ls_replica_tail_offset(r));
    return status;
}

/* What is evaluated, the weights or their average. */
static int export_weights(ls_train_worker *mine, float *canonical)
{
    ls_replica *r = mine->replica;
    int status = ls_replica_use_average(r, true, &mine->error);
    if (status)
        return status;
    status = ls_replica_export(r, canonical, ls_replica_weight_arena(r), &mine->error);
    const int back = ls_replica_use_average(r, false, status ? NULL : &mine->error);
    return status ? status : back;
}

static int export_state(ls_train_worker *mine, const ls_exchange *e)
{
    int status = ls_worker_inject(mine, e->steps, LS_STAGE_EXPORT);
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (e->slot[i])
            status = ls_replica_export(mine->replica, e->slot[i], arena_of(mine, i), &mine->error);
    return status ? status : export_weights(mine, e->canonical);
}

int ls_worker_snapshot(ls_train_worker *mine, const ls_exchange *e)
{
    ls_beat(&mine->heartbeat, LS_PLACE_EXPORT);
    int status = compute_checksum(mine);
    if (status == LS_OK && e->exporter == mine->index)
        status = export_state(mine, e);
    return status;
}

/* ---- otherwise than by training ------------------------------------------------------------- */

int ls_worker_load(ls_train_worker *mine, const ls_exchange *e)
{
    ls_beat(&mine->heartbeat, LS_PLACE_OPEN);
    return import_state(mine, e, true);
}

int ls_worker_leave(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ls_worker_close(w, NULL, NULL, arg);
    return LS_OK;
}
