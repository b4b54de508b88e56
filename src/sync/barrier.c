/* SPDX-License-Identifier: MIT */
/* barrier.h explains rounds, releases and aborts, and has the proof. */
#include "sync/barrier.h"

#include "base/error.h"
#include "base/host.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The memory orders that the barrier depends on. They are macros so that a test can weaken each one
 * and check that ThreadSanitizer reports it (tests/sync/weakened_orders.sh).
 *
 * LS_BARRIER_ARRIVE: release publishes what the arriving rank wrote before. Acquire lets the last
 * rank to arrive see what the other ranks published, because that rank returns without another load
 * of the word.
 * LS_BARRIER_OBSERVE: acquire lets a waiting rank see what all ranks published. barrier.h has the
 * whole proof. */
#ifndef LS_BARRIER_ARRIVE
#define LS_BARRIER_ARRIVE memory_order_acq_rel
#endif
#ifndef LS_BARRIER_OBSERVE
#define LS_BARRIER_OBSERVE memory_order_acquire
#endif

/* Layout of the word: bit 63 is the abort bit, bits 16 … 62 are the number of the round, bits 0 …
 * 15 are the number of ranks that have arrived. */
#define ABORTED (UINT64_C(1) << 63)
#define ROUND_ONE (UINT64_C(1) << 16)
#define ARRIVED_MASK (ROUND_ONE - 1)

static uint64_t round_of(uint64_t state)
{
    return (state & ~ABORTED) >> 16;
}

int ls_barrier_init(ls_barrier *barrier, const ls_host *host, int ranks, unsigned spins,
                    ls_error *err)
{
    memset(barrier, 0, sizeof *barrier);
    if (ranks < 1 || ranks > LS_BARRIER_MAX_RANKS)
        return ls_fail(err, LS_EINVAL, "a barrier for %d ranks: expected 1 to %d", ranks,
                       LS_BARRIER_MAX_RANKS);
    barrier->arrivals = ls_alloc_array(host, (size_t)ranks, sizeof *barrier->arrivals);
    if (!barrier->arrivals)
        return ls_fail(err, LS_ENOMEM, "no memory for a barrier of %d ranks", ranks);
    barrier->host = host;
    barrier->ranks = ranks;
    ls_park_init(&barrier->park, spins);
    return LS_OK;
}

void ls_barrier_fini(ls_barrier *barrier)
{
    ls_free(barrier->host, barrier->arrivals);
    barrier->arrivals = NULL;
}

void ls_barrier_abort(ls_barrier *barrier)
{
    /* relaxed: an abort publishes nothing of this thread. The abort is a read-modify-write, so it
     * continues the release sequences of the arrivals before it. */
    atomic_fetch_or_explicit(&barrier->state, ABORTED, memory_order_relaxed);
    ls_park_wake(&barrier->park);
}

bool ls_barrier_aborted(const ls_barrier *barrier)
{
    return atomic_load_explicit(&barrier->state, LS_BARRIER_OBSERVE) & ABORTED;
}

bool ls_barrier_arrived(const ls_barrier *barrier, int rank)
{
    /* acquire: a rank that is counted in the word has stored its round before its arrival, and its
     * arrival synchronizes with this load. So the load below sees the stored round. */
    uint64_t round = round_of(atomic_load_explicit(&barrier->state, memory_order_acquire));
    return atomic_load_explicit(&barrier->arrivals[rank].round, memory_order_relaxed) > round;
}

/* One rank's view of the round that it is in. */
struct passage {
    ls_barrier *barrier;
    uint64_t round;
    uint64_t state; /* last value read from the word */
};

/* Returns true if the round is decided, that is, released or aborted. All ranks read the same
 * decision from the word. */
static bool decided(void *arg)
{
    struct passage *p = arg;
    p->state = atomic_load_explicit(&p->barrier->state, LS_BARRIER_OBSERVE);
    return round_of(p->state) != p->round || (p->state & ABORTED);
}

static bool released(const struct passage *p)
{
    return round_of(p->state) != p->round;
}

/* Counts this rank as arrived. The last rank to arrive moves the word to the next round, which
 * releases the round. Returns false if the barrier is aborted. */
static bool arrive(struct passage *p)
{
    ls_barrier *b = p->barrier;
    uint64_t seen = p->state;
    uint64_t next;
    do {
        if (seen & ABORTED)
            return false;
        bool last = (int)(seen & ARRIVED_MASK) + 1 == b->ranks;
        next = last ? (seen & ~ARRIVED_MASK) + ROUND_ONE : seen + 1;
    } while (!atomic_compare_exchange_weak_explicit(&b->state, &seen, next, LS_BARRIER_ARRIVE,
                                                    memory_order_relaxed));
    p->state = next;
    return true;
}

/* Sets the abort bit after the deadline has passed, unless the round was decided meanwhile. Returns
 * whether this rank has set the bit. */
static bool give_up(struct passage *p)
{
    while (!decided(p)) {
        if (atomic_compare_exchange_weak_explicit(&p->barrier->state, &p->state, p->state | ABORTED,
                                                  memory_order_acquire, memory_order_relaxed)) {
            ls_park_wake(&p->barrier->park);
            return true;
        }
    }
    return false;
}

/* Writes the list of ranks that have not arrived, such as "1, 3, 7". A list that does not fit is
 * truncated and ends with "…". */
static void name_missing(char *text, size_t size, const ls_barrier *b)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < b->ranks; i++) {
        if (ls_barrier_arrived(b, i))
            continue;
        if (used + 24 > size) {
            snprintf(text + used, size - used, ", …");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? ", " : "", i);
    }
    if (used == 0) /* the last rank has stored its round, but the abort came before its arrival */
        snprintf(text, size, "none but the last, which came as the deadline passed");
}

static int timed_out(const struct passage *p, ls_error *err)
{
    const ls_barrier *b = p->barrier;
    char missing[256];
    name_missing(missing, sizeof missing, b);
    int arrived = (int)(p->state & ARRIVED_MASK);
    return ls_fail(err, LS_ETIMEDOUT,
                   "the deadline passed at a barrier with %d of %d ranks "
                   "there; missing: %s",
                   arrived, b->ranks, missing);
}

int ls_barrier_wait(ls_barrier *barrier, int rank, uint64_t deadline_ns, ls_error *err)
{
    assert(rank >= 0 && rank < barrier->ranks);
    /* relaxed: the number read is that of the current round. The previous call of this thread
     * returned when the round before was released, so the thread has read or written a value of the
     * current round. By coherence this load returns no older value. It returns no value of a later
     * round, because the current round cannot be released before this rank has arrived. (If the
     * barrier is aborted, the number does not matter, because the arrival below is refused.) */
    struct passage p = {.barrier = barrier};
    p.state = atomic_load_explicit(&barrier->state, memory_order_relaxed);
    p.round = round_of(p.state);
    /* relaxed: the arrival that follows publishes the number. */
    atomic_store_explicit(&barrier->arrivals[rank].round, p.round + 1, memory_order_relaxed);
    if (!arrive(&p))
        return ls_fail(err, LS_EABORTED, "the barrier was aborted");
    if (released(&p)) {
        ls_park_wake(&barrier->park);
        return LS_OK;
    }
    ls_patience patience = ls_patience_until(deadline_ns);
    if (!ls_park_patiently(&barrier->park, decided, &p, &patience) && give_up(&p))
        return timed_out(&p, err);
    if (released(&p))
        return LS_OK;
    return ls_fail(err, LS_EABORTED, "the barrier was aborted");
}
