/* SPDX-License-Identifier: MIT */
/* Tests CSV tables: the conversion of their columns, and the messages about invalid fields. */
#include "data/dataset.h"
#include "data/new_rows.h"
#include "data/ration.h"
#include "data/scratch.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static int open_table(scratch *s, const char *text, const char *test, ls_data_keys keys,
                      uint32_t limit, ls_dataset *split[2], ls_error *err)
{
    const ls_dataset_spec spec = {
        .name = "csv", .path = scratch_path(s, "t.csv"), .keys = keys, .limit = limit};
    scratch_file(s, "t.csv", text, strlen(text));
    if (test)
        scratch_file(s, "test.csv", test, strlen(test));
    return ls_dataset_open(&split[0], &split[1], &spec, NULL, err);
}

static void opens(scratch *s, const char *text, const char *test, ls_data_keys keys,
                  ls_dataset *split[2])
{
    ls_error err;
    char path[512];
    snprintf(path, sizeof path, "%s/test.csv", s->directory);
    keys.test_path = test ? path : NULL;
    if (open_table(s, text, test, keys, 0, split, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static void close_both(ls_dataset *const split[2])
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void row_is(const ls_dataset *ds, uint32_t row, int columns, const float *expected)
{
    const float *v = ls_dataset_resident(ds).values + row * (size_t)columns;
    assert_int_equal(ls_dataset_describe(ds)->channels, columns);
    for (int i = 0; i < columns; i++)
        if (!(fabsf(v[i] - expected[i]) <= 1e-6f * fabsf(expected[i])))
            fail_msg("row %u, column %d: %g, not %g", (unsigned)row, i, (double)v[i],
                     (double)expected[i]);
}

static void refuses(scratch *s, const char *text, ls_data_keys keys, int status,
                    const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    assert_int_equal(open_table(s, text, NULL, keys, 0, split, &err), status);
    if (!strstr(err.text, message))
        fail_msg("\"%s\"\nhas no \"%s\"", err.text, message);
    assert_null(split[0]);
    assert_null(split[1]);
}

static const ls_data_keys kind_target = {.target.text = "kind"};

static void numbers_stay_texts_are_one_hot_and_targets_classes(void **state)
{
    ls_dataset *split[2];
    ls_data_keys keys = kind_target;
    keys.drop.text = "id";
    /* Fields in quotes that contain quotes, a comma and a line end; blanks around fields; lines
     * that end with CR LF; a last line without a line end. */
    opens(*state,
          "id,\"length, cm\",kind,colour\r\n"
          "1, 5.5 ,setosa,\"re\"\"d\"\r\n"
          "x,-1e-1,\"virginica\",\"bl\nue\"\n"
          "\n"
          "3,+7,setosa,\"re\"\"d\"",
          NULL, keys, split);
    const ls_dataset_info *info = ls_dataset_describe(split[0]);
    assert_int_equal(info->rows, 3);
    assert_int_equal(info->classes, 2);
    assert_string_equal(info->class_name[0], "setosa");
    assert_string_equal(info->class_name[1], "virginica");
    row_is(split[0], 0, 3, (float[]){5.5f, 0, 1});
    row_is(split[0], 1, 3, (float[]){-0.1f, 1, 0});
    row_is(split[0], 2, 3, (float[]){7, 0, 1});
    assert_int_equal(ls_dataset_resident(split[0]).labels[1], 1);
    assert_int_equal(ls_dataset_resident(split[0]).labels[2], 0);
    close_both(split);
}

static void classes_that_are_numbers_are_in_their_order(void **state)
{
    ls_dataset *split[2];
    opens(*state, "a,kind\n1,10\n2,9\n3,100\n", "a,kind\n0,100\n1,9\n", kind_target, split);
    static const int32_t expected[] = {1, 0, 2};
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_dataset_resident(split[0]).labels[i], expected[i]);
    assert_int_equal(ls_dataset_describe(split[1])->rows, 2);
    assert_int_equal(ls_dataset_resident(split[1]).labels[0], 2);
    assert_int_equal(ls_dataset_resident(split[1]).labels[1], 0);
    close_both(split);
}

/* Checks that a test table with `text` in the column "id", and with `kind` in the column "kind", is
 * refused in training, and in the same way as new rows of the trained model. */
static void is_unknown(scratch *s, const char *table, ls_data_keys keys, const char *text,
                       const char *kind)
{
    ls_dataset *split[2], *rows;
    ls_error err = {0};
    char test[200], path[512];
    const int n = snprintf(test, sizeof test, "id,kind\n%s,%s\n", text, kind);
    opens(s, table, NULL, keys, split);
    const ls_dataset_info *info = ls_dataset_describe(split[0]);
    const ls_input_format as = {.prep = info->prep,
                                .channels = info->channels,
                                .height = 1,
                                .width = 1,
                                .floats = true,
                                .classes = info->classes,
                                .class_name = info->class_name,
                                .labelled = true,
                                .split = "test"};
    assert_int_equal(ls_new_rows_read_csv(&rows, &as, "new", test, (size_t)n, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "that the model has learnt"));
    close_both(split);
    snprintf(path, sizeof path, "%s/test.csv", s->directory);
    keys.test_path = path;
    assert_int_equal(open_table(s, table, test, keys, 0, split, &err), LS_EDATA);
    assert_true(strstr(err.text, "a class that the model has learnt") ||
                strstr(err.text,
                       "test.csv: no row can be predicted, because no training row has its "
                       "value; leave out such columns (data.drop)"));
}

/* Doubles do not distinguish the numbers. */
static void long_numbers_are_different_levels(void **state)
{
    static const char ids[] = "id,kind\n90071992547409921,0\n90071992547409922,1\n"
                              "90071992547409921.0,0\n1234567890123456789,1\n",
                      kinds[] = "id,kind\na,90071992547409922\nb,90071992547409921\n";
    ls_dataset *split[2];
    ls_data_keys keys = {.target.text = "kind", .categorical.text = "id"};
    opens(*state, ids, "id,kind\n90071992547409922,1\n", keys, split);
    row_is(split[0], 0, 3, (float[]){1, 0, 0});
    row_is(split[0], 1, 3, (float[]){0, 1, 0});
    row_is(split[0], 2, 3, (float[]){1, 0, 0});
    row_is(split[0], 3, 3, (float[]){0, 0, 1});
    row_is(split[1], 0, 3, (float[]){0, 1, 0});
    assert_int_equal(ls_dataset_describe(split[0])->prep->column[0].rule, LS_LEVELS_DIGITS);
    close_both(split);
    is_unknown(*state, ids, keys, "90071992547409923", "1");
    is_unknown(*state, ids, keys, "1234567890123456788", "1");
    keys.labels = LS_LABELS_CLASSES;
    opens(*state, kinds, NULL, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->classes, 2);
    assert_string_equal(ls_dataset_describe(split[0])->class_name[0], "90071992547409921");
    assert_int_equal(ls_dataset_resident(split[0]).labels[0], 1);
    assert_int_equal(ls_dataset_describe(split[0])->prep->target_rule, LS_LEVELS_DIGITS);
    close_both(split);
    is_unknown(*state, kinds, keys, "a", "90071992547409923");
}

/* The text 007 shows that the column has codes, wherever it stands. If two texts before it were
 * taken for one number, the table is read again. */
static void levels_of_a_column_of_codes_are_compared_by_their_bytes(void **state)
{
    static const char *const tables[] = {
        "id,kind\n007,0\n7,1\n7.0,0\n10,1\n", "id,kind\n7,1\n007,0\n7.0,0\n10,1\n",
        "id,kind\n7,1\n7.0,0\n10,1\n007,0\n", "id,kind\n7,1\n7.0,0\n10,1\n007,0\n7,1\n"};
    static const char kinds[] = "id,kind\na,1\nb,1.0\na,01\n";
    ls_dataset *split[2];
    ls_data_keys keys = {.target.text = "kind", .categorical.text = "id"};
    for (int i = 0; i < 4; i++) {
        opens(*state, tables[i], "id,kind\n007,0\n7,1\n10,0\n7.0,1\n", keys, split);
        row_is(split[1], 0, 4, (float[]){1, 0, 0, 0});
        row_is(split[1], 1, 4, (float[]){0, 1, 0, 0});
        row_is(split[1], 2, 4, (float[]){0, 0, 0, 1});
        row_is(split[1], 3, 4, (float[]){0, 0, 1, 0});
        for (uint32_t row = 0; row < ls_dataset_rows(split[0]); row++) {
            const float *v = ls_dataset_resident(split[0]).values + row * (size_t)4;
            const int kind = ls_dataset_resident(split[0]).labels[row];
            assert_true(v[0] + v[1] + v[2] + v[3] == 1 && (int)(v[1] + v[3]) == kind);
        }
        assert_int_equal(ls_dataset_describe(split[0])->prep->column[0].rule, LS_LEVELS_CODES);
        close_both(split);
        is_unknown(*state, tables[i], keys, "07", "1");
        is_unknown(*state, tables[i], keys, "10.0", "1");
    }
    keys.labels = LS_LABELS_CLASSES;
    opens(*state, kinds, NULL, keys, split);
    assert_int_equal(ls_dataset_describe(split[0])->classes, 3);
    assert_int_equal(ls_dataset_describe(split[0])->prep->target_rule, LS_LEVELS_CODES);
    close_both(split);
    is_unknown(*state, kinds, keys, "a", "001");
}

/* Without codes and long numbers, the description is the same as that of older versions. */
static void levels_of_other_columns_are_numbers(void **state)
{
    ls_dataset *split[2];
    ls_data_keys keys = {.target.text = "kind", .categorical.text = "id"};
    opens(*state, "id,kind\n1,0\n1.0,1\n+1,0\n0.5,1\ncaf\u00e9,1\ncafe\u0301,0\n",
          "id,kind\n1e0,1\n.5,0\ncafe\u0301,1.0\n", keys, split);
    row_is(split[0], 2, 3, (float[]){0, 1, 0});
    row_is(split[0], 3, 3, (float[]){1, 0, 0});
    row_is(split[0], 4, 3, (float[]){0, 0, 1});
    row_is(split[0], 5, 3, (float[]){0, 0, 1});
    row_is(split[1], 0, 3, (float[]){0, 1, 0});
    row_is(split[1], 1, 3, (float[]){1, 0, 0});
    row_is(split[1], 2, 3, (float[]){0, 0, 1});
    assert_int_equal(ls_dataset_describe(split[0])->prep->column[0].rule, LS_LEVELS_NUMBERS);
    assert_int_equal(ls_dataset_describe(split[0])->prep->target_rule, LS_LEVELS_NUMBERS);
    close_both(split);
}

static void what_is_missing_is_filled_and_scaled_by_the_training_rows(void **state)
{
    ls_dataset *split[2];
    ls_data_keys keys = {
        .target.text = "y", .labels = LS_LABELS_VALUES, .missing = LS_MISSING_MEAN};
    const char *table = "a,b,y\n2,u,0.5\n,v,1\n4,?,-2\n", *test = "a,b,y\nNA,v,3\n9,,1\n";
    opens(*state, table, test, keys, split);
    row_is(split[0], 1, 3, (float[]){3, 0, 1});
    row_is(split[0], 2, 3, (float[]){4, 0, 0});
    row_is(split[1], 0, 3, (float[]){3, 0, 1});
    assert_true(ls_dataset_resident(split[0]).targets[2] == -2);
    assert_int_equal(ls_dataset_describe(split[0])->targets, 1);
    close_both(split);
    keys.standardize = 1; /* 2 and 4 have mean 3 and deviation 1 */
    opens(*state, table, test, keys, split);
    row_is(split[0], 0, 3, (float[]){-1, 1, 0});
    row_is(split[1], 0, 3, (float[]){0, 0, 1});
    row_is(split[1], 1, 3, (float[]){6, 0, 0});
    close_both(split);
    keys.clip = 0.75;
    opens(*state, table, test, keys, split);
    row_is(split[0], 0, 3, (float[]){-0.75f, 1, 0});
    row_is(split[1], 1, 3, (float[]){0.75f, 0, 0});
    assert_true(ls_dataset_describe(split[0])->prep->column[0].clip == 0.75);
    close_both(split);
    keys.standardize = 0; /* numbers that are not scaled are not limited */
    opens(*state, table, test, keys, split);
    row_is(split[1], 1, 3, (float[]){9, 0, 0});
    close_both(split);
}

/* A column of the same number in all training rows is 0 in every row. A missing number that becomes
 * 0 is told from a number that is not 0. */
static void a_constant_column_is_0_in_every_row(void **state)
{
    ls_dataset *split[2];
    ls_data_keys keys = {.target.text = "y", .labels = LS_LABELS_VALUES, .standardize = 1};
    const char *table = "a,year,b,y\n2,0.1,5,0.5\n6,0.1,,1\n4,0.1,5,-2\n4,0.1,5,-2\n",
               *test = "a,year,b,y\n4,2031,6,3\n";
    for (int zeros = 0; zeros < 2; zeros++) {
        keys.missing = zeros ? LS_MISSING_ZERO : LS_MISSING_MEAN;
        opens(*state, table, test, keys, split);
        row_is(split[0], 0, 3, (float[]){(float)-sqrt(2), 0, 0});
        row_is(split[1], 0, 3, (float[]){0, 0, zeros ? 1 : 0});
        if (zeros)
            row_is(split[0], 1, 3, (float[]){(float)sqrt(2), 0, -5});
        close_both(split);
    }
}

/* Mean and deviation of the target are those of the training table; the targets of the test table
 * are scaled with them. */
static void a_target_of_values_is_standardised_where_it_is_asked_for(void **state)
{
    ls_dataset *split[2];
    const ls_data_keys keys = {
        .target = {.text = "y"}, .labels = LS_LABELS_VALUES, .standardize_target = 1};
    opens(*state, "a,y\n1,10\n2,30\n", "a,y\n7,50\n", keys, split);
    const ls_prep *p = ls_dataset_describe(split[0])->prep;
    assert_true(p->targets == 1 && p->target_mean[0] == 20 && p->target_deviation[0] == 10);
    assert_true(ls_dataset_resident(split[0]).targets[0] == -1);
    assert_true(ls_dataset_resident(split[1]).targets[0] == 3);
    close_both(split);
    opens(*state, "a,y\n1,4\n2,4\n", NULL, keys, split); /* equal targets: deviation 1 */
    assert_true(ls_dataset_resident(split[0]).targets[1] == 0);
    close_both(split);
    opens(*state, "a,y\n1,4\n2,5\n", NULL,
          (ls_data_keys){.target = {.text = "y"}, .standardize_target = 1}, split); /* classes */
    assert_int_equal(ls_dataset_describe(split[0])->prep->targets, 0);
    close_both(split);
}

/* Numbers that differ only beyond the digits of a float are doubles until they are scaled. The
 * column that floats hold closely enough is not wide. */
static void long_numbers_are_scaled_as_doubles(void **state)
{
    ls_dataset *split[2];
    const ls_data_keys keys = {.target = {.text = "y"},
                               .labels = LS_LABELS_VALUES,
                               .standardize = 1,
                               .standardize_target = 1};
    opens(*state,
          "ms,a,y\n1764364143001,2024.37,1700000001\n1764364143003,2025.37,1700000003\n"
          "1764364143003,2025.37,1700000003\n1764364143001,2024.37,1700000001\n",
          "ms,a,y\n1764364143005,2026.37,1700000006\n", keys, split);
    const ls_prep *p = ls_dataset_describe(split[0])->prep;
    assert_true(p->column[0].wide && p->column[0].mean == 1764364143002 &&
                p->column[0].deviation == 1);
    assert_false(p->column[1].wide);
    assert_true(p->target_wide && p->target_mean[0] == 1700000002);
    const float *train = ls_dataset_resident(split[0]).values;
    assert_true(train[0] == -1 && train[2] == 1 && train[4] == 1 && train[6] == -1);
    assert_true(ls_dataset_resident(split[1]).values[0] == 3);
    assert_true(ls_dataset_resident(split[0]).targets[1] == 1);
    assert_true(ls_dataset_resident(split[1]).targets[0] == 4);
    close_both(split);
    /* without a scale the numbers are the floats next to them */
    opens(*state, "ms,y\n1764364143001,a\n1764364143003,b\n", NULL,
          (ls_data_keys){.target = {.text = "y"}}, split);
    assert_true(ls_dataset_resident(split[0]).values[0] == (float)1764364143001);
    close_both(split);
}

/* Rows beyond data.limit are not parsed: their texts are neither classes nor damage. Their bytes
 * still count for the checksum. */
static void a_limit_parses_the_first_rows_and_the_checksum_covers_all(void **state)
{
    ls_dataset *split[2];
    ls_error err;
    char sum[2][LS_SHA256_HEX];
    static const char *const text[] = {"a,b,kind\n1,u,x\n2,v,y\n3,u,x\n",
                                       "a,b,kind\n1,u,x\n2,v,y\nz,w,third,and,more\n"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_table(*state, text[i], NULL, kind_target, 2, split, &err), LS_OK);
        const ls_dataset_info *info = ls_dataset_describe(split[0]);
        assert_int_equal(info->rows, 2);
        assert_int_equal(info->classes, 2);
        assert_int_equal(info->channels, 3); /* a, and the two texts of b */
        memcpy(sum[i], info->images_sha256, sizeof sum[i]);
        close_both(split);
    }
    assert_string_not_equal(sum[0], sum[1]);
    assert_int_equal(open_table(*state, text[1], NULL, kind_target, 0, split, &err), LS_EDATA);
    assert_int_equal(open_table(*state, "a,kind\n1,x\n2,y\n", NULL, kind_target, 3, split, &err),
                     LS_ECONFIG);
}

static void what_is_wrong_is_told_by_line_and_column(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"a,kind\n1,x\nz,y\n",
         "t.csv:3: column \"a\": expected a number, as in the other rows; if the "
         "column contains texts, name it in data.categorical, found \"z\""},
        {"a,kind\n1,x\n1e99,y\n",
         "t.csv:3: column \"a\": expected a finite number that a float holds, found \"1e99\""},
        {"a,kind\n1,x\ninf,y\n", "t.csv:3: column \"a\": expected a value; set data.missing to"},
        {"a,kind\n1,x\n0x10,y\n", "t.csv:3: column \"a\": expected a number"},
        {"a,kind\n1,x\nnan,y\n", "t.csv:3: column \"a\": expected a value; set data.missing to"},
        {"a,kind\n1,x\n2,\n", "t.csv:3: column \"kind\": expected a target in each row"},
        {"a,kind\n1,x\n2\n", "t.csv:3: expected 2 fields, as the header has, found fewer"},
        {"a,kind\n1,x\n2,y,3\n", "t.csv:3: expected 2 fields, as the header has, found more"},
        {"a,kind\n1,\"x\n2,y\n", "t.csv:2: expected a quote that ends the field that begins here"},
        {"a,kind\n1,\"x\"y\n", "t.csv:2: expected a comma or the line's end after a quoted field"},
        {"a,kind,a\n1,x,2\n", "t.csv:1: column \"a\": expected columns of different names"},
        {"a,kind\n", "expected rows below the header, found none"},
        {"\n\r\n", "expected a header with the columns' names"},
        {"a,kind\n1,x\n2,x\n",
         "t.csv: column \"kind\": expected at least two classes, found \"x\" in every row; add rows "
         "of another class, or name another column in data.target"},
        {"a;b;kind\n1,2,x\n",
         "t.csv:2: expected 3 fields with a semicolon between them, as the header has, found fewer; "
         "this row has a comma as well: write the whole table with one separator"},
        {"a,b,kind\n1,2,x\n\"3,5\",4;y\n",
         "t.csv:3: expected 3 fields with a comma between them, as the header has, found fewer; "
         "this row has a semicolon as well: write the whole table with one separator"},
        {"a;b,kind\n1,2,x\n",
         "t.csv:2: expected 2 fields with a comma between them, as the header has, found more; the "
         "header has a semicolon as well: write the whole table with one separator"},
        {"a;b;kind\n\"1,2\";x\n", "t.csv:2: expected 3 fields, as the header has, found fewer"},
        {"\x89PNG\r\n\x1a\n",
         "t.csv:1: expected text, found a picture; if pictures are to be learnt, "
         "name the folder that has a sub-folder of them for each class"},
        {"\xFF\xD8\xFF\xE0", "t.csv:1: expected text, found a picture"},
        {"RIFF....WEBPVP8 ", "t.csv:1: expected text, found a picture"},
        {"kind\nx\ny\n", "expected a column beside the target"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(*state, bad[i].text, kind_target, LS_EDATA, bad[i].message);
    refuses(*state, "a,b\n1,x\n", kind_target, LS_ECONFIG,
            "data.target: the table has no column \"kind\"; it has \"a\", \"b\"");
    ls_data_keys keys = kind_target;
    keys.drop.text = "a,quality";
    refuses(*state, "a,kind\n1,x\n2,y\n", keys, LS_ECONFIG,
            "data.drop: the table has no column \"quality\"; it has \"a\", \"kind\"");
    keys = kind_target;
    keys.labels = LS_LABELS_VALUES;
    refuses(*state, "a,kind\n1,2.5\n2,y\n", keys, LS_EDATA,
            "t.csv:3: column \"kind\": expected a number");
    keys = kind_target;
    keys.categorical.text = "a";
    ls_dataset *split[2];
    opens(*state, "a,kind\n1,x\nz,y\n", NULL, keys, split);
    row_is(split[0], 0, 2, (float[]){1, 0});
    row_is(split[0], 1, 2, (float[]){0, 1});
    close_both(split);
}

/* The column of weights is no feature, also in the test table, whose columns have another order. */
static void a_column_of_weights_weighs_the_rows(void **state)
{
    ls_dataset *split[2];
    ls_data_keys keys = kind_target;
    keys.weight = "w";
    opens(*state, "a,w,kind\n1,0.5,x\n2,0,y\n3,3,x\n", "w,kind,a\n7,y,1\n0,x,2\n", keys, split);
    const float *weights = ls_dataset_resident(split[0]).weights;
    assert_true(ls_dataset_describe(split[0])->weighted);
    assert_true(weights[0] == 0.5f && weights[1] == 0 && weights[2] == 3);
    row_is(split[0], 2, 1, (float[]){3});
    weights = ls_dataset_resident(split[1]).weights;
    assert_true(ls_dataset_describe(split[1])->weighted);
    assert_true(weights[0] == 7 && weights[1] == 0);
    row_is(split[1], 1, 1, (float[]){2});
    close_both(split);
    opens(*state, "a,w,kind\n1,0.5,x\n2,0,y\n3,3,x\n", NULL, kind_target, split);
    assert_false(ls_dataset_describe(split[0])->weighted);
    assert_null(ls_dataset_resident(split[0]).weights);
    row_is(split[0], 1, 2, (float[]){2, 0});
    close_both(split);
}

static void what_is_no_weight_is_told_by_line_and_column(void **state)
{
    static const struct {
        const char *text, *message;
    } tables[] = {
        {"a,w,kind\n1,1,x\n2,-1,y\n", "t.csv:3: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,nan,x\n2,1,y\n", "t.csv:2: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,1,x\n2,inf,y\n", "t.csv:3: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,1,x\n2,,y\n", "t.csv:3: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,1,x\n2,big,y\n", "t.csv:3: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,1e10,x\n2,1,y\n", "t.csv:2: column \"w\": expected a weight: 0, or"},
    };
    ls_data_keys keys = kind_target;
    keys.weight = "w";
    keys.missing = LS_MISSING_MEAN;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        refuses(*state, tables[i].text, keys, LS_EDATA, tables[i].message);
    refuses(*state, "a,v,kind\n1,1,x\n2,1,y\n", keys, LS_ECONFIG,
            "data.weight: the table has no column \"w\"");
    keys.drop.text = "w";
    refuses(*state, "a,w,kind\n1,1,x\n2,1,y\n", keys, LS_ECONFIG, "is also named in data.drop");
    keys.weight = "kind";
    refuses(*state, "a,w,kind\n1,1,x\n2,1,y\n", keys, LS_ECONFIG, "is also named in data.target");
}

/* A test table must have weights too, from the same range. */
static void weights_of_a_test_table_are_checked(void **state)
{
    static const struct {
        const char *test, *message;
    } tables[] = {
        {"a,kind\n1,x\n", "missing: \"w\""},
        {"a,w,kind\n1,2,x\n1,-2,x\n", "test.csv:3: column \"w\": expected a weight: 0, or"},
        {"a,w,kind\n1,nan,x\n", "test.csv:2: column \"w\": expected a weight: 0, or"},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        ls_dataset *split[2];
        ls_error err = {0};
        char path[512];
        scratch *s = *state;
        ls_data_keys keys = kind_target;
        keys.weight = "w";
        snprintf(path, sizeof path, "%s/test.csv", s->directory);
        keys.test_path = path;
        assert_int_equal(
            open_table(s, "a,w,kind\n1,1,x\n2,1,y\n", tables[i].test, keys, 0, split, &err),
            LS_EDATA);
        if (!strstr(err.text, tables[i].message))
            fail_msg("\"%s\"\nhas no \"%s\"", err.text, tables[i].message);
    }
}

static void fields_and_columns_have_bounds(void **state)
{
    char *text = malloc(1 << 20);
    size_t n = (size_t)sprintf(text, "a,kind\n");
    for (int i = 0; i < 1001; i++)
        n += (size_t)sprintf(text + n, "t%d,x\n", i);
    refuses(
        *state, text, kind_target, LS_EDATA,
        "t.csv:1002: column \"a\": expected at most 1000 different texts; name the column in data.drop");
    n = (size_t)sprintf(text, "a,kind\n");
    memset(text + n, 'x', 5000);
    strcpy(text + n + 5000, ",y\n");
    refuses(*state, text, kind_target, LS_EDATA, "expected a text of less than 4096 bytes");
    memset(text, ',', 70000);
    text[70000] = '\0';
    refuses(*state, text, kind_target, LS_EDATA, "t.csv:1: expected at most 65536 columns");
    free(text);
}

/* Names that are not UTF-8 are refused, because in a file of weights the invalid bytes become
 * U+FFFD. With data.encoding they are read as Windows-1252. */
static void texts_that_are_not_utf8_are_refused_or_read_as_the_key_says(void **state)
{
    static const char *const text[] = {"\xe9,b,kind\n1,2,x\n3,4,z\n",
                                       "b,kind\nZ\xfcri,x\nZ\xf6ri,z\n",
                                       "b,kind\n1,Z\xfcri\n2,Z\xf6ri\n"};
    static const char *const says[] = {"t.csv:1: expected UTF-8, found the byte 0xE9",
                                       "t.csv:2: expected UTF-8, found the byte 0xFC",
                                       "set data.encoding to \"latin-1\""};
    ls_data_keys keys = kind_target;
    for (int i = 0; i < 3; i++)
        refuses(*state, text[i], keys, LS_EDATA, says[i]);
    ls_dataset *split[2];
    keys.latin1 = 1;
    opens(*state, "\xe9\x80,b,kind\n1,Z\xfcri,Z\xfcri\n2,Bern,Z\xf6ri\n", NULL, keys, split);
    const float row[] = {1, 0, 1};
    const ls_dataset_info *info = ls_dataset_describe(split[0]);
    row_is(split[0], 0, 3, row);
    assert_string_equal(info->class_name[0], "Z\xc3\xb6ri");
    assert_string_equal(info->prep->column[0].name, "\xc3\xa9\xe2\x82\xac");
    close_both(split);
    /* The texts of a column in data.drop are not checked. */
    keys.latin1 = 0;
    keys.drop.text = "b";
    opens(*state, "a,b,kind\n1,Z\xfcri,x\n2,Bern,y\n", NULL, keys, split);
    close_both(split);
}

/* The reason is that of the failure, whatever names the message contains. */
static void errors_that_a_key_resolves_have_its_reason(void **state)
{
    static const struct {
        const char *text;
        int decimal;
        ls_error_reason reason;
    } table[] = {
        {"a;kind\n1,250;x\n2,500;y\n", LS_DECIMAL_AUTO, LS_REASON_DECIMAL},
        {"a;kind\n1,25;x\n2.5;y\n", LS_DECIMAL_COMMA, LS_REASON_DECIMAL},
        {"a;kind\n1,25;x\n2.5;y\n", LS_DECIMAL_AUTO, LS_REASON_NONE},
        {"a;b,kind\n1;2,x\n3;4,y\n", LS_DECIMAL_AUTO, LS_REASON_SEPARATOR},
        {"a,kind\nZ\xfcri,x\nBern,y\n", LS_DECIMAL_AUTO, LS_REASON_ENCODING},
        {"data.encoding,kind\n1,x\nz,y\n", LS_DECIMAL_AUTO, LS_REASON_NONE},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ls_dataset *split[2];
        ls_error err = {.reason = -1};
        ls_data_keys keys = kind_target;
        keys.decimal = table[i].decimal;
        assert_int_equal(open_table(*state, table[i].text, NULL, keys, 0, split, &err), LS_EDATA);
        if (err.reason != (int)table[i].reason)
            fail_msg("table %zu: reason %d: %s", i, err.reason, err.text);
    }
}

static void too_many_classes_have_a_reason(void **state)
{
    enum { CLASSES = (1 << 16) + 1 };
    char *text = malloc(CLASSES * 16);
    size_t n = (size_t)sprintf(text, "a,kind\n");
    for (int i = 0; i < CLASSES; i++)
        n += (size_t)sprintf(text + n, "1,t%d\n", i);
    ls_dataset *split[2];
    ls_error err = {.reason = -1};
    assert_int_equal(open_table(*state, text, NULL, kind_target, 0, split, &err), LS_EDATA);
    assert_int_equal(err.reason, LS_REASON_CLASSES);
    free(text);
}

/* The model's file has U+FFFD in place of invalid bytes in the names of a class and of columns.
 * Those names in new rows, with the invalid bytes, are found nevertheless. */
static void names_of_new_rows_are_compared_as_in_files(void **state)
{
    static const char *const level[] = {"Z\xfcri", "Bern"}, *const class[] = {"\xEF\xBF\xBD", "z"};
    static const char once[] = "k\xef,\xe9,b\n\xee,1,Z\xfcri\nz,2,Bern\n",
                      twice[] = "k\xef,\xe9,\xe8,b\nz,1,2,Bern\n";
    ls_error err = {0};
    ls_prep *prep;
    ls_dataset *rows;
    (void)state;
    assert_int_equal(ls_prep_create(&prep, LS_PREP_TABLE, NULL, &err), LS_OK);
    assert_int_equal(ls_prep_add(prep, "\xe9", NULL, 0, &err), LS_OK);
    assert_int_equal(ls_prep_add(prep, "b", level, 2, &err), LS_OK);
    assert_int_equal(ls_prep_finish(prep, &err), LS_OK);
    const ls_input_format as = {.prep = prep,
                                .channels = 3,
                                .height = 1,
                                .width = 1,
                                .floats = true,
                                .classes = 2,
                                .class_name = class,
                                .target = "k\xEF\xBF\xBD",
                                .labelled = true,
                                .split = "test"};
    if (ls_new_rows_read_csv(&rows, &as, "once", once, sizeof once - 1, &err) != LS_OK)
        fail_msg("%s", err.text);
    const float row[] = {1, 1, 0};
    row_is(rows, 0, 3, row);
    assert_int_equal(ls_dataset_resident(rows).labels[0], 0);
    assert_int_equal(ls_dataset_resident(rows).labels[1], 1);
    ls_dataset_close(rows);
    assert_int_equal(ls_new_rows_read_csv(&rows, &as, "twice", twice, sizeof twice - 1, &err),
                     LS_EDATA);
    assert_null(rows);
    assert_non_null(strstr(err.text, "expected once, found twice"));
    ls_prep_free(prep);
}

/* Control characters and invalid bytes in names are replaced by '?' in messages, because a terminal
 * obeys control characters, and logs must be UTF-8. */
static void names_are_told_without_what_terminals_obey(void **state)
{
    static const char cut[] =
        "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
        "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9x";
    char text[256], message[256];
    ls_data_keys keys = kind_target;
    refuses(*state, "\x1b]0;a\x07,kind\n1,x\nz,y\n", kind_target, LS_EDATA,
            "t.csv:3: column \"?]0;a?\": expected a number");
    refuses(*state, "\x1b[2J,b\n1,x\n", kind_target, LS_ECONFIG, "it has \"?[2J\", \"b\"");
    refuses(*state, "\x1b,\x1b,kind\n1,2,x\n", kind_target, LS_EDATA,
            "t.csv:1: column \"?\": expected columns of different names");
    snprintf(text, sizeof text, "a,kind\x7f\n1,x\n2,x\n");
    keys.target.text = "kind\x7f";
    refuses(*state, text, keys, LS_EDATA, "column \"kind?\": expected at least two classes");
    /* 59 bytes and a character of two bytes, within which the message is cut */
    snprintf(text, sizeof text, "%s\u00e9,kind\n1,x\nz,y\n", cut);
    snprintf(message, sizeof message, "column \"%s?\": expected a number", cut);
    refuses(*state, text, kind_target, LS_EDATA, message);
}

/* 1074 columns of a thousand texts each, in a thousand rows: 4.4 MB become 4.3 GB. */
static void texts_that_would_become_too_many_numbers_are_refused(void **state)
{
    enum { MANY = 1074, ROWS = 1000 };
    char *text = malloc((MANY + 1) * (ROWS + 1) * 8), *to = text;
    assert_non_null(text);
    for (int i = 0; i < MANY; i++)
        to += sprintf(to, "c%d,", i);
    to += sprintf(to, "kind\n");
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < MANY; i++)
            to += sprintf(to, "t%03d,", r);
        to += sprintf(to, "%c\n", 'x' + r % 2);
    }
    refuses(*state, text, kind_target, LS_EDATA,
            "t.csv: expected at most 1073741824 numbers in all rows, found 1000 rows of 1074000; "
            "name columns of many different texts in data.drop");
    free(text);
}

