/* SPDX-License-Identifier: MIT */
/* Tests of checkpoints that are due but wait until checkpoint.every_seconds have passed. The tests
 * give the clock. After each way in which a run can end, the disk must have the checkpoint that it
 * would have if nothing had waited; only a kill loses what is in memory. */
#include "checkpoint/checkpoint.h"
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/saving.h"
#include "train/train_fixture.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND 1000000000u
#define AT_ONCE "checkpoint={\"keep\":1,\"every_epochs\":1}"
#define POSTPONED "checkpoint={\"keep\":1,\"async\":false}"

/* ---- clocks --------------------------------------------------------------------------------- */

static uint64_t present; /* time of the clock below in nanoseconds */

static uint64_t read_clock(void *user)
{
    (void)user;
    return present;
}

/* A clock on which ten minutes pass between two looks. */
static uint64_t read_hasty_clock(void *user)
{
    (void)user;
    return present += (uint64_t)600 * SECOND;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* A run with a directory, and the events in it. */
typedef struct scenario {
    fixture f;
    scratch files;
    char run_dir[400];
    ls_trainer *trainer;
    uint64_t ticks_at,
        stops_at;      /* step in which the clock passes / the caller interrupts; 0: none */
    uint64_t tick;     /* time to which the clock is set */
    uint64_t looks_at; /* step after which the directory is listed; 0: never */
    uint64_t moves_at; /* step in which the directory of checkpoints is renamed; 0: never */
    char seen[600];    /* that list */
    char log[4096];
    ls_host host;
} scenario;

static void keep_log(void *user, ls_log_level level, const char *text)
{
    scenario *s = user;
    (void)level;
    snprintf(s->log + strlen(s->log), sizeof s->log - strlen(s->log), "%s\n", text);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Lists the checkpoints of the run by their numbers of steps, such as "3 6 doubtful-9". */
static void list_checkpoints(char out[600], const scenario *s)
{
    char path[500], name[16][40];
    int count = 0;
    snprintf(path, sizeof path, "%s/checkpoints", s->run_dir + strlen("run_dir="));
    DIR *directory = opendir(path);
    out[0] = '\0';
    for (const struct dirent *e; directory && (e = readdir(directory)) && count < 16;)
        if (e->d_name[0] != '.')
            snprintf(name[count++], sizeof name[0], "%.39s", e->d_name);
    if (directory)
        closedir(directory);
    qsort(name, (size_t)count, sizeof name[0], compare_names);
    for (int i = 0; i < count; i++)
        sprintf(out + strlen(out), "%s%s%d", i ? " " : "",
                strncmp(name[i], "step-", 5) == 0 ? "" : "doubtful-",
                atoi(strchr(name[i], '-') + 1));
}

static void has_checkpoints(const scenario *s, const char *wanted)
{
    char found[600];
    list_checkpoints(found, s);
    assert_string_equal(found, wanted);
}

static void on_progress(void *user, const ls_progress *p)
{
    scenario *s = user;
    char there[700], elsewhere[700];
    const uint64_t step = (uint64_t)(p->epoch - 1) * 3 + (uint64_t)p->step;
    if (p->epoch_done)
        return;
    if (step == s->looks_at)
        list_checkpoints(s->seen, s);
    if (step == s->ticks_at)
        present = s->tick;
    if (step == s->stops_at)
        ls_trainer_interrupt(s->trainer);
    if (step == s->moves_at) {
        snprintf(there, sizeof there, "%s/checkpoints", s->run_dir + strlen("run_dir="));
        snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", s->run_dir + strlen("run_dir="));
        assert_int_equal(rename(there, elsewhere), 0);
    }
}

/* Prepares a run of three epochs of three steps, whose clock stands still. */
static void begin(scenario *s, const char *checkpoint)
{
    memset(s, 0, sizeof *s);
    present = (uint64_t)1000 * SECOND;
    scratch_begin(&s->files);
    snprintf(s->run_dir, sizeof s->run_dir, "run_dir=%s", scratch_path(&s->files, "run"));
    s->host = (ls_host){.size = sizeof s->host, .log = keep_log, .user = s};
    fixture_begin(&s->f);
    fixture_set(&s->f, s->run_dir);
    fixture_set(&s->f, "epochs=3");
    fixture_set(&s->f, checkpoint);
    s->f.sys.clock = read_clock;
    s->f.options.host = &s->host;
    s->f.callbacks.progress = on_progress;
    s->f.callbacks.record = NULL;
    s->f.callbacks.user = s;
}

/* Runs and closes the trainer. Returns the status of the run; the text of its error is in
 * s->f.err. */
static int run(scenario *s, char hash[65])
{
    s->trainer = fixture_open(&s->f);
    const int status = ls_trainer_run(s->trainer, &s->f.err);
    memcpy(hash, ls_trainer_result(s->trainer)->weights_sha256, 65);
    assert_int_equal(ls_trainer_close(s->trainer, NULL), LS_OK);
    return status;
}

static void end(scenario *s)
{
    fixture_end(&s->f);
    scratch_end(&s->files);
}

/* ---- when ----------------------------------------------------------------------------------- */

static void a_due_checkpoint_waits_as_long_as_the_clock_says(void **state)
{
    static ls_trainer t;
    static char saver;
    const ls_moment epoch = {.occasion = LS_EPOCH_DONE}, asked = {.occasion = LS_ASKED},
                    end = {.occasion = LS_RUN_ENDED}, taken = {.occasion = LS_TAKEN_OVER};
    (void)state;
    t.dir.saver = (struct ls_saver *)(void *)&saver;
    t.config.checkpoint.every_epochs = 1;
    t.config.checkpoint.every_seconds = 10;
    t.position.epoch = 1;
    t.clock = read_clock;
    present = t.dir.saved_ns = (uint64_t)1000 * SECOND;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_LATER);
    present += (uint64_t)10 * SECOND - 1;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_LATER);
    present++;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_MEANWHILE);
    present = 5; /* a clock that has jumped back keeps nothing waiting */
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_MEANWHILE);
    present = t.dir.saved_ns;
    assert_int_equal(ls_checkpoint_due(&t, &asked), LS_DUE_NOW);
    assert_int_equal(ls_checkpoint_due(&t, &end), LS_DUE_NOW);
    assert_int_equal(ls_checkpoint_due(&t, &taken), LS_DUE_MEANWHILE);
    present += (uint64_t)60 * SECOND; /* time alone makes nothing due */
    t.config.checkpoint.every_epochs = 2;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_NOTHING);
    t.config.checkpoint.every_epochs = 1;
    t.config.checkpoint.every_seconds = 0;
    present = t.dir.saved_ns;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_MEANWHILE);
    /* in a run of several hosts the first one's config counts, also after that host was lost */
    t.members.cluster = (struct ls_cluster *)(void *)&saver;
    t.agreement.save_seconds = 10;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_LATER);
    t.config.checkpoint.every_seconds = 10;
    t.agreement.save_seconds = 0;
    assert_int_equal(ls_checkpoint_due(&t, &epoch), LS_DUE_MEANWHILE);
}

