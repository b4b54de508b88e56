/* SPDX-License-Identifier: MIT */
/* Tests a trainer that its caller drives step by step. The weights must be bit-identical to those
 * of ls_trainer_run. The tests stop, save, load and query the trainer in every way. */
#define _GNU_SOURCE /* for memmem */
#include "base/rng.h"
#include "data/scratch.h"
#include "formats/safetensors_format.h"
#include "hash/hash.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 32
#define STEPS 3 /* number of steps of an epoch */

/* A trainer with the test's own data. Its steps depend on weights, momentum and running
 * statistics. */
typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
    uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
} scenario;

static void begin(scenario *s, int streamed, const char *devices)
{
    fixture_begin(&s->f);
    s->data = own_data(streamed);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "seed=5");
    fixture_set(&s->f, "epochs=2");
    fixture_set(&s->f, devices);
    fixture_set(&s->f,
                "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                "{\"type\":\"dense\",\"out\":10}]}");
}

/* Adds dropout and augmentation, which draw random numbers for each row. */
static void add_chance(scenario *s)
{
    fixture_set(&s->f, "augment={\"crop\":2,\"flip\":true}");
    fixture_set(&s->f, "model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dropout\",\"p\":"
                       "0.25},{\"type\":\"dense\",\"out\":10}]}");
}

static void end(scenario *s)
{
    fixture_end(&s->f);
}

/* Fills images and labels with the rows that step number `step` (from 0) has in a run with seed
 * 5. */
static void choose(scenario *s, uint64_t step)
{
    uint32_t order[OWN_TRAIN];
    ls_rng_permutation(order, OWN_TRAIN, 5, (uint32_t)(step / STEPS));
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, order[step % STEPS * BATCH + i], s->images + (size_t)i * OWN_PIXELS,
                &s->labels[i]);
}

