/* Whether a thread that waits spins or sleeps.
 *
 * A thread that sleeps is woken within some tens of microseconds, on some machines a hundred; one
 * that spins answers within one. Spinning for about as long as a wake-up takes is what lets two
 * threads that hand work back and forth stay awake, and begin to: the one spins until the other has
 * been woken. Where work comes at longer intervals, or where the thread that is waited for
 * cannot run because this one has its CPU, the same time is lost. So spinning is a habit: given up
 * after a few misses in a row, tried again from time to time, and taken up with the first success.
 *
 * A worker that was woken out of short sleeps time and again should not have had to sleep at all:
 * the scheduler has put it on the CPU of the very thread that it works for, where neither can spin
 * for the other, and leaves them there, because neither ever waits for a CPU for long. Only such a
 * worker knows, and it steps aside.
 */
#include "base/clock.h"
#include "pool/pool.h"

#define SPIN_NS 100000
#define MISSES_ALLOWED 4
#define TRIED_EVERY 32
#define CHECKS_PER_LOOK 32 /* at the clock */
#define PATIENCE_FIRST 8
#define PATIENCE_MOST 65536

static bool is_worth_it(const ls_spin_habit *habit)
{
    return habit->allowed && (habit->misses < MISSES_ALLOWED || habit->misses % TRIED_EVERY == 0);
}

bool ls_pool_spin(ls_spin_habit *habit, bool (*ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    uint64_t end_ns = 0;
    if (!is_worth_it(habit)) {
        habit->misses++;
        return false;
    }
    for (unsigned i = 0;; i++) {
        if (ready(arg)) {
            habit->misses = 0;
            habit->patience = PATIENCE_FIRST;
            return true;
        }
        ls_spin_pause();
        if (i % CHECKS_PER_LOOK != CHECKS_PER_LOOK - 1)
            continue;
        uint64_t now_ns = ls_now_ns();
        if (end_ns == 0)
            end_ns = now_ns + SPIN_NS;
        if (now_ns >= deadline_ns)
            return false; /* which says nothing about the habit */
        if (now_ns >= end_ns)
            break;
    }
    habit->misses++;
    return false;
}

void ls_pool_slept(ls_spin_habit *habit, uint64_t ns)
{
    habit->short_sleeps = habit->allowed && ns < SPIN_NS ? habit->short_sleeps + 1 : 0;
}

bool ls_pool_ought_to_spin(ls_spin_habit *habit)
{
    if (habit->patience < PATIENCE_FIRST)
        habit->patience = PATIENCE_FIRST;
    if (habit->short_sleeps < habit->patience)
        return false;
    /* Should this not help, the next time comes later. A spin that succeeds sets it back. */
    if (habit->patience < PATIENCE_MOST)
        habit->patience *= 2;
    habit->short_sleeps = 0;
    habit->misses = 0;
    return true;
}
