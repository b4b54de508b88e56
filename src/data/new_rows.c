/* SPDX-License-Identifier: MIT */
/* Reads rows for a trained model from tables, and converts them as the model's training rows were
 * converted, by its *preparation* (prep/prep.h). new_rows_arrays.c reads rows from arrays. */
#include "data/new_rows_create.h"

#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "data/row_blocks.h"
#include "data/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rows in memory -------------------------------------------------------------------------- */

int ls_new_rows_create(ls_resident **out, const ls_input_format *format, const char *name,
                       const char *source, uint32_t rows, void *values, ls_error *err)
{
    const ls_opening o = {.host = format->host, .err = err};
    const ls_dataset_info info = {.name = name,
                                  .split = format->split,
                                  .source = source,
                                  .channels = format->channels,
                                  .height = format->height,
                                  .width = format->width,
                                  .classes = format->classes,
                                  .targets = format->targets,
                                  .row_type = format->floats ? LS_ROW_F32 : LS_ROW_U8,
                                  .rows = rows};
    int status = ls_resident_create_mapped(out, &info, values, NULL, 0, &o);
    if (status == LS_OK && format->class_name)
        status = ls_resident_name_classes(*out, format->class_name, err);
    return status;
}

int ls_new_rows_reserve(ls_dataset **out, const ls_input_format *format, const char *source,
                        uint32_t rows, uint8_t **values, int32_t **labels, ls_error *err)
{
    ls_resident *r = NULL;
    int status = ls_new_rows_create(&r, format, "folder", source, rows, NULL, err);
    *out = r ? &r->base : NULL;
    *values = r ? r->images : NULL;
    *labels = r ? r->labels : NULL;
    return status;
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum { IGNORED = -1, TARGET = -2, WEIGHT = -3 };

/* A row of the table that has been read. */
typedef struct read_row {
    union {
        double value;
        int32_t label;
    } target;      /* 0 if the targets are not read */
    float weight;  /* 1 if the weights are not read */
    uint32_t line; /* line of the table on which the row begins */
    float ready[]; /* [features]: the ready row */
} read_row;

/* State of reading a table of new rows. */
typedef struct reading {
    const ls_input_format *format;
    ls_table *t;
    /* A preparation with a single column whose levels are the names of the classes, so that
     * ls_prep_level finds a class by its name; NULL: targets are values, or classes without
     * names. */
    ls_prep *classes;
    /* [columns]: for each column of the file, its index in the preparation, or IGNORED, TARGET or
     * WEIGHT */
    int *column;
    int columns;
    bool weighted;        /* the file has the column of weights, which is read */
    bool other_coding;    /* a name in the header is not UTF-8 */
    ls_row_blocks rows;   /* blocks of `read_row` */
    double *raw;          /* [features]: the raw row (prep/prep.h) that is being read */
    struct read_row *row; /* the row that is being read */
    size_t seen;          /* number of rows that have been read, those left out included */
    ls_unknown_rows unknown;
    /* The worst value found in the row that is being read. If that is not LS_PREP_KNOWN: the
     * message about the value, the value, and its place. */
    ls_prep_found found;
    ls_error why;
    char text[64];
    ls_unknown_place place;
    ls_error *err;
} reading;

static int no_memory(const reading *r)
{
    return ls_fail(r->err, LS_ENOMEM, "%.300s: out of memory for its rows", r->t->path);
}

/* Returns the current field as a text. If the model's training table was read as Windows-1252, a
 * field that is not UTF-8 is read as Windows-1252 too. Otherwise a text with invalid bytes is
 * returned unchanged, and matches a name in which these bytes were replaced by U+FFFD
 * (ls_prep_is_name). */
static int read_text(const reading *r, const char **out)
{
    r->t->latin1 = r->format->prep->latin1 && !ls_table_is_utf8(r->t);
    return ls_table_text(r->t, false, out);
}

static const char *target_of(const ls_input_format *format)
{
    return format->target ? format->target : format->prep->target;
}

/* Returns the index of a class without a name, which the text must be as a whole number. Returns −1
 * if there is no such class. */
static int class_of_number(const ls_input_format *format, const char *text)
{
    char name[24];
    double number;
    if (!ls_field_is_number(text, &number) || !(number >= 0 && number < format->classes))
        return -1;
    snprintf(name, sizeof name, "%d", (int)number);
    return ls_level_is_same(name, text, false) ? (int)number : -1;
}

static int find_class_names(reading *r)
{
    const ls_input_format *format = r->format;
    if (!format->labelled || !format->class_name || format->targets)
        return LS_OK;
    int status = ls_prep_create(&r->classes, LS_PREP_TABLE, format->host, r->err);
    if (status == LS_OK)
        status =
            ls_prep_add(r->classes, target_of(format), format->class_name, format->classes, r->err);
    if (status == LS_OK)
        r->classes->column[0].rule = format->prep->target_rule;
    return status ? status : ls_prep_finish(r->classes, r->err);
}

/* Returns the name of the column of weights; NULL: weights are not read. */
static const char *weight_of(const ls_input_format *format)
{
    return format->labelled ? format->weight : NULL;
}

/* `seen` has a place for each column of the preparation, and then for target and weight. */
static int take_name(reading *r, bool *seen)
{
    const int columns = r->format->prep->columns;
    const ls_input_format *format = r->format;
    const char *name, *target = format->labelled ? target_of(format) : NULL;
    int status = read_text(r, &name);
    if (status)
        return status;
    r->other_coding |= !r->t->latin1 && !ls_table_is_utf8(r->t);
    const bool is_target = target && ls_prep_is_name(target, name);
    const bool is_weight = weight_of(format) && ls_prep_is_name(weight_of(format), name);
    const int column = is_target ? TARGET : is_weight ? WEIGHT : ls_prep_find(format->prep, name);
    r->column[r->columns++] = column == -1 ? IGNORED : column;
    bool *once = is_target     ? &seen[columns]
                 : is_weight   ? &seen[columns + 1]
                 : column >= 0 ? &seen[column]
                               : NULL;
    if (once && *once)
        return ls_fail(r->err, LS_EDATA, "%.300s:1: column \"%.60s\": expected once, found twice",
                       r->t->path, name);
    if (once)
        *once = true;
    return LS_OK;
}

/* Checks that the file has all columns that the model needs. The message names up to four missing
 * columns. */
static int check_names(const reading *r, const bool *seen)
{
    const ls_prep *p = r->format->prep;
    char list[320] = "";
    int missing = 0;
    size_t used = 0;
    for (int i = 0; i < p->columns; i++)
        if (!seen[i] && ++missing <= 4)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%.60s\"",
                                     used ? ", " : "", p->column[i].name);
    const char *const other[] = {r->format->labelled ? target_of(r->format) : NULL,
                                 r->format->may_lack_weight ? NULL : weight_of(r->format)};
    for (int i = 0; i < 2; i++)
        if (other[i] && !seen[p->columns + i] && ++missing <= 4)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%.60s\"",
                                     used ? ", " : "", other[i]);
    if (missing == 0)
        return LS_OK;
    return ls_fail(r->err, LS_EDATA,
                   "%.300s:1: expected the columns of the model's training table, in any order; "
                   "missing: %s%s%s",
                   r->t->path, list, missing > 4 ? ", …" : "",
                   r->other_coding ? "; this header is not UTF-8 but perhaps Latin-1: save the "
                                     "table as UTF-8"
                                   : "");
}

