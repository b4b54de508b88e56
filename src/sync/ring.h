/* SPDX-License-Identifier: MIT */
/* A bounded queue of fixed-size items between one producer thread and one consumer thread.
 *
 *     ls_ring ring;
 *     ls_ring_init(&ring, host, sizeof(struct job), 64, &err);
 *     ls_ring_push(&ring, &job, UINT64_MAX, &err);        // the producer
 *     ls_ring_try_pop(&ring, &job);                       // the consumer
 *     ls_ring_close(&ring);                               // any thread
 *     ls_ring_fini(&ring);                                // when no thread uses the ring any more
 *
 * Items are copied in and out. ls_ring_try_push and ls_ring_try_pop take no lock, and make no
 * system call unless the other side is asleep. The functions with a deadline put the thread to
 * sleep on a park word (park.h).
 *
 * Memory order. `tail` is the number of items pushed, and only the producer increments it. `head`
 * is the number of items popped, and only the consumer changes it. Item i is in slot i mod
 * capacity.
 *
 * - From producer to consumer: the producer writes the slot of item i, then sets `tail` to i + 1
 *   with release order. The consumer reads that slot only after an acquire load of `tail` has
 *   returned more than i. The change of `tail` to i + 1 heads a release sequence. All later changes
 *   of `tail` (increments, and the setting of the closing bit) are read-modify-writes, so they
 *   belong to this sequence. The load returns a value of this sequence, so it synchronizes with the
 *   change to i + 1. Therefore the write of the slot happens before the read.
 * - From consumer to producer: the consumer reads the slot of item i, then stores i + 1 to `head`
 *   with release order. The producer overwrites that slot, with item i + capacity, only after an
 *   acquire load of `head` has returned at least i + 1. The load reads that store or a later store
 *   of the consumer. The consumer's read is sequenced before each of these stores, so the read of
 *   the slot happens before the write.
 * - Closing: the closing bit is the top bit of `tail`. An item that is pushed before the first
 *   close will be delivered. A push after the first close fails. Each close sets the bit with
 *   release order. Only closes modify `tail` after the first close, and each close is a
 *   read-modify-write. If the consumer's acquire load finds the bit set, some close K has written
 *   the value that was loaded. This value belongs to the release sequence headed by K, and to the
 *   release sequence headed by each close before K. So the load synchronizes with K and with every
 *   close before K: what the threads of these closes did before their closes happens before what
 *   the consumer does next.
 *
 * The first two proofs each concern one variable: no order is needed between modifications of
 * `head` and modifications of `tail`.
 *
 * The producer keeps a copy of the value that it last read from `head`, and reads `head` again only
 * if the ring is full according to that copy. The consumer keeps a copy of `tail`, and reads `tail`
 * again only if the ring is empty according to that copy. So the cache lines of `head` and `tail`
 * rarely move between CPUs. */
#ifndef SYNC_RING_H
#define SYNC_RING_H

#include "sync/park.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdalign.h>
#include <stddef.h>

/* A ring. Only this module accesses the fields. */
typedef struct ls_ring {
    /* Constant after init. */
    alignas(64) unsigned char *slots; /* [capacity][item_size] */
    size_t item_size;
    uint64_t capacity; /* a power of two */
    const ls_host *host;
    /* the word on which the consumer sleeps: the field `own`, or a word that several rings share */
    ls_park *consumer;
    /* The producer's cache line. */
    alignas(64) _Atomic uint64_t tail; /* number of items pushed; top bit: the ring is closed */
    uint64_t head_seen;                /* last value that the producer read from `head` */
    /* The consumer's cache line. */
    alignas(64) _Atomic uint64_t head; /* number of items popped */
    uint64_t tail_seen;                /* last value that the consumer read from `tail` */
    /* Accessed when a side goes to sleep, or checks whether the other side sleeps. */
    alignas(64) ls_park producer; /* park word of the producer */
    alignas(64) ls_park own;      /* the ring's own park word for the consumer, unless
                                   * ls_ring_share_consumer has set another */
} ls_ring;

