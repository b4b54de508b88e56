/* SPDX-License-Identifier: MIT */
/* Tests tables as spreadsheets, pandas, R and SQL write them. Reading must give the right values,
 * or an error that names the cause and the cure. */
#include "base/host.h"
#include "data/dataset.h"
#include "data/new_rows.h"
#include "data/scratch.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ls_data_keys classes = {.target.text = "y"};
static const ls_data_keys filled = {.target.text = "y", .missing = LS_MISSING_MEAN};

static int open_file(scratch *s, const char *name, ls_data_keys keys, ls_dataset *split[2],
                     const ls_host *host, ls_error *err)
{
    const ls_dataset_spec spec = {.name = "csv", .path = scratch_path(s, name), .keys = keys};
    return ls_dataset_open(&split[0], &split[1], &spec, host, err);
}

static void close_both(ls_dataset *const split[2])
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void check_values(const ls_dataset *ds, uint32_t rows, int columns, const float *expected)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const float *v = ls_dataset_resident(ds).values;
    assert_int_equal(info->rows, rows);
    assert_int_equal(info->channels, columns);
    for (size_t i = 0; i < rows * (size_t)columns; i++)
        if (v[i] != expected[i])
            fail_msg("value %zu: %.9g, not %.9g", i, (double)v[i], (double)expected[i]);
}

