/* Rows on their way to the device, and inference: what the model makes of them, forward alone. A shard
 * runs block by block; behind each block its loss and hits come home, and its scores where they are wanted. */
#include "nn/replica_impl.h"

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

/* ---- rows ----------------------------------------------------------------------------------- */

ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows)
{
    for (int i = 0; i < r->plans; i++)
        if ((uint32_t)r->plan[i]->rows == rows)
            return r->plan[i];
    return NULL;
}

uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done)
{
    uint32_t block = (uint32_t)r->info.block_rows;
    return block > 0 && n - done > block ? block : n - done;
}

static bool has_plans(const ls_replica *r, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += ls_replica_block_rows(r, n, done))
        if (!ls_replica_plan_for(r, ls_replica_block_rows(r, n, done)))
            return false;
    return true;
}

uint32_t ls_replica_most_calls(const ls_replica *r)
{
    return r->optimizer && r->device->ops->record_next ? LS_UNROLLED : 1;
}

int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          uint32_t calls, ls_error *err)
{
    const char *name = subset == LS_TRAIN ? "training" : "test";
    const size_t all = (size_t)n * calls;
    if (!r->data[subset].images)
        return ls_fail(err, LS_EINVAL, "replica: it was made without %s data", name);
    if (n > r->most_rows || !has_plans(r, n))
        return ls_fail(err, LS_EINVAL, "replica: it was not made for shards of %u rows",
                       (unsigned)n);
    if (calls > ls_replica_most_calls(r))
        return ls_fail(err, LS_EINVAL, "replica: it was not made for %u steps at once",
                       (unsigned)calls);
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

const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done)
{
    return (r->device_rows ? r->device_rows : r->staged_rows) + done;
}
int ls_replica_refresh(ls_replica *r, ls_subset subset, uint32_t first, uint32_t n, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const ls_replica_data *from = &r->host_data[subset];
    if (n == 0 || !r->images[subset])
        return LS_OK;
    if (first > from->rows || n > from->rows - first)
        return ls_fail(err, LS_EINVAL, "replica: rows %u … of %u do not exist", (unsigned)first,
                       (unsigned)from->rows);
    const size_t image = first * r->image_bytes, label = first * r->label_bytes;
    int status = ops->upload(r->device, NULL, (char *)r->images[subset] + image,
                             (const char *)from->images + image, n * r->image_bytes, err);
    return status ? status
                  : ops->upload(r->device, NULL, (char *)r->labels[subset] + label,
                                (const char *)from->labels + label, n * r->label_bytes, err);
}

/* ---- inference ------------------------------------------------------------------------------ */

/* A block's loss and hits into the host's memory, and its scores, unless they are NULL. Nothing is on its way to
 * the caller's memory behind it, whatever it gives. */
static int bring_home(ls_replica *r, ls_plan *plan, float *scores, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const size_t bytes = (size_t)plan->rows * (size_t)r->model->classes * sizeof *scores;
    size_t at = 0;
    int status = scores ? ls_plan_scores(&at, plan, err) : LS_OK;
    if (status == LS_OK && scores)
        status = ops->download(r->device, NULL, scores, r->activations + at, bytes, err);
    if (status == LS_OK)
        status = ops->download(r->device, NULL, r->staged_tail, r->test_stats,
                               2 * sizeof *r->staged_tail, err);
    const int synced = ops->sync(r->device, NULL, status ? NULL : err);
    return status ? status : synced;
}

/* Rows of one call → their loss and hits, added to `sum`, and their scores. Where only these are wanted the loss
 * runs along, on labels that may mean nothing: it is not worth a plan without one. */
static int infer(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n, float *scores,
                 double sum[2], ls_error *err)
{
    const size_t classes = (size_t)r->model->classes;
    int status = n > 0 ? ls_replica_stage_rows(r, subset, rows, n, 1, err) : LS_OK;
    for (uint32_t done = 0; done < n && status == LS_OK;
         done += ls_replica_block_rows(r, n, done)) {
        ls_plan *plan = ls_replica_plan_for(r, ls_replica_block_rows(r, n, done));
        r->args.rows = ls_replica_staged(r, done);
        status = ls_replica_bind_again(r, plan, err);
        if (status == LS_OK)
            status = ls_plan_gather(plan, subset, err);
        if (status == LS_OK)
            status = ls_plan_forward(plan, LS_TEST, 0, err);
        if (status == LS_OK)
            status = bring_home(r, plan, scores ? scores + done * classes : NULL, err);
        for (int i = 0; i < 2; i++)
            sum[i] += (double)r->staged_tail[i];
    }
    return status;
}

int ls_replica_evaluate(ls_replica *replica, ls_subset subset, const uint32_t *rows, uint32_t n,
                        double *loss, double *correct, float *scores, ls_error *err)
{
    double sum[2] = {0, 0}; /* as the tail begins: loss, hits */
    int status = infer(replica, subset, rows, n, scores, sum, err);
    if (status)
        return status;
    *loss = sum[LS_TAIL_LOSS];
    *correct = sum[LS_TAIL_CORRECT];
    return LS_OK;
}

int ls_replica_predict(ls_replica *r, const uint32_t *rows, uint32_t n, float *logits,
                       ls_error *err)
{
    if (r->optimizer)
        return ls_fail(err, LS_EINVAL, "replica: one that is trained does not predict");
    if (ls_plan_output(r->plan[0]) == LS_INPUT)
        return ls_fail(err, LS_EUNSUPPORTED, "replica: the model has no layer that computes");
    double unused[2] = {0, 0};
    return infer(r, LS_TEST, rows, n, logits, unused, err);
}
