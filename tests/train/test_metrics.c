/* SPDX-License-Identifier: MIT */
/* Tests the metrics of evaluations. They must equal the results of plain counting, must be the same
 * with any number of workers, must be correct with a smaller last minibatch and with empty shards,
 * and must be in the records. */
#include "base/host.h"
#include "checkpoint/checkpoint.h"
#include "config/metrics.h"
#include "data/scratch.h"
#include "records/record.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 211, OUTPUTS = 9 };

static const ls_host host = {.size = sizeof host};
/* a loss of yes-or-no targets */
static const ls_vector_loss decisions = {.rule = LS_VECTOR_BCE};

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Rows whose scores (outputs of a model) have few different values, so that many scores are equal.
 * `row` lists the rows in another order than the order in memory. */
typedef struct rows {
    float scores[ROWS * OUTPUTS], targets[ROWS * OUTPUTS];
    int32_t labels[ROWS];
    uint32_t row[ROWS];
} rows;

static void draw_rows(rows *r, uint32_t first)
{
    uint32_t seed = first;
    for (uint32_t i = 0; i < ROWS; i++) {
        r->row[i] = (i * 7 + first) % ROWS;
        r->labels[i] = (int32_t)(next(&seed) % OUTPUTS);
        for (int k = 0; k < OUTPUTS; k++) {
            r->scores[i * OUTPUTS + (uint32_t)k] = (float)(next(&seed) % 12) / 4 - 1;
            r->targets[i * OUTPUTS + (uint32_t)k] = (float)(next(&seed) % 2);
        }
    }
}

static ls_scored_rows judged_of(const rows *r, const void *labels, int outputs)
{
    return (ls_scored_rows){
        .scores = r->scores, .labels = labels, .row = r->row, .rows = ROWS, .outputs = outputs};
}

/* Measures rows. `m`: zeroed, or the result of an earlier call; the caller frees it. */
static void must_measure(ls_measured *m, unsigned wanted, const ls_scored_rows *j)
{
    ls_error err;
    ls_measured_fini(m, &host);
    assert_int_equal(
        ls_measured_init(m, wanted, j->rows, j->outputs, j->weights != NULL, &host, &err), LS_OK);
    ls_measure(m, wanted, j);
}

static void classes_are_counted_as_by_hand(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        rows r;
        ls_measured m = {0};
        uint32_t count[OUTPUTS][OUTPUTS] = {{0}}, among = 0;
        draw_rows(&r, seed);
        const ls_scored_rows j = judged_of(&r, r.labels, OUTPUTS);
        must_measure(&m, 1u << LS_METRIC_TOP5 | 1u << LS_METRIC_CONFUSION, &j);
        for (uint32_t i = 0; i < ROWS; i++) {
            const float *s = r.scores + i * OUTPUTS;
            const int32_t label = r.labels[r.row[i]];
            int before = 0, best = OUTPUTS - 1;
            for (int k = OUTPUTS - 1; k >= 0; k--) {
                best = s[k] >= s[best] ? k : best; /* of equal scores the first counts */
                before += s[k] > s[label] || (s[k] == s[label] && k < label);
            }
            count[label][best]++;
            among += before < 5;
        }
        assert_memory_equal(m.confusion, count, sizeof count);
        assert_true(m.value[LS_METRIC_TOP5] == (double)among / ROWS);
        assert_true(isnan(m.value[LS_METRIC_AUC]) && isnan(m.value[LS_METRIC_R2]));
        for (int c = 0; c < OUTPUTS; c++) {
            double taken = 0, own = 0;
            for (int k = 0; k < OUTPUTS; k++) {
                taken += count[k][c];
                own += count[c][k];
            }
            assert_true(ls_precision_of(&m, c) == count[c][c] / taken);
            assert_true(ls_recall_of(&m, c) == count[c][c] / own);
        }
        ls_measured_fini(&m, &host);
    }
}

static void auc_counts_pairs_and_halves_ties(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        rows r;
        ls_measured m = {0};
        double sum = 0;
        const int outputs = 1 + (int)(seed % 3);
        draw_rows(&r, seed);
        for (uint32_t i = 0; i < ROWS && outputs == 3; i++)
            /* output 1 has no negative rows, so it does not count for the mean */
            r.targets[i * 3 + 1] = 1;
        ls_scored_rows j = judged_of(&r, r.targets, outputs);
        j.loss = &decisions;
        must_measure(&m, 1u << LS_METRIC_AUC, &j);
        for (int k = 0; k < outputs; k++) {
            double better = 0, pairs = 0;
            for (uint32_t a = 0; a < ROWS; a++)
                for (uint32_t b = 0; b < ROWS; b++) {
                    const uint32_t n = (uint32_t)outputs, o = (uint32_t)k;
                    if (r.targets[r.row[a] * n + o] < 0.5f || r.targets[r.row[b] * n + o] > 0.5f)
                        continue;
                    const float x = r.scores[a * n + o], y = r.scores[b * n + o];
                    pairs++;
                    better += x > y ? 1 : x == y ? 0.5 : 0;
                }
            sum += pairs > 0 ? better / pairs : 0;
        }
        const double wanted = sum / (outputs == 3 ? 2 : outputs);
        assert_true(fabs(m.value[LS_METRIC_AUC] - wanted) < 1e-14);
        ls_measured_fini(&m, &host);
    }
}

/* Draws the targets of a loss and the scores of its model, and returns the rows. */
static ls_scored_rows values_of(rows *r, const ls_vector_loss *loss, uint32_t seed)
{
    draw_rows(r, seed);
    for (uint32_t i = 0; i < ROWS * OUTPUTS; i++)
        r->targets[i] = (float)(next(&seed) % 5);
    ls_scored_rows j = judged_of(r, r->targets, OUTPUTS / 2 * 2);
    j.loss = loss;
    return j;
}

