/* SPDX-License-Identifier: MIT */
/* Creates descriptions of rows (prep.h), and applies them to rows. */
#include "prep/prep.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"
#include "json/shortest.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- creating -------------------------------------------------------------------------------- */

static int no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for the preparation of rows");
}

int ls_prep_create(ls_prep **out, ls_prep_kind kind, const ls_host *host, ls_error *err)
{
    ls_prep *p = *out = ls_alloc(host, sizeof *p);
    if (!p)
        return no_memory(err);
    p->host = host;
    p->kind = kind;
    p->divisor = 1;
    return LS_OK;
}

static void free_column(ls_prep_column *c, const ls_host *host)
{
    for (int k = 0; c->level && k < c->levels; k++)
        ls_free(host, c->level[k]);
    for (int k = 0; k < c->parts; k++)
        ls_free(host, c->part[k].name);
    ls_free(host, c->part);
    ls_free(host, c->level);
    ls_free(host, c->sorted);
    ls_free(host, c->name);
}

void ls_prep_free(ls_prep *p)
{
    if (!p)
        return;
    const ls_host *host = p->host;
    for (int i = 0; i < p->columns; i++)
        free_column(&p->column[i], host);
    ls_free(host, p->column);
    ls_free(host, p->sorted);
    ls_free(host, p->target);
    ls_free(host, p->target_mean);
    ls_free(host, p->mean);
    ls_free(host, p->fill);
    ls_free(host, p);
}

/* Copies `text`, and replaces each byte that is invalid UTF-8 by U+FFFD, which has three bytes.
 * Capacity of `out`: three times the length of `text`, plus 1. */
static void clean(char *out, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        const size_t n = ls_utf8_length((const unsigned char *)text, left);
        memcpy(out, n ? text : "\xEF\xBF\xBD", n ? n : 3);
        out += n ? n : 3;
        text += n ? n : 1;
        left -= n ? n : 1;
    }
    *out = '\0';
}

static bool is_clean(const char *text)
{
    size_t left = strlen(text), n = 1;
    for (; left > 0 && n > 0; text += n, left -= n)
        n = ls_utf8_length((const unsigned char *)text, left);
    return n > 0;
}

static char *copy_clean(const char *text, const ls_host *host)
{
    if (is_clean(text))
        return ls_strdup(host, text);
    char *out = ls_alloc_array(host, strlen(text) + 1, 3);
    if (out)
        clean(out, text);
    return out;
}

static bool copy_levels(ls_prep_column *c, const char *const *level, int levels,
                        const ls_host *host)
{
    c->level = ls_alloc_array(host, (size_t)levels, sizeof *c->level);
    c->sorted = ls_alloc_array(host, (size_t)levels, sizeof *c->sorted);
    if (!c->level || !c->sorted)
        return false;
    for (c->levels = 0; c->levels < levels; c->levels++) {
        c->level[c->levels] = copy_clean(level[c->levels], host);
        if (!c->level[c->levels])
            return false;
        c->sorted[c->levels] = (ls_prep_name){c->level[c->levels], c->levels};
    }
    return true;
}

int ls_prep_add(ls_prep *p, const char *name, const char *const *level, int levels, ls_error *err)
{
    /* The capacity doubles when the number of columns is a power of two. */
    if ((p->columns & (p->columns - 1)) == 0) {
        const size_t capacity = p->columns ? 2 * (size_t)p->columns : 1;
        ls_prep_column *more = ls_alloc_array(p->host, capacity, sizeof *more);
        if (!more)
            return no_memory(err);
        if (p->columns)
            memcpy(more, p->column, (size_t)p->columns * sizeof *more);
        ls_free(p->host, p->column);
        p->column = more;
    }
    ls_prep_column *c = &p->column[p->columns++];
    *c = (ls_prep_column){.name = copy_clean(name, p->host), .deviation = 1};
    return c->name && (levels == 0 || copy_levels(c, level, levels, p->host)) ? LS_OK
                                                                              : no_memory(err);
}

/* Returns the name of a part of the column `column`. The caller frees it. */
static char *name_of_part(const char *column, ls_date_part part, const ls_host *host)
{
    const size_t size = strlen(column) + 16;
    char *name = ls_alloc(host, size);
    if (name)
        snprintf(name, size, "%s_%s", column, ls_date_part_names[part]);
    return name;
}

