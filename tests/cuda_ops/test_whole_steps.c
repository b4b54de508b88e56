/* SPDX-License-Identifier: MIT */
/* Tests *whole steps*, over the simulated CUDA runtime: training runs in which a step is one CUDA
 * graph, and the next step is enqueued before the result of this step is known. These runs are
 * compared with runs whose steps are enqueued in parts, op by op. A planned fault in every step, a
 * stall of zero seconds, forces steps in parts. */
#include "cuda_ops/cuda_backend.h"
#include "cuda_ops/scenarios.h"
#include "doubles/control.h"
#include "merge/tree.h"
#include "runner.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = SCENARIO_STEPS };

static void whole_steps_give_the_bits_of_steps_in_parts(void **state)
{
    (void)state;
    for (int residual = 0; residual < 2; residual++) {
        scenario whole, parts;
        scenario_both(&whole, &parts, residual ? scenario_residual : scenario_convolution, NULL);
        assert_int_equal(whole.status, LS_OK);
        assert_int_equal(whole.steps, STEPS);
        /* A whole step is one launch. In parts, an update of two ops is a second launch. */
        assert_int_equal(whole.launches, STEPS);
        assert_int_equal(parts.launches, residual ? 2 * STEPS : STEPS);
        /* Whole steps do not wait for all enqueued work. */
        assert_true(parts.waits - whole.waits >= STEPS);
        scenario_expect_same(&whole, &parts);
        scenario_free(&whole);
        scenario_free(&parts);
    }
}

/* The first step whose loss is not finite ends the run. This step changes nothing. The next step,
 * which was already enqueued, changes nothing either. */
static void a_loss_that_is_not_finite_stops_and_changes_nothing(void **state)
{
    static const char *const optimizers[] = {
        "optimizer={\"name\": \"sgd\", \"lr\": 1000000, \"momentum\": 0.9}",
        "optimizer={\"name\": \"adamw\", \"lr\": 1000000}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *const sets[] = {optimizers[i], NULL};
        scenario whole, parts;
        scenario_both(&whole, &parts, scenario_deep, sets);
        print_message("             %s\n", whole.text);
        assert_int_equal(whole.status, LS_ENONFINITE);
        assert_non_null(strstr(whole.text, "the loss of shard 0, on worker 0, is not finite"));
        scenario_expect_same(&whole, &parts);
        for (size_t k = 0; k < whole.tail; k++)
            assert_true(isfinite(whole.arena[0][k]));
        scenario_free(&whole);
        scenario_free(&parts);
    }
}

/* With a learning rate that is too high, some minibatches have a finite loss and others do not. */
static void skipped_steps_are_those_of_steps_in_parts(void **state)
{
    static const char *const rates[] = {"optimizer.lr=1", "optimizer.lr=1e3", "optimizer.lr=1e4",
                                        "optimizer.lr=1e5", "optimizer.lr=1e6"};
    int mixed = 0, skipped = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const char *const sets[] = {rates[i], "on_nonfinite=skip", "eval_every=0", NULL};
        scenario whole, parts;
        scenario_both(&whole, &parts, scenario_deep, sets);
        scenario_expect_same(&whole, &parts);
        print_message("             %s: %d steps, %d skipped\n", rates[i], whole.steps,
                      whole.skipped);
        skipped += whole.skipped;
        mixed += whole.skipped > 0 && whole.skipped < STEPS - 2;
        scenario_free(&whole);
        scenario_free(&parts);
    }
    print_message("             %d steps skipped, %d runs went on behind one\n", skipped, mixed);
    assert_true(skipped > 0);
}

static void resident_bright_rows(fixture *f)
{
    scenario_bright_rows(f, 0);
}

static void streamed_bright_rows(fixture *f)
{
    scenario_bright_rows(f, 1);
}

/* A step that was enqueued after a step which is then skipped is applied nevertheless, and only
 * once. */
