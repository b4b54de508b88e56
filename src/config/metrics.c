/* Computes the metrics of an evaluation from the *scores*, the model's outputs for its rows
 * (metrics.h). */
#include "config/metrics.h"

#include "base/error.h"
#include "base/host.h"
#include "base/portable_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ls_metric_names[LS_METRICS + 1] = {"loss",     "accuracy", "top5",     "mae",
                                                     "r2",       "auc",      "huber",    "pinball",
                                                     "coverage", "deviance", "confusion"};

#define ONE(metric) (1u << LS_METRIC_##metric)

/* The metrics of a loss of values. */
typedef struct metrics_of_loss {
    unsigned all;          /* metrics that can be measured besides the loss, as a bit mask */
    ls_metric reported[2]; /* metrics that are the run's result, in order; LS_METRIC_LOSS: none */
} metrics_of_loss;

static const metrics_of_loss of_loss[] = {
    [LS_VECTOR_MSE] = {ONE(MAE) | ONE(R2), {LS_METRIC_R2, LS_METRIC_MAE}},
    [LS_VECTOR_BCE] = {ONE(AUC), {0}},
    [LS_VECTOR_MAE] = {ONE(MAE) | ONE(R2), {LS_METRIC_MAE}},
    [LS_VECTOR_HUBER] = {ONE(HUBER) | ONE(MAE) | ONE(R2), {LS_METRIC_HUBER}},
    [LS_VECTOR_QUANTILE] = {ONE(PINBALL) | ONE(COVERAGE), {LS_METRIC_PINBALL}},
    [LS_VECTOR_POISSON] = {ONE(DEVIANCE) | ONE(MAE) | ONE(R2), {LS_METRIC_DEVIANCE}},
};

ls_metric ls_metric_to_report(const ls_loss *loss, unsigned wanted, const ls_measured *measured)
{
    const ls_metric *order = of_loss[loss->rule].reported;
    for (int i = 0; !loss->hits && i < 2 && order[i] != LS_METRIC_LOSS; i++)
        if (wanted & 1u << order[i] && (!measured || !isnan(measured->value[order[i]])))
            return order[i];
    return loss->hits ? LS_METRIC_ACCURACY : LS_METRIC_LOSS;
}

ls_metric ls_metric_find(const char *name)
{
    int m = LS_METRIC_LOSS;
    while (m < LS_METRICS && strcmp(name, ls_metric_names[m]) != 0)
        m++;
    return (ls_metric)m;
}

bool ls_metric_rises(ls_metric metric)
{
    switch (metric) {
    case LS_METRIC_LOSS:
    case LS_METRIC_MAE:
    case LS_METRIC_HUBER:
    case LS_METRIC_PINBALL:
    case LS_METRIC_DEVIANCE: return false;
    default: return true;
    }
}

bool ls_metric_ranks(ls_metric metric)
{
    return metric != LS_METRIC_CONFUSION && metric != LS_METRIC_COVERAGE;
}

unsigned ls_metrics_of(const ls_loss *loss, int outputs)
{
    unsigned all = ONE(LOSS) | (loss->hits ? ONE(ACCURACY) : 0);
    if (!loss->vectors)
        return all | ONE(TOP5) | (outputs <= LS_CONFUSION_MOST ? ONE(CONFUSION) : 0);
    return all | of_loss[loss->rule].all;
}

unsigned ls_metrics_by_default(const ls_loss *loss, int outputs)
{
    unsigned all = ls_metrics_of(loss, outputs);
    if (outputs <= 5)
        all &= ~ONE(TOP5); /* with five classes or fewer, top5 is always 1 */
    return outputs <= LS_CONFUSION_CLASSES ? all : all & ~ONE(CONFUSION);
}

unsigned ls_metrics_without_scores(unsigned wanted)
{
    return wanted & (ONE(LOSS) | ONE(ACCURACY));
}

bool ls_metrics_need_scores(unsigned wanted)
{
    return wanted != ls_metrics_without_scores(wanted);
}

void ls_measured_clear(ls_measured *m)
{
    for (int i = 0; i < LS_METRICS; i++)
        m->value[i] = NAN;
    m->classes = 0;
}

int ls_measured_init(ls_measured *out, unsigned wanted, int outputs, const ls_host *host,
                     ls_error *err)
{
    *out = (ls_measured){0};
    ls_measured_clear(out);
    if (!(wanted & ONE(CONFUSION)))
        return LS_OK;
    out->confusion =
        ls_alloc_array(host, (size_t)outputs * sizeof *out->confusion, (size_t)outputs);
    return out->confusion ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a confusion matrix");
}

