/* SPDX-License-Identifier: MIT */
/* Internal part of <lockstep/pool.h>: data that the owner and the workers share.
 *
 * A borrowed worker runs on a *lent* thread, a thread of the host program that calls ls_pool_serve.
 *
 * The owner pushes jobs into the workers' inboxes, each of which is a ring with one producer and
 * one consumer (sync/ring.h). The owner sleeps on the park word `owner`, and a worker sleeps on its
 * own park word `idle` (sync/park.h). No lock is taken for a job that succeeds. Two counters of
 * each worker tell how many of its jobs are pending: `submitted`, which the owner writes, and
 * `finished`, which the worker writes.
 *
 * Memory order of a job. Everything that the owner wrote before submitting a job happens before the
 * job, because the push is a release and the pop is an acquire. Everything that the job wrote
 * happens before what the owner does after it has seen the job finished: the worker stores
 * `finished` with release order after the job, and the owner loads `finished` with acquire order.
 * Only the worker's thread stores `finished`, each time after all its earlier jobs. So a load of
 * any later value makes the writes of the earlier jobs visible as well. */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"

#include <lockstep/pool.h>
#include <lockstep/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* ---- topology.c ------------------------------------------------------------------------------ */

/* The CPUs that this process may use, and their assignment to workers.
 *
 * Functions that read files have a parameter `root`, a prefix of the paths under /sys and /proc.
 * Tests pass a directory that simulates another machine; all other callers pass "". All functions
 * may be called from any thread.
 */

#define LS_CPUS_MAX 4096 /* largest number of CPUs of a machine */

/* A list of CPUs by their kernel numbers. */
typedef struct ls_cpus {
    int count;
    unsigned short id[LS_CPUS_MAX];
} ls_cpus;

/* Lists the CPUs of the calling thread's affinity mask, ordered by core, so that hardware threads
 * of one core are adjacent. The cores are read from /sys; if that fails, the list is in ascending
 * order.
 * Errors: LS_ESYSTEM. */
int ls_cpus_allowed(ls_cpus *out, const char *root, ls_error *err);

/* Returns the smallest CPU quota, in CPUs, of the cgroups that contain this process and of their
 * parents, or 0 if there is no quota. Reads the files of cgroup v2 and v1 under `root` in their
 * usual places (/sys/fs/cgroup). A file that cannot be read counts as no quota. */
double ls_cgroup_quota(const char *root);

/* Returns the number of threads that can run at the same time if the affinity mask has `allowed`
 * CPUs and the quota is `quota` CPUs (0: no quota). The result is the smaller of the two numbers,
 * rounded up, and at least 1. */
int ls_usable_cpus(int allowed, double quota);

/* Writes to `part` the CPUs of `all` that belong to worker w of n, and returns their number. The
 * parts are disjoint, and their sizes differ by at most one CPU. If `want` is not 0, a part is
 * reduced to `want` CPUs on as many different cores as possible. `core` is the result of
 * ls_cpus_cores for `all`. Returns 0, with an empty part, if a share would have no CPU, or fewer
 * than `want`. */
int ls_cpus_split(ls_cpus *part, const ls_cpus *all, const ls_cpus *core, int n, int w, int want);

/* Writes for each CPU of `cpus` the number of its core, which is the lowest CPU of that core. */
void ls_cpus_cores(ls_cpus *core, const ls_cpus *cpus, const char *root);

/* Confines the calling thread to `cpus`. Errors: LS_ESYSTEM. */
int ls_pin_thread(const ls_cpus *cpus, ls_error *err);

/* Returns the CPU that the calling thread runs on. The kernel can move the thread at any time. */
int ls_this_cpu(void);

/* Moves the calling thread from `cpu` to another CPU of its affinity mask, if there is one. The
 * mask is the same afterwards. */
void ls_leave_cpu(int cpu);

/* Names the calling thread; the name is truncated to 15 bytes, the most that the kernel allows. */
void ls_name_thread(const char *name);

/* ---- deadlock protection -------------------------------------------------------------------- *
 * The owner's functions wait for workers. They must not be called in two cases:
 * - inside a job of the same pool, because the calling thread would wait for itself;
 * - in a child process made by fork, because the pool's threads do not exist there.
 * The functions below detect these cases. */

