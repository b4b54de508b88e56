/* {"name": "csv", "path": FILE, "target": COLUMN}: a table (RFC 4180: a header, fields between commas, those
 * with a comma, a quote or a line's end in quotes). The target is a class, by its text, or with "labels":
 * "values" a number. The other columns make a row: a column whose first value is a number is one, all its
 * values must be; any other, and those that data.categorical names, is as many numbers as it has different
 * texts, one of them 1 and the rest 0. Missing is what is empty, NA, NaN, nan, null or ?. */
#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "data/arrays.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FIELD = 4096,     /* most bytes of a field */
    COLUMNS = 65536,  /* most columns */
    LEVELS = 1000,    /* most different texts of a column of the row */
    CLASSES = 1 << 16 /* most of the target */
};

/* ---- fields ------------------------------------------------------------------------------------- */

/* The file, and where in it the reading is. */
typedef struct table {
    const char *path, *text;
    size_t size, at, line;
    char field[FIELD]; /* the field that was read, trimmed */
    bool ends_row;     /* it was its row's last */
    ls_array map;
    ls_error *err;
} table;

static int fail_here(const table *t, const char *text)
{
    return ls_fail(t->err, LS_EDATA, "%.300s:%zu: %s", t->path, t->line, text);
}

/* The text of a field in quotes: two quotes are one. */
static int read_quoted(table *t, size_t *n)
{
    const size_t begin = t->line;
    for (t->at++; t->at < t->size; t->at++) {
        const char c = t->text[t->at];
        t->line += c == '\n';
        if (c == '"' && (t->at + 1 == t->size || t->text[t->at + 1] != '"')) {
            t->at++;
            return LS_OK;
        }
        t->at += c == '"';
        if (*n + 1 == FIELD || c == '\0')
            return fail_here(t,
                             c ? "expected a field of less than 4096 bytes; does a quote not end?"
                               : "expected text, found a zero byte");
        t->field[(*n)++] = c;
    }
    t->line = begin;
    return fail_here(t, "expected a quote that ends the field that begins here");
}

static int read_plain(table *t, size_t *n)
{
    for (; t->at < t->size && !strchr(",\n", t->text[t->at]); t->at++) {
        if (t->text[t->at] == '\r' && t->at + 1 < t->size && t->text[t->at + 1] == '\n')
            continue;
        if (*n + 1 == FIELD)
            return fail_here(t, "expected a field of less than 4096 bytes");
        t->field[(*n)++] = t->text[t->at];
    }
    if (t->at < t->size && t->text[t->at] == '\0')
        return fail_here(t, "expected text, found a zero byte");
    return LS_OK;
}

/* The next field; t->line is then the line on which it ends. The end of the file ends a row, too. */
static int read_field(table *t)
{
    size_t n = 0, first = 0;
    const bool quoted = t->at < t->size && t->text[t->at] == '"';
    int status = quoted ? read_quoted(t, &n) : read_plain(t, &n);
    if (status)
        return status;
    if (quoted && t->at < t->size && t->text[t->at] == '\r')
        t->at++;
    if (t->at < t->size && (t->text[t->at] == '\0' || !strchr(",\n", t->text[t->at])))
        return fail_here(t, "expected a comma or the line's end behind a quoted field");
    while (!quoted && n > 0 && (t->field[n - 1] == ' ' || t->field[n - 1] == '\r'))
        n--;
    while (!quoted && first < n && t->field[first] == ' ')
        first++;
    memmove(t->field, t->field + first, n - first);
    t->field[n - first] = '\0';
    t->ends_row = t->at == t->size || t->text[t->at] == '\n';
    return LS_OK;
}

/* Past what ended the field. */
static void step(table *t)
{
    t->line += t->at < t->size && t->text[t->at] == '\n';
    t->at += t->at < t->size;
}

/* Past empty lines: is there another row? */
static bool has_row(table *t)
{
    while (t->at < t->size && strchr("\r\n", t->text[t->at]) && t->text[t->at])
        step(t);
    return t->at < t->size;
}

/* ---- values ------------------------------------------------------------------------------------- */

