/* SPDX-License-Identifier: MIT */
/* Reads the header of a CSV table, creates the table's columns, and applies the keys of the config
 * that name columns, such as data.drop. */
#include "base/error.h"
#include "base/host.h"
#include "data/csv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAMES_TOLD = 10, LIST_BYTES = 360 };

int ls_csv_no_memory(const ls_csv *c)
{
    return ls_fail(c->o->err, LS_ENOMEM, "%.300s: out of memory", c->t->path);
}

int ls_csv_fail_field(const ls_csv *c, const ls_csv_column *at, const char *expected)
{
    const int n = (int)(c->t->length < 70 ? c->t->length : 70);
    return ls_fail(c->o->err, LS_EDATA, "%.300s:%zu: column \"%.60s\": expected %s, found \"%.*s\"",
                   c->t->path, c->t->line, at->name, expected, n, c->t->field);
}

bool ls_csv_drop(ls_csv *c, ls_csv_column *col, const char *looks_like)
{
    if (!c->o->spec->keys.lenient || col == &c->column[c->target])
        return false;
    col->kind = LS_CSV_DROPPED;
    col->slot = -1;
    col->looks_like = looks_like;
    return true;
}

/* ---- keys that name columns ------------------------------------------------------------------ */

static bool is_named(const cJSON *item, const char *name)
{
    double number;
    if (cJSON_IsString(item))
        return strcmp(item->valuestring, name) == 0;
    if (cJSON_IsBool(item))
        return strcmp(cJSON_IsTrue(item) ? "true" : "false", name) == 0;
    return cJSON_IsNumber(item) && ls_field_is_number(name, &number) && number == item->valuedouble;
}

/* The value of a key names columns in one of three forms: a name, a text of several names with
 * commas between them, or a list of names. */
bool ls_csv_names(const ls_names *key, const char *name)
{
    const cJSON *item;
    if (key->text)
        return ls_is_listed(key->text, ',', name);
    if (!cJSON_IsArray(key->list))
        return key->list && is_named(key->list, name);
    cJSON_ArrayForEach(item, key->list)
    {
        if (is_named(item, name))
            return true;
    }
    return false;
}

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format,
                                                      ...)
{
    const size_t n = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is on the line before */
    vsnprintf(text + n, size - n, format, arguments);
    va_end(arguments);
}

/* Writes a hint such as: did you mean "a"? It has "b", "c", … (14 in all). `wanted` is the name
 * that the table does not have. */
static void list_columns(char out[LIST_BYTES], const ls_csv *c, const char *wanted)
{
    const char **name = ls_alloc_array(c->o->host, (size_t)c->columns + 1, sizeof *name);
    size_t n = 0;
    for (int i = 0; name && i < c->columns; i++)
        if (c->column[i].name[0])
            name[n++] = c->column[i].name;
    const char *near = name ? ls_closest(wanted, name, n) : NULL;
    out[0] = '\0';
    if (near)
        add(out, LIST_BYTES, "did you mean \"%.60s\"? It has ", near);
    else
        add(out, LIST_BYTES, "it has ");
    for (size_t i = 0; i < n && i < NAMES_TOLD && strlen(out) + 60 < LIST_BYTES; i++)
        add(out, LIST_BYTES, "%s\"%.24s\"", i ? ", " : "", name[i]);
    if (n > NAMES_TOLD)
        add(out, LIST_BYTES, ", … (%zu in all)", n);
    ls_free(c->o->host, name);
}

static int fail_name(const ls_csv *c, const char *key, const char *wanted, size_t length)
{
    char listed[LIST_BYTES], name[64];
    snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), wanted);
    list_columns(listed, c, name);
    return ls_dataset_refuse(c->o, key, "the table has no column \"%s\"; %s", name, listed);
}

static bool has_column(const ls_csv *c, const char *name, size_t n)
{
    for (int i = 0; i < c->columns; i++)
        if (strlen(c->column[i].name) == n && strncmp(c->column[i].name, name, n) == 0)
            return true;
    return false;
}

static int check_item(const ls_csv *c, const char *key, const cJSON *item)
{
    char number[32];
    for (int i = 0; i < c->columns; i++)
        if (is_named(item, c->column[i].name))
            return LS_OK;
    snprintf(number, sizeof number, "%.10g", cJSON_IsNumber(item) ? item->valuedouble : 0.0);
    const char *text = cJSON_IsString(item) ? item->valuestring
                       : cJSON_IsBool(item) ? (cJSON_IsTrue(item) ? "true" : "false")
                                            : number;
    return fail_name(c, key, text, strlen(text));
}

