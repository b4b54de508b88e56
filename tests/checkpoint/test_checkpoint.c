/* SPDX-License-Identifier: MIT */
/* Tests of a directory of checkpoints: the newest complete checkpoint is found, and old ones are
 * removed. */
#include "checkpoint/checkpoint.h"

#include "base/host.h"
#include "data/scratch.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char recipe[] = "{\"model\": {\"layers\": [{\"type\": \"flatten\"},"
                             " {\"type\": \"dense\", \"name\": \"exp_avg.a\", \"out\": 3},"
                             " {\"type\": \"dense\", \"name\": \"a\", \"out\": 2}]},"
                             " \"optimizer\": {\"name\": \"adamw\", \"lr\": 1}}";

typedef struct place {
    scratch files;
    ls_network *model;
    ls_optimizer optimizer;
    float *values[3], *slot[2];
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    ls_json *doc;
    scratch_begin(&p->files);
    assert_int_equal(ls_json_parse(&doc, "r", recipe, strlen(recipe), NULL, NULL), LS_OK);
    const cJSON *root = ls_json_root(doc);
    assert_int_equal(ls_network_parse(&p->model, doc,
                                      cJSON_GetObjectItemCaseSensitive(root, "model"),
                                      (ls_shape){1, 2, 2}, 2, NULL, NULL),
                     LS_OK);
    assert_int_equal(ls_optimizer_parse(&p->optimizer, doc,
                                        cJSON_GetObjectItemCaseSensitive(root, "optimizer"), NULL),
                     LS_OK);
    ls_json_destroy(doc);
    for (int i = 0; i < 3; i++)
        p->values[i] = calloc(p->model->floats, sizeof(float));
    p->slot[0] = p->values[1];
    p->slot[1] = p->values[2];
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    for (int i = 0; i < 3; i++)
        free(p->values[i]);
    ls_network_destroy(p->model, NULL);
    scratch_end(&p->files);
    free(p);
    return 0;
}

static ls_checkpoint_values values_of(const place *p)
{
    return (ls_checkpoint_values){p->values[0], p->slot};
}

/* Saves the checkpoint after `steps` steps; its state is `text`. */
static void save(place *p, uint64_t steps, const char *text)
{
    char name[LS_CHECKPOINT_NAME];
    ls_error err = {0};
    const ls_checkpoint_values values = values_of(p);
    ls_checkpoint_name(name, steps);
    if (ls_checkpoint_write(scratch_path(&p->files, name), p->model, &p->optimizer, &values, text,
                            NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static const char *file_of(place *p, uint64_t steps)
{
    char name[LS_CHECKPOINT_NAME];
    ls_checkpoint_name(name, steps);
    return scratch_path(&p->files, name);
}

static void damage(place *p, uint64_t steps)
{
    assert_int_equal(truncate(file_of(p, steps), 200), 0);
}

static void count(void *user, ls_log_level level, const char *text)
{
    assert_int_equal(level, LS_LOG_WARNING);
    assert_non_null(strstr(text, "is damaged, so an older one is used"));
    assert_non_null(strstr(text, "offset"));
    ++*(int *)user;
}

/* Fails the test unless the newest complete checkpoint has the state `text`, and `passed_over`
 * newer checkpoints, which are damaged, were skipped. */
static void assert_latest(place *p, const char *text, int passed_over)
{
    char *path, *state;
    int skipped = 0;
    const ls_host host = {.size = sizeof host, .log = count, .user = &skipped};
    ls_error err = {0};
    int rc = ls_checkpoints_latest(&path, &state, p->files.directory, true, &host, &err);
    if (rc != LS_OK)
        fail_msg("%s", err.text);
    assert_string_equal(state, text);
    assert_int_equal(skipped, passed_over);
    assert_int_equal(access(path, F_OK), 0);
    ls_free(NULL, path);
    ls_free(NULL, state);
}

/* Reads the checkpoint after 5 steps into p->values. */
static int read_back(place *p, ls_error *err)
{
    const ls_checkpoint_values values = values_of(p);
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, file_of(p, 5), NULL, err);
    if (status == LS_OK)
        status = ls_checkpoint_read(&values, file, p->model, &p->optimizer, NULL, err);
    ls_tensor_file_close(file);
    return status;
}

static void all_values_come_back_bit_for_bit(void **state)
{
    place *p = *state;
    float *wanted[3];
    ls_error err = {0};
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < p->model->floats; i++)
            p->values[k][i] = (float)(i + 1) / (float)(k + 3);
        wanted[k] = calloc(p->model->floats + 1, sizeof(float));
        memcpy(wanted[k], p->values[k], p->model->floats * sizeof(float));
    }
    save(p, 5, "{}"); /* a layer and an optimizer state have the same name */
    for (int k = 0; k < 3; k++)
        memset(p->values[k], 0, p->model->floats * sizeof(float));
    if (read_back(p, &err) != LS_OK)
        fail_msg("%s", err.text);
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(p->values[k], wanted[k], p->model->floats * sizeof(float));
        free(wanted[k]);
    }
}