static size_t row_of(const ls_scored_rows *j, uint32_t i)
{
    return j->row ? j->row[i] : i;
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Returns the class with the largest score. Of several equal scores, it returns the class with the
 * lowest number, as the kernels of the loss do. */
static int largest(const float *score, int classes)
{
    int best = 0;
    for (int k = 1; k < classes; k++)
        if (score[k] > score[best])
            best = k;
    return best;
}

/* Returns the number of classes that rank before the label: those with a larger score, and those
 * with an equal score and a lower number. */
static int rank_of(const float *score, int classes, int label)
{
    int rank = 0;
    for (int k = 0; k < classes; k++)
        if (score[k] > score[label] || (k < label && score[k] == score[label]))
            rank++;
    return rank;
}

static void measure_classes(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    const int32_t *labels = j->labels;
    const size_t classes = (size_t)j->outputs;
    uint32_t among = 0;
    if (wanted & ONE(CONFUSION)) {
        out->classes = j->outputs;
        memset(out->confusion, 0, classes * classes * sizeof *out->confusion);
    }
    for (uint32_t i = 0; i < j->rows; i++) {
        const float *score = j->scores + i * classes;
        const int32_t label = labels[row_of(j, i)];
        if ((wanted & ONE(TOP5)) && rank_of(score, j->outputs, label) < 5)
            among++;
        if (wanted & ONE(CONFUSION))
            out->confusion[(size_t)label * classes + (size_t)largest(score, j->outputs)]++;
    }
    if (wanted & ONE(TOP5))
        out->value[LS_METRIC_TOP5] = (double)among / j->rows;
}

double ls_precision_of(const ls_measured *m, int class)
{
    const size_t n = (size_t)m->classes, k = (size_t) class;
    uint64_t taken = 0;
    for (size_t i = 0; i < n; i++)
        taken += m->confusion[i * n + k];
    return taken ? (double)m->confusion[k * n + k] / (double)taken : NAN;
}

double ls_recall_of(const ls_measured *m, int class)
{
    const size_t n = (size_t)m->classes, k = (size_t) class;
    uint64_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows += m->confusion[k * n + i];
    return rows ? (double)m->confusion[k * n + k] / (double)rows : NAN;
}

static void put_shares(ls_json_writer *w, const char *key, const ls_measured *m,
                       double (*share)(const ls_measured *, int))
{
    ls_json_open_array(w, key);
    for (int k = 0; k < m->classes; k++)
        ls_json_put_double(w, NULL, share(m, k));
    ls_json_close(w);
}

static void put_matrix(ls_json_writer *w, const char *key, const ls_measured *m)
{
    const size_t n = (size_t)m->classes;
    ls_json_open_array(w, key);
    for (size_t i = 0; i < n; i++) {
        ls_json_open_array(w, NULL);
        for (size_t k = 0; k < n; k++)
            ls_json_put_uint(w, NULL, m->confusion[i * n + k]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

const char *const ls_class_keys[] = {"precision", "recall", "confusion", NULL};

void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *m)
{
    if (m->classes == 0)
        return;
    if (strcmp(key, ls_class_keys[0]) == 0)
        put_shares(w, key, m, ls_precision_of);
    else if (strcmp(key, ls_class_keys[1]) == 0)
        put_shares(w, key, m, ls_recall_of);
    else
        put_matrix(w, key, m);
}

/* ---- values --------------------------------------------------------------------------------- */

static bool is_rule(const ls_scored_rows *j, ls_vector_rule rule)
{
    return j->loss && j->loss->rule == rule;
}

static int targets_of(const ls_scored_rows *j)
{
    return j->outputs / (j->loss ? ls_loss_parts(j->loss) : 1);
}

/* Returns number `k` of the target of row `i`. */
static double target(const ls_scored_rows *j, uint32_t i, int k)
{
    return (double)((const float *)j->labels)[row_of(j, i) * (size_t)targets_of(j) + (size_t)k];
}

static double score(const ls_scored_rows *j, uint32_t i, int k)
{
    return (double)j->scores[i * (size_t)j->outputs + (size_t)k];
}

/* Returns the value that output `k` of row `i` predicts. */
static double predicted(const ls_scored_rows *j, uint32_t i, int k)
{
    return is_rule(j, LS_VECTOR_POISSON) ? ls_exp(score(j, i, k)) : score(j, i, k);
}

static double or_nan(double value)
{
    return isfinite(value) ? value : NAN;
}

/* Returns Σ(target − mean of the targets)² over the rows, for output `k`. */
static double spread(const ls_scored_rows *j, int k)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        sum += target(j, i, k);
    const double mean = sum / j->rows;
    for (uint32_t i = 0; i < j->rows; i++)
        squares += (target(j, i, k) - mean) * (target(j, i, k) - mean);
    return squares;
}

static void measure_values(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    double absolute = 0, squares = 0, spreads = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < j->outputs; k++) {
            const double far = predicted(j, i, k) - target(j, i, k);
            absolute += fabs(far);
            squares += far * far;
        }
    for (int k = 0; k < j->outputs && wanted & ONE(R2); k++)
        spreads += spread(j, k);
    if (wanted & ONE(MAE))
        out->value[LS_METRIC_MAE] = or_nan(absolute / ((double)j->rows * j->outputs));
    if (wanted & ONE(R2))
        out->value[LS_METRIC_R2] = spreads > 0 ? or_nan(1 - squares / spreads) : NAN;
}

static double huber_of(double far, double delta)
{
    return far < delta ? far * far / 2 : delta * (far - delta / 2);
}

static double pinball_of(double below, double q)
{
    return below > 0 ? q * below : (q - 1) * below;
}

/* Returns the Poisson deviance of a target from a prediction, whose logarithm is `z`. */
static double deviance_of(double t, double z)
{
    return 2 * ((t > 0 ? t * (ls_ln(t) - z) - t : 0) + ls_exp(z));
}

/* Measures the metric that is the loss itself, or that belongs to it. */
static void measure_loss(ls_measured *out, ls_metric metric, const ls_scored_rows *j)
{
    const ls_vector_loss *v = j->loss;
    const int targets = targets_of(j);
    double sum = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < j->outputs; k++) {
            const double z = score(j, i, k), t = target(j, i, k % targets);
            if (metric == LS_METRIC_HUBER)
                sum += huber_of(fabs(z - t), v->delta);
            else if (metric == LS_METRIC_PINBALL)
                sum += pinball_of(t - z, v->quantile[k / targets]);
            else
                sum += deviance_of(t, z);
        }
    out->value[metric] = or_nan(sum / ((double)j->rows * j->outputs));
}

