/* SPDX-License-Identifier: MIT */
/* Tests where the array of gradients is divided into buckets, the parts that are summed over the
 * workers while the backward pass still computes. */
#include "merge/tree.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MB ((size_t)1 << 18) /* floats of a megabyte */

static void a_small_arena_is_one_bucket(void **state)
{
    const size_t small[] = {0, 1000, 2000, 60000};
    ls_buckets b;
    (void)state;
    ls_buckets_cut(&b, small, 4, 61720, 0);
    assert_int_equal(b.count, 1);
    assert_int_equal(b.end[0], 61720);
}

static void buckets_are_runs_of_whole_parameters(void **state)
{
    const size_t large[] = {0, MB, 3 * MB, 5 * MB, 10 * MB, 11 * MB, 16 * MB, 18 * MB};
    ls_buckets b;
    (void)state;
    ls_buckets_cut(&b, large, 8, 19 * MB, 0);
    assert_int_equal(b.count, 3);
    assert_int_equal(b.end[0], 5 * MB);
    assert_int_equal(b.end[1], 10 * MB); /* 11 and 16: the rest would be too small, or is cut */
    assert_int_equal(b.end[2], 19 * MB);
    assert_int_equal(ls_buckets_complete(b.end, b.count, 5 * MB - 1), 0);
    assert_int_equal(ls_buckets_complete(b.end, b.count, 5 * MB), 1);
    assert_int_equal(ls_buckets_complete(b.end, b.count, 19 * MB), 3);
}

static void the_least_of_a_bucket_can_be_said(void **state)
{
    const size_t segments[] = {0, 16, 32, 48};
    ls_buckets b;
    (void)state;
    ls_buckets_cut(&b, segments, 4, 80, 16);
    assert_int_equal(b.count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(b.end[i], i < 3 ? 16 * (i + 1) : 80);
}

static void there_are_never_more_buckets_than_room(void **state)
{
    size_t segments[1000];
    (void)state;
    for (size_t i = 0; i < 1000; i++)
        segments[i] = i;
    for (size_t count = 1; count <= 1000; count++) {
        ls_buckets b;
        ls_buckets_cut(&b, segments, (int)count, count, 1);
        assert_in_range(b.count, 1, LS_BUCKETS);
        assert_int_equal(b.end[b.count - 1], count);
    }
}

LS_TESTS(merge_buckets, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_arena_is_one_bucket),
        cmocka_unit_test(buckets_are_runs_of_whole_parameters),
        cmocka_unit_test(the_least_of_a_bucket_can_be_said),
        cmocka_unit_test(there_are_never_more_buckets_than_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
