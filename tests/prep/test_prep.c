/* SPDX-License-Identifier: MIT */
/* Tests descriptions of how rows are prepared: a description is read as it was written, and rows
 * are prepared accordingly. */
#include "prep/prep.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A description of a text, for `input` floats or bytes. */
static int parse(ls_prep **out, const char *text, size_t input, bool floats, ls_error *err)
{
    ls_json *doc;
    int status = ls_json_parse(&doc, "card", text, strlen(text), NULL, err);
    *out = NULL;
    if (status)
        return status;
    status = ls_prep_read(out, doc, ls_json_root(doc), input, floats, NULL, err);
    ls_json_destroy(doc);
    return status;
}

static ls_prep *reads(const char *text, size_t input, bool floats)
{
    ls_error err;
    ls_prep *p;
    if (parse(&p, text, input, floats, &err) != LS_OK)
        fail_msg("%s", err.text);
    return p;
}

static void refuses(const char *text, size_t input, bool floats, const char *says)
{
    ls_error err = {0};
    ls_prep *p;
    assert_int_equal(parse(&p, text, input, floats, &err), LS_ECONFIG);
    assert_null(p);
    if (!strstr(err.text, says) || strncmp(err.text, "card:", 5) != 0)
        fail_msg("expected \"%s\" in: %s", says, err.text);
}

/* Checks that an unknown value is an error if the description says so and not otherwise, and
 * returns LS_EDATA for it in both cases. */
static int judge(const ls_prep *p, ls_prep_found found, int status)
{
    if (found != LS_PREP_KNOWN)
        assert_int_equal(status, p->unknown == LS_UNKNOWN_ERROR ? LS_EDATA : LS_OK);
    return found == LS_PREP_KNOWN ? status : LS_EDATA;
}

static int put(const ls_prep *p, int column, const char *text, double number, double *row,
               const char *prefix, ls_error *err)
{
    ls_prep_found found = LS_PREP_KNOWN;
    const int status = ls_prep_put(p, column, text, number, row, prefix, &found, err);
    return judge(p, found, status);
}

static int make_ready(const ls_prep *p, const void *raw, bool wide, float *ready, size_t count,
                      ls_error *err)
{
    ls_prep_found found = LS_PREP_KNOWN;
    const int status = ls_prep_ready(p, raw, wide, ready, count, &found, err);
    return judge(p, found, status);
}

static const char table[] =
    "{\"version\":2,\"rows\":\"table\",\"target\":\"y\",\"columns\":["
    "{\"name\":\"a\",\"mean\":4.1,\"deviation\":0.7,\"missing\":4},"
    "{\"name\":\"b\",\"levels\":[\"9\",\"x\",\"a \\\"b\\\"\"],\"missing\":0},"
    "{\"name\":\"c\"}]}";

static void a_table_is_written_as_it_was_read(void **state)
{
    static const char *const text[] = {
        table,
        "{\"version\":2,\"rows\":\"table\",\"target\":\"y\",\"target_decimal\":\".\",\"encoding\":"
        "\"latin-1\",\"columns\":[{\"name\":\"a\",\"missing\":4,\"decimal\":\",\"},{\"name\":\"b\","
        "\"levels\":[\"1\",\"2\",\"3\"]},{\"name\":\"c\",\"decimal\":\".\"}]}",
        "{\"version\":2,\"rows\":\"images\",\"fit\":\"cover\"}",
        "{\"version\":2,\"rows\":\"table\",\"target\":\"y\",\"target_compare\":\"codes\","
        "\"columns\":[{\"name\":\"a\",\"levels\":[\"007\",\"7\"],\"compare\":\"codes\"},{\"name\":\"b\","
        "\"levels\":[\"90071992547409921\",\"90071992547409922\",\"x\"],\"compare\":\"digits\","
        "\"missing\":0}]}",
        "{\"version\":2,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"mean\":4.1,\"deviation\":0.7,"
        "\"clip\":2.5},{\"name\":\"b\",\"levels\":[\"1\",\"2\",\"3\"]},{\"name\":\"c\"}]}",
        "{\"version\":2,\"rows\":\"array\",\"type\":\"f64\",\"divisor\":1,\"missing\":[0.5,2,0.1,"
        "0,1]}",
        "{\"version\":2,\"rows\":\"array\",\"divisor\":1}",
        "{\"version\":2,\"rows\":\"array\",\"target_mean\":-2.5,\"target_deviation\":0.5,\"divisor\":1}",
        "{\"version\":2,\"rows\":\"array\",\"target_mean\":[-2.5,1000000000],\"target_deviation\":[0.5,7],"
        "\"divisor\":1}",
        "{\"version\":2,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"type\":\"f64\",\"mean\":"
        "1764364143000,\"deviation\":17.25,\"missing\":1764364143000.5},{\"name\":\"b\","
        "\"levels\":[\"1\",\"2\",\"3\"]},{\"name\":\"c\"}]}",
        "{\"version\":2,\"rows\":\"array\",\"divisor\":1,\"layout\":\"channels_last\"}",
        "{\"version\":7,\"rows\":\"array\",\"divisor\":1,\"mean\":[1,2,3,4,5],\"deviation\":"
        "[1,1,null,2,0.5],\"clip\":10}",
        "{\"version\":5,\"rows\":\"array\",\"divisor\":1,\"mean\":[1,2,3,4,5],\"deviation\":"
        "[1,null,0.5,null,2]}",
        "{\"version\":5,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"mean\":4.1,\"deviation\":"
        "null,\"clip\":2.5},{\"name\":\"b\",\"levels\":[\"1\",\"2\",\"3\"]},{\"name\":\"c\"}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        ls_json_writer w;
        ls_prep *p = reads(text[i], 5, i != 2);
        ls_json_writer_init(&w, 0, NULL);
        ls_prep_write(&w, NULL, p);
        assert_string_equal(ls_json_writer_text(&w, NULL, NULL), text[i]);
        ls_json_writer_fini(&w);
        ls_prep_free(p);
    }
}

