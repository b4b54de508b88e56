/* SPDX-License-Identifier: MIT */
/* Tests the ring (a bounded queue between two threads): order, bounds, closing, deadlines, and data
 * that passes between threads. */
#include "sync/ring.h"

#include "base/clock.h"
#include "runner.h"
#include "times.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

static int pop(ls_ring *ring, void *item, uint64_t deadline_ns, ls_error *err)
{
    int which = -1;
    return ls_ring_pop_any(item, &which, &ring, 1, deadline_ns, err);
}

static void open_ring(ls_ring *ring, size_t item_size, size_t capacity)
{
    assert_int_equal(ls_ring_init(ring, NULL, item_size, capacity, NULL), LS_OK);
}

static void ring_delivers_items_in_order(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(int), 4);
    int out, next = 0;
    for (int i = 0; i < 100; i += 3) {
        for (int k = i; k < i + 3; k++)
            assert_int_equal(ls_ring_try_push(&r, &k), LS_OK);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(ls_ring_try_pop(&r, &out), LS_OK);
            assert_int_equal(out, next++);
        }
    }
    ls_ring_fini(&r);
}

static void ring_holds_its_capacity_and_no_more(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, 3, 5); /* the capacity is rounded up to 8; the items have an odd size */
    char item[3] = "ab";
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ls_ring_length(&r), i);
        assert_int_equal(ls_ring_try_push(&r, item), LS_OK);
    }
    assert_int_equal(ls_ring_length(&r), 8);
    assert_int_equal(ls_ring_try_push(&r, item), LS_EAGAIN);
    memset(item, 0, sizeof item);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ls_ring_try_pop(&r, item), LS_OK);
        assert_string_equal(item, "ab");
    }
    assert_int_equal(ls_ring_try_pop(&r, item), LS_EAGAIN);
    ls_ring_fini(&r);
}

/* A consumer that has announced itself sleeps until an item is pushed by a function that wakes
 * it. */
static void a_quiet_push_wakes_nobody(void **state)
{
    (void)state;
    ls_ring r;
    int item = 7, out;
    open_ring(&r, sizeof item, 4);
    ls_park_prepare(r.consumer);
    assert_int_equal(ls_ring_try_push_quietly(&r, &item), LS_OK);
    assert_true(ls_park_announced(r.consumer));
    assert_int_equal(ls_ring_length(&r), 1);
    assert_int_equal(ls_ring_try_push(&r, &item), LS_OK);
    assert_false(ls_park_announced(r.consumer));
    assert_int_equal(ls_ring_try_pop(&r, &out), LS_OK);
    assert_int_equal(out, 7);
    ls_ring_close(&r);
    assert_int_equal(ls_ring_try_push_quietly(&r, &item), LS_ECLOSED);
    ls_ring_fini(&r);
}

enum { QUIET = 3 };

typedef struct quiet_work {
    ls_ring ring;
    int *value; /* an item is a pointer; the value that it points to is plain memory */
    unsigned rounds;
} quiet_work;

static void *push_in_fours(void *arg)
{
    quiet_work *q = arg;
    for (unsigned i = 0; i < q->rounds * (QUIET + 1); i++) {
        q->value[i] = (int)i;
        int *item = &q->value[i];
        if (i % (QUIET + 1) == QUIET || ls_ring_try_push_quietly(&q->ring, &item) != LS_OK)
            ls_ring_push(&q->ring, &item, UINT64_MAX, NULL);
    }
    return NULL;
}

/* Pushes items as a worker does that reports short steps: only the last of each four pushes wakes
 * the consumer. No item is lost, and the consumer does not sleep for ever. */
static void items_pushed_quietly_come_with_the_next_one(void **state)
{
    (void)state;
    quiet_work q = {.rounds = ls_tests_rounds(2000, 200000)};
    pthread_t thread;
    q.value = malloc(q.rounds * (QUIET + 1) * sizeof *q.value);
    assert_non_null(q.value);
    open_ring(&q.ring, sizeof(int *), 8);
    assert_int_equal(pthread_create(&thread, NULL, push_in_fours, &q), 0);
    for (unsigned i = 0; i < q.rounds * (QUIET + 1); i++) {
        int *item;
        assert_int_equal(pop(&q.ring, &item, UINT64_MAX, NULL), LS_OK);
        assert_int_equal(*item, (int)i);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    ls_ring_fini(&q.ring);
    free(q.value);
}

static void ring_of_one_item_works(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(int), 1);
    for (int i = 0; i < 5; i++) {
        int out = -1;
        assert_int_equal(ls_ring_try_push(&r, &i), LS_OK);
        assert_int_equal(ls_ring_try_push(&r, &i), LS_EAGAIN);
        assert_int_equal(ls_ring_try_pop(&r, &out), LS_OK);
        assert_int_equal(out, i);
    }
    ls_ring_fini(&r);
}