/* The directory after each epoch and the weights, for a clock and a config. */
static void clock_gives(uint64_t (*clock)(void *), const char *checkpoint, const char *seen,
                        char hash[65])
{
    scenario s;
    begin(&s, checkpoint);
    s.f.sys.clock = clock;
    s.looks_at = 8; /* in the third epoch */
    assert_int_equal(run(&s, hash), LS_OK);
    assert_string_equal(s.seen, seen);
    has_checkpoints(&s, "9");
    end(&s);
}

static void no_clock_changes_weights_and_all_save_the_end(void **state)
{
    char hash[5][65];
    (void)state;
    clock_gives(read_clock, POSTPONED, "", hash[0]);
    clock_gives(read_hasty_clock, POSTPONED, "6", hash[1]);
    clock_gives(NULL, POSTPONED, "", hash[2]); /* three epochs take less than ten seconds */
    clock_gives(read_clock, "checkpoint={\"keep\":1,\"every_epochs\":1,\"async\":false}", "6",
                hash[3]);
    clock_gives(read_clock, "checkpoint={\"keep\":1,\"every_steps\":2,\"every_seconds\":3}", "",
                hash[4]);
    for (int i = 1; i < 5; i++)
        assert_string_equal(hash[i], hash[0]);
}

/* What waits is written between two steps as soon as the time has passed: the state at the end of
 * the epoch, though training has gone on. */
