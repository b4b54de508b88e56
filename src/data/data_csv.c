/* SPDX-License-Identifier: MIT */
/* {"name": "csv", "path": FILE, "target": COLUMN}: a table (data/table.h) with a header. The target
 * is a class, which is the text in the column COLUMN; or, with "labels": "values", a number. The
 * other columns form the row.
 *
 * A column whose first value is a date has dates, which become numbers (csv_dates.c).
 *
 * A column whose first value is a number is a column of numbers: all its values must be numbers,
 * and it becomes one float. Any other column, and one named in data.categorical, is one of texts,
 * and becomes one float for each different text: 1 for that of the row, 0 for the others.
 * prep/number.h defines missing values and the forms of numbers.
 *
 * The test table is read like new rows of a trained model (new_rows.c), by the preparation that was
 * computed from the training table. */
#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "data/csv.h"
#include "data/new_rows.h"
#include "prep/level.h"
#include "json/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* check_texts refuses a column of texts as a mistaken column of numbers if at least this many
     * of its different texts are numbers, and these are more than three quarters of them. */
    NUMBERS_AMONG_TEXTS = 10,
    NUMBER_BYTES = 17, /* a longer number does not count among these: it is more likely a code */
    /* limit of the number of floats in all rows; does not apply if the rows have no more floats
     * than the table has fields */
    VALUES = 1 << 30,
    /* a target with more different numbers than this is refused, unless data.labels says that they
     * are classes */
    CLASSES_OF_NUMBERS = 256
};

/* ---- columns of the training table ----------------------------------------------------------- */

int ls_csv_measure(ls_csv *c, size_t rows)
{
    const ls_data_keys *k = &c->o->spec->keys;
    const size_t n = (size_t)c->columns;
    double *sum = ls_alloc_array(c->o->host, 3 * n, sizeof *sum), *squares = sum + n,
           *count = squares + n;
    if (!sum)
        return ls_csv_no_memory(c);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t r = 0; r < rows; r++) {
            const float *cell = ls_row_blocks_at(&c->cells, r);
            for (size_t i = 0; i < n; i++) {
                const ls_csv_column *at = &c->column[i];
                const double v = at->slot < 0 ? (double)NAN : ls_csv_number(at, cell);
                if (!isfinite(v))
                    continue;
                c->column[i].least = count[i] > 0 ? fmin(at->least, v) : v;
                c->column[i].most = count[i] > 0 ? fmax(at->most, v) : v;
                count[i] += pass == 0;
                sum[i] += pass == 0 ? v : 0;
                squares[i] += pass == 1 ? (v - at->mean) * (v - at->mean) : 0;
            }
        }
        for (size_t i = 0; pass == 0 && i < n; i++)
            c->column[i].mean = count[i] > 0 ? sum[i] / count[i] : 0;
    }
    for (size_t i = 0; i < n; i++) {
        ls_csv_column *at = &c->column[i];
        const bool zeros = k->missing == LS_MISSING_ZERO && count[i] < (double)rows;
        at->deviation = squares[i] > 0 ? sqrt(squares[i] / count[i]) : 1;
        at->constant = at->least == at->most && (!zeros || at->least == 0);
    }
    ls_free(c->o->host, sum);
    return LS_OK;
}

/* Returns the number of floats that column `i` contributes to a row. */
static int width_of(const ls_csv *c, int i)
{
    const ls_csv_column *at = &c->column[i];
    if (i == c->target || i == c->weight || at->kind == LS_CSV_DROPPED)
        return 0;
    return at->kind == LS_CSV_TEXT ? at->levels.count : at->kind == LS_CSV_DATE ? at->parts : 1;
}

static const char *level_text(const ls_csv_column *at, int place)
{
    return at->levels.level[at->levels.sorted[place]].text;
}

/* Returns the decimal separator to store in the preparation: a comma, or a point if commas
 * separated thousands; 0: not known. */
static char known_decimal(const ls_csv_column *at)
{
    if (at->decimal)
        return at->decimal;
    return at->forms & (LS_FORM_COMMA_GROUPS | LS_FORM_COMMA_OR_GROUP) ? '.' : '\0';
}

