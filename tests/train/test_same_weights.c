/* Workers use again for the later shards of a step what they have derived from the weights for the
 * first one (LS_RUN_SAME). With one shard per worker there is nothing to use again, so such a run
 * shows what the bits must be, whatever writes the weights between two steps: the update, the
 * moving average, a checkpoint, weights of a file, a new group after a loss, or a freeze of some
 * layers. */
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32

/* Convolutions whose transformed weights the CPU back end keeps. */
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

static void run(char hash[65], const char *devices, const char *more, const char *const *fault)
{
    fixture f;
    begin(&f, devices, more);
    f.sys.inject = fault;
    f.sys.inject_count = fault ? 1 : 0;
    memcpy(hash, fixture_hash(&f), 65);
    fixture_end(&f);
}

static void updates_averages_and_frozen_layers(void **state)
{
    static const char *const more[] = {NULL, "ema=0.75", "freeze=[\"c1.*\"]",
                                       "optimizer={\"name\":\"adamw\",\"lr\":0.01}"};
    (void)state;
    for (size_t i = 0; i < ROOM(more); i++) {
        char want[65], found[65];
        run(want, "devices=cpu:4", more[i], NULL);
        run(found, "devices=cpu:1", more[i], NULL);
        assert_string_equal(found, want);
        run(found, "devices=cpu:2", more[i], NULL);
        assert_string_equal(found, want);
    }
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

/* ---- loading --------------------------------------------------------------------------------- */

static void take_step(fixture *f, ls_trainer *t, uint32_t number)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, (number * BATCH + i) % OWN_TRAIN, images + (size_t)i * OWN_PIXELS, &labels[i]);
    if (ls_trainer_step(t, images, labels, BATCH, NULL, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
}

static void save(fixture *f, ls_trainer *t, const char *checkpoint, const char *weights)
{
    ls_snapshot *snapshot;
    assert_int_equal(ls_trainer_save(t, checkpoint, &f->err), LS_OK);
    assert_int_equal(ls_trainer_snapshot(t, &snapshot, &f->err), LS_OK);
    assert_int_equal(ls_snapshot_save(snapshot, weights, &f->err), LS_OK);
    ls_snapshot_release(snapshot);
}

/* Saves after a step, and loads the weights and then the checkpoint after further steps. Returns
 * the weights after the last step, which the caller frees. */
static float *weights_after_loads(const char *devices, size_t *bytes)
{
    fixture f;
    scratch files;
    const ls_data_source data = own_data(1), *sources[1];
    scratch_begin(&files);
    begin(&f, devices, NULL);
    fixture_use_source(&f, &data, sources);
    ls_trainer *t = fixture_open(&f);
    take_step(&f, t, 0);
    save(&f, t, scratch_path(&files, "checkpoint"), scratch_path(&files, "w.safetensors"));
    take_step(&f, t, 1);
    assert_int_equal(ls_trainer_load(t, scratch_path(&files, "w.safetensors"), &f.err), LS_OK);
    take_step(&f, t, 2);
    assert_int_equal(ls_trainer_load(t, scratch_path(&files, "checkpoint"), &f.err), LS_OK);
    take_step(&f, t, 1);
    *bytes = ls_trainer_summary(t)->parameter_bytes;
    float *out = malloc(*bytes);
    assert_int_equal(ls_trainer_weights(t, out, ls_trainer_summary(t)->parameters, &f.err), LS_OK);
    ls_trainer_close(t);
    fixture_end(&f);
    scratch_end(&files);
    return out;
}

static void weights_and_checkpoints_that_are_loaded(void **state)
{
    size_t bytes;
    (void)state;
    float *want = weights_after_loads("devices=cpu:4", &bytes);
    float *found = weights_after_loads("devices=cpu:1", &bytes);
    assert_memory_equal(found, want, bytes);
    free(found);
    free(want);
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
