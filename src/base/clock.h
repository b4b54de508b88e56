/* Monotonic time, and time limits that do not pass while the process is stopped. All functions: any
 * thread; they never fail. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Returns nanoseconds since an arbitrary point in time that is the same for all threads
 * (CLOCK_MONOTONIC). */
uint64_t ls_now_ns(void);

/* Returns the point in time `timeout` nanoseconds from now. UINT64_MAX (never) stays UINT64_MAX,
 * which is also the result if the sum overflows. */
uint64_t ls_deadline_ns(uint64_t timeout);

/* Attended time: the part of the elapsed time that a watching thread may count against the threads
 * that it watches.
 *
 * A process can be stopped (SIGSTOP, Ctrl-Z, a frozen container, a suspended machine), and no clock
 * of the system stops with it. But a watcher sleeps in short naps. If much more time has passed
 * than a nap, the watcher was stopped itself, and the watched threads may have been stopped as
 * well. So of the time between two looks of a watcher at most LS_ATTENTION_NS counts, whatever
 * happened meanwhile. */
#define LS_NAP_NS 20000000u       /* time between two looks of a watcher */
#define LS_ATTENTION_NS 50000000u /* longest nap that counts fully: a busy machine wakes late */

/* Returns the attended part of the time since *seen_ns, and sets *seen_ns to the present time.
 * `queued_ns` is the part of that time for which the watcher is known to have only waited for a
 * CPU, which counts in addition; 0 if unknown. */
uint64_t ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns);

/* A time limit that only attended time consumes:
 *
 *     ls_patience p = ls_patience_of(timeout);
 *     do
 *         sleep until ls_patience_nap(&p), or until the awaited condition holds
 *     while (the condition does not hold && !ls_patience_over(&p));
 */
typedef struct ls_patience {
    uint64_t left_ns; /* remaining time; UINT64_MAX: no limit */
    uint64_t seen_ns; /* time of the last look */
} ls_patience;

/* Returns a time limit of `timeout` nanoseconds from now; UINT64_MAX: no limit. */
ls_patience ls_patience_of(uint64_t timeout);

/* Returns a time limit that ends at `deadline_ns` if the process is not stopped meanwhile;
 * UINT64_MAX: no limit. */
ls_patience ls_patience_until(uint64_t deadline_ns);

/* Returns the time at which the next nap has to end; UINT64_MAX: never. */
uint64_t ls_patience_nap(const ls_patience *patience);

/* Subtracts the attended time since the last look. Returns whether the time limit has passed. */
bool ls_patience_over(ls_patience *patience);

#endif
