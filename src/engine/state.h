/* What the engine consists of: shared by its files, and by nobody else. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include "engine/exchange.h"
#include "engine/feed.h"
#include "engine/view.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"

/* Reports a worker may have sent that the coordinator has not read. */
#define LS_REPORTS (LS_RANGE_MAX * LS_IN_FLIGHT)
#define LS_SCRATCH ((size_t)1 << 16)

/* One step under way. */
typedef struct ls_step {
    const uint32_t *rows;
    uint32_t n;
    uint32_t draw;          /* with a row's index it tells random numbers apart */
    int spoilt;             /* a shard whose loss was spoilt on purpose; −1: none */
    ls_replica_step update; /* what the optimizer is told of it */
    ls_report report;
} ls_step;

/* Steps that were enqueued as one launch, and are not reported. */
typedef struct ls_flight {
    ls_step step[LS_UNROLLED];
    int count;
    int slot;   /* of the replica, where their results arrive */
    int status; /* of the launch, or of the work itself once that is known */
} ls_flight;

/* A fold whose arenas a sleeping member of an old group may still read. */
typedef struct ls_old_fold {
    ls_fold fold;
    struct ls_old_fold *next;
} ls_old_fold;

/* One worker's part. The worker's thread owns the first section while a job runs, the coordinator between jobs; a worker
 * that was left behind keeps it for ever. */
typedef struct ls_train_worker {
    ls_engine *engine;
    int index;
    bool idle;              /* it takes no part any more: its jobs do nothing */
    int rank;               /* in the group: live workers count */
    int shard_lo, shard_hi; /* its logical shards */
    ls_device *device;
    ls_replica *replica;
    const ls_feed *feed; /* from which it reads streamed rows */
    ls_comm *comm;
    ls_fold fold;
    ls_old_fold *old_folds;      /* that a stalled peer may still read */
    bool keep_fold;              /* the next join must not free the fold's arenas */
    ls_range item[LS_IN_FLIGHT]; /* its own: one that wakes late reads what it was sent */
    ls_device_info info;
    ls_error error; /* of its last job, or of the first step that failed */
    bool
        quick; /* it has no peers, and its steps are short: those of a range are reported together */
    bool alone;                     /* its one shard is all there is of a minibatch */
    uint32_t length;                /* how many steps it would like in a range */
    ls_flight flight[LS_IN_FLIGHT]; /* in order */
    int flights;
    int next_slot;      /* where the next one's results arrive */
    bool merging_early; /* within a step: what is ready of a gradient goes to the communicator */
    bool failed;        /* a step failed: no further step is begun */
    ls_worker_job *job; /* the last one but training */
    uint32_t checksum;  /* of its weights and optimizer state, by ls_worker_snapshot */
    void *scratch;      /* where that is computed; LS_SCRATCH bytes */
    ls_ring reports;
    ls_heartbeat heartbeat; /* read by the coordinator at any time */

    /* The coordinator's, at any time. */
    ls_presence presence;
    ls_report report; /* of the step being collected */
    ls_fault fault; /* the first since the last job or group, or the one by which it was lost; … */
    bool told;      /* … that was dropped already */
    ls_comm_group *member_of; /* the group it was last told to join */
    char own_cache_line[64];
} ls_train_worker;

/* The group whose members are no longer all alive, kept while one of them might still use it. */
typedef struct ls_old_group {
    ls_comm_group *group;
    struct ls_old_group *next;
} ls_old_group;

/* How the coordinator looks after the signs of life of the workers it waits for. */
typedef struct ls_watch {
    uint64_t seen_ns;  /* when it looked last */
    ls_thread_use own; /* the watching thread's, while a worker is suspected */
    ls_silence silence[LS_DEVICES_MAX];
} ls_watch;

struct ls_engine {
    /* Frozen before the first step. */
    ls_engine_desc desc;
    ls_pool *pool;
    int workers; /* that it began with */
    int shards;
    const ls_comm_type *merge; /* how gradients are merged */
    bool streams;              /* training rows are streamed; else they are resident */
    char *choices;             /* of kernels, by one device for others; NULL: none */

    /* The workers', and what they read of the group: it changes while all of them rest. */
    ls_train_worker *worker;
    int live;            /* workers that still take part */
    bool one_shard_each; /* each of these has exactly one */
    float *total;        /* the group's, for all workers; NULL: each has its own */
    ls_comm_group *group;
    ls_exchange *exchange;

    /* The coordinator's. */
    ls_park parking;             /* where it sleeps until a report comes */
    uint64_t items;              /* ranges submitted: the next one's slot */
    uint64_t sent, taken;        /* steps submitted, and collected */
    uint64_t ends[LS_IN_FLIGHT]; /* of each slot: it is free when so many steps are taken */
    uint64_t next_number;        /* of the step that is collected next, from 1 */
    ls_watch watch;              /* begun whenever work is sent to workers at rest */
    uint64_t deadline_ns;        /* how long a worker may be silent */
    uint64_t paused_ns;          /* so long the process was stopped while the coordinator waited */
    uint64_t queued_ns; /* so long its thread had waited for a CPU when that was looked up last */
    ls_old_group *old_groups;
    ls_feed *
        feed; /* of streamed training rows, else NULL; workers take it over as they open, and join */
    ls_feed *old_feeds;
    ls_exchange *old_exchanges;
    bool readers_asleep; /* at the end: a stalled worker may still read what its peers showed */
    bool lacks_scores;   /* the exchange could not be made for want of memory for scores */
};

/* The first live worker; as many as there are workers, if none is. */
static inline int ls_first_live(const ls_engine *e)
{
    int i = 0;
    while (i < e->workers && e->worker[i].presence != LS_LIVE)
        i++;
    return i;
}

/* Whether the worker was lost, and that was not dealt with yet. */
static inline bool ls_is_news(const ls_train_worker *w)
{
    return w->presence != LS_LIVE && !w->told;
}

/* Whether its fault counts: a live worker's, or that of one that was lost and not dealt with yet. */
static inline bool ls_has_fault(const ls_train_worker *w)
{
    return w->presence == LS_LIVE ? w->fault.error.status != LS_OK : ls_is_news(w);
}

/* ---- wait.c --------------------------------------------------------------------------------- */

/* Begun whenever work is given to workers at rest. */
void ls_watch_begin(ls_watch *watch);
/* Waits until every worker has done its job, or has been left behind, after step `steps_done`. */
void ls_await_jobs(ls_engine *engine, uint64_t steps_done);

/* ---- group.c -------------------------------------------------------------------------------- */

/* The shards of each live worker, and its rank. */
void ls_assign_shards(ls_engine *engine);
/* Whether a worker that was left behind may still read what its peers showed to their group. */
bool ls_readers_asleep(const ls_engine *engine);
/* Frees this group and all before it. */
void ls_free_groups(ls_engine *engine);

#endif
