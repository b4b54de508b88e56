/* SPDX-License-Identifier: MIT */
/* Tests batch norm over a shard of one row. A single value has no variance, so the running
 * statistics must not change. The log must contain one warning, and the config change that it
 * advises must help. */
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct scenario {
    fixture f;
    ls_host host;
    ls_data_source data;
    const ls_data_source *sources[1];
    int warnings;
    char said[600]; /* the last warning */
    uint8_t images[8 * OWN_PIXELS];
    int32_t labels[8];
} scenario;

static void listen(void *user, ls_log_level level, const char *text)
{
    scenario *s = user;
    if (level != LS_LOG_WARNING || !strstr(text, "batch norm over a shard of one row"))
        return;
    s->warnings++;
    snprintf(s->said, sizeof s->said, "%s", text);
}

static void begin(scenario *s, int streamed, const char *devices, const char *shards,
                  const char *batch)
{
    memset(s, 0, sizeof *s);
    fixture_begin(&s->f);
    s->host = (ls_host){.size = sizeof s->host, .log = listen, .user = s};
    s->f.options.host = &s->host;
    s->data = own_data(streamed);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, devices);
    fixture_set(&s->f, shards);
    fixture_set(&s->f, batch);
    fixture_set(&s->f, "epochs=1");
    fixture_set(&s->f, "optimizer.lr=1e-30"); /* so small that no bit of a weight changes */
    fixture_set(&s->f, "model={\"layers\":[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":6},"
                       "{\"type\":\"batch_norm\",\"name\":\"bn\",\"momentum\":0.5},"
                       "{\"type\":\"dense\",\"out\":10}]}");
    for (uint32_t i = 0; i < 8; i++)
        own_row(0, i, s->images + (size_t)i * OWN_PIXELS, &s->labels[i]);
}

static void scores(float out[8 * OWN_CLASSES], scenario *s, ls_trainer *t)
{
    ls_model *now;
    if (ls_trainer_model(&now, t, &s->f.err) != LS_OK ||
        ls_model_predict(now, s->images, LS_ROW_U8, 8, LS_OUTPUT_LOGITS, out, 8 * OWN_CLASSES,
                         &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    ls_model_release(now);
}

/* Returns by how much a step on `rows` rows changes the predictions. The learning rate is so small
 * that no weight changes. So only the running statistics can change the predictions. */
static float moved_by(scenario *s, ls_trainer *t, uint32_t rows)
{
    float before[8 * OWN_CLASSES], after[8 * OWN_CLASSES], most = 0;
    ls_step_result result = {.size = sizeof result};
    scores(before, s, t);
    if (own_step(t, s->images, s->labels, rows, &result, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    scores(after, s, t);
    for (int i = 0; i < 8 * OWN_CLASSES; i++)
        most = fmaxf(most, fabsf(after[i] - before[i]) / (1e-3f + fabsf(before[i])));
    return most;
}

static void one_row_leaves_the_running_statistics_alone(void **state)
{
    static const char *const devices[] = {"devices=ref:1", "devices=cpu:1", "devices=cpu:3"};
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        static scenario s;
        if (strstr(devices[i], "cpu") && !has_backend("cpu"))
            continue;
        begin(&s, 1, devices[i], "shards=1", "batch_size=8");
        const uint32_t one = 1;
        s.f.options.step_rows = &one;
        s.f.options.step_row_count = 1;
        ls_trainer *t = fixture_open(&s.f);
        assert_true(moved_by(&s, t, 8) > 0.01f);
        assert_true(moved_by(&s, t, 1) == 0);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

/* A shard of one row contributes the present running statistics; the other shards contribute their
 * own. */
static void shards_of_one_row_leave_the_others_their_weight(void **state)
{
    static const char *const devices[] = {"devices=ref:2", "devices=cpu:1", "devices=cpu:3"};
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        static scenario s;
        if (strstr(devices[i], "cpu") && !has_backend("cpu"))
            continue;
        begin(&s, 1, devices[i], "shards=3", "batch_size=8");
        const uint32_t few[2] = {3, 4};
        s.f.options.step_rows = few;
        s.f.options.step_row_count = 2;
        ls_trainer *t = fixture_open(&s.f);
        assert_true(moved_by(&s, t, 8) > 0.01f);
        assert_true(moved_by(&s, t, 3) < 1e-5f);
        assert_true(moved_by(&s, t, 4) > 0.001f);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

/* The training data have 96 rows. cure NULL: no shard has a single row, so there must be no
 * warning. */
static void the_log_says_so_once_and_names_a_cure(void **state)
{
    static const struct {
        const char *shards, *batch, *cure;
    } with[] = {
        {"shards=1", "batch_size=19", "layer \"bn\""},
        {"shards=1", "batch_size=19",
         "leaves 1 row for the last minibatch; with a batch_size of 18 "},
        {"shards=1", "batch_size=18", NULL},
        {"shards=4", "batch_size=45",
         "leaves 6 rows for the last minibatch; with a batch_size of 44 "},
        {"shards=4", "batch_size=44", NULL},
        {"shards=4", "batch_size=6", "set shards to at most 3"},
        {"shards=3", "batch_size=6", NULL},
        {"shards=1", "batch_size=1", "batch_size: a minibatch has one row"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        static scenario s;
        begin(&s, 0, "devices=ref:2", with[i].shards, with[i].batch);
        ls_trainer_close(fixture_open(&s.f), NULL);
        assert_int_equal(s.warnings, with[i].cure != NULL);
        if (with[i].cure && !strstr(s.said, with[i].cure))
            fail_msg("\"%s\"\nhas no \"%s\"", s.said, with[i].cure);
        fixture_end(&s.f);
    }
}

LS_TESTS(train_single_rows, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row_leaves_the_running_statistics_alone),
        cmocka_unit_test(shards_of_one_row_leave_the_others_their_weight),
        cmocka_unit_test(the_log_says_so_once_and_names_a_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