static void measure_coverage(ls_measured *out, const ls_scored_rows *j)
{
    const int targets = targets_of(j), highest = j->outputs - targets;
    uint64_t inside = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < targets; k++) {
            const double t = target(j, i, k);
            if (t <= score(j, i, highest + k) && (highest == 0 || t >= score(j, i, k)))
                inside++;
        }
    out->value[LS_METRIC_COVERAGE] = (double)inside / ((double)j->rows * targets);
}

static void measure_losses(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    static const ls_metric sums[] = {LS_METRIC_HUBER, LS_METRIC_PINBALL, LS_METRIC_DEVIANCE};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (wanted >> sums[i] & 1)
            measure_loss(out, sums[i], j);
    if (wanted & ONE(COVERAGE))
        measure_coverage(out, j);
}

void ls_measured_in_unit(ls_measured *m, double unit)
{
    m->value[LS_METRIC_MAE] *= unit;
    m->value[LS_METRIC_PINBALL] *= unit;
    m->value[LS_METRIC_HUBER] = ls_loss_in_unit(2, m->value[LS_METRIC_HUBER], unit);
}

/* ---- bits ----------------------------------------------------------------------------------- */

/* A score of a row, and whether the row is positive (target > 0.5). */
typedef struct scored {
    float score;
    bool positive;
} scored;

static int ascending(const void *a, const void *b)
{
    const float x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

/* Returns the AUC of one output, or NaN if its rows are all positive or all negative. The count of
 * pairs is doubled, so that a pair with equal scores, which counts half, adds the integer 1. */
static double auc_of(scored *list, uint32_t rows)
{
    uint64_t pairs2 = 0, negatives = 0, positives = 0;
    qsort(list, rows, sizeof *list, ascending);
    for (uint32_t i = 0, end; i < rows; i = end) {
        uint64_t here[2] = {0, 0};
        for (end = i; end < rows && list[end].score == list[i].score; end++)
            here[list[end].positive]++;
        pairs2 += here[1] * (2 * negatives + here[0]);
        negatives += here[0];
        positives += here[1];
    }
    return positives && negatives ? (double)pairs2 / 2 / ((double)positives * (double)negatives)
                                  : NAN;
}

static int measure_bits(ls_measured *out, const ls_scored_rows *j, const ls_host *host,
                        ls_error *err)
{
    double sum = 0;
    int counted = 0;
    scored *list = ls_alloc_array(host, j->rows, sizeof *list);
    if (!list)
        return ls_fail(err, LS_ENOMEM, "out of memory for the AUC of %u rows", (unsigned)j->rows);
    for (int k = 0; k < j->outputs; k++) {
        for (uint32_t i = 0; i < j->rows; i++)
            list[i] =
                (scored){j->scores[i * (size_t)j->outputs + (size_t)k], target(j, i, k) > 0.5};
        const double auc = auc_of(list, j->rows);
        if (!isnan(auc)) {
            sum += auc;
            counted++;
        }
    }
    ls_free(host, list);
    out->value[LS_METRIC_AUC] = counted ? sum / counted : NAN;
    return LS_OK;
}

static bool are_finite(const ls_scored_rows *j)
{
    for (size_t i = 0; i < (size_t)j->rows * (size_t)j->outputs; i++)
        if (!isfinite(j->scores[i]))
            return false;
    return true;
}

int ls_measure(ls_measured *out, unsigned wanted, const ls_scored_rows *j, const ls_host *host,
               ls_error *err)
{
    out->classes = 0;
    for (int m = LS_METRIC_TOP5; m < LS_METRICS; m++)
        out->value[m] = wanted >> m & 1 ? NAN : out->value[m];
    if (j->rows == 0 || !are_finite(j)) /* scores that are not finite cannot be ranked */
        return LS_OK;
    if (wanted & (ONE(TOP5) | ONE(CONFUSION)))
        measure_classes(out, wanted, j);
    if (wanted & (ONE(MAE) | ONE(R2)))
        measure_values(out, wanted, j);
    measure_losses(out, wanted, j);
    return wanted & ONE(AUC) ? measure_bits(out, j, host, err) : LS_OK;
}
