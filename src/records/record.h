/* SPDX-License-Identifier: MIT */
/* *Records*: the events of a run as structs, such as the end of a step, an evaluation or a fault.
 * *Sinks* (sink.h) receive the records and store or show them. A sink that wants text gets each
 * record as a line of JSON. Other sinks read the structs. src/train/README.md lists the keys of the
 * JSON text. A field without a comment has the meaning of the key with the same name.
 *
 * .github/CONTRIBUTING.md says how a key is added to a record. */
#ifndef RECORDS_RECORD_H
#define RECORDS_RECORD_H

#include "config/config.h"
#include "data/dataset.h"
#include "engine/fault.h"
#include "json/writer.h"

#include <lockstep/trainer.h>
#include <stdbool.h>

typedef enum ls_record_type {
    LS_RECORD_RUN_START,
    LS_RECORD_RESUME,
    LS_RECORD_STEP,
    LS_RECORD_EPOCH,
    LS_RECORD_EVAL,
    LS_RECORD_FAULT,
    LS_RECORD_NONFINITE,
    LS_RECORD_ARRIVAL,
    LS_RECORD_FAILED_ARRIVAL,
    LS_RECORD_RUN_END,
    LS_RECORD_TYPES
} ls_record_type;

/* Names of the types in the text of records. */
extern const char *const ls_record_names[LS_RECORD_TYPES];

/* Phases of a worker's step: gather, forward, backward, all-reduce, wait, apply. */
enum { LS_PHASES = 6 };
/* Keys of the phases in JSON. */
extern const char *const ls_phase_keys[LS_PHASES];
/* Names of the phases in messages and charts. */
extern const char *const ls_phase_names[LS_PHASES];

/* Times of one worker in one step. */
typedef struct ls_worker_times {
    int worker; /* index of the worker */
    /* number of the worker's jobs that had not ended when the record was composed, the current job
     * included */
    int queued;
    float seconds[LS_PHASES]; /* duration of each phase */
} ls_worker_times;

/* The data that a run trains on and evaluates. */
typedef struct ls_data_values {
    const char *name, *source;
    ls_payload payload; /* result of comparing the data with the published data of this name */
    bool synthetic;     /* the data are generated (data.name synthetic) */
    bool images;        /* rows consist of bytes; false: of floats */
    uint64_t train_rows, test_rows;
    /* number of rows of the test table that are left out (ls_dataset_info.left_out) */
    int test_rows_left_out;
    /* SHA-256 of the files of training rows, of their labels if these are separate files, and of
     * test rows (ls_dataset_info); NULL: none */
    const char *sha256, *labels_sha256, *test_sha256;
    int targets;                   /* number of targets of a row; 0: rows have a class */
    int classes;                   /* number of classes; 0: rows have targets */
    const char *const *class_name; /* [classes]; NULL: the classes have no names or are too many */
} ls_data_values;

/* How a run ended before it was resumed: keys of the run_end that the resume has removed. */
typedef struct ls_former_end {
    char status[16],
        time[32]; /* `status` "": the run had no end, or the file has no record of it */
    char error[LS_ERROR_TEXT]; /* "": none */
} ls_former_end;

typedef struct ls_start_values { /* values of run_start and resume */
    ls_summary summary;
    ls_data_values data;
    const ls_config *config;
    uint64_t step; /* resume: number of steps that the run had done before */
    int missing;   /* resume: ls_sinks.missing */
    /* resume: ls_sinks.ended; NULL: none */
    const ls_former_end *ended;
    bool doubtful; /* resume: the run continues from a checkpoint that was set aside */
} ls_start_values;

typedef struct ls_step_values {
    /* `step`: number of the step, from 1; `rows`: number of its rows; `correct`: number of rows
     * that the model predicts correctly */
    uint64_t step, rows, correct;
    float loss, lr, images_per_s;
    float gradient_norm; /* norm of the gradient before clipping; NaN: unknown */
    int workers;
    bool hits; /* true: the loss function defines when a row is correct, and `correct` is valid */
    const ls_worker_times *worker; /* [workers] */
} ls_step_values;

typedef struct ls_epoch_values {
    double seconds, images_per_s, train_loss, train_accuracy;
} ls_epoch_values;

typedef struct ls_eval_values {
    double test_loss, test_accuracy, seconds;
    ls_measured measured; /* all other metrics */
    bool best;            /* true: better than all earlier evaluations, by the metric that the
                           * config's `monitor` names */
} ls_eval_values;

/* Reaction of the run to a fault. */
typedef enum ls_fault_action {
    LS_ACTION_CONTINUE, /* the run goes on without the worker or the host */
    LS_ACTION_REPEAT,   /* the step is repeated */
    LS_ACTION_STOP
} ls_fault_action;

/* Values of fault: a worker failed, or another host was lost. */
typedef struct ls_fault_values {
    ls_fault fault;
    ls_fault_action action;
    const char *device; /* name of the worker's device, or of the lost host */
    int devices_left;   /* number of devices that continue the run */
} ls_fault_values;

