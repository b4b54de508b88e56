/* SPDX-License-Identifier: MIT */
/* Evaluates a trained model (evaluate.h). */
#include "model/evaluate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "merge/weights.h"
#include "model/outputs.h"
#include "model/predict.h"

#include <math.h>
#include <string.h>

/* Predicts the rows and computes the metrics in `metrics`. */
static int measure(ls_trained_evaluation *out, ls_predict_desc *d, const ls_dataset *data,
                   unsigned metrics, ls_error *err)
{
    ls_prediction sum;
    const ls_trained *t = d->trained;
    const ls_dataset_view view = ls_dataset_resident(data);
    const ls_scored_rows scored = {.scores = out->scores,
                                   .labels = view.labels,
                                   .row = view.row,
                                   .weights = view.weights,
                                   .rows = out->data->rows,
                                   .outputs = t->model->classes,
                                   .loss = &t->config.vector_loss};
    d->images = view.images;
    d->labels = view.labels;
    d->weights = view.weights;
    d->rows = out->data->rows;
    d->row_index = view.row;
    d->total_rows = view.rows;
    const uint64_t start = ls_now_ns();
    int status = ls_predict(&sum, out->scores, d, err);
    if (status)
        return status;
    out->seconds = (double)(ls_now_ns() - start) * 1e-9;
    memcpy(out->devices, sum.devices, sizeof out->devices);
    double *value = out->measured.value;
    const double unit = ls_prep_error_unit(t->card.prep);
    out->weight = ls_sum_weights(view.weights, view.row, d->rows, 1);
    value[LS_METRIC_LOSS] =
        out->weight == 0
            ? NAN
            : ls_loss_in_unit(t->config.loss->power, ls_loss_mean(sum.loss, out->weight), unit);
    value[LS_METRIC_ACCURACY] = ls_loss_accuracy(t->config.loss, sum.correct, d->rows);
    if (out->scores)
        ls_measure(&out->measured, metrics, &scored);
    ls_measured_in_unit(&out->measured, unit);
    return LS_OK;
}

/* Finds the class weights of the loss. The weights "balanced" are computed from the model's
 * training rows. If the training rows are not open, the weights are unknown. */
static int find_class_weights(float **weights, ls_trained_evaluation *out, const ls_trained *t,
                              ls_error *err)
{
    const ls_dataset *train = t->is_new ? NULL : t->data[LS_TRAIN];
    out->unweighed = cJSON_IsString(t->config.class_weights) && !train;
    return out->unweighed
               ? LS_OK
               : ls_config_class_weights(weights, &t->config, train, t->model->classes, err);
}

int ls_trained_evaluate(ls_trained_evaluation *out, const ls_trained *t, bool train, bool scores,
                        const ls_registry *registry, const char *devices, ls_error *err)
{
    const int classes = t->model->classes;
    const ls_dataset *data = t->data[train ? LS_TRAIN : LS_TEST];
    const bool weighted = ls_dataset_resident(data).weights != NULL;
    ls_predict_desc d = {
        .trained = t, .registry = registry, .devices = devices, .as_in_training = true};
    float *class_weight = NULL;
    *out = (ls_trained_evaluation){.data = ls_trained_data(t, train)};
    out->split = t->is_new && !train ? "test" : out->data->split;
    const unsigned metrics = ls_config_metrics_of(&t->config, out->data->rows, classes, weighted);
    int status =
        ls_measured_init(&out->measured, metrics, out->data->rows, classes, weighted, t->host, err);
    out->wanted = metrics;
    if (status == LS_OK &&
        (scores || ls_metrics_need_scores(metrics, weighted && t->config.loss->hits))) {
        out->scores =
            ls_alloc_array(t->host, out->data->rows * sizeof *out->scores, (size_t)classes);
        status =
            out->scores ? LS_OK : ls_config_fail_scores(err, &t->config, out->data->rows, classes);
    }
    if (status == LS_OK)
        status = find_class_weights(&class_weight, out, t, err);
    d.class_weight = class_weight;
    if (status == LS_OK)
        status = measure(out, &d, data, metrics, err);
    ls_free(t->host, class_weight);
    return status;
}

static ls_decision_metrics metrics_of(const ls_decision *d)
{
    return (ls_decision_metrics){ls_decision_precision(d), ls_decision_recall(d),
                                 ls_decision_f1(d)};
}

int ls_trained_decide(ls_trained_decision *out, const ls_trained *t, bool train,
                      const float *scores, double threshold, ls_error *err)
{
    const ls_dataset *data = t->data[train ? LS_TRAIN : LS_TEST];
    const ls_dataset_view view = ls_dataset_resident(data);
    const size_t outputs = (size_t)t->model->classes;
    const ls_meaning meaning = {t->config.loss, t->card.prep, t->model->classes, threshold};
    const ls_task task = ls_meaning_task(&meaning);
    ls_decision weighted = {0};
    *out = (ls_trained_decision){.threshold = threshold, .weighs = view.weights != NULL};
    if (task == LS_TASK_VALUES || (task == LS_TASK_CLASSES && outputs != 2))
        return ls_fail(err, LS_EINVAL,
                       "--threshold: expected a model of two classes or yes-or-no targets");
    double *output = ls_alloc_array(t->host, outputs, sizeof *output);
    if (!output)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu outputs", outputs);
    for (uint32_t i = 0; i < ls_dataset_rows(data); i++) {
        const size_t row = view.row ? view.row[i] : i;
        ls_outputs(output, scores + i * outputs, LS_OUTPUT_PREDICTION, &meaning);
        for (size_t k = task == LS_TASK_CLASSES; k < outputs; k++) {
            const bool positive = task == LS_TASK_CLASSES ? view.labels[row] == 1
                                                          : view.targets[row * outputs + k] > 0.5f;
            ls_decision_count(&out->rows, positive, ls_predicted_yes(output[k], &meaning), 1);
            ls_decision_count(&weighted, positive, ls_predicted_yes(output[k], &meaning),
                              view.weights ? (double)view.weights[row] : 1);
        }
    }
    ls_free(t->host, output);
    out->weighted = metrics_of(&weighted);
    out->unweighted = metrics_of(&out->rows);
    return LS_OK;
}

void ls_trained_evaluation_free(ls_trained_evaluation *out, const ls_trained *t)
{
    ls_measured_fini(&out->measured, t->host);
    ls_free(t->host, out->scores);
}
