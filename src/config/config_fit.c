/* SPDX-License-Identifier: MIT */
/* Sets and checks the values of a config that depend on the data: metrics, loss, augmentation,
 * weights of classes. */
#include "config/config.h"

#include "base/error.h"
#include "base/host.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- metrics -------------------------------------------------------------------------------- */

static int refuse_metric(ls_error *err, const ls_config *c, const cJSON *name, unsigned fitting)
{
    char list[192] = "";
    for (int m = 0; m < LS_METRICS; m++)
        if (fitting & 1u << m)
            strcat(strcat(list, " "), ls_metric_names[m]);
    return ls_config_fail(
        err, c, "metrics.names", LS_ECONFIG,
        "metrics.names: \"%.40s\" cannot be measured with this loss; expected \"auto\" or a "
        "list of:%s",
        cJSON_IsString(name) ? name->valuestring : ls_json_kind(name), list);
}

static bool are_metrics_named(const ls_config *c)
{
    const cJSON *node = c->metric_names;
    return node && !(cJSON_IsString(node) && strcmp(node->valuestring, "auto") == 0);
}

unsigned ls_config_metrics_of(const ls_config *c, uint32_t rows, int outputs, bool weighted)
{
    const bool accuracy = weighted && c->loss->hits;
    const uint64_t bytes = ls_metrics_bytes(c->metrics, rows, outputs, accuracy);
    if (are_metrics_named(c) || !ls_metrics_need_scores(c->metrics, accuracy) ||
        bytes <= LS_SCORES_BYTES)
        return c->metrics;
    ls_log(
        c->host, LS_LOG_INFO,
        "metrics: only loss and accuracy are measured, because the others need %u scores of each "
        "of %u rows and their ranks, %.1f GB; set metrics.names to measure them",
        (unsigned)outputs, (unsigned)rows, (double)bytes * 1e-9);
    return ls_metrics_without_scores(c->metrics);
}

int ls_config_fail_scores(ls_error *err, const ls_config *c, uint32_t rows, int outputs)
{
    return ls_config_fail(
        err, c, "metrics.names", LS_ENOMEM,
        "metrics.names: out of memory for %u scores of each of %u rows, %.1f GB; set it to [], "
        "which needs no scores of rows without weights",
        (unsigned)outputs, (unsigned)rows, (double)rows * outputs * sizeof(float) * 1e-9);
}

static int choose_metrics(ls_config *c, int outputs, ls_error *err)
{
    const unsigned fitting = ls_metrics_of(c->loss, outputs);
    const cJSON *node = c->metric_names, *name;
    c->metrics = ls_metrics_by_default(c->loss, outputs);
    if (!are_metrics_named(c))
        return LS_OK;
    if (!cJSON_IsArray(node))
        return refuse_metric(err, c, node, fitting);
    c->metrics = 0;
    cJSON_ArrayForEach(name, node)
    {
        const ls_metric m = cJSON_IsString(name) ? ls_metric_find(name->valuestring) : LS_METRICS;
        if (!(fitting >> m & 1))
            return refuse_metric(err, c, name, fitting);
        c->metrics |= 1u << m;
    }
    return LS_OK;
}

static int choose_monitor(ls_config *c, ls_error *err)
{
    const unsigned measured =
        c->metrics | 1u << LS_METRIC_LOSS | (unsigned)c->loss->hits << LS_METRIC_ACCURACY;
    c->monitor = c->loss->hits ? LS_METRIC_ACCURACY : LS_METRIC_LOSS;
    if (strcmp(c->monitor_name, "auto") == 0)
        return LS_OK;
    const ls_metric named = ls_metric_find(c->monitor_name);
    if (named < LS_METRICS && ls_metric_ranks(named) && measured >> named & 1) {
        c->monitor = named;
        return LS_OK;
    }
    return ls_config_fail(
        err, c, "monitor", LS_ECONFIG,
        "monitor: expected \"auto\", \"loss\", or a metric that is measured (metrics.names), is a "
        "number, and has a best value, found \"%.40s\"",
        c->monitor_name);
}

/* ---- the loss ------------------------------------------------------------------------------- */

/* Lists "auto" and the names of the losses for vectors (`vectors` true) or for classes. */
static void list_losses(char *out, size_t size, bool vectors)
{
    size_t used = (size_t)snprintf(out, size, "auto");
    for (const ls_loss *l = ls_losses; l->name && used < size; l++)
        if (l->vectors == vectors)
            used += (size_t)snprintf(out + used, size - used, ", %s", l->name);
}

static bool is_given(const cJSON *node)
{
    return node && !cJSON_IsNull(node);
}

int ls_config_parts(const ls_config *c)
{
    const ls_loss *loss = ls_loss_find(c->loss_name, true);
    const int count = cJSON_IsArray(c->quantiles) ? cJSON_GetArraySize(c->quantiles) : 1;
    if (!loss || loss->rule != LS_VECTOR_QUANTILE || count < 1)
        return 1;
    return count < LS_QUANTILES_MOST ? count : LS_QUANTILES_MOST;
}

