/* {"name": "csv", "path": FILE, "target": COLUMN}: a table (RFC 4180: a header, fields between commas, those
 * with a comma, a quote or a line's end in quotes). The target is a class, by its text, or with "labels":
 * "values" a number. The other columns make a row: a column whose first value is a number is one, all its
 * values must be; any other, and those that data.categorical names, is as many numbers as it has different
 * texts, one of them 1 and the rest 0. Missing is what is empty, NA, NaN, nan, null or ?. */
#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "data/new_rows.h"
#include "data/table.h"
#include "json/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    COLUMNS = 65536,   /* most columns */
    LEVELS = 1000,     /* most different texts of a column of the row */
    CLASSES = 1 << 16, /* most of the target */
    VALUES = 1 << 30   /* most numbers of all rows, if they are more than the table's fields */
};

/* A text that a column has. */
typedef struct level {
    char *text;
    double value;
    bool number;
    int nth; /* of the column's texts, as they came */
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
    int *place;   /* where text `nth` is among them */
    int levels;
    size_t room;
    double mean, deviation; /* NUMBER */
    int prepared;           /* which column of the preparation it is; −1: none */
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
    const ls_opening *o;
    column *column;
    int columns, target;
    int features;  /* of a row */
    ls_prep *prep; /* what is learnt */
    bool learning; /* what columns are: the training table is read */
    float *
        cell; /* [rows][columns] of the table that is read: numbers, nths of texts, NaN where one is missing */
} csv;

static int no_memory(const csv *c)
{
    return ls_fail(c->o->err, LS_ENOMEM, "csv: out of memory");
}

static int fail_field(const csv *c, const ls_table *t, const column *at, const char *expected)
{
    return ls_fail(c->o->err, LS_EDATA,
                   "%.300s:%zu: column \"%.60s\": expected %s, found \"%.70s\"", t->path, t->line,
                   at->name, expected, t->field);
}

