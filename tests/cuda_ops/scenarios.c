/* SPDX-License-Identifier: MIT */
#include "cuda_ops/scenarios.h"

#include "cuda_ops/cuda_backend.h"
#include "device/registry.h"
#include "doubles/control.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recipes -------------------------------------------------------------------------------- */

/* Plans a stall of zero seconds in each of the first LS_INJECTIONS_MAX steps. The stall forces
 * these steps to be taken in parts. */
static void plan_something(fixture *f)
{
    static char text[LS_INJECTIONS_MAX][64];
    static const char *planned[LS_INJECTIONS_MAX];
    for (int i = 0; i < LS_INJECTIONS_MAX; i++) {
        snprintf(text[i], sizeof text[i], "worker=0,step=%d,kind=stall,seconds=0", i + 1);
        planned[i] = text[i];
    }
    f->sys.inject = planned;
    f->sys.inject_count = LS_INJECTIONS_MAX;
}

void scenario_begin(fixture *f, int parts)
{
    /* has its own name, because the library finds the back end `cuda` itself */
    static ls_backend doubled;
    doubled = *test_cuda_backend();
    doubled.name = "doubled";
    fixture_begin(f);
    if (ls_registry_add(f->registry, &doubled, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    fixture_set(f, "devices=doubled:0");
    fixture_set(f, "shards=1");
    fixture_set(f, "batch_size=8");
    fixture_set(f, "data.limit=26"); /* the last minibatch of an epoch is smaller */
    fixture_set(f, "epochs=2");
    if (parts)
        plan_something(f);
}

/* Halves the images, because convolutions of the doubles, which are plain C, are slow under
 * sanitizers. */
#define HALVED "{\"type\": \"avg_pool\", \"kernel\": 2},"

void scenario_convolution(fixture *f)
{
    fixture_set(f,
                "model={\"layers\": [" HALVED "{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5},"
                " {\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2},"
                " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}");
}

void scenario_residual(fixture *f)
{
    fixture_set(f, "optimizer={\"name\": \"adamw\", \"lr\": 0.01}");
    fixture_set(f, "model={\"layers\": [" HALVED "{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5,"
                   " \"bias\": false}, {\"type\": \"batch_norm\"}, {\"type\": \"relu\"},"
                   " {\"type\": \"max_pool\", \"kernel\": 4}, {\"type\": \"dropout\", \"p\": 0.2},"
                   " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(f, "augment={\"crop\": 2, \"flip\": true}");
}

void scenario_deep(fixture *f)
{
    fixture_set(f, "model={\"layers\": [{\"type\": \"avg_pool\", \"kernel\": 4},"
                   " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 12},"
                   " {\"type\": \"dense\", \"out\": 12},"
                   " {\"type\": \"dense\", \"out\": 10}]}");
}

enum { SIDE = 4, SOURCE_ROWS = 52 };

/* Fills the rows with dark images; two of 26 rows are bright. */
static int read_dark(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    uint8_t *images = values;
    int32_t *labels = targets;
    (void)user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        memset(images + (size_t)i * SIDE * SIDE, rows[i] % 13 == 5 ? 200 : 0, SIDE * SIDE);
        labels[i] = (int32_t)(rows[i] % 7);
    }
    return LS_OK;
}

void scenario_bright_rows(fixture *f, int streamed)
{
    static ls_data_source source;
    static const ls_data_source *sources[1];
    source = (ls_data_source){.size = sizeof source,
                              .name = "dark",
                              .channels = 1,
                              .height = SIDE,
                              .width = SIDE,
                              .row_type = LS_ROW_U8,
                              .classes = 10,
                              .train_rows = SOURCE_ROWS,
                              .streamed = streamed,
                              .read = read_dark};
    fixture_use_source(f, &source, sources);
    fixture_set(f, "model={\"layers\": [{\"type\": \"flatten\"},"
                   " {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(f, "on_nonfinite=skip");
    fixture_set(f, "eval_every=0");
}

/* ---- running --------------------------------------------------------------------------------- */

/* Returns a copy of an arena. The host can read the arena, because the device memory of the doubles
 * is host memory. */
static float *copy_of(const float *arena, size_t floats)
{
    float *copy = malloc(floats * sizeof *copy);
    memcpy(copy, arena, floats * sizeof *copy);
    return copy;
}

/* Makes the weights of the first layer so large that bright rows give a loss that is not finite.
 * The biases stay as they are. */
static void make_bright_rows_fatal(ls_replica *r)
{
    int count;
    const size_t weights = ls_replica_param_offsets(r, &count)[1];
    for (size_t i = 0; i < weights; i++)
        ls_replica_weight_arena(r)[i] = 3e38f;
}

void scenario_run(scenario *s, fixture *f)
{
    memset(s, 0, sizeof *s);
    ls_trainer *t = fixture_open(f);
    ls_replica *r = t->engine->worker[0].replica;
    if (f->options.source_count > 0)
        make_bright_rows_fatal(r);
    s->launches = dbl_calls("cudaGraphLaunch");
    s->waits = dbl_calls("cudaStreamSynchronize");
    s->status = ls_trainer_run(t, &f->err);
    s->launches = dbl_calls("cudaGraphLaunch") - s->launches;
    s->waits = dbl_calls("cudaStreamSynchronize") - s->waits;
    if (s->status)
        snprintf(s->text, sizeof s->text, "%s", f->err.text);
    s->skipped = fixture_count(f, "nonfinite");
    s->steps = fixture_count(f, "step");
    for (int i = 0; i < s->steps && i < SCENARIO_LOSSES; i++)
        s->loss[i] = record_number(fixture_record(f, "step", i), "loss");
    s->floats = ls_replica_floats(r);
    s->tail = ls_replica_tail_offset(r);
    assert_int_equal(ls_replica_sync(r, NULL), LS_OK);
    s->arena[0] = copy_of(ls_replica_weight_arena(r), s->floats);
    for (int i = 0; i < 2; i++)
        if (ls_replica_slot_arena(r, i))
            s->arena[1 + i] = copy_of(ls_replica_slot_arena(r, i), s->floats);
    ls_trainer_close(t, NULL);
}

void scenario_free(scenario *s)
{
    for (int i = 0; i < 3; i++)
        free(s->arena[i]);
}

void scenario_expect_same(const scenario *a, const scenario *b)
{
    assert_int_equal(a->status, b->status);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->skipped, b->skipped);
    for (int i = 0; i < a->steps; i++)
        assert_true(a->loss[i] == b->loss[i] || (isnan(a->loss[i]) && isnan(b->loss[i])));
    for (int i = 0; i < 3; i++)
        if (a->arena[i])
            assert_memory_equal(a->arena[i], b->arena[i], a->floats * sizeof(float));
}

void scenario_both(scenario *whole, scenario *parts, void (*net)(fixture *f),
                   const char *const *sets)
{
    for (int p = 0; p < 2; p++) {
        fixture f;
        scenario_begin(&f, p);
        if (net)
            net(&f);
        for (int i = 0; sets && sets[i]; i++)
            fixture_set(&f, sets[i]);
        scenario_run(p ? parts : whole, &f);
        fixture_end(&f);
    }
}

/* ---- failures ------------------------------------------------------------------------------- */

void scenario_restart_doubles(void)
{
    test_cuda_begin(DBL_THREADS);
}

void scenario_run_of(scenario *s, void (*set_up)(fixture *f))
{
    fixture f;
    set_up(&f);
    scenario_run(s, &f);
    fixture_end(&f);
}

/* Returns whether the run continued after a fault. */
static int run_with_failure(const scenario *calm, void (*set_up)(fixture *f), const char *call,
                            int nth)
{
    fixture f;
    set_up(&f);
    ls_trainer *t = fixture_open(&f);
    dbl_fail(call, nth, nth % 2 ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure);
    int status = ls_trainer_run(t, &f.err);
    assert_true(status == LS_OK || f.err.text[0]);
    if (status == LS_OK)
        assert_memory_equal(ls_replica_weight_arena(t->engine->worker[0].replica), calm->arena[0],
                            calm->floats * sizeof(float));
    const int went_on = status == LS_OK && fixture_count(&f, "fault") > 0;
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    return went_on;
}

int scenario_fail_in_turn(void (*set_up)(fixture *f), const char *const *calls, int most)
{
    scenario calm;
    int went_on = 0;
    scenario_run_of(&calm, set_up);
    for (int c = 0; calls[c]; c++) {
        scenario_restart_doubles();
        for (int nth = 1; nth <= most; nth += nth < 6 ? 1 : 3)
            went_on += run_with_failure(&calm, set_up, calls[c], nth);
    }
    scenario_restart_doubles();
    scenario_free(&calm);
    return went_on;
}
