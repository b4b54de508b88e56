/* The worker pool: N threads, each confined to CPUs of its own, each with a lock-free inbox.
 *
 *     static int hello(const ls_worker *w, void *arg, ls_error *err) { ...; return LS_OK; }
 *
 *     ls_pool_options o = {.size = sizeof o, .workers = 4};
 *     ls_pool *pool;
 *     ls_pool_create(&pool, &o, &err);
 *     ls_pool_run(pool, hello, &state, LS_FOREVER, &err);   // once on every worker, and wait
 *     ls_pool_destroy(pool);
 *
 * The pool links nothing but pthreads and knows nothing of devices (device_pool.h does).
 *
 * Threads: one thread at a time, the *owner*, may call create, submit, run, wait, clear, abandon
 * and destroy. ls_pool_cancel, ls_pool_first_error, ls_pool_busy and ls_pool_is_abandoned may be
 * called from any thread. A job must not call the owner's functions on its own pool.
 * Errors: a job that returns a negative status latches it; the first one wins and later jobs are
 * still run. ls_pool_wait and ls_pool_run report the latched error, again and again, until
 * ls_pool_clear.
 * Stalls: a job that never returns cannot be stopped, but it can be given up. Waits have time
 * limits; ls_pool_abandon lets the pool go on without that worker, and destroying the pool leaves
 * its thread behind, together with the little memory that the thread may still touch: the one leak
 * there is.
 * Signals: workers block every signal that is sent to the process, so the host's handlers run in
 * the host's threads; those that a thread raises by its own fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL,
 * SIGTRAP, SIGSYS, SIGABRT) and SIGPROF stay as they are. The caller's own mask is not changed.
 * Idle workers sleep; a worker spins for some tens of microseconds before it does, unless there
 * are more workers than CPUs.
 */
#ifndef LOCKSTEP_POOL_H
#define LOCKSTEP_POOL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_pool ls_pool;

/* A time limit in nanoseconds from now. */
typedef uint64_t ls_timeout;
#define LS_FOREVER UINT64_MAX

/* What a worker's hooks and jobs are told about the thread they run on. */
typedef struct ls_worker {
    int index;   /* 0 … workers − 1 */
    int workers; /* in this pool */
    void *local; /* the worker's own pointer, set by the start hook */
} ls_worker;

/* Work for one worker. Writes `err` when it returns a negative status. */
typedef int (*ls_job)(const ls_worker *worker, void *arg, ls_error *err);

typedef struct ls_pool_options {
    size_t size;         /* sizeof(ls_pool_options) */
    int workers;         /* 1 … 4096 */
    int inbox;           /* jobs an inbox holds; 0: 64; rounded up to a power of two; ≤ 2²⁰ */
    int cpus_per_worker; /* CPUs each worker is confined to; 0: an equal share of them all */
    int no_pinning;      /* non-zero: leave threads where the kernel puts them */
    const char *name;    /* threads are called "<name>/<index>", the name cut so that the whole
                          * has at most 15 bytes; NULL: "lockstep"; copied */
    /* Runs first on each worker's thread; may set worker->local. A negative status makes
     * ls_pool_create fail with that error, after the stop hooks of the workers that did start. */
    int (*start)(ls_worker *worker, void *user, ls_error *err);
    /* Runs last on each worker's thread whose start hook succeeded, while the pool is destroyed,
     * and sees what the owner did before that. Not run on a worker that is left behind. */
    void (*stop)(ls_worker *worker, void *user);
    void *user;          /* passed to both hooks */
    const ls_host *host; /* NULL: the defaults */
} ls_pool_options;

/* How many CPUs this process may really use: its affinity mask, cut down by the cgroup's CPU
 * quota (rounded up). At least 1. */
int ls_allowed_cpus(void);

/* How many cores those CPUs belong to, cut down by the same quota: a core with two hardware threads
 * counts once. At least 1. */
int ls_allowed_cores(void);

/* Starts the workers and returns when every start hook has returned. The affinity mask of the
 * calling thread is cut into equal, disjoint parts, one for each worker, whole cores together as
 * far as that works out; a worker is pinned to its part, or to `cpus_per_worker` CPUs of it. Where
 * a CPU quota is smaller than the mask, workers keep their whole parts, so that several containers
 * do not crowd on the same CPUs. When the mask does not suffice, no worker is pinned, and the
 * host's log says so. Errors: LS_EINVAL, LS_ENOMEM, LS_ESYSTEM (no thread), or the start hook's. */
