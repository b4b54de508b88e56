/* SPDX-License-Identifier: MIT */
/* Functions that all files that read an ONNX graph share: messages that name a node, attributes,
 * and values by name. */
#include "onnx/importer.h"

#include "base/error.h"
#include "base/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures -------------------------------------------------------------------------------- */

/* Returns whether a node is one of the file's; one that stands for none is not. */
static bool is_listed(const ls_import *g, const ls_onnx_node *n)
{
    const uintptr_t at = (uintptr_t)n, first = (uintptr_t)g->file.node.at;
    return at >= first && (at - first) / sizeof *n < (size_t)g->file.node.count;
}

void ls_import_place(char out[LS_ONNX_PLACE], const ls_import *g, const ls_onnx_node *n)
{
    char name[100], op[40];
    if (!is_listed(g, n))
        n = g->at;
    if (!n) {
        snprintf(out, LS_ONNX_PLACE, "its output");
        return;
    }
    const ls_onnx_text called =
        n->name.length || n->outputs == 0 ? n->name : g->file.text.at[n->output];
    snprintf(out, LS_ONNX_PLACE, "node %d \"%s\" (%s)", (int)(n - g->file.node.at),
             ls_onnx_copy(name, sizeof name, called), ls_onnx_copy(op, sizeof op, n->op));
}

