/* SPDX-License-Identifier: MIT */
/* The worker pool: N threads, each with a lock-free queue of jobs (its *inbox*) and, on request,
 * CPUs of its own.
 *
 *     static int hello(const ls_worker *w, void *arg, ls_error *err) { ...; return LS_OK; }
 *
 *     ls_pool_options o = {.size = sizeof o, .workers = 4};
 *     ls_pool *pool;
 *     ls_pool_create(&pool, &o, &err);
 *     ls_pool_run(pool, hello, &state, LS_FOREVER, &err);   // runs hello on all workers, and waits
 *     ls_pool_destroy(pool, LS_FOREVER, &err);
 *
 * The pool needs only pthreads. device_pool.h adds devices.
 *
 * Threads: one thread at a time, the *owner*, may call create, submit, run, wait, clear, abandon
 * and destroy. Any thread may call the other functions. Several pools do not affect each other.
 * Worker threads: there are three kinds of workers.
 *
 * - A worker usually runs on a thread that the pool starts.
 * - A *borrowed* worker runs on a thread that the host program (the program that uses this library)
 *   lends to the pool (options.borrowed, ls_pool_serve).
 * - With options.caller_works, worker 0 runs on the owner's thread, inside ls_pool_run and
 *   ls_pool_wait.
 *
 * Errors: the pool stores ("latches") the error of the first job that returns a negative status.
 * Later jobs still run, but the pool ignores their errors. ls_pool_wait and ls_pool_run return the
 * latched error every time until ls_pool_clear is called.
 * Stalls: a job that never returns cannot be stopped, but its worker can be abandoned. Waits have
 * time limits (ls_timeout), and after ls_pool_abandon the pool works without that worker. If an
 * abandoned worker is still in its job when the pool is destroyed, its thread is left running. The
 * small part of the pool's memory that this thread can still access is leaked. The pool leaks no
 * other memory. Jobs: a job or a hook must not call the owner's functions on its own pool, because
 * these functions would wait for the calling thread itself. Such a call returns LS_EINVAL and does
 * nothing. A job may call the owner's functions of another pool, such as a pool that the job has
 * created.
 * Waiting: a thread that has to wait (a worker for a job, or the owner for results) first spins for
 * 0.1 ms, and then sleeps. A thread does not spin if the process has fewer CPUs than the pool has
 * threads, nor, but from time to time, after several spins in which the awaited event did not come.
 * An owner that has just woken a worker that is not pinned (options.pinning) goes to sleep at once,
 * because the kernel can start that worker soonest on its CPU. Therefore LS_PINNING_OFF is faster
 * if the intervals between jobs are so long that the workers go to sleep. LS_PINNING_ON is faster
 * for work that keeps every CPU busy, because each worker finds its data in the cache of its own
 * CPU.
 * Signals: the pool's threads block all signals except those that a fault of the thread itself
 * raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) and SIGPROF. Therefore signals
 * that are sent to the process are handled on the host program's threads. Lent threads and the
 * owner keep their signal masks. If a handler runs on a lent thread or on the owner during a wait,
 * the wait continues afterwards. Signal handlers must not call any function of this header.
 * Cancellation: pthread_cancel has no effect on the pool's threads, and takes effect on a lent
 * thread or the owner only after the call that the thread is in. Asynchronous cancellation, and
 * leaving a job by pthread_exit or longjmp, are not supported.
 * Fork: a pool belongs to the process that created it. In a child process that fork has created,
 * the owner's functions and ls_pool_serve return LS_EINVAL, and ls_pool_cancel does nothing.
 * ls_pool_destroy frees the child's copy there without running hooks. POSIX allows the child of a
 * multi-threaded process only async-signal-safe functions before exec, and ls_pool_destroy is not
 * one of them. A fork before the first pool is created has no such limits. */
#ifndef LOCKSTEP_POOL_H
#define LOCKSTEP_POOL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A pool of workers, which the functions below create and use. */
typedef struct ls_pool ls_pool;

