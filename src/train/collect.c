/* The coordinator waits for workers, and looks after their signs of life meanwhile: for the reports of a
 * step, or for a job that all of them do. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "pool/pool.h"
#include "train/coordinator.h"
#include "train/run_records.h"

#include <stdio.h>
#include <string.h>

#define GRACE_NS 500000000u /* for a worker that merges, once the group was aborted */
#define PAUSE_NS 500000000u /* a shorter absence is not worth a word */

/* ---- the process's pauses ------------------------------------------------------------------- */

uint64_t ls_run_ns(const struct ls_trainer *t)
{
    return ls_now_ns() - t->faults.paused_ns;
}

/* The coordinator was asleep from `begin_ns` on, for a nap. Where it is late it was stopped, but for what its thread
 * waited for a CPU. */
static void note_pause(struct ls_trainer *t, uint64_t begin_ns)
{
    const uint64_t away = ls_now_ns() - begin_ns, before = t->faults.queued_ns;
    ls_thread_use use;
    if (away < PAUSE_NS)
        return;
    if (ls_thread_look(&use, ls_thread_self()))
        t->faults.queued_ns = use.queued_ns;
    const uint64_t queued = t->faults.queued_ns > before ? t->faults.queued_ns - before : 0;
    if (away < queued + PAUSE_NS)
        return;
    t->faults.paused_ns += away - queued;
    ls_log(t->host, LS_LOG_INFO, "stopped for %.1f s, which count against no worker",
           (double)(away - queued) * 1e-9);
}

/* ---- signs of life -------------------------------------------------------------------------- */

void ls_watch_begin(ls_watch *watch)
{
    *watch = (ls_watch){.seen_ns = ls_now_ns()};
}

/* For how long the watcher itself had no CPU since its last look, which matters once a worker is suspected:
 * a thread that hangs on a busy machine is to be found no later. */
static uint64_t had_no_cpu(ls_watch *watch, const struct ls_trainer *t)
{
    const ls_thread_use before = watch->own;
    watch->own.state = 0;
    for (int w = 0; w < t->workers; w++)
        if (watch->silence[w].use.state != 0)
            return ls_thread_look(&watch->own, ls_thread_self()) && before.state != 0
                       ? watch->own.queued_ns - before.queued_ns
                       : 0;
    return 0;
}

static void listen(ls_watch *watch, const struct ls_trainer *t)
{
    const uint64_t attended = ls_attended_ns(&watch->seen_ns, had_no_cpu(watch, t));
    for (int w = 0; w < t->workers; w++)
        if (t->worker[w].presence == LS_STALLED || ls_pool_busy(t->pool, w) == 0)
            watch->silence[w] = (ls_silence){0}; /* it has nothing to do */
        else
            ls_silence_look(&watch->silence[w], &t->worker[w].heartbeat,
                            ls_pool_thread_number(t->pool, w), attended, t->faults.deadline_ns / 8);
}

/* A worker that waits for its peers in a merge is as alive as the liveliest of them: as long as one gets on, or
 * is kept from it, there is something to wait for. */
static void excuse_waiting(ls_watch *watch, const struct ls_trainer *t, const bool *awaited)
{
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < t->workers; w++)
        if (awaited[w] && watch->silence[w].held_ns < least)
            least = watch->silence[w].held_ns;
    for (int w = 0; w < t->workers; w++)
        if (awaited[w] && watch->silence[w].place == LS_PLACE_WAIT)
            watch->silence[w].held_ns = least;
}

static bool is_merging(const ls_silence *silence)
{
    return silence->place == LS_PLACE_MERGE || silence->place == LS_PLACE_WAIT;
}

/* A look, every LS_NAP_NS while workers are waited for: those marked in `awaited` that show no sign of life for the
 * deadline are left behind, in or behind step `step`. A merge does not end by itself: the abort lets go the workers
 * that only wait in it, here for what does not come; one that shows no sign of life even then is the one that
 * hangs. */
static void look(ls_watch *watch, struct ls_trainer *t, const bool *awaited, uint64_t step)
{
    listen(watch, t);
    excuse_waiting(watch, t, awaited);
    for (int w = 0; w < t->workers; w++) {
        const uint64_t held = watch->silence[w].held_ns;
        if (!awaited[w] || held <= t->faults.deadline_ns)
            continue;
        if (held > t->faults.deadline_ns + (is_merging(&watch->silence[w]) ? GRACE_NS : 0))
            ls_quarantine(t, w, step, &watch->silence[w]);
        else if (t->group)
            t->group->type->abort(t->group);
    }
}

