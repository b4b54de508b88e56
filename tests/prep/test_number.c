/* SPDX-License-Identifier: MIT */
/* Tests the parsing of numbers in tables: in every form, the result must be bit-identical to
 * strtod's. */
#include "prep/number.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void same(const char *text)
{
    const double expected = strtod(text, NULL);
    char behind[160];
    double value = NAN, read = NAN;
    unsigned form;
    snprintf(behind, sizeof behind, "%s,7      ", text);
    const char *end = ls_number_scan(behind, &value, &form);
    if (end && (end != behind + strlen(text) || memcmp(&value, &expected, sizeof value) != 0))
        fail_msg("%s: %.17g, not %.17g", text, value, expected);
    assert_true(ls_number_read(text, strlen(text), 0, &read, &form));
    if (memcmp(&read, &expected, sizeof read) != 0)
        fail_msg("%s: %.17g, not %.17g", text, read, expected);
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 11;
}

static void numbers_have_the_bits_of_strtod(void **state)
{
    static const char *const text[] = {"0",
                                       "-0",
                                       "+1",
                                       "1.",
                                       ".5",
                                       "1e5",
                                       "1E-5",
                                       "9007199254740993",
                                       "9007199254740992.5",
                                       "123456789012345678901234567890",
                                       "1e23",
                                       "8.5e22",
                                       "1e-22",
                                       "1e-23",
                                       "4.9e-324",
                                       "1e999",
                                       "0.000000000000000000000000000000000001",
                                       "3.4028235e38",
                                       "3.4028236e38",
                                       "1.401298464324817e-45",
                                       "7.006492321624085e-46",
                                       "7.006492321624086e-46",
                                       "1.00000017881393421514957253748434595763683319091796875",
                                       "16777217",
                                       "16777217.0000000001",
                                       "9007199254740993.0",
                                       "1844674407370955161.5",
                                       "9999999999999999999",
                                       "0.9999999999999999999",
                                       "0.1000000014901161193847656",
                                       "1e-9999999999"};
    uint64_t seed = 7;
    char shown[64];
    (void)state;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        same(text[i]);
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)draw(&seed);
        float f;
        memcpy(&f, &bits, sizeof f);
        if (!isfinite(f))
            continue;
        /* Short forms, whole ones, and the middle between two floats, where a digit decides. */
        snprintf(shown, sizeof shown, "%.*g", 1 + (int)(draw(&seed) % 19), (double)f);
        same(shown);
        const double middle = ((double)f + (double)nextafterf(f, INFINITY)) / 2;
        snprintf(shown, sizeof shown, "%.17g", middle);
        same(shown);
        snprintf(shown, sizeof shown, "%llu.%llue%d", (unsigned long long)draw(&seed) % 100000,
                 (unsigned long long)draw(&seed), (int)(draw(&seed) % 50) - 25);
        same(shown);
        /* 19 digits around the middle between two doubles, which only a remainder decides */
        const uint64_t whole = (uint64_t)1 << 53 | draw(&seed) % ((uint64_t)1 << 53);
        snprintf(shown, sizeof shown, "%llu.%llu", (unsigned long long)whole,
                 (unsigned long long)(draw(&seed) % 3 + 4));
        same(shown);
        snprintf(shown, sizeof shown, "0.%019llu", (unsigned long long)draw(&seed) * 900);
        same(shown);
    }
}

static void easy_numbers_need_no_strtod(void **state)
{
    double value;
    unsigned form;
    (void)state;
    assert_non_null(ls_number_scan("0.98765432109876543,       ", &value, &form));
    assert_non_null(ls_number_scan("0.30000000000000004,       ", &value, &form));
    assert_non_null(ls_number_scan("-123.456\n       ", &value, &form));
    assert_null(ls_number_scan("1e,       ", &value, &form));
    assert_null(ls_number_scan("-,       ", &value, &form));
    assert_null(ls_number_scan("x       ", &value, &form));
}

static void forms_say_what_they_are_evidence_of(void **state)
{
    static const struct {
        const char *text;
        char decimal;
        double value; /* NaN: no number */
        unsigned form;
    } row[] = {
        {"1.5", 0, 1.5, LS_FORM_POINT},
        {"1.234", 0, 1.234, LS_FORM_POINT_OR_GROUP},
        {"0.234", 0, 0.234, LS_FORM_POINT},
        {"1.234", ',', 1234, LS_FORM_POINT_OR_GROUP},
        {"1.5", ',', NAN, 0},
        {"1,5", 0, 1.5, LS_FORM_COMMA},
        {"1,5", '.', NAN, 0},
        {"1,234", 0, 1234, LS_FORM_COMMA_OR_GROUP},
        {"1,234", ',', 1.234, LS_FORM_COMMA_OR_GROUP},
        {"0,234", 0, 0.234, LS_FORM_COMMA},
        {"1234,567", 0, 1234.567, LS_FORM_COMMA},
        {"1,234,567", 0, 1234567, LS_FORM_COMMA_GROUPS},
        {"1,234.5", 0, 1234.5, LS_FORM_COMMA_GROUPS},
        {"1.234,5", 0, 1234.5, LS_FORM_COMMA},
        {"-1.234.567", ',', -1234567, 0},
        {"1.234.567", 0, NAN, 0},
        {"1,23,456", 0, NAN, 0},
        {"1,,2", 0, NAN, 0},
        {",", 0, NAN, 0},
        {"1'234", 0, 1234, 0},
        {"1,5e3", 0, 1500, LS_FORM_COMMA},
        {"0x10", 0, NAN, 0},
        {"1 234", 0, NAN, 0},
        {"12.05.2013", ',', NAN, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double value = 0;
        unsigned form = 0;
        const bool number =
            ls_number_read(row[i].text, strlen(row[i].text), row[i].decimal, &value, &form);
        if (number == isnan(row[i].value) ||
            (number && (value != row[i].value || form != row[i].form)))
            fail_msg("%s: %d, %g, %u", row[i].text, number, value, form);
    }
}

LS_TESTS(prep_number, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_the_bits_of_strtod),
        cmocka_unit_test(easy_numbers_need_no_strtod),
        cmocka_unit_test(forms_say_what_they_are_evidence_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
