/* Whole runs over several processes, each a thread here, over the double of the wire. */
#include "cluster/wire_double.h"
#include "data/scratch.h"
#include "train/train_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STEPS 9 /* three epochs of 3 */

enum { MOST = 4 };

typedef struct process {
    fixture f;
    pthread_t thread;
    wire_place place;
    char devices[32], shards[32], deadline[48], run_dir[420];
    ls_trainer *trainer;
    uint64_t stop_behind; /* this step: asked to stop; 0: never */
    int status, records;
    ls_error err;
    ls_result result;
    double test_loss;
    char hash[65], checkpoint[4200], own_dir[500], started[4200]; /* its first record */
} process;

typedef struct story {
    int members, workers, shards;
    const char *run_dir; /* NULL: none */
    const char *resume[MOST];
    int stopper;
    uint64_t stop_behind;
    int victim;
    uint64_t kill_at;      /* a post; 0: never */
    uint64_t break_at;     /* the same; its engine says so */
    const char *nan[MOST]; /* --inject of one member */
    uint64_t posts;        /* of the victim, in all */
    const char *set[MOST]; /* of one member */
    process process[MOST];
} story;

static void on_progress(void *user, const ls_progress *p)
{
    process *mine = user;
    const uint64_t steps = (uint64_t)(p->epoch - 1) * p->steps + p->step;
    if (mine->stop_behind && steps == mine->stop_behind && !p->epoch_done)
        ls_trainer_interrupt(mine->trainer);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    process *mine = user;
    (void)err;
    if (mine->records++ == 0)
        snprintf(mine->started, sizeof mine->started, "%.*s", (int)length, json);
    return LS_OK;
}

