/* What a training run consists of: shared by the coordinator, the workers and the records. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "nn/replica.h"
#include "store/dir_lock.h"
#include "sync/heartbeat.h"
#include "sync/park.h"
#include "sync/ring.h"
#include "train/config.h"
#include "train/feed.h"
#include "train/inference.h"
#include "train/inject.h"
#include "train/sink.h"
#include "train/trace.h"

#include <stdatomic.h>

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
    uint64_t step;
    int status; /* not LS_OK: the step was not applied by this worker; the text is in its `error` */
    int skipped;   /* the loss was not finite: nobody applied the step */
    int bad_shard; /* skipped: the first of this worker's shards whose loss was not; −1: none */
    float loss;    /* of the whole minibatch, summed; the same from every worker */
    float correct;
    float rows;
    float lr; /* it was applied with */
    int rest; /* this step, and those that came to an end with it and are reported behind it */
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* One step under way. */
typedef struct ls_step {
    const ls_range *range;
    const uint32_t *rows;
    uint32_t n;
    float lr;
    uint64_t number; /* from 1 */
    int spoilt;      /* a shard whose loss was spoilt on purpose; −1: none */
    ls_report report;
} ls_step;

/* Steps that were enqueued as one launch, and are not reported. */
typedef struct ls_flight {
    ls_step step[LS_UNROLLED];
    int count;
    int place;  /* where their results arrive */
    int status; /* of the launch, or of the work itself once that is known */
} ls_flight;

/* Whether a worker takes part. */
typedef enum ls_presence {
    LS_LIVE,
    LS_LOST,   /* its device failed; its thread answers, and only closes it at the end */
    LS_STALLED /* it no longer answers: its thread and its memory are left alone */
} ls_presence;

/* Where a worker is when it is not in one of its replica's ops. */
enum {
    LS_PLACE_REST,
    LS_PLACE_MERGE,
    LS_PLACE_APPLY,
    LS_PLACE_OPEN,
    LS_PLACE_EXPORT,
    LS_PLACE_STEP, /* begins one */
    LS_PLACE_ADD,  /* adds a shard's gradient to those before */
    LS_PLACE_WAIT  /* in a merge, for the others */
};

/* One worker's part. The worker's thread owns the first section while a job runs, the coordinator
 * between jobs; a worker that was left behind keeps it for ever. */
typedef struct ls_train_worker {
    struct ls_trainer *trainer;
    int index;
    int idle;               /* it takes no part any more: its jobs do nothing */
    int rank;               /* in the group: live workers count */
    int shard_lo, shard_hi; /* its logical shards */
    ls_device *device;
    ls_replica *replica;
    ls_comm *comm;
    ls_fold fold;
    struct ls_old_fold *old_folds; /* that somebody may still read */
    int keep_fold;                 /* the next join must not free the fold's arenas */
    ls_range
        item[LS_IN_FLIGHT]; /* its own, so that a worker that wakes late reads what it was sent */
    ls_device_info info;
    ls_error error;
    int alone;                      /* its one shard is all there is of a minibatch */
    uint32_t length;                /* how many steps it would like in a range */
    ls_flight flight[LS_IN_FLIGHT]; /* in order */
    int flights;
    int next_place;    /* where the next one's results arrive */
    int merging_early; /* within a step: what is ready of a gradient goes to the communicator */
    int failed;        /* a step failed: `error` says why, and no further step is begun */
    int job_status;    /* of the last job but training */
    uint32_t checksum; /* of its weights and optimizer state, by ls_worker_snapshot */
    void *scratch;     /* where that is computed; LS_SCRATCH bytes */
    ls_ring reports;
    ls_heartbeat heartbeat; /* read by the coordinator at any time */

    /* The coordinator's, at any time. */
    ls_presence presence;
    int status;               /* of the last job, or of the last step that was reported */
    ls_comm_group *member_of; /* the group it was last told to join */
    ls_error verdict;         /* why it was left behind */
    uint64_t fault_step;      /* the step, from 1, in or behind which it failed last */
    double silence_s;         /* for how long it had shown no sign of life then */
    int mourned;              /* the loss is on record */
    char own_cache_line[64];
} ls_train_worker;

/* A fold whose arenas a sleeping member of an old group may still read. */
typedef struct ls_old_fold {
    ls_fold fold;
    struct ls_old_fold *next;
} ls_old_fold;

#define LS_SCRATCH ((size_t)1 << 16)

/* Loss and hits of one shard of one evaluation minibatch. */
typedef struct ls_tally {
    double loss, correct;
} ls_tally;

/* Memory that workers read and write on behalf of the coordinator. When a worker has to be left
 * behind, all of it is left to that worker, and the others get a new one: what it may still do to it
 * then harms nobody. */
