/* The inside of <lockstep/pool.h>: what the owner and the workers share. */
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

/* Which CPUs this process may use, and who gets which of them.
 *
 * The file system's root is a parameter wherever files are read, so that tests can show a machine
 * of their own; all other callers pass "". All functions may be called from any thread.
 */

#define LS_CPUS_MAX 4096

/* A list of CPU numbers as the kernel counts them. */
typedef struct ls_cpus {
    int count;
    unsigned short id[LS_CPUS_MAX];
} ls_cpus;

/* The calling thread's affinity mask, core by core: hardware threads of one core are neighbours in
 * the list (read from /sys; in ascending order where that cannot be read).
 * Errors: LS_ESYSTEM. */
int ls_cpus_allowed(ls_cpus *out, const char *root, ls_error *err);

/* The smallest CPU quota, in CPUs (1.5: one and a half), of the cgroups this process is in, theirs
 * included that enclose them; 0 when there is none. Reads cgroup v2 and v1 files under `root` in
 * their usual places (/sys/fs/cgroup); what cannot be read counts as "no quota". */
double ls_cgroup_quota(const char *root);

/* How many threads can really run at once: `mask` CPUs cut down by `quota`, rounded up; ≥ 1. */
int ls_usable_cpus(int mask, double quota);

/* Worker w of n gets a part of `all` that no other worker gets: an equal share, or, where `want` is
 * not 0, `want` CPUs of its share, on as many different cores as possible (`core` as from
 * ls_cpus_cores). Returns 0 and an empty part when `all` does not suffice for n workers. */
int ls_cpus_split(ls_cpus *part, const ls_cpus *all, const ls_cpus *core, int n, int w, int want);

/* For each CPU of `cpus` the number of the core it belongs to: the lowest CPU of that core. */
void ls_cpus_cores(ls_cpus *core, const ls_cpus *cpus, const char *root);

/* Confines the calling thread to `cpus`. Errors: LS_ESYSTEM. */
int ls_pin_thread(const ls_cpus *cpus, ls_error *err);

/* The CPU that the calling thread was on a moment ago. */
int ls_this_cpu(void);

/* Moves the calling thread from `cpu` to another of those it may use, if there is one; it may use
 * the same ones afterwards. */
void ls_leave_cpu(int cpu);

/* Names the calling thread; the kernel keeps 15 bytes. */
void ls_name_thread(const char *name);

/* ---- what keeps a caller from waiting for itself or for threads that are not there ------------ */

/* A byte that a child made by fork finds to be zero; NULL where the system cannot do that. */
typedef volatile unsigned char ls_fork_mark;

/* Makes a mark, which reads 1. Errors: LS_ENOMEM. */
int ls_fork_mark_create(ls_fork_mark **out, ls_error *err);

void ls_fork_mark_destroy(ls_fork_mark *mark); /* NULL is allowed */

/* Whether this process got the mark by fork. Any thread. */
static inline bool ls_fork_mark_is_inherited(const ls_fork_mark *mark)
{
    return mark && !*mark;
}

/* One call of a job or hook, on the stack of the thread that runs it. */
typedef struct ls_inside {
    const ls_pool *pool;
    struct ls_inside *outer; /* the call that this one was made from, of another pool */
} ls_inside;

/* Around a job or hook. */
void ls_inside_enter(ls_inside *frame, const ls_pool *pool);
void ls_inside_leave(const ls_inside *frame);

/* Whether the calling thread is in a job or hook of this pool. */
bool ls_inside_of(const ls_pool *pool);

/* ---- the first error of several threads ------------------------------------------------------- */

/* Any thread may call anything here but init and fini. */
typedef struct ls_latch {
    pthread_mutex_t lock; /* guards what is below; errors are rare */
    int worker;
    ls_error error;
    _Atomic int status; /* LS_OK: open. Read without the lock, so that success costs nothing */
} ls_latch;

