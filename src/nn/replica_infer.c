/* SPDX-License-Identifier: MIT */
/* Inference: the forward pass without a backward pass. The rows are computed in blocks. After each
 * block the host downloads the block's loss, its number of correct rows and, if the caller wants
 * them, its scores (the outputs of the model). */
#include "nn/replica_impl.h"

#include "base/error.h"

/* Downloads a block's loss and number of correct rows, and its scores unless `scores` is NULL. When
 * the function returns, also with an error, no download to the caller's memory is in progress. */
static int download_results(ls_replica *r, ls_plan *plan, float *scores, ls_error *err)
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
    const int sync_status = ops->sync(r->device, NULL, status ? NULL : err);
    return status ? status : sync_status;
}

/* Evaluates `n` rows: adds their loss and their number of correct rows to `sum`, and writes their
 * scores unless `scores` is NULL. The loss is computed even if the rows have no labels, and is then
 * meaningless; a second plan without the loss would take more memory and time than it saves. */
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
            status = ls_plan_forward(plan, LS_TEST, done > 0 ? LS_RUN_SAME : 0, err);
        if (status == LS_OK)
            status = download_results(r, plan, scores ? scores + done * classes : NULL, err);
        for (int i = 0; i < 2; i++)
            sum[i] += (double)r->staged_tail[i];
    }
    return status;
}

int ls_replica_evaluate(ls_replica *replica, ls_subset subset, const uint32_t *rows, uint32_t n,
                        double *loss, double *correct, float *scores, ls_error *err)
{
    double sum[2] = {0, 0}; /* loss and number of correct rows, as in the tail */
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
