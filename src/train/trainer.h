/* What a training run consists of: shared by the coordinator, the workers and the records. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint/run_dir.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "nn/replica.h"
#include "records/sink.h"
#include "records/trace.h"
#include "store/durable.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"
#include "train/exchange.h"
#include "train/infer.h"
#include "train/inject.h"
#include "train/members.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Most consecutive steps that one work item may hold. */
#define LS_RANGE_MAX 32
/* Work items a worker may hold at once: one runs while the next one waits. More would only let a
 * worker run ahead of the others. */
#define LS_IN_FLIGHT 2
/* Reports a worker may have sent that the coordinator has not read. */
#define LS_REPORTS (LS_RANGE_MAX * LS_IN_FLIGHT)
/* Most numbers of rows in ls_trainer_options.step_rows. */
#define LS_STEP_ROWS 8

struct ls_trainer;

/* A work item: consecutive steps of one epoch. The coordinator fills one for each worker and pushes
 * it into its inbox; it is reused when the reports of its last step have come back. */
typedef struct ls_range {
    struct ls_trainer *trainer;
    uint32_t epoch;
    uint64_t first_step; /* counted from the start of the run */
    uint32_t steps;
    const uint32_t *rows; /* the minibatches, one after another */
    uint32_t row_count;   /* of all steps together; only the last may be ragged */
    float lr[LS_RANGE_MAX];
} ls_range;

