/* SPDX-License-Identifier: MIT */
/* Compares JSON values (compare.h). */
#include "json/compare.h"

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
static bool arrays_differ(char place[LS_JSON_PLACE], const cJSON *a, const cJSON *b)
{
    const size_t used = strlen(place);
    const cJSON *x = a->child, *y = b->child;
    for (int i = 0; x || y; i++) {
        snprintf(place + used, LS_JSON_PLACE - used, "[%d]", i);
        if (ls_json_differs(place, x, y))
            return true;
        x = x->next;
        y = y->next;
    }
    place[used] = '\0';
    return false;
}

/* Compares the members of `a` with those of `b`. If `missing_only`, finds only members that `b`
 * does not have. */
static bool members_differ(char place[LS_JSON_PLACE], const cJSON *a, const cJSON *b,
                           bool missing_only)
{
    const size_t used = strlen(place);
    for (const cJSON *x = a->child; x; x = x->next) {
        const cJSON *y = cJSON_GetObjectItemCaseSensitive(b, x->string);
        append_key(place, x->string);
        if (!y || (!missing_only && ls_json_differs(place, x, y)))
            return true;
        place[used] = '\0';
    }
    return false;
}

bool ls_json_differs(char place[LS_JSON_PLACE], const cJSON *a, const cJSON *b)
{
    if (!a && !b)
        return false;
    if (!same_kind(a, b))
        return true;
    if (cJSON_IsNumber(a))
        return a->valuedouble != b->valuedouble;
    if (cJSON_IsString(a))
        return strcmp(a->valuestring, b->valuestring) != 0;
    if (cJSON_IsArray(a))
        return arrays_differ(place, a, b);
    if (cJSON_IsObject(a))
        return members_differ(place, a, b, false) || members_differ(place, b, a, true);
    return false;
}
