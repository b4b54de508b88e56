/* SPDX-License-Identifier: MIT */
/* The functions of a replica that run in every step. They allocate nothing.
 *
 * A step is a program, a list of segments (replica_impl.h). A segment runs in one of two ways:
 *
 * - op by op: each op is enqueued on the device;
 * - as a recording, if the device supports recordings (in CUDA, graphs). The ops are captured once,
 *   before training; after that, one launch enqueues all of them.
 *
 * If a minibatch has one shard, one launch can run a whole step, the update included; a launch of a
 * small model runs several whole steps (replica.h). The host enqueues the next launch before it
 * knows the losses of this one. For that purpose there are LS_RESULT_SLOTS result slots, which are
 * used in turn. */
#include "nn/replica_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

_Static_assert(LS_UNROLLED <= LS_RECORD_STEPS, "a recording has room for as many steps");
_Static_assert(LS_TAIL_LOSS == 0 && LS_TAIL_ROWS == LS_OP_STATS,
               "the tail begins with the floats of the loss op");

/* ---- rows ----------------------------------------------------------------------------------- */

/* Returns whether there are plans for all blocks of a shard of `n` rows. */
static bool has_plans(const ls_replica *r, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += ls_replica_block_rows(r, n, done))
        if (!ls_replica_plan_for(r, ls_replica_block_rows(r, n, done)))
            return false;
    return true;
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

/* ---- queries of recordings ------------------------------------------------------------------- */

static bool is_recorded(const ls_plan *plan, int program)
{
    return plan->program[program].segment[0].recording != NULL;
}

/* Returns whether gradients are computed bucket by bucket. */
static bool by_buckets(const ls_replica *r)
{
    return r->ready && r->plan[0]->program[LS_GRADIENT_BY_BUCKETS].segments > 1;
}

/* ---- running -------------------------------------------------------------------------------- */

/* Arguments for running a segment. */
typedef struct segment_run {
    ls_plan *plan; /* NULL if the segment is `apply` */
    ls_segment *segment;
    unsigned flags; /* flags with which the segment's ops run */
    ls_replica_times *times;
} segment_run;

/* Returns the time since *since in seconds, and sets *since to the present time of ls_now_ns. */
static double elapsed_s(uint64_t *since)
{
    const uint64_t begin = *since;
    *since = ls_now_ns();
    return (double)(*since - begin) * 1e-9;
}

/* Enqueues the ops that update parameters, running statistics and the moving average. The ops read
 * the arena `sum`: this replica's gradient, or the total. */
static int enqueue_updates(ls_replica *r, ls_sum sum, ls_error *err)
{
    const ls_updates *u = &r->updates[sum];
    int status = LS_OK;
    for (int i = 0; i < u->count && status == LS_OK; i++)
        status = u->list[i].op->impl->forward(u->list[i].op, NULL, u->list[i].flags, err);
    return status;
}

/* Writes the floats of the tail that the loss op does not write: the number of rows, and zeros. If
 * the plan has a constant tail in device memory (for recordings), copies these floats from
 * there. */
static int write_tail(ls_replica *r, const ls_plan *plan, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    float *tail = r->arena[GRADIENT] + r->tail_at + LS_TAIL_ROWS;
    const size_t bytes = (LS_TAIL - LS_TAIL_ROWS) * sizeof *tail;
    return plan->tail
               ? ops->copy(r->device, NULL, tail, plan->tail + LS_TAIL_ROWS, bytes, err)
               : ops->upload(r->device, NULL, tail, r->staged_tail + LS_TAIL_ROWS, bytes, err);
}

/* Returns the tail of step `k` of the launch that uses the result slot `slot`. The tail is in
 * pinned host memory. The device copies the loss and the number of correct rows to it; the host
 * writes the number of rows. */
static float *tail_of(const ls_replica *r, int slot, int k)
{
    return r->arrived + ((size_t)slot * LS_UNROLLED + (size_t)k) * LS_TAIL;
}

