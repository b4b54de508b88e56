/* SPDX-License-Identifier: MIT */
/* Tests weights of another run for a program's own rows: until it is trained, a new trainer
 * predicts for a row what the old model did, whatever the scales of the rows are. */
#include "data/scratch.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, ROWS = 2 * BATCH, VALUES = 5, ASKED = 8 };

/* How a program supplies its rows: once, minibatch by minibatch, or in each step. */
typedef enum supply { RESIDENT, STREAMED, STEPPED } supply;

typedef struct scenario {
    fixture f;
    ls_host host;
    ls_data_source data;
    const ls_data_source *sources[1];
    char init[600];
    double scale; /* the rows are stretched and moved by it; 1: they are those of the old model */
    float rows[BATCH * VALUES], targets[BATCH];
    char log[4096];
} scenario;

static void keep_log(void *user, ls_log_level level, const char *text)
{
    scenario *s = user;
    const size_t used = strlen(s->log);
    if (level == LS_LOG_WARNING && strstr(text, "init.weights"))
        snprintf(s->log + used, sizeof s->log - used, "%s\n", text);
}

/* Writes a row and its target. */
static void write_row(const scenario *s, uint32_t row, float values[VALUES], float *target)
{
    const double base[VALUES] = {100 + sin(row * 1.3), -3 + 20 * sin(row * 0.7), row % 7 * 0.1,
                                 cos(row), 2 * cos(row * 0.2)};
    *target = (float)(500 + 30 * base[1] - 7 * base[2]);
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)(base[i] * s->scale + s->scale - 1);
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++)
        write_row(user, rows[i], (float *)values + (size_t)i * VALUES, (float *)targets + i);
    return LS_OK;
}

/* `more`: a further assignment. `scale`: 1 for rows like those of the old model. */
static void begin(scenario *s, supply how, double scale, const char *more)
{
    memset(s, 0, sizeof *s);
    fixture_begin(&s->f);
    s->scale = scale;
    s->data = (ls_data_source){.size = sizeof s->data,
                               .name = "mine",
                               .channels = VALUES,
                               .height = 1,
                               .width = 1,
                               .row_type = LS_ROW_F32,
                               .target_count = 1,
                               .train_rows = how == STEPPED ? 0 : ROWS,
                               .streamed = how != RESIDENT,
                               .read = how == STEPPED ? NULL : read_rows,
                               .user = s};
    fixture_use_source(&s->f, &s->data, s->sources);
    s->host = (ls_host){.size = sizeof s->host, .log = keep_log, .user = s};
    s->f.options.host = &s->host;
    fixture_set(&s->f, "loss=mse");
    fixture_set(&s->f, "data.scale_rows=64");
    fixture_set(&s->f, "optimizer={\"name\":\"sgd\",\"lr\":0.05}");
    fixture_set(&s->f, "model={\"layers\":[{\"type\":\"dense\"}]}");
    if (more)
        fixture_set(&s->f, more);
}

static void end(scenario *s, ls_trainer *t)
{
    ls_trainer_close(t, NULL);
    fixture_end(&s->f);
}