static void a_step_behind_a_skipped_one_is_applied_once(void **state)
{
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        scenario whole, parts;
        int behind = 0;
        scenario_both(&whole, &parts, streamed ? streamed_bright_rows : resident_bright_rows, NULL);
        assert_int_equal(whole.status, LS_OK);
        for (int i = 0; i + 1 < STEPS; i++)
            behind += i != STEPS / 2 - 1 && isnan(whole.loss[i]) && !isnan(whole.loss[i + 1]);
        print_message("             %d of %d skipped, %d went on\n", whole.skipped, whole.steps,
                      behind);
        assert_true(behind > 0);
        scenario_expect_same(&whole, &parts);
        scenario_free(&whole);
        scenario_free(&parts);
    }
}

/* A step with several shards, or with a merge with other workers, is taken in parts. */
static void only_a_single_shard_is_taken_whole(void **state)
{
    fixture f;
    scenario s;
    (void)state;
    scenario_begin(&f, 0);
    scenario_deep(&f);
    fixture_set(&f, "shards=2");
    scenario_run(&s, &f);
    assert_int_equal(s.status, LS_OK);
    assert_int_equal(s.launches, 2 * STEPS);
    scenario_free(&s);
    fixture_end(&f);
}

struct runner {
    ls_trainer *trainer;
    ls_error err;
    int status;
};

static void *run_it(void *arg)
{
    struct runner *r = arg;
    r->status = ls_trainer_run(r->trainer, &r->err);
    return NULL;
}

static void wait_for_launches(long count)
{
    const struct timespec nap = {0, 1000000};
    for (int i = 0; i < 20000 && dbl_calls("cudaGraphLaunch") < count; i++)
        nanosleep(&nap, NULL);
}

/* While the device does no work, two steps are enqueued, but no third one. */
static void the_next_step_is_enqueued_before_the_result_is_known(void **state)
{
    const struct timespec while_later = {0, 50000000};
    struct runner r = {0};
    pthread_t thread;
    fixture f;
    (void)state;
    scenario_begin(&f, 0);
    scenario_deep(&f);
    r.trainer = fixture_open(&f);
    const long before = dbl_calls("cudaGraphLaunch");
    dbl_stall_streams(0);
    assert_int_equal(pthread_create(&thread, NULL, run_it, &r), 0);
    wait_for_launches(before + LS_IN_FLIGHT);
    nanosleep(&while_later, NULL);
    assert_int_equal(dbl_calls("cudaGraphLaunch") - before, LS_IN_FLIGHT);
    dbl_go_on();
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (r.status != LS_OK)
        fail_msg("%s", r.err.text);
    assert_int_equal(dbl_calls("cudaGraphLaunch") - before, STEPS);
    assert_int_equal(fixture_count(&f, "step"), STEPS);
    ls_trainer_close(r.trainer, NULL);
    fixture_end(&f);
}

/* ---- merging while backward goes on --------------------------------------------------------- */

/* The linker wraps ls_buckets_cut, so that buckets have only some kilobytes and a small model has
 * two. */
void __real_ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                           size_t floats, size_t least);
void __wrap_ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                           size_t floats, size_t least);

void __wrap_ls_buckets_cut(ls_buckets *buckets, const size_t *param_offsets, int param_count,
                           size_t floats, size_t least)
{
    __real_ls_buckets_cut(buckets, param_offsets, param_count, floats, least ? least : 4096);
}