static ls_step_result step(scenario *s, ls_trainer *t, uint64_t number)
{
    ls_step_result result = {.size = sizeof result};
    choose(s, number);
    if (own_step(t, s->images, s->labels, BATCH, &result, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    return result;
}

static float *weights_of(ls_trainer *t)
{
    float *weights = calloc(ls_trainer_summary(t)->parameters, sizeof *weights);
    ls_error err;
    if (ls_trainer_weights(t, weights, ls_trainer_summary(t)->parameters, &err) != LS_OK)
        fail_msg("%s", err.text);
    return weights;
}

enum { CERTAIN, CHANCE };

/* Returns the weights after the first `steps` steps. */
static float *weights_behind(int chance, const char *devices, uint64_t steps, size_t *count)
{
    scenario s;
    begin(&s, 1, devices);
    if (chance)
        add_chance(&s);
    ls_trainer *t = fixture_open(&s.f);
    for (uint64_t i = 0; i < steps; i++)
        step(&s, t, i);
    float *weights = weights_of(t);
    *count = ls_trainer_summary(t)->parameters;
    ls_trainer_close(t, NULL);
    end(&s);
    return weights;
}

static void assert_same(const float *a, const float *b, size_t count)
{
    assert_memory_equal(a, b, count * sizeof *a);
}

/* ---- the same bits ---- */

static void streamed_data_trains_to_the_bits_of_resident_data(void **state)
{
    (void)state;
    char hash[2][65];
    for (int streamed = 0; streamed < 2; streamed++) {
        scenario s;
        begin(&s, streamed, streamed ? "devices=ref:3" : "devices=ref:2");
        memcpy(hash[streamed], fixture_hash(&s.f), 65);
        end(&s);
    }
    assert_string_equal(hash[0], hash[1]);
}

static void steps_on_the_rows_of_a_run_give_its_bits(void **state)
{
    (void)state;
    scenario s;
    size_t count;
    begin(&s, 0, "devices=ref:2");
    ls_trainer *t = fixture_run(&s.f);
    float *run = weights_of(t),
          *driven = weights_behind(CERTAIN, "devices=ref:3", 2 * STEPS, &count);
    assert_same(run, driven, count);
    ls_trainer_close(t, NULL);
    end(&s);
    free(run);
    free(driven);
}

/* The hash is computed when the result is asked for: equal to that of a run with the same steps,
 * and different after each further step. A load brings the former hash back. */
static void steps_give_the_hash_of_a_run(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    char run[65], first[65];
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    begin(&s, 1, "devices=ref:2");
    memcpy(run, fixture_hash(&s.f), 65);
    ls_trainer *t = fixture_open(&s.f);
    for (uint32_t i = 0; i < 2 * STEPS; i++) {
        step(&s, t, i);
        if (i == 0) {
            memcpy(first, ls_trainer_result(t)->weights_sha256, 65);
            assert_int_equal(strlen(first), 64);
            assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
        } else
            assert_string_not_equal(ls_trainer_result(t)->weights_sha256, first);
    }
    assert_string_equal(ls_trainer_result(t)->weights_sha256, run);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    assert_string_equal(ls_trainer_result(t)->weights_sha256, first);
    ls_trainer_close(t, NULL);
    end(&s);
    scratch_end(&files);
}

static void a_run_goes_on_behind_steps(void **state)
{
    (void)state;
    scenario s;
    char run[65];
    begin(&s, 1, "devices=ref:2");
    memcpy(run, fixture_hash(&s.f), 65);
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    step(&s, t, 1);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_string_equal(ls_trainer_result(t)->weights_sha256, run);
    assert_int_equal(fixture_count(&s.f, "run_start"), 1);
    assert_int_equal(fixture_count(&s.f, "step"), 2 * STEPS);
    assert_int_equal(fixture_count(&s.f, "run_end"), 1);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void a_device_that_is_lost_changes_no_bit_of_what_is_driven(void **state)
{
    (void)state;
    static const char *const inject[] = {"worker=1,step=3,kind=fail,stage=merge"};
    scenario s;
    size_t count;
    begin(&s, 1, "devices=ref:3");
    add_chance(&s);
    s.f.sys.inject = inject;
    s.f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&s.f);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(step(&s, t, i).number, i + 1);
    assert_int_equal(fixture_count(&s.f, "fault"), 1);
    float *lost = weights_of(t), *whole = weights_behind(CHANCE, "devices=ref:3", 5, &count);
    assert_same(lost, whole, count);
    ls_trainer_close(t, NULL);
    end(&s);
    free(lost);
    free(whole);
}

static void what_is_drawn_differs_from_step_to_step(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    add_chance(&s);
    fixture_set(&s.f, "optimizer.lr=1e-30");
    ls_trainer *t = fixture_open(&s.f);
    const double first = step(&s, t, 0).loss, second = step(&s, t, 0).loss;
    assert_true(first != second && step(&s, t, 0).loss != first);
    ls_trainer_close(t, NULL);
    end(&s);
}

/* ---- saving and loading ---- */

static void a_saved_trainer_goes_on_in_another_one(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    size_t count;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    float *whole = weights_behind(CHANCE, "devices=ref:2", 5, &count);
    begin(&s, 1, "devices=ref:2");
    add_chance(&s);
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    step(&s, t, 1);
    if (ls_trainer_save(t, path, &s.f.err) != LS_OK) /* replaces the first checkpoint */
        fail_msg("%s", s.f.err.text);
    ls_trainer_close(t, NULL);
    end(&s);
    begin(&s, 1, "devices=ref:3");
    add_chance(&s);
    t = fixture_open(&s.f);
    if (ls_trainer_load(t, path, &s.f.err) != LS_OK)
        fail_msg("%s", s.f.err.text);
    for (uint64_t i = 2; i < 5; i++)
        assert_int_equal(step(&s, t, i).number, i + 1);
    float *loaded = weights_of(t);
    assert_same(loaded, whole, count);
    ls_trainer_close(t, NULL);
    end(&s);
    free(loaded);
    free(whole);
    scratch_end(&files);
}

static void loading_goes_back_in_the_same_trainer(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    const double once = step(&s, t, 1).loss;
    step(&s, t, 2);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    assert_true(step(&s, t, 1).loss == once);
    ls_trainer_close(t, NULL);
    end(&s);
    scratch_end(&files);
}

/* A trainer loads an older checkpoint and reaches the same step a second time, with other weights.
 * The checkpoint of that step must be written again. */
static void a_step_that_was_reached_anew_is_saved_anew(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    char run_dir[600];
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(&files, "run"));
    begin(&s, 1, "devices=ref:2");
    fixture_set(&s.f, run_dir);
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    step(&s, t, 1);
    assert_int_equal(ls_trainer_save(t, NULL, &s.f.err), LS_OK);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    step(&s, t, 4); /* other rows give other weights */
    assert_int_equal(ls_trainer_save(t, NULL, &s.f.err), LS_OK);
    float *wanted = weights_of(t);
    ls_trainer_close(t, NULL);
    s.f.options.resume = scratch_path(&files, "run");
    t = fixture_open(&s.f);
    float *resumed = weights_of(t);
    assert_same(resumed, wanted, ls_trainer_summary(t)->parameters);
    assert_int_equal(step(&s, t, 2).number, 3);
    ls_trainer_close(t, NULL);
    end(&s);
    free(wanted);
    free(resumed);
    scratch_end(&files);
}

static void weights_of_a_file_are_taken_over(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    ls_model *snapshot;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "w.safetensors");
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    assert_int_equal(ls_trainer_model(&snapshot, t, &s.f.err), LS_OK);
    assert_int_equal(ls_model_save(snapshot, path, &s.f.err), LS_OK);
    ls_model_release(snapshot);
    float *first = weights_of(t);
    const size_t count = ls_trainer_summary(t)->parameters;
    step(&s, t, 1);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    float *again = weights_of(t);
    assert_same(again, first, count);
    assert_int_equal(step(&s, t, 2).number, 3);
    free(first);
    first = weights_of(t);
    ls_trainer_close(t, NULL);
    t = fixture_open(&s.f); /* the optimizer's state of a new trainer is empty too */
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    step(&s, t, 2);
    free(again);
    again = weights_of(t);
    assert_same(again, first, count);
    ls_trainer_close(t, NULL);
    end(&s);
    free(first);
    free(again);
    scratch_end(&files);
}

