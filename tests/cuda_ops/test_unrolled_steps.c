/* SPDX-License-Identifier: MIT */
/* Tests *unrolled* steps: several training steps of a small model that are one CUDA graph, and one
 * *launch*. They are compared with the same steps taken in parts (scenarios.h). */
#include "cuda_ops/cuda_backend.h"
#include "cuda_ops/scenarios.h"
#include "doubles/control.h"
#include "runner.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Two launches of LS_UNROLLED steps of two rows each. */
enum { STEPS = 2 * LS_UNROLLED };
_Static_assert(STEPS <= LS_INJECTIONS_MAX, "all of them can be taken in parts");
#define SIXTEEN_STEPS "batch_size=2", "data.limit=32", "epochs=1"

static void unrolled_steps_give_the_bits_of_steps_in_parts(void **state)
{
    /* Each step has another learning rate, and each row another crop. */
    static const char *const sets[] = {SIXTEEN_STEPS, "schedule=\"cosine\"", NULL};
    (void)state;
    for (int residual = 0; residual < 2; residual++) {
        scenario unrolled, parts;
        scenario_both(&unrolled, &parts, residual ? scenario_residual : scenario_convolution, sets);
        assert_int_equal(unrolled.status, LS_OK);
        assert_int_equal(unrolled.steps, STEPS);
        assert_int_equal(unrolled.launches, 2);
        scenario_expect_same(&unrolled, &parts);
        scenario_free(&unrolled);
        scenario_free(&parts);
    }
}

/* A smaller minibatch, or periodic work that is due after a step, comes between launches. If the
 * steps before it do not fill a launch, they are made one by one. */
static void steps_that_fill_no_launch_are_taken_one_by_one(void **state)
{
    static const struct {
        const char *limit, *due;
        long launches;
    } cases[] = {
        {"data.limit=27", "verify_every_steps=0", 1 + 6}, /* 13 whole minibatches, and one row */
        {"data.limit=17", "verify_every_steps=0", 1 + 1},
        {"data.limit=15", "verify_every_steps=0", 8},
        {"data.limit=32", "verify_every_steps=8", 2},
        {"data.limit=32", "verify_every_steps=10", 1 + 2 + 6},
        {"data.limit=32", "verify_every_steps=1", 16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const sets[] = {"batch_size=2", "epochs=1",   "eval_every=0",
                                    cases[i].limit, cases[i].due, NULL};
        scenario unrolled, parts;
        scenario_both(&unrolled, &parts, scenario_deep, sets);
        assert_int_equal(unrolled.status, LS_OK);
        if (unrolled.launches != cases[i].launches)
            fail_msg("%s, %s: %ld launches; expected %ld", cases[i].limit, cases[i].due,
                     unrolled.launches, cases[i].launches);
        scenario_expect_same(&unrolled, &parts);
        scenario_free(&unrolled);
        scenario_free(&parts);
    }
}

/* Compares a run of three epochs whose launches have several steps with a run of single whole
 * steps. */
static void epochs_of_unrolled_steps_give_the_bits_of_single_ones(void **state)
{
    scenario unrolled, single;
    (void)state;
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        fixture f;
        scenario_begin(&f, 0);
        scenario_residual(&f);
        fixture_set(&f, "batch_size=2");
        fixture_set(&f, "data.limit=41");
        fixture_set(&f, "epochs=3");
        if (one_by_one)
            fixture_set(&f, "verify_every_steps=1");
        scenario_run(one_by_one ? &single : &unrolled, &f);
        fixture_end(&f);
    }
    assert_int_equal(unrolled.status, LS_OK);
    assert_int_equal(unrolled.steps, 3 * 21);
    assert_int_equal(unrolled.launches, 3 * (2 + 5));
    assert_int_equal(single.launches, 3 * 21);
    scenario_expect_same(&unrolled, &single);
    scenario_free(&unrolled);
    scenario_free(&single);
}

/* A stall is planned for a step in the middle. This step is taken in parts, and no step is left
 * out. */
static void a_step_with_a_plan_of_its_own_is_in_no_launch(void **state)
{
    static const char *const planned[] = {"worker=0,step=12,kind=stall,seconds=0"};
    scenario parts, s;
    fixture f;
    (void)state;
    for (int all = 0; all < 2; all++) {
        scenario_begin(&f, all);
        scenario_deep(&f);
        fixture_set(&f, "batch_size=2");
        fixture_set(&f, "data.limit=32");
        fixture_set(&f, "epochs=1");
        if (!all) {
            f.sys.inject = planned;
            f.sys.inject_count = 1;
        }
        scenario_run(all ? &parts : &s, &f);
        fixture_end(&f);
    }
    /* the gradient of the planned step is a launch too */
    assert_int_equal(s.launches, 1 + LS_UNROLLED);
    scenario_expect_same(&s, &parts);
    scenario_free(&s);
    scenario_free(&parts);
}

/* ---- losses that are not finite ------------------------------------------------------------- */