static void ring_refuses_absurd_sizes(void **state)
{
    (void)state;
    ls_ring r;
    ls_error err;
    assert_int_equal(ls_ring_init(&r, NULL, 0, 4, &err), LS_EINVAL);
    assert_int_equal(ls_ring_init(&r, NULL, 8, 0, &err), LS_EINVAL);
    assert_int_equal(ls_ring_init(&r, NULL, 8, SIZE_MAX, &err), LS_EINVAL);
    assert_string_equal(err.text, "a ring of 18446744073709551615 items of 8 bytes: expected 1 to "
                                  "2^30 items of at least 1 byte");
    assert_int_equal(ls_ring_init(&r, NULL, SIZE_MAX / 2, 1024, &err), LS_ENOMEM);
    ls_ring_fini(&r);
}

static void closed_ring_delivers_the_rest_then_says_so(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(int), 4);
    ls_error err;
    int item = 7, out = 0;
    assert_int_equal(ls_ring_try_push(&r, &item), LS_OK);
    ls_ring_close(&r);
    ls_ring_close(&r);
    assert_int_equal(ls_ring_length(&r), 1);
    assert_int_equal(ls_ring_try_push(&r, &item), LS_ECLOSED);
    assert_int_equal(ls_ring_push(&r, &item, UINT64_MAX, &err), LS_ECLOSED);
    assert_int_equal(pop(&r, &out, UINT64_MAX, &err), LS_OK);
    assert_int_equal(out, 7);
    assert_int_equal(pop(&r, &out, UINT64_MAX, &err), LS_ECLOSED);
    assert_string_equal(err.text, "the queue is closed");
    assert_int_equal(ls_ring_try_pop(&r, &out), LS_ECLOSED);
    ls_ring_fini(&r);
}

static void deadlines_end_push_and_pop(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(int), 1);
    ls_error err;
    int item = 1;
    uint64_t deadline = ls_deadline_ns(20 * MS);
    assert_int_equal(pop(&r, &item, deadline, &err), LS_ETIMEDOUT);
    assert_true(ls_now_ns() >= deadline);
    assert_int_equal(ls_ring_push(&r, &item, 0, &err), LS_OK);
    deadline = ls_deadline_ns(20 * MS);
    assert_int_equal(ls_ring_push(&r, &item, deadline, &err), LS_ETIMEDOUT);
    assert_int_equal(ls_ring_wait_slot(&r, deadline, &err), LS_ETIMEDOUT);
    assert_true(ls_now_ns() >= deadline);
    assert_string_equal(err.text, "the deadline passed while the queue was full (1 items)");
    ls_ring_fini(&r);
}

/* A payload larger than a word. All its numbers are computed from one number, so that a torn or
 * early read is found. */
struct payload {
    uint64_t words[12];
};

static void fill(struct payload *p, uint64_t n)
{
    for (uint64_t i = 0; i < 12; i++)
        p->words[i] = n * 12 + i;
}

static int is_filled(const struct payload *p, uint64_t n)
{
    for (uint64_t i = 0; i < 12; i++)
        if (p->words[i] != n * 12 + i)
            return 0;
    return 1;
}

struct stream {
    ls_ring *ring;
    uint64_t items;
    int blocking;
    int wrong;
    uint64_t delivered;
};

static void *produce(void *arg)
{
    struct stream *s = arg;
    struct payload p;
    for (uint64_t n = 0; n < s->items; n++) {
        fill(&p, n);
        int rc = LS_EAGAIN;
        while (!s->blocking && rc == LS_EAGAIN)
            if ((rc = ls_ring_try_push(s->ring, &p)) == LS_EAGAIN)
                sched_yield();
        if (s->blocking)
            rc = ls_ring_push(s->ring, &p, ls_deadline_ns(20000 * MS), NULL);
        s->wrong += rc != LS_OK;
    }
    ls_ring_close(s->ring);
    return NULL;
}

static void consume(struct stream *s)
{
    struct payload p;
    for (;;) {
        int rc = s->blocking ? pop(s->ring, &p, ls_deadline_ns(20000 * MS), NULL)
                             : ls_ring_try_pop(s->ring, &p);
        if (rc == LS_EAGAIN) {
            sched_yield();
            continue;
        }
        if (rc != LS_OK) {
            s->wrong += rc != LS_ECLOSED;
            return;
        }
        s->wrong += !is_filled(&p, s->delivered++);
    }
}

