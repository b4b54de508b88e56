/* Data structures of the engine, shared by the files of this folder only. */
#ifndef ENGINE_STATE_H
#define ENGINE_STATE_H

#include "engine/exchange.h"
#include "engine/feed.h"
#include "engine/view.h"
#include "sync/deal.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"

/* Most reports of a worker that the coordinator has not read. */
#define LS_REPORTS (LS_RANGE_MAX * LS_IN_FLIGHT)
/* Size in bytes of a worker's buffer for checksums. */
#define LS_SCRATCH ((size_t)1 << 16)

/* A step in progress. */
typedef struct ls_step {
    const uint32_t *rows;
    uint32_t n;
    uint32_t draw;          /* seed, besides a row's index, of the row's random numbers */
    bool began;             /* this worker has computed a shard with the weights of this step */
    int spoilt;             /* shard whose loss an injection overwrites with NaN; −1: none */
    ls_replica_step update; /* the optimizer's arguments */
    ls_report report;
} ls_step;

/* Steps that were enqueued as one launch and are not reported yet. */
typedef struct ls_flight {
    ls_step step[LS_UNROLLED];
    int count;
    int slot;   /* the replica's result slot */
    int status; /* status of the launch, or of the work once that is known */
} ls_flight;

/* A fold (the partial sums of a worker) that a stalled member of an old group may still read. */
typedef struct ls_old_fold {
    ls_fold fold;
    struct ls_old_fold *next;
} ls_old_fold;

/* A worker's data. The fields down to `heartbeat` belong to the worker's thread while a job runs,
 * and to the coordinator between jobs; those of a stalled worker belong to its thread for ever. */
typedef struct ls_train_worker {
    ls_engine *engine;
    int index;
    bool idle;              /* its device has failed: it takes no part, and its jobs do nothing */
    int rank;               /* rank in the group, among the live workers */
    int shard_lo, shard_hi; /* shards shard_lo … shard_hi − 1 are its share */
    ls_hand hand;           /* shards that were dealt to it; hand.deal NULL: its share is fixed */
    ls_device *device;
    ls_replica *replica;
    const ls_feed *feed; /* the feed from which it reads streamed rows; NULL: rows are resident */
    ls_comm *comm;
    bool by_pieces; /* its updates compute the sum piece by piece (comm/comm.h) */
    ls_fold fold;
    ls_old_fold *old_folds; /* list of folds that a stalled peer may still read */
    bool keep_fold;         /* the next join must not free the fold's arenas */
    /* The worker's copies of ranges: a worker that wakes late still reads the range that it was
     * sent. */
    ls_range item[LS_IN_FLIGHT];
    ls_device_info info;
    ls_error error; /* error of its last job, or of the first step that failed */
    /* The worker has no peers and its steps are short: the steps of a range are reported
     * together. */
    bool quick;
    bool alone;                     /* the minibatch has one shard, which is this worker's */
    uint32_t length;                /* preferred number of steps of a range */
    ls_flight flight[LS_IN_FLIGHT]; /* launches in progress, oldest first */
    int flights;
    int next_slot; /* result slot of the next launch */
    /* Set during a step: complete parts of the gradient are passed to the communicator. */
    bool merging_early;
    bool failed;        /* a step failed, so the worker begins no further step of this group */
    ls_worker_job *job; /* most recent job other than training */
    uint32_t checksum;  /* checksum of its weights and optimizer states, by ls_worker_snapshot */
    void *scratch;      /* [LS_SCRATCH] buffer for computing the checksum */
    ls_ring reports;
    ls_heartbeat heartbeat; /* the coordinator reads it at any time */

    /* The fields below belong to the coordinator at all times. */
    ls_presence presence;
    ls_report report; /* report of the step being collected */
    /* The first fault since the last job or group, or the fault by which the worker was lost. */
    ls_fault fault;
    bool loss_reported;       /* ls_engine_drop has returned the loss of this worker */
    ls_comm_group *member_of; /* the last group that it was told to join */
    /* Padding: the next worker's data is on another cache line. */
    char own_cache_line[64];
} ls_train_worker;