static int read_header(reading *r)
{
    ls_table *t = r->t;
    const ls_host *host = r->format->host;
    size_t most;
    int status = ls_table_count(t, &most);
    if (status)
        return status;
    if (most > LS_PREP_COLUMNS)
        return ls_table_fail(t, "expected at most 65536 columns");
    bool *seen = ls_alloc_array(host, (size_t)r->format->prep->columns + 2, sizeof *seen);
    r->column = ls_alloc_array(host, most, sizeof *r->column);
    status = seen && r->column ? LS_OK : no_memory(r);
    while (status == LS_OK) {
        status = ls_table_field(t);
        if (status == LS_OK && (size_t)r->columns == most)
            status = ls_table_fail(t, "expected a header of less than 16 MiB");
        if (status == LS_OK)
            status = take_name(r, seen);
        if (t->ends_row)
            break;
    }
    if (status == LS_OK)
        status = check_names(r, seen);
    if (status == LS_OK && weight_of(r->format)) {
        r->weighted = seen[r->format->prep->columns + 1];
        if (!r->weighted)
            ls_log(host, LS_LOG_WARNING,
                   "%.300s has no column \"%.60s\" of weights: each row counts once", t->path,
                   weight_of(r->format));
    }
    ls_free(host, seen);
    return status;
}

