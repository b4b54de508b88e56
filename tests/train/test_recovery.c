/* SPDX-License-Identifier: MIT */
/* Tests that no step is lost if a device is lost. Any worker can fail or stall (show no sign of
 * life), at any stage of a step. The other workers must then finish the run with weights that are
 * bit-identical to those of a run without faults. tests/campaigns/worker_faults.c tests the same
 * with thousands of random sequences of faults. */
#include "runner.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <string.h>

#define STEPS 6 /* two epochs of 3 */

static void recipe(fixture *f, const char *devices)
{
    fixture_begin(f);
    fixture_set(f, "epochs=2");
    fixture_set(f, "shards=8");
    fixture_set(f, devices);
}

/* Stores the weights' hash of the recipe without faults on one worker. */
static void train_undisturbed(char hash[65], const char *shards)
{
    fixture f;
    recipe(&f, "devices=ref:1");
    fixture_set(&f, shards);
    memcpy(hash, fixture_hash(&f), 65);
    fixture_end(&f);
}

/* Returns the same for eight shards. The run takes place once. */
static const char *undisturbed(void)
{
    static char hash[65];
    if (!hash[0])
        train_undisturbed(hash, "shards=8");
    return hash;
}

/* Runs the recipe on three workers with the injected faults `faults`. Returns the trainer, which
 * the caller closes. */
static ls_trainer *run_with(fixture *f, const char *const *faults, int count)
{
    recipe(f, "devices=ref:3");
    fixture_set(f, SLOW_BUILD ? "deadline_s=2" : "deadline_s=1");
    f->sys.inject = faults;
    f->sys.inject_count = count;
    return fixture_run(f);
}

static void expect_sound(const fixture *f, ls_trainer *t, const char *hash)
{
    assert_string_equal(ls_trainer_result(t)->weights_sha256, hash);
    assert_int_equal(ls_trainer_result(t)->steps, STEPS);
    assert_int_equal(fixture_count(f, "step"), STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_true(record_number(fixture_record(f, "step", i), "step") == i + 1);
}

static void a_device_that_fails_at_any_stage_costs_no_step(void **state)
{
    static const char *const stages[] = {"start", "shard", "merge", "apply", "report", "evaluate"};
    const char *hash = undisturbed();
    char fault[100];
    (void)state;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        /* In the short form of the test one of the three workers fails at each stage. In the long
         * form (nightly) each of the three workers fails at each stage, in a run of its own. */
        for (unsigned w = ls_tests_rounds(s % 3, 0); w < 3; w += ls_tests_rounds(3, 1)) {
            const int worker = (int)w;
            const int step = 1 + (int)(s + (size_t)worker) % STEPS;
            const char *faults[] = {fault};
            fixture f;
            snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=fail,stage=%s", worker, step,
                     stages[s]);
            ls_trainer *t = run_with(&f, faults, 1);
            expect_sound(&f, t, hash);
            assert_int_equal(fixture_count(&f, "fault"), 1);
            const char *record = fixture_record(&f, "fault", 0);
            assert_true(record_number(record, "worker") == worker);
            if (strcmp(stages[s], "evaluate") != 0)
                assert_true(record_number(record, "step") == step);
            assert_non_null(strstr(record, "\"action\":\"continue\""));
            assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
            fixture_end(&f);
        }
    }
}

/* A stalled worker can still read the partial sum that the worker `other` has shared with it. In
 * that case the sum must be in memory that `other` no longer uses. */
static void expect_shown_sum_left_alone(const ls_train_worker *other)
{
    if (other->old_folds)
        assert_ptr_not_equal(other->old_folds->fold.leaf, other->fold.leaf);
}

/* Two workers with one shard each compute the sum piece by piece in their updates. The commit
 * point, after which a step counts as done, is before the update. */
