/* What a training run consists of: shared by the coordinator, the workers and the records. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "nn/replica.h"
#include "sync/ring.h"
#include "train/config.h"
#include "train/sink.h"

#include <stdatomic.h>

/* Most consecutive steps that one work item may hold. */
#define LS_RANGE_MAX 32
/* Work items a worker may hold at once: one runs while the next one waits. More would only let a
 * worker run ahead of the others. */
#define LS_IN_FLIGHT 2
/* Reports a worker may have sent that the coordinator has not read. */
#define LS_REPORTS (LS_RANGE_MAX * LS_IN_FLIGHT)

struct ls_trainer;

/* A work item: consecutive steps of one epoch. The coordinator fills one and pushes it into every
 * worker's inbox; it is reused when the reports of its last step have come back. */
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
    int status; /* not LS_OK: the text is in the worker's `error` */
    float loss; /* of the whole minibatch, summed; the same from every worker */
    float correct;
    float rows;
    float lr; /* it was applied with */
    ls_replica_times times;
    ls_comm_times comm;
} ls_report;

/* One worker's part. The worker's thread owns it while a job runs; the coordinator between jobs. */
typedef struct ls_train_worker {
    struct ls_trainer *trainer;
    int rank;
    int shard_lo, shard_hi; /* its logical shards */
    ls_device *device;
    ls_replica *replica;
    ls_comm *comm;
    ls_fold fold;
    ls_ring reports;
    ls_device_info info;
    ls_error error;
    int failed; /* a step failed: `error` says why, and no further step is begun */
    char own_cache_line[64];
} ls_train_worker;

/* Loss and hits of one shard of one evaluation minibatch. */
typedef struct ls_tally {
    double loss, correct;
} ls_tally;

struct ls_trainer {
    ls_trainer_options options;
    const ls_host *host;
    ls_config config;
    ls_registry *own_registry; /* NULL when the caller gave one */
    ls_dataset *data[LS_SUBSETS];
    ls_model *model;
    ls_pool *pool;
    int workers;
    int shards;
    ls_train_worker *worker;
    ls_comm_group *group;
    float *canonical;         /* model->floats: the initial weights, later the final ones */
    uint32_t *permutation[2]; /* training rows of even and odd epochs */
    uint32_t *test_rows;      /* 0, 1, 2, … */
    ls_tally *tally;          /* [evaluation minibatch][shard] */
    ls_range item[LS_IN_FLIGHT];
    ls_report *reports; /* of the step being collected, one per worker */
    char *run_dir;      /* "" when there is none */
    ls_sinks sinks;
    ls_summary summary;
    ls_result result;
    char data_text[160];
    char devices_text[512];
    atomic_int stop; /* set by ls_trainer_interrupt */
    int ran;
};

/* Rows of a subset. */
uint32_t ls_subset_rows(const struct ls_trainer *trainer, ls_subset subset);

/* Rows of minibatch `index` of `total` rows cut into minibatches of `batch_size`. */
uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index);

/* ---- worker.c: jobs of the pool ------------------------------------------------------------- */

/* `arg` is the trainer: builds the worker's replica and fold from trainer->canonical. */
int ls_worker_open(const ls_worker *w, void *arg, ls_error *err);
/* `arg` is the trainer: joins trainer->group. */
int ls_worker_join(const ls_worker *w, void *arg, ls_error *err);
/* `arg` is the trainer: undoes both, as far as they got. */
int ls_worker_close(const ls_worker *w, void *arg, ls_error *err);
/* `arg` is the worker's own ls_range: runs its steps, one report each. Never fails as a job: what
 * goes wrong is in the reports. */
int ls_worker_train(const ls_worker *w, void *arg, ls_error *err);
/* `arg` is the trainer: this worker's shards of every test minibatch → trainer->tally. */
int ls_worker_evaluate(const ls_worker *w, void *arg, ls_error *err);
/* `arg` is the trainer: rank 0's weights → trainer->canonical. */
int ls_worker_export(const ls_worker *w, void *arg, ls_error *err);

/* ---- coordinator.c -------------------------------------------------------------------------- */

/* Trains and evaluates as the config says; fills trainer->result but for the weights' hash. */
int ls_coordinate(struct ls_trainer *trainer, ls_error *err);

/* ---- records.c: metrics as JSON ------------------------------------------------------------- */

typedef struct ls_epoch_totals {
    double loss, correct, rows; /* summed over the epoch's minibatches */
    double seconds;             /* training only */
} ls_epoch_totals;

int ls_record_run_start(struct ls_trainer *trainer, ls_error *err);
int ls_record_step(struct ls_trainer *trainer, uint32_t epoch, double images_per_s,
                   const ls_report *reports, ls_error *err);
int ls_record_epoch(struct ls_trainer *trainer, uint32_t epoch, const ls_epoch_totals *totals,
                    ls_error *err);
int ls_record_eval(struct ls_trainer *trainer, uint32_t epoch, double seconds, ls_error *err);
int ls_record_run_end(struct ls_trainer *trainer, int status, const char *error, ls_error *err);

#endif
