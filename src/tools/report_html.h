/* The report's page. */
#ifndef TOOLS_REPORT_HTML_H
#define TOOLS_REPORT_HTML_H

#include "tools/buffer.h"
#include "tools/run_log.h"

/* Writes the whole page. The thread must be in the "C" locale. Errors: LS_ENOMEM. */
int ls_report_page(ls_buffer *b, const ls_run_log *log, ls_error *err);

#endif
