/* SPDX-License-Identifier: MIT */
/* Tests a trainer through its public functions. It must behave as the trainer in the book "Dive
 * into Deep Learning". The behaviours of the book's trainer are numbered; the title of a section
 * begins with the numbers of the behaviours that it tests ("row 4"). */
#include "train/train_fixture.h"

#include "base/clock.h"
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- row 1 and 2: the model, its parameters and their gradients ---- */

static float *canonical_of(const ls_trainer *t, const float *arena)
{
    ls_error err;
    float *out = calloc(t->model->floats, sizeof *out);
    assert_int_equal(ls_replica_export(t->engine->worker[0].replica, out, arena, &err), LS_OK);
    return out;
}

static void lenet_is_the_books(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_use_lenet(&f);
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_summary(t)->parameters, 129068);
    assert_int_equal(ls_trainer_summary(t)->parameter_bytes, 516272);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* As in the book's get_params: the bias b1 and its gradient, in device memory. */
static void a_fresh_bias_and_its_gradient_are_twenty_zeros(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_use_lenet(&f);
    ls_trainer *t = fixture_open(&f);
    for (int w = 0; w < t->engine->workers; w++) {
        float *weights = canonical_of(t, ls_replica_weight_arena(t->engine->worker[w].replica));
        float *gradient = canonical_of(t, ls_replica_gradient_arena(t->engine->worker[w].replica));
        const ls_param *bias = &t->model->layer[0].param[1];
        assert_string_equal(bias->name, "conv1.bias");
        assert_int_equal(bias->count, 20);
        for (size_t i = 0; i < bias->count; i++) {
            assert_true(weights[bias->offset + i] == 0.0f);
            assert_true(gradient[bias->offset + i] == 0.0f);
        }
        assert_true(weights[0] != 0.0f); /* W1 is not zero */
        free(weights);
        free(gradient);
    }
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void weights_are_read_back_in_model_order(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    size_t bytes = ls_trainer_summary(t)->parameter_bytes;
    float *out = malloc(bytes);
    assert_int_equal(ls_trainer_weights(t, out, ls_trainer_summary(t)->parameters, &f.err), LS_OK);
    float *want = canonical_of(t, ls_replica_weight_arena(t->engine->worker[1].replica));
    assert_memory_equal(out, want, bytes);
    free(want);
    free(out);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- row 4: which shards a worker holds ---- */

static void shards_are_dealt_out_in_contiguous_parts(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "shards=10");
    fixture_set(&f, "devices=ref:4"); /* 10 shards on 4 devices: 3, 3, 2, 2 */
    ls_trainer *t = fixture_open(&f);
    static const int first[] = {0, 3, 6, 8, 10};
    for (int w = 0; w < 4; w++) {
        assert_int_equal(t->engine->worker[w].shard_lo, first[w]);
        assert_int_equal(t->engine->worker[w].shard_hi, first[w + 1]);
    }
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- rows 6 and 11: one step is w − lr / rows · Σ gradient ---- */

#define ROWS 96

typedef struct whole {
    ls_trainer *t;
    float *gradient; /* gradient of all rows as one shard, summed in double */
} whole;

static int compute_whole(const ls_worker *w, void *arg, ls_error *err)
{
    whole *job = arg;
    ls_replica *replica = job->t->engine->worker[w->index].replica;
    uint32_t rows[ROWS];
    ls_replica_times times = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = i;
    int status = ls_replica_gradient(replica, rows, ROWS, 0, &times, err);
    return status
               ? status
               : ls_replica_export(replica, job->gradient, ls_replica_gradient_arena(replica), err);
}

/* Returns the weights before the step, and the sum of the gradients of all rows. Another trainer
 * computes both. */
static void reference_gradient(float **before, float **gradient)
{
    fixture f;
    fixture_begin(&f);
    fixture_set(&f, "devices=ref64:1");
    fixture_set(&f, "shards=1");
    fixture_set(&f, "batch_size=256");
    whole job = {.t = fixture_open(&f)};
    *before = canonical_of(job.t, ls_replica_weight_arena(job.t->engine->worker[0].replica));
    *gradient = job.gradient = calloc(job.t->model->floats, sizeof(float));
    assert_int_equal(ls_pool_run(job.t->engine->pool, compute_whole, &job, LS_FOREVER, &f.err),
                     LS_OK);
    ls_trainer_close(job.t, NULL);
    fixture_end(&f);
}

/* Checks a step of 96 rows with the batch_size in `batch`. The epoch has one minibatch, which has
 * fewer rows than batch_size. */
static void check_step(const char *batch, const char *gradient_scale, double divisor)
{
    fixture f;
    float *before, *gradient;
    double lr = 0.05, error = 0, size = 0;
    reference_gradient(&before, &gradient);
    fixture_begin(&f);
    fixture_set(&f, batch);
    fixture_set(&f, gradient_scale);
    fixture_set(&f, "devices=ref:3");
    ls_trainer *t = fixture_run(&f);
    float *after = canonical_of(t, ls_replica_weight_arena(t->engine->worker[2].replica));
    for (size_t i = 0; i < t->model->floats; i++) {
        double step = lr / divisor * gradient[i];
        double got = (double)before[i] - (double)after[i];
        error += (got - step) * (got - step);
        size += step * step;
    }
    assert_true(size > 1e-8);
    if (sqrt(error / size) > 1e-4)
        fail_msg("%s, %s: the step is off by %g of its length", batch, gradient_scale,
                 sqrt(error / size));
    assert_int_equal(record_number(fixture_record(&f, "step", 0), "rows"), ROWS);
    free(after);
    free(before);
    free(gradient);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void a_smaller_minibatch_is_divided_by_its_own_rows(void **state)
{
    (void)state;
    check_step("batch_size=256", "gradient_scale=batch", ROWS);
    check_step("batch_size=512", "gradient_scale=batch", ROWS);
}

static void nominal_divides_by_the_batch_size(void **state)
{
    (void)state;
    check_step("batch_size=256", "gradient_scale=nominal", 256);
    check_step("batch_size=512", "gradient_scale=nominal", 512);
}

static void the_loss_of_a_step_is_the_mean_over_its_rows(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "init={\"name\": \"normal\", \"std\": 0.0001}");
    ls_trainer *t = fixture_run(&f);
    /* At the beginning the logits of the 10 classes are nearly equal, so the loss is about ln
     * 10. */
    assert_true(fabs(record_number(fixture_record(&f, "step", 0), "loss") - log(10)) < 0.01);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- row 7: epochs, and what their time covers ---- */

static int slow_on_eval(void *user, const char *json, size_t length, ls_error *err)
{
    (void)length;
    (void)err;
    if (strncmp(json, "{\"type\":\"eval\"", 14) == 0 ||
        strncmp(json, "{\"type\":\"epoch\"", 15) == 0) {
        const struct timespec nap = {.tv_nsec = 100000000};
        nanosleep(&nap, NULL);
        ++*(int *)user;
    }
    return LS_OK;
}

static void the_clock_covers_training_only(void **state)
{
    fixture f;
    int naps = 0;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "epochs=3");
    f.callbacks.record = slow_on_eval;
    f.callbacks.user = &naps;
    ls_trainer *t = fixture_open(&f);
    uint64_t start = ls_now_ns();
    assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
    double wall = (double)(ls_now_ns() - start) * 1e-9;
    const ls_result *r = ls_trainer_result(t);
    assert_int_equal(r->epochs, 3);
    assert_int_equal(r->steps, 9);
    assert_int_equal(naps, 6);
    assert_true(r->seconds_per_epoch > 0);
    assert_true(r->seconds_per_epoch * 3 < wall - 0.6);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void evaluation_comes_when_it_is_due_and_at_the_end(void **state)
{
    static const struct {
        const char *every;
        int evaluations;
    } cases[] = {
        {"eval_every=1", 5}, {"eval_every=2", 3}, {"eval_every=0", 1}, {"eval_every=9", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        fixture_begin(&f);
        fixture_set(&f, "epochs=5");
        fixture_set(&f, cases[i].every);
        ls_trainer_close(fixture_run(&f), NULL);
        assert_int_equal(fixture_count(&f, "eval"), cases[i].evaluations);
        assert_int_equal(fixture_count(&f, "epoch"), 5);
        assert_int_equal(fixture_count(&f, "step"), 15);
        assert_int_equal(record_number(f.record[f.records - 2], "epoch"), 5);
        fixture_end(&f);
    }
}

/* ---- row 14: every device holds equal values ---- */

static void replicas_agree_after_opening_and_after_steps(void **state)
{
    static const char *const merge[] = {"allreduce=ordered", "allreduce=naive"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        fixture_begin(&f);
        fixture_set(&f, "devices=ref:3");
        fixture_set(&f, "epochs=2");
        fixture_set(&f, merge[i]);
        ls_trainer *t = fixture_open(&f);
        replicas_are_equal(t);
        float *before = canonical_of(t, ls_replica_weight_arena(t->engine->worker[0].replica));
        assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
        replicas_are_equal(t);
        float *after = canonical_of(t, ls_replica_weight_arena(t->engine->worker[0].replica));
        assert_true(memcmp(before, after, t->model->floats * sizeof *after) != 0);
        free(before);
        free(after);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

/* ---- row 15: a run starts from its seed ---- */

static void a_run_starts_fresh_from_its_seed(void **state)
{
    char first[65], other[65];
    fixture f;
    (void)state;
    fixture_begin(&f);
    memcpy(first, fixture_hash(&f), sizeof first);
    assert_string_equal(fixture_hash(&f), first);
    fixture_set(&f, "seed=1");
    memcpy(other, fixture_hash(&f), sizeof other);
    assert_string_not_equal(other, first);
    fixture_set(&f, "seed=0");
    assert_string_equal(fixture_hash(&f), first);
    fixture_end(&f);
}

/* ---- row 16: evaluation on all devices ---- */

static void evaluation_on_many_devices_equals_that_on_one(void **state)
{
    static const char *const devices[] = {"devices=ref:1", "devices=ref:2", "devices=ref:3",
                                          "devices=ref:8"};
    double loss = 0, accuracy = 0;
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture f;
        fixture_begin(&f);
        fixture_set(&f, "shards=8");
        fixture_set(&f, "batch_size=256");
        fixture_set(&f, devices[i]);
        ls_trainer *t = fixture_run(&f);
        const ls_result *r = ls_trainer_result(t);
        if (i == 0) {
            loss = r->test_loss;
            accuracy = r->metric_value;
        }
        assert_true(r->test_loss == loss);
        assert_true(r->metric_value == accuracy);
        /* The accuracy times the number of test images, the number of correct images, must be a
         * whole number. */
        double hits = r->metric_value * ls_dataset_rows(t->data[LS_TEST]);
        assert_true(fabs(hits - round(hits)) < 1e-9 && hits > 0);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

/* Row 11: each test image counts once, for any size of the last minibatch. */
static void evaluation_does_not_depend_on_the_minibatch(void **state)
{
    static const char *const batch[] = {"batch_size=256", "batch_size=512", "batch_size=999",
                                        "batch_size=4096", "batch_size=7"};
    double loss = 0, accuracy = 0;
    (void)state;
    for (int i = 0; i < 5; i++) {
        fixture f;
        fixture_begin(&f);
        fixture_set(&f, "optimizer.lr=0"); /* the weights do not change */
        fixture_set(&f, batch[i]);
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

/* ---- rows 19 and 23: k devices, and "all devices" in one word ---- */

static void batch_k_b_on_k_devices_gives_each_b(void **state)
{
    static const char *const devices[] = {"devices=ref:1", "devices=ref:2", "devices=ref:4"};
    static const char *const batch[] = {"batch_size=64", "batch_size=128", "batch_size=256"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture f;
        fixture_begin(&f);
        fixture_set(&f, devices[i]);
        fixture_set(&f, batch[i]);
        ls_trainer *t = fixture_run(&f);
        assert_int_equal(ls_trainer_summary(t)->batch_per_device, 64);
        assert_int_equal(ls_trainer_summary(t)->batch_size, 64 << i);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void only_reference(fixture *f)
{
    ls_error err;
    ls_registry_destroy(f->registry);
    assert_int_equal(ls_registry_create_empty(&f->registry, NULL, &err), LS_OK);
    assert_int_equal(ls_registry_add(f->registry, ls_ref_backend(), &err), LS_OK);
    f->options.registry = f->registry;
}

static void auto_means_every_device_up_to_the_shards(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    only_reference(&f);
    fixture_set(&f, "devices=auto");
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(ls_trainer_summary(t)->workers, 4); /* as many workers as shards */
    assert_string_equal(ls_trainer_result(t)->devices, "[ref(0), ref(1), ref(2), ref(3)]");
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void one_shard_per_device_on_request(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "shards=devices");
    fixture_set(&f, "devices=ref:3");
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(ls_trainer_summary(t)->shards, 3);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void hash_on(char hash[65], const char *devices, const char *allreduce)
{
    fixture f;
    fixture_begin(&f);
    fixture_set(&f, devices);
    fixture_set(&f, allreduce);
    memcpy(hash, fixture_hash(&f), 65);
    fixture_end(&f);
}

static void workers_beyond_the_shards_change_nothing(void **state)
{
    static const char *const devices[] = {"devices=ref:5", "devices=ref:16", "devices=ref:64"};
    char four[65], more[65];
    (void)state;
    hash_on(four, "devices=ref:4", "allreduce=ordered");
    for (size_t i = 0; i < (SLOW_BUILD ? 2 : 3); i++) {
        hash_on(more, devices[i], "allreduce=ordered");
        assert_string_equal(more, four);
    }
    hash_on(four, "devices=ref:4", "allreduce=naive");
    hash_on(more, "devices=ref:6", "allreduce=naive");
    assert_string_equal(more, four);
}

static void more_shards_than_rows_leaves_some_empty(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "shards=50");
    fixture_set(&f, "batch_size=40");
    fixture_set(&f, "devices=ref:7");
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(record_number(fixture_record(&f, "step", 2), "rows"), 16);
    replicas_are_equal(t);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- the interface ---- */

static void training_learns_the_synthetic_data(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    fixture_set(&f, "data.limit=640");
    fixture_set(&f, "epochs=3");
    ls_trainer *t = fixture_run(&f);
    assert_true(ls_trainer_result(t)->metric_value > 0.8);
    assert_true(ls_trainer_summary(t)->synthetic);
    assert_non_null(strstr(ls_trainer_summary(t)->data, "SYNTHETIC"));
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void a_trainer_runs_once(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EINVAL);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void wrong_options_are_refused(void **state)
{
    fixture f;
    ls_trainer *t;
    (void)state;
    fixture_begin(&f);
    f.options.config_text = NULL;
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_EINVAL);
    f.options.size--;
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_EINVAL);
    assert_int_equal(ls_trainer_open(&t, NULL, NULL), LS_EINVAL);
    ls_trainer_close(NULL, NULL);
    fixture_end(&f);
}

static void keep_progress(void *user, const ls_progress *p)
{
    ls_progress *last = user;
    assert_true(p->epoch_done || p->step == last->step % p->steps + 1);
    *last = *p;
}

static void progress_counts_steps_and_epochs(void **state)
{
    fixture f;
    ls_progress last = {0};
    (void)state;
    fixture_begin(&f);
    f.callbacks.record = NULL;
    f.callbacks.progress = keep_progress;
    f.callbacks.user = &last;
    fixture_set(&f, "epochs=2");
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(last.epoch, 2);
    assert_int_equal(last.epochs, 2);
    assert_int_equal(last.step, 3);
    assert_int_equal(last.steps, 3);
    assert_true(last.epoch_done && last.evaluated && last.remaining_s == 0);
    assert_true(last.metric_value == ls_trainer_result(t)->metric_value);
    assert_true(last.rows_per_s > 0 && last.loss > 0 && last.accuracy >= 0);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

static void nap(void *user, ls_model *snapshot)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    (void)user;
    (void)snapshot;
    nanosleep(&moment, NULL);
}

/* The time that the caller spends on the snapshot after the last step is not part of the epoch's
 * time. */
static void an_epoch_takes_as_long_as_its_steps(void **state)
{
    fixture f;
    double seconds = 0;
    (void)state;
    fixture_begin(&f);
    f.callbacks.model = nap;
    f.callbacks.model_every_steps = 3;
    ls_trainer_close(fixture_run(&f), NULL);
    for (int i = 0; i < 3; i++) {
        const char *step = fixture_record(&f, "step", i);
        seconds += record_number(step, "rows") / record_number(step, "images_per_s");
    }
    const double epoch = record_number(fixture_record(&f, "epoch", 0), "seconds");
    if (!(fabs(epoch - seconds) < 1e-4 * seconds))
        fail_msg("%g s, but its steps took %g s", epoch, seconds);
    fixture_end(&f);
}

LS_TESTS(train, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_is_the_books),
        cmocka_unit_test(a_fresh_bias_and_its_gradient_are_twenty_zeros),
        cmocka_unit_test(weights_are_read_back_in_model_order),
        cmocka_unit_test(shards_are_dealt_out_in_contiguous_parts),
        cmocka_unit_test(a_smaller_minibatch_is_divided_by_its_own_rows),
        cmocka_unit_test(nominal_divides_by_the_batch_size),
        cmocka_unit_test(the_loss_of_a_step_is_the_mean_over_its_rows),
        cmocka_unit_test(the_clock_covers_training_only),
        cmocka_unit_test(evaluation_comes_when_it_is_due_and_at_the_end),
        cmocka_unit_test(replicas_agree_after_opening_and_after_steps),
        cmocka_unit_test(a_run_starts_fresh_from_its_seed),
        cmocka_unit_test(evaluation_on_many_devices_equals_that_on_one),
        cmocka_unit_test(evaluation_does_not_depend_on_the_minibatch),
        cmocka_unit_test(batch_k_b_on_k_devices_gives_each_b),
        cmocka_unit_test(auto_means_every_device_up_to_the_shards),
        cmocka_unit_test(one_shard_per_device_on_request),
        cmocka_unit_test(workers_beyond_the_shards_change_nothing),
        cmocka_unit_test(more_shards_than_rows_leaves_some_empty),
        cmocka_unit_test(training_learns_the_synthetic_data),
        cmocka_unit_test(a_trainer_runs_once),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(progress_counts_steps_and_epochs),
        cmocka_unit_test(an_epoch_takes_as_long_as_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
