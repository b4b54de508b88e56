#define _GNU_SOURCE /* syscall(); this file alone in the room */
#include "sync/park.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The futex call below takes the kernel's 64-bit struct timespec. */
_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "written for 64-bit Linux");

#define ANNOUNCED 1u
/* About 30 µs of pauses: no longer than it takes to wake a sleeping thread. */
#define SPINS 1000u

/* How the waker looks for announcements. A test build replaces it by a plain load, to see that
 * the stress test notices. */
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
    /* acquire: sees the changes of every waker that looked before this announcement.
     * release: keeps the release sequence of those wakers intact for later waiters (an RMW does
     * so anyway) and orders this thread's past before a waker that reads the announcement. */
    return atomic_fetch_or_explicit(&park->word, ANNOUNCED, memory_order_acq_rel) | ANNOUNCED;
}

bool ls_park_sleep(ls_park *park, uint32_t key, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    /* The bit-set form is the one that takes an absolute monotonic time. */
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
    /* release: hands the caller's change to a waiter that announces itself after this look. */
    uint32_t seen = LS_PARK_LOOK(&park->word);
    if (!(seen & ANNOUNCED))
        return;
    /* Adding one clears the announcement and carries into the count, in one step. If the exchange
     * fails, another waker did it for the same sleepers, and a waiter that announced itself since then
     * did so after the look above and sees the change. The count returns after 2³¹ wake-ups, far
     * more than fit between a prepare and its sleep. */
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
        /* The kernel sees no deadline of a sleeper that is woken time and again. */
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
