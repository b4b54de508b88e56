/* Heartbeats: what a watcher may conclude from them. */
#include "sync/heartbeat.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_beat_is_counted_and_says_where(void **state)
{
    (void)state;
    ls_heartbeat h[2] = {{0}};
    assert_true((uintptr_t)&h[1] - (uintptr_t)&h[0] == 64); /* a cache line each */
    assert_int_equal(ls_heartbeat_count(&h[0]), 0);
    assert_int_equal(ls_heartbeat_place(&h[0]), 0);
    ls_beat(&h[0], 7);
    assert_int_equal(ls_heartbeat_place(&h[0]), 7);
    ls_beat(&h[0], 8);
    ls_beat(&h[0], LS_PLACE_MAX);
    assert_int_equal(ls_heartbeat_count(&h[0]), 3);
    assert_int_equal(ls_heartbeat_place(&h[0]), LS_PLACE_MAX);
    ls_beat(&h[0], LS_PLACE_MAX + 6); /* a place that is none leaves the count alone */
    assert_int_equal(ls_heartbeat_count(&h[0]), 4);
    assert_int_equal(ls_heartbeat_place(&h[0]), 5);
    assert_int_equal(ls_heartbeat_count(&h[1]), 0);
}

static void the_count_wraps_and_still_changes(void **state)
{
    (void)state;
    ls_heartbeat h = {.word = UINT64_MAX};
    uint64_t before = ls_heartbeat_count(&h);
    ls_beat(&h, 3);
    assert_int_equal(before, (UINT64_C(1) << 40) - 1);
    assert_int_equal(ls_heartbeat_count(&h), 0);
    assert_int_equal(ls_heartbeat_place(&h), 3);
}

#define BEATS 3000000

/* The place is the number of the beat. */
static void *beat(void *arg)
{
    for (int i = 1; i <= BEATS; i++)
        ls_beat(arg, i);
    return NULL;
}

static void a_watcher_never_goes_back_in_time(void **state)
{
    (void)state;
    static ls_heartbeat h;
    pthread_t t;
    uint64_t last = 0;
    assert_int_equal(pthread_create(&t, NULL, beat, &h), 0);
    while (last < BEATS) {
        uint64_t count = ls_heartbeat_count(&h);
        uint64_t place = (uint64_t)ls_heartbeat_place(&h), after = ls_heartbeat_count(&h);
        if (count < last || place < count || after < place)
            fail_msg("after %llu: count %llu, place %llu, count %llu", (unsigned long long)last,
                     (unsigned long long)count, (unsigned long long)place,
                     (unsigned long long)after);
        last = count;
    }
    pthread_join(t, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_is_counted_and_says_where),
        cmocka_unit_test(the_count_wraps_and_still_changes),
        cmocka_unit_test(a_watcher_never_goes_back_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
