/* SPDX-License-Identifier: MIT */
/* The jobs of a worker, which run on its thread with its device and replica. */
#include "engine/worker.h"
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "merge/group.h"

#include <lockstep/split.h>
#include <string.h>

/* ---- opening and closing -------------------------------------------------------------------- */

/* Largest number of different shard sizes (numbers of rows) in a run. */
enum { SIZES = LS_SHARD_SIZES * (LS_SUBSETS + 1 + LS_STEP_ROWS) };

/* Writes the different numbers of rows that shards can have to `sizes`, and returns how many there
 * are. The first *trained of these numbers occur in training; the others occur only in
 * evaluations. */
static int list_shard_sizes(uint32_t sizes[SIZES], int *trained, const ls_engine *e)
{
    const ls_engine_desc *d = &e->desc;
    const uint32_t batch = d->batch_size, shards = (uint32_t)e->shards;
    int count = ls_add_shard_sizes(sizes, 0, ls_dataset_rows(d->data[LS_TRAIN]), batch, shards);
    if (e->streams)
        count = ls_add_shard_sizes(sizes, count, batch, batch, shards);
    for (int i = 0; i < d->step_row_count; i++) {
        const uint32_t rows = d->step_rows[i];
        count = ls_add_shard_sizes(sizes, count, rows, rows, shards);
    }
    *trained = count;
    return ls_add_shard_sizes(sizes, count, ls_dataset_rows(d->data[LS_TEST]),
                              ls_evaluation_batch(batch, shards), shards);
}

/* Returns the replica's arena that corresponds to the exchange's array state.slot[i]. Usually the
 * result is the replica's slot `i`. With a moving average, the exchange has the average in
 * state.canonical and the trained weights in slot number `average`, whereas the replica has the
 * trained weights in its weight arena. So the result for slot number `average` is the weight
 * arena. */
static float *arena_of(const ls_train_worker *w, int i)
{
    ls_replica *r = w->replica;
    const int average = ls_optimizer_average(w->engine->desc.optimizer);
    return i == average ? ls_replica_weight_arena(r) : ls_replica_slot_arena(r, i);
}

/* Copies the exchange's weights to the replica. If `slots` is true, also copies the exchange's
 * slots. */
static int import_state(ls_train_worker *w, const ls_exchange *x, bool slots)
{
    ls_replica *r = w->replica;
    const int average = ls_optimizer_average(w->engine->desc.optimizer);
    int status = ls_replica_import(r, ls_replica_weight_arena(r), x->state.canonical, &w->error);
    if (status == LS_OK && average >= 0)
        status =
            ls_replica_import(r, ls_replica_slot_arena(r, average), x->state.canonical, &w->error);
    for (int i = 0; status == LS_OK && slots && i < LS_STATES; i++)
        if (x->state.slot[i])
            status = ls_replica_import(r, arena_of(w, i), x->state.slot[i], &w->error);
    return status;
}

/* Returns whether the replica's total is put into an array of the engine or of the fold when the
 * worker joins a group, which needs ls_worker_rebinds. If not, the replica allocates its own total.
 * A replica that keeps a moving average needs its own total: while the average is evaluated, the
 * replica keeps its trained weights in that memory (ls_replica_use_average). */
static bool has_total_later(const ls_train_worker *w)
{
    return ls_worker_rebinds(w) && w->engine->desc.optimizer->ema == 0;
}

static int open_replica(ls_train_worker *w, const ls_exchange *x)
{
    ls_engine *e = w->engine;
    const ls_engine_desc *d = &e->desc;
    uint32_t sizes[SIZES];
    int trained = 0;
    const int size_count = list_shard_sizes(sizes, &trained, e);
    ls_replica_desc desc = {
        .device = w->device,
        .model = x->model,
        .optimizer = d->optimizer,
        .normalisation = *d->preprocessing,
        .loss = d->loss,
        .label_smoothing = d->label_smoothing,
        .vector_loss = d->vector_loss,
        .class_weight = d->class_weight,
        .scores = d->scores,
        .total_later = has_total_later(w),
        .shard_rows = sizes,
        .shard_row_counts = size_count,
        .trained_row_counts = trained,
        .seed = d->seed,
        .heartbeat = &w->heartbeat,
        .host = d->host,
    };
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_dataset_view view = ls_dataset_resident(d->data[s]);
        const uint32_t rows = ls_dataset_rows(d->data[s]);
        if (rows > 0)
            desc.data[s] = (ls_replica_data){.images = view.images,
                                             .labels = view.labels,
                                             .weights = view.weights,
                                             .rows = view.rows};
    }
    w->feed = e->feed;
    if (w->feed) {
        desc.data[LS_TRAIN] = ls_feed_data(w->feed);
        desc.copies_training_data =
            (w->info.flags & LS_DEVICE_HOST_MEMORY) && !ls_worker_rebinds(w);
    }
    int status = ls_replica_create(&w->replica, &desc, &w->error);
    return status ? status : import_state(w, x, x->state.has_slots);
}

