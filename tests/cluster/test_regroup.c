/* SPDX-License-Identifier: MIT */
/* Tests training runs over TCP in which processes are lost and the remaining ones continue. A
 * thread of the test stands for each process. */
#include "cluster/scenario.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>

static scenario one, other;

/* Checks that the members in `left` (one bit for each member) have ended well, and that the others
 * have failed. The lowest-numbered member in `left` must have the records that follow the records
 * of the former first member. */
static void only_these_went_on(unsigned left, const char *what)
{
    int first = -1;
    for (int m = 0; m < other.members; m++) {
        const process *p = &other.process[m];
        if (left >> m & 1) {
            first = first < 0 ? m : first;
            if (p->status)
                fail_msg("%s: member %d: %s", what, m, p->err.text);
            assert_string_equal(p->hash, one.process[0].hash);
            assert_true(p->test_loss == one.process[0].test_loss);
            assert_true(p->result.steps == STEPS);
            if (hosts_of(p->devices_left) != __builtin_popcount(left))
                fail_msg("%s: member %d lists hosts that were lost: %s", what, m, p->devices_left);
        } else if (p->status != LS_ESTALLED) {
            fail_msg("%s: member %d should not have gone on: %d, %s", what, m, p->status,
                     p->err.text);
        }
    }
    if (first < 0)
        return;
    const process *p = &other.process[first];
    assert_true(p->first_step != UINT64_MAX);
    if (first > 0 && p->first_step == 0 && other.process[0].last_step == STEPS)
        return; /* no training step remained to be recorded */
    /* If the first member was lost before it recorded a training step, another member can have made
     * this step without recording it. */
    if (p->last_step != STEPS || p->first_step > other.process[0].last_step + 1 + (first > 0))
        fail_msg("%s: steps %llu to %llu are recorded by member %d, behind %llu", what,
                 (unsigned long long)p->first_step, (unsigned long long)p->last_step, first,
                 (unsigned long long)other.process[0].last_step);
}

static void begin(int members)
{
    other = (scenario){.members = members, .workers = 1, .shards = 8, .tcp = true};
}

static void any_member_may_be_lost_at_any_point(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int victim = 0; victim < 3; victim++)
        for (unsigned k = 0; k < ls_tests_rounds(1, 3); k++) {
            char what[80];
            begin(3);
            other.loss[victim].step = 1 + (uint64_t)(k * 5 + victim) % 6;
            other.loss[victim].posts = (long)k * 6 + victim;
            snprintf(what, sizeof what, "%d lost %ld posts behind step %d", victim,
                     other.loss[victim].posts, (int)other.loss[victim].step);
            run_scenario(&other);
            only_these_went_on(7u & ~(1u << victim), what);
            assert_int_equal(other.process[victim == 0].faults, 1);
        }
}

/* Every third training step ends an epoch. A member that is lost after such a step is lost in an
 * evaluation, or between two epochs. */
static void one_may_be_lost_in_an_evaluation(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    /* In each case one of the three members is lost at the end of an epoch. The long form of the
     * test has two epochs for each member. */
    static const int cases[] = {0, 4, 2, 3, 1, 5};
    for (unsigned i = 0; i < ls_tests_rounds(3, 6); i++) {
        const int k = cases[i];
        begin(3);
        other.workers = 2;
        other.loss[k % 3].step = k < 3 ? 3 : 9;
        other.loss[k % 3].posts = k;
        run_scenario(&other);
        only_these_went_on(7u & ~(1u << k % 3), "in an evaluation");
        if (k % 3 > 0)
            assert_int_equal(other.process[0].evaluations, 3);
    }
}

/* The first member can be the one that has done less than the others. Then it records a training
 * step or an evaluation that it has received from another member. */
static void who_has_done_less_is_brought_level(void **state)
{
    (void)state;
    static const struct {
        int victim, deaf;
    } cases[] = {{2, 0}, {0, 1}, {1, 0}, {2, 1}, {0, 2}};
    run_in_one_process(&one, 8);
    for (int k = 0; k < 2; k++)
        for (unsigned i = 0; i < ls_tests_rounds(2, 5); i++) {
            const int victim = cases[i].victim;
            begin(3);
            other.loss[victim].step = k ? 3 : 4;
            other.loss[victim].fate = k ? FATE_KILLED_IN_GATHER : FATE_KILLED_IN_SUM;
            other.loss[victim].deaf = cases[i].deaf;
            run_scenario(&other);
            only_these_went_on(7u & ~(1u << victim),
                               k ? "ahead by an evaluation" : "ahead by a step");
            assert_in_range(other.process[0].evaluations +
                                (victim == 0 ? other.process[1].evaluations : 0),
                            victim == 0 ? 2 : 3, victim == 0 ? 4 : 3);
        }
}

