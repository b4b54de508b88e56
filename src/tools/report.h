/* The report of a run: one HTML file that needs nothing but itself.
 *
 *     ls_report_write("runs/20240131-093000-lenet", NULL, NULL, &err);  // …-lenet/report.html
 */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <lockstep/host.h>
#include <lockstep/status.h>

/* Reads `run_dir`/metrics.jsonl and `run_dir`/config.json and writes the report to `out_path`, or
 * to `run_dir`/report.html when that is NULL, over an older one. A last record that was cut off is
 * left out, which the report says. Errors: LS_ENOENT (no such run), LS_EDATA (a record that is
 * damaged, with its line), LS_ECONFIG (config.json), LS_EIO, LS_ENOMEM. */
int ls_report_write(const char *run_dir, const char *out_path, const ls_host *host, ls_error *err);

#endif
