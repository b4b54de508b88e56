/* SPDX-License-Identifier: MIT */
/* Recovery after the failure of a worker of this process, or of another member. The functions find
 * the cause and decide whether the run goes on.
 *
 * The engine reports each failure of a worker as a fault (engine/fault.h). This file selects the
 * cause among the faults, decides by the config what is done, and records the decision. The engine
 * then has the remaining workers form a new group (engine/group.c). If another member is lost, this
 * member first regroups with the remaining members (regroup.c). */
#include "base/error.h"
#include "base/host.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/run_records.h"

/* ---- deciding ------------------------------------------------------------------------------- */

/* Returns how likely it is that the fault is the cause of the failure; a larger number is more
 * likely. Aborts and time-outs are less likely, because the failure of another worker causes them
 * in most cases. */
static int likelihood_of_cause(const ls_fault *fault)
{
    switch (fault->error.status) {
    case LS_EABORTED: return 1;
    case LS_ETIMEDOUT: return 2;
    default: return 3;
    }
}

/* Returns whether the worker is live and only waited: until its group was aborted, or for another
 * process that was lost. Such a worker has not failed itself. */
static bool only_waited(const struct ls_trainer *t, const ls_fault *fault)
{
    const int status = fault->error.status;
    return ls_engine_worker(t->engine, fault->worker).presence == LS_LIVE &&
           (status == LS_ESTALLED || status == LS_EABORTED);
}

/* Returns the fault that most likely caused the failure; NULL: no worker has failed. If another
 * process was lost, the faults of workers that only waited are ignored. */
static const ls_fault *find_cause(const struct ls_trainer *t, bool process_lost)
{
    const ls_fault *fault[LS_DEVICES_MAX], *cause = NULL;
    const int count = ls_engine_faults(t->engine, fault);
    for (int i = 0; i < count; i++) {
        if (process_lost && only_waited(t, fault[i]))
            continue;
        if (!cause || likelihood_of_cause(fault[i]) > likelihood_of_cause(cause))
            cause = fault[i];
    }
    return cause;
}

static int record_losses(struct ls_trainer *t, const ls_fault *const *lost, int count, bool stop,
                         ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < count; i++) {
        const ls_fault *f = lost[i];
        ls_log(t->host, LS_LOG_WARNING, "worker %d, %s: %.300s; %s", f->worker,
               ls_engine_device_name(t->engine, f->worker), f->error.text,
               stop ? "stopping" : "the others go on without it");
        int record_status =
            ls_record_fault(t, f, stop ? LS_ACTION_STOP : LS_ACTION_CONTINUE, status ? NULL : err);
        if (status == LS_OK)
            status = record_status;
    }
    return status;
}

/* Names the worker of the cause or, if that worker only waited for a host that is lost, the host.
 */
static int fail_with_cause(const struct ls_trainer *t, const ls_fault *cause, const char *when,
                           const char *why, ls_error *err)
{
    const char *host = only_waited(t, cause) ? ls_members_lost_host(t) : NULL;
    if (cause->error.status == LS_EDIVERGED) /* the worker has only noticed it */
        return ls_fail(err, LS_EDIVERGED, "%s: %.380s", when, cause->error.text);
    if (host)
        return ls_fail(err, cause->error.status, "host %s, %s: %.380s", host, when,
                       cause->error.text);
    return ls_fail(err, cause->error.status, "worker %d, %s: %.380s%s", cause->worker, when,
                   cause->error.text, why);
}

static int decide_on_losses(struct ls_trainer *t, const ls_fault *cause, const char *when,
                            const ls_fault *const *lost, int count, ls_error *err)
{
    const bool none_left = ls_engine_live(t->engine) == 0;
    const bool stop = none_left || t->config.stop_on_device_loss;
    int status = record_losses(t, lost, count, stop, err);
    if (status == LS_OK && none_left)
        return fail_with_cause(t, cause, when,
                               ls_engine_workers(t->engine) > 1 ? "; no device is left" : "", err);
    if (status == LS_OK && stop)
        return fail_with_cause(t, cause, when, "; stopped, as on_device_loss says", err);
    return status;
}

/* Handles a failure after which all devices still work. If the error is possibly temporary, the
 * work is repeated, but only once per step. */
static int decide_on_failure(struct ls_trainer *t, const ls_fault *cause, const char *when,
                             ls_error *err)
{
    ls_coordination *c = t->coordination;
    const int status = cause->error.status;
    const uint64_t next = t->position.steps + 1;
    const bool passing = status == LS_ENOMEM || status == LS_ETIMEDOUT || status == LS_EABORTED;
    if (!passing || c->repeated == next)
        return fail_with_cause(t, cause, when, "", err);
    c->repeated = next;
    ls_log(t->host, LS_LOG_WARNING, "worker %d, %s: %.300s; trying once more", cause->worker, when,
           cause->error.text);
    return ls_record_fault(t, cause, LS_ACTION_REPEAT, err);
}

/* Decides whether the run goes on after a failure of this process's workers. LS_OK: it goes on with
 * the remaining workers. */
static int decide_on_workers(struct ls_trainer *t, const ls_fault *cause, const char *when,
                             ls_error *err)
{
    const ls_fault *lost[LS_DEVICES_MAX];
    const int before = ls_engine_live(t->engine);
    const int count = ls_engine_drop(t->engine, lost);
    return ls_engine_live(t->engine) < before ? decide_on_losses(t, cause, when, lost, count, err)
                                              : decide_on_failure(t, cause, when, err);
}

/* Decides whether the run goes on after a failure of this process's workers, of other processes, or
 * of both. */
static int decide_on_all(struct ls_trainer *t, const char *when, ls_error *err)
{
    const bool process_lost = ls_members_lost(t);
    if (process_lost) {
        int status = ls_members_regroup(t, err);
        if (status)
            return status;
    }
    const ls_fault *cause = find_cause(t, process_lost);
    if (cause)
        return decide_on_workers(t, cause, when, err);
    return process_lost ? LS_OK : ls_fail(err, LS_EINTERNAL, "%s: failed, but no worker did", when);
}

/* ---- recovering ----------------------------------------------------------------------------- */

/* If forming the new group fails, the loop handles that failure in another round. The loop ends,
 * because each round except the last loses a worker or a process, or uses the one repetition of the
 * step. */
int ls_recover(struct ls_trainer *t, const char *when, ls_error *err)
{
    ls_error cause;
    for (;;) {
        int status = ls_engine_leave_stalled(t->engine, err);
        if (status == LS_OK)
            status = decide_on_all(t, when, err);
        if (status)
            return status;
        status = ls_engine_form(t->engine, NULL, t->position.steps, &cause);
        if (status == LS_OK)
            status = ls_members_level(t, &cause);
        if (status == LS_OK)
            return LS_OK;
        /* another round can handle only a lost process or a fault of a worker */
        if (!ls_members_lost(t) && !find_cause(t, false))
            return ls_fail(err, status, "%s", cause.text);
    }
}
