/* SPDX-License-Identifier: MIT */
/* Tests data sources of the caller: rows of bytes or floats, whose targets are classes or
 * vectors. */
#include "data/dataset.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 600, TESTS = 5, WIDTH = 3, TARGETS = 2 };

/* Parameters of the callback that returns the rows. */
typedef struct story {
    ls_data_source source;
    /* position of a value, or of a target, that is replaced by `bad`; row −1: none is */
    int row, column, bad_target;
    double bad;
} story;

static float value_of(uint32_t row, int column)
{
    return (float)row + 0.25f * (float)column;
}

static void put_target(const story *s, void *targets, uint32_t at, uint32_t row)
{
    const int bad = s->bad_target && (int)row == s->row;
    for (int k = 0; k < s->source.target_count; k++) {
        const size_t i = (size_t)at * TARGETS + (size_t)k;
        const double target = bad && k == s->column ? s->bad : -(double)value_of(row, k);
        if (s->source.target_type == LS_ROW_F64)
            ((double *)targets)[i] = target;
        else
            ((float *)targets)[i] = (float)target;
    }
    if (s->source.target_count == 0)
        ((int32_t *)targets)[at] = bad ? (int32_t)s->bad : (int32_t)row;
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    const story *s = user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        for (int k = 0; k < WIDTH; k++)
            if (s->source.row_type == LS_ROW_U8)
                ((uint8_t *)values)[i * WIDTH + (uint32_t)k] = (uint8_t)(rows[i] + (uint32_t)k);
            else
                ((float *)values)[i * WIDTH + (uint32_t)k] =
                    !s->bad_target && (int)rows[i] == s->row && k == s->column
                        ? (float)s->bad
                        : value_of(rows[i], k);
        put_target(s, targets, i, rows[i]);
    }
    return LS_OK;
}

static story of(ls_row_type row_type, int targets)
{
    return (story){.source = {.size = sizeof(ls_data_source),
                              .name = "mine",
                              .channels = WIDTH,
                              .height = 1,
                              .width = 1,
                              .classes = targets ? 0 : 1000,
                              .train_rows = ROWS,
                              .test_rows = TESTS,
                              .read = read_rows,
                              .row_type = row_type,
                              .target_count = targets},
                   .row = -1};
}

static int open_it(story *s, ls_dataset *split[2], ls_error *err)
{
    const ls_data_source *const sources[] = {&s->source};
    const ls_dataset_spec spec = {.name = "mine", .sources = sources, .source_count = 1};
    s->source.user = s;
    return ls_dataset_open(&split[0], &split[1], &spec, NULL, err);
}

static void close_both(ls_dataset *const split[2])
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void check_row(const story *s, uint32_t row, const void *values, const void *targets)
{
    for (int k = 0; k < WIDTH; k++)
        if (s->source.row_type == LS_ROW_U8)
            assert_int_equal(((const uint8_t *)values)[k], (uint8_t)(row + (uint32_t)k));
        else
            assert_true(((const float *)values)[k] == value_of(row, k));
    for (int k = 0; k < s->source.target_count; k++)
        assert_true(((const float *)targets)[k] == -value_of(row, k));
    if (s->source.target_count == 0)
        assert_int_equal(*(const int32_t *)targets, row);
}

