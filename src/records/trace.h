/* The timeline of a run, as a Chrome trace.
 *
 * Each worker records a mark whenever its heartbeat beats (sync/heartbeat.h). The coordinator takes
 * the marks between two steps, turns them into spans, and writes these. A worker's track holds its
 * steps. A step consists of phases (gather, forward, backward, add up, merge with its waits, apply)
 * without gaps, and a phase consists of ops if these are wanted. The coordinator's track holds its
 * own work, and the saver's track the writing of checkpoints.
 *
 * Spans of the same kind have the same name, and their numbers are arguments: a query that groups
 * by name finds all steps under "step". An arrow leads from the span in which the coordinator
 * submits a range of steps to the range's first step on each worker. Counters show the number of
 * items in each worker's inbox, and the rate of the step that ended last.
 *
 * The tracks of a worker's device follow the worker's track, one for each stream, such as
 * "cuda(0) stream 13", if the device can report spans (plugin.h, spans_begin). If two spans of a
 * stream overlap, as branches of a recording may, the second gets a further track. It is no failure
 * if a device cannot report spans: one line of the log, and the file's otherData, say why.
 */
#ifndef RECORDS_TRACE_H
#define RECORDS_TRACE_H

#include "nn/replica.h"
#include "sync/heartbeat.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>

typedef struct ls_trace ls_trace;

/* Tracks of threads other than workers, whose tracks are 0, 1, 2 and so on. */
enum { LS_TRACK_COORDINATOR = -1, LS_TRACK_SAVER = -2 };

/* Creates the file `path`, which has another name until ls_trace_finish. With `ops` each op is a
 * span. Errors: LS_EIO, LS_ENOMEM. */
int ls_trace_create(ls_trace **out, const char *path, bool ops, int workers, const ls_host *host,
                    ls_error *err);

/* Returns the buffer for the marks of a worker. It exists as long as the trace. */
ls_marks *ls_trace_marks(ls_trace *trace, int worker);

/* Starts reporting of spans by the worker's device, if it can. `trace` may be NULL. The worker's
 * thread, before the device computes anything. */
void ls_trace_device(ls_trace *trace, int worker, ls_device *device);

/* The coordinator calls the functions below. `trace` may be NULL. Errors of writing are kept for
 * ls_trace_finish. */

/* Writes the new marks of a worker and the new spans of its device. `replica`: address of the
 * worker's pointer to its replica, which knows the names of ops; it is read only after a mark of
 * one of these. NULL: there is none. */
void ls_trace_drain(ls_trace *trace, int worker, const ls_replica *const *replica);
/* Writes a span of the coordinator or the saver, with times of ls_now_ns. `unit`, `number`: an
 * argument of the span, such as "step", 12; NULL: it has none. */
void ls_trace_span(ls_trace *trace, int track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                   const char *unit, uint64_t number);
/* Writes the span in which the coordinator submitted a range to the workers, and remembers it for
 * the arrows to these. `first_step`: number of the range's first step, from 1. */
void ls_trace_submit(ls_trace *trace, uint64_t first_step, uint64_t begin_ns, uint64_t end_ns);
/* Writes the counter "queue depth" at time `ns` if it has changed; queued: [workers] number of
 * items in each worker's inbox, the item included on which the worker works, even if the worker has
 * just reported its end. */
void ls_trace_queues(ls_trace *trace, uint64_t ns, const int queued[]);
/* Writes the counter "throughput" at time `ns`, in rows per second. A rate that is not finite is
 * left out. */
void ls_trace_rate(ls_trace *trace, uint64_t ns, double rows_per_s);
/* Ends the reporting of spans by devices. Must be called before devices are closed; ls_trace_finish
 * includes it. */
void ls_trace_leave_devices(ls_trace *trace);
/* Completes the file; later calls add nothing. Errors: LS_EIO, also an earlier one. */
int ls_trace_finish(ls_trace *trace, ls_error *err);

/* Frees the trace, when no worker uses its marks any more, and removes a file that was not
 * finished. NULL is allowed. */
void ls_trace_destroy(ls_trace *trace);

#endif
