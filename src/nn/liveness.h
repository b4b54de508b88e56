/* Sharing memory between buffers that are never needed at the same time. Pure; any thread.
 *
 *     ls_live_buffer b[2] = {{.bytes = 100, .first = 0, .last = 3}, {.bytes = 80, .first = 4, .last = 6}};
 *     size_t bytes = ls_place_buffers(b, 2, 1);     → 128: b[0].at and b[1].at are both 0
 */
#ifndef NN_LIVENESS_H
#define NN_LIVENESS_H

#include <stddef.h>

/* One buffer: needed from step `first` to step `last`, both included, of some schedule. */
typedef struct ls_live_buffer {
    size_t bytes;
    int first, last;
    size_t at; /* its place, a multiple of LS_ALIGN; 0 when it has no bytes */
    int next;  /* used while placing */
    int placed;
} ls_live_buffer;

/* Sets `at` of every buffer and returns the bytes of all together, a multiple of LS_ALIGN. The
 * largest is placed first, each at the lowest place that is free while it is needed. The same input
 * always gives the same places. `share` 0: every buffer gets memory of its own. Sizes beyond what
 * any machine has give a sum that no allocation can satisfy; nothing wraps around. */
size_t ls_place_buffers(ls_live_buffer *buffer, int count, int share);

/* The most bytes that are needed at one time: no placing can do with less. */
size_t ls_live_bytes(const ls_live_buffer *buffer, int count);

#endif
