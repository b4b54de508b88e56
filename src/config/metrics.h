/* SPDX-License-Identifier: MIT */
/* Metrics of an evaluation. The devices compute the loss, and the accuracy of rows without weights,
 * as part of the forward pass. All other metrics are computed from the *scores*: the model's
 * outputs for all rows of the evaluation. One thread computes them, row after row, in integers or
 * double. Therefore the results are bit-identical for any minibatch size and any number of devices,
 * hosts and shards.
 *
 * If rows have weights, each row counts as its weight in every metric and in the accuracy
 * (scikit-learn's sample_weight), and a row of weight 0 as if it were not there. Only the matrix
 * counts rows. The *unweighted* metrics, for which each row counts once, are measured too.
 *
 * - top5: the share of rows whose label is among the classes with the five largest scores. Of two
 *   equal scores, that of the class with the lower number counts as larger.
 * - confusion: the number of rows for each pair of a true class and a predicted class. The
 *   precision of a class (correct rows / rows predicted as the class) and its recall (correct rows
 *   / rows of the class) are computed from this matrix, with weights from sums of weights.
 * - mae: the mean of |value − target| over rows and outputs. The value is the score, or with the
 *   loss poisson its exponential.
 * - r2: 1 − Σ(value − target)² / Σ(target − mean target of the same output)², both sums over all
 *   rows and outputs (scikit-learn's variance_weighted).
 * - r2_mean: with several outputs, the mean of the r2 of each output (scikit-learn's
 *   uniform_average), over the outputs whose targets are not all equal. The r2 of each output is
 *   stored as well.
 * - huber: the mean Huber loss over rows and outputs.
 * - pinball: the mean pinball loss over rows and outputs; each output has its quantile.
 * - coverage: with several quantiles, the share of targets that are at least the prediction of the
 *   lowest quantile and at most that of the highest. With one quantile, the share of targets that
 *   are at most its prediction.
 * - deviance: the mean Poisson deviance over rows and outputs, 2·(t·ln(t / μ) − t + μ) for a target
 *   t (t·ln t is 0 for t = 0) and a predicted count μ.
 * - auc, average_precision, f1: metrics of yes-or-no decisions (ranking.h). Each output of the loss
 *   bce is such a decision: a row is positive if its target is > 0.5, and is predicted positive if
 *   its score is > 0. Two classes are one decision: the second class is positive, the score is the
 *   difference of the logits. More classes have only the auc, one against the rest: for each class
 *   its rows are positive, and the score is the logarithm of the class's probability. If there are
 *   several decisions, the metric is the mean over those that have a value (scikit-learn's macro).
 *
 * To rank the rows takes 16 bytes for each row, with more than two outputs 32, and with weights 8
 * more, beside the scores. They are allocated once, by ls_measured_init.
 */
#ifndef CONFIG_METRICS_H
#define CONFIG_METRICS_H

#include "nn/loss.h"
#include "json/writer.h"

#include <lockstep/host.h>
#include <lockstep/model.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum ls_metric {
    LS_METRIC_LOSS,
    LS_METRIC_ACCURACY,
    LS_METRIC_TOP5,
    LS_METRIC_MAE,
    LS_METRIC_R2,
    LS_METRIC_AUC,
    LS_METRIC_HUBER,
    LS_METRIC_PINBALL,
    LS_METRIC_COVERAGE,
    LS_METRIC_DEVIANCE,
    LS_METRIC_AVERAGE_PRECISION,
    LS_METRIC_F1,
    LS_METRIC_R2_MEAN,
    LS_METRIC_CONFUSION, /* a matrix instead of a number */
    LS_METRICS
} ls_metric;

/* Names of the metrics in the config. In the records of metrics.jsonl the key of a metric is
 * "test_<name>". The last entry is NULL. */
extern const char *const ls_metric_names[LS_METRICS + 1];

/* Returns the metric of a name; LS_METRICS: there is none. */
ls_metric ls_metric_find(const char *name);

/* Returns whether larger values of a metric are better. */
bool ls_metric_rises(ls_metric metric);
/* Returns whether a metric orders evaluations. The matrix is no number, and the best coverage is
 * neither the largest nor the smallest. */
bool ls_metric_ranks(ls_metric metric);

/* Limits of the number of classes for the confusion matrix and the AUC of classes, and of the
 * number of targets for r2_mean. */
enum {
    LS_CONFUSION_CLASSES = 100, /* measured by default up to this number */
    LS_CONFUSION_MOST = 1000    /* if named in the config, measured up to this number */
};

/* Returns all metrics that can be measured with this loss and `outputs` classes or target values,
 * as a bit mask of 1 << metric. */
unsigned ls_metrics_of(const ls_loss *loss, int outputs);
/* Returns those metrics of ls_metrics_of that are measured if the config names none, as a bit mask
 * of 1 << metric. */
unsigned ls_metrics_by_default(const ls_loss *loss, int outputs);
/* Returns whether one of the metrics in the bit mask `wanted`, or the accuracy, needs scores.
 * `weighted`: there is an accuracy, and the rows have weights, with which it needs scores. */
bool ls_metrics_need_scores(unsigned wanted, bool weighted);
/* Returns those metrics of the bit mask `wanted` that need no scores of rows without weights: loss
 * and accuracy. */
unsigned ls_metrics_without_scores(unsigned wanted);
/* Returns the memory in bytes in which the metrics in the bit mask `wanted` are measured for `rows`
 * rows: the scores and the ranks. `weighted`: as above. */
