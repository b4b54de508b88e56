/* SPDX-License-Identifier: MIT */
/* Waiting: the coordinator waits for the reports of a step, or for the end of a job, and watches
 * the workers' signs of life meanwhile.
 *
 * A worker is *awaited* if it has not yet sent the report or ended the job for which the
 * coordinator waits. While it waits, the coordinator reads the heartbeat of each awaited worker
 * every LS_NAP_NS. A worker that shows no sign of life for longer than deadline_ns is declared
 * stalled. Time during which the worker could not run (the process was stopped, or no CPU was free)
 * does not count (sync/heartbeat.h). A worker that waits for other workers in a merge cannot show
 * signs of life. Its silence is therefore taken to be the shortest silence of all awaited workers.
 * All functions run on the coordinator's thread. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "engine/state.h"
#include "pool/pool.h"

#include <stdio.h>
#include <string.h>

/* deadline in nanoseconds until the first step has been measured */
#define START_NS ((uint64_t)300 * 1000000000u)
/* Shortest deadline in nanoseconds, if it is computed from the duration of the longest step. */
#define LEAST_NS ((uint64_t)10 * 1000000000u)
/* A computed deadline is this many times the duration of the longest step. */
#define TIMES_LONGEST 20
/* time in nanoseconds for a worker to leave a merge after the group was aborted */
#define GRACE_NS 500000000u
#define PAUSE_NS 500000000u /* shorter stops of the process, in nanoseconds, are ignored */

/* ---- the process's pauses ------------------------------------------------------------------- */

uint64_t ls_engine_ns_at(const ls_engine *e, uint64_t now_ns)
{
    return now_ns - e->paused_ns;
}

uint64_t ls_engine_ns(const ls_engine *e)
{
    return ls_engine_ns_at(e, ls_now_ns());
}

/* Called after a short sleep of the coordinator that began at `begin_ns`. If the coordinator woke
 * much later than planned, the process was stopped (by SIGSTOP, for example). The function adds the
 * time of the stop to e->paused_ns. The time in which the coordinator's thread waited for a CPU is
 * not added, because the process was not stopped then. */
static void record_pause(ls_engine *e, uint64_t begin_ns)
{
    const uint64_t away = ls_now_ns() - begin_ns, before = e->queued_ns;
    ls_thread_use use;
    if (away < PAUSE_NS)
        return;
    if (ls_thread_look(&use, ls_thread_self()))
        e->queued_ns = use.queued_ns;
    const uint64_t queued = e->queued_ns > before ? e->queued_ns - before : 0;
    if (away < queued + PAUSE_NS)
        return;
    e->paused_ns += away - queued;
    ls_log(e->desc.host, LS_LOG_INFO,
           "stopped for %.1f s, which do not count as silence of a worker",
           (double)(away - queued) * 1e-9);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

void ls_engine_set_deadline(ls_engine *e, double longest_step_s)
{
    uint64_t wanted = START_NS;
    if (e->desc.deadline_s > 0)
        wanted = (uint64_t)(e->desc.deadline_s * 1e9);
    else if (longest_step_s > 0)
        wanted = (uint64_t)(longest_step_s * TIMES_LONGEST * 1e9);
    if (e->desc.deadline_s == 0 && wanted < LEAST_NS)
        wanted = LEAST_NS;
    e->deadline_ns = wanted;
}

/* ---- signs of life -------------------------------------------------------------------------- */

void ls_watch_begin(ls_watch *watch)
{
    *watch = (ls_watch){.seen_ns = ls_now_ns()};
}

/* Returns the time in nanoseconds for which the coordinator's thread waited for a CPU since its
 * last check of the workers; 0: unknown. It is read only while a worker is suspected (silent for
 * almost deadline_ns / 8), because that costs system calls.
 *
 * The caller passes the result to ls_attended_ns (base/clock.h). A long time between two checks
 * usually means that the whole process was stopped, and does not count; but if only the coordinator
 * had no CPU, the time does count. Therefore a hung worker is found as early on a busy machine as
 * on an idle one. */
static uint64_t own_queued_ns(ls_watch *watch, const ls_engine *e)
{
    const ls_thread_use before = watch->coordinator;
    watch->coordinator.state = 0;
    for (int w = 0; w < e->workers; w++)
        if (watch->silence[w].use.state != 0)
            return ls_thread_look(&watch->coordinator, ls_thread_self()) && before.state != 0
                       ? watch->coordinator.queued_ns - before.queued_ns
                       : 0;
    return 0;
}

static void update_silences(ls_watch *watch, const ls_engine *e)
{
    const uint64_t attended = ls_attended_ns(&watch->seen_ns, own_queued_ns(watch, e));
    for (int w = 0; w < e->workers; w++)
        if (e->worker[w].presence == LS_STALLED || ls_pool_busy(e->pool, w) == 0)
            watch->silence[w] = (ls_silence){0}; /* the worker has no work, or has stalled */
        else
            ls_silence_look(&watch->silence[w], &e->worker[w].heartbeat,
                            ls_pool_thread_number(e->pool, w), attended, e->deadline_ns / 8);
}

/* Reduces the silence of workers that wait in a merge to the shortest silence of all awaited
 * workers. As long as one of these makes progress, or lacks a CPU, the others have a reason to
 * wait. */
static void excuse_waiting(ls_watch *watch, const ls_engine *e, const bool *awaited)
{
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < e->workers; w++)
        if (awaited[w] && watch->silence[w].held_ns < least)
            least = watch->silence[w].held_ns;
    for (int w = 0; w < e->workers; w++)
        if (awaited[w] && watch->silence[w].place == LS_PLACE_WAIT)
            watch->silence[w].held_ns = least;
}