static void values_become_what_the_network_reads(void **state)
{
    (void)state;
    ls_error err;
    ls_prep *p = reads(table, 5, true);
    double row[5];
    float ready[5];
    assert_int_equal(ls_prep_find(p, "c"), 2);
    assert_int_equal(ls_prep_find(p, "y"), -1);
    assert_int_equal(put(p, 0, "5.5", 0, row, "", &err), LS_OK);
    assert_int_equal(put(p, 1, "9.0", 0, row, "", &err), LS_OK); /* the same number */
    assert_int_equal(put(p, 2, NULL, -3, row, "", &err), LS_OK);
    assert_int_equal(make_ready(p, row, true, ready, 5, &err), LS_OK);
    const float want[] = {(float)((5.5 - 4.1) / 0.7), 1, 0, 0, -3};
    assert_memory_equal(ready, want, sizeof want);
    assert_int_equal(put(p, 0, "NA", 0, row, "", &err), LS_OK);
    assert_int_equal(put(p, 1, "?", 0, row, "", &err), LS_OK);
    assert_int_equal(make_ready(p, row, true, ready, 5, &err), LS_OK);
    const float filled[] = {(float)((4.0 - 4.1) / 0.7), 0, 0, 0, -3};
    assert_memory_equal(ready, filled, sizeof filled);
    static const int column[] = {0, 1, 1, 1, 2};
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(ls_prep_feature(p, i), &p->column[column[i]]);
    assert_true(p->column[0].mean == 4.1 && p->column[0].deviation == 0.7);
    assert_true(p->column[1].mean == 0 && p->column[2].deviation == 1);
    ls_prep_free(p);
}

static void numbers_are_limited_where_their_column_says_so(void **state)
{
    (void)state;
    ls_error err;
    ls_prep *p = reads("{\"version\":1,\"rows\":\"table\",\"columns\":["
                       "{\"name\":\"a\",\"mean\":4,\"deviation\":2,\"clip\":3,\"missing\":100},"
                       "{\"name\":\"b\",\"mean\":4,\"deviation\":2}]}",
                       2, true);
    static const float raw[] = {4 + 6, 4 - 6, 5, 4 + 7, 1e30f, -1e30f, NAN};
    static const float want[] = {3, -3, 0.5f, 3, 3, -3, 3};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        float row[2] = {raw[i], 100};
        assert_int_equal(make_ready(p, row, false, row, 2, &err), LS_OK);
        assert_true(row[0] == want[i] && row[1] == 48);
    }
    ls_prep_free(p);
}

static void values_of_an_array_are_limited_after_they_are_scaled(void **state)
{
    static const float raw[] = {4 + 6, 4 - 6, 5, 4 + 7, 1e30f, -1e30f, NAN};
    static const float want[2][7] = {{3, -3, 0.5f, 3, 3, -3, 3},
                                     {3, -3, 0.5f, 3.5f, 5e29f, -5e29f, 48}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        ls_prep *p = reads(k ? "{\"version\":2,\"rows\":\"array\",\"divisor\":1,\"mean\":[4,0],"
                               "\"deviation\":[2,1],\"missing\":100}"
                             : "{\"version\":7,\"rows\":\"array\",\"divisor\":1,\"mean\":[4,0],"
                               "\"deviation\":[2,1],\"clip\":3,\"missing\":100}",
                           2, true);
        for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
            float row[2] = {raw[i], -2};
            ls_error err;
            assert_int_equal(make_ready(p, row, false, row, 2, &err), LS_OK);
            if (row[0] != want[k][i] || row[1] != -2)
                fail_msg("%d: %g: %g, %g", k, (double)raw[i], (double)row[0], (double)row[1]);
        }
        ls_prep_free(p);
    }
}

/* The numbers of a column of type "f64" are scaled as doubles; those of another are rounded to
 * floats first, which keeps steps of 131,072 here. */
static void wide_numbers_are_doubles_until_they_are_scaled(void **state)
{
    (void)state;
    static const struct {
        double raw;
        float wide, narrow;
    } row[] = {{1764364143001, 0.5f, -9420},
               {1764364142999, -0.5f, -9420},
               {NAN, 2, 56116},
               {INFINITY, 2, 56116},
               {-INFINITY, 2, 56116}};
    ls_prep *p = reads("{\"version\":2,\"rows\":\"table\",\"columns\":[{\"name\":\"w\","
                       "\"type\":\"f64\",\"mean\":1764364143000,\"deviation\":2,\"missing\":"
                       "1764364143004},{\"name\":\"n\",\"mean\":1764364143000,\"deviation\":2,"
                       "\"missing\":1764364255232}]}",
                       2, true);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const double raw[2] = {row[i].raw, row[i].raw};
        float ready[2];
        ls_error err;
        assert_int_equal(make_ready(p, raw, true, ready, 2, &err), LS_OK);
        if (ready[0] != row[i].wide || ready[1] != row[i].narrow)
            fail_msg("%.17g: %g, %g", row[i].raw, (double)ready[0], (double)ready[1]);
    }
    ls_prep_free(p);
}

static void what_no_float_holds_is_refused(void **state)
{
    (void)state;
    ls_prep *p = reads("{\"version\":2,\"rows\":\"table\",\"columns\":[{\"name\":\"a\"},"
                       "{\"name\":\"b\",\"type\":\"f64\",\"mean\":1e38,\"deviation\":1e37}]}",
                       2, true);
    double raw[] = {1e39, 9e37};
    float ready[2];
    ls_error err;
    assert_int_equal(put(p, 0, "1e39", 0, raw, "", &err), LS_EDATA);
    assert_int_equal(put(p, 0, NULL, 1e39, raw, "", &err), LS_EDATA);
    assert_int_equal(put(p, 1, "9e37", 0, raw, "", &err), LS_OK);
    assert_int_equal(make_ready(p, raw, true, ready, 2, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "column \"a\": expected a number that a float holds"));
    raw[0] = 1e-320;
    assert_int_equal(make_ready(p, raw, true, ready, 2, &err), LS_OK);
    assert_true(ready[0] == 0 && fabsf(ready[1] + 1) < 1e-6f);
    ls_prep_free(p);
}

