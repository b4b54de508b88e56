/* Signs of life: heartbeats, by which a thread shows its watchers that it gets on, marks on the way, and
 * what the system says that it does.
 *
 *     ls_beat(&mine, place);               // the working thread, as often as it likes
 *
 *     ls_silence_look(&silence, &theirs, …);   // a watcher, now and then: silence.held_ns counts
 *
 * Memory order. A beat is one relaxed store and hands over no data: a watcher must not conclude
 * from it that anything else the thread wrote is visible. Reads of one word never go back in time,
 * so a count that differs from the last one seen belongs to a later beat. A store that arrives late
 * makes a thread look silent for that much longer, some nanoseconds against limits of milliseconds;
 * it cannot make a silent thread look alive. Count and place are parts of one word: the place that
 * is read never belongs to a beat before the count that was read ahead of it.
 *
 * One thread beats a heartbeat; any number watch it.
 */
#ifndef SYNC_HEARTBEAT_H
#define SYNC_HEARTBEAT_H

#include "sync/ring.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- marks ------------------------------------------------------------------------------------- */

/* Marks: where a thread was, and when, for the timeline that is drawn later.
 *
 *     ls_marks_put(&marks, place, number);          // the thread, as often as it likes
 *     while (ls_marks_take(&marks, &mark)) …        // the reader, now and then
 *
 * A mark costs a look at the clock and one item of a ring (ring.h says why that is safe). When the
 * reader is too slow marks are lost, never waited for; the next one that finds room is then preceded by
 * one that says how many. */
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

/* ---- what a thread does ----------------------------------------------------------------------- */

/* What another thread of this process does with its time, as the kernel counts it: the portable face of
 * what Linux tells in /proc. Costs some system calls, so it is for threads that are suspected. */
typedef struct ls_thread_use {
    char state;         /* 'R': runs, or could; 'S', 'D': sleeps; 'T', 't': stopped; 0: not known */
    uint64_t ran_ns;    /* so long it had a CPU, since it began */
    uint64_t queued_ns; /* so long it could have run and had none; counted when it gets one */
} ls_thread_use;

/* The calling thread's number; 0 where the system tells none. */
int ls_thread_self(void);

/* Any thread. False, and a state of 0, where the system does not say, or there is no such thread. */
bool ls_thread_look(ls_thread_use *out, int thread);

/* ---- heartbeats ------------------------------------------------------------------------------- */

#define LS_PLACE_MAX 0xffffff

/* On a cache line of its own. Zeroed memory is a heartbeat that has never beaten, at place 0. */
typedef struct ls_heartbeat {
    alignas(64) _Atomic uint64_t word; /* count of beats (40 bits, wraps), place (24 bits) */
    ls_marks *marks; /* NULL, or where each beat leaves a mark; set before the thread beats */
} ls_heartbeat;

/* The heartbeat's own thread: it gets on, and is at `place` (0 … LS_PLACE_MAX; what places mean is
 * between the two sides), doing number `number` of something. Costs one store, and a mark where marks are
 * kept. */
static inline void ls_beat_at(ls_heartbeat *heartbeat, int place, uint32_t number)
{
    /* relaxed: only this thread writes the word, hence no read-modify-write either. */
    uint64_t word = atomic_load_explicit(&heartbeat->word, memory_order_relaxed);
    word = ((word >> 24) + 1) << 24 | ((uint64_t)place & LS_PLACE_MAX);
    atomic_store_explicit(&heartbeat->word, word, memory_order_relaxed);
    if (heartbeat->marks)
        ls_marks_put(heartbeat->marks, place, number);
}

static inline void ls_beat(ls_heartbeat *heartbeat, int place)
{
    ls_beat_at(heartbeat, place, 0);
}

/* Any thread. The place of the last beat that has become visible here. */
int ls_heartbeat_place(const ls_heartbeat *heartbeat);

/* What one watcher knows of the time since a thread's last beat. Zeroed: it begins with the next look. */
typedef struct ls_silence {
    uint64_t count;    /* of beats seen last, … */
    int place;         /* … where that was, … */
    uint64_t since_ns; /* … and when it was seen */
    uint64_t held_ns;  /* of the time since then: what counts against the thread */
    ls_thread_use use; /* at the last look; state 0: it was not suspected yet */
} ls_silence;

/* The watcher takes a look: at `thread` (a number of ls_thread_self, 0: not known), whose beats these
 * are. `attended_ns`: of the time since its last look, what counts (ls_attended_ns). `suspicious_ns`: from
 * this much of silence on the system is asked what the thread does. */
void ls_silence_look(ls_silence *silence, const ls_heartbeat *heartbeat, int thread,
                     uint64_t attended_ns, uint64_t suspicious_ns);

#endif