/* A byte in a page that the kernel zeroes in a child process made by fork: the byte is 1 in the
 * process that created it, and 0 in a child. The pointer to the mark is NULL if the kernel has no
 * such pages. */
typedef volatile unsigned char ls_fork_mark;

/* Creates a mark. Errors: LS_ENOMEM. */
int ls_fork_mark_create(ls_fork_mark **out, ls_error *err);

/* Frees a mark. NULL is allowed. */
void ls_fork_mark_destroy(ls_fork_mark *mark);

/* Returns whether this process is a child that has inherited the mark by fork. Any thread. */
static inline bool ls_fork_mark_is_inherited(const ls_fork_mark *mark)
{
    return mark && !*mark;
}

/* An entry of the list of jobs and hooks that a thread is executing. (A *hook* is a function of the
 * caller that runs when a worker starts or stops.) The entry is a local variable of the function
 * that calls the job or hook. */
typedef struct ls_inside {
    const ls_pool *pool;     /* pool of the job or hook */
    struct ls_inside *outer; /* entry of the enclosing job or hook. It belongs to another pool, and
                              * has called a function of `pool`. NULL: there is none */
} ls_inside;

/* Adds an entry to the calling thread's list, before a job or hook of `pool` is called. */
void ls_inside_enter(ls_inside *frame, const ls_pool *pool);
/* Removes the entry from the list, after the job or hook has returned. */
void ls_inside_leave(const ls_inside *frame);

/* Returns whether the calling thread is inside a job or hook of this pool. */
bool ls_inside_of(const ls_pool *pool);

/* ---- the first error of several threads ------------------------------------------------------ */

/* A latch keeps the first of several errors. Any thread may call its functions, except
 * ls_latch_init and ls_latch_fini: no other thread may use the latch during these two calls. */
typedef struct ls_latch {
    pthread_mutex_t lock; /* protects all fields; errors are rare, so contention is no concern */
    int worker;           /* worker that failed; −1: none */
    ls_error error;       /* the latched error, if status is not LS_OK */
    _Atomic int status;   /* LS_OK: no error. Also read without the lock, so that the check for an
                           * error is cheap */
} ls_latch;

/* Initialises a latch without an error. */
void ls_latch_init(ls_latch *latch);

/* Frees the latch's resources. */
void ls_latch_fini(ls_latch *latch);

/* Stores the negative `status`, the text of `err` and the index of the worker that failed in the
 * latch, unless the latch contains an error already or *mute is set. `mute` may be NULL. */
void ls_latch_set(ls_latch *latch, int worker, int status, const ls_error *err,
                  const atomic_bool *mute);

/* Sets *mute. After the function has returned, no call of ls_latch_set with this `mute` latches an
 * error. */
void ls_latch_set_mute(ls_latch *latch, atomic_bool *mute);

/* Returns the latched status, or LS_OK. With an error, `worker` and `err` receive the worker's
 * index and the error; both may be NULL. */
int ls_latch_get(const ls_latch *latch, int *worker, ls_error *err);

/* Forgets the latched error. */
void ls_latch_clear(ls_latch *latch);

/* ---- the pool -------------------------------------------------------------------------------- */

/* An item of an inbox. */
struct ls_pool_job {
    ls_job job;
    void *arg;
};

/* Phase of a worker's thread. RUNNING ends when the worker's thread sets STOPPING, as it begins its
 * stop hook, or when the thread that destroys the pool sets LEFT, as it stops waiting for the
 * worker. Both use a compare-exchange, so exactly one of them succeeds. For a lent thread, STARTING
 * ends with RUNNING or LEFT in the same way. */
enum ls_pool_phase {
    LS_PHASE_UNSERVED, /* borrowed worker that no lent thread serves */
    LS_PHASE_STARTING, /* before or in the start hook */
    LS_PHASE_RUNNING,  /* running jobs or waiting for them */
    LS_PHASE_STOPPING, /* in the stop hook */
    LS_PHASE_ENDED,    /* the thread is about to return; it can be joined if the pool has started
                        * it */
    LS_PHASE_LEFT      /* still running when the pool was destroyed; the destruction did not wait
                        * for the thread */
};