uint64_t ls_metrics_bytes(unsigned wanted, uint32_t rows, int outputs, bool weighted);

/* Returns why a metric has no value (NaN) for rows whose scores are finite. */
const char *ls_metric_why_none(ls_metric metric);

/* Largest size in bytes of scores and ranks, if metrics.names is absent or "auto". If they would be
 * larger, the metrics that need scores are not measured. */
#define LS_SCORES_BYTES ((uint64_t)256 << 20)

/* Results of an evaluation. */
typedef struct ls_measured {
    double value[LS_METRICS]; /* NaN: not measured, or undefined for these rows */
    int classes;              /* number of classes in the confusion matrix; 0: there is no matrix */
    uint32_t *confusion;      /* [true class][predicted class] */
    int targets;              /* number of outputs whose r2 is measured; 0: none */
    double *each;             /* [targets]: r2 of each output; NaN: its targets are all equal */
    double *unweighted;      /* [LS_METRICS]: as `value`, but each row counts once; the loss is NaN.
                              * NULL: the rows have no weights, and the next two are NULL as well */
    double *each_unweighted; /* [targets]: as `each`, but each row counts once */
    /* [3][classes]: sums of the weights of a class's rows, of the rows predicted as the class, and
     * of those that are both; NULL: there is no matrix */
    double *class_weight;
    double *number; /* [numbers]: memory of the four arrays above */
    size_t numbers;
    uint64_t *room; /* memory for the ranks of the rows; NULL: no metric needs it */
} ls_measured;

/* Returns the metric that is reported as the run's result, which is the first of these:
 *
 * - the accuracy, if the loss defines when a row is correct (ls_loss.hits)
 * - the metric of the loss, if it is in `wanted` and its value in `measured` is not NaN: r2, then
 *   mae (mse), mae (mae), huber (huber), pinball (quantile), deviance (poisson)
 * - the loss
 *
 * `measured` NULL: nothing has been measured yet, and values are not checked. */
ls_metric ls_metric_to_report(const ls_loss *loss, unsigned wanted, const ls_measured *measured);

/* The rows of an evaluation, with their labels and the model's scores. */
typedef struct ls_scored_rows {
    const float *scores; /* [rows][outputs] */
    /* labels of the data set's rows: classes (int32_t), or target values (floats, one for each
     * output, or with several quantiles one for each target) */
    const void *labels;
    /* [rows]: row i of the evaluation is row row[i] of `labels`; NULL: row i */
    const uint32_t *row;
    /* weights of the data set's rows, 0 or from 1e-9 to 1e9; NULL: each row counts once */
    const float *weights;
    uint32_t rows;
    int outputs;
    /* loss of vectors, by which outputs belong to targets; NULL: an output for each target */
    const ls_vector_loss *loss;
} ls_scored_rows;

/* Sets all results to "not measured": NaN, and no matrix. Keeps the arrays. */
void ls_measured_clear(ls_measured *measured);

/* Measures the metrics `wanted` that need scores. If not all scores are finite, as after a run that
 * has diverged, these metrics become NaN. Loss, accuracy and metrics that are not in `wanted` keep
 * their values. If the rows have weights, the given accuracy, unless it is NaN, becomes the
 * unweighted one, and the weighted one takes its place. ls_measured_init must have made the
 * arrays. */
void ls_measure(ls_measured *out, unsigned wanted, const ls_scored_rows *rows);

/* Converts the metrics of standardised targets to the unit of the user's data. `unit`: deviation of
 * the targets (ls_prep_error_unit). */
void ls_measured_in_unit(ls_measured *measured, double unit);

/* Keys of a record that are computed from the confusion matrix: "precision", "recall" and
 * "confusion". The last entry is NULL. */
extern const char *const ls_class_keys[];
/* Writes one of the keys of ls_class_keys as a member of a JSON object. Writes nothing if there is
 * no matrix. */
void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *measured);
/* Writes the r2 of each output as an array with null for NaN. Writes nothing if it is not
 * measured. */
void ls_measured_write_each(ls_json_writer *w, const char *key, const ls_measured *measured);
/* Writes the unweighted metrics as an object with the names of ls_metric_names, "r2_each",
 * "precision" and "recall". Writes nothing if the rows have no weights, or if nothing was
 * measured. `wanted`: a bit 1 << metric for each metric that is null if it has no value; others are
 * then left out. */
void ls_measured_write_unweighted(ls_json_writer *w, const char *key, const ls_measured *measured,
                                  unsigned wanted);
/* Sets the metrics of *out, which the library gives its caller. */
void ls_measured_tell(ls_evaluation *out, unsigned wanted, const ls_measured *measured);

/* Sets all results to "not measured", and allocates what measuring the metrics `wanted` of `rows`
 * rows with `outputs` classes or values needs. `weighted`: the rows have weights. The caller calls
 * ls_measured_fini afterwards, even after a failure. Errors: LS_ENOMEM. */
int ls_measured_init(ls_measured *out, unsigned wanted, uint32_t rows, int outputs, bool weighted,
                     const ls_host *host, ls_error *err);
/* Frees the arrays. A zeroed structure is allowed. */
void ls_measured_fini(ls_measured *measured, const ls_host *host);

/* Computes the precision of a class from the confusion matrix, or from the sums of the rows'
 * weights; NaN if no row that counts was predicted as the class. */
double ls_precision_of(const ls_measured *measured, int class);
/* Computes the recall of a class in the same way; NaN if no row that counts belongs to the class.
 */
double ls_recall_of(const ls_measured *measured, int class);

#endif
