/* SPDX-License-Identifier: MIT */
/* Tests which texts are the same level of a column (prep/level.h). */
#include "prep/level.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NEVER, NUMBERS, ALWAYS }; /* NUMBERS: the same, except in a column of codes */

static const struct {
    const char *a, *b;
    int same;
} pairs[] = {
    {"1", "1", ALWAYS},
    {"1", "1.0", NUMBERS},
    {"1", "01", NUMBERS},
    {"1", "+1", NUMBERS},
    {"1", "1e0", NUMBERS},
    {"1", "10e-1", NUMBERS},
    {"1", "0.1E+1", NUMBERS},
    {"1", "-1", NEVER},
    {"1", "1.", NUMBERS},
    {".5", "0.50", NUMBERS},
    {"5.", "5", NUMBERS},
    {".5", "5.", NEVER},
    {"0", "-0", NUMBERS},
    {"0", "0.000", NUMBERS},
    {"0", "0e9", NUMBERS},
    {"0", "00e-999999999999", NUMBERS},
    {"0", "", NEVER},
    {"120", "12e1", NUMBERS},
    {"120", "12", NEVER},
    {"1001", "1.001e3", NUMBERS},
    {"-2.50", "-25e-1", NUMBERS},
    {"9007199254740992", "9007199254740993", NEVER},
    {"90071992547409921", "90071992547409922", NEVER},
    {"90071992547409921", "90071992547409921.0", NUMBERS},
    {"90071992547409921", "9.0071992547409921e16", NUMBERS},
    {"1234567890123456789", "1234567890123456788", NEVER},
    {"1234567890123456789", "01234567890123456789", NUMBERS},
    {"12345678901234567890123456789012345678", "12345678901234567890123456789012345679", NEVER},
    {"0.1", "0.10000000000000000001", NEVER},
    {"0.1", "0.1000000000000000000000", NUMBERS},
    {"1e400", "10e399", NUMBERS},
    {"1e400", "1e401", NEVER},
    {"1e-400", "0", NEVER},
    {"1e00000000000000000001", "10", NUMBERS},
    {"1e99999", "10e99998", NUMBERS},
    {"1e999999999", "10e999999998", NEVER}, /* exponents of six and more digits are texts */
    {"1e999999999", "1e999999999", ALWAYS},
    {"0x10", "16", NEVER},
    {"inf", "Infinity", NEVER},
    {"inf", "1e999", NEVER},
    {"nan", "NaN", NEVER},
    {"nan", "nan", ALWAYS},
    {"1_000", "1000", NEVER},
    {"1,000", "1000", NEVER},
    {"1e", "1", NEVER},
    {"e1", "10", NEVER},
    {".", "0", NEVER},
    {"-", "-0", NEVER},
    {"+-1", "-1", NEVER},
    {"1 ", "1", NEVER},
    {"007", "7", NUMBERS},
    {"007", "007", ALWAYS},
    {"007", "00.7e1", NUMBERS},
    {"A", "a", NEVER},
    {"TRUE", "true", ALWAYS},
    {"True", "tRUE", ALWAYS},
    {"FALSE", "False", ALWAYS},
    {"true", "false", NEVER},
    {"true", "T", NEVER},
    {"true", "true.", NEVER},
    {"true", "tru", NEVER},
    {"TRUE", "1", NEVER},
    {"yes", "YES", NEVER},
    {"1a", "01a", NEVER},
    {"caf\xC3\xA9", "cafe\xCC\x81", ALWAYS},
    {"caf\xC3\xA9", "cafe", NEVER},
    /* Vietnamese: two marks, as one character, as the old code pages have it, and both orders */
    {"\u1EC7", "\u00EA\u0323", ALWAYS},
    {"\u1EC7", "e\u0323\u0302", ALWAYS},
    {"\u1EC7", "e\u0302\u0323", ALWAYS},
    {"\u1EC7x", "\u1EB9\u0302x", ALWAYS},
    {"e\u0301\u0302", "e\u0302\u0301", NEVER}, /* marks of one class keep their order */
    {"e\u0323", "e\u0323\u0302", NEVER},
    {"e\u0323\u0302e", "e\u0302e\u0323", NEVER},
    {"\u0323\u0302", "\u0302\u0323", ALWAYS}, /* without a letter */
    /* characters that Unicode replaces by another one */
    {"\u212B", "\u00C5", ALWAYS},
    {"\u212B", "A\u030A", ALWAYS},
    {"\u2126", "\u03A9", ALWAYS},
    {"\u212A", "K", ALWAYS},
    {"5 \u212Ab", "5 Kb", ALWAYS},
    {"\uF900", "\u8C48", ALWAYS},
    {"\uD55C", "\u1112\u1161\u11AB", ALWAYS},
    {"\uFF11", "1", NEVER},
    {"\u00B2", "2", NEVER},
    {"caf\xE9", "caf\xE9", ALWAYS},
    {"caf\xE9", "caf\xE8", NEVER},
    {"caf\xE9", "caf\xEF\xBF\xBD", NEVER},
};