int ls_prep_add_dates(ls_prep *p, const char *name, ls_date_form form, double since,
                      const ls_date_part *part, int parts, ls_error *err)
{
    int status = ls_prep_add(p, name, NULL, 0, err);
    if (status)
        return status;
    ls_prep_column *c = &p->column[p->columns - 1];
    c->date = form;
    c->since = since;
    c->part = ls_alloc_array(p->host, (size_t)parts, sizeof *c->part);
    if (!c->part)
        return no_memory(err);
    for (; c->parts < parts; c->parts++) {
        char *own = name_of_part(c->name, part[c->parts], p->host);
        if (!own)
            return no_memory(err);
        c->part[c->parts] = (ls_prep_column){.name = own, .deviation = 1, .is = part[c->parts]};
    }
    return LS_OK;
}

int ls_prep_width(const ls_prep_column *c)
{
    return c->levels ? c->levels : c->parts ? c->parts : 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const ls_prep_name *)a)->text, ((const ls_prep_name *)b)->text);
}

/* Sorts names. Returns one that occurs twice, or NULL. */
static const char *sort_names(ls_prep_name *name, int count)
{
    qsort(name, (size_t)count, sizeof *name, by_text);
    for (int i = 1; i < count; i++)
        if (strcmp(name[i - 1].text, name[i].text) == 0)
            return name[i].text;
    return NULL;
}

int ls_prep_check_names(const char *const *name, int count, const char *what, const ls_host *host,
                        ls_error *err)
{
    ls_prep_column c = {.levels = 0};
    int status = LS_OK;
    if (!copy_levels(&c, name, count, host))
        status = no_memory(err);
    const char *twice = status ? NULL : sort_names(c.sorted, count);
    if (twice)
        status =
            ls_fail(err, LS_EDATA,
                    "%s \"%.60s\": expected different names, found it twice; names that differ "
                    "only in bytes that are not UTF-8 are the same: save them as UTF-8",
                    what, twice);
    for (int k = 0; c.level && k < c.levels; k++)
        ls_free(host, c.level[k]);
    ls_free(host, c.level);
    ls_free(host, c.sorted);
    return status;
}

int ls_prep_finish(ls_prep *p, ls_error *err)
{
    int64_t at = 0;
    p->sorted = ls_alloc_array(p->host, (size_t)p->columns + 1, sizeof *p->sorted);
    if (!p->sorted)
        return no_memory(err);
    for (int i = 0; i < p->columns; i++) {
        ls_prep_column *c = &p->column[i];
        const char *twice = c->levels ? sort_names(c->sorted, c->levels) : NULL;
        if (twice)
            return ls_fail(err, LS_EDATA,
                           "column \"%.60s\": expected different levels, found "
                           "\"%.60s\" twice",
                           c->name, twice);
        p->sorted[i] = (ls_prep_name){c->name, i};
        c->first = (int)at;
        for (int k = 0; k < c->parts; k++)
            c->part[k].first = c->first + k;
        at += ls_prep_width(c);
        if (at > LS_PREP_FEATURES)
            return ls_fail(err, LS_EDATA, "expected columns of at most %d numbers",
                           LS_PREP_FEATURES);
    }
    p->features = (int)at;
    const char *twice = sort_names(p->sorted, p->columns);
    return twice ? ls_fail(err, LS_EDATA,
                           "expected columns of different names, found \"%.60s\" twice", twice)
                 : LS_OK;
}

/* ---- applying -------------------------------------------------------------------------------- */

/* Returns `text`, or a copy of it without blanks at its ends, as fields and names of a table are
 * read. A text that is longer than any name is returned as it is. */
static const char *trimmed(char out[4096 + 1], const char *text)
{
    size_t n = strlen(text), first = 0;
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    while (first < n && strchr(" \t\r\n", text[first]))
        first++;
    if ((!text[n] && first == 0) || n - first > 4096)
        return text;
    memcpy(out, text + first, n - first);
    out[n - first] = '\0';
    return out;
}

/* Returns `text`, or a copy of it in `same` in which each byte that is invalid UTF-8 is U+FFFD, as
 * in the names of a description. NULL: the text is longer than any name. */
static const char *cleaned(char same[3 * 4096 + 1], const char *text)
{
    if (is_clean(text))
        return text;
    if (strlen(text) > 4096)
        return NULL;
    clean(same, text);
    return same;
}