/* Returns how the levels of a column are compared, to be stored in the preparation. */
static ls_level_rule rule_of(const ls_csv_column *at)
{
    if (at->kind == LS_CSV_TEXT && at->levels.codes)
        return LS_LEVELS_CODES;
    for (int i = 0; at->kind == LS_CSV_TEXT && i < at->levels.count; i++)
        if (ls_level_was_rounded(at->levels.level[i].text))
            return LS_LEVELS_DIGITS;
    return LS_LEVELS_NUMBERS;
}

/* Returns the deviation of a column of numbers, by which they are scaled; INFINITY: the column is
 * constant (prep.h). */
static double deviation_of(const ls_csv_column *at)
{
    return at->constant ? (double)INFINITY : at->deviation;
}

/* Adds a column to the preparation, with the replacement for missing values and the scale of
 * numbers, both computed from the training rows. */
static int prepare_column(ls_csv *c, ls_csv_column *at)
{
    const ls_data_keys *k = &c->o->spec->keys;
    const bool is_text = at->kind == LS_CSV_TEXT;
    const int levels = is_text ? at->levels.count : 0;
    const char **text = ls_alloc_array(c->o->host, (size_t)levels + 1, sizeof *text);
    if (!text)
        return ls_csv_no_memory(c);
    for (int i = 0; i < levels; i++)
        text[i] = level_text(at, i);
    int status = ls_prep_add(c->prep, at->name, text, levels, c->o->err);
    ls_free(c->o->host, text);
    if (status)
        return status;
    at->prep_column = c->prep->columns - 1;
    ls_prep_column *p = &c->prep->column[at->prep_column];
    p->allows_missing = k->missing != LS_MISSING_REFUSED;
    p->rule = rule_of(at);
    if (is_text)
        return LS_OK;
    p->wide = at->wide;
    p->missing = k->missing != LS_MISSING_MEAN ? 0 : at->wide ? at->mean : (double)(float)at->mean;
    p->scaled = k->standardize != 0;
    p->mean = p->scaled ? at->mean : 0;
    p->deviation = p->scaled ? deviation_of(at) : 1;
    p->clip = p->scaled ? k->clip : 0;
    p->decimal = known_decimal(at);
    return LS_OK;
}

static int prepare(ls_csv *c)
{
    int status = ls_prep_create(&c->prep, LS_PREP_TABLE, c->o->host, c->o->err);
    if (status)
        return status;
    const ls_csv_column *target = &c->column[c->target];
    c->prep->latin1 = c->o->spec->keys.latin1 != 0;
    c->prep->unknown = (ls_prep_unknown)c->o->spec->keys.unknown;
    c->prep->target_decimal = target->kind == LS_CSV_NUMBER ? known_decimal(target) : '\0';
    c->prep->target_rule = rule_of(target);
    c->prep->target = ls_strdup(c->o->host, target->name);
    if (!c->prep->target)
        return ls_csv_no_memory(c);
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        if (width_of(c, i) > 0)
            status = c->column[i].kind == LS_CSV_DATE ? ls_csv_prepare_dates(c, &c->column[i])
                                                      : prepare_column(c, &c->column[i]);
    return status;
}

/* Checks the target column if it has classes. With LS_LABELS_AUTO, numbers are taken as classes if
 * they are whole and few. For other numbers it fails, and the message tells the user to set
 * data.labels. */
static int check_classes(const ls_csv *c, uint32_t rows)
{
    const ls_csv_column *target = &c->column[c->target];
    static const unsigned commas = LS_FORM_COMMA | LS_FORM_COMMA_OR_GROUP | LS_FORM_COMMA_GROUPS;
    const ls_level *l = target->levels.level;
    int fraction = -1;
    if (target->levels.count < 2)
        return ls_fail(
            c->o->err, LS_EDATA,
            "%.300s: column \"%.60s\": expected at least two classes, found \"%.60s\" in "
            "every row; add rows of another class, or name another column in "
            "data.target",
            c->t->path, target->name, target->levels.count ? l[0].text : "");
    if (c->o->spec->keys.labels != LS_LABELS_AUTO)
        return LS_OK;
    for (int i = 0; i < target->levels.count; i++) {
        double value = 0;
        unsigned form = 0;
        if (!ls_number_read(l[i].text, strlen(l[i].text), '\0', &value, &form))
            return LS_OK;
        if (fraction < 0 && (value != floor(value) || form & commas))
            fraction = i;
    }
    if (fraction < 0 && target->levels.count <= CLASSES_OF_NUMBERS)
        return LS_OK;
    return ls_dataset_refuse(
        c->o, "data.labels",
        "the target \"%.60s\" has %d different numbers in %u rows, such as %.20s; set "
        "data.labels to \"values\" to learn them as numbers, or to \"classes\" for a "
        "class each",
        target->name, target->levels.count, (unsigned)rows, l[fraction < 0 ? 0 : fraction].text);
}

