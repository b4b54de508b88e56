/* SPDX-License-Identifier: MIT */
/* The trainer: the state of a training run.
 *
 * Threads: one thread of the caller at a time, which calls.h checks. This thread is the
 * coordinator. Only `stop` may be set from any thread at any time. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint/run_dir.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "model/model.h"
#include "records/sink.h"
#include "records/trace.h"
#include "train/agreement.h"
#include "train/members.h"

#include <stdatomic.h>
#include <stdbool.h>

struct ls_coordination;

/* Stages of a trainer's life. */
typedef enum ls_stage_of_life {
    LS_OPENED, /* no record was written yet */
    LS_BEGUN,  /* the first record was written */
    LS_ENDED   /* the last record was written */
} ls_stage_of_life;

/* The sinks of a run's records (a sink receives records, for example to write them to a file), and
 * arrays for composing a record. */
typedef struct ls_record_room {
    ls_sinks sinks;
    ls_worker_times *times; /* [workers] */
    const char **device;    /* names of devices; room for all devices of the run */
    ls_trace *trace;        /* the run's timeline; NULL: no timeline is written */
} ls_record_room;

/* Results of the run for its caller. */
typedef struct ls_run_reported {
    ls_summary summary;
    ls_result result;
    double accuracy; /* share of correct predictions in the last evaluation; NaN: none */
    /* the metric whose name is result.metric. LS_METRIC_CONFUSION means that the metric is not
     * known yet, because the confusion matrix is never this metric. */
    ls_metric metric;
    /* with checkpoint.final "best", the epoch whose weights were written to weights.safetensors; 0:
     * the last weights were */
    int weights_epoch;
    /* results of the last evaluation, except the loss, which is in `result`, and `accuracy` */
    ls_measured measured;
    struct { /* texts to which summary and result point */
        char data[160], devices[512], resumed[512];
        char devices_left[512]; /* the devices that remain, if some were lost */
        char early[160];        /* why the run stopped early; "": it did not stop early */
        char best[4200];
    } text;
} ls_run_reported;

struct ls_trainer {
    /* Constant from the first step on. */
    /* The caller's options. Its pointers to memory of the caller that may be gone after
     * ls_trainer_open are NULL from then on. The fields below are copies of what is needed later.
     */
    ls_trainer_options options;
    ls_trainer_callbacks callbacks; /* zeroed: none */
    ls_trainer_cluster cluster;     /* zeroed: the config decides */
    /* clock of checkpoint.every_seconds and its argument (ls_trainer_sys); NULL: ls_now_ns */
    uint64_t (*clock)(void *user);
    void *clock_user;
    const ls_host *host;
    ls_data_source *source; /* copies of the caller's data sources and their names; NULL: none */
    const ls_data_source **sources;
    uint32_t step_rows[LS_STEP_ROWS]; /* [options.step_row_count] */
    ls_config config;
    ls_dataset *data[LS_SUBSETS];
    ls_inference *inference; /* shared with models (model.h) */
    const ls_network *model; /* owned by inference */
    /* The model with the learning-rate factors of the first freeze_epochs epochs, which the workers
     * have in these epochs; NULL: there are no such epochs. Other parts of the program may use
     * `model` meanwhile, so its factors never change. */
    ls_network *held;
    bool holds;          /* the workers have `held` */
    bool card_is_old;    /* scales were learnt since the model's card was written */
    bool test_has_moved; /* the test rows have changed since the devices copied them */

    /* Used by the coordinator. */
    ls_engine *engine;  /* the workers */
    ls_members members; /* the processes of the run */
    struct ls_coordination *coordination;
    ls_agreement agreement;
    ls_chain chain;       /* hashes of states, if agreement.chained (chaining.h) */
    bool driven;          /* the caller has trained single steps or replaced the weights */
    bool diverged;        /* ls_agreement_lost was called */
    ls_position position; /* how far the run is (checkpoint/checkpoint.h) */
    ls_run_files dir;     /* the run's directory and its saver */
    ls_record_room records;

    /* State of the public functions. */
    atomic_int stop;       /* set by ls_trainer_interrupt, from any thread */
    atomic_int in_call;    /* 1 while a public function of the trainer is running (calls.h) */
    ls_stage_of_life life; /* which records were written */
    bool ran;              /* ls_trainer_run was called */
    ls_error broken;       /* the error that ended the training; status LS_OK: there was none */
    ls_run_reported reported;
};

/* ---- open.c --------------------------------------------------------------------------------- */

/* Creates all parts of a run: data, model, workers, connections and files. After a failure the
 * caller closes the trainer, which frees the parts that were created. Errors: those of
 * ls_trainer_open. */
int ls_open_run(struct ls_trainer *trainer, ls_error *err);

/* ---- warnings.c ----------------------------------------------------------------------------- */

/* Logs warnings about the settings of a run that has just been opened. */
void ls_warn_of_settings(struct ls_trainer *trainer);

/* ---- drive.c -------------------------------------------------------------------------------- */

/* Copies the current weights to the arrays of ls_engine_weights. If a device fails meanwhile,
 * recovers and repeats the copy. `function`: name of the calling public function, for messages.
 * Errors: LS_EDEVICE (no device is left), or the error that ended the training; LS_EDIVERGED,
 * LS_ESTALLED, LS_ENOMEM. */
int ls_take_weights(struct ls_trainer *trainer, const char *function, ls_error *err);

/* ---- trainer.c ------------------------------------------------------------------------------ */

/* Writes the first record of the run, unless it was written before. Errors: those of records and of
 * the cluster. */
int ls_begin(struct ls_trainer *trainer, ls_error *err);

/* Forgets the hash of the weights in the result, because the weights change. */
static inline void ls_forget_hash(struct ls_trainer *trainer)
{
    trainer->reported.result.weights_sha256[0] = '\0';
}

#endif
