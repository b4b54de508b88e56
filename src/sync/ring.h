/* A bounded queue of fixed-size items between one producer thread and one consumer thread.
 *
 *     ls_ring ring;
 *     ls_ring_init(&ring, host, sizeof(struct job), 64, &err);
 *     ls_ring_push(&ring, &job, UINT64_MAX, &err);        // the producer
 *     ls_ring_try_pop(&ring, &job);                       // the consumer
 *     ls_ring_close(&ring);                               // any thread
 *     ls_ring_fini(&ring);                                // when both sides have left
 *
 * Items are copied in and out. Trying to push or pop takes no lock and no system call unless the
 * other side is asleep; pushing and popping with a deadline park.
 *
 * Memory order, in one paragraph: `tail` counts items pushed and is advanced by the producer
 * alone, `head` counts items popped and is advanced by the consumer alone. The producer writes a
 * slot, then releases `tail`; the consumer acquires `tail`, then reads the slot. The consumer
 * reads the slot, then releases `head`; the producer acquires `head`, then overwrites the slot.
 * So every access to a slot by one side happens before the next access by the other. The closing
 * bit lives in `tail` as well, and is set with a release: an item is either pushed before the
 * close, and will be delivered, or the push fails. Nothing relies on an order between `head` and
 * `tail` themselves.
 *
 * Each side keeps the other's index as it last saw it and reads the shared one again only when the
 * old value says full (or empty), so that the two cache lines travel rarely.
 */
#ifndef SYNC_RING_H
#define SYNC_RING_H

#include "sync/park.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdalign.h>
#include <stddef.h>

/* The fields are the ring's own business. */
typedef struct ls_ring {
    /* Frozen after init. */
    alignas(64) unsigned char *slots;
    size_t item_size;
    uint64_t capacity; /* a power of two */
    const ls_host *host;
    ls_park *consumer; /* where the consumer sleeps: `own`, or a word shared by several rings */
    /* The producer's line. */
    alignas(64) _Atomic uint64_t tail; /* items pushed; the top bit: closed */
    uint64_t head_seen;
    /* The consumer's line. */
    alignas(64) _Atomic uint64_t head; /* items popped */
    uint64_t tail_seen;
    /* Touched when a side sleeps or looks whether the other does. */
    alignas(64) ls_park producer;
    alignas(64) ls_park own;
} ls_ring;

/* A ring for `capacity` items (rounded up to a power of two) of `item_size` bytes each; both are at
 * least 1. `host` may be NULL. Waiting parks at once.
 * Errors: LS_EINVAL, LS_ENOMEM. */
int ls_ring_init(ls_ring *ring, const ls_host *host, size_t item_size, size_t capacity,
                 ls_error *err);

/* Frees the slots. Neither side may be inside a call. A zeroed ring is allowed. */
void ls_ring_fini(ls_ring *ring);

/* Before the first use: makes the consumer sleep on `park`, which outlives the ring, in place of a
 * word of the ring's own. Rings with the same consumer share one word, and ls_ring_pop_any then
 * waits for all of them at once. */
void ls_ring_share_consumer(ls_ring *ring, ls_park *park);

/* Producer. Copies the item in. LS_OK, LS_EAGAIN (full) or LS_ECLOSED. */
int ls_ring_try_push(ls_ring *ring, const void *item);

/* The same, but wakes no consumer that sleeps: one that is awake may see the item, all others with the next one that is
 * pushed otherwise, which has to follow. */
int ls_ring_try_push_quietly(ls_ring *ring, const void *item);

/* Consumer. Copies the oldest item out. LS_OK, LS_EAGAIN (empty), or LS_ECLOSED once the ring is
 * closed and every item has been popped. */
int ls_ring_try_pop(ls_ring *ring, void *item);

/* Producer. As ls_ring_try_push, but waits for room until `deadline_ns` (ls_now_ns time,
 * UINT64_MAX: never). Errors: LS_ETIMEDOUT, LS_ECLOSED (also when closed while waiting). */
int ls_ring_push(ls_ring *ring, const void *item, uint64_t deadline_ns, ls_error *err);

/* Producer. Waits until a push would find room, which stays so until the producer pushes. Errors:
 * as ls_ring_push. */
int ls_ring_wait_room(ls_ring *ring, uint64_t deadline_ns, ls_error *err);

/* The consumer of `n` ≥ 1 rings that share one park word: pops an item from any of them, waiting
 * until `deadline_ns`. `*which` is the index last served on entry (−1 at first) and the index of
 * the item's ring on return; the search starts behind it, so that no ring starves. A ring that is
 * closed and empty is passed over. All rings have the same item size.
 * Errors: LS_ETIMEDOUT, LS_ECLOSED (all of them closed and empty). */
int ls_ring_pop_any(void *item, int *which, ls_ring *const rings[], int n, uint64_t deadline_ns,
                    ls_error *err);

/* Any thread, any number of times. Pushes fail from now on; pops deliver what is left, then fail.
 * Wakes both sides. What the first caller did before is visible to the consumer that finds the ring
 * closed. */
void ls_ring_close(ls_ring *ring);

/* Items in the ring. Exact on the producer's or the consumer's thread while the other side rests;
 * otherwise a value that was true a moment ago. Any thread. */
size_t ls_ring_length(const ls_ring *ring);

#endif
