/* The page of a run: report.html and report.js, which draw it from its records. It needs nothing but itself.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html
 */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include "page/run_log.h"

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