static bool is_merging(const ls_silence *silence)
{
    return silence->place == LS_PLACE_MERGE || silence->place == LS_PLACE_WAIT;
}

/* ---- stalled workers ------------------------------------------------------------------------ */

static const char *name_activity(int place)
{
    switch (place) {
    case LS_PLACE_MERGE:
    case LS_PLACE_WAIT: return "all-reduce";
    case LS_PLACE_APPLY: return "optimizer step";
    case LS_PLACE_ADD: return "adding up gradients";
    case LS_PLACE_STEP: return "the beginning of a step";
    case LS_PLACE_OPEN: return "opening";
    case LS_PLACE_EXPORT: return "reading weights back";
    default: return "between two jobs";
    }
}

/* Formats what the worker was doing at its last heartbeat. Once there is a group, every worker has
 * created its replica, so the replica can be read. Before the first group, a worker can be in the
 * middle of creating its replica. */
static void format_activity(char *out, size_t size, const ls_engine *e, const ls_train_worker *w)
{
    const int place = ls_heartbeat_place(&w->heartbeat);
    if (e->group && ls_replica_place(out, size, w->replica, place))
        return;
    snprintf(out, size, "%s", e->group ? name_activity(place) : "opening");
}

/* Formats how long the worker was silent. The time during which the worker was stopped or had no
 * CPU is reported separately if that time exceeds 0.5 s. */
static void format_silence(char *out, size_t size, const ls_silence *silence)
{
    const double held_s = (double)silence->held_ns * 1e-9;
    const double all_s = (double)(ls_now_ns() - silence->since_ns) * 1e-9;
    if (all_s < held_s + 0.5)
        snprintf(out, size, "%.1f s", held_s);
    else
        snprintf(out, size, "%.1f s (and %.1f s in which it was stopped or had no CPU)", held_s,
                 all_s - held_s);
}

/* Declares a worker stalled: records its fault, abandons its thread in the pool, and aborts the
 * group. `step`: number for the fault: the step whose report is awaited, or, during a job, the
 * number of completed steps. */
