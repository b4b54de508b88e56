/* The same job on every worker, and how the coordinator looks after their signs of life: here, and
 * while reports are awaited (collect.c). */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "pool/pool.h"
#include "train/run.h"

#define GRACE_NS 500000000u /* for whoever merges, once the group was aborted */
#define PAUSE_NS 500000000u /* a shorter absence is not worth a word */

/* ---- the process's pauses ------------------------------------------------------------------- */

uint64_t ls_run_ns(const struct ls_trainer *t)
{
    return ls_now_ns() - t->paused_ns;
}

/* Late from a nap: stopped, but for what the coordinator's thread waited for a CPU. */
void ls_note_pause(struct ls_trainer *t, uint64_t begin_ns)
{
    const uint64_t away = ls_now_ns() - begin_ns, before = t->queued_ns;
    ls_thread_use use;
    if (away < PAUSE_NS)
        return;
    if (ls_thread_look(&use, ls_thread_self()))
        t->queued_ns = use.queued_ns;
    const uint64_t queued = t->queued_ns > before ? t->queued_ns - before : 0;
    if (away < queued + PAUSE_NS)
        return;
    t->paused_ns += away - queued;
    ls_log(t->host, LS_LOG_INFO, "stopped for %.1f s, which count against nobody",
           (double)(away - queued) * 1e-9);
}

/* ---- signs of life -------------------------------------------------------------------------- */

void ls_watch_begin(ls_watch *watch)
{
    *watch = (ls_watch){.seen_ns = ls_now_ns()};
}

/* For how long the watcher itself had no CPU since its last look, which matters once somebody is suspected:
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
                            ls_pool_thread_number(t->pool, w), attended, t->deadline_ns / 8);
}

/* Whoever waits for others in a merge is as alive as the liveliest of them: as long as one gets on, or
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

/* A merge does not end by itself. The abort lets go whoever only waits in it, here for what does not
 * come; who shows no sign of life even then is the one that hangs. */
void ls_watch_look(ls_watch *watch, struct ls_trainer *t, const bool *awaited, uint64_t step)
{
    listen(watch, t);
    excuse_waiting(watch, t, awaited);
    for (int w = 0; w < t->workers; w++) {
        const uint64_t held = watch->silence[w].held_ns;
        if (!awaited[w] || held <= t->deadline_ns)
            continue;
        if (held > t->deadline_ns + (is_merging(&watch->silence[w]) ? GRACE_NS : 0))
            ls_quarantine(t, w, step, &watch->silence[w]);
        else if (t->group)
            t->group->type->abort(t->group);
    }
}

/* ---- a job ---------------------------------------------------------------------------------- */

/* Those that were left behind already are not asked. */
static int submit(struct ls_trainer *t, ls_job job, ls_error *err)
{
    for (int w = 0; w < t->workers; w++) {
        if (t->worker[w].presence == LS_STALLED)
            continue;
        int status = ls_pool_submit(t->pool, w, job, t->exchange, err);
        if (status)
            return status;
    }
    return LS_OK;
}

/* A lost worker's jobs do nothing; only its thread is waited for. */
static void look_after(struct ls_trainer *t, ls_watch *watch)
{
    bool awaited[LS_DEVICES_MAX];
    for (int w = 0; w < t->workers; w++)
        awaited[w] = t->worker[w].presence != LS_STALLED && ls_pool_busy(t->pool, w) > 0;
    ls_watch_look(watch, t, awaited, t->position.steps);
}

static int nap(struct ls_trainer *t)
{
    const uint64_t begin = ls_now_ns();
    const int status = ls_pool_wait(t->pool, LS_NAP_NS, NULL);
    ls_note_pause(t, begin);
    return status;
}

int ls_gang(struct ls_trainer *t, ls_job job, ls_error *err)
{
    ls_watch watch;
    int status = submit(t, job, err);
    ls_watch_begin(&watch);
    while (nap(t) == LS_ETIMEDOUT) {
        look_after(t, &watch);
        ls_trace_drain(t->trace, t);
    }
    ls_trace_drain(t->trace, t);
    for (int w = 0; w < t->workers; w++) {
        ls_train_worker *worker = &t->worker[w];
        const int stalled = worker->presence == LS_STALLED;
        if (!stalled)
            worker->status = worker->job_status;
        const int failed = stalled ? (worker->mourned ? LS_OK : LS_ESTALLED) : worker->status;
        if (failed == LS_OK || failed == LS_EABORTED)
            continue;
        worker->fault_step = t->position.steps;
        if (status == LS_OK)
            status = ls_fail(err, failed, "worker %d: %.480s", w,
                             stalled ? worker->verdict.text : worker->error.text);
    }
    return status;
}
