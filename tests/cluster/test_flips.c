/* SPDX-License-Identifier: MIT */
/* Tests that a flipped bit in the memory of one process is noticed by all processes of a run before
 * any of them saves the state, and that the run can then be resumed with the bits of an undisturbed
 * run. A bit flips after a step in the weights, the optimizer's state, the moving average or the
 * running statistics of one worker. The long form tries every step of two short runs, on each
 * worker of two and of three hosts, over TCP, with cluster.on_host_loss "continue". The short form
 * samples these cases, and runs with several workers on each host; in half of its runs the
 * transport is simulated. With a sanitizer the long form is a larger sample. */
#include "checkpoint/checkpoint.h"
#include "cluster/scenario.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static scenario one, other;

/* A recipe, and the parts of its replicas. */
typedef struct recipe {
    const char *set[2]; /* assignments of config keys */
    const char *part[5];
} recipe;

static const recipe recipes[] = {
    {{"optimizer.momentum=0.9"}, {"weights", "slot0", "statistics"}},
    {{"optimizer={\"name\":\"adamw\",\"lr\":0.001}", "ema=0.9"},
     {"weights", "slot0", "slot1", "average", "statistics"}},
};

typedef struct flip {
    const recipe *recipe;
    int members, workers, member, step, bit;
    const char *part;
    bool tcp;
} flip;

/* Continues the run on one host. */
static void resume(const recipe *r, const char *run, const char *what)
{
    other = (scenario){.members = 1,
                       .workers = 1,
                       .shards = 6,
                       .run_dir = run,
                       .resume = {run},
                       .recipe = {r->set[0], r->set[1]}};
    run_scenario(&other);
    const process *p = &other.process[0];
    if (p->status == LS_OK && strcmp(p->hash, one.process[0].hash) != 0)
        fail_msg("%s: the resumed run has other weights", what);
    if (p->status != LS_OK && !strstr(p->err.text, "has no checkpoint"))
        fail_msg("%s: %s", what, p->err.text);
}

static void flip_one(const flip *c)
{
    scratch dir;
    char run[400], fault[120], what[200];
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=corrupt,part=%s,bit=%d", c->workers - 1,
             c->step, c->part, c->bit);
    snprintf(what, sizeof what, "%s: member %d of %d, %s", c->recipe->set[0], c->member, c->members,
             fault);
    other = (scenario){.members = c->members,
                       .workers = c->workers,
                       .shards = 6,
                       .run_dir = run,
                       .recipe = {c->recipe->set[0], c->recipe->set[1]},
                       .tcp = c->tcp};
    for (int m = 0; m < c->members; m++)
        other.set[m] = m == 0 ? "checkpoint.every_steps=2" : "checkpoint.every_steps=5";
    other.nan[c->member] = fault;
    run_scenario(&other);
    for (int m = 0; m < c->members; m++)
        if (other.process[m].status != LS_EDIVERGED)
            fail_msg("%s: member %d: %s, %s", what, m, ls_status_name(other.process[m].status),
                     other.process[m].err.text);
    for (int step = c->step; step <= STEPS; step++) {
        char name[LS_CHECKPOINT_NAME], path[80];
        ls_checkpoint_name(name, (uint64_t)step);
        snprintf(path, sizeof path, "run/checkpoints/%s", name);
        if (access(scratch_path(&dir, path), F_OK) == 0)
            fail_msg("%s: %s was saved", what, name);
    }
    assert_int_equal(access(scratch_path(&dir, "run/weights.safetensors"), F_OK), -1);
    resume(c->recipe, run, what);
    scratch_end(&dir);
}

/* Tries one of `every` cases of the recipe, with this number of hosts and of workers on each host.
 */
static void flip_each(const recipe *r, int members, int workers, unsigned every)
{
    static const int bits[] = {0, 15, 31};
    static unsigned number;
    for (int member = 0; member < members; member++)
        for (int step = 1; step <= STEPS; step++)
            for (size_t b = 0; b < ROOM(bits); b++)
                for (size_t p = 0; p < ROOM(r->part) && r->part[p]; p++) {
                    const bool tcp = every == 1 || number / every % 2 == 0;
                    const flip c = {r, members, workers, member, step, bits[b], r->part[p], tcp};
                    if (number++ % every == 0)
                        flip_one(&c);
                }
}

static void no_flipped_bit_is_saved_by_any_host(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM(recipes); i++) {
        const recipe *r = &recipes[i];
        one = (scenario){.members = 1, .workers = 2, .shards = 6, .recipe = {r->set[0], r->set[1]}};
        run_scenario(&one);
        assert_int_equal(one.process[0].status, LS_OK);
        for (int members = 2; members <= 3; members++)
            for (int workers = 1; workers <= 2; workers++)
                flip_each(r, members, workers,
                          workers == 1 ? ls_tests_rounds(163, SLOW_BUILD ? 11 : 1) : 163);
    }
}

LS_TESTS(cluster_flips, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_flipped_bit_is_saved_by_any_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_flips, "nightly budget:150")
