/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for syscall(); no other file of this directory defines it */
/* park.h explains announcements, looks and keys, and has the proof. */
#include "sync/park.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The futex call below needs the kernel's 64-bit struct timespec. */
_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "written for 64-bit Linux");

#define ANNOUNCED 1u

/* Number of checks before sleeping: about 30 µs of pauses, which is no longer than waking a
 * sleeping thread takes. */
#define SPINS 1000u

/* The operation L of park.h, with which the waker looks for announcements. A test build replaces it
 * by a plain load, and checks that the stress test notices. */
#ifndef LS_PARK_LOOK
#define LS_PARK_LOOK(word) atomic_fetch_add_explicit(word, 0, memory_order_acq_rel)
#endif

unsigned ls_spins_for(int threads, int cpus)
{
    return threads <= cpus ? SPINS : 0;
}

void ls_spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

void ls_park_init(ls_park *park, unsigned spins)
{
    atomic_init(&park->word, 0);
    park->spins = spins;
}

uint32_t ls_park_prepare(ls_park *park)
{
    /* acquire: synchronizes with every waker whose look precedes this announcement in the word's
     * modification order, so the check of the condition that follows sees the changes of those
     * wakers (park.h).
     * release: a waker that reads the announcement sees what this thread did before the
     * announcement. The proof in park.h does not need the release: the release sequences of earlier
     * looks continue through any read-modify-write. */
    return atomic_fetch_or_explicit(&park->word, ANNOUNCED, memory_order_acq_rel) | ANNOUNCED;
}

bool ls_park_sleep(ls_park *park, uint32_t key, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    /* Only the bit-set form of the call takes an absolute monotonic time. */
    long failed = syscall(SYS_futex, &park->word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, key,
                          deadline_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    return !(failed && errno == ETIMEDOUT);
}

bool ls_park_announced(const ls_park *park)
{
    return atomic_load_explicit(&park->word, memory_order_relaxed) & ANNOUNCED;
}

void ls_park_wake(ls_park *park)
{
    /* release: hands the caller's change to every waiter that announces itself after this look. */
    uint32_t seen = LS_PARK_LOOK(&park->word);
    if (!(seen & ANNOUNCED))
        return;
    /* Adding 1 to a word with bit 0 set clears the bit, which is the announcement, and carries into
     * the count. The compare-exchange can fail only if another waker's has succeeded since the look
     * above, because announcements and looks do not change a word that has bit 0 set. That other
     * waker wakes the same sleepers. A waiter that has announced itself since that waker's exchange
     * did so after the look above, and its check sees the change. The count wraps after 2³¹
     * wake-ups, many more than can happen between a prepare and the following sleep. */
    if (atomic_compare_exchange_strong_explicit(&park->word, &seen, seen + 1, memory_order_acq_rel,
                                                memory_order_relaxed))
        syscall(SYS_futex, &park->word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

bool ls_park_until(ls_park *park, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    for (unsigned i = 0; i < park->spins; i++) {
        if (ready(arg))
            return true;
        ls_spin_pause();
    }
    for (;;) {
        uint32_t key = ls_park_prepare(park);
        if (ready(arg))
            return true;
        bool over = !ls_park_sleep(park, key, deadline_ns);
        /* If this thread is woken again and again, the kernel never reports that the deadline has
         * passed. So this loop checks the deadline as well. */
        if (over || (deadline_ns != UINT64_MAX && ls_now_ns() >= deadline_ns))
            return ready(arg);
    }
}

bool ls_park_patiently(ls_park *park, bool (*ready)(void *arg), void *arg, ls_patience *patience)
{
    do {
        if (ls_park_until(park, ready, arg, ls_patience_nap(patience)))
            return true;
    } while (!ls_patience_over(patience));
    return false;
}
