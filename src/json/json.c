#include "json/json.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/thread_state.h"
#include "json/doc.h"
#include "json/writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- no key twice ---- */

typedef struct member {
    const char *key;
    uint32_t index; /* of its place */
} member;

typedef struct walk {
    const ls_json_places *places;
    const char *name;
    const char *text;
    int line; /* what its first one is called */
    const ls_host *host;
    ls_error *err;
    uint32_t next; /* the place of the next node in pre-order */
} walk;

static int by_key_then_index(const void *a, const void *b)
{
    const member *x = a;
    const member *y = b;
    int order = strcmp(x->key, y->key);
    if (order != 0)
        return order;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorting keeps this fast for an object with a million members. */
static int check_members(walk *w, member *members, size_t count)
{
    const member *again = NULL; /* the earliest repetition in the text */
    const member *first = NULL;
    int line[2];
    int column[2];
    qsort(members, count, sizeof *members, by_key_then_index);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(members[i].key, members[i - 1].key) == 0 &&
            (!again || members[i].index < again->index)) {
            again = &members[i];
            first = &members[i - 1];
        }
    }
    if (!again)
        return LS_OK;
    ls_json_line_column(w->text, w->places->items[first->index].key, w->line, &line[0], &column[0]);
    ls_json_line_column(w->text, w->places->items[again->index].key, w->line, &line[1], &column[1]);
    return ls_fail(w->err, LS_ECONFIG,
                   "%s:%d:%d: expected each key once, found \"%.64s\" again (first at %d:%d); "
                   "remove one of the two",
                   w->name, line[1], column[1], again->key, line[0], column[0]);
}

/* The scan has bounded the depth. */
static int check_node(walk *w, const cJSON *node)
{
    int status = LS_OK;
    member *members = NULL;
    size_t count = 0;
    w->next++;
    if (cJSON_IsObject(node) && node->child && node->child->next) {
        members = ls_alloc_array(w->host, (size_t)cJSON_GetArraySize(node), sizeof *members);
        if (!members)
            return ls_fail(w->err, LS_ENOMEM, "%s: out of memory", w->name);
    }
    for (const cJSON *child = node->child; child && status == LS_OK; child = child->next) {
        if (members)
            members[count++] = (member){.key = child->string, .index = w->next};
        status = check_node(w, child);
    }
    if (status == LS_OK && count > 1)
        status = check_members(w, members, count);
    ls_free(w->host, members);
    return status;
}

/* Refuses a tree in which an object has the same key twice. `places` are the tree\'s. */
static int check_keys(const cJSON *root, const ls_json_places *places, const char *name,
                      const char *text, int line, const ls_host *host, ls_error *err)
{
    walk w = {.places = places, .name = name, .text = text, .line = line, .host = host, .err = err};
    return check_node(&w, root);
}

/* ---- building ---- */

int ls_json_build(cJSON **root, ls_json_places *places, const char *name, const char *text,
                  size_t len, int line, const ls_host *host, ls_error *err)
{
    char *shortened;
    ls_c_locale locale = ls_c_locale_enter();
    int status = ls_json_scan(places, &shortened, name, text, len, line, host, err);
    *root = NULL;
    if (status == LS_OK) {
        /* Where it failed would be in `end`: cJSON's global error pointer, which threads share and
         * every parse overwrites, is never read. */
        const char *end = NULL;
        *root = cJSON_ParseWithLengthOpts(shortened ? shortened : text, len, &end, 0);
        if (!*root) /* a checked text can only fail for want of memory */
            status = ls_fail(err, LS_ENOMEM, "%s: out of memory", name);
    }
    ls_c_locale_leave(locale);
    ls_free(host, shortened);
    if (status == LS_OK)
        status = check_keys(*root, places, name, text, line, host, err);
    return status;
}

