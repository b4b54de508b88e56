/* SPDX-License-Identifier: MIT */
/* Tests that the clocks of several hosts may differ. Checkpoints wait until
 * checkpoint.every_seconds have passed on the clock of the host that saves; what the hosts do
 * together, and the weights, do not depend on any clock. */
#include "cluster/scenario.h"
#include "runner.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static scenario one, other;

static uint64_t still(void *user)
{
    (void)user;
    return 7;
}

/* A clock on which an hour passes between two looks, also of several threads. */
static uint64_t hasty(void *user)
{
    static atomic_ullong looks;
    (void)user;
    return atomic_fetch_add(&looks, 1) * UINT64_C(3600000000000);
}

/* A clock that jumps back at each look. */
static uint64_t backwards(void *user)
{
    static atomic_ullong looks;
    (void)user;
    return UINT64_MAX / 2 - atomic_fetch_add(&looks, 1) * UINT64_C(3600000000000);
}

static void is_saved(const char *run, const int *steps, int count)
{
    for (int step = 1, i = 0; step <= STEPS; step++) {
        char path[600];
        snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", run, step);
        const bool wanted = i < count && steps[i] == step;
        if ((access(path, F_OK) == 0) != wanted)
            fail_msg("%s is %sthere", path, wanted ? "not " : "");
        i += wanted;
    }
}

typedef uint64_t clock_fn(void *user);

static void the_first_decides_by_its_own_clock(void **state)
{
    static const struct {
        clock_fn *first, *second;
        const char *set[2]; /* of the first and the second member */
        int steps[3], count;
    } cases[] = {
        {still, hasty, {"checkpoint.keep=9", "checkpoint.every_seconds=0"}, {9}, 1},
        {hasty, still, {"checkpoint.keep=9", "checkpoint.every_seconds=900"}, {3, 6, 9}, 3},
        {backwards, still, {"checkpoint.keep=9", "checkpoint.keep=9"}, {3, 6, 9}, 3},
        {NULL, hasty, {"checkpoint={\"keep\":9,\"every_epochs\":1}", NULL}, {3, 6, 9}, 3},
    };
    (void)state;
    run_in_one_process(&one, 8);
    for (size_t i = 0; i < ROOM(cases); i++) {
        scratch dir;
        char run[400];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (scenario){.members = 2,
                           .workers = 1,
                           .shards = 8,
                           .run_dir = run,
                           .set = {cases[i].set[0], cases[i].set[1]},
                           .clock = {cases[i].first, cases[i].second}};
        run_scenario(&other);
        all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
        is_saved(run, cases[i].steps, cases[i].count);
        scratch_end(&dir);
    }
}

LS_TESTS(cluster_clocks, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_decides_by_its_own_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
