/* SPDX-License-Identifier: MIT */
/* Decides whether a waiting thread spins or sleeps.
 *
 * Waking a sleeping thread takes some tens of microseconds, on some machines a hundred; a spinning
 * thread reacts within one microsecond. Two threads that give each other work at short intervals
 * stay awake if each of them spins for about as long as a wake-up takes.
 *
 * The time of a spin is lost if work arrives at longer intervals, or if the awaited thread cannot
 * run because the spinning thread occupies its CPU. So a thread stops spinning after a few
 * successive spins without success (*misses*). From then on it spins only in every TRIED_EVERY-th
 * wait. After the first success it spins in every wait, as at the beginning.
 *
 * Sometimes all sleeps of a worker are shorter than a spin, although its spins end without success.
 * The usual reason is that the scheduler has put the worker on the owner's CPU: while one of the
 * two threads spins, the other cannot run. The scheduler leaves both threads on that CPU, because
 * each of them waits only a short time for the CPU. Only the worker can notice this state. It then
 * moves to another CPU (step_aside in worker.c). */
#include "base/clock.h"
#include "pool/pool.h"

#define SPIN_NS 100000      /* length of a spin in nanoseconds */
#define MISSES_ALLOWED 4    /* number of successive misses after which a thread stops spinning */
#define TRIED_EVERY 32      /* after that, the thread spins only in every 32nd wait */
#define CHECKS_PER_LOOK 32  /* checks of the condition per reading of the clock */
#define PATIENCE_FIRST 8    /* number of short sleeps before a worker's first move to another CPU */
#define PATIENCE_MOST 65536 /* largest number of short sleeps between two moves */

/* Returns whether the thread should spin in this wait. */
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
            return false; /* the deadline passed; this counts neither as a success nor as a miss */
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
    /* If the move to another CPU does not help, the next move comes after twice as many short
     * sleeps. A successful spin resets the number of short sleeps that a move takes. */
    if (habit->patience < PATIENCE_MOST)
        habit->patience *= 2;
    habit->short_sleeps = 0;
    habit->misses = 0;
    return true;
}
