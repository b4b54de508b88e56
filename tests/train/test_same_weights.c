/* SPDX-License-Identifier: MIT */
/* For the first shard of a step, workers convert the weights to other forms, and use these forms
 * again for the later shards of the step (LS_RUN_SAME). Tests that no worker uses forms of outdated
 * weights, after the weights were changed by the update, the moving average, a checkpoint, a file
 * of weights, or a new group after a loss. The results are compared with a run that opens a new
 * trainer before every step, so that nothing of an earlier step can be used. */
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32

/* A model with convolutions whose transformed weights the CPU back end keeps. */
static const char model[] =
    "model={\"layers\":[{\"type\":\"conv2d\",\"name\":\"c0\",\"out\":16,\"kernel\":5,\"stride\":4},"
    "{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":16,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":16,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}]}";

static void begin(fixture *f, const char *devices, const char *more)
{
    fixture_begin(f);
    fixture_set(f, model);
    fixture_set(f, "epochs=2");
    fixture_set(f, devices);
    if (more)
        fixture_set(f, more);
}

/* ---- steps of the caller --------------------------------------------------------------------- */

typedef struct scenario {
    fixture f;
    scratch files;
    ls_data_source data;
    const ls_data_source *sources[1];
    ls_trainer *t;
    float *weights; /* weights after the last step */
    size_t count;
    bool anew; /* a new trainer is opened for every step */
} scenario;

static void open_scenario(scenario *s, const char *devices, const char *more, bool anew)
{
    memset(s, 0, sizeof *s);
    s->anew = anew;
    scratch_begin(&s->files);
    begin(&s->f, devices, more);
    s->data = own_data(1);
    fixture_use_source(&s->f, &s->data, s->sources);
    s->t = fixture_open(&s->f);
    s->count = ls_trainer_summary(s->t)->parameters;
    s->weights = calloc(s->count, sizeof *s->weights);
}

static void close_scenario(scenario *s)
{
    free(s->weights);
    ls_trainer_close(s->t, NULL);
    fixture_end(&s->f);
    scratch_end(&s->files);
}

static void load(scenario *s, const char *name)
{
    if (ls_trainer_load(s->t, scratch_path(&s->files, name), &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
}

static void save(scenario *s, const char *name)
{
    assert_int_equal(ls_trainer_save(s->t, scratch_path(&s->files, name), &s->f.err), LS_OK);
}

static void save_weights(scenario *s, const char *name)
{
    ls_model *snapshot;
    const char *path = scratch_path(&s->files, name);
    assert_int_equal(ls_trainer_model(&snapshot, s->t, &s->f.err), LS_OK);
    assert_int_equal(ls_model_save(snapshot, path, &s->f.err), LS_OK);
    ls_model_release(snapshot);
}

/* Runs a step and reads the weights back. (While they are read, the replicas have the moving
 * average in place of the weights.) */
static void take_step(scenario *s, uint32_t number)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
    if (s->anew) {
        save(s, "between");
        ls_trainer_close(s->t, NULL);
        s->t = fixture_open(&s->f);
        load(s, "between");
    }
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, (number * BATCH + i) % OWN_TRAIN, images + (size_t)i * OWN_PIXELS, &labels[i]);
    if (own_step(s->t, images, labels, BATCH, NULL, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    assert_int_equal(ls_trainer_weights(s->t, s->weights, s->count, &s->f.err), LS_OK);
}

static void updates_averages_and_frozen_layers(void **state)
{
    static const char *const more[] = {NULL, "ema=0.75", "freeze=[\"c1.*\"]",
                                       "optimizer={\"name\":\"adamw\",\"lr\":0.01}"};
    (void)state;
    for (size_t i = 0; i < ROOM(more); i++) {
        scenario s[2];
        for (int anew = 0; anew < 2; anew++)
            open_scenario(&s[anew], i % 2 ? "devices=cpu:2" : "devices=cpu:1", more[i], anew);
        for (uint32_t number = 0; number < 3; number++) {
            take_step(&s[0], number);
            take_step(&s[1], number);
            assert_memory_equal(s[0].weights, s[1].weights, s[0].count * sizeof(float));
        }
        close_scenario(&s[0]);
        close_scenario(&s[1]);
    }
}

static void weights_and_checkpoints_that_are_loaded(void **state)
{
    scenario s[2];
    (void)state;
    for (int anew = 0; anew < 2; anew++) {
        open_scenario(&s[anew], "devices=cpu:1", NULL, anew);
        take_step(&s[anew], 0);
        save(&s[anew], "checkpoint");
        save_weights(&s[anew], "w.safetensors");
        take_step(&s[anew], 1);
        load(&s[anew], "w.safetensors");
        take_step(&s[anew], 2);
        load(&s[anew], "checkpoint");
        take_step(&s[anew], 1);
    }
    assert_memory_equal(s[0].weights, s[1].weights, s[0].count * sizeof(float));
    close_scenario(&s[0]);
    close_scenario(&s[1]);
}

/* ---- whole runs ------------------------------------------------------------------------------ */

static void run(char hash[65], const char *devices, const char *more, const char *const *fault)
{
    fixture f;
    begin(&f, devices, more);
    f.sys.inject = fault;
    f.sys.inject_count = fault ? 1 : 0;
    memcpy(hash, fixture_hash(&f), 65);
    fixture_end(&f);
}

static void steps_that_are_repeated_or_skipped(void **state)
{
    static const char *const lost[] = {"worker=1,step=2,kind=fail,stage=merge"};
    static const char *const late[] = {"worker=1,step=2,kind=fail,stage=report"};
    static const char *const skipped[] = {"worker=0,step=2,kind=nan"};
    char want[65], found[65];
    (void)state;
    run(want, "devices=cpu:4", NULL, NULL);
    run(found, "devices=cpu:2", NULL, lost);
    assert_string_equal(found, want);
    run(found, "devices=cpu:2", NULL, late);
    assert_string_equal(found, want);
    run(want, "devices=cpu:4", "on_nonfinite=skip", skipped);
    run(found, "devices=cpu:1", "on_nonfinite=skip", skipped);
    assert_string_equal(found, want);
}

LS_TESTS(train_same_weights, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_averages_and_frozen_layers),
        cmocka_unit_test(steps_that_are_repeated_or_skipped),
        cmocka_unit_test(weights_and_checkpoints_that_are_loaded),
    };
    if (!has_backend("cpu")) {
        puts("skipped: this build has no CPU back end");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