static void texts_are_one_level_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int k = 0; k < 4; k++) {
            const bool codes = k & 1;
            const char *a = k & 2 ? pairs[i].b : pairs[i].a, *b = k & 2 ? pairs[i].a : pairs[i].b;
            const bool same = pairs[i].same == ALWAYS || (pairs[i].same == NUMBERS && !codes);
            if (ls_level_is_same(a, b, codes) != same)
                fail_msg("\"%s\" and \"%s\", codes %d: expected %d", a, b, codes, same);
            if (same && ls_level_hash(a, codes) != ls_level_hash(b, codes))
                fail_msg("\"%s\" and \"%s\", codes %d: the hashes differ", a, b, codes);
            if (!same && ls_level_hash(a, codes) == ls_level_hash(b, codes))
                fail_msg("\"%s\" and \"%s\", codes %d: the hashes are equal", a, b, codes);
        }
}

/* The same digits with 4,000 zeros are the same number; a text of 4,096 bytes is none. */
static void numbers_have_a_bounded_length(void **state)
{
    char text[4097];
    (void)state;
    memset(text, '0', 4096);
    text[4095] = '\0';
    text[4094] = '7';
    assert_true(ls_level_is_same("7", text, false));
    text[4094] = '0';
    text[4095] = '7';
    text[4096] = '\0';
    assert_false(ls_level_is_same("7", text, false));
}

static int by_level(const void *a, const void *b)
{
    return ls_level_order(*(const char *const *)a, *(const char *const *)b);
}

static void numbers_come_first_in_the_order_of_their_values(void **state)
{
    static const char *const sorted[] = {"-1e300",
                                         "-90071992547409922",
                                         "-90071992547409921",
                                         "-2",
                                         "-0.5",
                                         "0",
                                         "1e-400",
                                         ".05",
                                         "0.5",
                                         "1",
                                         "1.5",
                                         "007",
                                         "7",
                                         "10",
                                         "90071992547409921",
                                         "90071992547409922",
                                         "1e400",
                                         "",
                                         "A",
                                         "a"};
    enum { COUNT = sizeof sorted / sizeof *sorted };
    const char *text[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        text[i] = sorted[(i * 7 + 3) % COUNT];
    qsort(text, COUNT, sizeof *text, by_level);
    for (int i = 0; i < COUNT; i++)
        assert_string_equal(text[i], sorted[i]);
}

static void a_zero_before_a_digit_is_a_code(void **state)
{
    static const char *const code[] = {"00", "007", "01a", "0123456789012345678"},
                             *const plain[] = {"", "0", "7", "0.5", "-01", "a01", "10", "0a"};
    (void)state;
    for (size_t i = 0; i < sizeof code / sizeof *code; i++)
        assert_true(ls_level_is_code(code[i]));
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_false(ls_level_is_code(plain[i]));
}

/* Numbers of up to 17 bytes that have the double of another such number. */
static void numbers_that_were_rounded_are_known(void **state)
{
    static const char *const rounded[] = {"9007199254740992",
                                          "9007199254740993",
                                          "-9007199254740993",
                                          "90071992547409921",
                                          "12345678901234560",
                                          "12345678901234500",
                                          "1.234567890123456",
                                          ".1234567890123456",
                                          "1e400",
                                          "12e345",
                                          "-9e308",
                                          "1e-400",
                                          "0.1e-307",
                                          "5e-324"},
                             *const exact[] = {"9007199254740991",
                                               "1234567890123456",
                                               "-1234567890123456",
                                               "4111111111111111",
                                               "123456789012345",
                                               "0.12345678901234",
                                               "1234567890123456789",
                                               "0000000000000001",
                                               "id-90071992547409",
                                               "1e20",
                                               "1e307",
                                               "1e-307",
                                               "0e400",
                                               "0"};
    (void)state;
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        if (!ls_level_was_rounded(rounded[i]))
            fail_msg("%s was rounded", rounded[i]);
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (ls_level_was_rounded(exact[i]))
            fail_msg("%s was not rounded", exact[i]);
}

LS_TESTS(prep_level, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_one_level_as_the_table_says),
        cmocka_unit_test(numbers_have_a_bounded_length),
        cmocka_unit_test(numbers_come_first_in_the_order_of_their_values),
        cmocka_unit_test(a_zero_before_a_digit_is_a_code),
        cmocka_unit_test(numbers_that_were_rounded_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
