/* What a training run consists of. */
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
    ls_trace *trace; /* the timeline; NULL: none is written */
} ls_record_room;

/* What the run tells its caller. */
typedef struct ls_run_told {
    ls_summary summary;
    ls_result result;
    ls_measured measured; /* by the last evaluation; as for loss and accuracy, see result */
    struct {              /* what summary and result point to */
        char data[160], devices[512], resumed[512];
        char devices_left[512]; /* of the result, where some were lost */
        char early[160];        /* why the run stopped early; "": it did not */
        char best[4200];
    } text;
} ls_run_told;

struct ls_trainer {
    /* Frozen before the first step. */
    ls_trainer_options options;     /* its callbacks, cluster and sources are those below */
    ls_trainer_callbacks callbacks; /* all zero: none */
    ls_trainer_cluster cluster;     /* all zero: as the config says */
    const ls_host *host;
    ls_data_source *source; /* the caller's own, copied; NULL: none */
    const ls_data_source **sources;
    ls_config config;
    ls_dataset *data[LS_SUBSETS];
    ls_inference *inference; /* shared with the snapshots */
    const ls_model *model;   /* inference's */

    /* The coordinator's. */
    ls_engine *engine;  /* the workers */
    ls_members members; /* the other processes */
    struct ls_coordination *coordination;
    ls_position position;
    ls_run_files dir;
    ls_record_room records;

    /* The caller's. */
    atomic_int stop;   /* set by ls_trainer_interrupt, from any thread */
    atomic_int inside; /* non-zero: one of the trainer's functions is under way (calls.h) */
    ls_snapshot *last; /* the newest that ls_trainer_predict took; NULL: none */
    ls_stage_of_life life;
    bool ran;        /* ls_trainer_run was called */
    ls_error broken; /* why nothing can be trained any more; status 0: it can */
    ls_run_told told;
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