/* Refuses a column of texts most of which are numbers, unless a key names the column. Its first
 * value is probably a word for a missing number that the program does not know. */
static int check_texts(const ls_csv *c)
{
    for (int i = 0; i < c->columns; i++) {
        const ls_csv_column *at = &c->column[i];
        const ls_levels *l = &at->levels;
        double value;
        int numbers = 0;
        for (int k = 0; at->kind == LS_CSV_TEXT && !at->named && !at->digits && k < l->count; k++)
            numbers += ls_field_is_number(l->level[k].text, &value) &&
                       strlen(l->level[k].text) <= NUMBER_BYTES;
        if (numbers >= NUMBERS_AMONG_TEXTS && numbers > l->count / 4 * 3)
            return ls_fail(
                c->o->err, LS_EDATA,
                "%.300s: column \"%.60s\": its first value is \"%.40s\", and %d of its %d "
                "different texts are numbers; leave the fields of missing numbers empty, or name "
                "the column in data.categorical",
                c->t->path, at->name, l->level[0].text, numbers, l->count);
    }
    return LS_OK;
}

static int learn_columns(ls_csv *c, uint32_t rows)
{
    int64_t n = 0;
    int status = ls_dataset_check_limit(c->o, rows, c->t->path);
    for (int i = 0; i < c->columns; i++)
        n += width_of(c, i);
    if (n < 1)
        return ls_fail(
            c->o->err, LS_EDATA,
            "%.300s:1: expected a column beside the target \"%.60s\" to learn from, but %s",
            c->t->path, c->column[c->target].name,
            c->columns > 1 ? "all others are left out" : "there is no other");
    if (n > LS_PREP_FEATURES)
        return ls_fail(c->o->err, LS_EDATA,
                       "%.300s:1: expected columns with 1 to %d numbers in all, found %lld",
                       c->t->path, LS_PREP_FEATURES, (long long)n);
    c->features = (int)n;
    if (status == LS_OK && c->column[c->target].kind == LS_CSV_TEXT)
        status = check_classes(c, rows);
    if (status == LS_OK)
        status = check_texts(c);
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        if (c->column[i].kind == LS_CSV_TEXT && !ls_levels_sort(&c->column[i].levels, c->o->host))
            status = ls_csv_no_memory(c);
    return status ? status : prepare(c);
}

/* ---- rows from cells ------------------------------------------------------------------------- */

static int fill_number(const ls_csv *c, const ls_csv_column *at, double value, float *to)
{
    const ls_prep_column *column = &c->prep->column[at->prep_column];
    /* A missing number has a replacement here, because read_cell (csv_cells.c) refuses a missing
     * number without one. */
    return ls_prep_number(column, value, to)
               ? LS_OK
               : ls_fail(c->o->err, LS_EDATA,
                         "%.300s: column \"%.60s\": expected numbers that a float holds once they "
                         "are scaled, found %g",
                         c->t->path, at->name, value);
}

/* Writes the parts of a date to a row. */
static int fill_date(const ls_csv *c, const ls_csv_column *at, double moment, float *to)
{
    const ls_prep_column *column = &c->prep->column[at->prep_column];
    for (int k = 0; k < column->parts; k++)
        if (!ls_prep_number(&column->part[k],
                            ls_date_part_of(column->part[k].is, moment, column->since), &to[k]))
            return ls_fail(c->o->err, LS_EDATA, "%.300s: column \"%.60s\": a date is missing",
                           c->t->path, at->name);
    return LS_OK;
}