/* Initialises the fold for the worker's shards. In spread mode (ls_worker_spreads) each shard's
 * gradient has an arena of its own, and gradients are added late. Shards can be dealt: a `deal`
 * distributes them while the workers run (sync/deal.h). Then `hand` contains the shards that this
 * worker has taken, and `reach` is the range of all shards that it can get. */
static int open_fold(ls_train_worker *w)
{
    int status = ls_fold_init(&w->fold, w->device, ls_replica_gradient_arena(w->replica),
                              ls_replica_floats(w->replica), w->engine->shards, w->shard_lo,
                              w->shard_hi, &w->error);
    if (status != LS_OK || !ls_worker_spreads(w))
        return status;
    if (!w->engine->deal)
        return ls_fold_spread(&w->fold, &w->error);
    ls_span reach;
    ls_deal_join(&w->hand, w->engine->deal, w->rank);
    ls_deal_reach(&w->hand, &reach.lo, &reach.hi);
    return ls_fold_deal(&w->fold, reach, w->hand.lo, &w->error);
}

int ls_worker_describe(ls_train_worker *w, const ls_exchange *x)
{
    (void)x;
    w->device->ops->describe(w->device, &w->info);
    return LS_OK;
}

/* The choices say which kernel (code of the device) computes which op. ls_worker_open hands the
 * choices of worker 0 to every worker's device. (The message calls them plans.) */
int ls_worker_choices(ls_train_worker *w, const ls_exchange *x)
{
    (void)x;
    ls_engine *e = w->engine;
    if (w->index > 0)
        return LS_OK;
    const size_t bytes = w->device->ops->choices(w->device, NULL, 0) + 1;
    e->choices = ls_alloc(e->desc.host, bytes);
    if (!e->choices)
        return ls_fail(&w->error, LS_ENOMEM, "out of memory for plans");
    w->device->ops->choices(w->device, e->choices, bytes);
    return LS_OK;
}

int ls_worker_open(ls_train_worker *w, const ls_exchange *x)
{
    const ls_engine *e = w->engine;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    w->device->ops->describe(w->device, &w->info);
    if (e->desc.opened)
        e->desc.opened(e->desc.user, w->index, w->device);
    w->scratch = ls_alloc(e->desc.host, LS_SCRATCH);
    int status = w->scratch ? LS_OK : ls_fail(&w->error, LS_ENOMEM, "out of memory");
    if (status == LS_OK && e->choices)
        status = w->device->ops->choose(w->device, e->choices, &w->error);
    if (status == LS_OK)
        status = open_replica(w, x);
    return status;
}

/* Moves the fold to the list of old folds, because a stalled worker of the old group can still read
 * these partial sums. In the old group the total was possibly computed *by pieces*: each worker
 * adds a piece of the total immediately before it updates the weights of that piece (comm/comm.h).
 * The stalled worker can then have stalled anywhere in its update, and still read a partial sum of
 * this worker in its gradient arena, the gradient of a single shard. Therefore this worker also
 * gets a new gradient arena, and the replica keeps the old one. */
static int put_fold_away(ls_train_worker *w)
{
    ls_old_fold *old = ls_alloc(w->engine->desc.host, sizeof *old);
    if (!old)
        return ls_fail(&w->error, LS_ENOMEM, "out of memory for a fold");
    int status = w->by_pieces ? ls_replica_renew_gradient(w->replica, &w->error) : LS_OK;
    if (status) {
        ls_free(w->engine->desc.host, old);
        return status;
    }
    *old = (ls_old_fold){.fold = w->fold, .next = w->old_folds};
    w->old_folds = old;
    memset(&w->fold, 0, sizeof w->fold);
    w->keep_fold = false;
    return LS_OK;
}

/* Makes the replica read training rows from the engine's present feed. The engine replaces its feed
 * after a worker has stalled. */
static int take_feed(ls_train_worker *w)
{
    if (w->feed == w->engine->feed)
        return LS_OK;
    const ls_replica_data data = ls_feed_data(w->engine->feed);
    w->feed = w->engine->feed;
    return ls_replica_data_at(w->replica, LS_TRAIN, &data, &w->error);
}

