/* SPDX-License-Identifier: MIT */
/* Checks a metrics.jsonl: every line is strict JSON, every record has exactly the keys of its type
 * (ls_record_keys, which config_rows compares with src/train/README.md), and the records are in a
 * valid order, without a repeated or a missing step or epoch.
 *
 *     check_metrics [--cut] FILE
 *
 * --cut: the run did not reach its end, so run_end may be missing. Prints what is wrong, with the
 * line's number, and exits with 1. */
#include "records/record.h"
#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Properties of the records that have been read so far. */
static struct {
    int line, devices, epochs, evals, ended;
    int targets;         /* 1: targets are vectors, for which records have no accuracy */
    int own;             /* number of devices of the process that writes; -1: not known any more */
    int short_of;        /* number of step records in which a worker is missing */
    int faults, resumed; /* numbers of records of faults, and of resumes */
    double steps;
} so_far;

static void wrong(const char *what, const char *name)
{
    printf("line %d: %s%s\n", so_far.line, what, name);
    exit(1);
}

static void expect(int ok, const char *what)
{
    if (!ok)
        wrong("expected ", what);
}

static int may_be_left_out(ls_member_kind kind)
{
    return kind == LS_MEMBER_INT_IF_ANY || kind == LS_MEMBER_FLOAT_IF_ANY ||
           kind == LS_MEMBER_DOUBLE_IF_ANY || kind == LS_MEMBER_TEXT_IF_ANY ||
           kind == LS_FORM_ARRAY_IF_ANY || kind == LS_FORM_OBJECT_IF_ANY;
}

static int is_of(const cJSON *node, ls_member_kind kind)
{
    switch (kind) {
    case LS_MEMBER_INT:
    case LS_MEMBER_INT_IF_ANY:
    case LS_MEMBER_UINT:
    case LS_MEMBER_SIZE:
        return cJSON_IsNumber(node) && node->valuedouble == floor(node->valuedouble);
    case LS_MEMBER_FLOAT:
    case LS_MEMBER_FLOAT_IF_ANY:
    case LS_MEMBER_DOUBLE:
    case LS_MEMBER_DOUBLE_IF_ANY: return cJSON_IsNumber(node) && isfinite(node->valuedouble);
    case LS_MEMBER_FLOAT_OR_NULL:
    case LS_MEMBER_DOUBLE_OR_NULL: return cJSON_IsNumber(node) || cJSON_IsNull(node);
    case LS_MEMBER_BOOL: return cJSON_IsBool(node);
    case LS_MEMBER_TEXT_OR_NULL: return cJSON_IsString(node) || cJSON_IsNull(node);
    case LS_MEMBER_TEXT:
    case LS_MEMBER_TEXT_IF_ANY:
    case LS_FORM_TEXT: return cJSON_IsString(node);
    case LS_FORM_ARRAY:
    case LS_FORM_ARRAY_IF_ANY: return cJSON_IsArray(node);
    case LS_FORM_OBJECT:
    case LS_FORM_OBJECT_IF_ANY: return cJSON_IsObject(node);
    }
    return 0;
}

static int has_row(const char *key, int type)
{
    const ls_record_key *row = ls_record_keys;
    while (row->key && (!(row->in & 1u << type) || strcmp(row->key, key) != 0))
        row++;
    return row->key != NULL;
}

/* Checks that an object has exactly the keys that ls_record_keys lists for `type` (the type of a
 * record, or of a part of one). A record also has the key "type". */
static void check_keys(const cJSON *object, int type)
{
    int found = type < LS_RECORD_TYPES; /* "type" */
    for (const ls_record_key *row = ls_record_keys; row->key; row++) {
        if (!(row->in & 1u << type))
            continue;
        const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, row->key);
        if (!node && may_be_left_out(row->kind))
            continue;
        if (!node)
            wrong("no key ", row->key);
        if (!is_of(node, row->kind))
            wrong("a value of the wrong type: ", row->key);
        found++;
    }
    for (const cJSON *node = object->child; node; node = node->next)
        if (!has_row(node->string, type) &&
            (type >= LS_RECORD_TYPES || strcmp(node->string, "type") != 0))
            wrong("a key that is not documented: ", node->string);
    expect(found == cJSON_GetArraySize(object), "each key once");
}

static double number(const cJSON *record, const char *name)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(record, name));
}

static const cJSON *member(const cJSON *record, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(record, name);
}

/* Reads the list `devices` of a record. A name of a run over several hosts is "HOST: DEVICE", and
 * the first name belongs to the host that writes the records. */
static void read_devices(const cJSON *r)
{
    const cJSON *devices = member(r, "devices"), *device;
    const char *first = devices && devices->child ? devices->child->valuestring : "";
    const char *colon = strstr(first, ": ");
    const size_t host = colon ? (size_t)(colon - first) + 2 : 0;
    so_far.devices = cJSON_GetArraySize(devices);
    so_far.own = 0;
    cJSON_ArrayForEach(device, devices)
    {
        so_far.own += strncmp(device->valuestring, first, host) == 0;
    }
}

