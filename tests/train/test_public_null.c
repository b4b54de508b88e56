/* SPDX-License-Identifier: MIT */
/* Tests the rule for NULL (<lockstep/status.h>): calls every exported function with NULL for each
 * pointer that must not be NULL. A function that the library exports and that is missing here makes
 * the test fail. */
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <lockstep/collective.h>
#include <lockstep/model.h>
#include <lockstep/split.h>
#include <lockstep/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32

/* Names of the functions that were called, a line each. */
static char called[8192];

static void note(const char *call)
{
    const size_t used = strlen(called);
    snprintf(called + used, sizeof called - used, "%.*s\n", (int)strcspn(call, "("), call);
}

static void assert_refused(const char *call, int status, const ls_error *err)
{
    if (status != LS_EINVAL)
        fail_msg("%s returned %s", call, ls_status_name(status));
    if (err && (err->status != LS_EINVAL || !err->text[0]))
        fail_msg("%s wrote no message", call);
}

/* The call, whose last argument is `e`, is refused with a message; also without room for one. */
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        ls_error why = {0};                                                                        \
        ls_error *e = &why;                                                                        \
        note(#call);                                                                               \
        assert_refused(#call, call, e);                                                            \
        e = NULL;                                                                                  \
        assert_refused(#call, call, e);                                                            \
    } while (0)

/* A call without a status returns 0 or NULL. */
#define NOTHING(call)                                                                              \
    do {                                                                                           \
        note(#call);                                                                               \
        assert_true((call) == 0);                                                                  \
    } while (0)

/* A call without a result returns. */
#define RETURNS(call)                                                                              \
    do {                                                                                           \
        note(#call);                                                                               \
        call;                                                                                      \
    } while (0)

static int do_nothing(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    (void)arg;
    (void)err;
    return LS_OK;
}

static void the_pool(void)
{
    ls_pool *pool, *none;
    ls_error err;
    ls_pool_stats stats = {.size = sizeof stats};
    const ls_pool_options o = {.size = sizeof o, .workers = 1};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_OK);
    REFUSED(ls_pool_create(NULL, &o, e));
    REFUSED(ls_pool_create(&none, NULL, e));
    NOTHING(ls_pool_size(NULL));
    REFUSED(ls_pool_submit(NULL, 0, do_nothing, NULL, e));
    REFUSED(ls_pool_submit(pool, 0, NULL, NULL, e));
    REFUSED(ls_pool_run(NULL, do_nothing, NULL, LS_FOREVER, e));
    REFUSED(ls_pool_run(pool, NULL, NULL, LS_FOREVER, e));
    REFUSED(ls_pool_wait(NULL, LS_FOREVER, e));
    RETURNS(ls_pool_cancel(NULL));
    REFUSED(ls_pool_first_error(NULL, NULL, e));
    REFUSED(ls_pool_clear(NULL, e));
    REFUSED(ls_pool_get_stats(pool, 0, NULL, e));
    REFUSED(ls_pool_get_stats(NULL, 0, &stats, e));
    REFUSED(ls_pool_serve(NULL, 0, e));
    NOTHING(ls_pool_busy(NULL, 0));
    REFUSED(ls_pool_abandon(NULL, 0, e));
    NOTHING(ls_pool_is_abandoned(NULL, 0));
    NOTHING(ls_pool_destroy(NULL, LS_FOREVER, NULL));
    NOTHING(ls_pool_destroy(NULL, 0, NULL));
    assert_int_equal(ls_pool_run(pool, do_nothing, NULL, LS_FOREVER, &err), LS_OK);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
}

static void devices_and_groups(ls_registry *registry)
{
    ls_pool *pool;
    ls_collective *group;
    ls_error err;
    float x[1] = {0};
    const ls_device_pool_options no_registry = {.size = sizeof no_registry};
    const ls_collective_options o = {.size = sizeof o, .ranks = 1, .floats = 1};
    REFUSED(ls_registry_create(NULL, NULL, e));
    REFUSED(ls_registry_add(NULL, ls_ref_backend(), e));
    REFUSED(ls_registry_add(registry, NULL, e));
    NOTHING(ls_registry_at(NULL, 0));
    RETURNS(ls_registry_destroy(NULL));
    REFUSED(ls_device_pool_create(NULL, &no_registry, e));
    REFUSED(ls_device_pool_create(&pool, NULL, e));
    REFUSED(ls_device_pool_create(&pool, &no_registry, e));
    NOTHING(ls_worker_device(NULL));
    NOTHING(ls_worker_local(NULL));
    REFUSED(ls_collective_create(NULL, &o, e));
    REFUSED(ls_collective_create(&group, NULL, e));
    REFUSED(ls_all_reduce(NULL, 0, NULL, x, x, e));
    assert_int_equal(ls_collective_create(&group, &o, &err), LS_OK);
    REFUSED(ls_all_reduce(group, 0, NULL, x, x, e));
    ls_collective_destroy(group);
    RETURNS(ls_collective_abort(NULL));
    RETURNS(ls_collective_destroy(NULL));
}

static void parts_and_names(void)
{
    uint32_t first = 7, count = 7;
    const double capacity[2] = {1, 1};
    RETURNS(ls_split(4, 2, 0, NULL, &count));
    RETURNS(ls_split(4, 2, 0, &first, NULL));
    RETURNS(ls_split_by_weights(4, 2, 0, capacity, NULL, &count));
    RETURNS(ls_split_by_weights(4, 2, 0, NULL, &first, NULL));
    assert_true(first == 7 && count == 7);
    RETURNS(ls_text_free(NULL));
    /* functions without a pointer */
    note("ls_allowed_cpus(");
    note("ls_allowed_cores(");
    note("ls_status_name(");
    note("ls_version(");
    note("ls_version_number(");
    assert_string_equal(ls_version(), LS_VERSION);
    assert_int_equal(ls_version_number(), LS_VERSION_NUMBER);
    note("ls_transport_tcp(");
}

static void the_trainer(ls_trainer *t, const ls_trainer_options *options)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    static int32_t labels[BATCH];
    static float out[1 << 16];
    char *text;
    ls_trainer *none;
    ls_model *snapshot;
    REFUSED(ls_config_resolve(NULL, options, e));
    REFUSED(ls_config_resolve(&text, NULL, e));
    const ls_verify_options no_run = {.size = sizeof no_run, .trainer = options};
    const ls_verify_options no_trainer = {.size = sizeof no_trainer, .run = "run"};
    ls_verdict verdict = {.size = sizeof verdict};
    REFUSED(ls_verify(NULL, &no_trainer, e));
    REFUSED(ls_verify(&verdict, NULL, e));
    REFUSED(ls_verify(&verdict, &no_run, e));
    REFUSED(ls_verify(&verdict, &no_trainer, e));
    REFUSED(ls_trainer_open(NULL, options, e));
    REFUSED(ls_trainer_open(&none, NULL, e));
    NOTHING(ls_trainer_summary(NULL));
    NOTHING(ls_trainer_result(NULL));
    RETURNS(ls_trainer_interrupt(NULL));
    REFUSED(ls_trainer_run(NULL, e));
    REFUSED(ls_trainer_weights(NULL, out, ROOM(out), e));
    REFUSED(ls_trainer_weights(t, NULL, ROOM(out), e));
    REFUSED(ls_trainer_step(t, NULL, NULL, e));
    REFUSED(own_step(NULL, images, labels, BATCH, NULL, e));
    REFUSED(own_step(t, NULL, labels, BATCH, NULL, e));
    REFUSED(own_step(t, images, NULL, BATCH, NULL, e));
    REFUSED(ls_trainer_evaluate(NULL, NULL, e));
    REFUSED(ls_trainer_model(&snapshot, NULL, e));
    REFUSED(ls_trainer_model(NULL, t, e));
    REFUSED(ls_trainer_save(NULL, "file", e));
    REFUSED(ls_trainer_load(NULL, "file", e));
    REFUSED(ls_trainer_load(t, NULL, e));
    REFUSED(ls_trainer_load_weights(NULL, "file", LS_STATE_RESET, e));
    REFUSED(ls_trainer_load_weights(t, NULL, LS_STATE_RESET, e));
    REFUSED(ls_trainer_set_lr(NULL, 0.1, e));
    NOTHING(ls_trainer_close(NULL, NULL));
}

static void snapshots(ls_model *s)
{
    static uint8_t image[OWN_PIXELS];
    float out[OWN_CLASSES];
    double row[OWN_CLASSES];
    const ls_field field = {.column = "x", .kind = LS_FIELD_NUMBER, .number = 1};
    ls_model *none;
    ls_model_info info = {.size = sizeof info};
    REFUSED(ls_model_describe(NULL, &info, e));
    REFUSED(ls_model_describe(s, NULL, e));
    NOTHING(ls_model_retain(NULL));
    RETURNS(ls_model_release(NULL));
    REFUSED(ls_model_predict(NULL, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, out, OWN_CLASSES, e));
    REFUSED(ls_model_predict(s, NULL, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, out, OWN_CLASSES, e));
    REFUSED(ls_model_predict(s, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, NULL, OWN_CLASSES, e));
    REFUSED(ls_model_save(NULL, "file", e));
    REFUSED(ls_model_save(s, NULL, e));
    REFUSED(ls_model_export(NULL, "file", e));
    REFUSED(ls_model_export(s, NULL, e));
    REFUSED(ls_model_open(NULL, "file", NULL, e));
    REFUSED(ls_model_open(&none, NULL, NULL, e));
    ls_rows *rows;
    ls_evaluation found = {.size = sizeof found};
    REFUSED(ls_rows_open(NULL, s, "file", NULL, e));
    REFUSED(ls_rows_open(&rows, NULL, "file", NULL, e));
    REFUSED(ls_rows_open(&rows, s, NULL, NULL, e));
    NOTHING(ls_rows_count(NULL));
    NOTHING(ls_rows_name(NULL, 0));
    NOTHING(ls_rows_why(NULL, 0));
    REFUSED(ls_rows_predict(NULL, 0, 0, 0, out, 0, e));
    REFUSED(ls_model_evaluate(NULL, "file", NULL, &found, e));
    REFUSED(ls_model_evaluate(s, NULL, NULL, &found, e));
    REFUSED(ls_model_evaluate(s, "file", NULL, NULL, e));
    NOTHING(ls_model_column_count(NULL));
    NOTHING(ls_model_column_count(s));
    NOTHING(ls_model_column_name(NULL, 0));
    NOTHING(ls_model_column_name(s, 0));
    RETURNS(ls_rows_close(NULL));
    REFUSED(ls_model_row(NULL, &field, 1, sizeof(ls_field), row, OWN_CLASSES, e));
    REFUSED(ls_model_row(s, NULL, 1, sizeof(ls_field), row, OWN_CLASSES, e));
    REFUSED(ls_model_row(s, &field, 1, sizeof(ls_field), NULL, OWN_CLASSES, e));
    NOTHING(ls_model_card(NULL));
    NOTHING(ls_model_class_name(NULL, 0));
}

/* Each symbol that the library exports, a line "ls_name;" of its version script, was called. */
static void assert_all_called(void)
{
    char line[200], name[202];
    int symbols = 0;
    FILE *f = fopen(LS_EXPORTED, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *symbol = line + strspn(line, " ");
        if (strncmp(symbol, "ls_", 3) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s\n", (int)strcspn(symbol, ";\n"), symbol);
        const char *found = strstr(called, name);
        while (found && found != called && found[-1] != '\n')
            found = strstr(found + 1, name);
        if (!found)
            fail_msg("the test calls no %s", name);
        symbols++;
    }
    fclose(f);
    assert_in_range(symbols, 50, 1000);
}

static void every_function_refuses_null(void **state)
{
    (void)state;
    fixture f;
    ls_model *s;
    const ls_data_source *pointers[1];
    ls_data_source data = own_data(1);
    fixture_begin(&f);
    fixture_use_source(&f, &data, pointers);
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_model(&s, t, &f.err), LS_OK);
    the_pool();
    devices_and_groups(f.registry);
    parts_and_names();
    the_trainer(t, &f.options);
    snapshots(s);
    assert_all_called();
    ls_model_release(s);
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* A call that creates an object sets the pointer to NULL when it fails. */
#define LEAVES_NULL(type, call)                                                                    \
    do {                                                                                           \
        static type *const other;                                                                  \
        type *out = (type *)(uintptr_t)&other;                                                     \
        assert_int_not_equal(call, LS_OK);                                                         \
        assert_null(out);                                                                          \
    } while (0)

static void what_could_not_be_created_is_null(void **state)
{
    (void)state;
    fixture f;
    const ls_host no_size = {0};
    const ls_collective_options ranks = {.size = sizeof ranks, .floats = 1};
    const ls_pool_options workers = {.size = sizeof workers, .workers = -1};
    const ls_device_pool_options nothing = {.size = sizeof nothing, .devices = "none"};
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    fixture_set(&f, "batch_size=-1");
    LEAVES_NULL(ls_trainer, ls_trainer_open(&out, &f.options, NULL));
    LEAVES_NULL(ls_trainer, ls_trainer_open(&out, NULL, NULL));
    LEAVES_NULL(char, ls_config_resolve(&out, &f.options, NULL));
    LEAVES_NULL(char, ls_config_resolve(&out, NULL, NULL));
    LEAVES_NULL(ls_model, ls_trainer_model(&out, NULL, NULL));
    LEAVES_NULL(ls_model, ls_model_open(&out, "nothing.safetensors", NULL, NULL));
    LEAVES_NULL(ls_model, ls_model_open(&out, NULL, NULL, NULL));
    LEAVES_NULL(ls_registry, ls_registry_create(&out, &no_size, NULL));
    LEAVES_NULL(ls_collective, ls_collective_create(&out, &ranks, NULL));
    LEAVES_NULL(ls_collective, ls_collective_create(&out, NULL, NULL));
    LEAVES_NULL(ls_pool, ls_pool_create(&out, &workers, NULL));
    LEAVES_NULL(ls_pool, ls_device_pool_create(&out, &nothing, NULL));
    ls_model *m;
    assert_int_equal(ls_trainer_model(&m, t, &f.err), LS_OK);
    LEAVES_NULL(ls_rows, ls_rows_open(&out, m, "nothing.csv", NULL, NULL));
    LEAVES_NULL(ls_rows, ls_rows_open(&out, NULL, "nothing.csv", NULL, NULL));
    ls_model_release(m);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

LS_TESTS(train_public_null, "unit")
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_function_refuses_null),
                                       cmocka_unit_test(what_could_not_be_created_is_null)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