/* Runs two workers, each with a GPU and a shard, and a model of two buckets. */
static void run_two_workers(scenario *s, const char *allreduce, const char *const *inject)
{
    fixture f;
    scenario_begin(&f, 0);
    fixture_set(&f, "devices=doubled:0,1");
    fixture_set(&f, "shards=2");
    fixture_set(&f, "epochs=1");
    fixture_set(&f, "data.limit=9"); /* the last step's second shard is empty */
    fixture_set(&f, "model={\"layers\": [{\"type\": \"flatten\"},"
                    " {\"type\": \"dense\", \"out\": 40}, {\"type\": \"relu\"},"
                    " {\"type\": \"dense\", \"out\": 150}, {\"type\": \"relu\"},"
                    " {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(&f, allreduce);
    f.sys.inject = inject;
    f.sys.inject_count = inject ? 1 : 0;
    scenario_run(s, &f);
    if (s->status)
        fail_msg("%s", s->text);
    fixture_end(&f);
}

/* With NCCL the merge begins after the first piece of the gradient. (A sum of two numbers has only
 * one order, so the bits are the same as with `ordered`.) If a worker fails while a part of its
 * gradient is being merged, the other worker repeats the step with both shards. */
static void gradients_merged_while_backward_goes_on_give_the_same_bits(void **state)
{
    static const char *const fault[] = {"worker=1,step=1,kind=fail,stage=merge"};
    scenario late, early, alone;
    (void)state;
    run_two_workers(&late, "allreduce=ordered", NULL);
    run_two_workers(&early, "allreduce=nccl", NULL);
    run_two_workers(&alone, "allreduce=nccl", fault);
    assert_true(early.launches > late.launches); /* each piece of the gradient is a launch */
    scenario_expect_same(&late, &early);
    scenario_expect_same(&late, &alone);
    scenario_free(&late);
    scenario_free(&early);
    scenario_free(&alone);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void use_eight(fixture *f)
{
    scenario_begin(f, 0);
    scenario_deep(f);
}

/* Each call that a step makes fails in turn. The run must end with an error or continue, within a
 * time limit and without leaks. A run that continues must have the bits of a run without failures.
 */
static void a_call_that_fails_in_a_whole_step_ends_in_order(void **state)
{
    static const char *const calls[] = {"cudaGraphLaunch",
                                        "cudaEventQuery",
                                        "cudaEventRecord",
                                        "cudaMemcpyAsync",
                                        "launch",
                                        "cudaStreamSynchronize",
                                        NULL};
    (void)state;
    scenario_fail_in_turn(use_eight, calls, 12);
}

/* A call fails while the run is opened. Then opening fails, or the run takes its steps in
 * another way and ends with the same weights. */
static void a_call_that_fails_in_preparation_leaves_nothing_behind(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate", "cudaHostAlloc"};
    scenario calm;
    fixture f;
    (void)state;
    scenario_run_of(&calm, use_eight);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        scenario_restart_doubles();
        for (int nth = 1; nth <= 8; nth += nth < 4 ? 1 : 2) {
            ls_trainer *t;
            use_eight(&f);
            dbl_fail(calls[c], nth, 0);
            int status = ls_trainer_open(&t, &f.options, &f.err);
            assert_true(status == LS_OK || f.err.text[0]);
            if (status == LS_OK) {
                if (ls_trainer_run(t, &f.err) != LS_OK)
                    fail_msg("%s: %s", calls[c], f.err.text);
                assert_memory_equal(ls_replica_weight_arena(t->engine->worker[0].replica),
                                    calm.arena[0], calm.floats * sizeof(float));
                ls_trainer_close(t, NULL);
            }
            fixture_end(&f);
        }
    }
    scenario_restart_doubles();
    scenario_free(&calm);
}

/* A step that cannot be recorded as a whole is made in parts. */
static void a_device_that_records_no_whole_step_takes_parts(void **state)
{
    fixture f;
    scenario calm, s;
    (void)state;
    scenario_run_of(&calm, use_eight);
    use_eight(&f);
    /* the third graph, after those of the two plans */
    dbl_fail("cudaGraphInstantiate", 3, cudaErrorNotSupported);
    scenario_run(&s, &f);
    assert_int_equal(s.status, LS_OK);
    scenario_expect_same(&s, &calm);
    scenario_free(&s);
    scenario_free(&calm);
    fixture_end(&f);
}

LS_TESTS(cuda_whole_steps, "integration doubles no-asan")
{
    test_cuda_begin(DBL_THREADS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_steps_give_the_bits_of_steps_in_parts),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_changes_nothing),
        cmocka_unit_test(skipped_steps_are_those_of_steps_in_parts),
        cmocka_unit_test(a_step_behind_a_skipped_one_is_applied_once),
        cmocka_unit_test(only_a_single_shard_is_taken_whole),
        cmocka_unit_test(the_next_step_is_enqueued_before_the_result_is_known),
        cmocka_unit_test(gradients_merged_while_backward_goes_on_give_the_same_bits),
        cmocka_unit_test(a_call_that_fails_in_a_whole_step_ends_in_order),
        cmocka_unit_test(a_call_that_fails_in_preparation_leaves_nothing_behind),
        cmocka_unit_test(a_device_that_records_no_whole_step_takes_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
