/* The rows that a request's body brings.
 *
 * application/octet-stream: rows, or examples, one behind the other, as they are.
 *
 * application/json, for few: {"rows": [ROW, …]} or {"examples": [{"label": 3, "row": ROW}, …]}, where a
 * ROW is an array of its bytes or floats as numbers. Targets that are floats are "target": [NUMBER, …]. */
#include "service.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- floats --------------------------------------------------------------------------------- */

static int check_floats(const uint8_t *from, int count, const char *what, int zero_to_one,
                        uint32_t index, ls_error *err)
{
    for (int i = 0; i < count; i++) {
        float x;
        memcpy(&x, from + (size_t)i * sizeof x, sizeof x);
        if (!isfinite(x))
            return fail(err, LS_EDATA, "row %u: %s %d is %g; expected finite floats", index, what,
                        i, (double)x);
        if (zero_to_one && !(x >= 0 && x <= 1))
            return fail(err, LS_EDATA, "row %u: %s %d is %g; expected 0 to 1, for this loss", index,
                        what, i, (double)x);
    }
    return LS_OK;
}

/* One row or example. A float that is not finite, or a target that the loss refuses, would end training. */
static int check_item(const row_form *f, int example, const uint8_t *item, uint32_t index,
                      ls_error *err)
{
    int status = LS_OK;
    if (example && f->targets)
        status = check_floats(item, f->targets, "target", f->zero_to_one, index, err);
    else if (example && *item >= f->classes)
        return fail(err, LS_EDATA, "row %u: label %d; expected 0 to %d", index, *item,
                    f->classes - 1);
    if (status == LS_OK && f->floats)
        status = check_floats(item + (example ? f->target_bytes : 0), f->channels, "value", 0,
                              index, err);
    return status;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static int read_bytes(row_list *out, const row_form *f, int examples, const char *body,
                      size_t length, ls_error *err)
{
    const size_t size = examples ? f->example_bytes : f->row_bytes;
    if (length == 0 || length % size != 0)
        return fail(err, LS_EDATA, "the body has %zu bytes; expected a multiple of %zu: %s%s",
                    length, size,
                    !examples    ? ""
                    : f->targets ? "targets and "
                                 : "a label and ",
                    f->floats ? "a row of floats" : "an image");
    *out = (row_list){.bytes = (const uint8_t *)body, .count = (uint32_t)(length / size)};
    int status = LS_OK;
    for (uint32_t i = 0; i < out->count && status == LS_OK; i++)
        status = check_item(f, examples, out->bytes + i * size, i, err);
    return status;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int is_whole(const cJSON *number, int below)
{
    const double v = cJSON_IsNumber(number) ? number->valuedouble : -1;
    return v >= 0 && v < below && v == (double)(int)v;
}

/* An array of `count` bytes or floats. */
static int read_array(uint8_t *to, int count, int floats, const cJSON *array, const char *key,
                      uint32_t index, ls_error *err)
{
    const cJSON *number;
    int n = 0;
    cJSON_ArrayForEach(number, array)
    {
        const float x = (float)number->valuedouble;
        if (floats ? !cJSON_IsNumber(number) || !isfinite(x) : !is_whole(number, 256))
            return fail(err, LS_EDATA, "row %u: \"%s\", value %d: expected a %s", index, key, n,
                        floats ? "number, that of a float" : "whole number, 0 to 255");
        if (n < count && floats)
            memcpy(to + (size_t)n * sizeof x, &x, sizeof x);
        else if (n < count)
            to[n] = (uint8_t)number->valuedouble;
        n++;
    }
    if (n == count && cJSON_IsArray(array))
        return LS_OK;
    return fail(err, LS_EDATA, "row %u: \"%s\" has %d numbers; expected an array of %d", index, key,
                n, count);
}

static int read_target(uint8_t *to, const row_form *f, const cJSON *item, uint32_t index,
                       ls_error *err)
{
    if (f->targets)
        return read_array(to, f->targets, 1, cJSON_GetObjectItemCaseSensitive(item, "target"),
                          "target", index, err);
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(item, "label");
    if (!is_whole(label, f->classes))
        return fail(err, LS_EDATA, "row %u: \"label\": expected a whole number, 0 to %d", index,
                    f->classes - 1);
    *to = (uint8_t)label->valuedouble;
    return LS_OK;
}

static int read_item(uint8_t *to, const row_form *f, int example, const cJSON *item, uint32_t index,
                     ls_error *err)
{
    const cJSON *row = example ? cJSON_GetObjectItemCaseSensitive(item, "row") : item;
    int status = example ? read_target(to, f, item, index, err) : LS_OK;
    if (status == LS_OK)
        status = read_array(to + (example ? f->target_bytes : 0),
                            f->channels * f->height * f->width, f->floats, row, "row", index, err);
    return status ? status : check_item(f, example, to, index, err);
}

static int read_items(row_list *out, const row_form *f, int examples, const cJSON *root,
                      ls_error *err)
{
    const char *key = examples ? "examples" : "rows";
    const size_t size = examples ? f->example_bytes : f->row_bytes;
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(root, key), *item;
    const int count = cJSON_IsArray(items) ? cJSON_GetArraySize(items) : 0;
    if (count == 0)
        return fail(err, LS_EDATA, "expected an object with \"%s\", an array that is not empty",
                    key);
    out->bytes = out->owned = malloc((size_t)count * size);
    if (!out->owned)
        return fail(err, LS_ENOMEM, "out of memory for %d rows", count);
    cJSON_ArrayForEach(item, items)
    {
        int status = read_item(out->owned + out->count * size, f, examples, item, out->count, err);
        if (status)
            return status;
        out->count++;
    }
    return LS_OK;
}

static int read_json(row_list *out, const row_form *f, int examples, const char *body,
                     size_t length, ls_error *err)
{
    const char *end = body;
    if (length > BODY_JSON_MOST)
        return fail(err, LS_EINVAL,
                    "the body has %zu bytes; as JSON it may have %d: send less at once, or "
                    "application/octet-stream",
                    length, (int)BODY_JSON_MOST);
    cJSON *root = cJSON_ParseWithLengthOpts(body, length, &end, 0);
    if (!root)
        return fail(err, LS_EDATA, "the body is not JSON: error near byte %zu",
                    (size_t)(end - body));
    while (end < body + length && *end && strchr(" \t\r\n", *end))
        end++;
    int status = LS_OK;
    if (end != body + length)
        status = fail(err, LS_EDATA, "the body goes on behind its JSON, at byte %zu",
                      (size_t)(end - body));
    else
        status = read_items(out, f, examples, root, err);
    cJSON_Delete(root);
    if (status)
        body_free(out);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int is_type(const char *type, const char *name)
{
    const size_t length = strlen(name);
    return type && strncasecmp(type, name, length) == 0 &&
           (type[length] == '\0' || strchr("; \t", type[length]) != NULL);
}

int body_read(row_list *out, const row_form *form, int examples, const char *type, const char *body,
              size_t length, ls_error *err)
{
    *out = (row_list){0};
    if (is_type(type, "application/octet-stream"))
        return read_bytes(out, form, examples, body, length, err);
    if (is_type(type, "application/json"))
        return read_json(out, form, examples, body, length, err);
    return fail(err, LS_EUNSUPPORTED,
                "Content-Type: expected application/octet-stream or application/json");
}

void body_free(row_list *r)
{
    free(r->owned);
    *r = (row_list){0};
}
