/* SPDX-License-Identifier: MIT */
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

/* Largest number of reports of a worker that the coordinator has not read yet. */
#define LS_REPORTS (LS_RANGE_MAX * LS_IN_FLIGHT)
/* Size in bytes of a worker's buffer for checksums. */
#define LS_SCRATCH ((size_t)1 << 16)

/* A step in progress. */
typedef struct ls_step {
    const uint32_t *rows; /* [n] row indices of the minibatch */
    uint32_t n;           /* number of rows of the minibatch */
    /* a row's random numbers are seeded with this number and the row's index */
    uint32_t draw;
    bool began;             /* this worker has computed a shard with the weights of this step */
    int spoilt;             /* shard whose loss an injection overwrites with NaN; −1: none */
    ls_replica_step update; /* the optimizer's arguments */
    ls_report report;
} ls_step;

/* Steps that were enqueued on the device as one launch and are not reported yet. */
typedef struct ls_launch {
    ls_step step[LS_UNROLLED];
    int count;  /* number of steps */
    int slot;   /* the replica's result slot */
    int status; /* status of enqueueing the launch; later, once known, status of its execution */
} ls_launch;

/* A fold (the partial sums of a worker) that a stalled worker of an old group can still read. */
typedef struct ls_old_fold {
    ls_fold fold;
    ls_replica *replica; /* the replica to which its arrays belong, if that was replaced; or NULL */
    struct ls_old_fold *next;
} ls_old_fold;

/* A worker's data. The fields down to `heartbeat` belong to the worker's thread while a job or
 * range runs, and to the coordinator at other times. If the worker has stalled, these fields belong
 * to its thread for ever. */
typedef struct ls_train_worker {
    ls_engine *engine;
    int index;
    /* Its device has failed. Its jobs then do nothing, except ls_worker_join, in which it leaves
     * its group. */
    bool device_failed;
    int rank;               /* rank in the group, among the live workers */
    int shard_lo, shard_hi; /* the shards shard_lo … shard_hi − 1 are assigned to it */
    /* the shards of this step that it has taken from the group's deal (sync/deal.h); hand.deal
     * NULL: shards are not dealt, and it computes shard_lo … shard_hi − 1 */
    ls_hand hand;
    ls_device *device;   /* NULL before the first job */
    ls_replica *replica; /* NULL before ls_worker_open */
    const ls_feed *feed; /* the feed from which its replica reads rows; NULL: rows are resident */
    ls_comm *comm;       /* its communicator in the group; NULL: it is in no group */
    bool by_pieces;      /* its updates compute the total piece by piece (comm/comm.h) */
    ls_fold fold;        /* its partial sums (comm/comm.h) */
    ls_old_fold *old_folds; /* list of folds that a stalled worker can still read */
    bool keep_fold;         /* ls_worker_join must move `fold` to old_folds and not free it */
    /* Copies of the ranges that were submitted to the worker. Each worker reads its own copies, so
     * a worker that stalls and wakes late still reads the range that was submitted to it. */
    ls_range range[LS_IN_FLIGHT];
    ls_device_info info;
    ls_error error; /* error of its last job, or of the first step that failed */
    /* There are no other workers or processes, and steps are shorter than waking a thread takes.
     * The worker then wakes the coordinator once for all steps of a range. */
    bool quick;
    /* the minibatch has one shard, which is assigned to this worker */
    bool has_only_shard;
    uint32_t length;                /* preferred number of steps of a range */
    ls_launch launch[LS_IN_FLIGHT]; /* [launches] launches in progress, oldest first */
    int launches;
    int next_slot; /* result slot of the next launch */
    /* True while the replica computes a gradient whose complete parts are to be merged at once,
     * during backward (worker_step.c). */
    bool merging_early;
    bool failed;        /* a step has failed, so the worker begins no further step in this group */
    ls_worker_job *job; /* the most recent job */
    /* It compares its digest with those of other workers or processes. false: there are none, or
     * the device computes no digests */
    bool compares;
    /* its digest after its last step, and the digest before that step (base/digest.h) */
    uint64_t digest, digest_before;
    /* The sum of the last step is not in `digest` yet, because it is late
     * (ls_replica_digest_is_late); `digest` is that of the step before. */
    bool digest_due;
    uint32_t checksum; /* checksum of its weights and optimizer states, by ls_worker_copy_state */
    void *scratch;     /* [LS_SCRATCH] buffer for computing the checksum */
    ls_ring reports;   /* reports of steps, from the worker to the coordinator */
    ls_heartbeat heartbeat; /* the coordinator reads it at any time */

    /* The fields below belong to the coordinator at all times. */
    ls_presence presence;
    ls_report report; /* report of the step being collected */
    /* A live worker's first fault since the last job or since the group was formed; status LS_OK:
     * none. A lost or stalled worker's fault by which it was lost. */
    ls_fault fault;
    /* ls_engine_drop has returned the fault of this lost or stalled worker */
    bool fault_returned;
    ls_comm_group *member_of; /* the newest group that this worker was told to join */
    /* Padding: the next worker's data is on another cache line. */
    char own_cache_line[64];
} ls_train_worker;

