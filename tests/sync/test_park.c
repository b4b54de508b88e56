/* SPDX-License-Identifier: MIT */
/* Tests parking (sleeping until a condition is true): deadlines, wake-ups, and that no wake-up is
 * lost.
 *
 * park.h proves that no wake-up is lost. The proof needs both of these orders:
 *
 * - The waiter announces itself (A) before it checks the condition (C). In the order C, A a wake-up
 *   is lost as follows: the check finds the condition false; the waker changes the condition, looks
 *   for an announcement and finds none; the waiter announces itself and sleeps, and no wake-up
 *   follows.
 * - The waker's change of the condition (M) is in memory before its look for announcements (L)
 *   takes effect. L is a read-modify-write for this reason. If L were a load, the processor could
 *   perform it while the store M is still in its store buffer. L then finds no announcement; the
 *   waiter announces itself, reads the old condition and sleeps; M reaches the memory, and no
 *   wake-up follows.
 *
 * The test no_wake_up_is_lost_between_two_threads looks for such a run. Its nightly version was
 * tried on two CPUs with each order broken. With a check before the announcement only, it failed in
 * every run, within a second. With a load as L (park.c compiled with
 * -DLS_PARK_LOOK(word)=atomic_load_explicit(word, memory_order_relaxed)) it failed in about one run
 * of three. With park.c as it is, the test passes on one CPU and on two. A stress test can miss a
 * rare run. Therefore test_park_model.c checks the same three variants, and one more, in all
 * interleavings of a model. */
#include "sync/park.h"

#include "base/clock.h"
#include "pool/pool.h"
#include "runner.h"
#include "times.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

struct flag {
    ls_park park;
    _Atomic int value;
};

static bool is_set(void *arg)
{
    return atomic_load_explicit(&((struct flag *)arg)->value, memory_order_acquire) != 0;
}

static void ready_means_no_waiting(void **state)
{
    (void)state;
    struct flag f = {.value = 1};
    ls_park_init(&f.park, 0);
    assert_true(ls_park_until(&f.park, is_set, &f, 0));
}

static void a_deadline_ends_the_wait_and_not_before(void **state)
{
    (void)state;
    for (unsigned spins = 0; spins <= 100; spins += 100) {
        struct flag f = {.value = 0};
        ls_park_init(&f.park, spins);
        uint64_t deadline = ls_deadline_ns(30 * MS);
        assert_false(ls_park_until(&f.park, is_set, &f, deadline));
        assert_true(ls_now_ns() >= deadline);
        assert_true(ls_now_ns() < deadline + 2000 * MS);
    }
}

static void a_deadline_in_the_past_still_looks_once(void **state)
{
    (void)state;
    struct flag f = {.value = 0};
    ls_park_init(&f.park, 0);
    assert_false(ls_park_until(&f.park, is_set, &f, 1));
    atomic_store(&f.value, 1);
    assert_true(ls_park_until(&f.park, is_set, &f, 1));
}

/* Wakes the waiter, which calls this function to check its condition. The waiter has announced
 * itself and is about to sleep, so each of its sleeps ends at once. */
static bool is_set_and_wakes(void *arg)
{
    ls_park_wake(&((struct flag *)arg)->park);
    return is_set(arg);
}

static void wake_ups_for_nothing_do_not_put_the_deadline_off(void **state)
{
    (void)state;
    struct flag f = {.value = 0};
    ls_park_init(&f.park, 0);
    uint64_t deadline = ls_deadline_ns(30 * MS);
    assert_false(ls_park_until(&f.park, is_set_and_wakes, &f, deadline));
    assert_true(ls_now_ns() >= deadline);
}

static void spinning_is_for_threads_with_a_cpu_each(void **state)
{
    (void)state;
    assert_true(ls_spins_for(2, 2) > 0);
    assert_int_equal(ls_spins_for(3, 2), 0);
}

static void *wait_for_flag(void *arg)
{
    struct flag *f = arg;
    return ls_park_until(&f->park, is_set, f, ls_deadline_ns(20000 * MS)) ? NULL : arg;
}

