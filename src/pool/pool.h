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

/* How far a worker's thread has come. */
enum ls_pool_phase { LS_PHASE_STARTING, LS_PHASE_RUNNING, LS_PHASE_FAILED };

struct ls_pool_worker {
    ls_ring inbox;  /* from the owner */
    ls_worker view; /* what hooks and jobs see */
    ls_pool *pool;
    pthread_t thread;
    ls_cpus part; /* CPUs to pin to; none: not pinned */
    /* The owner's. */
    alignas(64) uint64_t submitted; /* jobs put into the inbox */
    /* Written by the worker, read by the owner. */
    alignas(64) _Atomic uint64_t finished; /* jobs run or dropped */
    _Atomic int phase;                     /* an ls_pool_phase */
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

/* The worker loop: runs the jobs of inbox `index` on the calling thread, in order, and returns when
 * the inbox is closed and empty. One thread per inbox at a time; it need not be a thread that the
 * pool has started. */
void ls_pool_work(ls_pool *pool, int index);

/* A pool thread from start to end: pinning, name, start hook, loop, stop hook. `worker` is a
 * struct ls_pool_worker. */
void *ls_pool_thread(void *worker);

#endif
