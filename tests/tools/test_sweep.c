/* SPDX-License-Identifier: MIT */
/* Tests a sweep: its combinations, syntax errors in its arguments, and its results. */
#include "cli/sweep.h"
#include "data/ration.h"
#include "device/registry.h"
#include "runner.h"
#include "json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- back ends that only say how many devices there are ---- */

static void probe_four(ls_backend_info *out)
{
    out->devices = 4;
}

static void probe_none(ls_backend_info *out)
{
    snprintf(out->reason, sizeof out->reason, "nothing is plugged in");
}

static int open_none(ls_device **out, const ls_device_request *request, ls_error *err)
{
    (void)out;
    (void)request;
    (void)err;
    return LS_EDEVICE;
}

static const ls_backend absent = {LS_PLUGIN_ABI, sizeof absent, "absent", 0, probe_none, open_none};
static const ls_backend counted = {LS_PLUGIN_ABI, sizeof counted, "alike", 1,
                                   probe_four,    open_none};
static const ls_backend listed = {LS_PLUGIN_ABI, sizeof listed, "named", 0, probe_four, open_none};

/* A registry whose first present back end is `backend`. */
static ls_registry *registry_of(const ls_backend *backend)
{
    ls_registry *registry;
    assert_int_equal(ls_registry_create_empty(&registry, NULL, NULL), LS_OK);
    assert_int_equal(ls_registry_add(registry, &absent, NULL), LS_OK);
    if (backend)
        assert_int_equal(ls_registry_add(registry, backend, NULL), LS_OK);
    return registry;
}

static cli_sweep *sweep_over(const ls_backend *backend, int count, const char *const *vary)
{
    cli_sweep *sweep;
    ls_error err = {0};
    ls_registry *registry = registry_of(backend);
    int status = cli_sweep_create(&sweep, vary, count, registry, NULL, &err);
    if (status)
        print_error("%s\n", err.text);
    assert_int_equal(status, LS_OK);
    ls_registry_destroy(registry);
    return sweep;
}

/* Expects these assignments, one combination after another, keys separated by a space. */
static void gives(const cli_sweep *sweep, int count, const char *const *expected)
{
    assert_int_equal(cli_sweep_count(sweep), count);
    for (int i = 0; i < count; i++) {
        char text[256] = "";
        for (int k = 0; k < cli_sweep_keys(sweep); k++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", k ? " " : "",
                     cli_sweep_assignment(sweep, i, k));
        }
        assert_string_equal(text, expected[i]);
    }
}

/* ---- combinations ---- */

static void the_first_axis_changes_slowest(void **state)
{
    (void)state;
    const char *const vary[] = {"lr=0.05,0.1", "momentum=0,0.9", "seed=1,2,3"};
    const char *const expected[] = {
        "optimizer.lr=0.05 optimizer.momentum=0 seed=1",
        "optimizer.lr=0.05 optimizer.momentum=0 seed=2",
        "optimizer.lr=0.05 optimizer.momentum=0 seed=3",
        "optimizer.lr=0.05 optimizer.momentum=0.9 seed=1",
        "optimizer.lr=0.05 optimizer.momentum=0.9 seed=2",
        "optimizer.lr=0.05 optimizer.momentum=0.9 seed=3",
        "optimizer.lr=0.1 optimizer.momentum=0 seed=1",
        "optimizer.lr=0.1 optimizer.momentum=0 seed=2",
        "optimizer.lr=0.1 optimizer.momentum=0 seed=3",
        "optimizer.lr=0.1 optimizer.momentum=0.9 seed=1",
        "optimizer.lr=0.1 optimizer.momentum=0.9 seed=2",
        "optimizer.lr=0.1 optimizer.momentum=0.9 seed=3",
    };
    cli_sweep *sweep = sweep_over(NULL, 3, vary);
    gives(sweep, 12, expected);
    assert_string_equal(cli_sweep_key(sweep, 0), "lr");
    assert_string_equal(cli_sweep_key(sweep, 2), "seed");
    assert_string_equal(cli_sweep_value(sweep, 4, 1), "0.9");
    cli_sweep_destroy(sweep);
}

