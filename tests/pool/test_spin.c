/* SPDX-License-Identifier: MIT */
/* Tests adaptive spinning: a waiting thread stops spinning when spinning does not help, and starts
 * again when it helps. */
#include "base/clock.h"
#include "pool/pool.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A condition that becomes true at check number `ready_at`; 0: never. */
struct event {
    long checks, ready_at;
};

static bool is_ready(void *arg)
{
    struct event *e = arg;
    return ++e->checks == e->ready_at;
}

/* Returns whether a call of ls_pool_spin checks the condition, that is, spins. */
static bool spins(ls_spin_habit *habit)
{
    struct event never = {0};
    assert_false(ls_pool_spin(habit, is_ready, &never, UINT64_MAX));
    return never.checks > 0;
}

static void spinning_in_vain_is_given_up_and_tried_again_at_times(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    int spun = 0, first = 0;
    while (spins(&habit))
        first++;
    assert_in_range(first, 2, 8);
    for (int i = 0; i < 200; i++)
        spun += spins(&habit);
    assert_in_range(spun, 2, 10);
}

static void one_success_brings_the_habit_back(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    for (int i = 0; i < 1000; i++) {
        struct event soon = {.ready_at = 3};
        if (i >= 100 && ls_pool_spin(&habit, is_ready, &soon, UINT64_MAX))
            break;
        assert_true(i < 200);
        if (i < 100)
            spins(&habit);
    }
    assert_true(spins(&habit));
    assert_true(spins(&habit));
}

static void a_spin_ends_in_time(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    struct event never = {0};
    assert_false(ls_pool_spin(&habit, is_ready, &never, ls_now_ns()));
    assert_in_range(never.checks, 1, 1000);
    assert_int_equal(habit.misses, 0); /* a spin that the deadline ended is not counted as a miss */
}

static void without_a_cpu_for_each_nobody_spins(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = false};
    for (int i = 0; i < 200; i++)
        assert_false(spins(&habit));
}

/* Returns after how many successive short sleeps the thread should move and spin. */
static int sleeps_until_something_is_done(ls_spin_habit *habit)
{
    for (int n = 1;; n++) {
        ls_pool_slept(habit, 5000);
        if (ls_pool_ought_to_spin(habit))
            return n;
        assert_true(n < 1000000);
    }
}

static void sleeps_that_are_too_short_time_and_again_bring_the_habit_back(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    while (spins(&habit))
        continue;
    assert_in_range(sleeps_until_something_is_done(&habit), 4, 100);
    assert_true(spins(&habit));
}

static void what_does_not_help_is_done_less_and_less_often(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    int first = sleeps_until_something_is_done(&habit), last = first;
    for (int i = 0; i < 8; i++) {
        int next = sleeps_until_something_is_done(&habit);
        assert_true(next > last);
        last = next;
    }
    struct event soon = {.ready_at = 3};
    assert_true(ls_pool_spin(&habit, is_ready, &soon, UINT64_MAX));
    assert_int_equal(sleeps_until_something_is_done(&habit), first);
}

static void long_sleeps_say_nothing(void **state)
{
    (void)state;
    ls_spin_habit habit = {.allowed = true};
    for (int i = 0; i < 100000; i++) {
        ls_pool_slept(&habit, i % 5 ? 5000 : 1000000);
        assert_false(ls_pool_ought_to_spin(&habit));
    }
}

LS_TESTS(pool_spin, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spinning_in_vain_is_given_up_and_tried_again_at_times),
        cmocka_unit_test(one_success_brings_the_habit_back),
        cmocka_unit_test(a_spin_ends_in_time),
        cmocka_unit_test(without_a_cpu_for_each_nobody_spins),
        cmocka_unit_test(sleeps_that_are_too_short_time_and_again_bring_the_habit_back),
        cmocka_unit_test(what_does_not_help_is_done_less_and_less_often),
        cmocka_unit_test(long_sleeps_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