/* A bit of the last tensor changes after the state was read. The positions of all tensors in the
 * file are still right, so only the SHA-256 shows the damage. */
static void damage_after_the_state_was_read_is_found(void **state)
{
    place *p = *state;
    ls_error err = {0};
    char *text;
    save(p, 5, "{}");
    assert_int_equal(ls_safetensors_state(&text, file_of(p, 5), NULL, &err), LS_OK);
    ls_free(NULL, text);
    FILE *f = fopen(file_of(p, 5), "r+b");
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    const int byte = getc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    putc(byte ^ 1, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(read_back(p, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "the file is damaged"));
}

static void the_newest_that_is_whole_is_found(void **state)
{
    place *p = *state;
    save(p, 999999999, "old");
    save(p, 1000000000, "new"); /* its name has one digit more */
    save(p, 7, "oldest");
    scratch_file(&p->files, "step-9.safetensors", "not a name of ours", 18);
    scratch_file(&p->files, "step-000000009.safetensors.old", "nor this", 8);
    assert_latest(p, "new", 0);
    damage(p, 1000000000);
    assert_latest(p, "old", 1);
    damage(p, 999999999);
    assert_latest(p, "oldest", 2);
}

static void without_a_whole_one_it_is_said_what_is_there(void **state)
{
    place *p = *state;
    char *path, *text;
    ls_error err;
    const char *directory = p->files.directory;
    assert_false(ls_checkpoints_exist(directory));
    assert_int_equal(ls_checkpoints_latest(&path, &text, directory, false, NULL, &err), LS_ENOENT);
    assert_int_equal(ls_checkpoints_latest(&path, &text, "/none", false, NULL, &err), LS_ENOENT);
    scratch_directory(&p->files, "step-000000469");
    assert_int_equal(ls_checkpoints_latest(&path, &text, directory, false, NULL, &err), LS_EDATA);
    assert_non_null(
        strstr(err.text, "step-000000469 is a directory, as versions before 0.2 saved"));
    save(p, 3, "x");
    assert_true(ls_checkpoints_exist(directory));
    damage(p, 3);
    assert_int_equal(ls_checkpoints_latest(&path, &text, directory, false, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "no checkpoint is whole; the oldest: "));
    /* A file of weights is not a checkpoint, even if it has a checkpoint's name. */
    assert_int_equal(
        ls_safetensors_save(file_of(p, 3), p->model, p->values[0], LS_STEPS_UNKNOWN, NULL, NULL),
        LS_OK);
    assert_int_equal(ls_checkpoints_latest(&path, &text, directory, false, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "expected a run's state in its metadata"));
}

static void all_but_the_newest_and_the_one_just_saved_go(void **state)
{
    place *p = *state;
    char name[LS_CHECKPOINT_NAME];
    ls_error err = {0};
    for (uint64_t steps = 1; steps <= 6; steps++)
        save(p, steps, "x");
    ls_checkpoint_name(name, 2); /* the run was resumed from an older checkpoint */
    assert_int_equal(ls_checkpoints_prune(p->files.directory, 2, name, NULL, 0, NULL, &err), LS_OK);
    for (uint64_t steps = 1; steps <= 6; steps++)
        assert_int_equal(access(file_of(p, steps), F_OK) == 0,
                         steps == 2 || steps == 5 || steps == 6);
    assert_int_equal(ls_checkpoints_prune(p->files.directory, 9, name, NULL, 0, NULL, &err), LS_OK);
    assert_int_equal(access(file_of(p, 2), F_OK), 0);
}

/* The best evaluation can be one before the first step, because a program that uses ls_trainer_step
 * can evaluate the initial weights. */
static void the_best_stays_whatever_step_it_is_of(void **state)
{
    place *p = *state;
    char name[LS_CHECKPOINT_NAME];
    ls_error err = {0};
    ls_checkpoint_name(name, 3);
    for (uint64_t of = 0; of <= 1; of++) {
        const ls_best best = {.epoch = 1, .steps = of}, displaced = {2, 0, 2, 0, 9, of};
        for (uint64_t steps = 0; steps <= 3; steps++)
            save(p, steps, "x");
        assert_int_equal(ls_checkpoints_prune(p->files.directory, 1, name, &best, 0, NULL, &err),
                         LS_OK);
        for (uint64_t steps = 0; steps <= 3; steps++)
            assert_int_equal(access(file_of(p, steps), F_OK) == 0, steps == of || steps == 3);
        assert_int_equal(
            ls_checkpoints_prune(p->files.directory, 1, name, &displaced, 0, NULL, &err), LS_OK);
        assert_int_equal(access(file_of(p, of), F_OK), 0);
    }
    const ls_best none = {0};
    save(p, 0, "x");
    assert_int_equal(ls_checkpoints_prune(p->files.directory, 1, name, &none, 0, NULL, &err),
                     LS_OK);
    assert_int_not_equal(access(file_of(p, 0), F_OK), 0);
}

static void what_is_not_finite_takes_the_place_of_nothing(void **state)
{
    place *p = *state;
    ls_error err;
    const ls_checkpoint_values values = values_of(p);
    save(p, 4, "finite");
    p->values[0][1] = 1.0f / 0.0f;
    assert_int_equal(
        ls_checkpoint_write(file_of(p, 4), p->model, &p->optimizer, &values, "x", NULL, &err),
        LS_ENONFINITE);
    char expected[200];
    snprintf(expected, sizeof expected, "\"%s\" is not finite any more (inf): not worth keeping; ",
             p->model->tensor[0]->name);
    assert_non_null(strstr(err.text, expected));
    assert_latest(p, "finite", 0);
}

static void a_key_that_an_older_state_lacks_leaves_zero(void **state)
{
    static const char text[] =
        "{\"schema\": 2, \"position\": {\"steps\": 16, \"epoch\": 2, \"step\": 0, \"recorded\": false,"
        " \"loss\": 0, \"correct\": 0, \"rows\": 0, \"seconds\": 0, \"trained_s\": 1,"
        " \"best\": {\"metric\": \"loss\", \"value\": 1, \"epoch\": 1, \"steps\": 8, \"waited\": 1}},"
        " \"epochs\": 2, \"test_loss\": 1, \"test_accuracy\": 1, \"metrics\": {\"bytes\": 0, \"lines\": 0,"
        " \"sum\": 0, \"moment\": 0}, \"shards\": 8, \"instruction_set\": \"a\", \"library\": \"b\","
        " \"train_rows\": 9, \"test_rows\": 9, \"data_crc32\": 1, \"recipe\": {}}";
    ls_json *doc;
    ls_state read;
    ls_error err = {0};
    (void)state;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(ls_json_parse(&doc, "state", text, strlen(text), NULL, &err), LS_OK);
    if (ls_state_read(&read, doc, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(read.standing.position.steps, 16);
    assert_int_equal(read.standing.position.best.kept, 0); /* key that older files lack */
    assert_true(read.standing.test_metric == 0 && read.standing.position.lr == 0);
    ls_json_destroy(doc);
}

/* The sum of weights is that of the rows unless rows have weights. */
static void sums_of_weights_and_a_rate_come_back(void **state)
{
    static const char *const keys[] = {"", "\"lr\": 0.25, \"weight\": 1.5, "};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char text[900];
        ls_json *doc;
        ls_state read;
        ls_error err = {0};
        snprintf(text, sizeof text,
                 "{\"schema\": 2, \"position\": {%s\"steps\": 16, \"epoch\": 2, \"step\": 3, "
                 "\"recorded\": false, \"loss\": 2, \"correct\": 1, \"rows\": 7, \"seconds\": 0, "
                 "\"trained_s\": 1}, \"epochs\": 2, \"test_loss\": 1, \"test_accuracy\": 1, "
                 "\"metrics\": {\"bytes\": 0, \"lines\": 0, \"sum\": 0, \"moment\": 0}, "
                 "\"shards\": 8, \"instruction_set\": \"a\", \"library\": \"b\", "
                 "\"train_rows\": 9, \"test_rows\": 9, \"data_crc32\": 1, \"recipe\": {}}",
                 keys[k]);
        assert_int_equal(ls_json_parse(&doc, "state", text, strlen(text), NULL, &err), LS_OK);
        if (ls_state_read(&read, doc, &err) != LS_OK)
            fail_msg("%s", err.text);
        assert_true(read.standing.position.lr == (k ? 0.25 : 0));
        assert_true(read.standing.position.totals.weight == (k ? 1.5 : 7));
        ls_json_destroy(doc);
    }
}

static void a_state_of_a_newer_version_is_said(void **state)
{
    static const char text[] = "{\"schema\": 9, \"later\": {}}";
    ls_json *doc;
    ls_state read;
    ls_error err = {0};
    (void)state;
    assert_int_equal(ls_json_parse(&doc, "state", text, strlen(text), NULL, &err), LS_OK);
    assert_int_equal(ls_state_read(&read, doc, &err), LS_EDATA);
    assert_string_equal(err.text, "state:1:12: the state: written by a newer version of Lockstep "
                                  "(schema 9; this one reads up to 2): update Lockstep, or use a "
                                  "file of this version");
    ls_json_destroy(doc);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

LS_TESTS(train_checkpoint, "unit")
{
    const struct CMUnitTest tests[] = {
        TEST(all_values_come_back_bit_for_bit),
        TEST(damage_after_the_state_was_read_is_found),
        TEST(the_newest_that_is_whole_is_found),
        TEST(without_a_whole_one_it_is_said_what_is_there),
        TEST(all_but_the_newest_and_the_one_just_saved_go),
        TEST(the_best_stays_whatever_step_it_is_of),
        TEST(what_is_not_finite_takes_the_place_of_nothing),
        TEST(a_key_that_an_older_state_lacks_leaves_zero),
        TEST(sums_of_weights_and_a_rate_come_back),
        TEST(a_state_of_a_newer_version_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
