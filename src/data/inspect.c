/* SPDX-License-Identifier: MIT */
/* Inspects data (inspect.h). The parts (inspect_parts.h) find the kind of the data and look at it.
 * This file decides whether there is something to learn in the rows, which scales they need, and
 * whether a class is rare. Each kind of data is opened in the same way as for training, so that the
 * description shows the rows as training will get them. */
#include "data/inspect.h"

#include "base/error.h"
#include "base/host.h"
#include "data/curve.h"
#include "data/inspect_parts.h"
#include "data/scales.h"

#include <math.h>
#include <string.h>

/* largest number of values from which mean and deviation are computed */
enum { VALUES = 1 << 22 };

/* ---- shape and scales of the rows ------------------------------------------------------------ */

/* Returns whether each column, or each channel of floats, is to have a scale of its own. Columns
 * are a table without names. The keys data.mean and data.std do not hold every number. */
static bool scales_each(const ls_inspection *l)
{
    const double least = 1e-6, most = 1e6;
    const bool columns = l->height == 1 && l->width == 1;
    return (l->floats || columns) && !ls_inspect_is_given(l, "mean") &&
           !ls_inspect_is_given(l, "std") &&
           (columns || fabs(l->mean) > most || l->deviation < least || l->deviation > most);
}

static double value_at(const void *of, size_t i)
{
    const ls_inspection *l = of;
    const ls_dataset_view view = ls_dataset_resident(l->split[0]);
    return ls_dataset_describe(l->split[0])->row_type == LS_ROW_F32 ? (double)view.values[i]
                                                                    : (double)view.images[i];
}

/* Adds a line about the columns that have the same value in every row. */
static int find_constant_columns(ls_inspection *l, ls_error *err)
{
    enum { NAMED = 10 };
    const ls_measured_numbers all = {value_at, l, l->rows, (size_t)l->channels, l->channels};
    double *mean = ls_alloc_array(l->host, 2 * (size_t)l->channels, sizeof *mean);
    int count = 0;
    bool wide;
    if (!mean)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d columns", l->channels);
    ls_scale_measure(&all, mean, mean + l->channels, &wide);
    for (int i = 0; i < l->channels; i++)
        if (mean[l->channels + i] == 0 && count++ < NAMED)
            ls_buffer_format(&l->left_out_why, "%s%d", count > 1 ? ", " : "  left out: column ", i);
    if (count > 0)
        ls_buffer_format(&l->left_out_why,
                         "%s, counted from 0, with the same value in every row; in new rows any "
                         "value counts as this one\n",
                         count > NAMED ? " …" : "");
    ls_free(l->host, mean);
    return LS_OK;
}

/* Computes mean and deviation of the values of the first rows. */
static void measure(ls_inspection *l, const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    const size_t each = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    const size_t most = VALUES / each + 1, rows = info->rows < most ? info->rows : most;
    const size_t n = rows * each;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += l->floats ? (double)view.values[i] : view.images[i] / 255.0;
    l->mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (l->floats ? (double)view.values[i] : view.images[i] / 255.0) - l->mean;
        squares += d * d;
    }
    l->deviation = squares > 0 ? sqrt(squares / (double)n) : 1;
}

static void take_shape(ls_inspection *l)
{
    const ls_dataset_info *info = ls_dataset_describe(l->split[0]);
    l->table = info;
    l->rows = info->rows;
    l->test_rows = ls_dataset_describe(l->split[1])->rows;
    l->classes = info->classes;
    l->targets = info->targets;
    l->channels = info->channels;
    l->height = info->height;
    l->width = info->width;
    l->floats = info->row_type == LS_ROW_F32;
}

/* ---- rare classes ---------------------------------------------------------------------------- */

static int32_t label_of(const ls_inspection *l, const ls_dataset_view *view, uint32_t row)
{
    return l->listed.p ? l->listed.split[0].entry[row].label
                       : view->labels[view->row ? view->row[row] : row];
}

/* Finds the rarest class (l->rare). Errors: LS_ENOMEM. */
static int find_rare(ls_inspection *l, ls_error *err)
{
    ls_dataset_view view = {0};
    const char *const *name = NULL;
    if (l->split[0]) {
        view = ls_dataset_resident(l->split[0]);
        name = ls_dataset_describe(l->split[0])->class_name;
    }
    l->rare = -1;
    if (l->classes < 2 || (!l->listed.p && !view.labels))
        return LS_OK;
    uint32_t *rows = ls_alloc_array(l->host, (size_t)l->classes, sizeof *rows);
    if (!rows)
        return ls_fail(err, LS_ENOMEM, "out of memory for the rows of %d classes", l->classes);
    for (uint32_t i = 0; i < l->rows; i++)
        rows[label_of(l, &view, i)]++;
    int least = 0;
    for (int k = 0; k < l->classes; k++) {
        least = rows[k] < rows[least] ? k : least;
        l->most_rows = rows[k] > l->most_rows ? rows[k] : l->most_rows;
    }
    l->rare_rows = rows[least];
    l->rare_name = l->listed.p ? l->listed.classes.name[least] : name ? name[least] : NULL;
    if (rows[least] > 0 && 5.0 * rows[least] * l->classes < 2.0 * l->rows)
        l->rare = least;
    ls_free(l->host, rows);
    return LS_OK;
}

