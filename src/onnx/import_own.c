/* SPDX-License-Identifier: MIT */
/* Files that Lockstep wrote: what their metadata say about rows. */
#include "onnx/importer.h"

#include "base/error.h"

ls_onnx_text ls_import_entry(const ls_import *g, const char *key)
{
    for (int i = 0; i < g->file.entry.count; i++)
        if (ls_onnx_is(g->file.entry.at[i].key, key))
            return g->file.entry.at[i].value;
    return (ls_onnx_text){0};
}

/* Parses an entry of the metadata, which the caller destroys. *doc becomes NULL if there is no such
 * entry, or if it is not JSON. Errors: LS_ENOMEM. */
static int parse_entry(ls_json **doc, const ls_import *g, const char *key)
{
    const ls_onnx_text text = ls_import_entry(g, key);
    *doc = NULL;
    int status = text.length ? ls_json_parse(doc, key, text.at, text.length, g->host, NULL) : LS_OK;
    if (status != LS_OK)
        *doc = NULL;
    return status == LS_ENOMEM ? ls_import_no_memory(g) : LS_OK;
}

/* Reads "mean" or "std" of the metadata, a number for each channel. */
static int take_scale(const ls_import *g, const char *key, double least, float out[4])
{
    ls_json *doc;
    int count = 0, status = parse_entry(&doc, g, key);
    const cJSON *n = doc && cJSON_IsArray(ls_json_root(doc)) ? ls_json_root(doc)->child : NULL;
    for (; n && count < 4; n = n->next) {
        if (!cJSON_IsNumber(n) || !(n->valuedouble >= least && n->valuedouble < 1e30))
            break;
        out[count++] = (float)n->valuedouble;
    }
    ls_json_destroy(doc);
    if (status == LS_OK && count != (g->input.c < 4 ? g->input.c : 4))
        status = ls_fail(g->err, LS_EDATA,
                         "%.300s: expected \"%s\" in its metadata: a number for each channel",
                         g->file.path, key);
    return status;
}

/* Reads from the metadata how pictures are resized. */
static int take_resize(ls_import *g)
{
    ls_json *doc;
    ls_error cause;
    int status = parse_entry(&doc, g, "preparation");
    const cJSON *node = doc ? ls_json_root(doc) : NULL;
    if (cJSON_HasObjectItem(node, "resize")) {
        ls_fields f;
        ls_fields_begin(&f, doc, node, "the preparation of rows", &cause);
        ls_prep_read_resize(&f, &g->rows.resize);
        if (f.status != LS_OK || !ls_prep_covers(&g->rows.resize, g->input.h, g->input.w))
            status = ls_fail(g->err, LS_EDATA,
                             "%.300s: \"preparation\" in its metadata has no size of pictures "
                             "that is at least that of its rows",
                             g->file.path);
    }
    ls_json_destroy(doc);
    return status;
}

/* Reads from the metadata of a file that Lockstep wrote how bytes become rows. */
static int take_rows(ls_import *g)
{
    const ls_onnx_model *m = &g->file;
    if (m->input.count != 1 || m->input.at[0].type != LS_ONNX_UINT8)
        return LS_OK;
    g->rows.known = true;
    int status = take_scale(g, "mean", -1e30, g->rows.mean);
    if (status == LS_OK)
        status = take_scale(g, "std", 1e-30, g->rows.std);
    return status ? status : take_resize(g);
}

int ls_import_begin_own(ls_import *g, ls_import_value *v)
{
    ls_json *doc;
    int64_t dim[4] = {LS_ONNX_BATCH};
    int rank = 1, status = parse_entry(&doc, g, "size");
    for (const cJSON *n = doc ? ls_json_root(doc)->child : NULL; n && rank < 4; n = n->next)
        dim[rank++] = cJSON_IsNumber(n) && n->valuedouble >= 1 && n->valuedouble < 1e6
                          ? (int64_t)n->valuedouble
                          : 0;
    ls_json_destroy(doc);
    if (status)
        return status;
    if (rank != 4)
        return ls_fail(g->err, LS_EDATA, "%.300s: expected \"size\" in its metadata: [c, h, w]",
                       g->file.path);
    status = ls_import_set_rows(g, v, dim, dim[2] * dim[3] == 1 ? 2 : 4);
    return status ? status : take_rows(g);
}
