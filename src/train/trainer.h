/* The trainer: the state of a training run.
 *
 * Threads: one of the caller's threads at a time, checked by calls.h. It is the coordinator of the
 * workers (engine/engine.h). Only `stop` may be set from any thread at any time.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint/run_dir.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "records/sink.h"
#include "records/trace.h"
#include "train/members.h"
#include "train/snapshot.h"

#include <stdatomic.h>
#include <stdbool.h>

struct ls_coordination;

/* Stages of a trainer's life. */
typedef enum ls_stage_of_life {
    LS_OPENED, /* no record was written yet */
    LS_BEGUN,  /* the first record was written */
    LS_ENDED   /* the last record was written */
} ls_stage_of_life;

/* Output of records, and arrays for one record. */
typedef struct ls_record_room {
    ls_sinks sinks;
    ls_worker_times *times; /* [workers] */
    const char **device;
    ls_trace *trace; /* timeline; NULL: none is written */
} ls_record_room;

/* Results of the run for its caller. */
typedef struct ls_run_reported {
    ls_summary summary;
    ls_result result;
    ls_metric metric; /* number of result.metric; LS_METRIC_CONFUSION: not known yet */
    /* results of the last evaluation; its loss and accuracy are in `result` */
    ls_measured measured;
    struct { /* texts to which summary and result point */
        char data[160], devices[512], resumed[512];
        char devices_left[512]; /* the remaining devices, if some were lost */
        char early[160];        /* why the run stopped early; "": it did not */
        char best[4200];
    } text;
} ls_run_reported;

struct ls_trainer {
    /* Constant from the first step on. */
    /* `callbacks`, `cluster` and `sources` below replace the fields of these names */
    ls_trainer_options options;
    ls_trainer_callbacks callbacks; /* zeroed: none */
    ls_trainer_cluster cluster;     /* zeroed: as the config says */
    const ls_host *host;
    ls_data_source *source; /* copies of the caller's data sources; NULL: none */
    const ls_data_source **sources;
    ls_config config;
    ls_dataset *data[LS_SUBSETS];
    ls_inference *inference; /* shared with snapshots */
    const ls_model *model;   /* owned by inference */

    /* Used by the coordinator. */
    ls_engine *engine;  /* the workers */
    ls_members members; /* the other processes */
    struct ls_coordination *coordination;
    ls_position position;
    ls_run_files dir;
    ls_record_room records;

    /* State of the public functions. */
    atomic_int stop;   /* set by ls_trainer_interrupt, from any thread */
    atomic_int inside; /* non-zero: one of the trainer's functions is running (calls.h) */
    ls_snapshot *last; /* newest snapshot that ls_trainer_predict took; NULL: none */
    ls_stage_of_life life;
    bool ran;        /* ls_trainer_run was called */
    ls_error broken; /* why training cannot go on; status 0: it can */
    ls_run_reported reported;
};

/* ---- open.c --------------------------------------------------------------------------------- */

/* Creates everything that a run needs. After a failure ls_trainer_close frees what was created.
 * Errors: those of ls_trainer_open. */
int ls_open_run(struct ls_trainer *trainer, ls_error *err);

/* ---- drive.c -------------------------------------------------------------------------------- */

/* Adds a sink. The trainer closes it at the end of the run, or now if this function fails. Errors:
 * LS_EINVAL (too many). */
int ls_trainer_attach(struct ls_trainer *trainer, ls_sink *sink, ls_error *err);

/* Copies the current weights to ls_engine_weights, for the public function called `function`;
 * recovers if a device fails meanwhile. Errors: LS_EDEVICE (no device is left), or the error that
 * ended the training; LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM. */
int ls_take_weights(struct ls_trainer *trainer, const char *function, ls_error *err);

/* ---- trainer.c ------------------------------------------------------------------------------ */

/* Writes the first record, unless that was done before. Errors: those of records and of the
 * cluster. */
int ls_begin(struct ls_trainer *trainer, ls_error *err);

#endif