/* State from which a thread decides, when it has to wait, whether it spins before it sleeps
 * (spin.c). Only that thread accesses it. */
typedef struct ls_spin_habit {
    bool allowed;          /* every thread can have a CPU, so spinning delays no other thread */
    unsigned misses;       /* number of successive waits that ended in sleep */
    unsigned short_sleeps; /* number of successive sleeps that were shorter than a full spin (0.1
                            * ms) */
    unsigned patience;     /* value of short_sleeps at which the thread moves to another CPU */
} ls_spin_habit;

struct ls_pool_worker {
    ls_ring inbox;  /* jobs from the owner */
    ls_worker view; /* argument of hooks and jobs */
    ls_pool *pool;
    pthread_t thread; /* the worker's thread, if `own` is set */
    bool own;         /* the pool has started the worker's thread */
    ls_cpus part;     /* CPUs that the thread is pinned to; empty: not pinned */
    /* Written by the owner. */
    alignas(64) _Atomic uint64_t submitted; /* number of jobs put into the inbox */
    /* the worker runs no further jobs, and its errors are ignored, because ls_pool_abandon was
     * called or the pool is being destroyed; set by ls_latch_set_mute */
    atomic_bool abandoned;
    /* the destruction of the pool did not wait for the worker's thread. The thread still runs and
     * can access the pool's memory */
    bool left_running;
    /* Written by the worker. */
    alignas(64) _Atomic uint64_t finished; /* number of jobs that were run or dropped */
    _Atomic int phase;                     /* an ls_pool_phase; also written by other threads */
    /* Written by the worker, for statistics only. */
    alignas(64) _Atomic uint64_t dropped, failed, waits, sleeps, busy_ns;
    ls_spin_habit habit;       /* only the worker's thread accesses it */
    alignas(64) ls_park idle;  /* park word on which the worker waits for jobs */
    _Atomic int thread_number; /* ls_thread_self of its thread; 0: no thread yet, or unknown */
};

struct ls_pool {
    /* Constant once the workers run. */
    ls_pool_options options;
    char name[16];                 /* prefix of the threads' names */
    int workers;                   /* number of workers */
    struct ls_pool_worker *worker; /* [workers] */
    ls_fork_mark *mark;            /* says whether this process has inherited the pool by fork */
    void *adopted;                 /* memory that is freed together with the pool; NULL: none */
    /* Shared by several threads. */
    ls_latch latch;
    pthread_mutex_t leaving;          /* held by lent threads while they leave (give_back) */
    alignas(64) _Atomic int canceled; /* non-zero after ls_pool_cancel */
    alignas(64) ls_park owner; /* park word on which the owner waits for phases and finished jobs */
    ls_spin_habit habit;       /* habit of the owner; only the owner accesses it */
    bool woke;             /* since the owner's last wait, the owner has woken a worker that is not
                            * pinned */
    _Atomic int owner_cpu; /* CPU on which the owner last woke a worker that is not pinned; a worker
                            * that is not pinned moves away if it finds itself on this CPU */
};

/* Adds `more` to a counter that only the calling thread writes. relaxed: readers on other threads
 * do not rely on the newest value. */
static inline void ls_pool_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/* Returns LS_OK, or LS_EINVAL if `pool` is NULL or this process has inherited the pool by fork. Any
 * thread. */
int ls_pool_is_ours(const ls_pool *pool, ls_error *err);

/* Returns LS_OK, or LS_EINVAL if `pool` is NULL, if this process has inherited the pool by fork, or
 * if the calling thread is inside a job or hook of the pool. The owner's functions begin with this
 * check. */
int ls_pool_check_owner(const ls_pool *pool, ls_error *err);

/* Returns LS_OK, or LS_ECANCELED if the pool was cancelled. Any thread. */
int ls_pool_check_canceled(const ls_pool *pool, ls_error *err);

/* Passes the ownership of `memory`, which ls_alloc returned for the pool's host, to the pool. The
 * memory is freed together with the pool. If a thread is still running when the pool is destroyed,
 * the memory is never freed, because that thread can still use it. Called at most once per pool, by
 * the owner. */