static int run_forward(const segment_run *p, ls_error *err)
{
    uint64_t since = ls_now_ns();
    int status = ls_plan_gather(p->plan, LS_TRAIN, err);
    p->times->gather += elapsed_s(&since);
    if (status == LS_OK)
        status = ls_plan_forward(p->plan, LS_TRAIN, p->flags, err);
    p->times->forward += elapsed_s(&since);
    return status;
}

static int run_ops(ls_replica *r, const segment_run *p, ls_error *err)
{
    const ls_segment *s = p->segment;
    /* In a whole step the backward pass writes some gradients to their shadows
     * (<lockstep/sys/plugin.h>) only, because the update of the same segment can read the
     * shadows. */
    const bool in_shadow = s->parts & LS_PART_UPDATE && ls_replica_updates_read_shadows(r);
    const unsigned shadow = in_shadow ? LS_RUN_SHADOW : 0;
    int status = s->parts & LS_PART_FORWARD ? run_forward(p, err) : LS_OK;
    uint64_t since = ls_now_ns();
    if (status == LS_OK)
        status = ls_plan_backward(p->plan, s->first, s->last, p->flags | shadow, err);
    p->times->backward += elapsed_s(&since);
    if (status == LS_OK && s->parts & LS_PART_TAIL)
        status = write_tail(r, p->plan, err);
    if (status == LS_OK && s->parts & LS_PART_UPDATE)
        status = enqueue_updates(r, OF_GRADIENT, err);
    if (status == LS_OK && s->parts & LS_PART_APPLY)
        status = enqueue_updates(r, OF_TOTAL, err);
    return status;
}

/* Enqueues a segment: launches its recording, or enqueues its ops one by one. `args`: one entry for
 * each step of the segment. */
static int run_segment(ls_replica *r, const segment_run *p, const ls_step_args *args, ls_error *err)
{
    uint64_t since = ls_now_ns();
    if (!p->segment->recording)
        return run_ops(r, p, err);
    int status = ls_plan_launch(p->plan, p->segment->recording, args, err);
    p->times->forward += elapsed_s(&since);
    return status;
}

/* Reports to the function `ready`, if it is set, that the first `floats` floats of the gradient are
 * complete. */
static int report_ready(ls_replica *r, size_t floats, ls_error *err)
{
    return r->ready ? r->ready(r->ready_user, floats, err) : LS_OK;
}

/* Runs a program. After each segment but the last, reports to the function `ready` how much of the
 * gradient is complete. After the last segment no report is needed, because ls_replica_gradient
 * then returns. */
static int run_program(ls_replica *r, ls_plan *plan, int program, unsigned flags,
                       ls_replica_times *times, ls_error *err)
{
    ls_program *p = &plan->program[program];
    int status = LS_OK;
    for (int i = 0; i < p->segments && status == LS_OK; i++) {
        status = run_segment(r, &(segment_run){plan, &p->segment[i], flags, times}, &r->args, err);
        if (status == LS_OK && i < p->segments - 1)
            status = report_ready(r, p->segment[i].floats, err);
    }
    return status;
}

/* ---- recording ------------------------------------------------------------------------------ */

/* Returns whether gradients can be recorded. If shards are computed in several blocks of rows,
 * gradients are not recorded: the first block overwrites the gradient and the other blocks add to
 * it, so each plan would need two recordings. */
static bool can_record(const ls_replica *r)
{
    return r->device->ops->record_begin && r->optimizer && r->data[LS_TRAIN].images &&
           r->data[LS_TRAIN].rows > 0 && r->info.block_rows == 0;
}

/* Runs each op once before recording begins; all row indices are 0. A device loads a kernel (a
 * function that runs on the device) when the kernel runs for the first time. It must not load
 * kernels while it records. */
static int run_once(ls_replica *r, ls_error *err)
{
    ls_replica_times unused = {0};
    int status = LS_OK;
    r->args.rows = ls_replica_staged(r, 0);
    r->args.step = 1;
    for (int i = 0; i < r->plans && status == LS_OK; i++)
        if (r->plan[i]->training)
            status = run_program(r, r->plan[i], LS_GRADIENT, 0, &unused, err);
    /* An op of an update can have another kernel that also sums a digest. The sum of zeros is 0. */
    for (int sums = 0; sums < 2 && status == LS_OK; sums++) {
        r->args.digest = sums ? r->device_digest : NULL;
        status = enqueue_updates(r, OF_TOTAL, err);
    }
    r->args.digest = NULL;
    return status == LS_OK ? ls_replica_sync(r, err) : status;
}

