/* SPDX-License-Identifier: MIT */
/* Tests which texts the JSON reader accepts, and which it refuses with which message. */
#include "runner.h"
#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void refuses_n(const char *text, size_t len, const char *message)
{
    ls_json *doc = (ls_json *)1;
    ls_error err = {0};
    int rc = ls_json_parse(&doc, "c.json", text, len, NULL, &err);
    assert_int_equal(rc, LS_ECONFIG);
    assert_null(doc);
    assert_int_equal(err.status, LS_ECONFIG);
    assert_string_equal(err.text, message);
}

static void refuses(const char *text, const char *message)
{
    refuses_n(text, strlen(text), message);
}

static ls_json *accepts(const char *text)
{
    ls_json *doc;
    ls_error err = {0};
    int rc = ls_json_parse(&doc, "c.json", text, strlen(text), NULL, &err);
    if (rc != LS_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, LS_OK);
    return doc;
}

static void text_that_is_not_json_is_refused(void **state)
{
    (void)state;
    refuses("epochs = 10", "c.json:1:1: expected a value, found epochs; put strings in double "
                           "quotes");
    refuses("{epochs: 10}", "c.json:1:2: expected a key, found epochs; put keys in double quotes");
    refuses("{'a': 1}",
            "c.json:1:2: expected a key, found a single quote; put keys in double quotes");
    refuses("{\"a\": 'b'}", "c.json:1:7: expected a value, found a single quote; use double "
                            "quotes");
    refuses("{\"a\" 1}", "c.json:1:6: expected ':' after the key, found '1'");
    refuses("{\"a\": }", "c.json:1:7: expected a value, found '}'");
    refuses("[1 2]", "c.json:1:4: expected ',' or ']', found '2'; is a comma missing before it?");
    refuses("{\"a\": 1\n \"b\": 2}",
            "c.json:2:2: expected ',' or '}', found '\"'; is a comma missing before it?");
    refuses("[1}", "c.json:1:3: expected ',' or ']', found '}'");
    refuses("\x7f", "c.json:1:1: expected a value, found the control character 0x7f");
    refuses("[\xC3\xA9]", "c.json:1:2: expected a value, found '\xC3\xA9'");
}

static void trailing_commas_are_refused_where_they_stand(void **state)
{
    (void)state;
    refuses("[1, ]", "c.json:1:5: expected a value, found ']'; remove the comma before it");
    refuses("{\"a\": 1,\n}", "c.json:2:1: expected a key, found '}'; remove the comma before it");
    refuses("[,1]", "c.json:1:2: expected a value, found ','");
}

static void comments_are_refused(void **state)
{
    (void)state;
    refuses("// lr\n{}", "c.json:1:1: expected JSON, found '/'; JSON has no comments, remove it");
    refuses("{ # lr\n}", "c.json:1:3: expected JSON, found '#'; JSON has no comments, remove it");
    refuses("[1 /* one */]",
            "c.json:1:4: expected JSON, found '/'; JSON has no comments, remove it");
}

static void text_after_the_first_value_is_refused(void **state)
{
    (void)state;
    refuses("{}\n{}", "c.json:2:1: expected the end of the text, found '{'; remove what follows "
                      "the first value");
    refuses("truefalse", "c.json:1:1: expected a value, found truefalse; put strings in double "
                         "quotes");
}

static void empty_text_is_refused(void **state)
{
    (void)state;
    refuses("", "c.json:1:1: expected a value, found the end of the text; is the file complete?");
    refuses(" \n\t", "c.json:2:2: expected a value, found the end of the text; is the file "
                     "complete?");
}

