/* SPDX-License-Identifier: MIT */
#include "sync/ring.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

/* The ring is a queue of slots with the counts `head` (items popped) and `tail` (items pushed).
 * These are the five memory orders that the ring depends on (ring.h has the proof). Each is a
 * macro, so that a test can weaken each one and check that ThreadSanitizer reports it
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_RING_TAIL_RELEASE /* producer: publishes the slot that it has written */
#define LS_RING_TAIL_RELEASE memory_order_release
#endif
#ifndef LS_RING_TAIL_ACQUIRE /* consumer: reads a slot only after it was published */
#define LS_RING_TAIL_ACQUIRE memory_order_acquire
#endif
#ifndef LS_RING_HEAD_RELEASE /* consumer: returns the slot that it has read */
#define LS_RING_HEAD_RELEASE memory_order_release
#endif
#ifndef LS_RING_HEAD_ACQUIRE /* producer: overwrites a slot only after it was returned */
#define LS_RING_HEAD_ACQUIRE memory_order_acquire
#endif

#ifndef LS_RING_CLOSE_RELEASE /* closing thread: publishes what it did before the close */
#define LS_RING_CLOSE_RELEASE memory_order_release
#endif

#define CLOSED (UINT64_C(1) << 63)

int ls_ring_init(ls_ring *ring, const ls_host *host, size_t item_size, size_t capacity,
                 ls_error *err)
{
    memset(ring, 0, sizeof *ring);
    if (item_size == 0 || capacity == 0 || capacity > (size_t)1 << 30)
        return ls_fail(err, LS_EINVAL,
                       "a ring of %zu items of %zu bytes: expected 1 to 2^30 "
                       "items of at least 1 byte",
                       capacity, item_size);
    size_t rounded = 1;
    while (rounded < capacity)
        rounded *= 2;
    ring->slots = ls_alloc_array(host, rounded, item_size);
    if (!ring->slots)
        return ls_fail(err, LS_ENOMEM, "no memory for a ring of %zu items of %zu bytes", rounded,
                       item_size);
    ring->item_size = item_size;
    ring->capacity = rounded;
    ring->host = host;
    ls_park_init(&ring->producer, 0);
    ls_park_init(&ring->own, 0);
    ring->consumer = &ring->own;
    return LS_OK;
}

void ls_ring_fini(ls_ring *ring)
{
    ls_free(ring->host, ring->slots);
    ring->slots = NULL;
}

void ls_ring_share_consumer(ls_ring *ring, ls_park *park)
{
    ring->consumer = park;
}

static void *slot(const ls_ring *ring, uint64_t position)
{
    return ring->slots + (size_t)(position & (ring->capacity - 1)) * ring->item_size;
}

int ls_ring_try_push_quietly(ls_ring *ring, const void *item)
{
    /* relaxed: the producer itself wrote the count. After it finds the closing bit, the producer
     * reads nothing that the closing thread has written. */
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail & CLOSED)
        return LS_ECLOSED;
    if (tail - ring->head_seen == ring->capacity) {
        /* Pairs with the release in ls_ring_try_pop: the consumer has finished reading the slot. */
        ring->head_seen = atomic_load_explicit(&ring->head, LS_RING_HEAD_ACQUIRE);
        if (tail - ring->head_seen == ring->capacity)
            return LS_EAGAIN;
    }
    memcpy(slot(ring, tail), item, ring->item_size);
    /* Publishes the slot; pairs with the acquire in ls_ring_try_pop. The change is a
     * compare-exchange because it must fail if the ring was closed since the load above; a store
     * would erase the closing bit. */
    if (!atomic_compare_exchange_strong_explicit(&ring->tail, &tail, tail + 1, LS_RING_TAIL_RELEASE,
                                                 memory_order_relaxed))
        return LS_ECLOSED;
    return LS_OK;
}

int ls_ring_try_push(ls_ring *ring, const void *item)
{
    const int status = ls_ring_try_push_quietly(ring, item);
    if (status == LS_OK)
        ls_park_wake(ring->consumer);
    return status;
}

int ls_ring_try_pop(ls_ring *ring, void *item)
{
    /* relaxed: only the consumer writes `head`. */
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head == ring->tail_seen) {
        /* Pairs with the release in ls_ring_try_push: all slots below this count have been written.
         * The count and the closing bit are read together, so "closed and empty" is final. */
        uint64_t tail = atomic_load_explicit(&ring->tail, LS_RING_TAIL_ACQUIRE);
        ring->tail_seen = tail & ~CLOSED;
        if (head == ring->tail_seen)
            return tail & CLOSED ? LS_ECLOSED : LS_EAGAIN;
    }
    memcpy(item, slot(ring, head), ring->item_size);
    /* Returns the slot to the producer; pairs with the acquire in ls_ring_try_push. */
    atomic_store_explicit(&ring->head, head + 1, LS_RING_HEAD_RELEASE);
    ls_park_wake(&ring->producer);
    return LS_OK;
}