static void step(scenario *s, ls_trainer *t, uint32_t first)
{
    for (uint32_t i = 0; i < BATCH; i++)
        write_row(s, first + i, s->rows + (size_t)i * VALUES, &s->targets[i]);
    const ls_step_rows given = {.size = sizeof given,
                                .rows = s->rows,
                                .targets = s->targets,
                                .row_type = LS_ROW_F32,
                                .n = BATCH};
    if (ls_trainer_step(t, &given, NULL, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
}

/* Predicts rows like those of the old model. */
static void predict(ls_trainer *t, float out[ASKED])
{
    const scenario plain = {.scale = 1};
    float rows[ASKED * VALUES], target;
    ls_error err;
    for (uint32_t i = 0; i < ASKED; i++)
        write_row(&plain, 1000 + i, rows + (size_t)i * VALUES, &target);
    if (own_predict(t, rows, LS_ROW_F32, ASKED, out, ASKED, &err) != LS_OK)
        fail_msg("%s", err.text);
}

/* Trains the old model, saves it as `path`, and returns its predictions in `out`. */
static void train_old(const char *path, supply how, const char *more, float out[ASKED])
{
    scenario s;
    begin(&s, how, 1, more);
    ls_trainer *t = how == STEPPED ? fixture_open(&s.f) : fixture_run(&s.f);
    for (uint32_t i = 0; i < 5 && how == STEPPED; i++)
        step(&s, t, i * BATCH);
    ls_model *model;
    predict(t, out);
    assert_true(fabs((double)(out[0] - out[1])) > 1);
    assert_int_equal(ls_trainer_model(&model, t, &s.f.err), LS_OK);
    assert_int_equal(ls_model_save(model, path, &s.f.err), LS_OK);
    ls_model_release(model);
    end(&s, t);
}

/* Opens a trainer whose training begins with the model `path`, and which learns nothing. */
static ls_trainer *begin_with(scenario *s, const char *path, supply how, double scale,
                              const char *more)
{
    begin(s, how, scale, more);
    snprintf(s->init, sizeof s->init, "init.weights=%s", path);
    fixture_set(&s->f, s->init);
    fixture_set(&s->f, "optimizer={\"name\":\"sgd\",\"lr\":1e-20}");
    return fixture_open(&s->f);
}

static void are_close(const float *a, const float *b, const char *what)
{
    for (int i = 0; i < ASKED; i++)
        if (fabs((double)(a[i] - b[i])) > 2e-5 * fabs((double)a[i]))
            fail_msg("%s: row %d was %.9g and is %.9g", what, i, (double)a[i], (double)b[i]);
}

/* Rows that come step by step keep the scales of the file, however the model was trained. */
static void steps_go_on_with_the_scales_of_the_file(void **state)
{
    (void)state;
    scratch dir;
    scratch_begin(&dir);
    const char *path = scratch_path(&dir, "old.safetensors");
    for (int how = RESIDENT; how <= STEPPED; how++)
        for (int loads = 0; loads < 2; loads++) {
            scenario s;
            float old[ASKED], now[ASKED];
            train_old(path, (supply)how, "data.standardize=true", old);
            ls_trainer *t = loads ? (begin(&s, STEPPED, 9, "data.standardize=true"),
                                     fixture_set(&s.f, "optimizer.lr=1e-20"), fixture_open(&s.f))
                                  : begin_with(&s, path, STEPPED, 9, "data.standardize=true");
            if (loads)
                assert_int_equal(ls_trainer_load_weights(t, path, LS_STATE_RESET, &s.f.err), LS_OK);
            predict(t, now);
            assert_memory_equal(now, old, sizeof now);
            step(&s, t, 0); /* rows of another scale */
            predict(t, now);
            assert_memory_equal(now, old, sizeof now);
            assert_string_equal(s.log, "");
            end(&s, t);
        }
    scratch_end(&dir);
}

/* Other scales are known when the trainer is opened: the weights are scaled. */
static void weights_are_scaled_for_scales_that_are_known(void **state)
{
    static const struct {
        supply how;
        const char *more;
    } cases[] = {{RESIDENT, "data.standardize=true"},
                 {STREAMED, "data.standardize=true"},
                 {STEPPED, "data={\"name\":\"mine\",\"mean\":[90,7,0,1,1],\"std\":[4,2,0.5,1,3]}"},
                 {STEPPED, "data={\"name\":\"mine\",\"mean\":[90,7,0,1,1],\"std\":[4,2,0.5,1,3],"
                           "\"target_mean\":20,\"target_std\":3}"}};
    (void)state;
    scratch dir;
    scratch_begin(&dir);
    const char *path = scratch_path(&dir, "old.safetensors");
    for (size_t i = 0; i < ROOM(cases); i++) {
        scenario s;
        float old[ASKED], now[ASKED];
        train_old(path, STEPPED, "data.standardize=true", old);
        ls_trainer *t = begin_with(&s, path, cases[i].how, 1.25, cases[i].more);
        assert_string_equal(s.log, "");
        predict(t, now);
        are_close(old, now, cases[i].more);
        end(&s, t);
    }
    scratch_end(&dir);
}

/* Weights that cannot be adapted are taken over as they are, and a warning says so. */
static void scales_that_do_not_fit_are_warned_of(void **state)
{
    (void)state;
    scratch dir;
    scratch_begin(&dir);
    const char *path = scratch_path(&dir, "old.safetensors");
    for (int how = RESIDENT; how <= STEPPED; how++) {
        scenario s;
        float old[ASKED], now[ASKED];
        train_old(path, STEPPED, "data.standardize=false", old);
        ls_trainer *t = begin_with(&s, path, (supply)how, 9, "data.standardize=true");
        const char *says = how == STEPPED ? "old.safetensors: its rows were scaled in another way: "
                                            "expected scales of 5 channels and 1 targets, found 0 "
                                            "and 1; set data.standardize"
                                          : "old.safetensors: its rows have other means and";
        if (!strstr(s.log, says) || !strstr(s.log, "predictions become others"))
            fail_msg("%d: %s", how, s.log);
        end(&s, t);
        t = begin_with(&s, path, (supply)how, 9, "data={\"name\":\"mine\",\"mean\":3}");
        if (!strstr(s.log, "other means and deviations"))
            fail_msg("%d: %s", how, s.log);
        end(&s, t);
        t = begin_with(&s, path, STEPPED, 9, "data.standardize=false");
        predict(t, now);
        assert_memory_equal(now, old, sizeof now);
        assert_string_equal(s.log, "");
        end(&s, t);
    }
    scratch_end(&dir);
}

/* A file that was saved before the first step has no scales to go on with. */
static void scales_of_a_file_without_steps_are_learnt(void **state)
{
    (void)state;
    scratch dir;
    float first[ASKED], now[ASKED];
    scenario s;
    scratch_begin(&dir);
    const char *path = scratch_path(&dir, "old.safetensors");
    begin(&s, STEPPED, 1, "data.standardize=true");
    ls_trainer *t = fixture_open(&s.f);
    predict(t, first);
    assert_true(first[0] == first[1]); /* as the header says: all rows are 0 */
    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
    end(&s, t);
    t = begin_with(&s, path, STEPPED, 1, "data.standardize=true");
    predict(t, now);
    assert_memory_equal(now, first, sizeof now);
    step(&s, t, 0);
    predict(t, now);
    assert_true(now[0] != now[1]);
    assert_string_equal(s.log, "");
    end(&s, t);
    scratch_end(&dir);
}

LS_TESTS(train_taken_scales, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_go_on_with_the_scales_of_the_file),
        cmocka_unit_test(weights_are_scaled_for_scales_that_are_known),
        cmocka_unit_test(scales_that_do_not_fit_are_warned_of),
        cmocka_unit_test(scales_of_a_file_without_steps_are_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
