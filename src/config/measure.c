/* SPDX-License-Identifier: MIT */
/* Computes the metrics of an evaluation from the scores (metrics.h), and allocates the memory that
 * this takes. */
#include "config/metrics.h"

#include "base/error.h"
#include "base/host.h"
#include "base/portable_math.h"
#include "config/metric_bits.h"
#include "config/ranking.h"
#include "merge/weights.h"

#include <math.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns the number of values of 8 bytes with which a row is ranked: two keys, of more than two
 * classes two parts of its score, and two weights. */
static uint64_t rank_values(unsigned wanted, int outputs, bool weighted)
{
    if (!(wanted & (LS_BIT(AUC) | LS_BIT(AVERAGE_PRECISION))))
        return 0;
    return (outputs > 2 ? 4 : 2) + (weighted ? 1 : 0);
}

uint64_t ls_metrics_bytes(unsigned wanted, uint32_t rows, int outputs, bool weighted)
{
    const uint64_t scores =
        ls_metrics_need_scores(wanted, weighted) ? sizeof(float) * (uint64_t)outputs : 0;
    return rows * (scores + rank_values(wanted, outputs, weighted) * sizeof(uint64_t));
}

void ls_measured_clear(ls_measured *m)
{
    for (int i = 0; i < LS_METRICS; i++)
        m->value[i] = NAN;
    for (size_t i = 0; i < m->numbers; i++)
        m->number[i] = NAN;
    m->classes = 0;
}

/* Allocates the arrays of numbers. */
static int allocate_numbers(ls_measured *out, unsigned wanted, size_t outputs, bool weighted,
                            const ls_host *host, ls_error *err)
{
    const size_t targets = wanted & LS_BIT(R2_MEAN) ? outputs : 0,
                 classes = weighted && wanted & LS_BIT(CONFUSION) ? outputs : 0,
                 numbers = targets + (weighted ? LS_METRICS + targets : 0) + 3 * classes;
    if (numbers == 0)
        return LS_OK;
    double *next = ls_alloc_array(host, numbers, sizeof *next);
    if (!next)
        return ls_fail(err, LS_ENOMEM, "out of memory for the metrics of %zu outputs", outputs);
    out->number = next;
    out->numbers = numbers;
    out->targets = (int)targets;
    out->each = targets ? next : NULL;
    next += targets;
    if (!weighted)
        return LS_OK;
    out->unweighted = next;
    out->each_unweighted = targets ? next + LS_METRICS : NULL;
    out->class_weight = classes ? next + LS_METRICS + targets : NULL;
    return LS_OK;
}

int ls_measured_init(ls_measured *out, unsigned wanted, uint32_t rows, int outputs, bool weighted,
                     const ls_host *host, ls_error *err)
{
    const size_t n = (size_t)outputs, ranks = (size_t)rank_values(wanted, outputs, weighted);
    *out = (ls_measured){0};
    ls_measured_clear(out);
    if (wanted & LS_BIT(CONFUSION)) {
        out->confusion = ls_alloc_array(host, n * sizeof *out->confusion, n);
        if (!out->confusion)
            return ls_fail(err, LS_ENOMEM, "out of memory for a confusion matrix");
    }
    int status = allocate_numbers(out, wanted, n, weighted, host, err);
    if (status)
        return status;
    if (ranks > 0 && rows > 0) {
        out->room = ls_alloc_array(host, rows, ranks * sizeof *out->room);
        if (!out->room)
            return ls_fail(err, LS_ENOMEM, "out of memory for the ranks of %u rows, %.1f GB",
                           (unsigned)rows, (double)rows * (double)ranks * 8e-9);
    }
    ls_measured_clear(out);
    return LS_OK;
}

