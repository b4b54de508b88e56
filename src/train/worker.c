/* A worker's side of training: jobs that run on its thread, with its device and its replica. */
#include "base/error.h"
#include "base/split.h"
#include "train/run.h"

#include <string.h>

/* ---- opening and closing -------------------------------------------------------------------- */

/* The first row and the number of rows of a shard within a minibatch of n rows. */
static void shard_rows(const struct ls_trainer *t, uint32_t n, int shard, uint32_t *first,
                       uint32_t *count)
{
    ls_split(n, (uint32_t)t->shards, (uint32_t)shard, first, count);
}

/* Adds the shard sizes of every minibatch of one split; returns the new length. At most two sizes
 * for whole minibatches and two for the ragged one. */
static int add_shard_sizes(uint32_t *sizes, int length, const struct ls_trainer *t,
                           ls_subset subset)
{
    uint32_t rows = ls_subset_rows(t, subset), batch = (uint32_t)t->config.batch_size;
    const uint32_t minibatch[2] = {rows < batch ? rows : batch, rows % batch};
    for (int m = 0; m < 2; m++) {
        uint32_t parts = (uint32_t)t->shards;
        const uint32_t size[2] = {minibatch[m] / parts, (minibatch[m] + parts - 1) / parts};
        for (int i = 0; i < 2; i++) {
            int known = size[i] == 0;
            for (int k = 0; k < length; k++)
                known |= sizes[k] == size[i];
            if (!known)
                sizes[length++] = size[i];
        }
    }
    return length;
}

static int open_replica(ls_train_worker *mine, ls_error *err)
{
    struct ls_trainer *t = mine->trainer;
    uint32_t sizes[8];
    int count = add_shard_sizes(sizes, 0, t, LS_TRAIN);
    count = add_shard_sizes(sizes, count, t, LS_TEST);
    ls_replica_desc desc = {
        .device = mine->device,
        .model = t->model,
        .optimizer = &t->config.optimizer,
        .normalisation = t->config.preprocessing,
        .label_smoothing = (float)t->config.label_smoothing,
        .shard_rows = sizes,
        .shard_row_counts = count,
        .seed = t->config.seed,
        .host = t->host,
    };
    for (int s = 0; s < LS_SUBSETS; s++) {
        ls_dataset_view view = ls_dataset_resident(t->data[s]);
        desc.data[s].images = view.images;
        desc.data[s].labels = view.labels;
        desc.data[s].rows = ls_subset_rows(t, (ls_subset)s);
    }
    int status = ls_replica_create(&mine->replica, &desc, err);
    return status ? status
                  : ls_replica_import(mine->replica, ls_replica_weight_arena(mine->replica),
                                      t->canonical, err);
}

int ls_worker_open(const ls_worker *w, void *arg, ls_error *err)
{
    struct ls_trainer *t = arg;
    ls_train_worker *mine = &t->worker[w->index];
    mine->device = ls_worker_device(w);
    mine->device->ops->describe(mine->device, &mine->info);
    int status = open_replica(mine, err);
    if (status)
        return status;
    return ls_fold_init(&mine->fold, mine->device, ls_replica_gradient_arena(mine->replica),
                        ls_replica_floats(mine->replica), t->shards, mine->shard_lo, mine->shard_hi,
                        err);
}

int ls_worker_join(const ls_worker *w, void *arg, ls_error *err)
{
    struct ls_trainer *t = arg;
    ls_train_worker *mine = &t->worker[w->index];
    return t->group->type->join(&mine->comm, t->group, mine->rank, mine->device, err);
}