/* 200 texts of 4,000 bytes fit in info.features; 300 texts do not, and info.features is NULL. The
 * table can be trained on in both cases. */
static void texts_that_are_long_are_trained_on_and_not_told(void **state)
{
    enum { LONG = 4000 };
    char *text = malloc(301 * (LONG + 8));
    ls_dataset *split[2];
    assert_non_null(text);
    for (int rows = 200; rows <= 300; rows += 100) {
        char *to = text + sprintf(text, "word,kind\n");
        for (int r = 0; r < rows; r++)
            to += sprintf(to, "t%0*d,%c\n", LONG, r, 'x' + r % 2);
        opens(*state, text, NULL, kind_target, split);
        assert_int_equal(ls_dataset_describe(split[0])->channels, rows);
        assert_true(!ls_dataset_describe(split[0])->features == (rows == 300));
        close_both(split);
    }
    free(text);
}

/* A table of two rows and of columns whose names differ in their last bytes only. */
static char *wide_table(int columns)
{
    char *text = malloc((size_t)columns * 80), *to = text;
    assert_non_null(text);
    for (int i = 0; i < columns; i++)
        to += sprintf(to, "a_column_of_a_table_whose_names_are_alike_%05d,", i);
    to += sprintf(to, "kind\n");
    for (int r = 0; r < 2; r++, to += sprintf(to, "%d\n", r))
        for (int i = 0; i < columns; i++)
            to += sprintf(to, "%d,", r);
    return text;
}

