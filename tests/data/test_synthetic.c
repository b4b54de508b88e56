/* SPDX-License-Identifier: MIT */
/* Tests the synthetic dataset: it is reproducible, a network can learn it, and every output says
 * that it is synthetic. */
#include "data/dataset.h"
#include "runner.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void open_with(ls_dataset **train, ls_dataset **test, uint32_t limit, uint64_t seed)
{
    const ls_dataset_spec spec = {.name = "synthetic", .limit = limit, .seed = seed};
    assert_int_equal(ls_dataset_open(train, test, &spec, NULL, NULL), LS_OK);
}

static void it_says_that_it_is_synthetic(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    open_with(&train, &test, 0, 7);
    const ls_dataset_info *info = ls_dataset_describe(train);
    assert_string_equal(info->name, "synthetic");
    assert_string_equal(info->split, "train");
    assert_string_equal(info->source, "generated from seed 7");
    assert_true(info->synthetic);
    assert_int_equal(info->rows, 6000);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->height, 28);
    assert_int_equal(info->width, 28);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->payload, LS_PAYLOAD_UNKNOWN);
    assert_int_equal(ls_dataset_describe(test)->rows, 1000);
    assert_string_equal(ls_dataset_describe(test)->split, "test");
    assert_int_equal(ls_dataset_image_bytes(test), 784);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

/* The bytes are the same on every machine and in every version, because a change of them changes
 * the results of all users. */
static void the_bytes_never_change(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    ls_sha256 hash;
    char hex[LS_SHA256_HEX];
    open_with(&train, &test, 100, 1);
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, ls_dataset_resident(train).images, (size_t)100 * 784);
    for (int i = 0; i < 100; i++)
        ls_sha256_update(&hash, &(uint8_t){(uint8_t)ls_dataset_resident(train).labels[i]}, 1);
    ls_sha256_update(&hash, ls_dataset_resident(test).images, (size_t)1000 * 784);
    ls_sha256_final_hex(&hash, hex);
    assert_string_equal(hex, "721f8bd143b12effd0fb50475867e41348272abd75bfc8e54f1eff97170bce76");
    ls_dataset_close(train);
    ls_dataset_close(test);
}

static void the_seed_decides_and_the_limit_only_cuts(void **state)
{
    (void)state;
    ls_dataset *a[2];
    ls_dataset *b[2];
    ls_dataset *c[2];
    open_with(&a[0], &a[1], 50, 1);
    open_with(&b[0], &b[1], 80, 1);
    open_with(&c[0], &c[1], 50, 2);
    ls_dataset_view va = ls_dataset_resident(a[0]);
    assert_memory_equal(va.images, ls_dataset_resident(b[0]).images, 50 * 784);
    assert_memory_equal(va.labels, ls_dataset_resident(b[0]).labels, 50 * sizeof *va.labels);
    assert_memory_equal(ls_dataset_resident(a[1]).images, ls_dataset_resident(b[1]).images, 784000);
    assert_memory_not_equal(va.images, ls_dataset_resident(c[0]).images, 50 * 784);
    assert_memory_not_equal(va.images, ls_dataset_resident(a[1]).images, 50 * 784);
    for (int i = 0; i < 2; i++) {
        ls_dataset_close(a[i]);
        ls_dataset_close(b[i]);
        ls_dataset_close(c[i]);
    }
}

/* The images can be learnt but are not trivial: the class whose mean image is nearest is right for
 * most images, not for all. */
static void nearest_class_mean_finds_most_labels(void **state)
{
    (void)state;
    static double mean[10][784];
    static int count[10];
    ls_dataset *train;
    ls_dataset *test;
    int correct = 0;
    open_with(&train, &test, 0, 3);
    ls_dataset_view t = ls_dataset_resident(train);
    ls_dataset_view e = ls_dataset_resident(test);
    for (int r = 0; r < 6000; r++) {
        assert_true(t.labels[r] < 10);
        count[t.labels[r]]++;
        for (int p = 0; p < 784; p++)
            mean[t.labels[r]][p] += t.images[r * 784 + p];
    }
    for (int c = 0; c < 10; c++) {
        assert_true(count[c] > 400);
        for (int p = 0; p < 784; p++)
            mean[c][p] /= count[c];
    }
    for (int r = 0; r < 1000; r++) {
        int nearest = 0;
        double best = 1e300;
        for (int c = 0; c < 10; c++) {
            double d = 0;
            for (int p = 0; p < 784; p++)
                d += (e.images[r * 784 + p] - mean[c][p]) * (e.images[r * 784 + p] - mean[c][p]);
            nearest = d < best ? c : nearest;
            best = d < best ? d : best;
        }
        correct += nearest == e.labels[r];
    }
    print_message("nearest class mean: %d of 1000\n", correct);
    assert_true(correct > 700);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

static void an_absurd_limit_is_refused(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    ls_error err;
    const ls_dataset_spec spec = {.name = "synthetic", .limit = 4000000000u};
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, "data.limit: expected at most 1000000 synthetic rows, found "
                                  "4000000000; 0 means 6000");
    assert_null(train);
    assert_null(test);
}