/* A member that has done less receives the whole position of the run, including values that do not
 * follow from the training step's report. The member that has done most keeps its mark. */
static void where_the_run_stands_is_shared_as_a_whole(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int k = 0; k < 2; k++) {
        begin(3);
        other.marked = true;
        other.loss[2].step = k ? 3 : 4;
        other.loss[2].fate = k ? FATE_KILLED_IN_GATHER : FATE_KILLED_IN_SUM;
        run_scenario(&other);
        only_these_went_on(3, k ? "behind by an evaluation" : "behind by a step");
        assert_in_range((long)other.process[0].trained_s, MARK, 2 * MARK - 1);
        assert_in_range((long)other.process[1].trained_s, MARK, 2 * MARK - 1);
    }
}

static void three_become_two_and_then_one(void **state)
{
    (void)state;
    static const int lost[][2] = {{2, 1}, {0, 2}, {1, 2}};
    run_in_one_process(&one, 8);
    for (unsigned i = 0; i < ls_tests_rounds(2, 3); i++) {
        begin(3);
        other.loss[lost[i][0]].step = 2;
        other.loss[lost[i][0]].posts = 5;
        other.loss[lost[i][1]].step = 6;
        other.loss[lost[i][1]].posts = 9;
        run_scenario(&other);
        only_these_went_on(7u & ~(1u << lost[i][0] | 1u << lost[i][1]), "two losses");
    }
}

static void another_one_may_be_lost_while_they_regroup(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(4);
    other.loss[2].step = 4;
    other.loss[1].regrouping = 1;
    run_scenario(&other);
    only_these_went_on(9, "the second in the regrouping");
    begin(4);
    other.loss[3].step = 4;
    other.loss[0].regrouping = 1;
    run_scenario(&other);
    /* two of four members without the first member are no quorum (src/tcp/vote.h) */
    only_these_went_on(0, "the first in the regrouping");
}

/* The stopped member sends nothing. When it continues, it finds that the others have gone on
 * without it. */
static void one_that_was_stopped_is_not_let_in_again(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int victim = 0; victim < 3; victim += 2) {
        begin(3);
        other.loss[victim].step = 4;
        other.loss[victim].posts = 6;
        other.loss[victim].fate = FATE_STOPPED;
        run_scenario(&other);
        only_these_went_on(7u & ~(1u << victim), "stopped");
        if (!strstr(other.process[victim].err.text, "which is fewer than half") &&
            !strstr(other.process[victim].err.text, "have gone on without this one"))
            fail_msg("%s", other.process[victim].err.text);
    }
}

static void fewer_than_half_save_and_stop(void **state)
{
    (void)state;
    scratch dir;
    char run[400], saved[500];
    run_in_one_process(&one, 8);
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    begin(3);
    other.run_dir = run;
    other.loss[0].step = 4;
    other.loss[2].regrouping = 1;
    run_scenario(&other);
    only_these_went_on(0, "two of three are lost");
    assert_non_null(strstr(other.process[1].err.text, "1 of 3 hosts found each other"));
    assert_true(other.process[1].result.saved);
    memcpy(saved, other.process[1].own_dir, sizeof saved);
    other = (scenario){.members = 2, .workers = 1, .shards = 8, .run_dir = saved};
    other.resume[0] = other.resume[1] = saved;
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    scratch_end(&dir);
}

static void of_two_the_first_goes_on(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int victim = 0; victim < 2; victim++) {
        begin(2);
        other.loss[victim].step = 5;
        other.loss[victim].posts = 3;
        run_scenario(&other);
        only_these_went_on(victim ? 1 : 0, "one of two");
    }
}