/* The numbers of column a have decimal commas, those of b may have commas between thousands, and
 * nothing is known about c. */
static void numbers_are_read_as_the_training_table_wrote_them(void **state)
{
    static const struct {
        int column;
        const char *text;
        double value; /* NaN: it is refused */
        const char *says;
    } row[] = {
        {0, "1,234", 1.234, NULL},
        {0, "1.234,5", 1234.5, NULL},
        {0, "1.234", 1234, NULL},
        {0, "1.5", NAN, "a number with a decimal comma"},
        {1, "1,234", 1234, NULL},
        {1, "1,5", NAN, "a number with a decimal point"},
        {2, "1,234", NAN, "a number that can be read in only one way"},
        {2, "1,5", 1.5, NULL},
        {2, "1.234", 1.234, NULL},
        {2, "12%", NAN, "this is a percentage"},
        {2, "-", NAN, "a value, as the model has learnt"},
        {2, "1e99", NAN, "a finite number"},
    };
    (void)state;
    ls_prep *p =
        reads("{\"version\":1,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"decimal\":\",\"},"
              "{\"name\":\"b\",\"decimal\":\".\"},{\"name\":\"c\"}]}",
              3, true);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double raw[3];
        ls_error err = {0};
        const int status = put(p, row[i].column, row[i].text, 0, raw, "", &err);
        assert_int_equal(status, row[i].says ? LS_EDATA : LS_OK);
        if (row[i].says ? !strstr(err.text, row[i].says) : raw[row[i].column] != row[i].value)
            fail_msg("%zu: %g, %s", i, raw[row[i].column], err.text);
    }
    ls_prep_free(p);
    refuses("{\"version\":1,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"decimal\":\";\"}]}",
            1, true, "decimal");
}

static void what_does_not_fit_is_refused_by_its_name(void **state)
{
    static const struct {
        int column;
        const char *text, *says;
    } bad[] = {
        {0, "five", "t.csv:7: column \"a\": expected a number, found \"five\""},
        {0, "1e999", "expected a finite number"},
        {1, "X",
         "column \"b\": expected a text that the model has learnt: 9, x, a \"b\", found \"X\""},
        {2, "", "column \"c\": expected a value"},
    };
    (void)state;
    ls_prep *p = reads(table, 5, true);
    double row[5] = {1, 1, 0, 0, NAN};
    float ready[5];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_error err = {0};
        assert_int_equal(put(p, bad[i].column, bad[i].text, 0, row, "t.csv:7: ", &err), LS_EDATA);
        if (!strstr(err.text, bad[i].says))
            fail_msg("expected \"%s\" in: %s", bad[i].says, err.text);
    }
    ls_error err = {0};
    row[0] = row[1] = 1;
    row[2] = row[3] = 0;
    row[4] = NAN;
    assert_int_equal(make_ready(p, row, true, ready, 5, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "column \"c\""));
    ls_prep_free(p);
}

static void names_that_are_no_utf8_are_found_again(void **state)
{
    static const char *const level[] = {"Z\xfcrich", "Bern"};
    (void)state;
    ls_error err;
    ls_prep *p;
    double row[2];
    assert_int_equal(ls_prep_create(&p, LS_PREP_TABLE, NULL, &err), LS_OK);
    assert_int_equal(ls_prep_add(p, "\xd6rt", level, 2, &err), LS_OK);
    assert_int_equal(ls_prep_finish(p, &err), LS_OK);
    assert_int_equal(ls_prep_find(p, "\xd6rt"), 0);
    assert_int_equal(put(p, 0, "Z\xfcrich", 0, row, "", &err), LS_OK);
    assert_true(row[0] == 1 && row[1] == 0);
    ls_prep_free(p);
}

static void names_are_compared_as_they_are_in_files(void **state)
{
    static const char *const name[] = {"Z\xfcrich", "Bern", "Z\xc3\xbcrich", "Z\xf6rich"};
    (void)state;
    ls_error err = {0};
    assert_int_equal(ls_prep_check_names(name, 3, "class", NULL, &err), LS_OK);
    assert_int_equal(ls_prep_check_names(name, 4, "class", NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "class \"Z\xEF\xBF\xBDrich\": expected different names"));
    assert_true(ls_prep_is_name("Z\xEF\xBF\xBDrich", name[0]));
    assert_false(ls_prep_is_name("Z\xEF\xBF\xBDrich", name[2]));
    assert_false(ls_prep_is_name("Z\xEF\xBF\xBDrich", "Z\xfcric"));
    assert_false(ls_prep_is_name("Z\xEF\xBF\xBD", "Z\xfcr"));
    assert_true(ls_prep_is_name("Bern", "Bern"));
}

