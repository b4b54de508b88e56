/* SPDX-License-Identifier: MIT */
/* Tests training on rows of floats, whose targets are a class, numbers or yes/no labels. The
 * weights must be bit-identical on any number of workers. */
#include "base/rng.h"
#include "own_data.h"
#include "runner.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    VALUES = 6,
    TARGETS = 3,
    TRAIN = 150,
    TEST = 44,
    BATCH = 40,
    STEPS = 4 /* number of steps of an epoch */,
    WEIGHTS = VALUES * 24 + 24 + 24 * TARGETS + TARGETS
};

static const char net[] = "model={\"layers\":[{\"type\":\"dense\",\"out\":24},{\"type\":\"tanh\"},"
                          "{\"type\":\"dense\",\"out\":3}]}";

/* Returns a random number from −1 to 1. */
static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1;
}

/* Fills a row. Its targets depend on three sums of the values. `sums`: the sums; if `bits`, 1 for
 * each sum above 0 and 0 for the others. `class`: the index of the largest sum. */
static void table_row(int bits, int test, uint32_t row, float *values, float *sums, int32_t *class)
{
    uint32_t state = (row + 1) * 2654435761u + (uint32_t)test * 97u;
    for (int i = 0; i < VALUES; i++)
        values[i] = noise(&state);
    for (int j = 0; j < TARGETS; j++)
        sums[j] = values[j] - values[j + 1] + 0.5f * values[j + 3] * values[j];
    *class = sums[0] > sums[1] ? (sums[0] > sums[2] ? 0 : 2) : (sums[1] > sums[2] ? 1 : 2);
    for (int j = 0; bits && j < TARGETS; j++)
        sums[j] = sums[j] > 0;
}

/* The kind of target. ALIKE: numbers as in NUMBERS, but the targets of all test rows are 3. COUNTS:
 * whole numbers from 0 on. */
typedef enum task { CLASSES, NUMBERS, BITS, ALIKE, COUNTS } task;

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    const task what = *(const task *)user;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        float sums[TARGETS];
        int32_t class;
        table_row(what == BITS, test, rows[i], (float *)values + (size_t)i * VALUES, sums, &class);
        for (int j = 0; what == ALIKE && test && j < TARGETS; j++)
            sums[j] = 3;
        for (int j = 0; what == COUNTS && j < TARGETS; j++)
            sums[j] = floorf(3 * fabsf(sums[j]));
        if (what == CLASSES)
            ((int32_t *)targets)[i] = class;
        else
            memcpy((float *)targets + (size_t)i * TARGETS, sums, sizeof sums);
    }
    return LS_OK;
}

typedef struct scenario {
    fixture f;
    task what;
    ls_data_source data;
    const ls_data_source *sources[1];
} scenario;

static void begin(scenario *s, task what, const char *devices, int streamed)
{
    static const char *const losses[] = {"loss=cross_entropy", "loss=mse", "loss=bce", "loss=mse",
                                         "loss=poisson"};
    fixture_begin(&s->f);
    s->what = what;
    s->data = (ls_data_source){.size = sizeof s->data,
                               .name = "table",
                               .channels = VALUES,
                               .height = 1,
                               .width = 1,
                               .classes = what == CLASSES ? TARGETS : 0,
                               .target_count = what == CLASSES ? 0 : TARGETS,
                               .row_type = LS_ROW_F32,
                               .train_rows = TRAIN,
                               .test_rows = TEST,
                               .streamed = streamed,
                               .read = read_rows,
                               .user = &s->what};
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "batch_size=40");
    fixture_set(&s->f, "shards=8");
    fixture_set(&s->f, "epochs=3");
    fixture_set(&s->f, "optimizer={\"name\":\"adamw\",\"lr\":0.02}");
    fixture_set(&s->f, net);
    fixture_set(&s->f, losses[what]);
    fixture_set(&s->f, devices);
}

static const char *const backends[] = {"ref", "cpu"};

static int is_there(const char *backend)
{
#if defined(__SANITIZE_THREAD__)
    return strcmp(backend, "ref") == 0; /* other tests cover the CPU back end */
#else
    return has_backend(backend) || strcmp(backend, "ref") == 0;
#endif
}

