/* The report of a run: one HTML file that needs nothing but itself.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html
 */
#ifndef PAGE_REPORT_H
#define PAGE_REPORT_H

#include "page/run_log.h"

/* Reads `run_dir`/metrics.jsonl and writes the report to `out_path`, or to `run_dir`/report.html when that is
 * NULL, over an older one. A last record that was cut off is left out, which the report says. Errors:
 * LS_ENOENT (no such run), LS_EDATA (a record that is damaged, with its line), LS_EIO, LS_ENOMEM. */
int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err);

/* Adds all records of a run's metrics file to the log. Errors: the same. */
int ls_report_read(ls_run_log *log, const char *run_dir, ls_error *err);

#endif
