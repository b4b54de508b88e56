/* SPDX-License-Identifier: MIT */
/* Predictions of table rows: JSON objects of column names and values become rows of a model file
 * (ls_model_row), one by one, so that a row with an error does not affect the others. */
#include "service.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <lockstep/model.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for one row and its outputs. */
typedef struct room {
    ls_model *model;
    ls_model_info info;
    ls_field *fields;
    double *row;
    double *outputs;
    size_t most, values;
    cJSON *card; /* description of the model; NULL: not read yet */
} room;

/* Returns the length of the number at the start of `text`, or 0 if it is none of JSON. *point:
 * whether it has a decimal point. */
static size_t number_length(const char *text, bool *point)
{
    const char *p = text + (*text == '-');
    size_t digits = strspn(p, "0123456789");
    if (digits == 0 || (*p == '0' && digits > 1))
        return 0;
    p += digits;
    *point = *p == '.';
    if (*point) {
        digits = strspn(p + 1, "0123456789");
        p += 1 + digits;
    }
    if (digits > 0 && (*p == 'e' || *p == 'E')) {
        p += 1 + (p[1] == '-' || p[1] == '+');
        digits = strspn(p, "0123456789");
        p += digits;
    }
    return digits > 0 ? (size_t)(p - text) : 0;
}

/* Copies JSON, with quotes around the values that are numbers without a decimal point, or that no
 * double holds. A table has texts too, so they are read in the same way, and whole numbers keep all
 * their digits. Numbers with a point stay numbers: in a table with decimal commas their texts would
 * be no numbers. The caller frees the result; NULL: out of memory. */
static char *quote_numbers(const char *body, size_t length)
{
    char *copy = malloc(3 * length + 1), *to = copy, *text = copy ? strndup(body, length) : NULL;
    bool quoted = false, value = false;
    for (const char *p = text; p && *p;) {
        bool point = false;
        const size_t n = value ? number_length(p, &point) : 0;
        const bool is_text = n > 0 && (!point || isinf(strtod(p, NULL)));
        if (n > 0)
            to += sprintf(to, is_text ? "\"%.*s\"" : "%.*s", (int)n, p);
        else
            *to++ = *p;
        quoted ^= *p == '"';
        if (quoted && *p == '\\' && p[1])
            *to++ = *++p;
        value = !quoted && (*p == ':' || (value && strchr(" \t\r\n", *p)));
        p += n ? n : 1;
    }
    if (text)
        *to = '\0';
    else
        free(copy);
    free(text);
    return text ? copy : NULL;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Returns the columns of the model's table, as its description has them (docs/data.md); NULL: the
 * file is of an earlier version. */
static const cJSON *columns_of(room *r)
{
    r->card = r->card ? r->card : cJSON_Parse(ls_model_card(r->model));
    return member(member(r->card, "preparation"), "columns");
}

static bool has_numbers(room *r, const char *name)
{
    const cJSON *column;
    cJSON_ArrayForEach(column, columns_of(r))
    {
        const char *is = cJSON_GetStringValue(member(column, "name"));
        if (is && strcmp(is, name) == 0)
            return !member(column, "levels") && !member(column, "date");
    }
    return false;
}

/* Returns the name of the first column whose value in the row is unknown to the model; NULL: not
 * found. */
static const char *unknown_column(room *r)
{
    const cJSON *column;
    size_t at = 0;
    cJSON_ArrayForEach(column, columns_of(r))
    {
        const cJSON *several = member(column, "levels");
        several = several ? several : member(column, "parts");
        const size_t width = several ? (size_t)cJSON_GetArraySize(several) : 1;
        for (size_t end = at + width; at < end && at < r->values; at++)
            if (isnan(r->row[at]) ? member(column, "levels") || !member(column, "missing")
                                  : fabs(r->row[at]) > (double)FLT_MAX)
                return cJSON_GetStringValue(member(column, "name"));
    }
    return NULL;
}

static int fail_unknown(room *r, ls_error *err)
{
    const char *name = unknown_column(r);
    return fail(err, LS_EDATA, "%s%.60s%sno training row has %s", name ? "column \"" : "",
                name ? name : "", name ? "\": " : "",
                name ? "this value" : "a value that this row has");
}

/* Converts a JSON object to fields. Returns the number of fields, or −1 after an error. */
static int take_fields(room *r, const cJSON *object, ls_error *err)
{
    const cJSON *item;
    size_t n = 0;
    cJSON_ArrayForEach(item, object)
    {
        ls_field f = {.column = item->string, .text = cJSON_GetStringValue(item)};
        f.number = cJSON_IsNumber(item) ? item->valuedouble : 0;
        if (cJSON_IsBool(item)) /* as in Python: 1 or 0 in a column of numbers */
            f.text = has_numbers(r, item->string) ? cJSON_IsTrue(item) ? "1" : "0"
                     : cJSON_IsTrue(item)         ? "true"
                                                  : "false";
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
            status = fail_unknown(r, err);
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
    char *quoted = quote_numbers(body, length);
    cJSON *given = quoted ? cJSON_Parse(quoted) : NULL, *answer = cJSON_CreateObject();
    int status = LS_OK;
    *text = NULL;
    *predicted = 0;
    ls_model_describe(model, &r.info, NULL);
    r.values = (size_t)r.info.channels * (size_t)r.info.height * (size_t)r.info.width;
    r.row = malloc(r.values * sizeof *r.row);
    r.outputs = malloc((size_t)r.info.outputs * sizeof *r.outputs);
    if (!quoted)
        status = fail(err, LS_ENOMEM, "out of memory for rows");
    else if (!cJSON_IsObject(given) && !cJSON_IsArray(given))
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
    cJSON_Delete(r.card);
    free(quoted);
    free(r.fields);
    free(r.row);
    free(r.outputs);
    return status;
}
