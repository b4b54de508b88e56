/* SPDX-License-Identifier: MIT */
/* Writes and reads descriptions of preparations (prep.h) as JSON. */
#include "prep/prep.h"

#include "base/error.h"
#include "base/host.h"
#include "json/fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Versions of descriptions. One that needs none of the newer features has the version PLAIN, which
 * older programs read. */
enum {
    OLDEST_VERSION = 1,
    PLAIN = 2,
    WITH_DATES = 3,
    WITH_RESIZE = 4,
    WITH_CONSTANTS = 5,
    WITH_WHITE = 6,
    WITH_CLIP = 7,
    NEWEST_VERSION = 7
};

static const char *const kinds[] = {"array", "table", "images", NULL};
/* how a picture is fitted to the model's input: scaled until it covers the input, as "cover" in
 * CSS; or resized, and its centre cut out */
static const char *const fit_names[] = {"cover", "resize", NULL};
static const char *const decimals[] = {"auto", ".", ",", NULL};
static const char *const encodings[] = {"utf-8", "latin-1", NULL};
/* by ls_level_rule; the first is not written */
static const char *const rules[] = {"numbers", "digits", "codes", NULL};
/* by ls_prep_column.wide; the first is not written */
static const char *const widths[] = {"f32", "f64", NULL};
static const char *const layouts[] = {"channels_first", "channels_last", NULL};

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes the scale of numbers and the replacement for missing ones. */
static void write_scale(ls_json_writer *w, const ls_prep_column *c)
{
    if (c->scaled) {
        ls_json_put_double(w, "mean", c->mean);
        ls_json_put_double(w, "deviation", c->deviation);
        if (c->clip > 0)
            ls_json_put_double(w, "clip", c->clip);
    }
    if (c->allows_missing)
        ls_json_put_double(w, "missing", c->missing);
}

static void write_dates(ls_json_writer *w, const ls_prep_column *c)
{
    ls_json_put_string(w, "date", ls_date_form_names[c->date]);
    ls_json_put_double(w, "since", c->since);
    ls_json_open_array(w, "parts");
    for (int k = 0; k < c->parts; k++) {
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "part", ls_date_part_names[c->part[k].is]);
        write_scale(w, &c->part[k]);
        ls_json_close(w);
    }
    ls_json_close(w);
}

/* Writes the keys of a column of numbers or texts. */
static void write_values(ls_json_writer *w, const ls_prep_column *c)
{
    if (c->levels) {
        ls_json_open_array(w, "levels");
        for (int k = 0; k < c->levels; k++)
            ls_json_put_string(w, NULL, c->level[k]);
        ls_json_close(w);
    }
    if (c->rule != LS_LEVELS_NUMBERS)
        ls_json_put_string(w, "compare", rules[c->rule]);
    if (c->wide)
        ls_json_put_string(w, "type", widths[1]);
    write_scale(w, c);
    if (c->decimal)
        ls_json_put_string(w, "decimal", c->decimal == ',' ? "," : ".");
}

static void write_column(ls_json_writer *w, const ls_prep_column *c)
{
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "name", c->name);
    if (c->date)
        write_dates(w, c);
    else
        write_values(w, c);
    ls_json_close(w);
}

static void write_table(ls_json_writer *w, const ls_prep *p)
{
    if (p->target)
        ls_json_put_string(w, "target", p->target);
    if (p->target_decimal)
        ls_json_put_string(w, "target_decimal", p->target_decimal == ',' ? "," : ".");
    if (p->target_rule != LS_LEVELS_NUMBERS)
        ls_json_put_string(w, "target_compare", rules[p->target_rule]);
    if (p->latin1)
        ls_json_put_string(w, "encoding", encodings[1]);
    if (p->unknown != LS_UNKNOWN_EMPTY)
        ls_json_put_string(w, "unknown", ls_prep_unknown_names[p->unknown]);
    ls_json_open_array(w, "columns");
    for (int i = 0; i < p->columns; i++)
        write_column(w, &p->column[i]);
    ls_json_close(w);
}

