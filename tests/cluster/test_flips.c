/* Tests that a flipped bit in the memory of one process is noticed by all processes of a run before
 * any of them saves the state, and that the run can then be resumed with the bits of an undisturbed
 * run. A bit flips after a step in the weights or in the optimizer's state of one worker. Half of
 * the runs are over TCP, with cluster.on_host_loss "continue"; in the others the transport is
 * simulated. The short form samples the cases; the long form tries all of them. */
#include "checkpoint/checkpoint.h"
#include "cluster/scenario.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static scenario one, other;

typedef struct flip {
    int members, workers, member, step, bit;
    const char *part;
    bool tcp;
} flip;

/* Continues the run on one host. */
static void resume(const char *run, const char *what)
{
    other = (scenario){.members = 1, .workers = 1, .shards = 6, .run_dir = run, .resume = {run}};
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
    snprintf(what, sizeof what, "member %d of %d, %s", c->member, c->members, fault);
    other = (scenario){
        .members = c->members, .workers = c->workers, .shards = 6, .run_dir = run, .tcp = c->tcp};
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
    resume(run, what);
    scratch_end(&dir);
}

static void no_flipped_bit_is_saved_by_any_host(void **state)
{
    static const int bits[] = {0, 15, 31};
    static const char *const parts[] = {"weights", "slot0"};
    unsigned number = 0;
    (void)state;
    run_in_one_process(&one, 6);
    for (int members = 2; members <= 3; members++)
        for (int workers = 1; workers <= 2; workers++)
            for (int member = 0; member < members; member++)
                for (int step = 1; step <= STEPS; step++)
                    for (size_t b = 0; b < ROOM(bits); b++)
                        for (size_t p = 0; p < ROOM(parts); p++) {
                            const flip c = {members,
                                            workers,
                                            member,
                                            step,
                                            bits[b],
                                            parts[p],
                                            number / 53 % 2 == 0};
                            if (number++ % ls_tests_rounds(53, 1) == 0)
                                flip_one(&c);
                        }
}

LS_TESTS(cluster_flips, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_flipped_bit_is_saved_by_any_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_flips, "nightly")
