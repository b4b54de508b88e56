/* What a step repeats, recorded once: the device then gets it in one piece. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

int ls_replica_recordings(const ls_replica *r)
{
    int count = r->step != NULL;
    for (int i = 0; i < r->plans; i++)
        count += r->plan[i]->recording != NULL;
    return count;
}

/* A recording is of whole shards: one that is worked through in blocks adds up with other flags. */
static int can_record(const ls_replica *r)
{
    return r->device->ops->record_begin && r->update && r->data[LS_TRAIN].images &&
           r->data[LS_TRAIN].rows > 0 && r->info.block_rows == 0;
}

/* ---- before anything is recorded ------------------------------------------------------------ */

static int make_tails(ls_replica *r, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    void *memory = NULL;
    int rc = ls_replica_alloc(r, &memory, (size_t)r->plans * LS_TAIL * sizeof(float),
                              &r->memory.arenas, err);
    r->row_tails = memory;
    for (int i = 0; i < r->plans && rc == LS_OK; i++) {
        const float rows = (float)r->plan[i]->rows;
        rc = ops->upload(r->device, NULL, r->row_tails + i * LS_TAIL + LS_TAIL_ROWS, &rows,
                         sizeof rows, err);
    }
    return rc;
}

/* A kernel's first run loads it, which must not happen while it is recorded. The rows are row 0. */
static int run_once(ls_replica *r, ls_error *err)
{
    int rc = LS_OK;
    r->args.rows = ls_replica_staged(r, 0);
    r->args.step = 1;
    for (int i = 0; i < r->plans && rc == LS_OK; i++) {
        rc = ls_plan_gather(r->plan[i], LS_TRAIN, err);
        if (rc == LS_OK)
            rc = ls_plan_forward(r->plan[i], LS_TRAIN, 0, err);
        if (rc == LS_OK)
            rc = ls_plan_backward(r->plan[i], 0, err);
    }
    if (rc == LS_OK)
        rc = ls_replica_enqueue_step(r, err);
    return rc == LS_OK ? ls_replica_sync(r, err) : rc;
}

/* ---- recording ------------------------------------------------------------------------------ */

/* All but what the loss op puts there. */
static int copy_tail(ls_replica *r, int i, ls_error *err)
{
    float *tail = r->arena[GRADIENT] + r->tail_at;
    const float *from = r->row_tails + i * LS_TAIL;
    return r->device->ops->copy(r->device, NULL, tail + LS_TAIL_ROWS, from + LS_TAIL_ROWS,
                                (LS_TAIL - LS_TAIL_ROWS) * sizeof *tail, err);
}

/* i < plans: a shard's gradient; else the step. */
static int enqueue(ls_replica *r, int i, ls_error *err)
{
    if (i == r->plans)
        return ls_replica_enqueue_step(r, err);
    int rc = ls_plan_gather(r->plan[i], LS_TRAIN, err);
    if (rc == LS_OK)
        rc = ls_plan_forward(r->plan[i], LS_TRAIN, 0, err);
    if (rc == LS_OK)
        rc = ls_plan_backward(r->plan[i], 0, err);
    return rc == LS_OK ? copy_tail(r, i, err) : rc;
}

/* What could not be recorded is NULL. */
static int record(ls_recording **out, ls_replica *r, int i, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    *out = NULL;
    int rc = ops->record_begin(r->device, NULL, err);
    if (rc != LS_OK)
        return rc;
    rc = enqueue(r, i, err);
    int ended = ops->record_end(out, r->device, NULL, rc == LS_OK ? err : NULL);
    if (rc != LS_OK && *out) {
        ops->recording_destroy(r->device, *out);
        *out = NULL;
    }
    return rc == LS_OK ? ended : rc;
}

int ls_replica_record(ls_replica *r, ls_error *err)
{
    ls_error why = {0};
    if (!can_record(r))
        return LS_OK;
    int rc = make_tails(r, err);
    if (rc == LS_OK)
        rc = run_once(r, err);
    if (rc != LS_OK)
        return rc;
    for (int i = 0; i < r->plans && rc == LS_OK; i++)
        rc = record(&r->plan[i]->recording, r, i, &why);
    if (rc == LS_OK && r->runnings > 0) /* one op alone is enqueued faster by itself */
        rc = record(&r->step, r, r->plans, &why);
    if (rc == LS_OK)
        return LS_OK;
    if (rc == LS_ENOMEM)
        return ls_fail(err, rc, "%s", why.text);
    ls_log(r->host, LS_LOG_WARNING, "%s: what it cannot record of a step runs op by op: %s",
           r->info.name, why.text);
    return ls_replica_sync(r, err); /* unless the device itself failed */
}
