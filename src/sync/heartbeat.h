/* Liveness: how a watching thread notices that a working thread hangs.
 *
 *     ls_beat(&mine, place);               // the working thread, as often as it likes
 *
 *     ls_silence_look(&silence, &theirs, …);   // a watcher, from time to time
 *     if (silence.held_ns > limit) …           // the time that counts against the working thread
 *
 * The file has three parts. Heartbeats show that a thread makes progress. Marks record where a
 * thread was, and when, for a timeline. ls_thread_look asks the system what a thread does.
 *
 * Threads: one thread beats a heartbeat; any number of threads watch it.
 *
 * Memory order. A beat is one relaxed store and publishes no data: a watcher must not conclude from
 * it that anything else that the thread wrote is visible. Reads of one atomic word never go
 * backwards (coherence), so a count that differs from the last one seen belongs to a later beat. A
 * store that becomes visible late makes a thread look silent for a few nanoseconds longer, while
 * limits are milliseconds; it cannot make a silent thread look alive. The number of beats and the
 * place are parts of one word. So a place that was read belongs to the same beat as the number that
 * was read with it, or to a later beat than a number that was read earlier.
 */
#ifndef SYNC_HEARTBEAT_H
#define SYNC_HEARTBEAT_H

#include "sync/ring.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- marks ----------------------------------------------------------------------------------- */

/* Marks: a record of where a thread was, and when, for the timeline of a run.
 *
 *     ls_marks_put(&marks, place, number);          // the working thread, as often as it likes
 *     while (ls_marks_take(&marks, &mark)) …        // the reader, from time to time
 *
 * A mark costs one reading of the clock and one item of a ring (ring.h). If the reader is too slow,
 * marks are dropped and their number is counted; the working thread never waits. The next mark that
 * finds room is preceded by a mark with the place LS_MARKS_LOST. */

/* Value of ls_mark.place for a gap, in which `number` marks were dropped. */
#define LS_MARKS_LOST (-1)

typedef struct ls_mark {
    uint64_t ns;     /* time of ls_now_ns */
    int32_t place;   /* phase of the work, or LS_MARKS_LOST */
    uint32_t number; /* further data, whose meaning the two threads agree on */
} ls_mark;

/* A buffer of marks from one thread to one reader. */
typedef struct ls_marks {
    ls_ring ring;
    uint32_t lost; /* number of marks dropped since the last that found room; working thread only */
} ls_marks;

/* Initialises a buffer for `capacity` marks. Errors: LS_EINVAL, LS_ENOMEM. */
int ls_marks_init(ls_marks *marks, const ls_host *host, size_t capacity, ls_error *err);

/* Frees the buffer. Zeroed memory is allowed. */
void ls_marks_fini(ls_marks *marks);

/* Adds a mark with the present time, or counts it as dropped. The working thread. */
void ls_marks_put(ls_marks *marks, int place, uint32_t number);

/* Writes the next mark to `out` and returns 1, or returns 0 if there is none. One other thread. */
int ls_marks_take(ls_marks *marks, ls_mark *out);

/* ---- states of threads ----------------------------------------------------------------------- */

/* State and CPU time of a thread of this process, as the kernel reports them (in /proc on Linux).
 * Reading them costs several system calls, so it is done only for threads that are suspected to
 * hang. */
typedef struct ls_thread_use {
    char state;         /* 'R': running or runnable; 'S', 'D': asleep; 'T', 't': stopped; 0:
                         * unknown */
    uint64_t ran_ns;    /* time on a CPU since the thread began */
    uint64_t queued_ns; /* time in which it was runnable but had no CPU; the kernel adds each such
                         * wait when it is over */
} ls_thread_use;

/* Returns the calling thread's number, for ls_thread_look, or 0 if the system does not tell. */
int ls_thread_self(void);

/* Reads state and times of `thread`. Returns false, with the state 0, if the system does not tell
 * or there is no such thread. Any thread. */
bool ls_thread_look(ls_thread_use *out, int thread);

/* ---- heartbeats ------------------------------------------------------------------------------ */

#define LS_PLACE_MAX 0xffffff /* largest place, 24 bits */

/* A heartbeat, on a cache line of its own. Zeroed memory is a heartbeat at place 0 without
 * beats. */
typedef struct ls_heartbeat {
    alignas(64) _Atomic uint64_t word; /* number of beats (40 bits, wraps), place (24 bits) */
    ls_marks *marks; /* buffer to which each beat adds a mark, or NULL; set before the first beat */
} ls_heartbeat;

/* Beats once: the thread makes progress and is at `place`, 0 … LS_PLACE_MAX, a phase of its work
 * whose meaning the working thread and its watchers agree on. `number` goes into the mark. It costs
 * one store, and a mark if marks are kept. The heartbeat's own thread. */
static inline void ls_beat_at(ls_heartbeat *heartbeat, int place, uint32_t number)
{
    /* relaxed: a beat publishes no data. A load and a store suffice, since only this thread
     * writes. */
    uint64_t word = atomic_load_explicit(&heartbeat->word, memory_order_relaxed);
    word = ((word >> 24) + 1) << 24 | ((uint64_t)place & LS_PLACE_MAX);
    atomic_store_explicit(&heartbeat->word, word, memory_order_relaxed);
    if (heartbeat->marks)
        ls_marks_put(heartbeat->marks, place, number);
}

/* Beats once, with the number 0. The heartbeat's own thread. */
static inline void ls_beat(ls_heartbeat *heartbeat, int place)
{
    ls_beat_at(heartbeat, place, 0);
}

/* Returns the place of the last beat that is visible to the calling thread. Any thread. */
int ls_heartbeat_place(const ls_heartbeat *heartbeat);

/* One watcher's view of a thread since its last beat. Zeroed memory is a view that begins with the
 * next look. */
typedef struct ls_silence {
    uint64_t count;    /* number of beats at the last look */
    int place;         /* place of the last beat */
    uint64_t since_ns; /* time when that beat was first seen; 0: no look yet */
    uint64_t held_ns;  /* silence: part of the time since since_ns that counts against the thread */
    ls_thread_use use; /* the thread's state at the last look; state 0: it was not suspected yet */
} ls_silence;

/* Looks at a heartbeat and updates the watcher's view. The watching thread.
 *
 * - thread: number of the beating thread (ls_thread_self), or 0 if unknown
 * - attended_ns: part of the time since the last look that counts (ls_attended_ns)
 * - suspicious_ns: the watcher suspects the thread once it has been silent for this long, and then
 *   asks the system at each look what the thread does (ls_thread_look) */
void ls_silence_look(ls_silence *silence, const ls_heartbeat *heartbeat, int thread,
                     uint64_t attended_ns, uint64_t suspicious_ns);

#endif
