/* Parking: puts a thread to sleep until another thread has changed something.
 *
 *     waiting side                              changing side
 *     ls_park_until(&p, ready, arg, deadline);  change what ready() reads; ls_park_wake(&p);
 *
 * A park word contains no condition. The condition is in atomics of the caller; the word only holds
 * the announcement "a thread may be asleep" (bit 0) and a count of wake-ups (the other bits). Any
 * number of threads may wait on one word, and any number may wake it; a wake-up wakes all waiters.
 * If no thread waits, ls_park_wake costs one atomic read-modify-write and no system call.
 *
 * Why no wake-up is lost. A waiter first announces itself, A, and then checks the condition, C. A
 * waker first changes the condition, M, and then looks for announcements, L. Both A and L are
 * acquire-release read-modify-writes of the word, so one of them comes first in the word's
 * modification order:
 *
 * - L comes first. All modifications of the word are read-modify-writes, hence all that follow L, A
 *   included, belong to the release sequence headed by L. A reads the modification immediately
 *   before it, which is L or a later part of that sequence, so L synchronizes with A. M is
 *   sequenced before L, and C after A: M happens before C, and the check sees the change.
 * - A comes first. Either L reads the announcement, or another waker has cleared it between A and
 *   L. Wakers clear it only by the exchange X that also increments the count, and wake all sleepers
 *   after it. If L reads the announcement, this waker attempts the exchange. The attempt fails only
 *   if another waker has made its exchange since L; then that exchange is X. So in every case an X
 *   follows A, and a wake-up follows X. If the waiter is not asleep yet, the word differs from the
 *   key that A returned, and the kernel does not let the waiter sleep. If it is asleep, the wake-up
 *   wakes it. In both cases the waiter starts over with a new announcement A', to which the same
 *   two cases apply. Only finitely many modifications precede L, so in the end an A' follows L.
 *
 * A plain load in place of L would break the argument: the processor may perform the load before M
 * leaves its store buffer. tests/sync/test_park_model.c shows that.
 *
 * Lifetime: the word must outlive every call on it, including the calls of wakers.
 */
#ifndef SYNC_PARK_H
#define SYNC_PARK_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_park {
    _Atomic uint32_t word; /* bit 0: a waiter has announced itself; above: number of wake-ups */
    unsigned spins;        /* number of checks before the first announcement; constant after init */
} ls_park;

/* Returns the number of checks, one ls_spin_pause apart, that a thread should make before it goes
 * to sleep: about 30 µs of them if each of `threads` threads has a CPU; 0 if they share fewer
 * `cpus`, because spinning would then delay the thread that is waited for. Any thread. */
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

/* Does the same with a limit in attended time (base/clock.h), which does not pass while the process
 * is stopped. The time that is left remains in `patience`, for another wait. Any thread. */
bool ls_park_patiently(ls_park *park, bool (*ready)(void *arg), void *arg, ls_patience *patience);

/* Wakes every thread that waits on the word. It must be called after the change that they wait for.
 * Any thread. */
void ls_park_wake(ls_park *park);

/* Returns whether the next ls_park_wake will probably have a waiter to wake. The result may be
 * outdated when it is used, so nothing but speed may depend on it. Any thread. */
bool ls_park_announced(const ls_park *park);

/* Announces the calling thread as a waiter and returns the key for ls_park_sleep. It is the first
 * half of ls_park_until, for callers with a loop of their own: prepare, check the condition, sleep
 * with the key if it does not hold, and start over. A waiter whose check succeeds simply leaves;
 * its announcement remains, and costs the next waker one system call. */
uint32_t ls_park_prepare(ls_park *park);

/* Sleeps until a wake-up after the ls_park_prepare that returned `key`, or until `deadline_ns`.
 * Returns false if the deadline has passed. True only means that the caller has to prepare and
 * check again. */
bool ls_park_sleep(ls_park *park, uint32_t key, uint64_t deadline_ns);

#endif
