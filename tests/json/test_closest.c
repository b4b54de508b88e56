/* SPDX-License-Identifier: MIT */
/* Tests the suggestions "Did you mean …?" in messages. */
#include "base/error.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const keys[] = {"lr",     "seed",     "epochs",       "optimizer",
                                   "shards", "momentum", "weight_decay", "batch_size"};
enum { KEYS = sizeof keys / sizeof *keys };

static void misspelt_words_find_the_one_that_was_meant(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"epoch", "epochs"},
        {"rl", "lr"},
        {"ecophs", "epochs"},
        {"optimiser", "optimizer"},
        {"sede", "seed"},
        {"momentun", "momentum"},
        {"weightdecay", "weight_decay"},
        {"batchsize", "batch_size"},
        {"LR", "lr"},
        {"l", "lr"},
        {"Shards", "shards"},
        {"wieght_decya", "weight_decay"},
        {"epochs", "epochs"},
        {"weight_dekayed", "weight_decay"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *found = ls_closest(pairs[i][0], keys, KEYS);
        assert_non_null(found);
        assert_string_equal(found, pairs[i][1]);
    }
}

static void words_that_are_far_from_all_find_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {"", "xy", "dropout", "augment", "a", "epoxides"};
    char word[200];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_null(ls_closest(words[i], keys, KEYS));
    memset(word, 'e', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_null(ls_closest(word, keys, KEYS));
    assert_null(ls_closest("epoch", keys, 0));
}

static void the_nearest_wins_and_then_the_first(void **state)
{
    (void)state;
    static const char *const near[] = {"rows", "row", "cow"};
    assert_string_equal(ls_closest("row", near, 3), "row");
    assert_string_equal(ls_closest("bow", near, 3), "row");
}

LS_TESTS(closest, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misspelt_words_find_the_one_that_was_meant),
        cmocka_unit_test(words_that_are_far_from_all_find_nothing),
        cmocka_unit_test(the_nearest_wins_and_then_the_first),
    };
    return cmocka_run_group_tests_name("closest", tests, NULL, NULL);
}