static void an_unknown_name_gets_a_suggestion(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    ls_error err;
    ls_dataset_spec spec = {.name = "fashion-mnist"};
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, "data.name: unknown dataset \"fashion-mnist\"; did you mean "
                                  "\"fashion_mnist\"?");
    spec.name = "imagenet";
    assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, "data.name: unknown dataset \"imagenet\"; expected "
                                  "fashion_mnist, mnist, emnist, "
                                  "cifar10, cifar100, synthetic, npy, safetensors, csv or folder");
    ls_dataset_close(NULL);
}

/* spec.wrong becomes the config's key, so that the reader of the config can add the key's position
 * to the message. */
static void a_refusal_says_which_key_it_is_about(void **state)
{
    (void)state;
    const struct {
        ls_dataset_spec spec;
        const char *key;
    } of[] = {{{.name = "synthetic", .limit = 4000000000u}, "data.limit"},
              {{.name = "imagenet"}, "data.name"},
              {{.name = "mnist", .path = "/dev/null"}, "data.path"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_dataset *train;
        ls_dataset *test;
        ls_error err;
        const char *key = NULL;
        ls_dataset_spec spec = of[i].spec;
        spec.wrong = &key;
        assert_int_equal(ls_dataset_open(&train, &test, &spec, NULL, &err), LS_ECONFIG);
        assert_string_equal(key, of[i].key);
        assert_int_equal(strncmp(err.text, key, strlen(key)), 0);
    }
}

static void every_listed_name_can_be_opened_or_is_missing(void **state)
{
    (void)state;
    static const char *const listed[] = {"fashion_mnist", "mnist", "cifar10", "synthetic"};
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        ls_dataset *train;
        ls_dataset *test;
        const ls_dataset_spec spec = {.name = listed[i], .limit = 1};
        int rc = ls_dataset_open(&train, &test, &spec, NULL, NULL);
        assert_true(rc == LS_OK || rc == LS_ENOENT);
        ls_dataset_close(train);
        ls_dataset_close(test);
    }
}

static void rows_are_read_in_the_order_asked_for(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    ls_error err;
    static uint8_t images[3 * 784];
    int32_t labels[3];
    const uint32_t rows[3] = {5, 0, 5};
    const uint32_t beyond[2] = {3, 10};
    open_with(&train, &test, 10, 1);
    ls_dataset_view v = ls_dataset_resident(train);
    assert_int_equal(ls_dataset_read(train, rows, 3, images, labels, &err), LS_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(images + i * 784, v.images + (size_t)rows[i] * 784, 784);
        assert_int_equal(labels[i], v.labels[rows[i]]);
    }
    assert_int_equal(ls_dataset_read(train, beyond, 2, images, labels, &err), LS_EINVAL);
    assert_string_equal(err.text, "synthetic: row 10 does not exist; the train split has 10 rows");
    assert_memory_equal(images, v.images + (size_t)5 * 784, 784); /* nothing was written */
    ls_dataset_close(train);
    ls_dataset_close(test);
}

/* Thread that reads all rows. Returns NULL if all of them are right. */
static void *read_everything(void *arg)
{
    const ls_dataset *ds = arg;
    ls_dataset_view v = ls_dataset_resident(ds);
    uint8_t image[784];
    int32_t label;
    for (uint32_t row = 0; row < 1000; row++) {
        uint32_t other = (row * 617) % 1000;
        if (ls_dataset_read(ds, &other, 1, image, &label, NULL) != LS_OK ||
            label != v.labels[other] || memcmp(image, v.images + (size_t)other * 784, 784) != 0)
            return arg;
    }
    return NULL;
}

static void several_threads_read_at_once(void **state)
{
    (void)state;
    ls_dataset *train;
    ls_dataset *test;
    pthread_t thread[4];
    open_with(&train, &test, 1, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_everything, test), 0);
    for (int i = 0; i < 4; i++) {
        void *problem;
        assert_int_equal(pthread_join(thread[i], &problem), 0);
        assert_null(problem);
    }
    ls_dataset_close(train);
    ls_dataset_close(test);
}

LS_TESTS(data_synthetic, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_that_it_is_synthetic),
        cmocka_unit_test(the_bytes_never_change),
        cmocka_unit_test(the_seed_decides_and_the_limit_only_cuts),
        cmocka_unit_test(nearest_class_mean_finds_most_labels),
        cmocka_unit_test(an_absurd_limit_is_refused),
        cmocka_unit_test(an_unknown_name_gets_a_suggestion),
        cmocka_unit_test(a_refusal_says_which_key_it_is_about),
        cmocka_unit_test(every_listed_name_can_be_opened_or_is_missing),
        cmocka_unit_test(rows_are_read_in_the_order_asked_for),
        cmocka_unit_test(several_threads_read_at_once),
    };
    return cmocka_run_group_tests_name("data_synthetic", tests, NULL, NULL);
}
