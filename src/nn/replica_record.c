/* What a step repeats, recorded once: the device then gets it in one piece. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

int ls_replica_recordings(const ls_replica *r)
{
    int count = r->step != NULL;
    for (int i = 0; i < r->plans; i++) {
        count += r->plan[i]->recording != NULL;
        for (int p = 0; p < LS_BUCKETS; p++)
            count += r->plan[i]->piece[p] != NULL;
        for (int p = 0; p < LS_IN_PLACES; p++)
            count += (r->plan[i]->whole[p] != NULL) + (r->plan[i]->unrolled[p] != NULL);
    }
    return count;
}

/* A recording is of whole shards: one that is worked through in blocks adds up with other flags. */
static int can_record(const ls_replica *r)
{
    return r->device->ops->record_begin && r->optimizer && r->data[LS_TRAIN].images &&
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
        rc = ls_replica_enqueue_step(r, OF_TOTAL, err);
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

/* What is recorded as one. */
typedef struct part {
    enum { SHARD, PIECE, STEP, WHOLE, UNROLLED } kind;
    int plan, number; /* of the piece, of the place of whole steps */
} part;

static int enqueue_gradient(ls_replica *r, const part *what, ls_error *err)
{
    ls_plan *plan = r->plan[what->plan];
    const int cut = what->kind == PIECE;
    const int first = cut ? ls_replica_piece_begin(r, what->number) : plan->nodes - 1;
    const int last = cut ? r->piece[what->number].node : 0;
    int rc = LS_OK;
    if (first == plan->nodes - 1) {
        rc = ls_plan_gather(plan, LS_TRAIN, err);
        if (rc == LS_OK)
            rc = ls_plan_forward(plan, LS_TRAIN, 0, err);
    }
    if (rc == LS_OK)
        rc = ls_plan_backward_part(plan, first, last, 0, err);
    return rc == LS_OK && last == 0 ? copy_tail(r, what->plan, err) : rc;
}

/* A gradient that is the sum, the step, and what the host wants to know of it. */
static int enqueue_whole(ls_replica *r, const part *what, int k, ls_error *err)
{
    int rc = enqueue_gradient(r, what, err);
    if (rc == LS_OK)
        rc = ls_replica_enqueue_step(r, OF_GRADIENT, err);
    if (rc != LS_OK)
        return rc;
    return r->device->ops->download(r->device, NULL, ls_replica_tail_of(r, what->number, k),
                                    r->arena[GRADIENT] + r->tail_at, LS_TAIL * sizeof(float), err);
}

static int enqueue_unrolled(ls_replica *r, const part *what, ls_error *err)
{
    int rc = enqueue_whole(r, what, 0, err);
    for (int k = 1; k < LS_UNROLLED && rc == LS_OK; k++) {
        rc = r->device->ops->record_next(r->device, NULL, err);
        if (rc == LS_OK)
            rc = enqueue_whole(r, what, k, err);
    }
    return rc;
}

static int enqueue(ls_replica *r, const part *what, ls_error *err)
{
    switch (what->kind) {
    case STEP: return ls_replica_enqueue_step(r, OF_TOTAL, err);
    case WHOLE: return enqueue_whole(r, what, 0, err);
    case UNROLLED: return enqueue_unrolled(r, what, err);
    default: return enqueue_gradient(r, what, err);
    }
}

/* What could not be recorded is NULL. */
static int record(ls_recording **out, ls_replica *r, const part *what, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    *out = NULL;
    int rc = ops->record_begin(r->device, NULL, err);
    if (rc != LS_OK)
        return rc;
    rc = enqueue(r, what, err);
    int ended = ops->record_end(out, r->device, NULL, rc == LS_OK ? err : NULL);
    if (rc != LS_OK && *out) {
        ops->recording_destroy(r->device, *out);
        *out = NULL;
    }
    return rc == LS_OK ? ended : rc;
}

/* What was refused runs op by op, unless it was for want of memory or the device itself failed. */
static int judge(ls_replica *r, int rc, const ls_error *why, ls_error *err)
{
    if (rc == LS_OK)
        return LS_OK;
    if (rc == LS_ENOMEM)
        return ls_fail(err, rc, "%s", why->text);
    ls_log(r->host, LS_LOG_WARNING, "%s: what it cannot record of a step runs op by op: %s",
           r->info.name, why->text);
    return ls_replica_sync(r, err);
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
        rc = record(&r->plan[i]->recording, r, &(part){SHARD, i, 0}, &why);
    if (rc == LS_OK && r->runnings > 0) /* one op alone is enqueued faster by itself */
        rc = record(&r->step, r, &(part){STEP, 0, 0}, &why);
    return judge(r, rc, &why, err);
}

/* All `count` parts of a plan, or none. */
static int record_parts(ls_recording **out, int count, ls_replica *r, part what, ls_error *err)
{
    int rc = LS_OK;
    for (what.number = 0; what.number < count && rc == LS_OK; what.number++)
        rc = record(&out[what.number], r, &what, err);
    for (int p = 0; p < count && rc != LS_OK; p++) {
        if (out[p])
            r->device->ops->recording_destroy(r->device, out[p]);
        out[p] = NULL;
    }
    return rc;
}

int ls_replica_record_pieces(ls_replica *r, ls_error *err)
{
    ls_error why = {0};
    int rc = LS_OK;
    for (int i = 0; i < r->plans && rc == LS_OK; i++)
        if (r->plan[i]->recording && !r->plan[i]->piece[0])
            rc = record_parts(r->plan[i]->piece, r->pieces, r, (part){PIECE, i, 0}, &why);
    return judge(r, rc, &why, err);
}

/* Whole minibatches have most rows. */
static int record_unrolled(ls_replica *r, ls_error *err)
{
    ls_plan *largest = r->plan[0];
    if (!largest->whole[0] || largest->unrolled[0] || ls_replica_most_calls(r) < LS_UNROLLED ||
        r->memory.arenas + r->memory.activations > LS_UNROLL_BYTES)
        return LS_OK;
    return record_parts(largest->unrolled, LS_IN_PLACES, r, (part){UNROLLED, 0, 0}, err);
}

int ls_replica_record_whole(ls_replica *r, ls_error *err)
{
    ls_error why = {0};
    int rc = LS_OK;
    for (int i = 0; i < r->plans && rc == LS_OK; i++)
        if (r->plan[i]->recording && !r->plan[i]->whole[0])
            rc = record_parts(r->plan[i]->whole, LS_IN_PLACES, r, (part){WHOLE, i, 0}, &why);
    if (rc == LS_OK)
        rc = record_unrolled(r, &why);
    return judge(r, rc, &why, err);
}
