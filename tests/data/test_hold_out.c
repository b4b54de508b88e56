/* SPDX-License-Identifier: MIT */
/* Tests which rows are held out for validation: they depend only on the seed and the labels, and
 * each class contributes its share. */
#include "data/dataset.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 1000, TESTS = 7 };

/* The data source: row r has two bytes, the number r. Nine of ten rows have class 0, the others
 * class 1 or 2. `user` is added to the values. */
static int32_t label_of(uint32_t row)
{
    return row % 10 ? 0 : 1 + (int32_t)(row / 10 % 2);
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    uint8_t *to = values;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        to[2 * i] = (uint8_t)(rows[i] >> 8);
        to[2 * i + 1] = (uint8_t)(rows[i] + *(const uint32_t *)user);
        ((int32_t *)targets)[i] = test ? 2 : label_of(rows[i]);
    }
    return LS_OK;
}

static int open_fold(ls_dataset *split[2], double share, uint64_t seed, uint32_t added,
                     int keep_test, int streamed, int fold, ls_error *err)
{
    static uint32_t user;
    static ls_data_source source;
    const ls_data_source *const sources[] = {&source};
    user = added;
    source = (ls_data_source){.size = sizeof source,
                              .name = "mine",
                              .channels = 2,
                              .height = 1,
                              .width = 1,
                              .row_type = LS_ROW_U8,
                              .classes = 3,
                              .train_rows = ROWS,
                              .test_rows = TESTS,
                              .streamed = streamed,
                              .read = read_rows,
                              .user = &user};
    const ls_dataset_spec spec = {
        .name = "mine",
        .seed = seed,
        .sources = sources,
        .source_count = 1,
        .keys = {.validation = share, .keep_test = keep_test, .fold = fold}};
    return ls_dataset_open(&split[0], &split[1], &spec, NULL, err);
}

static int open_with(ls_dataset *split[2], double share, uint64_t seed, uint32_t added,
                     int keep_test, int streamed, ls_error *err)
{
    return open_fold(split, share, seed, added, keep_test, streamed, 0, err);
}

static void close_both(ls_dataset *const split[2])
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void each_row_is_in_one_part_and_each_class_gives_its_share(void **state)
{
    (void)state;
    ls_dataset *split[2];
    ls_error err;
    int held[3] = {0, 0, 0};
    bool seen[ROWS] = {false};
    assert_int_equal(open_with(split, 0.1, 1, 0, 0, 0, &err), LS_OK);
    assert_string_equal(ls_dataset_describe(split[1])->split, "validation");
    for (int s = 0; s < 2; s++) {
        const ls_dataset_view view = ls_dataset_resident(split[s]);
        assert_int_equal(view.rows, ROWS);
        for (uint32_t i = 0; i < ls_dataset_describe(split[s])->rows; i++) {
            const uint32_t row = view.row[i];
            uint32_t place = i;
            uint8_t values[2];
            int32_t label;
            assert_true(row < ROWS && !seen[row] && (i == 0 || view.row[i - 1] < row));
            seen[row] = true;
            ls_dataset_view_rows(split[s], &place, 1);
            assert_int_equal(place, row);
            assert_int_equal(ls_dataset_read(split[s], &i, 1, values, &label, &err), LS_OK);
            assert_int_equal(values[0] << 8 | values[1], (row & 0xff00) | (row & 255));
            assert_int_equal(label, label_of(row));
            held[label] += s;
        }
    }
    assert_int_equal(held[0], 90);
    assert_int_equal(held[1], 5);
    assert_int_equal(held[2], 5);
    close_both(split);
}

static void the_draw_depends_on_seed_and_labels_alone(void **state)
{
    (void)state;
    ls_dataset *a[2], *b[2];
    ls_error err;
    size_t bytes = 100 * sizeof(uint32_t);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_with(a, 0.1, 5, 0, 0, 0, &err), LS_OK);
        assert_int_equal(open_with(b, 0.1, i ? 6 : 5, 77, 0, 0, &err), LS_OK);
        const int order =
            memcmp(ls_dataset_resident(a[1]).row, ls_dataset_resident(b[1]).row, bytes);
        assert_int_equal(order != 0, i);
        close_both(a);
        close_both(b);
    }
}