static int fill_row(const ls_csv *c, ls_resident *r, size_t row)
{
    int status = LS_OK;
    const float *cell = ls_row_blocks_at(&c->cells, row);
    float *to = r->values + row * (size_t)c->features;
    for (int i = 0; status == LS_OK && i < c->columns; i++) {
        const ls_csv_column *at = &c->column[i];
        const bool text = at->kind == LS_CSV_TEXT;
        if (at->slot < 0)
            continue;
        const double v = ls_csv_number(at, cell);
        if (i == c->target && text) {
            r->labels[row] = at->levels.level[(int)v].position;
        } else if (i == c->target) {
            if (at->wide)
                r->exact[row] = v;
            r->targets[row] = (float)v;
        } else if (i == c->weight) {
            r->weights[row] = (float)v;
        } else if (text) {
            memset(to, 0, (size_t)at->levels.count * sizeof *to);
            if (!isnan(v))
                to[at->levels.level[(int)v].position] = 1;
            to += at->levels.count;
        } else if (at->kind == LS_CSV_DATE) {
            status = fill_date(c, at, v, to);
            to += at->parts;
        } else {
            status = fill_number(c, at, v, to++);
        }
    }
    return status;
}

/* Fills the rows of the dataset, from the last to the first, and frees each block of cells after
 * its rows are filled. */
static int fill_rows(ls_csv *c, ls_resident *r)
{
    int status = LS_OK;
    for (size_t row = r->base.info.rows; status == LS_OK && row-- > 0;) {
        ls_row_blocks_cut(&c->cells, row + 1);
        status = fill_row(c, r, row);
    }
    return status;
}

/* Refuses a table whose rows need too much memory. This happens because a column of texts can
 * become a thousand floats in every row. */
static int check_values(const ls_csv *c, size_t rows)
{
    const size_t n = rows * (size_t)c->features;
    if (n <= VALUES || n <= rows * (size_t)c->columns)
        return LS_OK;
    return ls_fail(
        c->o->err, LS_EDATA,
        "%.300s: expected at most %d numbers in all rows, found %zu rows of %d; name columns of "
        "many different texts in data.drop",
        c->t->path, VALUES, rows, c->features);
}

static int name_classes(const ls_csv *c, ls_resident *r)
{
    const ls_csv_column *target = &c->column[c->target];
    const char **name = ls_alloc_array(c->o->host, (size_t)target->levels.count, sizeof *name);
    for (int i = 0; name && i < target->levels.count; i++)
        name[i] = level_text(target, i);
    int status = name ? ls_resident_name_classes(r, name, c->o->err) : ls_csv_no_memory(c);
    ls_free(c->o->host, name);
    return status;
}

/* Writes the meaning of one float of a row as JSON (ls_dataset_info.features). For a column of
 * texts, `nth` is the index of the text for which the float is 1. */
static void write_feature(ls_json_writer *w, const ls_csv *c, const ls_csv_column *at, int nth)
{
    ls_json_open_object(w, NULL);
    const bool date = at->kind == LS_CSV_DATE;
    ls_json_put_string(w, "column", at->name);
    if (date)
        ls_json_put_string(w, "part", ls_date_part_names[at->part[nth].is]);
    if (at->kind == LS_CSV_TEXT)
        ls_json_put_string(w, "is", level_text(at, nth));
    else if (c->o->spec->keys.standardize) {
        ls_json_put_double(w, "mean", date ? at->part[nth].mean : at->mean);
        ls_json_put_double(w, "deviation", date ? at->part[nth].deviation : deviation_of(at));
        if (c->o->spec->keys.clip > 0)
            ls_json_put_double(w, "clip", c->o->spec->keys.clip);
    }
    ls_json_close(w);
}

static int tell_features(const ls_csv *c, ls_resident *r)
{
    ls_json_writer w;
    if (c->features > LS_FEATURES_TOLD)
        return LS_OK;
    ls_json_writer_init(&w, 0, c->o->host);
    ls_json_open_array(&w, NULL);
    for (int i = 0; i < c->columns; i++)
        for (int k = 0; k < width_of(c, i); k++)
            write_feature(&w, c, &c->column[i], k);
    ls_json_close(&w);
    size_t length;
    const char *text = ls_json_writer_text(&w, &length, NULL);
    const bool told = text && length <= LS_FEATURES_BYTES;
    r->base.info.features = r->features = told ? ls_strdup(c->o->host, text) : NULL;
    ls_json_writer_fini(&w);
    return r->features || (text && !told) ? LS_OK : ls_csv_no_memory(c);
}

