/* SPDX-License-Identifier: MIT */
/* Tests runs that are stopped at any point and resumed, on the same or on another number of
 * devices. Their results must be the same as in a run that was never stopped: weights, optimizer
 * state, running statistics and records. */
#include "checkpoint/checkpoint.h"
#include "data/scratch.h"
#include "records/record.h"
#include "runner.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 9 /* number of steps of the run: three epochs of 3 */

/* Events of a run. */
typedef struct scenario {
    ls_trainer *trainer;
    uint64_t stop_behind; /* the run is stopped after this step; 0: it is not */
    /* the run is stopped before the evaluation of this epoch; 0: it is not */
    int stop_at_epoch_end;
} scenario;

static void on_progress(void *user, const ls_progress *p)
{
    scenario *s = user;
    uint64_t steps = (uint64_t)(p->epoch - 1) * p->steps + p->step;
    if (steps == s->stop_behind)
        ls_trainer_interrupt(s->trainer);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    scenario *s = user;
    char wanted[64];
    (void)err;
    snprintf(wanted, sizeof wanted, "{\"type\":\"epoch\",\"epoch\":%d,", s->stop_at_epoch_end);
    if (s->stop_at_epoch_end && length > strlen(wanted) &&
        strncmp(json, wanted, strlen(wanted)) == 0)
        ls_trainer_interrupt(s->trainer);
    return LS_OK;
}

/* Sets a config with momentum, batch norm, augmentation, dropout and a schedule. Each of them is
 * state, or depends on state, that a checkpoint must restore. */
static void recipe(fixture *f, scenario *s, const char *devices, char run_dir[400])
{
    fixture_begin(f);
    memset(s, 0, sizeof *s);
    fixture_set(f, "epochs=3");
    fixture_set(f, devices);
    fixture_set(f, "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                   "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                   "{\"type\":\"dropout\",\"p\":0.25},{\"type\":\"dense\",\"out\":10}]}");
    fixture_set(f, "augment={\"crop\":2,\"flip\":true}");
    fixture_set(f, "schedule={\"name\":\"cosine\",\"warmup_epochs\":1}");
    fixture_set(f, "seed=5");
    fixture_set(f, run_dir);
    f->callbacks.progress = on_progress;
    f->callbacks.record = on_record;
    f->callbacks.user = s;
}

static int run_scenario(fixture *f, scenario *s, char hash[65])
{
    s->trainer = fixture_open(f);
    int status = ls_trainer_run(s->trainer, &f->err);
    memcpy(hash, ls_trainer_result(s->trainer)->weights_sha256, 65);
    assert_int_equal(ls_trainer_close(s->trainer, NULL), LS_OK);
    return status;
}

/* ---- the records ------------- */

/* Returns the type of the record of a step, an epoch or an evaluation; for other records
 * LS_RECORD_TYPES. */
static int type_of(const char *line)
{
    static const int compared[] = {LS_RECORD_STEP, LS_RECORD_EPOCH, LS_RECORD_EVAL};
    char begin[64];
    for (size_t k = 0; k < sizeof compared / sizeof *compared; k++) {
        snprintf(begin, sizeof begin, "{\"type\":\"%s\"", ls_record_names[compared[k]]);
        if (strncmp(line, begin, strlen(begin)) == 0)
            return compared[k];
    }
    return LS_RECORD_TYPES;
}

/* Appends the numbers of the record that do not depend on time or devices, in the order of
 * ls_record_keys; −1 for null or a missing key. */
static int read_numbers(double *out, int room, const char *line)
{
    const int type = type_of(line);
    int count = 0;
    for (const ls_record_key *row = ls_record_keys; type < LS_RECORD_TYPES && row->key; row++) {
        if (!(row->in & 1u << type) || row->varies)
            continue;
        double value = record_number(line, row->key);
        assert_in_range(count, 0, room - 1);
        out[count++] = isnan(value) ? -1 : value;
    }
    return count;
}

static int read_records(double *out, int most, const char *run)
{
    static char line[1 << 16];
    char path[500];
    int count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        count += read_numbers(out + count, most - count, line);
    fclose(file);
    return count;
}

static void expect_same_records(const char *run, const char *reference)
{
    static double mine[4000], theirs[4000];
    int count = read_records(theirs, 4000, reference);
    assert_int_equal(read_records(mine, 4000, run), count);
    assert_true(count > (STEPS + 3 + 3) * 3);
    assert_memory_equal(mine, theirs, (size_t)count * sizeof *mine);
}

