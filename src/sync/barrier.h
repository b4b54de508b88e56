/* SPDX-License-Identifier: MIT */
/* A barrier for N threads, called ranks and numbered from 0. Every round of the barrier ends in the
 * same way for all ranks.
 *
 *     ls_barrier b;
 *     ls_barrier_init(&b, host, 4, spins, &err);
 *     ls_barrier_wait(&b, rank, deadline_ns, &err);   // each of the 4 threads, round after round
 *     ls_barrier_abort(&b);                           // any thread: all later waits fail
 *
 * The *commit point* of a round is the change of one atomic word that decides how the round ends.
 * The word contains the number of the round, the number of ranks that have arrived, and the abort
 * bit. A round ends in one of two ways:
 * - The arrival of the last rank *releases* the round: that arrival increments the number of the
 *   round.
 * - A call of ls_barrier_abort, or the first rank whose deadline passes, sets the abort bit.
 *
 * Both changes are read-modify-writes of the word, so one of them comes first in the modification
 * order of the word. If the release comes first, the round is over before the bit is set. If the
 * bit is set first, all later arrivals are refused, the value of the word never changes again, and
 * the round is never released. So every rank reads the same decision from the word, however late
 * the rank reads. Hence in each round either all ranks return LS_OK or none does.
 *
 * The barrier is a sense-reversing barrier whose sense is the number of the round. A rank reads the
 * number of the round that it enters from the word. Until the rank has arrived, the number stays
 * the same, because a round cannot be released before all ranks have arrived. After its arrival the
 * rank waits until the number in the word has changed or the abort bit is set.
 *
 * Memory order. What a rank wrote before ls_barrier_wait is visible to every rank that returns
 * LS_OK from the same round. Rank r's arrival A(r) is a read-modify-write with release order, after
 * r's writes. Every modification of the word is a read-modify-write (arrivals, aborts, time-outs),
 * so all modifications that follow A(r) belong to the release sequence headed by A(r). The last
 * arrival L comes after every A(r) and has acquire order. L reads a value from the release sequence
 * of each A(r), so each A(r) synchronizes with L. A waiting rank returns LS_OK after an acquire
 * load has read the value of L or a later value. That value is in the release sequence of each
 * A(r), and of L itself, so each A(r), and L, synchronizes with the load. Hence the writes of all
 * ranks happen before the return of each rank.
 */
#ifndef SYNC_BARRIER_H
#define SYNC_BARRIER_H

#include "sync/park.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdalign.h>

#define LS_BARRIER_MAX_RANKS 65535 /* largest number of ranks of a barrier: 16 bits of its word */

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

/* Initialises a barrier for ranks 0 … ranks − 1. `spins` is the number of checks that a waiting
 * rank makes before it sleeps, a result of ls_spins_for (sync/park.h). `host` may be NULL. Errors:
 * LS_EINVAL, LS_ENOMEM. */
int ls_barrier_init(ls_barrier *barrier, const ls_host *host, int ranks, unsigned spins,
                    ls_error *err);

/* Frees the barrier's memory. No rank may be inside a call. A zeroed barrier is allowed. */
void ls_barrier_fini(ls_barrier *barrier);

/* Waits until all ranks have arrived. Each rank calls it on its own thread.
 *
 * - rank: number of the calling rank
 * - deadline_ns: in the time of ls_now_ns; UINT64_MAX: no deadline. If the process is stopped
 *   during the wait, the deadline moves by the duration of the stop (base/clock.h).
 *
 * Returns
 * - LS_OK if all ranks have arrived;
 * - LS_EABORTED if the barrier is aborted;
 * - LS_ETIMEDOUT if the deadline of this rank has passed. This call has then aborted the barrier
 *   for all ranks, and its message names the missing ranks.
 *
 * If the deadline passes while the last rank arrives, the commit point decides whether all ranks
 * return LS_OK or none does. */
int ls_barrier_wait(ls_barrier *barrier, int rank, uint64_t deadline_ns, ls_error *err);

/* Aborts the barrier permanently: every rank that waits, and every later call, returns LS_EABORTED.
 * Ranks that continue need a new barrier. A round that was released before the abort stays
 * released: all its ranks return LS_OK, including the ranks that have not noticed the release yet.
 * Any thread, any number of times. */
void ls_barrier_abort(ls_barrier *barrier);

/* Returns whether the barrier is aborted. If the result is true, the caller sees everything that
 * each rank wrote before the rank's last accepted arrival. (An arrival after the abort is refused;
 * what the rank wrote before a refused arrival can be invisible.) The reason: an accepted arrival
 * precedes the abort in the modification order of the word, so the abort belongs to the release
 * sequence of the arrival, and the word is loaded with acquire order. Any thread. */
bool ls_barrier_aborted(const ls_barrier *barrier);

/* Returns whether `rank` has called ls_barrier_wait for the current round. The function serves to
 * find ranks that hang. A rank that arrives after an abort does not hang, so the result is true for
 * that rank, although the barrier refuses its arrival. Any thread. */
bool ls_barrier_arrived(const ls_barrier *barrier, int rank);

#endif
