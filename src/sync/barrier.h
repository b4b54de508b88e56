/* A barrier for N ranks in which every round ends in the same way for all ranks.
 *
 *     ls_barrier b;
 *     ls_barrier_init(&b, host, 4, spins, &err);
 *     ls_barrier_wait(&b, rank, deadline_ns, &err);   // each of the 4 threads, round after round
 *     ls_barrier_abort(&b);                           // any thread: no rank passes any more
 *
 * Commit point. One atomic word holds the number of the round, the number of ranks that have
 * arrived, and the abort bit. The last arrival moves the word to the next round (the release of the
 * round). An abort, or the first rank whose deadline passes, sets the bit. Each of these is a
 * single read-modify-write of the word, so one of them comes first in its modification order and
 * excludes the other for this round. After the bit is set, the word does not change any more, so
 * every rank reads the same decision from it, however late it looks. Hence in each round either all
 * ranks return LS_OK or none does.
 *
 * The barrier is a sense-reversing barrier whose sense is the number of the round. A rank reads the
 * number of the round that it enters from the word; the number stays the same until the rank has
 * arrived, because the round cannot end without it. After its arrival the rank waits until the
 * number in the word has changed.
 *
 * Memory order. What a rank wrote before ls_barrier_wait is visible to every rank that returns
 * LS_OK from the same round. Rank r's arrival A(r) is a read-modify-write with release order, after
 * r's writes. Every modification of the word is a read-modify-write (arrivals, aborts, time-outs),
 * so all modifications that follow A(r) belong to the release sequence headed by A(r). The last
 * arrival L comes after every A(r) and has acquire order: it reads from the release sequence of
 * each, and synchronizes with each A(r). A waiting rank returns LS_OK after an acquire load has
 * read the value of L or a later one. That value, too, is in the release sequence of each A(r), and
 * of L itself. So the writes of all ranks happen before the return of all ranks.
 */
#ifndef SYNC_BARRIER_H
#define SYNC_BARRIER_H

#include "sync/park.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdalign.h>

#define LS_BARRIER_MAX_RANKS 65535 /* most ranks of a barrier: 16 bits of its word */

/* The last round of one rank, on a cache line of its own. */
typedef struct ls_barrier_arrival {
    /* number of the last round that the rank entered, plus 1; 0: it has entered none */
    alignas(64) _Atomic uint64_t round;
} ls_barrier_arrival;

/* A barrier. Only this module accesses the fields. */
typedef struct ls_barrier {
    alignas(64) ls_barrier_arrival *arrivals; /* [ranks]; the pointer is constant after init */
    const ls_host *host;                      /* constant after init */
    int ranks;                                /* constant after init */
    alignas(64) _Atomic uint64_t state;       /* abort bit, round, number of arrived ranks */
    alignas(64) ls_park park;                 /* park word of the waiting ranks */
} ls_barrier;

/* Initialises a barrier for ranks 0 … ranks − 1. `spins` is a result of ls_spins_for. `host` may be
 * NULL. Errors: LS_EINVAL, LS_ENOMEM. */
int ls_barrier_init(ls_barrier *barrier, const ls_host *host, int ranks, unsigned spins,
                    ls_error *err);

/* Frees the barrier's memory. No rank may be inside a call. A zeroed barrier is allowed. */
void ls_barrier_fini(ls_barrier *barrier);

/* Waits until all ranks have arrived. Each rank calls it on its own thread.
 *
 * - rank: number of the calling rank
 * - deadline_ns: in the time of ls_now_ns; UINT64_MAX: no deadline. It is postponed by the time
 *   during which the process is stopped meanwhile (base/clock.h).
 *
 * Returns LS_OK if all ranks have arrived; LS_EABORTED if the barrier is aborted; or LS_ETIMEDOUT
 * if the deadline has passed, with a message that names the missing ranks, after it has aborted the
 * barrier for all ranks. If the deadline passes while the last rank arrives, the commit point
 * decides: LS_OK for all ranks or for none. */
int ls_barrier_wait(ls_barrier *barrier, int rank, uint64_t deadline_ns, ls_error *err);

/* Aborts the barrier permanently: every rank that waits, and every later call, returns LS_EABORTED.
 * Ranks that continue need a new barrier. A round that was released before stays released: its
 * ranks return LS_OK, including those that have not noticed the release yet. Any thread, any number
 * of times. */
void ls_barrier_abort(ls_barrier *barrier);

/* Returns whether the barrier is aborted. If it is, what every rank wrote before its last arrival
 * is visible to the caller; an arrival that was refused because of the abort does not count. The
 * reason is that the abort, and any modification after it, belongs to the release sequence of each
 * arrival, and that the word is loaded with acquire order. Any thread. */
bool ls_barrier_aborted(const ls_barrier *barrier);

/* Returns whether `rank` has arrived in the current round. After an abort, a rank that arrives too
 * late counts as arrived as well, because it is alive. Any thread. */
bool ls_barrier_arrived(const ls_barrier *barrier, int rank);

#endif
