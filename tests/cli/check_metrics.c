/* Checks a metrics.jsonl against the documented schema (src/train/README.md): every line strict JSON,
 * every record with exactly its keys, in an order that makes sense, none twice and none missing.
 *
 *     check_metrics [--cut] FILE
 *
 * --cut: the run did not come to its end, so run_end may be missing. Prints what is wrong, with the
 * line's number, and exits with 1. */
#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a value must be. */
typedef enum kind { TEXT, NUMBER, NUMBER_OR_NULL, TEXT_OR_NULL, BOOL, ARRAY, OBJECT } kind;

typedef struct key {
    const char *name;
    kind kind;
    int optional;
} key;

static const key run_start[] = {{"type", TEXT, 0},           {"time", TEXT, 0},
                                {"lockstep", TEXT, 0},       {"devices", ARRAY, 0},
                                {"device_model", TEXT, 0},   {"instruction_set", TEXT, 0},
                                {"library", TEXT, 0},        {"shards", NUMBER, 0},
                                {"batch_size", NUMBER, 0},   {"batch_per_device", NUMBER, 0},
                                {"parameters", NUMBER, 0},   {"parameter_bytes", NUMBER, 0},
                                {"device_bytes", NUMBER, 0}, {"data", OBJECT, 0},
                                {"config", OBJECT, 0},       {NULL, TEXT, 0}};
static const key data[] = {{"name", TEXT, 0},         {"synthetic", BOOL, 0},
                           {"source", TEXT, 0},       {"payload", TEXT, 0},
                           {"images", BOOL, 0},       {"train_rows", NUMBER, 0},
                           {"test_rows", NUMBER, 0},  {"targets", NUMBER, 1},
                           {"class_names", ARRAY, 1}, {NULL, TEXT, 0}};
static const key step[] = {{"type", TEXT, 0},   {"step", NUMBER, 0},         {"epoch", NUMBER, 0},
                           {"rows", NUMBER, 0}, {"loss", NUMBER_OR_NULL, 0}, {"correct", NUMBER, 0},
                           {"lr", NUMBER, 0},   {"images_per_s", NUMBER, 0}, {"workers", ARRAY, 0},
                           {NULL, TEXT, 0}};
static const key worker[] = {
    {"worker", NUMBER, 0},    {"queued", NUMBER, 0},     {"gather_s", NUMBER, 0},
    {"forward_s", NUMBER, 0}, {"backward_s", NUMBER, 0}, {"comm_exposed_s", NUMBER, 0},
    {"wait_s", NUMBER, 0},    {"apply_s", NUMBER, 0},    {NULL, TEXT, 0}};
static const key epoch[] = {{"type", TEXT, 0},
                            {"epoch", NUMBER, 0},
                            {"seconds", NUMBER, 0},
                            {"images_per_s", NUMBER, 0},
                            {"train_loss", NUMBER, 0},
                            {"train_accuracy", NUMBER_OR_NULL, 0},
                            {NULL, TEXT, 0}};
static const key eval[] = {{"type", TEXT, 0},
                           {"epoch", NUMBER, 0},
                           {"test_loss", NUMBER_OR_NULL, 0},
                           {"test_accuracy", NUMBER_OR_NULL, 0},
                           {"best", BOOL, 0},
                           {"test_top5", NUMBER, 1},
                           {"test_mae", NUMBER, 1},
                           {"test_r2", NUMBER, 1},
                           {"test_auc", NUMBER, 1},
                           {"precision", ARRAY, 1},
                           {"recall", ARRAY, 1},
                           {"confusion", ARRAY, 1},
                           {"seconds", NUMBER, 0},
                           {NULL, TEXT, 0}};
static const key run_end[] = {{"type", TEXT, 0},
                              {"time", TEXT, 0},
                              {"status", TEXT, 0},
                              {"error", TEXT, 1},
                              {"epochs", NUMBER, 0},
                              {"steps", NUMBER, 0},
                              {"test_accuracy", NUMBER_OR_NULL, 0},
                              {"seconds_per_epoch", NUMBER_OR_NULL, 0},
                              {"devices", ARRAY, 0},
                              {"synthetic", BOOL, 0},
                              {"checkpoint", TEXT_OR_NULL, 0},
                              {"best_checkpoint", TEXT, 1},
                              {"stopped_early", TEXT, 1},
                              {"weights_sha256", TEXT_OR_NULL, 0},
                              {NULL, TEXT, 0}};