static int add_column(csv *c, const ls_table *t)
{
    const ls_data_keys *k = &c->o->spec->keys;
    column *at = &c->column[c->columns++];
    at->name = ls_strdup(c->o->host, t->field);
    if (!at->name)
        return no_memory(c);
    if (k->target && strcmp(at->name, k->target) == 0) {
        c->target = c->columns - 1;
        at->kind = k->labels == LS_LABELS_VALUES ? NUMBER : TEXT;
    } else if (ls_is_listed(k->drop, ',', at->name)) {
        at->kind = DROPPED;
    } else if (ls_is_listed(k->categorical, ',', at->name)) {
        at->kind = TEXT;
    }
    return LS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_names(const csv *c, const ls_table *t)
{
    const size_t n = (size_t)c->columns;
    char **name = ls_alloc_array(c->o->host, n, sizeof *name);
    int status = name ? LS_OK : no_memory(c);
    for (size_t i = 0; name && i < n; i++)
        name[i] = c->column[i].name;
    if (name)
        qsort(name, n, sizeof *name, by_name);
    for (size_t i = 1; status == LS_OK && i < n; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            status = ls_fail(c->o->err, LS_EDATA,
                             "%.300s:1: column \"%.60s\": expected columns of different names",
                             t->path, name[i]);
    ls_free(c->o->host, name);
    return status;
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
            return ls_dataset_refuse(c->o, key, "the table has no column \"%.*s\"; it has %.60s, …",
                                     (int)(n < 60 ? n : 60), p, c->column[0].name);
    }
    return LS_OK;
}

/* The target of a table of which nothing else is known. */
static int guess_target(const csv *c)
{
    static const char *const usual[] = {"target", "label", "class", "y", "species", "diagnosis"};
    for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
        for (int i = 0; i < c->columns; i++)
            if (strcasecmp(c->column[i].name, usual[k]) == 0)
                return i;
    return c->columns - 1;
}

static int read_header(csv *c, ls_table *t)
{
    int status = LS_OK;
    size_t most = 1;
    for (size_t i = t->at; i < t->size && t->text[i] != '\n'; i++)
        most += t->text[i] == ',';
    if (most > COLUMNS)
        return ls_table_fail(t, "expected at most 65536 columns");
    c->column = ls_alloc_array(c->o->host, most, sizeof *c->column);
    c->target = -1;
    if (!c->column)
        return no_memory(c);
    do {
        status = ls_table_field(t);
        if (status == LS_OK && (size_t)c->columns == most)
            status = ls_table_fail(t, "expected a header of one line");
        if (status == LS_OK)
            status = add_column(c, t);
        ls_table_step(t);
    } while (status == LS_OK && !t->ends_row);
    if (status == LS_OK)
        status = check_names(c, t);
    if (status == LS_OK && c->o->spec->keys.lenient && !c->o->spec->keys.target) {
        c->target = guess_target(c);
        c->column[c->target].kind = c->o->spec->keys.labels == LS_LABELS_VALUES ? NUMBER : TEXT;
    }
    if (status == LS_OK && c->target < 0)
        status = ls_dataset_refuse(
            c->o, "data.target",
            "expected the name of a column of %.200s, found \"%.60s\"; it has "
            "%.60s, …",
            t->path, c->o->spec->keys.target ? c->o->spec->keys.target : "", c->column[0].name);
    if (status == LS_OK)
        status = check_list(c, "data.drop", c->o->spec->keys.drop);
    return status ? status : check_list(c, "data.categorical", c->o->spec->keys.categorical);
}

/* The test table has the same columns. */
static int check_header(const csv *c, ls_table *t)
{
    int status = LS_OK, i = 0;
    do {
        status = ls_table_field(t);
        if (status == LS_OK && (i == c->columns || strcmp(c->column[i].name, t->field) != 0))
            status = fail_field(c, t, &c->column[i < c->columns ? i : c->columns - 1],
                                "the columns of the training table, in the same order");
        i++;
        if (status == LS_OK && t->ends_row && i < c->columns)
            status = ls_table_fail(t, "expected all columns of the training table");
        ls_table_step(t);
    } while (status == LS_OK && !t->ends_row);
    return status;
}

/* ---- fields that become cells --------------------------------------------------------------------- */

static int insert_level(csv *c, column *at, level new, int place)
{
    level *all = ls_grown(c->o->host, at->level, (size_t)at->levels, &at->room, sizeof *all);
    if (!all)
        return no_memory(c);
    at->level = all;
    new.text = ls_strdup(c->o->host, new.text);
    if (!new.text)
        return no_memory(c);
    memmove(at->level + place + 1, at->level + place, (size_t)(at->levels - place) * sizeof new);
    at->level[place] = new;
    at->levels++;
    return LS_OK;
}

/* The text's number among those of its column; a new one is added by the training table alone. */
static int read_text(csv *c, ls_table *t, int i, level found, float *cell)
{
    column *at = &c->column[i];
    bool there;
    const int place = find_level(at, &found, &there);
    *cell = (float)(there ? at->level[place].nth : at->levels);
    if (there)
        return LS_OK;
    if (!c->learning)
        return fail_field(c, t, at, "a text that the training rows have, too");
    if (c->o->spec->keys.lenient && i != c->target && at->levels == LEVELS) {
        at->kind = DROPPED;
        *cell = NAN;
        return LS_OK;
    }
    if (at->levels == (i == c->target ? CLASSES : LEVELS))
        return fail_field(c, t, at,
                          i == c->target ? "at most 65536 classes; for numbers set data.labels to "
                                           "\"values\""
                                         : "at most 1000 different texts; name the column in "
                                           "data.drop");
    found.nth = at->levels;
    return insert_level(c, at, found, place);
}

static int read_cell(csv *c, ls_table *t, int i, float *cell)
{
    column *at = &c->column[i];
    level found = {.text = t->field};
    *cell = NAN;
    if (at->kind == DROPPED)
        return LS_OK;
    const bool missing = ls_field_is_missing(t->field);
    if (missing && i == c->target)
        return fail_field(c, t, at, "a target in each row");
    if (missing && c->o->spec->keys.missing == LS_MISSING_REFUSED)
        return fail_field(c, t, at,
                          "a value; data.missing says what else to do: \"zero\" or \"mean\"");
    if (missing)
        return LS_OK;
    found.number = ls_field_is_number(t->field, &found.value);
    if (at->kind == UNKNOWN)
        at->kind = found.number ? NUMBER : TEXT;
    if (at->kind == TEXT)
        return read_text(c, t, i, found, cell);
    *cell = (float)found.value;
    if (!found.number)
        return fail_field(c, t, at,
                          "a number, as before; if it has texts name it in data.categorical");
    return isfinite(*cell) ? LS_OK : fail_field(c, t, at, "a finite number");
}

static int read_row(csv *c, ls_table *t, float *cell)
{
    int status = LS_OK, i = 0;
    do {
        status = ls_table_field(t);
        if (status == LS_OK && (i == c->columns || (t->ends_row && i + 1 < c->columns)))
            status = ls_fail(c->o->err, LS_EDATA,
                             "%.300s:%zu: expected %d fields, as the header has, found %s", t->path,
                             t->line, c->columns, i == c->columns ? "more" : "fewer");
        if (status == LS_OK)
            status = read_cell(c, t, i, &cell[i]);
        i++;
        ls_table_step(t);
    } while (status == LS_OK && !t->ends_row);
    return status;
}

/* A row has a byte for each column at least, so the file's size says how many there can be. */
static int read_rows(csv *c, ls_table *t, uint32_t *rows)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a header that was read has a column */
    const size_t columns = (size_t)c->columns, most = (t->size - t->at) / columns + 1;
    int status = LS_OK;
    c->cell = ls_alloc_array(c->o->host, most, columns * sizeof *c->cell);
    if (!c->cell)
        return no_memory(c);
    for (*rows = 0; status == LS_OK && ls_table_has_row(t) && *rows < UINT32_MAX - 1; (*rows)++)
        status = read_row(c, t, c->cell + *rows * columns);
    if (status == LS_OK && *rows == 0)
        status = ls_table_fail(t, "expected rows below the header, found none");
    return status;
}