/* An accent of its own or not, Vietnamese with two of them, Hangul as syllables and as letters. */
static void names_are_the_same_in_every_form_of_unicode(void **state)
{
    static const struct {
        const char *composed, *apart;
    } name[] = {{"caf\xC3\xA9", "cafe\xCC\x81"},
                {"\xE1\xBB\x87", "e\xCC\xA3\xCC\x82"},
                {"\xED\x95\x9C\xEA\xB8\x80",
                 "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB\xE1\x84\x80\xE1\x85"
                 "\xB3\xE1\x86\xAF"},
                {"\xE3\x81\x8C", "\xE3\x81\x8B\xE3\x82\x99"},
                {"\xD0\xB9", "\xD0\xB8\xCC\x86"}};
    ls_prep *p;
    ls_error err;
    (void)state;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        assert_true(ls_prep_is_name(name[i].composed, name[i].apart));
        assert_true(ls_prep_is_name(name[i].apart, name[i].composed));
        assert_false(ls_prep_is_name(name[i].apart, name[(i + 1) % 5].composed));
    }
    assert_false(ls_prep_is_name("caf\xC3\xA9", "cafe"));
    assert_false(ls_prep_is_name("cafe\xCC\x81", "caf\xC3\xA8"));
    const char *const levels[] = {"caf\xC3\xA9", "tea"};
    assert_int_equal(ls_prep_create(&p, LS_PREP_TABLE, NULL, &err), LS_OK);
    assert_int_equal(ls_prep_add(p, "\xC3\xA9tat", levels, 2, &err), LS_OK);
    assert_int_equal(ls_prep_finish(p, &err), LS_OK);
    assert_int_equal(ls_prep_find(p, "e\xCC\x81tat"), 0);
    assert_int_equal(ls_prep_find(p, "etat"), -1);
    assert_int_equal(ls_prep_level(&p->column[0], "cafe\xCC\x81"), 0);
    ls_prep_free(p);
}

static void put_is(const ls_prep *p, int column, const char *text, double number, int level)
{
    double row[8];
    ls_error err = {0};
    const int status = put(p, column, text, number, row, "", &err);
    if (status != (level < 0 ? LS_EDATA : LS_OK))
        fail_msg("%s %g: %s", text ? text : "number", number, err.text);
    for (int k = 0; k < p->column[column].levels; k++) {
        const double v = row[p->column[column].first + k];
        assert_true(level < 0 ? isnan(v) : v == (double)(k == level));
    }
}

/* A text has the level of its number, digit by digit, and in a column of codes only its own. A
 * double has the level of the number that it holds exactly. */
static void levels_that_are_numbers_are_compared_by_their_digits(void **state)
{
    ls_prep *p = reads("{\"version\":1,\"rows\":\"table\",\"columns\":["
                       "{\"name\":\"a\",\"levels\":[\"7\",\"007\",\"10\"],\"compare\":\"codes\"},"
                       "{\"name\":\"b\",\"levels\":[\"2\",\"0.1\",\"90071992547409921\","
                       "\"1234567890123456789\",\"9007199254740992\"],\"compare\":\"digits\"}]}",
                       8, true);
    ls_error err = {0};
    double row[8];
    (void)state;
    put_is(p, 0, "007", 0, 1);
    put_is(p, 0, "7.0", 0, -1);
    put_is(p, 0, NULL, 7, 0);
    put_is(p, 1, "2.0", 0, 0);
    put_is(p, 1, "02", 0, 0);
    put_is(p, 1, NULL, 2, 0);
    put_is(p, 1, NULL, 0.1, 1);
    put_is(p, 1, "90071992547409921", 0, 2);
    put_is(p, 1, "9.0071992547409921e16", 0, 2);
    put_is(p, 1, "90071992547409922", 0, -1);
    put_is(p, 1, "1234567890123456789", 0, 3);
    put_is(p, 1, "1234567890123456788", 0, -1);
    assert_int_equal(put(p, 1, NULL, 0x1p53, row, "", &err), LS_EDATA);
    assert_non_null(strstr(err.text, "has lost digits"));
    assert_int_equal(put(p, 0, "07", 0, row, "", &err), LS_EDATA);
    assert_non_null(strstr(
        err.text, "a text that the model has learnt: 7, 007, 10; in this column 7 and 07 differ, "
                  "found \"07\""));
    ls_prep_free(p);
}

/* What becomes of a value that the model does not know, by the key "unknown": a text, a hole in a
 * column that had none, and numbers that are too large before and after they are scaled. */
static void unknown_values_are_marked_or_zeros_or_refused(void **state)
{
    static const struct {
        int column;
        const char *text;
        double number;
        bool is_text;
    } unknown[] = {{0, "z", 0, true},      {0, "", 0, true},          {0, NULL, NAN, true},
                   {0, NULL, 3, true},     {0, NULL, INFINITY, true}, {1, "NA", 0, false},
                   {1, "1e39", 0, false},  {1, "-1e999", 0, false},   {1, NULL, -INFINITY, false},
                   {1, NULL, 1e39, false}, {2, "3e38", 0, false}};
    (void)state;
    for (int rule = LS_UNKNOWN_EMPTY; rule <= LS_UNKNOWN_ERROR; rule++) {
        char text[300];
        snprintf(text, sizeof text,
                 "{\"version\":2,\"rows\":\"table\",\"unknown\":\"%s\",\"columns\":["
                 "{\"name\":\"a\",\"levels\":[\"x\",\"7\"]},{\"name\":\"b\"},"
                 "{\"name\":\"c\",\"mean\":0,\"deviation\":0.1}]}",
                 ls_prep_unknown_names[rule]);
        ls_prep *p = reads(text, 4, true);
        assert_int_equal(p->unknown, rule);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
            double row[4] = {1, 0, 5, 0.1};
            float ready[4];
            ls_error err = {0};
            ls_prep_found found = LS_PREP_KNOWN;
            const bool zeros = rule == LS_UNKNOWN_ZEROS && unknown[i].is_text;
            const bool refused = rule == LS_UNKNOWN_ERROR;
            const int put_status = ls_prep_put(p, unknown[i].column, unknown[i].text,
                                               unknown[i].number, row, "", &found, &err);
            if (unknown[i].column < 2) {
                assert_int_equal(found, zeros ? LS_PREP_ZEROED : LS_PREP_UNKNOWN);
                assert_int_equal(put_status, refused ? LS_EDATA : LS_OK);
                assert_non_null(strstr(err.text, "expected a"));
            }
            found = LS_PREP_KNOWN; /* the row alone says it, to whoever prepares it later */
            assert_int_equal(ls_prep_ready(p, row, true, ready, 4, &found, &err),
                             refused ? LS_EDATA : LS_OK);
            assert_int_equal(found, zeros ? LS_PREP_KNOWN : LS_PREP_UNKNOWN);
            for (int k = 0; k < 4 && !refused; k++)
                assert_true(ready[k] == (zeros && k >= 2 ? k == 2 ? 5.0f : 1.0f : 0.0f));
        }
        float floats[4] = {NAN, NAN, 5, 0.1f};
        ls_prep_found found = LS_PREP_KNOWN;
        ls_error err = {0};
        assert_int_equal(ls_prep_ready(p, floats, false, floats, 4, &found, &err),
                         rule == LS_UNKNOWN_ERROR ? LS_EDATA : LS_OK);
        assert_int_equal(found, rule == LS_UNKNOWN_ZEROS ? LS_PREP_ZEROED : LS_PREP_UNKNOWN);
        ls_prep_free(p);
    }
}

