/* SPDX-License-Identifier: MIT */
/* Tests ls_checkpoint_due, which decides when and how a checkpoint is saved, and that an unchanged
 * state is not written twice. */
#define _GNU_SOURCE /* mknod */
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/saving.h"
#include "train/train_fixture.h"

#include <lockstep/model.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

static ls_trainer trainer;

/* Prepares a trainer whose saver is not NULL, so that the functions take it for a run with a
 * directory. The saver is never used. */
static void begin(void)
{
    static char saver;
    memset(&trainer, 0, sizeof trainer);
    trainer.dir.saver = (struct ls_saver *)(void *)&saver;
}

static ls_due due(ls_moment moment)
{
    return ls_checkpoint_due(&trainer, &moment);
}

static void steps_are_saved_as_the_config_says(void **state)
{
    (void)state;
    begin();
    assert_int_equal(due((ls_moment){.occasion = LS_STEP_DONE, .steps = 8}), LS_DUE_NOTHING);
    trainer.config.checkpoint.every_steps = 4;
    assert_int_equal(due((ls_moment){.occasion = LS_STEP_DONE, .steps = 8}), LS_DUE_MEANWHILE);
    assert_int_equal(due((ls_moment){.occasion = LS_STEP_DONE, .steps = 9}), LS_DUE_NOTHING);
}

static void epochs_are_saved_as_the_config_says(void **state)
{
    (void)state;
    begin();
    trainer.config.checkpoint.every_epochs = 2;
    trainer.position.epoch = 2;
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE}), LS_DUE_MEANWHILE);
    trainer.position.epoch = 3;
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE}), LS_DUE_NOTHING);
}

static void the_best_evaluation_is_saved_once(void **state)
{
    (void)state;
    begin();
    trainer.position.steps = 12;
    trainer.position.best = (ls_best){.epoch = 3, .steps = 12};
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE, .evaluated = true}),
                     LS_DUE_NOTHING);
    trainer.config.checkpoint.best = 1;
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE, .evaluated = true}),
                     LS_DUE_MEANWHILE);
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE, .evaluated = false}),
                     LS_DUE_NOTHING);
    trainer.position.steps = 16; /* after another evaluation, which was not better */
    assert_int_equal(due((ls_moment){.occasion = LS_EPOCH_DONE, .evaluated = true}),
                     LS_DUE_NOTHING);
}

static void the_end_is_saved_unless_a_loss_was_not_finite(void **state)
{
    (void)state;
    begin();
    assert_int_equal(due((ls_moment){.occasion = LS_RUN_ENDED, .status = LS_OK}), LS_DUE_NOW);
    assert_int_equal(due((ls_moment){.occasion = LS_RUN_ENDED, .status = LS_EINTERRUPTED}),
                     LS_DUE_NOW);
    assert_int_equal(due((ls_moment){.occasion = LS_RUN_ENDED, .status = LS_EDEVICE}), LS_DUE_NOW);
    assert_int_equal(due((ls_moment){.occasion = LS_RUN_ENDED, .status = LS_ENONFINITE}),
                     LS_DUE_NOTHING);
}

static void who_takes_over_and_who_asks_is_saved_for(void **state)
{
    (void)state;
    begin();
    assert_int_equal(due((ls_moment){.occasion = LS_TAKEN_OVER}), LS_DUE_MEANWHILE);
    assert_int_equal(due((ls_moment){.occasion = LS_ASKED}), LS_DUE_NOW);
}

static void nothing_is_due_without_a_directory(void **state)
{
    (void)state;
    begin();
    trainer.dir.saver = NULL;
    trainer.config.checkpoint.every_steps = trainer.config.checkpoint.every_epochs = 1;
    for (int occasion = LS_STEP_DONE; occasion <= LS_ASKED; occasion++)
        assert_int_equal(due((ls_moment){.occasion = (ls_occasion)occasion, .steps = 1}),
                         LS_DUE_NOTHING);
}