/* A group with a lost member, kept while that member might still use it. */
typedef struct ls_old_group {
    ls_comm_group *group;
    ls_deal *deal;
    struct ls_old_group *next;
} ls_old_group;

/* The coordinator's view of the signs of life of the workers for which it waits. */
typedef struct ls_watch {
    uint64_t seen_ns;  /* time of the last look */
    ls_thread_use own; /* state of the watching thread, read while a worker is suspected */
    ls_silence silence[LS_DEVICES_MAX];
} ls_watch;

struct ls_engine {
    /* Constant from the first step on. */
    ls_engine_desc desc;
    ls_pool *pool;
    int workers; /* number of workers at the start */
    int shards;
    const ls_comm_type *merge; /* how gradients are merged */
    bool streams;              /* training rows are streamed; else they are resident */
    char *choices; /* text of one device's choices among kernels, for the others; NULL: none */

    /* Workers, and data of the group that workers read. It changes only while all workers rest. */
    ls_train_worker *worker;
    int live;            /* number of workers that still take part */
    bool one_shard_each; /* each live worker has exactly one shard */
    float *total;        /* total arena of the group for all workers; NULL: each has its own */
    bool sums_in_place;  /* one worker: the total is computed in its first partial sum's arena */
    bool by_pieces;      /* updates compute the sum piece by piece */
    ls_comm_group *group;
    ls_deal *deal; /* deals the group's shards; NULL: each worker computes its share */
    ls_exchange *exchange;

    /* The fields below belong to the coordinator. */
    ls_park parking;             /* park word on which it sleeps until a report comes */
    uint64_t items;              /* number of ranges submitted; gives the next range's slot */
    uint64_t sent, taken;        /* number of steps submitted, and collected */
    uint64_t ends[LS_IN_FLIGHT]; /* slot i is free once `taken` is at least ends[i] */
    uint64_t next_number;        /* number, from 1, of the step that is collected next */
    ls_watch watch;              /* restarted whenever idle workers get work */
    uint64_t deadline_ns;        /* longest silence of a worker */
    uint64_t paused_ns; /* time for which the process was stopped while the coordinator waited */
    /* Time for which the coordinator's thread had waited for a CPU at the last look. */
    uint64_t queued_ns;
    ls_old_group *old_groups;
    /* Feed of streamed training rows, or NULL. Workers adopt it when they open and when they
     * join. */
    ls_feed *feed;
    ls_feed *old_feeds;
    ls_exchange *old_exchanges;
    /* Set when the engine stops: a stalled worker may still read the partial sums of its peers, so
     * these are not freed. */
    bool readers_asleep;
    bool lacks_scores; /* no exchange could be created for want of memory for scores */
};

/* Returns the first live worker, or the number of workers if none is live. */
static inline int ls_first_live(const ls_engine *e)
{
    int i = 0;
    while (i < e->workers && e->worker[i].presence != LS_LIVE)
        i++;
    return i;
}

/* Returns whether the worker was lost and ls_engine_drop has not returned that yet. */
static inline bool ls_loss_is_unreported(const ls_train_worker *w)
{
    return w->presence != LS_LIVE && !w->loss_reported;
}

/* Returns whether the worker has a fault that counts: any fault of a live worker, or a loss that
 * ls_engine_drop has not returned yet. */
static inline bool ls_has_fault(const ls_train_worker *w)
{
    return w->presence == LS_LIVE ? w->fault.error.status != LS_OK : ls_loss_is_unreported(w);
}

/* ---- wait.c --------------------------------------------------------------------------------- */

/* Restarts the watch; called whenever idle workers get work. */
void ls_watch_begin(ls_watch *watch);
/* Waits until every worker has done its job or has stalled. `steps_done`: number of completed
 * steps, which faults report. */
void ls_await_jobs(ls_engine *engine, uint64_t steps_done);

/* ---- group.c -------------------------------------------------------------------------------- */

/* Assigns a rank and shards to each live worker. */
void ls_assign_shards(ls_engine *engine);
/* Returns whether a stalled worker may still read arrays that its peers have shown to their
 * group. */
bool ls_readers_asleep(const ls_engine *engine);
/* Frees the current group and all old groups. */
void ls_free_groups(ls_engine *engine);

#endif