/* Returns the CPU time. */
static double time_to_open(scratch *s, int columns)
{
    char *text = wide_table(columns);
    ls_dataset *split[2];
    const clock_t since = clock();
    opens(s, text, NULL, kind_target, split);
    const double took = (double)(clock() - since);
    close_both(split);
    free(text);
    return took;
}

/* Other programs on the machine lengthen some measurements. So one pair of ten is enough, and a
 * comparison of all pairs of names, with which the ratio is 64, passes in none. */
static void eight_times_the_columns_take_eight_times_as_long(void **state)
{
    enum { MOST = 65535 };
    double least = INFINITY;
    for (int i = 0; i < 10 && least > 32; i++) {
        const double few = time_to_open(*state, MOST / 8);
        least = fmin(least, time_to_open(*state, MOST) / few);
    }
    if (least > 32)
        fail_msg("%g times as long", least);
}

static void test_tables_have_the_columns_and_classes_of_the_training_table(void **state)
{
    static const struct {
        const char *test, *message;
    } bad[] = {
        {"a\n1\n", "test.csv:1: expected the columns of the model's training table, in any order; "
                   "missing: \"kind\""},
        {"a,kind\n1,z\n",
         "test.csv:2: column \"kind\": expected a class that the model has learnt, found \"z\""},
        {"a,kind\n1,\n", "test.csv:2: column \"kind\": expected a class"},
        {"a,kind\nq,x\n", "test.csv:2: column \"a\": expected a number, found \"q\""},
    };
    scratch *s = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_dataset *split[2];
        ls_error err = {0};
        ls_data_keys keys = kind_target;
        keys.test_path = scratch_path(s, "test.csv");
        assert_int_equal(open_table(s, "a,kind\n1,x\n2,y\n", bad[i].test, keys, 0, split, &err),
                         LS_EDATA);
        if (!strstr(err.text, bad[i].message))
            fail_msg("\"%s\"\nhas no \"%s\"", err.text, bad[i].message);
    }
}

