/* SPDX-License-Identifier: MIT */
/* Datasets: the calls of an open dataset, resident rows, and refusals. */
#include "data/dataset.h"

#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- any dataset ----------------------------------------------------------------------------- */

ls_dataset_info ls_dataset_split_info(const ls_opening *o, int test, const char *source,
                                      uint32_t rows)
{
    const ls_dataset_about *about = &o->kind->about;
    const uint32_t limit = o->spec->limit;
    return (ls_dataset_info){.name = about->name,
                             .split = test ? "test" : "train",
                             .source = source,
                             .channels = about->channels,
                             .height = about->height,
                             .width = about->width,
                             .classes = about->classes,
                             .row_type = LS_ROW_U8,
                             .rows = !test && limit > 0 ? limit : rows};
}

const ls_dataset_info *ls_dataset_describe(const ls_dataset *ds)
{
    return &ds->info;
}

const char *ls_row_type_name(ls_row_type type)
{
    switch (type) {
    case LS_ROW_U8: return "LS_ROW_U8 (bytes)";
    case LS_ROW_F32: return "LS_ROW_F32 (floats)";
    case LS_ROW_F64: return "LS_ROW_F64 (doubles)";
    default: return NULL;
    }
}

uint32_t ls_dataset_rows(const ls_dataset *ds)
{
    return ds->info.rows;
}

uint32_t ls_steps_per_epoch(uint32_t rows, uint32_t batch_size)
{
    return rows > 0 ? (uint32_t)(((uint64_t)rows + batch_size - 1) / batch_size) : UINT32_MAX;
}

uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index)
{
    const uint64_t first = (uint64_t)index * batch_size;
    return total - first < batch_size ? (uint32_t)(total - first) : batch_size;
}

size_t ls_dataset_image_bytes(const ls_dataset *ds)
{
    const ls_dataset_info *info = &ds->info;
    const size_t value = info->row_type == LS_ROW_F32 ? sizeof(float) : 1;
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width * value;
}

size_t ls_dataset_target_bytes(const ls_dataset *ds)
{
    return ds->info.targets ? (size_t)ds->info.targets * sizeof(float) : sizeof(int32_t);
}

int ls_dataset_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                    void *targets, ls_error *err)
{
    assert(ds->ops->size >= sizeof(ls_dataset_ops));
    for (uint32_t i = 0; i < count; i++)
        if (rows[i] >= ds->info.rows)
            return ls_fail(err, LS_EINVAL, "%s: row %u does not exist; the %s split has %u rows",
                           ds->info.name, rows[i], ds->info.split, ds->info.rows);
    return ds->ops->read(ds, rows, count, images, targets, err);
}

ls_dataset_view ls_dataset_resident(const ls_dataset *ds)
{
    return ds->ops->view ? ds->ops->view(ds) : (ls_dataset_view){0};
}

bool ls_dataset_rows_are_equal(const ls_dataset *ds)
{
    const ls_dataset_view v = ls_dataset_resident(ds);
    const size_t bytes = ls_dataset_image_bytes(ds);
    const uint8_t *first = v.images + (v.row ? v.row[0] : 0) * bytes;
    uint32_t i = 0;
    while (v.images && i < ds->info.rows &&
           memcmp(first, v.images + (v.row ? v.row[i] : i) * bytes, bytes) == 0)
        i++;
    return v.images && i == ds->info.rows;
}

void ls_dataset_view_rows(const ls_dataset *ds, uint32_t *row, uint32_t count)
{
    const uint32_t *places = ls_dataset_resident(ds).row;
    for (uint32_t i = 0; places && i < count; i++)
        row[i] = places[row[i]];
}

void ls_dataset_close(ls_dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
}

/* ---- rows in memory -------------------------------------------------------------------------- */

static int resident_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                         void *targets, ls_error *err)
{
    const ls_resident *r = (const ls_resident *)ds;
    const size_t bytes = ls_dataset_image_bytes(ds), target = ls_dataset_target_bytes(ds);
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        memcpy((char *)images + i * bytes, r->images + rows[i] * bytes, bytes);
        memcpy((char *)targets + i * target, (const char *)r->labels + rows[i] * target, target);
    }
    return LS_OK;
}

static ls_dataset_view resident_view(const ls_dataset *ds)
{
    const ls_resident *r = (const ls_resident *)ds;
    return (ls_dataset_view){.images = r->images,
                             .labels = r->labels,
                             .weights = r->weights,
                             .rows = ds->info.rows,
                             .line = r->line,
                             .file = r->file};
}

static void resident_close(ls_dataset *ds)
{
    ls_resident *r = (ls_resident *)ds;
    const ls_host *host = r->host;
    for (int i = 0; r->class_name && i < ds->info.classes; i++)
        ls_free(host, r->class_name[i]);
    ls_free(host, r->class_name);
    ls_free(host, r->features);
    ls_free(host, r->exact);
    ls_free(host, r->line);
    ls_free(host, r->file_names);
    ls_free(host, (void *)(uintptr_t)r->file);
    ls_prep_free(r->prep);
    ls_unknown_rows_free(&r->unknown);
    for (int i = 0; r->seen && i < ds->info.columns; i++)
        ls_free(host, (void *)(uintptr_t)r->seen[i].name);
    ls_free(host, r->seen);
    if (r->map)
        munmap(r->map, r->map_bytes);
    else
        ls_free(host, r->images);
    ls_free(host, r->weights);
    ls_free(host, r->labels);
    ls_free(host, r->source);
    ls_free(host, r);
}

