/* Metrics of an evaluation. The devices compute loss and accuracy, as part of the forward pass. All
 * other metrics are computed from the *scores*: the model's outputs for all rows of the evaluation.
 * One thread computes them, row after row, in integers or double. Therefore the results are
 * bit-identical for any minibatch size and any number of devices, hosts and shards.
 *
 * - top5: the share of rows whose label is among the classes with the five largest scores. Of two
 *   equal scores, that of the class with the lower number counts as larger.
 * - confusion: the number of rows for each pair of a true class and a predicted class. The
 *   precision of a class (correct rows / rows predicted as the class) and its recall (correct rows
 *   / rows of the class) are computed from this matrix.
 * - mae: the mean of |value − target| over rows and outputs. The value is the score, or with the
 *   loss poisson its exponential.
 * - r2: 1 − Σ(value − target)² / Σ(target − mean target of the same output)², both sums over all
 *   rows and outputs.
 * - huber: the mean Huber loss over rows and outputs.
 * - pinball: the mean pinball loss over rows and outputs; each output has its quantile.
 * - coverage: with several quantiles, the share of targets that are at least the prediction of the
 *   lowest quantile and at most that of the highest. With one quantile, the share of targets that
 *   are at most its prediction.
 * - deviance: the mean Poisson deviance over rows and outputs, 2·(t·ln(t / μ) − t + μ) for a target
 *   t (t·ln t is 0 for t = 0) and a predicted count μ.
 * - auc: for one output a row is positive if its target is > 0.5, else negative. Each positive row
 *   is paired with each negative row. The AUC of the output is the share of pairs in which the
 *   positive row has the larger score; a pair of equal scores counts half (the Mann-Whitney
 *   statistic; pairs are counted in integers). The metric is the mean over the outputs that have
 *   positive and negative rows.
 */
#ifndef CONFIG_METRICS_H
#define CONFIG_METRICS_H

#include "nn/loss.h"
#include "json/writer.h"

#include <lockstep/host.h>
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

/* Largest number of classes for which the confusion matrix is measured by default
 * (LS_CONFUSION_CLASSES), and if the config names it (LS_CONFUSION_MOST). */
enum { LS_CONFUSION_CLASSES = 100, LS_CONFUSION_MOST = 1000 };

/* Returns all metrics that can be measured with this loss and `outputs` classes or target values,
 * as a bit mask of 1 << metric. */
unsigned ls_metrics_of(const ls_loss *loss, int outputs);
/* Returns those metrics of ls_metrics_of that are measured if the config names none, as a bit mask
 * of 1 << metric. */
unsigned ls_metrics_by_default(const ls_loss *loss, int outputs);
/* Returns whether one of the metrics in the bit mask `wanted` needs scores. */
bool ls_metrics_need_scores(unsigned wanted);
/* Returns those metrics of the bit mask `wanted` that need no scores. */
unsigned ls_metrics_without_scores(unsigned wanted);

/* Largest size in bytes of the scores, if metrics.names is absent or "auto". If the scores would be
 * larger, the metrics that need scores are not measured. */
#define LS_SCORES_BYTES ((uint64_t)256 << 20)

/* Results of an evaluation. */
typedef struct ls_measured {
    double value[LS_METRICS]; /* NaN: not measured, or undefined for these rows */
    int classes;              /* number of classes in the confusion matrix; 0: there is no matrix */
    uint32_t *confusion;      /* [true class][predicted class], owned by the caller */
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
    uint32_t rows;
    int outputs;
    /* loss of vectors, by which outputs belong to targets; NULL: an output for each target */
    const ls_vector_loss *loss;
} ls_scored_rows;

/* Sets all results to "not measured": NaN, and no matrix. */
void ls_measured_clear(ls_measured *measured);

/* Measures the metrics `wanted` that need scores. If not all scores are finite, as after a run that
 * has diverged, these metrics become NaN. Loss, accuracy and metrics that are not in `wanted` keep
 * their values. If `wanted` contains the confusion matrix, out->confusion must be an array of
 * outputs × outputs numbers. Errors: LS_ENOMEM (for auc). */
int ls_measure(ls_measured *out, unsigned wanted, const ls_scored_rows *rows, const ls_host *host,
               ls_error *err);

/* Converts the metrics of standardised targets to the unit of the user's data. `unit`: deviation of
 * the targets (ls_prep_error_unit). */
void ls_measured_in_unit(ls_measured *measured, double unit);

/* Keys of a record that are computed from the confusion matrix: "precision", "recall" and
 * "confusion". The last entry is NULL. */
extern const char *const ls_class_keys[];
/* Writes one of the keys of ls_class_keys as a member of a JSON object. Writes nothing if there is
 * no matrix. */
void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *measured);

/* Sets all results to "not measured", and allocates the confusion matrix of `outputs` classes if
 * `wanted` contains it. Errors: LS_ENOMEM. */
int ls_measured_init(ls_measured *out, unsigned wanted, int outputs, const ls_host *host,
                     ls_error *err);

/* Computes the precision of a class from the confusion matrix; NaN if no row was predicted as the
 * class. */
double ls_precision_of(const ls_measured *measured, int class);
/* Computes the recall of a class from the confusion matrix; NaN if no row belongs to the class. */
double ls_recall_of(const ls_measured *measured, int class);

#endif
