/* SPDX-License-Identifier: MIT */
/* Tests the real Fashion-MNIST data set from Debian's package. Skipped if the package is not
 * installed. */
#include "base/clock.h"
#include "data/dataset.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const search[] = {"/nonexistent", "/usr/share/datasets"};

static void is_installed(void)
{
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0)
        skip();
}

static void the_published_payload_is_recognised(void **state)
{
    (void)state;
    ls_dataset *split[2];
    const ls_dataset_spec spec = {.name = "fashion_mnist", .search = search, .search_count = 2};
    is_installed();
    uint64_t start = ls_now_ns();
    ls_error err;
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    print_message("read in %.3f s\n", (double)(ls_now_ns() - start) * 1e-9);
    for (int i = 0; i < 2; i++) {
        const ls_dataset_info *info = ls_dataset_describe(split[i]);
        assert_int_equal(info->payload, LS_PAYLOAD_PUBLISHED);
        assert_int_equal(info->rows, i == 0 ? 60000 : 10000);
        assert_int_equal(info->height, 28);
        assert_int_equal(info->width, 28);
        assert_false(info->synthetic);
        assert_string_equal(info->source, "/usr/share/datasets/fashion-mnist");
        uint32_t count[10] = {0};
        for (uint32_t r = 0; r < info->rows; r++)
            count[ls_dataset_resident(split[i]).labels[r]]++;
        for (int c = 0; c < 10; c++)
            assert_int_equal(count[c], info->rows / 10);
        ls_dataset_close(split[i]);
    }
}

static void a_limit_keeps_the_first_rows_and_all_checks(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    ls_error err;
    ls_dataset_spec spec = {
        .name = "fashion_mnist", .path = "/usr/share/datasets/fashion-mnist", .limit = 3000};
    static const int32_t first_labels[8] = {9, 0, 0, 3, 0, 2, 7, 2};
    is_installed();
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_describe(train)->rows, 3000);
    assert_int_equal(ls_dataset_describe(train)->payload, LS_PAYLOAD_PUBLISHED);
    assert_int_equal(ls_dataset_describe(test)->rows, 10000);
    assert_memory_equal(ls_dataset_resident(train).labels, first_labels, sizeof first_labels);
    ls_dataset_close(train);
    ls_dataset_close(test);
    spec.limit = 60001;
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, "data.limit: expected at most the 60000 training rows of "
                                  "/usr/share/datasets/fashion-mnist, found 60001; 0 means all");
}

LS_TESTS(data_published, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_payload_is_recognised),
        cmocka_unit_test(a_limit_keeps_the_first_rows_and_all_checks),
    };
    return cmocka_run_group_tests_name("data_published", tests, NULL, NULL);
}
