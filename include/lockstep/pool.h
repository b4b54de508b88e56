/* The worker pool: N threads, each with a lock-free inbox of jobs and, on request, CPUs of its own.
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
 * and destroy. Any thread may call the other functions. Several pools are independent of each
 * other.
 * Worker threads: a worker runs on a thread that the pool starts; or on a thread that the host
 * program lends to the pool (options.borrowed, ls_pool_serve); or, for worker 0 with
 * options.caller_works, on the owner's thread inside ls_pool_run and ls_pool_wait.
 * Errors: the pool keeps ("latches") the error of the first job that returns a negative status.
 * Later jobs still run, and their errors are dropped. ls_pool_wait and ls_pool_run return the
 * latched error every time until ls_pool_clear is called.
 * Stalls: a job that never returns cannot be stopped, but its worker can be abandoned. Waits have
 * time limits, and ls_pool_abandon lets the pool go on without that worker. When the pool is
 * destroyed, the thread of such a worker is left running, and the small part of the pool's memory
 * that it may still access is leaked. That is the only leak.
 * Jobs: a job or a hook must not call the owner's functions on its own pool. They return LS_EINVAL
 * and do nothing, because they would wait for the calling thread itself. A job may call them on any
 * other pool, such as one that the job has created.
 * Waiting: a thread that has to wait (a worker for a job, or the owner for results) first spins for
 * 0.1 ms, and then sleeps. A thread does not spin if the process has fewer CPUs than the pool has
 * threads. It also stops spinning if its last spins ended without success; from time to time it
 * then tries another spin. The owner sleeps at once if it has just woken a worker that is not
 * pinned: the kernel starts that worker soonest on the CPU that the owner gives up. So `pinned` = 0
 * is faster for jobs at long intervals, in which workers sleep. `pinned` = 1 is faster for work
 * that keeps every CPU busy, because each worker finds its data in the cache of its own CPU.
 * Signals: the pool's threads block all signals except those that a fault of the thread itself
 * raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) and SIGPROF, so signals that
 * are sent to the process are handled on the host program's threads. Lent threads and the owner
 * keep their signal masks; a handler that runs on one of them during a wait does not end the wait.
 * Signal handlers must not call any function of this header.
 * Cancellation: pthread_cancel has no effect on the pool's threads, and takes effect on a lent
 * thread or the owner only after the call that the thread is in. Asynchronous cancellation, and
 * leaving a job by pthread_exit or longjmp, are not supported.
 * Fork: a pool belongs to the process that created it. In a child process the owner's functions and
 * ls_pool_serve return LS_EINVAL, ls_pool_cancel does nothing, and ls_pool_destroy frees the
 * child's copy without running hooks. As in every child of a multi-threaded process, only
 * async-signal-safe functions may be called there before exec. A fork before the first pool is
 * created has no such limits. */
#ifndef LOCKSTEP_POOL_H
#define LOCKSTEP_POOL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A pool of workers. */
typedef struct ls_pool ls_pool;

/* A time limit in nanoseconds from now. Time during which the whole process is stopped (SIGSTOP, a
 * frozen container) hardly counts: afterwards the wait has about as much time as before the stop.
 * Time during which a worker lacks a CPU counts. */
typedef uint64_t ls_timeout;
#define LS_FOREVER UINT64_MAX /* no time limit */

/* The worker that a hook or a job runs on. */
typedef struct ls_worker {
    int index;   /* number of this worker, 0 … workers − 1 */
    int workers; /* number of workers in the pool */
    void *local; /* the worker's own pointer, set by the start hook */
} ls_worker;

/* A job for one worker. `arg` is the pointer that was passed with the job to ls_pool_submit or
 * ls_pool_run. Returns LS_OK, or a negative status after writing `err`. */
typedef int (*ls_job)(const ls_worker *worker, void *arg, ls_error *err);