static void truncated_text_is_refused_wherever_it_ends(void **state)
{
    (void)state;
    refuses("{\"a\": [1, 2",
            "c.json:1:12: expected ']' for the '[' at 1:7, found the end of the text; is the file "
            "complete?");
    refuses("{\"a\": 1", "c.json:1:8: expected '}' for the '{' at 1:1, found the end of the text; "
                         "is the file complete?");
    refuses("{\"a\"", "c.json:1:5: expected ':' after the key, found the end of the text");
    refuses("{\"a\":", "c.json:1:6: expected a value, found the end of the text; is the file "
                       "complete?");
    refuses("{\"a\": \"b", "c.json:1:7: this string has no closing quote");
    static const char whole[] = "{\"a\": [1.5e-3, true, null, \"x\\n\\u00e9\\ud83d\\ude00\"], "
                                "\"b\": {\"c\": -0.5, \"d\": {}}}";
    ls_json_destroy(accepts(whole));
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        /* The exact size lets the address sanitizer see a read beyond the end. */
        char *part = malloc(n > 0 ? n : 1);
        ls_json *doc;
        assert_non_null(part);
        memcpy(part, whole, n);
        assert_int_equal(ls_json_parse(&doc, "c.json", part, n, NULL, NULL), LS_ECONFIG);
        assert_null(doc);
        free(part);
    }
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    refuses("{\"lr\": 1,\n \"lr\": 2}",
            "c.json:2:2: expected each key once, found \"lr\" again (first at 1:2); remove one of "
            "the two");
    refuses("{\"a\": {\"b\": 1, \"\\u0062\": 2}}",
            "c.json:1:16: expected each key once, found \"b\" again (first at 1:8); remove one of "
            "the two");
    refuses("{\"z\": [1,{\"q\":2}], \"b\": 1, \"a\": 1, \"b\": 1, \"a\": 1}",
            "c.json:1:36: expected each key once, found \"b\" again (first at 1:20); remove one of "
            "the two");
    ls_json_destroy(accepts("{\"a\": 1, \"A\": 2, \"b\": {\"a\": 3}}"));
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    refuses("{\"lr\": NaN}", "c.json:1:8: expected a value, found NaN; numbers must be finite");
    refuses("[Infinity]", "c.json:1:2: expected a value, found Infinity; numbers must be finite");
    refuses("[-Infinity]",
            "c.json:1:2: expected a number, found -Infinity; numbers must be finite");
    refuses("[inf]", "c.json:1:2: expected a value, found inf; numbers must be finite");
    refuses("[nan]", "c.json:1:2: expected a value, found nan; numbers must be finite");
    refuses("{\"lr\": 1e999}",
            "c.json:1:8: expected a finite number, found 1e999; the largest is 1.797e308");
    refuses("[-1e309]",
            "c.json:1:2: expected a finite number, found -1e309; the largest is 1.797e308");
}

static void malformed_numbers_are_refused(void **state)
{
    (void)state;
    refuses("[007]", "c.json:1:2: expected a number, found a leading zero; remove it");
    refuses("[-01]", "c.json:1:2: expected a number, found a leading zero; remove it");
    refuses("[+1]", "c.json:1:2: expected a value, found '+'; a number begins with a digit or '-'");
    refuses("[.5]", "c.json:1:2: expected a value, found '.'; a number begins with a digit or '-'");
    refuses("[1.]", "c.json:1:4: expected a digit after the decimal point, found ']'");
    refuses("[1e]", "c.json:1:4: expected a digit in the exponent, found ']'");
    refuses("[1e+", "c.json:1:5: expected a digit in the exponent, found the end of the text");
    refuses("[-]", "c.json:1:3: expected a digit, found ']'");
    refuses("[0,5x]", "c.json:1:5: expected ',' or ']', found 'x'; is a comma missing before it?");
    refuses("[0x1p9999]",
            "c.json:1:3: expected ',' or ']', found x1p9999; is a comma missing before it?");
    refuses("[0x10]", "c.json:1:3: expected ',' or ']', found x10; is a comma missing before it?");
}

/* "[BEFORE 000…0 BEHIND]" with `zeros` of them. */
static char *with_zeros(const char *before, size_t zeros, const char *behind)
{
    const size_t size = strlen(before) + zeros + strlen(behind) + 3;
    char *text = malloc(size), *at = text;
    assert_non_null(text);
    at += snprintf(at, size, "[%s", before);
    memset(at, '0', zeros);
    snprintf(at + zeros, size - zeros - (size_t)(at - text), "%s]", behind);
    return text;
}

static void numbers_of_any_length_are_rounded_once(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        size_t zeros;
        const char *behind;
        double value;
    } numbers[] = {
        {"1", 62, "", 1e62},
        {"1", 63, "", 1e63},
        {"1", 300, "", 1e300},
        {"0.", 70, "1", 1e-71},
        {"-1.", 100000, "", -1},
        {"1", 400, "e-400", 1},
        /* Between 1 and its successor: exactly half way is even, a little more is not. */
        {"1.00000000000000011102230246251565404236316680908203125", 30, "", 1},
        {"1.00000000000000011102230246251565404236316680908203125", 2000, "1", 1 + 0x1p-52},
        {"0.", 330, "1e8", 1e-323} /* which has few bits */,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *text = with_zeros(numbers[i].before, numbers[i].zeros, numbers[i].behind);
        ls_json *doc = accepts(text);
        assert_true(ls_json_root(doc)->child->valuedouble == numbers[i].value);
        ls_json_destroy(doc);
        free(text);
    }
}