static void declare_stalled(ls_engine *e, int worker, uint64_t step, const ls_silence *silence)
{
    ls_train_worker *w = &e->worker[worker];
    char where[160], how_long[100];
    format_activity(where, sizeof where, e, w);
    format_silence(how_long, sizeof how_long, silence);
    w->fault =
        (ls_fault){.worker = worker, .step = step, .silence_s = (double)silence->held_ns * 1e-9};
    ls_fail(&w->fault.error, LS_ESTALLED, "no sign of life for %s: in %s, %d items queued",
            how_long, where, ls_pool_busy(e->pool, worker));
    w->presence = LS_STALLED;
    ls_pool_abandon(e->pool, worker, NULL);
    if (e->group)
        e->group->type->abort(e->group);
}

/* Checks the awaited workers. The coordinator calls it every LS_NAP_NS. A worker whose silence
 * exceeds the deadline is declared stalled (`step`: see declare_stalled). At the deadline the group
 * is aborted, which releases all workers that only wait in a merge. They have GRACE_NS more to show
 * a sign of life; the one that shows none hangs. */
static void check_workers(ls_watch *watch, ls_engine *e, const bool *awaited, uint64_t step)
{
    update_silences(watch, e);
    excuse_waiting(watch, e, awaited);
    for (int w = 0; w < e->workers; w++) {
        const uint64_t held = watch->silence[w].held_ns;
        if (!awaited[w] || held <= e->deadline_ns)
            continue;
        if (held > e->deadline_ns + (is_merging(&watch->silence[w]) ? GRACE_NS : 0))
            declare_stalled(e, w, step, &watch->silence[w]);
        else if (e->group)
            e->group->type->abort(e->group);
    }
}

/* ---- a job ---------------------------------------------------------------------------------- */

/* Calls the callback `idle` of the engine's description. */
static void call_idle(const ls_engine *e)
{
    if (e->desc.idle)
        e->desc.idle(e->desc.user);
}

/* Checks all workers whose job has not ended. A worker whose device failed earlier (LS_LOST) also
 * gets jobs, which do nothing; the coordinator waits for them as well. */
static void check_jobs(ls_engine *e, ls_watch *watch, uint64_t steps_done)
{
    bool awaited[LS_DEVICES_MAX];
    for (int w = 0; w < e->workers; w++)
        awaited[w] = e->worker[w].presence != LS_STALLED && ls_pool_busy(e->pool, w) > 0;
    check_workers(watch, e, awaited, steps_done);
}

/* Waits up to LS_NAP_NS for the end of all jobs. Returns LS_ETIMEDOUT if some are still running. */
static int wait_briefly(ls_engine *e)
{
    const uint64_t begin = ls_now_ns();
    const int status = ls_pool_wait(e->pool, LS_NAP_NS, NULL);
    record_pause(e, begin);
    return status;
}

/* Uses e->watch, which is also used for steps. This is possible because no step is in flight during
 * a job. A second watch on the stack would need too much stack. */
void ls_await_jobs(ls_engine *e, uint64_t steps_done)
{
    ls_watch_begin(&e->watch);
    while (wait_briefly(e) == LS_ETIMEDOUT) {
        check_jobs(e, &e->watch, steps_done);
        call_idle(e);
    }
    call_idle(e);
}

/* ---- waiting for reports -------------------------------------------------------------------- */

/* The workers whose report of the current step has not arrived. */
typedef struct awaited {
    int worker[LS_DEVICES_MAX];
    ls_ring *ring[LS_DEVICES_MAX];
    int count;
} awaited;

static void await_all(awaited *a, ls_engine *e)
{
    a->count = 0;
    for (int w = 0; w < e->workers; w++) {
        if (e->worker[w].presence != LS_LIVE)
            continue;
        a->worker[a->count] = w;
        a->ring[a->count++] = &e->worker[w].reports;
    }
}

/* Removes entry `index`. */
static void remove_awaited(awaited *a, int index)
{
    a->count--;
    a->worker[index] = a->worker[a->count];
    a->ring[index] = a->ring[a->count];
}

