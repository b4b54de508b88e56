/* The timeline of a run as a Chrome trace: who did what, and when.
 *
 * Workers leave marks wherever their heartbeat beats; the coordinator takes them in between two steps,
 * turns them into spans, and writes those. A worker's track holds its steps; a step consists of phases
 * (gather, forward, backward, add up, merge with its waits, apply), one after another without a gap; a phase
 * consists of ops where these were asked for. The coordinator's track holds what it does itself, the
 * saver's the writing of checkpoints.
 *
 * Below a worker's track lie those of its device, one for each stream, "cuda(0) stream 13", where
 * the device can say what it does (plugin.h, spans_begin); where two spans of a stream overlap, as
 * branches of a recording may, the second goes to a further track. A device that cannot say it is no
 * failure: one line of the log, and the file's otherData, say why.
 */
#ifndef RECORDS_TRACE_H
#define RECORDS_TRACE_H

#include "nn/replica.h"
#include "sync/heartbeat.h"

#include <lockstep/plugin.h>
#include <stdbool.h>

typedef struct ls_trace ls_trace;

/* Tracks besides the workers', which are 0, 1, 2, …. */
enum { LS_TRACK_COORDINATOR = -1, LS_TRACK_SAVER = -2 };

/* Begins `path`, under another name until ls_trace_finish. With `ops` each op is a span. Errors: LS_EIO,
 * LS_ENOMEM. */
int ls_trace_create(ls_trace **out, const char *path, bool ops, int workers, const ls_host *host,
                    ls_error *err);

/* Where worker `worker` leaves its marks; lives as long as the trace. */
ls_marks *ls_trace_marks(ls_trace *trace, int worker);

/* The worker's thread, before anything is computed: its device may say what it does from now on.
 * NULL is allowed for the trace. */
void ls_trace_device(ls_trace *trace, int worker, ls_device *device);

/* The coordinator, all of these; NULL is allowed. A failure to write is kept for ls_trace_finish. */

/* Takes in what a worker has marked, and what its device says. `replica`: where the worker's is, which knows the names of
 * its ops; it is looked at behind a mark of one of these. NULL where there is none. */
void ls_trace_drain(ls_trace *trace, int worker, const ls_replica *const *replica);
/* A span of the coordinator's or the saver's: times of ls_now_ns; `step` 0: none is named. */
void ls_trace_span(ls_trace *trace, int track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                   uint64_t step);
/* Devices say nothing more, and may be closed: before they are. Part of ls_trace_finish. */
void ls_trace_leave_devices(ls_trace *trace);
/* Completes the file; nothing is added behind it. Errors: LS_EIO, also an earlier one. */
int ls_trace_finish(ls_trace *trace, ls_error *err);

/* No worker uses its marks any more. A file that was not finished is removed. */
void ls_trace_destroy(ls_trace *trace);

#endif