typedef struct ls_exchange {
    struct ls_trainer *trainer;
    uint32_t *permutation[2]; /* training rows of even and odd epochs */
    uint32_t *test_rows;      /* 0, 1, 2, … */
    ls_tally *tally;          /* [evaluation minibatch][shard] */
    float *canonical;         /* model->floats: the initial weights, later exported ones */
    float *slot[LS_OP_SLOTS]; /* likewise the optimizer's state; NULL where there is none */
    int exporter;             /* the worker that exports, −1: none */
    uint64_t steps;           /* applied so far */
    struct ls_exchange *next; /* of those left behind */
} ls_exchange;

typedef struct ls_epoch_totals {
    double loss, correct, rows; /* summed over the epoch's minibatches */
    double seconds;             /* training only */
} ls_epoch_totals;

/* Where a run stands, between two steps: what a checkpoint must remember besides the weights. */
typedef struct ls_position {
    uint64_t steps; /* done since the start of training, skipped ones included */
    uint32_t epoch; /* the one under way, from 0; the number of epochs when all is done */
    uint32_t step;  /* of this epoch's steps, how many are done */
    int recorded;   /* its record is out: only its evaluation is left */
    ls_epoch_totals totals;
    double trained_s; /* in finished epochs */
} ls_position;

/* The group whose members are no longer all alive, kept while one of them might still use it. */
typedef struct ls_old_group {
    ls_comm_group *group;
    struct ls_old_group *next;
} ls_old_group;

struct ls_saver;
struct ls_coordination;

/* How far a trainer's life is. */
typedef enum ls_stage_of_life {
    LS_OPENED, /* nothing was trained */
    LS_BEGUN,  /* the first record is written */
    LS_ENDED   /* so is the last */
} ls_stage_of_life;

struct ls_trainer {
    ls_trainer_options options;
    const ls_host *host;
    ls_config config;
    ls_injections injections;
    ls_registry *own_registry; /* until `inference` takes it over; NULL when the caller gave one */
    ls_dataset *data[LS_SUBSETS];
    ls_feed *feed;           /* of streamed training rows; NULL: they are resident */
    const ls_model *model;   /* inference's */
    ls_inference *inference; /* shared with the snapshots */
    ls_snapshot *last;       /* the newest that ls_trainer_predict took; NULL: none */
    ls_pool *pool;
    int workers;        /* that the run began with */
    int live;           /* that still take part */
    int one_shard_each; /* each of these has exactly one */
    int shards;
    ls_train_worker *worker;
    const ls_comm_type *merge; /* how gradients are merged */
    ls_comm_group *group;
    ls_old_group *old_groups;
    ls_exchange *exchange;
    ls_exchange *old_exchanges;
    ls_report *reports;            /* of the step being collected, one per worker */
    ls_worker_times *record_times; /* room for a record: one entry per worker, each */
    const char **record_device;
    ls_park parking; /* where the coordinator sleeps until one comes */
    ls_position position;
    uint64_t deadline_ns; /* how long a worker may be silent */
    uint64_t paused_ns;   /* so long the process was stopped while the coordinator waited */
    uint64_t queued_ns;   /* so long its thread had waited for a CPU when that was looked up last */
    uint64_t repeated;    /* the step, from 1, that was repeated last without a loss */
    struct ls_coordination *coordination;
    struct ls_saver *saver;     /* NULL: nothing is saved */
    struct ls_resumed *resumed; /* NULL: a new run */
    ls_dir_lock lock;           /* of run_dir */
    char *run_dir;              /* NULL when there is none */
    ls_sinks sinks;
    ls_sink *metrics; /* the run directory's sink, or NULL */
    ls_trace *trace;  /* NULL: none is written */
    ls_summary summary;
    ls_result result;
    char data_text[160];
    char devices_text[512];
    char resumed_text[512];
    char checkpoint_text[4200];
    atomic_int stop; /* set by ls_trainer_interrupt */
    ls_stage_of_life life;
    int ran;
    ls_error broken;    /* why nothing can be trained any more; status 0: it can */
    int readers_asleep; /* at the end: somebody may still read what the others showed */
};

/* Rows of a subset. */
uint32_t ls_subset_rows(const struct ls_trainer *trainer, ls_subset subset);

/* Steps of an epoch; UINT32_MAX where there are no epochs. */
uint32_t ls_steps_per_epoch(const struct ls_trainer *trainer);

/* Rows of minibatch `index` of `total` rows cut into minibatches of `batch_size`. */
uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index);

/* Whether the caller has asked the run to stop. */
int ls_stopping(const struct ls_trainer *trainer);

