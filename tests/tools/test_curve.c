/* SPDX-License-Identifier: MIT */
/* Tests the plots that the terminal shows at the end of a run. */
#include "cli/curve.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void add(cli_curve *c, int epoch, int epochs, double loss, double accuracy)
{
    const ls_progress p = {.epoch = epoch,
                           .epochs = epochs,
                           .epoch_done = 1,
                           .loss = loss,
                           .evaluated = accuracy >= 0,
                           .metric = "accuracy",
                           .metric_value = accuracy};
    cli_curve_add(c, &p);
}

/* Returns the text that is printed in `width` columns, which the caller frees. */
static char *printed_in(const cli_curve *c, int utf8, int width)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    cli_curve_print(c, f, utf8, width);
    assert_int_equal(fclose(f), 0);
    return text;
}

static char *printed(const cli_curve *c, int utf8)
{
    return printed_in(c, utf8, 72);
}

static void prints(const cli_curve *c, int utf8, const char *expected)
{
    char *text = printed(c, utf8);
    assert_string_equal(text, expected);
    free(text);
}

/* Characters of the longest line, and lines. */
static void measure(const char *text, int *width, int *lines)
{
    int column = 0;
    *width = *lines = 0;
    for (; *text; text++) {
        column = *text == '\n' ? 0 : column + (((unsigned char)*text & 0xC0) != 0x80);
        *lines += *text == '\n';
        *width = column > *width ? column : *width;
    }
}

/* R² may be below 0: what stands left of the axis is as wide as ever. */
static void a_sign_takes_the_place_of_a_digit(void **state)
{
    (void)state;
    static cli_curve c;
    c = (cli_curve){.judged_by = "test"};
    const double value[] = {-3.9895, -1, 0.5};
    for (int i = 0; i < 3; i++) {
        const ls_progress p = {.epoch = i + 1,
                               .epochs = 3,
                               .epoch_done = 1,
                               .loss = 3 - i,
                               .evaluated = 1,
                               .metric = "r2",
                               .metric_value = value[i]};
        cli_curve_add(&c, &p);
    }
    char *text = printed(&c, 0);
    int width, lines;
    measure(text, &width, &lines);
    assert_int_equal(width, 72);
    assert_non_null(strstr(text, "test r2, last 0.5000"));
    assert_non_null(strstr(text, "\n  -3.99 |"));
    free(text);
}

static void a_line_from_corner_to_corner_in_ascii(void **state)
{
    (void)state;
    static cli_curve c;
    c = (cli_curve){.judged_by = "test"};
    add(&c, 1, 2, 2, 0.25);
    add(&c, 2, 2, 1, 0.75);
    prints(&c, 0,
           "         test accuracy, last 0.7500           training loss, last 1.0000\n"
           "  0.750 |                      ****    2.000 |****                      \n"
           "        |                ******              |    ******                \n"
           "        |          ******                    |          ******          \n"
           "        |    ******                          |                ******    \n"
           "  0.250 |****                          1.000 |                      ****\n"
           "        +--------------------------          +--------------------------\n"
           "         1         epoch          2           1         epoch          2\n");
}

static void a_flat_line_in_braille_runs_through_the_middle(void **state)
{
    (void)state;
    static cli_curve c;
    int width, lines;
    c = (cli_curve){.judged_by = "test"};
    add(&c, 1, 3, 2, 0.5);
    add(&c, 2, 3, 2, 0.5);
    add(&c, 3, 3, 2, 0.5);
    char *text = printed(&c, 1);
    measure(text, &width, &lines);
    assert_int_equal(lines, 8);
    assert_true(width <= 72);
    assert_non_null(strstr(text, "  0.500 ┤⠒⠒⠒⠒"));
    assert_non_null(strstr(text, "  2.000 ┤⠒⠒⠒⠒"));
    assert_non_null(strstr(text, "└──"));
    free(text);
}

static void fewer_than_two_evaluations_print_nothing(void **state)
{
    (void)state;
    static cli_curve c;
    c = (cli_curve){.judged_by = "test"};
    prints(&c, 1, "");
    add(&c, 1, 3, 2, -1);
    add(&c, 2, 3, 1.5, -1);
    add(&c, 3, 3, 1, 0.5);
    prints(&c, 1, "");
    prints(&c, 0, "");
}

