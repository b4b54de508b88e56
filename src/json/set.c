/* SPDX-License-Identifier: MIT */
/* Applies `--set a.b=v` to a document. */
#include "json/json.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"
#include "json/doc.h"

#include <stdio.h>
#include <string.h>

/* An assignment in progress. */
typedef struct assignment {
    ls_json *doc;
    const char *label; /* "--set a.b=v" */
    char *path;        /* "a\0b": the keys, each ended by a zero byte */
    size_t keys;
    const char *value;
    ls_error *err;
} assignment;

static int no_memory(const assignment *a)
{
    return ls_fail(a->err, LS_ENOMEM, "%s: out of memory", a->doc->name);
}

/* Creates the label, "--set " and the text, which lives as long as the document. */
static int add_label(assignment *a, const char *text)
{
    static const char option[] = "--set ";
    const size_t bytes = sizeof option + strlen(text);
    ls_json_label *label = ls_alloc(a->doc->host, sizeof *label + bytes);
    if (!label)
        return no_memory(a);
    snprintf(label->text, bytes, "%s%s", option, text);
    label->next = a->doc->labels;
    a->doc->labels = label;
    a->label = label->text;
    return LS_OK;
}

/* Checks that keys and value are UTF-8. The check is needed because the writer replaces invalid
 * bytes by U+FFFD, and keys that differ only in such bytes become equal. */
static int check_utf8(const assignment *a, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        size_t c = ls_utf8_length((const unsigned char *)text + i, n - i);
        if (c == 0)
            return ls_fail(a->err, LS_ECONFIG, "%s: expected UTF-8, found the byte 0x%02x",
                           a->label, (unsigned char)text[i]);
        i += c;
    }
    return LS_OK;
}

/* Splits "a.b=v" into keys and value. Each dot becomes a zero byte that ends a key. The last key
 * ends with a zero byte of the memory, which ls_alloc has zeroed. */
static int split_path(assignment *a, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return ls_fail(a->err, LS_EINVAL, "%s: expected KEY=VALUE, found no '='", a->label);
    size_t n = (size_t)(equals - text);
    a->path = ls_alloc(a->doc->host, n + 1);
    if (!a->path)
        return no_memory(a);
    memcpy(a->path, text, n);
    a->value = equals + 1;
    for (char *key = a->path, *dot; key; key = dot ? dot + 1 : NULL) {
        const char found = text[key - a->path];
        if (found == '.' || found == '=')
            return ls_fail(a->err, LS_EINVAL, "%s: expected a key before '%c', found none",
                           a->label, found);
        dot = strchr(key, '.');
        if (dot)
            *dot = '\0';
        a->keys++;
    }
    if (a->keys > LS_JSON_DEPTH)
        return ls_fail(a->err, LS_EINVAL, "%s: expected at most %d keys, found %zu", a->label,
                       LS_JSON_DEPTH, a->keys);
    return LS_OK;
}

/* Parses the value as JSON or, if it is not valid JSON, makes it a string. */
static int make_value(assignment *a, cJSON **out)
{
    const char first = a->value[0];
    const bool must_be_json = first == '{' || first == '[' || first == '"';
    int status = ls_json_scan(out, a->doc, a->label, a->value, strlen(a->value), 1, a->label,
                              must_be_json ? a->err : NULL);
    if (status == LS_OK || must_be_json)
        return status;
    *out = status == LS_ENOMEM ? NULL : cJSON_CreateString(a->value);
    return *out ? ls_json_note(a->doc, &(ls_json_origin){*out, a->label, 0, 0}, a->err)
                : no_memory(a);
}

/* Adds a new, empty object to `parent` as member `key`. */
static int make_object(assignment *a, cJSON **out, cJSON *parent, const char *key)
{
    *out = cJSON_CreateObject();
    if (!*out)
        return no_memory(a);
    int status = ls_json_note(a->doc, &(ls_json_origin){*out, a->label, 0, 0}, a->err);
    if (status == LS_OK && !cJSON_AddItemToObject(parent, key, *out)) {
        a->doc->count--;
        status = no_memory(a);
    }
    if (status)
        cJSON_Delete(*out);
    return status;
}

/* Returns the element of an array with the index `key`, a text; NULL if there is none. */
static cJSON *element(const cJSON *array, const char *key)
{
    int index = 0;
    for (const char *p = key; *p; p++) {
        if (*p < '0' || *p > '9' || index > 99999999)
            return NULL;
        index = index * 10 + (*p - '0');
    }
    return cJSON_GetArrayItem(array, index);
}

/* Finds the child `key` of `parent`; *out is NULL for a member that does not exist. */
static int step(const assignment *a, cJSON **out, const cJSON *parent, const char *before,
                const char *key)
{
    *out = NULL;
    if (cJSON_IsObject(parent)) {
        *out = cJSON_GetObjectItemCaseSensitive(parent, key);
        return LS_OK;
    }
    if (!cJSON_IsArray(parent))
        return ls_fail(a->err, LS_ECONFIG, "%s: expected %s to be an object, found %s", a->label,
                       before ? before : "the document", ls_json_kind(parent));
    *out = element(parent, key);
    if (!*out)
        return ls_fail(a->err, LS_ECONFIG, "%s: expected a number from 0 to %d after %s, found %s",
                       a->label, cJSON_GetArraySize(parent) - 1, before ? before : "the document",
                       key);
    return LS_OK;
}

/* Removes the origins of a node and all its descendants from the document. */
static void forget(ls_json *doc, const cJSON *node)
{
    for (uint32_t i = 0; i < doc->count; i++)
        if (doc->origins[i].node == node)
            doc->origins[i].node = NULL;
    for (const cJSON *child = node->child; child; child = child->next)
        forget(doc, child);
}

/* Replaces `old` by `value`, or adds `value` as member `key` if `old` is NULL. */
static int put(assignment *a, cJSON *parent, cJSON *old, const char *key, cJSON *value)
{
    if (!old)
        return cJSON_AddItemToObject(parent, key, value) ? LS_OK : no_memory(a);
    forget(a->doc, old);
    /* The key is moved to the new node. It is not copied by cJSON, because version 1.7.15 does not
     * notice if the copy fails. */
    value->string = old->string;
    old->string = NULL;
    return cJSON_ReplaceItemViaPointer(parent, old, value) ? LS_OK : no_memory(a);
}

static int assign(assignment *a)
{
    cJSON *value = NULL;
    cJSON *parent = a->doc->root;
    cJSON *child = NULL;
    const char *before = NULL;
    const char *key = a->path;
    int status = make_value(a, &value);
    for (size_t i = 0; status == LS_OK && i < a->keys; i++) {
        status = step(a, &child, parent, before, key);
        if (status != LS_OK || i + 1 == a->keys)
            break;
        if (!child)
            status = make_object(a, &child, parent, key);
        parent = child;
        before = key;
        key += strlen(key) + 1;
    }
    if (status == LS_OK)
        status = put(a, parent, child, key, value);
    if (status && value) {
        forget(a->doc, value);
        cJSON_Delete(value);
    }
    return status;
}

int ls_json_set(ls_json *doc, const char *assignment_text, ls_error *err)
{
    assignment a = {.doc = doc, .err = err};
    int status = add_label(&a, assignment_text);
    if (status == LS_OK)
        status = check_utf8(&a, assignment_text);
    if (status == LS_OK)
        status = split_path(&a, assignment_text);
    if (status == LS_OK)
        status = assign(&a);
    ls_free(doc->host, a.path);
    return status;
}