static void what_cannot_be_loaded_changes_nothing(void **state)
{
    (void)state;
    scratch files;
    scenario s, other;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    begin(&other, 1, "devices=ref:2");
    fixture_set(&other.f, "optimizer.lr=0.01");
    ls_trainer *t = fixture_open(&other.f);
    assert_int_equal(ls_trainer_save(t, path, &other.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    end(&other);
    begin(&s, 1, "devices=ref:2");
    t = fixture_open(&s.f);
    step(&s, t, 0);
    float *before = weights_of(t);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_ECONFIG);
    assert_non_null(strstr(s.f.err.text, "0.01"));
    assert_int_equal(ls_trainer_load(t, scratch_path(&files, "none"), &s.f.err), LS_ENOENT);
    float *after = weights_of(t);
    assert_same(after, before, ls_trainer_summary(t)->parameters);
    assert_int_equal(step(&s, t, 1).number, 2);
    ls_trainer_close(t, NULL);
    end(&s);
    free(before);
    free(after);
    scratch_end(&files);
}

static int is_saved(const char *run, int steps)
{
    char path[700];
    snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", run, steps);
    return access(path, F_OK) == 0;
}

/* The best evaluation is after step 4, where no checkpoint is saved. The checkpoint of the previous
 * best evaluation, after step 3, must be kept, also after a resume. */
static void the_best_that_was_saved_is_kept_when_a_better_one_is_not(void **state)
{
    (void)state;
    scratch files;
    char run_dir[600], *run = run_dir + strlen("run_dir=");
    scratch_begin(&files);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(&files, "run"));
    for (int life = 0; life < 2; life++) {
        scenario s;
        begin(&s, 1, "devices=ref:2");
        fixture_set(&s.f, "epochs=9");
        fixture_set(&s.f, "monitor=loss");
        fixture_set(&s.f, "checkpoint={\"best\":true,\"keep\":1}");
        fixture_set(&s.f, run_dir);
        s.f.options.resume = life ? run : NULL;
        ls_trainer *t = fixture_open(&s.f);
        for (uint64_t i = life ? 5 * STEPS : 0; i < (life ? 7u : 5u) * STEPS; i++) {
            step(&s, t, i);
            if (i + 1 == STEPS || i + 1 == STEPS + 1)
                assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_OK);
        }
        assert_int_equal(t->position.best.steps, STEPS + 1);
        ls_trainer_close(t, NULL);
        for (int i = 1; i <= 7; i++)
            assert_int_equal(is_saved(run, i * STEPS), i == 1 || i == (life ? 7 : 5));
        end(&s);
    }
    scratch_end(&files);
}

/* The model learns nothing, so `patience` is used up after the second evaluation. A checkpoint must
 * be saved after each epoch all the same, also after the last. */
static void each_epoch_is_saved_when_patience_has_run_out(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    char run_dir[600];
    scratch_begin(&files);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(&files, "run"));
    begin(&s, 1, "devices=ref:2");
    fixture_set(&s.f, "epochs=4");
    fixture_set(&s.f, "optimizer.lr=1e-30");
    fixture_set(&s.f, "patience=1");
    fixture_set(&s.f, "checkpoint={\"async\":false,\"every_epochs\":1}");
    fixture_set(&s.f, run_dir);
    ls_trainer *t = fixture_open(&s.f);
    for (uint64_t i = 0; i < 4 * STEPS; i++) {
        step(&s, t, i);
        if ((i + 1) % STEPS > 0)
            continue;
        assert_true(is_saved(run_dir + strlen("run_dir="), (int)i + 1));
        assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_OK);
    }
    assert_int_equal(t->position.best.waited, 3);
    ls_trainer_close(t, NULL);
    end(&s);
    scratch_end(&files);
}