static bool is_missing(const char *text)
{
    static const char *const word[] = {"", "NA", "NaN", "nan", "null", "?"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (strcmp(text, word[i]) == 0)
            return true;
    return false;
}

/* A decimal number; one that is too large is infinite. */
static bool is_number(const char *text, double *value)
{
    char *end;
    const size_t n = strspn(text, "0123456789+-.eE");
    *value = strtod(text, &end);
    return n > 0 && text[n] == '\0' && *end == '\0';
}

/* A text that a column has. */
typedef struct level {
    char *text;
    double value;
    bool number;
} level;

/* Numbers by their value, before texts by their bytes. */
static int compare(const level *a, const level *b)
{
    if (a->number != b->number)
        return a->number ? -1 : 1;
    if (a->number && a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return strcmp(a->text, b->text);
}

typedef enum column_kind { UNKNOWN, NUMBER, TEXT, DROPPED } column_kind;

typedef struct column {
    char *name;
    column_kind kind;
    level *level; /* TEXT: sorted */
    int levels, room;
    double mean, deviation; /* NUMBER */
} column;

/* Where a text is, or would be. */
static int find_level(const column *c, const level *wanted, bool *there)
{
    int lo = 0, hi = c->levels;
    *there = false;
    while (lo < hi && !*there) {
        const int middle = lo + (hi - lo) / 2, order = compare(&c->level[middle], wanted);
        *there = order == 0;
        if (order < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return *there ? hi : lo;
}

/* ---- the table's columns ------------------------------------------------------------------------- */

typedef struct csv {
    const ls_dataset_kind *kind;
    const ls_dataset_spec *spec;
    const ls_host *host;
    ls_error *err;
    column *column;
    int columns, target;
    int features; /* of a row */
    uint32_t rows[2];
} csv;

static int no_memory(const csv *c)
{
    return ls_fail(c->err, LS_ENOMEM, "csv: out of memory");
}

static int fail_field(const csv *c, const table *t, const column *at, const char *expected)
{
    char text[80];
    snprintf(text, sizeof text, "%.70s", t->field);
    ls_json_tidy(text);
    ls_fail(c->err, LS_EDATA, "%.300s:%zu: column \"%.60s\": expected %s, found \"%s\"", t->path,
            t->line, at->name, expected, text);
    return LS_EDATA;
}

static int fail_missing(const csv *c, const table *t, int i)
{
    return fail_field(c, t, &c->column[i],
                      i == c->target
                          ? "a target in each row"
                          : "a value; data.on_nan says what else to do: \"zero\" or \"mean\"");
}

/* A field that is there: its number, or its text's place. */
static int read_value(csv *c, const table *t, int i, double *value)
{
    const column *at = &c->column[i];
    level wanted = {.text = (char *)(uintptr_t)t->field};
    bool there;
    wanted.number = is_number(t->field, &wanted.value);
    *value = wanted.value;
    if (at->kind != TEXT)
        return !wanted.number                  ? fail_field(c, t, at,
                                                            "a number, as before; if it has texts name it in "
                                                                             "data.categorical")
               : isfinite((float)wanted.value) ? LS_OK
                                               : fail_field(c, t, at, "a finite number");
    *value = find_level(at, &wanted, &there);
    return there ? LS_OK : fail_field(c, t, at, "a text that the training rows have, too");
}

/* Is `name` one of those between commas? */
static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

static int add_column(csv *c, const table *t)
{
    const ls_data_keys *k = &c->spec->keys;
    for (int i = 0; i < c->columns; i++)
        if (strcmp(c->column[i].name, t->field) == 0)
            return fail_field(c, t, &c->column[i], "columns of different names");
    column *at = &c->column[c->columns++];
    at->name = ls_strdup(c->host, t->field);
    if (!at->name)
        return no_memory(c);
    if (k->target && strcmp(at->name, k->target) == 0) {
        c->target = c->columns - 1;
        at->kind = k->labels == LS_LABELS_VALUES ? NUMBER : TEXT;
    } else if (is_listed(k->drop, at->name)) {
        at->kind = DROPPED;
    } else if (is_listed(k->categorical, at->name)) {
        at->kind = TEXT;
    }
    return LS_OK;
}

/* Every name of a list must be a column's. */
static int check_list(const csv *c, const char *key, const char *list)
{
    for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const size_t n = strcspn(p, ",");
        bool there = false;
        for (int i = 0; i < c->columns; i++)
            there |= strlen(c->column[i].name) == n && strncmp(c->column[i].name, p, n) == 0;
        if (!there)
            return ls_dataset_refuse(c->spec, key, c->err,
                                     "the table has no column \"%.*s\"; it has %.60s, …",
                                     (int)(n < 60 ? n : 60), p, c->column[0].name);
    }
    return LS_OK;
}

static int read_header(csv *c, table *t)
{
    int status = LS_OK;
    if (t->size >= 3 && memcmp(t->text, "\xEF\xBB\xBF", 3) == 0)
        t->at = 3; /* the mark that spreadsheets begin a file with */
    if (!has_row(t))
        return fail_here(t, "expected a header with the columns' names, found an empty file");
    size_t most = 1;
    for (size_t i = t->at; i < t->size && t->text[i] != '\n'; i++)
        most += t->text[i] == ',';
    if (most > COLUMNS)
        return fail_here(t, "expected at most 65536 columns");
    c->column = ls_alloc_array(c->host, most, sizeof *c->column);
    c->target = -1;
    if (!c->column)
        return no_memory(c);
    do {
        status = read_field(t);
        if (status == LS_OK && (size_t)c->columns == most)
            status = fail_here(t, "expected a header of one line");
        if (status == LS_OK)
            status = add_column(c, t);
        step(t);
    } while (status == LS_OK && !t->ends_row);
    if (status == LS_OK && c->target < 0)
        status = ls_dataset_refuse(
            c->spec, "data.target", c->err,
            "expected the name of a column of %.200s, found \"%.60s\"; it has "
            "%.60s, …",
            t->path, c->spec->keys.target ? c->spec->keys.target : "", c->column[0].name);
    if (status == LS_OK)
        status = check_list(c, "data.drop", c->spec->keys.drop);
    return status ? status : check_list(c, "data.categorical", c->spec->keys.categorical);
}

/* The test table has the same columns. */
static int check_header(const csv *c, table *t)
{
    int status = LS_OK, i = 0;
    if (t->size >= 3 && memcmp(t->text, "\xEF\xBB\xBF", 3) == 0)
        t->at = 3;
    if (!has_row(t))
        return fail_here(t, "expected a header with the columns' names, found an empty file");
    do {
        status = read_field(t);
        if (status == LS_OK && (i == c->columns || strcmp(c->column[i].name, t->field) != 0))
            status = fail_field(c, t, &c->column[i < c->columns ? i : c->columns - 1],
                                "the columns of the training table, in the same order");
        i++;
        if (status == LS_OK && t->ends_row && i < c->columns)
            status = fail_here(t, "expected all columns of the training table");
        step(t);
    } while (status == LS_OK && !t->ends_row);
    return status;
}

/* ---- going through rows -------------------------------------------------------------------------- */

/* The rows of a split under way. */
typedef struct filling {
    ls_resident *to;
    size_t row; /* rows beyond the dataset's are looked at all the same */
    size_t at;  /* of its features */
} filling;

/* What becomes of fields; `take` NULL: they are only counted. */
typedef struct sink {
    int (*take)(csv *c, table *t, int column, filling *filling);
    filling *filling;
} sink;

static int read_row(csv *c, table *t, const sink *s)
{
    int status = LS_OK, i = 0;
    do {
        status = read_field(t);
        if (status == LS_OK && (i == c->columns || (t->ends_row && i + 1 < c->columns)))
            status = ls_fail(c->err, LS_EDATA,
                             "%.300s:%zu: expected %d fields, as the header has, found %s", t->path,
                             t->line, c->columns, i == c->columns ? "more" : "fewer");
        if (status == LS_OK && s->take && c->column[i].kind != DROPPED)
            status = s->take(c, t, i, s->filling);
        i++;
        step(t);
    } while (status == LS_OK && !t->ends_row);
    return status;
}

static int read_rows(csv *c, table *t, const sink *s, uint32_t *rows)
{
    int status = LS_OK;
    for (*rows = 0; status == LS_OK && has_row(t) && *rows < UINT32_MAX - 1; (*rows)++) {
        status = read_row(c, t, s);
        if (s->filling) {
            s->filling->row++;
            s->filling->at = 0;
        }
    }
    if (status == LS_OK && *rows == 0)
        status = fail_here(t, "expected rows below the header, found none");
    return status;
}

/* ---- the first time: what the columns are -------------------------------------------------------- */

static int add_level(csv *c, table *t, int i)
{
    column *at = &c->column[i];
    level new = {.text = t->field};
    bool there;
    new.number = is_number(t->field, &new.value);
    const int place = find_level(at, &new, &there);
    if (there)
        return LS_OK;
    if (at->levels == (i == c->target ? CLASSES : LEVELS))
        return fail_field(c, t, at,
                          i == c->target ? "at most 65536 classes; for numbers set data.labels to "
                                           "\"values\""
                                         : "at most 1000 different texts; name the column in "
                                           "data.drop");
    if (at->levels == at->room) {
        const int room = at->room ? 2 * at->room : 8;
        level *more = ls_alloc_array(c->host, (size_t)room, sizeof *more);
        if (!more)
            return no_memory(c);
        if (at->levels)
            memcpy(more, at->level, (size_t)at->levels * sizeof *more);
        ls_free(c->host, at->level);
        at->level = more;
        at->room = room;
    }
    new.text = ls_strdup(c->host, t->field);
    if (!new.text)
        return no_memory(c);
    memmove(at->level + place + 1, at->level + place, (size_t)(at->levels - place) * sizeof new);
    at->level[place] = new;
    at->levels++;
    return LS_OK;
}

static int learn_field(csv *c, table *t, int i, filling *f)
{
    column *at = &c->column[i];
    double value;
    (void)f;
    if (is_missing(t->field))
        return i == c->target || c->spec->keys.on_nan == LS_NAN_REFUSED ? fail_missing(c, t, i)
                                                                        : LS_OK;
    if (at->kind == UNKNOWN)
        at->kind = is_number(t->field, &value) ? NUMBER : TEXT;
    return at->kind == TEXT ? add_level(c, t, i) : read_value(c, t, i, &value);
}

static int count_features(csv *c, const table *t)
{
    int64_t n = 0;
    for (int i = 0; i < c->columns; i++)
        if (i != c->target && c->column[i].kind != DROPPED)
            n += c->column[i].kind == TEXT ? c->column[i].levels : 1;
    if (n < 1 || n > 1 << 24)
        return ls_fail(c->err, LS_EDATA,
                       "%.300s:1: expected columns that make 1 to %d numbers, found %lld", t->path,
                       1 << 24, (long long)n);
    c->features = (int)n;
    return LS_OK;
}

/* ---- the second time: rows ------------------------------------------------------------------------ */

static int put_target(csv *c, table *t, const filling *f)
{
    double value = 0;
    int status =
        is_missing(t->field) ? fail_missing(c, t, c->target) : read_value(c, t, c->target, &value);
    if (status || f->row >= f->to->base.info.rows)
        return status;
    if (c->column[c->target].kind == TEXT)
        f->to->labels[f->row] = (int32_t)value;
    else
        f->to->targets[f->row] = (float)value;
    return LS_OK;
}

/* A hole is a NaN until all rows are there. */
static int put_feature(csv *c, table *t, int i, filling *f)
{
    const column *at = &c->column[i];
    const bool missing = is_missing(t->field);
    float *to = f->to->values + f->row * (size_t)c->features + f->at;
    double value = (double)NAN;
    int status = LS_OK;
    f->at += at->kind == TEXT ? (size_t)at->levels : 1;
    if (!missing)
        status = read_value(c, t, i, &value);
    else if (c->spec->keys.on_nan == LS_NAN_REFUSED)
        status = fail_missing(c, t, i);
    if (status || f->row >= f->to->base.info.rows)
        return status;
    if (at->kind != TEXT)
        *to = (float)value;
    else if (!missing)
        to[(size_t)value] = 1;
    return LS_OK;
}

static int put_field(csv *c, table *t, int i, filling *f)
{
    return i == c->target ? put_target(c, t, f) : put_feature(c, t, i, f);
}

/* Mean and deviation of a column over the rows that have a value. */
static void measure(column *at, const float *values, size_t rows, size_t features)
{
    double sum = 0, squares = 0;
    size_t n = 0;
    for (size_t r = 0; r < rows; r++)
        if (isfinite(values[r * features])) {
            sum += (double)values[r * features];
            n++;
        }
    at->mean = n ? sum / (double)n : 0;
    for (size_t r = 0; r < rows; r++)
        if (isfinite(values[r * features])) {
            const double d = (double)values[r * features] - at->mean;
            squares += d * d;
        }
    at->deviation = squares > 0 ? sqrt(squares / (double)n) : 1;
}

/* Holes are filled, and columns of numbers brought to one scale, both by the training rows. */
static void finish_columns(csv *c, ls_resident *r, bool test)
{
    const size_t rows = r->base.info.rows, features = (size_t)c->features;
    const ls_data_keys *k = &c->spec->keys;
    size_t at = 0;
    for (int i = 0; i < c->columns; i++) {
        column *col = &c->column[i];
        if (i == c->target || col->kind == DROPPED)
            continue;
        float *values = r->values + at;
        at += col->kind == TEXT ? (size_t)col->levels : 1;
        if (col->kind == TEXT)
            continue;
        if (!test)
            measure(col, values, rows, features);
        for (size_t row = 0; row < rows; row++) {
            float *v = &values[row * features];
            if (isnan(*v))
                *v = k->on_nan == LS_NAN_MEAN ? (float)col->mean : 0.0f;
            if (k->standardize)
                *v = (float)(((double)*v - col->mean) / col->deviation);
        }
    }
}

static int create_split(const csv *c, const table *t, int test, ls_resident **out)
{
    const column *target = &c->column[c->target];
    const bool classes = target->kind == TEXT;
    const ls_dataset_info info = {
        .name = c->kind->about.name,
        .split = test ? "test" : "train",
        .source = t->path,
        .channels = c->features,
        .height = 1,
        .width = 1,
        .classes = classes ? target->levels : 0,
        .targets = classes ? 0 : 1,
        .dtype = LS_ROW_F32,
        .rows = !test && c->spec->limit ? c->spec->limit : c->rows[test],
    };
    int status = ls_resident_create(out, &info, c->host, c->err);
    if (status || !classes)
        return status;
    const char **name = ls_alloc_array(c->host, (size_t)target->levels, sizeof *name);
    for (int i = 0; name && i < target->levels; i++)
        name[i] = target->level[i].text;
    status = name ? ls_resident_name_classes(*out, name, c->err) : no_memory(c);
    ls_free(c->host, name);
    if (status)
        ls_dataset_close(&(*out)->base);
    return status;
}

static void hash_file(const table *t, ls_dataset_info *info)
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, t->text, t->size);
    ls_sha256_final_hex(&hash, info->images_sha256);
}

/* The header and all rows, once to know them, once more to keep them. */
static int read_table(csv *c, table *t, int test, ls_dataset **out)
{
    ls_resident *r = NULL;
    const sink first = {test ? NULL : learn_field, NULL};
    int status = test ? check_header(c, t) : read_header(c, t);
    const size_t at = t->at, line = t->line;
    if (status == LS_OK)
        status = read_rows(c, t, &first, &c->rows[test]);
    if (status == LS_OK && !test)
        status = count_features(c, t);
    if (status == LS_OK && !test && c->column[c->target].kind == TEXT &&
        c->column[c->target].levels < 2)
        status =
            ls_fail(c->err, LS_EDATA, "%.300s: column \"%.60s\": expected at least two classes",
                    t->path, c->column[c->target].name);
    if (status == LS_OK && !test)
        status = ls_dataset_check_limit(c->spec, c->rows[0], t->path, c->err);
    if (status == LS_OK)
        status = create_split(c, t, test, &r);
    if (status)
        return status;
    filling f = {r, 0, 0};
    const sink second = {put_field, &f};
    t->at = at;
    t->line = line;
    status = read_rows(c, t, &second, &c->rows[test]);
    if (status) {
        ls_dataset_close(&r->base);
        return status;
    }
    finish_columns(c, r, test);
    hash_file(t, &r->base.info);
    *out = &r->base;
    return LS_OK;
}

static int read_file(csv *c, const char *path, int test, ls_dataset **out)
{
    table *t = ls_alloc(c->host, sizeof *t);
    if (!t)
        return no_memory(c);
    *t = (table){.path = path, .line = 1, .err = c->err};
    int status = ls_file_map(&t->map, path, "a table", c->err);
    t->text = t->map.map;
    t->size = t->map.map_bytes;
    if (status == LS_OK)
        status = read_table(c, t, test, out);
    ls_array_close(&t->map);
    ls_free(c->host, t);
    return status;
}

static void free_columns(csv *c)
{
    for (int i = 0; i < c->columns; i++) {
        for (int k = 0; k < c->column[i].levels; k++)
            ls_free(c->host, c->column[i].level[k].text);
        ls_free(c->host, c->column[i].level);
        ls_free(c->host, c->column[i].name);
    }
    ls_free(c->host, c->column);
}

static int open_csv(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                    const ls_dataset_spec *spec, const ls_host *host, ls_error *err)
{
    csv c = {.kind = kind, .spec = spec, .host = host, .err = err};
    *train = *test = NULL;
    if (!spec->path)
        return ls_dataset_refuse(spec, "data.path", err, "expected the table's file");
    ls_c_locale locale = ls_c_locale_enter(); /* 1.5, wherever the host is */
    int status = read_file(&c, spec->path, 0, train);
    if (status == LS_OK && spec->keys.test_path)
        status = read_file(&c, spec->keys.test_path, 1, test);
    else if (status == LS_OK)
        status = ls_dataset_none(test, &(*train)->info, host, err);
    ls_c_locale_leave(locale);
    free_columns(&c);
    if (status) {
        ls_dataset_close(*train);
        *train = NULL;
    }
    return status;
}

const ls_dataset_kind ls_dataset_csv = {{"csv", 0, 0, 0, 0, NULL}, open_csv, NULL};