/* Writes a list of numbers. An infinite one, a deviation, becomes null. */
static void write_list(ls_json_writer *w, const char *key, const double *value, int count)
{
    ls_json_open_array(w, key);
    for (int i = 0; i < count; i++)
        ls_json_put_double(w, NULL, value[i]);
    ls_json_close(w);
}

static void write_array(ls_json_writer *w, const ls_prep *p)
{
    if (p->type[0])
        ls_json_put_string(w, "type", p->type);
    ls_json_put_int(w, "divisor", p->divisor);
    if (p->channels_last)
        ls_json_put_string(w, "layout", layouts[1]);
    if (p->scales) {
        write_list(w, "mean", p->mean, p->scales);
        write_list(w, "deviation", p->deviation, p->scales);
    }
    if (p->wide)
        ls_json_put_string(w, "scale_type", widths[1]);
    if (p->clip > 0)
        ls_json_put_double(w, "clip", p->clip);
    if (p->fills == 1)
        ls_json_put_float(w, "missing", p->fill[0]);
    if (p->fills <= 1)
        return;
    ls_json_open_array(w, "missing");
    for (int i = 0; i < p->fills; i++)
        ls_json_put_float(w, NULL, p->fill[i]);
    ls_json_close(w);
}

size_t ls_prep_values(const ls_prep *p)
{
    /* At most 18 values are not replacements, scales or parts of columns. A column has at most 9
     * values besides its levels or the parts of its dates, each of which has at most 6. */
    size_t values = 18 + (size_t)p->fills + 2 * (size_t)(p->targets + p->scales);
    for (int i = 0; i < p->columns; i++)
        values += 9 + (size_t)p->column[i].levels + 6 * (size_t)p->column[i].parts;
    return values;
}

/* Writes a number, or, if there are several, a list of them. */
static void write_numbers(ls_json_writer *w, const char *key, const double *value, int count)
{
    if (count > 1)
        write_list(w, key, value, count);
    else if (count == 1)
        ls_json_put_double(w, key, value[0]);
}

static bool has_dates(const ls_prep *p)
{
    for (int i = 0; i < p->columns; i++)
        if (p->column[i].date)
            return true;
    return false;
}

/* Returns whether a column or a channel is constant. */
static bool has_constants(const ls_prep *p)
{
    for (int i = 0; i < p->columns; i++)
        if (isinf(p->column[i].deviation))
            return true;
    for (int i = 0; i < p->scales; i++)
        if (isinf(p->deviation[i]))
            return true;
    return false;
}