/* ---- a job ---------------------------------------------------------------------------------- */

/* A lost worker's jobs do nothing; only its thread is waited for. */
static void look_after_jobs(struct ls_trainer *t, ls_watch *watch)
{
    bool awaited[LS_DEVICES_MAX];
    for (int w = 0; w < t->workers; w++)
        awaited[w] = t->worker[w].presence != LS_STALLED && ls_pool_busy(t->pool, w) > 0;
    look(watch, t, awaited, t->position.steps);
}

static int nap(struct ls_trainer *t)
{
    const uint64_t begin = ls_now_ns();
    const int status = ls_pool_wait(t->pool, LS_NAP_NS, NULL);
    note_pause(t, begin);
    return status;
}

void ls_await_jobs(struct ls_trainer *t)
{
    ls_watch watch;
    ls_watch_begin(&watch);
    while (nap(t) == LS_ETIMEDOUT) {
        look_after_jobs(t, &watch);
        ls_drain_trace(t);
    }
    ls_drain_trace(t);
}

/* ---- waiting for reports -------------------------------------------------------------------- */

/* The reports of one step that are still out. */
typedef struct awaited {
    int worker[LS_DEVICES_MAX];
    ls_ring *ring[LS_DEVICES_MAX];
    int count;
} awaited;

static void await_all(awaited *a, struct ls_trainer *t)
{
    a->count = 0;
    for (int w = 0; w < t->workers; w++) {
        if (t->worker[w].presence != LS_LIVE)
            continue;
        a->worker[a->count] = w;
        a->ring[a->count++] = &t->worker[w].reports;
    }
}

static void strike(awaited *a, int index)
{
    a->count--;
    a->worker[index] = a->worker[a->count];
    a->ring[index] = a->ring[a->count];
}

static void take_in(awaited *a, struct ls_trainer *t, const ls_report *report, int index)
{
    const int w = a->worker[index];
    t->worker[w].report = *report;
    t->worker[w].status = report->status;
    if (report->status && report->status != LS_EABORTED)
        t->worker[w].fault_step = report->number;
    strike(a, index);
}

/* Gives up the awaited workers that show no sign of life. */
static void look_after(awaited *a, struct ls_trainer *t, uint64_t step, ls_watch *watch)
{
    bool out[LS_DEVICES_MAX] = {false};
    for (int i = 0; i < a->count; i++)
        out[a->worker[i]] = true;
    look(watch, t, out, step);
    for (int i = a->count - 1; i >= 0; i--)
        if (t->worker[a->worker[i]].presence == LS_STALLED)
            strike(a, i);
}

/* Every worker's report of the next step, or a verdict on those that have none. */
static void await_reports(ls_coordination *c)
{
    struct ls_trainer *t = c->t;
    awaited a;
    ls_report report;
    await_all(&a, t);
    while (a.count > 0) {
        const uint64_t begin = ls_now_ns();
        int which = -1;
        int status = ls_ring_pop_any(&report, &which, a.ring, a.count, begin + LS_NAP_NS, NULL);
        note_pause(t, begin);
        if (status == LS_OK)
            take_in(&a, t, &report, which);
        else {
            look_after(&a, t, ls_steps_when(c, c->taken) + 1, &c->watch);
            ls_sinks_look(&t->records.sinks);
        }
    }
}

/* ---- what a step came to -------------------------------------------------------------------- */

/* A worker that says the step is done: then it is, for all. −1: it is not. */
static int find_done(const struct ls_trainer *t)
{
    for (int w = 0; w < t->workers; w++)
        if (t->worker[w].presence == LS_LIVE && t->worker[w].status == LS_OK)
            return w;
    return -1;
}

static bool any_failed(const struct ls_trainer *t)
{
    for (int w = 0; w < t->workers; w++) {
        const ls_train_worker *worker = &t->worker[w];
        if (worker->presence == LS_LIVE ? worker->status != LS_OK : !worker->loss_recorded)
            return true;
    }
    return false;
}

/* The shard whose loss is not finite, where one of this process's workers found it. */
static ls_bad_shard find_bad_shard(const struct ls_trainer *t)
{
    for (int w = 0; w < t->workers; w++)
        if (t->worker[w].presence == LS_LIVE && t->worker[w].status == LS_OK &&
            t->worker[w].report.bad_shard >= 0)
            return (ls_bad_shard){t->members.member, w, t->worker[w].report.bad_shard};
    return (ls_bad_shard){-1, -1, -1};
}