/* Arguments and result of an attempt to push or pop. ls_park_until repeats the attempt until its
 * result is not LS_EAGAIN. */
struct attempt {
    ls_ring *const *rings; /* [n] */
    int n;
    const void *in; /* item to push */
    void *out;      /* buffer for the popped item */
    int which;      /* index of the ring that was served last */
    int status;     /* result of the last attempt */
};

static bool pushed(void *arg)
{
    struct attempt *a = arg;
    a->status = ls_ring_try_push(a->rings[0], a->in);
    return a->status != LS_EAGAIN;
}

static bool popped(void *arg)
{
    struct attempt *a = arg;
    int closed = 0;
    for (int i = 1; i <= a->n; i++) {
        int at = (a->which + i) % a->n;
        a->status = ls_ring_try_pop(a->rings[at], a->out);
        if (a->status == LS_OK) {
            a->which = at;
            return true;
        }
        closed += a->status == LS_ECLOSED;
    }
    a->status = closed == a->n ? LS_ECLOSED : LS_EAGAIN;
    return closed == a->n;
}

static bool has_free_slot(void *arg)
{
    struct attempt *a = arg;
    const ls_ring *ring = a->rings[0];
    bool closed = atomic_load_explicit(&ring->tail, memory_order_relaxed) & CLOSED;
    a->status = closed ? LS_ECLOSED : LS_OK;
    return closed || ls_ring_length(ring) < ring->capacity;
}

/* Waits on the producer's side until ready(a) returns true. */
static int producer_waits(bool (*ready)(void *arg), struct attempt *a, uint64_t deadline_ns,
                          ls_error *err)
{
    ls_ring *ring = a->rings[0];
    if (!ready(a) && !ls_park_until(&ring->producer, ready, a, deadline_ns))
        return ls_fail(err, LS_ETIMEDOUT,
                       "the deadline passed while the queue was full (%llu "
                       "items)",
                       (unsigned long long)ring->capacity);
    if (a->status == LS_ECLOSED)
        return ls_fail(err, LS_ECLOSED, "the queue is closed");
    return a->status;
}

int ls_ring_push(ls_ring *ring, const void *item, uint64_t deadline_ns, ls_error *err)
{
    struct attempt a = {.rings = &ring, .n = 1, .in = item};
    return producer_waits(pushed, &a, deadline_ns, err);
}

int ls_ring_wait_slot(ls_ring *ring, uint64_t deadline_ns, ls_error *err)
{
    struct attempt a = {.rings = &ring, .n = 1};
    return producer_waits(has_free_slot, &a, deadline_ns, err);
}

int ls_ring_pop_any(void *item, int *which, ls_ring *const rings[], int n, uint64_t deadline_ns,
                    ls_error *err)
{
    struct attempt a = {.rings = rings, .n = n, .out = item, .which = *which};
    if (!popped(&a) && !ls_park_until(rings[0]->consumer, popped, &a, deadline_ns))
        return ls_fail(err, LS_ETIMEDOUT, "the deadline passed while the queue was empty");
    if (a.status == LS_ECLOSED)
        return ls_fail(err, LS_ECLOSED, "the queue is closed");
    *which = a.which;
    return a.status;
}

void ls_ring_close(ls_ring *ring)
{
    /* Pairs with the acquire in ls_ring_try_pop. This change is a read-modify-write, so it
     * continues the producer's release sequence. Therefore a consumer that reads the value written
     * here also synchronizes with the producer. */
    atomic_fetch_or_explicit(&ring->tail, CLOSED, LS_RING_CLOSE_RELEASE);
    ls_park_wake(ring->consumer);
    ls_park_wake(&ring->producer);
}

size_t ls_ring_length(const ls_ring *ring)
{
    /* `head` is read before `tail`, so that the difference is not negative. Before the consumer
     * stored the value h of `head`, it had read a value t ≥ h of `tail`. The consumer's release
     * store of h synchronizes with this thread's acquire load of `head`. So by coherence the load
     * of `tail` below returns t or a later value. If both counts change between the two loads, the
     * difference can exceed the capacity; the result is limited to the capacity then. */
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed) & ~CLOSED;
    uint64_t length = tail - head;
    return (size_t)(length > ring->capacity ? ring->capacity : length);
}
