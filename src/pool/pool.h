/* The inside of <lockstep/pool.h>: what the owner and the workers share. */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include "pool/latch.h"
#include "pool/topology.h"
#include "sync/park.h"
#include "sync/ring.h"

#include <lockstep/pool.h>
#include <pthread.h>

/* What an inbox holds. */
struct ls_pool_job {
    ls_job job;
    void *arg;
};

/* How far a worker's thread has come. From RUNNING on, one exchange decides: STOPPING, when the
 * thread gets to its stop hook in time, or LEFT, when whoever destroys the pool gives up on it
 * first. */
enum ls_pool_phase {
    LS_PHASE_STARTING,
    LS_PHASE_RUNNING,
    LS_PHASE_STOPPING, /* in the stop hook */
    LS_PHASE_ENDED,    /* the thread is about to return, and can be joined */
    LS_PHASE_LEFT      /* left behind: it belongs to nobody */
};

struct ls_pool_worker {
    ls_ring inbox;  /* from the owner */
    ls_worker view; /* what hooks and jobs see */
    ls_pool *pool;
    pthread_t thread;
    ls_cpus part; /* CPUs to pin to; none: not pinned */
    /* Written by the owner. */
    alignas(64) _Atomic uint64_t submitted; /* jobs put into the inbox */
    atomic_bool abandoned;                  /* set through the latch, which it mutes */
    bool left;                              /* left behind by destroy */
    /* Written by the worker. */
    alignas(64) _Atomic uint64_t finished; /* jobs run or dropped */
    _Atomic int phase;                     /* an ls_pool_phase; see there */
};

struct ls_pool {
    /* Frozen once the workers run. */
    ls_pool_options options;
    char name[16];
    int workers;
    struct ls_pool_worker *worker;
    /* Shared. */
    ls_latch latch;
    alignas(64) _Atomic int canceled;
    alignas(64) ls_park owner; /* where the owner waits for phases and finished jobs */
};

/* Whether the worker was given up. Any thread. */
bool ls_pool_gave_up(const struct ls_pool_worker *w);

/* Jobs of the worker that have not finished; 0 makes visible what they did. Exact on the owner's
 * thread. */
uint64_t ls_pool_pending(const struct ls_pool_worker *w);

/* Writes "worker 1 (3 jobs), worker 4 (1 job)" for the workers that `which` selects, "…" for what
 * does not fit. Returns how many there are. Owner. */
int ls_pool_list(char *text, size_t size, const ls_pool *pool,
                 bool (*which)(const struct ls_pool_worker *w));

/* Frees what belongs to one worker, and the pool itself. Its threads have ended. */
void ls_pool_free_worker(struct ls_pool_worker *w);
void ls_pool_free(ls_pool *pool);

/* The worker loop: runs the jobs of inbox `index` on the calling thread, in order, and returns when
 * the inbox is closed and empty. One thread per inbox at a time; it need not be a thread that the
 * pool has started. */
void ls_pool_work(ls_pool *pool, int index);

/* A pool thread from start to end: pinning, name, start hook, loop, stop hook. `worker` is a
 * struct ls_pool_worker. */
void *ls_pool_thread(void *worker);

#endif