/* Enqueues the ops of all steps of a segment, while the device records. */
static int run_steps(ls_replica *r, ls_plan *plan, ls_segment *s, ls_error *err)
{
    ls_replica_times unused = {0};
    int status = LS_OK;
    for (int k = 0; k < s->steps && status == LS_OK; k++) {
        if (k > 0)
            status = r->device->ops->record_next(r->device, NULL, err);
        if (status == LS_OK)
            status = run_ops(r, &(segment_run){plan, s, 0, &unused}, err);
    }
    return status;
}

static int record_segment(ls_replica *r, ls_plan *plan, ls_segment *s, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    ls_recording *recording = NULL;
    int status = ops->record_begin(r->device, NULL, err);
    if (status != LS_OK)
        return status;
    status = run_steps(r, plan, s, err);
    const int ended = ops->record_end(&recording, r->device, NULL, status == LS_OK ? err : NULL);
    status = status == LS_OK ? ended : status;
    if (status == LS_OK)
        s->recording = recording;
    else if (recording)
        ops->recording_destroy(r->device, recording);
    return status;
}

/* Records all segments of a program. After a failure no segment of the program is recorded. Does
 * nothing if the program has been recorded. */
static int record_program(ls_replica *r, ls_plan *plan, int program, ls_error *err)
{
    ls_program *p = &plan->program[program];
    int status = LS_OK;
    if (is_recorded(plan, program))
        return LS_OK;
    for (int s = 0; s < p->segments && status == LS_OK; s++)
        status = record_segment(r, plan, &p->segment[s], err);
    if (status != LS_OK)
        ls_plan_drop_recordings(plan, program);
    return status;
}

/* Records the program with index `program` of each plan whose gradient has been recorded. */
static int record_more(ls_replica *r, int program, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < r->plans && status == LS_OK; i++)
        if (is_recorded(r->plan[i], LS_GRADIENT))
            status = record_program(r, r->plan[i], program, err);
    return status;
}

/* Handles the result `status` of recording. If the device has refused to record a program, logs a
 * warning and returns LS_OK; the program then runs op by op. LS_ENOMEM, and a failure of the device
 * in ls_replica_sync, are returned as errors. */
static int fall_back(ls_replica *r, int status, const ls_error *why, ls_error *err)
{
    if (status == LS_OK)
        return LS_OK;
    if (status == LS_ENOMEM)
        return ls_fail(err, status, "%s", why->text);
    ls_log(r->host, LS_LOG_WARNING,
           "%s: a part of the step cannot be recorded and runs op by op: %s", r->info.name,
           why->text);
    return ls_replica_sync(r, err);
}

int ls_replica_record(ls_replica *r, ls_error *err)
{
    ls_error why = {0};
    if (!can_record(r))
        return LS_OK;
    int status = ls_replica_make_tails(r, err);
    if (status == LS_OK)
        status = run_once(r, err);
    if (status != LS_OK)
        return status;
    for (int i = 0; i < r->plans && status == LS_OK; i++)
        if (r->plan[i]->training)
            status = record_program(r, r->plan[i], LS_GRADIENT, &why);
    /* A single op takes less time to enqueue without a recording. */
    const bool several = r->updates[OF_TOTAL].count > 1;
    r->args.digest = r->device_digest; /* the recorded update can sum a digest */
    if (status == LS_OK && several)
        status = record_segment(r, NULL, &r->apply, &why);
    r->args.digest = NULL;
    return fall_back(r, status, &why, err);
}

int ls_replica_on_ready(ls_replica *replica, ls_ready_fn *ready, void *user, ls_error *err)
{
    ls_error why = {0};
    replica->ready = ready;
    replica->ready_user = user;
    if (!by_buckets(replica))
        return LS_OK;
    return fall_back(replica, record_more(replica, LS_GRADIENT_BY_BUCKETS, &why), &why, err);
}

