/* What a run left behind, read back from its directory: the material of a report. */
#ifndef TOOLS_RUN_LOG_H
#define TOOLS_RUN_LOG_H

#include "json/json.h"

/* What a worker's time of a step went into, in the order of a step. */
enum { LS_PHASES = 6 };

/* The members of a step record, and what people call them. */
extern const char *const ls_phase_keys[LS_PHASES];
extern const char *const ls_phase_names[LS_PHASES];

/* Numbers that a record does not have are NaN. */
typedef struct ls_log_step {
    uint64_t step; /* from 1 */
    float loss, images_per_s;
} ls_log_step;

typedef struct ls_log_epoch {
    int epoch;          /* from 1 */
    uint64_t last_step; /* of the run, when the epoch was over */
    double seconds, images_per_s, train_loss, train_accuracy;
    double test_loss, test_accuracy;
} ls_log_epoch;

enum { LS_LOG_EVENTS = 16 };

typedef struct ls_run_log {
    const ls_host *host;
    const char *dir; /* the caller's */
    ls_json *config; /* config.json */
    ls_json *start;  /* the records run_start and run_end; NULL: there is none */
    ls_json *end;
    ls_json *event[LS_LOG_EVENTS]; /* the first records fault, nonfinite and resume */
    int events;                    /* all of them */
    ls_log_step *step;
    size_t steps, step_capacity;
    ls_log_epoch *epoch;
    size_t epochs, epoch_capacity;
    double *phase_s; /* [workers][LS_PHASES]: summed over all steps */
    int workers;
    uint64_t timed_steps;
    int cut_line; /* the last line, when it was cut off; else 0 */
} ls_run_log;

/* Reads the directory, which stays the caller's. Errors as ls_report_write; `out` needs
 * ls_run_log_fini only after success. */
int ls_run_log_read(ls_run_log *out, const char *dir, const ls_host *host, ls_error *err);
void ls_run_log_fini(ls_run_log *log);

/* Record by record instead: an empty log, which needs ls_run_log_fini; and one record, whose type (cut to
 * `size`) is told. The config is that of the record run_start. Errors: LS_EDATA, LS_ENOMEM. */
void ls_run_log_init(ls_run_log *out, const ls_host *host);
int ls_run_log_add(ls_run_log *log, char *type, size_t size, const char *json, size_t length,
                   ls_error *err);

/* Members of a record, found by a path such as "data.name": NULL or NaN when absent or of another
 * kind. `doc` may be NULL. */
const cJSON *ls_log_node(const ls_json *doc, const char *path);
const char *ls_log_text(const ls_json *doc, const char *path);
double ls_log_number(const ls_json *doc, const char *path);

#endif