static void check_step(const cJSON *r)
{
    const cJSON *workers = member(r, "workers"), *w;
    int last = -1;
    expect(number(r, "step") == ++so_far.steps, "steps to follow each other");
    expect(number(r, "epoch") == so_far.epochs + 1, "the epoch under way");
    expect(number(r, "rows") > 0 && number(r, "correct") <= number(r, "rows"), "hits within rows");
    const int own = so_far.own < 0 ? so_far.devices : so_far.own;
    expect(cJSON_GetArraySize(workers) <= own, "at most one worker for each device");
    so_far.short_of += cJSON_GetArraySize(workers) < so_far.own;
    cJSON_ArrayForEach(w, workers)
    {
        check_keys(w, LS_PART_WORKER);
        expect(number(w, "worker") > last, "workers in order");
        last = (int)number(w, "worker");
        expect(number(w, "forward_s") > 0 && number(w, "backward_s") > 0, "times that passed");
        expect(number(w, "wait_s") >= 0 && number(w, "comm_exposed_s") >= 0, "no negative times");
    }
}

static void check_accuracy(const cJSON *value)
{
    expect(cJSON_IsNull(value) == so_far.targets, "an accuracy where rows have classes, else null");
}

static void check_end(const cJSON *r)
{
    const char *status = member(r, "status")->valuestring;
    const cJSON *hash = member(r, "weights_sha256");
    so_far.ended = 1;
    expect(number(r, "steps") == so_far.steps, "all steps");
    expect(number(r, "epochs") == so_far.epochs, "all epochs");
    expect(cJSON_GetArraySize(member(r, "devices")) == so_far.devices, "all devices");
    expect(!cJSON_IsString(hash) || strlen(hash->valuestring) == 64, "64 hexadecimal digits");
    expect((member(r, "error") != NULL) == (strcmp(status, "failed") == 0),
           "an error if it failed");
}

static void check_record(const cJSON *r, const char *type)
{
    if (strcmp(type, "run_start") == 0) {
        expect(so_far.line == 1, "run_start on the first line alone");
        read_devices(r);
        check_keys(member(r, "data"), LS_PART_DATA);
        so_far.targets = member(member(r, "data"), "targets") != NULL;
    } else if (strcmp(type, "step") == 0) {
        check_step(r);
    } else if (strcmp(type, "epoch") == 0) {
        expect(number(r, "epoch") == ++so_far.epochs, "epochs to follow each other");
        check_accuracy(member(r, "train_accuracy"));
    } else if (strcmp(type, "eval") == 0) {
        expect(number(r, "epoch") == so_far.epochs, "the evaluation behind its epoch");
        so_far.evals++;
        check_accuracy(member(r, "test_accuracy"));
    } else if (strcmp(type, "fault") == 0) {
        expect(number(r, "step") == so_far.steps + 1 || number(r, "step") == so_far.steps,
               "the step under way, or just done by the others");
        expect(number(r, "devices_left") <= so_far.devices, "no more devices than before");
        so_far.own = so_far.own == so_far.devices ? (int)number(r, "devices_left") : -1;
        so_far.devices = (int)number(r, "devices_left");
        so_far.faults++;
    } else if (strcmp(type, "resume") == 0) {
        expect(number(r, "step") == so_far.steps, "to go on where the records end");
        read_devices(r);
        so_far.resumed++;
    } else if (strcmp(type, "arrival") == 0) {
        expect(number(r, "step") == so_far.steps, "an arrival between two steps");
        read_devices(r);
    } else if (strcmp(type, "nonfinite") == 0) {
        expect(number(r, "step") == so_far.steps + 1, "the step under way");
    } else {
        check_end(r);
    }
}

static void check_line(const char *text, size_t length)
{
    ls_json *doc;
    ls_error err;
    expect(!so_far.ended || so_far.line == 0, "nothing behind run_end");
    so_far.line++;
    if (ls_json_parse(&doc, "record", text, length, NULL, &err) != LS_OK)
        wrong("", err.text);
    const cJSON *record = ls_json_root(doc), *type = record->child;
    expect(type && strcmp(type->string, "type") == 0 && cJSON_IsString(type), "a type, first");
    expect(so_far.line > 1 || strcmp(type->valuestring, "run_start") == 0, "run_start first");
    int i = 0;
    while (i < LS_RECORD_TYPES && strcmp(ls_record_names[i], type->valuestring) != 0)
        i++;
    if (i == LS_RECORD_TYPES)
        wrong("unknown type ", type->valuestring);
    check_keys(record, i);
    check_record(record, type->valuestring);
    ls_json_destroy(doc);
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    int cut = argc == 3 && strcmp(argv[1], "--cut") == 0;
    FILE *file = argc == 2 + cut ? fopen(argv[1 + cut], "r") : NULL;
    if (!file) {
        printf("usage: check_metrics [--cut] FILE\n");
        return 1;
    }
    while (fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        if (line[length - 1] != '\n')
            wrong("the line has no end", "");
        check_line(line, length - 1);
    }
    fclose(file);
    expect(cut || so_far.ended, "run_end");
    expect(so_far.short_of <= so_far.faults, "every worker in every step");
    printf("%d records, %g steps, %d epochs, %d evaluations\n", so_far.line, so_far.steps,
           so_far.epochs, so_far.evals);
    if (so_far.faults > 0 || so_far.resumed > 0)
        printf("%d faults, resumed %d times\n", so_far.faults, so_far.resumed);
    return 0;
}
