/* SPDX-License-Identifier: MIT */
/* Tests that options are copied during the call, as <lockstep/README.md> promises. Every structure,
 * array and text that is passed to a public function lies in *lent* memory: pages that are
 * overwritten and made inaccessible as soon as the function has returned. The object is then used
 * through its whole life, so a later access ends the test, in builds without a sanitizer as well.
 * What a header says must live longer (registries, hosts, pools, and what callbacks use) does. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "cluster/free_port.h"
#include "data/scratch.h"
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <lockstep/collective.h>
#include <lockstep/model.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A structure that gets a further field gets another size: the tests below then have to fill that
 * field, if it is a pointer. */
#define FIELDS_ARE_KNOWN(type, bytes)                                                              \
    _Static_assert(sizeof(void *) != 8 || sizeof(type) == (bytes), "fill the new field below")
FIELDS_ARE_KNOWN(ls_trainer_options, 184);
FIELDS_ARE_KNOWN(ls_trainer_callbacks, 48);
FIELDS_ARE_KNOWN(ls_data_source, 104);
FIELDS_ARE_KNOWN(ls_trainer_cluster, 48);
FIELDS_ARE_KNOWN(ls_tcp_place, 64);
FIELDS_ARE_KNOWN(ls_trainer_sys, 72);
FIELDS_ARE_KNOWN(ls_pool_options, 80);
FIELDS_ARE_KNOWN(ls_device_pool_options, 112);
FIELDS_ARE_KNOWN(ls_collective_options, 48);
FIELDS_ARE_KNOWN(ls_model_options, 32);
FIELDS_ARE_KNOWN(ls_step_rows, 40);

/* ---- lent memory ---------------------------------------------------------------------------- */

#define LENT_BYTES ((size_t)256 << 10)

static char *lent;       /* the pages; NULL: none are lent */
static size_t lent_used; /* in bytes */