static void what_waits_is_written_when_its_time_has_passed(void **state)
{
    scenario s;
    char hash[65];
    (void)state;
    for (int back = 0; back < 2; back++) {
        begin(&s, POSTPONED);
        s.ticks_at = 4;
        s.tick = back ? 1 : present + (uint64_t)10 * SECOND;
        s.looks_at = 5;
        assert_int_equal(run(&s, hash), LS_OK);
        assert_string_equal(s.seen, "3");
        has_checkpoints(&s, "9");
        end(&s);
    }
}

/* ---- every end ------------------------------------------------------------------------------ */

/* A way in which a run ends before its last epoch. */
typedef struct ending {
    int status;
    const char *inject, *set;
    uint64_t stops_at;
} ending;

static const ending endings[] = {
    {LS_EINTERRUPTED, NULL, NULL, 5},
    {LS_OK, NULL, "patience=1", 0},
    {LS_ENONFINITE, "worker=0,step=5,kind=nan", NULL, 0},
    {LS_EDEVICE, "worker=0,step=5,kind=fail", "devices=ref:1", 0},
    {LS_EDEVICE, "worker=1,step=5,kind=fail", "on_device_loss=stop", 0},
    {LS_OK, "worker=1,step=5,kind=fail", NULL, 0},
    {LS_EDIVERGED, "worker=1,step=5,kind=corrupt,bit=31", NULL, 0},
};

/* Runs to the ending, lists the checkpoints, and resumes what was not completed. */
static void run_to_ending(const ending *e, const char *checkpoint, char found[600],
                          char message[512], char hash[65])
{
    scenario s;
    begin(&s, checkpoint);
    fixture_set(&s.f, e->set ? e->set : "patience=0");
    fixture_set(&s.f, e->set && strstr(e->set, "patience") ? "optimizer.lr=1e-30" : "shards=4");
    s.stops_at = e->stops_at;
    s.f.sys.inject = &e->inject;
    s.f.sys.inject_count = e->inject != NULL;
    assert_int_equal(run(&s, hash), e->status);
    list_checkpoints(found, &s);
    snprintf(message, 512, "%s", e->status ? s.f.err.text : "");
    if (e->status) {
        s.stops_at = 0;
        s.f.sys.inject_count = 0;
        s.f.options.resume = s.run_dir + strlen("run_dir=");
        assert_int_equal(run(&s, hash), LS_OK);
    }
    end(&s);
}

static void every_end_leaves_what_it_left_when_nothing_waited(void **state)
{
    char found[2][600], message[2][512], hash[2][65], before[65];
    (void)state;
    clock_gives(read_clock, POSTPONED, "", before);
    for (size_t i = 0; i < ROOM(endings); i++) {
        run_to_ending(&endings[i], AT_ONCE, found[0], message[0], hash[0]);
        run_to_ending(&endings[i], POSTPONED, found[1], message[1], hash[1]);
        assert_string_equal(found[1], found[0]);
        assert_true(found[0][0] != '\0');
        assert_int_equal(strlen(message[1]), strlen(message[0])); /* paths are as long */
        assert_string_equal(hash[1], hash[0]);
        if (!endings[i].set || !strstr(endings[i].set, "patience"))
            assert_string_equal(hash[0], before);
    }
}

/* A disk that takes nothing at the end is an error with the same text, and closing the trainer does
 * not add another. */
static void a_full_disk_at_the_end_is_an_error_as_ever(void **state)
{
    static const char *const checkpoint[] = {AT_ONCE, POSTPONED};
    char hash[65], text[2][512];
    scenario s;
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(&s, checkpoint[i]);
        s.moves_at = 8;
        assert_int_equal(run(&s, hash), LS_EIO);
        const char *file = strstr(s.f.err.text, "/checkpoints/");
        assert_non_null(file);
        snprintf(text[i], sizeof text[i], "%s", file);
        assert_int_equal(strlen(hash), 64);
        end(&s);
    }
    assert_string_equal(text[0], text[1]);
}

/* ---- the best ------------------------------------------------------------------------------- */