void ls_pool_adopt(ls_pool *pool, void *memory);

/* Returns whether the worker was abandoned. Any thread. */
bool ls_pool_was_abandoned(const struct ls_pool_worker *w);

/* Returns the number of jobs of the worker that have not finished. If it is 0, everything that the
 * jobs wrote is visible to the caller. The number is exact on the owner's thread. Any thread. */
uint64_t ls_pool_pending(const struct ls_pool_worker *w);

/* Writes a list of the workers that `which` selects, such as "worker 1 (3 jobs), worker 4 (1 job)".
 * A list that does not fit into `size` bytes is truncated and ends with "…". Returns the number of
 * workers listed, plus 1 if it is truncated. Called by the owner. */
int ls_pool_list(char *text, size_t size, const ls_pool *pool,
                 bool (*which)(const struct ls_pool_worker *w));

/* Returns the number (ls_thread_self) of the worker's thread, or 0 if it is unknown. Any thread. */
int ls_pool_thread_number(const ls_pool *pool, int worker);

/* Frees the pool. Its threads must have ended. */
void ls_pool_free(ls_pool *pool);

/* Spins: calls ready(arg) again and again until it returns true, for at most 0.1 ms. Does not spin
 * if the last spins ended without success, except now and then as a trial (spin.c). Returns whether
 * ready(arg) returned true. `deadline_ns` is as for ls_park_until. */
bool ls_pool_spin(ls_spin_habit *habit, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);

/* Records that the thread has slept for `ns` nanoseconds until its condition held. */
void ls_pool_slept(ls_spin_habit *habit, uint64_t ns);

/* Returns whether the thread should move to another CPU and spin there. The result is true if many
 * successive sleeps were shorter than a spin: the thread then probably shares a CPU with the owner,
 * and one of the two can run only while the other sleeps (spin.c). If the result is true, the
 * thread spins in its next wait. */
bool ls_pool_ought_to_spin(ls_spin_habit *habit);

/* ---- functions of a worker, on its thread ---------------------------------------------------- */

/* Runs a job, or drops it if the pool is cancelled or the worker abandoned, and counts it as
 * finished. Does not wake the owner. */
void ls_pool_do_job(struct ls_pool_worker *w, const struct ls_pool_job *job);

/* Runs the jobs that are in the inbox, without waiting for more. */
void ls_pool_drain(struct ls_pool_worker *w);

/* Runs the jobs of the inbox on the calling thread, in order, and returns when the inbox is closed
 * and empty. It is the loop of a worker's thread. One thread per inbox at a time. */
void ls_pool_work(struct ls_pool_worker *w);

/* Runs the start hook, if there is one, and returns its result (ls_callback_result). */
int ls_pool_start_hook(struct ls_pool_worker *w, ls_error *err);

/* Runs the stop hook, if there is one. */
void ls_pool_stop_hook(struct ls_pool_worker *w);

/* Sets the phase, with release order, and wakes the owner. */
void ls_pool_enter_phase(struct ls_pool_worker *w, int phase);

/* Changes the phase from `from` to `to`. Returns false, and changes nothing, if the phase is not
 * `from`. The change is relaxed: it does not make other writes of the thread visible. */
bool ls_pool_move_phase(struct ls_pool_worker *w, int from, int to);

/* Body of a thread that the pool has started: pins and names the thread, runs the start hook, the
 * jobs and the stop hook. `worker` is a struct ls_pool_worker. */
void *ls_pool_thread(void *worker);

/* Runs the start hook of worker 0 on the owner's thread, in a pool with caller_works. Latches and
 * returns its error. */
int ls_pool_start_caller(ls_pool *pool);

/* Ends worker 0 of a pool with caller_works, on the owner's thread: runs the remaining jobs in the
 * worker's inbox, and the stop hook. Does nothing in a pool without caller_works, or if the start
 * hook has failed. */
void ls_pool_end_caller(ls_pool *pool);

/* Waits until every lent thread that has given its worker back has made its last access to the
 * pool. The pool may be freed only after this wait, because a lent thread cannot be joined. */
void ls_pool_await_lent(ls_pool *pool);

#endif
