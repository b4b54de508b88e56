/* SPDX-License-Identifier: MIT */
/* JSON documents: reads them, and reports errors with the position of a node, its *origin*
 * (doc.h). */
#include "json/json.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/utf8.h"
#include "json/doc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ls_json_note(ls_json *doc, const ls_json_origin *origin, ls_error *err)
{
    ls_json_origin *origins =
        ls_grown(doc->host, doc->origins, doc->count, &doc->capacity, sizeof *origins);
    if (!origins)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", doc->name);
    doc->origins = origins;
    doc->origins[doc->count++] = *origin;
    return LS_OK;
}

int ls_json_parse_line(ls_json **out, const char *name, const char *text, size_t len, int line,
                       const ls_host *host, ls_error *err)
{
    int status;
    *out = NULL;
    if (len > LS_JSON_BYTES) { /* checked before the text is copied */
        status = ls_fail(err, LS_ECONFIG, "%s: expected at most %d bytes, found %zu", name,
                         LS_JSON_BYTES, len);
        return status;
    }
    ls_json *doc = ls_alloc(host, sizeof *doc);
    if (!doc)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", name);
    doc->host = host;
    doc->line = line;
    doc->name = ls_strdup(host, name);
    doc->text = ls_alloc(host, len + 1);
    if (doc->name && doc->text) {
        memcpy(doc->text, text, len);
        status = ls_json_scan(&doc->root, doc, name, doc->text, len, line, NULL, err);
    } else {
        status = ls_fail(err, LS_ENOMEM, "%s: out of memory", name);
    }
    if (status == LS_OK) {
        *out = doc;
        return LS_OK;
    }
    ls_json_destroy(doc);
    return status;
}

int ls_json_parse(ls_json **out, const char *name, const char *text, size_t len,
                  const ls_host *host, ls_error *err)
{
    return ls_json_parse_line(out, name, text, len, 1, host, err);
}

int ls_json_read_file(ls_json **out, const char *path, const ls_host *host, ls_error *err)
{
    void *text;
    size_t size;
    *out = NULL;
    int status =
        ls_read_plain_file(&text, &size, path, "a JSON file", LS_ECONFIG, LS_JSON_BYTES, host, err);
    if (status == LS_OK)
        status = ls_json_parse(out, path, text, size, host, err);
    ls_free(host, text);
    /* the path can come from a config, and can contain any bytes */
    return status;
}

void ls_json_destroy(ls_json *doc)
{
    if (!doc)
        return;
    const ls_host *host = doc->host;
    while (doc->labels) {
        ls_json_label *label = doc->labels;
        doc->labels = label->next;
        ls_free(host, label);
    }
    cJSON_Delete(doc->root);
    ls_free(host, doc->origins);
    ls_free(host, doc->text);
    ls_free(host, doc->name);
    ls_free(host, doc);
}

/* ---- queries --------------------------------------------------------------------------------- */

const cJSON *ls_json_root(const ls_json *doc)
{
    return doc->root;
}

void ls_json_copy_text(char *out, size_t size, const cJSON *object, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsString(node))
        return;
    snprintf(out, size, "%s", node->valuestring);
    ls_utf8_tidy(out); /* snprintf may have cut a long text within a character */
}

const char *ls_json_name(const ls_json *doc)
{
    return doc->name;
}

/* Finds the origin of a node by a search of all origins. The search is slow, but is done only for
 * messages. */
static ls_json_origin *origin_of(const ls_json *doc, const cJSON *node)
{
    if (!node)
        return NULL;
    for (uint32_t i = 0; i < doc->count; i++)
        if (doc->origins[i].node == node)
            return &doc->origins[i];
    return NULL;
}

/* Returns the text by which messages name a node's origin, or NULL if it has line and column. */
static const char *label_of(const ls_json *doc, const ls_json_origin *o)
{
    const ls_json_origin *found = o;
    for (uint32_t i = 0; doc->places && !o->label && i < doc->count; i++) {
        const ls_json_origin *at = &doc->origins[i];
        if (at->label && at->value <= o->value && (!found->label || at->value >= found->value))
            found = at;
    }
    return found->label ? found->label : doc->places ? doc->name : NULL;
}

