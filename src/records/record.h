/* Records: the events of a run as structs, such as the end of a step, an evaluation or a fault.
 * Sinks (sink.h) receive the records and store or show them. A sink that wants text gets each
 * record as a line of JSON, whose keys src/train/README.md lists; other sinks read the structs.
 *
 * To add a key to a record, change four files: add a member to the values of the record here, set
 * it where the record is composed (train/run_records.c), add a row to ls_record_keys (record.c),
 * and add a line to the table of train/README.md. The test config_rows checks that this table has
 * the same keys as ls_record_keys. */
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
    LS_RECORD_RUN_END,
    LS_RECORD_TYPES
} ls_record_type;

/* Names of the types in text. */
extern const char *const ls_record_names[LS_RECORD_TYPES];

/* Phases of a worker's step (gather, forward, …): their keys in JSON, and their names in messages
 * and charts. */
enum { LS_PHASES = 6 };
extern const char *const ls_phase_keys[LS_PHASES];
extern const char *const ls_phase_names[LS_PHASES];

/* Times of one worker in one step. */
typedef struct ls_worker_times {
    int worker;               /* index of the worker */
    int queued;               /* number of the worker's jobs that had not ended, the current job
                               * included */
    float seconds[LS_PHASES]; /* duration of each phase */
} ls_worker_times;

/* The data of a run. */
typedef struct ls_data_values {
    const char *name, *source;
    ls_payload payload; /* result of comparing the data with the published data of this name */
    bool synthetic;     /* the data are generated (data.name synthetic) */
    bool images;        /* rows consist of bytes; false: of floats */
    uint64_t train_rows, test_rows;
    int targets; /* number of targets of a row; 0: rows have a class */
    int classes;
    const char *const *class_name; /* [classes]; NULL: the classes have no names or are too many */
} ls_data_values;

typedef struct ls_start_values { /* values of run_start and resume */
    ls_summary summary;
    ls_data_values data;
    const ls_config *config;
    uint64_t step; /* number of steps done before */
} ls_start_values;

typedef struct ls_step_values {
    uint64_t step, rows, correct; /* number of the step, of its rows, and of its correct rows */
    float loss, lr, images_per_s;
    float gradient_norm; /* before clipping; NaN: unknown */
    int workers;
    bool hits; /* true: the loss function defines when a row is correct, so `correct` is valid */
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

/* A worker failed, or another host was lost. */
typedef struct ls_fault_values {
    ls_fault fault;
    ls_fault_action action;
    const char *device; /* name of the worker's device, or of the host */
    int devices_left;   /* number of devices that continue the run */
} ls_fault_values;

typedef struct ls_nonfinite_values {
    uint64_t step;
    int worker, shard;
    const char *action;
} ls_nonfinite_values;

/* Another host was admitted to the run. */
typedef struct ls_arrival_values {
    const char *host; /* name of the host */
    uint64_t step;    /* number of steps that the run had done when the host was admitted */
} ls_arrival_values;

typedef struct ls_end_values {
    const char *status, *error;              /* error: NULL if there was none */
    const char *checkpoint, *weights_sha256; /* NULL: none */
    const char *stopped_early, *best_checkpoint;
    ls_result result;
    bool synthetic;
} ls_end_values;

typedef struct ls_record {
    ls_record_type type;
    uint64_t epoch; /* for steps, epochs and evaluations */
    /* [devices] names of the devices of the run, for run_start, resume, arrival and run_end. */
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
        ls_end_values end;
    } of;
    const char *json; /* the record as one line of JSON, zero-terminated, if a sink wants text */
    size_t length;    /* length of `json` without the zero */
} ls_record;

/* ---- as text --------------------------------------------------------------------------------- */

/* Type of a key's value, in memory and in the text. */
typedef enum ls_member_kind {
    LS_MEMBER_INT,
    LS_MEMBER_INT_IF_ANY, /* int, omitted if it is 0 */
    LS_MEMBER_UINT,       /* uint64_t */
    LS_MEMBER_SIZE,
    LS_MEMBER_FLOAT,
    LS_MEMBER_FLOAT_OR_NULL, /* null if it is not finite */
    LS_MEMBER_FLOAT_IF_ANY,  /* omitted if it is not finite */
    LS_MEMBER_DOUBLE,
    LS_MEMBER_DOUBLE_OR_NULL,
    LS_MEMBER_DOUBLE_IF_ANY, /* omitted if it is NaN */
    LS_MEMBER_BOOL,
    LS_MEMBER_TEXT,         /* const char * */
    LS_MEMBER_TEXT_OR_NULL, /* null if it is NULL */
    LS_MEMBER_TEXT_IF_ANY,  /* omitted if it is NULL */
    /* The kinds below are of values that the function ls_record_key.put writes. */
    LS_FORM_TEXT,
    LS_FORM_ARRAY,
    LS_FORM_ARRAY_IF_ANY, /* omitted if there is none */
    LS_FORM_OBJECT
} ls_member_kind;

/* Objects inside a record whose keys are rows of ls_record_keys as well: the object `data` of
 * run_start, and the object of each worker of a step. */
enum { LS_PART_DATA = LS_RECORD_TYPES, LS_PART_WORKER };

/* A key that one or more types of records have. */
typedef struct ls_record_key {
    unsigned in; /* bit mask of the types of records, and of the parts (LS_PART_…), that have the
                  * key: 1 << type */
    const char *key;
    ls_member_kind kind;
    size_t at; /* offset of the value in ls_record, or in ls_worker_times for a worker's keys */
    /* Writes a value of the kinds LS_FORM_…; NULL for other kinds. */
    void (*put)(ls_json_writer *w, const char *key, const ls_record *record);
    /* true: the value depends on devices, workers or time, and may differ between two runs that
     * have the same results. A comparison of two runs then ignores the key. */
    bool varies;
} ls_record_key;

/* All keys, in the order in which they are written after "type"; the last row has the key NULL.
 * This table decides how records are written, how tests/cli/check_metrics.c checks them, and which
 * keys tests/campaigns/swarm.c compares between two runs. train/README.md says what the keys
 * mean. */
extern const ls_record_key ls_record_keys[];

/* Renders a record as JSON. run_start, resume and run_end include the current time. */
void ls_record_write(ls_json_writer *w, const ls_record *record);

#endif
