/* SPDX-License-Identifier: MIT */
/* Tests weights of rows, and a trainer that learns for months: its learning rate is set while it
 * runs, and weights are loaded with and without the optimizer's state. Weights are exact: a factor
 * of 2 for all rows changes no bit, and a row of weight 0 might as well not be there. */
#include "data/scratch.h"
#include "merge/weights.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, PIXELS = OWN_PIXELS };

typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
    uint8_t images[BATCH * PIXELS];
    int32_t labels[BATCH];
    float targets[BATCH * 2];
    float weights[OWN_TRAIN];
} scenario;

enum { CLASSES, VALUES };

/* Opens no trainer yet. `loss` VALUES: the targets are two numbers. */
static void begin(scenario *s, int loss, const char *devices)
{
    memset(s, 0, sizeof *s);
    fixture_begin(&s->f);
    s->data = own_data(1);
    s->data.weighted = 1;
    if (loss == VALUES) {
        s->data.classes = 0;
        s->data.target_count = 2;
        s->data.train_rows = s->data.test_rows = 0;
    }
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "seed=5");
    fixture_set(&s->f, "shards=8");
    fixture_set(&s->f, devices);
    fixture_set(&s->f, loss == VALUES ? "model={\"layers\":[{\"type\":\"flatten\"},"
                                        "{\"type\":\"dense\",\"out\":2}]}"
                                      : "model={\"layers\":[{\"type\":\"flatten\"},"
                                        "{\"type\":\"dense\",\"out\":10}]}");
}

/* Chooses the rows of step `number`, with a weight of `weight` each. */
static void choose(scenario *s, uint32_t number, float weight)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        own_row(0, (number * BATCH + i) % OWN_TRAIN, s->images + (size_t)i * PIXELS, &s->labels[i]);
        s->targets[2 * i] = (float)s->labels[i];
        s->targets[2 * i + 1] = 1 - (float)(i % 3);
        s->weights[i] = weight;
    }
}

static int give(scenario *s, ls_trainer *t, const float *weights, ls_step_result *out)
{
    const ls_step_rows rows = {
        sizeof rows, s->images, s->data.target_count ? (const void *)s->targets : s->labels,
        LS_ROW_U8,   BATCH,     weights};
    return ls_trainer_step(t, &rows, out, &s->f.err);
}

static ls_step_result step(scenario *s, ls_trainer *t, const float *weights)
{
    ls_step_result out = {.size = sizeof out};
    if (give(s, t, weights, &out) != LS_OK)
        fail_msg("%s", s->f.err.text);
    return out;
}

/* How weigh_rows gives weights. UNWEIGHTED: the data have none. NO_WEIGHTS: the steps have none,
 * although the data do. ONES, TWOS: all rows have this weight. ODD_ZERO: every second row has
 * the weight 0, the others 1. ODD_ZERO_OTHER_ROWS: the rows of weight 0 are other rows as well. */
typedef enum way { UNWEIGHTED, NO_WEIGHTS, ONES, TWOS, ODD_ZERO, ODD_ZERO_OTHER_ROWS } way;

