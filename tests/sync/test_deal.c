/* SPDX-License-Identifier: MIT */
/* Tests dealing (sync/deal.h), which distributes the items of a round to threads while they work.
 * Every item is dealt exactly once in a round, the items of a thread are adjacent, and a slow
 * thread gets few items. */
#include "base/rng.h"
#include "runner.h"
#include "sync/barrier.h"
#include "sync/deal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TAKERS_MOST = 6, ITEMS_MOST = 24 };

static uint32_t draw(uint32_t *state, uint32_t below)
{
    uint32_t words[4];
    ls_rng_words(words, 36, 1, 0, (*state)++);
    return words[0] % below;
}

/* Draws an ascending list of first items, of which the first is 0. Returns the number of all
 * items. */
static int draw_first(int first[TAKERS_MOST], int takers, uint32_t *state)
{
    first[0] = 0;
    for (int i = 1; i < takers; i++)
        first[i] = first[i - 1] + 1 + (int)draw(state, (ITEMS_MOST - TAKERS_MOST) / TAKERS_MOST);
    return first[takers - 1] + 1;
}

/* Runs one round in one thread. In each turn a random taker takes an item. A taker that gets no
 * item takes no further part in the round. */
static void deal_round(ls_hand *hand, int takers, int items, uint32_t *state)
{
    int owner[ITEMS_MOST], out = 0, dealt = 0;
    bool is_out[TAKERS_MOST] = {false};
    memset(owner, -1, sizeof owner);
    for (int i = 0; i < takers; i++)
        ls_deal_begin(&hand[i]);
    while (out < takers) {
        const int t = (int)draw(state, (uint32_t)takers);
        const ls_hand before = hand[t];
        const int item = is_out[t] ? -1 : ls_deal_take(&hand[t]);
        if (item < 0) {
            out += !is_out[t];
            is_out[t] = true;
            continue;
        }
        assert_in_range(item, 0, items - 1);
        assert_int_equal(owner[item], -1);
        owner[item] = t;
        dealt++;
        /* the item must be next to the items that the taker has */
        assert_true(before.lo == before.hi || item == before.lo - 1 || item == before.hi);
        assert_true(hand[t].lo <= item && item < hand[t].hi);
    }
    assert_int_equal(dealt, items);
    for (int t = 0, at = 0; t < takers; at = hand[t++].hi)
        assert_int_equal(hand[t].lo, at);
}

static void every_item_is_dealt_once_whoever_comes(void **state)
{
    uint32_t seed = 0;
    (void)state;
    for (int k = 0; k < 300; k++) {
        int first[TAKERS_MOST];
        ls_hand hand[TAKERS_MOST];
        ls_deal *deal;
        ls_error err;
        const int takers = 1 + (int)draw(&seed, TAKERS_MOST);
        const int items = draw_first(first, takers, &seed);
        assert_int_equal(ls_deal_create(&deal, first, takers, NULL, &err), LS_OK);
        for (int t = 0; t < takers; t++) {
            int lo, hi;
            ls_deal_join(&hand[t], deal, t);
            ls_deal_reach(&hand[t], &lo, &hi);
            assert_int_equal(ls_deal_first(&hand[t]), first[t]);
            assert_int_equal(lo, t > 0 ? first[t - 1] + 1 : 0);
            assert_int_equal(hi, t + 1 < takers ? first[t + 1] : items);
        }
        for (int round = 0; round < 5; round++)
            deal_round(hand, takers, items, &seed);
        ls_deal_destroy(deal);
    }
}

/* A taker that takes only its first item until the other takers have taken all other items ends
 * with one item. */
