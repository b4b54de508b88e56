/* SPDX-License-Identifier: MIT */
/* A model from its file: opening it, rows of a table from fields, the names of classes. */
#include "model/inference.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "model/export.h"
#include "nn/safetensors.h"

#include <lockstep/model.h>
#include <math.h>
#include <string.h>

LS_AFTER_STACK_CHECK static int open_model(ls_model **out, const char *path,
                                           const ls_model_options *o, ls_error *err)
{
    ls_card card = {.classes = 0};
    ls_tensor_file *file;
    ls_network *model = NULL;
    float *weights = NULL;
    ls_inference *inference = NULL;
    ls_model *s = NULL;
    uint64_t steps = LS_STEPS_UNKNOWN;
    int status = ls_tensor_file_open(&file, path, o->host, err);
    if (status == LS_OK)
        status = ls_card_read(&card, file, o->host, err);
    if (status == LS_OK)
        status = ls_card_load(&model, &weights, &card, file, err);
    if (status == LS_OK)
        status = ls_inference_create(&inference, model, o->registry, &card.config.preprocessing,
                                     o->host, err);
    if (status == LS_OK)
        status = ls_inference_predict_on(inference, o->device ? o->device : "cpu:1", err);
    if (status == LS_OK)
        status = ls_steps_of_file(&steps, file, o->host, err);
    if (status == LS_OK)
        status = ls_model_create(&s, inference, weights, steps, err);
    /* a prediction of no rows opens the device, so errors of opening are returned here */
    if (status == LS_OK)
        status = ls_predictor_run(s, NULL, inference->preprocessing.floats ? LS_ROW_F32 : LS_ROW_U8,
                                  0, LS_OUTPUT_LOGITS, NULL, err);
    ls_inference_release(inference);
    ls_free(o->host, weights);
    ls_card_fini(&card);
    ls_tensor_file_close(file);
    if (status)
        ls_model_release(s);
    else
        *out = s;
    return status;
}

int ls_model_open(ls_model **out, const char *path, const ls_model_options *options, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_model_options o = {.size = sizeof o};
    /* "no room" in the message: `out` is NULL */
    if (out)
        *out = NULL;
    if (!out || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_open: no path, or no room for the model");
    int status = options ? ls_sized_take(&o, sizeof o, options, "ls_model_options", err) : LS_OK;
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_PREDICT_STACK_BYTES, "ls_model_open", err);
    return status ? status : open_model(out, path, &o, err);
}

const char *ls_model_card(const ls_model *model)
{
    return model ? model->card_text ? model->card_text : model->inference->model->card : NULL;
}

/* Fails if the row has no field for one of the columns of the table on which the model was trained.
 * `seen`: whether each column has a field. */
static int check_columns(const ls_prep *prep, const bool *seen, ls_error *err)
{
    for (int i = 0; i < prep->columns; i++)
        if (!seen[i])
            return ls_fail(err, LS_EDATA, "ls_model_row: column \"%.60s\" is missing",
                           prep->column[i].name);
    return LS_OK;
}

/* Converts a field to the arguments of ls_prep_put: a text, or NULL and a number. */
static int check_field(ls_field *f, ls_error *err)
{
    const bool has_text = f->kind == LS_FIELD_TEXT;
    if (f->kind != LS_FIELD_MISSING && f->kind != LS_FIELD_NUMBER && !has_text)
        return ls_fail(err, LS_EINVAL,
                       "ls_model_row: column \"%.60s\": kind %d; expected LS_FIELD_NUMBER, "
                       "LS_FIELD_TEXT or LS_FIELD_MISSING",
                       f->column, (int)f->kind);
    if (has_text && !f->text)
        return ls_fail(err, LS_EINVAL,
                       "ls_model_row: column \"%.60s\": the kind is LS_FIELD_TEXT, and there is no "
                       "text",
                       f->column);
    f->text = has_text ? f->text : NULL;
    f->number = f->kind == LS_FIELD_MISSING ? NAN : f->number;
    return LS_OK;
}

static int put_field(const ls_prep *prep, ls_field *f, bool *seen, double *row, ls_error *err)
{
    ls_error why;
    ls_prep_found found = LS_PREP_KNOWN;
    const int column = f->column ? ls_prep_find(prep, f->column) : -1;
    if (column < 0)
        return LS_OK;
    if (seen[column])
        return ls_fail(err, LS_EINVAL, "ls_model_row: column \"%.60s\" is there twice", f->column);
    seen[column] = true;
    int status = check_field(f, err);
    if (status)
        return status;
    status = ls_prep_put(prep, column, f->text, f->number, row, "", &found, &why);
    return status ? ls_fail(err, status, "%s", why.text) : LS_OK;
}

static int put_fields(const ls_prep *prep, const ls_field *fields, size_t count, size_t size,
                      bool *seen, double *row, ls_error *err)
{
    int status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        ls_field f;
        status = ls_sized_take_element(&f, sizeof f, (const char *)fields + i * size, size,
                                       "ls_field", err);
        if (status == LS_OK)
            status = put_field(prep, &f, seen, row, err);
    }
    return status ? status : check_columns(prep, seen, err);
}

/* Returns the description of the table on which the model was trained; NULL: it was no table. */
static const ls_prep *table_of(const ls_model *model)
{
    const ls_prep *prep = model ? ls_card_of_model(model)->prep : NULL;
    return prep && prep->kind == LS_PREP_TABLE ? prep : NULL;
}

int ls_model_column_count(const ls_model *model)
{
    const ls_prep *prep = table_of(model);
    return prep ? prep->columns : 0;
}

const char *ls_model_column_name(const ls_model *model, int index)
{
    return index >= 0 && index < ls_model_column_count(model) ? table_of(model)->column[index].name
                                                              : NULL;
}

int ls_model_row(const ls_model *model, const ls_field *fields, size_t count, size_t field_size,
                 double *row, size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!model || !row || (count > 0 && !fields))
        return ls_fail(err, LS_EINVAL, "ls_model_row: no model, fields or row");
    const ls_inference *i = model->inference;
    const ls_prep *prep = table_of(model);
    /* a model that was not trained on a table: its rows have no columns with names */
    if (!prep)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "ls_model_row: the model's rows have no columns of names; pass whole rows "
                       "to ls_model_predict");
    const ls_shape *in = &i->model->input;
    int status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_model_row", err);
    if (status)
        return status;
    status = ls_check_capacity(capacity, (size_t)in->c * (size_t)in->h * (size_t)in->w, err);
    if (status)
        return status;
    bool *seen = ls_alloc_array(i->host, (size_t)prep->columns, sizeof *seen);
    if (!seen)
        return ls_fail(err, LS_ENOMEM, "out of memory for a row");
    ls_c_locale locale = ls_c_locale_enter();
    status = put_fields(prep, fields, count, field_size, seen, row, err);
    ls_c_locale_leave(locale);
    ls_free(i->host, seen);
    return status;
}

const char *ls_model_class_name(const ls_model *model, int index)
{
    return !model || index < 0 ? NULL : ls_card_class_name(&model->inference->card, index);
}