/* Checks that the table has every column that the key names. */
static int check_key(const ls_csv *c, const char *key, const ls_names *names)
{
    const cJSON *item;
    const char *p = names->text;
    if (p && has_column(c, p, strlen(p)))
        return LS_OK;
    for (; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!has_column(c, p, strcspn(p, ",")))
            return fail_name(c, key, p, strcspn(p, ","));
    if (names->text || !names->list)
        return LS_OK;
    if (!cJSON_IsArray(names->list))
        return check_item(c, key, names->list);
    cJSON_ArrayForEach(item, names->list)
    {
        int status = check_item(c, key, item);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ---- the header ------------------------------------------------------------------------------ */

static char decimal_of(const ls_csv *c)
{
    const int decimal = c->o->spec->keys.decimal;
    return decimal == LS_DECIMAL_AUTO ? '\0' : decimal == LS_DECIMAL_COMMA ? ',' : '.';
}

/* Returns whether a column has no name: the empty text, or "Unnamed: N", as pandas writes it.
 * pandas, R and spreadsheets write columns without a name that contain row numbers or nothing. */
static bool has_no_name(const char *name)
{
    static const char pandas[] = "Unnamed: ";
    const size_t n = sizeof pandas - 1;
    return name[0] == '\0' ||
           (strncmp(name, pandas, n) == 0 && strspn(name + n, "0123456789") == strlen(name + n));
}

static void find_kind(ls_csv *c, ls_csv_column *at)
{
    const ls_data_keys *k = &c->o->spec->keys;
    const bool is_target =
        k->target.text ? strcmp(k->target.text, at->name) == 0 : ls_csv_names(&k->target, at->name);
    if (is_target) {
        c->target = c->columns - 1;
        at->named = true;
        at->kind = k->labels == LS_LABELS_VALUES ? LS_CSV_NUMBER : LS_CSV_TEXT;
    } else if (k->weight && strcmp(k->weight, at->name) == 0) {
        c->weight = c->columns - 1;
        at->named = true;
        at->kind = LS_CSV_NUMBER;
    } else if (ls_csv_names(&k->drop, at->name)) {
        at->kind = LS_CSV_DROPPED;
    } else if (ls_csv_names(&k->categorical, at->name)) {
        at->kind = LS_CSV_TEXT;
        at->named = true;
    } else if (has_no_name(at->name)) {
        at->kind = LS_CSV_DROPPED;
        ls_log(c->o->host, LS_LOG_INFO,
               "%.300s: column %d has no name%s%.40s%s; such a column usually counts the rows; it "
               "is left out",
               c->t->path, c->columns, at->name[0] ? " (\"" : "", at->name,
               at->name[0] ? "\")" : "");
    }
}

static int add_column(ls_csv *c)
{
    const char *text;
    int status = ls_table_text(c->t, true, &text);
    if (status)
        return status;
    ls_csv_column *at = &c->column[c->columns++];
    at->decimal = decimal_of(c);
    at->prep_column = at->slot = -1;
    at->name = ls_strdup(c->o->host, text);
    if (!at->name)
        return ls_csv_no_memory(c);
    find_kind(c, at);
    if (at->kind != LS_CSV_DROPPED)
        at->slot = c->slots++;
    return LS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Checks that the columns that are used have different names. */
static int check_names(const ls_csv *c)
{
    size_t n = 0;
    char **name = ls_alloc_array(c->o->host, (size_t)c->columns, sizeof *name);
    int status = name ? LS_OK : ls_csv_no_memory(c);
    for (int i = 0; name && i < c->columns; i++)
        if (c->column[i].kind != LS_CSV_DROPPED)
            name[n++] = c->column[i].name;
    if (name)
        qsort(name, n, sizeof *name, by_name);
    for (size_t i = 1; status == LS_OK && i < n; i++)
        if (name[i][0] && strcmp(name[i - 1], name[i]) == 0)
            status = ls_fail(c->o->err, LS_EDATA,
                             "%.300s:1: column \"%.60s\": expected columns of different names",
                             c->t->path, name[i]);
    ls_free(c->o->host, name);
    return status;
}

/* If the table is only inspected (keys.lenient) and no key names the target, chooses the column
 * with a customary name, such as "target", or else the last column. */
static void guess_target(ls_csv *c)
{
    static const char *const usual[] = {"target", "label", "class", "y", "species", "diagnosis"};
    const ls_data_keys *k = &c->o->spec->keys;
    int found = c->columns - 1;
    for (size_t u = sizeof usual / sizeof *usual; u-- > 0;)
        for (int i = c->columns; i-- > 0;)
            found = strcasecmp(c->column[i].name, usual[u]) == 0 ? i : found;
    if (!k->lenient || k->target.text || k->target.list || c->column[found].slot < 0 ||
        found == c->weight)
        return;
    c->target = found;
    c->column[found].named = true;
    c->column[found].kind = k->labels == LS_LABELS_VALUES ? LS_CSV_NUMBER : LS_CSV_TEXT;
}

/* Returns whether the text is a list of several columns, with commas between the names. */
static bool is_list(const ls_csv *c, const char *text)
{
    bool all = strchr(text, ',') != NULL;
    for (const char *p = text; p && all; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        all = has_column(c, p, strcspn(p, ","));
    return all;
}

static int check_target(const ls_csv *c)
{
    char listed[LIST_BYTES];
    const ls_names *target = &c->o->spec->keys.target;
    if (c->target >= 0)
        return LS_OK;
    if (target->text && is_list(c, target->text))
        return ls_dataset_refuse(c->o, "data.target",
                                 "expected one column, found several: \"%.60s\"; " LS_ONE_TARGET,
                                 target->text);
    if (target->text && target->text[0])
        return fail_name(c, "data.target", target->text, strlen(target->text));
    if (target->list)
        return check_item(c, "data.target", target->list);
    list_columns(listed, c, "");
    return ls_dataset_refuse(c->o, "data.target", "expected the name of a column of %.200s; %s",
                             c->t->path, listed);
}

/* Checks that the table has the column of weights, and that no other key names it. */
static int check_weight(const ls_csv *c)
{
    const ls_data_keys *k = &c->o->spec->keys;
    if (!k->weight)
        return LS_OK;
    if (!has_column(c, k->weight, strlen(k->weight)))
        return fail_name(c, "data.weight", k->weight, strlen(k->weight));
    if (c->weight < 0 || ls_csv_names(&k->drop, k->weight) ||
        ls_csv_names(&k->categorical, k->weight))
        return ls_dataset_refuse(
            c->o, "data.weight",
            "the column \"%.60s\" is also named in %s; a column of weights has "
            "no other use",
            k->weight,
            c->weight < 0                       ? "data.target"
            : ls_csv_names(&k->drop, k->weight) ? "data.drop"
                                                : "data.categorical");
    return LS_OK;
}

int ls_csv_read_header(ls_csv *c)
{
    const ls_data_keys *k = &c->o->spec->keys;
    size_t most;
    int status = ls_table_count(c->t, &most);
    if (status)
        return status;
    if (most > LS_TABLE_COLUMNS)
        return ls_table_fail(c->t, "expected at most 65536 columns");
    c->column = ls_alloc_array(c->o->host, most + 1, sizeof *c->column);
    c->target = c->weight = -1;
    if (!c->column)
        return ls_csv_no_memory(c);
    do {
        status = ls_table_field(c->t);
        if (status == LS_OK && (size_t)c->columns > most)
            status = ls_table_fail(c->t, "expected a header of less than 16 MiB");
        if (status == LS_OK)
            status = add_column(c);
    } while (status == LS_OK && !c->t->ends_row);
    if (status == LS_OK)
        status = check_names(c);
    if (status == LS_OK)
        guess_target(c);
    if (status == LS_OK)
        status = check_target(c);
    if (status == LS_OK)
        status = check_weight(c);
    if (status == LS_OK)
        status = check_key(c, "data.drop", &k->drop);
    return status ? status : check_key(c, "data.categorical", &k->categorical);
}

int ls_csv_check_header(ls_csv *c)
{
    const char *text;
    int status = LS_OK, i = 0;
    do {
        status = ls_table_field(c->t);
        if (status == LS_OK)
            status = ls_table_text(c->t, true, &text);
        if (status == LS_OK && (i == c->columns || strcmp(c->column[i].name, text) != 0))
            status = ls_csv_fail_field(c, &c->column[i < c->columns ? i : c->columns - 1],
                                       "the columns of the training table, in the same order");
        i++;
        if (status == LS_OK && c->t->ends_row && i < c->columns)
            status = ls_table_fail(c->t, "expected all columns of the training table");
    } while (status == LS_OK && !c->t->ends_row);
    return status;
}
