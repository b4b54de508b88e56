/* The page of a run: one HTML file that contains page.css, chart.js, report.js and the run's
 * records. The scripts draw the records.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "base/buffer.h"
#include "records/record.h"
#include "json/json.h"

/* The records of a run, reduced so that a page stays small however long the run is.
 *
 * All records except those of steps are kept unchanged. There are at most LS_RUN_STEPS entries of
 * steps; when there would be more, every two adjacent entries are merged into one.
 *
 *     ls_run_log log;
 *     ls_run_log_init(&log, 0, host);
 *     ls_run_log_add(&log, record, &err);           // every record, in order; or ls_run_log_line
 *     ls_run_log_write(&log, &ls_run_nothing, &buffer);   // JSON Lines, for page/report.js
 *     ls_run_log_fini(&log);
 *
 * The output begins with a line {"type":"page","run":…,"width":…,"steps_from":…,"others_from":…,
 * "cut_line":…}. Records follow in the form that src/train/README.md describes, with an additional
 * first member "at": the step before which the record came, or the step itself. A step record that
 * stands for several steps has their means and, in addition, "steps", their number ("step" is the
 * last of them), "loss_range" and "rate_range"; "lr" is that of the last step. In place of the
 * steps' workers there are {"type":"times"}, the sums over all steps, and {"type":"newest"}, the
 * unchanged record of the last step. One thread at a time. */

enum { LS_RUN_STEPS = 16384, LS_RUN_EVENTS = 200 };

/* One or more consecutive steps. */
typedef struct ls_run_step {
    uint64_t step;                 /* number of the last step of the entry, from 1 */
    uint32_t steps, epoch, finite; /* finite: number of steps with a finite loss */
    uint32_t normed;               /* number of steps that have a gradient norm */
    float lr, loss_lo, loss_hi, rate_lo, rate_hi;
    double loss, norm, rows, seconds; /* sums over the steps; norm: of the gradient norms */
} ls_run_step;

/* A record of another type, unchanged. */
typedef struct ls_run_record {
    uint64_t at;
    char *json;
    size_t length;
} ls_run_record;

typedef struct ls_run_log {
    const ls_host *host;
    uint64_t run; /* identifies the run among those that one server shows */
    uint64_t records;
    uint32_t width; /* number of steps that one entry may stand for */
    ls_run_step *step;
    size_t steps;
    ls_run_record *other;
    size_t others, capacity;
    int events;       /* number of faults, resumes and steps not applied; LS_RUN_EVENTS are kept */
    ls_buffer newest; /* the unchanged record of the last step */
    double *phase_s;  /* [workers][LS_PHASES]: seconds, summed over `timed` steps */
    int workers;
    uint64_t timed;
    int cut_line; /* line of the metrics file that was cut off; 0: none */
    /* Set by the caller after ls_run_log_init: steps of a file are not parsed, and only the record
     * of the last one is kept. */
    bool brief;
} ls_run_log;

/* Initialises an empty log; allocates nothing. `run`: a number that identifies the run. */
void ls_run_log_init(ls_run_log *log, uint64_t run, const ls_host *host);
/* Frees the log's contents. */
void ls_run_log_fini(ls_run_log *log);

/* Adds a record, which must have its text. Errors: LS_ENOMEM. */
int ls_run_log_add(ls_run_log *log, const ls_record *record, ls_error *err);

/* Adds line `number` of the metrics file `path`. Errors: LS_EDATA (not a record, with file, line
 * and column), LS_ENOMEM. */
int ls_run_log_line(ls_run_log *log, const char *path, int number, const char *json, size_t length,
                    ls_error *err);

/* Merges adjacent entries of steps until there are at most `most` of them. */
void ls_run_log_thin(ls_run_log *log, size_t most);
/* Adds a line that is no record of the run, for pages of a run in progress: {"type":`type`, …} with
 * the texts of `pairs` (key, value, key, value, …, NULL). Types are "live" ("host", "run_dir") and
 * "warning" ("text"), of which LS_RUN_EVENTS are kept, faults included. Errors: LS_ENOMEM. */
int ls_run_log_note(ls_run_log *log, const char *type, const char *const *pairs, ls_error *err);

/* Position in the log up to which a page has the records. */
typedef struct ls_run_seen {
    uint64_t run, width, steps, others;
} ls_run_seen;

extern const ls_run_seen ls_run_nothing;

/* Appends the records after the position `have`; all records if it belongs to another run or
 * entries have been merged since. The lines contain neither '<' nor JavaScript's line separators,
 * so that they can be part of a page. */
void ls_run_log_write(const ls_run_log *log, const ls_run_seen *have, ls_buffer *out);

/* Appends a JSON object: the number of records, and the newest record of each type, by type. */
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
 * `run_dir`/report.html; replaces an existing file. A last record that was cut off is omitted,
 * and the report says so. Errors: LS_ENOENT (no such run), LS_EDATA (a damaged record, with its
 * line), LS_EIO, LS_ENOMEM. */
int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err);

/* Does the same with more lines of JSON, such as predictions. `lines` may be NULL. */
int ls_report_write_with(const char *run_dir, const char *out_path, const ls_buffer *lines,
                         const ls_host *host, ls_error *err);

/* Adds all records of a run's metrics file to the log. Errors: those of ls_report_write. */
int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err);

#endif