static void a_huber_loss_grows_linearly_beyond_delta(void **state)
{
    rows r;
    ls_measured m = {0};
    const ls_vector_loss loss = {.rule = LS_VECTOR_HUBER, .delta = 1.5};
    double sum = 0;
    (void)state;
    const ls_scored_rows j = values_of(&r, &loss, 5);
    must_measure(&m, 1u << LS_METRIC_HUBER, &j);
    for (uint32_t i = 0; i < ROWS * (uint32_t)j.outputs; i++) {
        const uint32_t n = (uint32_t)j.outputs;
        const double d = fabs((double)r.scores[i] - (double)r.targets[r.row[i / n] * n + i % n]);
        sum += d < 1.5 ? d * d / 2 : 1.5 * (d - 0.75);
    }
    assert_true(fabs(m.value[LS_METRIC_HUBER] - sum / (ROWS * j.outputs)) < 1e-12);
    ls_measured_in_unit(&m, 3);
    assert_true(fabs(m.value[LS_METRIC_HUBER] - 9 * sum / (ROWS * j.outputs)) < 1e-11);
    ls_measured_fini(&m, &host);
}

/* Tests two quantiles of each of half as many targets, and then one quantile. */
static void pinball_and_coverage_are_those_of_each_quantile(void **state)
{
    rows r;
    ls_measured m = {0};
    const ls_vector_loss two = {
        .rule = LS_VECTOR_QUANTILE, .quantiles = 2, .quantile = {0.125, 0.75}};
    ls_vector_loss one = two;
    (void)state;
    one.quantiles = 1;
    for (int parts = 1; parts <= 2; parts++) {
        const ls_scored_rows j = values_of(&r, parts == 1 ? &one : &two, 7);
        const uint32_t n = (uint32_t)j.outputs, targets = n / (uint32_t)parts;
        double sum = 0, inside = 0;
        must_measure(&m, 1u << LS_METRIC_PINBALL | 1u << LS_METRIC_COVERAGE, &j);
        for (uint32_t i = 0; i < ROWS; i++)
            for (uint32_t k = 0; k < targets; k++) {
                const float t = r.targets[r.row[i] * targets + k], *z = r.scores + i * n + k;
                const double d = (double)t - (double)z[0], e = (double)t - (double)z[n - targets];
                sum += fmax(0.125 * d, -0.875 * d) + (parts == 2 ? fmax(0.75 * e, -0.25 * e) : 0);
                inside += parts == 1 ? t <= z[0] : t >= z[0] && t <= z[targets];
            }
        assert_true(fabs(m.value[LS_METRIC_PINBALL] - sum / (ROWS * n)) < 1e-12);
        assert_true(fabs(m.value[LS_METRIC_COVERAGE] - inside / (ROWS * targets)) < 1e-12);
        ls_measured_in_unit(&m, 3);
        assert_true(fabs(m.value[LS_METRIC_PINBALL] - 3 * sum / (ROWS * n)) < 1e-11);
        assert_true(fabs(m.value[LS_METRIC_COVERAGE] - inside / (ROWS * targets)) < 1e-12);
    }
    ls_measured_fini(&m, &host);
}

static void the_metrics_of_counts_are_those_of_the_exponentials(void **state)
{
    rows r;
    ls_measured m = {0};
    const ls_vector_loss loss = {.rule = LS_VECTOR_POISSON};
    double deviance = 0, absolute = 0;
    (void)state;
    const ls_scored_rows j = values_of(&r, &loss, 9);
    must_measure(&m, 1u << LS_METRIC_DEVIANCE | 1u << LS_METRIC_MAE, &j);
    for (uint32_t i = 0; i < ROWS * (uint32_t)j.outputs; i++) {
        const uint32_t n = (uint32_t)j.outputs;
        const double mean = exp((double)r.scores[i]),
                     t = (double)r.targets[r.row[i / n] * n + i % n];
        deviance += 2 * ((t > 0 ? t * log(t / mean) : 0) - t + mean);
        absolute += fabs(mean - t);
    }
    assert_true(fabs(m.value[LS_METRIC_DEVIANCE] - deviance / (ROWS * j.outputs)) < 1e-12);
    assert_true(fabs(m.value[LS_METRIC_MAE] - absolute / (ROWS * j.outputs)) < 1e-12);
    r.scores[3] = 1e4f; /* a count that no double holds */
    must_measure(&m, 1u << LS_METRIC_DEVIANCE, &j);
    assert_true(isnan(m.value[LS_METRIC_DEVIANCE]));
    ls_measured_fini(&m, &host);
}

static void r2_and_mae_are_those_of_float64(void **state)
{
    rows r;
    ls_measured m = {0};
    double absolute = 0, squares = 0, spread = 0;
    (void)state;
    draw_rows(&r, 3);
    /* The targets are far from 0. Sums in float lose all digits then, so this tests that sums are
     * computed in double. */
    for (uint32_t i = 0; i < ROWS * 2; i++)
        r.targets[i] = 1e4f + (float)(i % 17) / 16;
    for (uint32_t i = 0; i < ROWS * 2; i++)
        r.scores[i] = r.targets[r.row[i / 2] * 2 + i % 2] + (float)(i % 5) / 64;
    const ls_scored_rows j = judged_of(&r, r.targets, 2);
    must_measure(&m, 1u << LS_METRIC_MAE | 1u << LS_METRIC_R2, &j);
    for (int k = 0; k < 2; k++) {
        long double mean = 0;
        for (uint32_t i = 0; i < ROWS; i++)
            mean += (long double)r.targets[i * 2 + (uint32_t)k] / ROWS;
        for (uint32_t i = 0; i < ROWS; i++) {
            const double t = (double)r.targets[r.row[i] * 2 + (uint32_t)k];
            const double far = (double)r.scores[i * 2 + (uint32_t)k] - t;
            absolute += fabs(far);
            squares += far * far;
            spread += (t - (double)mean) * (t - (double)mean);
        }
    }
    assert_true(fabs(m.value[LS_METRIC_MAE] - absolute / (2 * ROWS)) < 1e-12);
    assert_true(fabs(m.value[LS_METRIC_R2] - (1 - squares / spread)) < 1e-10);
    for (uint32_t i = 0; i < ROWS * 2; i++)
        r.targets[i] = 3;
    must_measure(&m, 1u << LS_METRIC_R2, &j);
    assert_true(isnan(m.value[LS_METRIC_R2])); /* the targets are all equal */
    ls_measured_fini(&m, &host);
}

