/* SPDX-License-Identifier: MIT */
/* Tests the division of minibatches into shards. */

#include "runner.h"

#include <lockstep/split.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void the_first_pieces_get_what_is_left_over(void **state)
{
    (void)state;
    static const uint32_t counts[4] = {3, 3, 2, 2};
    uint32_t next = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t first;
        uint32_t count;
        ls_split(10, 4, i, &first, &count);
        assert_int_equal(first, next);
        assert_int_equal(count, counts[i]);
        next += count;
    }
}

static void pieces_cover_everything_once_in_order(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 7, 8, 96, 256, 60000, UINT32_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t parts = 1; parts <= 17; parts++) {
            uint32_t next = 0;
            uint32_t before = UINT32_MAX;
            for (uint32_t i = 0; i < parts; i++) {
                uint32_t first;
                uint32_t count;
                ls_split(sizes[s], parts, i, &first, &count);
                assert_int_equal(first, next);
                assert_true(count <= before); /* and differs from the others by at most one */
                assert_true(count == sizes[s] / parts || count == sizes[s] / parts + 1);
                before = count;
                next += count;
            }
            assert_int_equal(next, sizes[s]);
        }
    }
}

/* Divides the 4 × 5 matrix of the numbers 0 to 19 among two devices. */
static void two_devices_get_two_rows_of_four_each(void **state)
{
    (void)state;
    float x[4][5];
    for (int i = 0; i < 20; i++)
        x[i / 5][i % 5] = (float)i;
    for (uint32_t device = 0; device < 2; device++) {
        uint32_t first;
        uint32_t count;
        ls_split(4, 2, device, &first, &count);
        assert_int_equal(count, 2);
        assert_true(x[first][0] == (float)(10 * device));
        assert_true(x[first + 1][4] == (float)(10 * device + 9));
    }
}

static void a_part_that_does_not_exist_is_empty(void **state)
{
    (void)state;
    static const double capacity[] = {1, 3};
    static const struct {
        uint32_t parts, index;
    } missing[] = {{0, 0}, {0, UINT32_MAX}, {2, 2}, {2, 3}, {2, UINT32_MAX}};
    for (size_t m = 0; m < sizeof missing / sizeof *missing; m++) {
        uint32_t first[3] = {0}, count[3] = {1, 1, 1};
        const uint32_t parts = missing[m].parts, index = missing[m].index;
        ls_split(10, parts, index, &first[0], &count[0]);
        ls_split_by_weights(10, parts, index, capacity, &first[1], &count[1]);
        ls_split_by_weights(10, parts, index, NULL, &first[2], &count[2]);
        for (int i = 0; i < 3; i++)
            assert_true(first[i] == 10 && count[i] == 0);
    }
}

static void shares_follow_capacity_and_none_is_empty(void **state)
{
    (void)state;
    static const double capacity[] = {1, 3, 0.001, 4};
    /* each gets one; the other 6 are divided as 1 : 3 : 0 : 4 */
    static const uint32_t expected[] = {2, 3, 1, 4};
    uint32_t at = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t first, count;
        ls_split_by_weights(10, 4, i, capacity, &first, &count);
        assert_int_equal(first, at);
        assert_int_equal(count, expected[i]);
        at += count;
    }
    assert_int_equal(at, 10);
}

LS_TESTS(split, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_pieces_get_what_is_left_over),
        cmocka_unit_test(pieces_cover_everything_once_in_order),
        cmocka_unit_test(two_devices_get_two_rows_of_four_each),
        cmocka_unit_test(a_part_that_does_not_exist_is_empty),
        cmocka_unit_test(shares_follow_capacity_and_none_is_empty),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
