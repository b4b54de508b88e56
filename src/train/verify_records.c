/* SPDX-License-Identifier: MIT */
/* Compares the records of a run, metrics.jsonl, with those of a replay (verify.h).
 *
 * Both are in the same order: the record of the start; for each epoch its steps, the epoch and its
 * evaluation; the end. So each record has a number, its *order*, and the two files are merged by
 * it. Keys that depend on devices and times (ls_record_key.varies) are not compared, nor are
 * faults, arrivals and resumes. */
#include "train/verify.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "records/record.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define LAST UINT64_MAX /* order of the record of the end */

static void differs(ls_records_check *c, int line, uint64_t step, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void differs(ls_records_check *c, int line, uint64_t step, const char *format, ...)
{
    va_list args;
    if (c->wrong[0])
        return; /* the first difference counts */
    va_start(args, format);
    vsnprintf(c->wrong, sizeof c->wrong, format, args);
    va_end(args);
    c->wrong_line = line;
    c->wrong_step = step;
}

/* ---- the order of records ------------------------------------------------------------------- */

static int type_of(const cJSON *record)
{
    const char *name = cJSON_GetStringValue(member(record, "type"));
    for (int type = 0; name && type < LS_RECORD_TYPES; type++)
        if (strcmp(name, ls_record_names[type]) == 0)
            return type;
    return LS_RECORD_TYPES;
}

static uint64_t number_of(const cJSON *record, const char *key)
{
    const cJSON *node = member(record, key);
    return cJSON_IsNumber(node) && node->valuedouble >= 0 && node->valuedouble < 0x1p50
               ? (uint64_t)node->valuedouble
               : 0;
}

/* Returns whether records of the type are compared; if so, sets *order. */
static bool is_compared(uint64_t *order, const ls_records_check *c, int type, const cJSON *record)
{
    switch (type) {
    case LS_RECORD_RUN_START: *order = 0; return true;
    case LS_RECORD_NONFINITE: *order = 4 * number_of(record, "step"); return true;
    case LS_RECORD_STEP: *order = 4 * number_of(record, "step") + 1; return true;
    case LS_RECORD_EPOCH: *order = 4 * c->steps * number_of(record, "epoch") + 2; return true;
    case LS_RECORD_EVAL: *order = 4 * c->steps * number_of(record, "epoch") + 3; return true;
    case LS_RECORD_RUN_END: *order = LAST; return true;
    default: return false;
    }
}

/* Returns the name of a record for messages: "step 17", "eval 2", "run_end". */
static const char *name_of(char out[64], int type, const cJSON *record)
{
    const bool of_step = type == LS_RECORD_STEP || type == LS_RECORD_NONFINITE;
    const bool of_epoch = type == LS_RECORD_EPOCH || type == LS_RECORD_EVAL;
    if (of_step || of_epoch)
        snprintf(out, 64, "%s %llu", ls_record_names[type],
                 (unsigned long long)number_of(record, of_step ? "step" : "epoch"));
    else
        snprintf(out, 64, "%s", ls_record_names[type]);
    return out;
}

static uint64_t step_of(int type, const cJSON *record)
{
    return type == LS_RECORD_STEP || type == LS_RECORD_NONFINITE ? number_of(record, "step") : 0;
}

/* ---- reading the file ----------------------------------------------------------------------- */

static void close_file(ls_records_check *c)
{
    if (c->file)
        fclose(c->file);
    c->file = NULL;
}

enum { LINE_MOST = 64 << 20 /* greatest length of a line in bytes */ };

/* Reads the next line, with its line feed, into c->line. Returns its length; 0: the file has no
 * further line. A line of more than LINE_MOST bytes is cut, because the file is not the verifier's
 * and may be of any size. */
static size_t get_line(ls_records_check *c)
{
    int byte = 0;
    size_t length = 0;
    c->line.length = 0;
    while (c->file && length <= LINE_MOST && byte != '\n' && (byte = getc(c->file)) != EOF) {
        const char one = (char)byte;
        ls_buffer_add(&c->line, &one, 1);
        length++;
    }
    ls_buffer_put(&c->line, ""); /* ends the text with a zero */
    return length;
}

/* Reads the next line as JSON. Returns false at the end of the file, or if the line is no JSON. */
static bool read_line(ls_records_check *c)
{
    ls_error why;
    ls_json_destroy(c->doc);
    c->doc = NULL;
    const size_t length = get_line(c);
    if (length == 0) {
        close_file(c);
        return false;
    }
    c->number++;
    int status = ls_buffer_status(&c->line, &why);
    if (length > LINE_MOST)
        status = ls_fail(&why, LS_EDATA, "it has more than %d bytes", (int)LINE_MOST);
    if (status == LS_OK)
        status =
            ls_json_parse_line(&c->doc, c->path, c->line.text, length, c->number, c->host, &why);
    if (status == LS_OK)
        return true;
    differs(c, c->number, 0, "the line cannot be read: %.400s", why.text);
    close_file(c);
    return false;
}

/* Reads on to the next record that can be compared. */
static void next(ls_records_check *c)
{
    while (read_line(c)) {
        const cJSON *record = ls_json_root(c->doc);
        c->type = type_of(record);
        if (c->number == 1 && c->type == LS_RECORD_RESUME)
            c->partial = c->skips = true;
        if (c->type == LS_RECORD_RESUME && member(record, "missing_records"))
            c->partial = c->skips = true;
        if (c->type == LS_RECORD_TYPES)
            differs(c, c->number, 0, "a record of an unknown type");
        if (is_compared(&c->order, c, c->type, record))
            return;
    }
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* Compares the values of a key. `object`: name of the object in the record, or NULL. */
static void compare_key(ls_records_check *c, const cJSON *mine, const char *object, const char *key)
{
    const cJSON *theirs = ls_json_root(c->doc);
    char here[LS_JSON_SHOWN], there[LS_JSON_SHOWN], name[64];
    ls_json_difference found;
    const cJSON *a = member(object ? member(mine, object) : mine, key);
    const cJSON *b = member(object ? member(theirs, object) : theirs, key);
    snprintf(found.place, sizeof found.place, "%s%s%s", object ? object : "", object ? "." : "",
             key);
    if (!ls_json_differs(&found, a, b))
        return;
    ls_json_show(here, found.a, c->host);
    ls_json_show(there, found.b, c->host);
    differs(c, c->number, step_of(c->type, mine), "the record %s has %s %s; the replay has %s",
            name_of(name, c->type, mine), found.place, there, here);
}

/* Returns whether a key is the same in each replay of these steps. "weights_epoch" says which
 * weights the run has written to its file (checkpoint.final), not how it was trained. */
static bool is_fixed(const ls_records_check *c, const ls_record_key *row)
{
    static const char *const of_whole[] = {"best", "stopped_early", "skipped_steps", NULL};
    if (row->varies || strcmp(row->key, "lockstep") == 0 || strcmp(row->key, "data") == 0 ||
        strcmp(row->key, "weights_epoch") == 0)
        return false;
    for (int i = 0; of_whole[i]; i++)
        if (!c->whole && strcmp(row->key, of_whole[i]) == 0)
            return false;
    return true;
}

/* Returns whether the file's records of this type lack the key: the first of them that the replay
 * has a value for decides. `object`: as for compare_key. */
static bool is_lacking(ls_records_check *c, const ls_record_key *row, const cJSON *mine,
                       const char *object)
{
    const size_t number = (size_t)(row - ls_record_keys);
    const cJSON *theirs = ls_json_root(c->doc);
    const unsigned type = 1u << c->type;
    if (!member(object ? member(mine, object) : mine, row->key) || number >= LS_RECORD_KEYS_MOST ||
        c->has[number] & type)
        return false;
    const bool has = member(object ? member(theirs, object) : theirs, row->key) != NULL;
    if (has && !(c->lacks[number] & type))
        c->has[number] |= type;
    else if (!has)
        c->lacks[number] |= type;
    if (!has && !c->lacking[0])
        snprintf(c->lacking, sizeof c->lacking, "%.15s.%.40s", ls_record_names[c->type], row->key);
    return !has;
}

static void compare(ls_records_check *c, const cJSON *mine)
{
    if (type_of(mine) != c->type) {
        differs(c, c->number, 0, "a record of the type %s; the replay has one of the type %s",
                ls_record_names[c->type], ls_record_names[type_of(mine)]);
        return;
    }
    for (const ls_record_key *row = ls_record_keys; row->key; row++) {
        const bool of_data = c->type == LS_RECORD_RUN_START && row->in & 1u << LS_PART_DATA &&
                             strcmp(row->key, "source") != 0;
        if (row->in & 1u << c->type && is_fixed(c, row) && !is_lacking(c, row, mine, NULL))
            compare_key(c, mine, NULL, row->key);
        if (of_data && !is_lacking(c, row, mine, "data"))
            compare_key(c, mine, "data", row->key);
    }
}

/* Passes over, or refuses, records of the file that are before the replay's record `order`. */
static void catch_up(ls_records_check *c, uint64_t order)
{
    char name[64];
    while (c->doc && !c->wrong[0] && c->order < order) {
        if (!c->skips)
            differs(c, c->number, step_of(c->type, ls_json_root(c->doc)),
                    "the record %s is not in the replay",
                    name_of(name, c->type, ls_json_root(c->doc)));
        next(c);
    }
}

/* Compares a record of the replay that has the order `order`. */
static void compare_next(ls_records_check *c, int type, const cJSON *mine, uint64_t order)
{
    char name[64];
    catch_up(c, order);
    if (c->doc && c->order == order) {
        compare(c, mine);
        c->skips = false;
        next(c);
    } else if (!(c->partial && c->skips)) {
        differs(c, 0, step_of(type, mine), "the record %s is missing", name_of(name, type, mine));
    }
}

void ls_check_record(ls_records_check *c, const char *json, size_t length)
{
    uint64_t order;
    ls_json *doc = NULL;
    if (c->wrong[0] || !c->path ||
        ls_json_parse(&doc, "a record", json, length, c->host, NULL) != LS_OK)
        return;
    const cJSON *mine = ls_json_root(doc);
    const int type = type_of(mine);
    /* the totals of an epoch are known only if all its steps were replayed */
    const bool in_part =
        type == LS_RECORD_EPOCH && (number_of(mine, "epoch") - 1) * c->steps < c->from;
    if (is_compared(&order, c, type, mine) && !in_part)
        compare_next(c, type, mine, order);
    ls_json_destroy(doc);
}

/* ---- all records ---------------------------------------------------------------------------- */

void ls_check_records_begin(ls_records_check *c, const char *path, uint64_t steps, bool whole,
                            const ls_host *host)
{
    int fd;
    uint64_t size;
    ls_error why;
    *c = (ls_records_check){.host = host, .path = path, .steps = steps, .whole = whole};
    ls_buffer_init(&c->line, host);
    const int status = ls_open_to_read(&fd, &size, path, "the records of a run", LS_EDATA, &why);
    if (status == LS_ENOENT)
        c->path = NULL;
    else if (status)
        differs(c, 0, 0, "%.400s", why.text);
    c->file = status == LS_OK ? fdopen(fd, "r") : NULL;
    if (status == LS_OK && !c->file) {
        close(fd);
        differs(c, 0, 0, "the file cannot be opened");
    }
    if (c->file)
        next(c);
}

void ls_check_records_from(ls_records_check *c, uint64_t steps)
{
    c->from = steps;
    c->skips = true;
}

void ls_check_records_end(ls_records_check *c)
{
    char name[64];
    if (c->path && c->doc && !c->wrong[0])
        differs(c, c->number, 0, "the record %s follows the end of the replay",
                name_of(name, c->type, ls_json_root(c->doc)));
}

void ls_check_records_fini(ls_records_check *c)
{
    close_file(c);
    ls_buffer_fini(&c->line);
    ls_json_destroy(c->doc);
    c->doc = NULL;
}