/* ---- the last checkpoint -------------- */

/* Returns the state in the last checkpoint as text. Three parts that differ between runs are left
 * out: times; `kept`, which is about the files of one directory; and the length of the records,
 * because records contain times. */
static char *read_state(const char *run)
{
    char directory[500], *path, *text;
    ls_error err = {0};
    snprintf(directory, sizeof directory, "%s/checkpoints", run);
    if (ls_checkpoints_latest(&path, &text, directory, false, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    cJSON *state = cJSON_Parse(text);
    cJSON *position = cJSON_GetObjectItem(state, "position");
    cJSON_DeleteItemFromObject(position, "seconds");
    cJSON_DeleteItemFromObject(position, "trained_s");
    cJSON_DeleteItemFromObject(cJSON_GetObjectItem(position, "best"), "kept");
    cJSON_DeleteItemFromObject(state, "metrics");
    char *left = cJSON_PrintUnformatted(state);
    assert_non_null(left);
    cJSON_Delete(state);
    free(path);
    free(text);
    return left;
}

static void expect_same_state(const char *run, const char *reference)
{
    char *mine = read_state(run), *theirs = read_state(reference);
    assert_string_equal(mine, theirs);
    cJSON_free(mine);
    cJSON_free(theirs);
}

/* ---- tests ---- */

typedef struct place {
    scratch s;
    char reference[300]; /* directory of a run that is not stopped */
    char hash[65];
} place;

static int make_reference(void **state)
{
    place *p = calloc(1, sizeof *p);
    char run_dir[400];
    fixture f;
    scenario s;
    scratch_begin(&p->s);
    snprintf(p->reference, sizeof p->reference, "%s/reference", p->s.directory);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", p->reference);
    recipe(&f, &s, "devices=ref:2", run_dir);
    assert_int_equal(run_scenario(&f, &s, p->hash), LS_OK);
    fixture_end(&f);
    *state = p;
    return 0;
}

static int remove_reference(void **state)
{
    place *p = *state;
    scratch_end(&p->s);
    free(p);
    return 0;
}

static void resume_to_the_end(place *p, const char *run, const char *devices, const char *wanted)
{
    char run_dir[400], hash[65];
    fixture f;
    scenario s;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, devices, run_dir);
    f.options.resume = wanted;
    assert_int_equal(run_scenario(&f, &s, hash), LS_OK);
    assert_string_equal(hash, p->hash);
    expect_same_records(run, p->reference);
    expect_same_state(run, p->reference);
    fixture_end(&f);
}

static void begin_and_stop(place *p, const char *run, const char *devices, uint64_t stop_behind,
                           int stop_at_epoch_end)
{
    char run_dir[400], hash[65];
    fixture f;
    scenario s;
    (void)p;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, devices, run_dir);
    s.stop_behind = stop_behind;
    s.stop_at_epoch_end = stop_at_epoch_end;
    assert_int_equal(run_scenario(&f, &s, hash), LS_EINTERRUPTED);
    fixture_end(&f);
}

static void a_run_stopped_behind_any_step_goes_on_with_the_same_bits(void **state)
{
    place *p = *state;
    char run[300], before[32], after[32];
    for (int step = 1; step < STEPS; step++) {
        snprintf(run, sizeof run, "%s/behind-%d", p->s.directory, step);
        snprintf(before, sizeof before, "devices=ref:%d", 1 + step % 4);
        snprintf(after, sizeof after, "devices=ref:%d", 1 + (step * 3 + 1) % 4);
        begin_and_stop(p, run, before, (uint64_t)step, 0);
        /* "latest" means the latest checkpoint in this run_dir */
        resume_to_the_end(p, run, after, step % 2 ? run : "latest");
    }
}

static void a_run_stopped_before_an_evaluation_evaluates_first(void **state)
{
    place *p = *state;
    char run[300];
    for (int epoch = 1; epoch <= 3; epoch++) {
        snprintf(run, sizeof run, "%s/epoch-%d", p->s.directory, epoch);
        begin_and_stop(p, run, "devices=ref:3", 0, epoch);
        resume_to_the_end(p, run, "devices=ref:2", run);
    }
}