/* Makes the state after `steps` steps due, whose best evaluation was after `best` steps. */
static void reach(ls_trainer *t, uint64_t steps, uint64_t best)
{
    ls_error err;
    t->position.steps = steps;
    t->position.epoch = (uint32_t)steps / 3;
    t->position.best = (ls_best){.metric = LS_METRIC_LOSS,
                                 .value = 1.0 / (double)best,
                                 .epoch = (uint32_t)best / 3,
                                 .steps = best,
                                 .kept = t->position.best.kept};
    assert_int_equal(ls_copy_replicas(t, true, &err), LS_OK);
    const ls_moment done = {.occasion = LS_EPOCH_DONE, .evaluated = true};
    if (ls_save(t, ls_checkpoint_due(t, &done), &err))
        fail_msg("%s", err.text);
    assert_int_equal(ls_saver_wait(t->dir.saver, &err), LS_OK);
}

/* What a kill would leave now: these checkpoints, of which the newest names a best one that is
 * there. */
static void a_kill_leaves(const scenario *s, const char *wanted, int best)
{
    char path[500], *file = NULL;
    ls_error err;
    has_checkpoints(s, wanted);
    snprintf(path, sizeof path, "%s/checkpoints", s->run_dir + strlen("run_dir="));
    const int status = ls_checkpoints_best(&file, path, NULL, &err);
    if (best == 0) {
        assert_int_equal(status, LS_ENOENT);
        return;
    }
    assert_int_equal(status, LS_OK);
    assert_int_equal(atoi(strrchr(file, '-') + 1), best);
    ls_free(NULL, file);
}

/* Lets the time pass after which what waits is written. */
static void pass_time(scenario *s)
{
    ls_error err;
    present += (uint64_t)10 * SECOND;
    assert_int_equal(ls_save_kept(s->trainer, &err), LS_OK);
    assert_int_equal(ls_saver_wait(s->trainer->dir.saver, &err), LS_OK);
}

static void the_best_waits_in_memory_and_comes_with_the_next_save(void **state)
{
    scenario s;
    (void)state;
    begin(&s, "checkpoint={\"keep\":1,\"best\":true}");
    s.trainer = fixture_open(&s.f);
    reach(s.trainer, 3, 3);
    reach(s.trainer, 6, 3);
    reach(s.trainer, 9, 3);
    a_kill_leaves(&s, "", 0);
    pass_time(&s);
    a_kill_leaves(&s, "3 9", 3);
    reach(s.trainer, 12, 12); /* a better one: a kill loses it, and the former is still there */
    reach(s.trainer, 15, 12);
    a_kill_leaves(&s, "3 9", 3);
    reach(s.trainer, 18, 18); /* better still: the one after 12 steps never was on the disk */
    a_kill_leaves(&s, "3 9", 3);
    reach(s.trainer, 21, 18);
    present += (uint64_t)10 * SECOND;
    reach(s.trainer, 24, 18); /* saved at once, and the best one that waited before it */
    a_kill_leaves(&s, "18 24", 18);
    reach(s.trainer, 27, 27);
    reach(s.trainer, 30, 27);
    assert_int_equal(ls_trainer_close(s.trainer, NULL), LS_OK);
    a_kill_leaves(&s, "27 30", 27);
    end(&s);
}

/* ---- a driven trainer ----------------------------------------------------------------------- */

static int try_step(ls_trainer *t, ls_error *err)
{
    static uint8_t images[OWN_TRAIN * OWN_PIXELS];
    static int32_t labels[OWN_TRAIN];
    for (uint32_t i = 0; i < OWN_TRAIN; i++)
        own_row(0, i, images + (size_t)i * OWN_PIXELS, &labels[i]);
    return own_step(t, images, labels, OWN_TRAIN, NULL, err);
}

static void train_one_step(ls_trainer *t)
{
    ls_error err;
    if (try_step(t, &err))
        fail_msg("%s", err.text);
}

/* Opens a trainer whose caller drives it: each step is an epoch. */
static void begin_driven(scenario *s, const ls_data_source *data, const ls_data_source *sources[1])
{
    begin(s, POSTPONED);
    fixture_use_source(&s->f, data, sources);
    fixture_set(&s->f, "batch_size=96");
    s->trainer = fixture_open(&s->f);
}