int ls_worker_close(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    struct ls_trainer *t = arg;
    ls_train_worker *mine = &t->worker[w->index];
    if (mine->comm)
        t->group->type->leave(mine->comm);
    mine->comm = NULL;
    ls_fold_fini(&mine->fold);
    ls_replica_destroy(mine->replica);
    mine->replica = NULL;
    return LS_OK;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* The gradients of this worker's shards of one minibatch, folded in tree order. */
static int compute_shards(ls_train_worker *mine, const uint32_t *rows, uint32_t n, uint32_t epoch,
                          ls_report *report, ls_error *err)
{
    ls_fold_begin(&mine->fold);
    for (int shard = mine->shard_lo; shard < mine->shard_hi; shard++) {
        uint32_t first, count;
        shard_rows(mine->trainer, n, shard, &first, &count);
        int status =
            ls_replica_gradient(mine->replica, rows + first, count, epoch, &report->times, err);
        if (status == LS_OK)
            status = ls_fold_push(&mine->fold, err);
        if (status)
            return status;
    }
    return LS_OK;
}

/* Merges, reads the tail of the sum, and applies the step. */
static int merge_and_apply(ls_train_worker *mine, uint32_t n, float lr, ls_report *report,
                           ls_error *err)
{
    const struct ls_trainer *t = mine->trainer;
    float *total = ls_replica_total_arena(mine->replica), tail[LS_TAIL];
    size_t tail_at = ls_replica_tail_offset(mine->replica);
    int status = t->group->type->all_reduce(mine->comm, NULL, mine->fold.stack, mine->fold.depth,
                                            total, &report->comm, err);
    if (status == LS_OK)
        status = mine->device->ops->download(mine->device, NULL, tail, total + tail_at, sizeof tail,
                                             err);
    if (status)
        return status;
    report->loss = tail[LS_TAIL_LOSS];
    report->correct = tail[LS_TAIL_CORRECT];
    report->rows = tail[LS_TAIL_ROWS];
    if (report->rows != (float)n)
        return ls_fail(err, LS_EINTERNAL, "%g of %u rows were computed", (double)report->rows,
                       (unsigned)n);
    float divisor = (float)(t->config.nominal ? t->config.batch_size : (long)n);
    const ls_replica_step step = {
        .lr = lr, .scale = 1.0f / divisor, .rows = n, .number = report->step + 1};
    return ls_replica_apply(mine->replica, &step, &report->times, err);
}

static void compute_step(ls_train_worker *mine, const ls_range *range, uint32_t index,
                         ls_report *report)
{
    const struct ls_trainer *t = mine->trainer;
    uint32_t batch = (uint32_t)t->config.batch_size;
    uint32_t n = ls_minibatch_rows(range->row_count, batch, index);
    report->status = compute_shards(mine, range->rows + (size_t)index * batch, n, range->epoch,
                                    report, &mine->error);
    if (report->status == LS_OK)
        report->status = merge_and_apply(mine, n, range->lr[index], report, &mine->error);
    mine->failed = report->status != LS_OK;
    /* Whoever fails releases those who wait for it. */
    if (mine->failed)
        t->group->type->abort(t->group);
}

/* The steps behind a failed one were sent before anybody knew. They are not begun: `error` belongs
 * to the coordinator once its report is on the way. */
static void run_step(ls_train_worker *mine, const ls_range *range, uint32_t index)
{
    ls_report report = {
        .step = range->first_step + index, .status = LS_EABORTED, .lr = range->lr[index]};
    if (!mine->failed)
        compute_step(mine, range, index, &report);
    ls_ring_push(&mine->reports, &report, UINT64_MAX, NULL);
}

int ls_worker_train(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    const ls_range *range = arg;
    ls_train_worker *mine = &range->trainer->worker[w->index];
    /* The report of the last step gives the range back: it may be refilled from then on. */
    const uint32_t steps = range->steps;
    for (uint32_t i = 0; i < steps; i++)
        run_step(mine, range, i);
    return LS_OK;
}

/* ---- evaluation and export ------------------------------------------------------------------ */

int ls_worker_evaluate(const ls_worker *w, void *arg, ls_error *err)
{
    struct ls_trainer *t = arg;
    ls_train_worker *mine = &t->worker[w->index];
    uint32_t rows = ls_subset_rows(t, LS_TEST), batch = (uint32_t)t->config.batch_size;
    for (uint32_t m = 0; (uint64_t)m * batch < rows; m++) {
        uint32_t n = ls_minibatch_rows(rows, batch, m);
        if (atomic_load_explicit(&t->stop, memory_order_relaxed))
            return LS_OK; /* the coordinator sees the flag too, and drops the result */
        for (int shard = mine->shard_lo; shard < mine->shard_hi; shard++) {
            uint32_t first, count;
            ls_tally *tally = &t->tally[(size_t)m * (size_t)t->shards + (size_t)shard];
            shard_rows(t, n, shard, &first, &count);
            int status = ls_replica_evaluate(mine->replica, LS_TEST,
                                             t->test_rows + (size_t)m * batch + first, count,
                                             &tally->loss, &tally->correct, err);
            if (status)
                return status;
        }
    }
    return LS_OK;
}

int ls_worker_export(const ls_worker *w, void *arg, ls_error *err)
{
    struct ls_trainer *t = arg;
    ls_train_worker *mine = &t->worker[w->index];
    if (w->index != 0)
        return LS_OK;
    return ls_replica_export(mine->replica, t->canonical, ls_replica_weight_arena(mine->replica),
                             err);
}
