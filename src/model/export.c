/* SPDX-License-Identifier: MIT */
/* Files of a model for other programs (export.h). */
#include "model/export.h"

#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "checkpoint/checkpoint.h"
#include "nn/safetensors.h"
#include "onnx/onnx.h"
#include "store/durable.h"
#include "json/json.h"

#include <string.h>
#include <sys/stat.h>

int ls_export_weights(const char *path, const ls_network *model, const float *weights,
                      uint64_t steps, const ls_host *host, ls_error *err)
{
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, path, err);
    return status ? status : ls_safetensors_save(target, model, weights, steps, host, err);
}

/* Reads the number of steps from the state of a checkpoint. */
static int read_state(uint64_t *steps, const char *path, const char *state, const ls_host *host,
                      ls_error *err)
{
    ls_json *doc = NULL;
    ls_state read;
    int status = ls_json_parse(&doc, path, state, strlen(state), host, err);
    if (status == LS_OK)
        status = ls_state_read(&read, doc, err);
    if (status == LS_OK)
        *steps = read.standing.position.steps;
    ls_json_destroy(doc);
    return status;
}

int ls_steps_of_file(uint64_t *steps, const ls_tensor_file *file, const ls_host *host,
                     ls_error *err)
{
    const char *state = ls_tensor_file_state(file);
    *steps = LS_STEPS_UNKNOWN;
    return state ? read_state(steps, ls_tensor_file_path(file), state, host, err)
                 : ls_safetensors_read_steps(steps, file, err);
}

/* Says which inputs of the graph stand for a column of dates. */
static void tell_dates(const ls_prep *prep, const ls_host *host)
{
    for (int i = 0; prep && i < prep->columns; i++) {
        const ls_prep_column *c = &prep->column[i];
        if (c->date)
            ls_log(
                host, LS_LOG_WARNING,
                "column \"%.60s\": an ONNX graph cannot read dates, so it reads the numbers that "
                "they become: %.60s … %.60s; the file's metadata, \"dates\", says how these are "
                "computed",
                c->name, c->part[0].name, c->part[c->parts - 1].name);
    }
}

int ls_export_onnx(const char *path, const ls_network *model, const float *weights,
                   const ls_config *config, const ls_prep *prep, const ls_host *host, ls_error *err)
{
    const char *name = config->name ? config->name : "run";
    const ls_onnx_desc d = {
        .model = model,
        .weights = weights,
        .normalisation = config->preprocessing,
        .prep = prep,
        .name = model->name[0] ? model->name : name,
        .loss = config->loss,
        .vector_loss = config->vector_loss,
    };
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, path, err);
    if (status)
        return status;
    ls_c_locale locale = ls_c_locale_enter();
    status = ls_onnx_save(target, &d, host, err);
    ls_c_locale_leave(locale);
    if (status == LS_OK)
        tell_dates(prep, host);
    return status;
}

int ls_trained_keep_threshold(const ls_trained *t, double threshold, ls_error *err)
{
    uint64_t steps;
    ls_network with = *t->model;
    const bool checkpoint = ls_tensor_file_state(t->weights_file);
    if (checkpoint || !with.card || !t->card.config.doc)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: %s; export the run, and keep the threshold in that file",
                       t->weights_path,
                       checkpoint ? "is a checkpoint, which stays as the run has written it"
                                  : "does not describe its model");
    int status = ls_steps_of_file(&steps, t->weights_file, t->host, err);
    with.card = status ? NULL : ls_card_with_threshold(t->model->card, threshold, t->host);
    if (status == LS_OK)
        status = with.card
                     ? ls_export_weights(t->weights_path, &with, t->weights, steps, t->host, err)
                     : ls_fail(err, LS_ENOMEM, "out of memory for the model's card");
    ls_free(t->host, with.card);
    return status;
}

int ls_trained_export(ls_exported *out, const ls_trained *t, const char *path, ls_error *err)
{
    struct stat st;
    uint64_t steps = LS_STEPS_UNKNOWN;
    const bool onnx = ls_path_ends_with(path, ".onnx");
    int status = onnx ? LS_OK : ls_steps_of_file(&steps, t->weights_file, t->host, err);
    if (status == LS_OK)
        status = onnx ? ls_export_onnx(path, t->model, t->weights, &t->config, t->card.prep,
                                       t->host, err)
                      : ls_export_weights(path, t->model, t->weights, steps, t->host, err);
    *out = (ls_exported){.tensors = t->model->params + t->model->stats,
                         .ir_version = onnx ? LS_ONNX_IR_VERSION : 0,
                         .opset = onnx ? LS_ONNX_OPSET : 0};
    if (status == LS_OK && stat(path, &st) == 0)
        out->bytes = (uint64_t)st.st_size;
    return status;
}