static void one_wake_up_is_for_every_waiter(void **state)
{
    (void)state;
    struct flag f = {.value = 0};
    ls_park_init(&f.park, 0);
    pthread_t t[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&t[i], NULL, wait_for_flag, &f), 0);
    nap(30);
    atomic_store(&f.value, 1);
    ls_park_wake(&f.park);
    for (int i = 0; i < 6; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        assert_null(failed);
    }
}

/* Returns the CPU time of this process in nanoseconds. */
static void a_parked_thread_uses_no_cpu(void **state)
{
    (void)state;
    struct flag f = {.value = 0};
    ls_park_init(&f.park, ls_spins_for(1, 1));
    uint64_t before = cpu_ns();
    assert_false(ls_park_until(&f.park, is_set, &f, ls_deadline_ns(300 * MS)));
    assert_true(cpu_ns() - before < 3 * MS);
}

/* Data of two threads. The waker spins until the waiter has noticed a change, and makes the next
 * change a random moment later. The waiter announces itself, checks and falls asleep at about the
 * same time. A waiter whose wake-up is lost waits until its deadline, because no other call wakes
 * it. */
#define LINES 24

struct chase {
    alignas(64) ls_park park;
    /* The waker stores all payloads, and then `change`. The waiter has read these cache lines in
     * the round before, so each store of the waker first has to fetch its line from the other CPU.
     * The stores leave the store buffer in order, so the last one, to `change`, stays there for a
     * while: long enough for a load to be performed before it. */
    struct {
        alignas(64) unsigned value;
    } payload[LINES];
    alignas(64) _Atomic unsigned change;
    alignas(64) _Atomic unsigned noticed; /* last change that the waiter has seen */
    unsigned want;
    int wrong;
    _Atomic unsigned rounds;
    _Atomic int lost;
};

/* Runs up to 127 empty iterations, so that the two threads meet at another point in each round. */
static void dither(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    for (volatile unsigned i = *seed >> 25; i > 0; i--)
        ;
}

static bool has_changed(void *arg)
{
    struct chase *c = arg;
    return atomic_load_explicit(&c->change, memory_order_acquire) >= c->want;
}

/* Pins the calling thread, 0 or 1, to a CPU of its own if there are two. Without pinning, the
 * kernel can run the woken thread on the waker's CPU in place of the waker; the two threads would
 * then never run at the same time. */
static void stay_on(int side)
{
    ls_cpus all;
    if (ls_cpus_allowed(&all, "", NULL) != LS_OK || all.count < 2)
        return;
    ls_cpus mine = {.count = 1, .id = {all.id[side]}};
    ls_pin_thread(&mine, NULL);
}

static void *notice(void *arg)
{
    struct chase *c = arg;
    unsigned seed = 1;
    stay_on(0);
    for (c->want = 1; c->want <= c->rounds && !atomic_load(&c->lost); c->want++) {
        dither(&seed);
        uint64_t deadline = ls_deadline_ns(2000 * MS);
        ls_park_until(&c->park, has_changed, c, deadline);
        if (ls_now_ns() >= deadline)
            atomic_fetch_add(&c->lost, 1);
        for (int i = 0; i < LINES; i++)
            c->wrong += c->payload[i].value != c->want;
        atomic_store_explicit(&c->noticed, c->want, memory_order_release);
    }
    return NULL;
}

static void *change(void *arg)
{
    struct chase *c = arg;
    unsigned seed = 2;
    uint64_t stop =
        ls_deadline_ns(ls_tests_rounds(800, 4000) * MS); /* slow machines do fewer rounds */
    stay_on(1);
    for (unsigned r = 1; r <= c->rounds && !atomic_load(&c->lost); r++) {
        if (ls_now_ns() > stop)
            c->rounds = r;
        dither(&seed);
        for (int i = 0; i < LINES; i++)
            c->payload[i].value = r;
        atomic_store_explicit(&c->change, r, memory_order_release);
        ls_park_wake(&c->park);
        for (unsigned i = 0; atomic_load_explicit(&c->noticed, memory_order_acquire) < r; i++)
            if (i > 20000) /* by now the waiter should have run; perhaps there is only one CPU */
                sched_yield();
    }
    return NULL;
}