/* ---- what a metric is ---- */

static void which_metrics_rise_and_which_rank_is_known(void **state)
{
    static const struct {
        const char *name;
        bool rises, ranks; /* `rises` means nothing if the metric does not rank */
    } known[] = {
        {"loss", false, true},     {"accuracy", true, true},  {"top5", true, true},
        {"mae", false, true},      {"r2", true, true},        {"auc", true, true},
        {"huber", false, true},    {"pinball", false, true},  {"coverage", true, false},
        {"deviance", false, true}, {"f1", true, true},        {"average_precision", true, true},
        {"r2_mean", true, true},   {"confusion", true, false}};
    (void)state;
    assert_int_equal(sizeof known / sizeof *known, LS_METRICS);
    for (size_t i = 0; i < LS_METRICS; i++) {
        const ls_metric m = ls_metric_find(known[i].name);
        assert_true(m < LS_METRICS);
        if (ls_metric_ranks(m) != known[i].ranks ||
            (known[i].ranks && ls_metric_rises(m) != known[i].rises))
            fail_msg("%s: rises %d, ranks %d", known[i].name, ls_metric_rises(m),
                     ls_metric_ranks(m));
    }
}

/* A key that is marked `varies` is not compared between two runs. */
static void a_metric_in_a_record_is_compared_between_runs(void **state)
{
    (void)state;
    for (int m = 0; m < LS_METRICS; m++) {
        const ls_record_key *row = ls_record_keys;
        char key[64];
        snprintf(key, sizeof key, "%s%s", m == LS_METRIC_CONFUSION ? "" : "test_",
                 ls_metric_names[m]);
        while (row->key && !(row->in >> LS_RECORD_EVAL & 1 && strcmp(row->key, key) == 0))
            row++;
        if (!row->key || row->varies)
            fail_msg("%s of an evaluation's record %s", key, row->key ? "varies" : "is missing");
    }
    for (const ls_record_key *row = ls_record_keys; row->key; row++)
        if (row->in >> LS_RECORD_EVAL & 1 && row->varies)
            assert_string_equal(row->key, "seconds");
}

/* ---- against scikit-learn ---- */

enum { CASE_ROWS = 80, CASE_OUTPUTS = 6, PRECISION = LS_METRICS, RECALL, FOUND = 14 };

/* What metric_cases.py prints: metrics, and the precision and recall of class 0. */
static const int found_metrics[FOUND] = {LS_METRIC_AUC,
                                         LS_METRIC_AVERAGE_PRECISION,
                                         LS_METRIC_F1,
                                         LS_METRIC_R2,
                                         LS_METRIC_R2_MEAN,
                                         LS_METRIC_ACCURACY,
                                         LS_METRIC_TOP5,
                                         PRECISION,
                                         RECALL,
                                         LS_METRIC_MAE,
                                         LS_METRIC_PINBALL,
                                         LS_METRIC_COVERAGE,
                                         LS_METRIC_HUBER,
                                         LS_METRIC_DEVIANCE};

/* A random case of metric_cases.py and what scikit-learn finds; NaN: undefined. */
typedef struct metric_case {
    int rows, outputs;
    char kind; /* 'c': classes, 'b': yes-or-no targets, 'v': values */
    double plain[FOUND], weighted[FOUND];
} metric_case;

static const metric_case metric_cases[] = {
#include "train/metric_cases.inc"
};

/* Draws the rows of a case as metric_cases.py does. */
static void draw_case(float *scores, float *targets, int32_t *labels, const metric_case *c,
                      uint32_t seed)
{
    const uint32_t outputs = (uint32_t)c->outputs;
    const bool ties = seed % 2 == 0, one_kind = seed % 10 == 7;
    for (uint32_t i = 0; i < (uint32_t)c->rows; i++) {
        labels[i] = one_kind ? 1 : (int32_t)(next(&seed) % outputs);
        const bool repeat = i > 0 && next(&seed) % 3 == 0;
        for (uint32_t k = 0; k < outputs; k++) {
            const uint32_t word = next(&seed), target = next(&seed);
            float *score = &scores[i * outputs + k];
            *score = (float)(word % 65536) / 8192 - 4;
            if (repeat)
                *score = scores[(i - 1) * outputs + k];
            else if (ties && outputs < 3)
                *score = (float)(word % 8) / 4 - 1;
            targets[i * outputs + k] =
                c->kind == 'v' ? *score + (float)(target % 64) / 16 - 2 : (float)(target % 2);
            if (one_kind && k == 0)
                targets[i * outputs] = 1;
        }
    }
}

/* The rows of a case. */
typedef struct case_rows {
    float scores[CASE_ROWS * CASE_OUTPUTS], targets[CASE_ROWS * CASE_OUTPUTS],
        counts[CASE_ROWS * CASE_OUTPUTS], weights[CASE_ROWS];
    int32_t labels[CASE_ROWS];
} case_rows;

static void draw_rows_of_case(case_rows *r, const metric_case *c, uint32_t seed)
{
    uint32_t of_weights = seed + 1000;
    draw_case(r->scores, r->targets, r->labels, c, seed);
    for (int i = 0; i < c->rows * c->outputs; i++)
        r->counts[i] = fabsf(r->targets[i]);
    for (int i = 0; i < c->rows; i++)
        r->weights[i] = next(&of_weights) % 4 == 0 ? 0 : (float)(next(&of_weights) % 50) / 10;
}