/* An open latch. */
void ls_latch_init(ls_latch *latch);

void ls_latch_fini(ls_latch *latch);

/* Keeps `status` (negative) with the text of `err` and the worker it came from, unless the latch
 * holds an error already or `mute` is set. `err` may be empty: then a text is made up from the
 * status. `mute` may be NULL. */
void ls_latch_set(ls_latch *latch, int worker, int status, const ls_error *err,
                  const atomic_bool *mute);

/* Sets `mute`, which a caller of ls_latch_set gives. Nothing more is latched with it from then
 * on. */
void ls_latch_mute(ls_latch *latch, atomic_bool *mute);

/* The latched status, or LS_OK. With an error, `worker` and `err` receive the rest; NULL is
 * allowed for both. */
int ls_latch_get(const ls_latch *latch, int *worker, ls_error *err);

/* Opens the latch again. */
void ls_latch_clear(ls_latch *latch);

/* ---- the pool --------------------------------------------------------------------------------- */

/* What an inbox holds. */
struct ls_pool_job {
    ls_job job;
    void *arg;
};

/* How far a worker's thread has come. From RUNNING on, one exchange decides: STOPPING, when the
 * thread gets to its stop hook in time, or LEFT, when the thread that destroys the pool gives up on it
 * first. */
enum ls_pool_phase {
    LS_PHASE_UNSERVED, /* borrowed, and no thread serves it */
    LS_PHASE_STARTING,
    LS_PHASE_RUNNING,
    LS_PHASE_STOPPING, /* in the stop hook */
    LS_PHASE_ENDED,    /* the thread is about to return, and can be joined if it is the pool's */
    LS_PHASE_LEFT      /* left behind: it has no owner */
};

/* Whether a waiting thread spins before it sleeps: it does while that pays. One thread's own. */
typedef struct ls_spin_habit {
    bool allowed;          /* every thread can have a CPU */
    unsigned misses;       /* spins in a row that ended in sleep */
    unsigned short_sleeps; /* in a row that a spin would have bridged */
    unsigned patience;     /* how many of them until something is done about it */
} ls_spin_habit;

struct ls_pool_worker {
    ls_ring inbox;  /* from the owner */
    ls_worker view; /* what hooks and jobs see */
    ls_pool *pool;
    pthread_t thread; /* only if it is the pool's own */
    bool own;         /* the thread is the pool's */
    ls_cpus part;     /* CPUs to pin to; none: not pinned */
    /* Written by the owner. */
    alignas(64) _Atomic uint64_t submitted; /* jobs put into the inbox */
    atomic_bool abandoned;                  /* set through the latch, which it mutes */
    bool left;                              /* left behind by destroy */
    /* Written by the worker. */
    alignas(64) _Atomic uint64_t finished; /* jobs run or dropped */
    _Atomic int phase;                     /* an ls_pool_phase; see there */
    /* Likewise, and read for statistics alone. */
    alignas(64) _Atomic uint64_t dropped, failed, waits, sleeps, busy_ns;
    ls_spin_habit habit;
    alignas(64) ls_park idle;  /* where it sleeps when its inbox is empty */
    _Atomic int thread_number; /* of ls_thread_self; 0: no thread serves it yet, or not known */
};

struct ls_pool {
    /* Frozen once the workers run. */
    ls_pool_options options;
    char name[16];
    int workers;
    struct ls_pool_worker *worker;
    ls_fork_mark *mark;
    void *adopted; /* memory that is freed with the pool */
    /* Shared. */
    ls_latch latch;
    pthread_mutex_t leaving; /* held by lent threads on their way out */
    alignas(64) _Atomic int canceled;
    alignas(64) ls_park owner; /* where the owner waits for phases and finished jobs */
    ls_spin_habit habit;       /* the owner's */
    bool woke; /* since its last wait, the owner woke a worker that may run on any CPU */
    _Atomic int owner_cpu; /* where the owner was when it last did */
};