static void what_an_evaluation_found_is_saved_at_the_same_step(void **state)
{
    (void)state;
    scratch files;
    scenario s;
    char run_dir[600];
    scratch_begin(&files);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", scratch_path(&files, "run"));
    begin(&s, 1, "devices=ref:2");
    fixture_set(&s.f, run_dir);
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    for (int i = 0; i < 3; i++) { /* evaluation 0 is the best; the other two are not better */
        assert_int_equal(ls_trainer_save(t, NULL, &s.f.err), LS_OK);
        assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_OK);
    }
    assert_int_equal(ls_trainer_save(t, NULL, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    s.f.options.resume = run_dir + strlen("run_dir=");
    t = fixture_open(&s.f);
    assert_int_equal(t->position.best.steps, 1);
    assert_int_equal(t->position.best.waited, 2);
    ls_trainer_close(t, NULL);
    end(&s);
    scratch_end(&files);
}

static void a_save_without_a_place_is_refused(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    assert_int_equal(ls_trainer_save(t, NULL, &s.f.err), LS_EINVAL);
    assert_int_equal(ls_trainer_save(t, "/", &s.f.err), LS_EINVAL);
    assert_int_equal(ls_trainer_save(t, "/nowhere/at/all", &s.f.err), LS_EIO);
    step(&s, t, 0);
    ls_trainer_close(t, NULL);
    end(&s);
}

/* ---- asking ---- */

static void evaluation_is_that_of_the_run(void **state)
{
    (void)state;
    scenario s;
    ls_evaluation found = {.size = sizeof found};
    begin(&s, 0, "devices=ref:2");
    ls_trainer *t = fixture_run(&s.f);
    const double run_loss = ls_trainer_result(t)->test_loss;
    assert_int_equal(ls_trainer_evaluate(t, &found, &s.f.err), LS_OK);
    assert_true(found.loss == run_loss && found.rows == OWN_TEST);
    assert_string_equal(found.metric, "accuracy");
    assert_true(found.metric_value == ls_trainer_result(t)->metric_value);
    /* a structure of a size that nobody has set, and one of an earlier version */
    ls_evaluation unset = {0},
                  earlier = {.size = offsetof(ls_evaluation, metric_value), .metric_value = 7};
    assert_int_equal(ls_trainer_evaluate(t, &unset, &s.f.err), LS_EINVAL);
    assert_int_equal(ls_trainer_evaluate(t, &earlier, &s.f.err), LS_OK);
    assert_true(earlier.loss == run_loss && earlier.metric_value == 7);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void predictions_follow_the_steps(void **state)
{
    (void)state;
    scenario s;
    float before[OWN_CLASSES], same[OWN_CLASSES], after[OWN_CLASSES];
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    choose(&s, 0);
    assert_int_equal(own_predict(t, s.images, LS_ROW_U8, 1, before, ROOM(before), &s.f.err), LS_OK);
    assert_int_equal(own_predict(t, s.images, LS_ROW_U8, 1, same, ROOM(same), &s.f.err), LS_OK);
    assert_memory_equal(same, before, sizeof same);
    step(&s, t, 0);
    choose(&s, 0);
    assert_int_equal(own_predict(t, s.images, LS_ROW_U8, 1, after, ROOM(after), &s.f.err), LS_OK);
    assert_memory_not_equal(after, before, sizeof after);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void without_test_rows_there_is_nothing_to_evaluate_on(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    s.data.test_rows = 0;
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_EINVAL);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_true(isnan(ls_trainer_result(t)->metric_value));
    ls_trainer_close(t, NULL);
    end(&s);
}

static void data_without_epochs_is_trained_by_steps_alone(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    s.data.train_rows = s.data.test_rows = 0;
    s.data.read = NULL;
    ls_trainer *t = fixture_open(&s.f);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_EINVAL);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(step(&s, t, i).number, i + 1);
    assert_int_equal(fixture_count(&s.f, "epoch"), 0);
    ls_trainer_close(t, NULL);
    fixture_set(&s.f, "schedule=\"cosine\"");
    assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_ECONFIG);
    assert_non_null(strstr(s.f.err.text, "set epoch_steps in the schedule"));
    fixture_set(&s.f, "schedule={\"name\":\"step\",\"every_epochs\":1,\"gamma\":0.5,"
                      "\"epoch_steps\":2}");
    t = fixture_open(&s.f);
    const double rate = step(&s, t, 0).lr;
    for (uint64_t i = 1; i < 6; i++)
        assert_true(step(&s, t, i).lr == ldexp(rate, -(int)(i / 2)));
    ls_trainer_close(t, NULL);
    fixture_set(&s.f, "schedule={\"name\":\"exponential\",\"minimum\":0.5,\"steps\":3}");
    t = fixture_open(&s.f);
    for (uint64_t i = 0; i < 4; i++)
        assert_true(fabs(step(&s, t, i).lr - rate * pow(0.5, i > 1 ? 0 : 1 - 0.5 * (double)i)) <
                    1e-6);
    ls_trainer_close(t, NULL);
    end(&s);
}

/* What the callbacks of a trainer that is driven have received. */
typedef struct received {
    ls_progress last;
    int calls, models;
} received;

static void keep_progress(void *user, const ls_progress *p)
{
    received *r = user;
    r->last = *p;
    r->calls++;
}

static void count_model(void *user, ls_model *model)
{
    received *r = user;
    r->models += model != NULL;
}