/* The accuracy is NaN unless it was measured. */
static void measure_with(ls_measured *m, unsigned wanted, const ls_scored_rows *j, double accuracy)
{
    ls_error err;
    ls_measured_fini(m, &host);
    assert_int_equal(
        ls_measured_init(m, wanted, j->rows, j->outputs, j->weights != NULL, &host, &err), LS_OK);
    m->value[LS_METRIC_ACCURACY] = accuracy;
    ls_measure(m, wanted, j);
}

/* Adds the numbers of a measurement that have a value to those of found_metrics. */
static void collect(double found[2][FOUND], const ls_measured *m)
{
    for (int f = 0; f < FOUND; f++) {
        const int k = found_metrics[f];
        const double *all[2] = {m->value, m->unweighted ? m->unweighted : m->value};
        for (int i = 0; i < 2 && k < LS_METRICS; i++)
            found[i][f] = isnan(all[i][k]) ? found[i][f] : all[i][k];
        if (k >= LS_METRICS && m->classes) {
            ls_measured once = *m;
            once.class_weight = NULL;
            found[0][f] = k == PRECISION ? ls_precision_of(m, 0) : ls_recall_of(m, 0);
            found[1][f] = k == PRECISION ? ls_precision_of(&once, 0) : ls_recall_of(&once, 0);
        }
    }
}

/* Measures a case with the losses whose metrics metric_cases.py has: found[0] as the rows' weights
 * say, found[1] with each row counted once. `weights` NULL: all rows count once. */
static void measure_case(double found[2][FOUND], const case_rows *r, const metric_case *c,
                         const float *weights)
{
    static const ls_vector_loss losses[] = {
        {.rule = LS_VECTOR_MSE},
        {.rule = LS_VECTOR_HUBER, .delta = 1.5},
        {.rule = LS_VECTOR_QUANTILE, .quantiles = 1, .quantile = {0.3}},
        {.rule = LS_VECTOR_POISSON}};
    static const unsigned of_values[] = {
        1u << LS_METRIC_MAE | 1u << LS_METRIC_R2 | 1u << LS_METRIC_R2_MEAN, 1u << LS_METRIC_HUBER,
        1u << LS_METRIC_PINBALL | 1u << LS_METRIC_COVERAGE, 1u << LS_METRIC_DEVIANCE};
    const unsigned ranked = 1u << LS_METRIC_AUC | 1u << LS_METRIC_ACCURACY,
                   decided = 1u << LS_METRIC_AVERAGE_PRECISION | 1u << LS_METRIC_F1,
                   classes = 1u << LS_METRIC_TOP5 | 1u << LS_METRIC_CONFUSION;
    ls_measured m = {0};
    ls_scored_rows j = {.scores = r->scores,
                        .labels = c->kind == 'c' ? (const void *)r->labels : r->targets,
                        .weights = weights,
                        .rows = (uint32_t)c->rows,
                        .outputs = c->outputs,
                        .loss = c->kind == 'b' ? &decisions : NULL};
    for (int f = 0; f < FOUND; f++)
        found[0][f] = found[1][f] = NAN;
    if (c->kind != 'v') {
        measure_with(&m,
                     ranked | (c->kind == 'c' ? classes : 0) |
                         (c->kind == 'b' || c->outputs == 2 ? decided : 0),
                     &j, c->plain[5]);
        collect(found, &m);
    }
    for (int loss = 0; c->kind == 'v' && loss < 4; loss++) {
        j.loss = &losses[loss];
        j.labels = loss == 3 ? r->counts : r->targets;
        measure_with(&m, of_values[loss], &j, NAN);
        collect(found, &m);
    }
    ls_measured_fini(&m, &host);
}

static void must_be(double found, double wanted, uint32_t seed, int metric)
{
    if (isnan(found) != isnan(wanted) || fabs(found - wanted) > 1e-12 * fmax(1, fabs(wanted)))
        fail_msg("case %u: %s is %.17g, expected %.17g", (unsigned)seed,
                 metric < LS_METRICS ? ls_metric_names[metric] : "precision or recall", found,
                 wanted);
}

static void metrics_are_those_of_scikit_learn(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= sizeof metric_cases / sizeof *metric_cases; seed++) {
        const metric_case *c = &metric_cases[seed - 1];
        case_rows r;
        double plain[2][FOUND], weighted[2][FOUND];
        draw_rows_of_case(&r, c, seed);
        measure_case(plain, &r, c, NULL);
        measure_case(weighted, &r, c, r.weights);
        for (int f = 0; f < FOUND; f++) {
            must_be(plain[0][f], c->plain[f], seed, found_metrics[f]);
            must_be(weighted[0][f], c->weighted[f], seed, found_metrics[f]);
        }
        assert_memory_equal(weighted[1], plain[1], sizeof plain[1]);
    }
}

/* Only the ratios of the weights count. */
static void weights_of_one_and_of_two_are_no_weights(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= sizeof metric_cases / sizeof *metric_cases; seed++) {
        const metric_case *c = &metric_cases[seed - 1];
        case_rows r;
        double plain[2][FOUND], same[2][FOUND], first[2][FOUND], twice[2][FOUND];
        draw_rows_of_case(&r, c, seed);
        measure_case(first, &r, c, r.weights);
        for (int i = 0; i < c->rows; i++)
            r.weights[i] *= 2;
        measure_case(twice, &r, c, r.weights);
        assert_memory_equal(twice, first, sizeof first);
        measure_case(plain, &r, c, NULL);
        for (int weight = 1; weight <= 2; weight++) {
            for (int i = 0; i < c->rows; i++)
                r.weights[i] = (float)weight;
            measure_case(same, &r, c, r.weights);
            assert_memory_equal(same, plain, sizeof plain);
        }
    }
}