static void holes_of_arrays_are_filled(void **state)
{
    (void)state;
    ls_error err;
    float row[] = {NAN, 3};
    ls_prep *p =
        reads("{\"version\":1,\"rows\":\"array\",\"divisor\":1,\"missing\":[0.5,2.0]}", 2, true);
    assert_int_equal(make_ready(p, row, false, row, 2, &err), LS_OK);
    assert_true(row[0] == 0.5f && row[1] == 3);
    ls_prep_free(p);
}

/* The network has learnt nothing about a column of which all training rows had the same number, so
 * it reads the same for each number. A number that no float holds stays unknown. */
static void a_constant_column_is_0_whatever_it_is(void **state)
{
    static const char *const description[] = {
        "{\"version\":5,\"rows\":\"array\",\"divisor\":1,\"mean\":[1,2023],\"deviation\":[2,null]}",
        "{\"version\":5,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"mean\":1,\"deviation\":2},"
        "{\"name\":\"year\",\"mean\":2023,\"deviation\":null}]}",
        "{\"version\":5,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",\"mean\":1,\"deviation\":2,"
        "\"clip\":3},{\"name\":\"year\",\"type\":\"f64\",\"mean\":2023,\"deviation\":null,\"clip\":3}]}"};
    static const double values[] = {2023, 2024, 0, -3e38, 1e-300};
    (void)state;
    ls_error err;
    for (int k = 0; k < 3; k++) {
        ls_prep *p = reads(description[k], 2, true);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            const double row[] = {4, values[i]};
            float ready[2];
            assert_int_equal(make_ready(p, row, true, ready, 2, &err), LS_OK);
            assert_true(ready[0] == 1.5f && ready[1] == 0);
        }
        const double large[] = {4, 1e39};
        float ready[2];
        assert_int_equal(make_ready(p, large, true, ready, 2, &err), LS_EDATA);
        ls_prep_free(p);
    }
}

/* Rows of arrays: with replacements, with scales, and without a description. */
static void a_number_that_no_float_holds_is_unknown_in_an_array(void **state)
{
    static const char *const description[] = {
        "{\"version\":2,\"rows\":\"array\",\"divisor\":1,\"missing\":[0.5,2.0]}",
        "{\"version\":2,\"rows\":\"array\",\"divisor\":1,\"scale_type\":\"f64\",\"mean\":[0,5],"
        "\"deviation\":[1,0.001]}",
        NULL};
    static const struct {
        double value;
        bool known[3];
        const char *message;
    } cases[] = {{(double)NAN,
                  {true, false, false},
                  "column 1: expected a finite number that a float holds, found nan"},
                 {(double)INFINITY,
                  {false, false, false},
                  "column 1: expected a finite number that a float holds, found inf"},
                 {-(double)INFINITY,
                  {false, false, false},
                  "column 1: expected a finite number that a float holds, found -inf"},
                 {1e39,
                  {false, false, false},
                  "column 1: expected a finite number that a float holds, found 1e+39"},
                 {-3e38,
                  {true, false, true},
                  "column 1: expected a number that a float holds once it is scaled, found -3e+38"},
                 {1e-320, {true, true, true}, ""}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        ls_prep *p = description[k] ? reads(description[k], 2, true) : NULL;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int wide = 0; wide < 2; wide++) {
                const double row[] = {1, cases[i].value};
                float floats[] = {1, (float)cases[i].value};
                ls_prep_found found = LS_PREP_KNOWN;
                ls_error err = {0};
                assert_int_equal(
                    ls_prep_ready(p, wide ? (void *)row : floats, wide, floats, 2, &found, &err),
                    LS_OK);
                assert_int_equal(found, cases[i].known[k] ? LS_PREP_KNOWN : LS_PREP_UNKNOWN);
                assert_true(floats[0] == (cases[i].known[k] ? 1 : 0));
                assert_true(isfinite(floats[1]));
                if (wide && !cases[i].known[k])
                    assert_string_equal(err.text, cases[i].message);
            }
        ls_prep_free(p);
    }
}