/* Whether workers run only on CPUs of their own. */
typedef enum ls_pinning {
    LS_PINNING_DEFAULT = 0, /* pool.h: off; device_pool.h: on for workers of CPUs */
    LS_PINNING_ON = 1,      /* each worker has CPUs of its own (see ls_pool_create) */
    LS_PINNING_OFF = 2      /* a worker runs on any CPU of the process */
} ls_pinning;

/* The worker that runs a hook or a job. */
typedef struct ls_worker {
    int index;   /* number of this worker, 0 … workers − 1 */
    int workers; /* number of workers in the pool */
    void *local; /* pointer that belongs to this worker, set by the start hook */
} ls_worker;

/* A job: a function that the program supplies and a worker calls. `arg` is the pointer that the
 * owner passed with the job to ls_pool_submit or ls_pool_run. The job returns LS_OK; or it writes
 * `err` and returns a negative status (status.h, "Callbacks"). */
typedef int (*ls_job)(const ls_worker *worker, void *arg, ls_error *err);

/* Options of ls_pool_create. */
typedef struct ls_pool_options {
    size_t size; /* sizeof(ls_pool_options) */
    int workers; /* number of workers, 1 … 4096 */
    int inbox;   /* capacity of an inbox in jobs, ≤ 2²⁰, rounded up to a power of two; 0: 64 */
    ls_pinning pinning;  /* whether each worker has CPUs of its own; default: off */
    int cpus_per_worker; /* number of CPUs of a pinned worker; 0: an equal share of all CPUs */
    /* Prefix of the names of the pool's threads, "<name>/<index>". The pool copies the prefix, and
     * truncates it so that a thread's name has at most 15 bytes. NULL: "lockstep". */
    const char *name;
    /* Hook that runs on each worker's thread before any job; it may set worker->local. If a start
     * hook returns a negative status, ls_pool_create runs the stop hooks of the workers whose start
     * hooks succeeded, and then fails with that error. (For a borrowed worker, ls_pool_serve
     * fails.) NULL: none. */
    int (*start)(ls_worker *worker, void *user, ls_error *err);
    /* Hook that runs last on the thread of each worker whose start hook succeeded, while the pool
     * is destroyed. The hook sees all memory that the owner wrote before it destroyed the pool. The
     * hook does not run on a worker whose thread is left running because its job did not return.
     * NULL: none. */
    void (*stop)(ls_worker *worker, void *user);
    void *user;          /* passed to both hooks; what it points to outlives the pool */
    const ls_host *host; /* allocator and log (host.h); outlives the pool; NULL: malloc, no log */
    /* Non-zero: worker 0 has no thread of its own, but runs on the owner's thread. The owner must
     * then be the same thread from create to destroy. Worker 0's start hook runs inside
     * ls_pool_create, its stop hook inside ls_pool_destroy, and its jobs inside ls_pool_run and
     * ls_pool_wait. The time limit of ls_pool_run or ls_pool_wait does not interrupt worker 0's
     * jobs, and the time that these jobs take is not counted. With this option, a pool with as many
     * workers as CPUs has exactly one busy thread for each CPU. Worker 0 cannot be abandoned. */
    int caller_works;
    /* Number of borrowed workers, which run on threads of the host program (ls_pool_serve). The
     * workers with the highest indices are the borrowed ones. The pool does not pin or name the
     * lent threads. */
    int borrowed;
    int time_jobs; /* non-zero: the pool measures how long jobs take (ls_pool_stats.busy_ns). The
                    * cost is two readings of the clock for each job */
} ls_pool_options;

/* Counters of one worker, or their sums over all workers, since the pool was created. */
typedef struct ls_pool_stats {
    size_t size;        /* sizeof(ls_pool_stats), set by the caller */
    uint64_t submitted; /* number of jobs submitted to the worker, those of ls_pool_run included */
    uint64_t run;       /* number of jobs that have returned */
    uint64_t failed;    /* number of jobs that have returned an error */
    uint64_t dropped;   /* number of jobs that never started, because ls_pool_cancel or
                         * ls_pool_abandon dropped them */
    uint64_t waits;     /* number of times that the worker found its inbox empty */
    uint64_t sleeps;    /* number of times that the worker went to sleep in these waits */
    uint64_t busy_ns;   /* total time of jobs that have returned, in nanoseconds; 0 if
                         * options.time_jobs is 0 */
} ls_pool_stats;