static void stream_through(size_t capacity, int blocking, unsigned spins, uint64_t items)
{
    ls_ring r;
    open_ring(&r, sizeof(struct payload), capacity);
    r.producer.spins = r.own.spins = spins;
    struct stream in = {.ring = &r, .items = items, .blocking = blocking}, out = in;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, produce, &in), 0);
    consume(&out);
    pthread_join(t, NULL);
    assert_int_equal(in.wrong, 0);
    assert_int_equal(out.wrong, 0);
    assert_int_equal(out.delivered, items);
    ls_ring_fini(&r);
}

static void payloads_cross_threads_whole_and_in_order(void **state)
{
    (void)state;
    const size_t capacities[] = {1, 2, 64};
    const uint64_t items = ls_tests_rounds(3000, 30000);
    for (int i = 0; i < 3; i++) {
        stream_through(capacities[i], 0, 0, items);
        stream_through(capacities[i], 1, 0, items);
        stream_through(capacities[i], 1, 50, items);
    }
}

/* A third thread closes the ring at a random moment. Exactly the pushed items are delivered, and
 * both sides return. */
static void *produce_until_closed(void *arg)
{
    struct stream *s = arg;
    struct payload p;
    for (;; s->delivered++) {
        fill(&p, s->delivered);
        int rc = ls_ring_push(s->ring, &p, ls_deadline_ns(20000 * MS), NULL);
        if (rc == LS_OK)
            continue;
        s->wrong += rc != LS_ECLOSED;
        return NULL;
    }
}

static void *close_soon(void *arg)
{
    struct stream *s = arg;
    for (volatile uint64_t i = 0; i < s->items; i++)
        ;
    ls_ring_close(s->ring);
    return NULL;
}

static void a_close_at_any_moment_loses_nothing(void **state)
{
    (void)state;
    unsigned seed = 1;
    const unsigned rounds = ls_tests_rounds(200, 1000);
    for (unsigned round = 0; round < rounds; round++) {
        seed = seed * 1664525u + 1013904223u;
        ls_ring r;
        open_ring(&r, sizeof(struct payload), 1u << (round % 4));
        struct stream in = {.ring = &r, .blocking = 1}, out = in;
        struct stream closer = {.ring = &r, .items = seed >> (12 + round % 8)};
        pthread_t producer, third;
        assert_int_equal(pthread_create(&producer, NULL, produce_until_closed, &in), 0);
        assert_int_equal(pthread_create(&third, NULL, close_soon, &closer), 0);
        consume(&out);
        pthread_join(producer, NULL);
        pthread_join(third, NULL);
        assert_int_equal(in.wrong, 0);
        assert_int_equal(out.wrong, 0);
        assert_int_equal(out.delivered, in.delivered);
        ls_ring_fini(&r);
    }
}

/* Items so large that a push spends most of its time copying. Therefore the close usually comes in
 * the middle of a push. */
#define LARGE (64 * 1024)

static void *push_large_until_closed(void *arg)
{
    static unsigned char item[LARGE];
    struct stream *s = arg;
    uint64_t deadline = ls_deadline_ns(5000 * MS);
    int rc;
    while ((rc = ls_ring_try_push(s->ring, item)) != LS_ECLOSED && ls_now_ns() < deadline)
        s->delivered += rc == LS_OK;
    s->wrong = rc != LS_ECLOSED;
    return NULL;
}

static void a_close_during_a_push_is_not_forgotten(void **state)
{
    (void)state;
    static unsigned char item[LARGE];
    const unsigned rounds = ls_tests_rounds(60, 300);
    for (unsigned round = 0; round < rounds; round++) {
        ls_ring r;
        open_ring(&r, LARGE, 16);
        struct stream in = {.ring = &r};
        uint64_t delivered = 0;
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, push_large_until_closed, &in), 0);
        while (ls_ring_length(&r) < 1 + round % 8)
            sched_yield();
        ls_ring_close(&r);
        pthread_join(t, NULL);
        while (ls_ring_try_pop(&r, item) == LS_OK)
            delivered++;
        assert_int_equal(in.wrong, 0);
        assert_int_equal(delivered, in.delivered);
        assert_int_equal(ls_ring_try_pop(&r, item), LS_ECLOSED);
        ls_ring_fini(&r);
    }
}

static void *pop_one(void *arg)
{
    struct stream *s = arg;
    struct payload p;
    s->wrong = pop(s->ring, &p, UINT64_MAX, NULL);
    return NULL;
}

