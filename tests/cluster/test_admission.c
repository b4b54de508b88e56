/* SPDX-License-Identifier: MIT */
/* Tests the admission of *newcomers*, processes that come to a run that is in progress: whole
 * training runs over TCP. A thread of the test stands for each process. */
#include "cluster/scenario.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>

static scenario one, other;

/* Prepares a run of three epochs of three training steps each. The two newcomers come at the steps
 * `first` and `second`. */
static void begin(int members, int newcomers, uint64_t first, uint64_t second)
{
    other = (scenario){.members = members,
                       .workers = 1,
                       .shards = 8,
                       .tcp = true,
                       .newcomers = newcomers,
                       .comes = {first, second}};
}

/* Checks that the processes in `went_on` (one bit for each process) have ended with the weights of
 * a run in one process, and that the other processes have failed. */
static void these_ended_well(unsigned went_on, int hosts, const char *what)
{
    for (int m = 0; m < other.members + other.newcomers; m++) {
        const process *p = &other.process[m];
        if (went_on >> m & 1) {
            if (p->status)
                fail_msg("%s: process %d: %s", what, m, p->err.text);
            assert_string_equal(p->hash, one.process[0].hash);
            assert_true(p->test_loss == one.process[0].test_loss);
            assert_int_equal(p->result.steps, STEPS);
            if (hosts_of(p->devices_left) != hosts)
                fail_msg("%s: process %d lists other hosts: %s", what, m, p->devices_left);
        } else if (p->status == LS_OK) {
            fail_msg("%s: process %d should not have ended well", what, m);
        }
    }
}

static void a_host_is_admitted_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(2, 1, 2, 0);
    run_scenario(&other);
    these_ended_well(7, 3, "one comes");
    assert_int_equal(other.process[0].arrivals, 1);
    assert_int_equal(other.process[0].faults, 0);
    assert_int_equal(other.process[0].last_step, STEPS);
    assert_true(other.process[0].first_step == 1);
    assert_int_equal(other.process[2].records, 0);
}

/* The first process does not wait for other processes at its start. */
static void one_host_alone_becomes_three(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(1, 2, 2, 5);
    run_scenario(&other);
    these_ended_well(7, 3, "one becomes three");
    assert_int_equal(other.process[0].arrivals, 2);
}

static void two_come_and_two_become_four(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(2, 2, 1, 2); /* both are admitted at the end of the first epoch */
    run_scenario(&other);
    these_ended_well(15, 4, "two come at once");
    assert_int_equal(other.process[0].arrivals, 2);
    begin(2, 2, 2, 5);
    run_scenario(&other);
    these_ended_well(15, 4, "two come one after the other");
}

static void a_newcomer_takes_over_when_others_are_lost(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(2, 1, 2, 0);
    other.loss[0].step = 5; /* in the second epoch, three hosts become two */
    other.loss[0].posts = 4;
    run_scenario(&other);
    these_ended_well(6, 2, "the first is lost");
    assert_int_equal(other.process[1].faults, 1);
    begin(2, 1, 2, 0);
    other.loss[2].step = 5;
    other.loss[2].posts = 7;
    run_scenario(&other);
    these_ended_well(3, 2, "the newcomer is lost");
}

static void a_host_may_come_after_one_was_lost(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(3, 2, 4, 5);
    other.loss[2].step = 1;
    run_scenario(&other);
    these_ended_well(3 | 8 | 16, 4, "3, 2 and 4 hosts");
    assert_int_equal(other.process[0].arrivals, 2);
    assert_int_equal(other.process[0].faults, 1);
}

/* Checks the first two members. The newcomer can have gone on with them. If it was left out, it can
 * find that the run has ended. */
static void the_first_two_ended_well(const char *what)
{
    for (int m = 0; m < 2; m++)
        if (other.process[m].status || strcmp(other.process[m].hash, one.process[0].hash) != 0)
            fail_msg("%s: process %d: %s", what, m, other.process[m].err.text);
}

/* The member is lost in its first regrouping, which is the regrouping of the admission. */
static void one_may_be_lost_in_the_middle_of_an_admission(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int victim = 0; victim < 3; victim++) {
        char what[60];
        begin(3, 1, 2, 0);
        other.loss[victim].regrouping = 1;
        snprintf(what, sizeof what, "%d is lost in the vote", victim);
        run_scenario(&other);
        /* The newcomer goes on with the others, or is left out and then finds no member at the
         * address. */
        for (int m = 0; m < 3; m++)
            if (m != victim && (other.process[m].status ||
                                strcmp(other.process[m].hash, one.process[0].hash) != 0))
                fail_msg("%s: process %d: %s", what, m, other.process[m].err.text);
    }
}

/* Member 2 is lost in an exchange (gather) at the end of the epoch. One of the other members has
 * the result of this exchange, the other lacks it. Depending on `posts`, it is the exchange of the
 * evaluation, the exchange of the waiting processes, or an exchange of the admission. */
static void one_may_know_less_at_the_end_of_an_epoch(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (unsigned k = 0; k < ls_tests_rounds(2, 16); k++) {
        char what[60];
        begin(3, 1, 2, 0);
        other.loss[2].step = 3;
        other.loss[2].posts = 4 * (long)k;
        other.loss[2].fate = FATE_KILLED_IN_GATHER;
        other.loss[2].deaf = (int)k % 2;
        snprintf(what, sizeof what, "lost %ld posts after the epoch", other.loss[2].posts);
        run_scenario(&other);
        the_first_two_ended_well(what);
    }
}

