/* The function that decides when a checkpoint is due, and of which kind; and when the same
 * checkpoint is not written again. */
#include "data/scratch.h"
#include "runner.h"
#include "train/saving.h"
#include "train/train_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static ls_trainer trainer;

/* A run that has a directory: what writes there is not asked for anything. */
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
    trainer.position.steps = 16; /* another evaluation, which was not better */
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

/* Saves after step 0, before any steps were trained. Returns the file's inode. */
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
    t->told.result.test_loss = 0.25;
    const ino_t second = saved(t, run_dir);
    assert_int_not_equal(second, first);
    t->position.totals.loss = 0.5;
    assert_int_not_equal(saved(t, run_dir), second);
    ls_trainer_close(t);
    f.options.resume = run_dir;
    t = fixture_open(&f);
    assert_true(t->told.result.test_loss == 0.25 && t->position.totals.loss == 0.5);
    ls_trainer_close(t);
    fixture_end(&f);
    scratch_end(&files);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