static void outputs_are_given_back_in_the_targets_unit(void **state)
{
    (void)state;
    ls_prep *p = reads(
        "{\"version\":2,\"rows\":\"array\",\"target_mean\":100,\"target_deviation\":8,\"divisor\":1}",
        1, true);
    assert_true(ls_prep_target(p, 0, 88) == -1.5f);
    assert_true(ls_prep_output(p, 0, 0) == 100 && ls_prep_output(p, 1, -1.5f) == 88);
    assert_true(ls_prep_error_unit(p) == 8);
    ls_prep_free(p);
    p = reads(
        "{\"version\":2,\"rows\":\"array\",\"target_mean\":[100,0],\"target_deviation\":[8,0.5],"
        "\"divisor\":1}",
        1, true);
    assert_true(ls_prep_target(p, 2, 88) == -1.5f && ls_prep_target(p, 3, 88) == 176);
    assert_true(ls_prep_output(p, 0, 0) == 100 && ls_prep_output(p, 1, -1.5f) == -0.75);
    assert_true(ls_prep_output(p, 2, 1) == 108 && ls_prep_output(p, 3, 2) == 1);
    assert_true(ls_prep_error_unit(p) == 1);
    ls_prep_free(p);
    assert_true(ls_prep_target(NULL, 0, 88) == 88 && ls_prep_error_unit(NULL) == 1);
    p = reads("{\"version\":1,\"rows\":\"array\",\"divisor\":1}", 1, true);
    assert_true(ls_prep_output(p, 1, 88) == 88 && ls_prep_error_unit(p) == 1);
    ls_prep_free(p);
}

#define RESIZED(more) "{\"version\":4,\"rows\":\"images\",\"fit\":\"resize\"" more "}"

static void writes(const ls_prep *p, const char *want)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_prep_write(&w, NULL, p);
    assert_string_equal(ls_json_writer_text(&w, NULL, NULL), want);
    ls_json_writer_fini(&w);
}

static void pictures_keep_their_size_before_the_cut(void **state)
{
    (void)state;
    ls_prep *p = reads("{\"version\":2,\"rows\":\"images\",\"fit\":\"cover\"}", 4, false);
    assert_int_equal(p->resize.height, 0);
    writes(p, "{\"version\":2,\"rows\":\"images\",\"fit\":\"cover\"}");
    ls_prep_free(p);
    static const char number[] = RESIZED(",\"resize\":256,\"interpolation\":\"bilinear\""),
                      pair[] = RESIZED(",\"resize\":[48,192],\"interpolation\":\"bicubic\"");
    p = reads(number, 4, false);
    assert_true(p->resize.height == 256 && !p->resize.width &&
                p->resize.interpolation == LS_PREP_BILINEAR);
    assert_true(ls_prep_covers(&p->resize, 256, 200) && !ls_prep_covers(&p->resize, 200, 257));
    writes(p, number);
    ls_prep_free(p);
    p = reads(pair, 4, false);
    assert_true(p->resize.height == 48 && p->resize.width == 192 &&
                p->resize.interpolation == LS_PREP_BICUBIC);
    assert_true(ls_prep_covers(&p->resize, 48, 192) && !ls_prep_covers(&p->resize, 49, 1));
    writes(p, pair);
    ls_prep_free(p);
}

static void pictures_of_16_bits_keep_their_white(void **state)
{
    static const char *const texts[] = {
        "{\"version\":6,\"rows\":\"images\",\"fit\":\"cover\",\"white\":306}",
        "{\"version\":6,\"rows\":\"images\",\"fit\":\"resize\",\"resize\":9,"
        "\"interpolation\":\"bilinear\",\"white\":65535}"};
    static const int white[] = {306, 65535};
    (void)state;
    for (int i = 0; i < 2; i++) {
        ls_prep *p = reads(texts[i], 4, false);
        assert_int_equal(p->white, white[i]);
        writes(p, texts[i]);
        ls_prep_free(p);
    }
}

static void files_that_say_something_else_are_refused(void **state)
{
    (void)state;
#define COLUMNS(text) "{\"version\":1,\"rows\":\"table\",\"columns\":[" text "]}"
    refuses("{\"version\":8,\"rows\":\"images\"}", 4, false, "card:1:12: ");
    refuses("{\"version\":7,\"rows\":\"array\",\"divisor\":1,\"clip\":3}", 1, true,
            "expected \"clip\" only beside");
    refuses("{\"version\":7,\"rows\":\"array\",\"divisor\":1,\"mean\":[1],\"deviation\":[2],"
            "\"clip\":3}",
            2, true, "a \"mean\" for each of the 2 values");
    refuses("{\"version\":7,\"rows\":\"array\",\"divisor\":1,\"mean\":[1],\"deviation\":[2],"
            "\"clip\":-3}",
            1, true, "clip");
    refuses("{\"version\":6,\"rows\":\"images\",\"white\":0}", 4, false, "white");
    refuses("{\"version\":6,\"rows\":\"images\",\"white\":65536}", 4, false, "white");
    refuses("{\"rows\":\"images\"}", 4, false, "\"version\" is missing");
    refuses("{\"version\":1,\"rows\":\"rows\"}", 4, false, "rows");
    refuses("{\"version\":1,\"rows\":\"images\",\"fit\":\"squash\"}", 4, false, "fit");
    refuses("{\"version\":1,\"rows\":\"images\"}", 4, true, "input is not bytes");
    refuses(RESIZED(""), 4, false, "expected \"resize\"");
    refuses(RESIZED(",\"resize\":0"), 4, false, "an integer from 1 to 4096, or [height, width]");
    refuses(RESIZED(",\"resize\":[3,4,5]"), 4, false, "or [height, width]");
    refuses(RESIZED(",\"resize\":5"), 4, false, "interpolation");
    refuses(RESIZED(",\"resize\":5,\"interpolation\":\"area\""), 4, false, "unknown interpolation");
    refuses("{\"version\":1,\"rows\":\"array\",\"divisor\":2}", 4, true, "\"divisor\": 1");
    refuses("{\"version\":1,\"rows\":\"array\",\"divisor\":1,\"layout\":\"x\"}", 4, true, "layout");
    refuses("{\"version\":1,\"rows\":\"array\",\"divisor\":1,\"missing\":[1]}", 4, true, "missing");
    refuses("{\"version\":1,\"rows\":\"array\",\"divisor\":1,\"missing\":\"a\"}", 4, true,
            "missing");
    refuses("{\"version\":1,\"rows\":\"array\",\"divisor\":1,\"target_mean\":1}", 4, true,
            "target_deviation");
    refuses(COLUMNS(""), 4, true, "columns");
    refuses(COLUMNS("{\"name\":\"a\"}"), 2, true, "have 1 floats");
    refuses(COLUMNS("{\"name\":\"a\"}"), 1, false, "bytes");
    refuses(COLUMNS("{\"name\":\"a\"},{\"name\":\"a\"}"), 2, true, "different names");
    refuses(COLUMNS("{\"name\":\"a\",\"levels\":[\"x\",\"x\"]}"), 2, true, "\"x\" twice");
    refuses(COLUMNS("{\"name\":\"a\",\"levels\":[]}"), 0, true, "levels");
    refuses(COLUMNS("{\"name\":\"a\",\"compare\":\"codes\"}"), 1, true, "only beside \"levels\"");
    refuses(COLUMNS("{\"name\":\"a\",\"levels\":[\"x\"],\"compare\":\"eyes\"}"), 1, true,
            "compare");
    refuses(COLUMNS("{\"name\":\"a\",\"levels\":[1]}"), 1, true, "expected a text in \"levels\"");
    refuses(COLUMNS("{\"name\":\"a\",\"mean\":1}"), 1, true, "deviation");
    refuses(COLUMNS("{\"name\":\"a\",\"mean\":1,\"deviation\":0}"), 1, true, "deviation");
    refuses(COLUMNS("{\"name\":\"a\",\"mean\":null,\"deviation\":1}"), 1, true, "mean");
    refuses(COLUMNS("{\"name\":\"a\",\"deviation\":null}"), 1, true, "deviation");
    refuses(COLUMNS("{\"name\":\"a\",\"clip\":3}"), 1, true, "clip");
    refuses(COLUMNS("{\"name\":\"a\",\"mean\":1,\"deviation\":1,\"clip\":-3}"), 1, true, "clip");
    refuses(COLUMNS("{\"name\":\"a\",\"levels\":[\"x\"],\"missing\":2}"), 1, true, "levels");
    refuses(COLUMNS("{\"name\":\"a\",\"width\":2}"), 1, true, "width");
    refuses(COLUMNS("7"), 1, true, "object");
}

