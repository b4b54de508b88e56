/* SPDX-License-Identifier: MIT */
/* Tests numbers that are written as text: as few digits as possible, so that reading the text gives
 * the same number. The C library is the reference. */
#include "runner.h"
#include "json/shortest.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expected(char text[LS_SHORTEST], double value, bool is_float)
{
    for (int digits = is_float ? 6 : 15; digits <= (is_float ? 9 : 17); digits++) {
        snprintf(text, LS_SHORTEST, "%.*g", digits, value);
        if ((is_float ? (double)strtof(text, NULL) : strtod(text, NULL)) == value)
            return;
    }
}

static void check(double value, bool is_float)
{
    char text[LS_SHORTEST], wanted[LS_SHORTEST];
    expected(wanted, value, is_float);
    const int n = ls_shortest(text, value, is_float);
    if (strcmp(text, wanted) != 0 || (size_t)n != strlen(wanted))
        fail_msg("%a: \"%s\" (%d), expected \"%s\"", value, text, n, wanted);
}

static void check_both(double value)
{
    check(value, false);
    check(-value, false);
    if (fabs(value) <= (double)FLT_MAX) {
        check((double)(float)value, true);
        check((double)-(float)value, true);
    }
}

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 11;
}

static void random_numbers_are_printed_as_the_c_library_does(void **state)
{
    uint64_t seed = 36;
    (void)state;
    for (unsigned i = 0; i < ls_tests_rounds(40000, 1500000); i++) {
        uint64_t bits = next(&seed) << 11 ^ next(&seed);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            check(value, false);
        uint32_t half = (uint32_t)(bits >> 32);
        float single;
        memcpy(&single, &half, sizeof single);
        if (isfinite(single))
            check((double)single, true);
        check_both(ldexp((double)next(&seed), (int)(next(&seed) % 140) - 110));
    }
}

static void short_decimals_and_ties_are_printed_as_the_c_library_does(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (int e = -30; e < 25; e++)
        for (int i = 0; i < 60; i++) {
            char text[LS_SHORTEST];
            snprintf(text, sizeof text, "%" PRIu64 "e%d", next(&seed) % (i < 30 ? 1000 : 10000000),
                     e);
            check_both(strtod(text, NULL));
        }
    for (int e = -160; e < 160;
         e++) /* powers of two and what is beside them, and halves at the last digit */
        for (int i = -3; i <= 3; i++) {
            check_both(ldexp(1 + i * 0x1p-52, e));
            check_both(ldexp(1 + i * 0x1p-23, e));
            check_both(ldexp(2 * i + 1, e));
        }
}

static void edges_are_printed_as_the_c_library_does(void **state)
{
    const double edges[] = {
        0,         1,       DBL_MIN,  DBL_MAX,  DBL_TRUE_MIN, (double)FLT_MIN,
        0.0001,    0.00001, 99999.95, 999999.5, 9999995,      (double)FLT_TRUE_MIN,
        123456.75, 1e15,    1e16,     0x1p53,   0x1p53 + 2,   0x1p63,
        1e-6,      9.5e-7,  0.3,      2.0 / 3,  1e22,         1e23};
    (void)state;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        check_both(edges[i]);
}

static void whole_numbers_are_printed_as_they_are(void **state)
{
    const int64_t some[] = {0, 1, -1, 9, 10, 99, 100, -100, 1234567890123, INT64_MAX, INT64_MIN};
    char text[LS_SHORTEST], wanted[LS_SHORTEST];
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        snprintf(wanted, sizeof wanted, "%" PRId64, some[i]);
        assert_int_equal(ls_shortest_int(text, some[i]), strlen(wanted));
        assert_string_equal(text, wanted);
    }
    snprintf(wanted, sizeof wanted, "%" PRIu64, UINT64_MAX);
    assert_int_equal(ls_shortest_uint(text, UINT64_MAX), strlen(wanted));
    assert_string_equal(text, wanted);
}

LS_TESTS(json_shortest, "unit no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers_are_printed_as_the_c_library_does),
        cmocka_unit_test(short_decimals_and_ties_are_printed_as_the_c_library_does),
        cmocka_unit_test(edges_are_printed_as_the_c_library_does),
        cmocka_unit_test(whole_numbers_are_printed_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
LS_TESTS_LONG(json_shortest, "nightly no-asan no-tsan")