int ls_import_fail(const ls_import *g, const ls_onnx_node *n, int status, const char *format, ...)
{
    char text[LS_ERROR_TEXT], place[LS_ONNX_PLACE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls_import_place(place, g, n);
    return ls_fail(g->err, status, "%.200s: %s: %s", g->file.path, place, text);
}

int ls_import_no_memory(const ls_import *g)
{
    return ls_fail(g->err, LS_ENOMEM, "%.300s: out of memory for its model", g->file.path);
}

const char *ls_import_dims(char out[LS_ONNX_DIMS], const ls_import_value *v)
{
    size_t used = (size_t)snprintf(out, LS_ONNX_DIMS, "[");
    for (int i = 0; i < v->rank && used < LS_ONNX_DIMS; i++)
        used +=
            (size_t)(v->dim[i] == LS_ONNX_BATCH ? snprintf(out + used, LS_ONNX_DIMS - used, "rows")
                     : v->dim[i] < 0
                         ? snprintf(out + used, LS_ONNX_DIMS - used, "%s?", i ? ", " : "")
                         : snprintf(out + used, LS_ONNX_DIMS - used, "%s%lld", i ? ", " : "",
                                    (long long)v->dim[i]));
    if (used < LS_ONNX_DIMS)
        snprintf(out + used, LS_ONNX_DIMS - used, "]");
    return out;
}

void *ls_import_block(ls_import *g, size_t count, size_t size)
{
    void *list =
        ls_grown(g->host, g->block.at, (size_t)g->block.count, &g->block.room, sizeof *g->block.at);
    if (!list)
        return NULL;
    g->block.at = list;
    void *block = ls_alloc_array(g->host, count ? count : 1, size);
    if (block)
        g->block.at[g->block.count++] = block;
    return block;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const ls_onnx_attribute *attribute(const ls_import *g, const ls_onnx_node *n,
                                          const char *name)
{
    for (int i = 0; i < n->attributes; i++)
        if (ls_onnx_is(g->file.attribute.at[n->attribute + i].name, name))
            return &g->file.attribute.at[n->attribute + i];
    return NULL;
}

bool ls_import_has(const ls_import *g, const ls_onnx_node *n, const char *name)
{
    return attribute(g, n, name) != NULL;
}

/* Finds the field `number` of an attribute. Returns false if there is none. */
static bool find_field(ls_pb_field *out, const ls_import *g, const ls_onnx_node *n,
                       const char *name, unsigned number)
{
    const ls_onnx_attribute *a = attribute(g, n, name);
    ls_pb_reader r = a ? a->message : (ls_pb_reader){0};
    ls_pb_field f;
    bool found = false;
    while (a && ls_pb_next(&f, &r))
        if (f.number == number) {
            *out = f;
            found = true;
        }
    return found;
}

int64_t ls_import_int(const ls_import *g, const ls_onnx_node *n, const char *name, int64_t fallback)
{
    ls_pb_field f;
    if (find_field(&f, g, n, name, ATTRIBUTE_I))
        return (int64_t)f.value;
    /* a number that is 0 need not be in the file */
    return ls_import_has(g, n, name) ? 0 : fallback;
}

double ls_import_float(const ls_import *g, const ls_onnx_node *n, const char *name, double fallback)
{
    ls_pb_field f;
    float value = 0;
    if (!ls_import_has(g, n, name))
        return fallback;
    if (find_field(&f, g, n, name, ATTRIBUTE_F)) {
        const uint32_t bits = (uint32_t)f.value;
        memcpy(&value, &bits, sizeof value);
    }
    return (double)value;
}

ls_onnx_text ls_import_text(const ls_import *g, const ls_onnx_node *n, const char *name)
{
    ls_pb_field f;
    return find_field(&f, g, n, name, ATTRIBUTE_S) && f.bytes
               ? (ls_onnx_text){(const char *)f.bytes, f.length}
               : (ls_onnx_text){0};
}

bool ls_import_tensor(const ls_import *g, const ls_onnx_node *n, const char *name,
                      ls_pb_reader *out)
{
    ls_pb_field f;
    if (!find_field(&f, g, n, name, ATTRIBUTE_T) || !f.bytes)
        return false;
    *out = (ls_pb_reader){.at = f.bytes, .end = f.bytes + f.length};
    return true;
}

int ls_import_ints(const ls_import *g, const ls_onnx_node *n, const char *name, int64_t *out,
                   int most)
{
    const ls_onnx_attribute *a = attribute(g, n, name);
    ls_pb_reader r = a ? a->message : (ls_pb_reader){0}, list;
    ls_pb_field f;
    uint64_t value;
    int count = 0;
    while (a && ls_pb_next(&f, &r)) {
        if (f.number != ATTRIBUTE_INTS)
            continue;
        list = (ls_pb_reader){.at = f.bytes, .end = f.bytes ? f.bytes + f.length : NULL};
        for (bool one = !f.bytes; one || (f.bytes && ls_pb_next_packed(&value, &list));
             one = false) {
            if (count == most)
                return -1;
            out[count++] = (int64_t)(one ? f.value : value);
        }
    }
    return count;
}

/* ---- values ---------------------------------------------------------------------------------- */

static size_t hash_of(ls_onnx_text name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (unsigned char)name.at[i]) * 1099511628211u;
    return (size_t)(hash ^ hash >> 32);
}

int *ls_import_slot(const ls_import *g, ls_onnx_text name)
{
    size_t at = hash_of(name) & (g->slots - 1);
    while (g->slot[at] && !ls_onnx_same(g->value[g->slot[at] - 1].name, name))
        at = (at + 1) & (g->slots - 1);
    return &g->slot[at];
}

ls_import_value *ls_import_find(const ls_import *g, ls_onnx_text name)
{
    const int i = *ls_import_slot(g, name);
    return i ? &g->value[i - 1] : NULL;
}

ls_import_value *ls_import_input(const ls_import *g, const ls_onnx_node *n, int i)
{
    if (i >= n->inputs || g->file.text.at[n->input + i].length == 0)
        return NULL;
    return ls_import_find(g, g->file.text.at[n->input + i]);
}

ls_import_value *ls_import_output(const ls_import *g, const ls_onnx_node *n)
{
    return ls_import_find(g, g->file.text.at[n->output]);
}

void ls_import_give(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v)
{
    ls_import_value *out = ls_import_output(g, n), old = *out;
    *out = *v;
    out->name = old.name;
    out->uses = old.uses;
    out->begin = false;
    out->node = n;
    if (v->kind != LS_VALUE_CONSTANT)
        out->kind = LS_VALUE_ROWS;
}