static void coupled_keys_change_together(void **state)
{
    (void)state;
    const char *const vary[] = {"seed=1,2", "devices,batch_size,lr=1:256:0.1,2:512:0.2"};
    const char *const expected[] = {
        "seed=1 devices=\"alike:1\" batch_size=256 optimizer.lr=0.1",
        "seed=1 devices=\"alike:2\" batch_size=512 optimizer.lr=0.2",
        "seed=2 devices=\"alike:1\" batch_size=256 optimizer.lr=0.1",
        "seed=2 devices=\"alike:2\" batch_size=512 optimizer.lr=0.2",
    };
    cli_sweep *sweep = sweep_over(&counted, 2, vary);
    gives(sweep, 4, expected);
    assert_int_equal(cli_sweep_keys(sweep), 4);
    assert_string_equal(cli_sweep_value(sweep, 1, 1), "2");
    cli_sweep_destroy(sweep);
}

static void a_number_of_devices_means_the_first_kind_there_is(void **state)
{
    (void)state;
    const char *const vary[] = {"devices=1,3,auto,alike:2"};
    const char *const alike[] = {"devices=\"alike:1\"", "devices=\"alike:3\"", "devices=auto",
                                 "devices=alike:2"};
    const char *const named[] = {"devices=\"named:0\"", "devices=\"named:0,1,2\"", "devices=auto",
                                 "devices=alike:2"};
    cli_sweep *sweep = sweep_over(&counted, 1, vary);
    gives(sweep, 4, alike);
    cli_sweep_destroy(sweep);
    sweep = sweep_over(&listed, 1, vary);
    gives(sweep, 4, named);
    cli_sweep_destroy(sweep);
}

static void commas_and_colons_inside_brackets_and_quotes_belong_to_the_value(void **state)
{
    (void)state;
    const char *const vary[] = {"init={\"name\":\"normal\",\"std\":0.01},xavier",
                                "devices,x=\"named:0,1\":[1,2],\"a\\\",b\":3"};
    const char *const expected[] = {
        "init={\"name\":\"normal\",\"std\":0.01} devices=\"named:0,1\" x=[1,2]",
        "init={\"name\":\"normal\",\"std\":0.01} devices=\"a\\\",b\" x=3",
        "init=xavier devices=\"named:0,1\" x=[1,2]",
        "init=xavier devices=\"a\\\",b\" x=3",
    };
    cli_sweep *sweep = sweep_over(&listed, 2, vary);
    gives(sweep, 4, expected);
    cli_sweep_destroy(sweep);
}

/* ---- syntax errors ---------- */

#define SHAPE                                                                                      \
    "expected KEY=VALUE,VALUE…, such as --vary lr=0.05,0.1, or KEY,KEY=V:V,V:V… for keys "     \
    "that change together"