/* Values of nonfinite: the loss of a shard was not finite. */
typedef struct ls_nonfinite_values {
    uint64_t step;
    int worker, shard;
    const char *action;
} ls_nonfinite_values;

/* Values of arrival: another host was admitted to the run. */
typedef struct ls_arrival_values {
    const char *host; /* name of the host */
    uint64_t step;    /* number of steps that the run had done when the host was admitted */
} ls_arrival_values;

/* Values of failed_arrival: another host was not admitted to the run. */
typedef struct ls_failed_arrival_values {
    const char *host, *error; /* name of the host; the reason */
    uint64_t step;            /* number of steps that the run had done */
} ls_failed_arrival_values;

typedef struct ls_end_values {
    const char *status, *error;                  /* `error`: NULL if there was none */
    const char *checkpoint, *weights_sha256;     /* NULL: none */
    const char *stopped_early, *best_checkpoint; /* NULL: none */
    ls_result result;
    double test_accuracy; /* NaN: none */
    int skipped;          /* number of steps that were skipped */
    bool synthetic;
    /* with checkpoint.final "best", the epoch whose weights weights.safetensors has; 0: it has the
     * last weights */
    int weights_epoch;
} ls_end_values;

typedef struct ls_record {
    ls_record_type type;
    uint64_t epoch; /* number of the epoch, for the types step, epoch and eval */
    /* [devices] names of the devices of the run, for run_start, resume, arrival and run_end */
    const char *const *device;
    int devices;
    union {
        ls_start_values start;
        ls_step_values step;
        ls_epoch_values epoch;
        ls_eval_values eval;
        ls_fault_values fault;
        ls_nonfinite_values nonfinite;
        ls_arrival_values arrival;
        ls_failed_arrival_values failed;
        ls_end_values end;
    } of;
    const char *json; /* the record as one line of JSON, zero-terminated, if a sink wants text */
    size_t length;    /* length of `json` without the zero */
} ls_record;

/* ---- as text --------------------------------------------------------------------------------- */

/* Type of a key's value, in memory and in the text. */
typedef enum ls_member_kind {
    LS_MEMBER_INT,
    LS_MEMBER_INT_IF_ANY, /* int, omitted if the value is 0 */
    LS_MEMBER_UINT,       /* uint64_t */
    LS_MEMBER_SIZE,
    LS_MEMBER_FLOAT,
    LS_MEMBER_FLOAT_OR_NULL, /* null if the value is not finite */
    LS_MEMBER_FLOAT_IF_ANY,  /* omitted if the value is not finite */
    LS_MEMBER_DOUBLE,
    LS_MEMBER_DOUBLE_OR_NULL,
    LS_MEMBER_DOUBLE_IF_ANY, /* omitted if the value is NaN */
    LS_MEMBER_BOOL,
    LS_MEMBER_TEXT,         /* const char * */
    LS_MEMBER_TEXT_OR_NULL, /* null if the value is NULL */
    LS_MEMBER_TEXT_IF_ANY,  /* omitted if the value is NULL */
    /* For the kinds below, the function ls_record_key.put writes key and value. */
    LS_FORM_TEXT,
    LS_FORM_ARRAY,
    LS_FORM_ARRAY_IF_ANY, /* omitted if there is no array */
    LS_FORM_OBJECT,
    LS_FORM_OBJECT_IF_ANY /* omitted if there is no object */
} ls_member_kind;

/* *Parts*: objects inside a record, whose keys are entries of ls_record_keys too. They are the
 * object `data` of run_start, and the object of each worker of a step. */
enum { LS_PART_DATA = LS_RECORD_TYPES, LS_PART_WORKER };

/* A key that one or more types of records have. */
typedef struct ls_record_key {
    unsigned in; /* bit mask of the types of records, and of the parts (LS_PART_…), that have the
                  * key: 1 << type */
    const char *key;
    ls_member_kind kind;
    size_t at; /* offset of the value in ls_record, or in ls_worker_times for a worker's keys */
    /* Writes key and value, for the kinds LS_FORM_…; NULL for other kinds. */
    void (*put)(ls_json_writer *w, const char *key, const ls_record *record);
    /* true: the value depends on devices, workers or time. Therefore it can differ between two runs
     * that have the same results, and a comparison of two runs ignores the key. */
    bool varies;
} ls_record_key;

/* All keys, in the sequence in which they are written after "type". The last entry has the key
 * NULL. This table decides how records are written, how tests/cli/check_metrics.c checks them, and
 * which keys tests/campaigns/swarm.c compares between two runs. train/README.md says what the keys
 * mean. */
extern const ls_record_key ls_record_keys[];

/* Renders a record as JSON. run_start, resume and run_end include the current time. */
void ls_record_write(ls_json_writer *w, const ls_record *record);

#endif