/* The newcomer is lost at each of its first posts in turn. These are the posts of the exchanges at
 * its start. */
static void the_newcomer_may_be_lost_at_any_exchange(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (unsigned k = 0; k < ls_tests_rounds(2, 12); k++) {
        begin(2, 1, 2, 0);
        other.newcomer_dies_at = 3 + 7 * (long)k;
        run_scenario(&other);
        these_ended_well(3, 2, "the newcomer is lost while it is welcomed");
    }
}

/* Checks that the newcomer fails with `text`, and that the two members end like a run in one
 * process. */
static void the_newcomer_is_refused(const char *text)
{
    other.refused = true;
    run_scenario(&other);
    these_ended_well(3, 2, text);
    assert_int_equal(other.process[0].arrivals, 0);
    assert_int_equal(other.process[0].faults, 0);
    if (!strstr(other.process[2].err.text, text))
        fail_msg("%s: %s", text, other.process[2].err.text);
}

static void a_host_with_another_recipe_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const sets[] = {"seed=7", "data.limit=64", "epochs=4"};
    run_in_one_process(&one, 8);
    for (size_t i = 0; i < ls_tests_rounds(1, sizeof sets / sizeof *sets); i++) {
        begin(2, 1, 2, 0);
        other.newcomer_set[0] = sets[i];
        the_newcomer_is_refused("another recipe");
    }
}

static void a_host_with_other_data_is_refused_by_name(void **state)
{
    (void)state;
    one = (scenario){.members = 1, .workers = 2, .shards = 8, .values = true};
    run_scenario(&one);
    begin(2, 1, 2, 0);
    other.values = true;
    other.differs = DIFFERS_DATA;
    the_newcomer_is_refused("other data");
    begin(2, 1, 2, 0);
    other.values = true;
    run_scenario(&other);
    these_ended_well(7, 3, "the same data");
}

static void a_host_of_another_version_is_refused_by_name(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(2, 1, 2, 0);
    other.differs = DIFFERS_VERSION;
    the_newcomer_is_refused("has Lockstep 0.0.1");
}

static void a_host_with_another_secret_is_refused_by_name(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    begin(2, 1, 2, 0);
    other.differs = DIFFERS_SECRET;
    the_newcomer_is_refused("does not know this run's secret");
}

/* Tries a run that does not admit processes, and then a newcomer that does not ask to be
 * admitted. */
static void a_run_that_does_not_admit_refuses_by_name(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    static const char refuse[] = "cluster.on_arrival=\"refuse\"";
    for (unsigned k = 0; k < ls_tests_rounds(1, 2); k++) {
        begin(2, 1, 2, 0);
        if (k == 0)
            other.set[0] = other.set[1] = refuse;
        else
            other.newcomer_set[0] = refuse;
        the_newcomer_is_refused("cluster.on_arrival");
    }
}

/* The newcomer and member 2 cannot connect to each other, in neither direction. */
static void a_newcomer_that_a_member_does_not_reach_costs_no_member(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (unsigned k = 0; k < ls_tests_rounds(1, 8); k++) {
        begin(3, 1, 2, 0);
        other.advertise[2] = other.advertise[3] = UNREACHED;
        run_scenario(&other);
        these_ended_well(7, 3, "a link is cut");
        assert_int_equal(other.process[0].arrivals, 0);
        assert_in_range(other.process[0].failed_arrivals, 1, 2);
        assert_non_null(strstr(other.process[0].failed_arrival, "do not reach each other"));
    }
}

/* The newcomer cannot connect to member 2, but member 2 can connect to the newcomer, also when the
 * first member is lost later. */
static void a_member_calls_a_newcomer_that_does_not_reach_it(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (unsigned k = 0; k < ls_tests_rounds(1, 8); k++) {
        begin(3, 1, 2, 0);
        other.advertise[2] = UNREACHED;
        other.loss[0].step = 5;
        run_scenario(&other);
        these_ended_well(14, 3, "a link in one direction");
    }
}

LS_TESTS(cluster_admission, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_admitted_at_the_end_of_an_epoch),
        cmocka_unit_test(one_host_alone_becomes_three),
        cmocka_unit_test(two_come_and_two_become_four),
        cmocka_unit_test(a_newcomer_takes_over_when_others_are_lost),
        cmocka_unit_test(a_host_may_come_after_one_was_lost),
        cmocka_unit_test(one_may_be_lost_in_the_middle_of_an_admission),
        cmocka_unit_test(one_may_know_less_at_the_end_of_an_epoch),
        cmocka_unit_test(the_newcomer_may_be_lost_at_any_exchange),
        cmocka_unit_test(a_newcomer_that_a_member_does_not_reach_costs_no_member),
        cmocka_unit_test(a_member_calls_a_newcomer_that_does_not_reach_it),
        cmocka_unit_test(a_host_with_another_recipe_is_refused_by_name),
        cmocka_unit_test(a_host_with_other_data_is_refused_by_name),
        cmocka_unit_test(a_host_of_another_version_is_refused_by_name),
        cmocka_unit_test(a_host_with_another_secret_is_refused_by_name),
        cmocka_unit_test(a_run_that_does_not_admit_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_admission, "nightly")