/* ---- gradient and update -------------------------------------------------------------------- */

/* Sets the gradient to zero, for a shard without rows. Zeros are uploaded in small pieces, so no
 * array of the size of an arena is needed. */
static int clear_gradient(ls_replica *r, ls_error *err)
{
    static const float zeros[4096];
    const ls_program *p = &r->plan[0]->program[LS_GRADIENT_BY_BUCKETS];
    const size_t most = sizeof zeros / sizeof *zeros;
    int status = LS_OK;
    for (size_t done = 0; done < r->floats && status == LS_OK;) {
        size_t count = r->floats - done < most ? r->floats - done : most;
        status = r->device->ops->upload(r->device, NULL, r->arena[GRADIENT] + done, zeros,
                                        count * sizeof *zeros, err);
        done += count;
    }
    for (int i = 0; i < p->segments - 1 && status == LS_OK; i++)
        status = report_ready(r, p->segment[i].floats, err);
    return status;
}

/* Computes the gradient of a shard of `n` rows, one block of rows after another. The first block
 * overwrites the gradient arena, and the other blocks add to it (LS_RUN_ACCUMULATE). `derived`: the
 * ops keep data that they have computed from the present weights. LS_RUN_SAME tells them to use
 * these data again. */
static int run_shard(ls_replica *r, uint32_t n, ls_replica_times *times, ls_error *err)
{
    int status = LS_OK;
    memset(r->staged_tail, 0, sizeof r->staged_tail);
    r->staged_tail[LS_TAIL_ROWS] = (float)n;
    for (uint32_t done = 0, count; done < n && status == LS_OK; done += count) {
        count = ls_replica_block_rows(r, n, done);
        const int program =
            done + count == n && by_buckets(r) ? LS_GRADIENT_BY_BUCKETS : LS_GRADIENT;
        r->args.rows = ls_replica_staged(r, done);
        r->args.rows_before = done;
        r->args.rows_after = n - done - count;
        ls_plan *plan = ls_replica_plan_for(r, count);
        if (!plan->training)
            return ls_fail(err, LS_EINVAL, "replica: the plan for %u rows is for evaluation only",
                           (unsigned)count);
        status = ls_replica_bind_again(r, plan, err);
        const unsigned same = r->derived ? LS_RUN_SAME : 0;
        if (status == LS_OK)
            status = run_program(r, plan, program, same | (done > 0 ? LS_RUN_ACCUMULATE : 0), times,
                                 err);
        r->derived = status == LS_OK;
    }
    return status;
}

static int no_optimizer(ls_error *err)
{
    return ls_fail(err, LS_EINVAL, "replica: it was made without an optimizer");
}

void ls_replica_promise_same_weights(ls_replica *replica)
{
    replica->promises_same_weights = true;
}

int ls_replica_gradient(ls_replica *replica, const uint32_t *rows, uint32_t n, uint32_t epoch,
                        ls_replica_times *times, ls_error *err)
{
    ls_replica_times unused = {0};
    replica->derived &= replica->promises_same_weights;
    replica->promises_same_weights = false;
    if (!replica->optimizer)
        return no_optimizer(err);
    if (n == 0)
        return clear_gradient(replica, err);
    int status = ls_replica_stage_rows(replica, LS_TRAIN, rows, n, 1, err);
    replica->args.epoch = epoch;
    return status == LS_OK ? run_shard(replica, n, times ? times : &unused, err) : status;
}

void ls_replica_set_step(ls_step_args *args, const ls_replica_step *step)
{
    args->lr = step->lr;
    args->scale = step->scale;
    args->row_scale = step->rows > 0 ? 1.0f / (float)step->rows : 0.0f;
    args->step = step->number;
}

bool ls_replica_set_digests(ls_replica *replica, bool on)
{
    const bool can = replica->info.flags & LS_DEVICE_DIGESTS;
    replica->digests = on && can;
    replica->args.digest = NULL; /* no op sums before the next ls_replica_apply */
    return can;
}