static ls_trainer *open_with_callbacks(scenario *s, received *r)
{
    *r = (received){0};
    s->f.callbacks.record = NULL;
    s->f.callbacks.progress = keep_progress;
    s->f.callbacks.model = count_model;
    s->f.callbacks.model_every_steps = 2;
    s->f.callbacks.user = r;
    return fixture_open(&s->f);
}

static void progress_without_epochs_has_no_number_of_steps_and_no_end(void **state)
{
    (void)state;
    scenario s;
    received r;
    begin(&s, 1, "devices=ref:2");
    s.data.train_rows = s.data.test_rows = 0;
    s.data.read = NULL;
    ls_trainer *t = open_with_callbacks(&s, &r);
    for (int i = 0; i < 5; i++) {
        step(&s, t, (uint64_t)i);
        assert_int_equal(r.calls, i + 1);
        assert_int_equal(r.models, (i + 1) / 2);
        assert_int_equal(r.last.epoch, 1);
        assert_int_equal(r.last.step, i + 1);
        assert_int_equal(r.last.steps, 0);
        assert_true(r.last.remaining_s == 0);
        assert_true(r.last.rows_per_s > 0 && r.last.loss > 0);
        assert_false(r.last.epoch_done || r.last.evaluated);
    }
    ls_trainer_close(t, NULL);
    end(&s);
}

static void progress_of_steps_counts_epochs_also_after_the_last(void **state)
{
    (void)state;
    scenario s;
    received r;
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = open_with_callbacks(&s, &r);
    for (int i = 0; i < 3 * STEPS; i++) {
        const int steps_done = i % STEPS + 1;
        step(&s, t, (uint64_t)i);
        assert_int_equal(r.last.epoch, i / STEPS + 1);
        assert_int_equal(r.last.epochs, 2);
        assert_int_equal(r.last.step, steps_done);
        assert_int_equal(r.last.steps, STEPS);
        assert_int_equal(r.last.epoch_done, steps_done == STEPS);
        assert_int_equal(r.last.remaining_s > 0, i + 1 < 2 * STEPS);
        assert_true(r.last.remaining_s >= 0);
    }
    assert_int_equal(r.calls, 3 * STEPS + 3);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void rows_of_a_prepared_number_are_taken_and_others_refused(void **state)
{
    (void)state;
    static const uint32_t prepared[] = {5, 16};
    scenario s;
    begin(&s, 1, "devices=ref:2");
    s.f.options.step_rows = prepared;
    s.f.options.step_row_count = 2;
    ls_trainer *t = fixture_open(&s.f);
    choose(&s, 0);
    for (uint32_t n = 1; n <= BATCH + 1; n++) {
        const int expected = n == 5 || n == 16 || n == BATCH ? LS_OK : LS_EINVAL;
        assert_int_equal(own_step(t, s.images, s.labels, n, NULL, &s.f.err), expected);
    }
    assert_int_equal(ls_trainer_result(t)->steps, 3);
    ls_trainer_close(t, NULL);
    s.f.options.step_row_count = 9;
    assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_EINVAL);
    end(&s);
}

static void calls_that_break_the_rules_leave_everything_as_it_was(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    choose(&s, 0);
    s.labels[7] = 10;
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "row 7 has label 10"));
    assert_int_equal(own_step(t, NULL, s.labels, BATCH, NULL, &s.f.err), LS_EINVAL);
    assert_int_equal(step(&s, t, 0).number, 1);
    ls_trainer_close(t, NULL);
    end(&s);
    begin(&s, 0, "devices=ref:2");
    t = fixture_open(&s.f);
    choose(&s, 0);
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "streamed"));
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EINVAL);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void a_step_says_the_type_of_its_rows(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    choose(&s, 0);
    ls_step_rows rows = {.size = sizeof rows, .rows = s.images, .targets = s.labels, .n = BATCH};
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_step_rows.row_type is not set to a type (it is 0); "
                                         "the rows of this data source are LS_ROW_U8 (bytes)"));
    rows.row_type = LS_ROW_F32;
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_step_rows.row_type is LS_ROW_F32 (floats); the rows"));
    rows.row_type = LS_ROW_U8;
    rows.rows = NULL;
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_step_rows.rows is NULL"));
    rows.rows = s.images;
    rows.targets = NULL;
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_step_rows.targets is NULL"));
    rows.targets = s.labels;
    rows.size = 0;
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_step_rows: `size` is not set"));
    rows.size = sizeof rows;
    assert_int_equal(ls_trainer_result(t)->steps, 0);
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    end(&s);
}

/* ---- the log ---- */

typedef struct heard {
    ls_host host;
    char text[8192];
} heard;

static void keep_log(void *user, ls_log_level level, const char *text)
{
    heard *h = user;
    (void)level;
    snprintf(h->text + strlen(h->text), sizeof h->text - strlen(h->text), "%s\n", text);
}