void ls_prep_write(ls_json_writer *w, const char *key, const ls_prep *p)
{
    ls_json_open_object(w, key);
    ls_json_put_int(w, "version",
                    p->clip > 0        ? WITH_CLIP
                    : p->white         ? WITH_WHITE
                    : has_constants(p) ? WITH_CONSTANTS
                    : p->resize.height ? WITH_RESIZE
                    : has_dates(p)     ? WITH_DATES
                                       : PLAIN);
    ls_json_put_string(w, "rows", kinds[p->kind]);
    write_numbers(w, "target_mean", p->target_mean, p->targets);
    write_numbers(w, "target_deviation", p->target_deviation, p->targets);
    if (p->target_wide)
        ls_json_put_string(w, "target_type", widths[1]);
    if (p->scale_rows)
        ls_json_put_int(w, "scale_rows", p->scale_rows);
    if (p->kind == LS_PREP_TABLE)
        write_table(w, p);
    else if (p->kind == LS_PREP_ARRAY)
        write_array(w, p);
    else
        ls_json_put_string(w, "fit", fit_names[p->resize.height > 0]);
    ls_prep_write_resize(w, &p->resize);
    if (p->white)
        ls_json_put_int(w, "white", p->white);
    ls_json_close(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* State of reading a description. */
typedef struct reader {
    ls_prep *prep;
    const ls_json *doc;
    size_t input; /* number of values of the model's input */
    bool floats;  /* these values are floats; false: bytes */
    ls_error *err;
} reader;

/* Fails with `status` and the message of `why`, to which the line and column of `node` are added if
 * it has none. */
static int at_node(const reader *r, const cJSON *node, int status, const ls_error *why)
{
    if (status == LS_EDATA)
        return ls_json_fail_value(r->err, r->doc, node, LS_ECONFIG, "preparation: %s", why->text);
    return status ? ls_fail(r->err, status, "%s", why->text) : LS_OK;
}

/* Reads a list of texts. The caller frees *out. */
static int read_texts(const reader *r, ls_fields *f, const cJSON *list, const char ***out,
                      int *count)
{
    const cJSON *item;
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    *count = 0;
    if (n < 1) {
        ls_fields_fail(f, list, "expected \"levels\", a list of the column's texts, found %s",
                       ls_json_kind(list));
        return f->status;
    }
    const char **text = *out = ls_alloc_array(r->prep->host, (size_t)n, sizeof *text);
    if (!text)
        return ls_fail(r->err, LS_ENOMEM, "out of memory for the preparation of rows");
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            ls_fields_fail(f, item, "expected a text in \"levels\", found %s", ls_json_kind(item));
        else
            text[(*count)++] = item->valuestring;
    }
    return f->status;
}

static void read_decimal(ls_fields *f, const char *key, char *out)
{
    static const int none = 0;
    int decimal = 0;
    ls_field_choice(f, key, decimals, &none, &decimal);
    *out = decimal == 0 ? '\0' : decimals[decimal][0];
}

static void read_rule(ls_fields *f, const char *key, ls_level_rule *out)
{
    static const int numbers = LS_LEVELS_NUMBERS;
    int rule = numbers;
    ls_field_choice(f, key, rules, &numbers, &rule);
    *out = (ls_level_rule)rule;
}

/* Reads the key "deviation" of a column; null: the column is constant. Returns whether the object
 * has the key. */
static bool read_deviation(ls_fields *f, double *out)
{
    static const double one = 1;
    if (!cJSON_IsNull(ls_field_any(f, "deviation")))
        return ls_field_double(f, "deviation", 1e-300, 1e300, &one, out);
    *out = INFINITY;
    return true;
}

/* Reads the keys "type", "mean", "deviation", "clip", "missing" and "decimal" of a column of
 * numbers. */
static void read_numbers(ls_fields *f, ls_prep_column *c)
{
    static const double none = 0;
    static const int narrow = 0;
    int width = narrow;
    ls_field_choice(f, "type", widths, &narrow, &width);
    c->wide = width == 1;
    const bool mean = ls_field_double(f, "mean", -1e300, 1e300, &none, &c->mean);
    c->scaled = read_deviation(f, &c->deviation);
    const bool clips = ls_field_double(f, "clip", 0, 1e6, &none, &c->clip);
    c->allows_missing = ls_field_double(f, "missing", -1e300, 1e300, &none, &c->missing);
    read_decimal(f, "decimal", &c->decimal);
    if (mean != c->scaled)
        ls_fields_fail(f, NULL, "expected \"mean\" and \"deviation\", or neither");
    if (clips && !c->scaled)
        ls_fields_fail(f, NULL, "expected \"clip\" only beside \"mean\" and \"deviation\"");
    if (c->levels && (mean || c->wide || c->missing != 0))
        ls_fields_fail(f, NULL,
                       "expected \"levels\" without \"mean\" and \"type\", and with \"missing\" 0");
}

/* Reads a part of a column of dates. */
static int read_part(const reader *r, const cJSON *node, ls_prep_column *part)
{
    ls_fields f;
    int is = 0;
    ls_fields_begin(&f, r->doc, node, "a part", r->err);
    ls_field_choice(&f, "part", ls_date_part_names, NULL, &is);
    part->is = (ls_date_part)is;
    read_numbers(&f, part);
    if (part->wide || part->decimal)
        ls_fields_fail(&f, NULL, "expected a part of a date without \"type\" and \"decimal\"");
    return ls_fields_end(&f);
}

/* Reads the keys "date", "since" and "parts" of the column `name`, and adds it. */
static int read_dates(const reader *r, ls_fields *f, const char *name)
{
    static const double epoch = 0;
    ls_prep_column read[LS_DATE_PARTS] = {0};
    ls_date_part is[LS_DATE_PARTS];
    const cJSON *list = ls_field_any(f, "parts"), *item;
    const int parts = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    double since = 0;
    int form = 0, n = 0, status = LS_OK;
    ls_field_choice(f, "date", ls_date_form_names, NULL, &form);
    ls_field_double(f, "since", -1e7, 1e7, &epoch, &since);
    if (form == LS_DATE_NONE || parts < 1 || parts > LS_DATE_PARTS)
        ls_fields_fail(f, NULL, "expected \"date\" other than \"none\", and 1 to %d \"parts\"",
                       LS_DATE_PARTS);
    if (f->status)
        return f->status;
    cJSON_ArrayForEach(item, list)
    {
        status = status ? status : read_part(r, item, &read[n]);
        is[n] = read[n].is;
        n++;
    }
    if (status == LS_OK)
        status = ls_prep_add_dates(r->prep, name, (ls_date_form)form, since, is, parts, r->err);
    for (int k = 0; status == LS_OK && k < parts; k++) {
        ls_prep_column *part = &r->prep->column[r->prep->columns - 1].part[k];
        read[k].name = part->name;
        *part = read[k];
        if (part->allows_missing != read[0].allows_missing)
            ls_fields_fail(f, list, "expected \"missing\" in all parts, or in none");
    }
    if (status == LS_OK)
        r->prep->column[r->prep->columns - 1].allows_missing = read[0].allows_missing;
    return status;
}

/* Reads a column of dates, all keys of which but the name have not been read yet. */
static int read_date_column(const reader *r, ls_fields *f, const char *name)
{
    int status = read_dates(r, f, name);
    return status && status != f->status ? status : ls_fields_end(f);
}

static int read_column(const reader *r, const cJSON *node)
{
    ls_fields f;
    const char *name, **level = NULL;
    int levels = 0;
    ls_fields_begin(&f, r->doc, node, "a column", r->err);
    ls_field_text(&f, "name", NULL, &name);
    if (f.status == LS_OK && name && cJSON_GetObjectItemCaseSensitive(node, "date"))
        return read_date_column(r, &f, name);
    const cJSON *list = ls_field_any(&f, "levels");
    int status = f.status;
    if (status == LS_OK && list)
        status = read_texts(r, &f, list, &level, &levels);
    if (status == LS_OK && name)
        status = ls_prep_add(r->prep, name, level, levels, r->err);
    ls_free(r->prep->host, level);
    if (status == LS_OK && name) {
        ls_prep_column *c = &r->prep->column[r->prep->columns - 1];
        read_rule(&f, "compare", &c->rule);
        if (c->rule != LS_LEVELS_NUMBERS && levels == 0)
            ls_fields_fail(&f, NULL, "expected \"compare\" only beside \"levels\"");
        read_numbers(&f, c);
    }
    return status == LS_ENOMEM ? status : ls_fields_end(&f);
}

static int finish_table(const reader *r, const cJSON *node)
{
    ls_error why;
    int status = at_node(r, node, ls_prep_finish(r->prep, &why), &why);
    if (status || (r->floats && (size_t)r->prep->features == r->input))
        return status;
    return ls_json_fail_value(r->err, r->doc, node, LS_ECONFIG,
                              "preparation: the model's input is %zu %s, but the columns have %d "
                              "floats",
                              r->input, r->floats ? "floats" : "bytes", r->prep->features);
}

static int read_table(const reader *r, ls_fields *f)
{
    static const char *const none = NULL;
    static const int utf8 = 0, empty = LS_UNKNOWN_EMPTY;
    const char *target;
    int encoding = 0, unknown = empty;
    const cJSON *node, *columns = ls_field_any(f, "columns");
    ls_field_text(f, "target", &none, &target);
    read_decimal(f, "target_decimal", &r->prep->target_decimal);
    read_rule(f, "target_compare", &r->prep->target_rule);
    ls_field_choice(f, "encoding", encodings, &utf8, &encoding);
    r->prep->latin1 = encoding == 1;
    ls_field_choice(f, "unknown", ls_prep_unknown_names, &empty, &unknown);
    r->prep->unknown = (ls_prep_unknown)unknown;
    const int n = cJSON_IsArray(columns) ? cJSON_GetArraySize(columns) : 0;
    if (n < 1 || n > LS_PREP_COLUMNS)
        ls_fields_fail(f, columns, "expected \"columns\", an array of 1 to %d", LS_PREP_COLUMNS);
    int status = ls_fields_end(f);
    if (status)
        return status;
    if (target && !(r->prep->target = ls_strdup(r->prep->host, target)))
        return ls_fail(r->err, LS_ENOMEM, "out of memory for the preparation of rows");
    cJSON_ArrayForEach(node, columns)
    {
        if (status == LS_OK)
            status = read_column(r, node);
    }
    return status ? status : finish_table(r, columns);
}

/* Reads the key "missing" of the description of an array: one number, by which every missing number
 * is replaced, or a list with a replacement for each number of a row. */
static int read_fill(const reader *r, ls_fields *f, const cJSON *node)
{
    ls_prep *p = r->prep;
    const cJSON *item = cJSON_IsArray(node) ? node->child : node;
    const int n = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 1;
    if (!r->floats || (cJSON_IsArray(node) && (size_t)n != r->input)) {
        ls_fields_fail(
            f, node,
            "expected \"missing\" only if the input is floats: a number, or a list of %zu "
            "numbers, one for each of a row",
            r->input);
        return f->status;
    }
    p->fill = ls_alloc_array(p->host, (size_t)n, sizeof *p->fill);
    if (!p->fill)
        return ls_fail(r->err, LS_ENOMEM, "out of memory for the preparation of rows");
    for (; item && p->fills < n; item = item->next) {
        if (!cJSON_IsNumber(item) || !isfinite((float)item->valuedouble))
            ls_fields_fail(f, item, "expected \"missing\": finite numbers, found %s",
                           ls_json_kind(item));
        p->fill[p->fills++] = (float)item->valuedouble;
    }
    return f->status;
}

/* Reads a number, or a list of numbers, each of which must be at least `least`, into `out` [most].
 * `infinite`: null is allowed, and is INFINITY. Returns their number. */
static int read_list(ls_fields *f, const cJSON *node, const char *key, double least, bool infinite,
                     double *out, int most)
{
    const cJSON *item = cJSON_IsArray(node) ? node->child : node;
    int count = 0;
    for (; item && f->status == LS_OK; item = cJSON_IsArray(node) ? item->next : NULL) {
        const bool constant = infinite && cJSON_IsNull(item);
        const double v = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
        if (count < most && constant)
            out[count++] = INFINITY;
        else if (count == most || !(v >= least && v <= 1e300))
            ls_fields_fail(f, item, "expected \"%s\", at most %d numbers from %g on, found %s", key,
                           most, least, ls_json_kind(item));
        else
            out[count++] = v;
    }
    return count;
}

/* A setter of a scale: ls_prep_scale_targets or ls_prep_scale_values. */
typedef int set_scale(ls_prep *prep, const double *mean, const double *deviation, int count,
                      ls_error *err);

/* Reads the lists `keys`, means and deviations, of at most `most` numbers each, and passes them to
 * `set`. Returns LS_ENOMEM, or LS_OK after a failure that `f` has. */
static int read_scale(const reader *r, ls_fields *f, const char *const keys[2], size_t most,
                      set_scale *set)
{
    const cJSON *mean = ls_field_any(f, keys[0]), *deviation = ls_field_any(f, keys[1]);
    if (!mean && !deviation)
        return LS_OK;
    double *both = ls_alloc_array(r->prep->host, 2 * most, sizeof *both);
    if (!both)
        return ls_fail(r->err, LS_ENOMEM, "out of memory for the preparation of rows");
    const bool values = set == ls_prep_scale_values;
    const int means = read_list(f, mean, keys[0], -1e300, false, both, (int)most);
    const int deviations = read_list(f, deviation, keys[1], 0, values, both + most, (int)most);
    if (means != deviations || means == 0)
        ls_fields_fail(f, NULL, "expected \"%s\" and \"%s\" of as many numbers, or neither",
                       keys[0], keys[1]);
    int status = f->status ? LS_OK : set(r->prep, both, both + most, means, r->err);
    ls_free(r->prep->host, both);
    return status;
}

/* Reads the scale of the values of a row, and their limit. Returns LS_ENOMEM, or LS_OK after a
 * failure that `f` has. */
static int read_values(const reader *r, ls_fields *f)
{
    static const char *const keys[2] = {"mean", "deviation"};
    static const int narrow = 0;
    static const double none = 0;
    int width = narrow;
    ls_field_choice(f, "scale_type", widths, &narrow, &width);
    r->prep->wide = width == 1;
    const bool clips = ls_field_double(f, "clip", 0, 1e6, &none, &r->prep->clip);
    int status = read_scale(r, f, keys, r->input, ls_prep_scale_values);
    const int n = r->prep->scales;
    if (status == LS_OK && n && (!r->floats || r->input % (size_t)n != 0))
        ls_fields_fail(f, NULL,
                       "expected \"mean\" only if the input is floats, with a number for each "
                       "channel of a row of %zu, found %d",
                       r->input, n);
    if (status == LS_OK && clips && (size_t)n != r->input)
        ls_fields_fail(
            f, NULL, "expected \"clip\" only beside a \"mean\" for each of the %zu values of a row",
            r->input);
    return status;
}

/* Reads the keys of the description of an array: "type" (ls_prep.type), "divisor", "layout",
 * "missing", and its scale with "clip". */
static int read_array(const reader *r, ls_fields *f)
{
    static const char *const none = "";
    static const int first = 0;
    const char *type;
    long divisor;
    int status = f->status, layout;
    ls_field_text(f, "type", &none, &type);
    ls_field_int(f, "divisor", 1, 255, NULL, &divisor);
    ls_field_choice(f, "layout", layouts, &first, &layout);
    const cJSON *missing = ls_field_any(f, "missing");
    if (f->status == LS_OK && strlen(type) >= sizeof r->prep->type)
        ls_fields_fail(f, NULL, "expected \"type\" of less than 16 bytes");
    if (f->status == LS_OK && ls_fields_know(f, "divisor") && divisor != (r->floats ? 1 : 255))
        ls_fields_fail(f, NULL, "expected \"divisor\": %d, found %ld", r->floats ? 1 : 255,
                       divisor);
    if (f->status == LS_OK)
        status = read_values(r, f);
    if (status == LS_OK && f->status == LS_OK && missing)
        status = read_fill(r, f, missing);
    if (f->status == LS_OK && type)
        snprintf(r->prep->type, sizeof r->prep->type, "%.15s", type);
    r->prep->divisor = (int)divisor;
    r->prep->channels_last = f->status == LS_OK && layout == 1;
    return status == LS_ENOMEM ? status : ls_fields_end(f);
}

/* Reads the scale of the targets, and from how many rows scales were learnt. Returns LS_ENOMEM, or
 * LS_OK after a failure that `f` has. */
static int read_target(const reader *r, ls_fields *f)
{
    static const char *const keys[2] = {"target_mean", "target_deviation"};
    static const int narrow = 0;
    static const long none = 0;
    int width = narrow;
    ls_field_choice(f, "target_type", widths, &narrow, &width);
    r->prep->target_wide = width == 1;
    ls_field_int(f, "scale_rows", 0, LONG_MAX, &none, &r->prep->scale_rows);
    return read_scale(r, f, keys, LS_PREP_TARGETS, ls_prep_scale_targets);
}

/* Reads the keys of images. */
static int read_images(const reader *r, ls_fields *f)
{
    static const int cover = 0;
    static const long none = 0;
    long white;
    int fit;
    ls_field_choice(f, "fit", fit_names, &cover, &fit);
    if (fit == 1)
        ls_prep_read_resize(f, &r->prep->resize);
    ls_field_int(f, "white", 1, LS_PREP_WHITE, &none, &white);
    r->prep->white = (int)white;
    if (r->floats)
        ls_fields_fail(f, NULL,
                       "expected \"rows\" other than \"images\": the model's input is not bytes");
    return ls_fields_end(f);
}

int ls_prep_read(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input, bool floats,
                 const ls_host *host, ls_error *err)
{
    ls_fields f;
    long version;
    int kind;
    ls_fields_begin(&f, doc, node, "preparation", err);
    ls_field_version(&f, "version", OLDEST_VERSION, NEWEST_VERSION, &version);
    ls_field_choice(&f, "rows", kinds, NULL, &kind);
    reader r = {.doc = doc, .input = input, .floats = floats, .err = err};
    *out = NULL;
    if (f.status || f.missing)
        return ls_fields_end(&f);
    int status = ls_prep_create(&r.prep, (ls_prep_kind)kind, host, err);
    if (status)
        return status;
    status = read_target(&r, &f);
    if (status) {
        ls_prep_free(r.prep);
        return status;
    }
    if (kind == LS_PREP_TABLE) {
        status = read_table(&r, &f);
    } else if (kind == LS_PREP_ARRAY) {
        status = read_array(&r, &f);
    } else {
        status = read_images(&r, &f);
    }
    if (status)
        ls_prep_free(r.prep);
    else
        *out = r.prep;
    return status;
}

/* ---- older versions -------------------------------------------------------------------------- */

static const char *text_of(const cJSON *feature, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(feature, key));
}