/* Momentum, batch norm, augmentation, dropout and a schedule: all that a step depends on. */
static void prepare(story *s, int m)
{
    process *p = &s->process[m];
    fixture_begin(&p->f);
    snprintf(p->devices, sizeof p->devices, "devices=ref:%d", s->workers);
    if (s->shards > 0)
        snprintf(p->shards, sizeof p->shards, "shards=%d", s->shards);
    else
        snprintf(p->shards, sizeof p->shards, "shards=\"devices\"");
    fixture_set(&p->f, "epochs=3");
    fixture_set(&p->f, p->devices);
    fixture_set(&p->f, p->shards);
    fixture_set(&p->f, "cluster.deadline_s=0.6");
    fixture_set(&p->f,
                "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                "{\"type\":\"dropout\",\"p\":0.25},{\"type\":\"dense\",\"out\":10}]}");
    fixture_set(&p->f, "augment={\"crop\":2,\"flip\":true}");
    fixture_set(&p->f, "schedule={\"name\":\"cosine\",\"warmup_epochs\":1}");
    snprintf(p->run_dir, sizeof p->run_dir, "run_dir=%s", s->run_dir ? s->run_dir : "");
    if (s->run_dir)
        fixture_set(&p->f, p->run_dir);
    if (s->set[m])
        fixture_set(&p->f, s->set[m]);
    p->stop_behind = s->stop_behind && m == s->stopper ? s->stop_behind : 0;
    p->f.options.progress = on_progress;
    p->f.options.record = on_record;
    p->f.options.user = p;
    p->f.options.resume = s->resume[m];
    p->f.options.inject = &s->nan[m];
    p->f.options.inject_count = s->nan[m] != NULL;
}

static void *run_process(void *arg)
{
    process *p = arg;
    p->status = ls_trainer_open(&p->trainer, &p->f.options, &p->err);
    if (p->status)
        return NULL;
    p->status = ls_trainer_run(p->trainer, &p->err);
    p->result = *ls_trainer_result(p->trainer);
    p->test_loss = p->result.test_loss;
    memcpy(p->hash, p->result.weights_sha256, sizeof p->hash);
    snprintf(p->own_dir, sizeof p->own_dir, "%s", ls_trainer_summary(p->trainer)->run_dir);
    ls_trainer_close(p->trainer);
    return NULL;
}

static void tell(story *s)
{
    wire_world *world = s->members > 1 ? wire_world_create(s->members) : NULL;
    if (world)
        wire_world_delay(world, 300000, (unsigned)(s->members * 10 + s->workers));
    if (s->kill_at)
        wire_world_kill_at(world, s->victim, s->kill_at);
    if (s->break_at)
        wire_world_break_at(world, s->victim, s->break_at);
    for (int m = 0; m < s->members; m++) {
        process *p = &s->process[m];
        memset(p, 0, sizeof *p);
        prepare(s, m);
        p->place = (wire_place){world, m};
        p->f.options.wire = world ? &wire_double : NULL;
        p->f.options.comm = world ? &p->place : NULL;
        assert_int_equal(pthread_create(&p->thread, NULL, run_process, p), 0);
    }
    for (int m = 0; m < s->members; m++) {
        pthread_join(s->process[m].thread, NULL);
        fixture_end(&s->process[m].f);
    }
    if (world) {
        s->posts = wire_world_posts(world, s->victim);
        wire_world_destroy(world);
    }
}

static void all_ended_with(const story *s, const char *hash, double test_loss)
{
    for (int m = 0; m < s->members; m++) {
        const process *p = &s->process[m];
        if (p->status)
            fail_msg("%d × %d, %d shards, member %d: %s", s->members, s->workers, s->shards, m,
                     p->err.text);
        assert_string_equal(p->hash, hash);
        assert_true(p->test_loss == test_loss);
        assert_int_equal(p->records > 0, m == 0);
    }
}

static void alone(story *s, int shards)
{
    *s = (story){.members = 1, .workers = 2, .shards = shards};
    tell(s);
    assert_int_equal(s->process[0].status, LS_OK);
}

/* ---- bits ----------------------------------------------------------------------------------- */

static story one, other;

static void any_number_of_hosts_and_workers_gives_the_same_bits(void **state)
{
    (void)state;
    static const int shards[] = {7, 8, 12, 24};
    for (size_t i = 0; i < (SLOW_BUILD ? 1 : sizeof shards / sizeof *shards); i++) {
        alone(&one, shards[i]);
        for (int members = 2; members <= MOST; members++)
            for (int workers = 1; workers <= 3; workers++) {
                other = (story){.members = members, .workers = workers, .shards = shards[i]};
                tell(&other);
                all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
            }
    }
}

static void the_record_names_the_devices_of_all_hosts(void **state)
{
    (void)state;
    char host[40], expected[300];
    gethostname(host, sizeof host);
    other = (story){.members = 2, .workers = 2, .shards = 8};
    tell(&other);
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
    alone(&one, 8);
    for (int stopper = 0; stopper < 3; stopper++) {
        scratch dir;
        char run[400];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (story){.members = 3,
                        .workers = 1,
                        .shards = 8,
                        .run_dir = run,
                        .stopper = stopper,
                        .stop_behind = 3 + (uint64_t)stopper};
        tell(&other);
        for (int m = 0; m < 3; m++) {
            assert_int_equal(other.process[m].status, LS_EINTERRUPTED);
            assert_true(other.process[m].result.saved);
            assert_true(other.process[m].result.steps == other.process[0].result.steps);
        }
        assert_in_range(other.process[0].result.steps, 4, STEPS - 1);
        other = (story){.members = 1 + stopper, .workers = 2, .shards = 8, .run_dir = run};
        for (int m = 0; m < other.members; m++)
            other.resume[m] = run; /* which the first alone looks at */
        tell(&other);
        all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
        scratch_end(&dir);
    }
}

/* A run of one host that gave no number: its own goes on. */
static void one_shard_for_each_device_goes_on_over_hosts(void **state)
{
    (void)state;
    scratch dir;
    char run[400];
    alone(&one, 4);
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    other = (story){.members = 1, .workers = 4, .run_dir = run, .stop_behind = 4};
    tell(&other);
    assert_int_equal(other.process[0].status, LS_EINTERRUPTED);
    other = (story){.members = 2, .workers = 1, .run_dir = run, .resume = {run, run}};
    tell(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
    other = (story){.members = 2, .workers = 1};
    tell(&other);
    for (int m = 0; m < 2; m++)
        assert_non_null(strstr(other.process[m].err.text, "\"devices\" is for one host"));
    scratch_end(&dir);
}

/* ---- losses that are not finite -------------------------------------------------------------- */

static void a_shard_that_is_not_finite_is_named_on_all_hosts(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        other = (story){.members = 2, .workers = 2, .shards = 8};
        other.nan[bad] = "worker=1,step=3,kind=nan";
        tell(&other);
        for (int m = 0; m < 2; m++) {
            const char *text = other.process[m].err.text;
            assert_int_equal(other.process[m].status, LS_ENONFINITE);
            if (!strstr(text,
                        bad ? "shard 6, on worker 1 of host" : "shard 2, on worker 1 of host"))
                fail_msg("%d, member %d: %s", bad, m, text);
        }
    }
}

static void a_step_that_is_not_finite_is_skipped_on_all_hosts(void **state)
{
    (void)state;
    other =
        (story){.members = 2, .workers = 1, .shards = 8, .nan = {NULL, "worker=0,step=3,kind=nan"}};
    other.set[0] = other.set[1] = "on_nonfinite=skip";
    tell(&other);
    for (int m = 0; m < 2; m++)
        if (other.process[m].status)
            fail_msg("member %d: %s", m, other.process[m].err.text);
    assert_string_equal(other.process[0].hash, other.process[1].hash);
}

/* ---- losses --------------------------------------------------------------------------------- */

static void resume_from(const char *run)
{
    other = (story){.members = 2, .workers = 1, .shards = 8, .run_dir = run};
    other.resume[0] = other.resume[1] = run;
    tell(&other);
    all_ended_with(&other, one.process[0].hash, one.process[0].test_loss);
}

/* At different points of a step; each survivor has saved, and each save goes on with the same bits. */
static void survivors_of_a_lost_member_save_what_goes_on(void **state)
{
    (void)state;
    alone(&one, 8);
    for (int k = 0; k < (SLOW_BUILD ? 2 : 3); k++) {
        scratch dir;
        char run[400], saved[MOST][500];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (story){.members = 3,
                        .workers = 1,
                        .shards = 8,
                        .run_dir = run,
                        .victim = k % 3,
                        .kill_at = 120 + 7 * (uint64_t)k};
        tell(&other);
        const int victim = other.victim;
        for (int m = 0; m < 3; m++) {
            const process *p = &other.process[m];
            if (p->status != LS_ESTALLED)
                fail_msg("kill %d, member %d: %s", k, m, p->err.text);
            assert_true(p->result.saved);
            memcpy(saved[m], p->own_dir, sizeof saved[m]);
        }
        for (int m = 0; m < 3; m++)
            if (m != victim)
                resume_from(saved[m]);
        scratch_end(&dir);
    }
}

/* Of a member of two, in a whole run. */
static uint64_t count_posts(void)
{
    alone(&one, 8);
    other = (story){.members = 2, .workers = 1, .shards = 8};
    tell(&other);
    return other.posts;
}

/* Its last posts are those of the gather in which all compare what they have come to, and of its goodbye. */
static void one_that_is_lost_at_the_very_end_takes_nothing_with_it(void **state)
{
    (void)state;
    const uint64_t posts = count_posts();
    for (uint64_t before = 2; before <= 10; before += SLOW_BUILD ? 4 : 2) {
        scratch dir;
        char run[400], saved[500];
        scratch_begin(&dir);
        snprintf(run, sizeof run, "%s/run", dir.directory);
        other = (story){.members = 2,
                        .workers = 1,
                        .shards = 8,
                        .run_dir = run,
                        .victim = 0,
                        .kill_at = posts - before};
        tell(&other);
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

/* Of the first host, twice in one directory: what the first loss has left is left alone. */
static void the_first_host_may_be_lost_again(void **state)
{
    (void)state;
    scratch dir;
    char run[400], saved[2][500];
    const uint64_t posts = count_posts();
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    for (int k = 0; k < 2; k++) {
        other =
            (story){.members = 2, .workers = 1, .shards = 8, .run_dir = run, .kill_at = posts / 2};
        other.resume[0] = other.resume[1] = k ? run : NULL;
        tell(&other);
        assert_int_equal(other.process[1].status, LS_ESTALLED);
        assert_true(other.process[1].result.saved);
        memcpy(saved[k], other.process[1].own_dir, sizeof saved[k]);
    }
    assert_string_not_equal(saved[0], saved[1]);
    resume_from(saved[1]);
    resume_from(saved[0]);
    scratch_end(&dir);
}

/* As one that is silent, but at once. */
static void what_an_engine_calls_an_error_is_a_lost_host(void **state)
{
    (void)state;
    scratch dir;
    char run[400];
    const uint64_t posts = count_posts();
    scratch_begin(&dir);
    snprintf(run, sizeof run, "%s/run", dir.directory);
    other = (story){.members = 2, .workers = 1, .shards = 8, .run_dir = run};
    other.victim = 1;
    other.break_at = posts / 2;
    tell(&other);
    for (int m = 0; m < 2; m++) {
        assert_int_equal(other.process[m].status, LS_ESTALLED);
        assert_true(other.process[m].result.saved);
    }
    assert_non_null(strstr(other.process[1].err.text, "the connection broke"));
    resume_from(run);
    scratch_end(&dir);
}

/* ---- members that are not alike ------------------------------------------------------------- */

static void refuses(const char *set, const char *text)
{
    other = (story){.members = 2, .workers = 1, .shards = 8, .set = {NULL, set}};
    tell(&other);
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
    refuses("patience=1", "patience, monitor or metrics.names): give all");
    refuses("monitor=\"loss\"", "patience, monitor or metrics.names): give all");
    refuses("metrics.names=[\"top5\"]", "patience, monitor or metrics.names): give all");
    refuses("data.limit=64", "has another recipe than host");
    refuses("model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}]}",
            "has another recipe than host");
}

static void more_hosts_than_shards_are_refused(void **state)
{
    (void)state;
    other = (story){.members = 3, .workers = 1, .shards = 2};
    tell(&other);
    assert_non_null(strstr(other.process[0].err.text, "set shards to at least 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_hosts_and_workers_gives_the_same_bits),
        cmocka_unit_test(the_record_names_the_devices_of_all_hosts),
        cmocka_unit_test(stopped_by_any_member_it_goes_on_on_any_number),
        cmocka_unit_test(one_shard_for_each_device_goes_on_over_hosts),
        cmocka_unit_test(a_shard_that_is_not_finite_is_named_on_all_hosts),
        cmocka_unit_test(a_step_that_is_not_finite_is_skipped_on_all_hosts),
        cmocka_unit_test(the_first_host_may_be_lost_again),
        cmocka_unit_test(what_an_engine_calls_an_error_is_a_lost_host),
        cmocka_unit_test(survivors_of_a_lost_member_save_what_goes_on),
        cmocka_unit_test(one_that_is_lost_at_the_very_end_takes_nothing_with_it),
        cmocka_unit_test(members_that_are_not_alike_are_told_apart),
        cmocka_unit_test(more_hosts_than_shards_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
