/* Models: unchanging copies of a model's weights (model.h). */
#include "model/inference.h"

#include "base/error.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "model/export.h"

#include <lockstep/model.h>
#include <string.h>

int ls_model_create(ls_model **out, ls_inference *inference, const float *canonical, uint64_t steps,
                    ls_error *err)
{
    const ls_host *host = inference->host;
    ls_model *s = ls_alloc(host, sizeof *s);
    if (s)
        s->canonical = ls_alloc_array(host, inference->model->floats, sizeof *s->canonical);
    if (!s || !s->canonical) {
        ls_free(host, s);
        return ls_fail(err, LS_ENOMEM, "out of memory for a model of %zu weights",
                       inference->model->floats);
    }
    memcpy(s->canonical, canonical, inference->model->floats * sizeof *canonical);
    ls_retain(&inference->references);
    atomic_init(&s->references, 1);
    s->inference = inference;
    s->id = atomic_fetch_add_explicit(&inference->models, 1, memory_order_relaxed) + 1;
    s->steps = steps;
    *out = s;
    return LS_OK;
}

ls_model *ls_model_retain(ls_model *s)
{
    if (s)
        ls_retain(&s->references);
    return s;
}

void ls_model_release(ls_model *s)
{
    if (!s || !ls_was_last(&s->references))
        return;
    ls_inference *inference = s->inference;
    ls_free(inference->host, s->canonical);
    ls_free(inference->host, s);
    ls_inference_release(inference);
}

void ls_model_describe(const ls_model *s, ls_model_info *out)
{
    if (!s && out)
        *out = (ls_model_info){0};
    if (!s || !out)
        return;
    const ls_network *model = s->inference->model;
    *out = (ls_model_info){.steps = s->steps,
                           .channels = model->input.c,
                           .height = model->input.h,
                           .width = model->input.w,
                           .classes = model->classes,
                           .parameters = model->parameters,
                           .floats = s->inference->preprocessing.floats,
                           .targets = s->inference->preprocessing.targets};
}

int ls_check_capacity(size_t capacity, size_t needed, ls_error *err)
{
    return capacity >= needed
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "room for %zu floats, %zu are needed", capacity, needed);
}

ls_row_type ls_inference_row_type(const ls_inference *i)
{
    return i->preprocessing.floats ? LS_ROW_F32 : LS_ROW_U8;
}

int ls_model_predict_as(ls_model *s, const char *caller, const void *rows, ls_row_type type,
                        uint32_t n, float *scores, size_t capacity, ls_error *err)
{
    /* sets Lockstep's floating-point mode until the function returns (base/thread_state.h) */
    LS_OWN_ARITHMETIC;
    if (!s || (n > 0 && (!rows || !scores)))
        return ls_fail(err, LS_EINVAL, "%s: no model, rows or room for the outputs", caller);
    if (ls_inference_is_inherited(s->inference))
        return ls_fail(err, LS_EINVAL,
                       "%s: the model belongs to another process, of which this one was forked: "
                       "open the model here",
                       caller);
    const bool floats = s->inference->preprocessing.floats;
    if (floats ? type != LS_ROW_F32 && type != LS_ROW_F64 : type != LS_ROW_U8)
        return ls_fail(err, LS_EINVAL, "%s: rows of type %d; the model reads %s", caller, (int)type,
                       floats ? "floats (LS_ROW_F32) or doubles (LS_ROW_F64)"
                              : "bytes (LS_ROW_U8)");
    int status = ls_check_capacity(capacity, (size_t)n * (size_t)s->inference->model->classes, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_PREDICT_STACK_BYTES, caller, err);
    return status ? status : ls_predictor_run(s, rows, type, n, scores, err);
}

int ls_snapshot_predict(ls_model *s, const void *images, uint32_t n, float *scores, size_t capacity,
                        ls_error *err)
{
    const ls_row_type type = s ? ls_inference_row_type(s->inference) : LS_ROW_U8;
    return ls_model_predict_as(s, "ls_snapshot_predict", images, type, n, scores, capacity, err);
}

int ls_model_save(const ls_model *s, const char *path, ls_error *err)
{
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_save: no model, or no path");
    return ls_export_weights(path, s->inference->model, s->canonical, s->inference->host, err);
}

int ls_model_export(const ls_model *s, const char *path, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_export: no model, or no path");
    const ls_inference *i = s->inference;
    return ls_export_onnx(path, i->model, s->canonical, &i->card.config, i->card.prep, i->host,
                          err);
}