/* ---- what the training table says of its columns --------------------------------------------------- */

/* Mean and deviation of a column over the first `rows` that have a value. */
static void measure(const csv *c, int i, size_t rows)
{
    column *at = &c->column[i];
    const size_t columns = (size_t)c->columns;
    double sum = 0, squares = 0;
    size_t n = 0;
    for (size_t r = 0; r < rows; r++)
        if (isfinite(c->cell[r * columns + (size_t)i])) {
            sum += (double)c->cell[r * columns + (size_t)i];
            n++;
        }
    at->mean = n ? sum / (double)n : 0;
    for (size_t r = 0; r < rows; r++)
        if (isfinite(c->cell[r * columns + (size_t)i])) {
            const double d = (double)c->cell[r * columns + (size_t)i] - at->mean;
            squares += d * d;
        }
    at->deviation = squares > 0 ? sqrt(squares / (double)n) : 1;
}

static int learn_column(csv *c, int i, size_t rows)
{
    column *at = &c->column[i];
    if (at->kind != TEXT) {
        measure(c, i, rows);
        return LS_OK;
    }
    at->place = ls_alloc_array(c->o->host, (size_t)at->levels + 1, sizeof *at->place);
    for (int k = 0; at->place && k < at->levels; k++)
        at->place[at->level[k].nth] = k;
    return at->place ? LS_OK : no_memory(c);
}

/* Of the numbers of a row, how many column `i` makes. */
static int width_of(const csv *c, int i)
{
    const column *at = &c->column[i];
    if (i == c->target || at->kind == DROPPED)
        return 0;
    return at->kind == TEXT ? at->levels : 1;
}

/* Holes are filled, and numbers brought to one scale, both by the training rows. */
static int prepare_column(csv *c, column *at)
{
    const ls_data_keys *k = &c->o->spec->keys;
    const char **text = ls_alloc_array(c->o->host, (size_t)at->levels + 1, sizeof *text);
    if (!text)
        return no_memory(c);
    for (int i = 0; i < at->levels; i++)
        text[i] = at->level[i].text;
    int status = ls_prep_add(c->prep, at->name, text, at->kind == TEXT ? at->levels : 0, c->o->err);
    ls_free(c->o->host, text);
    if (status)
        return status;
    at->prepared = c->prep->columns - 1;
    ls_prep_column *p = &c->prep->column[at->prepared];
    p->fills = k->missing != LS_MISSING_REFUSED;
    if (at->kind == TEXT)
        return LS_OK;
    p->missing = k->missing == LS_MISSING_MEAN ? (float)at->mean : 0.0f;
    p->scaled = k->standardize != 0;
    p->mean = p->scaled ? at->mean : 0;
    p->deviation = p->scaled ? at->deviation : 1;
    return LS_OK;
}

