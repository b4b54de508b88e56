/* SPDX-License-Identifier: MIT */
/* Reads rows for a trained model from arrays, and converts them as the model's training rows were
 * converted, by its *preparation* (prep/prep.h). */
#include "data/new_rows_create.h"

#include "base/error.h"
#include "base/host.h"
#include "data/targets.h"
#include "data/text_labels.h"
#include "formats/arrays.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void show_shape(char out[96], const ls_array *a)
{
    size_t n = (size_t)snprintf(out, 96, "(N");
    for (int i = 1; i < a->rank && n < 90; i++)
        n += (size_t)snprintf(out + n, 96 - n, ", %llu", (unsigned long long)a->dim[i]);
    snprintf(out + n, 96 - n, ")");
}

static bool has_shape(const ls_input_format *format, const ls_array *x, bool last)
{
    const uint64_t want[3] = {(uint64_t)format->channels, (uint64_t)format->height,
                              (uint64_t)format->width};
    uint64_t side[3];
    ls_array_sides(side, x, last);
    return memcmp(side, want, sizeof want) == 0 && x->dim[0] < UINT32_MAX;
}

/* Checks the shape of an array: [rows][c][h][w] or [rows][h][w][c]; [rows][h][w] for one channel;
 * [rows][numbers] if a row is a vector. If a shape fits both [c][h][w] and [h][w][c], the order of
 * the training rows is assumed. Sets *last to whether the channels come last. */
static int check_shape(const ls_input_format *format, const ls_array *x, bool *last, ls_error *err)
{
    char shape[96];
    *last = format->prep->channels_last;
    if (!has_shape(format, x, *last))
        *last = !*last;
    if (has_shape(format, x, *last)) {
        *last = *last && x->rank == LS_ARRAY_RANK;
        return LS_OK;
    }
    show_shape(shape, x);
    return ls_fail(err, LS_EDATA,
                   "%.300s: expected rows of (N, %d, %d, %d)%s, as the model reads them, found %s",
                   x->path, format->channels, format->height, format->width,
                   format->height * format->width == 1 ? ", or (N, features)" : "", shape);
}

/* Refuses an array whose type suggests that its numbers have another unit than those of the
 * training rows: floats for a model that was trained on bytes, and bytes for a model that was
 * trained on numbers of another type. */
static int check_type(const ls_input_format *format, const ls_array *x, ls_error *err)
{
    const char *const known = format->prep->type, *const found = ls_array_type_name(x->type);
    const bool bytes = strcmp(found, "u8") == 0;
    if (!format->floats && !ls_array_is_whole(x))
        return ls_fail(err, LS_EDATA,
                       "%.300s: the model reads bytes, 0 to 255, found %s; give the rows as they "
                       "were trained on: x.astype('u1')",
                       x->path, found);
    if (format->floats && bytes && format->prep->kind == LS_PREP_ARRAY && known[0] &&
        known[0] != 'u' && strcmp(known, "bool") != 0)
        return ls_fail(err, LS_EDATA,
                       "%.300s: the model was trained on numbers of type %s, found u8; give the "
                       "rows as they were trained on, and as '<f4'",
                       x->path, known);
    return LS_OK;
}

static int fail_number(const ls_array *x, size_t i, double v, const char *expected, ls_error *err)
{
    const size_t row = ls_array_row(x);
    return ls_fail(err, LS_EDATA, "%.300s: row %zu, column %zu: expected %s, found %g", x->path,
                   i / row, i % row, expected, v);
}

static int fill_bytes(const ls_array *x, bool last, ls_resident *r, ls_error *err)
{
    const size_t all = ls_array_row(x) * r->base.info.rows;
    for (size_t i = 0; i < all; i++) {
        const double v = ls_array_number(x, last ? ls_array_last_place(x, i) : i);
        if (!(v >= 0 && v <= 255))
            return fail_number(x, i, v, "0 to 255", err);
        r->images[i] = (uint8_t)v;
    }
    return LS_OK;
}

/* Reads and prepares a row. `raw`: room for the row. */
static int fill_floats(const ls_prep *prep, const ls_array *x, bool last, size_t row, double *raw,
                       float *ready, ls_unknown_rows *unknown, ls_error *err)
{
    const size_t each = ls_array_row(x);
    ls_prep_found found = LS_PREP_KNOWN;
    ls_error why, full;
    for (size_t k = 0; k < each; k++)
        raw[k] = ls_array_number(x, last ? ls_array_last_place(x, row * each + k) : row * each + k);
    int status = ls_prep_ready(prep, raw, true, ready, each, &found, &why);
    if (status)
        return ls_fail(err, status, "%.300s: row %zu: %s", x->path, row, why.text);
    if (found == LS_PREP_KNOWN)
        return LS_OK;
    ls_fail(&full, LS_EDATA, "%.300s: row %zu: %s", x->path, row, why.text);
    return ls_unknown_rows_add(unknown, (uint32_t)row, found,
                               &(ls_unknown_place){.unit = "row", .number = row, .text = why.text},
                               full.text, err);
}