bool ls_replica_digest_is_late(const ls_replica *replica)
{
    return replica->device_digest != NULL;
}

uint64_t ls_replica_digest(const ls_replica *replica)
{
    return replica->digest - replica->digest_before;
}

void ls_replica_begin_digest(ls_replica *r)
{
    uint64_t *total = r->device_digest ? r->device_digest : &r->digest;
    r->digest_before = r->digest;
    r->args.digest = r->digests ? total : NULL;
}

int ls_replica_end_digest(ls_replica *r, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < r->unread.count && r->args.digest && status == LS_OK; i++)
        status = r->unread.list[i].op->impl->forward(r->unread.list[i].op, NULL, 0, err);
    if (status != LS_OK || !r->args.digest || !r->device_digest)
        return status;
    return r->device->ops->download(r->device, NULL, &r->digest, r->device_digest,
                                    sizeof *r->device_digest, err);
}

int ls_replica_apply(ls_replica *replica, const ls_replica_step *step, ls_replica_times *times,
                     ls_error *err)
{
    if (!replica->optimizer)
        return no_optimizer(err);
    uint64_t since = ls_now_ns();
    ls_replica_set_step(&replica->args, step);
    ls_replica_begin_digest(replica);
    int status = replica->apply.recording
                     ? replica->device->ops->launch(replica->device, NULL, replica->apply.recording,
                                                    &replica->args, err)
                     : enqueue_updates(replica, OF_TOTAL, err);
    if (status == LS_OK)
        status = ls_replica_end_digest(replica, err);
    if (times)
        times->apply += elapsed_s(&since);
    return status;
}

int ls_replica_gradient_norm(float *norm, ls_replica *replica, ls_error *err)
{
    const ls_device_ops *ops = replica->device->ops;
    double squares = 0;
    *norm = NAN;
    if (!replica->clip || !(replica->info.flags & LS_DEVICE_HOST_MEMORY))
        return LS_OK;
    int status =
        ops->download(replica->device, NULL, &squares, replica->clip + 2, sizeof squares, err);
    if (status == LS_OK)
        status = ls_replica_sync(replica, err);
    if (status == LS_OK)
        *norm = (float)(sqrt(squares) * (double)replica->args.scale);
    return status;
}

/* ---- whole steps ---------------------------------------------------------------------------- */

/* Records LS_UNROLLED steps as one program, if a step is small. Only the first plan gets this
 * recording. The first plan is the largest plan that trains, so it has the number of rows of a full
 * minibatch. */
static int record_unrolled(ls_replica *r, ls_error *err)
{
    ls_plan *plan = r->plan[0];
    if (!is_recorded(plan, LS_STEP) || ls_replica_most_calls(r) < LS_UNROLLED)
        return LS_OK;
    /* The bytes that a step reads and writes, arenas and activations, stand for its duration. The
     * ops' working memory and memory for evaluation do not count. */
    const size_t bytes = r->memory.arenas + plan->activation_bytes;
    const bool small = bytes <= LS_UNROLL_BYTES;
    ls_log(r->host, LS_LOG_INFO, "%s: a launch runs %d %s: a step uses %zu KiB", r->info.name,
           small ? LS_UNROLLED : 1, small ? "steps" : "step", bytes >> 10);
    return small ? record_program(r, plan, LS_STEPS, err) : LS_OK;
}

/* Creates the update ops that read the gradient, host memory for the result slots (`arrived`), and
 * an event for each result slot (`arrival`). An event is reached when the device has run all work
 * that was enqueued before the event. */
static int make_arrivals(ls_replica *r, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    void *memory = NULL;
    int status =
        r->updates[OF_GRADIENT].list ? LS_OK : ls_replica_make_updates(r, OF_GRADIENT, err);
    if (status == LS_OK)
        status = ls_replica_bind_updates(r, OF_GRADIENT, err);
    if (status == LS_OK && !r->arrived) {
        status =
            ops->pinned_alloc(&memory, r->device,
                              (size_t)LS_RESULT_SLOTS * LS_UNROLLED * LS_TAIL * sizeof(float), err);
        r->arrived = memory;
    }
    /* Marks an event of each result slot in the device's queue; the first call for a result slot
     * creates the event. */
    for (int p = 0; p < LS_RESULT_SLOTS && status == LS_OK; p++)
        status = ops->record(&r->arrival[p], r->device, NULL, err);
    return status;
}