/* ---- open.c --------------------------------------------------------------------------------- */

/* Makes everything that a run needs; what was made before a failure is ls_trainer_close's. */
int ls_open_run(struct ls_trainer *trainer, ls_error *err);

/* ---- worker.c: jobs of the pool ------------------------------------------------------------- */

/* Jobs whose `arg` is the exchange; their result is the worker's `job_status` and `error`. */
/* Builds the worker's replica and fold, from the exchange's weights and optimizer state. */
int ls_worker_open(const ls_worker *w, void *arg, ls_error *err);
/* Leaves the old group, if any; a live worker joins trainer->group with its rank and shards. */
int ls_worker_join(const ls_worker *w, void *arg, ls_error *err);
/* Checks the group: copies between each pair, and an all-reduce of exact numbers. */
int ls_worker_check(const ls_worker *w, void *arg, ls_error *err);
/* This worker's shards of every test minibatch → the exchange's tally. */
int ls_worker_evaluate(const ls_worker *w, void *arg, ls_error *err);
/* Computes the checksum; the exporter's weights and optimizer state → the exchange. */
int ls_worker_snapshot(const ls_worker *w, void *arg, ls_error *err);
/* The exchange's weights and optimizer state → the replica. */
int ls_worker_load(const ls_worker *w, void *arg, ls_error *err);
/* Before a pool that others use goes on without this trainer: ls_worker_close. */
int ls_worker_leave(const ls_worker *w, void *arg, ls_error *err);

/* `arg` is one of the worker's own ranges: runs its steps, one report each. */
int ls_worker_train(const ls_worker *w, void *arg, ls_error *err);

/* The stop hook: undoes open and join, as far as they got. `user` is the trainer. */
void ls_worker_close(const ls_worker *w, ls_device *device, void *local, void *user);

/* ---- exchange.c ----------------------------------------------------------------------------- */

/* Errors: LS_ENOMEM. */
int ls_exchange_create(ls_exchange **out, struct ls_trainer *trainer, ls_error *err);
void ls_exchange_destroy(ls_exchange *exchange, const ls_host *host); /* NULL is allowed */

/* ---- gang.c: the same job on every worker, watched ------------------------------------------ */

/* Runs `job` with the exchange on every worker that answers, and waits. Whoever shows no sign of
 * life for the deadline is left behind (presence LS_STALLED). Returns LS_OK when every live worker
 * did it, else the first cause; ls_recover then says how to go on. */
int ls_gang(struct ls_trainer *trainer, ls_job job, ls_error *err);

/* Looks after the signs of life of the workers. */
typedef struct ls_watch {
    uint64_t seen_ns;  /* when it looked last */
    ls_thread_use own; /* the watching thread's, while somebody is suspected */
    ls_silence silence[LS_DEVICES_MAX];
} ls_watch;
void ls_watch_begin(ls_watch *watch);
/* A look, every LS_NAP_NS while somebody is waited for. Whoever of those marked in `awaited` shows no sign of
 * life for the deadline is left behind, in or behind step `step`: presence LS_STALLED. */
void ls_watch_look(ls_watch *watch, struct ls_trainer *trainer, const bool *awaited, uint64_t step);

/* Nanoseconds of the run: as ls_now_ns, but it stands still while the process is stopped, as far as the
 * coordinator, which sleeps most of the time, was asleep then. What rates are reckoned by. */
uint64_t ls_run_ns(const struct ls_trainer *trainer);
/* The coordinator was asleep from `begin_ns` (ls_now_ns) on, for a nap: notes whether it was stopped. */
void ls_note_pause(struct ls_trainer *trainer, uint64_t begin_ns);

/* ---- recover.c: faults ---------------------------------------------------------------------- */

/* Leaves a worker behind that shows no sign of life in or behind step `step`: presence LS_STALLED, with
 * the message in its verdict. */
void ls_quarantine(struct ls_trainer *trainer, int worker, uint64_t step,
                   const ls_silence *silence);

/* After a failure of a step or a gang, when nobody is at work any more and each worker's `status`
 * says how it went: drops who is lost, writes the fault records, and forms a new group of the rest,
 * ready to repeat what was not done. `when` stands in messages: "step 12". Errors: the failure itself when it is no device's, when it
 * came back, when nobody is left or the config says stop. */
int ls_recover(struct ls_trainer *trainer, const char *when, ls_error *err);