static int fill_values(const ls_input_format *format, const ls_array *x, bool last, ls_resident *r,
                       ls_error *err)
{
    const size_t each = ls_array_row(x);
    int status = LS_OK;
    if (!format->floats)
        return fill_bytes(x, last, r, err);
    double *raw = ls_alloc_array(format->host, each, sizeof *raw);
    if (!raw)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for its rows", x->path);
    for (size_t row = 0; status == LS_OK && row < r->base.info.rows; row++)
        status =
            fill_floats(format->prep, x, last, row, raw, r->values + row * each, &r->unknown, err);
    ls_free(format->host, raw);
    ls_unknown_rows_tell_zeroed(&r->unknown, x->path, r->base.info.rows);
    if (r->unknown.count > 0)
        r->base.info.unknown = &r->unknown;
    return status;
}

static int fill_targets(const ls_input_format *format, const ls_array *y, ls_resident *r,
                        ls_error *err)
{
    const ls_target_form form = format->targets
                                    ? (ls_target_form){0}
                                    : ls_targets_of_model(y, format->classes, format->class_name);
    const size_t rows = r->base.info.rows, each = format->targets ? (size_t)format->targets
                                                  : form.one_hot  ? (size_t)format->classes
                                                                  : 1;
    if (y->dim[0] != rows || ls_array_row(y) != each)
        return ls_fail(err, LS_EDATA,
                       "%.300s: expected %zu numbers for each of the %zu rows of %.200s", y->path,
                       each, rows, r->source);
    int status = ls_targets_check(&form, y, "y", "the model has learnt no other labels", err);
    for (size_t i = 0; status == LS_OK && !format->targets && i < rows; i++)
        r->labels[i] = ls_target_class(&form, y, i);
    for (size_t i = 0; status == LS_OK && format->targets && i < each * rows; i++) {
        r->exact[i] = ls_array_number(y, i);
        r->targets[i] = (float)r->exact[i];
        if (!isfinite(r->targets[i]))
            return fail_number(y, i, r->exact[i], "a finite number that a float holds", err);
    }
    return status;
}

/* Creates a dataset from the rows `x` and, if format->labelled is set, the targets in the file
 * `y_path`. */
static int read_arrays(ls_dataset **out, const ls_input_format *format, const ls_array *x,
                       const char *y_path, ls_error *err)
{
    ls_array y = {0};
    ls_levels none = {0};
    ls_resident *r = NULL;
    bool last;
    int status = check_shape(format, x, &last, err);
    if (status == LS_OK)
        status = check_type(format, x, err);
    if (status == LS_OK && format->labelled)
        status = ls_array_open_labels(&y, y_path, ls_names_of_targets, err);
    if (status == LS_OK && format->labelled)
        status = ls_text_labels(&y, &none, false, "y", format->class_name, format->classes,
                                format->host, err);
    if (status == LS_OK)
        status = ls_new_rows_create(&r, format, "npy", x->path, (uint32_t)x->dim[0], NULL, err);
    if (status == LS_OK)
        status = fill_values(format, x, last, r, err);
    if (status == LS_OK && format->labelled && format->targets)
        status = ls_resident_take_exact(r, err);
    if (status == LS_OK && format->labelled)
        status = fill_targets(format, &y, r, err);
    if (r && status)
        ls_dataset_close(&r->base);
    else if (r)
        *out = &r->base;
    ls_array_close(&y);
    return status;
}

int ls_new_rows_open_npy(ls_dataset **out, const ls_input_format *format, const char *x_path,
                         const char *y_path, ls_error *err)
{
    ls_array x;
    *out = NULL;
    int status = ls_array_open(&x, x_path, ls_names_of_rows, err);
    if (status)
        return status;
    status = read_arrays(out, format, &x, y_path, err);
    ls_array_close(&x);
    return status;
}

int ls_new_rows_read_npy(ls_dataset **out, const ls_input_format *format, const char *name,
                         const void *bytes, size_t count, ls_error *err)
{
    ls_array x;
    ls_input_format rows = *format;
    rows.labelled = false;
    *out = NULL;
    int status = ls_array_read(&x, name, bytes, count, ls_names_of_rows, err);
    if (status)
        return status;
    status = read_arrays(out, &rows, &x, NULL, err);
    ls_array_close(&x);
    return status;
}