static void what_cannot_be_read_is_refused_with_the_fix(void **state)
{
    (void)state;
    static const struct {
        const char *vary, *message;
        int status;
    } cases[] = {
        {"lr", "--vary lr: no '='; " SHAPE, LS_EINVAL},
        {"", "--vary : no '='; " SHAPE, LS_EINVAL},
        {"=1", "--vary =1: an empty key; " SHAPE, LS_EINVAL},
        {"a,=1:2", "--vary a,=1:2: an empty key; " SHAPE, LS_EINVAL},
        {"lr=", "--vary lr=: an empty value; " SHAPE, LS_EINVAL},
        {"lr=1,", "--vary lr=1,: an empty value; " SHAPE, LS_EINVAL},
        {"lr=,1", "--vary lr=,1: an empty value; " SHAPE, LS_EINVAL},
        {"a,b=1:", "--vary a,b=1:: an empty value; " SHAPE, LS_EINVAL},
        {"a,b=1:2,3",
         "--vary a,b=1:2,3: expected 2 values with ':' between them, found 1 in 3; a value that "
         "holds ':' needs \"quotes\"",
         LS_EINVAL},
        {"devices,b=cpu:2:256",
         "--vary devices,b=cpu:2:256: expected 2 values with ':' between them, found 3 in "
         "cpu:2:256; a value that holds ':' needs \"quotes\"",
         LS_EINVAL},
        {"lr,optimizer.lr=1:2", "--vary lr,optimizer.lr=1:2: optimizer.lr is varied twice",
         LS_EINVAL},
        {"a,b,c,d,e,f,g,h,i=1", "--vary a,b,c,d,e,f,g,h,i=1: more than 8 keys", LS_EINVAL},
        {"devices=0", "--vary devices: expected 1 to 1024 of them, found 0", LS_EINVAL},
        {"devices=1025", "--vary devices: expected 1 to 1024 of them, found 1025", LS_EINVAL},
        {"devices=2", "no back end has a device; the program's --version says why", LS_EDEVICE},
    };
    ls_registry *registry = registry_of(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_sweep *sweep;
        ls_error err = {0};
        assert_int_equal(cli_sweep_create(&sweep, &cases[i].vary, 1, registry, NULL, &err),
                         cases[i].status);
        assert_string_equal(err.text, cases[i].message);
        assert_null(sweep);
    }
    ls_registry_destroy(registry);
}

static void the_same_key_on_two_axes_is_refused(void **state)
{
    (void)state;
    const char *const vary[] = {"lr=1,2", "optimizer.lr=3"};
    cli_sweep *sweep;
    ls_error err;
    assert_int_equal(cli_sweep_create(&sweep, vary, 2, NULL, NULL, &err), LS_EINVAL);
    assert_string_equal(err.text, "--vary optimizer.lr=3: optimizer.lr is varied twice");
}

static void more_combinations_than_anybody_waits_for_are_refused(void **state)
{
    (void)state;
    const char *const ten = "=0,1,2,3,4,5,6,7,8,9";
    char text[4][32];
    const char *vary[4];
    cli_sweep *sweep;
    ls_error err;
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%c%s", 'a' + i, i < 3 ? ten : "=1,2");
        vary[i] = text[i];
    }
    assert_int_equal(cli_sweep_create(&sweep, vary, 3, NULL, NULL, &err), LS_OK);
    assert_int_equal(cli_sweep_count(sweep), 1000);
    cli_sweep_destroy(sweep);
    assert_int_equal(cli_sweep_create(&sweep, vary, 4, NULL, NULL, &err), LS_EINVAL);
    assert_string_equal(err.text, "--vary d=1,2: more than 1000 combinations");
}

/* ---- results ---- */

static void rates_are_means_over_epochs_of_equal_length(void **state)
{
    (void)state;
    cli_sweep_row row;
    cli_sweep_row_init(&row);
    assert_true(isnan(row.images_per_s) && isnan(row.train_loss) && isnan(row.result.metric_value));
    ls_progress p = {.epoch_done = 0, .loss = 9, .rows_per_s = 1};
    cli_sweep_row_progress(&row, &p); /* in the middle of an epoch: no result */
    assert_true(isnan(row.images_per_s));
    p = (ls_progress){.epoch_done = 1, .loss = 2, .rows_per_s = 100};
    cli_sweep_row_progress(&row, &p);
    p = (ls_progress){.epoch_done = 1, .loss = 1, .rows_per_s = 300};
    cli_sweep_row_progress(&row, &p);
    assert_true(row.train_loss == 1);
    assert_true(fabs(row.images_per_s - 150) < 1e-9); /* twice the images in 1 + 1/3 of the time */
}