int ls_config_outputs(const ls_config *c, const ls_dataset_info *info)
{
    return info->targets ? info->targets * ls_config_parts(c) : info->classes;
}

static int read_quantiles(ls_config *c, ls_error *err)
{
    const cJSON *node = c->quantiles, *one = cJSON_IsArray(node) ? node->child : node;
    ls_vector_loss *v = &c->vector_loss;
    double last = 0;
    for (; one && v->quantiles < LS_QUANTILES_MOST; one = cJSON_IsArray(node) ? one->next : NULL) {
        if (!cJSON_IsNumber(one) || !(one->valuedouble > last && one->valuedouble < 1))
            break;
        v->quantile[v->quantiles++] = last = one->valuedouble;
    }
    if (v->quantiles > 0 && !one)
        return LS_OK;
    return ls_config_fail(
        err, c, is_given(node) ? "quantiles" : "loss", LS_ECONFIG,
        "quantiles: the loss quantile needs a number between 0 and 1, or an ascending list of up "
        "to %d such numbers: \"quantiles\": [0.05, 0.5, 0.95]",
        LS_QUANTILES_MOST);
}

/* Sets the parameters of a loss of vectors. Fails if a parameter belongs to another loss. */
static int fit_loss(ls_config *c, ls_error *err)
{
    const bool vectors = c->loss->vectors;
    c->vector_loss = (ls_vector_loss){.rule = c->loss->rule, .delta = c->huber_delta};
    if (c->huber_delta != 1 && !(vectors && c->loss->rule == LS_VECTOR_HUBER))
        return ls_config_fail(err, c, "huber_delta", LS_ECONFIG,
                              "huber_delta: applies to the loss huber only; remove it");
    if (vectors && c->loss->rule == LS_VECTOR_QUANTILE)
        return read_quantiles(c, err);
    return is_given(c->quantiles)
               ? ls_config_fail(err, c, "quantiles", LS_ECONFIG,
                                "quantiles: apply to the loss quantile only; remove them")
               : LS_OK;
}

/* Fails if the config has an augmentation that the rows do not allow. */
static int check_augment(const ls_config *c, const ls_dataset_info *info, ls_error *err)
{
    const ls_gather *g = &c->preprocessing;
    const char *key = NULL; /* the first augmentation that is set */
    if (g->crop)
        key = "augment.crop";
    else if (g->flip)
        key = "augment.flip";
    else if (g->rotate)
        key = "augment.rotate";
    else if (g->erase)
        key = "augment.erase";
    else if (g->brightness)
        key = "augment.brightness";
    else if (g->part)
        key = "augment.resized_crop";
    if (key && info->height * info->width == 1)
        return ls_config_fail(
            err, c, key, LS_ECONFIG,
            "%s: applies to images only, but a row of this data is %d numbers; remove it", key,
            info->channels);
    if (g->crop <= info->height + info->width)
        return LS_OK;
    return ls_config_fail(err, c, "augment.crop", LS_ECONFIG,
                          "augment.crop: expected at most %d for images of %d×%d, found %d",
                          info->height + info->width, info->height, info->width, g->crop);
}

/* Fails if the config has a fixed scale of targets that is not used. */
static int check_scale(const ls_config *c, bool vectors, ls_error *err)
{
    const ls_data_keys *k = &c->data_keys;
    const char *key = k->target_mean ? "data.target_mean" : "data.target_std";
    if (!k->target_mean && !k->target_std)
        return LS_OK;
    if (vectors && c->loss->scales &&
        ls_config_standardizes(c, "standardize_target", k->standardize_target))
        return LS_OK;
    return ls_config_fail(err, c, key, LS_ECONFIG,
                          "%s: scales targets that are values, with one of the losses mse, mae, "
                          "huber and quantile and with data.standardize_target; remove it",
                          key);
}

/* Fails if the softmax at the end of an ONNX file would be lost: the loss of classes has it, the
 * losses of vectors have not. */
static int check_ending(const ls_config *c, bool vectors, ls_error *err)
{
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(c->model, "source");
    if (!vectors || !cJSON_HasObjectItem(source, "ends_with"))
        return LS_OK;
    return ls_config_fail(err, c, "model", LS_ECONFIG,
                          "the ONNX file of this model ends with a softmax, which belongs to the "
                          "loss cross_entropy, but the targets of this data are vectors; use data "
                          "with classes, or set model.output to the input of the softmax");
}

