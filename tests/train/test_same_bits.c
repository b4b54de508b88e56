/* SPDX-License-Identifier: MIT */
/* Tests that with a fixed number of shards the final weights are bit-identical on any number of
 * workers.
 *
 * These tests can detect another order of additions, because another order gives other bits:
 * tests/comm/test_allreduce.c shows this for one sum, and `the_bits_change_with_the_tree` below for
 * whole runs. */
#include "runner.h"
#include "train/faulty_backend.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <string.h>

/* On the CPU: LeNet with 11 minibatches of 256 rows and one of 184. On the reference back end,
 * which is slow: a small network with five minibatches of 128 rows and one of 60. */
static void recipe(fixture *f, const char *backend, int workers, char devices[32])
{
    const int small = SLOW_BUILD || strcmp(backend, "ref") == 0;
    snprintf(devices, 32, "devices=%s:%d", backend, workers);
    fixture_begin(f);
    f->callbacks.record = NULL;
    if (!small)
        fixture_use_lenet(f);
    fixture_set(f, small ? "data.limit=700" : "data.limit=3000");
    fixture_set(f, small ? "batch_size=128" : "batch_size=256");
    fixture_set(f, "shards=8");
    fixture_set(f, "epochs=2");
    fixture_set(f, "eval_every=0");
    fixture_set(f, "optimizer.momentum=0.9");
    fixture_set(f, "optimizer.lr=0.02");
    fixture_set(f, "init={\"name\": \"kaiming\"}");
    fixture_set(f, devices);
}

static void hash_of(char out[65], const char *backend, int workers, const char *more)
{
    fixture f;
    char devices[32];
    recipe(&f, backend, workers, devices);
    if (more)
        fixture_set(&f, more);
    memcpy(out, fixture_hash(&f), 65);
    fixture_end(&f);
}

static void same_bits_on(const char *backend)
{
    static const int workers[] = {1, 1, 2, 3, 5, 8}; /* one worker twice, to compare two runs */
    char first[65], other[65];
    hash_of(first, backend, 2, NULL);
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        hash_of(other, backend, workers[i], NULL);
        if (strcmp(other, first) != 0)
            fail_msg("%s: %s on %d workers, %s on 2", backend, other, workers[i], first);
    }
}

/* Worker 1 ends its first shard only after worker 0 has computed all other shards. */
static void a_slow_worker_computes_fewer_shards_with_the_same_bits(void **state)
{
    char want[65], found[65];
    (void)state;
    hash_of(want, "ref", 1, NULL);
    for (int workers = 2; workers <= 3; workers++) {
        fixture f;
        char devices[32];
        fault_reset();
        fault.device = 1;
        fault.wait_for = 7;
        recipe(&f, "ref", 1, devices);
        assert_int_equal(ls_registry_add(f.registry, faulty_backend(), &f.err), LS_OK);
        fixture_set(&f, workers == 2 ? "devices=faulty:2" : "devices=faulty:3");
        memcpy(found, fixture_hash(&f), sizeof found);
        fixture_end(&f);
        assert_string_equal(found, want);
        assert_true(fault.others_in_time);
    }
    fault_reset();
}

static int sees_the_cpu(void)
{
    return has_backend("cpu");
}

static void the_reference_gives_the_same_bits_on_any_number_of_workers(void **state)
{
    (void)state;
    same_bits_on("ref");
}

static void the_cpu_gives_the_same_bits_on_any_number_of_workers(void **state)
{
    (void)state;
    if (!sees_the_cpu())
        skip();
    same_bits_on("cpu");
}

static void a_team_of_any_size_gives_the_same_bits(void **state)
{
    char one[65], other[65];
    (void)state;
    if (!sees_the_cpu())
        skip();
    hash_of(one, "cpu", 2, "threads=1");
    hash_of(other, "cpu", 2, "threads=2");
    assert_string_equal(other, one);
    hash_of(other, "cpu", 1, "threads=5");
    assert_string_equal(other, one);
}