static void a_run_may_be_stopped_again_and_again(void **state)
{
    place *p = *state;
    char run[300], run_dir[400], hash[65];
    snprintf(run, sizeof run, "%s/again", p->s.directory);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    begin_and_stop(p, run, "devices=ref:4", 1, 0);
    for (uint64_t step = 3; step < STEPS; step += 2) {
        fixture f;
        scenario s;
        recipe(&f, &s, step % 4 == 1 ? "devices=ref:1" : "devices=ref:3", run_dir);
        f.options.resume = run;
        s.stop_behind = step;
        assert_int_equal(run_scenario(&f, &s, hash), LS_EINTERRUPTED);
        fixture_end(&f);
    }
    resume_to_the_end(p, run, "devices=ref:2", run);
}

static void a_finished_run_is_finished(void **state)
{
    place *p = *state;
    resume_to_the_end(p, p->reference, "devices=ref:1", p->reference);
}

static void a_run_brings_its_config_along(void **state)
{
    place *p = *state;
    char run[300], hash[65];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/alone", p->s.directory);
    begin_and_stop(p, run, "devices=ref:2", 4, 0);
    fixture_begin(&f);
    memset(&s, 0, sizeof s);
    f.options.config_text = NULL;
    f.callbacks.record = NULL;
    f.options.resume = run;
    assert_int_equal(run_scenario(&f, &s, hash), LS_OK);
    assert_string_equal(hash, p->hash);
    fixture_end(&f);
}

static void shards_left_open_are_those_of_the_checkpoint(void **state)
{
    place *p = *state;
    char run[300], run_dir[400], hash[65], undisturbed[65];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/open", p->s.directory);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s-whole", run);
    recipe(&f, &s, "devices=ref:3", run_dir);
    fixture_set(&f, "shards=devices");
    assert_int_equal(run_scenario(&f, &s, undisturbed), LS_OK);
    fixture_end(&f);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    for (int part = 0; part < 2; part++) {
        recipe(&f, &s, part ? "devices=ref:2" : "devices=ref:3", run_dir);
        fixture_set(&f, "shards=devices");
        s.stop_behind = part ? 0 : 5;
        f.options.resume = part ? run : NULL;
        assert_int_equal(run_scenario(&f, &s, hash), part ? LS_OK : LS_EINTERRUPTED);
        fixture_end(&f);
    }
    assert_string_equal(hash, undisturbed);
}

/* ---- refusals ---- */

static void expect_refusal(const char *run, const char *set, int status, const char *text)
{
    char run_dir[400];
    fixture f;
    scenario s;
    ls_trainer *t;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, "devices=ref:2", run_dir);
    if (set)
        fixture_set(&f, set);
    f.options.resume = run;
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), status);
    if (!strstr(f.err.text, text))
        fail_msg("expected '%s' in: %s", text, f.err.text);
    fixture_end(&f);
}

static void another_recipe_is_refused_with_both_values(void **state)
{
    place *p = *state;
    expect_refusal(p->reference, "batch_size=16", LS_ECONFIG,
                   "batch_size: this run was made with 32, not with 16; a resumed run keeps its "
                   "recipe");
    expect_refusal(p->reference, "optimizer.lr=0.1", LS_ECONFIG,
                   "optimizer: this run was made with");
    expect_refusal(p->reference, "shards=2", LS_ECONFIG, "shards: this run was made with 4, not");
    expect_refusal(p->reference, "epochs=4", LS_ECONFIG, "epochs: this run was made with 3, not");
    expect_refusal(p->reference, "data.limit=64", LS_ECONFIG,
                   "data.limit: this run was made with 96, not with 64;");
}

static void a_directory_without_a_run_is_refused(void **state)
{
    place *p = *state;
    char run[300];
    snprintf(run, sizeof run, "%s/nowhere", p->s.directory);
    expect_refusal(run, NULL, LS_ENOENT, "nowhere: there is no such directory");
    scratch_directory(&p->s, "empty");
    snprintf(run, sizeof run, "%s/empty", p->s.directory);
    expect_refusal(run, NULL, LS_ENOENT, "empty: is not the directory of a run");
}

