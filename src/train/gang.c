/* The same job on every worker, while the coordinator looks after their signs of life. */
#include "base/clock.h"
#include "base/error.h"
#include "train/run.h"

#define LOOK_EVERY_NS 20000000u

void ls_watch_begin(ls_watch *watch, const struct ls_trainer *t)
{
    const uint64_t now = ls_now_ns();
    for (int w = 0; w < t->workers; w++) {
        watch->count[w] = ls_heartbeat_count(&t->worker[w].heartbeat);
        watch->since_ns[w] = now;
    }
}

uint64_t ls_watch_silence(ls_watch *watch, const struct ls_trainer *t, int worker)
{
    const uint64_t now = ls_now_ns(), count = ls_heartbeat_count(&t->worker[worker].heartbeat);
    if (count != watch->count[worker]) {
        watch->count[worker] = count;
        watch->since_ns[worker] = now;
    }
    return now - watch->since_ns[worker];
}

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
static void leave_the_silent_behind(struct ls_trainer *t, ls_watch *watch)
{
    for (int w = 0; w < t->workers; w++) {
        if (t->worker[w].presence == LS_STALLED || ls_pool_busy(t->pool, w) == 0)
            continue;
        uint64_t silence = ls_watch_silence(watch, t, w);
        if (silence > t->deadline_ns)
            ls_quarantine(t, w, t->position.steps, silence);
    }
}

int ls_gang(struct ls_trainer *t, ls_job job, ls_error *err)
{
    ls_watch watch;
    int status = submit(t, job, err);
    ls_watch_begin(&watch, t);
    while (ls_pool_wait(t->pool, LOOK_EVERY_NS, NULL) == LS_ETIMEDOUT) {
        leave_the_silent_behind(t, &watch);
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