/* A test table is read like new rows: columns in any order and among others, another separator; a
 * row with a value that the model does not know is left out, or counts as the key says. */
static void test_tables_are_read_as_new_rows_are(void **state)
{
    static const char train[] = "a,t,kind\n1,u,x\n3,v,y\n",
                      test[] = "kind;more;t;a\ny;0;v;3\nx;0;w;1\nx;0;u;\nx;0;u;1e39\nx;0;u;1\n";
    static const float rows[] = {1, 0, 1, -1, 1, 0}, zeros[] = {1, 0, 1, -1, 0, 0, -1, 1, 0};
    scratch *s = *state;
    for (int rule = LS_UNKNOWN_EMPTY; rule <= LS_UNKNOWN_ERROR; rule++) {
        ls_dataset *split[2];
        ls_error err = {0};
        ls_data_keys keys = kind_target;
        keys.standardize = 1;
        keys.unknown = rule;
        keys.test_path = scratch_path(s, "test.csv");
        const int status = open_table(s, train, test, keys, 0, split, &err);
        if (rule == LS_UNKNOWN_ERROR) {
            assert_int_equal(status, LS_EDATA);
            assert_non_null(strstr(err.text, "test.csv:3: column \"t\": expected a text"));
            continue;
        }
        if (status)
            fail_msg("%s", err.text);
        const ls_dataset_info *info = ls_dataset_describe(split[1]);
        const bool empty = rule == LS_UNKNOWN_EMPTY;
        const uint32_t left = empty ? 2 : 3;
        assert_int_equal(info->rows, left);
        assert_int_equal(info->left_out, 5 - left);
        const ls_dataset_view view = ls_dataset_resident(split[1]);
        assert_memory_equal(view.values, empty ? rows : zeros, 3 * left * sizeof *rows);
        assert_int_equal(view.labels[0], 1);
        assert_int_equal(view.labels[left - 1], 0);
        assert_int_equal(ls_dataset_describe(split[0])->prep->unknown, rule);
        close_both(split);
    }
}