static const ls_prep_name *find_bytes(const ls_prep_name *sorted, int count, const char *text)
{
    const ls_prep_name wanted = {text, 0};
    return count > 0 ? bsearch(&wanted, sorted, (size_t)count, sizeof *sorted, by_text) : NULL;
}

int ls_prep_find(const ls_prep *p, const char *name)
{
    char same[3 * 4096 + 1], inner[4096 + 1];
    const char *text = cleaned(same, trimmed(inner, name));
    const ls_prep_name *found = text ? find_bytes(p->sorted, p->columns, text) : NULL;
    for (int i = 0; text && !found && !ls_text_has_one_form(text) && i < p->columns; i++)
        found = ls_text_is_same(p->sorted[i].text, text) ? &p->sorted[i] : NULL;
    return found ? found->index : -1;
}

int ls_prep_level(const ls_prep_column *c, const char *text)
{
    char same[3 * 4096 + 1];
    ls_digits digits;
    int at = -1;
    const bool codes = c->rule == LS_LEVELS_CODES;
    const char *wanted = cleaned(same, text);
    const ls_prep_name *found = wanted ? find_bytes(c->sorted, c->levels, wanted) : NULL;
    if (found || !wanted)
        return found ? found->index : -1;
    if (ls_text_has_one_form(wanted) && !ls_level_is_logical(wanted) &&
        (codes || !ls_field_digits(wanted, &digits)))
        return -1;
    for (int k = 0; k < c->levels; k++)
        if (ls_level_is_same(c->level[k], wanted, codes)) {
            if (at >= 0)
                return -1;
            at = k;
        }
    return at;
}

/* Limits a scaled number to −clip … clip. 0: no limit. */
static double limited(double scaled, double clip)
{
    return clip > 0 ? fmin(fmax(scaled, -clip), clip) : scaled;
}

bool ls_prep_number(const ls_prep_column *c, double raw, float *ready)
{
    const bool missing = !isfinite(raw);
    const double v = missing ? c->missing : c->wide ? raw : (double)(float)raw;
    *ready = (float)(c->scaled ? limited((v - c->mean) / c->deviation, c->clip) : v);
    return missing ? c->allows_missing : isfinite((float)raw) && isfinite(*ready);
}

/* Formats the levels as "a, b, c", truncated if there are many. */
static const char *list_levels(char out[160], const ls_prep_column *c)
{
    size_t n = 0;
    for (int k = 0; k < c->levels && n < 150; k++) {
        const size_t length = strlen(c->level[k]);
        if (n + length + 2 > 110) {
            snprintf(out + n, 160 - n, "%s… (%d in all)", k ? ", " : "", c->levels);
            break;
        }
        n += (size_t)snprintf(out + n, 160 - n, "%s%s", k ? ", " : "", c->level[k]);
    }
    return out;
}

const char *const ls_prep_unknown_names[] = {"empty", "zeros", "error", NULL};

static int fail_value(const ls_prep_column *c, const char *prefix, const char *expected,
                      const char *found, ls_error *err)
{
    ls_fail(err, LS_EDATA, "%scolumn \"%.60s\": expected %s, found \"%.70s\"", prefix, c->name,
            expected, found);
    return LS_EDATA;
}

/* Handles an unknown value, about which *err has the message. Raises *found; `text`: the value is
 * one of a column of texts. */
static int take_unknown(const ls_prep *p, bool text, ls_prep_found *found)
{
    const ls_prep_found now =
        text && p->unknown == LS_UNKNOWN_ZEROS ? LS_PREP_ZEROED : LS_PREP_UNKNOWN;
    *found = now > *found ? now : *found;
    return p->unknown == LS_UNKNOWN_ERROR ? LS_EDATA : LS_OK;
}

/* Writes an unknown text to a row. */
static int put_unknown(const ls_prep *p, const ls_prep_column *c, double *row, ls_prep_found *found)
{
    for (int k = 0; k < c->levels; k++)
        row[c->first + k] = p->unknown == LS_UNKNOWN_ZEROS ? 0 : (double)NAN;
    return take_unknown(p, true, found);
}

/* Writes the level of `text`, or of `number` if `text` is NULL, to a row. A double of 2^53 or more
 * stands for several whole numbers, so it is refused. */
