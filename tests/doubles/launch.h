/* SPDX-License-Identifier: MIT */
/* Enqueues a CPU twin of a kernel on the doubles' streams.
 *
 *     struct scale { float *y; size_t count; };
 *
 *     static void scale_body(const void *copied)
 *     {
 *         const struct scale *a = copied;
 *         if (!dbl_may_touch(a->y, a->count * sizeof *a->y))
 *             return;
 *         …
 *     }
 *
 *     cudaError_t ls_k_scale(float *y, size_t count, cudaStream_t stream)
 *     {
 *         struct scale a = {y, count};
 *         return dbl_launch(stream, "ls_k_scale", scale_body, &a, sizeof a);
 *     }
 *
 * The launch obeys the stream: the body runs on the stream's thread, or at a synchronisation, or
 * immediately (control.h), and is recorded while the stream is captured. */
#ifndef TESTS_DOUBLES_LAUNCH_H
#define TESTS_DOUBLES_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* Enqueues body(copy of args). `name` is static text for messages. May be called by any thread on
 * which the stream's device is current. Returns the errors of a kernel launch. */
cudaError_t dbl_launch(cudaStream_t stream, const char *name, void (*body)(const void *args),
                       const void *args, size_t bytes);

/* Called in a body: returns non-zero if the running device may access `bytes` bytes at `memory`:
 * its own memory, pinned host memory, or a peer's after cudaDeviceEnablePeerAccess. If not, the
 * device is lost with cudaErrorIllegalAddress and a complaint is recorded; the body must return.
 * Outside a stream (a twin that is called directly) it returns non-zero. */
int dbl_may_touch(const void *memory, size_t bytes);

/* Called in a body: reports what it computes, for dbl_watch. */
void dbl_computes(const char *name, double operations, double tiled);

#endif
