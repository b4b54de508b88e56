/* SPDX-License-Identifier: MIT */
/* Datasets from arrays in files:
 *
 *     npy          data.x, data.y, data.test_x and data.test_y are names of .npy files, relative
 *                  to data.path if it is given; or data.path is an .npz file, and they are names
 *                  of arrays in that file
 *     safetensors  data.path is the file; the four keys are names of tensors in it, by default "x",
 *                  "y", "test_x" and "test_y"
 *     folder       like safetensors, from the file into which the folder's images were packed
 *
 * Bytes (u8) and 32-bit floats are used in place, from a mapping of the file. Numbers of other
 * types are converted to 32-bit floats in memory; bool becomes 0 and 1. The first dimension is the
 * number of rows; the others are a row's shape: [c][h][w], [h][w] or [features]. */
#include "base/error.h"
#include "base/host.h"
#include "data/kinds.h"
#include "data/new_rows.h"
#include "data/pack.h"
#include "data/scales.h"
#include "data/targets.h"
#include "data/text_labels.h"
#include "formats/arrays.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_SIDE (1u << 24)
#define MOST_TARGETS (1u << 14) /* the same limit as for a caller's data source (dataset.c) */

/* The arrays x and y of one split. */
typedef struct pair {
    ls_array x, y;
    const char *x_name, *y_name; /* names for messages */
} pair;

/* State of opening a dataset of arrays. */
typedef struct arrays {
    const ls_opening *o;
    char *path[4];  /* owned paths of the files with x, y, test x and test y */
    ls_tensors all; /* the safetensors file */
    bool tensors;
    pair split[2];
    bool has_test;
    ls_target_form targets;
    ls_levels texts; /* labels that are texts; empty: they are numbers */
    /* [numbers of a row]: mean of each number over the training rows; NULL: not needed */
    double *mean;
    /* preparation of the training rows; the training split owns it when that is open */
    ls_prep *prep;
    /* the preparation by which values are scaled: that above, or that of the trained model whose
     * rows are opened; NULL: values are not scaled */
    const ls_prep *scale;
} arrays;

static int splits_of(const arrays *a)
{
    return a->has_test ? 2 : 1;
}

/* ---- shapes and targets ---------------------------------------------------------------------- */

/* Returns whether the rows in the file are [height][width][channels]. */
static bool is_last(const arrays *a, const pair *p)
{
    return a->o->spec->keys.layout == LS_CHANNELS_LAST && p->x.rank == LS_ARRAY_RANK;
}

/* Returns whether the rows are bytes. Columns of u8 that are standardised are numbers, as those of
 * any other type. */
static bool reads_bytes(const arrays *a, const pair *p)
{
    const ls_data_keys *k = &a->o->spec->keys;
    const ls_input_format *model = k->input_format;
    const bool numbers = model
                             ? model->floats && model->prep && strcmp(model->prep->type, "u8") == 0
                             : k->standardize > 0 && p->x.rank <= 2;
    return ls_array_of_bytes(&p->x) && !numbers;
}

/* Returns whether the numbers can be used in the mapping of the file, without conversion. */
static bool is_in_place(const arrays *a, const pair *p)
{
    return ls_array_in_place(&p->x) && !is_last(a, p) && !a->scale;
}

