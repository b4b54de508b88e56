/* SPDX-License-Identifier: MIT */
#include "train/train_fixture.h"

#include "device/registry.h"
#include "ref/ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECIPE(layers)                                                                             \
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 96}, \"devices\": \"ref:2\","                 \
    " \"batch_size\": 32, \"shards\": 4, \"epochs\": 1, \"run_dir\": null,"                        \
    " \"init\": {\"name\": \"xavier\"},"                                                           \
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"                        \
    " \"model\": {\"layers\": [" layers "]}}"

static const char small_net[] = RECIPE("{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5},"
                                       "{\"type\": \"relu\"},"
                                       "{\"type\": \"avg_pool\", \"kernel\": 2},"
                                       "{\"type\": \"flatten\"},"
                                       "{\"type\": \"dense\", \"out\": 10}");

static const char lenet[] =
    RECIPE("{\"type\": \"conv2d\", \"name\": \"conv1\", \"out\": 20, \"kernel\": 3},"
           "{\"type\": \"relu\"},"
           "{\"type\": \"avg_pool\", \"kernel\": 2},"
           "{\"type\": \"conv2d\", \"name\": \"conv2\", \"out\": 50, \"kernel\": 5},"
           "{\"type\": \"relu\"},"
           "{\"type\": \"avg_pool\", \"kernel\": 2},"
           "{\"type\": \"flatten\"},"
           "{\"type\": \"dense\", \"name\": \"fc1\", \"out\": 128},"
           "{\"type\": \"relu\"},"
           "{\"type\": \"dense\", \"name\": \"fc2\", \"out\": 10}");

static int keep_record(void *user, const char *json, size_t length, ls_error *err)
{
    fixture *f = user;
    if (f->records < FIXTURE_RECORDS) {
        char *copy = malloc(length + 1);
        memcpy(copy, json, length);
        copy[length] = '\0';
        f->record[f->records] = copy;
    }
    f->records++;
    if (f->records != f->fail_record_at)
        return LS_OK;
    err->status = LS_EIO;
    snprintf(err->text, sizeof err->text, "the reader of record %d had enough", f->records);
    return LS_EIO;
}

void fixture_begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    if (ls_registry_create(&f->registry, NULL, &f->err) != LS_OK ||
        ls_registry_add(f->registry, ls_ref_backend(), &f->err) != LS_OK ||
        ls_registry_add(f->registry, ls_ref64_backend(), &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    f->options = (ls_trainer_options){
        .size = sizeof f->options,
        .config_text = small_net,
        .set = f->set,
        .registry = f->registry,
        .callbacks = &f->callbacks,
        .cluster = &f->cluster,
        .sys = &f->sys,
    };
    f->callbacks =
        (ls_trainer_callbacks){.size = sizeof f->callbacks, .record = keep_record, .user = f};
    f->cluster = (ls_trainer_cluster){.size = sizeof f->cluster};
    f->sys = (ls_trainer_sys){.size = sizeof f->sys};
}

static void drop_records(fixture *f)
{
    for (int i = 0; i < f->records && i < FIXTURE_RECORDS; i++)
        free(f->record[i]);
    f->records = 0;
}

void fixture_end(fixture *f)
{
    drop_records(f);
    ls_registry_destroy(f->registry);
}

void fixture_use_lenet(fixture *f)
{
    f->options.config_text = lenet;
}

void fixture_use_source(fixture *f, const ls_data_source *source, const ls_data_source *pointers[1])
{
    /* The name is static, so fixtures that exist at the same time must use the same data. */
    static char name[64];
    char wanted[sizeof name];
    pointers[0] = source;
    f->options.sources = pointers;
    f->options.source_count = 1;
    snprintf(wanted, sizeof wanted, "data.name=%s", source->name);
    /* The name is written only if it differs, because other threads can be reading it. */
    if (strcmp(name, wanted) != 0)
        memcpy(name, wanted, sizeof name);
    fixture_set(f, name);
    fixture_set(f, "data.limit=0");
}

void fixture_set(fixture *f, const char *assignment)
{
    assert_in_range(f->options.set_count, 0, FIXTURE_SETS - 1);
    f->set[f->options.set_count++] = assignment;
}

ls_trainer *fixture_open(fixture *f)
{
    ls_trainer *t;
    drop_records(f);
    if (ls_trainer_open(&t, &f->options, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    return t;
}

ls_trainer *fixture_run(fixture *f)
{
    ls_trainer *t = fixture_open(f);
    if (ls_trainer_run(t, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    return t;
}

const char *fixture_hash(fixture *f)
{
    static char hash[65];
    ls_trainer *t = fixture_run(f);
    memcpy(hash, ls_trainer_result(t)->weights_sha256, sizeof hash);
    ls_trainer_close(t, NULL);
    return hash;
}

double record_number(const char *record, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = record ? strstr(record, quoted) : NULL;
    char *end;
    if (!at)
        return NAN;
    at += strlen(quoted);
    double value = strtod(at, &end);
    return end == at ? NAN : value;
}

static int is_of_type(const char *record, const char *type)
{
    char begin[64];
    snprintf(begin, sizeof begin, "{\"type\":\"%s\"", type);
    return strncmp(record, begin, strlen(begin)) == 0;
}

const char *fixture_record(const fixture *f, const char *type, int nth)
{
    for (int i = 0; i < f->records && i < FIXTURE_RECORDS; i++)
        if (is_of_type(f->record[i], type) && nth-- == 0)
            return f->record[i];
    return NULL;
}

int fixture_count(const fixture *f, const char *type)
{
    int count = 0;
    while (fixture_record(f, type, count))
        count++;
    return count;
}

void replicas_are_equal(const ls_trainer *t)
{
    size_t floats = ls_replica_floats(t->engine->worker[0].replica) - LS_TAIL;
    const float *first = ls_replica_weight_arena(t->engine->worker[0].replica);
    for (int w = 1; w < t->engine->workers; w++)
        assert_memory_equal(ls_replica_weight_arena(t->engine->worker[w].replica), first,
                            floats * sizeof(float));
}

int has_backend(const char *name)
{
    ls_registry *registry;
    if (ls_registry_create(&registry, NULL, NULL) != LS_OK)
        return 0;
    ls_backend_info info = {0};
    const ls_backend *backend = ls_registry_find(registry, name, strlen(name));
    if (backend)
        backend->probe(&info);
    ls_registry_destroy(registry);
    return info.devices > 0;
}
