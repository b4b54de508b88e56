/* Files of a model for other programs (export.h). */
#include "model/export.h"

#include "base/host.h"
#include "base/thread_state.h"
#include "nn/safetensors.h"
#include "onnx/onnx.h"
#include "store/durable.h"

#include <sys/stat.h>

int ls_export_weights(const char *path, const ls_network *model, const float *weights,
                      const ls_host *host, ls_error *err)
{
    char target[LS_PATH_BYTES];
    int status = ls_follow_links(target, path, err);
    return status ? status : ls_safetensors_save(target, model, weights, host, err);
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
    return status;
}

int ls_trained_export(ls_exported *out, const ls_trained *t, const char *path, ls_error *err)
{
    struct stat st;
    const bool onnx = ls_path_ends_with(path, ".onnx");
    const int status =
        onnx ? ls_export_onnx(path, t->model, t->weights, &t->config, t->card.prep, t->host, err)
             : ls_export_weights(path, t->model, t->weights, t->host, err);
    *out = (ls_exported){.tensors = t->model->params + t->model->stats,
                         .ir_version = onnx ? LS_ONNX_IR_VERSION : 0,
                         .opset = onnx ? LS_ONNX_OPSET : 0};
    if (status == LS_OK && stat(path, &st) == 0)
        out->bytes = (uint64_t)st.st_size;
    return status;
}