/* relaxed: each counter has one writer, and whoever else reads it takes what it says for a moment that is past. */
static inline void ls_pool_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/* LS_OK, or LS_EINVAL when this process got the pool by fork. Any thread. */
int ls_pool_is_ours(const ls_pool *pool, ls_error *err);

/* What the owner's functions begin with: LS_OK, or LS_EINVAL in a forked child and in a job or hook
 * of the pool. */
int ls_pool_check_owner(const ls_pool *pool, ls_error *err);

/* LS_OK, or LS_ECANCELED. Any thread. */
int ls_pool_check_canceled(const ls_pool *pool, ls_error *err);

/* Makes the pool free `memory`, which came from ls_alloc with the pool's host, when it is itself
 * freed, and so never while a thread that was left behind may use it. Once per pool. Owner. */
void ls_pool_adopt(ls_pool *pool, void *memory);

/* Whether the worker was given up. Any thread. */
bool ls_pool_gave_up(const struct ls_pool_worker *w);

/* Jobs of the worker that have not finished; 0 makes visible what they did. Exact on the owner's
 * thread. */
uint64_t ls_pool_pending(const struct ls_pool_worker *w);

/* Writes "worker 1 (3 jobs), worker 4 (1 job)" for the workers that `which` selects, "…" for what
 * does not fit. Returns how many there are. Owner. */
int ls_pool_list(char *text, size_t size, const ls_pool *pool,
                 bool (*which)(const struct ls_pool_worker *w));

/* Any thread. The number (ls_thread_self) of the thread that serves `worker`; 0: not known. */
int ls_pool_thread_number(const ls_pool *pool, int worker);

/* Its threads have ended. */
void ls_pool_free(ls_pool *pool);

/* Calls ready(arg) for as long as waiting awake is worth it, and returns whether it became true.
 * `deadline_ns` as for ls_park_until. */
bool ls_pool_spin(ls_spin_habit *habit, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);

/* Notes that a thread slept for so long until what it waited for came. */
void ls_pool_slept(ls_spin_habit *habit, uint64_t ns);

/* Whether that has been too short, too often: the thread is to see to it that it can spin. It then
 * does. */
bool ls_pool_ought_to_spin(ls_spin_habit *habit);

/* ---- what a worker does, on its thread ------------------------------------------------------ */

/* Runs one job, or drops it, and counts it as finished. Does not wake the owner. */
void ls_pool_do_job(struct ls_pool_worker *w, const struct ls_pool_job *job);

/* Runs what the inbox holds, without waiting for more. */
void ls_pool_drain(struct ls_pool_worker *w);

/* The worker loop: runs the jobs of the inbox on the calling thread, in order, and returns when the
 * inbox is closed and empty. One thread per inbox at a time. */
void ls_pool_work(struct ls_pool_worker *w);

/* The hooks. A start hook that fails always leaves a text. */
int ls_pool_start_hook(struct ls_pool_worker *w, ls_error *err);
void ls_pool_stop_hook(struct ls_pool_worker *w);

/* Sets the phase and wakes the owner. */
void ls_pool_enter_phase(struct ls_pool_worker *w, int phase);

/* Changes the phase if it is `from`; hands nothing over with it. */
bool ls_pool_move_phase(struct ls_pool_worker *w, int from, int to);

/* A thread of the pool's own from start to end: pinning, name, start hook, loop, stop hook.
 * `worker` is a struct ls_pool_worker. */
void *ls_pool_thread(void *worker);

/* The owner as worker 0: its start hook, which latches an error and returns it; and its end: what
 * is left in its inbox, and its stop hook. The latter does nothing in a pool without caller_works,
 * or when the start hook failed. */
int ls_pool_start_caller(ls_pool *pool);
void ls_pool_end_caller(ls_pool *pool);

/* Returns when no lent thread that has given its worker back touches the pool any more. */
void ls_pool_see_off(ls_pool *pool);

#endif