/* Options of ls_pool_create. */
typedef struct ls_pool_options {
    size_t size; /* sizeof(ls_pool_options) */
    int workers; /* number of workers, 1 … 4096 */
    int inbox;   /* capacity of an inbox in jobs, ≤ 2²⁰, rounded up to a power of two; 0: 64 */
    int pinned;  /* non-zero: each worker is confined to CPUs of its own; see ls_pool_create */
    int cpus_per_worker; /* number of CPUs of a pinned worker; 0: an equal share of all */
    /* Prefix of the names of the pool's threads, "<name>/<index>". It is truncated so that a
     * thread's name has at most 15 bytes. The pool copies it. NULL: "lockstep". */
    const char *name;
    /* Hook that runs first on each worker's thread; may set worker->local. A negative status makes
     * ls_pool_create fail with that error, after the stop hooks of the workers that did start.
     * NULL: none. */
    int (*start)(ls_worker *worker, void *user, ls_error *err);
    /* Hook that runs last on the thread of each worker whose start hook succeeded, while the pool
     * is destroyed. It sees the owner's writes from before the destroy call. It does not run on a
     * worker that is left running because it stalled. NULL: none. */
    void (*stop)(ls_worker *worker, void *user);
    void *user;          /* passed to both hooks */
    const ls_host *host; /* allocator and log; outlives the pool; NULL: the defaults */
    /* Non-zero: worker 0 has no thread of its own. It is the owner, which must then be the same
     * thread from create to destroy. Its start hook runs inside ls_pool_create, its stop hook
     * inside ls_pool_destroy, and its jobs inside ls_pool_run and ls_pool_wait. The time limit of a
     * run or a wait does not interrupt worker 0's jobs, and the time that they take is not counted.
     * With this option, a pool with as many workers as CPUs keeps every CPU busy and has no thread
     * too many. Worker 0 cannot be abandoned. */
    int caller_works;
    /* Number of workers that run on threads of the host program (ls_pool_serve). The workers with
     * the highest indices are the borrowed ones. The pool does not pin or name their threads. */
    int borrowed;
    int time_jobs; /* non-zero: measure how long jobs take (ls_pool_stats.busy_ns), which costs two
                    * readings of the clock per job */
} ls_pool_options;

/* Counters of one worker, or sums of the counters of all workers, since the pool was created. */
typedef struct ls_pool_stats {
    size_t size;        /* sizeof(ls_pool_stats), set by the caller */
    uint64_t submitted; /* number of jobs submitted to the worker, those of ls_pool_run included */
    uint64_t run;       /* number of jobs that have returned */
    uint64_t failed;    /* number of jobs that have returned an error */
    uint64_t dropped;   /* number of jobs that were dropped unstarted, by a cancel or an abandon */
    uint64_t waits;     /* number of times that the worker found its inbox empty */
    uint64_t sleeps;    /* number of those waits in which the worker went to sleep */
    uint64_t busy_ns;   /* total time in jobs that have returned; 0 unless options.time_jobs */
} ls_pool_stats;

/* Returns the number of CPUs that this process may use: those of its affinity mask, limited by the
 * cgroup's CPU quota, rounded up. At least 1. Any thread. */
int ls_allowed_cpus(void);

/* Returns the number of cores to which the CPUs of this process's affinity mask belong, limited by
 * the same quota. A core with two hardware threads counts once. At least 1. Any thread. */
int ls_allowed_cores(void);

/* Creates a pool, starts its workers and returns when the start hooks of all workers but the
 * borrowed ones have returned. The calling thread is the owner.
 * Pinning: with options.pinned, the affinity mask of the calling thread is cut into equal, disjoint
 * parts, one for each worker, keeping cores whole where possible. A worker on a thread of the
 * pool's own is confined to its part, or to `cpus_per_worker` CPUs of that part. The whole mask is
 * divided even if a CPU quota allows fewer CPUs than the mask has: if each container on a machine
 * used only the first CPUs of the mask, all containers would use the same ones. If the mask has too
 * few CPUs, no worker is pinned, and the host's log says so.
 * Errors: LS_EINVAL, LS_ENOMEM, LS_ESYSTEM (no thread could be started), or the start hook's. */
int ls_pool_create(ls_pool **out, const ls_pool_options *options, ls_error *err);

/* Returns the number of workers, abandoned ones included. Any thread. */
int ls_pool_size(const ls_pool *pool);

/* Puts one job into a worker's inbox and returns at once. `arg` must live until the job has
 * returned or was dropped. Called by the owner. Errors: LS_EAGAIN (the inbox is full), LS_ESTALLED
 * (the worker is abandoned), LS_ECANCELED (after ls_pool_cancel), LS_EINVAL. */
int ls_pool_submit(ls_pool *pool, int worker, ls_job job, void *arg, ls_error *err);

/* Runs `job` once on every worker that is not abandoned, after the jobs in that worker's inbox, and
 * waits until all workers have finished. Called by the owner.
 * Errors: LS_EAGAIN (an inbox stayed full until the time limit; no worker got the job),
 * LS_ETIMEDOUT (the message names the workers that have not finished; their jobs continue, so wait
 * again or abandon the workers), LS_ESTALLED (all workers are abandoned), LS_ECANCELED (after
 * ls_pool_cancel), LS_EINVAL, or else the first latched error. */
int ls_pool_run(ls_pool *pool, ls_job job, void *arg, ls_timeout timeout, ls_error *err);

/* Waits until every submitted job has finished or was dropped, except for jobs of abandoned
 * workers. The owner then sees everything that these jobs wrote. Called by the owner.
 * Errors: LS_ETIMEDOUT (the message names the workers that have not finished), LS_EINVAL, or else
 * the first latched error. */
