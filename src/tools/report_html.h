/* The report's page. */
#ifndef TOOLS_REPORT_HTML_H
#define TOOLS_REPORT_HTML_H

#include "tools/buffer.h"
#include "tools/run_log.h"

/* What the page of a run that goes on has besides. */
typedef struct ls_report_live {
    const char *script;
    const char *section; /* HTML, in front of the facts */
} ls_report_live;

/* Writes the whole page; `live` is NULL for a run of the past. The thread must be in the "C" locale.
 * Errors: LS_ENOMEM. */
int ls_report_page(ls_buffer *b, const ls_run_log *log, const ls_report_live *live, ls_error *err);

#endif