static int prepare(csv *c)
{
    int status = ls_prep_create(&c->prep, LS_PREP_TABLE, c->o->host, c->o->err);
    if (status)
        return status;
    c->prep->target = ls_strdup(c->o->host, c->column[c->target].name);
    if (!c->prep->target)
        return no_memory(c);
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        if (width_of(c, i) > 0)
            status = prepare_column(c, &c->column[i]);
    return status;
}

static int learn_columns(csv *c, const ls_table *t, uint32_t rows)
{
    int64_t n = 0;
    const column *target = &c->column[c->target];
    int status = ls_dataset_check_limit(c->o, rows, t->path);
    for (int i = 0; i < c->columns; i++)
        n += width_of(c, i);
    if (n < 1 || n > 1 << 24)
        return ls_fail(c->o->err, LS_EDATA,
                       "%.300s:1: expected columns that make 1 to %d numbers, found %lld", t->path,
                       1 << 24, (long long)n);
    if (target->kind == TEXT && target->levels < 2)
        return ls_fail(c->o->err, LS_EDATA,
                       "%.300s: column \"%.60s\": expected at least two classes", t->path,
                       target->name);
    c->features = (int)n;
    for (int i = 0; status == LS_OK && i < c->columns; i++)
        status = learn_column(c, i, c->o->spec->limit ? c->o->spec->limit : rows);
    return status ? status : prepare(c);
}

/* ---- cells that become rows ------------------------------------------------------------------------ */

/* One that is missing was refused where it was read, unless something fills it. */
static float finish_number(const csv *c, const column *at, float v)
{
    float ready = 0;
    ls_prep_number(&c->prep->column[at->prepared], v, &ready);
    return ready;
}

static void fill_row(const csv *c, ls_resident *r, size_t row)
{
    const float *cell = c->cell + row * (size_t)c->columns;
    float *to = r->values + row * (size_t)c->features;
    for (int i = 0; i < c->columns; i++) {
        const column *at = &c->column[i];
        const bool text = at->kind == TEXT;
        if (i == c->target && text)
            r->labels[row] = at->place[(int)cell[i]];
        else if (i == c->target)
            r->targets[row] = cell[i];
        else if (text && !isnan(cell[i]))
            to[at->place[(int)cell[i]]] = 1;
        else if (at->kind != DROPPED && !text)
            *to = finish_number(c, at, cell[i]);
        to += width_of(c, i);
    }
}

/* A text of few bytes may become a thousand numbers in every row. */
static int check_values(const csv *c, const ls_table *t, size_t rows)
{
    const size_t n = rows * (size_t)c->features;
    if (n <= VALUES || n <= rows * (size_t)c->columns)
        return LS_OK;
    return ls_fail(
        c->o->err, LS_EDATA,
        "%.300s: expected at most %d numbers of all rows, found %zu rows of %d; name columns of "
        "many different texts in data.drop",
        t->path, VALUES, rows, c->features);
}

static int name_classes(const csv *c, ls_resident *r)
{
    const column *target = &c->column[c->target];
    const char **name = ls_alloc_array(c->o->host, (size_t)target->levels, sizeof *name);
    for (int i = 0; name && i < target->levels; i++)
        name[i] = target->level[i].text;
    int status = name ? ls_resident_name_classes(r, name, c->o->err) : no_memory(c);
    ls_free(c->o->host, name);
    return status;
}

static ls_column_use use_of(const csv *c, int i)
{
    const bool text = c->column[i].kind == TEXT;
    if (i == c->target)
        return text ? LS_COLUMN_CLASS : LS_COLUMN_VALUE;
    return text                           ? LS_COLUMN_LEVELS
           : c->column[i].kind == DROPPED ? LS_COLUMN_DROPPED
                                          : LS_COLUMN_NUMBER;
}