static void a_run_that_is_running_is_not_resumed(void **state)
{
    place *p = *state;
    char run[300], run_dir[400];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/busy", p->s.directory);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, "devices=ref:2", run_dir);
    ls_trainer *t = fixture_open(&f);
    expect_refusal(run, NULL, LS_EAGAIN, "in use");
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

static void flip_a_bit(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 4, file);
    fclose(file);
}

static void a_damaged_checkpoint_gives_way_to_the_one_before(void **state)
{
    place *p = *state;
    char run[300], path[500];
    snprintf(run, sizeof run, "%s/damaged", p->s.directory);
    begin_and_stop(p, run, "devices=ref:2", 7, 0); /* checkpoints after steps 6 and 8 */
    snprintf(path, sizeof path, "%s/checkpoints/step-000000008.safetensors", run);
    flip_a_bit(path, 3000);
    resume_to_the_end(p, run, "devices=ref:3", run);
}

/* ---- records that another program has moved or cut ------------------------------------------- */

static char *read_text(const char *path)
{
    char *text = calloc(1, 1 << 18);
    FILE *file = fopen(path, "rb");
    assert_non_null(text);
    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

static int count_lines(const char *text, const char *begin)
{
    int count = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1)
        count += strncmp(at, begin, strlen(begin)) == 0;
    return count;
}

/* What another program does to the file `path`, which has the records `text`. */
typedef enum rotation {
    MOVED,
    EMPTIED,
    CUT_SHORT,
    FILLED_WITH_ZEROS,
    GROWN_AGAIN,
    ROTATIONS
} rotation;

static void rotate(rotation how, const char *path, const char *text)
{
    char moved[600];
    const char *later = strchr(text, '\n') + 1; /* from the second record on */
    snprintf(moved, sizeof moved, "%s.1", path);
    if (how == MOVED)
        assert_int_equal(rename(path, moved), 0);
    else if (how == EMPTIED || how == CUT_SHORT)
        assert_int_equal(truncate(path, how == EMPTIED ? 0 : 100), 0);
    if (how < FILLED_WITH_ZEROS)
        return;
    FILE *file = fopen(path, how == GROWN_AGAIN ? "wb" : "r+b");
    assert_non_null(file);
    for (int i = 0; how == FILLED_WITH_ZEROS && i < 200; i++)
        fputc('\0', file);
    for (int i = 0; how == GROWN_AGAIN && i < 3; i++)
        fputs(later, file);
    fclose(file);
}

/* Stops a run after step `stop`, moves or cuts its records, and resumes it to the end. The run goes
 * on with the same bits, and the new file has everything from the checkpoint on. */
static void resume_without_records(place *p, const char *name, rotation how)
{
    char run[300], path[400], aside[450], run_dir[400], hash[65], words[64];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/%s-%d", p->s.directory, name, (int)how);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(aside, sizeof aside, "%s.cut", path);
    begin_and_stop(p, run, "devices=ref:2", 4, 0);
    char *before = read_text(path);
    rotate(how, path, before);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, "devices=ref:3", run_dir);
    f.options.resume = run;
    s.stop_behind = 6;
    assert_int_equal(run_scenario(&f, &s, hash), LS_EINTERRUPTED);
    fixture_end(&f);
    char *after = read_text(path);
    assert_int_equal(count_lines(after, "{\"type\":\"run_start\","), 1);
    assert_int_equal(strncmp(after, "{\"type\":\"run_start\",", 20), 0);
    /* run_end of the first part is after the checkpoint */
    snprintf(words, sizeof words, "\"missing_records\":%d,", count_lines(before, "{") - 1);
    assert_non_null(strstr(after, words));
    const int steps = count_lines(before, "{\"type\":\"step\",");
    assert_in_range(steps + count_lines(after, "{\"type\":\"step\","), 6, STEPS - 1);
    free(after);
    assert_int_equal(access(aside, F_OK) == 0, how > EMPTIED); /* nothing is thrown away */
    recipe(&f, &s, "devices=ref:1", run_dir);
    f.options.resume = run;
    assert_int_equal(run_scenario(&f, &s, hash), LS_OK);
    fixture_end(&f);
    assert_string_equal(hash, p->hash);
    after = read_text(path);
    assert_int_equal(count_lines(after, "{\"type\":\"step\","), STEPS - steps);
    assert_int_equal(count_lines(after, "{\"type\":\"resume\","), 2);
    assert_null(strstr(strstr(after, words) + strlen(words), "missing_records")); /* said once */
    free(after);
    free(before);
}