/* The scores of a row without weight may be anything, even no numbers. */
static void a_row_of_weight_zero_is_not_measured(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= sizeof metric_cases / sizeof *metric_cases; seed++) {
        const metric_case *c = &metric_cases[seed - 1];
        const size_t outputs = (size_t)c->outputs;
        case_rows r;
        double whole[2][FOUND], less[2][FOUND];
        int kept = 0;
        draw_rows_of_case(&r, c, seed);
        measure_case(whole, &r, c, r.weights);
        for (int i = 0; i < c->rows; i++)
            for (size_t k = 0; r.weights[i] == 0 && k < outputs; k++)
                r.scores[(size_t)i * outputs + k] = k == 0 ? NAN : INFINITY;
        measure_case(less, &r, c, r.weights);
        for (int f = 0; f < FOUND; f++) /* without a matrix nothing says a class's precision */
            if (found_metrics[f] < LS_METRICS)
                assert_memory_equal(&less[0][f], &whole[0][f], sizeof(double));
        draw_rows_of_case(&r, c, seed);
        for (int i = 0; i < c->rows; i++) {
            if (r.weights[i] == 0)
                continue;
            memmove(r.scores + (size_t)kept * outputs, r.scores + (size_t)i * outputs,
                    outputs * sizeof(float));
            memmove(r.targets + (size_t)kept * outputs, r.targets + (size_t)i * outputs,
                    outputs * sizeof(float));
            memmove(r.counts + (size_t)kept * outputs, r.counts + (size_t)i * outputs,
                    outputs * sizeof(float));
            r.labels[kept] = r.labels[i];
            r.weights[kept++] = r.weights[i];
        }
        metric_case fewer = *c;
        fewer.rows = kept;
        measure_case(less, &r, &fewer, r.weights);
        assert_memory_equal(less[0], whole[0], sizeof whole[0]);
    }
}

/* The mean of equal targets, each times its weight, can be rounded to another number. */
static void equal_targets_have_no_r2_whatever_their_weights(void **state)
{
    rows r;
    float weights[ROWS];
    ls_measured m = {0};
    (void)state;
    draw_rows(&r, 3);
    for (uint32_t i = 0; i < ROWS; i++)
        weights[i] = (float)(i % 7) / 10;
    for (uint32_t i = 0; i < ROWS; i++)
        r.targets[i] = weights[i] > 0 ? 0.1f : 5;
    ls_scored_rows j = judged_of(&r, r.targets, 1);
    j.row = NULL;
    j.weights = weights;
    must_measure(&m, 1u << LS_METRIC_R2, &j);
    assert_true(isnan(m.value[LS_METRIC_R2]) && !isnan(m.unweighted[LS_METRIC_R2]));
    ls_measured_fini(&m, &host);
}

static void scores_that_are_no_numbers_are_not_measured(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        rows r;
        ls_measured m = {0};
        draw_rows(&r, 1);
        for (uint32_t i = 0; i < ROWS * OUTPUTS; i++)
            r.scores[i] = i % 7 && k ? r.scores[i] : NAN; /* all scores, or some */
        const ls_scored_rows classes = judged_of(&r, r.labels, OUTPUTS);
        must_measure(&m, 1u << LS_METRIC_TOP5 | 1u << LS_METRIC_CONFUSION, &classes);
        assert_true(isnan(m.value[LS_METRIC_TOP5]) && m.classes == 0);
        ls_measured_fini(&m, &host);
        ls_scored_rows bits = judged_of(&r, r.targets, OUTPUTS);
        bits.loss = &decisions;
        m = (ls_measured){0};
        must_measure(&m, 1u << LS_METRIC_AUC | 1u << LS_METRIC_F1, &bits);
        assert_true(isnan(m.value[LS_METRIC_AUC]) && isnan(m.value[LS_METRIC_F1]));
        ls_measured_fini(&m, &host);
    }
}

/* ---- in runs ---- */

typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
    ls_trainer *trainer;
} scenario;

static void begin(scenario *s, const char *devices)
{
    fixture_begin(&s->f);
    s->data = own_data(0);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "batch_size=24"); /* the last minibatch of the 40 test rows is smaller */
    fixture_set(&s->f, "shards=8");
    fixture_set(&s->f, "epochs=4");
    fixture_set(&s->f, "optimizer={\"lr\":0.1}");
    fixture_set(&s->f, devices);
}

/* Copies a record without its durations. */
static void cut_seconds(char out[4096], const char *record)
{
    snprintf(out, 4096, "%.*s", (int)(strstr(record, ",\"seconds\"") - record), record);
}