/* Column `i` over the rows of the training table, whose cells are still as they were read. */
static void see_column(const csv *c, int i, size_t rows, ls_column_seen *seen)
{
    const column *at = &c->column[i];
    const size_t columns = (size_t)c->columns;
    const float *cell = c->cell + i;
    seen->use = use_of(c, i);
    seen->levels = at->kind == NUMBER ? 0 : at->levels;
    for (int k = 0; k < seen->levels; k++)
        seen->numeric += at->level[k].number;
    seen->named = ls_is_listed(c->o->spec->keys.categorical, ',', at->name);
    seen->counts = at->kind == NUMBER && rows > 9;
    for (size_t r = 0; r < rows && at->kind != DROPPED; r++) {
        const float v = cell[r * columns];
        seen->missing += isnan(v) != 0;
        seen->counts = seen->counts && (r == 0 ? v == floorf(v) : v == cell[(r - 1) * columns] + 1);
    }
    seen->mean = at->mean;
    seen->deviation = at->deviation;
}

static int see_columns(const csv *c, ls_resident *r, size_t rows)
{
    r->seen = ls_alloc_array(c->o->host, (size_t)c->columns, sizeof *r->seen);
    if (!r->seen)
        return no_memory(c);
    r->base.info.column = r->seen;
    for (int i = 0; i < c->columns; i++) {
        r->base.info.columns = i + 1;
        r->seen[i].name = ls_strdup(c->o->host, c->column[i].name);
        if (!r->seen[i].name)
            return no_memory(c);
        see_column(c, i, rows, &r->seen[i]);
    }
    return LS_OK;
}

/* What finish_number makes of a column, or one of fill_row's places for its texts. */
static void tell_feature(ls_json_writer *w, const csv *c, const column *at, int nth)
{
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "column", at->name);
    if (at->kind == TEXT)
        ls_json_put_string(w, "is", at->level[nth].text);
    else if (c->o->spec->keys.standardize) {
        ls_json_put_double(w, "mean", at->mean);
        ls_json_put_double(w, "deviation", at->deviation);
    }
    ls_json_close(w);
}

static int tell_features(const csv *c, ls_resident *r)
{
    ls_json_writer w;
    if (c->features > LS_FEATURES_TOLD)
        return LS_OK;
    ls_json_writer_init(&w, 0, c->o->host);
    ls_json_open_array(&w, NULL);
    for (int i = 0; i < c->columns; i++)
        for (int k = 0; k < width_of(c, i); k++)
            tell_feature(&w, c, &c->column[i], k);
    ls_json_close(&w);
    size_t length;
    const char *text = ls_json_writer_text(&w, &length, NULL);
    const bool told = text && length <= LS_FEATURES_BYTES;
    r->base.info.features = r->features = told ? ls_strdup(c->o->host, text) : NULL;
    ls_json_writer_fini(&w);
    return r->features || (text && !told) ? LS_OK : no_memory(c);
}

static int create_split(const csv *c, const ls_table *t, uint32_t rows, ls_resident **out)
{
    const column *target = &c->column[c->target];
    const bool classes = target->kind == TEXT;
    ls_dataset_info info = ls_dataset_split(c->o, !c->learning, t->path, rows);
    info.channels = c->features;
    info.height = info.width = 1;
    info.classes = classes ? target->levels : 0;
    info.targets = classes ? 0 : 1;
    info.dtype = LS_ROW_F32;
    int status = check_values(c, t, info.rows);
    if (status == LS_OK)
        status = ls_resident_create(out, &info, c->o);
    if (status)
        return status;
    status = classes ? name_classes(c, *out) : LS_OK;
    if (status == LS_OK && c->learning)
        status = see_columns(c, *out, rows);
    return status == LS_OK && c->learning ? tell_features(c, *out) : status;
}

static void hash_file(const ls_table *t, ls_dataset_info *info)
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, t->text, t->size);
    ls_sha256_final_hex(&hash, info->images_sha256);
}

static int read_table(csv *c, ls_table *t, ls_dataset **out)
{
    ls_resident *r = NULL;
    uint32_t rows = 0;
    if (!ls_table_has_row(t))
        return ls_table_fail(t, "expected a header with the columns' names, found an empty file");
    int status = c->learning ? read_header(c, t) : check_header(c, t);
    if (status == LS_OK)
        status = read_rows(c, t, &rows);
    if (status == LS_OK && c->learning)
        status = learn_columns(c, t, rows);
    if (status == LS_OK)
        status = create_split(c, t, rows, &r);
    *out = r ? &r->base : NULL;
    if (status)
        return status;
    for (size_t row = 0; row < r->base.info.rows; row++)
        fill_row(c, r, row);
    hash_file(t, &r->base.info);
    return LS_OK;
}

