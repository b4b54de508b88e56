/* SPDX-License-Identifier: MIT */
/* The timeline of a run, as a Chrome trace of *spans* on *tracks*. Each worker records a *mark* (a
 * position in its work and the time) whenever it begins another op or phase, at each beat of its
 * heartbeat (sync/heartbeat.h). Between two steps the coordinator takes the marks, turns them into
 * spans, and writes the spans. A worker's track contains its steps. A step consists of phases
 * without gaps: gather, forward, backward, add up, merge (waits included), apply. A phase consists
 * of ops if the trace was created with `ops`. The coordinator's track contains the coordinator's
 * own work. The *saver* is the thread that writes checkpoints; its track shows when it writes.
 *
 * Spans of the same kind have the same name; a number, such as that of a step, is an argument. The
 * coordinator submits steps to the workers in ranges (engine/engine.h). An arrow leads from the
 * span in which a range is submitted to the first step of the range on each worker. Counters show
 * the number of items (jobs and ranges) that wait in each worker's inbox, and how many rows per
 * second the last step trained.
 *
 * If a worker's device can report spans (plugin.h, spans_begin), the device's tracks follow the
 * worker's track, one for each stream, such as "cuda(0) stream 13". If two spans of a stream
 * overlap, as branches of a CUDA graph can, the second one is on an additional track. If a device
 * cannot report spans, a line of the log and the key otherData say why. */
#ifndef RECORDS_TRACE_H
#define RECORDS_TRACE_H

#include "nn/replica.h"
#include "sync/heartbeat.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>

typedef struct ls_trace ls_trace;

/* Tracks of threads that are not workers. The track of worker i is i. */
enum { LS_TRACK_COORDINATOR = -1, LS_TRACK_SAVER = -2 };

/* Creates the trace. The file is written under a temporary name, which ls_trace_finish changes to
 * `path`, or to the file to which the link `path` leads. If `ops` is true, each op is a span.
 * Errors: those of ls_follow_links, LS_EIO, LS_ENOMEM. */
int ls_trace_create(ls_trace **out, const char *path, bool ops, int workers, const ls_host *host,
                    ls_error *err);

/* Returns the buffer for the marks of a worker. It exists as long as the trace. */
ls_marks *ls_trace_marks(ls_trace *trace, int worker);

/* Makes the worker's device report spans, if it can. `trace` may be NULL. Called on the worker's
 * thread, before the device computes anything. */
void ls_trace_device(ls_trace *trace, int worker, ls_device *device);

/* The functions below are called by the coordinator. `trace` may be NULL. An error of writing is
 * stored, and ls_trace_finish returns it. */

/* Writes the spans that follow from the new marks of a worker, and the new spans of its device.
 * `replica`: address of the worker's pointer to its replica, from which the names of ops are taken;
 * it is read only after a mark of an op. NULL: there is no replica. */
void ls_trace_drain(ls_trace *trace, int worker, const ls_replica *const *replica);
/* Writes a span of the coordinator or the saver, with times of ls_now_ns. `unit`, `number`: name
 * and value of an argument of the span, such as "step", 12; `unit` NULL: the span has no
 * argument. */
void ls_trace_span(ls_trace *trace, int track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                   const char *unit, uint64_t number);
/* Writes the span in which the coordinator submitted a range of steps to the workers. The arrows to
 * the range's first step begin in this span. `first_step`: number of the range's first step, from
 * 1. */
void ls_trace_submit(ls_trace *trace, uint64_t first_step, uint64_t begin_ns, uint64_t end_ns);
/* Writes the counter "queue depth" at time `ns` if it has changed. `queued` [workers]: number of
 * items in each worker's inbox, plus 1 for the item on which the worker works. This item still
 * counts if the worker has just reported that it has finished it. */
void ls_trace_queues(ls_trace *trace, uint64_t ns, const int queued[]);
/* Writes the counter "throughput" at time `ns`, in rows per second. Writes nothing if the rate is
 * not finite. */
void ls_trace_rate(ls_trace *trace, uint64_t ns, double rows_per_s);
/* Makes the devices stop reporting spans. Must be called before a device is closed, unless
 * ls_trace_finish was called. */
void ls_trace_leave_devices(ls_trace *trace);
/* Completes the file; later calls write nothing. Errors: LS_EIO, also for a write that failed
 * earlier. */
int ls_trace_finish(ls_trace *trace, ls_error *err);

/* Frees the trace, and removes its file if it was not finished. The caller makes sure that no
 * worker uses its marks any more. NULL is allowed. */
void ls_trace_destroy(ls_trace *trace);

#endif
