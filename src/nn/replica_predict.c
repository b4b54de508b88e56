/* Rows that come and go, and what a model says of them. */
#include "nn/replica_impl.h"

#include "base/error.h"

int ls_replica_refresh(ls_replica *r, ls_subset subset, uint32_t first, uint32_t n, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const ls_replica_data *from = &r->host_data[subset];
    const ls_shape *in = &r->model->input;
    const size_t bytes = (size_t)in->c * (size_t)in->h * (size_t)in->w;
    if (n == 0 || !r->images[subset])
        return LS_OK;
    if (first > from->rows || n > from->rows - first)
        return ls_fail(err, LS_EINVAL, "replica: rows %u … of %u do not exist", (unsigned)first,
                       (unsigned)from->rows);
    int rc = ops->upload(r->device, NULL, r->images[subset] + first * bytes,
                         from->images + first * bytes, n * bytes, err);
    return rc ? rc
              : ops->upload(r->device, NULL, r->labels[subset] + first, from->labels + first, n,
                            err);
}

/* The loss runs along, on labels that mean nothing: it is not worth a plan without one. */
static int predict_block(ls_replica *r, uint32_t n, uint32_t done, float *logits, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const size_t classes = (size_t)r->model->classes;
    ls_plan *plan = ls_replica_plan_for(r, ls_replica_block_rows(r, n, done));
    const ls_node *last = &plan->node[ls_plan_output(plan)];
    r->args.rows = ls_replica_staged(r, done);
    int rc = ls_plan_gather(plan, LS_TEST, err);
    if (rc == LS_OK)
        rc = ls_plan_forward(plan, LS_TEST, 0, err);
    if (rc == LS_OK)
        rc = ops->download(r->device, NULL, logits + done * classes, r->activations + last->y_at,
                           (size_t)plan->rows * classes * sizeof *logits, err);
    return rc == LS_OK ? ops->sync(r->device, NULL, err) : rc;
}

int ls_replica_predict(ls_replica *r, uint32_t n, float *logits, ls_error *err)
{
    if (r->optimizer)
        return ls_fail(err, LS_EINVAL, "replica: one that is trained does not predict");
    if (ls_plan_output(r->plan[0]) == LS_INPUT)
        return ls_fail(err, LS_EUNSUPPORTED, "replica: the model has no layer that computes");
    if (n > r->most_rows)
        return ls_fail(err, LS_EINVAL, "replica: it was not made for %u rows", (unsigned)n);
    for (uint32_t i = 0; i < n; i++)
        r->identity[i] = i;
    int rc = ls_replica_stage_rows(r, LS_TEST, r->identity, n, err);
    for (uint32_t done = 0; done < n && rc == LS_OK; done += ls_replica_block_rows(r, n, done))
        rc = predict_block(r, n, done, logits, err);
    return rc;
}