static int reserve_origins(ls_json *doc, uint32_t more, ls_error *err)
{
    uint64_t need = (uint64_t)doc->count + more;
    if (need <= doc->capacity)
        return LS_OK;
    uint64_t capacity = need + (doc->capacity > 0 ? need / 2 : 0);
    ls_json_origin *origins = NULL;
    if (capacity <= UINT32_MAX)
        origins = ls_alloc_array(doc->host, (size_t)capacity, sizeof *origins);
    if (!origins)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", doc->name);
    if (doc->count > 0)
        memcpy(origins, doc->origins, doc->count * sizeof *origins);
    ls_free(doc->host, doc->origins);
    doc->origins = origins;
    doc->capacity = (uint32_t)capacity;
    return LS_OK;
}

/* The scan noted values in the order in which they begin, which is the order of this walk. */
static void note_node(ls_json *doc, const cJSON *node, const ls_json_places *places,
                      const char *label, uint32_t *next)
{
    doc->origins[doc->count++] =
        (ls_json_origin){.node = node, .place = places->items[(*next)++], .label = label};
    for (const cJSON *child = node->child; child; child = child->next)
        note_node(doc, child, places, label, next);
}

int ls_json_note_origins(ls_json *doc, const cJSON *root, const ls_json_places *places,
                         const char *label, ls_error *err)
{
    uint32_t next = 0;
    int status = reserve_origins(doc, places->count, err);
    if (status == LS_OK)
        note_node(doc, root, places, label, &next);
    return status;
}

int ls_json_parse_line(ls_json **out, const char *name, const char *text, size_t len, int line,
                       const ls_host *host, ls_error *err)
{
    ls_json_places places = {0};
    *out = NULL;
    ls_json *doc = ls_alloc(host, sizeof *doc);
    if (!doc)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", name);
    doc->host = host;
    doc->line = line;
    int status = ls_json_build(&doc->root, &places, name, text, len, line, host, err);
    if (status)
        goto out;
    doc->name = ls_strdup(host, name);
    doc->text = ls_alloc(host, len + 1);
    if (!doc->name || !doc->text) {
        status = ls_fail(err, LS_ENOMEM, "%s: out of memory", name);
        goto out;
    }
    memcpy(doc->text, text, len);
    doc->len = len;
    status = ls_json_note_origins(doc, doc->root, &places, NULL, err);
out:
    ls_free(host, places.items);
    if (status == LS_OK)
        *out = doc;
    else
        ls_json_destroy(doc);
    if (status != LS_OK && err)
        ls_json_tidy(err->text);
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
    if (status && err)
        ls_json_tidy(err->text); /* paths come from configs, too */
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
        ls_free(host, label->text);
        ls_free(host, label);
    }
    cJSON_Delete(doc->root);
    ls_free(host, doc->origins);
    ls_free(host, doc->text);
    ls_free(host, doc->name);
    ls_free(host, doc);
}

/* ---- asking ---- */

const cJSON *ls_json_root(const ls_json *doc)
{
    return doc->root;
}

const char *ls_json_name(const ls_json *doc)
{
    return doc->name;
}

/* A search from end to end: places are only asked for by messages. */
static const ls_json_origin *origin_of(const ls_json *doc, const cJSON *node)
{
    if (!node)
        return NULL;
    for (uint32_t i = 0; i < doc->count; i++)
        if (doc->origins[i].node == node)
            return &doc->origins[i];
    return NULL;
}

int ls_json_where(const ls_json *doc, const cJSON *node, bool of_value, int *line, int *column)
{
    const ls_json_origin *o = origin_of(doc, node);
    if (!o || o->label)
        return LS_EINVAL;
    uint32_t key = o->place.key;
    ls_json_line_column(doc->text, of_value || key == LS_JSON_NO_KEY ? o->place.value : key,
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
    if (ls_json_where(doc, node, of_value, &line, &column) == LS_OK) {
        ls_fail(err, status, "%s:%d:%d: %s", doc->name, line, column, message);
    } else {
        const ls_json_origin *o = origin_of(doc, node);
        ls_fail(err, status, "%s: %s", o ? o->label : doc->name, message);
    }
    if (err)
        ls_json_tidy(err->text);
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