static void rows_and_targets_come_as_the_callback_gave_them(void **state)
{
    (void)state;
    for (int form = 0; form < 16; form++) {
        ls_dataset *split[2];
        ls_error err;
        float values[2][WIDTH], targets[2][TARGETS];
        const uint32_t rows[2] = {ROWS - 1, 7};
        story s = of(form & 1 ? LS_ROW_F32 : LS_ROW_U8, form & 2 ? TARGETS : 0);
        s.source.streamed = form >> 2 & 1;
        if (form & 2)
            s.source.target_type = form & 8 ? LS_ROW_F64 : LS_ROW_F32;
        assert_int_equal(open_it(&s, split, &err), LS_OK);
        const size_t bytes = ls_dataset_image_bytes(split[0]);
        const size_t target = ls_dataset_target_bytes(split[0]);
        assert_int_equal(bytes, WIDTH * (form & 1 ? sizeof(float) : 1));
        assert_int_equal(target, form & 2 ? TARGETS * sizeof(float) : sizeof(int32_t));
        assert_int_equal(ls_dataset_read(split[0], rows, 2, values, targets, &err), LS_OK);
        for (size_t i = 0; i < 2; i++)
            check_row(&s, rows[i], (const char *)values + i * bytes,
                      (const char *)targets + i * target);
        const ls_dataset_view view = ls_dataset_resident(split[1]);
        for (uint32_t r = 0; r < TESTS; r++)
            check_row(&s, r, view.images + r * bytes, (const char *)view.labels + r * target);
        close_both(split);
    }
}

static void refuses(story s, int status, const char *message)
{
    ls_dataset *split[2];
    ls_error err;
    assert_int_equal(open_it(&s, split, &err), status);
    assert_string_equal(err.text, message);
    assert_null(split[0]);
    assert_null(split[1]);
}

static void what_is_not_finite_or_no_class_is_refused_by_row_and_place(void **state)
{
    (void)state;
    story s = of(LS_ROW_F32, TARGETS);
    s.row = 300;
    s.column = 2;
    s.bad = (double)NAN;
    refuses(s, LS_EDATA,
            "mine: row 300 of the training rows: value 2 is nan; expected finite numbers");
    s.bad_target = 1;
    s.column = 1;
    s.bad = -(double)INFINITY;
    refuses(s, LS_EDATA,
            "mine: row 300 of the training rows: target 1 is -inf; expected finite numbers");
    s.source.target_type = LS_ROW_F64;
    s.bad = 1e39;
    refuses(s, LS_EDATA,
            "mine: row 300 of the training rows: target 1 is 1e+39; expected finite numbers that a "
            "float holds");
    s = of(LS_ROW_U8, 0);
    s.bad_target = 1;
    s.row = 599;
    s.bad = 1000;
    refuses(
        s, LS_EDATA,
        "mine: row 599 of the training rows has label 1000; the labels of 1000 classes are 0 … 999");
    s.bad = -1;
    refuses(
        s, LS_EDATA,
        "mine: row 599 of the training rows has label -1; the labels of 1000 classes are 0 … 999");
}

static void a_source_has_classes_or_targets(void **state)
{
    (void)state;
    story s = of(LS_ROW_U8, TARGETS);
    s.source.classes = 10;
    refuses(
        s, LS_EINVAL,
        "mine: 10 classes and 2 targets; expected 2 or more classes and no targets, or no class "
        "and 1 … 16384 targets");
    s = of((ls_row_type)4, 0);
    refuses(s, LS_EINVAL,
            "mine: ls_data_source.row_type is 4; set it to LS_ROW_U8, LS_ROW_F32 or LS_ROW_F64");
    s = of((ls_row_type)0, 0);
    refuses(s, LS_EINVAL,
            "mine: ls_data_source.row_type is 0, which is no type; set it to LS_ROW_U8, LS_ROW_F32 "
            "or LS_ROW_F64");
    s = of(LS_ROW_U8, TARGETS);
    s.source.target_type = LS_ROW_U8;
    refuses(s, LS_EINVAL,
            "mine: ls_data_source.target_type is 1; set it to LS_ROW_F32 or LS_ROW_F64");
    s = of(LS_ROW_U8, 0);
    s.source.target_type = LS_ROW_F64;
    refuses(s, LS_EINVAL,
            "mine: ls_data_source.target_type is 3; leave it 0: the targets are classes (int32_t)");
}

LS_TESTS(data_source, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_targets_come_as_the_callback_gave_them),
        cmocka_unit_test(what_is_not_finite_or_no_class_is_refused_by_row_and_place),
        cmocka_unit_test(a_source_has_classes_or_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
