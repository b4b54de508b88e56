/* When a checkpoint is due, and of which kind: the one function that decides. */
#include "runner.h"
#include "train/saving.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

LS_TESTS(train_saving, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_saved_as_the_config_says),
        cmocka_unit_test(epochs_are_saved_as_the_config_says),
        cmocka_unit_test(the_best_evaluation_is_saved_once),
        cmocka_unit_test(the_end_is_saved_unless_a_loss_was_not_finite),
        cmocka_unit_test(who_takes_over_and_who_asks_is_saved_for),
        cmocka_unit_test(nothing_is_due_without_a_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