static void what_follows_a_long_number_keeps_its_place(void **state)
{
    (void)state;
    int line, column;
    char *text = with_zeros("3.5", 100, ",\n  {\"a\": 7}, 2.5");
    ls_json *doc = accepts(text);
    const cJSON *a = cJSON_GetArrayItem(ls_json_root(doc), 1)->child;
    assert_true(a->valuedouble == 7 && a->prev == a);
    assert_int_equal(ls_json_where(doc, a, true, &line, &column), LS_OK);
    assert_int_equal(line, 2);
    assert_int_equal(column, 9);
    assert_true(cJSON_GetArrayItem(ls_json_root(doc), 2)->valuedouble == 2.5);
    ls_json_destroy(doc);
    free(text);
    text = with_zeros("1", 400, "");
    refuses(text, "c.json:1:2: expected a finite number, found "
                  "1000000000000000000000000000000000000000…; the largest is 1.797e308");
    free(text);
    text = with_zeros("1.5", 100, ", x");
    refuses(text, "c.json:1:107: expected a value, found 'x'; put strings in double quotes");
    free(text);
}

static void words_of_other_languages_get_a_hint(void **state)
{
    (void)state;
    refuses("[True]", "c.json:1:2: expected a value, found True; write true");
    refuses("[None]", "c.json:1:2: expected a value, found None; write null");
    refuses("[nul]", "c.json:1:2: expected a value, found nul; put strings in double quotes");
}

