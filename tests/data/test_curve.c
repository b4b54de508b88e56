/* SPDX-License-Identifier: MIT */
/* Tests how it is found out that values depend on the rows along a curve. */
#include "base/error.h"
#include "data/curve.h"
#include "data/dataset.h"
#include "runner.h"
#include "scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A number from 0 to 1 that looks random. */
static double draw(unsigned *state)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 8) / 16777216.0;
}

/* Returns the part for `rows` rows of two numbers, the second 1000 times as large. The target is
 * a line, plus `curve` times a curve, plus noise with a deviation of `noise`. */
static double part_of(scratch *dir, int rows, double curve, double noise)
{
    unsigned state = 1;
    double part = -1;
    ls_error err;
    ls_dataset *split[2];
    const ls_dataset_spec spec = {
        .name = "csv",
        .path = scratch_path(dir, "t.csv"),
        .keys = {.target = {.text = "y"}, .standardize = 1, .labels = LS_LABELS_VALUES}};
    char *text = malloc((size_t)rows * 80 + 80);
    size_t n = (size_t)sprintf(text, "a,b,y\n");
    for (int i = 0; i < rows; i++) {
        const double a = 2 * draw(&state) - 1, b = 2 * draw(&state) - 1;
        double sum = 0;
        for (int k = 0; k < 12; k++)
            sum += draw(&state);
        n += (size_t)sprintf(text + n, "%.6f,%.3f,%.6f\n", a, 1000 * b,
                             a - b + curve * sin(4 * a) * b + noise * (sum - 6));
    }
    scratch_file(dir, "t.csv", text, n);
    if (ls_dataset_open(&split[0], &split[1], &spec, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ls_curve_measure(&part, split[0], NULL, &err), LS_OK);
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
    free(text);
    return part;
}

static void a_curve_is_told_from_a_line_and_from_noise(void **state)
{
    for (int rows = 100; rows <= 1000; rows += 900) {
        assert_true(part_of(*state, rows, 2, 0) > 0.9);
        assert_true(part_of(*state, rows, 2, 0.3) > 0.5);
        assert_true(part_of(*state, rows, 0, 0.3) < 0.1);
        assert_true(part_of(*state, rows, 0, 3) < 0.1);
    }
    assert_true(part_of(*state, 10, 2, 0) == 0); /* too few rows */
}

LS_TESTS(data_curve, "unit")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_curve_is_told_from_a_line_and_from_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
