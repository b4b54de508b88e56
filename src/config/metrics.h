/* Metrics of an evaluation. The kernels of the loss compute loss and accuracy. All other metrics
 * are computed from the *scores*: the model's outputs for all rows of the evaluation. One thread
 * computes them, row after row, in integers or double, so their bits do not depend on the number of
 * devices, hosts, shards or rows of a minibatch.
 *
 *     top5        share of rows whose label is among the classes with the five largest scores; of
 *                 equal scores that of the lower class counts as larger
 *     confusion   number of rows for each pair of a true class and a predicted class; from it the
 *                 precision (correct rows / rows predicted as the class) and the recall (correct
 *                 rows / rows of the class) of each class
 *     mae         mean of |score − target| over rows and outputs
 *     r2          1 − Σ(score − target)² / Σ(target − mean of its output)², both sums over all rows
 *                 and outputs
 *     auc         for each output, the share of pairs of a row with target > 0.5 and a row without
 *                 in which the former has the larger score; equal scores count half (the
 *                 Mann-Whitney statistic; pairs are counted in integers). The result is the mean
 *                 over the outputs that have both kinds of rows
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
    LS_METRIC_CONFUSION, /* a matrix instead of a number */
    LS_METRICS
} ls_metric;

/* Names of the metrics in the config and in records, where the key of a number is "test_<name>".
 * The last entry is NULL. */
extern const char *const ls_metric_names[LS_METRICS + 1];

/* Returns the metric of a name; LS_METRICS: there is none. */
ls_metric ls_metric_find(const char *name);

/* Returns whether larger values of a metric are better. */
bool ls_metric_rises(ls_metric metric);

/* Largest number of classes for which the confusion matrix is measured by default, and if the
 * config names it. */
enum { LS_CONFUSION_CLASSES = 100, LS_CONFUSION_MOST = 1000 };

/* ls_metrics_of returns the metrics that can be measured with this loss and `outputs` classes or
 * targets; ls_metrics_by_default those that are measured by default. Both return a bit mask of
 * 1 << metric. */
unsigned ls_metrics_of(const ls_loss *loss, int outputs);
unsigned ls_metrics_by_default(const ls_loss *loss, int outputs);
/* ls_metrics_need_scores returns whether one of the metrics `wanted` needs scores;
 * ls_metrics_without_scores returns those of them that need none. */
bool ls_metrics_need_scores(unsigned wanted);
unsigned ls_metrics_without_scores(unsigned wanted);

/* Largest size of the scores in bytes if metrics.names is "auto". */
#define LS_SCORES_BYTES ((uint64_t)256 << 20)

/* Results of an evaluation. */
typedef struct ls_measured {
    double value[LS_METRICS]; /* NaN: not measured, or undefined for these rows */
    int classes;              /* number of classes of the matrix; 0: there is no matrix */
    uint32_t *confusion;      /* [true class][predicted class], owned by the caller */
} ls_measured;

/* Returns the metric that is reported as the run's result: accuracy if the loss has one; otherwise
 * r2 or else mae, if it is wanted and its value in `measured` is not NaN; otherwise the loss.
 * `measured` NULL: nothing has been measured yet, and values are not checked. */
ls_metric ls_metric_to_report(const ls_loss *loss, unsigned wanted, const ls_measured *measured);

/* Rows of an evaluation with the model's scores. */
typedef struct ls_judged {
    const float *scores; /* [rows][outputs] */
    const void *labels;  /* int32_t, or float [outputs], of each row of the data set */
    const uint32_t *row; /* [rows] row numbers in `labels`; NULL: 0, 1, 2 and so on */
    uint32_t rows;
    int outputs;
} ls_judged;

/* Sets all results to "not measured". */
void ls_measured_clear(ls_measured *measured);

/* Measures the metrics `wanted` that need scores. If not all scores are finite, as after a run that
 * has diverged, their values become NaN. Loss, accuracy and metrics that are not wanted keep their
 * values. out->confusion must have room for outputs × outputs counts if the matrix is wanted.
 * Errors: LS_ENOMEM (for auc). */
int ls_measure(ls_measured *out, unsigned wanted, const ls_judged *judged, const ls_host *host,
               ls_error *err);

/* Keys of a record under which the matrix is written: "precision", "recall" and "confusion"; the
 * last entry is NULL. */
extern const char *const ls_class_keys[];
/* Writes one of these keys as a member of a JSON object; writes nothing if there is no matrix. */
void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *measured);

/* Clears the results, and allocates the matrix of `outputs` classes if it is wanted. Errors:
 * LS_ENOMEM. */
int ls_measured_init(ls_measured *out, unsigned wanted, int outputs, const ls_host *host,
                     ls_error *err);

/* Return precision and recall of a class from the matrix. The precision is NaN if no row was
 * predicted as the class, the recall if no row belongs to it. */
double ls_precision_of(const ls_measured *measured, int class);
double ls_recall_of(const ls_measured *measured, int class);

#endif