static int create_split(const ls_csv *c, ls_resident **out)
{
    const ls_csv_column *target = &c->column[c->target];
    const bool classes = target->kind == LS_CSV_TEXT;
    const ls_host *host = c->o->host;
    ls_dataset_info info = ls_dataset_split_info(c->o, false, c->t->path, (uint32_t)c->cells.rows);
    info.channels = c->features;
    info.height = info.width = 1;
    info.classes = classes ? target->levels.count : 0;
    info.targets = classes ? 0 : 1;
    info.row_type = LS_ROW_F32;
    int status = check_values(c, info.rows);
    if (status)
        return status;
    const size_t row = (size_t)c->features * sizeof(float);
    float *values = info.rows > SIZE_MAX / row ? NULL : ls_alloc_unset(host, info.rows * row);
    status =
        values ? ls_resident_create_mapped(out, &info, values, NULL, 0, c->o) : ls_csv_no_memory(c);
    if (status) {
        ls_free(host, values);
        return status;
    }
    status = classes ? name_classes(c, *out) : LS_OK;
    if (status == LS_OK && !classes && target->wide)
        status = ls_resident_take_exact(*out, c->o->err);
    if (status == LS_OK && c->weight >= 0)
        status = ls_resident_take_weights(*out, NULL, c->o->err);
    if (status == LS_OK)
        status = ls_csv_summarise(c, *out);
    return status ? status : tell_features(c, *out);
}

/* Reads all cells of the table. The columns are created when the header is read for the first time;
 * every later time it is only compared with them. */
static int read_cells(ls_csv *c)
{
    c->must_reread = false;
    ls_row_blocks_free(&c->cells);
    int status = !c->column ? ls_csv_read_header(c) : ls_csv_check_header(c);
    return status ? status : ls_csv_read_rows(c);
}

/* Stores the separator that data.separator names; 0: none is named. */
static int named_separator(char *out, const ls_opening *o)
{
    const char *wanted = o->spec->keys.separator;
    *out = wanted ? ls_separator_of(wanted) : '\0';
    if (!wanted || *out)
        return LS_OK;
    return ls_dataset_refuse(
        o, "data.separator",
        "expected \",\", \";\", \"tab\", \"bar\" or \"space\", found \"%.20s\"", wanted);
}

static int open_table(ls_csv *c, const char *path)
{
    char separator;
    int status = named_separator(&separator, c->o);
    if (status == LS_OK)
        status = ls_table_open(&c->t, path, separator, c->o->host, c->o->err);
    if (status == LS_OK)
        c->t->latin1 = c->o->spec->keys.latin1 != 0;
    return status;
}

/* Logs what was detected about the table's format. */
static void log_form(const ls_csv *c)
{
    const ls_data_keys *k = &c->o->spec->keys;
    const char *comma = NULL;
    for (int i = 0; i < c->columns && !comma; i++)
        if (c->column[i].kind == LS_CSV_NUMBER && c->column[i].decimal == ',')
            comma = c->column[i].name;
    if (c->t->separator != ',' && !k->separator)
        ls_log(c->o->host, LS_LOG_INFO, "%.300s: the separator of fields is %s (data.separator)",
               c->t->path, ls_separator_name(c->t->separator));
    ls_csv_log_dates(c);
    if (comma && k->decimal == LS_DECIMAL_AUTO)
        ls_log(c->o->host, LS_LOG_INFO,
               "%.300s: numbers have a decimal comma, as in column \"%.60s\" (data.decimal)",
               c->t->path, comma);
}

static int read_table(ls_csv *c, ls_dataset **out)
{
    char sha256[LS_SHA256_HEX];
    ls_resident *r = NULL;
    int status = ls_table_end(c->t, sha256);
    if (status == LS_OK)
        status = learn_columns(c, (uint32_t)c->cells.rows);
    if (status == LS_OK)
        log_form(c);
    if (status == LS_OK)
        status = create_split(c, &r);
    *out = r ? &r->base : NULL;
    if (status == LS_OK)
        status = fill_rows(c, r);
    if (status == LS_OK)
        memcpy(r->base.info.images_sha256, sha256, sizeof sha256);
    return status;
}

/* Reads a table into a dataset. Reads the file once more as long as c->must_reread is set. */
static int read_file(ls_csv *c, const char *path, ls_dataset **out)
{
    int status = LS_OK;
    do {
        ls_table_close(c->t);
        c->t = NULL;
        status = open_table(c, path);
        if (status == LS_OK)
            status = read_cells(c);
    } while (status == LS_OK && c->must_reread);
    if (status == LS_OK)
        status = read_table(c, out);
    ls_row_blocks_free(&c->cells);
    ls_table_close(c->t);
    c->t = NULL;
    return status;
}