void ls_measured_fini(ls_measured *m, const ls_host *host)
{
    ls_free(host, m->confusion);
    ls_free(host, m->number);
    ls_free(host, m->room);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static size_t row_of(const ls_scored_rows *j, uint32_t i)
{
    return j->row ? j->row[i] : i;
}

static double weight_of(const ls_scored_rows *j, uint32_t i)
{
    return j->weights ? (double)j->weights[row_of(j, i)] : 1;
}

/* Returns the sum of the rows' weights: the number of rows, if they have none. */
static double total_weight(const ls_scored_rows *j)
{
    return ls_sum_weights(j->weights, j->row, j->rows, 1);
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

/* Counts a row of the class `label` that was predicted as `taken`. The matrix counts each row once.
 */
static void count_row(ls_measured *out, const ls_scored_rows *j, size_t label, size_t taken,
                      double weight)
{
    const size_t classes = (size_t)j->outputs;
    if (!j->weights) {
        out->confusion[label * classes + taken]++;
        return;
    }
    out->class_weight[LS_OF_CLASS * classes + label] += weight;
    out->class_weight[LS_AS_CLASS * classes + taken] += weight;
    if (label == taken)
        out->class_weight[LS_OF_AND_AS_CLASS * classes + label] += weight;
}

static void clear_classes(ls_measured *out, const ls_scored_rows *j)
{
    const size_t classes = (size_t)j->outputs;
    if (!j->weights) {
        out->classes = j->outputs;
        memset(out->confusion, 0, classes * classes * sizeof *out->confusion);
    }
    for (size_t i = 0; j->weights && i < LS_CLASS_WEIGHTS * classes; i++)
        out->class_weight[i] = 0;
}

static void measure_classes(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    const int32_t *labels = j->labels;
    double among = 0;
    if (wanted & LS_BIT(CONFUSION))
        clear_classes(out, j);
    for (uint32_t i = 0; i < j->rows; i++) {
        const float *score = j->scores + i * (size_t)j->outputs;
        const int32_t label = labels[row_of(j, i)];
        const double weight = weight_of(j, i);
        if (weight == 0)
            continue;
        if ((wanted & LS_BIT(TOP5)) && rank_of(score, j->outputs, label) < 5)
            among += weight;
        if (wanted & LS_BIT(CONFUSION))
            count_row(out, j, (size_t)label, (size_t)largest(score, j->outputs), weight);
    }
    if (wanted & LS_BIT(TOP5))
        out->value[LS_METRIC_TOP5] = among / total_weight(j);
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

/* Returns Σ(target − mean of the targets)² over the rows, for output `k`; 0 if all targets that
 * count are equal, whatever the rounding of their mean. */
static double spread(const ls_scored_rows *j, int k)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < j->rows; i++) {
        if (weight_of(j, i) == 0)
            continue;
        sum += weight_of(j, i) * target(j, i, k);
        least = fmin(least, target(j, i, k));
        most = fmax(most, target(j, i, k));
    }
    const double mean = sum / total_weight(j);
    for (uint32_t i = 0; i < j->rows; i++)
        squares += weight_of(j, i) * ((target(j, i, k) - mean) * (target(j, i, k) - mean));
    return least < most ? squares : 0;
}

/* Returns Σ(value − target)² over the rows, for output `k`. */
static double squared_error(const ls_scored_rows *j, int k)
{
    double sum = 0;
    for (uint32_t i = 0; i < j->rows; i++) {
        const double far = predicted(j, i, k) - target(j, i, k), weight = weight_of(j, i);
        sum += weight > 0 ? weight * (far * far) : 0;
    }
    return sum;
}

/* Measures the R² of each output, and their mean. */
static void measure_each(ls_measured *out, const ls_scored_rows *j)
{
    double sum = 0;
    int counted = 0;
    for (int k = 0; k < j->outputs; k++) {
        const double squares = squared_error(j, k), spreads = spread(j, k);
        out->each[k] = spreads > 0 ? or_nan(1 - squares / spreads) : NAN;
        if (!isnan(out->each[k])) {
            sum += out->each[k];
            counted++;
        }
    }
    out->value[LS_METRIC_R2_MEAN] = counted ? sum / counted : NAN;
}

static void measure_values(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    double absolute = 0, squares = 0, spreads = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < j->outputs; k++) {
            const double far = predicted(j, i, k) - target(j, i, k), weight = weight_of(j, i);
            absolute += weight > 0 ? weight * fabs(far) : 0;
            squares += weight > 0 ? weight * (far * far) : 0;
        }
    for (int k = 0; k < j->outputs && wanted & LS_BIT(R2); k++)
        spreads += spread(j, k);
    if (wanted & LS_BIT(R2_MEAN))
        measure_each(out, j);
    if (wanted & LS_BIT(MAE))
        out->value[LS_METRIC_MAE] = or_nan(absolute / (total_weight(j) * j->outputs));
    if (wanted & LS_BIT(R2))
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

/* Returns the sum over the outputs of row `i` of a metric that is the loss itself, or that belongs
 * to it. */
static double loss_of_row(ls_metric metric, const ls_scored_rows *j, uint32_t i)
{
    const ls_vector_loss *v = j->loss;
    const int targets = targets_of(j);
    double sum = 0;
    for (int k = 0; k < j->outputs; k++) {
        const double z = score(j, i, k), t = target(j, i, k % targets);
        if (metric == LS_METRIC_HUBER)
            sum += huber_of(fabs(z - t), v->delta);
        else if (metric == LS_METRIC_PINBALL)
            sum += pinball_of(t - z, v->quantile[k / targets]);
        else
            sum += deviance_of(t, z);
    }
    return sum;
}

static void measure_loss(ls_measured *out, ls_metric metric, const ls_scored_rows *j)
{
    double sum = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        if (weight_of(j, i) > 0)
            sum += weight_of(j, i) * loss_of_row(metric, j, i);
    out->value[metric] = or_nan(sum / (total_weight(j) * j->outputs));
}

static void measure_coverage(ls_measured *out, const ls_scored_rows *j)
{
    const int targets = targets_of(j), highest = j->outputs - targets;
    double inside = 0;
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < targets; k++) {
            const double t = target(j, i, k);
            if (t <= score(j, i, highest + k) && (highest == 0 || t >= score(j, i, k)))
                inside += weight_of(j, i);
        }
    out->value[LS_METRIC_COVERAGE] = inside / (total_weight(j) * targets);
}