/* Returns a copy of `bytes` bytes in lent memory. */
static void *lend(const void *bytes, size_t count)
{
    if (!lent) {
        lent = mmap(NULL, LENT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(lent, MAP_FAILED);
        lent_used = 0;
    }
    void *copy = lent + lent_used;
    lent_used += (count + 15) / 16 * 16;
    assert_in_range(lent_used, 0, LENT_BYTES);
    return memcpy(copy, bytes, count);
}

static char *lend_text(const char *text)
{
    return lend(text, strlen(text) + 1);
}

/* Overwrites all lent memory, and makes every later access a fault. The addresses stay reserved, so
 * no other memory gets them. */
static void take_back(void)
{
    memset(lent, 0xA5, LENT_BYTES);
    assert_int_equal(mprotect(lent, LENT_BYTES, PROT_NONE), 0);
    lent = NULL;
}

/* ---- a back end that keeps the text of a request -------------------------------------------- */

static const char *_Atomic kept_dir; /* cache_dir of the newest request; devices open at once */

static int open_keeping(ls_device **out, const ls_device_request *request, ls_error *err)
{
    kept_dir = request->cache_dir;
    return ls_ref_backend()->open(out, request, err);
}

static ls_backend keeping;

static void add_keeping(ls_registry *registry)
{
    keeping = *ls_ref_backend();
    keeping.name = "keeping";
    keeping.open = open_keeping;
    assert_int_equal(ls_registry_add(registry, &keeping, NULL), LS_OK);
}

/* ---- trainers ------------------------------------------------------------------------------- */

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"epochs\": 1,"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 2, \"kernel\": 5, \"stride\": 5},"
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

typedef struct story {
    scratch files;
    ls_registry *registry;
    ls_host host;
    int records;
    uint64_t ticks;
    char trace[600], run_dir[600];
    ls_error err;
} story;

static int count_record(void *user, const char *json, size_t length, ls_error *err)
{
    (void)json;
    (void)length;
    (void)err;
    ((story *)user)->records++;
    return LS_OK;
}

static void see_progress(void *user, const ls_progress *progress)
{
    (void)user;
    assert_string_equal(progress->metric, "accuracy");
}

static void see_model(void *user, ls_model *snapshot)
{
    (void)user;
    (void)snapshot;
}

static void begin(story *s)
{
    memset(s, 0, sizeof *s);
    scratch_begin(&s->files);
    assert_int_equal(ls_registry_create(&s->registry, NULL, &s->err), LS_OK);
    assert_int_equal(ls_registry_add(s->registry, ls_ref_backend(), &s->err), LS_OK);
    add_keeping(s->registry);
    s->host = (ls_host){.size = sizeof s->host};
    snprintf(s->run_dir, sizeof s->run_dir, "%s", scratch_path(&s->files, "run"));
    snprintf(s->trace, sizeof s->trace, "%s", scratch_path(&s->files, "trace.json"));
}

static void end(story *s)
{
    ls_registry_destroy(s->registry);
    scratch_end(&s->files);
}

/* How a trainer is opened. */
/* The clock of a story: a nanosecond passes with each look. */
static uint64_t tick(void *user)
{
    story *s = user;
    return ++s->ticks;
}

typedef enum way { BY_TEXT, BY_FILE, RESUMED } way;

/* Options in lent memory, with each field that is a pointer. */
static const ls_trainer_options *lend_options(story *s, way how, bool streamed)
{
    char run_dir[700], listen[40], path[600];
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", s->run_dir);
    const char *const set[] = {lend_text("devices=keeping:2"), lend_text(run_dir)};
    const char *const dirs[] = {lend_text("/nowhere"), lend_text("/nowhere/else")};
    const char *const inject[] = {lend_text("worker=1,step=5000,kind=fail")};
    ls_data_source source = own_data(streamed);
    source.name = lend_text("own");
    source.weighted = 1;
    const ls_data_source *const sources[] = {lend(&source, sizeof source)};
    const uint32_t rows[] = {3, 7};
    const ls_trainer_callbacks callbacks = {.size = sizeof callbacks,
                                            .record = count_record,
                                            .progress = see_progress,
                                            .model = see_model,
                                            .model_every_steps = 1,
                                            .user = s};
    const ls_trainer_sys sys = {.size = sizeof sys,
                                .inject = lend(inject, sizeof inject),
                                .inject_count = 1,
                                .clock = tick,
                                .clock_user = s,
                                .program = lend_text("zebra")};
    snprintf(listen, sizeof listen, "127.0.0.1:%d", free_port());
    const ls_tcp_place place = {.size = sizeof place,
                                .listen = lend_text(listen),
                                .secret = lend_text("sixteen letters."),
                                .secret_bytes = 16,
                                .members = 1};
    const ls_trainer_cluster cluster = {.size = sizeof cluster, .tcp = lend(&place, sizeof place)};
    ls_trainer_options o = {
        .size = sizeof o,
        .set = lend(set, sizeof set),
        .set_count = 2,
        .data_dirs = lend(dirs, sizeof dirs),
        .data_dir_count = 2,
        .cache_dir = lend_text("/nowhere/cache"),
        .registry = s->registry,
        .callbacks = lend(&callbacks, sizeof callbacks),
        .trace_path = lend_text(s->trace),
        .sources = lend(sources, sizeof sources),
        .source_count = 1,
        .step_rows = lend(rows, sizeof rows),
        .step_row_count = 2,
        .host = &s->host,
        .cluster = lend(&cluster, sizeof cluster),
        .sys = lend(&sys, sizeof sys),
    };
    if (how == BY_FILE) {
        snprintf(path, sizeof path, "%s", scratch_path(&s->files, "config.json"));
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(config, f);
        fclose(f);
        o.config_path = lend_text(path);
    } else
        o.config_text = lend_text(config);
    if (how == RESUMED)
        o.resume = lend_text(s->run_dir);
    return lend(&o, sizeof o);
}

static ls_trainer *open_lent(story *s, way how, bool streamed)
{
    ls_trainer *t = NULL;
    const int status = ls_trainer_open(&t, lend_options(s, how, streamed), &s->err);
    take_back();
    if (status)
        fail_msg("%s", s->err.text);
    assert_string_equal(kept_dir, "/nowhere/cache");
    return t;
}

/* One step on rows in lent memory. */
static void step(story *s, ls_trainer *t, uint32_t n)
{
    uint8_t image[OWN_PIXELS], *images = NULL;
    int32_t label, *labels = NULL;
    ls_step_result r = {.size = sizeof r};
    for (uint32_t i = 0; i < n; i++) {
        own_row(0, i, image, &label);
        uint8_t *at = lend(image, sizeof image);
        images = images ? images : at;
    }
    for (uint32_t i = 0; i < n; i += 4) { /* 16 bytes are four labels */
        const int32_t four[4] = {(int32_t)i % 10, (int32_t)(i + 1) % 10, (int32_t)(i + 2) % 10,
                                 (int32_t)(i + 3) % 10};
        int32_t *at = lend(four, sizeof four);
        labels = labels ? labels : at;
    }
    const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float *weights = lend(ones, sizeof ones);
    const ls_step_rows given = {sizeof given, images, labels, LS_ROW_U8, n, weights};
    const int status = ls_trainer_step(t, lend(&given, sizeof given), &r, &s->err);
    take_back();
    if (status)
        fail_msg("%u rows: %s", (unsigned)n, s->err.text);
}

static void a_trainer_that_is_driven(void **state)
{
    (void)state;
    for (way how = BY_TEXT; how <= RESUMED; how++) {
        story s;
        uint8_t image[OWN_PIXELS] = {0};
        float scores[OWN_CLASSES];
        ls_model *snapshot;
        begin(&s);
        if (how == RESUMED) {
            ls_trainer *first = open_lent(&s, BY_TEXT, true);
            step(&s, first, 16);
            assert_int_equal(ls_trainer_save(first, NULL, &s.err), LS_OK);
            assert_int_equal(ls_trainer_close(first, NULL), LS_OK);
        }
        ls_trainer *t = open_lent(&s, how, true);
        for (uint32_t n = 1; n < 17; n++) {
            if (n == 3 || n == 7 || n == 16)
                step(&s, t, n);
            else
                assert_int_equal(own_step(t, image, (int32_t[16]){0}, n, NULL, &s.err), LS_EINVAL);
        }
        assert_int_equal(ls_trainer_evaluate(t, NULL, &s.err), LS_OK);
        const char *path = lend_text(scratch_path(&s.files, "saved"));
        assert_int_equal(ls_trainer_save(t, path, &s.err), LS_OK);
        assert_int_equal(ls_trainer_load(t, path, &s.err), LS_OK);
        take_back();
        assert_int_equal(ls_trainer_model(&snapshot, t, &s.err), LS_OK);
        step(&s, t, 7);
        assert_int_equal(own_predict(t, image, LS_ROW_U8, 1, scores, OWN_CLASSES, &s.err), LS_OK);
        assert_int_equal(strlen(ls_trainer_result(t)->weights_sha256), 64);
        assert_string_equal(kept_dir, "/nowhere/cache");
        assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
        assert_int_equal(ls_model_predict(snapshot, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, scores,
                                          OWN_CLASSES, &s.err),
                         LS_OK);
        ls_model_release(snapshot);
        assert_true(s.records > 3);
        end(&s);
    }
}

static void a_trainer_that_runs(void **state)
{
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++)
        for (way how = BY_TEXT; how <= BY_FILE; how++) {
            story s;
            begin(&s);
            ls_trainer *t = open_lent(&s, how, streamed);
            if (ls_trainer_run(t, &s.err) != LS_OK)
                fail_msg("%s", s.err.text);
            assert_int_equal(strlen(ls_trainer_result(t)->weights_sha256), 64);
            assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
            end(&s);
        }
}

