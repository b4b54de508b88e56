/* SPDX-License-Identifier: MIT */
/* The page of a run: one HTML file that contains page.css, chart.js, report.js and the run's
 * records. The scripts draw the records.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "base/buffer.h"
#include "config/metrics.h"
#include "records/record.h"
#include "json/json.h"
#include <stdbool.h>

/* The records of a run, reduced so that the page of a long run stays small.
 *
 * An entry stands for one or more consecutive steps. When LS_RUN_STEPS entries are full, every two
 * adjacent ones are merged. All other records are stored unchanged.
 *
 *     ls_run_log log;
 *     ls_run_log_init(&log, 0, host);
 *     ls_run_log_add(&log, record, &err);           // every record, in order; or ls_run_log_line
 *     ls_run_log_write(&log, &ls_run_nothing, &buffer);   // JSON Lines, for page/report.js
 *     ls_run_log_fini(&log);
 *
 * The output begins with a line {"type":"page","run":…,"width":…,"steps_from":…,"others_from":…,
 * "cut_line":…,"metric":…}. `steps_from` and `others_from` are the indices of the first entry of
 * steps and of the first other record that follow. `metric` is the key of the metric of the run's
 * evaluations (facts.h). If `others_from` is 0, a line {"type":"metrics","all":[{"key":…,"name":…,
 * "rises":…},…]} follows with the metrics that have a title. The records follow in the form that
 * src/train/README.md describes, with an additional first member "at": the number of the step, or,
 * in a record that is not one of a step, the number of the step before which the record came. A
 * step record that stands for several steps has the means over these steps. It has three additional
 * members: "steps", the number of these steps, and "loss_range" and "rate_range", the smallest and
 * the largest value. Its "step" and "lr" are those of the last step. Step records have no
 * "workers". Instead there are two further records: {"type":"times"} has the workers' times, summed
 * over all steps, and
 * {"type":"newest"} is the unchanged record of the last step.
 *
 * Threads: one thread at a time uses a log. */

enum { LS_RUN_STEPS = 16384, LS_RUN_EVENTS = 200 };

/* An entry: one or more consecutive steps. */
typedef struct ls_run_step {
    uint64_t step;                 /* number of the last step of the entry, from 1 */
    uint32_t steps, epoch, finite; /* number of steps, epoch, number of steps with a finite loss */
    uint32_t normed;               /* number of steps that have a gradient norm */
    /* learning rate of the last step; smallest and largest loss; smallest and largest number of
     * rows per second */
    float lr, loss_lo, loss_hi, rate_lo, rate_hi;
    double loss, norm, rows, seconds; /* sums over the steps: of the losses, of the gradient norms,
                                       * of the numbers of rows, and of the durations */
} ls_run_step;

/* A record that is not one of a step, unchanged. */
typedef struct ls_run_record {
    uint64_t at; /* number of the step before which the record came */
    char *json;
    size_t length;
} ls_run_record;

typedef struct ls_run_log {
    const ls_host *host;
    uint64_t run;     /* number that identifies the run, if a server shows several runs */
    uint64_t records; /* number of records added */
    uint32_t width;   /* largest number of steps that one entry stands for */
    ls_run_step *step;
    size_t steps;
    ls_run_record *other;
    size_t others, capacity;
    int events;       /* number of warnings and of records of faults, resumes and steps not applied;
                       * the first LS_RUN_EVENTS of them are stored */
    ls_buffer newest; /* the unchanged record of the last step */
    double *phase_s;  /* [workers][LS_PHASES]: seconds, summed over `timed` steps */
    int workers;
    uint64_t timed;
    int cut_line;     /* number of the metrics file's last line if it is incomplete; else 0 */
    ls_metric metric; /* metric of the evaluations; LS_METRICS: not known */
    /* The caller can set it after ls_run_log_init. True: the records of steps in a file are not
     * parsed, and only the record of the last step is stored. */
    bool brief;
} ls_run_log;