/* Only parts that differ among the training rows become numbers. */
static void dates_become_numbers(void **state)
{
    static const struct {
        const char *text, *test;
        int features;
        float row[2][4];
    } cases[] = {
        {"d,kind\n2024-01-30,x\n2024-02-06,y\n", "d,kind\n2024-02-07,y\n", 2, {{1, 0}, {2, 7}}},
        {"d,kind\n30.01.2024,x\n06.02.2024,y\n", "d,kind\n2024-02-07,y\n", 2, {{1, 0}, {2, 7}}},
        {"d,kind\n06/02/2024,x\n30/01/2024,y\n", "d,kind\n07/02/2024,y\n", 2, {{2, 7}, {1, 0}}},
        {"d,kind\n02/06/2024,x\n01/30/2024,y\n", "d,kind\n02/07/2024,y\n", 2, {{2, 7}, {1, 0}}},
        {"d,kind\n2024-01-30 06:00,x\n2024-01-30T18:30:00Z,y\n",
         NULL,
         2,
         {{6, 0.25f}, {18.5f, 18.5f / 24}}},
        {"d,kind\n6:00,x\n18:30,y\n", NULL, 1, {{6}, {18.5f}}},
        {"d,kind\n2023-01-30,x\n2024-01-31,y\n", NULL, 3, {{2023, 0, 0}, {2024, 2, 366}}},
        {"d,a,kind\n2024-01-30,5,x\n2024-01-30,6,y\n", NULL, 2, {{0, 5}, {0, 6}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_dataset *split[2];
        opens(*state, cases[i].text, cases[i].test, kind_target, split);
        for (uint32_t row = 0; row < 2; row++)
            row_is(split[0], row, cases[i].features, cases[i].row[row]);
        if (cases[i].test)
            row_is(split[1], 0, 2, (float[]){2, 8});
        close_both(split);
    }
}

/* Missing dates become the mean, whatever the word; a key that names the column makes the dates
 * texts. */
static void dates_are_scaled_and_filled_by_the_training_rows(void **state)
{
    static const char table[] = "d,kind\nNone,x\n2024-01-01,x\n,y\n2024-01-15,y\nNaT,y\n";
    ls_dataset *split[2];
    ls_data_keys keys = kind_target;
    keys.missing = LS_MISSING_MEAN;
    keys.standardize = 1;
    opens(*state, table, NULL, keys, split);
    row_is(split[0], 0, 1, (float[]){0});
    row_is(split[0], 1, 1, (float[]){-1});
    row_is(split[0], 2, 1, (float[]){0});
    row_is(split[0], 3, 1, (float[]){1});
    row_is(split[0], 4, 1, (float[]){0});
    close_both(split);
    keys.categorical.text = "d";
    opens(*state, "d,kind\n2024-01-01,x\n2024-01-15,y\n", NULL, keys, split);
    row_is(split[0], 0, 2, (float[]){1, 0});
    close_both(split);
}

static void dates_that_cannot_be_told_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"d,kind\n03/04/2024,x\n05/06/2024,y\n", "t.csv: column \"d\": expected dates that can be "
                                                 "read in one way, found \"03/04/2024\""},
        {"d,kind\n03.04.2024,x\n05.06.2024,y\n", "that can be read in one way"},
        {"d,kind\n31/12/2024,x\n12/31/2024,y\n",
         "t.csv:3: column \"d\": expected a date that exists, "
         "like \"31/12/2024\" before"},
        {"d,kind\n2024-01-31,x\n2023-02-29,y\n",
         "t.csv:3: column \"d\": expected a date that exists"},
        {"d,kind\n2024-01-31,x\nsoon,y\n", "t.csv:3: column \"d\": expected a date that exists"},
        {"d,kind\n08:15,x\n2024-01-31,y\n",
         "t.csv:3: column \"d\": expected a time like \"08:15\""},
        {"d,kind\n1/2/24,x\n3/4/24,y\n", "but this is a date"},
        {"d,kind\n2024-01-31,x\n,y\n", "t.csv:3: column \"d\": expected a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(*state, cases[i][0], kind_target, LS_EDATA, cases[i][1]);
}

static void years_do_not_count_the_rows(void **state)
{
    char years[400] = "year,id,kind\n";
    ls_dataset *split[2];
    for (int i = 0; i < 12; i++)
        snprintf(years + strlen(years), sizeof years - strlen(years), "%d,%d,%c\n", 1970 + i,
                 i + 3000, "xy"[i % 2]);
    opens(*state, years, NULL, kind_target, split);
    const ls_column_summary *column = ls_dataset_describe(split[0])->column;
    assert_false(column[0].counts);
    assert_true(column[1].counts);
    close_both(split);
}

/* Each allocation in turn fails. */
static void lack_of_memory_names_the_table(void **state)
{
    scratch *s = *state;
    static const char table[] = "a,colour,kind\n1,red,x\n2,blue,y\n3,red,x\n,blue,y\n";
    ration r = {0, 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &r};
    ls_dataset_spec spec = {.name = "csv", .path = scratch_path(s, "t.csv"), .keys = kind_target};
    spec.keys.missing = LS_MISSING_MEAN;
    scratch_file(s, "t.csv", table, strlen(table));
    int named = 0;
    for (int grants = 0, rc = LS_ENOMEM; rc != LS_OK; grants++) {
        ls_dataset *split[2] = {NULL, NULL};
        ls_error err = {0};
        r.grants = grants;
        rc = ls_dataset_open(&split[0], &split[1], &spec, &host, &err);
        if (rc == LS_OK)
            close_both(split);
        assert_int_equal(r.blocks, 0);
        assert_true(rc == LS_OK || rc == LS_ENOMEM);
        if (rc != LS_OK && strncmp(err.text, "csv: ", 5) == 0)
            fail_msg("the message begins with the kind of data: %s", err.text);
        named += strstr(err.text, "t.csv: out of memory") != NULL;
        assert_true(grants < 1000);
    }
    assert_true(named > 30);
}

LS_TESTS(data_csv, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_new_rows_are_compared_as_in_files),
        IN_SCRATCH(errors_that_a_key_resolves_have_its_reason),
        IN_SCRATCH(too_many_classes_have_a_reason),
        IN_SCRATCH(texts_that_are_not_utf8_are_refused_or_read_as_the_key_says),
        IN_SCRATCH(numbers_stay_texts_are_one_hot_and_targets_classes),
        IN_SCRATCH(classes_that_are_numbers_are_in_their_order),
        IN_SCRATCH(long_numbers_are_different_levels),
        IN_SCRATCH(levels_of_a_column_of_codes_are_compared_by_their_bytes),
        IN_SCRATCH(levels_of_other_columns_are_numbers),
        IN_SCRATCH(a_constant_column_is_0_in_every_row),
        IN_SCRATCH(a_target_of_values_is_standardised_where_it_is_asked_for),
        IN_SCRATCH(what_is_missing_is_filled_and_scaled_by_the_training_rows),
        IN_SCRATCH(long_numbers_are_scaled_as_doubles),
        IN_SCRATCH(a_limit_parses_the_first_rows_and_the_checksum_covers_all),
        IN_SCRATCH(what_is_wrong_is_told_by_line_and_column),
        IN_SCRATCH(a_column_of_weights_weighs_the_rows),
        IN_SCRATCH(what_is_no_weight_is_told_by_line_and_column),
        IN_SCRATCH(weights_of_a_test_table_are_checked),
        IN_SCRATCH(fields_and_columns_have_bounds),
        IN_SCRATCH(names_are_told_without_what_terminals_obey),
        IN_SCRATCH(texts_that_would_become_too_many_numbers_are_refused),
        IN_SCRATCH(texts_that_are_long_are_trained_on_and_not_told),
        IN_SCRATCH(eight_times_the_columns_take_eight_times_as_long),
        IN_SCRATCH(test_tables_have_the_columns_and_classes_of_the_training_table),
        IN_SCRATCH(test_tables_are_read_as_new_rows_are),
        IN_SCRATCH(dates_become_numbers),
        IN_SCRATCH(dates_are_scaled_and_filled_by_the_training_rows),
        IN_SCRATCH(dates_that_cannot_be_told_are_refused),
        IN_SCRATCH(years_do_not_count_the_rows),
        IN_SCRATCH(lack_of_memory_names_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