static void a_resolved_config(void **state)
{
    (void)state;
    story s;
    char *text;
    begin(&s);
    assert_int_equal(ls_config_resolve(&text, lend_options(&s, BY_TEXT, true), &s.err), LS_OK);
    take_back();
    assert_non_null(strstr(text, "\"batch_size\": 16"));
    ls_text_free(text);
    end(&s);
}

/* ---- models --------------------------------------------------------------------------------- */

static void a_model(void **state)
{
    (void)state;
    story s;
    ls_model *model;
    float scores[OWN_CLASSES];
    uint8_t image[OWN_PIXELS] = {0};
    char path[600];
    begin(&s);
    ls_trainer *t = open_lent(&s, BY_TEXT, true);
    snprintf(path, sizeof path, "%s", scratch_path(&s.files, "saved"));
    assert_int_equal(ls_trainer_save(t, path, &s.err), LS_OK);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    const ls_model_options o = {.size = sizeof o,
                                .device = lend_text("keeping:1"),
                                .registry = s.registry,
                                .host = &s.host};
    const int status = ls_model_open(&model, lend_text(path), lend(&o, sizeof o), &s.err);
    take_back();
    if (status)
        fail_msg("%s", s.err.text);
    assert_int_equal(ls_model_predict(model, image, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION, scores,
                                      OWN_CLASSES, &s.err),
                     LS_OK);
    const char *again = lend_text(scratch_path(&s.files, "again"));
    assert_int_equal(ls_model_save(model, again, &s.err), LS_OK);
    take_back();
    assert_non_null(ls_model_card(model));
    ls_model_release(model);
    end(&s);
}