/* Returns the number of CPUs that this process may use, at least 1: the number of CPUs in its
 * affinity mask, or the cgroup's CPU quota, rounded up, if the quota is smaller. Any thread. */
int ls_allowed_cpus(void);

/* Returns the number of cores that this process may use, at least 1: the number of cores to which
 * the CPUs of its affinity mask belong, or the rounded CPU quota if the quota is smaller. A core
 * with two hardware threads counts once. Any thread. */
int ls_allowed_cores(void);

/* Creates a pool and starts its workers. Returns when the start hooks of all workers have returned,
 * except the hooks of borrowed workers. The calling thread becomes the owner.
 * Pinning: with LS_PINNING_ON, the pool cuts the affinity mask of the calling thread into equal,
 * disjoint parts, one for each worker, and keeps cores whole where possible. A worker that runs on
 * a thread of the pool is confined to its part, or to `cpus_per_worker` CPUs of that part. A CPU
 * quota that is smaller than the mask does not change the parts, and `cpus_per_worker` is then
 * ignored. Therefore the containers on one machine do not all use the first CPUs of the mask. If a
 * part would have no CPU, or fewer CPUs than `cpus_per_worker`, no worker is pinned, and the host's
 * log says so.
 * Errors: LS_EINVAL (also if too little of the calling thread's stack is left; 128 KiB are enough),
 * LS_ENOMEM, LS_ESYSTEM (no thread could be started), or the start hook's. */
int ls_pool_create(ls_pool **out, const ls_pool_options *options, ls_error *err);

/* Returns the number of workers, abandoned ones included. Any thread. */
int ls_pool_size(const ls_pool *pool);

/* Puts one job into a worker's inbox and returns at once. The data at `arg` must exist until the
 * job has returned or was dropped. Called by the owner. Errors: LS_EAGAIN (the inbox is full),
 * LS_ESTALLED (the worker is abandoned), LS_ECANCELED (after ls_pool_cancel), LS_EINVAL. */
int ls_pool_submit(ls_pool *pool, int worker, ls_job job, void *arg, ls_error *err);

/* Runs `job` once on every worker that is not abandoned, after the jobs that are already in that
 * worker's inbox, and waits at most `timeout` until all these workers have finished; with 0 it does
 * not wait. Called by the owner.
 * Errors: LS_EAGAIN (an inbox stayed full until the time limit; no worker got the job),
 * LS_ETIMEDOUT (the message names the workers that have not finished; their jobs continue, so wait
 * again or abandon the workers), LS_ESTALLED (all workers are abandoned), LS_ECANCELED (after
 * ls_pool_cancel), LS_EINVAL, or else the latched error. */
int ls_pool_run(ls_pool *pool, ls_job job, void *arg, ls_timeout timeout, ls_error *err);

/* Waits at most `timeout` until every submitted job has finished or was dropped, except for jobs
 * of abandoned workers; with 0 it only looks. The owner then sees everything that these jobs
 * wrote. Called by the owner.
 * Errors: LS_ETIMEDOUT (the message names the workers that have not finished), LS_EINVAL, or else
 * the latched error. */
int ls_pool_wait(ls_pool *pool, ls_timeout timeout, ls_error *err);

/* Cancels the pool: jobs that have not begun are dropped, and new jobs are refused with
 * LS_ECANCELED. If no error is latched yet, LS_ECANCELED is latched. Running jobs are not
 * interrupted. Any thread, but not a signal handler. */
void ls_pool_cancel(ls_pool *pool);

/* Returns LS_OK, or the latched status with its message in `err`. `worker`, unless NULL, receives
 * the index of the worker whose job failed, or −1 if the error is not from a worker. Any thread. */
int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err);

