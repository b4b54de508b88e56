/* Evaluates a trained model (evaluate.h). */
#include "model/evaluate.h"

#include "base/clock.h"
#include "base/host.h"
#include "model/predict.h"

#include <math.h>
#include <string.h>

/* Predicts the rows and computes the metrics in `metrics`. */
static int measure(ls_trained_evaluation *out, ls_predict_desc *d, const ls_dataset *data,
                   unsigned metrics, float *scores, ls_error *err)
{
    ls_prediction sum;
    const ls_trained *t = d->trained;
    const ls_dataset_view view = ls_dataset_resident(data);
    const ls_scored_rows scored = {scores,          view.labels,       view.row,
                                   out->data->rows, t->model->classes, &t->config.vector_loss};
    d->images = view.images;
    d->labels = view.labels;
    d->rows = out->data->rows;
    d->row_index = view.row;
    d->total_rows = view.rows;
    const uint64_t start = ls_now_ns();
    int status = ls_predict(&sum, scores, d, err);
    if (status)
        return status;
    out->seconds = (double)(ls_now_ns() - start) * 1e-9;
    memcpy(out->devices, sum.devices, sizeof out->devices);
    double *value = out->measured.value;
    const double unit = ls_prep_error_unit(t->card.prep);
    value[LS_METRIC_LOSS] = ls_loss_in_unit(t->config.loss->power, sum.loss / d->rows, unit);
    value[LS_METRIC_ACCURACY] = t->config.loss->hits ? sum.correct / d->rows : NAN;
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

int ls_trained_evaluate(ls_trained_evaluation *out, const ls_trained *t, bool train,
                        const ls_registry *registry, const char *devices, ls_error *err)
{
    const int classes = t->model->classes;
    ls_predict_desc d = {
        .trained = t, .registry = registry, .devices = devices, .as_in_training = true};
    float *scores = NULL, *class_weight = NULL;
    *out = (ls_trained_evaluation){.data = ls_trained_data(t, train)};
    out->split = t->is_new && !train ? "test" : out->data->split;
    const unsigned metrics = ls_config_metrics_of(&t->config, out->data->rows, classes);
    int status = ls_measured_init(&out->measured, metrics, out->data->rows, classes, t->host, err);
    out->wanted = metrics;
    if (status == LS_OK && ls_metrics_need_scores(metrics)) {
        scores = ls_alloc_array(t->host, out->data->rows * sizeof *scores, (size_t)classes);
        status = scores ? LS_OK : ls_config_fail_scores(err, &t->config, out->data->rows, classes);
    }
    if (status == LS_OK)
        status = find_class_weights(&class_weight, out, t, err);
    d.class_weight = class_weight;
    if (status == LS_OK)
        status = measure(out, &d, t->data[train ? LS_TRAIN : LS_TEST], metrics, scores, err);
    ls_free(t->host, class_weight);
    ls_free(t->host, scores);
    return status;
}

void ls_trained_evaluation_free(ls_trained_evaluation *out, const ls_trained *t)
{
    ls_measured_fini(&out->measured, t->host);
}
