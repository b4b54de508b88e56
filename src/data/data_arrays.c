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
#include "data/array_rows.h"
#include "data/new_rows.h"
#include "data/pack.h"
#include "data/text_labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SIDE (1u << 24)
#define MOST_TARGETS (1u << 14) /* the same limit as for a caller's data source (dataset.c) */

static int splits_of(const ls_arrays *a)
{
    return a->has_test ? 2 : 1;
}

/* ---- shapes and targets ---------------------------------------------------------------------- */

/* Returns whether the rows are bytes. Columns of u8 that are standardised are numbers, as those of
 * any other type. */
static bool reads_bytes(const ls_arrays *a, const ls_array_pair *p)
{
    const ls_data_keys *k = &a->o->spec->keys;
    const ls_input_format *model = k->input_format;
    const bool numbers = model
                             ? model->floats && model->prep && strcmp(model->prep->type, "u8") == 0
                             : k->standardize > 0 && p->x.rank <= 2;
    return ls_array_of_bytes(&p->x) && !numbers;
}

static bool may_be_channels(uint64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

static void warn_of_layout(const ls_arrays *a, const ls_array_pair *p)
{
    const uint64_t *dim = p->x.dim;
    if (p->x.rank != LS_ARRAY_RANK || ls_array_rows_last(a, p) || !may_be_channels(dim[3]) ||
        may_be_channels(dim[1]))
        return;
    ls_log(a->o->host, LS_LOG_WARNING,
           "%.200s: %s: rows of (%llu, %llu, %llu) are taken as %llu channels of %llu×%llu; if the "
           "last dimension is the channels, set data.layout to \"channels_last\"",
           p->x.path, p->x_name, (unsigned long long)dim[1], (unsigned long long)dim[2],
           (unsigned long long)dim[3], (unsigned long long)dim[1], (unsigned long long)dim[2],
           (unsigned long long)dim[3]);
}

static int shape_of(ls_dataset_info *info, const ls_arrays *a, const ls_array_pair *p)
{
    const uint64_t *dim = p->x.dim;
    uint64_t side[3];
    ls_array_sides(side, &p->x, ls_array_rows_last(a, p));
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

static int find_targets(ls_arrays *a)
{
    const ls_array_pair *p = a->split;
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
static int name_texts(const ls_arrays *a, ls_resident *r)
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
static int number_texts(ls_arrays *a)
{
    const ls_data_keys *k = &a->o->spec->keys;
    const ls_input_format *model = k->input_format;
    const ls_array_pair *first = &a->split[0];
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
static int name_numbers(const ls_arrays *a, ls_resident *r)
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

/* ---- a split --------------------------------------------------------------------------------- */

static int describe(ls_dataset_info *info, const ls_arrays *a, int test)
{
    const ls_array_pair *p = &a->split[test];
    const uint32_t rows = (uint32_t)p->x.dim[0];
    *info = ls_dataset_split_info(a->o, test, p->x.path, rows);
    int status = shape_of(info, a, p);
    if (status == LS_OK && !test)
        status = ls_dataset_check_limit(a->o, rows, p->x.path);
    if (status == LS_OK && !test)
        warn_of_layout(a, p);
    return status;
}

static int check_same(const ls_arrays *a, const ls_dataset_info *train, const ls_dataset_info *test)
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
static int name_classes(const ls_arrays *a, ls_resident *r)
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
static void log_remarks(const ls_arrays *a)
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
static int read_resize(ls_arrays *a, const ls_dataset_info *info)
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
static int read_white(ls_arrays *a)
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
static int prepare(ls_arrays *a, const ls_dataset_info *info)
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
    p->channels_last = ls_array_rows_last(a, a->split);
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

/* Names the image files of the rows, if the file of packed images has their names. */
static int name_files(const ls_arrays *a, int test, ls_resident *r)
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

static int open_split(ls_arrays *a, const ls_dataset_info *info, int test, ls_dataset **out)
{
    ls_resident *r = NULL;
    const char *hash = a->tensors ? ls_tensors_note(&a->all, "sha256") : NULL;
    int status = ls_array_rows_create(a, &a->split[test], info, &r);
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
        status = ls_array_rows_fill(a, &a->split[test], r);
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

static int open_both(ls_arrays *a, ls_dataset *split[2])
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
        status = ls_array_rows_means(a);
    if (status == LS_OK)
        status = prepare(a, &info[0]);
    if (status == LS_OK)
        status = ls_array_rows_scale(a, &info[0]);
    for (int s = 0; status == LS_OK && s < splits_of(a); s++)
        status = open_split(a, &info[s], s, &split[s]);
    if (status == LS_OK && !a->has_test)
        status = ls_dataset_none(&split[1], &info[0], a->o);
    return status;
}

static int finish(ls_arrays *a, int status)
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

static int open_file(const ls_arrays *a, char **path, const char *file, const char *key,
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
static bool takes_test(const ls_arrays *a, const char *path, bool rows, bool targets)
{
    if (rows && !targets)
        ls_log(
            a->o->host, LS_LOG_WARNING,
            "%.300s: has test rows, but no targets of them, such as \"test_y\": they are not used",
            path);
    return rows && targets;
}

static int open_files(ls_arrays *a)
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
        ls_array_pair *p = &a->split[i / 2];
        p->x_name = i < 2 ? "x" : "test_x";
        p->y_name = i < 2 ? "y" : "test_y";
        status = open_file(a, &a->path[i], file[i], key[i], names[i], i % 2 ? &p->y : &p->x);
    }
    return status;
}

static int open_npy(ls_dataset *split[2], const ls_opening *o)
{
    ls_arrays a = {.o = o};
    int status = open_files(&a);
    return finish(&a, status ? status : open_both(&a, split));
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static int find_pair(ls_arrays *a, int test, const char *x, const char *y)
{
    ls_array_pair *p = &a->split[test];
    p->x_name = x;
    p->y_name = y;
    int status = ls_tensors_find(&p->x, &a->all, x, a->o->err);
    return status ? status : ls_tensors_find(&p->y, &a->all, y, a->o->err);
}

static int find_tensors(ls_arrays *a)
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
    ls_arrays a = {.o = o, .tensors = true};
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