static void take_value(const reading *r, const char *text, double *out, const char **expected)
{
    static const char *const marked[] = {
        "a number with a decimal point, as the training table has",
        "a number with a decimal comma, as the training table has"};
    unsigned form = 0;
    const ls_prep *prep = r->format->prep;
    const char decimal = prep->target_decimal;
    const size_t n = strlen(text);
    if (!ls_number_read(text, n, decimal, out, &form))
        *expected = ls_number_read(text, n, 0, out, &form) ? marked[decimal == ','] : "a number";
    else if (!isfinite((float)*out))
        *expected = "a finite number that a float holds";
    else if (form & LS_FORM_COMMA_OR_GROUP && !decimal)
        *expected = "a number that can be read in only one way";
    else if (form & LS_FORM_COMMA && !decimal && !ls_prep_has_commas(prep))
        *expected = marked[0];
}

static int take_target(const reading *r)
{
    const ls_input_format *format = r->format;
    const char *text, *expected = NULL;
    int status = read_text(r, &text);
    if (status)
        return status;
    if (format->targets) {
        take_value(r, text, &r->row->target.value, &expected);
    } else {
        r->row->target.label = r->classes ? ls_prep_level(&r->classes->column[0], text)
                                          : class_of_number(format, text);
        if (r->row->target.label < 0)
            expected = "a class that the model has learnt";
    }
    if (!expected)
        return LS_OK;
    return ls_fail(r->err, LS_EDATA, "%.300s:%zu: column \"%.60s\": expected %s, found \"%.70s\"",
                   r->t->path, r->t->line, target_of(format), expected, text);
}

static int take_weight(const reading *r)
{
    const char *text, *expected = NULL;
    double weight = 0;
    int status = read_text(r, &text);
    if (status)
        return status;
    take_value(r, text, &weight, &expected);
    r->row->weight = (float)weight;
    if (!expected && ls_is_row_weight(weight))
        return LS_OK;
    return ls_fail(r->err, LS_EDATA,
                   "%.300s:%zu: column \"%.60s\": expected " LS_ROW_WEIGHT ", found \"%.70s\"",
                   r->t->path, r->t->line, weight_of(r->format), text);
}

/* Handles a value that the model cannot read, about which `why` has the message. The row is left
 * without a prediction, or else this is an error. */
static int refuse(const reading *r, int status, const char *before, const ls_error *why)
{
    const ls_input_format *format = r->format;
    if (format->skip_broken && status == LS_EDATA)
        return LS_OK;
    return format->skip_option
               ? ls_fail(r->err, status, "%s%s; correct it, or leave out such rows: %s", before,
                         why->text, format->skip_option)
               : ls_fail(r->err, status, "%s%s", before, why->text);
}

/* Writes a field to the raw row. */
static int put_field(reading *r, int column, const char *text)
{
    char prefix[360];
    ls_error why;
    const ls_prep_column *c = &r->format->prep->column[column];
    ls_prep_found found = LS_PREP_KNOWN;
    snprintf(prefix, sizeof prefix, "%.300s:%zu: ", r->t->path, r->t->line);
    const int refused = ls_prep_put(r->format->prep, column, text, 0, r->raw, prefix, &found, &why);
    if (refused && refuse(r, refused, "", &why))
        return refused;
    for (int k = 0; k < ls_prep_width(c) && refused; k++)
        r->raw[c->first + k] = 0;
    found = refused ? LS_PREP_UNKNOWN : found;
    if (found > r->found) {
        r->found = found;
        r->why = why;
        snprintf(r->text, sizeof r->text, "%s", text);
        r->place = (ls_unknown_place){.unit = "line",
                                      .number = r->t->line,
                                      .column = c->name,
                                      .text = r->text,
                                      .other_coding = !r->t->latin1 && !ls_table_is_utf8(r->t),
                                      .refused = refused != LS_OK,
                                      .is_text = c->levels > 0};
    }
    return LS_OK;
}

