/* SPDX-License-Identifier: MIT */
/* Parking: puts a thread to sleep until another thread has changed something.
 *
 *     waiting side                              changing side
 *     ls_park_until(&p, ready, arg, deadline);  change what ready() reads; ls_park_wake(&p);
 *
 * A *park word* is a 32-bit atomic on which threads sleep with the futex system call. It does not
 * contain the condition that the threads wait for; that condition is in atomics of the caller. Bit
 * 0 of the word is the *announcement* that a thread is possibly asleep. The other bits count
 * wake-ups. Any number of threads may wait on one word, and any number of threads may wake them; a
 * wake-up wakes all waiters. If no thread waits, ls_park_wake costs one atomic read-modify-write
 * and no system call.
 *
 * Why no wake-up is lost. A waiter first sets the announcement (operation A) and then checks the
 * condition (C). If the condition does not hold, the waiter asks the kernel to sleep as long as the
 * word equals the value that A has written (the *key*). A waker first changes the condition (M) and
 * then looks for an announcement (a *look*, L). If L finds an announcement, the waker clears it by
 * a compare-exchange that also increments the count. If the compare-exchange succeeds, the waker
 * wakes all sleepers. A and L are acquire-release read-modify-writes of the word, so one of them
 * comes first in the modification order of the word:
 *
 * - L comes before A. All modifications of the word are read-modify-writes. Hence all modifications
 *   that follow L belong to the release sequence headed by L. A reads the modification immediately
 *   before it, which is L itself or a later one of this sequence, so L synchronizes with A. M is
 *   sequenced before L, and C is sequenced after A. So M happens before C, and the waiter's check
 *   sees the change.
 * - A comes before L. In this case a successful compare-exchange X of some waker follows A. There
 *   are two possibilities. If L does not find the announcement, the announcement was cleared
 *   between A and L, and only a successful compare-exchange clears it. If L finds the announcement,
 *   this waker tries a compare-exchange. That compare-exchange can fail only because another
 *   compare-exchange has succeeded since L: announcements and looks do not change the value of a
 *   word whose announcement is set.
 *   After X the word differs from the key of A, because X has incremented the count. If the waiter
 *   is not asleep at X, the kernel does not let it sleep with that key. If the waiter is asleep at
 *   X, it is woken, because the waker that made X then wakes all sleepers. In both cases the waiter
 *   makes a new announcement A' and checks the condition again. Either A' follows L, and the check
 *   sees the change; or A' precedes L, and the waiter makes another announcement in the same way.
 *   Only finitely many modifications precede L, so one of the waiter's announcements follows L.
 *
 * A plain load in place of L would break the proof: the processor can perform the load before M
 * leaves its store buffer. tests/sync/test_park_model.c demonstrates the lost wake-up.
 *
 * Lifetime: the word must exist until every call on it has returned, including the calls of wakers.
 */
#ifndef SYNC_PARK_H
#define SYNC_PARK_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_park {
    _Atomic uint32_t word; /* bit 0: a waiter has announced itself; above: number of wake-ups */
    unsigned spins;        /* number of checks of the condition before the waiter announces itself;
                            * constant after init */
} ls_park;

/* Returns the number of checks, one ls_spin_pause apart, that a thread should make before it goes
 * to sleep. `threads` is the number of threads that wait for each other, and `cpus` the number of
 * CPUs that they share. If threads ≤ cpus, the result is a number of checks that takes about 30 µs.
 * Otherwise the result is 0, because a spinning thread would take a CPU from the thread that it
 * waits for. Any thread. */
unsigned ls_spins_for(int threads, int cpus);

/* Tells the processor that it is in a spin loop. Any thread. */
void ls_spin_pause(void);

/* Initialises a park word. `spins` is a result of ls_spins_for. A park word needs no cleanup. */
void ls_park_init(ls_park *park, unsigned spins);

/* Waits until ready(arg) returns true, and returns true then. Returns false if `deadline_ns` (in
 * the time of ls_now_ns; UINT64_MAX: no deadline) has passed and ready(arg) is still false. `ready`
 * is called on the waiting thread, many times. It must read what the waker changes through atomics,
 * with acquire order if data is handed over. Any thread. */
bool ls_park_until(ls_park *park, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);

/* Waits as ls_park_until does, but with a time limit that does not shrink while the process is
 * stopped by a signal or a debugger (attended time, base/clock.h). `patience` is the remaining
 * time. The function subtracts the time of the wait from `patience`, which can then be used for
 * another wait. Any thread. */
bool ls_park_patiently(ls_park *park, bool (*ready)(void *arg), void *arg, ls_patience *patience);

/* Wakes every thread that waits on the word. It must be called after the change that these threads
 * wait for. Any thread. */
void ls_park_wake(ls_park *park);

/* Returns whether the next ls_park_wake will probably have a waiter to wake. The result can be
 * outdated when the caller uses it, so only speed may depend on the result. Any thread. */
bool ls_park_announced(const ls_park *park);

/* Announces the calling thread as a waiter and returns the key for ls_park_sleep. The function is
 * for callers that have a loop of their own in place of ls_park_until. Such a loop prepares, checks
 * the condition, sleeps with the key if the condition does not hold, and starts over. A caller
 * whose check succeeds does not need to undo the announcement; the remaining announcement costs the
 * next waker one system call. */
uint32_t ls_park_prepare(ls_park *park);

/* Sleeps until a wake-up after the ls_park_prepare that returned `key`, or until `deadline_ns`.
 * Returns false if the deadline has passed. If the result is true, the caller must prepare and
 * check the condition again. */
bool ls_park_sleep(ls_park *park, uint32_t key, uint64_t deadline_ns);

#endif
