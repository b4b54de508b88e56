/* Marks: where a thread was, and when, for somebody who draws it later.
 *
 *     ls_marks_put(&marks, place, number);          // the thread, as often as it likes
 *     while (ls_marks_take(&marks, &mark)) …        // the reader, now and then
 *
 * A mark costs a look at the clock and one item of a ring (ring.h says why that is safe). When the
 * reader is too slow marks are lost, never waited for; the next one that finds room is then preceded by
 * one that says how many.
 */
#ifndef SYNC_MARKS_H
#define SYNC_MARKS_H

#include "sync/ring.h"

/* In place of a place: `number` marks were lost here. */
#define LS_MARKS_LOST (-1)

typedef struct ls_mark {
    uint64_t ns; /* ls_now_ns */
    int32_t place;
    uint32_t number; /* what the two sides make of it */
} ls_mark;

typedef struct ls_marks {
    ls_ring ring;
    uint32_t lost; /* the marking thread's: since the last one that found room */
} ls_marks;

/* Errors: LS_EINVAL, LS_ENOMEM. */
int ls_marks_init(ls_marks *marks, const ls_host *host, size_t capacity, ls_error *err);
void ls_marks_fini(ls_marks *marks); /* zeroed memory is allowed */

/* One thread. */
void ls_marks_put(ls_marks *marks, int place, uint32_t number);

/* One other thread: the next mark, or 0 when there is none. */
int ls_marks_take(ls_marks *marks, ls_mark *out);

#endif