static void a_close_wakes_a_sleeping_consumer(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(struct payload), 2);
    struct stream s = {.ring = &r};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, pop_one, &s), 0);
    nap(20);
    ls_ring_close(&r);
    pthread_join(t, NULL);
    assert_int_equal(s.wrong, LS_ECLOSED);
    ls_ring_fini(&r);
}

static void a_close_wakes_a_sleeping_producer(void **state)
{
    (void)state;
    ls_ring r;
    open_ring(&r, sizeof(struct payload), 2);
    struct stream s = {.ring = &r};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, produce_until_closed, &s), 0);
    nap(20);
    ls_ring_close(&r);
    pthread_join(t, NULL);
    assert_int_equal(s.wrong, 0);
    assert_int_equal(s.delivered, 2);
    ls_ring_fini(&r);
}

#define RINGS 4

static void one_consumer_serves_several_rings(void **state)
{
    (void)state;
    static ls_ring rings[RINGS];
    ls_ring *all[RINGS];
    struct stream in[RINGS];
    pthread_t t[RINGS];
    ls_park park;
    const unsigned items = ls_tests_rounds(1000, 5000);
    ls_park_init(&park, 0);
    for (int i = 0; i < RINGS; i++) {
        assert_int_equal(ls_ring_init(&rings[i], NULL, sizeof(struct payload), 2, NULL), LS_OK);
        ls_ring_share_consumer(&rings[i], &park);
        all[i] = &rings[i];
        in[i] = (struct stream){.ring = all[i], .items = items * (unsigned)(i + 1), .blocking = 1};
    }
    for (int i = 0; i < RINGS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, produce, &in[i]), 0);
    uint64_t seen[RINGS] = {0};
    struct payload p;
    int which = -1, rc, wrong = 0;
    while ((rc = ls_ring_pop_any(&p, &which, all, RINGS, ls_deadline_ns(20000 * MS), NULL)) ==
           LS_OK)
        wrong += !is_filled(&p, seen[which]++);
    assert_int_equal(rc, LS_ECLOSED);
    assert_int_equal(wrong, 0);
    for (int i = 0; i < RINGS; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(in[i].wrong, 0);
        assert_int_equal(seen[i], in[i].items);
        ls_ring_fini(&rings[i]);
    }
}

static void no_ring_of_several_starves(void **state)
{
    (void)state;
    ls_ring a, b;
    ls_park park;
    ls_park_init(&park, 0);
    open_ring(&a, sizeof(int), 4);
    open_ring(&b, sizeof(int), 4);
    ls_ring_share_consumer(&a, &park);
    ls_ring_share_consumer(&b, &park);
    ls_ring *all[] = {&a, &b};
    for (int i = 0; i < 3; i++) {
        ls_ring_try_push(&a, &i);
        ls_ring_try_push(&b, &i);
    }
    int which = -1, out;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ls_ring_pop_any(&out, &which, all, 2, 0, NULL), LS_OK);
        assert_int_equal(which, i % 2);
        assert_int_equal(out, i / 2);
    }
    assert_int_equal(ls_ring_pop_any(&out, &which, all, 2, 0, NULL), LS_ETIMEDOUT);
    ls_ring_close(&a);
    assert_int_equal(ls_ring_pop_any(&out, &which, all, 2, 0, NULL), LS_ETIMEDOUT);
    ls_ring_fini(&a);
    ls_ring_fini(&b);
}

LS_TESTS(sync_ring, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_delivers_items_in_order),
        cmocka_unit_test(ring_holds_its_capacity_and_no_more),
        cmocka_unit_test(a_quiet_push_wakes_nobody),
        cmocka_unit_test(items_pushed_quietly_come_with_the_next_one),
        cmocka_unit_test(ring_of_one_item_works),
        cmocka_unit_test(ring_refuses_absurd_sizes),
        cmocka_unit_test(closed_ring_delivers_the_rest_then_says_so),
        cmocka_unit_test(deadlines_end_push_and_pop),
        cmocka_unit_test(payloads_cross_threads_whole_and_in_order),
        cmocka_unit_test(a_close_at_any_moment_loses_nothing),
        cmocka_unit_test(a_close_during_a_push_is_not_forgotten),
        cmocka_unit_test(a_close_wakes_a_sleeping_consumer),
        cmocka_unit_test(a_close_wakes_a_sleeping_producer),
        cmocka_unit_test(one_consumer_serves_several_rings),
        cmocka_unit_test(no_ring_of_several_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(sync_ring, "nightly no-asan")