static int put_level(const ls_prep *p, const ls_prep_column *c, const char *text, double number,
                     double *row, const char *prefix, ls_prep_found *found, ls_error *err)
{
    char shown[LS_SHORTEST], levels[160] = "", expected[280];
    const bool exact = text || !(fabs(number) >= 0x1p53 && isfinite(number));
    if (!text && isfinite(number))
        ls_shortest(shown, number, false);
    else if (!text)
        snprintf(shown, sizeof shown, "%g", number);
    text = text ? text : shown;
    const int at = exact ? ls_prep_level(c, text) : -1;
    for (int k = 0; k < c->levels; k++)
        row[c->first + k] = k == at;
    if (at >= 0)
        return LS_OK;
    const char *why = "";
    if (!exact)
        why = "; a number of this size has lost digits: give a text";
    else if (!is_clean(text))
        why = "; this text is not UTF-8 but perhaps Latin-1: save the table as UTF-8";
    else if (c->rule == LS_LEVELS_CODES)
        why = "; in this column 7 and 07 differ";
    snprintf(expected, sizeof expected, "a text that the model has learnt: %s%s",
             list_levels(levels, c), why);
    int status = fail_value(c, prefix, expected, text, err);
    return exact ? put_unknown(p, c, row, found) : status;
}

static bool is_missing(const ls_prep_column *c, const char *text)
{
    const size_t n = strlen(text);
    if (c->levels)
        return ls_field_is_missing(text, n) && ls_prep_level(c, text) < 0;
    return ls_field_is_missing(text, n) || ls_field_is_missing_number(text, n);
}

static int fail_number(const ls_prep_column *c, const char *text, const char *prefix, ls_error *err)
{
    char expected[120];
    const char *is = ls_field_looks_like(text, strlen(text));
    double value;
    unsigned form = 0;
    if (is)
        snprintf(expected, sizeof expected, "a number without a sign or unit (this is %s)", is);
    else if (ls_number_read(text, strlen(text), 0, &value, &form))
        snprintf(expected, sizeof expected, "a number with a decimal %s, as the training table has",
                 c->decimal == ',' ? "comma" : "point");
    else
        snprintf(expected, sizeof expected, "a number");
    return fail_value(c, prefix, expected, text, err);
}

bool ls_prep_has_commas(const ls_prep *p)
{
    bool commas = p->target_decimal == ',';
    for (int i = 0; i < p->columns && !commas; i++)
        commas = p->column[i].decimal == ',';
    return commas;
}

/* Writes a number to a row: that in `text`, or `number` if `text` is NULL. The text must use the
 * decimal separator of the training table. If that of the column is not known, it must be possible
 * to read the text in only one way, and a decimal comma needs a table with decimal commas. */
static int put_number(const ls_prep *p, const ls_prep_column *c, const char *text, double number,
                      double *row, const char *prefix, ls_prep_found *found, ls_error *err)
{
    char shown[64];
    unsigned form = 0;
    if (text && (!ls_number_read(text, strlen(text), c->decimal, &number, &form) ||
                 (form & LS_FORM_COMMA && !c->decimal && !ls_prep_has_commas(p))))
        return fail_number(c, text, prefix, err);
    if (form & LS_FORM_COMMA_OR_GROUP && !c->decimal)
        return fail_value(
            c, prefix,
            "a number that can be read in only one way; write it with a decimal point, and "
            "nothing between thousands",
            text, err);
    /* inf would be a missing number */
    row[c->first] = isfinite(number) ? number : copysign(DBL_MAX, number);
    snprintf(shown, sizeof shown, "%g", number);
    if (isfinite((float)number))
        return LS_OK;
    fail_value(c, prefix, "a finite number that a float holds", text ? text : shown, err);
    return take_unknown(p, false, found);
}

/* Writes the parts of the date in `text` to a row. */
static int put_date(const ls_prep *p, const ls_prep_column *c, const char *text, double number,
                    double *row, const char *prefix, ls_prep_found *found, ls_error *err)
{
    static const char *const expected[LS_DATE_FORMS] = {
        [LS_DATE_YMD] = "a date such as 2024-12-31",
        [LS_DATE_DMY] = "a date such as 31.12.2024 or 2024-12-31",
        [LS_DATE_MDY] = "a date such as 12/31/2024 or 2024-12-31",
        [LS_DATE_TIME] = "a time such as 08:15"};
    char shown[64];
    double moment = 0;
    const bool known = text && ls_date_read(text, strlen(text), c->date, &moment);
    /* DBL_MAX: a number that is unknown */
    for (int k = 0; k < c->parts; k++)
        row[c->first + k] =
            known ? ls_date_part_of(c->part[k].is, moment, c->since) : (double)DBL_MAX;
    if (known)
        return LS_OK;
    snprintf(shown, sizeof shown, "the number %g", number);
    fail_value(c, prefix, expected[c->date], text ? text : shown, err);
    return text ? take_unknown(p, false, found) : LS_EDATA;
}