static void file_is(scratch *s, const char *name, ls_data_keys keys, uint32_t rows, int columns,
                    const float *expected)
{
    ls_dataset *split[2];
    ls_error err = {0};
    if (open_file(s, name, keys, split, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    check_values(split[0], rows, columns, expected);
    close_both(split);
}

/* Checks that the table `text` is read as two rows with two numbers each, a b and c d. */
static void is(scratch *s, const char *text, ls_data_keys keys, float a, float b, float c, float d)
{
    const float expected[] = {a, b, c, d};
    scratch_file(s, "t.csv", text, strlen(text));
    file_is(s, "t.csv", keys, 2, 2, expected);
}

static void refuses(scratch *s, const char *text, ls_data_keys keys, const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    scratch_file(s, "t.csv", text, strlen(text));
    if (open_file(s, "t.csv", keys, split, NULL, &err) == LS_OK)
        fail_msg("it was read, and not refused by \"%s\"", message);
    if (!strstr(err.text, message))
        fail_msg("\"%s\"\nhas no \"%s\"", err.text, message);
}

static void separators_are_found_from_the_header(void **state)
{
    is(*state, "a;b;y\n1;2;u\n3;4;v\n", classes, 1, 2, 3, 4);
    is(*state, "a\tb\ty\r\n1\t 2\tu\r\n3\t4\tv", classes, 1, 2, 3, 4);
    is(*state, "a|b|y\n1|2|u\n3|4|v\n", classes, 1, 2, 3, 4);
    is(*state, " a  b y\n1 2   u \n 3 4 v\n", classes, 1, 2, 3, 4);
    is(*state, "sep=;\r\na;b;y\r\n1;2;u\r\n3;4;v\r\n", classes, 1, 2, 3, 4);
    /* The header contains both separators; the rows below show which one separates fields. */
    is(*state, "a, in cm;b;y\n1;2;u\n3;4;v\n", classes, 1, 2, 3, 4);
    is(*state, "a;x,b;y,y\n1,2,u\n3,4,v\n", classes, 1, 2, 3, 4);
    is(*state, "\"a;x\",b,y\n1,2,u\n3,4,v\n", classes, 1, 2, 3, 4);
    is(*state, "a;b, in cm;y\n1,5;2,5;u\n3,5;4,5;v\n", classes, 1.5f, 2.5f, 3.5f, 4.5f);
}

static void a_separator_that_cannot_be_told_is_refused_and_the_key_decides(void **state)
{
    static const char both[] = "a;b,y\n1;2,0\n3;4,1\n";
    refuses(*state, both, classes, "set data.separator");
    ls_data_keys keys = classes;
    keys.separator = ",";
    scratch_file(*state, "t.csv", both, sizeof both - 1);
    /* with the separator comma, the column "a;b" has the texts 1;2 and 3;4 */
    file_is(*state, "t.csv", keys, 2, 2, (const float[]){1, 0, 0, 1});
    keys = filled;
    keys.target.text = "b,y";
    keys.separator = ";";
    keys.decimal = LS_DECIMAL_COMMA;
    keys.labels = LS_LABELS_VALUES;
    file_is(*state, "t.csv", keys, 2, 1, (const float[]){1, 3});
    keys.separator = "tabulator";
    refuses(*state, both, keys, "data.separator: expected");
}

static void decimal_commas_are_read_column_by_column(void **state)
{
    is(*state, "a;b;y\n1,5;2;u\n-3,25e2;4.5;v\n", classes, 1.5f, 2, -325, 4.5f);
    is(*state, "a,b,y\n\"1,5\",2,u\n\"3,25\",4,v\n", classes, 1.5f, 2, 3.25f, 4);
    is(*state, "a,b,y\n\" 1.5 \",\" NA\",u\n3,4,v\n", filled, 1.5f, 4, 3, 4);
    is(*state, "a;b;y\n1.234,5;2;u\n12.345.678,9;4;v\n", classes, 1234.5f, 2, 12345678.9f, 4);
    /* The first number can be read in two ways; the second number shows the decimal separator, and
     * the table is read once more. */
    is(*state, "a;b;y\n1,234;2;u\n5,5;4;v\n", classes, 1.234f, 2, 5.5f, 4);
    is(*state, "a;b;y\n1.234;2;u\n5,5;4;v\n", classes, 1234, 2, 5.5f, 4);
    is(*state, "a;b;y\n1,234;2;u\n1,234.5;4;v\n", classes, 1234, 2, 1234.5f, 4);
    is(*state, "a;b;y\n1,234;2;u\n5.5;4;v\n", classes, 1234, 2, 5.5f, 4);
}

static void a_number_that_can_be_read_both_ways_is_refused_and_the_key_decides(void **state)
{
    static const char both[] = "a;b;y\n1,234;2;u\n5,678;4;v\n";
    refuses(*state, both, classes,
            "t.csv:2: column \"a\": \"1,234\" may be a decimal fraction, or have a separator of "
            "thousands; set data.decimal");
    /* A decimal comma in another column does not decide whether the point in 1.234 separates
     * thousands. */
    refuses(*state, "a;b;y\n1.234;2,5;u\n5;4;v\n", classes, "set data.decimal");
    ls_data_keys keys = classes;
    keys.decimal = LS_DECIMAL_COMMA;
    is(*state, both, keys, 1.234f, 2, 5.678f, 4);
    is(*state, "a;b;y\n1.234;2,5;u\n5;4;v\n", keys, 1234, 2.5f, 5, 4);
    refuses(*state, "a;b;y\n1.5;2;u\n5;4;v\n", keys,
            "expected a number with a decimal comma, as data.decimal says, found \"1.5\"");
    keys.decimal = LS_DECIMAL_POINT;
    is(*state, both, keys, 1234, 2, 5678, 4);
    refuses(*state, "a;b;y\n1;2;u\n1,5;4;v\n", keys,
            "a number with a decimal point, as data.decimal says, found \"1,5\"");
    refuses(*state, "a;b;y\n1,5;2;u\n1.5;4;v\n", classes,
            "a number with a decimal comma, as before in this column, found \"1.5\"");
}

static void marks_between_thousands_are_read(void **state)
{
    is(*state, "a;b;y\n1,234,567;2;u\n12,345.5;4;v\n", classes, 1234567, 2, 12345.5f, 4);
    is(*state, "a;b;y\n1'234'567;2;u\n1'234.5;4;v\n", classes, 1234567, 2, 1234.5f, 4);
    is(*state,
       "a;b;y\n1\xC2\xA0"
       "234;2;u\n-1\xE2\x80\xAF"
       "234,5;4;v\n",
       classes, 1234, 2, -1234.5f, 4);
    refuses(*state, "a;b;y\n1;2;u\n12,34,567;4;v\n", classes,
            "expected a number, as in the other rows");
    refuses(*state, "a;b;y\n1;2;u\n192.168.100.200;4;v\n", classes,
            "expected a number, as in the other rows");
}

static void words_for_missing_are_known_also_as_first_values(void **state)
{
    static const char *const word[] = {
        "",     "NA",   "N/A",  "n/a",  "NaN", "NAN", "nan", "null", "NULL", "\\N", "?",
        "#N/A", "<NA>", "None", "none", "-",   "--",  ".",   "inf",  "-inf", "Inf", "Infinity"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        char text[96];
        snprintf(text, sizeof text, "a,b,y\n%s,1,u\n4,%s,v\n", word[i], word[i]);
        is(*state, text, filled, 4, 1, 4, 1);
        refuses(*state, text, classes,
                "t.csv:2: column \"a\": expected a value; set data.missing to");
    }
}

static void words_that_may_be_texts_are_texts_in_a_column_of_texts(void **state)
{
    static const char text[] = "a,y\n-,+\n+,-\nNone,+\n";
    scratch_file(*state, "t.csv", text, sizeof text - 1);
    file_is(*state, "t.csv", classes, 3, 3,
            (const float[]){0, 1, 0, 1, 0, 0, 0, 0, 1}); /* "+", "-", "None" */
    refuses(*state, "a,y\nred,1\nN/A,2\n", classes, "data.missing");
}

static void numbers_behind_another_word_are_not_texts_in_silence(void **state)
{
    char text[400], *to = text + sprintf(text, "a,y\nunknown,u\n");
    for (int i = 0; i < 12; i++)
        to += sprintf(to, "%d.5,%c\n", i, 'u' + i % 2);
    refuses(
        *state, text, classes,
        "column \"a\": its first value is \"unknown\", and 12 of its 13 different texts are numbers");
    refuses(*state, "a,y\n1,u\nunknown,v\n", classes,
            "if the column contains texts, name it in data.categorical");
    ls_dataset *split[2];
    ls_error err = {0};
    ls_data_keys keys = classes;
    keys.categorical.text = "a";
    scratch_file(*state, "t.csv", text, strlen(text));
    assert_int_equal(open_file(*state, "t.csv", keys, split, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_describe(split[0])->channels, 13);
    close_both(split);
}

static void utf16_is_known_by_its_mark(void **state)
{
    static const uint8_t little[] = "\xFF\xFE"
                                    "a\0,\0y\0\n\0"
                                    "1\0,\0\xFC\0\n\0"
                                    "2\0,\0\x3D\xD8\0\xDE\n";
    static const uint8_t big[] = "\xFE\xFF\0a\0,\0y\0\n\0"
                                 "1\0,\0\xFC\0\n\0"
                                 "2\0,\xD8\x3D\xDE\0\0\n";
    for (int i = 0; i < 2; i++) {
        ls_dataset *split[2];
        ls_error err = {0};
        if (i == 0)
            scratch_file(*state, "t.csv", little, sizeof little);
        else
            scratch_file(*state, "t.csv", big, sizeof big - 1);
        if (open_file(*state, "t.csv", classes, split, NULL, &err) != LS_OK)
            fail_msg("%s", err.text);
        check_values(split[0], 2, 1, (const float[]){1, 2});
        assert_string_equal(ls_dataset_describe(split[0])->class_name[0], "\xC3\xBC");
        assert_string_equal(ls_dataset_describe(split[0])->class_name[1], "\xF0\x9F\x98\x80");
        close_both(split);
    }
    scratch_file(*state, "t.csv", little + 2, sizeof little - 2);
    ls_dataset *split[2];
    ls_error err = {0};
    assert_int_equal(open_file(*state, "t.csv", classes, split, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "UTF-16 without a byte order mark"));
    refuses(*state, "PK\3\4....", classes, "save the sheet as CSV");
    refuses(*state, "a,y\r1,2\r3,4\r", classes, "found carriage returns alone");
}

static void compressed_tables_are_read(void **state)
{
    static const char text[] = "a,b,y\n1,2,u\n3,4,v\n";
    ls_dataset *plain[2], *packed[2];
    ls_error err = {0};
    scratch_file(*state, "t.csv", text, sizeof text - 1);
    scratch_gzip(*state, "t.csv.gz", text, sizeof text - 1);
    file_is(*state, "t.csv.gz", classes, 2, 2, (const float[]){1, 2, 3, 4});
    assert_int_equal(open_file(*state, "t.csv", classes, plain, NULL, &err), LS_OK);
    assert_int_equal(open_file(*state, "t.csv.gz", classes, packed, NULL, &err), LS_OK);
    assert_string_equal(ls_dataset_describe(plain[0])->images_sha256,
                        ls_dataset_describe(packed[0])->images_sha256);
    close_both(plain);
    close_both(packed);
}

static void remember(void *user, ls_log_level level, const char *message)
{
    (void)level;
    snprintf(user, 256, "%.255s", message);
}

static void columns_without_a_name_are_left_out_and_said(void **state)
{
    static const char *const text[] = {
        ",a,b,y\n0,1,2,u\n1,3,4,v\n", "\"\",a,b,y\n\"1\",1,2,u\n\"2\",3,4,v\n",
        "Unnamed: 0,a,b,y\n0,1,2,u\n1,3,4,v\n", "a,b,y,,\n1,2,u,,\n3,4,v,,\n"};
    for (int i = 0; i < 4; i++) {
        ls_dataset *split[2];
        ls_error err = {0};
        char said[256] = "";
        const ls_host host = {.log = remember, .user = said};
        scratch_file(*state, "t.csv", text[i], strlen(text[i]));
        if (open_file(*state, "t.csv", classes, split, &host, &err) != LS_OK)
            fail_msg("%s", err.text);
        check_values(split[0], 2, 2, (const float[]){1, 2, 3, 4});
        assert_non_null(strstr(said, "has no name"));
        close_both(split);
    }
    refuses(*state, "a,y\nr1,1,2\nr2,3,4\n", classes, "as R writes it");
    refuses(*state, "\"a\" \"y\"\n\"1\" 1 2\n\"2\" 3 4\n", classes, "as R writes it");
}

static void what_is_no_number_is_said_for_what_it_is(void **state)
{
    static const struct {
        const char *text, *is;
        const char *first; /* the same for a first value of a column; NULL where it is read */
    } row[] = {
        {"12%", "a percentage", "a percentage"},
        {"12.5 %", "a percentage", "a percentage"},
        {"$1200", "an amount of money", "an amount of money"},
        {"1200 \xE2\x82\xAC", "an amount of money", "an amount of money"},
        {"-$5", "an amount of money", "an amount of money"},
        {"2013-01-02", "a date", NULL},
        {"2013-01-02T10:00:00Z", "a date", NULL},
        {"1/2/2013", "a date", "dates that can be read in one way"},
        {"02.01.2013", "a date", "dates that can be read in one way"},
        {"2013-01-02 10:00", "a date", NULL},
        {"10:30", "a time", NULL},
        {"10:30:05", "a time", NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[128];
        snprintf(text, sizeof text, "a,y\n%s,u\n%s,v\n", row[i].text, row[i].text);
        if (row[i].first) {
            refuses(*state, text, classes, row[i].first);
            refuses(*state, text, classes, "data.categorical");
        }
        snprintf(text, sizeof text, "a,y\n1,u\n%s,v\n", row[i].text);
        refuses(*state, text, classes, row[i].is);
        ls_data_keys keys = classes;
        keys.categorical.text = "a";
        scratch_file(*state, "t.csv", text, strlen(text));
        file_is(*state, "t.csv", keys, 2, 2, (const float[]){1, 0, 0, 1});
    }
}

static void long_fields_in_columns_that_are_left_out_are_passed_over(void **state)
{
    enum { LONG = 300000 };
    char *text = malloc(2 * LONG), *to = text;
    assert_non_null(text);
    to += sprintf(to, "a,essay,b,y\n1,\"");
    memset(to, 'x', LONG);
    to += LONG;
    to += sprintf(to, "\"\"\n\",2,u\n3,short,4,v\n");
    ls_data_keys keys = classes;
    keys.drop.text = "essay";
    is(*state, text, keys, 1, 2, 3, 4);
    refuses(
        *state, text, classes,
        "column \"essay\": expected a text of less than 4096 bytes; name the column in data.drop");
    free(text);
}

static void numbers_and_lists_name_columns(void **state)
{
    static const char text[] = "2012,\"a, b\",c,2013\n1,2,x,u\n3,4,z,v\n";
    cJSON *number = cJSON_CreateNumber(2013), *list = cJSON_CreateArray(),
          *wrong = cJSON_CreateNumber(2014);
    cJSON_AddItemToArray(list, cJSON_CreateNumber(2012));
    cJSON_AddItemToArray(list, cJSON_CreateString("a, b"));
    ls_data_keys keys = {.target.list = number, .drop.text = "c"};
    is(*state, text, keys, 1, 2, 3, 4);
    keys.drop.list = list;
    keys.drop.text = NULL;
    scratch_file(*state, "t.csv", text, sizeof text - 1);
    file_is(*state, "t.csv", keys, 2, 2, (const float[]){1, 0, 0, 1});
    keys.drop.list = NULL;
    keys.drop.text = "a, b"; /* one name that contains a comma */
    file_is(*state, "t.csv", keys, 2, 3, (const float[]){1, 1, 0, 3, 0, 1});
    keys.target.list = wrong;
    refuses(*state, text, keys,
            "data.target: the table has no column \"2014\"; did you mean \"2012\"?");
    cJSON_Delete(number);
    cJSON_Delete(list);
    cJSON_Delete(wrong);
}

static void equal_numbers_are_one_label(void **state)
{
    static const char text[] = "a,y\n1,1\n1.0,1.0\n+1,2\n5,+1\n5e0,2.\n";
    ls_dataset *split[2];
    ls_error err = {0};
    ls_data_keys keys = classes;
    keys.categorical.text = "a";
    scratch_file(*state, "t.csv", text, sizeof text - 1);
    if (open_file(*state, "t.csv", keys, split, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    check_values(split[0], 5, 2, (const float[]){1, 0, 1, 0, 1, 0, 0, 1, 0, 1});
    static const int32_t label[] = {0, 0, 1, 0, 1};
    assert_int_equal(ls_dataset_describe(split[0])->classes, 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ls_dataset_resident(split[0]).labels[i], label[i]);
    close_both(split);
    /* Ids that become the same double are different classes. */
    static const char ids[] = "a,y\n1,100000000000000000001\n2,100000000000000000002\n";
    scratch_file(*state, "t.csv", ids, sizeof ids - 1);
    assert_int_equal(open_file(*state, "t.csv", classes, split, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_describe(split[0])->classes, 2);
    close_both(split);
}

static void targets_that_are_measured_are_not_taken_for_classes(void **state)
{
    static const char text[] = "a,y\n1,0.5\n2,1.5\n3,2\n";
    refuses(*state, text, classes,
            "data.labels: the target \"y\" has 3 different numbers in 3 rows, such as 0.5; set "
            "data.labels to \"values\"");
    refuses(*state, "a;y\n1;1,5\n2;2,5\n", classes,
            "data.labels: the target \"y\" has 2 different");
    ls_data_keys keys = classes;
    keys.labels = LS_LABELS_CLASSES;
    scratch_file(*state, "t.csv", text, sizeof text - 1);
    file_is(*state, "t.csv", keys, 3, 1, (const float[]){1, 2, 3});
    keys.labels = LS_LABELS_VALUES;
    file_is(*state, "t.csv", keys, 3, 1, (const float[]){1, 2, 3});
    char *many = malloc(1 << 14), *to = many + sprintf(many, "a,y\n");
    assert_non_null(many);
    for (int i = 0; i < 300; i++)
        to += sprintf(to, "1,%d\n", 1000 + 7 * i);
    refuses(*state, many, classes, "has 300 different numbers in 300 rows, such as 1000");
    free(many);
}

static void an_unknown_column_lists_ten_and_the_nearest(void **state)
{
    ls_data_keys keys = classes;
    keys.drop.text = "colum7";
    refuses(*state,
            "column0,column1,column2,column3,column4,column5,column6,column7,column8,column9,y\n",
            keys,
            "data.drop: the table has no column \"colum7\"; did you mean \"column7\"? It has "
            "\"column0\", \"column1\", \"column2\", \"column3\", \"column4\", \"column5\", "
            "\"column6\", \"column7\", \"column8\", \"column9\", … (11 in all)");
}

/* A model that was trained on a table of one form reads new rows in that form and in others. */
static void new_rows_are_read_in_the_same_forms(void **state)
{
    static const char table[] = "a;b;c;y\n1,234;-;r\xFCt;u\n5,5;1,234.5;b;v\n";
    static const char *const rows[] = {
        "c;y;b;a\nr\xFCt;v;\"2,345\";1,234\n",
        "\xEF\xBB\xBF"
        "a,c,b\n\"1,234\",r\xC3\xBCt,2345\n",
        "a\tb\tc\r\n1,234\t2345.0\tr\xC3\xBCt\r\n",
        "\xFF\xFE"
        "a\0;\0b\0;\0c\0\n\0"
        "1\0,\0"
        "2\0"
        "3\0"
        "4\0;\0"
        "2\0"
        "3\0"
        "4\0"
        "5\0;\0r\0\xFC\0t\0\n",
    };
    static const size_t bytes[] = {0, 0, 0, 44};
    ls_dataset *split[2], *new;
    ls_error err = {0};
    ls_data_keys keys = filled;
    keys.latin1 = 1;
    scratch_file(*state, "t.csv", table, sizeof table - 1);
    if (open_file(*state, "t.csv", keys, split, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    check_values(split[0], 2, 4, (const float[]){1.234f, 1234.5f, 0, 1, 5.5f, 1234.5f, 1, 0});
    ls_input_format as = {.prep = ls_dataset_describe(split[0])->prep,
                          .channels = 4,
                          .height = 1,
                          .width = 1,
                          .floats = true,
                          .classes = 2,
                          .split = "test"};
    for (int i = 0; i < 4; i++) {
        const size_t n = bytes[i] ? bytes[i] : strlen(rows[i]);
        if (ls_new_rows_read_csv(&new, &as, "new", rows[i], n, &err) != LS_OK)
            fail_msg("%d: %s", i, err.text);
        check_values(new, 1, 4, (const float[]){1.234f, 2345, 0, 1});
        ls_dataset_close(new);
    }
    static const char other[] = "a;b;c\n1.5;2;b\n", percent[] = "a;b;c\n1;2%;b\n";
    assert_int_equal(ls_new_rows_read_csv(&new, &as, "new", other, sizeof other - 1, &err),
                     LS_EDATA);
    assert_non_null(
        strstr(err.text, "new:2: column \"a\": expected a number with a decimal comma"));
    assert_int_equal(ls_new_rows_read_csv(&new, &as, "new", percent, sizeof percent - 1, &err),
                     LS_EDATA);
    assert_non_null(strstr(err.text, "a percentage"));
    close_both(split);
}

/* What the message says about new rows of a model of `table`. NULL: they are read. */
static void new_rows_say(scratch *s, const char *table, const char *rows, const char *says)
{
    ls_dataset *split[2], *new = NULL;
    ls_error err = {0};
    scratch_file(s, "t.csv", table, strlen(table));
    if (open_file(s, "t.csv", classes, split, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    ls_input_format as = {.prep = ls_dataset_describe(split[0])->prep,
                          .channels = ls_dataset_describe(split[0])->channels,
                          .height = 1,
                          .width = 1,
                          .floats = true,
                          .classes = 2,
                          .split = "test"};
    int status = ls_new_rows_read_csv(&new, &as, "new", rows, strlen(rows), &err);
    if (status == LS_OK && ls_dataset_describe(new)->unknown)
        snprintf(err.text, sizeof err.text, "%s", ls_dataset_describe(new)->unknown->row[0].why);
    if (says ? !strstr(err.text, says) : status != LS_OK || err.text[0])
        fail_msg("expected \"%s\", found \"%s\"", says ? says : "", err.text);
    ls_dataset_close(new);
    close_both(split);
}

static void new_rows_have_the_decimal_mark_of_the_table(void **state)
{
    static const char point[] = "a;b;y\n1.5;7;u\n2.5;8;v\n", comma[] = "a;b;y\n1,5;7;u\n2,5;8;v\n";
    static const char other[] =
        "new:2: column \"a\": expected a number with a decimal point, as the "
        "training table has, found \"1,5\"";
    new_rows_say(*state, point, "a;b\n1,5;7\n", other);
    new_rows_say(*state, point, "a;b\n1.75;7\n", NULL);
    new_rows_say(*state, point, "a;b\n1,234;7\n", "a number that can be read in only one way");
    new_rows_say(*state, point, "a;b\n1.5;7,5\n",
                 "column \"b\": expected a number with a decimal point");
    new_rows_say(*state, point, "a;b\n1.5;1.234,5\n", "a number with a decimal point");
    /* a column of whole numbers in a table that has decimal commas elsewhere */
    new_rows_say(*state, comma, "a;b\n1,75;7,5\n", NULL);
}

static void new_rows_of_another_encoding_are_named(void **state)
{
    static const char rows[] = "a;b;y\n1;K\xF6ln;u\n";
    new_rows_say(*state, "a;b;y\n1;K\xC3\xB6ln;u\n2;Bonn;v\n", rows,
                 "this text is not UTF-8 but perhaps Latin-1: save the table as UTF-8");
    new_rows_say(*state, "a;r\xC3\xBCt;y\n1;2;u\n2;3;v\n", "a;r\xFCt\n1;2\n",
                 "missing: \"r\xC3\xBCt\"; this header is not UTF-8 but perhaps Latin-1: save the");
}

/* Rows of different lengths, a few hundred KiB in all, so that the chunks in which the file is read
 * end at every position within a field. */
static void fields_are_whole_wherever_a_chunk_ends(void **state)
{
    enum { ROWS = 12000 };
    char *text = malloc(ROWS * 48), *to = text + sprintf(text, "a,b,y\n");
    float *expected = malloc(2 * ROWS * sizeof *expected);
    assert_true(text && expected);
    for (int i = 0; i < ROWS; i++) {
        expected[2 * i + 1] = (float)(i % 1000);
        char shown[40];
        snprintf(shown, sizeof shown, "%.*g", 1 + i % 17, i * 0.37);
        to += sprintf(to, i % 3 ? "%s,%d,u\n" : "\"%s\", %d ,\"a \"\"quoted\"\"\none\"\r\n", shown,
                      i % 1000);
        expected[2 * i] = (float)strtod(shown, NULL);
    }
    scratch_file(*state, "t.csv", text, (size_t)(to - text));
    scratch_gzip(*state, "t.csv.gz", text, (size_t)(to - text));
    file_is(*state, "t.csv", classes, ROWS, 2, expected);
    file_is(*state, "t.csv.gz", classes, ROWS, 2, expected);
    free(text);
    free(expected);
}

LS_TESTS(data_table_forms, "unit")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(separators_are_found_from_the_header),
        IN_SCRATCH(a_separator_that_cannot_be_told_is_refused_and_the_key_decides),
        IN_SCRATCH(decimal_commas_are_read_column_by_column),
        IN_SCRATCH(a_number_that_can_be_read_both_ways_is_refused_and_the_key_decides),
        IN_SCRATCH(marks_between_thousands_are_read),
        IN_SCRATCH(words_for_missing_are_known_also_as_first_values),
        IN_SCRATCH(words_that_may_be_texts_are_texts_in_a_column_of_texts),
        IN_SCRATCH(numbers_behind_another_word_are_not_texts_in_silence),
        IN_SCRATCH(utf16_is_known_by_its_mark),
        IN_SCRATCH(compressed_tables_are_read),
        IN_SCRATCH(columns_without_a_name_are_left_out_and_said),
        IN_SCRATCH(what_is_no_number_is_said_for_what_it_is),
        IN_SCRATCH(long_fields_in_columns_that_are_left_out_are_passed_over),
        IN_SCRATCH(numbers_and_lists_name_columns),
        IN_SCRATCH(equal_numbers_are_one_label),
        IN_SCRATCH(targets_that_are_measured_are_not_taken_for_classes),
        IN_SCRATCH(an_unknown_column_lists_ten_and_the_nearest),
        IN_SCRATCH(new_rows_are_read_in_the_same_forms),
        IN_SCRATCH(new_rows_have_the_decimal_mark_of_the_table),
        IN_SCRATCH(new_rows_of_another_encoding_are_named),
        IN_SCRATCH(fields_are_whole_wherever_a_chunk_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