/* Begins a run of a network whose first layer has few channels, with shards of 5 rows: 8 shards of
 * a minibatch. */
static void begin_ragged(fixture *f, char devices[32], int workers, int augmented)
{
    snprintf(devices, 32, "devices=cpu:%d", workers);
    fixture_begin(f);
    f->callbacks.record = NULL;
    fixture_set(f, "batch_size=40");
    fixture_set(f, "shards=8");
    fixture_set(f, "epochs=2");
    fixture_set(f, devices);
    if (augmented)
        fixture_set(f, "augment={\"crop\": 4, \"flip\": true}");
}

static void augmented_runs_evaluate_alike_on_any_number_of_workers(void **state)
{
    ls_result first = {0};
    (void)state;
    if (!sees_the_cpu())
        skip();
    for (int workers = 0; workers <= 8; workers++) {
        fixture f;
        char devices[32];
        /* three workers twice, to compare two runs */
        begin_ragged(&f, devices, workers ? workers : 3, 1);
        ls_trainer *t = fixture_run(&f);
        const ls_result *result = ls_trainer_result(t);
        if (workers == 0)
            first = *result;
        assert_string_equal(result->weights_sha256, first.weights_sha256);
        assert_memory_equal(&result->test_loss, &first.test_loss, sizeof first.test_loss);
        assert_memory_equal(&result->metric_value, &first.metric_value, sizeof first.metric_value);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

/* Most of the workers have no shard, and no CPU core of their own. */
static void sixteen_to_256_workers_train_alike(void **state)
{
    static const int workers[] = {16, 64, 256};
    char first[65];
    (void)state;
    if (!sees_the_cpu())
        skip();
    for (size_t i = 0; i < 1 + sizeof workers / sizeof *workers; i++) {
        fixture f;
        char devices[32];
        begin_ragged(&f, devices, i ? workers[i - 1] : 1, 0);
        const char *hash = fixture_hash(&f);
        if (i == 0)
            memcpy(first, hash, sizeof first);
        assert_string_equal(hash, first);
        fixture_end(&f);
    }
}

static void evaluation_knows_nothing_of_augmentation(void **state)
{
    ls_evaluation found[2] = {{.size = sizeof *found}, {.size = sizeof *found}};
    (void)state;
    if (!sees_the_cpu())
        skip();
    for (int augmented = 0; augmented < 2; augmented++) {
        fixture f;
        char devices[32];
        begin_ragged(&f, devices, 2, augmented);
        ls_trainer *t = fixture_open(&f);
        if (ls_trainer_evaluate(t, &found[augmented], &f.err) != LS_OK)
            fail_msg("%s", f.err.text);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
    assert_memory_equal(&found[0].loss, &found[1].loss, sizeof found->loss);
    assert_memory_equal(&found[0].metric_value, &found[1].metric_value, sizeof found->metric_value);
}

/* Another number of shards gives another order of additions, and so does the communicator `naive`,
 * which adds in the order of the workers. So the bits differ. */
static void the_bits_change_with_the_tree(void **state)
{
    char tree[65], other[65];
    (void)state;
    hash_of(tree, "ref", 8, NULL);
    hash_of(other, "ref", 8, "shards=16");
    assert_string_not_equal(other, tree);
    hash_of(other, "ref", 8, "allreduce=naive");
    assert_string_not_equal(other, tree);
}

LS_TESTS(train_same_bits, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_gives_the_same_bits_on_any_number_of_workers),
        cmocka_unit_test(a_slow_worker_computes_fewer_shards_with_the_same_bits),
        cmocka_unit_test(the_cpu_gives_the_same_bits_on_any_number_of_workers),
        cmocka_unit_test(a_team_of_any_size_gives_the_same_bits),
        cmocka_unit_test(augmented_runs_evaluate_alike_on_any_number_of_workers),
        cmocka_unit_test(sixteen_to_256_workers_train_alike),
        cmocka_unit_test(evaluation_knows_nothing_of_augmentation),
        cmocka_unit_test(the_bits_change_with_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
