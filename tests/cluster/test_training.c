/* SPDX-License-Identifier: MIT */
/* Tests training runs over several processes. A thread of the test stands for each process, and the
 * transport is simulated in memory (wire_double.h). */
#include "cluster/scenario.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- bits ----------------------------------------------------------------------------------- */

static scenario one, other;

static void any_number_of_hosts_and_workers_gives_the_same_bits(void **state)
{
    (void)state;
    static const int shards[] = {7, 24, 8, 12};
    for (size_t i = 0; i < (SLOW_BUILD ? 1 : ls_tests_rounds(2, 4)); i++) {
        run_in_one_process(&one, shards[i]);
        for (int members = 2; members <= MAX_MEMBERS; members++)
            for (int workers = 1; workers <= 3; workers++) {
                other = (scenario){.members = members, .workers = workers, .shards = shards[i]};
                run_scenario(&other);
                all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
            }
    }
}

/* The weights of rows are added in the shards' order, and the metrics in the rows' order. */
static void weights_of_rows_have_the_same_effect_over_tcp(void **state)
{
    (void)state;
    one = (scenario){.members = 1, .workers = 2, .shards = 8, .values = true, .weighted = true};
    run_scenario(&one);
    assert_int_equal(one.process[0].status, LS_OK);
    assert_non_null(strstr(one.process[0].evaluated, "\"unweighted\":{"));
    other = (scenario){
        .members = 2, .workers = 1, .shards = 8, .values = true, .weighted = true, .tcp = true};
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    assert_string_equal(other.process[0].evaluated, one.process[0].evaluated);
    one.weighted = false;
    run_scenario(&one);
    assert_string_not_equal(one.process[0].hash, other.process[0].hash);
}

static void a_rate_that_all_processes_set_over_tcp_is_that_of_one(void **state)
{
    (void)state;
    one = (scenario){.members = 1, .workers = 2, .shards = 8, .lr = {0.02}};
    run_scenario(&one);
    assert_int_equal(one.process[0].status, LS_OK);
    other = (scenario){.members = 2, .workers = 1, .shards = 8, .tcp = true, .lr = {0.02, 0.02}};
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    other.lr[1] = 0.03;
    run_scenario(&other);
    for (int m = 0; m < 2; m++)
        if (other.process[m].status != LS_EDIVERGED)
            fail_msg("member %d: %d, %s", m, other.process[m].status, other.process[m].err.text);
}

static void the_record_names_the_devices_of_all_hosts(void **state)
{
    (void)state;
    char host[40], expected[300];
    gethostname(host, sizeof host);
    other = (scenario){.members = 2, .workers = 2, .shards = 8};
    run_scenario(&other);
    snprintf(expected, sizeof expected,
             "\"devices\":[\"%s: ref(0)\",\"%s: ref(1)\",\"%s#1: ref(0)\",\"%s#1: ref(1)\"]", host,
             host, host, host);
    if (!strstr(other.process[0].started, expected))
        fail_msg("%s is not in %s", expected, other.process[0].started);
}

/* ---- stopping and going on ------------------------------------------------------------------ */

static void stopped_by_any_member_it_goes_on_on_any_number(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (int stopper = 0; stopper < 3; stopper++) {
        scratch dir;
        char run[400];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (scenario){.members = 3,
                           .workers = 1,
                           .shards = 8,
                           .run_dir = run,
                           .stopper = stopper,
                           .stop_after_step = 3 + (uint64_t)stopper};
        run_scenario(&other);
        for (int m = 0; m < 3; m++) {
            assert_int_equal(other.process[m].status, LS_EINTERRUPTED);
            assert_true(other.process[m].result.saved);
            assert_true(other.process[m].result.steps == other.process[0].result.steps);
        }
        assert_in_range(other.process[0].result.steps, 4, STEPS - 1);
        other = (scenario){.members = 1 + stopper, .workers = 2, .shards = 8, .run_dir = run};
        for (int m = 0; m < other.members; m++)
            other.resume[m] = run; /* only the first member reads the directory */
        run_scenario(&other);
        all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
        scratch_end(&dir);
    }
}

/* A run of one host whose config gives no number of shards. When the run is resumed on several
 * hosts, it keeps the number of shards with which it began. */