/* Stores the report of the worker of entry `index`, and removes the entry. If the step failed, also
 * stores the worker's fault. */
static void store_report(awaited *a, ls_engine *e, const ls_report *report, int index)
{
    ls_train_worker *w = &e->worker[a->worker[index]];
    w->report = *report;
    if (report->status && w->fault.error.status == LS_OK) {
        w->fault = (ls_fault){.worker = w->index, .step = report->number, .error = w->error};
        w->fault.error.status = report->status;
    }
    remove_awaited(a, index);
}

/* Returns whether the worker's range was dropped: the program that embeds the library has cancelled
 * its own pool before the worker began the range. The worker then sends no report. */
static bool was_dropped(const ls_engine *e, int worker)
{
    return e->desc.pool && ls_pool_busy(e->pool, worker) == 0 &&
           ls_ring_length(&e->worker[worker].reports) == 0;
}

/* Records a fault for a range that the pool dropped. Aborts the group, because other workers can be
 * waiting for this worker in a merge. */
static void record_dropped(ls_engine *e, int worker, uint64_t step)
{
    ls_train_worker *w = &e->worker[worker];
    w->report = (ls_report){.number = step, .status = LS_ECANCELED};
    w->fault = (ls_fault){.worker = worker, .step = step};
    ls_fail(&w->fault.error, LS_ECANCELED, "the step was dropped: the pool was cancelled");
    if (e->group)
        e->group->type->abort(e->group);
}

/* Checks the awaited workers, and removes those that have stalled or whose range was dropped. */
static void check_awaited(awaited *a, ls_engine *e, uint64_t step, ls_watch *watch)
{
    bool is_awaited[LS_DEVICES_MAX] = {false};
    for (int i = 0; i < a->count; i++)
        is_awaited[a->worker[i]] = true;
    check_workers(watch, e, is_awaited, step);
    for (int i = a->count - 1; i >= 0; i--) {
        const int w = a->worker[i];
        const bool dropped = e->worker[w].presence != LS_STALLED && was_dropped(e, w);
        if (dropped)
            record_dropped(e, w, step);
        if (dropped || e->worker[w].presence == LS_STALLED)
            remove_awaited(a, i);
    }
}

/* Takes all reports that have arrived. If steps are short, several reports arrive together. Taking
 * them all at once is faster than a wait for each, because each wait reads the clock. */
static void take_ready(awaited *a, ls_engine *e)
{
    ls_report report;
    for (int i = a->count - 1; i >= 0; i--)
        if (ls_ring_try_pop(a->ring[i], &report) == LS_OK)
            store_report(a, e, &report, i);
}

/* Waits until every worker has reported the next step, has stalled, or had its range dropped by the
 * pool. */
static void await_reports(ls_engine *e)
{
    awaited a;
    ls_report report;
    await_all(&a, e);
    take_ready(&a, e);
    while (a.count > 0) {
        const uint64_t begin = ls_now_ns();
        int which = -1;
        int status = ls_ring_pop_any(&report, &which, a.ring, a.count, begin + LS_NAP_NS, NULL);
        record_pause(e, begin);
        if (status == LS_OK) {
            store_report(&a, e, &report, which);
        } else {
            check_awaited(&a, e, e->next_number, &e->watch);
            call_idle(e);
        }
    }
}

/* ---- collecting a step ---------------------------------------------------------------------- */

void ls_engine_collect(ls_engine *e, ls_outcome *out)
{
    *out = (ls_outcome){.bad_worker = -1, .bad_shard = -1};
    await_reports(e);
    e->taken++;
    e->next_number++;
    for (int i = e->workers - 1; i >= 0; i--) {
        const ls_train_worker *w = &e->worker[i];
        out->failed |= ls_has_fault(w);
        if (w->presence != LS_LIVE || w->report.status != LS_OK)
            continue;
        out->report = &w->report;
        if (w->report.bad_shard >= 0) {
            out->bad_worker = i;
            out->bad_shard = w->report.bad_shard;
        }
    }
}