static void each_task_has_the_same_bits_on_any_number_of_workers(void **state)
{
    static const int workers[] = {1, 2, 3, 8};
    (void)state;
    for (int b = 0; b < 2; b++)
        for (int what = CLASSES; what <= BITS && is_there(backends[b]); what++) {
            char devices[32];
            ls_result first = {0};
            for (int w = 0; w < 4; w++) {
                scenario s;
                snprintf(devices, sizeof devices, "devices=%s:%d", backends[b], workers[w]);
                begin(&s, (task)what, devices, 0);
                ls_trainer *t = fixture_run(&s.f);
                const ls_result *r = ls_trainer_result(t);
                first = w == 0 ? *r : first;
                assert_string_equal(r->weights_sha256, first.weights_sha256);
                assert_memory_equal(&r->test_loss, &first.test_loss, sizeof r->test_loss);
                ls_trainer_close(t, NULL);
                fixture_end(&s.f);
            }
        }
}

/* Tests the losses that are not the default of their targets. */
static void each_loss_of_values_has_the_same_bits_and_falls(void **state)
{
    static const int workers[] = {1, 2, 3, 8};
    static const struct {
        task what;
        const char *set[3], *metric;
    } cases[] = {
        {NUMBERS, {"loss=mae"}, "mae"},
        {NUMBERS, {"loss=huber", "huber_delta=0.5"}, "huber"},
        {NUMBERS, {"loss=quantile", "quantiles=0.8"}, "pinball"},
        {NUMBERS,
         {"loss=quantile", "quantiles=[0.1, 0.9]",
          "model={\"layers\":[{\"type\":\"dense\",\"out\":24},{\"type\":\"tanh\"},"
          "{\"type\":\"dense\",\"out\":6}]}"},
         "pinball"},
        {COUNTS, {"loss=poisson"}, "deviance"},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int b = 0; b < 2 && is_there(backends[b]); b++) {
            ls_result first = {0};
            for (int w = 0; w < 4; w++) {
                char devices[32], key[32];
                scenario s;
                snprintf(devices, sizeof devices, "devices=%s:%d", backends[b], workers[w]);
                begin(&s, cases[c].what, devices, 0);
                for (int i = 0; i < 3 && cases[c].set[i]; i++)
                    fixture_set(&s.f, cases[c].set[i]);
                ls_trainer *t = fixture_run(&s.f);
                const ls_result *r = ls_trainer_result(t);
                first = w == 0 ? *r : first;
                assert_string_equal(r->weights_sha256, first.weights_sha256);
                assert_memory_equal(&r->test_loss, &first.test_loss, sizeof r->test_loss);
                assert_string_equal(r->metric, cases[c].metric);
                snprintf(key, sizeof key, "test_%s", cases[c].metric);
                const char *begun = fixture_record(&s.f, "eval", 0);
                assert_true(r->metric_value < record_number(begun, key));
                if (strcmp(r->metric, "deviance") != 0) /* the metric is the loss */
                    assert_true(fabs(r->metric_value - r->test_loss) < 1e-6);
                ls_trainer_close(t, NULL);
                fixture_end(&s.f);
            }
        }
}

/* Trains so many epochs that the loss falls below a bound. The losses of the two back ends differ
 * only by rounding. */
static void each_task_is_learned(void **state)
{
    /* upper bounds of the final loss; the first loss is ln 3, ⅔ and ln 2 */
    static const double most[] = {0.35, 0.05, 0.25};
    (void)state;
    for (int what = CLASSES; what <= BITS; what++) {
        double loss[2] = {0, 0};
        for (int b = 0; b < 2 && is_there(backends[b]); b++) {
            scenario s;
            begin(&s, (task)what, b ? "devices=cpu:2" : "devices=ref:2", 0);
            fixture_set(&s.f, "epochs=40");
            fixture_set(&s.f, "eval_every=0");
            ls_trainer *t = fixture_run(&s.f);
            const ls_result *r = ls_trainer_result(t);
            loss[b] = r->test_loss;
            if (!(loss[b] < most[what]))
                fail_msg("%s, task %d: a loss of %g", backends[b], what, loss[b]);
            if (what == NUMBERS)
                assert_string_not_equal(r->metric, "accuracy");
            else
                assert_true(r->metric_value > 0.8);
            ls_trainer_close(t, NULL);
            fixture_end(&s.f);
        }
        if (loss[1] > 0)
            assert_true(fabs(loss[1] - loss[0]) < 1e-3 * (1 + loss[0]));
    }
}

