/* The dataset that CONTRIBUTING.md adds is one like any other. */
#include "data/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void its_rows_are_read(void **state)
{
    (void)state;
    const uint32_t rows[] = {2, 13};
    uint8_t images[2][8][8];
    int32_t labels[2];
    ls_dataset *train, *test;
    ls_dataset_spec spec = {.name = "stripes", .limit = 16};
    ls_error err;
    if (ls_dataset_open(&train, &test, &spec, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ls_dataset_describe(train)->rows, 16);
    assert_int_equal(ls_dataset_describe(test)->rows, 64);
    assert_int_equal(ls_dataset_read(train, rows, 2, images[0][0], labels, &err), LS_OK);
    assert_int_equal(labels[0], 2);
    assert_int_equal(labels[1], 5);
    assert_int_equal(images[1][5][7], 255);
    assert_int_equal(images[1][6][0], 0);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

static void it_is_listed_and_its_limit_checked(void **state)
{
    (void)state;
    ls_dataset *train, *test;
    ls_dataset_spec spec = {.name = "spots"};
    ls_error err;
    const ls_dataset_about *about;
    const ls_dataset_spec named = {.name = "stripes"};
    assert_int_equal(ls_dataset_find(&about, &named, NULL), LS_OK);
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "csv, folder or stripes"));
    spec = (ls_dataset_spec){.name = "stripes", .limit = 65};
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "data.limit: expected at most the 64 training rows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_rows_are_read),
        cmocka_unit_test(it_is_listed_and_its_limit_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
