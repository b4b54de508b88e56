/* SPDX-License-Identifier: MIT */
/* Monotonic time, and time limits that do not pass while the process is stopped. All functions may
 * be called from any thread and never fail. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Returns nanoseconds since an arbitrary point in time that is the same for all threads
 * (CLOCK_MONOTONIC). */
uint64_t ls_now_ns(void);

/* Returns the point in time `timeout` nanoseconds from now, in the time of ls_now_ns. The result is
 * UINT64_MAX (never) if `timeout` is UINT64_MAX or if the sum overflows. */
uint64_t ls_deadline_ns(uint64_t timeout);

/* *Attended time* is elapsed time without the time during which the process was stopped. A time
 * limit for other threads must be measured in attended time, because stopped threads do not hang.
 *
 * No clock of the system stops with a process (SIGSTOP, a frozen container, a suspended machine).
 * But a watching thread looks at the clock between short naps. If much more time has passed than a
 * nap takes, the watcher was stopped itself, and the watched threads probably as well. So at most
 * LS_ATTENTION_NS of the time between two looks counts as attended, whatever the reason for the
 * delay. */
#define LS_NAP_NS 20000000u /* time between two looks of a watching thread in nanoseconds */
/* Largest attended time between two looks in nanoseconds. It is longer than a nap because a busy
 * machine wakes threads late. */
#define LS_ATTENTION_NS 50000000u

/* Returns the attended time since *seen_ns in nanoseconds, and sets *seen_ns to the present time.
 * `queued_ns` is the time for which the watching thread is known to have waited for a CPU since
 * *seen_ns (0 if unknown). The watching thread was not stopped during that time, so the result can
 * exceed LS_ATTENTION_NS by up to `queued_ns`. */
uint64_t ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns);

/* A time limit that is measured in attended time:
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