static const key resume[] = {{"type", TEXT, 0},           {"time", TEXT, 0},
                             {"lockstep", TEXT, 0},       {"step", NUMBER, 0},
                             {"epochs", NUMBER, 0},       {"devices", ARRAY, 0},
                             {"device_model", TEXT, 0},   {"instruction_set", TEXT, 0},
                             {"library", TEXT, 0},        {"batch_per_device", NUMBER, 0},
                             {"device_bytes", NUMBER, 0}, {NULL, TEXT, 0}};
static const key nonfinite[] = {{"type", TEXT, 0},    {"step", NUMBER, 0}, {"worker", NUMBER, 0},
                                {"shard", NUMBER, 0}, {"action", TEXT, 0}, {NULL, TEXT, 0}};
static const key fault[] = {{"type", TEXT, 0},   {"worker", NUMBER, 0},
                            {"device", TEXT, 0}, {"step", NUMBER, 0},
                            {"kind", TEXT, 0},   {"detected_after_s", NUMBER, 0},
                            {"action", TEXT, 0}, {"devices_left", NUMBER, 0},
                            {"error", TEXT, 0},  {NULL, TEXT, 0}};

static const struct {
    const char *type;
    const key *keys;
} records[] = {{"run_start", run_start}, {"step", step},      {"epoch", epoch},
               {"eval", eval},           {"resume", resume},  {"nonfinite", nonfinite},
               {"fault", fault},         {"run_end", run_end}};

/* What has been read so far. */
static struct {
    int line, devices, epochs, evals, ended;
    int targets;         /* are vectors, of which there is no accuracy */
    int short_of;        /* steps that some worker is missing from */
    int faults, resumed; /* records of these kinds */
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

static int is_of(const cJSON *node, kind wanted)
{
    switch (wanted) {
    case TEXT: return cJSON_IsString(node);
    case NUMBER: return cJSON_IsNumber(node) && isfinite(node->valuedouble);
    case NUMBER_OR_NULL: return cJSON_IsNumber(node) || cJSON_IsNull(node);
    case TEXT_OR_NULL: return cJSON_IsString(node) || cJSON_IsNull(node);
    case BOOL: return cJSON_IsBool(node);
    case ARRAY: return cJSON_IsArray(node);
    case OBJECT: return cJSON_IsObject(node);
    }
    return 0;
}

static void check_keys(const cJSON *object, const key *keys)
{
    int found = 0;
    for (const key *k = keys; k->name; k++) {
        const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, k->name);
        if (!node && k->optional)
            continue;
        if (!node)
            wrong("no key ", k->name);
        if (!is_of(node, k->kind))
            wrong("a value of the wrong type: ", k->name);
        found++;
    }
    for (const cJSON *node = object->child; node; node = node->next) {
        const key *k = keys;
        while (k->name && strcmp(k->name, node->string) != 0)
            k++;
        if (!k->name)
            wrong("a key that is not documented: ", node->string);
    }
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

static void check_step(const cJSON *r)
{
    const cJSON *workers = member(r, "workers"), *w;
    int last = -1;
    expect(number(r, "step") == ++so_far.steps, "steps to follow each other");
    expect(number(r, "epoch") == so_far.epochs + 1, "the epoch under way");
    expect(number(r, "rows") > 0 && number(r, "correct") <= number(r, "rows"), "hits within rows");
    expect(cJSON_GetArraySize(workers) <= so_far.devices, "at most one worker for each device");
    so_far.short_of += cJSON_GetArraySize(workers) < so_far.devices;
    cJSON_ArrayForEach(w, workers)
    {
        check_keys(w, worker);
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
        so_far.devices = cJSON_GetArraySize(member(r, "devices"));
        check_keys(member(r, "data"), data);
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
        so_far.devices = (int)number(r, "devices_left");
        so_far.faults++;
    } else if (strcmp(type, "resume") == 0) {
        expect(number(r, "step") == so_far.steps, "to go on where the records end");
        so_far.devices = cJSON_GetArraySize(member(r, "devices"));
        so_far.resumed++;
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
    const cJSON *record = ls_json_root(doc), *type = member(record, "type");
    expect(cJSON_IsString(type), "a type");
    expect(so_far.line > 1 || strcmp(type->valuestring, "run_start") == 0, "run_start first");
    size_t i = 0;
    while (i < sizeof records / sizeof *records && strcmp(records[i].type, type->valuestring) != 0)
        i++;
    if (i == sizeof records / sizeof *records)
        wrong("unknown type ", type->valuestring);
    check_keys(record, records[i].keys);
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