static void one_shard_for_each_device_goes_on_over_hosts(void **state)
{
    (void)state;
    scratch dir;
    char run[400];
    run_in_one_process(&one, 4);
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    other = (scenario){.members = 1, .workers = 4, .run_dir = run, .stop_after_step = 4};
    run_scenario(&other);
    assert_int_equal(other.process[0].status, LS_EINTERRUPTED);
    other = (scenario){.members = 2, .workers = 1, .run_dir = run, .resume = {run, run}};
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    other = (scenario){.members = 2, .workers = 1};
    run_scenario(&other);
    for (int m = 0; m < 2; m++)
        assert_non_null(strstr(other.process[m].err.text, "\"devices\" is for one host"));
    scratch_end(&dir);
}

/* The resumed run has ended already, so no evaluation computes the metric again. The targets are
 * vectors, because then no other value of the run's state determines the metric. (For classes the
 * test accuracy does.) */
static void a_host_that_comes_to_a_resumed_run_tells_its_metric(void **state)
{
    (void)state;
    scratch dir;
    char run[400];
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    one = (scenario){.members = 1, .workers = 1, .shards = 8, .run_dir = run, .values = true};
    run_scenario(&one);
    if (one.process[0].status)
        fail_msg("%s", one.process[0].err.text);
    const ls_result *told = &one.process[0].result;
    assert_string_equal(told->metric, "r2");
    other = (scenario){
        .members = 2, .workers = 1, .shards = 8, .run_dir = run, .resume = {run}, .values = true};
    run_scenario(&other);
    for (int m = 0; m < 2; m++) {
        const process *p = &other.process[m];
        if (p->status)
            fail_msg("member %d: %s", m, p->err.text);
        assert_string_equal(p->result.metric, told->metric);
        if (!(p->result.metric_value == told->metric_value)) /* also fails for NaN */
            fail_msg("member %d: %g, not %g", m, p->result.metric_value, told->metric_value);
        assert_true(p->result.epochs == told->epochs && p->result.steps == told->steps);
    }
    scratch_end(&dir);
}

/* The scales of rows and of several targets are learnt from the first rows of a stream. */
static void scales_are_learnt_alike_on_any_number_of_hosts(void **state)
{
    static const struct {
        int members, workers;
    } runs[] = {{2, 1}, {2, 2}};
    char hash[2][65];
    (void)state;
    for (int i = 0; i < 2; i++) {
        one = (scenario){
            .members = 1,
            .workers = 2,
            .shards = 8,
            .values = true,
            .streamed = true,
            .recipe = {"data.standardize=true", i ? "data.scale_rows=24" : "data.scale_rows=12"}};
        run_scenario(&one);
        if (one.process[0].status)
            fail_msg("%s", one.process[0].err.text);
        memcpy(hash[i], one.process[0].hash, sizeof hash[i]);
    }
    assert_string_not_equal(hash[0], hash[1]);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        other = (scenario){.members = runs[i].members,
                           .workers = runs[i].workers,
                           .shards = 8,
                           .values = true,
                           .streamed = true,
                           .recipe = {"data.standardize=true", "data.scale_rows=24"}};
        run_scenario(&other);
        all_ended_with(&other, hash[1], one.process[0].test_loss);
    }
}

/* ---- losses that are not finite -------------------------------------------------------------- */

/* Workers take the next free shard, so the shard can be any of the host's four. */
static void a_shard_that_is_not_finite_is_named_on_all_hosts(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        other = (scenario){.members = 2, .workers = 2, .shards = 8};
        other.nan[bad] = "worker=1,step=3,kind=nan";
        run_scenario(&other);
        for (int m = 0; m < 2; m++) {
            const char *text = other.process[m].err.text;
            assert_int_equal(other.process[m].status, LS_ENONFINITE);
            const char *named = strstr(text, "shard ");
            int shard = -1, end = 0;
            if (named)
                sscanf(named, "shard %d, on worker 1 of host%n", &shard, &end);
            if (end == 0 || shard / 4 != bad)
                fail_msg("%d, member %d: %s", bad, m, text);
        }
    }
}

static void a_step_that_is_not_finite_is_skipped_on_all_hosts(void **state)
{
    (void)state;
    other = (scenario){
        .members = 2, .workers = 1, .shards = 8, .nan = {NULL, "worker=0,step=3,kind=nan"}};
    other.set[0] = other.set[1] = "on_nonfinite=skip";
    run_scenario(&other);
    for (int m = 0; m < 2; m++)
        if (other.process[m].status)
            fail_msg("member %d: %s", m, other.process[m].err.text);
    assert_string_equal(other.process[0].hash, other.process[1].hash);
}

/* ---- losses --------------------------------------------------------------------------------- */