static int take_field(void *user, int i)
{
    reading *r = user;
    const char *text;
    unsigned form;
    const int column = r->column[i];
    const ls_prep_column *format = column >= 0 ? &r->format->prep->column[column] : NULL;
    const bool number = format && !format->levels && !format->date && format->decimal != ',' &&
                        ls_table_number(r->t, &r->raw[format->first], &form);
    if (number && isfinite((float)r->raw[format->first]))
        return LS_OK;
    int status = number ? LS_OK : ls_table_field(r->t);
    if (status || column == IGNORED)
        return status;
    if (column == TARGET)
        return take_target(r);
    if (column == WEIGHT)
        return take_weight(r);
    status = read_text(r, &text);
    return status ? status : put_field(r, column, text);
}

/* Makes the row that has been read ready. If it cannot be predicted, notes it, and leaves it out if
 * the rows have targets. */
static int finish_row(reading *r)
{
    ls_error why;
    char place[360];
    const ls_prep *p = r->format->prep;
    const ls_prep_found before = r->found;
    int status =
        ls_prep_ready(p, r->raw, true, r->row->ready, (size_t)p->features, &r->found, &why);
    snprintf(place, sizeof place, "%.300s:%zu: ", r->t->path, r->t->line);
    if (status && refuse(r, status, place, &why))
        return status;
    if (r->found > before) {
        ls_fail(&r->why, LS_EDATA, "%s%s", place, why.text);
        r->place = (ls_unknown_place){.unit = "line", .number = r->t->line, .text = why.text};
    }
    status = ls_unknown_rows_add(&r->unknown, (uint32_t)r->seen++, r->found, &r->place, r->why.text,
                                 r->err);
    if (r->found == LS_PREP_UNKNOWN && r->format->labelled)
        ls_row_blocks_cut(&r->rows, r->rows.rows - 1);
    r->found = LS_PREP_KNOWN;
    return status;
}

static int read_rows(reading *r)
{
    const ls_prep *p = r->format->prep;
    const uint32_t most = r->format->limit ? r->format->limit : UINT32_MAX - 1;
    const size_t features = (size_t)p->features;
    bool more = false;
    r->rows.width = (sizeof(read_row) + features * sizeof(float) + 7) / 8 * 8;
    r->raw = ls_alloc_array(r->format->host, features, sizeof *r->raw);
    if (!r->raw)
        return no_memory(r);
    int status = ls_table_has_row(r->t, &more);
    while (status == LS_OK && more && r->seen < most) {
        r->row = ls_row_blocks_add(&r->rows);
        if (!r->row)
            return no_memory(r);
        r->row->target.value = 0;
        r->row->weight = 1;
        r->row->line = (uint32_t)r->t->line;
        status = ls_table_row(r->t, r->columns, take_field, r);
        if (status == LS_OK)
            status = finish_row(r);
        if (status == LS_OK)
            status = ls_table_has_row(r->t, &more);
    }
    if (status == LS_OK && r->seen == 0)
        status = ls_table_fail(r->t, "expected rows below the header, found none");
    if (status == LS_OK)
        ls_unknown_rows_tell_zeroed(&r->unknown, r->t->path, r->seen);
    if (status == LS_OK && r->format->labelled)
        status = ls_unknown_rows_tell_left_out(
            &r->unknown, r->t->path, r->seen,
            r->format->is_training
                ? "leave out such columns (data.drop), or count texts that no training row has as "
                  "none of their columns' texts (data.unknown \"zeros\")"
                : NULL,
            r->err);
    return status;
}

/* Copies the rows to the dataset, from the last to the first, and frees each block after its rows
 * are copied. */
static void fill_rows(reading *r, ls_resident *to)
{
    const size_t features = (size_t)r->format->prep->features;
    for (size_t i = r->rows.rows; i-- > 0;) {
        ls_row_blocks_cut(&r->rows, i + 1);
        const read_row *row = ls_row_blocks_at(&r->rows, i);
        to->line[i] = row->line;
        memcpy(to->values + i * features, row->ready, features * sizeof *row->ready);
        if (r->format->labelled && r->format->targets) {
            to->exact[i] = row->target.value;
            to->targets[i] = (float)row->target.value;
        } else if (r->format->labelled)
            to->labels[i] = row->target.label;
        if (to->weights)
            to->weights[i] = row->weight;
    }
}

/* Tells the dataset which rows cannot be predicted, or how many rows were left out. */
static void give_unknown(reading *r, ls_resident *to)
{
    to->unknown = r->unknown;
    r->unknown = (ls_unknown_rows){0};
    if (r->format->labelled)
        to->base.info.left_out = (uint32_t)to->unknown.count;
    else if (to->unknown.count > 0)
        to->base.info.unknown = &to->unknown;
}

