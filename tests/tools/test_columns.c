/* SPDX-License-Identifier: MIT */
/* Tests the printing of tables and texts that fit the width of a terminal. */
#include "cli/columns.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 4, ROWS = 2 };
static const cli_column columns[COLUMNS] = {
    {"run", 0, 8, false}, {"data", 2, 0, false}, {"accuracy", 0, 0, true}, {"ended", 1, 0, false}};
static const char *const texts[ROWS * COLUMNS] = {
    "runs/20240131-093000-lenet", "fashion_mnist", "0.8", "finished", "runs/b", "", "0.8390", ""};

static FILE *stream;
static char *text;
static size_t size;

static int begin(void **state)
{
    (void)state;
    stream = open_memstream(&text, &size);
    return stream == NULL;
}

static int end(void **state)
{
    (void)state;
    free(text);
    return 0;
}

static void says(const char *expected)
{
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, expected);
}

static void a_wide_table_has_all_columns(void **state)
{
    (void)state;
    cli_print_table(stream, columns, COLUMNS, texts, ROWS, 80);
    says("run                         data           accuracy  ended\n"
         "runs/20240131-093000-lenet  fashion_mnist       0.8  finished\n"
         "runs/b                                       0.8390\n");
}

static void columns_of_least_use_are_left_out_first(void **state)
{
    (void)state;
    cli_print_table(stream, columns, COLUMNS, texts, ROWS, 40);
    says("run                   accuracy  ended\n"
         "runs/20240…000-lenet       0.8  finished\n"
         "runs/b                  0.8390\n");
}

static void a_column_without_texts_is_left_out(void **state)
{
    (void)state;
    static const char *const few[COLUMNS] = {"runs/b", "", "", "killed"};
    cli_print_table(stream, columns, COLUMNS, few, 1, 80);
    says("run     ended\n"
         "runs/b  killed\n");
}

static void no_table_is_wider_than_the_terminal(void **state)
{
    (void)state;
    for (int width = 30; width <= 100; width++)
        cli_print_table(stream, columns, COLUMNS, texts, ROWS, width);
    fflush(stream);
    const char *line = text;
    for (int width = 30; width <= 100; width++)
        for (int row = 0; row <= ROWS; row++) {
            const size_t length = strcspn(line, "\n");
            char copy[200];
            snprintf(copy, sizeof copy, "%.*s", (int)length, line);
            assert_true(cli_width(copy) <= width);
            assert_true(length == 0 || line[length - 1] != ' ');
            line += length + 1;
        }
    assert_int_equal(fclose(stream), 0);
}

static void long_texts_are_wrapped_at_words(void **state)
{
    (void)state;
    cli_put_wrapped(stream, "0.1 ist für zehn Klassen der Zufall", 2, 4, 20);
    says("0.1 ist für zehn\n"
         "    Klassen der\n"
         "    Zufall\n");
}

static void a_word_longer_than_a_line_stands_alone(void **state)
{
    (void)state;
    cli_put_wrapped(stream, "a supercalifragilistic word", 0, 0, 10);
    says("a\nsupercalifragilistic\nword\n");
}

LS_TESTS(columns, "unit")
{
    const struct CMUnitTest tests[] = {
#define TEST_ON_STREAM(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST_ON_STREAM(a_wide_table_has_all_columns),
        TEST_ON_STREAM(columns_of_least_use_are_left_out_first),
        TEST_ON_STREAM(a_column_without_texts_is_left_out),
        TEST_ON_STREAM(no_table_is_wider_than_the_terminal),
        TEST_ON_STREAM(long_texts_are_wrapped_at_words),
        TEST_ON_STREAM(a_word_longer_than_a_line_stands_alone),
    };
    return cmocka_run_group_tests_name("columns", tests, NULL, NULL);
}