static void a_loss_that_is_not_finite_stops_and_changes_nothing(void **state)
{
    static const char *const sets[] = {
        SIXTEEN_STEPS, "optimizer={\"name\": \"sgd\", \"lr\": 30000, \"momentum\": 0.9}", NULL};
    scenario unrolled, parts;
    (void)state;
    scenario_both(&unrolled, &parts, scenario_deep, sets);
    print_message("             %s\n", unrolled.text);
    assert_int_equal(unrolled.status, LS_ENONFINITE);
    assert_true(unrolled.steps > 0 && unrolled.steps < LS_UNROLLED - 1);
    scenario_expect_same(&unrolled, &parts);
    for (size_t k = 0; k < unrolled.tail; k++)
        assert_true(isfinite(unrolled.arena[0][k]));
    scenario_free(&unrolled);
    scenario_free(&parts);
}

static void bright_rows(fixture *f)
{
    scenario_bright_rows(f, 0);
}

/* A skipped step can be anywhere in a launch. There can be a skipped step in each of the two
 * launches, or two in one launch. */
static void steps_behind_a_skipped_one_are_applied_once(void **state)
{
    int first = 0, last = 0, twice = 0, both = 0;
    (void)state;
    for (int seed = 1; seed <= 4; seed++) {
        char text[32];
        scenario unrolled, parts;
        int in[2] = {0, 0};
        snprintf(text, sizeof text, "seed=%d", seed);
        const char *const sets[] = {SIXTEEN_STEPS, text, NULL};
        scenario_both(&unrolled, &parts, bright_rows, sets);
        assert_int_equal(unrolled.status, LS_OK);
        scenario_expect_same(&unrolled, &parts);
        for (int i = 0; i < STEPS; i++)
            in[i / LS_UNROLLED] += isnan(unrolled.loss[i]) != 0;
        first += isnan(unrolled.loss[0]) != 0;
        last += isnan(unrolled.loss[LS_UNROLLED - 1]) != 0;
        twice += in[0] > 1;
        both += in[0] > 0 && in[1] > 0;
        scenario_free(&unrolled);
        scenario_free(&parts);
    }
    print_message("             skipped: %d first, %d last, %d twice, %d in both\n", first, last,
                  twice, both);
    assert_true(first > 0 && last > 0 && twice > 0 && both > 0);
}

/* ---- cases without unrolling ---------------------------------------------------------------- */

/* Returns the number of steps of a launch for a dense layer after another dense layer with `width`
 * outputs. */
static uint32_t length_of_ranges(int width)
{
    char model[160];
    fixture f;
    snprintf(model, sizeof model,
             "model={\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": %d}, "
             "{\"type\": \"dense\", \"out\": 10}]}",
             width);
    scenario_begin(&f, 0);
    fixture_set(&f, model);
    fixture_set(&f, "batch_size=2");
    ls_trainer *t = fixture_open(&f);
    const uint32_t length = t->engine->worker[0].length;
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    return length;
}

/* Each unit of width takes 784 floats in each of four arenas. */
static void only_small_models_are_unrolled(void **state)
{
    (void)state;
    assert_int_equal(length_of_ranges(5000), LS_UNROLLED);
    assert_int_equal(length_of_ranges(5600), 1);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void use_sixteen(fixture *f)
{
    scenario_begin(f, 0);
    scenario_deep(f);
    fixture_set(f, "batch_size=2");
    fixture_set(f, "data.limit=32");
    fixture_set(f, "epochs=1");
}

/* Each call that a launch makes fails in turn. The run must end with an error, or continue with the
 * bits of a run without failures, in either case within a time limit. */
static void a_call_that_fails_ends_in_order(void **state)
{
    static const char *const calls[] = {"cudaGraphLaunch", "cudaEventQuery", "cudaEventRecord",
                                        "cudaMemcpyAsync", "launch",         NULL};
    (void)state;
    const int went_on = scenario_fail_in_turn(use_sixteen, calls, 3);
    print_message("             %d went on behind a fault\n", went_on);
    assert_true(went_on > 0);
}

/* Steps that cannot be recorded together are made one by one. */
static void a_device_that_unrolls_nothing_takes_single_steps(void **state)
{
    scenario calm, s;
    fixture f;
    (void)state;
    scenario_run_of(&calm, use_sixteen);
    use_sixteen(&f);
    dbl_fail("cudaGraphInstantiate", 3,
             /* the third graph, after those of a gradient and of a whole step */
             cudaErrorNotSupported);
    scenario_run(&s, &f);
    assert_int_equal(calm.launches, 2);
    assert_int_equal(s.launches, STEPS);
    scenario_expect_same(&s, &calm);
    scenario_free(&s);
    scenario_free(&calm);
    fixture_end(&f);
}

LS_TESTS(cuda_unrolled_steps, "integration doubles no-asan")
{
    test_cuda_begin(DBL_THREADS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unrolled_steps_give_the_bits_of_steps_in_parts),
        cmocka_unit_test(steps_that_fill_no_launch_are_taken_one_by_one),
        cmocka_unit_test(epochs_of_unrolled_steps_give_the_bits_of_single_ones),
        cmocka_unit_test(a_step_with_a_plan_of_its_own_is_in_no_launch),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_changes_nothing),
        cmocka_unit_test(steps_behind_a_skipped_one_are_applied_once),
        cmocka_unit_test(only_small_models_are_unrolled),
        cmocka_unit_test(a_call_that_fails_ends_in_order),
        cmocka_unit_test(a_device_that_unrolls_nothing_takes_single_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
