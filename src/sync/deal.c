/* SPDX-License-Identifier: MIT */
/* deal.h explains deal, taker, hand, round and gap, and has the proof. */
#include "sync/deal.h"

#include "base/error.h"
#include "base/host.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A claim of an item: changes a gap's word from `*seen` to `now`. If the word has another value,
 * the claim fails and stores that value in `*seen`. The claim is a macro so that a test can replace
 * it by a plain store and check that ThreadSanitizer reports the items that two takers get
 * (tests/sync/weakened_orders.sh). */
#ifndef LS_DEAL_CLAIM
#define LS_DEAL_CLAIM(word, seen, now)                                                             \
    atomic_compare_exchange_weak_explicit(word, seen, now, memory_order_relaxed,                   \
                                          memory_order_relaxed)
#endif

/* The items between the first items of takers i and i + 1. */
typedef struct gap {
    /* Bits 32 … 63 are the round, bits 16 … 31 the number of items taken from the right (high) end,
     * bits 0 … 15 the number of items taken from the left (low) end. */
    alignas(64) _Atomic uint64_t taken;
    int lo, count; /* first item of the gap, and number of its items */
} gap;

struct ls_deal {
    const ls_host *host;
    int takers;
    int *first; /* [takers] */
    gap *gap;   /* [takers − 1] */
};

static int refuse(const int *first, int takers, ls_error *err)
{
    if (takers < 1)
        return ls_fail(err, LS_EINVAL, "a deal among %d takers", takers);
    for (int i = 1; i < takers; i++)
        if (first[i] <= first[i - 1])
            return ls_fail(err, LS_EINVAL, "a deal whose first items are %d and %d", first[i - 1],
                           first[i]);
    if (first[takers - 1] - first[0] >= LS_DEAL_ITEMS_MAX)
        return ls_fail(err, LS_EINVAL, "a deal of %d items", first[takers - 1] - first[0] + 1);
    return LS_OK;
}

int ls_deal_create(ls_deal **out, const int *first, int takers, const ls_host *host, ls_error *err)
{
    *out = NULL;
    int status = refuse(first, takers, err);
    ls_deal *deal = status == LS_OK ? ls_alloc(host, sizeof *deal) : NULL;
    if (status)
        return status;
    if (deal) {
        deal->host = host;
        deal->takers = takers;
        deal->first = ls_alloc_array(host, (size_t)takers, sizeof *deal->first);
        deal->gap = ls_alloc_array(host, (size_t)takers, sizeof *deal->gap);
    }
    if (!deal || !deal->first || !deal->gap) {
        ls_deal_destroy(deal);
        return ls_fail(err, LS_ENOMEM, "out of memory for a deal among %d workers", takers);
    }
    for (int i = 0; i < takers; i++)
        deal->first[i] = first[i];
    for (int i = 0; i + 1 < takers; i++) {
        deal->gap[i].lo = first[i] + 1;
        deal->gap[i].count = first[i + 1] - first[i] - 1;
        atomic_init(&deal->gap[i].taken, 0);
    }
    *out = deal;
    return LS_OK;
}

void ls_deal_destroy(ls_deal *deal)
{
    if (!deal)
        return;
    const ls_host *host = deal->host;
    ls_free(host, deal->first);
    ls_free(host, deal->gap);
    ls_free(host, deal);
}

void ls_deal_join(ls_hand *hand, ls_deal *deal, int taker)
{
    const int first = deal->first[taker];
    *hand = (ls_hand){.deal = deal, .taker = taker, .lo = first, .hi = first};
}

int ls_deal_first(const ls_hand *hand)
{
    return hand->deal->first[hand->taker];
}

void ls_deal_reach(const ls_hand *hand, int *lo, int *hi)
{
    const ls_deal *deal = hand->deal;
    const int t = hand->taker;
    *lo = t > 0 ? deal->first[t - 1] + 1 : deal->first[t];
    *hi = t + 1 < deal->takers ? deal->first[t + 1] : deal->first[t] + 1;
}

void ls_deal_begin(ls_hand *hand)
{
    hand->round++;
    hand->lo = hand->hi = hand->deal->first[hand->taker];
}

static int taken_from_left(uint64_t taken)
{
    return (int)(taken & 0xffff);
}

static int taken_from_right(uint64_t taken)
{
    return (int)(taken >> 16 & 0xffff);
}

/* Returns the state of the gap in `round`, in the format of the gap's word. If the word belongs to
 * an earlier round, no item has been taken in `round` yet. */
static uint64_t taken_in(const gap *g, uint32_t round)
{
    const uint64_t taken = atomic_load_explicit(&g->taken, memory_order_relaxed);
    return (uint32_t)(taken >> 32) == round ? taken : (uint64_t)round << 32;
}

/* Returns the number of items that the gap still contained when the word was read. */
static int left_in(const gap *g, uint32_t round)
{
    const uint64_t taken = taken_in(g, round);
    return g->count - taken_from_left(taken) - taken_from_right(taken);
}

/* Takes an item from one end of a gap. Returns the item, or −1 if the gap is empty. */
static int take_from(gap *g, uint32_t round, bool right_end)
{
    uint64_t seen = atomic_load_explicit(&g->taken, memory_order_relaxed), now;
    do {
        now = (uint32_t)(seen >> 32) == round ? seen : (uint64_t)round << 32;
        if (taken_from_left(now) + taken_from_right(now) == g->count)
            return -1;
        now += right_end ? UINT64_C(1) << 16 : 1;
    } while (!LS_DEAL_CLAIM(&g->taken, &seen, now));
    return right_end ? g->lo + g->count - taken_from_right(now) : g->lo + taken_from_left(now) - 1;
}

static int put(ls_hand *hand, int item)
{
    if (item < hand->lo)
        hand->lo = item;
    else
        hand->hi = item + 1;
    return item;
}

int ls_deal_take(ls_hand *hand)
{
    const ls_deal *deal = hand->deal;
    const uint32_t round = hand->round;
    if (hand->lo == hand->hi)
        return put(hand, deal->first[hand->taker]);
    gap *left = hand->taker > 0 ? &deal->gap[hand->taker - 1] : NULL;
    gap *right = hand->taker + 1 < deal->takers ? &deal->gap[hand->taker] : NULL;
    const int on_left = left ? left_in(left, round) : 0;
    const int on_right = right ? left_in(right, round) : 0;
    /* Tries the gap with more items first. If that gap has become empty since its items were
     * counted, tries the other gap. */
    const bool left_first = on_left > on_right;
    for (int k = 0; k < 2; k++) {
        const bool from_left = left_first == (k == 0);
        gap *g = from_left ? left : right;
        const int item = g ? take_from(g, round, from_left) : -1;
        if (item >= 0)
            return put(hand, item);
    }
    return -1;
}