/* The shards of each live worker, and its rank. */
void ls_assign_shards(struct ls_trainer *trainer);
/* Makes a group for the live workers, which join and check it. */
int ls_form_group(struct ls_trainer *trainer, ls_error *err);
/* Whether a worker that was left behind may still read what others showed to its group. */
int ls_readers_asleep(const struct ls_trainer *trainer);
/* How long a worker may be silent: the config's deadline_s, or else what the longest step so far
 * suggests (0: none was measured yet). */
void ls_set_deadline(struct ls_trainer *trainer, double longest_s);

/* ---- coordinator.c -------------------------------------------------------------------------- */

/* Trains and evaluates as the config says, from trainer->position on; fills trainer->result but for
 * the weights' hash. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- trainer.c ------------------------------------------------------------------------------ */

/* Writes the first record, once. */
int ls_begin(struct ls_trainer *trainer, ls_error *err);

/* ---- saver.c: checkpoints ------------------------------------------------------------------- */

/* Checkpoints go to <run_dir>/checkpoints. Errors: LS_ENOMEM, LS_ESYSTEM, LS_EIO. */
int ls_saver_create(struct ls_saver **out, struct ls_trainer *trainer, ls_error *err);
/* Waits for the save under way. NULL is allowed. LS_ESTALLED: it hangs; its memory is left. */
int ls_saver_destroy(struct ls_saver *saver);

/* Waits until nothing is being written. Errors: LS_ESTALLED. */
int ls_saver_rest(struct ls_trainer *trainer);

/* Nobody is at work. Compares the replicas and, with `bring_home`, exports weights and optimizer
 * state into the exchange. Errors: LS_EDIVERGED names who differs; those of ls_gang. */
int ls_snapshot_replicas(struct ls_trainer *trainer, int bring_home, ls_error *err);

/* Saves what ls_snapshot_replicas has just brought home. With `wait` it is on the disk at the return;
 * else it is written while training goes on, and a failure is logged: the next one may succeed. */
int ls_checkpoint(struct ls_trainer *trainer, int wait, ls_error *err);

/* Saves what was brought home to the file `path`; on the disk at the return. */
int ls_checkpoint_at(struct ls_trainer *trainer, const char *path, ls_error *err);
/* The place has changed otherwise than by training: a checkpoint of the same step is another one. */
void ls_saver_forget(struct ls_trainer *trainer);

/* ---- resume.c ------------------------------------------------------------------------------- */

struct ls_resumed;

/* options.resume is set. Finds the run's directory (into trainer->run_dir), locks it, and reads the
 * state of its newest whole checkpoint. Where the options name no config, *config_path is the run's
 * own (the caller frees it); else the config has been read. Errors: LS_ENOENT, LS_EDATA, LS_EIO,
 * LS_EAGAIN (somebody else trains there), LS_ENOMEM. */
int ls_resume_find(struct ls_trainer *trainer, char **config_path, ls_error *err);
/* The number of shards is known: a config that leaves it open takes the checkpoint's. */
int ls_resume_open(struct ls_trainer *trainer, ls_error *err);
/* Checks that recipe and data are the same, and loads position, result, weights and optimizer state.
 * Errors: LS_ECONFIG, LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_resume_load(struct ls_trainer *trainer, ls_error *err);
/* Reads the checkpoint `path`, whose verified `state` it frees, into the exchange, and takes its place.
 * It must be of the same recipe and data; on failure everything but the exchange is untouched. */
int ls_resume_from(struct ls_trainer *trainer, const char *path, char *state, ls_error *err);
/* What of metrics.jsonl the checkpoint counts on. */
const ls_sink_mark *ls_resume_metrics(const struct ls_trainer *trainer);
/* The summary is there: warns when library or instruction set are others than the run began with. */
void ls_resume_compare_libraries(const struct ls_trainer *trainer);
/* A run that is not resumed is allowed. */
void ls_resume_destroy(struct ls_trainer *trainer);

/* ---- records.c: metrics ----------------------------------------------------------------------- */

int ls_record_run_start(struct ls_trainer *trainer, ls_error *err);
int ls_record_resume(struct ls_trainer *trainer, ls_error *err);
int ls_record_step(struct ls_trainer *trainer, uint32_t epoch, double images_per_s,
                   const ls_report *report, ls_error *err);
int ls_record_nonfinite(struct ls_trainer *trainer, uint64_t step, int worker, int shard,
                        ls_error *err);
int ls_record_fault(struct ls_trainer *trainer, const ls_fault *fault, ls_error *err);
int ls_record_epoch(struct ls_trainer *trainer, uint32_t epoch, const ls_epoch_totals *totals,
                    ls_error *err);
int ls_record_eval(struct ls_trainer *trainer, uint32_t epoch, double seconds, ls_error *err);
int ls_record_run_end(struct ls_trainer *trainer, int status, const char *error, ls_error *err);

#endif