/* Where the run ends no step is under way, and all processes tell each other what they found; where it goes on,
 * another one's shard stays unknown. */
static int account_skipped(struct ls_trainer *t, ls_error *err)
{
    ls_bad_shard bad = find_bad_shard(t);
    const unsigned long long number = t->position.steps + 1;
    const char *host = "";
    int status = t->config.skip_nonfinite ? LS_OK : ls_members_share_bad(&bad, t, err);
    if (status == LS_OK)
        status = ls_record_nonfinite(t, bad.worker, bad.shard, err);
    if (status || t->config.skip_nonfinite)
        return status;
    if (bad.shard < 0)
        return ls_fail(
            err, LS_ENONFINITE,
            "step %llu: the loss was not finite, but computed again it is: some device is "
            "faulty; the step was not applied",
            number);
    if (t->members.cluster)
        host = ls_cluster_host(t->members.cluster, bad.member);
    return ls_fail(
        err, LS_ENONFINITE,
        "step %llu: the loss of shard %d, on worker %d%s%s, is not finite any more; the step "
        "was not applied; try a smaller optimizer.lr",
        number, bad.shard, bad.worker, host[0] ? " of host " : "", host);
}

static void move_on(struct ls_trainer *t, const ls_report *r)
{
    t->position.steps++;
    t->position.step++;
    if (!r->skipped) {
        t->position.totals.loss += ls_loss_of_run(t, (double)r->loss);
        t->position.totals.correct += (double)r->correct;
        t->position.totals.rows += (double)r->rows;
    }
    t->result.steps = t->position.steps;
}

static int finish_step(ls_coordination *c, const ls_report *r, double seconds, ls_error *err)
{
    struct ls_trainer *t = c->t;
    move_on(t, r);
    ls_members_heed(t, r);
    c->last = *r;
    int status = ls_record_step(t, (double)r->rows / seconds, r, err);
    ls_tell_progress(c, false, false);
    return status;
}

static int account_done(ls_coordination *c, const ls_report *r, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const uint64_t now = ls_run_ns(t);
    const uint64_t share = (now - c->last_ns) / (uint64_t)r->steps_left;
    const double seconds = (double)share * 1e-9;
    int status = LS_OK;
    c->last_ns += share;
    if (seconds > c->longest_s) {
        c->longest_s = seconds;
        ls_set_deadline(t, seconds);
    }
    if (r->skipped)
        status = account_skipped(t, err);
    return status ? status : finish_step(c, r, seconds, err);
}

int ls_adopt_step(ls_coordination *c, const ls_report *r, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const double seconds = (double)(ls_run_ns(t) - c->last_ns + 1) * 1e-9;
    int status = r->skipped ? ls_record_nonfinite(t, -1, -1, err) : LS_OK;
    return status ? status : finish_step(c, r, seconds, err);
}

void ls_collect_rest(ls_coordination *c)
{
    struct ls_trainer *t = c->t;
    int first[LS_DEVICES_MAX] = {LS_OK};
    for (int w = 0; w < t->workers; w++)
        first[w] = t->worker[w].status;
    for (; c->taken < c->sent; c->taken++) {
        await_reports(c);
        const int done = find_done(t);
        if (done >= 0) {
            move_on(t, &t->worker[done].report);
            c->last = t->worker[done].report;
        }
        for (int w = 0; w < t->workers; w++)
            if (first[w] != LS_OK)
                t->worker[w].status = first[w];
    }
}

void ls_send_from_here(ls_coordination *c)
{
    c->sent = c->taken = c->t->position.step;
    memset(c->ends, 0, sizeof c->ends);
    c->last_ns = ls_run_ns(c->t);
}

/* A worker failed in step `number`, which no worker applied, or every worker that is left did. */
static int recover_step(ls_coordination *c, uint64_t number, ls_error *err)
{
    char when[64];
    ls_collect_rest(c);
    snprintf(when, sizeof when, "step %llu", (unsigned long long)number);
    int status = ls_recover(c->t, when, err);
    ls_send_from_here(c);
    return status;
}

int ls_collect_step(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const uint64_t number = t->position.steps + 1;
    await_reports(c);
    ls_drain_trace(t);
    c->taken++;
    const int done = find_done(t);
    const bool failed = any_failed(t);
    int status = done < 0 ? LS_OK : account_done(c, &t->worker[done].report, err);
    return status == LS_OK && failed ? recover_step(c, number, err) : status;
}
