/* SPDX-License-Identifier: MIT */
/* Reads the members of a JSON object. Error messages contain line and column (fields.h). */
#include "json/fields.h"

#include "base/error.h"
#include "base/thread_state.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_TEXT = 32, SHOWN_TEXT = 40, LIST_TEXT = 240, HINT_TEXT = LIST_TEXT + 32 };

/* Formats a number as a person would write it, in every locale. */
static const char *number_text(char out[NUMBER_TEXT], double value)
{
    ls_c_locale l = ls_c_locale_enter();
    if (value == floor(value) && fabs(value) < 1e15)
        snprintf(out, NUMBER_TEXT, "%.0f", value);
    else
        snprintf(out, NUMBER_TEXT, "%.6g", value);
    ls_c_locale_leave(l);
    return out;
}

/* Formats a value for messages: a number or a short string as it is, any other value as its kind,
 * such as "an array". */
static const char *found_text(char out[SHOWN_TEXT], const cJSON *node)
{
    char number[NUMBER_TEXT];
    if (cJSON_IsNumber(node))
        snprintf(out, SHOWN_TEXT, "%s", number_text(number, node->valuedouble));
    else if (cJSON_IsString(node) && strlen(node->valuestring) <= 24)
        snprintf(out, SHOWN_TEXT, "\"%s\"", node->valuestring);
    else
        snprintf(out, SHOWN_TEXT, "%s", ls_json_kind(node));
    return out;
}

/* Formats "a, b, c". A list that gets too long ends with the number of further words: "a, b and 30
 * more". */
static void put_list(char out[LIST_TEXT], const char *const *words, int count)
{
    const size_t end = sizeof " and 1000 more"; /* room that a list needs for its end */
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        if (n + strlen(words[i]) + end + 2 > LIST_TEXT) {
            snprintf(out + n, LIST_TEXT - n, " and %d more", count - i);
            return;
        }
        n += (size_t)snprintf(out + n, LIST_TEXT - n, "%s%s", i ? ", " : "", words[i]);
    }
}

/* Formats "did you mean \"a\"?" or, if no word is close, the list "ALL: a, b, c", where ALL is a
 * parameter. */
static const char *hint_text(char out[HINT_TEXT], const char *word, const char *all,
                             const char *const *words, int count)
{
    const char *near = ls_closest(word, words, (size_t)count);
    if (near) {
        snprintf(out, HINT_TEXT, "did you mean \"%s\"?", near);
    } else {
        const int n = snprintf(out, HINT_TEXT - LIST_TEXT, "%s: ", all);
        put_list(out + n, words, count);
    }
    return out;
}

void ls_fields_fail(ls_fields *f, const cJSON *node, const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    if (f->status != LS_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    f->status = ls_json_fail_value(f->err, f->doc, node ? node : f->object, LS_ECONFIG, "%s: %s",
                                   f->what, text);
}

void ls_fields_fail_key(ls_fields *f, const cJSON *member, const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    if (f->status != LS_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    f->status = ls_json_fail(f->err, f->doc, member, LS_ECONFIG, "%s: %s", f->what, text);
}

void ls_fields_begin(ls_fields *f, const ls_json *doc, const cJSON *object, const char *what,
                     ls_error *err)
{
    *f = (ls_fields){.doc = doc, .object = object, .what = what, .err = err};
    if (!cJSON_IsObject(object))
        ls_fields_fail(f, NULL, "expected an object {…}, found %s", ls_json_kind(object));
}

bool ls_fields_know(const ls_fields *f, const char *key)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->known[i], key) == 0)
            return true;
    return false;
}

const cJSON *ls_field_any(ls_fields *f, const char *key)
{
    /* A caller may read a key twice: first as any value, then as a number. */
    if (!ls_fields_know(f, key)) {
        assert(f->count < LS_FIELDS_MAX);
        f->known[f->count++] = key;
    }
    return f->status == LS_OK ? cJSON_GetObjectItemCaseSensitive(f->object, key) : NULL;
}

/* Returns the member as ls_field_any does. If the member is absent and `required`, stores the key
 * in f->missing. */
static const cJSON *needed(ls_fields *f, const char *key, bool required)
{
    const cJSON *node = ls_field_any(f, key);
    if (!node && required && f->status == LS_OK && !f->missing)
        f->missing = key;
    return node;
}

