/* SPDX-License-Identifier: MIT */
/* The numbers of arrays become the rows and targets of a dataset (array_rows.h). */
#include "data/array_rows.h"

#include "base/error.h"
#include "base/host.h"
#include "data/new_rows.h"
#include "data/scales.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

bool ls_array_rows_last(const ls_arrays *a, const ls_array_pair *p)
{
    return a->o->spec->keys.layout == LS_CHANNELS_LAST && p->x.rank == LS_ARRAY_RANK;
}

/* Returns whether the numbers can be used in the mapping of the file, without conversion. */
static bool is_in_place(const ls_arrays *a, const ls_array_pair *p)
{
    return ls_array_in_place(&p->x) && !ls_array_rows_last(a, p) && !a->scale;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int fail_number(const ls_arrays *a, const ls_array *array, const char *name, size_t i,
                       double v)
{
    const size_t row = ls_array_row(array);
    return ls_fail(
        a->o->err, LS_EDATA,
        "%.200s: %s: row %zu, column %zu: expected a finite number that a float holds, found %g%s",
        array->path, name, i / row, i % row, v,
        isnan(v) && (array == &a->split[0].x || array == &a->split[1].x) &&
                !a->o->spec->keys.input_format
            ? "; set data.missing to \"zero\" or \"mean\" to replace missing numbers"
            : "");
}

/* Returns the index in the file of number `i` of the dataset, whose rows are
 * [channels][height][width]. */
static size_t place_of(const ls_arrays *a, const ls_array_pair *p, size_t i)
{
    return ls_array_rows_last(a, p) ? ls_array_last_place(&p->x, i) : i;
}

int ls_array_rows_means(ls_arrays *a)
{
    const ls_array *x = &a->split[0].x;
    const size_t limit = a->o->spec->limit, rows = limit ? limit : (size_t)x->dim[0];
    const size_t row = ls_array_row(x), all = row * rows;
    const ls_input_format *format = a->o->spec->keys.input_format;
    if (a->o->spec->keys.missing != LS_MISSING_MEAN || ls_array_is_whole(x))
        return LS_OK;
    if (format && (size_t)format->prep->fills ==
                      row) { /* the means of the trained model's own training rows */
        a->mean = ls_alloc_array(a->o->host, row, sizeof *a->mean);
        for (size_t i = 0; a->mean && i < row; i++)
            a->mean[i] = (double)format->prep->fill[i];
        return a->mean ? LS_OK : ls_fail(a->o->err, LS_ENOMEM, "out of memory for %zu means", row);
    }
    size_t *count = ls_alloc_array(a->o->host, row, sizeof *count);
    a->mean = ls_alloc_array(a->o->host, row, sizeof *a->mean);
    int status = count && a->mean
                     ? LS_OK
                     : ls_fail(a->o->err, LS_ENOMEM, "out of memory for %zu means", row);
    for (size_t i = 0; status == LS_OK && i < all; i++) {
        const double v = ls_array_number(x, place_of(a, a->split, i));
        if (isfinite(v)) {
            a->mean[i % row] += v;
            count[i % row]++;
        }
    }
    for (size_t k = 0; status == LS_OK && k < row; k++)
        a->mean[k] = count[k] ? a->mean[k] / (double)count[k] : 0;
    ls_free(a->o->host, count);
    return status;
}

static double training_number(const void *of, size_t i)
{
    const ls_arrays *a = of;
    return ls_array_number(&a->split[0].x, place_of(a, a->split, i));
}

int ls_array_rows_scale(ls_arrays *a, const ls_dataset_info *info)
{
    const ls_data_keys *k = &a->o->spec->keys;
    const ls_measured_numbers all = {training_number, a, info->rows, ls_array_row(&a->split[0].x),
                                     info->channels};
    if (k->input_format) {
        a->scale = k->input_format->prep->scales ? k->input_format->prep : NULL;
        return LS_OK;
    }
    int status = ls_scale_check(info, a->o);
    if (status == LS_OK)
        status = ls_scale_values(a->prep, &all, a->o);
    a->scale = a->prep->scales ? a->prep : NULL;
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Stores number `i` of the dataset in *out, or its replacement if it is missing. Returns false if
 * the number is unknown. */
static bool number_of(const ls_arrays *a, const ls_array_pair *p, size_t i, float *out)
{
    const size_t row = ls_array_row(&p->x);
    const double v = ls_array_number(&p->x, place_of(a, p, i));
    const bool filled = isnan(v) && a->o->spec->keys.missing != LS_MISSING_REFUSED;
    const double used = !filled ? v : a->mean ? (double)(float)a->mean[i % row] : 0.0;
    return ls_prep_value(a->scale, used, i % row, row, out);
}

/* Makes the mapping of rows writable. It is private: a page that is written becomes a copy in this
 * process, and the file does not change. */
static int make_writable(const ls_arrays *a, const ls_array_pair *p, ls_resident *r)
{
    return !r->map || mprotect(r->map, r->map_bytes, PROT_READ | PROT_WRITE) == 0
               ? LS_OK
               : ls_fail(a->o->err, LS_ENOMEM, "%.200s: out of memory to replace missing numbers",
                         p->x.path);
}

/* Fills a row of floats. Of a row in a mapping only missing numbers are replaced. *writable:
 * whether the rows can be written; a mapping can from the first missing number on. *bad: index of
 * the first unknown number in the dataset, or that of the next row's first number. */
static int fill_row(const ls_arrays *a, const ls_array_pair *p, ls_resident *r, size_t row,
                    bool *writable, size_t *bad)
{
    const size_t each = ls_array_row(&p->x);
    const bool in_place = is_in_place(a, p);
    float v;
    int status = LS_OK;
    for (*bad = row * each; status == LS_OK && *bad < (row + 1) * each; ++*bad) {
        if (in_place && isfinite(r->values[*bad]))
            continue;
        if (!number_of(a, p, *bad, &v))
            break;
        if (!*writable)
            status = make_writable(a, p, r);
        *writable |= status == LS_OK;
        if (status == LS_OK)
            r->values[*bad] = v;
    }
    return status;
}

/* Adds row number `row`, whose number `bad` of the dataset is unknown, to those that are left out:
 * rows of tests and of evaluations. Other rows are refused. */
static int take_unknown(const ls_arrays *a, const ls_array_pair *p, ls_resident *r, size_t row,
                        size_t bad)
{
    char text[80];
    const double v = ls_array_number(&p->x, place_of(a, p, bad));
    const int status = fail_number(a, &p->x, p->x_name, bad, v);
    const ls_error why = *a->o->err;
    if (!a->o->spec->keys.input_format && p == a->split)
        return status;
    snprintf(text, sizeof text, "column %zu: %g", bad % ls_array_row(&p->x), v);
    return ls_unknown_rows_add(&r->unknown, (uint32_t)row, LS_PREP_UNKNOWN,
                               &(ls_unknown_place){.unit = "row", .number = row, .text = text},
                               why.text, a->o->err);
}

/* Fills the rows of floats. */
static int fill_rows(const ls_arrays *a, const ls_array_pair *p, ls_resident *r)
{
    const size_t each = ls_array_row(&p->x);
    bool writable = !is_in_place(a, p);
    int status = LS_OK;
    for (size_t row = 0; status == LS_OK && row < r->base.info.rows; row++) {
        size_t bad;
        status = fill_row(a, p, r, row, &writable, &bad);
        if (status == LS_OK && bad < (row + 1) * each)
            status = take_unknown(a, p, r, row, bad);
    }
    return status;
}

/* Leaves out the rows with unknown values. */
static int leave_out(const ls_arrays *a, const ls_array_pair *p, ls_resident *r)
{
    const ls_unknown_rows *u = &r->unknown;
    const size_t image = ls_dataset_image_bytes(&r->base), each = (size_t)r->base.info.targets,
                 target = ls_dataset_target_bytes(&r->base);
    size_t kept = 0, next = 0;
    int status = ls_unknown_rows_tell_left_out(u, p->x.path, r->base.info.rows, NULL, a->o->err);
    if (status == LS_OK && u->count > 0)
        status = make_writable(a, p, r);
    for (size_t row = 0; status == LS_OK && u->count > 0 && row < r->base.info.rows; row++) {
        if (next < u->count && u->row[next].row == row) {
            next++;
            continue;
        }
        memmove(r->images + kept * image, r->images + row * image, image);
        memmove((char *)r->labels + kept * target, (char *)r->labels + row * target, target);
        if (each)
            memmove(r->exact + kept * each, r->exact + row * each, each * sizeof *r->exact);
        kept++;
    }
    r->base.info.left_out = (uint32_t)u->count;
    r->base.info.rows -= (uint32_t)u->count;
    return status;
}

static int take_targets(const ls_arrays *a, const ls_array_pair *p, ls_resident *r)
{
    const size_t rows = r->base.info.rows, all = rows * ls_array_row(&p->y);
    for (size_t i = 0; a->targets.classes && i < rows; i++)
        r->labels[i] = ls_target_class(&a->targets, &p->y, i);
    for (size_t i = 0; !a->targets.classes && i < all; i++) {
        r->exact[i] = ls_array_number(&p->y, i);
        r->targets[i] = (float)r->exact[i];
        if (!isfinite(r->targets[i]))
            return fail_number(a, &p->y, p->y_name, i, r->exact[i]);
    }
    return LS_OK;
}

/* ---- a split --------------------------------------------------------------------------------- */

int ls_array_rows_create(const ls_arrays *a, ls_array_pair *p, const ls_dataset_info *info,
                         ls_resident **out)
{
    if (!is_in_place(a, p))
        return ls_resident_create(out, info, a->o);
    ls_array *from = &p->x;
    ls_tensors own = {0};
    const size_t at = a->tensors ? (size_t)(p->x.data - (const uint8_t *)a->all.file.map)
                                 : (size_t)(p->x.data - (const uint8_t *)p->x.map);
    int status = LS_OK;
    if (a->tensors) {
        status = ls_tensors_open(&own, p->x.path, a->o->host, a->o->err);
        ls_json_destroy(own.header);
        from = &own.file;
        if (status == LS_OK && from->map_bytes != a->all.file.map_bytes)
            status = ls_fail(a->o->err, LS_EDATA, "%.300s: the file changes while it is read",
                             p->x.path);
    }
    if (status == LS_OK)
        status = ls_resident_create_mapped(out, info, (uint8_t *)from->map + at, from->map,
                                           from->map_bytes, a->o);
    if (status)
        ls_array_close(&own.file);
    else
        from->map = NULL; /* the dataset owns it now */
    return status;
}

/* Logs a warning if all bytes are 0 or 1. Bytes are taken for pixels and divided by 255; then such
 * rows are nearly 0. */
static void warn_of_bits(const ls_arrays *a, const ls_array_pair *p, const ls_resident *r,
                         size_t all)
{
    size_t i = 0;
    while (i < all && r->images[i] <= 1)
        i++;
    if (i == all)
        ls_log(a->o->host, LS_LOG_WARNING,
               "%.200s: %s: the values are 0 and 1 in bytes (uint8), which are divided by 255 as "
               "pixels are; save x.astype(bool) for values of 0 and 1",
               p->x.path, p->x_name);
}

int ls_array_rows_fill(const ls_arrays *a, const ls_array_pair *p, ls_resident *r)
{
    const size_t all = (size_t)r->base.info.rows * ls_array_row(&p->x);
    const bool bytes = r->base.info.row_type == LS_ROW_U8;
    int status = take_targets(a, p, r);
    for (size_t i = 0; status == LS_OK && bytes && !is_in_place(a, p) && i < all; i++)
        r->images[i] = p->x.data[place_of(a, p, i)];
    if (status == LS_OK && bytes && p == a->split)
        warn_of_bits(a, p, r, all);
    if (status || bytes)
        return status;
    status = fill_rows(a, p, r);
    return status ? status : leave_out(a, p, r);
}