/* ---- pools and groups ----------------------------------------------------------------------- */

static int count_job(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)err;
    ((int *)arg)[worker->index]++;
    return LS_OK;
}

static void a_pool(void **state)
{
    (void)state;
    ls_pool *pool;
    ls_error err;
    int jobs[2] = {0};
    const ls_pool_options o = {.size = sizeof o, .workers = 2, .name = lend_text("short")};
    assert_int_equal(ls_pool_create(&pool, lend(&o, sizeof o), &err), LS_OK);
    take_back();
    assert_int_equal(ls_pool_run(pool, count_job, jobs, LS_FOREVER, &err), LS_OK);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
}

static void *serve(void *pool)
{
    assert_int_equal(ls_pool_serve(pool, 1, NULL), LS_OK);
    return NULL;
}

static int look_at_device(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)arg;
    (void)err;
    return ls_worker_device(worker) ? LS_OK : LS_EDEVICE;
}

/* The second worker's thread is lent, so its device is opened after the options are gone. */
static void a_device_pool(void **state)
{
    (void)state;
    story s;
    ls_pool *pool;
    pthread_t thread;
    begin(&s);
    const ls_device_pool_options o = {.size = sizeof o,
                                      .registry = s.registry,
                                      .devices = lend_text("keeping:2"),
                                      .cache_dir = lend_text("/nowhere/cache"),
                                      .host = &s.host,
                                      .name = lend_text("short"),
                                      .borrowed = 1};
    assert_int_equal(ls_device_pool_create(&pool, lend(&o, sizeof o), &s.err), LS_OK);
    take_back();
    kept_dir = NULL;
    assert_int_equal(pthread_create(&thread, NULL, serve, pool), 0);
    assert_int_equal(ls_pool_run(pool, look_at_device, NULL, LS_FOREVER, &s.err), LS_OK);
    assert_string_equal(kept_dir, "/nowhere/cache");
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    pthread_join(thread, NULL);
    end(&s);
}

/* The group's only rank sums on the worker of a device pool. */
static int sum(const ls_worker *worker, void *arg, ls_error *err)
{
    float in[3] = {1, 2, 3}, out[3] = {0};
    int status = ls_all_reduce(arg, 0, ls_worker_device(worker), in, out, err);
    return status ? status : out[2] == 3 ? LS_OK : LS_EDATA;
}

static void a_group(void **state)
{
    (void)state;
    story s;
    ls_pool *pool;
    ls_collective *group;
    begin(&s);
    const ls_device_pool_options d = {
        .size = sizeof d, .registry = s.registry, .devices = "keeping:1"};
    const ls_collective_options o = {.size = sizeof o,
                                     .ranks = 1,
                                     .floats = 3,
                                     .algorithm = lend_text("naive"),
                                     .host = &s.host};
    assert_int_equal(ls_device_pool_create(&pool, &d, &s.err), LS_OK);
    assert_int_equal(ls_collective_create(&group, lend(&o, sizeof o), &s.err), LS_OK);
    take_back();
    if (ls_pool_run(pool, sum, group, LS_FOREVER, &s.err) != LS_OK)
        fail_msg("%s", s.err.text);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    ls_collective_destroy(group);
    end(&s);
}

LS_TESTS(train_public_memory, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_that_is_driven),
        cmocka_unit_test(a_trainer_that_runs),
        cmocka_unit_test(a_resolved_config),
        cmocka_unit_test(a_model),
        cmocka_unit_test(a_pool),
        cmocka_unit_test(a_device_pool),
        cmocka_unit_test(a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