static void a_run_goes_on_without_records_that_were_moved_or_cut(void **state)
{
    for (int how = MOVED; how < ROTATIONS; how++)
        resume_without_records(*state, "rotated", (rotation)how);
}

/* The file is cut while the run writes it, and the run is resumed later. */
static const char *cut_in_step_5;

static void cut_and_stop(void *user, const ls_progress *p)
{
    const uint64_t steps = (uint64_t)(p->epoch - 1) * p->steps + p->step;
    if (steps == 5 && cut_in_step_5)
        assert_int_equal(truncate(cut_in_step_5, 0), 0);
    on_progress(user, p);
}

static void a_run_whose_records_are_cut_meanwhile_goes_on(void **state)
{
    place *p = *state;
    char run[300], path[400], run_dir[400], hash[65];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/cut", p->s.directory);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, "devices=ref:2", run_dir);
    f.callbacks.progress = cut_and_stop;
    cut_in_step_5 = path;
    s.stop_behind = 7;
    assert_int_equal(run_scenario(&f, &s, hash), LS_EINTERRUPTED);
    cut_in_step_5 = NULL;
    fixture_end(&f);
    char *text = read_text(path);
    assert_int_equal(text[0], '{');
    assert_int_equal(count_lines(text, "{\"type\":\"run_start\","), 0);
    assert_int_equal(count_lines(text, "{\"type\":\"run_end\","), 1);
    free(text);
    recipe(&f, &s, "devices=ref:3", run_dir);
    f.options.resume = run;
    assert_int_equal(run_scenario(&f, &s, hash), LS_OK);
    fixture_end(&f);
    assert_string_equal(hash, p->hash);
    text = read_text(path);
    assert_int_equal(count_lines(text, "{\"type\":\"run_start\","),
                     1); /* for readers of the file */
    assert_int_equal(count_lines(text, "{\"type\":\"resume\","), 1);
    assert_null(strstr(text, "missing_records")); /* the log has said it when it happened */
    free(text);
}

/* Returns the number of seconds of the present epoch in the state of a checkpoint. */
static double seconds_in(const char *path)
{
    char text[16384];
    double seconds = -1;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    for (char *at = text; at < text + n; at++)
        if (strncmp(at, "seconds", 7) == 0 && sscanf(at, "seconds%*[\\\": ]%lf", &seconds) == 1)
            return seconds;
    return seconds;
}

static void only_the_newest_are_kept(void **state)
{
    place *p = *state;
    char run[300], run_dir[400], path[500], hash[65];
    fixture f;
    scenario s;
    snprintf(run, sizeof run, "%s/kept", p->s.directory);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    recipe(&f, &s, "devices=ref:2", run_dir);
    fixture_set(&f, "checkpoint={\"every_steps\":1,\"keep\":3}");
    assert_int_equal(run_scenario(&f, &s, hash), LS_OK);
    assert_string_equal(hash, p->hash);
    for (int step = 1; step <= STEPS; step++) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", run, step);
        assert_int_equal(access(path, F_OK) == 0, step > STEPS - 3);
    }
    snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", run, STEPS - 1);
    assert_true(seconds_in(path) > 0);
    fixture_end(&f);
}

LS_TESTS(train_resume, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_stopped_behind_any_step_goes_on_with_the_same_bits),
        cmocka_unit_test(a_run_stopped_before_an_evaluation_evaluates_first),
        cmocka_unit_test(a_run_may_be_stopped_again_and_again),
        cmocka_unit_test(a_finished_run_is_finished),
        cmocka_unit_test(a_run_brings_its_config_along),
        cmocka_unit_test(shards_left_open_are_those_of_the_checkpoint),
        cmocka_unit_test(another_recipe_is_refused_with_both_values),
        cmocka_unit_test(a_directory_without_a_run_is_refused),
        cmocka_unit_test(a_run_that_is_running_is_not_resumed),
        cmocka_unit_test(a_damaged_checkpoint_gives_way_to_the_one_before),
        cmocka_unit_test(a_run_goes_on_without_records_that_were_moved_or_cut),
        cmocka_unit_test(a_run_whose_records_are_cut_meanwhile_goes_on),
        cmocka_unit_test(only_the_newest_are_kept),
    };
    return cmocka_run_group_tests(tests, make_reference, remove_reference);
}
