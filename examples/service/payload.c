#include "payload.h"

#include "base64.h"
#include "report.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static size_t item_bytes(const payload_form *form)
{
    return (size_t)form->image_bytes + (form->labelled ? 1 : 0);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static int read_bytes(payload *out, const payload_form *form, const char *body, size_t length,
                      ls_error *err)
{
    const size_t item = item_bytes(form), count = length / item;
    if (length == 0 || length % item != 0)
        return fail(err, LS_EDATA,
                    "the body has %zu bytes; expected a multiple of %zu: %s%u bytes of image",
                    length, item, form->labelled ? "1 byte of label and " : "",
                    (unsigned)form->image_bytes);
    const uint8_t *bytes = (const uint8_t *)body;
    for (size_t i = 0; form->labelled && i < count; i++)
        if (bytes[i * item] >= form->classes)
            return fail(err, LS_EDATA,
                        "example %zu (byte %zu of the body): label %d; expected 0 to %d", i,
                        i * item, bytes[i * item], form->classes - 1);
    *out = (payload){bytes, (uint32_t)count, NULL};
    return LS_OK;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int is_whole(const cJSON *number, int below)
{
    const double v = cJSON_IsNumber(number) ? number->valuedouble : -1;
    return v >= 0 && v < below && v == (double)(int)v;
}

static int read_image(uint8_t *to, const payload_form *form, const cJSON *image, int index,
                      ls_error *err)
{
    const cJSON *pixel;
    uint32_t n = 0;
    if (cJSON_IsString(image)) {
        if (base64_decode(to, form->image_bytes, image->valuestring))
            return LS_OK;
        return fail(err, LS_EDATA, "image %d: expected base64 of %u bytes", index,
                    (unsigned)form->image_bytes);
    }
    if (!cJSON_IsArray(image))
        return fail(err, LS_EDATA, "image %d: expected an array of %u numbers, or base64", index,
                    (unsigned)form->image_bytes);
    cJSON_ArrayForEach(pixel, image)
    {
        if (!is_whole(pixel, 256))
            return fail(err, LS_EDATA, "image %d, value %u: expected a whole number, 0 to 255",
                        index, (unsigned)n);
        if (n < form->image_bytes)
            to[n] = (uint8_t)pixel->valuedouble;
        n++;
    }
    if (n == form->image_bytes)
        return LS_OK;
    return fail(err, LS_EDATA, "image %d: %u numbers; expected %u", index, (unsigned)n,
                (unsigned)form->image_bytes);
}

static int read_item(uint8_t *to, const payload_form *form, const cJSON *item, int index,
                     ls_error *err)
{
    if (!form->labelled)
        return read_image(to, form, item, index, err);
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(item, "label");
    const cJSON *image = cJSON_GetObjectItemCaseSensitive(item, "image");
    if (!label || !image)
        return fail(err, LS_EDATA, "example %d: expected {\"label\": …, \"image\": …}", index);
    if (!is_whole(label, form->classes))
        return fail(err, LS_EDATA, "example %d: \"label\": expected a whole number, 0 to %d", index,
                    form->classes - 1);
    *to = (uint8_t)label->valuedouble;
    return read_image(to + 1, form, image, index, err);
}

static int read_items(payload *out, const payload_form *form, const cJSON *root, ls_error *err)
{
    const char *key = form->labelled ? "examples" : "images";
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(root, key), *item;
    const int count = cJSON_IsArray(items) ? cJSON_GetArraySize(items) : 0;
    if (count == 0)
        return fail(err, LS_EDATA, "expected an object with \"%s\", an array that is not empty",
                    key);
    const size_t bytes = item_bytes(form);
    out->owned = malloc((size_t)count * bytes);
    if (!out->owned)
        return fail(err, LS_ENOMEM, "out of memory for %d images", count);
    out->bytes = out->owned;
    int status = LS_OK;
    cJSON_ArrayForEach(item, items)
    {
        if (status == LS_OK)
            status = read_item(out->owned + out->count * bytes, form, item, (int)out->count, err);
        out->count++;
    }
    return status;
}

static int read_json(payload *out, const payload_form *form, const char *body, size_t length,
                     ls_error *err)
{
    const char *end = body;
    if (length > PAYLOAD_JSON_MOST)
        return fail(err, LS_EINVAL,
                    "the body has %zu bytes; as JSON it may have %d: send fewer images, or "
                    "application/octet-stream",
                    length, (int)PAYLOAD_JSON_MOST);
    cJSON *root = cJSON_ParseWithLengthOpts(body, length, &end, 0);
    if (!root)
        return fail(err, LS_EDATA, "the body is not JSON: error near byte %zu",
                    (size_t)(end - body));
    while (end < body + length && strchr(" \t\r\n", *end) && *end)
        end++;
    int status = end == body + length
                     ? read_items(out, form, root, err)
                     : fail(err, LS_EDATA, "the body goes on behind its JSON, at byte %zu",
                            (size_t)(end - body));
    cJSON_Delete(root);
    if (status)
        payload_free(out);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int is_type(const char *content_type, const char *wanted)
{
    const size_t length = strlen(wanted);
    return content_type && strncasecmp(content_type, wanted, length) == 0 &&
           (content_type[length] == '\0' || strchr("; \t", content_type[length]) != NULL);
}

int payload_read(payload *out, const payload_form *form, const char *content_type, const char *body,
                 size_t length, ls_error *err)
{
    *out = (payload){0};
    if (is_type(content_type, "application/octet-stream"))
        return read_bytes(out, form, body, length, err);
    if (is_type(content_type, "application/json"))
        return read_json(out, form, body, length, err);
    return fail(err, LS_EUNSUPPORTED,
                "Content-Type: expected application/octet-stream or application/json");
}

void payload_free(payload *p)
{
    free(p->owned);
    *p = (payload){0};
}
