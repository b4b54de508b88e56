/* The page of a run: report.html and report.js, which draw it from its records. It needs nothing but itself.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html
 */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "base/buffer.h"
#include "records/record.h"
#include "json/json.h"

/* The records of a run, thinned so that a page of them stays small however long the run is.
 *
 * All records are kept as they came but those of steps: of these there are at most LS_RUN_STEPS. When they
 * become more, each two neighbours are merged into one that stands for both.
 *
 *     ls_run_log log;
 *     ls_run_log_init(&log, 0, host);
 *     ls_run_log_add(&log, record, &err);           // every record, in order; or ls_run_log_line
 *     ls_run_log_write(&log, &ls_run_nothing, &buffer);   // JSON Lines, for page/report.js
 *     ls_run_log_fini(&log);
 *
 * What is written is a line {"type":"page","run":…,"width":…,"steps_from":…,"others_from":…,"cut_line":…};
 * then records as src/train/README.md describes them, with "at" in front: the step before which the record
 * came, or that of the step itself. A step record that stands for several has means in it and, besides,
 * "steps", how many they are (the last of them is "step"), "loss_range" and "rate_range". In place of the
 * steps' workers there are {"type":"times"}, the sums over all steps, and {"type":"newest"}, the last step as
 * it came. One thread at a time.
 */

enum { LS_RUN_STEPS = 16384, LS_RUN_EVENTS = 200 };

/* One or more steps. */
typedef struct ls_run_step {
    uint64_t step;                 /* the last of them, from 1 */
    uint32_t steps, epoch, finite; /* finite: how many of them have a loss */
    float lr, loss_lo, loss_hi, rate_lo, rate_hi;
    double loss, rows, seconds; /* sums */
} ls_run_step;

/* Any other record, as it came. */
typedef struct ls_run_record {
    uint64_t at;
    char *json;
    size_t length;
} ls_run_record;

typedef struct ls_run_log {
    const ls_host *host;
    uint64_t run; /* tells one server's run from the next one's */
    uint64_t records;
    uint32_t width; /* steps that one entry may stand for */
    ls_run_step *step;
    size_t steps;
    ls_run_record *other;
    size_t others, capacity;
    int events;       /* faults, resumes and steps not applied: of these LS_RUN_EVENTS are kept */
    ls_buffer newest; /* the last step as it came */
    double *phase_s;  /* [workers][LS_PHASES]: sums over `timed` steps */
    int workers;
    uint64_t timed;
    int cut_line; /* the metrics file's last line, when it was cut off; else 0 */
} ls_run_log;

void ls_run_log_init(ls_run_log *log, uint64_t run, const ls_host *host);
void ls_run_log_fini(ls_run_log *log);

/* One record, which has its text. Errors: LS_ENOMEM. */
int ls_run_log_add(ls_run_log *log, const ls_record *record, ls_error *err);

/* The same of line `number` of the metrics file `path`. Errors: LS_EDATA (not a record, with file, line and column),
 * LS_ENOMEM. */
int ls_run_log_line(ls_run_log *log, const char *path, int number, const char *json, size_t length,
                    ls_error *err);

/* What a page has already. */
typedef struct ls_run_seen {
    uint64_t run, width, steps, others;
} ls_run_seen;

extern const ls_run_seen ls_run_nothing;

/* Appends what is not there yet: everything when the place is of another run, or was passed by a merge. Lines
 * hold neither '<' nor line separators of JavaScript's, so that they can stand in a page. */
void ls_run_log_write(const ls_run_log *log, const ls_run_seen *have, ls_buffer *out);

/* Appends one object: the number of records, and the newest one of each type that there was, by its type. */
void ls_run_log_state(const ls_run_log *log, ls_buffer *out);

/* ---- the page ----------------------------------------------------------------------------------- */

/* Appends the page with the log's records in it and, for whoever runs no scripts, a table of what came out; or,
 * without a log, the page of a run that goes on, which asks for them at "records" every second and goes on
 * asking. The thread must be in the "C" locale. Errors: LS_ENOMEM. */
int ls_page_write(ls_buffer *out, const ls_run_log *log, ls_error *err);

/* For HTML, in text and in quoted attributes alike: & < > " ' become entities; control characters, and bytes
 * that are no UTF-8, become U+FFFD. */
void ls_page_escape(ls_buffer *out, const char *text);

/* Reads `run_dir`/metrics.jsonl and writes the report to `out_path`, or to `run_dir`/report.html when that is
 * NULL, over an older one. A last record that was cut off is left out, which the report says. Errors:
 * LS_ENOENT (no such run), LS_EDATA (a record that is damaged, with its line), LS_EIO, LS_ENOMEM. */
int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err);

/* Adds all records of a run's metrics file to the log. Errors: the same. */
int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err);

#endif