static void listen(scenario *s, heard *h)
{
    *h = (heard){.host = {.size = sizeof h->host, .log = keep_log, .user = h}};
    s->f.options.host = &h->host;
}

/* Changes the version of the kernels in a checkpoint, and renews its checksum. */
static void change_kernels(const char *path, const char *library)
{
    static char bytes[1 << 20];
    char mark[200], digits[LS_SHA256_HEX];
    ls_sha256 hash;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    assert_in_range(size, 1, sizeof bytes - 1);
    const int n = snprintf(mark, sizeof mark, "\\\"library\\\":\\\"%s", library);
    char *at = memmem(bytes, size, mark, (size_t)n);
    assert_non_null(at);
    at[n - 1] = 'Z';
    memset(bytes + LS_WHOLE_AT, '0', LS_SHA256_HEX - 1);
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, bytes, size);
    ls_sha256_final_hex(&hash, digits);
    memcpy(bytes + LS_WHOLE_AT, digits, LS_SHA256_HEX - 1);
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void a_checkpoint_of_other_kernels_goes_on_with_a_warning(void **state)
{
    (void)state;
    static heard h;
    char library[160], other[200], goes_on[200];
    scratch dir;
    scenario s;
    scratch_begin(&dir);
    begin(&s, 1, "devices=ref:2");
    listen(&s, &h);
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    const char *path = scratch_path(&dir, "c.safetensors");
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    snprintf(library, sizeof library, "%s", ls_trainer_summary(t)->library);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    assert_null(strstr(h.text, "the run was begun with"));
    change_kernels(path, library);
    assert_int_equal(ls_trainer_load(t, path, &s.f.err), LS_OK);
    assert_int_equal(step(&s, t, 1).number, 2);
    snprintf(other, sizeof other, "%s", library);
    other[strlen(other) - 1] = 'Z';
    snprintf(goes_on, sizeof goes_on, " and goes on with %s", library);
    assert_non_null(strstr(h.text, "the run was begun with "));
    assert_non_null(strstr(h.text, other));
    assert_non_null(strstr(h.text, goes_on));
    assert_non_null(strstr(h.text, "can differ from those of an uninterrupted run"));
    ls_trainer_close(t, NULL);
    end(&s);
    scratch_end(&dir);
}

/* Scales that are learnt from the rows of steps say nothing of columns before there are rows. */
static void no_column_is_constant_before_there_are_rows(void **state)
{
    (void)state;
    static heard h;
    scenario s;
    ls_data_source columns = {.size = sizeof columns,
                              .name = "columns",
                              .channels = 12,
                              .height = 1,
                              .width = 1,
                              .row_type = LS_ROW_F32,
                              .classes = 10,
                              .streamed = 1};
    begin(&s, 1, "devices=ref:2");
    s.data = columns;
    fixture_set(&s.f, "data.name=columns");
    fixture_set(&s.f, "data.standardize=true");
    fixture_set(&s.f, "model={\"layers\":[{\"type\":\"dense\",\"out\":10}]}");
    listen(&s, &h);
    ls_trainer *t = fixture_open(&s.f);
    assert_null(strstr(h.text, "left out"));
    ls_trainer_close(t, NULL);
    end(&s);
}

static void rates_are_those_that_were_set(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    fixture_set(&s.f, "optimizer.lr=0.0007");
    ls_trainer *t = fixture_open(&s.f);
    assert_true(step(&s, t, 0).lr == 0.0007);
    assert_int_equal(ls_trainer_set_lr(t, 0.1, &s.f.err), LS_OK);
    assert_true(step(&s, t, 1).lr == 0.1);
    assert_int_equal(ls_trainer_set_lr(t, 1e-60, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "found 1e-60, which is 0 as a float"));
    assert_int_equal(ls_trainer_set_lr(t, -1e-60, &s.f.err), LS_EINVAL);
    assert_null(strstr(s.f.err.text, "float"));
    assert_int_equal(ls_trainer_set_lr(t, 1e-40, &s.f.err), LS_OK);
    assert_int_equal(ls_trainer_set_lr(t, 0.1, &s.f.err), LS_OK);
    ls_trainer_interrupt(t);
    assert_int_equal(ls_trainer_set_lr(t, 0.2, &s.f.err), LS_OK); /* the run has not ended */
    ls_trainer_close(t, NULL);
    end(&s);
}

/* ---- ends ---- */

static void an_interrupt_refuses_the_next_step(void **state)
{
    (void)state;
    scenario s;
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    step(&s, t, 0);
    ls_trainer_interrupt(t);
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EINTERRUPTED);
    float *weights = weights_of(t);
    ls_trainer_close(t, NULL);
    end(&s);
    free(weights);
}

