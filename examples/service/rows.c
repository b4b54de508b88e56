/* SPDX-License-Identifier: MIT */
/* Predictions of table rows: JSON objects of column names and values become rows of a model file
 * (ls_model_row), one by one, so that a row with an error does not affect the others. */
#include "service.h"

#include <cjson/cJSON.h>
#include <lockstep/model.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Room for one row and its outputs. */
typedef struct room {
    ls_model *model;
    ls_model_info info;
    ls_field *fields;
    double *row;
    double *outputs;
    size_t most, values;
} room;

/* Converts a JSON object to fields. Returns the number of fields, or −1 after an error. */
static int take_fields(room *r, const cJSON *object, ls_error *err)
{
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, object)
    {
        ls_field f = {.column = item->string, .text = cJSON_GetStringValue(item)};
        f.number = cJSON_IsNumber(item) ? item->valuedouble : 0;
        if (cJSON_IsBool(item))
            f.text = cJSON_IsTrue(item) ? "true" : "false";
        f.kind = f.text ? LS_FIELD_TEXT : cJSON_IsNumber(item) ? LS_FIELD_NUMBER : LS_FIELD_MISSING;
        if (f.kind == LS_FIELD_MISSING && !cJSON_IsNull(item)) {
            fail(err, LS_EDATA, "column \"%.60s\": expected a number, a text, true, false or null",
                 item->string);
            return -1;
        }
        if (n == r->most) {
            r->most = 2 * r->most + 16;
            ls_field *more = realloc(r->fields, r->most * sizeof *more);
            if (!more) {
                fail(err, LS_ENOMEM, "out of memory for a row");
                return -1;
            }
            r->fields = more;
        }
        r->fields[n++] = f;
    }
    return (int)n;
}

static int predict_row(room *r, const cJSON *object, ls_error *err)
{
    if (!cJSON_IsObject(object))
        return fail(err, LS_EDATA, "expected an object of column names and values");
    const int n = take_fields(r, object, err);
    if (n < 0)
        return err->status;
    const size_t outputs = (size_t)r->info.outputs;
    int status =
        ls_model_row(r->model, r->fields, (size_t)n, sizeof(ls_field), r->row, r->values, err);
    if (status == LS_OK)
        status = ls_model_predict(r->model, r->row, LS_ROW_F64, 1,
                                  LS_OUTPUT_PREDICTION | LS_OUTPUT_F64, r->outputs, outputs, err);
    for (size_t i = 0; i < outputs && status == LS_OK; i++)
        if (!isfinite(r->outputs[i])) /* JSON has no infinity and no NaN */
            status = fail(err, LS_EDATA, "no training row has a value that this row has");
    return status;
}

/* Returns the name of a class; its number, in `number`, if it has none. */
static const char *name_of(const room *r, int label, char number[16])
{
    const char *name = ls_model_class_name(r->model, label);
    snprintf(number, 16, "%d", label);
    return name ? name : number;
}

static void put_classes(cJSON *to, const room *r)
{
    char number[16];
    int best = 0;
    for (int i = 1; i < r->info.outputs; i++)
        best = r->outputs[i] > r->outputs[best] ? i : best;
    if (r->info.outputs == 2) /* the file may keep a threshold other than a half */
        best = r->info.threshold == 0.5 ? best : r->outputs[1] >= r->info.threshold;
    cJSON_AddStringToObject(to, "class", name_of(r, best, number));
    cJSON *shares = cJSON_AddObjectToObject(to, "probabilities");
    for (int i = 0; i < r->info.outputs; i++)
        cJSON_AddNumberToObject(shares, name_of(r, i, number), r->outputs[i]);
}

/* Creates a number with all its digits. cJSON's own writes 15 of them if what is left is small. */
static cJSON *exact(double value)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return cJSON_CreateRaw(text);
}

/* Adds the prediction of a row, or its error, to the list. */
static void put_row(cJSON *list, room *r, const cJSON *object, uint32_t *predicted)
{
    ls_error err;
    cJSON *to = cJSON_CreateObject();
    const int status = predict_row(r, object, &err);
    if (status)
        cJSON_AddStringToObject(to, "error", err.text);
    else if (r->info.task == LS_TASK_CLASSES)
        put_classes(to, r);
    else if (r->info.outputs == 1)
        cJSON_AddItemToObject(to, "value", exact(r->outputs[0]));
    else {
        cJSON *values = cJSON_AddArrayToObject(to, "values");
        for (int i = 0; i < r->info.outputs; i++)
            cJSON_AddItemToArray(values, exact(r->outputs[i]));
    }
    *predicted += status == LS_OK;
    cJSON_AddItemToArray(list, to);
}

int rows_predict(ls_model *model, const char *body, size_t length, char **text, uint32_t *predicted,
                 ls_error *err)
{
    room r = {.model = model, .info.size = sizeof r.info};
    cJSON *given = cJSON_ParseWithLength(body, length), *answer = cJSON_CreateObject();
    int status = LS_OK;
    *text = NULL;
    *predicted = 0;
    ls_model_describe(model, &r.info, NULL);
    r.values = (size_t)r.info.channels * (size_t)r.info.height * (size_t)r.info.width;
    r.row = malloc(r.values * sizeof *r.row);
    r.outputs = malloc((size_t)r.info.outputs * sizeof *r.outputs);
    if (!cJSON_IsObject(given) && !cJSON_IsArray(given))
        status = fail(err, LS_EDATA,
                      "the body: expected JSON, a row or an array of rows, each an "
                      "object of column names and values");
    cJSON *list = cJSON_AddArrayToObject(answer, "predictions");
    if (status == LS_OK && (!r.row || !r.outputs || !list))
        status = fail(err, LS_ENOMEM, "out of memory for predictions");
    if (status == LS_OK && cJSON_IsObject(given))
        put_row(list, &r, given, predicted);
    for (const cJSON *row = cJSON_IsArray(given) ? given->child : NULL; row && status == LS_OK;
         row = row->next)
        put_row(list, &r, row, predicted);
    if (status == LS_OK && !(*text = cJSON_PrintUnformatted(answer)))
        status = fail(err, LS_ENOMEM, "out of memory for the answer");
    cJSON_Delete(answer);
    cJSON_Delete(given);
    free(r.fields);
    free(r.row);
    free(r.outputs);
    return status;
}