/* The new first member writes a run directory of its own, from which the run can be resumed. */
static void who_is_first_then_has_the_run_beside(void **state)
{
    (void)state;
    scratch dir;
    char run[400], beside[420];
    run_in_one_process(&one, 8);
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    snprintf(beside, sizeof beside, "%s.member-1", run);
    begin(3);
    other.run_dir = run;
    other.loss[0].step = 2;
    other.loss[0].posts = 7;
    other.stopper = 2;
    other.stop_after_step = 5;
    run_scenario(&other);
    for (int m = 1; m < 3; m++)
        if (other.process[m].status != LS_EINTERRUPTED || !other.process[m].result.saved)
            fail_msg("member %d: %s", m, other.process[m].err.text);
    assert_string_equal(other.process[1].own_dir, beside);
    assert_string_equal(other.process[2].own_dir, "");
    other =
        (scenario){.members = 1, .workers = 1, .shards = 8, .run_dir = beside, .resume = {beside}};
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    scratch_end(&dir);
}

/* The lost member contributes nothing to training step 6. Therefore no member has made this step,
 * from which the others could take the state. */
static void who_is_left_with_other_weights_is_named(void **state)
{
    (void)state;
    begin(4);
    other.nan[0] = "worker=0,step=6,kind=stall,stage=start,seconds=1";
    other.nan[1] = "worker=0,step=5,kind=corrupt";
    other.loss[0].step = 5;
    run_scenario(&other);
    for (int m = 1; m < 4; m++) {
        assert_int_equal(other.process[m].status, LS_EDIVERGED);
        assert_non_null(
            strstr(other.process[m].err.text, "has another copy of the model than the other 2"));
    }
}

/* Each member finds the loss by itself. But a slow member can first receive the message of the
 * other member, which says why that member has left. */
static void a_transport_that_cannot_regroup_is_refused(void **state)
{
    (void)state;
    other = (scenario){.members = 2, .workers = 1, .shards = 8};
    other.set[0] = other.set[1] = "cluster.on_host_loss=\"continue\"";
    run_scenario(&other);
    for (int m = 0; m < 2; m++) {
        if (other.process[m].status != LS_ECONFIG) {
            assert_int_equal(other.process[m].status, LS_ESTALLED);
            assert_int_equal(other.process[1 - m].status, LS_ECONFIG);
            assert_non_null(strstr(other.process[m].err.text, "has left the run: "));
        }
        assert_non_null(strstr(other.process[m].err.text, "cluster.on_host_loss"));
        assert_non_null(strstr(other.process[m].err.text, "start the processes with --join"));
    }
}

static void a_transport_that_cannot_admit_is_refused(void **state)
{
    (void)state;
    static const char both[] = "cluster={\"on_host_loss\":\"continue\",\"on_arrival\":\"admit\"}";
    other = (scenario){.members = 2, .workers = 1, .shards = 8};
    other.set[0] = other.set[1] = both;
    run_scenario(&other);
    for (int m = 0; m < 2; m++) {
        assert_true(other.process[m].status == LS_ECONFIG ||
                    other.process[m].status == LS_ESTALLED);
        if (!strstr(other.process[m].err.text, "on_arrival") ||
            !strstr(other.process[m].err.text, "needs a transport that can admit processes"))
            fail_msg("%s", other.process[m].err.text);
    }
    other = (scenario){.members = 1, .workers = 1, .shards = 8};
    other.set[0] = "cluster.on_arrival=\"admit\"";
    run_scenario(&other);
    assert_int_equal(other.process[0].status, LS_ECONFIG);
    assert_non_null(strstr(other.process[0].err.text, "needs \"on_host_loss\": \"continue\""));
}

LS_TESTS(cluster_regroup, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_member_may_be_lost_at_any_point),
        cmocka_unit_test(one_may_be_lost_in_an_evaluation),
        cmocka_unit_test(who_has_done_less_is_brought_level),
        cmocka_unit_test(where_the_run_stands_is_shared_as_a_whole),
        cmocka_unit_test(three_become_two_and_then_one),
        cmocka_unit_test(another_one_may_be_lost_while_they_regroup),
        cmocka_unit_test(one_that_was_stopped_is_not_let_in_again),
        cmocka_unit_test(fewer_than_half_save_and_stop),
        cmocka_unit_test(of_two_the_first_goes_on),
        cmocka_unit_test(who_is_first_then_has_the_run_beside),
        cmocka_unit_test(who_is_left_with_other_weights_is_named),
        cmocka_unit_test(a_transport_that_cannot_regroup_is_refused),
        cmocka_unit_test(a_transport_that_cannot_admit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_regroup, "nightly")