static int put_missing(const ls_prep *p, const ls_prep_column *c, const char *text, double *row,
                       const char *prefix, ls_prep_found *found, ls_error *err)
{
    for (int k = 0; k < ls_prep_width(c); k++)
        row[c->first + k] = c->levels ? 0 : (double)NAN;
    if (c->allows_missing)
        return LS_OK;
    fail_value(c, prefix, "a value, as the model has learnt from rows that all had one",
               text ? text : "", err);
    return c->levels ? put_unknown(p, c, row, found) : take_unknown(p, false, found);
}

int ls_prep_put(const ls_prep *p, int column, const char *text, double number, double *row,
                const char *prefix, ls_prep_found *found, ls_error *err)
{
    char inner[4096 + 1];
    const ls_prep_column *c = &p->column[column];
    text = text ? trimmed(inner, text) : NULL;
    const bool missing = text ? is_missing(c, text) : c->levels ? isnan(number) : !isfinite(number);
    if (missing)
        return put_missing(p, c, text, row, prefix, found, err);
    if (c->date)
        return put_date(p, c, text, number, row, prefix, found, err);
    return c->levels ? put_level(p, c, text, number, row, prefix, found, err)
                     : put_number(p, c, text, number, row, prefix, found, err);
}

static double raw_number(const void *raw, bool wide, size_t i)
{
    return wide ? ((const double *)raw)[i] : (double)((const float *)raw)[i];
}

/* Converts the floats of a column of texts. If one is not finite, the text is unknown. */
static int ready_level(const ls_prep *p, const ls_prep_column *c, const void *raw, bool wide,
                       float *ready, ls_prep_found *found, ls_error *err)
{
    const size_t first = (size_t)c->first, levels = (size_t)c->levels;
    bool known = true;
    for (size_t i = first; i < first + levels; i++) {
        ready[i] = (float)raw_number(raw, wide, i);
        known &= isfinite(ready[i]) != 0;
    }
    if (known)
        return LS_OK;
    memset(ready + first, 0, levels * sizeof *ready);
    if (*found < LS_PREP_UNKNOWN)
        fail_value(c, "", "a text that the model has learnt", "nan", err);
    return take_unknown(p, true, found);
}

/* Converts the number of a column, or of a part of one. */
static int ready_number(const ls_prep *p, const ls_prep_column *c, const void *raw, bool wide,
                        float *ready, ls_prep_found *found, ls_error *err)
{
    char shown[32];
    const double v = raw_number(raw, wide, (size_t)c->first);
    if (ls_prep_number(c, v, &ready[c->first]))
        return LS_OK;
    snprintf(shown, sizeof shown, "%g", v);
    if (*found < LS_PREP_UNKNOWN)
        fail_value(c, "",
                   isfinite(v) ? "a number that a float holds"
                               : "a value, as the model has learnt from rows that all had one",
                   shown, err);
    return take_unknown(p, false, found);
}

static int ready_column(const ls_prep *p, const ls_prep_column *c, const void *raw, bool wide,
                        float *ready, ls_prep_found *found, ls_error *err)
{
    int status = LS_OK;
    if (c->levels)
        return ready_level(p, c, raw, wide, ready, found, err);
    if (!c->date)
        return ready_number(p, c, raw, wide, ready, found, err);
    for (int k = 0; status == LS_OK && k < c->parts; k++)
        status = ready_number(p, &c->part[k], raw, wide, ready, found, err);
    return status;
}

bool ls_prep_value(const ls_prep *p, double raw, size_t i, size_t count, float *ready)
{
    const bool missing = p && p->fills > 0 && isnan(raw);
    double v = missing ? (double)p->fill[p->fills > 1 ? i : 0] : raw;
    const bool held = isfinite((float)v) != 0;
    if (p && p->scales > 0) {
        const size_t k = i / (count / (size_t)p->scales);
        v = p->wide ? v : (double)(float)v;
        v = limited((v - p->mean[k]) / ls_prep_divisor(p->deviation[k]), p->clip);
    }
    *ready = (float)v;
    return held && isfinite(*ready);
}

