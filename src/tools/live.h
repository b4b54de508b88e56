/* A run as it goes on: its records, kept for pages that are asked for by other threads.
 *
 *     ls_live_record(live, json, length, &err);   // the thread that trains, for every record
 *     ls_live_page(live, &buffer, &err);          // any thread: the report so far, which renews itself
 *     ls_live_json(live, &buffer, &err);          // any thread: where the run stands
 */
#ifndef TOOLS_LIVE_H
#define TOOLS_LIVE_H

#include "tools/buffer.h"

#include <lockstep/status.h>

typedef struct ls_live ls_live;

/* Errors: LS_ENOMEM. `host` outlives it, and may be called by any thread. */
int ls_live_create(ls_live **out, const ls_host *host, ls_error *err);
void ls_live_destroy(ls_live *live); /* NULL is allowed; nobody asks for pages any more */

/* Errors: LS_ENOMEM, LS_EDATA (not a record). */
int ls_live_record(ls_live *live, const char *json, size_t length, ls_error *err);

/* The report of what there is so far, with a table of the workers and a script that fetches "/" again
 * every second, and goes on trying when it gets no answer. Errors: LS_ENOMEM. */
int ls_live_page(ls_live *live, ls_buffer *out, ls_error *err);

/* One object: the number of records, and the newest one of each type that there was, by its type.
 * Errors: LS_ENOMEM. */
int ls_live_json(ls_live *live, ls_buffer *out, ls_error *err);

#endif