static void the_first_error_is_told_again(void **state)
{
    (void)state;
    static const char *const inject[] = {"worker=0,step=2,kind=fail"};
    scenario s;
    begin(&s, 1, "devices=ref:1");
    s.f.sys.inject = inject;
    s.f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&s.f);
    ls_error first;
    step(&s, t, 0);
    choose(&s, 1);
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &first), LS_EDEVICE);
    assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EDEVICE);
    assert_string_equal(s.f.err.text, first.text);
    assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_EDEVICE);
    ls_model *none = NULL;
    assert_int_equal(ls_trainer_model(&none, t, &s.f.err), LS_EDEVICE);
    assert_null(none);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    assert_non_null(strstr(fixture_record(&s.f, "run_end", 0), "\"failed\""));
    end(&s);
}

static void a_loss_that_is_not_finite_is_skipped_where_that_was_asked_for(void **state)
{
    (void)state;
    static const char *const inject[] = {"worker=0,step=2,kind=nan"};
    scenario s;
    begin(&s, 1, "devices=ref:2");
    fixture_set(&s.f, "on_nonfinite=skip");
    s.f.sys.inject = inject;
    s.f.sys.inject_count = 1;
    ls_trainer *t = fixture_open(&s.f);
    assert_false(step(&s, t, 0).skipped);
    assert_true(step(&s, t, 1).skipped);
    assert_false(step(&s, t, 2).skipped);
    ls_trainer_close(t, NULL);
    end(&s);
}

static void data_that_cannot_be_read_ends_what_was_asked_with_its_message(void **state)
{
    (void)state;
    for (int call = 1; call <= 3; call++) {
        scenario s;
        int until_failure = call;
        begin(&s, 1, "devices=ref:2");
        s.data.user = &until_failure;
        ls_trainer *t;
        int status = ls_trainer_open(&t, &s.f.options, &s.f.err); /* reads the test rows: call 1 */
        if (call > 1) {
            assert_int_equal(status, LS_OK);
            status = ls_trainer_run(t, &s.f.err);
            assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
        }
        assert_int_equal(status, LS_EIO);
        assert_non_null(strstr(s.f.err.text, "the store is closed"));
        end(&s);
    }
}

static void a_label_that_is_no_class_is_refused_by_its_row(void **state)
{
    (void)state;
    scenario s;
    ls_trainer *t;
    begin(&s, 0, "devices=ref:2");
    s.data.classes = 7;
    assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_EDATA);
    assert_non_null(strstr(s.f.err.text, "own: row 7 of the training rows has label 7"));
    end(&s);
}

/* Labels above 255 must not be cut to a byte. All 300 biases change in a step, and the biases of
 * the rows' labels change most. */
static void labels_need_more_than_a_byte(void **state)
{
    (void)state;
    for (int team = 0; team < 2; team++) {
        scenario s;
        begin(&s, 1, team ? "devices=cpu:2" : "devices=ref:2");
        s.data.classes = 300;
        fixture_set(&s.f,
                    "model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":300}]}");
        ls_trainer *t = fixture_open(&s.f);
        float *before = weights_of(t);
        choose(&s, 0);
        for (int i = 0; i < BATCH; i++)
            s.labels[i] = 299;
        assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_OK);
        float *after = weights_of(t);
        const size_t bias = OWN_PIXELS * 300;
        assert_true(after[bias + 299] > before[bias + 299]);
        assert_true(after[bias + 299 % 256] < before[bias + 299 % 256]);
        s.labels[3] = -1;
        assert_int_equal(own_step(t, s.images, s.labels, BATCH, NULL, &s.f.err), LS_EINVAL);
        assert_non_null(strstr(s.f.err.text, "row 3 has label -1"));
        free(before);
        free(after);
        ls_trainer_close(t, NULL);
        end(&s);
    }
}

/* Reads rows, and overwrites those that `held` marks as held out. Held-out rows are only evaluated,
 * so the change must not change the weights. */
static int read_marked(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                       void *targets, ls_error *err)
{
    const uint8_t *held = user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *image = (uint8_t *)values + (size_t)i * OWN_PIXELS;
        own_row(0, rows[i], image, (int32_t *)targets + i);
        if (held && held[rows[i]])
            memset(image, 255, OWN_PIXELS);
    }
    return LS_OK;
}