static void a_driven_trainer_writes_what_waits_when_it_is_closed_or_loads(void **state)
{
    const ls_data_source data = own_data(1), *sources[1];
    scenario s;
    ls_error err;
    char file[600];
    (void)state;
    begin_driven(&s, &data, sources);
    train_one_step(s.trainer);
    snprintf(file, sizeof file, "%s", scratch_path(&s.files, "one.safetensors"));
    assert_int_equal(ls_trainer_save(s.trainer, file, &err), LS_OK);
    train_one_step(s.trainer);
    has_checkpoints(&s, "");
    assert_int_equal(ls_trainer_load(s.trainer, file, &err), LS_OK);
    has_checkpoints(&s, "2");
    assert_int_equal(ls_trainer_save(s.trainer, NULL, &err), LS_OK);
    train_one_step(s.trainer);
    train_one_step(s.trainer);
    train_one_step(s.trainer);
    has_checkpoints(&s, "1 2");
    present += (uint64_t)10 * SECOND;
    train_one_step(s.trainer);
    has_checkpoints(&s, "4"); /* what waited is written before the epoch ends */
    train_one_step(s.trainer);
    assert_int_equal(ls_trainer_close(s.trainer, NULL), LS_OK);
    has_checkpoints(&s, "6");
    end(&s);
}

/* A driven trainer whose replicas differ writes the last good state, and names it. */
static void a_driven_trainer_that_diverges_names_the_one_that_waited(void **state)
{
    static const char *const fault[] = {"worker=1,step=3,kind=corrupt,bit=31"};
    const ls_data_source data = own_data(1), *sources[1];
    scenario s;
    ls_error err;
    (void)state;
    begin(&s, POSTPONED);
    fixture_use_source(&s.f, &data, sources);
    fixture_set(&s.f, "batch_size=96");
    s.f.sys.inject = fault;
    s.f.sys.inject_count = 1;
    s.trainer = fixture_open(&s.f);
    train_one_step(s.trainer);
    train_one_step(s.trainer);
    assert_int_equal(try_step(s.trainer, &err), LS_EDIVERGED);
    assert_non_null(strstr(err.text, "--resume continues from checkpoints/step-000000002"));
    has_checkpoints(&s, "2");
    ls_trainer_close(s.trainer, NULL);
    end(&s);
}

/* A state that is not finite does not take the place of a good one, and is reported as ever. */
static void a_state_that_is_not_finite_leaves_the_one_that_waits(void **state)
{
    scenario s;
    ls_error err;
    (void)state;
    begin(&s, POSTPONED);
    s.trainer = fixture_open(&s.f);
    assert_int_equal(ls_begin(s.trainer, &err), LS_OK);
    reach(s.trainer, 3, 3);
    s.trainer->position.steps = 6;
    ls_engine_weights(s.trainer->engine)->canonical[0] = NAN;
    assert_int_equal(ls_save(s.trainer, LS_DUE_LATER, &err), LS_OK);
    assert_non_null(strstr(s.log, "a checkpoint could not be saved: "));
    assert_non_null(strstr(s.log, "not worth keeping"));
    ls_error lost;
    assert_int_equal(ls_trainer_close(s.trainer, &lost), LS_ENONFINITE);
    assert_int_equal(lost.status, LS_ENONFINITE);
    assert_non_null(strstr(lost.text, "the last checkpoint was not saved: "));
    has_checkpoints(&s, "3");
    end(&s);
}

LS_TESTS(train_postponed, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_due_checkpoint_waits_as_long_as_the_clock_says),
        cmocka_unit_test(no_clock_changes_weights_and_all_save_the_end),
        cmocka_unit_test(what_waits_is_written_when_its_time_has_passed),
        cmocka_unit_test(every_end_leaves_what_it_left_when_nothing_waited),
        cmocka_unit_test(a_full_disk_at_the_end_is_an_error_as_ever),
        cmocka_unit_test(the_best_waits_in_memory_and_comes_with_the_next_save),
        cmocka_unit_test(a_driven_trainer_writes_what_waits_when_it_is_closed_or_loads),
        cmocka_unit_test(a_driven_trainer_that_diverges_names_the_one_that_waited),
        cmocka_unit_test(a_state_that_is_not_finite_leaves_the_one_that_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