static const char dates[] =
    "{\"version\":3,\"rows\":\"table\",\"columns\":["
    "{\"name\":\"a\"},{\"name\":\"day\",\"date\":\"dmy\",\"since\":19723,\"parts\":["
    "{\"part\":\"month\",\"mean\":6,\"deviation\":2,\"clip\":2%s},"
    "{\"part\":\"days\",\"mean\":10,\"deviation\":5%s}]},{\"name\":\"b\"}]%s}";

static ls_prep *reads_dates(const char *first, const char *second, const char *more)
{
    char text[600];
    snprintf(text, sizeof text, dates, first, second, more);
    return reads(text, 4, true);
}

static void dates_become_the_numbers_of_their_parts(void **state)
{
    static const char *const text[] = {"11.01.2024 12:00", "2024-01-11T12:00", " 11/01/2024 12:00"};
    (void)state;
    ls_prep *p = reads_dates("", "", "");
    ls_error err;
    double row[4] = {1, 0, 0, 2};
    float ready[4];
    assert_int_equal(p->column[2].first, 3);
    assert_string_equal(ls_prep_feature(p, 2)->name, "day_days");
    for (int i = 0; i < 3; i++) {
        row[1] = row[2] = -1;
        assert_int_equal(put(p, 1, text[i], 0, row, "", &err), LS_OK);
        assert_true(row[1] == 1 && row[2] == 10.5);
        assert_int_equal(make_ready(p, row, true, ready, 4, &err), LS_OK);
        const float want[] = {1, -2, 0.1f, 2};
        assert_memory_equal(ready, want, sizeof want);
    }
    /* only a text is a date, and a number is an error as it is where a text is one of numbers */
    assert_int_equal(put(p, 1, NULL, 3, row, "", &err), LS_EDATA);
    assert_non_null(strstr(err.text, "\"day\": expected a date such as 31.12.2024 or 2024-12-31, "
                                     "found \"the number 3\""));
    ls_prep_free(p);
}

static void missing_and_impossible_dates_are_judged_as_numbers_are(void **state)
{
    static const char *const impossible[] = {"30.02.2024", "12/31/2024", "0000-00-00", "soon"};
    static const char *const missing[] = {"", "NA", "NaT", NULL};
    (void)state;
    ls_error err;
    double row[4] = {1, 0, 0, 2};
    float ready[4];
    for (int rule = 0; rule < 2; rule++) {
        ls_prep *p = reads_dates("", "", rule ? ",\"unknown\":\"error\"" : "");
        for (int i = 0; i < 4; i++) {
            assert_int_equal(put(p, 1, impossible[i], 0, row, "t:2: ", &err), LS_EDATA);
            assert_non_null(strstr(err.text, "t:2: column \"day\": expected a date such as"));
            assert_int_equal(make_ready(p, row, true, ready, 4, &err), LS_EDATA);
            assert_int_equal(put(p, 1, missing[i], NAN, row, "", &err), LS_EDATA);
            assert_int_equal(make_ready(p, row, true, ready, 4, &err), LS_EDATA);
        }
        ls_prep_free(p);
    }
    ls_prep *p = reads_dates(",\"missing\":4", ",\"missing\":15", "");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(put(p, 1, missing[i], NAN, row, "", &err), LS_OK);
        assert_int_equal(make_ready(p, row, true, ready, 4, &err), LS_OK);
        const float want[] = {1, -1, 1, 2};
        assert_memory_equal(ready, want, sizeof want);
    }
    assert_int_equal(put(p, 1, "30.02.2024", 0, row, "", &err), LS_EDATA);
    ls_prep_free(p);
}

