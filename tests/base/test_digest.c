/* SPDX-License-Identifier: MIT */
/* Tests digests (base/digest.h): every flipped bit changes the sum, and messages name the copy
 * that differs. */
#include "base/digest.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_bit_of_every_position_counts(void **state)
{
    (void)state;
    for (size_t at = 0; at < 100000; at += at < 5000 ? 1 : 997)
        for (int bit = 0; bit < 32; bit++) {
            const uint64_t change = ls_digest_weight(at) << bit;
            assert_true(change != 0);
            assert_true((uint64_t)0 - change != 0);
        }
}

static void two_flipped_bits_do_not_cancel(void **state)
{
    (void)state;
    for (size_t a = 0; a < 600; a++)
        for (size_t b = a % 16 == 0 ? 0 : a + 1; b < 600; b++)
            for (int bit = 0; bit < 32 && a != b; bit += 31) {
                const uint64_t x = ls_digest_weight(a) << bit, y = ls_digest_weight(b) << bit;
                assert_true(x != y);
                assert_true(x + y != 0);
                assert_true(x != ls_digest_weight(b) << (31 - bit));
            }
}

static void a_difference_stays(void **state)
{
    uint64_t a = 5, b = 5;
    (void)state;
    a = ls_digest_next(a, 1);
    b = ls_digest_next(b, 2);
    for (uint64_t step = 0; step < 100000; step++) {
        assert_true(a != b);
        a = ls_digest_next(a, step * step);
        b = ls_digest_next(b, step * step);
    }
}

static const char *name(void *user, int i)
{
    return ((const char *const *)user)[i];
}

static void the_odd_one_is_named(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const uint64_t two[] = {1, 2}, three[] = {7, 8, 7}, four[] = {3, 4, 5, 3},
                   five[] = {3, 3, 3, 4};
    char text[200];
    (void)state;
    ls_digest_explain(text, sizeof text, two, 2, name, (void *)names);
    assert_string_equal(text, "a and b have different copies of the model, and which is right is "
                              "unknown");
    ls_digest_explain(text, sizeof text, three, 3, name, (void *)names);
    assert_string_equal(text, "b has another copy of the model than the other 2");
    ls_digest_explain(text, sizeof text, four, 4, name, (void *)names);
    assert_string_equal(text,
                        "a, b, c and d have different copies of the model, and which is right "
                        "is unknown");
    ls_digest_explain(text, sizeof text, five, 4, name, (void *)names);
    assert_string_equal(text, "d has another copy of the model than the other 3");
    assert_false(ls_digests_agree(two, 2));
    assert_true(ls_digests_agree(five, 3));
}

LS_TESTS(base_digest, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_of_every_position_counts),
        cmocka_unit_test(two_flipped_bits_do_not_cancel),
        cmocka_unit_test(a_difference_stays),
        cmocka_unit_test(the_odd_one_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