static void held_out_rows_train_nothing_on_any_number_of_workers(void **state)
{
    (void)state;
    static const char *const devices[] = {"devices=ref:1", "devices=ref:3", "devices=cpu:1",
                                          "devices=cpu:2"};
    uint8_t held[OWN_TRAIN] = {0};
    char first[2][65];
    for (size_t i = 0; i < 8; i++) {
        scenario s;
        begin(&s, 0, devices[i / 2]);
        add_chance(&s);
        fixture_set(&s.f, "data={\"name\":\"own\",\"validation\":0.2}");
        s.data.read = read_marked;
        s.data.user = i % 2 ? held : NULL;
        ls_trainer *t = fixture_run(&s.f);
        if (i == 0) {
            const ls_dataset_view view = ls_dataset_resident(t->data[LS_TEST]);
            for (uint32_t r = 0; r < ls_dataset_describe(t->data[LS_TEST])->rows; r++)
                held[view.row[r]] = 1;
            assert_int_equal(ls_dataset_describe(t->data[LS_TRAIN])->rows +
                                 ls_dataset_describe(t->data[LS_TEST])->rows,
                             OWN_TRAIN);
        }
        if (i % 4 == 0)
            strcpy(first[i / 4], ls_trainer_result(t)->weights_sha256);
        assert_string_equal(ls_trainer_result(t)->weights_sha256, first[i / 4]);
        ls_trainer_close(t, NULL);
        end(&s);
    }
}

/* ---- one pool, two trainers ---- */

static void two_trainers_share_a_pool(void **state)
{
    (void)state;
    scenario a, b;
    ls_pool *pool;
    size_t count;
    float *whole = weights_behind(CERTAIN, "devices=ref:2", 4, &count);
    begin(&a, 1, "devices=ref:1");
    begin(&b, 1, "devices=ref:1");
    ls_device_pool_options o = {.size = sizeof o, .registry = a.f.registry, .devices = "ref:2"};
    assert_int_equal(ls_device_pool_create(&pool, &o, &a.f.err), LS_OK);
    a.f.options.pool = b.f.options.pool = pool;
    ls_trainer *first = fixture_open(&a.f), *second = fixture_open(&b.f);
    for (uint64_t i = 0; i < 4; i++) {
        step(&a, first, i);
        if (i < 2)
            step(&b, second, i);
    }
    assert_int_equal(ls_trainer_close(first, NULL), LS_OK);
    step(&b, second, 2);
    step(&b, second, 3);
    float *weights = weights_of(second);
    assert_same(weights, whole, count);
    assert_int_equal(ls_trainer_close(second, NULL), LS_OK);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    end(&a);
    end(&b);
    free(whole);
    free(weights);
}

LS_TESTS(train_drive, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_data_trains_to_the_bits_of_resident_data),
        cmocka_unit_test(steps_on_the_rows_of_a_run_give_its_bits),
        cmocka_unit_test(steps_give_the_hash_of_a_run),
        cmocka_unit_test(a_run_goes_on_behind_steps),
        cmocka_unit_test(a_device_that_is_lost_changes_no_bit_of_what_is_driven),
        cmocka_unit_test(what_is_drawn_differs_from_step_to_step),
        cmocka_unit_test(a_saved_trainer_goes_on_in_another_one),
        cmocka_unit_test(loading_goes_back_in_the_same_trainer),
        cmocka_unit_test(a_step_that_was_reached_anew_is_saved_anew),
        cmocka_unit_test(weights_of_a_file_are_taken_over),
        cmocka_unit_test(what_cannot_be_loaded_changes_nothing),
        cmocka_unit_test(the_best_that_was_saved_is_kept_when_a_better_one_is_not),
        cmocka_unit_test(each_epoch_is_saved_when_patience_has_run_out),
        cmocka_unit_test(what_an_evaluation_found_is_saved_at_the_same_step),
        cmocka_unit_test(a_save_without_a_place_is_refused),
        cmocka_unit_test(evaluation_is_that_of_the_run),
        cmocka_unit_test(predictions_follow_the_steps),
        cmocka_unit_test(without_test_rows_there_is_nothing_to_evaluate_on),
        cmocka_unit_test(data_without_epochs_is_trained_by_steps_alone),
        cmocka_unit_test(progress_without_epochs_has_no_number_of_steps_and_no_end),
        cmocka_unit_test(progress_of_steps_counts_epochs_also_after_the_last),
        cmocka_unit_test(rows_of_a_prepared_number_are_taken_and_others_refused),
        cmocka_unit_test(calls_that_break_the_rules_leave_everything_as_it_was),
        cmocka_unit_test(a_step_says_the_type_of_its_rows),
        cmocka_unit_test(a_checkpoint_of_other_kernels_goes_on_with_a_warning),
        cmocka_unit_test(no_column_is_constant_before_there_are_rows),
        cmocka_unit_test(rates_are_those_that_were_set),
        cmocka_unit_test(an_interrupt_refuses_the_next_step),
        cmocka_unit_test(the_first_error_is_told_again),
        cmocka_unit_test(a_loss_that_is_not_finite_is_skipped_where_that_was_asked_for),
        cmocka_unit_test(data_that_cannot_be_read_ends_what_was_asked_with_its_message),
        cmocka_unit_test(a_label_that_is_no_class_is_refused_by_its_row),
        cmocka_unit_test(labels_need_more_than_a_byte),
        cmocka_unit_test(held_out_rows_train_nothing_on_any_number_of_workers),
        cmocka_unit_test(two_trainers_share_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