static void resume_from(const char *run)
{
    other = (scenario){.members = 2, .workers = 1, .shards = 8, .run_dir = run};
    other.resume[0] = other.resume[1] = run;
    run_scenario(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
}

/* A member is lost, in each case at another point of a training step. Each surviving member must
 * save, and each saved run must continue with the same bits. */
static void survivors_of_a_lost_member_save_what_goes_on(void **state)
{
    (void)state;
    run_in_one_process(&one, 8);
    for (unsigned k = ls_tests_rounds(2, 0); k < 3; k++) {
        scratch dir;
        char run[400], saved[MAX_MEMBERS][500];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (scenario){.members = 3,
                           .workers = 1,
                           .shards = 8,
                           .run_dir = run,
                           .victim = (int)k,
                           .kill_at = 120 + 7 * (uint64_t)k};
        run_scenario(&other);
        const int victim = other.victim;
        for (int m = 0; m < 3; m++) {
            const process *p = &other.process[m];
            if (p->status != LS_ESTALLED)
                fail_msg("kill %u, member %d: %s", k, m, p->err.text);
            assert_true(p->result.saved);
            memcpy(saved[m], p->own_dir, sizeof saved[m]);
        }
        for (int m = 0; m < 3; m++)
            if (m != victim)
                resume_from(saved[m]);
        scratch_end(&dir);
    }
}

/* Counts the posts of one of two members in a whole run. */
static uint64_t count_posts(void)
{
    run_in_one_process(&one, 8);
    other = (scenario){.members = 2, .workers = 1, .shards = 8};
    run_scenario(&other);
    return other.posts;
}

/* The last posts of a member belong to two things: the gather in which all members compare their
 * results, and the member's last message. */
static void one_that_is_lost_at_the_very_end_takes_nothing_with_it(void **state)
{
    (void)state;
    const uint64_t posts = count_posts();
    for (uint64_t before = 2; before <= 10; before += ls_tests_rounds(8, 2)) {
        scratch dir;
        char run[400], saved[500];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (scenario){.members = 2,
                           .workers = 1,
                           .shards = 8,
                           .run_dir = run,
                           .victim = 0,
                           .kill_at = posts - before};
        run_scenario(&other);
        const process *survivor = &other.process[1];
        memcpy(saved, survivor->own_dir, sizeof saved);
        if (survivor->status == LS_OK) {
            assert_string_equal(survivor->hash, one.process[0].hash);
        } else {
            assert_int_equal(survivor->status, LS_ESTALLED);
            assert_true(survivor->result.saved);
            resume_from(saved);
        }
        scratch_end(&dir);
    }
}

/* The first host is lost in two runs with the same directory. The second loss must not change the
 * files that remain from the first loss. */
static void the_first_host_may_be_lost_again(void **state)
{
    (void)state;
    scratch dir;
    char run[400], saved[2][500];
    const uint64_t posts = count_posts();
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    for (int k = 0; k < 2; k++) {
        other = (scenario){
            .members = 2, .workers = 1, .shards = 8, .run_dir = run, .kill_at = posts / 2};
        other.resume[0] = other.resume[1] = k ? run : NULL;
        run_scenario(&other);
        assert_int_equal(other.process[1].status, LS_ESTALLED);
        assert_true(other.process[1].result.saved);
        memcpy(saved[k], other.process[1].own_dir, sizeof saved[k]);
    }
    assert_string_not_equal(saved[0], saved[1]);
    resume_from(saved[1]);
    resume_from(saved[0]);
    scratch_end(&dir);
}

/* An error of the transport has the same effect as the silence of the host, but at once. */
static void what_a_transport_calls_an_error_is_a_lost_host(void **state)
{
    (void)state;
    scratch dir;
    char run[400];
    const uint64_t posts = count_posts();
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    other = (scenario){.members = 2, .workers = 1, .shards = 8, .run_dir = run};
    other.victim = 1;
    other.break_at = posts / 2;
    run_scenario(&other);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(other.process[m].status, LS_ESTALLED);
        assert_true(other.process[m].result.saved);
    }
    assert_non_null(strstr(other.process[1].err.text, "the connection broke"));
    resume_from(run);
    scratch_end(&dir);
}

/* The only device of one member fails in the first step, half a second after its begin, so that the
 * run has begun on the other member too. The first member has a run directory from the start, and
 * saves there. The other member would have to create one, and has trained nothing that it could
 * save. */
