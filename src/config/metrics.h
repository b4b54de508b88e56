/* What an evaluation finds out: loss and accuracy, which come out of the loss's own kernels, and metrics of the scores
 * of all rows. These are computed by one thread, row after row, in integers or double: the number of devices, hosts,
 * shards and rows of a minibatch changes no bit of them.
 *
 *     top5        share of rows whose label is among the five largest scores; of equal scores the first class is larger
 *     confusion   how many rows of each class were taken for which, and from it precision (hits of the rows taken for a
 *                 class) and recall (hits of its rows)
 *     mae         mean of |score − target| over rows and outputs
 *     r2          1 − Σ(score − target)² / Σ(target − mean of its output)², both sums over all rows and outputs
 *     auc         of each output the share of pairs of a row with target > 0.5 and one without in which the first has the
 *                 larger score, equal ones counting half (the Mann-Whitney statistic: pairs are counted in integers);
 *                 the mean over the outputs that have both
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
    LS_METRIC_CONFUSION, /* no number */
    LS_METRICS
} ls_metric;

/* Their names in the config and in records; where records want a number, "test_<name>". */
extern const char *const ls_metric_names[LS_METRICS + 1]; /* NULL behind the last */

/* The metric of that name; LS_METRICS: none has it. */
ls_metric ls_metric_find(const char *name);

/* Whether the larger of two values is the better one. */
bool ls_metric_rises(ls_metric metric);

/* Classes whose rows are counted by default, and at most. */
enum { LS_CONFUSION_CLASSES = 100, LS_CONFUSION_MOST = 1000 };

/* Of data with so many classes, or targets: the metrics that have a meaning, and those of them that are measured by
 * default, as sums of 1 << metric. */
unsigned ls_metrics_of(const ls_loss *loss, int outputs);
unsigned ls_metrics_by_default(const ls_loss *loss, int outputs);
/* Whether some of these need scores, and those that need none. */
bool ls_metrics_need_scores(unsigned wanted);
unsigned ls_metrics_without_scores(unsigned wanted);

/* Scores that metrics are worth which nobody named. */
#define LS_SCORES_BYTES ((uint64_t)256 << 20)

/* What came out. */
typedef struct ls_measured {
    double value[LS_METRICS]; /* NaN: not measured, or it has no meaning for these rows */
    int classes;              /* of the matrix; 0: there is none */
    uint32_t *confusion;      /* [class][taken for], the caller's */
} ls_measured;

/* The one that tells most: accuracy where the loss knows it, else the first of r2 and mae that is wanted and,
 * where something was measured, has a value; else the loss. `measured` NULL: nothing was yet. */
ls_metric ls_metric_told(const ls_loss *loss, unsigned wanted, const ls_measured *measured);

/* Rows of a data set, and what the model made of them. */
typedef struct ls_judged {
    const float *scores; /* [rows][outputs] */
    const void *labels;  /* int32_t, or float [outputs], of row[i] */
    const uint32_t *row; /* [rows]; NULL: row i is number i */
    uint32_t rows;
    int outputs;
} ls_judged;

/* Nothing is measured yet. */
void ls_measured_clear(ls_measured *measured);

/* Measures what is wanted, and nothing where not all scores are finite, as after a run that has diverged;
 * out->value of other metrics, loss and accuracy stay. out->confusion has room for
 * outputs × outputs where that is wanted. Errors: LS_ENOMEM (of AUC). */
int ls_measure(ls_measured *out, unsigned wanted, const ls_judged *judged, const ls_host *host,
               ls_error *err);

/* What the matrix is written as, "precision", "recall" and "confusion"; ends with NULL. */
extern const char *const ls_class_keys[];
/* One of these as a member of a JSON object; nothing where there is no matrix. */
void ls_measured_write(ls_json_writer *w, const char *key, const ls_measured *measured);

/* Room for the matrix of so many classes, where it is wanted. Errors: LS_ENOMEM. */
int ls_measured_init(ls_measured *out, unsigned wanted, int outputs, const ls_host *host,
                     ls_error *err);

/* Of the matrix; NaN where no row was taken for the class, or is of it. */
double ls_precision_of(const ls_measured *measured, int class);
double ls_recall_of(const ls_measured *measured, int class);

#endif
