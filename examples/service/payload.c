#include "payload.h"

#include "base64.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What is asked for. */
typedef struct wanted {
    const example_form *form;
    int examples; /* with targets */
} wanted;

static size_t item_bytes(const wanted *w)
{
    return w->examples ? example_bytes(w->form) : w->form->row_bytes;
}

static int count_of(const wanted *w)
{
    return (int)(w->form->floats ? w->form->row_bytes / sizeof(float) : w->form->row_bytes);
}

static const char *noun(const wanted *w)
{
    return w->form->floats ? "row" : "image";
}

/* Item `index`: at floats that are none, and targets that the loss refuses, training would end, and end again after a
 * restart. */
static int check_floats(const wanted *w, const uint8_t *item, size_t index, ls_error *err)
{
    const size_t targets = w->examples ? (size_t)w->form->targets : 0;
    const size_t row_at = item_bytes(w) - w->form->row_bytes;
    const size_t values = w->form->floats ? (size_t)count_of(w) : 0;
    for (size_t i = 0; i < targets + values; i++) {
        const size_t place = i < targets ? i : i - targets;
        float x;
        memcpy(&x, item + (i < targets ? 0 : row_at) + place * sizeof x, sizeof x);
        if (!isfinite(x))
            return fail(err, LS_EDATA, "%s %zu: %s %zu is %g; expected finite floats",
                        w->examples ? "example" : "row", index, i < targets ? "target" : "value",
                        place, (double)x);
        if (i < targets && w->form->bits && !(x >= 0 && x <= 1))
            return fail(err, LS_EDATA,
                        "example %zu: target %zu is %g; expected 0 to 1, for this loss", index,
                        place, (double)x);
    }
    return LS_OK;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static int check_item(const wanted *w, const uint8_t *item, size_t index, ls_error *err)
{
    if (w->examples && !w->form->targets && *item >= w->form->classes)
        return fail(err, LS_EDATA, "example %zu (byte %zu of the body): label %d; expected 0 to %d",
                    index, index * item_bytes(w), *item, w->form->classes - 1);
    return check_floats(w, item, index, err);
}

static int read_bytes(payload *out, const wanted *w, const char *body, size_t length, ls_error *err)
{
    const size_t item = item_bytes(w), count = length / item;
    const uint8_t *bytes = (const uint8_t *)body;
    if (length == 0 || length % item != 0)
        return fail(err, LS_EDATA, "the body has %zu bytes; expected a multiple of %zu: %s%s",
                    length, item,
                    !w->examples       ? ""
                    : w->form->targets ? "targets and "
                                       : "a label and ",
                    w->form->floats ? "a row of floats" : "an image");
    int status = LS_OK;
    for (size_t i = 0; i < count && status == LS_OK; i++)
        status = check_item(w, bytes + i * item, i, err);
    *out = (payload){bytes, (uint32_t)count, NULL};
    return status;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int is_whole(const cJSON *number, int below)
{
    const double v = cJSON_IsNumber(number) ? number->valuedouble : -1;
    return v >= 0 && v < below && v == (double)(int)v;
}

/* One of an array's: a byte, or a float. Whether it is one. */
static int read_number(uint8_t *to, const cJSON *number, int is_float)
{
    const float x = cJSON_IsNumber(number) ? (float)number->valuedouble : NAN;
    if (is_float)
        memcpy(to, &x, sizeof x);
    else if (is_whole(number, 256))
        *to = (uint8_t)number->valuedouble;
    return is_float ? isfinite(x) : is_whole(number, 256);
}

static int read_array(uint8_t *to, int count, int floats, const cJSON *array, const char *what,
                      int index, ls_error *err)
{
    const cJSON *number;
    int n = 0;
    const size_t size = floats ? sizeof(float) : 1;
    if (!cJSON_IsArray(array))
        return fail(err, LS_EDATA, "%s %d: expected an array of %d numbers%s", what, index, count,
                    strcmp(what, "target") == 0 ? "" : ", or base64");
    cJSON_ArrayForEach(number, array)
    {
        uint8_t value[sizeof(float)];
        if (!read_number(value, number, floats))
            return fail(err, LS_EDATA, "%s %d, value %d: expected a %s", what, index, n,
                        floats ? "number, that of a float" : "whole number, 0 to 255");
        if (n < count)
            memcpy(to + (size_t)n * size, value, size);
        n++;
    }
    if (n == count)
        return LS_OK;
    return fail(err, LS_EDATA, "%s %d: %d numbers; expected %d", what, index, n, count);
}

static int read_row(uint8_t *to, const wanted *w, const cJSON *row, int index, ls_error *err)
{
    if (!cJSON_IsString(row))
        return read_array(to, count_of(w), w->form->floats, row, noun(w), index, err);
    if (!base64_decode(to, w->form->row_bytes, row->valuestring))
        return fail(err, LS_EDATA, "%s %d: expected base64 of %u bytes", noun(w), index,
                    (unsigned)w->form->row_bytes);
    return LS_OK;
}

static int read_target(uint8_t *to, const wanted *w, const cJSON *target, int index, ls_error *err)
{
    if (w->form->targets)
        return read_array(to, w->form->targets, 1, target, "target", index, err);
    if (!is_whole(target, w->form->classes))
        return fail(err, LS_EDATA, "example %d: \"label\": expected a whole number, 0 to %d", index,
                    w->form->classes - 1);
    *to = (uint8_t)target->valuedouble;
    return LS_OK;
}

static int read_item(uint8_t *to, const wanted *w, const cJSON *item, int index, ls_error *err)
{
    int status = LS_OK;
    if (!w->examples) {
        status = read_row(to, w, item, index, err);
        return status ? status : check_floats(w, to, (size_t)index, err);
    }
    const char *key = w->form->targets ? "target" : "label";
    const cJSON *target = cJSON_GetObjectItemCaseSensitive(item, key);
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(item, noun(w));
    if (!target || !row)
        return fail(err, LS_EDATA, "example %d: expected {\"%s\": …, \"%s\": …}", index, key,
                    noun(w));
    status = read_target(to, w, target, index, err);
    if (status == LS_OK)
        status = read_row(to + target_bytes(w->form), w, row, index, err);
    return status ? status : check_floats(w, to, (size_t)index, err);
}

static int read_items(payload *out, const wanted *w, const cJSON *root, ls_error *err)
{
    const char *key = w->examples ? "examples" : w->form->floats ? "rows" : "images";
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(root, key), *item;
    const int count = cJSON_IsArray(items) ? cJSON_GetArraySize(items) : 0;
    if (count == 0)
        return fail(err, LS_EDATA, "expected an object with \"%s\", an array that is not empty",
                    key);
    const size_t bytes = item_bytes(w);
    out->owned = malloc((size_t)count * bytes);
    if (!out->owned)
        return fail(err, LS_ENOMEM, "out of memory for %d %ss", count, noun(w));
    out->bytes = out->owned;
    int status = LS_OK;
    cJSON_ArrayForEach(item, items)
    {
        if (status == LS_OK)
            status = read_item(out->owned + out->count * bytes, w, item, (int)out->count, err);
        out->count++;
    }
    return status;
}

static int read_json(payload *out, const wanted *w, const char *body, size_t length, ls_error *err)
{
    const char *end = body;
    if (length > PAYLOAD_JSON_MOST)
        return fail(err, LS_EINVAL,
                    "the body has %zu bytes; as JSON it may have %d: send less at once, or "
                    "application/octet-stream",
                    length, (int)PAYLOAD_JSON_MOST);
    cJSON *root = cJSON_ParseWithLengthOpts(body, length, &end, 0);
    if (!root)
        return fail(err, LS_EDATA, "the body is not JSON: error near byte %zu",
                    (size_t)(end - body));
    while (end < body + length && strchr(" \t\r\n", *end) && *end)
        end++;
    int status = end == body + length
                     ? read_items(out, w, root, err)
                     : fail(err, LS_EDATA, "the body goes on behind its JSON, at byte %zu",
                            (size_t)(end - body));
    cJSON_Delete(root);
    if (status)
        payload_free(out);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int is_type(const char *content_type, const char *name)
{
    const size_t length = strlen(name);
    return content_type && strncasecmp(content_type, name, length) == 0 &&
           (content_type[length] == '\0' || strchr("; \t", content_type[length]) != NULL);
}

int payload_read(payload *out, const example_form *form, int examples, const char *content_type,
                 const char *body, size_t length, ls_error *err)
{
    const wanted w = {form, examples != 0};
    *out = (payload){0};
    if (is_type(content_type, "application/octet-stream"))
        return read_bytes(out, &w, body, length, err);
    if (is_type(content_type, "application/json"))
        return read_json(out, &w, body, length, err);
    return fail(err, LS_EUNSUPPORTED,
                "Content-Type: expected application/octet-stream or application/json");
}

void payload_free(payload *p)
{
    free(p->owned);
    *p = (payload){0};
}