static void an_evaluation_finds_the_same_on_any_number_of_workers(void **state)
{
    static const char *const devices[] = {"devices=ref:1", "devices=ref:2", "devices=ref:3",
                                          "devices=cpu:1", "devices=cpu:2", "devices=cpu:3"};
    (void)state;
#if defined(__SANITIZE_THREAD__)
    const int count = 3;
#else
    const int count = has_backend("cpu") ? 6 : 3;
#endif
    char first[4096], found[4096];
    for (int i = 0; i < count; i++) {
        scenario s;
        unsigned long hits = 0, all = 0;
        begin(&s, devices[i]);
        ls_trainer *t = fixture_run(&s.f);
        cut_seconds(i % 3 ? found : first, fixture_record(&s.f, "eval", 3));
        if (i % 3)
            assert_string_equal(found, first);
        assert_non_null(strstr(first, "\"test_top5\":"));
        const ls_measured *m = &t->reported.measured;
        assert_int_equal(m->classes, OWN_CLASSES);
        for (int k = 0; k < OWN_CLASSES * OWN_CLASSES; k++) {
            all += m->confusion[k];
            hits += k % (OWN_CLASSES + 1) == 0 ? m->confusion[k] : 0;
        }
        /* The number of correct rows must be the one that the op of the loss has counted. */
        assert_int_equal(all, OWN_TEST);
        assert_true(hits > 8 && (double)hits / OWN_TEST == ls_trainer_result(t)->metric_value);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

static void what_is_measured_is_what_was_asked_for(void **state)
{
    static const struct {
        const char *set, *there, *absent;
    } cases[] = {
        {"metrics.names=[]", "test_accuracy", "test_top5"},
        {"metrics.names=[\"accuracy\"]", "test_accuracy", "confusion"},
        {"metrics.names=[\"top5\"]", "test_top5", "confusion"},
        {"metrics.names=[\"confusion\",\"loss\"]", "\"precision\":[", "test_top5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        begin(&s, "devices=ref:2");
        fixture_set(&s.f, cases[i].set);
        ls_trainer *t = fixture_run(&s.f);
        assert_non_null(strstr(fixture_record(&s.f, "eval", 0), cases[i].there));
        assert_null(strstr(fixture_record(&s.f, "eval", 0), cases[i].absent));
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

static void a_metric_of_another_loss_is_refused_with_those_that_fit(void **state)
{
    static const char *const wrong[] = {"metrics.names=[\"mae\"]", "metrics.names=[\"speed\"]",
                                        "metrics.names=all", "metrics.names=[1]"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scenario s;
        ls_trainer *t;
        begin(&s, "devices=ref:2");
        fixture_set(&s.f, wrong[i]);
        assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_ECONFIG);
        if (!strstr(s.f.err.text,
                    "cannot be measured with this loss; expected \"auto\" or a list of: loss "
                    "accuracy top5 auc confusion"))
            fail_msg("%s: %s", wrong[i], s.f.err.text);
        fixture_end(&s.f);
    }
}

/* ---- scores of many outputs ---- */

enum { MANY_CLASSES = 1 << 20, MANY_ROWS = 100 }; /* 419 MB of scores */

static int read_many(void *user, int test, const uint32_t *which, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    (void)user, (void)test, (void)err;
    for (uint32_t i = 0; i < count; i++) {
        ((uint8_t *)values)[i] = (uint8_t)which[i];
        ((int32_t *)targets)[i] = (int32_t)which[i];
    }
    return LS_OK;
}

/* A host (the allocator and log of a program) that refuses allocations of more than LS_SCORES_BYTES
 * unless `large` is set. It counts the log messages about metrics that are not computed. */
typedef struct small_host {
    ls_host host;
    int said;
    bool large;
} small_host;

static void *alloc_little(void *user, size_t bytes, size_t align)
{
    return bytes > LS_SCORES_BYTES && !((small_host *)user)->large
               ? NULL
               : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void free_any(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void count_words(void *user, ls_log_level level, const char *text)
{
    (void)level;
    ((small_host *)user)->said += strstr(text, "metrics: only loss and accuracy") != NULL;
}

static int open_many(scenario *s, small_host *h, ls_trainer **t, const char *set)
{
    h->host = (ls_host){sizeof h->host, alloc_little, free_any, count_words, h};
    begin(s, "devices=ref:1");
    s->data = (ls_data_source){.size = sizeof s->data,
                               .name = "many",
                               .channels = 1,
                               .height = 1,
                               .width = 1,
                               .row_type = LS_ROW_U8,
                               .classes = MANY_CLASSES,
                               .train_rows = 4,
                               .test_rows = MANY_ROWS,
                               .read = read_many};
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "model={\"layers\":[{\"type\":\"dense\",\"out\":1048576}]}");
    fixture_set(&s->f, "batch_size=1");
    fixture_set(&s->f, "shards=1");
    fixture_set(&s->f, set);
    s->f.options.host = &h->host;
    return ls_trainer_open(t, &s->f.options, &s->f.err);
}

static void many_scores_take_memory_where_somebody_asked_for_them(void **state)
{
    small_host h = {.large = true};
    scenario s;
    ls_trainer *t;
    (void)state;
    for (int named = 0; named < 2; named++) {
        h.said = 0;
        if (open_many(&s, &h, &t, named ? "metrics.names=[\"top5\"]" : "seed=0"))
            fail_msg("%s", s.f.err.text);
        assert_int_equal(t->engine->exchange->test.scores != NULL, named);
        assert_int_equal(t->config.metrics >> LS_METRIC_TOP5 & 1, named);
        assert_int_equal(h.said, !named);
        ls_trainer_close(t, NULL);
        fixture_end(&s.f);
    }
}

static void scores_that_were_asked_for_and_do_not_fit_are_named(void **state)
{
    small_host h = {0};
    scenario s;
    ls_trainer *t;
    (void)state;
    assert_int_equal(open_many(&s, &h, &t, "metrics.names=[\"top5\"]"), LS_ENOMEM);
    if (!strstr(s.f.err.text,
                "metrics.names: out of memory for 1048576 scores of each of 100 rows"))
        fail_msg("%s", s.f.err.text);
    assert_int_equal(h.said, 0);
    fixture_end(&s.f);
}

/* ---- the best, and patience ---- */

/* Begins a run that learns nothing. Therefore its first evaluation stays the best. */
static void begin_idle(scenario *s, const char *devices, const char *run_dir)
{
    begin(s, devices);
    fixture_set(&s->f, "optimizer={\"lr\":1e-30}");
    fixture_set(&s->f, "epochs=9");
    fixture_set(&s->f, "checkpoint={\"best\":true,\"keep\":1,\"every_epochs\":1}");
    fixture_set(&s->f, run_dir);
}

static int is_saved(const char *directory, int steps)
{
    char path[600];
    snprintf(path, sizeof path, "%s/run/checkpoints/step-%09d.safetensors", directory, steps);
    return access(path, F_OK) == 0;
}

static void the_best_checkpoint_is_kept_beside_the_newest(void **state)
{
    scratch place;
    scenario s;
    char run_dir[400], wanted[600], *best = NULL;
    ls_error err;
    (void)state;
    scratch_begin(&place);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
    begin_idle(&s, "devices=ref:2", run_dir);
    ls_trainer_close(fixture_run(&s.f), NULL);
    assert_non_null(strstr(fixture_record(&s.f, "eval", 0), "\"best\":true"));
    assert_non_null(strstr(fixture_record(&s.f, "eval", 1), "\"best\":false"));
    for (int epoch = 1; epoch <= 9; epoch++) /* an epoch has four steps */
        assert_int_equal(is_saved(place.directory, 4 * epoch), epoch == 1 || epoch == 9);
    snprintf(wanted, sizeof wanted, "%s/run/checkpoints", place.directory);
    assert_int_equal(ls_checkpoints_best(&best, wanted, &host, &err), LS_OK);
    snprintf(wanted, sizeof wanted, "%s/run/checkpoints/step-000000004.safetensors",
             place.directory);
    assert_string_equal(best, wanted);
    assert_non_null(strstr(fixture_record(&s.f, "run_end", 0), wanted));
    assert_int_equal(unlink(best), 0);
    ls_free(&host, best);
    snprintf(wanted, sizeof wanted, "%s/run/checkpoints", place.directory);
    assert_int_equal(ls_checkpoints_best(&best, wanted, &host, &err), LS_ENOENT);
    assert_non_null(strstr(err.text, "the best evaluation was after epoch 1, but"));
    fixture_end(&s.f);
    scratch_end(&place);
}

/* A host (the allocator of a program) that allows a given number of allocations, and counts the
 * blocks that were not freed. */
typedef struct poor_host {
    ls_host host;
    int left, live;
} poor_host;

static void *alloc_some(void *user, size_t bytes, size_t align)
{
    poor_host *h = user;
    if (h->left-- <= 0)
        return NULL;
    h->live++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void free_counted(void *user, void *memory)
{
    ((poor_host *)user)->live--;
    free(memory);
}

static void nothing_stays_behind_where_the_search_for_the_best_lacks_memory(void **state)
{
    scratch place;
    scenario s;
    char path[600], run_dir[400];
    int status = LS_ENOMEM;
    (void)state;
    scratch_begin(&place);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
    begin_idle(&s, "devices=ref:1", run_dir);
    ls_trainer_close(fixture_run(&s.f), NULL);
    /* enough steps to make the list of checkpoints grow */
    for (int steps = 5; steps < 25; steps++) {
        snprintf(path, sizeof path, "%s/run/checkpoints/step-%09d.safetensors", place.directory,
                 steps);
        fclose(fopen(path, "wb"));
    }
    snprintf(path, sizeof path, "%s/run/checkpoints", place.directory);
    for (int blocks = 0; status; blocks++) {
        poor_host h = {.host = {sizeof h.host, alloc_some, free_counted, NULL, &h}, .left = blocks};
        char *best = NULL;
        status = ls_checkpoints_best(&best, path, &h.host, NULL);
        ls_free(&h.host, best);
        if (h.live || blocks > 10000)
            fail_msg("%d of %d blocks stayed behind", h.live, blocks);
    }
    fixture_end(&s.f);
    scratch_end(&place);
}

static void stop_in_epoch_3(void *user, const ls_progress *p)
{
    scenario *s = user;
    if (p->epoch == 3 && p->step == 2)
        ls_trainer_interrupt(s->trainer);
}

/* Checks the directory after nine epochs of four steps, when only the newest checkpoint is kept. */
static void expect_the_last_one_alone(const scratch *place)
{
    for (int epoch = 1; epoch <= 9; epoch++)
        assert_int_equal(is_saved(place->directory, 4 * epoch), epoch == 9);
}

static void old_ones_are_removed_where_the_best_was_not_kept(void **state)
{
    scratch place;
    char run_dir[400];
    (void)state;
    scratch_begin(&place);
    /* 0: a run that keeps no best checkpoint and is interrupted; 1: its resumption */
    for (int life = 0; life < 2; life++) {
        scenario s;
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
        begin_idle(&s, "devices=ref:2", run_dir);
        if (life == 0) {
            fixture_set(&s.f, "checkpoint.best=false");
            s.f.callbacks.progress = stop_in_epoch_3;
            s.f.callbacks.user = &s;
            s.f.callbacks.record = NULL;
        } else
            s.f.options.resume = run_dir + strlen("run_dir=");
        s.trainer = fixture_open(&s.f);
        assert_int_equal(ls_trainer_run(s.trainer, &s.f.err), life ? LS_OK : LS_EINTERRUPTED);
        assert_int_equal(s.trainer->position.best.epoch, 1);
        ls_trainer_close(s.trainer, NULL);
        if (life)
            assert_null(strstr(fixture_record(&s.f, "run_end", 0), "best_checkpoint"));
        fixture_end(&s.f);
    }
    expect_the_last_one_alone(&place);
    scratch_end(&place);
}

/* Renames the directory of checkpoints between the first evaluation and the step after it. */
static int move_directory(void *user, const char *json, size_t length, ls_error *err)
{
    static const char first_eval[] = "{\"type\":\"eval\",\"epoch\":1,",
                      step_5[] = "{\"type\":\"step\",\"step\":5,";
    const scratch *place = user;
    char there[500], elsewhere[500];
    (void)err;
    (void)length;
    snprintf(there, sizeof there, "%s/run/checkpoints", place->directory);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", place->directory);
    if (strncmp(json, first_eval, sizeof first_eval - 1) == 0)
        assert_int_equal(rename(there, elsewhere), 0);
    else if (strncmp(json, step_5, sizeof step_5 - 1) == 0)
        assert_int_equal(rename(elsewhere, there), 0);
    return LS_OK;
}

static void old_ones_are_removed_where_the_best_could_not_be_saved(void **state)
{
    scratch place;
    scenario s;
    char run_dir[400];
    (void)state;
    scratch_begin(&place);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
    begin_idle(&s, "devices=ref:2", run_dir);
    fixture_set(&s.f, "checkpoint.async=false");
    s.f.callbacks.record = move_directory;
    s.f.callbacks.user = &place;
    ls_trainer_close(fixture_run(&s.f), NULL);
    expect_the_last_one_alone(&place);
    fixture_end(&s.f);
    scratch_end(&place);
}

static void patience_ends_a_run_at_the_same_step_after_a_stop(void **state)
{
    static const char *const devices[] = {"devices=ref:2", "devices=ref:1", "devices=ref:3"};
    scratch place;
    char run_dir[400], hash[3][65];
    (void)state;
    scratch_begin(&place);
    /* 0: a run without a stop; 1: a run that is interrupted; 2: its resumption */
    for (int life = 0; life < 3; life++) {
        scenario s;
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/run%s", place.directory, life ? "2" : "");
        begin_idle(&s, devices[life], run_dir);
        fixture_set(&s.f, "patience=3");
        if (life == 1) {
            s.f.callbacks.progress = stop_in_epoch_3;
            s.f.callbacks.user = &s;
            s.f.callbacks.record = NULL;
        }
        s.f.options.resume = life == 2 ? run_dir + strlen("run_dir=") : NULL;
        s.trainer = fixture_open(&s.f);
        assert_int_equal(ls_trainer_run(s.trainer, &s.f.err), life == 1 ? LS_EINTERRUPTED : LS_OK);
        const ls_result *r = ls_trainer_result(s.trainer);
        memcpy(hash[life], r->weights_sha256, 65);
        if (life != 1)
            assert_int_equal(r->steps, 4 * 4);
        assert_int_equal(r->interrupted, life == 1);
        ls_trainer_close(s.trainer, NULL);
        if (life != 1)
            assert_non_null(
                strstr(fixture_record(&s.f, "run_end", 0),
                       "\"stopped_early\":\"3 evaluations in a row were not better than "
                       "the one after epoch 1"));
        fixture_end(&s.f);
    }
    assert_string_equal(hash[0], hash[2]);
    scratch_end(&place);
}

/* The sink refuses the record of the evaluation after the first or second epoch, which ends the
 * run. The resumed run repeats that evaluation, which must count for `patience` only once. So the
 * fourth evaluation must be the last one, as in a run without that failure. */
static void an_evaluation_that_failed_counts_once(void **state)
{
    scratch place;
    char run_dir[400];
    (void)state;
    scratch_begin(&place);
    for (int part = 0; part < 4; part++) {
        scenario s;
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/run%d", place.directory, part / 2);
        begin_idle(&s, "devices=ref:2", run_dir);
        fixture_set(&s.f, "patience=3");
        /* 6 records per epoch */
        s.f.fail_record_at = part == 0 ? 1 + 6 : part == 2 ? 1 + 6 + 6 : 0;
        s.f.options.resume = part % 2 ? run_dir + strlen("run_dir=") : NULL;
        s.trainer = fixture_open(&s.f);
        assert_int_equal(ls_trainer_run(s.trainer, &s.f.err), part % 2 ? LS_OK : LS_EIO);
        const ls_best *best = &s.trainer->position.best;
        assert_int_equal(best->epoch, part > 0);
        assert_int_equal(best->waited, part % 2 ? 3 : 0);
        assert_int_equal(s.trainer->position.steps, part % 2 ? 4 * 4 : part == 0 ? 4 : 8);
        ls_trainer_close(s.trainer, NULL);
        fixture_end(&s.f);
    }
    scratch_end(&place);
}

static void what_cannot_be_monitored_is_refused(void **state)
{
    static const struct {
        const char *set[2], *message;
    } cases[] = {
        {{"monitor=r2", "seed=0"}, "monitor: expected \"auto\""},
        {{"monitor=top5", "metrics.names=[\"accuracy\"]"}, "found \"top5\""},
        {{"patience=2", "eval_every=0"}, "need evaluations during the run"},
        {{"checkpoint.best=true", "eval_every=0"}, "need evaluations during the run"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        ls_trainer *t;
        begin(&s, "devices=ref:2");
        for (int k = 0; k < 2; k++)
            fixture_set(&s.f, cases[i].set[k]);
        assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_ECONFIG);
        if (!strstr(s.f.err.text, cases[i].message))
            fail_msg("case %zu: %s", i, s.f.err.text);
        fixture_end(&s.f);
    }
}

LS_TESTS(train_metrics, "integration long-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_counted_as_by_hand),
        cmocka_unit_test(auc_counts_pairs_and_halves_ties),
        cmocka_unit_test(which_metrics_rise_and_which_rank_is_known),
        cmocka_unit_test(a_metric_in_a_record_is_compared_between_runs),
        cmocka_unit_test(metrics_are_those_of_scikit_learn),
        cmocka_unit_test(weights_of_one_and_of_two_are_no_weights),
        cmocka_unit_test(a_row_of_weight_zero_is_not_measured),
        cmocka_unit_test(equal_targets_have_no_r2_whatever_their_weights),
        cmocka_unit_test(r2_and_mae_are_those_of_float64),
        cmocka_unit_test(a_huber_loss_grows_linearly_beyond_delta),
        cmocka_unit_test(pinball_and_coverage_are_those_of_each_quantile),
        cmocka_unit_test(the_metrics_of_counts_are_those_of_the_exponentials),
        cmocka_unit_test(scores_that_are_no_numbers_are_not_measured),
        cmocka_unit_test(an_evaluation_finds_the_same_on_any_number_of_workers),
        cmocka_unit_test(what_is_measured_is_what_was_asked_for),
        cmocka_unit_test(a_metric_of_another_loss_is_refused_with_those_that_fit),
        cmocka_unit_test(many_scores_take_memory_where_somebody_asked_for_them),
        cmocka_unit_test(scores_that_were_asked_for_and_do_not_fit_are_named),
        cmocka_unit_test(the_best_checkpoint_is_kept_beside_the_newest),
        cmocka_unit_test(old_ones_are_removed_where_the_best_was_not_kept),
        cmocka_unit_test(old_ones_are_removed_where_the_best_could_not_be_saved),
        cmocka_unit_test(nothing_stays_behind_where_the_search_for_the_best_lacks_memory),
        cmocka_unit_test(patience_ends_a_run_at_the_same_step_after_a_stop),
        cmocka_unit_test(an_evaluation_that_failed_counts_once),
        cmocka_unit_test(what_cannot_be_monitored_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