static void accuracy_is_null_where_no_row_is_correct(void **state)
{
    scenario s;
    (void)state;
    begin(&s, NUMBERS, "devices=ref:2", 0);
    ls_trainer *t = fixture_run(&s.f);
    assert_non_null(strstr(fixture_record(&s.f, "eval", 0), "\"test_accuracy\":null"));
    assert_non_null(strstr(fixture_record(&s.f, "epoch", 0), "\"train_accuracy\":null"));
    assert_false(isnan(record_number(fixture_record(&s.f, "eval", 0), "test_loss")));
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* Trains with ls_trainer_step on the rows that step `number` has in a run with seed 0. */
static void steps_of_floats_and_vectors_give_the_bits_of_a_run(void **state)
{
    static float wanted[WEIGHTS], found[WEIGHTS];
    scenario s;
    float values[BATCH * VALUES], sums[BATCH * TARGETS], scores[2 * TARGETS], again[2 * TARGETS];
    int32_t class;
    (void)state;
    begin(&s, NUMBERS, "devices=ref:3", 1);
    fixture_set(&s.f, "epochs=1");
    ls_trainer *run = fixture_run(&s.f);
    assert_int_equal(ls_trainer_weights(run, wanted, ROOM(wanted), &s.f.err), LS_OK);
    ls_trainer_close(run, NULL);
    uint32_t order[TRAIN];
    ls_rng_permutation(order, TRAIN, 0, 0);
    static const uint32_t last = TRAIN % BATCH;
    s.f.options.step_rows = &last;
    s.f.options.step_row_count = 1;
    ls_trainer *t = fixture_open(&s.f);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t n = step + 1 < STEPS ? BATCH : last;
        for (uint32_t i = 0; i < n; i++)
            table_row(0, 0, order[step * BATCH + i], values + (size_t)i * VALUES,
                      sums + (size_t)i * TARGETS, &class);
        const ls_step_rows rows = {sizeof rows, values, sums, LS_ROW_F32, n, NULL};
        if (ls_trainer_step(t, &rows, NULL, &s.f.err) != LS_OK)
            fail_msg("%s", s.f.err.text);
    }
    assert_int_equal(own_predict(t, values, LS_ROW_F32, 2, scores, ROOM(scores), &s.f.err), LS_OK);
    assert_int_equal(own_predict(t, values, LS_ROW_F32, 1, again, ROOM(again), &s.f.err), LS_OK);
    assert_int_equal(
        own_predict(t, values + VALUES, LS_ROW_F32, 1, again + TARGETS, TARGETS, &s.f.err), LS_OK);
    for (int j = 0; j < 2 * TARGETS; j++)
        assert_true(fabsf(scores[j] - again[j]) < 1e-5f);
    values[VALUES + 2] = NAN;
    const ls_step_rows rows = {sizeof rows, values, sums, LS_ROW_F32, BATCH, NULL};
    assert_int_equal(ls_trainer_step(t, &rows, NULL, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "row 1: value 2 is nan; expected finite numbers"));
    assert_int_equal(ls_trainer_weights(t, found, ROOM(found), &s.f.err), LS_OK);
    assert_memory_equal(found, wanted, sizeof wanted);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void a_loss_for_other_targets_is_refused(void **state)
{
    static const struct {
        task what;
        const char *set, *message;
    } cases[] = {
        {CLASSES, "loss=mse",
         "loss: \"mse\" does not fit this data, whose targets are classes; expected one of: auto, "
         "cross_entropy"},
        {NUMBERS, "loss=cross_entropy",
         "loss: \"cross_entropy\" does not fit this data, whose targets are vectors; expected one "
         "of: auto, mse, bce, mae, huber, quantile, poisson"},
        {NUMBERS, "label_smoothing=0.1", "label_smoothing: applies to classes only"},
        {NUMBERS, "loss=bce", "bce needs targets from 0 to 1"},
        {NUMBERS, "loss=poisson", "poisson needs targets of 0 or more, because they are counts"},
        {NUMBERS, "loss=quantile", "quantiles: the loss quantile needs a number between 0 and 1"},
        {NUMBERS, "huber_delta=2", "huber_delta: applies to the loss huber only"},
        {NUMBERS, "quantiles=0.5", "quantiles: apply to the loss quantile only"},
        {CLASSES, "quantiles=[0.5]", "quantiles: apply to the loss quantile only"},
        {COUNTS, "data.target_mean=1", "data.target_mean: scales targets that are values"},
        {BITS, "data.target_std=2", "data.target_std: scales targets that are values"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            scenario s;
            ls_trainer *t;
            begin(&s, cases[i].what, "devices=ref:2", streamed);
            fixture_set(&s.f, cases[i].set);
            assert_int_not_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_OK);
            if (!strstr(s.f.err.text, cases[i].message))
                fail_msg("case %zu: %s", i, s.f.err.text);
            fixture_end(&s.f);
        }
}

static void a_monitor_without_a_value_is_refused_where_it_decides(void **state)
{
    static const char *const needed[] = {"patience=2", "checkpoint.best=true"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        scenario s;
        begin(&s, ALIKE, "devices=ref:2", 0);
        fixture_set(&s.f, "monitor=r2");
        fixture_set(&s.f, needed[i]);
        ls_trainer *t = fixture_open(&s.f);
        assert_int_equal(ls_trainer_run(t, &s.f.err), LS_ECONFIG);
        assert_non_null(strstr(s.f.err.text, "monitor: r2 has no value on the test rows"));
        assert_int_equal(fixture_count(&s.f, "epoch"), 1);
        assert_int_equal(fixture_count(&s.f, "eval"), 0);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

static void no_evaluation_is_the_best_where_the_monitor_has_no_value(void **state)
{
    scenario s;
    (void)state;
    begin(&s, ALIKE, "devices=ref:2", 0);
    fixture_set(&s.f, "monitor=r2");
    ls_trainer *t = fixture_open(&s.f);
    /* before the first step */
    assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), LS_OK);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    for (int i = 0; i < 4; i++)
        assert_non_null(strstr(fixture_record(&s.f, "eval", i), "\"best\":false"));
    assert_int_equal(t->position.best.waited, 0); /* there is no best evaluation yet */
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* A number among the rows of a source of doubles, or among their targets. */
typedef struct planted {
    int test;
    uint32_t row;
    size_t place; /* of a row's values, and then of its targets */
    double value;
} planted;

static int read_doubles(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                        void *targets, ls_error *err)
{
    const planted *p = user;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        float value[VALUES], sums[TARGETS];
        int32_t class;
        table_row(0, test, rows[i], value, sums, &class);
        for (int j = 0; j < VALUES; j++)
            ((double *)values)[i * VALUES + (size_t)j] = (double)value[j];
        for (int j = 0; j < TARGETS; j++)
            ((double *)targets)[i * TARGETS + (size_t)j] = 1e-3 * (double)sums[j];
        if (p->test == test && rows[i] == p->row && p->place < VALUES)
            ((double *)values)[i * VALUES + p->place] = p->value;
        else if (p->test == test && rows[i] == p->row)
            ((double *)targets)[i * TARGETS + p->place - VALUES] = p->value;
    }
    return LS_OK;
}

static void begin_doubles(scenario *s, planted *p, int streamed, uint32_t rows)
{
    begin(s, NUMBERS, "devices=ref:2", streamed);
    s->data.row_type = LS_ROW_F64;
    s->data.train_rows = rows;
    s->data.read = read_doubles;
    s->data.user = p;
}

/* Resident, streamed, and test rows. The scales, which are learnt, do not change what is refused,
 * except that a large number may be no float once it is scaled. */
static void numbers_that_no_float_holds_are_refused_in_a_source(void **state)
{
    static const struct {
        planted p;
        const char *message;
    } cases[] = {
        {{0, 7, 2, (double)NAN}, "row 7 of the training rows: value 2 is nan; expected finite"},
        {{0, 7, 2, 1e39},
         "row 7 of the training rows: value 2 is 1e+39; expected finite numbers "
         "that a float holds"},
        {{0, 149, 7, -1e300}, "row 149 of the training rows: target 1 is -1e+300; expected finite"},
        {{1, 3, 0, (double)INFINITY}, "row 3 of the test rows: value 0 is inf; expected finite"},
        {{1, 3, 8, 1e39}, "row 3 of the test rows: target 2 is 1e+39; expected finite"},
        {{1, 3, 6, 3e38}, "row 3: target 0 is 3e+38; expected a number that a float holds once it"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int how = 0; how < 4; how++) {
            scenario s;
            ls_trainer *t = NULL;
            planted p = cases[i].p;
            begin_doubles(&s, &p, how & 1, TRAIN);
            fixture_set(&s.f, how & 2 ? "data.standardize=true" : "data.standardize=false");
            if (how & 1)
                fixture_set(&s.f, "data.scale_rows=20"); /* row 149 is read in a step */
            int status = ls_trainer_open(&t, &s.f.options, &s.f.err);
            if (status == LS_OK)
                status = ls_trainer_run(t, &s.f.err);
            assert_int_equal(status, LS_EDATA);
            if (!strstr(s.f.err.text, cases[i].message))
                fail_msg("case %zu, %d: %s", i, how, s.f.err.text);
            ls_trainer_close(t, NULL);
            fixture_end(&s.f);
        }
}

/* A refused step changes nothing: the weights are those of the same steps without it. */
static void numbers_that_no_float_holds_are_refused_in_a_step(void **state)
{
    static const struct {
        planted p;
        int status;
        const char *message;
    } cases[] = {
        {{0, 45, 2, 1e39}, LS_EINVAL, "row 5: value 2 is 1e+39; expected finite numbers that a"},
        {{0, 45, 8, (double)NAN}, LS_EINVAL, "row 5: target 2 is nan; expected finite numbers"},
        {{0, 45, 8, -1e39}, LS_EINVAL, "row 5: target 2 is -1e+39; expected finite numbers that a"},
        {{0, 45, 8, 3e38}, LS_EDATA, "row 5: target 2 is 3e+38; expected a number that a float"},
    };
    static float wanted[WEIGHTS], found[WEIGHTS];
    (void)state;
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        scenario s;
        uint32_t row[BATCH];
        double values[BATCH * VALUES], targets[BATCH * TARGETS];
        planted p = i ? cases[i - 1].p : (planted){1, 2, 7, 3e38};
        begin_doubles(&s, &p, 1, 0);
        fixture_set(&s.f, "data.standardize=true");
        fixture_set(&s.f, "data.scale_rows=40");
        ls_trainer *t = fixture_open(&s.f);
        for (int step = 0; step < 3; step++) {
            for (uint32_t k = 0; k < BATCH; k++)
                row[k] = k + (step == 1 ? BATCH : 0);
            read_doubles(&p, 0, row, BATCH, values, targets, NULL);
            const ls_step_rows given = {.size = sizeof given,
                                        .rows = values,
                                        .targets = targets,
                                        .row_type = LS_ROW_F64,
                                        .n = BATCH};
            const int status = ls_trainer_step(t, &given, NULL, &s.f.err);
            assert_int_equal(status, i && step == 1 ? cases[i - 1].status : LS_OK);
            if (status && !strstr(s.f.err.text, cases[i - 1].message))
                fail_msg("case %zu: %s", i, s.f.err.text);
            if (i == 0 && step == 0)
                step++; /* the steps that are trained in the other cases */
        }
        assert_int_equal(ls_trainer_evaluate(t, NULL, &s.f.err), i ? LS_OK : LS_EDATA);
        if (i == 0 && !strstr(s.f.err.text, "row 2: target 1 is 3e+38; expected a number that a"))
            fail_msg("%s", s.f.err.text);
        assert_int_equal(ls_trainer_weights(t, i ? found : wanted, WEIGHTS, &s.f.err), LS_OK);
        if (i)
            assert_memory_equal(found, wanted, sizeof wanted);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

LS_TESTS(train_tasks, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_has_the_same_bits_on_any_number_of_workers),
        cmocka_unit_test(each_loss_of_values_has_the_same_bits_and_falls),
        cmocka_unit_test(each_task_is_learned),
        cmocka_unit_test(accuracy_is_null_where_no_row_is_correct),
        cmocka_unit_test(steps_of_floats_and_vectors_give_the_bits_of_a_run),
        cmocka_unit_test(a_monitor_without_a_value_is_refused_where_it_decides),
        cmocka_unit_test(no_evaluation_is_the_best_where_the_monitor_has_no_value),
        cmocka_unit_test(a_loss_for_other_targets_is_refused),
        cmocka_unit_test(numbers_that_no_float_holds_are_refused_in_a_source),
        cmocka_unit_test(numbers_that_no_float_holds_are_refused_in_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