int ls_config_fit_data(ls_config *c, const ls_dataset_info *info, uint32_t rows, ls_error *err)
{
    const bool vectors = info->targets > 0;
    const int outputs = ls_config_outputs(c, info);
    char names[160];
    c->preprocessing.floats = info->row_type == LS_ROW_F32;
    c->preprocessing.targets = info->targets;
    c->preprocessing.brightness = (int)(c->brightness * 256 + 0.5);
    c->preprocessing.mixup = (int)(c->mixup * 256 + 0.5);
    c->preprocessing.part = (int)(c->resized_crop * 65536 + 0.5);
    if (c->resized_crop > 0 && !c->preprocessing.part)
        c->preprocessing.part = 1;
    int status = check_augment(c, info, err);
    if (status)
        return status;
    c->loss = ls_loss_find(c->loss_name, vectors);
    if (!c->loss) {
        list_losses(names, sizeof names, vectors);
        return ls_config_fail(
            err, c, "loss", LS_ECONFIG,
            "loss: \"%.40s\" does not fit this data, whose targets are %s; expected one of: %s",
            c->loss_name, vectors ? "vectors" : "classes", names);
    }
    if (vectors && c->label_smoothing != 0)
        return ls_config_fail(
            err, c, "label_smoothing", LS_ECONFIG,
            "label_smoothing: applies to classes only, but the targets of this data are vectors; "
            "remove it");
    status = check_ending(c, vectors, err);
    if (status == LS_OK)
        status = fit_loss(c, err);
    if (status == LS_OK)
        status = check_scale(c, vectors, err);
    if (status == LS_OK)
        status = choose_metrics(c, outputs, err);
    if (status)
        return status;
    c->metrics = ls_config_metrics_of(c, rows, outputs, info->weighted);
    return choose_monitor(c, err);
}

/* ---- weights of classes --------------------------------------------------------------------- */

static int read_weights(float *out, const ls_config *c, int classes, ls_error *err)
{
    const char *const key = "class_weights";
    const cJSON *item;
    double sum = 0;
    int k = 0;
    if (!cJSON_IsArray(c->class_weights) || cJSON_GetArraySize(c->class_weights) != classes)
        return ls_config_fail(
            err, c, key, LS_ECONFIG,
            "class_weights: expected \"balanced\", or a number for each of %d classes", classes);
    cJSON_ArrayForEach(item, c->class_weights)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= 1e6))
            return ls_config_fail(
                err, c, key, LS_ECONFIG,
                "class_weights: expected numbers from 0 to 1e6; that of class %d is not", k);
        sum += item->valuedouble;
        out[k++] = (float)item->valuedouble;
    }
    return sum > 0 ? LS_OK : ls_config_fail(err, c, key, LS_ECONFIG, "class_weights: all are 0");
}

/* Computes the weights for class_weights "balanced" from the number of rows of each class. The
 * numbers are integers, so the weights are the same with any number of hosts. */
static int balance(float *out, const ls_config *c, const ls_dataset *train, int classes,
                   ls_error *err)
{
    const char *const key = "class_weights";
    const uint32_t rows = ls_dataset_describe(train)->rows;
    const ls_dataset_view view = ls_dataset_resident(train);
    uint32_t *count = ls_alloc_array(c->host, (size_t)classes, sizeof *count);
    if (!view.images || !count) {
        ls_free(c->host, count);
        return view.images ? ls_fail(err, LS_ENOMEM, "out of memory for %d classes", classes)
                           : ls_config_fail(err, c, key, LS_ECONFIG,
                                            "class_weights: \"balanced\" needs all rows in memory, "
                                            "but these are streamed; give a number for each class");
    }
    for (uint32_t i = 0; i < rows; i++) {
        const int32_t label = view.labels[view.row ? view.row[i] : i];
        if (label < 0 || label >= classes) {
            ls_free(c->host, count);
            return ls_fail(err, LS_EDATA,
                           "class_weights: training row %u has label %d, but the model has %d "
                           "classes",
                           (unsigned)i, (int)label, classes);
        }
        count[label]++;
    }
    int absent = -1;
    for (int k = 0; k < classes; k++) {
        absent = count[k] == 0 && absent < 0 ? k : absent;
        out[k] = (float)((double)rows / ((double)classes * count[k]));
    }
    ls_free(c->host, count);
    return absent < 0
               ? LS_OK
               : ls_config_fail(err, c, key, LS_ECONFIG,
                                "class_weights: class %d has no training row, so \"balanced\" "
                                "is impossible; give a number for each class",
                                absent);
}

int ls_config_class_weights(float **out, const ls_config *c, const ls_dataset *train, int classes,
                            ls_error *err)
{
    const cJSON *node = c->class_weights;
    *out = NULL;
    if (!node)
        return LS_OK;
    if (c->loss->kind != LS_OP_SOFTMAX_XENT)
        return ls_config_fail(err, c, "class_weights", LS_ECONFIG,
                              "class_weights: apply to the loss cross_entropy only; remove them");
    float *weights = ls_alloc_array(c->host, (size_t)classes, sizeof *weights);
    if (!weights)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d classes", classes);
    const bool balanced = cJSON_IsString(node) && strcmp(node->valuestring, "balanced") == 0;
    int status = balanced ? balance(weights, c, train, classes, err)
                          : read_weights(weights, c, classes, err);
    if (status)
        ls_free(c->host, weights);
    else
        *out = weights;
    return status;
}
