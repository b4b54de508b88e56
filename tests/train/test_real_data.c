/* SPDX-License-Identifier: MIT */
/* Tests the last minibatch of an epoch, which is smaller, with the real Fashion-MNIST. With
 * minibatches of 256 or 512 rows the last minibatch has 96 training rows, and 16 or 272 test rows.
 * Skipped if the data is not installed. */
#include "runner.h"
#include "train/train_fixture.h"

#include <math.h>
#include <string.h>

static const char *const data_dirs[] = {"/usr/share/datasets"};

/* Uses a model of one dense layer, with which 60,000 rows take a second or two. */
static void use_real_data(fixture *f)
{
    fixture_begin(f);
    f->options.data_dirs = data_dirs;
    f->options.data_dir_count = 1;
    fixture_set(f, "data={\"name\": \"fashion_mnist\"}");
    fixture_set(
        f, "model={\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(f, "shards=8");
    if (has_backend("cpu"))
        fixture_set(f, "devices=cpu:2"); /* the reference back end is many times slower */
}

static int data_is_missing(void)
{
    fixture f;
    ls_trainer *t = NULL;
    use_real_data(&f);
    int status = ls_trainer_open(&t, &f.options, &f.err);
    if (status == LS_OK)
        ls_trainer_close(t, NULL);
    fixture_end(&f);
    return status == LS_ENOENT;
}

/* Trains one epoch with minibatches of `batch` rows. */
static void check_epoch(const char *batch, int steps, double rows)
{
    fixture f;
    use_real_data(&f);
    fixture_set(&f, batch);
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(fixture_count(&f, "step"), steps);
    const char *last = fixture_record(&f, "step", steps - 1);
    assert_true(record_number(last, "rows") == 96);
    assert_true(record_number(fixture_record(&f, "step", 0), "rows") == rows);
    assert_non_null(strstr(fixture_record(&f, "run_start", 0), "\"payload\":\"published\""));
    double hits = ls_trainer_result(t)->metric_value * 10000;
    assert_true(fabs(hits - round(hits)) < 1e-6);
    /* a linear model reaches an accuracy of about 0.8, so this model has learnt */
    assert_true(hits > 7000);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void the_last_training_minibatch_has_96_rows(void **state)
{
    (void)state;
    check_epoch("batch_size=256", 235, 256);
    check_epoch("batch_size=512", 118, 512);
}

/* 10,000 test rows are 39 minibatches of 256 rows and one of 16, or 19 of 512 rows and one of
 * 272. */
static void every_test_image_counts_once(void **state)
{
    static const char *const batch[] = {"batch_size=256", "batch_size=512", "batch_size=10000"};
    double loss = 0, accuracy = 0;
    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture f;
        use_real_data(&f);
        fixture_set(&f, batch[i]);
        fixture_set(&f, "optimizer.lr=0");
        fixture_set(&f, "data.limit=256");
        ls_trainer *t = fixture_run(&f);
        const ls_result *r = ls_trainer_result(t);
        if (i == 0) {
            loss = r->test_loss;
            accuracy = r->metric_value;
        }
        assert_true(fabs(r->test_loss - loss) < 1e-6 * loss);
        assert_true(r->metric_value == accuracy);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

LS_TESTS(train_real_data, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_training_minibatch_has_96_rows),
        cmocka_unit_test(every_test_image_counts_once),
    };
    return data_is_missing() ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