/* The worker's shards can differ from its shards in the old group, so everything that belongs to
 * the old group is released first. */
int ls_worker_join(ls_train_worker *w, const ls_exchange *x)
{
    (void)x;
    ls_engine *e = w->engine;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    if (w->comm)
        w->comm->group->type->leave(w->comm);
    w->comm = NULL;
    w->hand = (ls_hand){0};
    w->failed = false;
    /* The gradient and the total can lie in memory of the fold and of the group, and that memory is
     * freed below. */
    ls_replica_own_arenas(w->replica);
    int status = w->keep_fold ? put_fold_away(w) : LS_OK;
    if (status || w->device_failed)
        return status;
    ls_fold_fini(&w->fold);
    status = take_feed(w);
    if (status == LS_OK)
        status = open_fold(w);
    if (status == LS_OK && has_total_later(w))
        status = ls_replica_total_at(
            w->replica, e->sums_in_place ? ls_fold_root(&w->fold) : e->total, &w->error);
    if (status == LS_OK)
        status = e->group->type->join(&w->comm, e->group, w->rank, w->device, &w->error);
    /* A group can load a library that adds gradients, which then belongs to the description. */
    if (status == LS_OK)
        w->device->ops->describe(w->device, &w->info);
    w->by_pieces = e->by_pieces;
    if (status == LS_OK && w->by_pieces)
        status = ls_replica_prepare_pieces(w->replica, &w->error);
    w->compares = (e->live > 1 || e->desc.cluster) && ls_replica_set_digests(w->replica, true);
    if (!w->compares)
        ls_replica_set_digests(w->replica, false);
    if (status == LS_OK)
        status = ls_worker_choose_steps(w);
    return status;
}

/* The old replica and its fold are kept if a stalled worker can still read them (put_fold_away). */
int ls_worker_renew(ls_train_worker *w, const ls_exchange *x)
{
    ls_replica *old = w->replica;
    const ls_host *host = w->engine->desc.host;
    ls_old_fold *kept = NULL;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    if (w->engine->old_groups && !(kept = ls_alloc(host, sizeof *kept)))
        return ls_fail(&w->error, LS_ENOMEM, "out of memory for a fold");
    w->replica = NULL;
    int status = open_replica(w, x);
    if (status) {
        ls_replica_destroy(w->replica);
        ls_free(host, kept);
        w->replica = old;
        return status;
    }
    if (w->comm)
        w->comm->group->type->leave(w->comm);
    w->comm = NULL;
    w->hand = (ls_hand){0};
    ls_replica_own_arenas(old);
    if (kept) {
        *kept = (ls_old_fold){w->fold, old, w->old_folds};
        w->old_folds = kept;
        memset(&w->fold, 0, sizeof w->fold);
        return LS_OK;
    }
    ls_fold_fini(&w->fold);
    ls_replica_destroy(old);
    return LS_OK;
}

int ls_worker_check(ls_train_worker *w, const ls_exchange *x)
{
    (void)x;
    ls_engine *e = w->engine;
    ls_replica *r = w->replica;
    ls_beat(&w->heartbeat, LS_PLACE_WAIT);
    const ls_merge_check check = {.comm = w->comm,
                                  .device = w->device,
                                  .shards = e->shards,
                                  .floats = ls_replica_floats(r),
                                  .scratch = ls_replica_gradient_arena(r),
                                  .total = ls_replica_total_arena(r),
                                  .host = e->desc.host};
    int status = ls_merge_check_group(&check, &w->error);
    /* Sets the gradient arena to zero, because the check has used it. (The gradient of no rows is
     * zero.) */
    if (status == LS_OK)
        status = ls_replica_gradient(r, NULL, 0, 0, NULL, &w->error);
    return status;
}

/* Frees nothing if `readers_asleep` is set: then a stalled worker can still read this worker's
 * partial sums. */
void ls_worker_close(const ls_worker *thread, ls_device *device, void *local, void *user)
{
    (void)device;
    (void)local;
    ls_engine *e = user;
    if (!e->worker || e->readers_asleep)
        return;
    ls_train_worker *w = &e->worker[thread->index];
    if (w->comm)
        w->comm->group->type->leave(w->comm);
    while (w->old_folds) {
        ls_old_fold *old = w->old_folds;
        w->old_folds = old->next;
        ls_fold_fini(&old->fold);
        ls_replica_destroy(old->replica);
        ls_free(e->desc.host, old);
    }
    ls_fold_fini(&w->fold);
    ls_replica_destroy(w->replica);
    ls_free(e->desc.host, w->scratch);
}

/* ---- checksums ------------------------------------------------------------------------------ */