/* Programs that know no dates refuse such a description by its version, and read any other. */
static void dates_have_a_version_of_their_own(void **state)
{
    (void)state;
    static const char plain[] = "{\"version\":2,\"rows\":\"table\",\"columns\":[{\"name\":\"a\"}]}";
    ls_prep *p[2] = {reads(plain, 1, true), reads_dates(",\"missing\":4", ",\"missing\":15", "")};
    for (int i = 0; i < 2; i++) {
        ls_json_writer w;
        ls_json_writer_init(&w, 0, NULL);
        ls_json_open_object(&w, NULL);
        ls_prep_write(&w, "p", p[i]);
        ls_json_close(&w);
        const char *text = ls_json_writer_text(&w, NULL, NULL);
        char want[600];
        snprintf(want, sizeof want, dates, ",\"missing\":4", ",\"missing\":15", "");
        char whole[700];
        snprintf(whole, sizeof whole, "{\"p\":%s}", i ? want : plain);
        assert_string_equal(text, whole);
        ls_json_writer_fini(&w);
        ls_prep_free(p[i]);
    }
}

static void dates_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *column, *says;
    } cases[] = {
        {"\"date\":\"none\",\"parts\":[{\"part\":\"days\"}]", "expected \"date\" other than"},
        {"\"date\":\"ymd\",\"parts\":[]", "1 to 5 \"parts\""},
        {"\"date\":\"ymd\"", "1 to 5 \"parts\""},
        {"\"date\":\"ymd\",\"parts\":[{\"part\":\"age\"}]", "\"age\""},
        {"\"date\":\"ymd\",\"parts\":[{}]", "part"},
        {"\"date\":\"ymd\",\"parts\":[7]", "part"},
        {"\"date\":\"ymd\",\"parts\":[{\"part\":\"days\",\"type\":\"f64\"}]", "without \"type\""},
        {"\"date\":\"ymd\",\"parts\":[{\"part\":\"days\"}],\"levels\":[\"a\"]", "levels"},
        {"\"date\":\"ymd\",\"parts\":[{\"part\":\"days\",\"missing\":1},{\"part\":\"year\"}]",
         "in all parts, or in none"},
        {"\"date\":\"ymd\",\"parts\":[{\"part\":\"days\"},{\"part\":\"year\"}]", "2 floats"},
    };
    char text[400];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text,
                 "{\"version\":3,\"rows\":\"table\",\"columns\":[{\"name\":\"a\",%s}]}",
                 cases[i].column);
        refuses(text, 1, true, cases[i].says);
    }
}

/* The description of a table in files of earlier versions. */
static void features_of_older_files_are_read(void **state)
{
    static const char text[] =
        "[{\"column\":\"a\",\"mean\":4.1,\"deviation\":0.7},{\"column\":\"b\",\"is\":\"9\"},"
        "{\"column\":\"b\",\"is\":\"x\"},{\"column\":\"c\"}]";
    (void)state;
    ls_json *doc;
    ls_prep *p;
    ls_error err;
    double row[4];
    float ready[4];
    assert_int_equal(ls_json_parse(&doc, "card", text, strlen(text), NULL, &err), LS_OK);
    assert_int_equal(ls_prep_read_features(&p, doc, ls_json_root(doc), 4, NULL, &err), LS_OK);
    assert_int_equal(p->columns, 3);
    assert_int_equal(put(p, 0, "5.5", 0, row, "", &err), LS_OK);
    assert_int_equal(put(p, 1, "x", 0, row, "", &err), LS_OK);
    assert_int_equal(put(p, 2, "7", 0, row, "", &err), LS_OK);
    assert_int_equal(make_ready(p, row, true, ready, 4, &err), LS_OK);
    const float want[] = {(float)((5.5 - 4.1) / 0.7), 0, 1, 7};
    assert_memory_equal(ready, want, sizeof want);
    ls_prep_free(p);
    assert_int_equal(ls_prep_read_features(&p, doc, ls_json_root(doc), 5, NULL, &err), LS_ECONFIG);
    ls_json_destroy(doc);
}

LS_TESTS(prep_description, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_written_as_it_was_read),
        cmocka_unit_test(values_become_what_the_network_reads),
        cmocka_unit_test(numbers_are_limited_where_their_column_says_so),
        cmocka_unit_test(values_of_an_array_are_limited_after_they_are_scaled),
        cmocka_unit_test(wide_numbers_are_doubles_until_they_are_scaled),
        cmocka_unit_test(what_no_float_holds_is_refused),
        cmocka_unit_test(numbers_are_read_as_the_training_table_wrote_them),
        cmocka_unit_test(what_does_not_fit_is_refused_by_its_name),
        cmocka_unit_test(names_that_are_no_utf8_are_found_again),
        cmocka_unit_test(names_are_compared_as_they_are_in_files),
        cmocka_unit_test(names_are_the_same_in_every_form_of_unicode),
        cmocka_unit_test(levels_that_are_numbers_are_compared_by_their_digits),
        cmocka_unit_test(unknown_values_are_marked_or_zeros_or_refused),
        cmocka_unit_test(holes_of_arrays_are_filled),
        cmocka_unit_test(a_constant_column_is_0_whatever_it_is),
        cmocka_unit_test(a_number_that_no_float_holds_is_unknown_in_an_array),
        cmocka_unit_test(outputs_are_given_back_in_the_targets_unit),
        cmocka_unit_test(dates_become_the_numbers_of_their_parts),
        cmocka_unit_test(missing_and_impossible_dates_are_judged_as_numbers_are),
        cmocka_unit_test(dates_have_a_version_of_their_own),
        cmocka_unit_test(dates_that_do_not_fit_are_refused),
        cmocka_unit_test(features_of_older_files_are_read),
        cmocka_unit_test(pictures_keep_their_size_before_the_cut),
        cmocka_unit_test(pictures_of_16_bits_keep_their_white),
        cmocka_unit_test(files_that_say_something_else_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