static void no_wake_up_is_lost_between_two_threads(void **state)
{
    (void)state;
    static struct chase c = {.rounds = 1000000};
    pthread_t t[2];
    ls_park_init(&c.park, 0);
    assert_int_equal(pthread_create(&t[0], NULL, notice, &c), 0);
    assert_int_equal(pthread_create(&t[1], NULL, change, &c), 0);
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    assert_int_equal(atomic_load(&c.lost), 0);
    assert_int_equal(c.wrong, 0);
}

/* Three wakers increment a count, and three waiters wait for each of its values, all on one park
 * word. After the last increment no waker calls ls_park_wake any more, so a waiter whose wake-up is
 * lost waits until its deadline. Wakers wait on a second word until all waiters have seen the
 * number of increments that the waker itself has made. */
#define WAKERS 3
#define WAITERS 3

struct crowd {
    ls_park park;
    unsigned steps;
    _Atomic unsigned count;
    _Atomic unsigned reached[WAITERS]; /* last count that each waiter has seen */
    ls_park wakers;
    _Atomic int lost;
};

struct follower {
    struct crowd *crowd;
    unsigned want;
    int index;
};

static bool counted(void *arg)
{
    struct follower *f = arg;
    return atomic_load_explicit(&f->crowd->count, memory_order_acquire) >= f->want;
}

static void *follow(void *arg)
{
    struct follower *f = arg;
    for (f->want = 1; f->want <= f->crowd->steps; f->want++) {
        if (!ls_park_until(&f->crowd->park, counted, f, ls_deadline_ns(5000 * MS)))
            atomic_fetch_add(&f->crowd->lost, 1);
        atomic_store_explicit(&f->crowd->reached[f->index], f->want, memory_order_release);
        ls_park_wake(&f->crowd->wakers);
    }
    return NULL;
}

static bool all_caught_up(void *arg)
{
    struct follower *f = arg;
    for (int i = 0; i < WAITERS; i++)
        if (atomic_load_explicit(&f->crowd->reached[i], memory_order_acquire) < f->want)
            return false;
    return true;
}

static void *lead(void *arg)
{
    struct follower *f = arg;
    for (unsigned step = 1; step <= f->crowd->steps / WAKERS; step++) {
        atomic_fetch_add_explicit(&f->crowd->count, 1, memory_order_release);
        ls_park_wake(&f->crowd->park);
        /* This waker alone has incremented the count `step` times. The waiters therefore reach
         * `step` even if the other wakers do not increment it any more. */
        f->want = step;
        if (!ls_park_until(&f->crowd->wakers, all_caught_up, f, ls_deadline_ns(5000 * MS)))
            atomic_fetch_add(&f->crowd->lost, 1);
    }
    return NULL;
}

static void no_wake_up_is_lost_in_a_crowd(void **state)
{
    (void)state;
    static struct crowd c;
    c.steps = ls_tests_rounds(900, 3000);
    ls_park_init(&c.park, 0);
    ls_park_init(&c.wakers, 0);
    pthread_t t[WAKERS + WAITERS];
    struct follower f[WAKERS + WAITERS];
    for (int i = 0; i < WAKERS + WAITERS; i++) {
        f[i] = (struct follower){&c, 0, i};
        assert_int_equal(pthread_create(&t[i], NULL, i < WAITERS ? follow : lead, &f[i]), 0);
    }
    for (int i = 0; i < WAKERS + WAITERS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&c.lost), 0);
}

LS_TESTS(sync_park, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_means_no_waiting),
        cmocka_unit_test(a_deadline_ends_the_wait_and_not_before),
        cmocka_unit_test(a_deadline_in_the_past_still_looks_once),
        cmocka_unit_test(wake_ups_for_nothing_do_not_put_the_deadline_off),
        cmocka_unit_test(spinning_is_for_threads_with_a_cpu_each),
        cmocka_unit_test(one_wake_up_is_for_every_waiter),
        cmocka_unit_test(a_parked_thread_uses_no_cpu),
        cmocka_unit_test(no_wake_up_is_lost_between_two_threads),
        cmocka_unit_test(no_wake_up_is_lost_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(sync_park, "nightly no-asan")