/* Fails if each row is a class of its own, as with an id as the target. */
static int check_classes(const ls_inspection *l, ls_error *err)
{
    if (l->most_rows != 1)
        return LS_OK;
    return ls_fail(
        err, LS_EDATA,
        "%.300s: expected classes with several rows each, found another class in each of "
        "the %u rows%s%.60s%s",
        l->path, (unsigned)l->rows, l->target ? "; \"" : "", l->target ? l->target : "",
        l->target ? "\" is perhaps an id; name the column that is to be learnt: --target"
                  : "; name the data of which a class has several");
}

/* ---- entry points ---------------------------------------------------------------------------- */

const char *ls_inspect_forms(const ls_inspection *l)
{
    if (l->separator && !ls_separator_of(l->separator))
        return "--separator: expected \",\", \";\", tab, bar or space";
    if (l->decimal && strcmp(l->decimal, ",") != 0 && strcmp(l->decimal, ".") != 0)
        return "--decimal: expected \",\" or \".\"";
    if (l->encoding && strcmp(l->encoding, "latin-1") != 0 && strcmp(l->encoding, "utf-8") != 0)
        return "--encoding: expected latin-1 or utf-8";
    return NULL;
}

/* Fails if there is nothing in the rows by which they could be told apart. */
static int check_rows(const ls_inspection *l, ls_error *err)
{
    if (l->rows < 2 || !ls_dataset_rows_are_equal(l->split[0]))
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%.300s: expected rows that differ, found %u equal ones, so there is nothing "
                   "to learn from them%s",
                   l->path, (unsigned)l->rows,
                   l->kind->form == LS_DATA_TABLE ? "" : "; check how they were saved");
}

/* Opens and describes data whose kind is known, if it is not a folder of pictures. */
static int look_at_rows(ls_inspection *l, ls_error *err)
{
    int status = LS_OK;
    if (l->kind->form == LS_DATA_TABLE)
        status = ls_inspect_table(l, err);
    else if (!l->known)
        status = ls_inspect_arrays(l, err);
    else if (!l->split[0])
        status = ls_inspect_open(l, l->host, err);
    if (status)
        return status;
    take_shape(l);
    measure(l, l->split[0]);
    l->each = l->kind->form != LS_DATA_TABLE && scales_each(l);
    if (l->each) { /* floats near a large offset are equal before they are scaled */
        l->silent = *l->host;
        l->silent.log = NULL;
        status = ls_inspect_open(l, &l->silent, err);
        l->table = status == LS_OK ? ls_dataset_describe(l->split[0]) : NULL;
    }
    if (status == LS_OK)
        status = check_rows(l, err);
    if (status == LS_OK)
        status = ls_curve_measure(&l->curve, l->split[0], l->host, err);
    if (status == LS_OK && l->each && l->height * l->width == 1)
        status = find_constant_columns(l, err);
    return status;
}

int ls_inspect(ls_inspection *l, ls_error *err)
{
    l->drop = cJSON_CreateArray();
    ls_buffer_init(&l->left_out_why, l->host);
    int status = ls_inspect_kind(l, err);
    if (status)
        return status;
    l->known = l->kind->form == LS_DATA_PUBLIC;
    status = l->kind->form == LS_DATA_FOLDER ? ls_inspect_folder(l, err) : look_at_rows(l, err);
    if (status == LS_OK)
        status = find_rare(l, err);
    if (status == LS_OK)
        status = check_classes(l, err);
    l->validation = ls_inspect_is_given(l, "validation") ? l->given.keys.validation
                    : l->test_rows                       ? 0
                                                         : 0.2;
    return status;
}

void ls_inspect_put_size(ls_json_writer *w, const ls_inspection *l)
{
    const ls_prep_resize *r = &l->resize;
    if (l->pictures) {
        ls_json_put_string(w, "pictures", l->pictures);
    } else if (!r->height) {
        ls_json_put_int(w, "image_size", l->height);
    } else {
        ls_prep_write_resize(w, r);
        if (r->height != l->height || r->width != l->width)
            ls_prep_write_sides(w, "crop", l->height, l->width == l->height ? 0 : l->width);
    }
}

void ls_inspect_end(ls_inspection *l)
{
    ls_inspect_close(l);
    if (l->listed.p)
        ls_folder_fini(&l->listed);
    cJSON_Delete(l->drop);
    cJSON_Delete(l->target_name);
    ls_buffer_fini(&l->left_out_why);
}