bool ls_json_is_set(const ls_json *doc, const cJSON *node)
{
    const ls_json_origin *o = origin_of(doc, node);
    bool set = o && o->label && !doc->places;
    for (const cJSON *child = node ? node->child : NULL; child && !set; child = child->next)
        set = ls_json_is_set(doc, child);
    return set;
}

int ls_json_where(const ls_json *doc, const cJSON *node, bool of_value, int *line, int *column)
{
    const ls_json_origin *o = origin_of(doc, node);
    if (!o || label_of(doc, o))
        return LS_EINVAL;
    ls_json_line_column(doc->text, of_value || o->key == LS_JSON_NO_KEY ? o->value : o->key,
                        doc->line, line, column);
    return LS_OK;
}

static int fail(ls_error *err, const ls_json *doc, const cJSON *node, bool of_value, int status,
                const char *format, va_list args)
{
    char message[LS_ERROR_TEXT];
    int line;
    int column;
    vsnprintf(message, sizeof message, format, args);
    if (!doc) {
        ls_fail(err, status, "%s", message);
    } else if (ls_json_where(doc, node, of_value, &line, &column) == LS_OK) {
        ls_fail(err, status, "%s:%d:%d: %s", doc->name, line, column, message);
    } else {
        const ls_json_origin *o = origin_of(doc, node);
        ls_fail(err, status, "%s: %s", o ? label_of(doc, o) : doc->name, message);
    }
    return status;
}

int ls_json_fail(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(err, doc, node, false, status, format, args);
    va_end(args);
    return status;
}

int ls_json_fail_value(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(err, doc, node, true, status, format, args);
    va_end(args);
    return status;
}

int ls_json_set_place(ls_json *doc, const cJSON *node, const char *place, ls_error *err)
{
    ls_json_origin *o = origin_of(doc, node);
    if (!o)
        return ls_fail(err, LS_EINVAL, "%s: a node of another document", doc->name);
    const size_t bytes = strlen(doc->name) + strlen(place) + 3;
    ls_json_label *label = ls_alloc(doc->host, sizeof *label + bytes);
    if (!label)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", doc->name);
    snprintf(label->text, bytes, "%s: %s", doc->name, place);
    label->next = doc->labels;
    doc->labels = label;
    doc->places = true;
    o->label = label->text;
    return LS_OK;
}

const char *ls_json_kind(const cJSON *node)
{
    if (!node)
        return "nothing";
    switch (node->type & 0xFF) {
    case cJSON_False: return "false";
    case cJSON_True: return "true";
    case cJSON_NULL: return "null";
    case cJSON_Number: return "a number";
    case cJSON_String: return "a string";
    case cJSON_Array: return "an array";
    case cJSON_Object: return "an object";
    default: return "nothing";
    }
}

void ls_json_put_node(ls_json_writer *w, const char *key, const cJSON *node)
{
    if (cJSON_IsObject(node) || cJSON_IsArray(node)) {
        if (cJSON_IsObject(node))
            ls_json_open_object(w, key);
        else
            ls_json_open_array(w, key);
        for (const cJSON *child = node->child; child; child = child->next)
            ls_json_put_node(w, cJSON_IsObject(node) ? child->string : NULL, child);
        ls_json_close(w);
    } else if (cJSON_IsString(node)) {
        ls_json_put_string(w, key, node->valuestring);
    } else if (cJSON_IsNumber(node)) {
        ls_json_put_double(w, key, node->valuedouble);
    } else if (cJSON_IsBool(node)) {
        ls_json_put_bool(w, key, cJSON_IsTrue(node));
    } else {
        ls_json_put_null(w, key);
    }
}

cJSON *ls_json_written_tree(ls_json_writer *w, const char *what, ls_error *err)
{
    const char *text = ls_json_writer_text(w, NULL, NULL);
    cJSON *tree = text ? cJSON_Parse(text) : NULL;
    if (!tree)
        ls_fail(err, LS_ENOMEM, "out of memory for %s", what);
    return tree;
}