static void bad_strings_are_refused(void **state)
{
    (void)state;
    refuses("[\"a\tb\"]",
            "c.json:1:4: control character 0x09 inside a string; write it as \\u0009");
    refuses("[\"a\nb\"]", "c.json:1:2: this string has no closing quote");
    refuses("[\"\\x\"]", "c.json:1:3: expected an escape such as \\n, \\\\ or \\u00e9 after a "
                         "backslash; write two backslashes for one");
    refuses("[\"\\u12g4\"]", "c.json:1:3: expected four hexadecimal digits after \\u");
    refuses("[\"\\u0000\"]",
            "c.json:1:3: expected a character other than \\u0000, which texts must not contain; "
            "remove it");
    refuses("[\"\\ud800\"]", "c.json:1:3: \\ud800 is half of a surrogate pair; write both halves");
    refuses("[\"\\udc00\\ud800\"]",
            "c.json:1:3: \\udc00 is half of a surrogate pair; write both halves");
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {
        {"[\"\xFF\"]", "c.json:1:3: expected UTF-8, found the byte 0xff; save the file as UTF-8"},
        {"[\"\xC0\x80\"]", "c.json:1:3: expected UTF-8, found the byte 0xc0; save the file as "
                           "UTF-8"},
        {"[\"\xE0\x80\x80\"]", "c.json:1:3: expected UTF-8, found the byte 0xe0; save the file as "
                               "UTF-8"},
        {"[\"\xED\xA0\x80\"]", "c.json:1:3: expected UTF-8, found the byte 0xed; save the file as "
                               "UTF-8"},
        {"[\"\xF4\x90\x80\x80\"]", "c.json:1:3: expected UTF-8, found the byte 0xf4; save the "
                                   "file as UTF-8"},
        {"[\"ab\xE4\"]", "c.json:1:5: expected UTF-8, found the byte 0xe4; save the file as "
                         "UTF-8"},
        {"\xEF\xBB\xBF{}", "c.json:1:1: expected JSON, found a byte order mark; save the file "
                           "without one"},
        {"\xFF\xFE{", "c.json:1:1: expected UTF-8, found UTF-16; save the file as UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(bad[i].text, bad[i].message);
    refuses_n("{}\0", 3, "c.json:1:3: expected text, found a zero byte; save the file as UTF-8");
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    char text[2 * 65 + 1] = "";
    for (int i = 0; i < 64; i++) {
        text[i] = '[';
        text[127 - i] = ']';
    }
    ls_json_destroy(accepts(text));
    for (int i = 0; i < 65; i++) {
        text[i] = '[';
        text[129 - i] = ']';
    }
    refuses(text, "c.json:1:65: expected at most 64 nested arrays and objects, found more");
}

static void ten_megabytes_of_brackets_are_refused(void **state)
{
    (void)state;
    size_t n = 10u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, '[', n);
    refuses_n(text, n,
              "c.json:1:65: expected at most 64 nested arrays and objects, found "
              "more");
    free(text);
}

/* A text of `count` times `piece` between `open` and `close`. */
static char *repeated(size_t *length, const char *open, const char *piece, size_t count,
                      const char *close)
{
    const size_t size = strlen(piece);
    char *text = malloc(strlen(open) + size * count + strlen(close) + 1), *at = text;
    assert_non_null(text);
    at = stpcpy(at, open);
    for (size_t i = 0; i < count; i++, at += size)
        memcpy(at, piece, size);
    at = stpcpy(at, close);
    *length = (size_t)(at - text);
    return text;
}

static void accepts_n(const char *text, size_t length)
{
    ls_json *doc;
    ls_error err = {0};
    assert_int_equal(ls_json_parse(&doc, "c.json", text, length, NULL, &err), LS_OK);
    ls_json_destroy(doc);
}

static void texts_beyond_the_limits_are_refused(void **state)
{
    (void)state;
    size_t n;
    char *text = repeated(&n, "[", " ", LS_JSON_BYTES - 2, "] ");
    refuses_n(text, n, "c.json: expected at most 16777216 bytes, found 16777217");
    accepts_n(text, n - 1);
    free(text);

    text = repeated(&n, "[0", ",0", LS_JSON_VALUES - 1, "]");
    refuses_n(text, n, "c.json:1:2000000: expected at most 1000000 values, found more");
    text[n - 3] = ']';
    accepts_n(text, n - 2);
    free(text);

    char deep[2 * LS_JSON_DEPTH];
    memset(deep, '[', LS_JSON_DEPTH);
    memset(deep + LS_JSON_DEPTH, ']', LS_JSON_DEPTH);
    accepts_n(deep, sizeof deep);
}

/* Every text that the strict pass lets through must be one that the tree builder understands:
 * otherwise it would be reported as lack of memory. */
static void accepted_texts_always_give_a_tree(void **state)
{
    (void)state;
    static const char *const pieces[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"a\"",
                                         "\"b\"",
                                         "1",
                                         "-0.5e+7",
                                         "0",
                                         "true",
                                         "null",
                                         " ",
                                         "\n",
                                         "\"\\u00e9\"",
                                         "\"\\ud83d\\ude00\"",
                                         "\"\xC3\xA9\\/\\\"\"",
                                         "1e-400"};
    uint64_t x = 88172645463325252u;
    int accepted = 0;
    for (int trial = 0; trial < 200000; trial++) {
        char text[256] = "";
        ls_json *doc;
        int n = 1 + (int)(x % 9);
        for (int i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            strcat(text, pieces[(x >> 20) % (sizeof pieces / sizeof *pieces)]);
        }
        int rc = ls_json_parse(&doc, "c.json", text, strlen(text), NULL, NULL);
        assert_true(rc == LS_OK || rc == LS_ECONFIG);
        accepted += rc == LS_OK;
        ls_json_destroy(doc);
    }
    assert_true(accepted > 1000);
}

/* CPU time that it takes to find that the last of the members has the key of the eighth. */
static double time_to_find_twice(int members)
{
    size_t n = 0;
    char *text = malloc((size_t)members * 16 + 64), message[160];
    assert_non_null(text);
    text[n++] = '{';
    for (int i = 0; i < members; i++, n += 11) {
        memcpy(text + n, "\"000000\":1,", 11);
        for (int d = 0, v = i; d < 6; d++, v /= 10)
            text[n + 6 - (size_t)d] = (char)('0' + v % 10);
    }
    memcpy(text + n, "\"000007\":1}", 11);
    snprintf(message, sizeof message,
             "c.json:1:%zu: expected each key once, found \"000007\" again (first at 1:79); remove "
             "one of the two",
             n + 1);
    const clock_t since = clock();
    refuses_n(text, n + 11, message);
    const double took = (double)(clock() - since);
    free(text);
    return took;
}

static void eight_times_the_keys_take_eight_times_as_long(void **state)
{
    double few = INFINITY, many = INFINITY;
    (void)state;
    for (int i = 0; i < 3; i++) { /* the least: what else the machine does must not count */
        few = fmin(few, time_to_find_twice(5000));
        many = fmin(many, time_to_find_twice(40000));
    }
    if (many > 24 * few) /* 64 times, if each key were compared with each */
        fail_msg("%g times as long", many / few);
}

LS_TESTS(json_strict, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_not_json_is_refused),
        cmocka_unit_test(trailing_commas_are_refused_where_they_stand),
        cmocka_unit_test(comments_are_refused),
        cmocka_unit_test(text_after_the_first_value_is_refused),
        cmocka_unit_test(empty_text_is_refused),
        cmocka_unit_test(truncated_text_is_refused_wherever_it_ends),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(malformed_numbers_are_refused),
        cmocka_unit_test(numbers_of_any_length_are_rounded_once),
        cmocka_unit_test(what_follows_a_long_number_keeps_its_place),
        cmocka_unit_test(words_of_other_languages_get_a_hint),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(ten_megabytes_of_brackets_are_refused),
        cmocka_unit_test(texts_beyond_the_limits_are_refused),
        cmocka_unit_test(accepted_texts_always_give_a_tree),
        cmocka_unit_test(eight_times_the_keys_take_eight_times_as_long),
    };
    return cmocka_run_group_tests_name("json_strict", tests, NULL, NULL);
}
