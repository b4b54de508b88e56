/* SPDX-License-Identifier: MIT */
/* Rows for a trained model (rows.h). */
#include "model/rows.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "formats/arrays.h"

#include <fcntl.h>
#include <string.h>

static int no_memory(uint32_t rows, ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)rows);
}

uint32_t ls_trained_rows_number(const ls_trained_rows *r, uint32_t i)
{
    return r->span ? r->first + (uint32_t)((uint64_t)i * r->span / r->rows) : i;
}

int ls_trained_rows_of_data(ls_trained_rows *r, bool train, uint32_t first, uint32_t span,
                            uint32_t count, ls_error *err)
{
    const ls_dataset *data = r->t->data[train ? LS_TRAIN : LS_TEST];
    const ls_host *host = r->t->host;
    r->from = data;
    r->first = first;
    r->span = span;
    r->rows = count;
    uint32_t *row = ls_alloc_array(host, r->rows, sizeof *row);
    r->images = r->own = ls_alloc_array(host, r->rows, ls_dataset_image_bytes(data));
    r->labels = ls_alloc_array(host, r->rows, ls_dataset_target_bytes(data));
    int status = LS_OK;
    if (!row || !r->own || !r->labels)
        status = no_memory(r->rows, err);
    for (uint32_t i = 0; status == LS_OK && i < r->rows; i++)
        row[i] = ls_trained_rows_number(r, i);
    if (status == LS_OK)
        status = ls_dataset_read(data, row, r->rows, r->own, r->labels, err);
    ls_free(host, row);
    return status;
}

ls_row_origin ls_dataset_origin(const ls_dataset *data, uint32_t i)
{
    const ls_dataset_view view = ls_dataset_resident(data);
    const uint32_t row = view.row ? view.row[i] : i;
    return (ls_row_origin){.file = view.file ? view.file[row] : NULL,
                           .line = view.line ? view.line[row] : 0,
                           .row = row};
}

ls_row_origin ls_trained_rows_origin(const ls_trained_rows *r, uint32_t i)
{
    const uint32_t number = ls_trained_rows_number(r, i);
    if (r->from || r->data)
        return ls_dataset_origin(r->from ? r->from : r->data, number);
    return (ls_row_origin){.file = r->file ? r->file[i].path : NULL, .row = number};
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Lists the pictures in the order of the arguments. An argument is an image file, or a folder,
 * which stands for the images in it. */
static int list_pictures(ls_folder *k, char *const *path, int paths)
{
    ls_folder_listing *l = &k->split[0];
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < paths; i++) {
        if (ls_is_directory(path[i])) {
            status = ls_folder_list_all(k, path[i]);
            continue;
        }
        ls_folder_entry *all = ls_grown(k->host, l->entry, l->count, &l->capacity, sizeof *all);
        if (!all)
            return ls_folder_no_memory(k);
        l->entry = all;
        all[l->count++] = (ls_folder_entry){.path = path[i]};
    }
    if (status == LS_OK && l->count == 0)
        status = ls_fail(
            k->err, LS_EDATA,
            "%.300s: expected images (jpg, png, bmp, webp, pgm, ppm) in it, found none", path[0]);
    if (status == LS_OK && l->count > UINT32_MAX - 1)
        status = ls_folder_no_memory(k);
    return status;
}

static int check_pictures(const ls_trained *t, const char *name, ls_error *err)
{
    if (!t->input_format.floats && (t->input_format.channels == 1 || t->input_format.channels == 3))
        return LS_OK;
    return ls_fail(
        err, LS_EUNSUPPORTED,
        "%.300s: the model reads %s, not pictures; name %s, or rows of its data: --rows 0:10", name,
        t->input_format.prep->kind == LS_PREP_TABLE ? "rows of a table" : "arrays",
        t->input_format.prep->kind == LS_PREP_TABLE ? "a .csv file" : "an .npy file");
}

/* Fails because no picture can be read. `paths`: number of arguments that named them. */
static int fail_all(const ls_trained_rows *r, int paths, int last, ls_error *err)
{
    if (r->rows == 1)
        return last; /* the message about the picture */
    return paths == 1
               ? ls_fail(err, LS_EDATA, "%.300s: none of %u pictures can be read", r->desc.folder,
                         (unsigned)r->rows)
               : ls_fail(err, LS_EDATA, "none of %u pictures can be read; the first is %.300s",
                         (unsigned)r->rows, r->file[0].path);
}

/* Reports a picture that cannot be read. */
static void report_broken(const ls_trained_rows *r, const char *why)
{
    const ls_folder_watch *watch = r->desc.watch;
    if (watch && watch->broken)
        watch->broken(watch->user, why);
    else
        ls_log(r->t->host, LS_LOG_WARNING, "broken: %s", why);
}

/* Reads each picture, and scales and crops it as the packing of a folder does. If a picture cannot
 * be read, the reason is stored in r->why, and its pixels are grey. */
static int fit_pictures(ls_trained_rows *r, size_t bytes, int paths, ls_error *err)
{
    const ls_picture_form form = ls_form_of_input(&r->t->input_format);
    ls_image_memory kept = {0};
    const ls_pictures *pictures;
    int last = LS_OK, status = ls_pictures_find(&pictures, r->desc.pictures, err);
    if (status)
        return status;
    for (uint32_t i = 0; status == LS_OK && i < r->rows; i++) {
        uint8_t *to = r->own + i * bytes;
        last = pictures->fit(to, &form, AT_FDCWD, r->file[i].path, &kept, r->t->host, err);
        r->turned += last == LS_OK && kept.turned;
        if (last == LS_OK)
            continue;
        memset(to, 128, bytes);
        r->why[i] = ls_strdup(r->t->host, err->text);
        status = last == LS_ENOMEM ? last : r->why[i] ? LS_OK : no_memory(r->rows, err);
        if (status == LS_OK && r->rows > 1)
            report_broken(r, err->text);
        r->broken++;
    }
    pictures->memory_free(&kept, r->t->host);
    return status || r->broken < r->rows ? status : fail_all(r, paths, last, err);
}