static bool may_be_channels(uint64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

static void warn_of_layout(const arrays *a, const pair *p)
{
    const uint64_t *dim = p->x.dim;
    if (p->x.rank != LS_ARRAY_RANK || is_last(a, p) || !may_be_channels(dim[3]) ||
        may_be_channels(dim[1]))
        return;
    ls_log(a->o->host, LS_LOG_WARNING,
           "%.200s: %s: rows of (%llu, %llu, %llu) are taken as %llu channels of %llu×%llu; if the "
           "last dimension is the channels, set data.layout to \"channels_last\"",
           p->x.path, p->x_name, (unsigned long long)dim[1], (unsigned long long)dim[2],
           (unsigned long long)dim[3], (unsigned long long)dim[1], (unsigned long long)dim[2],
           (unsigned long long)dim[3]);
}

static int shape_of(ls_dataset_info *info, const arrays *a, const pair *p)
{
    const uint64_t *dim = p->x.dim;
    uint64_t side[3];
    ls_array_sides(side, &p->x, is_last(a, p));
    for (int i = 0; i < 3; i++)
        if (side[i] > MOST_SIDE)
            return ls_fail(a->o->err, LS_EDATA,
                           "%.200s: %s: expected sides of at most %u, found %llu", p->x.path,
                           p->x_name, MOST_SIDE, (unsigned long long)side[i]);
    if (ls_array_row(&p->y) > MOST_TARGETS)
        return ls_fail(a->o->err, LS_EDATA,
                       "%.200s: %s: expected at most %u numbers a row, found %zu", p->y.path,
                       p->y_name, MOST_TARGETS, ls_array_row(&p->y));
    if (dim[0] > UINT32_MAX - 1 || dim[0] != p->y.dim[0])
        return ls_fail(a->o->err, LS_EDATA,
                       "%.200s: %s: expected a target for each of the %llu rows of %s, found %llu; "
                       "the two do not belong together",
                       p->y.path, p->y_name, (unsigned long long)dim[0], p->x_name,
                       (unsigned long long)p->y.dim[0]);
    info->channels = (int)side[0];
    info->height = (int)side[1];
    info->width = (int)side[2];
    const bool bytes = reads_bytes(a, p);
    info->row_type = bytes ? LS_ROW_U8 : LS_ROW_F32;
    info->stored = bytes || (ls_array_in_place(&p->x) && !ls_array_of_bytes(&p->x))
                       ? NULL
                       : ls_array_type_name(p->x.type);
    return LS_OK;
}

static int find_targets(arrays *a)
{
    const pair *p = a->split;
    const ls_data_keys *k = &a->o->spec->keys;
    int status = ls_targets_find(&a->targets, &p->y, p->y_name, k, a->o->host, a->o->err);
    if (status || !a->has_test)
        return status;
    p = &a->split[1];
    return ls_targets_check(&a->targets, &p->y, p->y_name,
                            k->input_format ? "the model has learnt no other labels"
                                            : "set data.classes to the number of classes",
                            a->o->err);
}

/* Names each class by its text. */
static int name_texts(const arrays *a, ls_resident *r)
{
    const size_t n = (size_t)a->texts.count;
    const char **name = ls_alloc_array(a->o->host, n, sizeof *name);
    for (size_t i = 0; name && i < n; i++)
        name[i] = a->texts.level[a->texts.sorted[i]].text;
    int status = name ? ls_resident_name_classes(r, name, a->o->err)
                      : ls_fail(a->o->err, LS_ENOMEM, "out of memory for %zu classes", n);
    ls_free(a->o->host, name);
    return status;
}

/* Makes numbers of labels that are texts. */
static int number_texts(arrays *a)
{
    const ls_data_keys *k = &a->o->spec->keys;
    const ls_input_format *model = k->input_format;
    const pair *first = &a->split[0];
    int status = LS_OK;
    if (first->y.type == LS_ARRAY_TEXT && k->labels == LS_LABELS_VALUES)
        return ls_fail(a->o->err, LS_EDATA,
                       "%.200s: %s: expected values, as data.labels says, found texts; set it to "
                       "\"classes\"",
                       first->y.path, first->y_name);
    for (int s = 0; s < splits_of(a) && status == LS_OK; s++)
        status = ls_text_labels(&a->split[s].y, &a->texts, s == 0, a->split[s].y_name,
                                model ? model->class_name : NULL, model ? model->classes : 0,
                                a->o->host, a->o->err);
    return status;
}

/* If the labels in the file are not the numbers from 0 on, names each class by its label ("1", "2"
 * and so on). */
static int name_numbers(const arrays *a, ls_resident *r)
{
    const size_t n = (size_t)a->targets.classes;
    if (a->texts.count)
        return name_texts(a, r);
    if ((!a->targets.first && !a->targets.by_value) || a->o->spec->keys.input_format)
        return LS_OK;
    const char **name = ls_alloc_array(a->o->host, n, sizeof *name);
    char(*text)[24] = ls_alloc_array(a->o->host, n, sizeof *text);
    for (size_t i = 0; name && text && i < n; i++) {
        snprintf(text[i], sizeof text[i], "%d",
                 a->targets.by_value ? (int)a->targets.label[i] : (int)i + 1);
        name[i] = text[i];
    }
    int status = name && text ? ls_resident_name_classes(r, name, a->o->err)
                              : ls_fail(a->o->err, LS_ENOMEM, "out of memory for %zu classes", n);
    ls_free(a->o->host, name);
    ls_free(a->o->host, text);
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int fail_number(const arrays *a, const ls_array *array, const char *name, size_t i, double v)
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
static size_t place_of(const arrays *a, const pair *p, size_t i)
{
    return is_last(a, p) ? ls_array_last_place(&p->x, i) : i;
}

/* Computes the mean of each number of a row over the training rows. Missing numbers are replaced by
 * these means. */
static int find_means(arrays *a)
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

/* Stores number `i` of the dataset in *out, or its replacement if it is missing. Returns false if
 * the number is unknown. */
static bool number_of(const arrays *a, const pair *p, size_t i, float *out)
{
    const size_t row = ls_array_row(&p->x);
    const double v = ls_array_number(&p->x, place_of(a, p, i));
    const bool filled = isnan(v) && a->o->spec->keys.missing != LS_MISSING_REFUSED;
    const double used = !filled ? v : a->mean ? (double)(float)a->mean[i % row] : 0.0;
    return ls_prep_value(a->scale, used, i % row, row, out);
}

/* Makes the mapping of rows writable. It is private: a page that is written becomes a copy in this
 * process, and the file does not change. */
static int make_writable(const arrays *a, const pair *p, ls_resident *r)
{
    return !r->map || mprotect(r->map, r->map_bytes, PROT_READ | PROT_WRITE) == 0
               ? LS_OK
               : ls_fail(a->o->err, LS_ENOMEM, "%.200s: out of memory to replace missing numbers",
                         p->x.path);
}

/* Fills a row of floats. Of a row in a mapping only missing numbers are replaced. *writable:
 * whether the rows can be written; a mapping can from the first missing number on. *bad: index of
 * the first unknown number in the dataset, or that of the next row's first number. */
static int fill_row(const arrays *a, const pair *p, ls_resident *r, size_t row, bool *writable,
                    size_t *bad)
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
static int take_unknown(const arrays *a, const pair *p, ls_resident *r, size_t row, size_t bad)
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
static int fill_rows(const arrays *a, const pair *p, ls_resident *r)
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
static int leave_out(const arrays *a, const pair *p, ls_resident *r)
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

static int take_targets(const arrays *a, const pair *p, ls_resident *r)
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

/* Creates the dataset of a split. If its rows are used in place, they lie in a second mapping of
 * the file, which the dataset owns. */
static int create_split(const arrays *a, pair *p, const ls_dataset_info *info, ls_resident **out)
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
static void warn_of_bits(const arrays *a, const pair *p, const ls_resident *r, size_t all)
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

static int fill_split(const arrays *a, const pair *p, ls_resident *r)
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

static int describe(ls_dataset_info *info, const arrays *a, int test)
{
    const pair *p = &a->split[test];
    const uint32_t rows = (uint32_t)p->x.dim[0];
    *info = ls_dataset_split_info(a->o, test, p->x.path, rows);
    int status = shape_of(info, a, p);
    if (status == LS_OK && !test)
        status = ls_dataset_check_limit(a->o, rows, p->x.path);
    if (status == LS_OK && !test)
        warn_of_layout(a, p);
    return status;
}

static int check_same(const arrays *a, const ls_dataset_info *train, const ls_dataset_info *test)
{
    if (train->channels == test->channels && train->height == test->height &&
        train->width == test->width && train->row_type == test->row_type &&
        train->targets == test->targets)
        return LS_OK;
    return ls_fail(a->o->err, LS_EDATA,
                   "%.200s: %s: expected test rows like the training rows: %d×%d×%d %s, %d targets",
                   a->split[1].x.path, a->split[1].x_name, train->channels, train->height,
                   train->width, train->row_type == LS_ROW_U8 ? "bytes" : "floats", train->targets);
}

/* Gives the classes the names that are in the metadata of a file of packed images. */
static int name_classes(const arrays *a, ls_resident *r)
{
    const char *text = a->tensors ? ls_tensors_note(&a->all, "class_names") : NULL;
    const char *name[4096];
    ls_json *doc;
    int status = LS_OK, n = 0;
    if (!text || a->targets.classes == 0 || a->targets.classes > 4096)
        return LS_OK;
    status = ls_json_parse(&doc, "class_names", text, strlen(text), a->o->host, a->o->err);
    if (status)
        return status == LS_ECONFIG ? LS_EDATA : status;
    const cJSON *item, *root = ls_json_root(doc);
    cJSON_ArrayForEach(item, root)
    {
        if (n < a->targets.classes && cJSON_IsString(item))
            name[n++] = item->valuestring;
    }
    if (n == a->targets.classes)
        status = ls_resident_name_classes(r, name, a->o->err);
    ls_json_destroy(doc);
    return status;
}

/* Logs the remarks that were recorded when the images were packed. */
static void log_remarks(const arrays *a)
{
    const char *text = a->tensors ? ls_tensors_note(&a->all, "remarks") : NULL;
    const ls_dataset_spec *spec = a->o->spec;
    const char *of = spec->keys.packed && spec->path ? spec->path : a->split[0].x.path;
    ls_json *doc;
    if (!text || ls_json_parse(&doc, "remarks", text, strlen(text), a->o->host, NULL) != LS_OK)
        return;
    const cJSON *item, *root = ls_json_root(doc);
    cJSON_ArrayForEach(item, root)
    {
        if (cJSON_IsString(item))
            ls_log(a->o->host, LS_LOG_INFO, "%.200s: %.400s", of, item->valuestring);
    }
    ls_json_destroy(doc);
}

/* Reads how packed images were resized. */
static int read_resize(arrays *a, const ls_dataset_info *info)
{
    const char *text = ls_tensors_note(&a->all, LS_PACKED_RESIZE), *path = a->split[0].x.path;
    ls_prep_resize *resize = &a->prep->resize;
    ls_json *doc;
    ls_fields f;
    ls_error why;
    if (!text)
        return LS_OK;
    int status = ls_json_parse(&doc, LS_PACKED_RESIZE, text, strlen(text), a->o->host, &why);
    if (status == LS_OK) {
        ls_fields_begin(&f, doc, ls_json_root(doc), LS_PACKED_RESIZE, &why);
        ls_prep_read_resize(&f, resize);
        status = ls_fields_end(&f);
        ls_json_destroy(doc);
    }
    if (status)
        return ls_fail(a->o->err, status == LS_ENOMEM ? status : LS_EDATA, "%.200s: %.300s", path,
                       why.text);
    if (ls_prep_covers(resize, info->height, info->width))
        return LS_OK;
    return ls_fail(a->o->err, LS_EDATA,
                   "%.200s: its pictures were resized to less than the %d×%d pixels of its rows",
                   path, info->width, info->height);
}

/* Reads by which value packed 16-bit samples were scaled. */
static int read_white(arrays *a)
{
    const char *text = ls_tensors_note(&a->all, LS_PACKED_WHITE);
    char *end = NULL;
    const long white = text ? strtol(text, &end, 10) : 0;
    if (text && (end == text || *end || white < 1 || white > LS_PREP_WHITE))
        return ls_fail(a->o->err, LS_EDATA,
                       "%.200s: metadata \"white\": expected 1 to %d, found \"%.20s\"",
                       a->split[0].x.path, LS_PREP_WHITE, text);
    a->prep->white = (int)white;
    return LS_OK;
}

/* Creates the preparation of the training rows, whose description is `info`. If the file has class
 * names in its metadata, Lockstep has packed it from a folder of images, and the preparation is
 * that of images. */
static int prepare(arrays *a, const ls_dataset_info *info)
{
    const ls_array *x = &a->split[0].x;
    const bool packed = a->tensors && ls_tensors_note(&a->all, "class_names") &&
                        x->type == LS_ARRAY_U8 && x->rank == LS_ARRAY_RANK &&
                        (info->channels == 1 || info->channels == 3);
    const bool fills =
        info->row_type == LS_ROW_F32 && a->o->spec->keys.missing != LS_MISSING_REFUSED;
    int status =
        ls_prep_create(&a->prep, packed ? LS_PREP_IMAGES : LS_PREP_ARRAY, a->o->host, a->o->err);
    if (status)
        return status;
    ls_prep *p = a->prep;
    p->divisor = info->row_type == LS_ROW_U8 ? 255 : 1;
    p->channels_last = is_last(a, a->split);
    if (packed && ((status = read_resize(a, info)) != LS_OK || (status = read_white(a)) != LS_OK))
        return status;
    snprintf(p->type, sizeof p->type, "%s", ls_array_type_name(x->type));
    if (!fills)
        return LS_OK;
    p->fills = a->mean ? (int)ls_array_row(x) : 1;
    p->fill = ls_alloc_array(a->o->host, (size_t)p->fills, sizeof *p->fill);
    for (int i = 0; p->fill && a->mean && i < p->fills; i++)
        p->fill[i] = (float)a->mean[i];
    return p->fill ? LS_OK : ls_fail(a->o->err, LS_ENOMEM, "out of memory for %d means", p->fills);
}

static double training_number(const void *of, size_t i)
{
    const arrays *a = of;
    return ls_array_number(&a->split[0].x, place_of(a, a->split, i));
}

/* Finds the scale of the values: that of the trained model whose rows these are, or that of the
 * training rows. */
static int find_scale(arrays *a, const ls_dataset_info *info)
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

/* Names the image files of the rows, if the file of packed images has their names. */
static int name_files(const arrays *a, int test, ls_resident *r)
{
    const char *tensor = test ? LS_PACKED_TEST_FILES : LS_PACKED_FILES;
    ls_array names;
    if (!a->o->spec->keys.origins || !a->tensors || !ls_tensors_note(&a->all, "class_names") ||
        !ls_tensors_has(&a->all, tensor))
        return LS_OK;
    names.path = a->split[0].x.path;
    int status = ls_tensors_find(&names, &a->all, tensor, a->o->err);
    if (status == LS_OK && (names.type != LS_ARRAY_U8 || names.rank != 1))
        return LS_OK; /* a tensor of another program */
    return status ? status
                  : ls_resident_name_files(r, (const char *)names.data, (size_t)names.dim[0],
                                           names.path, a->o->err);
}

static int open_split(arrays *a, const ls_dataset_info *info, int test, ls_dataset **out)
{
    ls_resident *r = NULL;
    const char *hash = a->tensors ? ls_tensors_note(&a->all, "sha256") : NULL;
    int status = create_split(a, &a->split[test], info, &r);
    if (status)
        return status;
    *out = &r->base;
    if (!test) {
        r->prep = a->prep;
        r->base.info.prep = a->prep;
        a->prep = NULL;
    }
    if (info->targets > 0)
        status = ls_resident_take_exact(r, a->o->err);
    if (status == LS_OK)
        status = fill_split(a, &a->split[test], r);
    if (status == LS_OK)
        status = name_classes(a, r);
    if (status == LS_OK)
        status = name_numbers(a, r);
    if (status == LS_OK)
        status = name_files(a, test, r);
    if (status == LS_OK && !test)
        log_remarks(a);
    if (hash && strlen(hash) == LS_SHA256_HEX - 1)
        memcpy(r->base.info.images_sha256, hash, LS_SHA256_HEX);
    return status;
}

static int open_both(arrays *a, ls_dataset *split[2])
{
    ls_dataset_info info[2];
    int status = LS_OK;
    for (int s = 0; status == LS_OK && s < splits_of(a); s++)
        status = describe(&info[s], a, s);
    if (status == LS_OK)
        status = number_texts(a);
    if (status == LS_OK)
        status = find_targets(a);
    for (int s = 0; status == LS_OK && s < splits_of(a); s++) {
        info[s].classes = a->targets.classes;
        info[s].targets = a->targets.classes ? 0 : (int)ls_array_row(&a->split[s].y);
    }
    if (status == LS_OK && a->has_test)
        status = check_same(a, &info[0], &info[1]);
    if (status == LS_OK)
        status = find_means(a);
    if (status == LS_OK)
        status = prepare(a, &info[0]);
    if (status == LS_OK)
        status = find_scale(a, &info[0]);
    for (int s = 0; status == LS_OK && s < splits_of(a); s++)
        status = open_split(a, &info[s], s, &split[s]);
    if (status == LS_OK && !a->has_test)
        status = ls_dataset_none(&split[1], &info[0], a->o);
    return status;
}

static int finish(arrays *a, int status)
{
    for (int s = 0; s < 2; s++) {
        ls_array_close(&a->split[s].x);
        ls_array_close(&a->split[s].y);
    }
    ls_tensors_close(&a->all);
    for (int i = 0; i < 4; i++)
        ls_free(a->o->host, a->path[i]);
    ls_levels_free(&a->texts, a->o->host);
    ls_free(a->o->host, a->mean);
    ls_prep_free(a->prep);
    return status;
}

/* ---- npy ------------------------------------------------------------------------------------- */

static int open_file(const arrays *a, char **path, const char *file, const char *key,
                     const char *const *names, ls_array *out)
{
    const char *below = a->o->spec->path;
    const bool archive = below && ls_path_is_npz(below);
    if (!file && !archive)
        return ls_dataset_refuse(a->o, key,
                                 "expected the name of an .npy file, or data.path the name of an "
                                 ".npz file");
    *path = file ? ls_data_path(a->o, file) : ls_strdup(a->o->host, below);
    const bool labels = names == ls_names_of_targets || names == ls_names_of_test_targets;
    return *path ? (labels ? ls_array_open_labels : ls_array_open)(out, *path, names, a->o->err)
                 : ls_fail(a->o->err, LS_ENOMEM, "npy: out of memory");
}

/* Returns whether the file `path` has test rows that a run takes although no key names them. Rows
 * without targets are left out, with a warning. */
static bool takes_test(const arrays *a, const char *path, bool rows, bool targets)
{
    if (rows && !targets)
        ls_log(
            a->o->host, LS_LOG_WARNING,
            "%.300s: has test rows, but no targets of them, such as \"test_y\": they are not used",
            path);
    return rows && targets;
}

static int open_files(arrays *a)
{
    static const char *const key[4] = {"data.x", "data.y", "data.test_x", "data.test_y"};
    static const char *const *const names[4] = {ls_names_of_rows, ls_names_of_targets,
                                                ls_names_of_test_rows, ls_names_of_test_targets};
    const ls_data_keys *k = &a->o->spec->keys;
    const char *const file[4] = {k->x, k->y, k->test_x, k->test_y}, *below = a->o->spec->path;
    int status = LS_OK;
    a->has_test = k->test_x || k->test_y ||
                  (below && ls_path_is_npz(below) &&
                   takes_test(a, below, ls_array_is_there(below, names[2]),
                              ls_array_is_there(below, names[3])));
    for (int i = 0; status == LS_OK && i < 2 * splits_of(a); i++) {
        pair *p = &a->split[i / 2];
        p->x_name = i < 2 ? "x" : "test_x";
        p->y_name = i < 2 ? "y" : "test_y";
        status = open_file(a, &a->path[i], file[i], key[i], names[i], i % 2 ? &p->y : &p->x);
    }
    return status;
}

static int open_npy(ls_dataset *split[2], const ls_opening *o)
{
    arrays a = {.o = o};
    int status = open_files(&a);
    return finish(&a, status ? status : open_both(&a, split));
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static int find_pair(arrays *a, int test, const char *x, const char *y)
{
    pair *p = &a->split[test];
    p->x_name = x;
    p->y_name = y;
    int status = ls_tensors_find(&p->x, &a->all, x, a->o->err);
    return status ? status : ls_tensors_find(&p->y, &a->all, y, a->o->err);
}

static int find_tensors(arrays *a)
{
    const ls_data_keys *k = &a->o->spec->keys;
    int status = find_pair(a, 0, k->x ? k->x : "x", k->y ? k->y : "y");
    const char *x = k->test_x ? k->test_x : "test_x";
    a->has_test = k->test_x || k->test_y ||
                  takes_test(a, a->o->spec->path, ls_tensors_has(&a->all, x),
                             ls_tensors_has(&a->all, "test_y"));
    if (status == LS_OK && a->has_test)
        status = find_pair(a, 1, x, k->test_y ? k->test_y : "test_y");
    return status;
}

static int open_tensors(ls_dataset *split[2], const char *path, const ls_opening *o)
{
    arrays a = {.o = o, .tensors = true};
    int status = ls_tensors_open(&a.all, path, o->host, o->err);
    if (status == LS_OK)
        status = find_tensors(&a);
    return finish(&a, status ? status : open_both(&a, split));
}

static int open_safetensors(ls_dataset *split[2], const ls_opening *o)
{
    if (!o->spec->path)
        return ls_dataset_refuse(o, "data.path", "expected the path of a safetensors file");
    return open_tensors(split, o->spec->path, o);
}

static int open_folder(ls_dataset *split[2], const ls_opening *o)
{
    if (!o->spec->keys.packed)
        return ls_dataset_refuse(o, "data.path", "expected the path of a folder of pictures");
    return open_tensors(split, o->spec->keys.packed, o);
}

#define KEYS                                                                                       \
    "x y test_x test_y labels classes missing layout standardize clip standardize_target "         \
    "target_mean target_std"

const ls_dataset_kind ls_dataset_npy = {
    {"npy", 0, 0, 0, 0, NULL, KEYS, LS_DATA_ARRAYS}, open_npy, NULL};
const ls_dataset_kind ls_dataset_safetensors = {
    {"safetensors", 0, 0, 0, 0, NULL, KEYS, LS_DATA_TENSORS}, open_safetensors, NULL};
const ls_dataset_kind ls_dataset_folder = {
    {"folder", 0, 0, 0, 0, NULL,
     "test_path classes packed image_size resize crop interpolation pictures channels "
     "skip_broken",
     LS_DATA_FOLDER},
    open_folder,
    NULL};
