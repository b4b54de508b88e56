/* SPDX-License-Identifier: MIT */
/* The facts of a run that a table of runs shows, such as its state and its best accuracy. They are
 * found in the run's records.
 *
 *     ls_run_log_init(&log, 0, host);
 *     log.brief = true;                      // a table needs no steps
 *     status = ls_report_read(&log, "runs/20240131-093000-lenet", &err);
 *     ls_run_facts facts;
 *     ls_run_facts_find(&facts, &log, "runs/20240131-093000-lenet"); */
#ifndef PAGE_FACTS_H
#define PAGE_FACTS_H

#include "config/metrics.h"
#include "page/page.h"

/* State of a run, determined from its records and the lock of its directory. */
typedef enum ls_run_state {
    LS_RUN_RUNNING,  /* a process holds the lock */
    LS_RUN_FINISHED, /* all epochs are done, or `patience` has ended the run */
    LS_RUN_INTERRUPTED,
    LS_RUN_FAILED,
    LS_RUN_KILLED /* the process has ended without writing the record of the run's end */
} ls_run_state;

/* Names of the states. */
extern const char *const ls_run_states[];

enum { LS_DOUBT = 560 }; /* size of ls_run_facts.doubt in bytes */

/* Facts of a run. A number that the run does not have is NaN, and a text is "". */
typedef struct ls_run_facts {
    ls_run_state state;
    char name[128], data[128]; /* name of the run and of its data, from the config */
    ls_metric metric;          /* metric of the evaluations; LS_METRICS: not known */
    char judged[16];           /* "test" or "validation": rows on which the model is evaluated */
    double value, best;        /* the metric at the newest and at the best evaluation */
    double train_loss;         /* mean loss of the newest epoch's training rows */
    double rate;               /* training rows per second, mean over the epochs */
    double seconds;            /* time of epochs and evaluations */
    char begun[24];            /* time of the first record, UTC: "2024-01-31T09:30:00Z" */
    /* SHA-256 of the final weights, as the run's records say; after ls_run_weights_read that of the
     * weights in the run's file */
    char hash[65];
    char devices[256];     /* at the start: "cpu(0), cpu(1)" */
    char changes[256];     /* devices and hosts that were lost or admitted since: "cpu(1) lost
                            * at step 120, b admitted after step 200" */
    char own_data[128];    /* name of the user's own file or folder; "": public data, or none */
    char doubt[LS_DOUBT];  /* after ls_run_weights_read, what is wrong with the run's file of
                            * weights: "has other weights than its records say: …"; "": nothing */
    char refuted[300];     /* "NOT verified: …" of a line "verified" (ls_run_verdict_add) */
    int epochs, of_epochs; /* number of finished epochs; number of epochs in the config */
    int judged_epoch;      /* epoch of the newest evaluation; 0: none */
    int weights_epoch;     /* with checkpoint.final "best", the epoch whose weights the run's
                            * file has, while `hash` in the records is that of the last ones; 0:
                            * the file has the last weights */
    uint64_t steps;        /* number of the last step */
    uint64_t parameters;
    int resumed;          /* number of times that the run was resumed */
    bool synthetic;       /* the data are generated */
    bool named_synthetic; /* the name of the data says so too */
    /* Records of earlier steps are in another file, because another program has moved or cut the
     * run's file (record resume, missing_records). `best`, `rate`, `seconds` and `resumed` count
     * only what is left. */
    bool lacks_records;
    double measured[LS_METRICS]; /* metrics of the newest evaluation, its loss included */
} ls_run_facts;

/* Returns the name of the rows on which a run is evaluated: "validation" or "test". `config`: the
 * config in the run's first record; NULL: not known. */
const char *ls_run_judged(const cJSON *config);

/* Returns the metric of a run's evaluations by its first record: that of its loss, or the accuracy.
 * `start`: record run_start. */
ls_metric ls_run_metric(const cJSON *start);
/* Returns the metric of a run's evaluations once `eval`, the record of one of them, is known:
 * `metric`, which is that so far, or another one that this evaluation has instead. */
ls_metric ls_run_metric_of(ls_metric metric, const cJSON *eval);

/* Returns the name of a metric in tables and on pages, such as "accuracy", "R²" or "AUC"; "" for
 * the loss, the matrix and LS_METRICS. */
const char *ls_metric_title(ls_metric metric);

enum { LS_METRIC_KEY = 32 }; /* size of a text of ls_metric_key in bytes */
/* Writes the key of a metric in the record of an evaluation, such as "test_auc", to `out` and
 * returns `out`; "" for LS_METRICS. */
const char *ls_metric_key(char out[LS_METRIC_KEY], ls_metric metric);

enum { LS_METRIC_TEXT = 32 }; /* size of a text of ls_metric_put in bytes */
/* Writes a metric or a loss to `out`: four decimals, or three significant digits if `scale`, a
 * value of the same magnitude or `value` itself, is small; "" for NaN. */
void ls_metric_put(char out[LS_METRIC_TEXT], double value, double scale);

/* Finds the facts in the records of the run in the directory `run_dir`. */
void ls_run_facts_find(ls_run_facts *out, const ls_run_log *log, const char *run_dir);

/* Reads the weights in `run_dir`/weights.safetensors and sets `hash` to their SHA-256, or to "" if
 * they cannot be read, and `doubt`. Does nothing if the records have no hash, because the run has
 * not ended. Errors: LS_ENOMEM. */
int ls_run_weights_read(ls_run_facts *facts, const char *run_dir, const ls_host *host,
                        ls_error *err);

#endif