static void who_judges_gets_the_test_rows(void **state)
{
    (void)state;
    ls_dataset *split[2];
    ls_error err;
    assert_int_equal(open_with(split, 0.1, 1, 0, 1, 0, &err), LS_OK);
    assert_string_equal(ls_dataset_describe(split[1])->split, "test");
    assert_int_equal(ls_dataset_describe(split[1])->rows, TESTS);
    assert_int_equal(ls_dataset_describe(split[0])->rows, 900);
    close_both(split);
}

static void shares_that_are_none_or_all_and_streams_are_refused(void **state)
{
    (void)state;
    ls_dataset *split[2];
    ls_error err;
    assert_int_equal(open_with(split, 1e-6, 1, 0, 0, 0, &err), LS_ECONFIG);
    assert_string_equal(err.text,
                        "data.validation: 1e-06 of the 1000 training rows is none of them");
    assert_null(split[0]);
    assert_null(split[1]);
    assert_int_equal(open_with(split, 0.9999, 1, 0, 0, 0, &err), LS_ECONFIG);
    assert_int_equal(open_with(split, 0.1, 1, 0, 0, 1, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "rows that are streamed cannot be held out"));
}

/* Each row is in one of the folds, also if the data have test rows, which a fold does not keep. The
 * folds, and in them each class, differ by at most one row. */
static void each_row_is_in_one_fold(void **state)
{
    static const int folds[] = {2, 3, 7};
    (void)state;
    for (size_t n = 0; n < sizeof folds / sizeof *folds; n++) {
        uint8_t seen[ROWS] = {0};
        for (int fold = 1; fold <= folds[n]; fold++) {
            ls_error err;
            ls_dataset *split[2];
            uint32_t count[3] = {0};
            assert_int_equal(open_fold(split, 1.0 / folds[n], 5, 0, 1, 0, fold, &err), LS_OK);
            assert_string_equal(ls_dataset_describe(split[1])->split, "validation");
            const uint32_t rows = ls_dataset_rows(split[1]);
            assert_int_equal(rows + ls_dataset_rows(split[0]), ROWS);
            assert_true(rows == ROWS / (uint32_t)folds[n] || rows == ROWS / (uint32_t)folds[n] + 1);
            const uint32_t *row = ls_dataset_resident(split[1]).row;
            for (uint32_t i = 0; i < rows; i++) {
                assert_int_equal(seen[row[i]]++, 0);
                count[label_of(row[i])]++;
            }
            for (int k = 0; k < 3; k++) {
                const uint32_t least = (k ? ROWS / 20 : ROWS / 10 * 9) / (uint32_t)folds[n];
                assert_true(count[k] == least || count[k] == least + 1);
            }
            ls_dataset_close(split[0]);
            ls_dataset_close(split[1]);
        }
        for (uint32_t r = 0; r < ROWS; r++)
            assert_int_equal(seen[r], 1);
    }
    ls_error err;
    ls_dataset *split[2];
    assert_int_equal(open_fold(split, 0.25, 5, 0, 0, 0, 5, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "data.fold: expected a fold from 1 to 4"));
    assert_int_equal(open_fold(split, 0.7, 5, 0, 0, 0, 1, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "data.fold: expected a data.validation of at most 0.5"));
}

LS_TESTS(data_hold_out, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_in_one_part_and_each_class_gives_its_share),
        cmocka_unit_test(each_row_is_in_one_fold),
        cmocka_unit_test(the_draw_depends_on_seed_and_labels_alone),
        cmocka_unit_test(who_judges_gets_the_test_rows),
        cmocka_unit_test(shares_that_are_none_or_all_and_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