/* An old group with a stalled worker, kept because that worker can still use it. */
typedef struct ls_old_group {
    ls_comm_group *group;
    ls_deal *deal;
    struct ls_old_group *next;
} ls_old_group;

/* The coordinator's data about the signs of life of the workers for which it waits (wait.c). */
typedef struct ls_watch {
    uint64_t seen_ns; /* time of ls_now_ns of the last check */
    /* State of the coordinator's own thread, and its time without a CPU. They are read only while a
     * worker is suspected to hang (ls_silence_look). */
    ls_thread_use coordinator;
    ls_silence silence[LS_DEVICES_MAX];
} ls_watch;

struct ls_engine {
    /* Constant from the first step on. */
    ls_engine_desc desc;
    ls_pool *pool;
    int workers;               /* number of workers at the start */
    int shards;                /* number of shards of a minibatch */
    const ls_comm_type *merge; /* how gradients are merged */
    bool streams;              /* training rows are streamed; else they are resident */
    /* text that says which kernel runs which op of the model (ls_engine_choices); NULL: none */
    char *choices;

    /* Workers, and the data of the group. Workers read these fields, so the coordinator changes
     * them only while no worker has work. */
    ls_train_worker *worker;
    int live;            /* number of live workers */
    bool one_shard_each; /* each live worker has exactly one shard */
    /* the group's arena for the total, which all workers share; NULL: each worker has its own */
    float *total;
    /* there is one worker, and its total is computed in the arena of its first partial sum */
    bool sums_in_place;
    bool by_pieces;       /* updates compute the total piece by piece (comm/comm.h) */
    ls_comm_group *group; /* the present group; NULL before the first */
    /* object from which the group's workers take shards; NULL: each worker computes the shards
     * assigned to it */
    ls_deal *deal;
    ls_exchange *exchange; /* arguments and results of jobs (exchange.h) */

    /* The fields below belong to the coordinator. */
    /* park word (an atomic word on which a thread sleeps, sync/park.h) of the coordinator, which
     * sleeps there until a report comes */
    ls_park parking;
    /* number of ranges submitted so far; this number modulo LS_IN_FLIGHT is the slot of the next
     * range */
    uint64_t ranges;
    uint64_t sent,               /* number of steps submitted so far */
        taken;                   /* number of steps collected so far */
    uint64_t ends[LS_IN_FLIGHT]; /* slot i is free once `taken` is at least ends[i] */
    uint64_t begun;              /* see ls_engine_set_model */
    uint64_t next_number;        /* number, from 1, of the step that is collected next */
    ls_watch watch;              /* restarted when workers get work after a time without work */
    uint64_t deadline_ns;        /* a worker that is silent for longer is declared stalled */
    uint64_t paused_ns; /* time for which the process was stopped while the coordinator waited */
    /* Total time, since the coordinator's thread began, for which the thread has waited for a CPU.
     * record_pause (wait.c) updates this field. */
    uint64_t queued_ns;
    ls_old_group *old_groups;
    /* Feed of streamed training rows; NULL: rows are resident. Workers start to use a new feed in
     * ls_worker_open and ls_worker_join. */
    ls_feed *feed;
    ls_feed *old_feeds;
    ls_exchange *old_exchanges;
    /* Set by ls_engine_stop if a stalled worker (the reader; it sleeps until it goes on) can still
     * read the partial sums of other workers. These partial sums are then not freed. */
    bool readers_asleep;
    bool lacks_scores; /* creating an exchange failed because there was no memory for scores */
};

/* Returns the first live worker, or the number of workers if none is live. */
static inline int ls_first_live(const ls_engine *e)
{
    int i = 0;
    while (i < e->workers && e->worker[i].presence != LS_LIVE)
        i++;
    return i;
}

/* Returns whether the worker is lost or stalled and ls_engine_drop has not returned its fault
 * yet. */
static inline bool ls_drop_is_due(const ls_train_worker *w)
{
    return w->presence != LS_LIVE && !w->fault_returned;
}

/* Returns whether the worker has a fault that the coordinator must deal with: any fault of a live
 * worker, or the fault of a lost or stalled worker that ls_engine_drop has not returned yet. */
static inline bool ls_has_fault(const ls_train_worker *w)
{
    return w->presence == LS_LIVE ? w->fault.error.status != LS_OK : ls_drop_is_due(w);
}

/* ---- wait.c --------------------------------------------------------------------------------- */

/* Restarts the watch. It is called when workers get work after a time without work. */
void ls_watch_begin(ls_watch *watch);
/* Waits until every worker has ended its job or has stalled. `steps_done`: number of completed
 * steps, for the field `step` of the faults. */
void ls_await_jobs(ls_engine *engine, uint64_t steps_done);

/* ---- group.c -------------------------------------------------------------------------------- */

/* Assigns a rank and shards to each live worker. */
void ls_assign_shards(ls_engine *engine);
/* Returns whether a stalled worker can still read arrays that other workers have shown to (shared
 * with) their common group (merge/group.h). */
bool ls_readers_asleep(const ls_engine *engine);
/* Frees the current group and all old groups. */
void ls_free_groups(ls_engine *engine);

#endif
