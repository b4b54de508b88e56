/* Parking: putting a thread to sleep until another thread has changed something.
 *
 *     waiting side                              changing side
 *     ls_park_until(&p, ready, arg, deadline);  change what ready() reads; ls_park_wake(&p);
 *
 * A park word holds no condition of its own; the condition lives in the caller's atomics, and the
 * word only carries the announcement "a thread may be asleep" and a count of wake-ups. Any number
 * of threads may wait on one word, and any number may wake it; a wake-up is for all of them.
 * Where no thread waits, ls_park_wake costs one atomic read-modify-write and no system call.
 *
 * Why no wake-up is lost. The waiter *announces itself, then checks*; the waker *changes, then
 * looks for announcements*. Both steps on the word are read-modify-writes, so one of them comes
 * first in the word's modification order:
 *   - the announcement comes first: the waker sees it, moves the count on and wakes. A waiter that
 *     has not gone to sleep yet finds the count moved, and the kernel does not let it sleep;
 *   - the waker's look comes first: the announcement reads from it (or from a later link of its
 *     release sequence), hence acquires the change, and the check after it sees that change.
 * A plain load in place of the waker's read-modify-write would break this: the processor may
 * perform it before the change leaves its store buffer. tests/sync/test_park_model.c shows that.
 *
 * Lifetime: the word must outlive every call on it, the wakers' included.
 */
#ifndef SYNC_PARK_H
#define SYNC_PARK_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_park {
    _Atomic uint32_t word; /* bit 0: a waiter announced itself; above: how often it was woken */
    unsigned spins;        /* checks made before the first announcement; frozen after init */
} ls_park;

/* How many checks, a pause apart, are worth making before a thread goes to sleep: some tens of
 * microseconds where every thread has a CPU, none where `threads` share fewer `cpus` and spinning
 * would hold up the very thread that is waited for. */
unsigned ls_spins_for(int threads, int cpus);

/* Tells the processor that this is a spin loop. */
void ls_spin_pause(void);

/* An unset word; `spins` as from ls_spins_for. There is nothing to release. */
void ls_park_init(ls_park *park, unsigned spins);

/* Returns true as soon as ready(arg) does, false when `deadline_ns` (ls_now_ns time, UINT64_MAX:
 * never) has passed and ready(arg) is still false. `ready` is called on this thread, often; it
 * must read what the waker changes through atomics (acquire, if data is handed over). */
bool ls_park_until(ls_park *park, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns);

/* The same for a timeout in attended time (base/clock.h): a pause of this thread uses up none of it. What
 * is left of it stays in `patience`, for another wait. */
bool ls_park_patiently(ls_park *park, bool (*ready)(void *arg), void *arg, ls_patience *patience);

/* Wakes every thread that waits on the word. Call it after the change that they wait for. */
void ls_park_wake(ls_park *park);

/* Whether the next ls_park_wake will, as far as can be told now, have a waiter to wake. Nothing may
 * depend on it but speed. */
bool ls_park_announced(const ls_park *park);

/* The pieces of ls_park_until, for a loop of one's own: prepare, check the condition, and if it
 * does not hold, sleep with the key that prepare returned; then start over. A waiter whose check
 * succeeds just leaves: the announcement it leaves behind costs the next waker one system call.
 * ls_park_sleep returns false when the deadline has passed; true means "check again", no more. */
uint32_t ls_park_prepare(ls_park *park);
bool ls_park_sleep(ls_park *park, uint32_t key, uint64_t deadline_ns);

#endif