static void a_device_that_fails_among_two_costs_no_step(void **state)
{
    static const char *const stages[] = {"start", "shard", "merge", "apply", "report", "evaluate"};
    static const char *const kinds[] = {"fail", "stall"};
    char hash[65], fault[100];
    (void)state;
    train_undisturbed(hash, "shards=2");
    for (size_t s = 0; s < 2 * sizeof stages / sizeof *stages; s++) {
        const int stalls = s % 4 == 3 || (s % 2 && ls_tests_rounds(0, 1));
        const int step = 1 + (int)s % STEPS, worker = (int)(s / 2) % 2;
        const char *faults[] = {fault};
        fixture f;
        /* In slow builds the deadline is longer, so a worker that stalls before its report can
         * return before the deadline. Such cases are not tested in slow builds. */
        if (SLOW_BUILD && stalls && strcmp(stages[s / 2], "report") == 0)
            continue;
        snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=%s,stage=%s%s", worker, step,
                 kinds[stalls], stages[s / 2], stalls ? ",seconds=2.5" : "");
        recipe(&f, "devices=ref:2");
        fixture_set(&f, "shards=2");
        fixture_set(&f, SLOW_BUILD ? "deadline_s=2" : "deadline_s=1");
        f.sys.inject = faults;
        f.sys.inject_count = 1;
        ls_trainer *t = fixture_run(&f);
        expect_sound(&f, t, hash);
        const char *record = fixture_record(&f, "fault", 0);
        assert_true(record_number(record, "worker") == worker);
        if (record_number(record, "devices_left") != 1)
            fail_msg("%s: %s", fault, record);
        expect_shown_sum_left_alone(&t->engine->worker[!worker]);
        assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
        fixture_end(&f);
    }
}

/* The stalled worker sleeps at the run's end and returns while the trainer is being closed. Whether
 * it returns in time is the clock's affair: either way the address sanitizer finds no leak. */
static void a_stalled_reader_that_returns_during_the_closing_leaks_nothing(void **state)
{
    static const char *const stages[] = {"merge", "apply"};
    char fault[100];
    (void)state;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        const char *faults[] = {fault};
        fixture f;
        recipe(&f, "devices=ref:2");
        fixture_set(&f, "shards=2");
        fixture_set(&f, SLOW_BUILD ? "deadline_s=2" : "deadline_s=1");
        snprintf(fault, sizeof fault, "worker=1,step=%d,kind=stall,stage=%s,seconds=%.1f", STEPS,
                 stages[s], SLOW_BUILD ? 3.5 : 2.0);
        f.sys.inject = faults;
        f.sys.inject_count = 1;
        ls_trainer *t = fixture_run(&f);
        assert_true(record_number(fixture_record(&f, "fault", 0), "worker") == 1);
        const int status = ls_trainer_close(t, NULL);
        assert_true(status == LS_OK || status == LS_ESTALLED);
        fixture_end(&f);
    }
}