static void epochs_without_an_evaluation_leave_no_hole(void **state)
{
    (void)state;
    static cli_curve c;
    c = (cli_curve){.judged_by = "test"};
    for (int e = 1; e <= 9; e++)
        add(&c, e, 9, 10 - e, e % 4 == 1 ? 0.5 : -1);
    char *text = printed(&c, 0);
    assert_non_null(strstr(text, "  0.500 |**************************"));
    free(text);
}

static void any_number_of_epochs_fits_in_eight_lines_of_72_columns(void **state)
{
    (void)state;
    static const int epochs[] = {2, 3, 26, 27, 511, 512, 513, 1025, 5000, 100000};
    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
        for (int utf8 = 0; utf8 < 2; utf8++) {
            static cli_curve c;
            int width, lines;
            char last[32];
            c = (cli_curve){.judged_by = "test"};
            for (int e = 1; e <= epochs[i]; e++)
                add(&c, e, epochs[i], 12345.0 / e, 1 - 1.0 / e);
            char *text = printed(&c, utf8);
            measure(text, &width, &lines);
            assert_int_equal(lines, 8);
            assert_true(width <= 72);
            snprintf(last, sizeof last, "%d\n", epochs[i]);
            assert_non_null(strstr(text, last));
            assert_true(epochs[i] != 5000 || c.stride == 16);
            free(text);
        }
    }
}

static void plots_use_the_width_that_there_is(void **state)
{
    (void)state;
    static cli_curve c;
    c = (cli_curve){.judged_by = "test"};
    for (int e = 1; e <= 12; e++)
        add(&c, e, 12, 3.0 / e, 1 - 1.0 / e);
    for (int columns = 40; columns <= 200; columns++)
        for (int utf8 = 0; utf8 < 2; utf8++) {
            int width, lines;
            char *text = printed_in(&c, utf8, columns);
            measure(text, &width, &lines);
            assert_true(width <= columns);
            assert_true(width >= (columns < 160 ? columns - 1 : 160));
            assert_int_equal(lines, columns < 72 ? 16 : columns < 110 ? 8 : 11);
            assert_non_null(strstr(text, "test accuracy, last 0.9167"));
            assert_non_null(strstr(text, "training loss, last 0.2500"));
            free(text);
        }
}

static void utf8_is_told_by_locale_and_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *all, *ctype, *lang, *term;
        int utf8;
    } cases[] = {
        {NULL, NULL, "en_US.UTF-8", "xterm", 1},
        {NULL, NULL, "de_DE.utf8", "xterm", 1},
        {NULL, NULL, "C.UTF-8", NULL, 1},
        {NULL, NULL, "C", "xterm", 0},
        {NULL, NULL, NULL, "xterm", 0},
        {NULL, NULL, "en_US.UTF-8", "dumb", 0},
        {"C", NULL, "en_US.UTF-8", "xterm", 0},
        {"", "C.UTF-8", "C", "xterm", 1},
        {NULL, NULL, "de_DE.ISO-8859-1", "xterm", 0},
    };
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG", "TERM"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const values[] = {cases[i].all, cases[i].ctype, cases[i].lang, cases[i].term};
        for (int k = 0; k < 4; k++) {
            if (values[k])
                setenv(names[k], values[k], 1);
            else
                unsetenv(names[k]);
        }
        assert_int_equal(cli_curve_utf8(), cases[i].utf8);
    }
}

LS_TESTS(curve, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sign_takes_the_place_of_a_digit),
        cmocka_unit_test(a_line_from_corner_to_corner_in_ascii),
        cmocka_unit_test(a_flat_line_in_braille_runs_through_the_middle),
        cmocka_unit_test(fewer_than_two_evaluations_print_nothing),
        cmocka_unit_test(epochs_without_an_evaluation_leave_no_hole),
        cmocka_unit_test(any_number_of_epochs_fits_in_eight_lines_of_72_columns),
        cmocka_unit_test(plots_use_the_width_that_there_is),
        cmocka_unit_test(utf8_is_told_by_locale_and_terminal),
    };
    return cmocka_run_group_tests_name("curve", tests, NULL, NULL);
}
