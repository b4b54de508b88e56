/* The page of a run: report.html and report.js, which draw it from its records. It needs nothing but itself. */
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

#endif
