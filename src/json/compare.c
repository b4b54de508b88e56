/* SPDX-License-Identifier: MIT */
/* Compares JSON values (compare.h). */
#include "json/compare.h"

#include "json/json.h"

#include <stdio.h>
#include <string.h>

/* Kinds of values that differ in type even if their texts are the same. */
static bool same_kind(const cJSON *a, const cJSON *b)
{
    return a && b && (a->type & 0xff) == (b->type & 0xff);
}

static void append_key(char place[LS_JSON_PLACE], const char *key)
{
    const size_t used = strlen(place);
    snprintf(place + used, LS_JSON_PLACE - used, "%s%.100s", used > 0 ? "." : "", key);
}

/* Compares two arrays. */
static bool arrays_differ(ls_json_difference *out, const cJSON *a, const cJSON *b)
{
    const size_t used = strlen(out->place);
    const cJSON *x = a->child, *y = b->child;
    for (int i = 0; x || y; i++) {
        snprintf(out->place + used, LS_JSON_PLACE - used, "[%d]", i);
        if (ls_json_differs(out, x, y))
            return true;
        x = x->next;
        y = y->next;
    }
    out->place[used] = '\0';
    return false;
}

/* Compares two objects. A member that only `b` has is found last. */
static bool members_differ(ls_json_difference *out, const cJSON *a, const cJSON *b)
{
    const size_t used = strlen(out->place);
    for (const cJSON *x = a->child; x; x = x->next) {
        append_key(out->place, x->string);
        if (ls_json_differs(out, x, cJSON_GetObjectItemCaseSensitive(b, x->string)))
            return true;
        out->place[used] = '\0';
    }
    for (const cJSON *y = b->child; y; y = y->next) {
        if (cJSON_GetObjectItemCaseSensitive(a, y->string))
            continue;
        append_key(out->place, y->string);
        return ls_json_differs(out, NULL, y);
    }
    return false;
}

static bool scalars_differ(const cJSON *a, const cJSON *b)
{
    if (!same_kind(a, b))
        return true;
    if (cJSON_IsNumber(a))
        return a->valuedouble != b->valuedouble;
    return cJSON_IsString(a) && strcmp(a->valuestring, b->valuestring) != 0;
}

bool ls_json_differs(ls_json_difference *out, const cJSON *a, const cJSON *b)
{
    if (!a && !b)
        return false;
    if (same_kind(a, b) && cJSON_IsArray(a))
        return arrays_differ(out, a, b);
    if (same_kind(a, b) && cJSON_IsObject(a))
        return members_differ(out, a, b);
    if (!scalars_differ(a, b))
        return false;
    out->a = a;
    out->b = b;
    return true;
}

void ls_json_show(char out[LS_JSON_SHOWN], const cJSON *value, const ls_host *host)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, host);
    if (value)
        ls_json_put_node(&w, NULL, value);
    const char *text = value ? ls_json_writer_text(&w, NULL, NULL) : NULL;
    snprintf(out, LS_JSON_SHOWN, "%.70s", text ? text : "nothing");
    ls_json_writer_fini(&w);
}