int ls_pool_create(ls_pool **out, const ls_pool_options *options, ls_error *err);

/* Number of workers. Any thread. */
int ls_pool_size(const ls_pool *pool);

/* Puts one job into a worker's inbox and returns at once. `arg` must live until the job has run.
 * Errors: LS_EAGAIN when the inbox is full, LS_ESTALLED when the worker is abandoned, LS_ECANCELED
 * after cancel, LS_EINVAL. */
int ls_pool_submit(ls_pool *pool, int worker, ls_job job, void *arg, ls_error *err);

/* Runs `job` once on every worker that is not abandoned, after whatever their inboxes hold, and
 * waits for it. Errors: LS_EAGAIN (an inbox stayed full until the time was over; no worker got the
 * job), LS_ETIMEDOUT (the text names the workers that have not finished; their jobs go on: wait
 * again, or abandon them), LS_ESTALLED (all are abandoned), LS_ECANCELED after cancel, LS_EINVAL,
 * else the first latched error. */
int ls_pool_run(ls_pool *pool, ls_job job, void *arg, ls_timeout timeout, ls_error *err);

/* Waits until every submitted job has finished or was dropped, those of abandoned workers apart.
 * What the jobs wrote is visible to the owner then. Errors: LS_ETIMEDOUT (the text names the
 * workers), else the first latched one. */
int ls_pool_wait(ls_pool *pool, ls_timeout timeout, ls_error *err);

/* Drops the jobs that have not begun and refuses new ones with LS_ECANCELED; latches
 * LS_ECANCELED unless an error is latched already. Jobs that run are not interrupted. Not for
 * signal handlers. */
void ls_pool_cancel(ls_pool *pool);

/* LS_OK, or the first latched status with its text in `err`. `worker`, if not NULL, receives the
 * index of the worker it came from (−1: the owner). */
int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err);

/* Makes a pool that failed or was cancelled usable again: forgets the latched error and the cancel.
 * Errors: LS_EAGAIN while a job is queued or running (wait first). */
int ls_pool_clear(ls_pool *pool, ls_error *err);

/* Ends the pool: workers run what is queued, then their stop hooks; their threads are joined and
 * everything is freed. It waits for ever for all of them, except for abandoned ones that are still
 * busy when the others have ended. NULL is allowed. Returns LS_OK, or LS_ESTALLED when a worker was
 * left behind, as ls_pool_destroy_within describes. */
int ls_pool_destroy(ls_pool *pool);

/* ---- workers that stall --------------------------------------------------------------------- */

/* Any thread. How many jobs of `worker` are queued or running; 0 for a worker that does not exist.
 * 0 means for the owner that the worker is idle and that all its jobs wrote is visible: also, that
 * an abandoned worker has come back. */
int ls_pool_busy(const ls_pool *pool, int worker);

/* Owner. Gives `worker` up. No job reaches it any more: ls_pool_submit refuses with LS_ESTALLED,
 * ls_pool_run leaves it out, what waits in its inbox is dropped, and neither ls_pool_run nor
 * ls_pool_wait nor ls_pool_clear waits for it. The job that it runs is not interrupted, so that
 * job's `arg` must stay; an error that it still returns is not latched. The others keep their
 * numbers. A worker that comes back stays abandoned: it idles until the pool is destroyed. Calling
 * it again changes nothing. Errors: LS_EINVAL (no such worker). */
int ls_pool_abandon(ls_pool *pool, int worker, ls_error *err);

/* Any thread. Whether `worker` was abandoned; 0 for a worker that does not exist. */
int ls_pool_is_abandoned(const ls_pool *pool, int worker);

/* As ls_pool_destroy, but waits for all workers, abandoned or not, until `timeout` has passed (with
 * LS_FOREVER it is ls_pool_destroy). A worker that has not ended by then is left behind: its thread
 * is detached, its stop hook is not run unless it has begun, and what it may still touch of the
 * pool is never freed. Should its job return, it ends without calling the host or anything else of
 * the caller's; until then it uses what the job uses. `pool` is gone in any case. NULL is allowed.
 * Errors: LS_ESTALLED (the text names the workers left behind and their jobs). */
int ls_pool_destroy_within(ls_pool *pool, ls_timeout timeout, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