static int read_file(csv *c, const char *path, ls_dataset **out)
{
    ls_table *t = ls_alloc(c->o->host, sizeof *t);
    if (!t)
        return no_memory(c);
    *t = (ls_table){.path = path, .line = 1, .err = c->o->err};
    int status = ls_file_map(&t->map, path, "a table", c->o->err);
    t->text = t->map.map;
    t->size = t->map.map_bytes;
    if (status == LS_OK)
        status = read_table(c, t, out);
    ls_free(c->o->host, c->cell);
    c->cell = NULL;
    ls_array_close(&t->map);
    ls_free(c->o->host, t);
    return status;
}

static void free_columns(csv *c)
{
    for (int i = 0; i < c->columns; i++) {
        for (int k = 0; k < c->column[i].levels; k++)
            ls_free(c->o->host, c->column[i].level[k].text);
        ls_free(c->o->host, c->column[i].level);
        ls_free(c->o->host, c->column[i].place);
        ls_free(c->o->host, c->column[i].name);
    }
    ls_free(c->o->host, c->column);
    ls_prep_free(c->prep);
}

/* The training split tells how its rows were prepared. Names that differ by bytes alone that are no UTF-8 would be
 * one in the file of weights. */
static int hand_over(csv *c, ls_dataset *train)
{
    ls_error why;
    ls_resident *r = (ls_resident *)train;
    const char *const *class_name = train->info.class_name;
    int status = ls_prep_finish(c->prep, &why);
    if (status == LS_OK && ls_prep_find(c->prep, c->prep->target) >= 0)
        status =
            ls_fail(&why, LS_EDATA, "column \"%.60s\": expected another name than the target's",
                    c->prep->target);
    if (status == LS_OK && class_name)
        status = ls_prep_check_names(class_name, train->info.classes, "class", c->o->host, &why);
    if (status)
        return ls_fail(
            c->o->err, status, "%.200s: %.300s%s", train->info.source, why.text,
            status == LS_EDATA && !strstr(why.text, "UTF-8")
                ? "; they differ by bytes alone that are no UTF-8: save the table as UTF-8"
                : "");
    r->base.info.prep = r->prep = c->prep;
    c->prep = NULL;
    return LS_OK;
}

/* Both tables as a model reads them: nothing is learnt. */
static int open_as(ls_dataset *split[2], const ls_opening *o)
{
    ls_new_rows as = *o->spec->keys.as;
    as.labelled = true;
    as.host = o->host;
    as.split = "train";
    as.limit = o->spec->limit;
    int status = ls_new_rows_open_csv(&split[0], &as, o->spec->path, o->err);
    as.split = "test";
    as.limit = 0;
    if (status == LS_OK && o->spec->keys.test_path)
        return ls_new_rows_open_csv(&split[1], &as, o->spec->keys.test_path, o->err);
    return status ? status : ls_dataset_none(&split[1], &split[0]->info, o);
}

static int open_csv(ls_dataset *split[2], const ls_opening *o)
{
    const ls_dataset_spec *spec = o->spec;
    csv c = {.o = o, .learning = true};
    if (!spec->path)
        return ls_dataset_refuse(o, "data.path", "expected the table's file");
    if (spec->keys.as)
        return open_as(split, o);
    ls_c_locale locale = ls_c_locale_enter(); /* 1.5, wherever the host is */
    int status = read_file(&c, spec->path, &split[0]);
    c.learning = false;
    if (status == LS_OK && spec->keys.test_path)
        status = read_file(&c, spec->keys.test_path, &split[1]);
    else if (status == LS_OK)
        status = ls_dataset_none(&split[1], &split[0]->info, o);
    ls_c_locale_leave(locale);
    if (status == LS_OK)
        status = hand_over(&c, split[0]);
    free_columns(&c);
    return ls_json_tidied(status, o->err); /* names and fields may hold anything, and may be cut */
}

const ls_dataset_kind ls_dataset_csv = {
    {"csv", 0, 0, 0, 0, NULL,
     "test_path target categorical drop standardize standardize_target labels missing"},
    open_csv,
    NULL};