/* Older versions wrote an object, a feature, for each float of a row; the features of a column of
 * texts follow each other and have the same "column". Reads the column whose first feature is
 * `first`, and stores the first feature of the next column in *next. */
static int read_feature(const reader *r, const cJSON *first, const cJSON **next)
{
    const char *name = text_of(first, "column"), **level = NULL;
    const cJSON *end = first;
    int levels = 0;
    if (!name)
        return ls_json_fail_value(r->err, r->doc, first, LS_ECONFIG,
                                  "features: expected \"column\", a text");
    for (; text_of(first, "is") && end && text_of(end, "is") && text_of(end, "column") &&
           strcmp(text_of(end, "column"), name) == 0;
         end = end->next)
        levels++;
    if (levels && !(level = ls_alloc_array(r->prep->host, (size_t)levels, sizeof *level)))
        return ls_fail(r->err, LS_ENOMEM, "out of memory for the preparation of rows");
    end = first;
    for (int k = 0; k < levels; k++, end = end->next)
        level[k] = text_of(end, "is");
    *next = levels ? end : first->next;
    int status = ls_prep_add(r->prep, name, level, levels, r->err);
    ls_free(r->prep->host, level);
    if (status || levels)
        return status;
    ls_prep_column *c = &r->prep->column[r->prep->columns - 1];
    const cJSON *mean = cJSON_GetObjectItemCaseSensitive(first, "mean"),
                *deviation = cJSON_GetObjectItemCaseSensitive(first, "deviation");
    c->scaled = cJSON_IsNumber(mean) && cJSON_IsNumber(deviation);
    c->mean = c->scaled ? mean->valuedouble : 0;
    c->deviation = c->scaled ? deviation->valuedouble : 1;
    return c->deviation > 0 ? LS_OK
                            : ls_json_fail_value(r->err, r->doc, deviation, LS_ECONFIG,
                                                 "features: expected a \"deviation\" above 0");
}

int ls_prep_read_features(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input,
                          const ls_host *host, ls_error *err)
{
    reader r = {.doc = doc, .input = input, .floats = true, .err = err};
    int status = ls_prep_create(&r.prep, LS_PREP_TABLE, host, err);
    *out = NULL;
    if (status)
        return status;
    for (const cJSON *next = node->child; status == LS_OK && next;) {
        const cJSON *first = next;
        status =
            r.prep->columns < LS_PREP_COLUMNS
                ? read_feature(&r, first, &next)
                : ls_json_fail_value(err, doc, first, LS_ECONFIG, "features: too many columns");
    }
    if (status == LS_OK)
        status = finish_table(&r, node);
    if (status)
        ls_prep_free(r.prep);
    else
        *out = r.prep;
    return status;
}
