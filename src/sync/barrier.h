/* A barrier for N ranks whose every round ends the same way for all of them.
 *
 *     ls_barrier b;
 *     ls_barrier_init(&b, host, 4, spins, &err);
 *     ls_barrier_wait(&b, rank, deadline_ns, &err);   // each of the 4 threads, round after round
 *     ls_barrier_abort(&b);                           // any thread: no rank passes any more
 *
 * The commit point. One atomic word holds the round's number, how many ranks have arrived, and the
 * abort bit. The last arrival moves the word to the next round (release); an abort, or the first
 * rank whose deadline passes, sets the bit (abort). Each is a single exchange of that one word, so
 * one of them comes first and refuses the other. Once the bit is set the word changes no more:
 * every rank reads the same verdict from it, however late it looks. Hence in each round either
 * all ranks return LS_OK or none does.
 *
 * It is the sense-reversing barrier with the round's number as the sense: a rank knows the round
 * it enters, which cannot end without it, and waits until the number has moved on.
 *
 * What a rank wrote before ls_barrier_wait is visible to every rank after the round is released.
 */
#ifndef SYNC_BARRIER_H
#define SYNC_BARRIER_H

#include "sync/park.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdalign.h>

#define LS_BARRIER_MAX_RANKS 65535

/* One rank's last round, on a cache line of its own. */
typedef struct ls_barrier_arrival {
    alignas(64) _Atomic uint64_t round; /* the round it reached last, plus one; 0: none yet */
} ls_barrier_arrival;

/* The fields are the barrier's own business. */
typedef struct ls_barrier {
    /* Frozen after init. */
    alignas(64) ls_barrier_arrival *arrivals;
    const ls_host *host;
    int ranks;
    alignas(64) _Atomic uint64_t state; /* abort bit, round, ranks that have arrived */
    alignas(64) ls_park park;
} ls_barrier;

/* A barrier for ranks 0 … ranks − 1. `spins`: as from ls_spins_for. `host` may be NULL.
 * Errors: LS_EINVAL, LS_ENOMEM. */
int ls_barrier_init(ls_barrier *barrier, const ls_host *host, int ranks, unsigned spins,
                    ls_error *err);

/* No rank may be inside a call. A zeroed barrier is allowed. */
void ls_barrier_fini(ls_barrier *barrier);

/* Each rank's own thread. Returns when all ranks have arrived (LS_OK), when the barrier is aborted
 * (LS_EABORTED), or when `deadline_ns` (ls_now_ns time, UINT64_MAX: never) has passed, put off for as
 * long as this rank is stopped meanwhile (base/clock.h): then it aborts the barrier for all ranks, and
 * returns LS_ETIMEDOUT with a message that names the ranks that are missing. A deadline that passes while the last rank arrives is decided by the
 * commit point: LS_OK for all, or LS_OK for none. */
int ls_barrier_wait(ls_barrier *barrier, int rank, uint64_t deadline_ns, ls_error *err);

/* Any thread, any number of times. Every rank that waits, and every later call, returns
 * LS_EABORTED for good: ranks that go on make a new barrier. A round already released stays released: its ranks return
 * LS_OK, even those that have not noticed yet. */
void ls_barrier_abort(ls_barrier *barrier);

/* Any thread. Whether the barrier is aborted. If so, what every rank wrote before its last arrival
 * is visible to the caller (an arrival that comes behind the abort does not count). */
bool ls_barrier_aborted(const ls_barrier *barrier);

/* Any thread. Whether `rank` has arrived in the round that is under way. Once the barrier is
 * aborted, a rank that comes too late counts as arrived too: it is alive. */
bool ls_barrier_arrived(const ls_barrier *barrier, int rank);

#endif