static void speed_up_is_against_the_first_run_that_has_a_rate(void **state)
{
    (void)state;
    cli_sweep_row rows[3];
    for (int i = 0; i < 3; i++)
        cli_sweep_row_init(&rows[i]);
    assert_true(isnan(cli_sweep_speedup(rows, 3, 2)));
    rows[1].images_per_s = 100;
    rows[2].images_per_s = 190;
    assert_true(isnan(cli_sweep_speedup(rows, 3, 0)));
    assert_true(cli_sweep_speedup(rows, 3, 1) == 1);
    assert_true(cli_sweep_speedup(rows, 3, 2) == 1.9);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void the_json_tells_finished_failed_and_unrun_apart(void **state)
{
    (void)state;
    const char *const vary[] = {"lr=0.1,0.2,0.3", "init=xavier"};
    cli_sweep *sweep = sweep_over(NULL, 2, vary);
    cli_sweep_row rows[3];
    for (int i = 0; i < 3; i++)
        cli_sweep_row_init(&rows[i]);
    ls_progress p = {.epoch_done = 1, .loss = 2, .rows_per_s = 100};
    cli_sweep_row_progress(&rows[0], &p);
    cli_sweep_row_end(&rows[0], NULL, LS_OK, "");
    cli_sweep_row_end(&rows[1], NULL, LS_ECONFIG, "a \"bad\" key");
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    cli_sweep_json(&w, sweep, rows, "x.json");
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    ls_json *doc;
    assert_int_equal(ls_json_parse(&doc, "sweep", text, strlen(text), NULL, NULL), LS_OK);
    const cJSON *runs = member(ls_json_root(doc), "runs"), *run = cJSON_GetArrayItem(runs, 0);
    assert_string_equal(member(ls_json_root(doc), "config")->valuestring, "x.json");
    assert_int_equal(cJSON_GetArraySize(runs), 3);
    assert_string_equal(member(run, "status")->valuestring, "finished");
    assert_true(member(member(run, "set"), "optimizer.lr")->valuedouble == 0.1);
    assert_string_equal(member(member(run, "set"), "init")->valuestring, "xavier");
    assert_true(member(run, "images_per_s")->valuedouble == 100);
    assert_true(cJSON_IsNull(member(run, "test_accuracy")));
    assert_true(cJSON_IsNull(member(run, "error")));
    run = cJSON_GetArrayItem(runs, 1);
    assert_string_equal(member(run, "status")->valuestring, "failed");
    assert_string_equal(member(run, "error")->valuestring, "a \"bad\" key");
    run = cJSON_GetArrayItem(runs, 2);
    assert_string_equal(member(run, "status")->valuestring, "not run");
    ls_json_destroy(doc);
    ls_json_writer_fini(&w);
    cli_sweep_destroy(sweep);
}

/* ---- memory ---- */

static void lack_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    (void)state;
    const char *const vary[] = {"lr=1,2", "devices,b=1:2,3:4"};
    ration left = {0, 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &left};
    ls_registry *registry = registry_of(&listed);
    int status = LS_ENOMEM;
    for (int grants = 0; status != LS_OK; grants++) {
        cli_sweep *sweep;
        left.grants = grants;
        status = cli_sweep_create(&sweep, vary, 2, registry, &host, NULL);
        cli_sweep_destroy(sweep);
        assert_int_equal(left.blocks, 0);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        assert_true(grants < 100);
    }
    ls_registry_destroy(registry);
}

LS_TESTS(sweep, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_axis_changes_slowest),
        cmocka_unit_test(coupled_keys_change_together),
        cmocka_unit_test(a_number_of_devices_means_the_first_kind_there_is),
        cmocka_unit_test(commas_and_colons_inside_brackets_and_quotes_belong_to_the_value),
        cmocka_unit_test(what_cannot_be_read_is_refused_with_the_fix),
        cmocka_unit_test(the_same_key_on_two_axes_is_refused),
        cmocka_unit_test(more_combinations_than_anybody_waits_for_are_refused),
        cmocka_unit_test(rates_are_means_over_epochs_of_equal_length),
        cmocka_unit_test(speed_up_is_against_the_first_run_that_has_a_rate),
        cmocka_unit_test(the_json_tells_finished_failed_and_unrun_apart),
        cmocka_unit_test(lack_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