/* Makes a pool usable again after an error or ls_pool_cancel: clears the latched error and ends the
 * cancellation. Called by the owner. Errors: LS_EAGAIN (a job is queued or running: call
 * ls_pool_wait first), LS_EINVAL. */
int ls_pool_clear(ls_pool *pool, ls_error *err);

/* Writes the counters of `worker` to *out; if `worker` is −1, their sums over all workers. The
 * caller sets out->size. While workers run, a counter can be slightly out of date, and the counters
 * need not belong to one moment. Any thread. Errors: LS_EINVAL. */
int ls_pool_get_stats(const ls_pool *pool, int worker, ls_pool_stats *out, ls_error *err);

/* Lends the calling thread to the pool as `worker`, which must be a borrowed one: runs the start
 * hook, the worker's jobs and the stop hook, and returns when the pool is destroyed. Jobs that were
 * submitted before the call wait in the inbox. The host program must not begin this call after the
 * destruction of the pool has begun. One way to ensure this is to let one ls_pool_run complete
 * before the destruction, because ls_pool_run completes only when every worker has a thread. Any
 * thread that is not inside a job of the pool.
 * Errors: LS_EINVAL (`worker` is not borrowed), LS_EAGAIN (another thread serves it), LS_ESTALLED
 * (the pool was destroyed without waiting for this thread; `pool` is invalid), or else the start
 * hook's error. After an error of the start hook no job has run, and another thread may serve the
 * worker. */
int ls_pool_serve(ls_pool *pool, int worker, ls_error *err);

/* Destroys the pool: workers run their queued jobs, then their stop hooks; the pool's threads are
 * joined, ls_pool_serve returns on lent threads, and all memory is freed. Jobs for a borrowed
 * worker that no thread serves are dropped. The function waits at most `timeout` for the workers,
 * abandoned workers included. With LS_FOREVER there is no limit, but an abandoned worker that is
 * still in its job when the other workers have ended is not waited for. A worker that has not ended
 * at the end of the wait is left running:
 *
 * - If its thread was started by the pool, the thread is detached.
 * - Its stop hook does not run, unless the hook has begun already.
 * - The memory of the pool that the worker can still access is never freed.
 * - If its job returns later, the thread ends without calling options.stop, the functions of
 *   options.host or other code of the caller. Until then the job keeps using its own data. (If the
 *   thread is a lent one, its ls_pool_serve returns LS_ESTALLED.)
 *
 * `pool` is invalid after the call, except after LS_EINVAL, which the function returns if a job of
 * this pool calls it. NULL is allowed. Called by the owner.
 * Errors: LS_ESTALLED (the message names the workers left running and their jobs), LS_EINVAL. */
int ls_pool_destroy(ls_pool *pool, ls_timeout timeout, ls_error *err);

/* ---- workers that stall --------------------------------------------------------------------- */

/* Returns the number of jobs of `worker` that are queued or running, or 0 for a worker that does
 * not exist. If the owner receives 0, the worker is idle, and everything that its jobs wrote is
 * visible to the owner. (An abandoned worker has then returned from its job.) Any thread. */
int ls_pool_busy(const ls_pool *pool, int worker);

/* Abandons `worker`: no further job runs on this worker.
 *
 * - The jobs in its inbox are dropped, and ls_pool_submit to this worker fails with LS_ESTALLED.
 * - ls_pool_run skips the worker. ls_pool_run, ls_pool_wait and ls_pool_clear do not wait for it.
 * - The job that the worker is running is not interrupted, so that job's `arg` must stay valid. If
 *   the job returns an error later, the error is ignored. The worker then idles until the pool is
 *   destroyed.
 *
 * The other workers keep their indices. A second call for the same worker changes nothing. Called
 * by the owner. Errors: LS_EINVAL (no such worker, or worker 0 with options.caller_works). */
int ls_pool_abandon(ls_pool *pool, int worker, ls_error *err);

/* Returns non-zero if `worker` was abandoned, and 0 for a worker that does not exist. Any
 * thread. */
int ls_pool_is_abandoned(const ls_pool *pool, int worker);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