int ls_replica_record_whole_steps(ls_replica *replica, ls_error *err)
{
    const ls_device_ops *ops = replica->device->ops;
    ls_error why = {0};
    bool any = false;
    for (int i = 0; i < replica->plans; i++)
        any |= is_recorded(replica->plan[i], LS_GRADIENT);
    if (!ops->reached || !ops->record || !any)
        return LS_OK;
    int status = make_arrivals(replica, err);
    if (status != LS_OK)
        return status;
    status = record_more(replica, LS_STEP, &why);
    if (status == LS_OK)
        status = record_unrolled(replica, &why);
    return fall_back(replica, status, &why, err);
}

int ls_replica_most_whole_steps(const ls_replica *replica, uint32_t n)
{
    const ls_plan *plan = ls_replica_plan_for(replica, n);
    if (!plan || !is_recorded(plan, LS_STEP))
        return 0;
    return is_recorded(plan, LS_STEPS) ? LS_UNROLLED : 1;
}

/* Turns an error of work that has been enqueued into LS_EDEVICE. After LS_EDEVICE the caller does
 * not repeat the step, because it is unknown whether the update was applied. LS_EDATA (an invalid
 * label or target) is an error of the data, not of the device, and is returned unchanged. */
static int as_device_error(int status, ls_error *err)
{
    if (status == LS_OK || status == LS_EDATA)
        return status;
    if (err)
        err->status = LS_EDEVICE;
    return LS_EDEVICE;
}

/* Sets the arguments of `count` whole steps. The row indices of all steps have been staged. */
static void set_step_args(ls_replica *r, uint32_t epoch, const ls_replica_step *step, int count,
                          int slot)
{
    r->args.epoch = epoch;
    for (int k = 0; k < count; k++) {
        r->args.rows = ls_replica_staged(r, (uint32_t)k * step->rows);
        ls_replica_set_step(&r->args, &step[k]);
        r->step_args[k] = r->args;
        r->step_args[k].stats_copy = tail_of(r, slot, k) + LS_TAIL_LOSS;
        tail_of(r, slot, k)[LS_TAIL_ROWS] = (float)step->rows;
    }
}

int ls_replica_run_whole_steps(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                               const ls_replica_step *step, int count, int slot,
                               ls_replica_times *times, ls_error *err)
{
    ls_plan *plan = ls_replica_plan_for(replica, step->rows);
    int status = ls_replica_stage_rows(replica, LS_TRAIN, rows, step->rows, (uint32_t)count, err);
    if (status != LS_OK)
        return status;
    set_step_args(replica, epoch, step, count, slot);
    ls_segment *s = plan->program[count > 1 ? LS_STEPS : LS_STEP].segment;
    status = run_segment(replica, &(segment_run){plan, s, 0, times}, replica->step_args, err);
    if (status != LS_OK)
        return status;
    return as_device_error(
        replica->device->ops->record(&replica->arrival[slot], replica->device, NULL, err), err);
}

int ls_replica_arrived(bool *arrived, ls_replica *replica, int slot, ls_error *err)
{
    int reached = 0;
    const int status =
        replica->device->ops->reached(&reached, replica->device, replica->arrival[slot], err);
    *arrived = reached;
    return as_device_error(status, err);
}

const float *ls_replica_arrived_tail(const ls_replica *replica, int slot, int k)
{
    return tail_of(replica, slot, k);
}

/* Clears the float on the device that makes updates change nothing. */
int ls_replica_resume_updates(ls_replica *replica, ls_error *err)
{
    static const float no = 0;
    return replica->device->ops->upload(replica->device, NULL, replica->skip, &no, sizeof no, err);
}
