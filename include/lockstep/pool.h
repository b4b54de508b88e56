/* The worker pool: N threads, each with a lock-free inbox and, if asked for, CPUs of its own.
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
 * and destroy. The others may be called from any thread. Several pools are independent of each
 * other.
 * Whose threads: a worker runs on a thread of the pool's; or on one that the host lends to it
 * (`borrowed`, ls_pool_serve); or, worker 0 with `caller_works`, on the owner's, inside ls_pool_run
 * and ls_pool_wait.
 * Errors: a job that returns a negative status latches it; the first one wins and later jobs are
 * still run. ls_pool_wait and ls_pool_run report the latched error, again and again, until
 * ls_pool_clear.
 * Stalls: a job that never returns cannot be stopped, but it can be given up. Waits have time
 * limits; ls_pool_abandon lets the pool go on without that worker, and destroying the pool leaves
 * its thread behind, together with the little memory that the thread may still touch: the one leak
 * there is.
 * Jobs: a job, or a hook, must not call the owner's functions on its own pool; they return
 * LS_EINVAL and do nothing, where they would otherwise wait for themselves. On any other pool, one
 * that the job has made included, it may.
 * Idle workers sleep. Before they do, and before the owner does in a wait, they spin for a tenth of
 * a millisecond where every thread can have a CPU, and where that has brought something lately.
 * The owner does not spin for a worker that it had to wake and that may run anywhere: such a worker
 * starts soonest on the CPU that the owner leaves. Jobs that come seldom are therefore answered
 * sooner without `pinned`; work that keeps every CPU busy has warmer caches with it.
 * Signals: the pool's threads block every signal that is sent to the process, so the host's
 * handlers run in the host's threads; those that a thread raises by its own fault (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) and SIGPROF stay as they are. Lent threads and the
 * owner's keep the mask they have, and a handler that runs in one of them while it waits does not
 * end the wait. Nothing here may be called from a signal handler.
 * Cancellation: pthread_cancel does not reach a thread of the pool's, and reaches a lent one or the
 * owner's only after the call they are in. Asynchronous cancellation, pthread_exit and longjmp out
 * of a job are not supported.
 * Fork: a pool stays with the process that made it. In a child the owner's functions and
 * ls_pool_serve return LS_EINVAL, ls_pool_cancel does nothing, and ls_pool_destroy frees the
 * child's copy without running hooks. A child of a process that has a pool is one of several
 * threads, to which only async-signal-safe functions are open until it calls exec; a fork before
 * the first pool is made has no such limits.
 */
#ifndef LOCKSTEP_POOL_H
#define LOCKSTEP_POOL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_pool ls_pool;

/* A time limit in nanoseconds from now, counted while the waiting thread is awake: a process that was stopped
 * (SIGSTOP, a frozen container) goes on with about as much time left as it had. It runs on while a worker
 * lacks a CPU. */
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
    size_t size; /* sizeof(ls_pool_options) */
    int workers; /* 1 … 4096 */
    int inbox;   /* jobs an inbox holds; 0: 64; rounded up to a power of two; ≤ 2²⁰ */
    int pinned;  /* non-zero: each worker is confined to CPUs of its own; see ls_pool_create */
    int cpus_per_worker; /* how many of them when pinned; 0: an equal share of them all */
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
    /* Non-zero: worker 0 has no thread, but is the owner, who has to be the same thread from create
     * to destroy. Its hooks run in these two; its jobs run inside ls_pool_run and ls_pool_wait,
     * whose time limit neither cuts them short nor counts them. A gang of as many workers as there are CPUs then
     * leaves none of them waiting. Worker 0 cannot be abandoned. */
    int caller_works;
    /* So many workers, the last ones, run on threads that the host lends: see ls_pool_serve. The
     * pool does not pin or name those. */
    int borrowed;
    int time_jobs; /* non-zero: measure how long jobs take (ls_pool_stats.busy_ns); costs two looks
                    * at the clock a job */
} ls_pool_options;

/* What a worker has done since the pool was made. */
typedef struct ls_pool_stats {
    size_t size;        /* sizeof(ls_pool_stats), set by the caller */
    uint64_t submitted; /* jobs it was given, parts of gangs included */
    uint64_t run;       /* jobs that have returned … */
    uint64_t failed;    /* … and how many of them with an error */
    uint64_t dropped;   /* jobs that were not begun, after a cancel or an abandon */
    uint64_t waits;     /* how often it found its inbox empty … */
    uint64_t sleeps;    /* … and how often it went to sleep then, having spun in vain */
    uint64_t busy_ns;   /* time in jobs that have returned; 0 unless options.time_jobs */
} ls_pool_stats;

/* How many CPUs this process may really use: its affinity mask, cut down by the cgroup's CPU
 * quota (rounded up). At least 1. */
int ls_allowed_cpus(void);

/* How many cores those CPUs belong to, cut down by the same quota: a core with two hardware threads
 * counts once. At least 1. */
int ls_allowed_cores(void);

/* Starts the workers and returns when the start hooks of all but the borrowed ones have returned.
 * With `pinned`, the affinity mask of the calling thread is cut into equal, disjoint parts, one for
 * each worker, whole cores together as far as that works out; a worker on a thread of the pool's is
 * confined to its part, or to `cpus_per_worker` CPUs of it. Where a CPU quota is smaller than the mask, workers
 * keep their whole parts, so that several containers do not crowd on the same CPUs. When the mask
 * does not suffice, no worker is pinned, and the host's log says so.
 * Errors: LS_EINVAL, LS_ENOMEM, LS_ESYSTEM (no thread), or the start hook's. */
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

/* Statistics of `worker`, or the sums over all workers for −1, each a value that was true a moment
 * ago. out->size says how much of it the caller knows. Any thread. Errors: LS_EINVAL. */
int ls_pool_get_stats(ls_pool_stats *out, const ls_pool *pool, int worker, ls_error *err);

/* Lends the calling thread to the pool as `worker`, one of the borrowed ones: runs the start hook,
 * the worker's jobs and the stop hook, and returns when the pool is destroyed. Jobs that were
 * submitted before wait for it. The host sees to it that no call begins once the pool's end has: a
 * gang that has run shows that every worker is served. Any thread that is in no job of the pool.
 * Errors: LS_EINVAL (not one of the borrowed ones), LS_EAGAIN (another thread serves it),
 * LS_ESTALLED (the pool was destroyed without waiting for this thread: `pool` is gone), else the
 * start hook's; then no job has run, and another thread may serve the worker. */
int ls_pool_serve(ls_pool *pool, int worker, ls_error *err);

/* Ends the pool: workers run what is queued, then their stop hooks; their threads are joined, lent
 * ones sent back, and everything is freed. What waits for a worker that no thread serves is
 * dropped. It waits for ever for all of them, except for abandoned ones that are still busy when
 * the others have ended. NULL is allowed. Returns LS_OK, or LS_ESTALLED when a worker was left
 * behind, as ls_pool_destroy_within describes. */
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
 * is detached if it is the pool's, its stop hook is not run unless it has begun, and what it may
 * still touch of the pool is never freed. Should its job return, it ends without calling the host
 * or anything else of the caller's; until then it uses what the job uses. `pool` is gone in any
 * case but one: LS_EINVAL, from a job of its own. NULL is allowed.
 * Errors: LS_ESTALLED (the text names the workers left behind and their jobs), LS_EINVAL. */
int ls_pool_destroy_within(ls_pool *pool, ls_timeout timeout, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