static void measure_losses(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    static const ls_metric sums[] = {LS_METRIC_HUBER, LS_METRIC_PINBALL, LS_METRIC_DEVIANCE};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (wanted >> sums[i] & 1)
            measure_loss(out, sums[i], j);
    if (wanted & LS_BIT(COVERAGE))
        measure_coverage(out, j);
}

void ls_measured_in_unit(ls_measured *m, double unit)
{
    double *const all[] = {m->value, m->unweighted};
    for (int i = 0; i < 2 && all[i]; i++) {
        all[i][LS_METRIC_MAE] *= unit;
        all[i][LS_METRIC_PINBALL] *= unit;
        all[i][LS_METRIC_HUBER] = ls_loss_in_unit(2, all[i][LS_METRIC_HUBER], unit);
    }
}

/* ---- yes-or-no decisions --------------------------------------------------------------------- */

static bool is_positive(const ls_scored_rows *j, uint32_t i, int k)
{
    if (is_rule(j, LS_VECTOR_BCE))
        return target(j, i, k) > 0.5;
    return ((const int32_t *)j->labels)[row_of(j, i)] == k;
}

/* Stores the largest score of each row, and the logarithm of the sum of the exponentials of its
 * scores, each less the largest. The logarithm of a probability is (score − largest) − logarithm:
 * the difference is exact, so rows whose scores differ by a constant have equal probabilities. */
static void sum_exponentials(double *most, double *log_sum, const ls_scored_rows *j)
{
    for (uint32_t i = 0; i < j->rows; i++) {
        const float *row = j->scores + (size_t)i * (size_t)j->outputs;
        double sum = 0;
        most[i] = (double)row[largest(row, j->outputs)];
        for (int k = 0; k < j->outputs; k++)
            sum += ls_exp((double)row[k] - most[i]);
        log_sum[i] = ls_ln(sum);
    }
}

/* Returns the score of row `i` in decision `k`. `most`: the results of sum_exponentials for more
 * than two classes; else NULL. */
static double decision_score(const ls_scored_rows *j, uint32_t i, int k, const double *most)
{
    if (most)
        return score(j, i, k) - most[i] - most[j->rows + i];
    return is_rule(j, LS_VECTOR_BCE) ? score(j, i, k) : score(j, i, k) - score(j, i, 0);
}

/* Stores the rows of decision `k` that count for a ranking, and counts its predictions. Returns the
 * number of rows. `to` without keys: the rows are only counted. */
static uint32_t list_decision(ls_decision *out, const ls_ranked *to, const ls_scored_rows *j, int k,
                              const double *most)
{
    uint32_t listed = 0;
    for (uint32_t i = 0; i < j->rows; i++) {
        const double weight = weight_of(j, i);
        if (weight == 0)
            continue;
        const bool positive = is_positive(j, i, k);
        const double s = decision_score(j, i, k, most);
        ls_decision_count(out, positive, s > 0, weight);
        if (to->key)
            to->key[listed] = ls_rank_key(s, positive);
        if (to->weight)
            to->weight[listed] = (float)weight;
        listed++;
    }
    return listed;
}

/* Divides the memory of the ranks: keys, keys while they are sorted, then for more than two outputs
 * the results of sum_exponentials, then weights and weights while they are sorted. */