static void free_columns(ls_csv *c)
{
    for (int i = 0; i < c->columns; i++) {
        ls_levels_free(&c->column[i].levels, c->o->host);
        ls_free(c->o->host, c->column[i].name);
    }
    ls_free(c->o->host, c->column);
    ls_prep_free(c->prep);
}

/* Moves the preparation to the training split, which then owns it. Fails if two names differ only
 * in bytes that are invalid UTF-8: in the file of weights each such byte becomes U+FFFD, and the
 * two names become equal. */
static int hand_over(ls_csv *c, ls_dataset *train)
{
    ls_error why;
    ls_resident *r = (ls_resident *)train;
    const char *const *class_name = train->info.class_name;
    const char *cure = "; they differ only in bytes that are not UTF-8: save the table as UTF-8";
    int status = ls_prep_finish(c->prep, &why);
    if (status == LS_OK && ls_prep_find(c->prep, c->prep->target) >= 0)
        status =
            ls_fail(&why, LS_EDATA, "column \"%.60s\": expected another name than the target's",
                    c->prep->target);
    if (status == LS_OK && class_name) {
        cure = ""; /* the message of ls_prep_check_names has one */
        status = ls_prep_check_names(class_name, train->info.classes, "class", c->o->host, &why);
    }
    if (status)
        return ls_fail(c->o->err, status, "%.200s: %.300s%s", train->info.source, why.text,
                       status == LS_EDATA ? cure : "");
    r->base.info.prep = r->prep = c->prep;
    c->prep = NULL;
    return LS_OK;
}

/* Opens the training and the test table as rows of a trained model. Nothing is computed from
 * them. */
static int open_as(ls_dataset *split[2], const ls_opening *o)
{
    ls_input_format format = *o->spec->keys.input_format;
    format.labelled = true;
    format.weight = o->spec->keys.weight;
    format.host = o->host;
    format.split = "train";
    format.limit = o->spec->limit;
    int status = ls_new_rows_open_csv(&split[0], &format, o->spec->path, o->err);
    format.split = "test";
    format.limit = 0;
    if (status == LS_OK && o->spec->keys.test_path)
        return ls_new_rows_open_csv(&split[1], &format, o->spec->keys.test_path, o->err);
    return status ? status : ls_dataset_none(&split[1], &split[0]->info, o);
}

/* Opens the test table as rows of the model that is to be trained: as new rows of the trained model
 * are read. */
static int open_test(ls_dataset **out, const ls_dataset *train, const ls_opening *o)
{
    const ls_dataset_info *info = &train->info;
    ls_input_format as = {.prep = info->prep,
                          .channels = info->channels,
                          .height = 1,
                          .width = 1,
                          .floats = true,
                          .classes = info->classes,
                          .targets = info->targets,
                          .class_name = info->class_name,
                          .weight = o->spec->keys.weight,
                          .labelled = true,
                          .is_training = true,
                          .split = "test",
                          .host = o->host};
    int status = named_separator(&as.separator, o);
    return status ? status : ls_new_rows_open_csv(out, &as, o->spec->keys.test_path, o->err);
}

static int open_csv(ls_dataset *split[2], const ls_opening *o)
{
    const ls_dataset_spec *spec = o->spec;
    ls_csv c = {.o = o, .cells = {.host = o->host}};
    if (!spec->path)
        return ls_dataset_refuse(o, "data.path", "expected the table's file");
    if (spec->keys.input_format)
        return open_as(split, o);
    /* the decimal point is '.' whatever the host's locale */
    ls_c_locale locale = ls_c_locale_enter();
    int status = read_file(&c, spec->path, &split[0]);
    ls_c_locale_leave(locale);
    if (status == LS_OK)
        status = hand_over(&c, split[0]);
    free_columns(&c);
    if (status == LS_OK && spec->keys.test_path)
        return open_test(&split[1], split[0], o);
    /* names and fields can contain any bytes, and can be truncated within a character */
    return status ? status : ls_dataset_none(&split[1], &split[0]->info, o);
}

const ls_dataset_kind ls_dataset_csv = {
    {"csv", 0, 0, 0, 0, NULL,
     "test_path target weight categorical drop separator decimal encoding standardize clip "
     "standardize_target target_mean target_std labels missing unknown",
     LS_DATA_TABLE},
    open_csv,
    NULL};