int ls_pool_wait(ls_pool *pool, ls_timeout timeout, ls_error *err);

/* Cancels the pool: jobs that have not begun are dropped, new jobs are refused with LS_ECANCELED,
 * and LS_ECANCELED is latched unless an error is latched already. Running jobs are not interrupted.
 * Any thread, but not a signal handler. */
void ls_pool_cancel(ls_pool *pool);

/* Returns LS_OK, or the latched status with its message in `err`. `worker`, unless NULL, receives
 * the index of the worker whose job failed, or −1 if the error is not from a worker. Any thread. */
int ls_pool_first_error(const ls_pool *pool, int *worker, ls_error *err);

/* Makes a pool that failed or was cancelled usable again: clears the latched error and the cancel.
 * Called by the owner. Errors: LS_EAGAIN (a job is queued or running: wait first), LS_EINVAL. */
int ls_pool_clear(ls_pool *pool, ls_error *err);

/* Writes the counters of `worker`, or with −1 the sums over all workers. The caller sets out->size.
 * While workers run, the counters may be slightly stale and are not a consistent snapshot of one
 * moment. Any thread. Errors: LS_EINVAL. */
int ls_pool_get_stats(ls_pool_stats *out, const ls_pool *pool, int worker, ls_error *err);

/* Lends the calling thread to the pool as `worker`, which must be a borrowed one: runs the start
 * hook, the worker's jobs and the stop hook, and returns when the pool is destroyed. Jobs that were
 * submitted before the call wait in the inbox. The host program must ensure that no call begins
 * after the destruction of the pool has begun; a completed ls_pool_run proves that every worker is
 * served. Any thread that is not inside a job of the pool.
 * Errors: LS_EINVAL (`worker` is not borrowed), LS_EAGAIN (another thread serves it), LS_ESTALLED
 * (the pool was destroyed without waiting for this thread; `pool` is invalid), or else the start
 * hook's: then no job has run, and another thread may serve the worker. */
int ls_pool_serve(ls_pool *pool, int worker, ls_error *err);

/* Destroys the pool: workers run their queued jobs, then their stop hooks; the pool's threads are
 * joined, ls_pool_serve returns on lent threads, and all memory is freed. Jobs for a borrowed
 * worker that no thread serves are dropped. There is no time limit, but an abandoned worker that is
 * still busy when the others have ended is left running, as ls_pool_destroy_within describes. NULL
 * is allowed. Called by the owner. Returns LS_OK, LS_ESTALLED (a worker was left running) or
 * LS_EINVAL. */
int ls_pool_destroy(ls_pool *pool);

/* ---- workers that stall --------------------------------------------------------------------- */

/* Returns the number of jobs of `worker` that are queued or running, or 0 for a worker that does
 * not exist. If the owner reads 0, the worker is idle, and everything that its jobs wrote is
 * visible to the owner; an abandoned worker has then returned from its job. Any thread. */
int ls_pool_busy(const ls_pool *pool, int worker);

/* Abandons `worker`: no further job runs on it. ls_pool_submit refuses with LS_ESTALLED,
 * ls_pool_run skips it, the jobs in its inbox are dropped, and ls_pool_run, ls_pool_wait and
 * ls_pool_clear do not wait for it. The job that it is running is not interrupted, so that job's
 * `arg` must stay valid; an error that the job still returns is ignored. The other workers keep
 * their indices. A worker whose job returns later stays abandoned and idles until the pool is
 * destroyed. Abandoning an abandoned worker changes nothing. Called by the owner. Errors: LS_EINVAL
 * (no such worker, or worker 0 with options.caller_works). */
int ls_pool_abandon(ls_pool *pool, int worker, ls_error *err);

/* Returns non-zero if `worker` was abandoned, and 0 for a worker that does not exist. Any
 * thread. */
int ls_pool_is_abandoned(const ls_pool *pool, int worker);

/* Destroys the pool as ls_pool_destroy does, but waits for all workers, abandoned or not, until
 * `timeout` has passed; with LS_FOREVER it is the same as ls_pool_destroy. A worker that has not
 * ended by then is left running: its thread is detached if it is the pool's own, its stop hook does
 * not run unless it has begun, and the memory of the pool that the worker may still access is never
 * freed. If its job returns later, the thread ends without calling the host's hooks or other code
 * of the caller; until then the job keeps using its own data. `pool` is invalid after the call,
 * except after LS_EINVAL, which is returned if a job of this pool makes the call. NULL is allowed.
 * Called by the owner.
 * Errors: LS_ESTALLED (the message names the workers left running and their jobs), LS_EINVAL. */
int ls_pool_destroy_within(ls_pool *pool, ls_timeout timeout, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