/* Adds the first `floats` floats of an arena to a checksum. */
static int add_checksum(uint32_t *sum, ls_train_worker *w, const float *arena, size_t floats)
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
        *sum = ls_crc32(*sum, w->scratch, count * sizeof *arena);
        ls_beat(&w->heartbeat, LS_PLACE_EXPORT);
        done += count;
    }
    return LS_OK;
}

/* The processes of a run compare this checksum to find out whether their devices compute the same
 * bits. */
int ls_worker_probe(ls_train_worker *w, const ls_exchange *x)
{
    const ls_engine *e = w->engine;
    const uint32_t all = ls_dataset_rows(e->desc.data[LS_TRAIN]);
    const uint32_t batch = e->desc.batch_size;
    uint32_t first, count;
    if (w->index != ls_first_live(e))
        return LS_OK;
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    ls_split(w->feed || all > batch ? batch : all, (uint32_t)e->shards, 0, &first, &count);
    for (uint32_t i = 0; i < count && !w->feed; i++)
        x->permutation[0][i] = i;
    int status =
        ls_replica_gradient(w->replica, w->feed ? ls_feed_rows(w->feed, 0) : x->permutation[0],
                            count, 0, NULL, &w->error);
    w->checksum = 0;
    return status ? status
                  : add_checksum(&w->checksum, w, ls_replica_gradient_arena(w->replica),
                                 ls_replica_floats(w->replica));
}

/* ---- evaluation ----------------------------------------------------------------------------- */

int ls_worker_refresh_test(ls_train_worker *w, const ls_exchange *x)
{
    return ls_replica_refresh(w->replica, LS_TEST, 0, x->test.rows, &w->error);
}

int ls_worker_evaluate(ls_train_worker *w, const ls_exchange *x)
{
    /* executes faults that a test has planned for this stage (engine/inject.h) */
    int status = ls_worker_inject(w, x->steps, LS_STAGE_EVALUATE);
    if (status == LS_OK)
        status = ls_replica_use_average(w->replica, true, &w->error);
    if (status)
        return status;
    /* If the run is asked to stop, ls_infer_shards ends early, and the coordinator discards the
     * results. */
    status = ls_infer_shards(&x->test, w->replica, w->shard_lo, w->shard_hi, &w->error);
    const int reset_status = ls_replica_use_average(w->replica, false, status ? NULL : &w->error);
    return status ? status : reset_status;
}

/* ---- models ------------------------------------------------------------------------------ */

/* Computes the checksum of the weight arena and of the slots. A slot has values for the parameters
 * only, so its checksum ends at the offset of the tail. */
int ls_worker_sum_state(uint32_t *sum, ls_train_worker *w)
{
    ls_replica *r = w->replica;
    *sum = 0;
    int status = add_checksum(sum, w, ls_replica_weight_arena(r), ls_replica_floats(r));
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (ls_replica_slot_arena(r, i))
            status = add_checksum(sum, w, ls_replica_slot_arena(r, i), ls_replica_tail_offset(r));
    if (status == LS_OK)
        ls_worker_take_late_digest(w);
    return status;
}

int ls_worker_settle(ls_train_worker *w, const ls_exchange *x)
{
    (void)x;
    const int status = ls_replica_sync(w->replica, &w->error);
    if (status == LS_OK)
        ls_worker_take_late_digest(w);
    return status;
}

/* Copies the weights with which the run is evaluated to `canonical`: the moving average if one is
 * kept, or the trained weights. */
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

static int export_state(ls_train_worker *w, const ls_exchange *x)
{
    int status = ls_worker_inject(w, x->steps, LS_STAGE_EXPORT);
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (x->state.slot[i])
            status = ls_replica_export(w->replica, x->state.slot[i], arena_of(w, i), &w->error);
    return status ? status : export_weights(w, x->state.canonical);
}

int ls_worker_copy_state(ls_train_worker *w, const ls_exchange *x)
{
    ls_beat(&w->heartbeat, LS_PLACE_EXPORT);
    int status = ls_worker_sum_state(&w->checksum, w);
    if (status == LS_OK && x->exporter == w->index)
        status = export_state(w, x);
    return status;
}

/* ---- loading and leaving -------------------------------------------------------------------- */

int ls_worker_load(ls_train_worker *w, const ls_exchange *x)
{
    ls_beat(&w->heartbeat, LS_PLACE_OPEN);
    return import_state(w, x, true);
}

int ls_worker_leave(const ls_worker *thread, void *arg, ls_error *err)
{
    (void)err;
    ls_worker_close(thread, NULL, NULL, arg);
    return LS_OK;
}