static void devices_may_fail_one_after_another_until_one_is_left(void **state)
{
    static const char *const faults[] = {"worker=0,step=2,kind=fail", "worker=2,step=4,kind=fail"};
    const char *hash = undisturbed();
    fixture f;
    (void)state;
    ls_trainer *t = run_with(&f, faults, 2);
    expect_sound(&f, t, hash);
    assert_true(record_number(fixture_record(&f, "fault", 1), "devices_left") == 1);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* Ten workers share eight shards: two workers have no shard. When other workers are lost, these two
 * get shards. One of the two is lost later. */
static void a_worker_without_a_shard_takes_over(void **state)
{
    static const char *const faults[] = {"worker=0,step=2,kind=fail",
                                         "worker=9,step=3,kind=fail,stage=merge",
                                         "worker=3,step=4,kind=fail", "worker=5,step=4,kind=fail"};
    const char *hash = undisturbed();
    fixture f;
    (void)state;
    recipe(&f, "devices=ref:10");
    f.sys.inject = faults;
    f.sys.inject_count = 4;
    ls_trainer *t = fixture_run(&f);
    expect_sound(&f, t, hash);
    assert_true(record_number(fixture_record(&f, "fault", 3), "devices_left") == 6);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void two_devices_may_fail_in_one_step(void **state)
{
    static const char *const faults[] = {"worker=0,step=3,kind=fail,stage=start",
                                         "worker=1,step=3,kind=fail,stage=merge"};
    const char *hash = undisturbed();
    fixture f;
    (void)state;
    ls_trainer *t = run_with(&f, faults, 2);
    expect_sound(&f, t, hash);
    assert_int_equal(fixture_count(&f, "fault"), 2);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* The stalled worker continues half a second after its deadline, while the other workers go on or
 * when they have finished. Its late writes must change nothing. */
static void a_device_that_stalls_is_named_and_left_behind(void **state)
{
    static const char *const stages[] = {"start", "shard", "merge", "apply", "report", "evaluate"};
    const int deadline_s = SLOW_BUILD ? 2 : 1;
    const char *hash = undisturbed();
    char fault[100];
    (void)state;
    /* The short form tests the stages "shard", "apply" and "evaluate". At "shard" the workers do
     * not have the sum of the step yet, at the other two they have it. The long form tests all
     * stages. */
    for (size_t s = ls_tests_rounds(1, 0); s < sizeof stages / sizeof *stages;
         s += ls_tests_rounds(2, 1)) {
        const int worker = (int)s % 3;
        const char *faults[] = {fault};
        fixture f;
        snprintf(fault, sizeof fault, "worker=%d,step=2,kind=stall,stage=%s,seconds=%.1f", worker,
                 stages[s], deadline_s + 0.5);
        ls_trainer *t = run_with(&f, faults, 1);
        expect_sound(&f, t, hash);
        const char *record = fixture_record(&f, "fault", 0);
        assert_true(record_number(record, "worker") == worker);
        assert_non_null(strstr(record, "\"kind\":\"stall\""));
        assert_non_null(strstr(record, "no sign of life for "));
        assert_in_range((int)(record_number(record, "detected_after_s") * 1000), deadline_s * 1000,
                        (deadline_s + 1) * 1000);
        assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
        fixture_end(&f);
    }
}

static void the_last_device_takes_the_run_with_it(void **state)
{
    static const char *const faults[] = {"worker=0,step=3,kind=fail"};
    fixture f;
    ls_trainer *t;
    (void)state;
    recipe(&f, "devices=ref:1");
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDEVICE);
    assert_string_equal(f.err.text, "worker 0, step 3: the device failed, as --inject asked for");
    assert_int_equal(ls_trainer_result(t)->steps, 2);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void replicas_that_differ_are_an_error(void **state)
{
    static const char *const faults[] = {"worker=1,step=2,kind=corrupt"};
    fixture f;
    ls_trainer *t;
    (void)state;
    recipe(&f, "devices=ref:3");
    fixture_set(&f, "verify_every_steps=1");
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_EDIVERGED);
    assert_non_null(strstr(f.err.text, "after step 2: ref(1) has another copy of the model than "
                                       "the other 2"));
    /* no worker is left, so there are no weights and no hash */
    assert_string_equal(ls_trainer_result(t)->weights_sha256, "");
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void a_step_whose_loss_is_not_finite_is_skipped_if_the_config_says_so(void **state)
{
    static const char *const faults[] = {"worker=1,step=2,kind=nan"};
    fixture f;
    (void)state;
    recipe(&f, "devices=ref:3");
    fixture_set(&f, "on_nonfinite=skip");
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    ls_trainer *t = fixture_run(&f);
    const char *record = fixture_record(&f, "nonfinite", 0);
    assert_true(record_number(record, "step") == 2);
    assert_true(record_number(record, "worker") == 1);
    assert_true(record_number(record, "shard") == t->engine->worker[1].shard_lo);
    assert_int_equal(fixture_count(&f, "step"), STEPS);
    assert_non_null(strstr(fixture_record(&f, "step", 1), "\"loss\":null"));
    assert_true(record_number(fixture_record(&f, "run_end", 0), "skipped_steps") == 1);
    replicas_are_equal(t);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* A single worker sums its gradients in the memory of its first shard's gradient. The search for
 * the shard with the bad loss computes shards again and overwrites that sum. Nevertheless a skipped
 * step must have the same effect as with two or three workers. */
static void a_single_worker_skips_a_step_like_several(void **state)
{
    static const char *const faults[] = {"worker=0,step=2,kind=nan"};
    static const char *const shards[] = {"shards=1", "shards=2", "shards=8"};
    (void)state;
    for (size_t s = 0; s < sizeof shards / sizeof *shards; s++) {
        char hash[65] = "";
        for (int workers = 1; workers <= 3; workers++) {
            char devices[32];
            fixture f;
            snprintf(devices, sizeof devices, "devices=ref:%d", workers);
            recipe(&f, devices);
            fixture_set(&f, shards[s]);
            fixture_set(&f, "on_nonfinite=skip");
            f.sys.inject = faults;
            f.sys.inject_count = 1;
            ls_trainer *t = fixture_run(&f);
            const char *record = fixture_record(&f, "nonfinite", 0);
            assert_true(record_number(record, "step") == 2);
            assert_true(record_number(record, "shard") == 0);
            assert_int_equal(fixture_count(&f, "nonfinite"), 1);
            assert_int_equal(fixture_count(&f, "step"), STEPS);
            if (workers > 1)
                assert_string_equal(ls_trainer_result(t)->weights_sha256, hash);
            memcpy(hash, ls_trainer_result(t)->weights_sha256, sizeof hash);
            assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
            fixture_end(&f);
        }
    }
}

static void a_step_whose_loss_is_not_finite_stops_the_run_before_the_update(void **state)
{
    static const char *const faults[] = {"worker=2,step=3,kind=nan"};
    fixture f;
    ls_trainer *t;
    (void)state;
    recipe(&f, "devices=ref:3");
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_ENONFINITE);
    assert_non_null(strstr(f.err.text, "step 3: the loss of shard "));
    assert_non_null(strstr(f.err.text, ", on worker 2, is not finite"));
    assert_int_equal(ls_trainer_result(t)->steps, 2);
    replicas_are_equal(t);
    assert_int_equal(strlen(ls_trainer_result(t)->weights_sha256), 64);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void a_fault_that_cannot_be_read_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "worker=1",
        "worker=1,step=0,kind=fail",
        "worker=1,step=2,kind=explode",
        "worker=-1,step=2,kind=fail",
        "worker=1,step=2,kind=fail,seconds=3",
        "worker=1,step=2,kind=nan,stage=merge",
        "worker=1,worker=2,step=2,kind=fail",
        "worker=1,step=2,kind=stall,seconds=1e3",
        "worker=1,step=2,kind=fail,",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_injections all = {0};
        ls_error err;
        assert_int_equal(ls_inject_parse(&all, bad[i], &err), LS_EINVAL);
        assert_non_null(strstr(err.text, "expected worker=N,step=N,kind="));
        assert_int_equal(all.count, 0);
    }
    ls_injections all = {0};
    assert_int_equal(
        ls_inject_parse(&all, "kind=stall,step=12,worker=3,seconds=0.25,stage=apply", NULL), LS_OK);
    assert_true(all.item[0].seconds == 0.25 && all.item[0].stage == LS_STAGE_APPLY);
    assert_true(all.item[0].worker == 3 && all.item[0].step == 12);
}

LS_TESTS(train_recovery, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_fails_at_any_stage_costs_no_step),
        cmocka_unit_test(a_device_that_fails_among_two_costs_no_step),
        cmocka_unit_test(a_stalled_reader_that_returns_during_the_closing_leaks_nothing),
        cmocka_unit_test(devices_may_fail_one_after_another_until_one_is_left),
        cmocka_unit_test(a_worker_without_a_shard_takes_over),
        cmocka_unit_test(two_devices_may_fail_in_one_step),
        cmocka_unit_test(a_device_that_stalls_is_named_and_left_behind),
        cmocka_unit_test(the_last_device_takes_the_run_with_it),
        cmocka_unit_test(replicas_that_differ_are_an_error),
        cmocka_unit_test(a_step_whose_loss_is_not_finite_is_skipped_if_the_config_says_so),
        cmocka_unit_test(a_single_worker_skips_a_step_like_several),
        cmocka_unit_test(a_step_whose_loss_is_not_finite_stops_the_run_before_the_update),
        cmocka_unit_test(a_fault_that_cannot_be_read_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(train_recovery, "nightly")