static void a_taker_that_waits_leaves_its_neighbours_the_rest(void **state)
{
    static const int first[] = {0, 3, 7};
    ls_hand hand[3];
    ls_deal *deal;
    (void)state;
    assert_int_equal(ls_deal_create(&deal, first, 3, NULL, NULL), LS_OK);
    for (int slow = 0; slow < 3; slow++) {
        for (int t = 0; t < 3; t++) {
            ls_deal_join(&hand[t], deal, t);
            hand[t].round = (uint32_t)slow;
            ls_deal_begin(&hand[t]);
            assert_int_equal(ls_deal_take(&hand[t]), first[t]);
        }
        for (int t = 0; t < 3; t++)
            while (t != slow && ls_deal_take(&hand[t]) >= 0)
                continue;
        assert_int_equal(ls_deal_take(&hand[slow]), -1);
        assert_int_equal(hand[slow].hi - hand[slow].lo, 1);
    }
    ls_deal_destroy(deal);
}

/* Takers that take items in turns get equal shares. */
static void equal_takers_get_equal_shares(void **state)
{
    static const int first[] = {0, 7};
    ls_hand hand[2];
    ls_deal *deal;
    (void)state;
    assert_int_equal(ls_deal_create(&deal, first, 2, NULL, NULL), LS_OK);
    for (int t = 0; t < 2; t++) {
        ls_deal_join(&hand[t], deal, t);
        ls_deal_begin(&hand[t]);
    }
    for (int i = 0; i < 8; i++)
        assert_true(ls_deal_take(&hand[i % 2]) >= 0);
    assert_int_equal(hand[0].hi, 4);
    assert_int_equal(hand[1].lo, 4);
    ls_deal_destroy(deal);
}

static void a_deal_that_makes_no_sense_is_refused(void **state)
{
    static const int bad[][2] = {{0, 0}, {3, 1}, {0, LS_DEAL_ITEMS_MAX}};
    ls_deal *deal;
    ls_error err;
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_deal_create(&deal, bad[i], 2, NULL, &err), LS_EINVAL);
        assert_null(deal);
    }
    assert_int_equal(ls_deal_create(&deal, bad[0], 0, NULL, &err), LS_EINVAL);
    ls_deal_destroy(NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 400, LAST = 15 };

static struct {
    ls_deal *deal;
    ls_barrier barrier;
    int count[LAST + 1]; /* plain memory: only the thread that gets an item writes the item's
                          * count */
} shared;

static void *take_many(void *arg)
{
    const int taker = *(const int *)arg;
    ls_hand hand;
    ls_deal_join(&hand, shared.deal, taker);
    for (int round = 1; round <= ROUNDS; round++) {
        int item, wrong = 0;
        ls_deal_begin(&hand);
        while ((item = ls_deal_take(&hand)) >= 0)
            shared.count[item]++;
        if (ls_barrier_wait(&shared.barrier, taker, UINT64_MAX, NULL) != LS_OK)
            return arg;
        for (int i = 0; i <= LAST; i++)
            wrong += shared.count[i] != round;
        if (wrong || ls_barrier_wait(&shared.barrier, taker, UINT64_MAX, NULL) != LS_OK)
            return arg;
    }
    return NULL;
}

static void threads_deal_every_item_once(void **state)
{
    static const int first[THREADS] = {0, 6, LAST};
    int taker[THREADS];
    pthread_t thread[THREADS];
    (void)state;
    assert_int_equal(ls_deal_create(&shared.deal, first, THREADS, NULL, NULL), LS_OK);
    assert_int_equal(ls_barrier_init(&shared.barrier, NULL, THREADS, 0, NULL), LS_OK);
    for (int t = 0; t < THREADS; t++) {
        taker[t] = t;
        assert_int_equal(pthread_create(&thread[t], NULL, take_many, &taker[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        void *failed;
        pthread_join(thread[t], &failed);
        assert_null(failed);
    }
    ls_barrier_fini(&shared.barrier);
    ls_deal_destroy(shared.deal);
}

LS_TESTS(sync_deal, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_dealt_once_whoever_comes),
        cmocka_unit_test(a_taker_that_waits_leaves_its_neighbours_the_rest),
        cmocka_unit_test(equal_takers_get_equal_shares),
        cmocka_unit_test(a_deal_that_makes_no_sense_is_refused),
        cmocka_unit_test(threads_deal_every_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