/* Records the failure that the member is not the expected value. Returns false. */
__attribute__((format(printf, 4, 5))) static bool refuse(ls_fields *f, const char *key,
                                                         const cJSON *node, const char *format, ...)
{
    char expected[128], shown[SHOWN_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    ls_fields_fail(f, node, "\"%s\" must be %s, found %s", key, expected, found_text(shown, node));
    return false;
}

bool ls_field_is_int(ls_fields *f, const char *key, const cJSON *node, long min, long max)
{
    const double v = cJSON_IsNumber(node) ? node->valuedouble : 0.5;
    return (v == floor(v) && v >= (double)min && v <= (double)max) ||
           refuse(f, key, node, "an integer from %ld to %ld", min, max);
}

bool ls_field_int(ls_fields *f, const char *key, long min, long max, const long *fallback,
                  long *out)
{
    const cJSON *node = needed(f, key, fallback == NULL);
    *out = fallback ? *fallback : 0;
    if (!node || !ls_field_is_int(f, key, node, min, max))
        return false;
    *out = (long)node->valuedouble;
    return true;
}

bool ls_field_version(ls_fields *f, const char *key, long min, long newest, long *out)
{
    const cJSON *node = ls_field_any(f, key);
    if (cJSON_IsNumber(node) && node->valuedouble > (double)newest)
        ls_fields_fail(f, node, LS_NEWER_VERSION, key, node->valuedouble, newest);
    return ls_field_int(f, key, min, newest, NULL, out);
}

bool ls_field_double(ls_fields *f, const char *key, double min, double max, const double *fallback,
                     double *out)
{
    char low[NUMBER_TEXT], high[NUMBER_TEXT];
    const cJSON *node = needed(f, key, fallback == NULL);
    *out = fallback ? *fallback : 0;
    if (!node)
        return false;
    if (!cJSON_IsNumber(node) || !(node->valuedouble >= min && node->valuedouble <= max))
        return refuse(f, key, node, "a number from %s to %s", number_text(low, min),
                      number_text(high, max));
    *out = node->valuedouble;
    return true;
}

bool ls_field_bool(ls_fields *f, const char *key, const int *fallback, int *out)
{
    const cJSON *node = needed(f, key, fallback == NULL);
    *out = fallback ? *fallback : 0;
    if (!node)
        return false;
    if (!cJSON_IsBool(node))
        return refuse(f, key, node, "true or false");
    *out = cJSON_IsTrue(node) != 0;
    return true;
}

bool ls_field_text(ls_fields *f, const char *key, const char *const *fallback, const char **out)
{
    const cJSON *node = needed(f, key, fallback == NULL);
    *out = fallback ? *fallback : NULL;
    if (!node)
        return false;
    if (!cJSON_IsString(node))
        return refuse(f, key, node, "a string");
    *out = node->valuestring;
    return true;
}

bool ls_field_is_choice(ls_fields *f, const char *key, const cJSON *node,
                        const char *const *choices, int *out)
{
    const char *text = node->valuestring;
    char hint[HINT_TEXT];
    int count = 0;
    for (; choices[count]; count++)
        if (strcmp(choices[count], text) == 0) {
            *out = count;
            return true;
        }
    ls_fields_fail(f, node, "unknown %s \"%.40s\"; %s", key, text,
                   hint_text(hint, text, "expected one of", choices, count));
    return false;
}

bool ls_field_choice(ls_fields *f, const char *key, const char *const *choices, const int *fallback,
                     int *out)
{
    const char *text, *none = NULL;
    bool found = ls_field_text(f, key, fallback ? &none : NULL, &text);
    *out = fallback ? *fallback : 0;
    return found && ls_field_is_choice(f, key, cJSON_GetObjectItemCaseSensitive(f->object, key),
                                       choices, out);
}

/* Reads the numbers of an array. Returns false if one is no integer from `min` to `max`. */
static bool read_ints(ls_fields *f, const char *key, const cJSON *node, long min, long max,
                      int *out)
{
    for (const cJSON *item = node->child; item; item = item->next) {
        if (!ls_field_is_int(f, key, item, min, max))
            return false;
        *out++ = (int)item->valuedouble;
    }
    return true;
}

bool ls_field_sides(ls_fields *f, const char *key, long min, long max, int out[2], int end[2])
{
    static const long zero = 0;
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, key);
    const int values = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 2;
    if (values != 2 && values != 4)
        ls_fields_fail(f, node,
                       "\"%s\" must be an integer, [height, width] or [top, left, bottom, right], "
                       "found %d values",
                       key, values);
    if (values != 4) {
        const bool given = ls_field_pair(f, key, min, max, &zero, out);
        end[0] = out[0];
        end[1] = out[1];
        return given;
    }
    int sides[4] = {0};
    node = needed(f, key, false);
    const bool right = read_ints(f, key, node, min, max, sides);
    for (int i = 0; i < 2; i++) {
        out[i] = sides[i];
        end[i] = sides[2 + i];
    }
    return right;
}

bool ls_field_pair(ls_fields *f, const char *key, long min, long max, const long *fallback,
                   int out[2])
{
    const cJSON *node = needed(f, key, fallback == NULL);
    out[0] = out[1] = fallback ? (int)*fallback : 0;
    if (!node)
        return false;
    if (!cJSON_IsArray(node)) {
        if (!ls_field_is_int(f, key, node, min, max))
            return false;
        out[0] = out[1] = (int)node->valuedouble;
        return true;
    }
    if (cJSON_GetArraySize(node) != 2) {
        ls_fields_fail(f, node, "\"%s\" must be an integer or [height, width], found %d values",
                       key, cJSON_GetArraySize(node));
        return false;
    }
    return read_ints(f, key, node, min, max, out);
}

static void fail_unknown(ls_fields *f, const cJSON *node)
{
    char hint[HINT_TEXT];
    f->status =
        ls_json_fail(f->err, f->doc, node, LS_ECONFIG, "%s: unknown key \"%.60s\"; %s", f->what,
                     node->string, hint_text(hint, node->string, "known keys", f->known, f->count));
}

int ls_fields_end(ls_fields *f)
{
    if (f->status != LS_OK)
        return f->status;
    for (const cJSON *node = f->object->child; node && f->status == LS_OK; node = node->next)
        if (!ls_fields_know(f, node->string))
            fail_unknown(f, node);
    if (f->missing)
        ls_fields_fail(f, NULL, "\"%s\" is missing; add it", f->missing);
    return f->status;
}