/* Saves a checkpoint after 0 steps. Returns the inode of its file. */
static ino_t saved(ls_trainer *t, const char *run_dir)
{
    char path[700];
    struct stat s;
    ls_error err;
    if (ls_trainer_save(t, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/checkpoints/step-000000000.safetensors", run_dir);
    assert_int_equal(stat(path, &s), 0);
    return s.st_ino;
}

static void any_value_that_changed_is_saved_again_and_times_are_not(void **state)
{
    (void)state;
    scratch files;
    fixture f;
    char set[600];
    scratch_begin(&files);
    snprintf(set, sizeof set, "run_dir=%s", scratch_path(&files, "run"));
    const char *run_dir = set + strlen("run_dir=");
    fixture_begin(&f);
    fixture_set(&f, set);
    ls_trainer *t = fixture_open(&f);
    const ino_t first = saved(t, run_dir);
    t->position.trained_s = t->position.totals.seconds = 2;
    assert_int_equal(saved(t, run_dir), first);
    t->reported.result.test_loss = 0.25;
    const ino_t second = saved(t, run_dir);
    assert_int_not_equal(second, first);
    t->position.totals.loss = 0.5;
    assert_int_not_equal(saved(t, run_dir), second);
    ls_trainer_close(t, NULL);
    f.options.resume = run_dir;
    t = fixture_open(&f);
    assert_true(t->reported.result.test_loss == 0.25 && t->position.totals.loss == 0.5);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    scratch_end(&files);
}

/* ---- saves in the background ---------------------------------------------------------------- */

static char logged[4096];

static void keep_log(void *user, ls_log_level level, const char *text)
{
    (void)user;
    (void)level;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", text);
}

static void train_one_step(ls_trainer *t)
{
    static uint8_t images[OWN_TRAIN * OWN_PIXELS];
    static int32_t labels[OWN_TRAIN];
    ls_error err;
    for (uint32_t i = 0; i < OWN_TRAIN; i++)
        own_row(0, i, images + (size_t)i * OWN_PIXELS, &labels[i]);
    if (own_step(t, images, labels, OWN_TRAIN, NULL, &err))
        fail_msg("%s", err.text);
}

/* What the caller does between a save that fails in the background and ls_trainer_close. */
typedef enum afterwards { CLOSES_AT_ONCE, READS_WEIGHTS, SAVES_AGAIN } afterwards;

/* Drives two steps, and renames the directory of checkpoints before the second. Returns the result
 * of ls_trainer_close. */
static int close_after_failed_save(fixture *f, afterwards then)
{
    static float weights[1 << 16];
    const ls_host host = {.size = sizeof host, .log = keep_log};
    const ls_data_source data = own_data(1), *sources[1];
    char set[600], from[700], to[700];
    scratch files;
    ls_error err;
    scratch_begin(&files);
    snprintf(set, sizeof set, "run_dir=%s", scratch_path(&files, "run"));
    snprintf(from, sizeof from, "%s/checkpoints", set + strlen("run_dir="));
    snprintf(to, sizeof to, "%s/elsewhere", set + strlen("run_dir="));
    logged[0] = '\0';
    fixture_begin(f);
    fixture_use_source(f, &data, sources);
    fixture_set(f, set);
    fixture_set(f, "batch_size=96");
    fixture_set(f, "checkpoint.every_steps=1");
    f->options.host = &host;
    ls_trainer *t = fixture_open(f);
    train_one_step(t);
    assert_int_equal(ls_trainer_weights(t, weights, ROOM(weights), &err), LS_OK);
    assert_int_equal(rename(from, to), 0);
    train_one_step(t);
    if (then != CLOSES_AT_ONCE)
        assert_int_equal(ls_trainer_weights(t, weights, ROOM(weights), &err), LS_OK);
    if (then == SAVES_AGAIN) {
        assert_int_equal(rename(to, from), 0);
        assert_int_equal(ls_trainer_save(t, NULL, &err), LS_OK);
    }
    const int status = ls_trainer_close(t, NULL);
    scratch_end(&files);
    return status;
}

static void closing_returns_the_error_of_the_last_checkpoint(void **state)
{
    (void)state;
    fixture f;
    for (int then = CLOSES_AT_ONCE; then <= READS_WEIGHTS; then++) {
        assert_int_equal(close_after_failed_save(&f, (afterwards)then), LS_EIO);
        assert_non_null(strstr(logged, "a checkpoint could not be saved: "));
        const char *end = fixture_record(&f, "run_end", 0);
        assert_non_null(strstr(end, "\"status\":\"failed\""));
        assert_non_null(strstr(end, "/checkpoints/"));
        fixture_end(&f);
    }
}

static void a_later_checkpoint_makes_up_for_one_that_failed(void **state)
{
    (void)state;
    fixture f;
    assert_int_equal(close_after_failed_save(&f, SAVES_AGAIN), LS_OK);
    assert_non_null(strstr(logged, "a checkpoint could not be saved: "));
    assert_non_null(strstr(fixture_record(&f, "run_end", 0), "\"status\":\"finished\""));
    fixture_end(&f);
}

/* ---- files that a caller names --------------------------------------------------------------- */

static void is_refused(int status, const char *path, const ls_error *err)
{
    assert_int_equal(status, LS_EINVAL);
    assert_non_null(strstr(err->text, path));
    assert_non_null(strstr(err->text, "\": expected the name of a file, found a "));
}

/* Every function that writes to a path of the caller refuses to replace what stands there. */
static void no_function_replaces(const char *path)
{
    fixture f;
    ls_error err;
    ls_model *snapshot;
    ls_trainer *t;
    struct stat before, after;
    assert_int_equal(lstat(path, &before), 0);
    fixture_begin(&f);
    t = fixture_open(&f);
    is_refused(ls_trainer_save(t, path, &err), path, &err);
    assert_int_equal(ls_trainer_model(&snapshot, t, &err), LS_OK);
    is_refused(ls_model_save(snapshot, path, &err), path, &err);
    is_refused(ls_model_export(snapshot, path, &err), path, &err);
    ls_model_release(snapshot);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    f.options.trace_path = path;
    is_refused(ls_trainer_open(&t, &f.options, &err), path, &err);
    fixture_end(&f);
    assert_int_equal(lstat(path, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_ino, before.st_ino);
}

static void devices_pipes_and_directories_are_never_replaced(void **state)
{
    (void)state;
    scratch files;
    scratch_begin(&files);
    scratch_directory(&files, "d");
    no_function_replaces(scratch_path(&files, "d"));
    assert_int_equal(mkfifo(scratch_path(&files, "pipe"), 0600), 0);
    no_function_replaces(scratch_path(&files, "pipe"));
    if (mknod(scratch_path(&files, "null"), S_IFCHR | 0666, makedev(1, 3)) == 0) /* root only */
        no_function_replaces(scratch_path(&files, "null"));
    scratch_end(&files);
}

/* Fails the test unless `link` is still a link, and its target `file` has changed. */
static void was_written_through(const char *link, const char *file, off_t *size)
{
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(file, &st), 0);
    assert_true(st.st_size > 0 && st.st_size != *size);
    *size = st.st_size;
}

static void links_lead_every_function_to_their_target(void **state)
{
    (void)state;
    scratch files;
    fixture f;
    ls_error err;
    ls_model *snapshot;
    char link[600], file[600];
    off_t size = 0;
    scratch_begin(&files);
    scratch_directory(&files, "store");
    snprintf(link, sizeof link, "%s", scratch_path(&files, "current"));
    snprintf(file, sizeof file, "%s", scratch_path(&files, "store/1"));
    assert_int_equal(symlink("store/1", link), 0); /* leads to no file yet */
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_save(t, link, &err), LS_OK);
    was_written_through(link, file, &size);
    assert_int_equal(ls_trainer_model(&snapshot, t, &err), LS_OK);
    assert_int_equal(ls_model_save(snapshot, link, &err), LS_OK);
    was_written_through(link, file, &size);
    assert_int_equal(ls_model_export(snapshot, link, &err), LS_OK);
    was_written_through(link, file, &size);
    ls_model_release(snapshot);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    f.options.trace_path = link;
    ls_trainer_close(fixture_run(&f), NULL);
    was_written_through(link, file, &size);
    fixture_end(&f);
    scratch_end(&files);
}

/* ---- a disk that hangs ---------------------------------------------------------------------- */

static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t disk_answers = PTHREAD_COND_INITIALIZER;
static bool disk_hangs;

/* Replaces the C library's function in this program. While `disk_hangs` is set, no call returns. */
int fsync(int fd)
{
    pthread_mutex_lock(&disk_lock);
    while (disk_hangs)
        pthread_cond_wait(&disk_answers, &disk_lock);
    pthread_mutex_unlock(&disk_lock);
    return fdatasync(fd);
}

static void set_disk(bool hangs)
{
    pthread_mutex_lock(&disk_lock);
    disk_hangs = hangs;
    pthread_mutex_unlock(&disk_lock);
}

static void is_the_disk_there(int status, const ls_error *err)
{
    assert_int_equal(status, LS_ESTALLED);
    assert_non_null(strstr(err->text, "/checkpoints: writing a checkpoint has taken longer than"));
    assert_non_null(strstr(err->text, "is the disk there?"));
}

/* Prepares a run with a directory. */
static void begin_on_disk(fixture *f, scratch *files, char set[600])
{
    scratch_begin(files);
    snprintf(set, 600, "run_dir=%s", scratch_path(files, "run"));
    fixture_begin(f);
    fixture_set(f, set);
    set_disk(false); /* a test that failed can have left it hanging */
}

/* From now on no sync returns, and a save counts as hanging after a thousandth of a second. A save
 * that takes longer only because the machine is busy ends the run in the same way, so no verdict
 * depends on the clock. */
static void hang_disk(const ls_trainer *t)
{
    set_disk(true);
    ls_saver_limit(t->dir.saver, 1000000);
}

/* The trainer whose progress callback makes the disk hang, and what the callback does besides. */
static struct {
    ls_trainer *trainer;
    int epochs; /* number of epochs that are done when the disk begins to hang */
    bool interrupts;
} hanging;

static void hang_after_epoch(void *user, const ls_progress *p)
{
    (void)user;
    if (!p->epoch_done || p->epoch != hanging.epochs)
        return;
    hang_disk(hanging.trainer);
    if (hanging.interrupts)
        ls_trainer_interrupt(hanging.trainer);
}

/* Ends a test on a hanging disk. Of the fixture only the records are freed: the memory of the
 * trainer, its registry among it, belongs to the thread that hung. If that thread had not reached
 * its sync before, it can end here. Therefore the trainer is kept where the leak checker of a
 * sanitizer finds it. */
static void leave_hanging(fixture *f, ls_trainer *t)
{
    static ls_trainer *left[16];
    static size_t count;
    assert_in_range(count, 0, ROOM(left) - 1);
    left[count++] = t;
    set_disk(false);
    for (int i = 0; i < f->records && i < FIXTURE_RECORDS; i++)
        free(f->record[i]);
}

/* Runs three epochs, each of which is saved as `when` says. The disk hangs after epoch `epochs`. */
static void run_on_hanging_disk(int epochs, bool interrupts, const char *when, const char *async)
{
    fixture f;
    scratch files;
    char set[600];
    ls_error err;
    begin_on_disk(&f, &files, set);
    fixture_set(&f, "epochs=3");
    fixture_set(&f, when);
    fixture_set(&f, async);
    f.callbacks.progress = hang_after_epoch;
    ls_trainer *t = fixture_open(&f);
    hanging.trainer = t;
    hanging.epochs = epochs;
    hanging.interrupts = interrupts;
    is_the_disk_there(ls_trainer_run(t, &err), &err);
    assert_int_equal(ls_trainer_close(t, &err), LS_ESTALLED);
    assert_non_null(strstr(err.text, "a worker or a save has not returned"));
    leave_hanging(&f, t);
}

static void a_run_on_a_hanging_disk_ends_and_asks_for_the_disk(void **state)
{
    (void)state;
    run_on_hanging_disk(1, false, "checkpoint.every_epochs=1", "checkpoint.async=true");
}

static void a_run_whose_last_save_hangs_ends_too(void **state)
{
    (void)state;
    run_on_hanging_disk(3, false, "checkpoint.every_epochs=1", "checkpoint.async=true");
}

static void a_run_that_waits_for_each_save_ends_too(void **state)
{
    (void)state;
    run_on_hanging_disk(1, false, "checkpoint.every_epochs=1", "checkpoint.async=false");
}

static void an_interrupted_run_on_a_hanging_disk_ends_too(void **state)
{
    (void)state;
    run_on_hanging_disk(1, true, "checkpoint.every_epochs=1", "checkpoint.async=true");
}

/* A checkpoint that waits in memory is written before the end. */
static void a_run_whose_waiting_checkpoint_hangs_ends_too(void **state)
{
    (void)state;
    run_on_hanging_disk(2, true, "checkpoint.every_seconds=10", "checkpoint.async=true");
    run_on_hanging_disk(3, false, "checkpoint.every_seconds=10", "checkpoint.async=true");
}

static void each_call_of_a_driven_trainer_asks_for_the_disk(void **state)
{
    (void)state;
    static float weights[1 << 16];
    const ls_data_source data = own_data(1), *sources[1];
    fixture f;
    scratch files;
    char set[600];
    ls_error err;
    ls_model *snapshot;
    begin_on_disk(&f, &files, set);
    fixture_use_source(&f, &data, sources);
    fixture_set(&f, "batch_size=96");
    fixture_set(&f, "checkpoint.every_epochs=0");
    fixture_set(&f, "checkpoint.async=true");
    fixture_set(&f, "checkpoint.every_steps=1");
    ls_trainer *t = fixture_open(&f);
    hang_disk(t);
    train_one_step(t);
    is_the_disk_there(ls_trainer_load(t, "none.safetensors", &err), &err);
    is_the_disk_there(ls_trainer_weights(t, weights, ROOM(weights), &err), &err);
    is_the_disk_there(ls_trainer_model(&snapshot, t, &err), &err);
    is_the_disk_there(ls_trainer_save(t, NULL, &err), &err);
    assert_int_equal(ls_trainer_close(t, &err), LS_ESTALLED);
    assert_non_null(strstr(err.text, "a worker or a save has not returned"));
    leave_hanging(&f, t);
}

LS_TESTS(train_saving, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_saved_as_the_config_says),
        cmocka_unit_test(epochs_are_saved_as_the_config_says),
        cmocka_unit_test(the_best_evaluation_is_saved_once),
        cmocka_unit_test(the_end_is_saved_unless_a_loss_was_not_finite),
        cmocka_unit_test(who_takes_over_and_who_asks_is_saved_for),
        cmocka_unit_test(nothing_is_due_without_a_directory),
        cmocka_unit_test(any_value_that_changed_is_saved_again_and_times_are_not),
        cmocka_unit_test(closing_returns_the_error_of_the_last_checkpoint),
        cmocka_unit_test(a_later_checkpoint_makes_up_for_one_that_failed),
        cmocka_unit_test(devices_pipes_and_directories_are_never_replaced),
        cmocka_unit_test(links_lead_every_function_to_their_target),
        cmocka_unit_test(a_run_on_a_hanging_disk_ends_and_asks_for_the_disk),
        cmocka_unit_test(a_run_whose_last_save_hangs_ends_too),
        cmocka_unit_test(a_run_that_waits_for_each_save_ends_too),
        cmocka_unit_test(an_interrupted_run_on_a_hanging_disk_ends_too),
        cmocka_unit_test(a_run_whose_waiting_checkpoint_hangs_ends_too),
        cmocka_unit_test(each_call_of_a_driven_trainer_asks_for_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
