/* Heartbeats: how a thread shows that it gets on, to others that watch.
 *
 *     ls_beat(&mine, place);               // the working thread, as often as it likes
 *
 *     if (ls_heartbeat_count(&theirs) != count_seen_last)
 *         …it has got on                   // a watcher; otherwise it stands at ls_heartbeat_place
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

#include "sync/marks.h"
#include "sync/thread_use.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

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

/* Any thread. Beats so far, modulo 2⁴⁰, as far as they have become visible here. */
uint64_t ls_heartbeat_count(const ls_heartbeat *heartbeat);

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