/* Initialises an empty log; allocates nothing. `run`: a number that identifies the run. */
void ls_run_log_init(ls_run_log *log, uint64_t run, const ls_host *host);
/* Frees the log's contents. */
void ls_run_log_fini(ls_run_log *log);

/* Adds a record, whose `json` must be set. Errors: LS_ENOMEM. */
int ls_run_log_add(ls_run_log *log, const ls_record *record, ls_error *err);

/* Adds line `number` of the metrics file `path`. Errors: LS_EDATA (not a record, with file, line
 * and column), LS_ENOMEM. */
int ls_run_log_line(ls_run_log *log, const char *path, int number, const char *json, size_t length,
                    ls_error *err);

/* Merges adjacent entries of steps until there are at most `most` entries. */
void ls_run_log_thin(ls_run_log *log, size_t most);
/* Adds a line that is not a record of the run, for the page of a run in progress: {"type":`type`,
 * …} with the texts of `pairs` (key, value, key, value, …, NULL). There are two types: "live", with
 * the keys "host", "program" and "run_dir", and "warning", with the key "text". Warnings count as
 * events (log->events). Errors: LS_ENOMEM. */
int ls_run_log_note(ls_run_log *log, const char *type, const char *const *pairs, ls_error *err);

/* Position in the log up to which a page has received the records: `run` and `width` of the log at
 * that time, and the number of entries in `step` and in `other` that the page has received. */
typedef struct ls_run_seen {
    uint64_t run, width, steps, others;
} ls_run_seen;

extern const ls_run_seen ls_run_nothing;

/* Appends the records after the position `have`. Appends all records if `have` is a position of
 * another run, or if entries have been merged since. The lines contain neither '<' nor JavaScript's
 * line separators, so that they can be part of a page. */
void ls_run_log_write(const ls_run_log *log, const ls_run_seen *have, ls_buffer *out);

/* Appends a JSON object with the number of records and the newest record of each type; the key of a
 * record is its type. */
void ls_run_log_state(const ls_run_log *log, ls_buffer *out);

/* ---- the page -------------------------------------------------------------------------------- */

/* Appends the page with the log's records and, for readers whose browser runs no scripts, a table
 * of the result. If `log` is NULL, appends the page of a run in progress, which requests "records"
 * every second. The thread must be in the "C" locale. Errors: LS_ENOMEM. */
int ls_page_write(ls_buffer *out, const ls_run_log *log, ls_error *err);

/* Appends a text as HTML, for text and quoted attributes: & < > " ' become entities; control
 * characters and bytes that are invalid UTF-8 become U+FFFD. */
void ls_page_escape(ls_buffer *out, const char *text);

/* Reads `run_dir`/metrics.jsonl and writes the report to `out_path` or, if that is NULL, to
 * `run_dir`/report.html; replaces an existing file. If the last record is incomplete, the report
 * omits it and says so. The hash of the weights is that of the weights in the run's file; the
 * report says so if the file cannot be read or has other weights than the records say. Errors:
 * LS_ENOENT (no such run), LS_EDATA (a damaged record; the message has its line), LS_EIO,
 * LS_ENOMEM. */
int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err);

/* Does the same as ls_report_write, and adds lines of JSON to the page, such as predictions.
 * `lines` may be NULL. `doubt`, which may be NULL, receives what is wrong with the run's file of
 * weights; its status is LS_OK if nothing is. */
int ls_report_write_with(const char *run_dir, const char *out_path, const ls_buffer *lines,
                         ls_error *doubt, const ls_host *host, ls_error *err);

/* Adds what `trainer verify` has found as a line {"type":"verified",…}, if it has found it of the
 * weights with which the run has ended: it may have been resumed, or its file changed, since. */
void ls_run_verdict_add(ls_run_log *log, const char *run_dir);

/* Returns whether the directory is that of a run whose metrics.jsonl was moved or removed. */
bool ls_is_run_without_records(const char *dir);

/* Adds all records of a run's metrics file to the log. Errors: those of ls_report_write. */
int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err);

#endif