/* Converts a row of images or of an array. If `p` is NULL, nothing is replaced or scaled. */
static int ready_values(const ls_prep *p, const void *raw, bool wide, float *ready, size_t count,
                        ls_prep_found *found, ls_error *err)
{
    size_t bad = count;
    double bad_value = 0;
    for (size_t i = 0; i < count; i++) {
        const double v = raw_number(raw, wide, i);
        if (!ls_prep_value(p, v, i, count, &ready[i]) && bad == count) {
            bad = i;
            bad_value = v;
        }
    }
    if (bad == count)
        return LS_OK;
    const bool held = isfinite((float)bad_value) != 0;
    ls_fail(err, LS_EDATA, "column %zu: expected a %s, found %g", bad,
            held ? "number that a float holds once it is scaled"
                 : "finite number that a float holds",
            bad_value);
    *found = LS_PREP_UNKNOWN;
    return p && p->unknown == LS_UNKNOWN_ERROR ? LS_EDATA : LS_OK;
}

int ls_prep_ready(const ls_prep *p, const void *raw, bool wide, float *ready, size_t count,
                  ls_prep_found *found, ls_error *err)
{
    int status = LS_OK;
    if (!p || p->kind != LS_PREP_TABLE)
        status = ready_values(p, raw, wide, ready, count, found, err);
    for (int i = 0; status == LS_OK && p && p->kind == LS_PREP_TABLE && i < p->columns; i++)
        status = ready_column(p, &p->column[i], raw, wide, ready, found, err);
    if (*found == LS_PREP_UNKNOWN)
        memset(ready, 0, count * sizeof *ready);
    return status;
}

const ls_prep_column *ls_prep_feature(const ls_prep *p, int i)
{
    int lo = 0, hi = p->columns - 1;
    while (lo < hi) {
        const int middle = hi - (hi - lo) / 2;
        if (p->column[middle].first <= i)
            lo = middle;
        else
            hi = middle - 1;
    }
    const ls_prep_column *c = &p->column[lo];
    return c->parts ? &c->part[i - c->first] : c;
}

/* ---- targets --------------------------------------------------------------------------------- */

/* Copies means and deviations to one new allocation. Returns NULL if there is no memory. */
static double *copy_scale(const ls_prep *p, const double *mean, const double *deviation, int count)
{
    double *both = ls_alloc_array(p->host, 2 * (size_t)count, sizeof *both);
    if (both) {
        memcpy(both, mean, (size_t)count * sizeof *both);
        memcpy(both + count, deviation, (size_t)count * sizeof *both);
    }
    return both;
}

int ls_prep_scale_values(ls_prep *p, const double *mean, const double *deviation, int count,
                         ls_error *err)
{
    double *both = copy_scale(p, mean, deviation, count);
    if (!both)
        return no_memory(err);
    ls_free(p->host, p->mean);
    p->scales = count;
    p->mean = both;
    p->deviation = both + count;
    return LS_OK;
}

int ls_prep_scale_targets(ls_prep *p, const double *mean, const double *deviation, int count,
                          ls_error *err)
{
    double *both = copy_scale(p, mean, deviation, count);
    if (!both)
        return no_memory(err);
    ls_free(p->host, p->target_mean);
    p->targets = count;
    p->target_mean = both;
    p->target_deviation = both + count;
    return LS_OK;
}

float ls_prep_target(const ls_prep *p, size_t i, double value)
{
    if (!p || p->targets == 0)
        return (float)value;
    const double v = p->target_wide ? value : (double)(float)value;
    const size_t k = i % (size_t)p->targets;
    return (float)((v - p->target_mean[k]) / ls_prep_divisor(p->target_deviation[k]));
}

double ls_prep_output(const ls_prep *p, size_t i, float value)
{
    if (!p || p->targets == 0)
        return (double)value;
    const size_t k = i % (size_t)p->targets;
    return (double)value * ls_prep_divisor(p->target_deviation[k]) + p->target_mean[k];
}

double ls_prep_error_unit(const ls_prep *p)
{
    if (!p || p->targets == 0)
        return 1;
    for (int i = 1; i < p->targets; i++)
        if (p->target_deviation[i] != p->target_deviation[0])
            return 1;
    return ls_prep_divisor(p->target_deviation[0]);
}