/* Copies the weights after three steps to `hash`. */
static void weigh_rows(char hash[65], int loss, way how, const char *devices)
{
    scenario s;
    begin(&s, loss, devices);
    s.data.weighted = how != UNWEIGHTED;
    ls_trainer *t = fixture_open(&s.f);
    for (uint32_t k = 0; k < 3; k++) {
        choose(&s, k, how == TWOS ? 2 : 1);
        for (uint32_t i = 1; how >= ODD_ZERO && i < BATCH; i += 2) {
            s.weights[i] = 0;
            if (how == ODD_ZERO_OTHER_ROWS)
                memset(s.images + (size_t)i * PIXELS, (int)(7 * i), PIXELS);
            if (how == ODD_ZERO_OTHER_ROWS)
                s.labels[i] = 3;
        }
        step(&s, t, how <= NO_WEIGHTS ? NULL : s.weights);
    }
    memcpy(hash, ls_trainer_result(t)->weights_sha256, 65);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void weights_of_one_and_of_two_are_none(void **state)
{
    char hash[4][65];
    (void)state;
    for (int loss = CLASSES; loss <= VALUES; loss++) {
        for (way how = UNWEIGHTED; how <= TWOS; how++)
            weigh_rows(hash[how], loss, how, "devices=cpu:2");
        for (way how = NO_WEIGHTS; how <= TWOS; how++)
            assert_string_equal(hash[how], hash[UNWEIGHTED]);
    }
}

static void a_row_of_weight_zero_has_no_effect(void **state)
{
    static const char *const devices[] = {"devices=cpu:1", "devices=ref:1"};
    char hash[3][65];
    (void)state;
    for (size_t d = 0; d < ROOM(devices); d++)
        for (int loss = CLASSES; loss <= VALUES; loss++) {
            weigh_rows(hash[0], loss, ODD_ZERO, devices[d]);
            weigh_rows(hash[1], loss, ODD_ZERO_OTHER_ROWS, devices[d]);
            weigh_rows(hash[2], loss, ONES, devices[d]);
            assert_string_equal(hash[1], hash[0]);
            assert_string_not_equal(hash[2], hash[0]);
        }
}

static void weights_have_the_same_bits_on_any_number_of_workers(void **state)
{
    static const char *const devices[] = {"devices=cpu:1", "devices=cpu:2", "devices=cpu:3",
                                          "devices=cpu:5", "devices=cpu:8"};
    char first[65];
    (void)state;
    for (size_t d = 0; d < ROOM(devices); d++) {
        scenario s;
        begin(&s, CLASSES, devices[d]);
        s.data.streamed = (int)(d % 2); /* resident rows have the weights of the source */
        for (int i = 0; i < OWN_TRAIN; i++)
            s.weights[i] = 0.1f * (float)(i % 7);
        s.data.train_weights = s.weights;
        s.data.test_weights = s.weights;
        const char *hash = fixture_hash(&s.f);
        if (d > 0)
            assert_string_equal(hash, first);
        memcpy(first, hash, 65);
        fixture_end(&s.f);
    }
}

/* Returns the weighted share of the test rows that the model predicts right. */
static double accuracy_by_hand(const scenario *s, ls_trainer *t)
{
    uint8_t images[OWN_TEST * PIXELS];
    int32_t labels[OWN_TEST];
    float scores[OWN_TEST * OWN_CLASSES];
    double right = 0, all = 0;
    for (uint32_t i = 0; i < OWN_TEST; i++)
        own_row(1, i, images + (size_t)i * PIXELS, &labels[i]);
    assert_int_equal(own_predict(t, images, LS_ROW_U8, OWN_TEST, scores, ROOM(scores), NULL),
                     LS_OK);
    for (size_t i = 0; i < OWN_TEST; i++) {
        int best = 0;
        for (int k = 1; k < OWN_CLASSES; k++)
            best = scores[i * OWN_CLASSES + (size_t)k] > scores[i * OWN_CLASSES + (size_t)best]
                       ? k
                       : best;
        const double weight = (double)s->weights[i];
        right += best == labels[i] ? weight : 0;
        all += weight;
    }
    return right / all;
}

/* Also a config that names no metrics measures the weighted accuracy. */
static void metrics_are_weighted_the_same_on_any_number_of_workers(void **state)
{
    static const char *const devices[] = {"devices=cpu:1", "devices=cpu:2", "devices=cpu:3",
                                          "devices=cpu:8", "devices=cpu:2"};
    char first[4096], found[4096];
    (void)state;
    for (size_t d = 0; d < ROOM(devices); d++) {
        scenario s;
        ls_evaluation e = {.size = sizeof e};
        begin(&s, CLASSES, devices[d]);
        fixture_set(&s.f, d == 4 ? "metrics.names=[]" : "metrics.names=\"auto\"");
        s.data.streamed = 0;
        for (int i = 0; i < OWN_TRAIN; i++)
            s.weights[i] = 0.1f * (float)(i % 7);
        s.data.test_weights = s.weights;
        ls_trainer *t = fixture_run(&s.f);
        const char *record = fixture_record(&s.f, "eval", 0);
        snprintf(d ? found : first, sizeof first, "%.*s",
                 (int)(strstr(record, ",\"seconds\"") - record), record);
        if (d > 0 && d < 4)
            assert_string_equal(found, first);
        assert_non_null(strstr(record, "\"unweighted\":{\"accuracy\":"));
        assert_int_equal(ls_trainer_evaluate(t, &e, &s.f.err), LS_OK);
        assert_string_equal(e.metric, "accuracy");
        const double wanted = accuracy_by_hand(&s, t);
        assert_true(wanted > 0.1 && fabs(e.metric_value - wanted) < 1e-12);
        assert_int_equal(e.metric_count > 1, d < 4);
        if (d < 4) {
            assert_string_equal(e.metric_names[1], "accuracy");
            assert_true(e.metric_values[1] == e.metric_value && isnan(e.unweighted_values[0]));
            for (int i = 0; i < OWN_TEST; i++)
                s.weights[i] = 1;
            assert_true(fabs(e.unweighted_values[1] - accuracy_by_hand(&s, t)) < 1e-12);
            assert_true(e.unweighted_values[1] != e.metric_value);
        }
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

static void rows_that_all_have_weight_zero_have_no_metrics(void **state)
{
    scenario s;
    (void)state;
    begin(&s, CLASSES, "devices=cpu:1");
    s.data.streamed = 0;
    s.data.test_weights = s.weights; /* all are 0 */
    ls_trainer *t = fixture_run(&s.f);
    const char *record = fixture_record(&s.f, "eval", 0);
    assert_non_null(strstr(record, "\"test_loss\":0,\"test_accuracy\":null"));
    assert_null(strstr(record, "test_auc"));
    assert_non_null(strstr(record, "\"unweighted\":{\"accuracy\":0."));
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static float *trained(scenario *s, ls_trainer *t, size_t *count)
{
    *count = ls_trainer_summary(t)->parameters;
    float *w = calloc(*count, sizeof *w);
    assert_int_equal(ls_trainer_weights(t, w, *count, &s->f.err), LS_OK);
    return w;
}

/* In one minibatch a row occurs twice; in the other it has weight 2, and the second is a row of
 * weight 0. */
static void a_row_twice_is_a_row_of_weight_two(void **state)
{
    (void)state;
    for (int loss = CLASSES; loss <= VALUES; loss++) {
        float *w[2];
        size_t count = 0;
        for (int twice = 0; twice < 2; twice++) {
            scenario s;
            begin(&s, loss, "devices=cpu:2");
            ls_trainer *t = fixture_open(&s.f);
            choose(&s, 0, 1);
            s.weights[4] = twice ? 1 : 2;
            s.weights[20] = twice ? 1 : 0;
            memcpy(s.images + 20 * (size_t)PIXELS, s.images + 4 * (size_t)PIXELS, PIXELS);
            s.labels[20] = s.labels[4];
            memcpy(s.targets + 40, s.targets + 8, 2 * sizeof *s.targets);
            step(&s, t, s.weights);
            w[twice] = trained(&s, t, &count);
            ls_trainer_close(t, NULL);
            fixture_end(&s.f);
        }
        for (size_t i = 0; i < count; i++)
            assert_true(fabsf(w[0][i] - w[1][i]) <= 1e-6f);
        free(w[0]);
        free(w[1]);
    }
}

static void a_minibatch_without_weight_has_no_gradient(void **state)
{
    scenario s;
    char before[65];
    (void)state;
    begin(&s, CLASSES, "devices=cpu:2");
    fixture_set(&s.f, "optimizer.momentum=0");
    fixture_set(&s.f, "optimizer.weight_decay=0");
    ls_trainer *t = fixture_open(&s.f);
    memcpy(before, ls_trainer_result(t)->weights_sha256, 65);
    choose(&s, 0, 0);
    const ls_step_result r = step(&s, t, s.weights);
    assert_true(r.loss == 0 && !r.skipped && r.number == 1);
    assert_string_equal(ls_trainer_result(t)->weights_sha256, before);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* The loss of an epoch without an applied step is not known. */
static void an_epoch_of_skipped_steps_has_no_loss(void **state)
{
    static const char *const inject[] = {"worker=0,step=1,kind=nan", "worker=0,step=2,kind=nan",
                                         "worker=0,step=3,kind=nan"};
    scenario s;
    (void)state;
    begin(&s, CLASSES, "devices=ref:1");
    fixture_set(&s.f, "on_nonfinite=skip");
    s.f.sys.inject = inject;
    s.f.sys.inject_count = 3;
    ls_trainer *t = fixture_open(&s.f);
    for (uint32_t k = 0; k < 3; k++) {
        choose(&s, k, 1);
        assert_true(step(&s, t, s.weights).skipped);
    }
    assert_true(isnan(record_number(fixture_record(&s.f, "epoch", 0), "loss")));
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void the_loss_of_a_step_is_weighted(void **state)
{
    scenario s;
    double sum = 0, weight = 0;
    (void)state;
    begin(&s, CLASSES, "devices=cpu:2");
    fixture_set(&s.f, "optimizer.lr=1e-30");
    ls_trainer *t = fixture_open(&s.f);
    for (uint32_t i = 0; i < BATCH; i++) { /* each row alone */
        choose(&s, 0, 0);
        s.weights[i] = 0.25f * (float)(i % 5);
        const double loss = step(&s, t, s.weights).loss;
        assert_true(i % 5 > 0 || loss == 0);
        sum += (double)s.weights[i] * loss;
        weight += (double)s.weights[i];
    }
    for (uint32_t i = 0; i < BATCH; i++)
        s.weights[i] = 0.25f * (float)(i % 5);
    assert_true(fabs(step(&s, t, s.weights).loss - sum / weight) < 1e-5);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void what_is_no_weight_is_refused(void **state)
{
    static const float bad[] = {-1, 1e-10f, 2e9f, NAN, INFINITY};
    scenario s;
    (void)state;
    begin(&s, CLASSES, "devices=cpu:1");
    ls_trainer *t = fixture_open(&s.f), *none;
    for (size_t i = 0; i < ROOM(bad); i++) {
        choose(&s, 0, 1);
        s.weights[7] = bad[i];
        assert_int_equal(give(&s, t, s.weights, NULL), LS_EINVAL);
        assert_non_null(strstr(s.f.err.text, "row 7 has the weight"));
    }
    static const float good[] = {0, 1e-9f, 1e9f};
    for (size_t i = 0; i < ROOM(good); i++) {
        s.weights[7] = good[i];
        assert_int_equal(give(&s, t, s.weights, NULL), LS_OK);
    }
    s.weights[7] = INFINITY;
    ls_trainer_close(t, NULL);
    s.data.train_weights = s.weights;
    assert_int_equal(ls_trainer_open(&none, &s.f.options, &s.f.err), LS_EDATA);
    assert_non_null(strstr(s.f.err.text, "row 7 of the training rows has the weight inf"));
    s.data.weighted = 0;
    assert_int_equal(ls_trainer_open(&none, &s.f.options, &s.f.err), LS_EINVAL);
    s.data.train_weights = NULL;
    t = fixture_open(&s.f);
    assert_int_equal(give(&s, t, s.weights, NULL), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "set `weighted`"));
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* With 5 shards the tree is ((0 + 1) + (2 + 3)) + 4. */
static void weights_are_added_in_the_order_of_the_tree(void **state)
{
    static const float w[] = {1e-9f, 1e9f, 0.1f, 0.7f, 3e8f, 1e-9f, 0, 5, 1e9f, 0.3f};
    static const uint32_t rows[] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    double part[5];
    (void)state;
    for (int i = 0; i < 5; i++)
        part[i] = (double)w[9 - 2 * i] + (double)w[8 - 2 * i];
    const double sum = ((part[0] + part[1]) + (part[2] + part[3])) + part[4];
    assert_true(ls_sum_weights(w, rows, 10, 5) == sum);
    assert_true(ls_sum_weights(NULL, rows, 10, 5) == 10);
    assert_true(ls_sum_weights(w, rows, 2, 5) == (double)w[9] + (double)w[8]);
}

/* ---- the learning rate, and loading ---------------------------------------------------------- */

/* The rate that is set replaces that of the config, is in the records, and is that of a run that
 * goes on from a checkpoint. */
static void a_rate_that_is_set_lasts(void **state)
{
    scratch files;
    scenario s;
    float *w[3];
    size_t count = 0;
    (void)state;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    for (int form = 0; form < 3; form++) { /* by the config, by the call, after a load */
        begin(&s, CLASSES, "devices=cpu:2");
        fixture_set(&s.f, form == 0 ? "optimizer.lr=0.5" : "optimizer.lr=0.01");
        fixture_set(&s.f, "schedule={\"name\":\"step\",\"every_epochs\":1,\"gamma\":0.5,"
                          "\"epoch_steps\":2}");
        ls_trainer *t = fixture_open(&s.f);
        if (form == 1)
            assert_int_equal(ls_trainer_set_lr(t, 0.5, &s.f.err), LS_OK);
        if (form == 2 && ls_trainer_load(t, path, &s.f.err) != LS_OK)
            fail_msg("%s", s.f.err.text);
        for (uint32_t k = form == 2 ? 1 : 0; k < 4; k++) {
            choose(&s, k, 1);
            const ls_step_result r = step(&s, t, NULL);
            assert_true(r.number == k + 1 && fabs(r.lr - (k < 2 ? 0.5 : 0.25)) < 1e-6);
            const char *record =
                fixture_record(&s.f, "step", s.f.records ? (int)k - (form == 2) : 0);
            assert_true(fabs(record_number(record, "lr") - r.lr) < 1e-6);
            if (form == 1 && k == 0)
                assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
        }
        w[form] = trained(&s, t, &count);
        if (form > 0)
            assert_memory_equal(w[form], w[0], count * sizeof *w[0]);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
    for (int form = 0; form < 3; form++)
        free(w[form]);
    scratch_end(&files);
}

static void what_is_no_rate_is_refused(void **state)
{
    static const double bad[] = {0, -1, NAN, INFINITY, 2e6};
    scenario s;
    (void)state;
    begin(&s, CLASSES, "devices=cpu:1");
    ls_trainer *t = fixture_open(&s.f);
    for (size_t i = 0; i < ROOM(bad); i++)
        assert_int_equal(ls_trainer_set_lr(t, bad[i], &s.f.err), LS_EINVAL);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* After a step, a trainer loads the weights of an earlier checkpoint. With momentum, the next step
 * tells what became of the optimizer's state. */
static void weights_are_loaded_with_the_state_that_is_asked_for(void **state)
{
    scratch files;
    float *w[4];
    size_t count = 0;
    (void)state;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "saved");
    for (int form = 0; form < 4; form++) { /* reset, keep, take; form 3 loads nothing */
        scenario s;
        begin(&s, CLASSES, "devices=cpu:2");
        fixture_set(&s.f, "optimizer.momentum=0.9");
        ls_trainer *t = fixture_open(&s.f);
        for (uint32_t k = 0; k < 2; k++) {
            choose(&s, k, 1);
            step(&s, t, NULL);
            if (k == 0)
                assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
            if (form == 3)
                break;
        }
        if (form < 3 && ls_trainer_load_weights(t, path, (ls_load_state)form, &s.f.err) != LS_OK)
            fail_msg("%s", s.f.err.text);
        choose(&s, 2, 1);
        assert_int_equal(step(&s, t, NULL).number, form == 3 ? 2 : 3);
        w[form] = trained(&s, t, &count);
        assert_int_equal(ls_trainer_load_weights(t, path, (ls_load_state)3, &s.f.err), LS_EINVAL);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
    scenario s;
    begin(&s, CLASSES, "devices=cpu:2");
    fixture_set(&s.f, "optimizer={\"name\":\"adamw\",\"lr\":0.01}");
    ls_trainer *t = fixture_open(&s.f);
    assert_int_equal(ls_trainer_load_weights(t, path, LS_STATE_TAKE, &s.f.err), LS_EDATA);
    assert_non_null(strstr(s.f.err.text, "a checkpoint with the same model and optimizer"));
    assert_int_equal(ls_trainer_load_weights(t, path, LS_STATE_RESET, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
    const size_t bytes = count * sizeof **w;
    assert_memory_equal(w[LS_STATE_TAKE], w[3], bytes);
    assert_memory_not_equal(w[LS_STATE_RESET], w[3], bytes);
    assert_memory_not_equal(w[LS_STATE_KEEP], w[3], bytes);
    assert_memory_not_equal(w[LS_STATE_KEEP], w[LS_STATE_RESET], bytes);
    for (int form = 0; form < 4; form++)
        free(w[form]);
    scratch_end(&files);
}

LS_TESTS(train_weights, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_one_and_of_two_are_none),
        cmocka_unit_test(a_row_of_weight_zero_has_no_effect),
        cmocka_unit_test(weights_have_the_same_bits_on_any_number_of_workers),
        cmocka_unit_test(metrics_are_weighted_the_same_on_any_number_of_workers),
        cmocka_unit_test(rows_that_all_have_weight_zero_have_no_metrics),
        cmocka_unit_test(a_row_twice_is_a_row_of_weight_two),
        cmocka_unit_test(a_minibatch_without_weight_has_no_gradient),
        cmocka_unit_test(an_epoch_of_skipped_steps_has_no_loss),
        cmocka_unit_test(the_loss_of_a_step_is_weighted),
        cmocka_unit_test(what_is_no_weight_is_refused),
        cmocka_unit_test(weights_are_added_in_the_order_of_the_tree),
        cmocka_unit_test(a_rate_that_is_set_lasts),
        cmocka_unit_test(what_is_no_rate_is_refused),
        cmocka_unit_test(weights_are_loaded_with_the_state_that_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