/* Initialises a ring for `capacity` items of `item_size` bytes each. The capacity is rounded up to
 * a power of two; both must be at least 1. `host` may be NULL. A thread that waits on the ring goes
 * to sleep at once, without spinning first.
 * Errors: LS_EINVAL, LS_ENOMEM. */
int ls_ring_init(ls_ring *ring, const ls_host *host, size_t item_size, size_t capacity,
                 ls_error *err);

/* Frees the slots. Neither side may be inside a call. A zeroed ring is allowed. */
void ls_ring_fini(ls_ring *ring);

/* Makes the consumer sleep on `park`, which must outlive the ring, instead of a word of the ring.
 * If several rings with the same consumer share a park word, ls_ring_pop_any can wait for all of
 * them at once. It must be called before the first use of the ring. */
void ls_ring_share_consumer(ls_ring *ring, ls_park *park);

/* Copies an item into the ring and wakes the consumer if it sleeps. Returns LS_OK, LS_EAGAIN (the
 * ring is full) or LS_ECLOSED. Called by the producer. */
int ls_ring_try_push(ls_ring *ring, const void *item);

/* Does the same as ls_ring_try_push, but does not wake the consumer. A consumer that is awake can
 * see the item at once. A sleeping consumer sees the item only after the next ls_ring_try_push or
 * ls_ring_push, so the producer must call one of these functions later. Called by the producer. */
int ls_ring_try_push_quietly(ls_ring *ring, const void *item);

/* Copies the oldest item out of the ring. Returns LS_OK, LS_EAGAIN (the ring is empty), or
 * LS_ECLOSED (the ring is closed and every item has been popped). Called by the consumer. */
int ls_ring_try_pop(ls_ring *ring, void *item);

/* Pushes an item as ls_ring_try_push does, but waits for a free slot until `deadline_ns` (in the
 * time of ls_now_ns; UINT64_MAX: no deadline). Errors: LS_ETIMEDOUT, LS_ECLOSED (also if the ring
 * is closed during the wait). Called by the producer. */
int ls_ring_push(ls_ring *ring, const void *item, uint64_t deadline_ns, ls_error *err);

/* Waits until the ring has a free slot. Since only the producer fills the ring, the slot stays free
 * until the producer pushes. Errors: as ls_ring_push. Called by the producer. */
int ls_ring_wait_slot(ls_ring *ring, uint64_t deadline_ns, ls_error *err);

/* Pops an item from any of `n` ≥ 1 rings that share one park word and have the same item size. If
 * all rings are empty, waits for an item until `deadline_ns`. On entry *which is the index of the
 * ring from which the last item was popped, or −1 before the first call; on return it is the index
 * of the item's ring. The search starts with the ring after *which, so no ring starves. Rings that
 * are closed and empty are skipped.
 * Errors: LS_ETIMEDOUT, LS_ECLOSED (all rings are closed and empty). Called by the consumer of all
 * rings. */
int ls_ring_pop_any(void *item, int *which, ls_ring *const rings[], int n, uint64_t deadline_ns,
                    ls_error *err);

/* Closes the ring and wakes both sides. Later pushes fail; pops deliver the remaining items and
 * then fail. Several threads may close the ring. A consumer that finds the ring closed sees
 * everything that the thread of the first close did before that close. The consumer also sees what
 * the thread of a later close did before that close, if the value that the consumer read from
 * `tail` was written by that close or by a close after it. Any thread, any number of times. */
void ls_ring_close(ls_ring *ring);

/* Returns the number of items in the ring. The number is exact on the producer's or the consumer's
 * thread while the other side does nothing; at other times it can be outdated when the caller uses
 * it. Any thread. */
size_t ls_ring_length(const ls_ring *ring);

#endif