static int hand_over(reading *r, ls_dataset **out)
{
    char sha256[LS_SHA256_HEX];
    ls_resident *made = NULL;
    const size_t bytes = (size_t)r->format->prep->features * sizeof(float);
    const ls_host *host = r->format->host;
    int status = ls_table_end(r->t, sha256);
    if (status)
        return status;
    float *values =
        r->rows.rows > SIZE_MAX / bytes ? NULL : ls_alloc_unset(host, r->rows.rows * bytes);
    if (!values)
        return no_memory(r);
    status = ls_new_rows_create(&made, r->format, "csv", r->t->path, (uint32_t)r->rows.rows, values,
                                r->err);
    if (!made) {
        ls_free(host, values);
        return status;
    }
    *out = &made->base;
    made->line = ls_alloc_array(host, r->rows.rows, sizeof *made->line);
    if (!made->line)
        return no_memory(r);
    if (r->format->labelled && r->format->targets)
        status = ls_resident_take_exact(made, r->err);
    if (status == LS_OK && r->weighted)
        status = ls_resident_take_weights(made, NULL, r->err);
    if (status)
        return status;
    fill_rows(r, made);
    memcpy(made->base.info.images_sha256, sha256, sizeof sha256);
    give_unknown(r, made);
    return status;
}

static int check_model(const reading *r)
{
    const ls_input_format *format = r->format;
    if (format->prep->kind != LS_PREP_TABLE)
        return ls_fail(r->err, LS_EUNSUPPORTED,
                       "%.300s: the model reads %s, and this is a table; name %s", r->t->path,
                       format->prep->kind == LS_PREP_IMAGES ? "pictures" : "arrays",
                       format->prep->kind == LS_PREP_IMAGES ? "pictures or folders of them"
                                                            : ".npy files of them");
    if (format->labelled && (!target_of(format) || format->targets > 1))
        return ls_fail(r->err, LS_EUNSUPPORTED,
                       "%.300s: the file of weights is of an older version and does not name the "
                       "target column; name the directory of the run instead",
                       r->t->path);
    return LS_OK;
}

static int read_table(reading *r, ls_dataset **out)
{
    int status = check_model(r);
    if (status == LS_OK)
        status = find_class_names(r);
    if (status == LS_OK)
        status = read_header(r);
    if (status == LS_OK)
        status = read_rows(r);
    return status ? status : hand_over(r, out);
}

static int read_and_close(ls_dataset **out, const ls_input_format *format, ls_table *t,
                          ls_error *err)
{
    reading r = {.format = format,
                 .t = t,
                 .rows = {.host = format->host},
                 .unknown = {.host = format->host},
                 .err = err};
    int status = read_table(&r, out);
    ls_prep_free(r.classes);
    ls_free(format->host, r.column);
    ls_free(format->host, r.raw);
    ls_row_blocks_free(&r.rows);
    ls_unknown_rows_free(&r.unknown);
    ls_table_close(t);
    if (status) {
        ls_dataset_close(*out);
        *out = NULL;
    }
    return status;
}

/* Reads a table from `text`, or, if `text` is NULL, from the file `name`. */
static int read_csv(ls_dataset **out, const ls_input_format *format, const char *name,
                    const char *text, size_t bytes, ls_error *err)
{
    ls_table *t;
    /* the decimal point is '.' whatever the host's locale */
    ls_c_locale locale = ls_c_locale_enter();
    *out = NULL;
    int status = text ? ls_table_read(&t, name, text, bytes, format->separator, format->host, err)
                      : ls_table_open(&t, name, format->separator, format->host, err);
    if (status == LS_OK)
        status = read_and_close(out, format, t, err);
    ls_c_locale_leave(locale);
    /* names and fields can contain any bytes, and can be truncated within a character */
    return status;
}

int ls_new_rows_read_csv(ls_dataset **out, const ls_input_format *format, const char *name,
                         const char *text, size_t bytes, ls_error *err)
{
    return read_csv(out, format, name, text ? text : "", bytes, err);
}

int ls_new_rows_open_csv(ls_dataset **out, const ls_input_format *format, const char *path,
                         ls_error *err)
{
    return read_csv(out, format, path, NULL, 0, err);
}
