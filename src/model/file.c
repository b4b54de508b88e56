/* A model from its file: opening it, rows of a table from fields, the names of classes. */
#include "model/inference.h"

#include "base/error.h"
#include "base/sized.h"
#include "base/thread_state.h"
#include "nn/safetensors.h"

#include <lockstep/model.h>
#include <string.h>

static int open_model(ls_model **out, const char *path, const ls_model_options *o, ls_error *err)
{
    ls_card card;
    ls_network *model;
    float *weights = NULL;
    ls_inference *inference = NULL;
    ls_model *s = NULL;
    int status = ls_card_read(&card, path, o->host, err);
    if (status)
        return status;
    status = ls_card_load(&model, &weights, &card, path, err);
    if (status == LS_OK)
        status = ls_inference_create(&inference, model, o->registry, &card.config.preprocessing,
                                     o->host, err);
    if (status == LS_OK)
        status = ls_inference_predict_on(inference, o->device ? o->device : "cpu:1", err);
    if (status == LS_OK)
        status = ls_model_create(&s, inference, weights, 0, err);
    /* a prediction of no rows opens the device, so errors of opening are returned here */
    if (status == LS_OK)
        status = ls_model_predict(s, NULL, inference->preprocessing.floats ? LS_ROW_F32 : LS_ROW_U8,
                                  0, LS_OUTPUT_LOGITS, NULL, 0, err);
    ls_inference_release(inference);
    ls_free(o->host, weights);
    ls_card_fini(&card);
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
    if (!out || !path)
        return ls_fail(err, LS_EINVAL, "ls_model_open: no path, or no room for the model");
    *out = NULL;
    int status = options ? ls_sized_take(&o, sizeof o, options, "ls_model_options", err) : LS_OK;
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
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

static int put_fields(const ls_prep *prep, const ls_field *fields, size_t count, bool *seen,
                      double *row, ls_error *err)
{
    int status = LS_OK;
    const size_t stride = count > 0 ? fields->size : 0;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        ls_field f;
        status = ls_sized_take(&f, sizeof f, (const char *)fields + i * stride, "ls_field", err);
        if (status == LS_OK && f.size != stride)
            status = ls_fail(err, LS_EINVAL,
                             "ls_model_row: `size` of field %zu is %zu, that of the first is %zu",
                             i, f.size, stride);
        const int column = status == LS_OK && f.column ? ls_prep_find(prep, f.column) : -1;
        if (column < 0)
            continue;
        if (seen[column])
            return ls_fail(err, LS_EINVAL, "ls_model_row: column \"%.60s\" is there twice",
                           f.column);
        seen[column] = true;
        ls_error why;
        ls_prep_found found = LS_PREP_KNOWN;
        status = ls_prep_put(prep, column, f.text, f.number, row, "", &found, &why);
        if (status)
            ls_fail(err, status, "%s", why.text);
    }
    return status ? status : check_columns(prep, seen, err);
}

int ls_model_row(const ls_model *model, const ls_field *fields, size_t count, double *row,
                 size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (!model || !row || (count > 0 && !fields))
        return ls_fail(err, LS_EINVAL, "ls_model_row: no model, fields or row");
    const ls_inference *i = model->inference;
    const ls_prep *prep = i->card.prep;
    /* a model that was not trained on a table: its rows have no columns with names */
    if (!prep || prep->kind != LS_PREP_TABLE)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "ls_model_row: the model's rows have no columns of names; pass whole rows "
                       "to ls_model_predict");
    const ls_shape *in = &i->model->input;
    int status = ls_check_capacity(capacity, (size_t)in->c * (size_t)in->h * (size_t)in->w, err);
    if (status)
        return status;
    bool *seen = ls_alloc_array(i->host, (size_t)prep->columns, sizeof *seen);
    if (!seen)
        return ls_fail(err, LS_ENOMEM, "out of memory for a row");
    ls_c_locale locale = ls_c_locale_enter();
    status = put_fields(prep, fields, count, seen, row, err);
    ls_c_locale_leave(locale);
    ls_free(i->host, seen);
    return status;
}

const char *ls_model_class_name(const ls_model *model, int index)
{
    return !model || index < 0 ? NULL : ls_card_class_name(&model->inference->card, index);
}
