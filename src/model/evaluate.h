/* SPDX-License-Identifier: MIT */
/* Evaluates a trained model on its opened data: the numbers of the run's own records, on any number
 * of devices. */
#ifndef MODEL_EVALUATE_H
#define MODEL_EVALUATE_H

#include "config/metrics.h"
#include "config/ranking.h"
#include "model/trained.h"

#include <lockstep/device_pool.h>

typedef struct ls_trained_evaluation {
    const ls_dataset_info *data; /* the rows */
    const char *split;           /* "test", "validation" or "training"; "test" if they are new */
    unsigned wanted;             /* metrics that were to be measured, a bit mask of 1 << metric */
    ls_measured measured;        /* the metrics, those included that the run has not measured */
    double weight; /* sum of the rows' weights; the number of rows, if they have none */
    float *scores; /* [rows][outputs], the model's outputs; NULL: not needed */
    double seconds;
    char devices[512]; /* names of the devices: "[cpu(0), cpu(1)]" */
    /* The loss was computed without the config's class_weights: "balanced" weights are computed
     * from the training rows, which are not open. */
    bool unweighed;
} ls_trained_evaluation;

/* Evaluates the test rows, or the training rows if `train` is true; they must be open. `scores`:
 * the scores are stored even if no metric needs them. `devices`: as in ls_device_pool_options;
 * NULL: those of the config. Errors: those of ls_predict and of ls_config_fail_scores, LS_ENOMEM.
 */
int ls_trained_evaluate(ls_trained_evaluation *out, const ls_trained *trained, bool train,
                        bool scores, const ls_registry *registry, const char *devices,
                        ls_error *err);
/* Metrics of decisions; NaN: not defined (config/ranking.h). */
typedef struct ls_decision_metrics {
    double precision, recall, f1;
} ls_decision_metrics;

/* The decisions of a model at a threshold. */
typedef struct ls_trained_decision {
    double threshold;             /* a row is predicted positive from this probability on */
    ls_decision_metrics weighted, /* each row counts as its weight */
        unweighted;               /* each row counts once */
    bool weighs;                  /* the rows have weights; else both are equal */
    ls_decision rows;             /* numbers of rows */
} ls_trained_decision;

/* Counts the decisions of a model of two classes or yes-or-no targets, if a row is predicted
 * positive (the second class, yes) from the probability `threshold` on. `scores`: as above. Errors:
 * LS_EINVAL (the model decides otherwise), LS_ENOMEM. */
int ls_trained_decide(ls_trained_decision *out, const ls_trained *trained, bool train,
                      const float *scores, double threshold, ls_error *err);
/* Frees the results; `out` may be that of a failed call. */
void ls_trained_evaluation_free(ls_trained_evaluation *out, const ls_trained *trained);

#endif