static int read_pictures(ls_trained_rows *r, char *const *path, int paths, ls_error *err)
{
    const ls_input_format *format = &r->t->input_format;
    const size_t bytes = (size_t)format->channels * (size_t)format->height * (size_t)format->width;
    int status = check_pictures(r->t, path[0], err);
    r->desc = r->t->folder;
    r->desc.folder = path[0];
    r->skip_broken = r->skip_broken || r->desc.skip_broken;
    r->listed = (ls_folder){.p = &r->desc, .host = r->t->host, .err = err};
    if (status == LS_OK)
        status = list_pictures(&r->listed, path, paths);
    if (status)
        return status;
    r->file = r->listed.split[0].entry;
    r->rows = (uint32_t)r->listed.split[0].count;
    r->images = r->own = ls_alloc_array(r->t->host, r->rows, bytes);
    r->why = ls_alloc_array(r->t->host, r->rows, sizeof *r->why);
    if (!r->own || !r->why)
        return no_memory(r->rows, err);
    return fit_pictures(r, bytes, paths, err);
}

/* ---- tables and arrays ----------------------------------------------------------------------- */

/* Takes the rows of the table or array that was opened. */
static int take_data(ls_trained_rows *r, int status, ls_error *err)
{
    if (status || !r->data)
        return status;
    const ls_unknown_rows *unknown = ls_dataset_describe(r->data)->unknown;
    r->rows = ls_dataset_describe(r->data)->rows;
    r->images = ls_dataset_resident(r->data).images;
    if (!unknown)
        return LS_OK;
    r->why = ls_alloc_array(r->t->host, r->rows, sizeof *r->why);
    if (!r->why)
        return no_memory(r->rows, err);
    r->broken = (uint32_t)unknown->count;
    r->source = ls_dataset_describe(r->data)->source;
    r->reason = ls_unknown_rows_why(unknown);
    r->places = unknown->places.text;
    for (size_t i = 0; i < unknown->count; i++) {
        char **why = &r->why[unknown->row[i].row];
        *why = ls_strdup(r->t->host, unknown->row[i].why);
        if (!*why)
            return no_memory(r->rows, err);
    }
    return LS_OK;
}

static int read_picture(ls_trained_rows *r, const char *name, const char *bytes, size_t count,
                        ls_error *err)
{
    static const ls_folder_entry unnamed = {.path = "-"};
    const ls_pictures *pictures;
    const ls_input_format *format = &r->t->input_format;
    ls_image_memory kept = {0};
    int status = check_pictures(r->t, name, err);
    if (status == LS_OK)
        status = ls_pictures_find(&pictures, r->t->folder.pictures, err);
    if (status)
        return status;
    r->file = &unnamed;
    r->rows = 1;
    r->images = r->own = ls_alloc(r->t->host, (size_t)format->channels * (size_t)format->height *
                                                  (size_t)format->width);
    if (!r->own)
        return no_memory(1, err);
    const ls_picture_form form = ls_form_of_input(format);
    status = pictures->fit_bytes(r->own, &form, name, bytes, count, &kept, r->t->host, err);
    r->turned = kept.turned;
    pictures->memory_free(&kept, r->t->host);
    return status;
}

int ls_trained_rows_read(ls_trained_rows *r, const char *name, const char *bytes, size_t count,
                         ls_error *err)
{
    const ls_input_format *format = &r->t->input_format;
    if (ls_array_is_npy(bytes, count) || ls_array_is_npz(bytes, count))
        return take_data(r, ls_new_rows_read_npy(&r->data, format, name, bytes, count, err), err);
    if (format->prep->kind == LS_PREP_TABLE)
        return take_data(r, ls_new_rows_read_csv(&r->data, format, name, bytes, count, err), err);
    return read_picture(r, name, bytes, count, err);
}

int ls_trained_rows_open(ls_trained_rows *r, char *const *path, int paths, ls_error *err)
{
    const ls_input_format *format = &r->t->input_format;
    const char *first = path[0];
    const bool array = ls_path_ends_with(first, ".npy") || ls_path_is_npz(first) ||
                       ls_path_is_in_npz(first),
               table = ls_path_ends_with(first, ".csv") || array;
    if (!table && format->prep->kind != LS_PREP_TABLE)
        return read_pictures(r, path, paths, err);
    if (paths > 1)
        return ls_fail(err, LS_EINVAL,
                       "%.300s: one table or array at a time; do not know what to do with %.100s",
                       first, path[1]);
    return take_data(r,
                     array ? ls_new_rows_open_npy(&r->data, format, first, NULL, err)
                           : ls_new_rows_open_csv(&r->data, format, first, err),
                     err);
}

void ls_trained_rows_close(ls_trained_rows *r)
{
    const ls_host *host = r->t->host;
    for (uint32_t i = 0; r->why && i < r->rows; i++)
        ls_free(host, r->why[i]);
    ls_free(host, r->why);
    ls_free(host, r->own);
    ls_free(host, r->labels);
    ls_dataset_close(r->data);
    if (r->listed.p)
        ls_folder_fini(&r->listed);
}
