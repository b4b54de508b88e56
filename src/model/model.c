/* SPDX-License-Identifier: MIT */
/* Models: unchanging copies of weights (model.h), and predictions with them. */
#include "model/inference.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "model/export.h"

#include <lockstep/model.h>
#include <string.h>

/* Copies the model's card as it is now. */
static int copy_card(ls_model *s, ls_error *err)
{
    const ls_host *host = s->inference->host;
    s->card_text = ls_strdup(host, s->inference->model->card);
    s->card = ls_alloc(host, sizeof *s->card);
    if (!s->card_text || !s->card)
        return ls_fail(err, LS_ENOMEM, "out of memory for a model's card");
    return ls_card_parse(s->card, "card", s->card_text, host, err);
}

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
    int status = inference->card_changes ? copy_card(s, err) : LS_OK;
    if (status)
        ls_model_release(s);
    else
        *out = s;
    return status;
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
    if (s->card)
        ls_card_fini(s->card);
    ls_free(inference->host, s->card);
    ls_free(inference->host, s->card_text);
    ls_free(inference->host, s->canonical);
    ls_free(inference->host, s);
    ls_inference_release(inference);
}

int ls_model_describe(const ls_model *s, ls_model_info *out, ls_error *err)
{
    if (!s || !out)
        return ls_fail(err, LS_EINVAL,
                       "ls_model_describe: no model, or no room for the description");
    const ls_network *model = s->inference->model;
    const ls_meaning meaning = ls_meaning_of_model(s);
    const ls_prep_resize none = {0}, *resize = meaning.prep ? &meaning.prep->resize : &none;
    const int white = meaning.prep ? meaning.prep->white : 0;
    _Static_assert((int)LS_PREP_BICUBIC == (int)LS_BICUBIC, "the numbers are the same");
    const ls_model_info info = {.steps = s->steps,
                                .channels = model->input.c,
                                .height = model->input.h,
                                .width = model->input.w,
                                .outputs = model->classes,
                                .parameters = model->parameters,
                                .row_type =
                                    s->inference->preprocessing.floats ? LS_ROW_F32 : LS_ROW_U8,
                                .task = ls_meaning_task(&meaning),
                                .threshold = meaning.threshold > 0 ? meaning.threshold : 0.5,
                                .resize = {resize->height, resize->width, resize->interpolation},
                                .white = white};
    return ls_sized_give(out, &info, sizeof info, "ls_model_info", err);
}

int ls_check_capacity(size_t capacity, size_t needed, ls_error *err)
{
    return capacity >= needed
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "room for %zu values, %zu are needed", capacity, needed);
}

ls_meaning ls_meaning_of_model(const ls_model *s)
{
    const ls_card *card = ls_card_of_model(s);
    return (ls_meaning){card->config.loss, card->prep, s->inference->model->classes,
                        card->threshold};
}

int ls_model_check_call(const ls_model *s, const char *caller, uint32_t n, int form,
                        const void *outputs, size_t capacity, ls_error *err)
{
    if (n > 0 && !outputs)
        return ls_fail(err, LS_EINVAL, "%s: no room for the outputs", caller);
    const int plain = form & ~LS_OUTPUT_F64;
    if (plain != LS_OUTPUT_PREDICTION && plain != LS_OUTPUT_LOGITS)
        return ls_fail(err, LS_EINVAL,
                       "%s: form %d; expected LS_OUTPUT_PREDICTION or LS_OUTPUT_LOGITS, or one "
                       "of them | LS_OUTPUT_F64",
                       caller, form);
    if (ls_inference_is_inherited(s->inference))
        return ls_fail(err, LS_EINVAL,
                       "%s: the model belongs to another process, of which this one was forked: "
                       "open the model here",
                       caller);
    int status = ls_check_capacity(capacity, (size_t)n * (size_t)s->inference->model->classes, err);
    return status ? status : ls_stack_check(LS_PREDICT_STACK_BYTES, caller, err);
}

int ls_model_predict(const ls_model *s, const void *rows, ls_row_type type, uint32_t n, int form,
                     void *outputs, size_t capacity, ls_error *err)
{
    /* sets Lockstep's floating-point mode until the function returns (base/thread_state.h) */
    LS_OWN_ARITHMETIC;
    if (!s || (n > 0 && !rows))
        return ls_fail(err, LS_EINVAL, "ls_model_predict: no model, or no rows");
    const bool floats = s->inference->preprocessing.floats;
    if (floats ? type != LS_ROW_F32 && type != LS_ROW_F64 : type != LS_ROW_U8)
        return ls_fail(
            err, LS_EINVAL, "ls_model_predict: rows of type %d; the model reads %s", (int)type,
            floats ? "floats (LS_ROW_F32) or doubles (LS_ROW_F64)" : "bytes (LS_ROW_U8)");
    int status = ls_model_check_call(s, "ls_model_predict", n, form, outputs, capacity, err);
    return status ? status : ls_predictor_run(s, rows, type, n, form, outputs, err);
}

/* Returns the model's model, with its card, for the writers of files. */
static ls_network model_of(const ls_model *s)
{
    ls_network model = *s->inference->model;
    model.card = s->card_text ? s->card_text : model.card;
    return model;
}

int ls_model_save(const ls_model *s, const char *path, ls_error *err)
{
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_save: no model, or no path");
    int status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_model_save", err);
    if (status)
        return status;
    const ls_network model = model_of(s);
    return ls_export_weights(path, &model, s->canonical, s->steps, s->inference->host, err);
}

int ls_model_export(const ls_model *s, const char *path, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!s || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_export: no model, or no path");
    int status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_model_export", err);
    if (status)
        return status;
    const ls_card *card = ls_card_of_model(s);
    const ls_network model = model_of(s);
    return ls_export_onnx(path, &model, s->canonical, &card->config, card->prep, s->inference->host,
                          err);
}