static const ls_dataset_ops resident_ops = {
    .size = sizeof(ls_dataset_ops),
    .read = resident_read,
    .view = resident_view,
    .close = resident_close,
};

int ls_resident_create_mapped(ls_resident **out, const ls_dataset_info *info, const void *images,
                              void *map, size_t map_bytes, const ls_opening *o)
{
    const ls_host *host = o->host;
    *out = NULL;
    ls_resident *r = ls_alloc(host, sizeof *r);
    if (!r)
        return ls_fail(o->err, LS_ENOMEM, "%.300s: out of memory", info->source);
    r->base = (ls_dataset){.ops = &resident_ops, .info = *info};
    const size_t bytes = ls_dataset_image_bytes(&r->base);
    r->host = host;
    r->source = ls_strdup(host, info->source);
    r->images = images ? (uint8_t *)(uintptr_t)images : ls_alloc_array(host, info->rows, bytes);
    r->labels = ls_alloc_array(host, info->rows, ls_dataset_target_bytes(&r->base));
    r->base.info.source = r->source;
    if (!r->source || !r->images || !r->labels) {
        r->images = images ? NULL : r->images;
        resident_close(&r->base);
        return ls_fail(o->err, LS_ENOMEM, "%.300s: out of memory for %u rows of %zu bytes",
                       info->source, info->rows, bytes);
    }
    r->unknown.host = host;
    r->map = map;
    r->map_bytes = map_bytes;
    *out = r;
    return LS_OK;
}

int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_opening *o)
{
    return ls_resident_create_mapped(out, info, NULL, NULL, 0, o);
}

int ls_resident_take_weights(ls_resident *r, const float *weights, ls_error *err)
{
    const uint32_t rows = r->base.info.rows;
    r->weights = ls_alloc_array(r->host, rows, sizeof *r->weights);
    if (!r->weights)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for %u weights", r->base.info.source,
                       rows);
    for (uint32_t i = 0; i < rows; i++)
        r->weights[i] = weights ? weights[i] : 1;
    r->base.info.weighted = true;
    return LS_OK;
}

bool ls_is_row_weight(double weight)
{
    /* as a float, because the nearest float to 1e-9 is below it */
    const float w = (float)weight;
    return weight == 0 || (w >= 1e-9F && w <= 1e9F);
}

int ls_dataset_none(ls_dataset **out, const ls_dataset_info *train, const ls_opening *o)
{
    ls_dataset_info info = *train;
    ls_resident *r;
    info.split = "test";
    info.source = "nowhere";
    info.rows = 0;
    info.class_name = NULL;
    info.features = NULL;
    info.weighted = false;
    info.prep = NULL;
    info.column = NULL;
    info.columns = 0;
    int status = ls_resident_create(&r, &info, o);
    *out = status ? NULL : &r->base;
    return status ? ls_fail(o->err, status, "%.300s: out of memory", train->source) : LS_OK;
}

int ls_resident_name_classes(ls_resident *r, const char *const *name, ls_error *err)
{
    const int classes = r->base.info.classes;
    r->class_name = ls_alloc_array(r->host, (size_t)classes, sizeof *r->class_name);
    bool complete = r->class_name != NULL;
    for (int i = 0; complete && i < classes; i++) {
        r->class_name[i] = ls_strdup(r->host, name[i]);
        complete = r->class_name[i] != NULL;
    }
    r->base.info.class_name = (const char *const *)r->class_name;
    return complete ? LS_OK : ls_fail(err, LS_ENOMEM, "%.300s: out of memory", r->base.info.source);
}

int ls_resident_name_files(ls_resident *r, const char *bytes, size_t count, const char *from,
                           ls_error *err)
{
    const uint32_t rows = r->base.info.rows;
    uint32_t found = 0;
    r->file_names = ls_alloc(r->host, count + 1);
    r->file = ls_alloc_array(r->host, rows, sizeof *r->file);
    if (!r->file_names || !r->file)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for the names of %u images", from,
                       (unsigned)rows);
    memcpy(r->file_names, bytes, count);
    r->file_names[count] = '\0';
    for (size_t at = 0; at < count; at += strlen(r->file_names + at) + 1, found++)
        if (found < rows)
            r->file[found] = r->file_names + at;
    return found == rows ? LS_OK
                         : ls_fail(err, LS_EDATA,
                                   "%.300s: expected the names of %u images, found %u; pack the "
                                   "folder again",
                                   from, (unsigned)rows, (unsigned)found);
}

/* ---- refusals -------------------------------------------------------------------------------- */

int ls_dataset_refuse(const ls_opening *o, const char *key, const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is on the line before */
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (o->spec->wrong)
        *o->spec->wrong = key;
    return ls_fail(o->err, LS_ECONFIG, "%s: %s", key, text);
}

int ls_dataset_check_limit(const ls_opening *o, uint32_t rows, const char *from)
{
    if (o->spec->limit <= rows)
        return LS_OK;
    return ls_dataset_refuse(o, "data.limit",
                             "expected at most the %u training rows of %s, found %u; 0 means all",
                             (unsigned)rows, from, (unsigned)o->spec->limit);
}