/* What a worker says of one step. */
typedef struct ls_report {
    uint64_t number; /* of the step, from 1 */
    int status; /* not LS_OK: the step was not applied by this worker; the text is in its `error` */
    bool skipped;  /* the loss was not finite: no worker applied it */
    int bad_shard; /* skipped: the first of this worker's shards whose loss was not; −1: none */
    float loss;    /* of the whole minibatch, summed; the same from every worker */
    float correct;
    float rows;
    float lr;       /* it was applied with */
    int steps_left; /* this step, and those that came to an end with it and are reported behind it */
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* One step under way. */
typedef struct ls_step {
    const uint32_t *rows;
    uint32_t n;
    uint32_t draw; /* with a row's index it tells random numbers apart */
    int spoilt;    /* a shard whose loss was spoilt on purpose; −1: none */
    ls_report report;
} ls_step;

/* Steps that were enqueued as one launch, and are not reported. */
typedef struct ls_flight {
    ls_step step[LS_UNROLLED];
    int count;
    int slot;   /* of the replica, where their results arrive */
    int status; /* of the launch, or of the work itself once that is known */
} ls_flight;

/* Whether a worker takes part. */
typedef enum ls_presence {
    LS_LIVE,
    LS_LOST,   /* its device failed; its thread answers, and only closes it at the end */
    LS_STALLED /* it no longer answers: its thread and its memory are left alone */
} ls_presence;

/* What a worker does between steps, on its thread: LS_OK, or what its `error` says. */
struct ls_train_worker;
typedef int ls_worker_job(struct ls_train_worker *worker, const ls_exchange *e);

/* One worker's part. The worker's thread owns the first section while a job runs, the coordinator
 * between jobs; a worker that was left behind keeps it for ever. */
typedef struct ls_train_worker {
    struct ls_trainer *trainer;
    int index;
    bool idle;              /* it takes no part any more: its jobs do nothing */
    int rank;               /* in the group: live workers count */
    int shard_lo, shard_hi; /* its logical shards */
    ls_device *device;
    ls_replica *replica;
    ls_comm *comm;
    ls_fold fold;
    struct ls_old_fold *old_folds; /* that a stalled peer may still read */
    bool keep_fold;                /* the next join must not free the fold's arenas */
    ls_range item[LS_IN_FLIGHT];   /* its own: one that wakes late reads what it was sent */
    ls_device_info info;
    ls_error error;
    bool alone;                     /* its one shard is all there is of a minibatch */
    uint32_t length;                /* how many steps it would like in a range */
    ls_flight flight[LS_IN_FLIGHT]; /* in order */
    int flights;
    int next_slot;      /* where the next one's results arrive */
    bool merging_early; /* within a step: what is ready of a gradient goes to the communicator */
    bool failed;        /* a step failed: `error` says why, and no further step is begun */
    ls_worker_job *job; /* the last one but training, … */
    int job_status;     /* … and what it came to */
    uint32_t checksum;  /* of its weights and optimizer state, by ls_worker_snapshot */
    void *scratch;      /* where that is computed; LS_SCRATCH bytes */
    ls_ring reports;
    ls_heartbeat heartbeat; /* read by the coordinator at any time */

    /* The coordinator's, at any time. */
    ls_presence presence;
    int status;               /* of the last job, or of the last step that was reported */
    ls_report report;         /* of the step being collected */
    ls_comm_group *member_of; /* the group it was last told to join */
    ls_error verdict;         /* why it was left behind */
    uint64_t fault_step;      /* the step, from 1, in or behind which it failed last */
    double silence_s;         /* for how long it had shown no sign of life then */
    bool loss_recorded;       /* that it was lost is on record */
    char own_cache_line[64];
} ls_train_worker;

/* A fold whose arenas a sleeping member of an old group may still read. */
typedef struct ls_old_fold {
    ls_fold fold;
    struct ls_old_fold *next;
} ls_old_fold;

#define LS_SCRATCH ((size_t)1 << 16)

/* The group whose members are no longer all alive, kept while one of them might still use it. */
typedef struct ls_old_group {
    ls_comm_group *group;
    struct ls_old_group *next;
} ls_old_group;

struct ls_coordination;

/* How far a trainer's life is. */
typedef enum ls_stage_of_life {
    LS_OPENED, /* nothing was trained */
    LS_BEGUN,  /* the first record is written */
    LS_ENDED   /* so is the last */
} ls_stage_of_life;

/* Where records go, and room for one. */
typedef struct ls_record_room {
    ls_sinks sinks;
    ls_worker_times *times; /* one entry per worker, each */
    const char **device;
} ls_record_room;

/* What is known of silences and failures. */
typedef struct ls_fault_book {
    uint64_t deadline_ns; /* how long a worker may be silent */
    uint64_t paused_ns;   /* so long the process was stopped while the coordinator waited */
    uint64_t queued_ns;   /* so long its thread had waited for a CPU when that was looked up last */
    uint64_t repeated;    /* the step, from 1, that was repeated last without a loss */
    ls_old_group *old_groups;
    ls_exchange *old_exchanges;
    bool readers_asleep; /* at the end: a stalled worker may still read what its peers showed */
} ls_fault_book;

/* What the summary and the result point to. */
typedef struct ls_run_text {
    char data[160], devices[512], resumed[512];
    char early[160]; /* why the run stopped early; "": it did not */
    char best[4200];
} ls_run_text;

struct ls_trainer {
    /* Frozen before the first step. */
    ls_trainer_options options;
    const ls_host *host;
    ls_config config;
    ls_dataset *data[LS_SUBSETS];
    ls_feed *feed;           /* of streamed training rows; NULL: they are resident */
    const ls_model *model;   /* inference's */
    float *class_weight;     /* [classes]; NULL: classes count alike */
    ls_inference *inference; /* shared with the snapshots */
    ls_pool *pool;
    int workers; /* that the run began with */
    int shards;
    const ls_comm_type *merge; /* how gradients are merged */
    ls_members members;        /* but for what is said of it there */
    ls_trace *trace;           /* NULL: none is written */

    /* The workers', and what they read of the group: it changes while all of them rest. */
    ls_train_worker *worker;
    ls_injections injections; /* each is one worker's */
    int live;                 /* workers that still take part */
    bool one_shard_each;      /* each of these has exactly one */
    float *total;             /* the group's, for all workers; NULL: each has its own */
    ls_comm_group *group;
    ls_exchange *exchange;

    /* The coordinator's. */
    ls_position position;
    struct ls_coordination *coordination;
    ls_park parking; /* where the coordinator sleeps until one comes */
    ls_fault_book faults;
    ls_run_files dir;
    ls_record_room records;
    ls_measured measured; /* by the last evaluation; as for loss and accuracy, see result */

    /* The caller's. */
    atomic_int stop;   /* set by ls_trainer_interrupt, from any thread */
    atomic_int inside; /* non-zero: one of the trainer's functions is under way (calls.h) */
    ls_snapshot *last; /* the newest that ls_trainer_predict took; NULL: none */
    ls_stage_of_life life;
    bool ran;
    ls_error broken; /* why nothing can be trained any more; status 0: it can */
    ls_summary summary;
    ls_result result;
    ls_run_text text;
};

/* ---- open.c --------------------------------------------------------------------------------- */

/* Makes everything that a run needs; what was made before a failure is ls_trainer_close's. */
int ls_open_run(struct ls_trainer *trainer, ls_error *err);

/* ---- drive.c -------------------------------------------------------------------------------- */

/* Another sink of a trainer's, from now on, which it closes at the end of the run or, on failure, now. Errors:
 * LS_EINVAL (too many). */
int ls_trainer_attach(struct ls_trainer *trainer, ls_sink *sink, ls_error *err);

/* The weights as they are now → the canonical ones, for the public `function`; recovers where a device fails meanwhile.
 * Errors: LS_EDEVICE (none is left), or what ended the training then; LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM. */
int ls_take_weights(struct ls_trainer *trainer, const char *function, ls_error *err);

/* ---- trainer.c ------------------------------------------------------------------------------ */

/* Writes the first record, once. */
int ls_begin(struct ls_trainer *trainer, ls_error *err);

#endif