static void divide_room(ls_ranked part[2], const ls_measured *m, const ls_scored_rows *j)
{
    const size_t rows = j->rows;
    part[0] = part[1] = (ls_ranked){NULL, NULL};
    if (!m->room)
        return;
    float *weights = (float *)(void *)(m->room + (j->outputs > 2 ? 4 : 2) * rows);
    for (int i = 0; i < 2; i++) {
        part[i].key = m->room + (size_t)i * rows;
        part[i].weight = j->weights ? weights + (size_t)i * rows : NULL;
    }
}

static void measure_decisions(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    static const ls_metric metric[3] = {LS_METRIC_AUC, LS_METRIC_AVERAGE_PRECISION, LS_METRIC_F1};
    const bool bits = is_rule(j, LS_VECTOR_BCE), two = !bits && j->outputs == 2;
    double *most = NULL, sum[3] = {0, 0, 0};
    int counted[3] = {0, 0, 0};
    ls_ranked part[2];
    divide_room(part, out, j);
    if (!bits && !two) {
        most = (double *)(void *)(out->room + 2 * (size_t)j->rows);
        sum_exponentials(most, most + j->rows, j);
    }
    for (int k = two ? 1 : 0; k < j->outputs; k++) {
        ls_decision d = {0};
        double found[3] = {NAN, NAN, NAN};
        const uint32_t listed = list_decision(&d, &part[0], j, k, most);
        if (out->room)
            ls_rank(&found[0], &found[1], &part[0], &part[1], listed);
        found[2] = ls_decision_f1(&d);
        for (int m = 0; m < 3; m++)
            if (!isnan(found[m])) {
                sum[m] += found[m];
                counted[m]++;
            }
    }
    for (int m = 0; m < 3; m++)
        if (wanted >> metric[m] & 1)
            out->value[metric[m]] = counted[m] ? sum[m] / counted[m] : NAN;
}

/* ---- all metrics ----------------------------------------------------------------------------- */

/* Returns whether the loss's op counts a row as correct. */
static bool is_correct(const ls_scored_rows *j, uint32_t i)
{
    if (!is_rule(j, LS_VECTOR_BCE))
        return largest(j->scores + i * (size_t)j->outputs, j->outputs) ==
               ((const int32_t *)j->labels)[row_of(j, i)];
    bool correct = true;
    for (int k = 0; k < j->outputs; k++)
        correct &= (score(j, i, k) > 0) == (target(j, i, k) > 0.5);
    return correct;
}

/* Returns whether the scores of all rows that count are finite. */
static bool are_finite(const ls_scored_rows *j)
{
    for (uint32_t i = 0; i < j->rows; i++)
        for (int k = 0; k < j->outputs; k++)
            if (!isfinite(score(j, i, k)) && weight_of(j, i) > 0)
                return false;
    return true;
}

/* Measures the metrics that need scores of rows without weights. */
static void measure(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    for (int m = LS_METRIC_TOP5; m < LS_METRICS; m++)
        out->value[m] = wanted >> m & 1 ? NAN : out->value[m];
    for (int k = 0; k < out->targets; k++)
        out->each[k] = NAN;
    /* scores that are not finite cannot be ranked */
    if (!(total_weight(j) > 0) || !are_finite(j))
        return;
    if (wanted & (LS_BIT(TOP5) | LS_BIT(CONFUSION)))
        measure_classes(out, wanted, j);
    if (wanted & (LS_BIT(MAE) | LS_BIT(R2) | LS_BIT(R2_MEAN)))
        measure_values(out, wanted, j);
    measure_losses(out, wanted, j);
    if (wanted & LS_DECISION_METRICS)
        measure_decisions(out, wanted, j);
}

/* Measures the unweighted metrics. Their accuracy is that of the devices. */
static void measure_unweighted(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    ls_measured once = *out;
    ls_scored_rows rows = *j;
    rows.weights = NULL;
    once.each = out->each_unweighted;
    measure(&once, wanted, &rows);
    memcpy(out->unweighted, once.value, sizeof once.value);
    out->unweighted[LS_METRIC_LOSS] = NAN;
    out->classes = once.classes;
}

void ls_measure(ls_measured *out, unsigned wanted, const ls_scored_rows *j)
{
    out->classes = 0;
    if (j->weights) {
        measure_unweighted(out, wanted, j);
        if (!isnan(out->value[LS_METRIC_ACCURACY])) {
            double sum = 0;
            for (uint32_t i = 0; i < j->rows; i++)
                sum += is_correct(j, i) ? weight_of(j, i) : 0;
            out->value[LS_METRIC_ACCURACY] = or_nan(sum / total_weight(j));
        }
    }
    measure(out, wanted, j);
}
