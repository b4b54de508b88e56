/* Monotonic time. Any thread; never fails. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary start that is the same for all threads. */
uint64_t ls_now_ns(void);

/* `timeout` nanoseconds from now as a point in time; UINT64_MAX (never) stays what it is, and a
 * sum that would overflow becomes it. */
uint64_t ls_deadline_ns(uint64_t timeout);

/* Attention: how much of the time that went by a watching thread may count against the threads it watches.
 *
 * A process can be stopped (SIGSTOP, Ctrl-Z, a frozen container, a suspended machine), and no clock of
 * the system stands still meanwhile. But a watcher sleeps in short naps and was to be awake again
 * long ago: it was stopped itself, and those it watches may have been. So of the time between two of its
 * looks at most LS_ATTENTION_NS counts, whatever happened in it. */
#define LS_NAP_NS 20000000u       /* a nap: so often a watcher looks */
#define LS_ATTENTION_NS 50000000u /* a nap from which a busy machine woke the watcher late */

/* What counts of the time since *seen_ns, which becomes now. `queued_ns`: for so long of it the watcher is
 * known to have waited for a CPU and for nothing else, which counts besides; 0: not known. */
uint64_t ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns);

/* A timeout that is used up by attended time alone:
 *
 *     ls_patience p = ls_patience_of(timeout);
 *     do
 *         sleep until ls_patience_nap(&p), or until what is waited for has come
 *     while (it has not come && !ls_patience_over(&p));
 */
typedef struct ls_patience {
    uint64_t left_ns; /* UINT64_MAX: for ever */
    uint64_t seen_ns;
} ls_patience;

ls_patience ls_patience_of(uint64_t timeout);
ls_patience ls_patience_until(uint64_t deadline_ns);
uint64_t ls_patience_nap(const ls_patience *patience); /* UINT64_MAX: for ever */
bool ls_patience_over(ls_patience *patience);

#endif
