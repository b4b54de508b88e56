/* SPDX-License-Identifier: MIT */
/* Running a job, which is work that all workers do between steps; and the functions that run one
 * certain job. The coordinator calls them. The arguments and results of jobs are in the exchange
 * (exchange.h). */
#include "base/digest.h"
#include "base/error.h"
#include "engine/worker.h"

/* Runs the worker's `job` on its thread. The result is stored as the status of the worker's
 * `error`. */
static int run_job(const ls_worker *thread, void *arg, ls_error *err)
{
    (void)err;
    const ls_exchange *e = arg;
    ls_train_worker *w = &e->engine->worker[thread->index];
    /* A worker whose device has failed runs only the job in which it leaves its group. */
    const bool skips = w->device_failed && w->job != ls_worker_join;
    w->device = ls_worker_device(thread);
    w->error.status = skips ? LS_OK : w->job(w, e);
    ls_beat(&w->heartbeat, LS_PLACE_IDLE);
    return LS_OK;
}

/* Submits the job to all workers that are not stalled. */
static int submit(ls_engine *e, ls_worker_job *job, ls_error *err)
{
    for (int i = 0; i < e->workers; i++) {
        if (e->worker[i].presence == LS_STALLED)
            continue;
        e->worker[i].job = job;
        /* The error for the case that the caller cancels its pool before the job begins. In all
         * other cases run_job overwrites this error. */
        if (e->worker[i].presence == LS_LIVE)
            ls_fail(&e->worker[i].error, LS_ECANCELED,
                    "its job was dropped: the pool was cancelled");
        int status = ls_pool_submit(e->pool, i, run_job, e->exchange, err);
        if (status)
            return status;
    }
    return LS_OK;
}

int ls_engine_run_all(ls_engine *e, ls_worker_job *job, uint64_t steps_done, ls_error *err)
{
    e->exchange->steps = steps_done;
    int status = submit(e, job, err);
    ls_await_jobs(e, steps_done);
    for (int i = 0; i < e->workers; i++) {
        ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_STALLED && w->fault_returned)
            continue;
        if (w->presence == LS_LIVE)
            w->fault = (ls_fault){.worker = i, .step = steps_done, .error = w->error};
        const ls_error *why = w->presence == LS_LOST ? &w->error : &w->fault.error;
        if (status == LS_OK && why->status != LS_OK && why->status != LS_EABORTED)
            status = ls_fail(err, why->status, "worker %d: %.480s", i, why->text);
    }
    return status;
}

int ls_engine_load(ls_engine *e, uint64_t steps_done, ls_error *err)
{
    return ls_engine_run_all(e, ls_worker_load, steps_done, err);
}

void ls_engine_set_model(ls_engine *e, const ls_network *model, uint64_t begun)
{
    e->exchange->model = model;
    e->begun = begun;
}

int ls_engine_renew(ls_engine *e, uint64_t steps_done, ls_error *err)
{
    e->exchange->state.has_slots = true;
    return ls_engine_run_all(e, ls_worker_renew, steps_done, err);
}

/* ---- reading back --------------------------------------------------------------------------- */

/* Names a live worker in the list of digests that compare_states makes. */
static const char *name_of_worker(void *engine, int rank)
{
    const ls_engine *e = engine;
    for (int i = 0; i < e->workers; i++)
        if (e->worker[i].presence == LS_LIVE && e->worker[i].rank == rank)
            return e->worker[i].info.name;
    return "";
}

/* Compares checksums and digests of all live workers. Errors: LS_EDIVERGED. */
static int compare_states(ls_engine *e, uint64_t steps_done, ls_error *err)
{
    uint64_t state[LS_DEVICES_MAX];
    char why[300];
    int count = 0;
    for (int i = 0; i < e->workers; i++) {
        const ls_train_worker *w = &e->worker[i];
        if (w->presence == LS_LIVE)
            state[count++] = ls_digest_next(w->digest, w->checksum);
    }
    if (ls_digests_agree(state, count))
        return LS_OK;
    ls_digest_explain(why, sizeof why, state, count, name_of_worker, e);
    return ls_fail(err, LS_EDIVERGED, "after step %llu: %s", (unsigned long long)steps_done, why);
}

int ls_engine_settle(ls_engine *e, uint64_t steps_done, ls_error *err)
{
    const int first = ls_first_live(e);
    if (first == e->workers || !ls_replica_digest_is_late(e->worker[first].replica))
        return LS_OK;
    return ls_engine_run_all(e, ls_worker_settle, steps_done, err);
}

int ls_engine_read_back(ls_engine *e, bool exports, uint64_t steps_done, ls_error *err)
{
    e->exchange->exporter = exports ? ls_first_live(e) : -1;
    int status = ls_engine_run_all(e, ls_worker_copy_state, steps_done, err);
    return status ? status : compare_states(e, steps_done, err);
}
