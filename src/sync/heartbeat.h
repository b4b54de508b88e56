/* SPDX-License-Identifier: MIT */
/* Liveness: how a watching thread notices that a working thread hangs.
 *
 *     ls_beat(&heartbeat, place);              // the working thread, as often as it likes
 *
 *     ls_silence_look(&silence, &heartbeat, …);   // a watcher, from time to time
 *     if (silence.held_ns > limit) …              // silent for longer than the limit: hangs
 *
 * The file has three parts. Heartbeats show that a thread makes progress. Marks record which phase
 * of its work a thread was in, and when, for a timeline. ls_thread_look asks the system what a
 * thread does. A *beat* is a report of the working thread that it makes progress. A *place* is the
 * number of a phase of the work; the working thread and its watchers agree on the numbers.
 *
 * Threads: one thread beats a heartbeat; any number of threads watch it.
 *
 * Memory order. A beat is one relaxed store and publishes no data: a watcher must not conclude from
 * it that anything else that the thread wrote is visible. Reads of one atomic word never go
 * backwards (coherence), so a count that differs from the last one seen belongs to a later beat. A
 * store that becomes visible late makes a thread look silent for a few nanoseconds longer, while
 * limits are milliseconds. A late store cannot make a silent thread look alive. The number of beats
 * and the place are parts of one word. So the number and the place that a load returns always
 * belong to the same beat, and a later load never returns an earlier beat.
 */
#ifndef SYNC_HEARTBEAT_H
#define SYNC_HEARTBEAT_H

#include "sync/ring.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- marks ----------------------------------------------------------------------------------- */

/* Marks: a record of the phases of a thread's work, with times, for the timeline of a run.
 *
 *     ls_marks_put(&marks, place, 7);               // the working thread, as often as it likes
 *     while (ls_marks_take(&marks, &mark)) …        // the reader, from time to time
 *
 * A *mark* says that a thread was in one place at one time. A mark costs one reading of the clock
 * and one item of a ring. If the reader is too slow, marks are dropped and counted; the working
 * thread never waits. Once the ring has a free slot, the next mark is preceded by a mark with the
 * place LS_MARKS_LOST, whose `number` is the number of dropped marks. In any other mark `number` is
 * data of the caller, such as the number of a step. */

/* Value of ls_mark.place in a mark that stands for `number` dropped marks. */
#define LS_MARKS_LOST (-1)

typedef struct ls_mark {
    uint64_t ns;     /* time of ls_now_ns */
    int32_t place;   /* phase of the work, or LS_MARKS_LOST */
    uint32_t number; /* data of the caller; the two threads agree on its meaning */
} ls_mark;

/* A buffer of marks from one thread to one reader. */
typedef struct ls_marks {
    ls_ring ring;
    uint32_t lost; /* number of marks dropped since the last mark was stored; only the working
                    * thread accesses it */
} ls_marks;

/* Initialises a buffer for `capacity` marks. Errors: LS_EINVAL, LS_ENOMEM. */
int ls_marks_init(ls_marks *marks, const ls_host *host, size_t capacity, ls_error *err);

/* Frees the buffer. Zeroed memory is allowed. */
void ls_marks_fini(ls_marks *marks);

/* Adds a mark with the present time and the caller's data `number`, or counts it as dropped. Called
 * by the working thread. */
void ls_marks_put(ls_marks *marks, int place, uint32_t number);

/* Writes the oldest mark to `out`, removes it from the buffer and returns 1; returns 0 if there is
 * none. Called by the one reading thread. */
int ls_marks_take(ls_marks *marks, ls_mark *out);

/* ---- states of threads ----------------------------------------------------------------------- */

/* State and CPU time of a thread of this process, as the kernel reports them (in /proc on Linux).
 * Reading them costs several system calls, so it is done only for threads that are suspected to
 * hang. */
typedef struct ls_thread_use {
    char state;         /* 'R': running or runnable; 'S', 'D': asleep; 'T', 't': stopped, by a
                         * signal or a debugger; 0: unknown */
    uint64_t ran_ns;    /* time on a CPU since the thread began */
    uint64_t queued_ns; /* total time for which the thread was runnable but had no CPU, since the
                         * thread began; the kernel adds each wait for a CPU when that wait is
                         * over */
} ls_thread_use;

/* Returns the kernel's number of the calling thread, for ls_thread_look, or 0 if the number is
 * unknown. */
int ls_thread_self(void);

/* Reads state and times of the thread with the kernel's number `thread`. Returns false, with the
 * state 0, if the system does not report them or there is no such thread. Any thread. */
bool ls_thread_look(ls_thread_use *out, int thread);

/* ---- heartbeats ------------------------------------------------------------------------------ */

#define LS_PLACE_MAX 0xffffff /* largest place, 24 bits */

/* A heartbeat, on a cache line of its own. Zeroed memory is a heartbeat at place 0 without
 * beats. */
typedef struct ls_heartbeat {
    alignas(64) _Atomic uint64_t word; /* number of beats (40 bits, wraps), place (24 bits) */
    ls_marks *marks; /* buffer to which each beat adds a mark, or NULL; set before the first beat */
} ls_heartbeat;

/* Beats once: reports that the thread makes progress and is in the phase `place`, 0 … LS_PLACE_MAX.
 * `number` is stored in the mark. The call costs one store, and a mark if heartbeat->marks is set.
 * Called by the heartbeat's own thread. */
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

/* Beats once, with the number 0. Called by the heartbeat's own thread. */
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
    uint64_t held_ns;  /* the silence, that is, the time that counts against the thread: the time
                        * since that beat was first seen, without time in which the thread could not
                        * run (see ls_silence_look) */
    ls_thread_use use; /* the thread's state and times at the last look; state 0: the thread was not
                        * suspected yet (see ls_silence_look), or the state is unknown */
} ls_silence;

/* Looks at a heartbeat and updates the watcher's view. If the thread has beaten since the last
 * look, its silence becomes 0. Otherwise the time since the last look is added to the silence.
 * After a long silence (suspicious_ns) the watcher *suspects* the thread. From then on, time in
 * which the thread could not run is not added, because the thread was stopped or waited in the run
 * queue for a CPU. Time in which the thread slept in a system call is added. Called by the watching
 * thread.
 *
 * - thread: number of the beating thread (ls_thread_self), or 0 if unknown
 * - attended_ns: time since the last look, without time during which the whole process was stopped
 *   (ls_attended_ns in base/clock.h)
 * - suspicious_ns: threshold in nanoseconds. From a silence of suspicious_ns − LS_ATTENTION_NS on
 *   (LS_ATTENTION_NS is 50 ms, base/clock.h), the watcher suspects the thread, and each look asks
 *   the system what the thread does (ls_thread_look) */
void ls_silence_look(ls_silence *silence, const ls_heartbeat *heartbeat, int thread,
                     uint64_t attended_ns, uint64_t suspicious_ns);

#endif