static void one_that_has_trained_nothing_creates_no_directory(void **state)
{
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        scratch dir;
        char run[400];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (scenario){.members = 2, .workers = 1, .shards = 8, .run_dir = run};
        other.nan[failing] = "worker=0,step=1,kind=fail";
        other.stall = "worker=0,step=1,kind=stall,stage=start,seconds=0.5";
        run_scenario(&other);
        const process *survivor = &other.process[1 - failing];
        if (survivor->status != LS_ESTALLED)
            fail_msg("member %d: %s", 1 - failing, survivor->err.text);
        assert_true(survivor->result.steps == 0);
        assert_int_equal(survivor->result.saved != 0, failing == 1);
        assert_int_equal(survivor->own_dir[0] != '\0', failing == 1);
        scratch_end(&dir);
    }
}

/* ---- members that are not alike ------------------------------------------------------------- */

static void refuses(const char *set, const char *text)
{
    other = (scenario){.members = 2, .workers = 1, .shards = 8, .set = {NULL, set}};
    run_scenario(&other);
    for (int m = 0; m < 2; m++) {
        assert_int_not_equal(other.process[m].status, LS_OK);
        if (!strstr(other.process[m].err.text, text))
            fail_msg("member %d says: %s", m, other.process[m].err.text);
    }
}

static void members_that_are_not_alike_are_told_apart(void **state)
{
    (void)state;
    refuses("seed=9", "has another recipe than host");
    refuses("eval_every=0", "has another recipe than host");
    refuses("patience=1", "metrics.names, cluster.on_host_loss or cluster.on_arrival): give all");
    refuses("monitor=\"loss\"",
            "metrics.names, cluster.on_host_loss or cluster.on_arrival): give all");
    refuses("metrics.names=[\"top5\"]",
            "metrics.names, cluster.on_host_loss or cluster.on_arrival): give all");
    refuses("data.limit=64", "has another recipe than host");
    refuses("model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}]}",
            "has another recipe than host");
}

/* Runs three processes of a launcher, of which the last fails before it joins the others, and
 * checks that these learn why. */
static void others_learn(const char *set, const char *failed, int status, const char *why)
{
    other = (scenario){.members = 3, .workers = 1, .shards = 8, .launched = true, .failed = failed};
    other.set[2] = set;
    run_scenario(&other);
    assert_int_equal(other.process[2].status, status);
    assert_non_null(strstr(other.process[2].err.text, why));
    for (int m = 0; m < 2; m++) {
        const char *left = strstr(other.process[m].err.text, "has left the run: ");
        if (other.process[m].status != LS_ESTALLED || !left || !strstr(left, why))
            fail_msg("member %d: %d, %s", m, other.process[m].status, other.process[m].err.text);
    }
}

static void one_that_fails_before_it_joins_tells_the_others(void **state)
{
    (void)state;
    others_learn(NULL, "its disk is gone", LS_EABORTED, "its disk is gone");
    others_learn("epochs=none", NULL, LS_ECONFIG, "epochs");
}

static void more_hosts_than_shards_are_refused(void **state)
{
    (void)state;
    other = (scenario){.members = 3, .workers = 1, .shards = 2};
    run_scenario(&other);
    assert_non_null(strstr(other.process[0].err.text, "set shards to at least 3"));
}

LS_TESTS(cluster_training, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_hosts_and_workers_gives_the_same_bits),
        cmocka_unit_test(weights_of_rows_have_the_same_effect_over_tcp),
        cmocka_unit_test(a_rate_that_all_processes_set_over_tcp_is_that_of_one),
        cmocka_unit_test(the_record_names_the_devices_of_all_hosts),
        cmocka_unit_test(stopped_by_any_member_it_goes_on_on_any_number),
        cmocka_unit_test(one_shard_for_each_device_goes_on_over_hosts),
        cmocka_unit_test(a_host_that_comes_to_a_resumed_run_tells_its_metric),
        cmocka_unit_test(scales_are_learnt_alike_on_any_number_of_hosts),
        cmocka_unit_test(a_shard_that_is_not_finite_is_named_on_all_hosts),
        cmocka_unit_test(a_step_that_is_not_finite_is_skipped_on_all_hosts),
        cmocka_unit_test(the_first_host_may_be_lost_again),
        cmocka_unit_test(what_a_transport_calls_an_error_is_a_lost_host),
        cmocka_unit_test(survivors_of_a_lost_member_save_what_goes_on),
        cmocka_unit_test(one_that_is_lost_at_the_very_end_takes_nothing_with_it),
        cmocka_unit_test(one_that_has_trained_nothing_creates_no_directory),
        cmocka_unit_test(members_that_are_not_alike_are_told_apart),
        cmocka_unit_test(one_that_fails_before_it_joins_tells_the_others),
        cmocka_unit_test(more_hosts_than_shards_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_training, "nightly")
