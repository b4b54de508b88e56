/* SPDX-License-Identifier: MIT */
/* Tests ls_json_set: the effect of `--set a.b=v` on a document. */
#include "runner.h"
#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "{\"lr\": 0.5, \"data\": {\"name\": \"mnist\", \"limit\": 7},\n"
                           " \"layers\": [{\"units\": 3}, {\"units\": 4}]}";

static int begin(void **state)
{
    ls_json *doc;
    assert_int_equal(ls_json_parse(&doc, "c.json", text, sizeof text - 1, NULL, NULL), LS_OK);
    *state = doc;
    return 0;
}

static int end(void **state)
{
    ls_json_destroy(*state);
    return 0;
}

static void sets_to(ls_json *doc, const char *assignment, const char *tree)
{
    ls_error err = {0};
    ls_json_writer w;
    int rc = ls_json_set(doc, assignment, &err);
    if (rc != LS_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, LS_OK);
    ls_json_writer_init(&w, 0, NULL);
    ls_json_put_node(&w, NULL, ls_json_root(doc));
    assert_string_equal(ls_json_writer_text(&w, NULL, NULL), tree);
    ls_json_writer_fini(&w);
}

static void refuses(ls_json *doc, const char *assignment, int status, const char *message)
{
    ls_error err = {0};
    assert_int_equal(ls_json_set(doc, assignment, &err), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.text, message);
}

static void members_are_replaced_and_added(void **state)
{
    sets_to(*state, "lr=1e-3",
            "{\"lr\":0.001,\"data\":{\"name\":\"mnist\",\"limit\":7},"
            "\"layers\":[{\"units\":3},{\"units\":4}]}");
    sets_to(*state, "data.name=synthetic",
            "{\"lr\":0.001,\"data\":{\"name\":\"synthetic\",\"limit\":7},"
            "\"layers\":[{\"units\":3},{\"units\":4}]}");
    sets_to(*state, "data={\"name\":\"x\"}",
            "{\"lr\":0.001,\"data\":{\"name\":\"x\"},\"layers\":[{\"units\":3},{\"units\":4}]}");
    sets_to(*state, "data.path=/a/b=c",
            "{\"lr\":0.001,\"data\":{\"name\":\"x\",\"path\":\"/a/b=c\"},"
            "\"layers\":[{\"units\":3},{\"units\":4}]}");
    sets_to(*state, "layers.1.units=64",
            "{\"lr\":0.001,\"data\":{\"name\":\"x\",\"path\":\"/a/b=c\"},"
            "\"layers\":[{\"units\":3},{\"units\":64}]}");
    sets_to(*state, "layers=null",
            "{\"lr\":0.001,\"data\":{\"name\":\"x\",\"path\":\"/a/b=c\"},\"layers\":null}");
}

static void missing_objects_are_made_on_the_way(void **state)
{
    sets_to(*state, "layers=0",
            "{\"lr\":0.5,\"data\":{\"name\":\"mnist\",\"limit\":7},\"layers\":0}");
    sets_to(*state, "a.b.c=true",
            "{\"lr\":0.5,\"data\":{\"name\":\"mnist\",\"limit\":7},\"layers\":0,"
            "\"a\":{\"b\":{\"c\":true}}}");
}

static void what_is_not_json_is_a_string(void **state)
{
    sets_to(*state, "data={}", "{\"lr\":0.5,\"data\":{},\"layers\":[{\"units\":3},{\"units\":4}]}");
    sets_to(*state, "layers=", "{\"lr\":0.5,\"data\":{},\"layers\":\"\"}");
    sets_to(*state, "layers=a b", "{\"lr\":0.5,\"data\":{},\"layers\":\"a b\"}");
    sets_to(*state, "layers=\"7\"", "{\"lr\":0.5,\"data\":{},\"layers\":\"7\"}");
    sets_to(*state, "layers=cpu:0,1", "{\"lr\":0.5,\"data\":{},\"layers\":\"cpu:0,1\"}");
}

static void malformed_assignments_are_refused(void **state)
{
    refuses(*state, "lr", LS_EINVAL, "--set lr: expected KEY=VALUE, found no '='");
    refuses(*state, "=1", LS_EINVAL, "--set =1: expected a key before '=', found none");
    refuses(*state, "a..b=1", LS_EINVAL, "--set a..b=1: expected a key before '.', found none");
    refuses(*state, "lr.x=1", LS_ECONFIG,
            "--set lr.x=1: expected lr to be an object, found a number");
    refuses(*state, "layers.2.x=1", LS_ECONFIG,
            "--set layers.2.x=1: expected a number from 0 to 1 after layers, found 2");
    refuses(*state, "layers.first=1", LS_ECONFIG,
            "--set layers.first=1: expected a number from 0 to 1 after layers, found first");
    refuses(*state, "data={\"a\": 1,}", LS_ECONFIG,
            "--set data={\"a\": 1,}:1:9: expected a key, found '}'; remove the comma before it");
    refuses(
        *state, "data={\"a\": 1, \"a\": 2}", LS_ECONFIG,
        "--set data={\"a\": 1, \"a\": 2}:1:10: expected each key once, found \"a\" again (first "
        "at 1:2); remove one of the two");
    refuses(*state, "lr=\xFF", LS_ECONFIG, "--set lr=?: expected UTF-8, found the byte 0xff");
    refuses(*state, "data.\xFE=1", LS_ECONFIG,
            "--set data.?=1: expected UTF-8, found the byte 0xfe");
    refuses(*state, "lr.a\n\x1B[31m=1", LS_ECONFIG,
            "--set lr.a??[31m=1: expected lr to be an object, found a number");
}

static void errors_name_the_assignment_that_set_a_value(void **state)
{
    ls_json *doc = *state;
    ls_error err;
    int line;
    int column;
    assert_int_equal(ls_json_set(doc, "data.limit=many", NULL), LS_OK);
    assert_int_equal(ls_json_set(doc, "nett.depth=1", NULL), LS_OK);
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "data");
    const cJSON *limit = cJSON_GetObjectItemCaseSensitive(data, "limit");
    ls_json_fail_value(&err, doc, limit, LS_ECONFIG, "expected a number, found %s",
                       ls_json_kind(limit));
    assert_string_equal(err.text, "--set data.limit=many: expected a number, found a string");
    assert_int_equal(ls_json_where(doc, limit, false, &line, &column), LS_EINVAL);
    const cJSON *nett = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "nett");
    ls_json_fail(&err, doc, nett, LS_ECONFIG, "unknown key");
    assert_string_equal(err.text, "--set nett.depth=1: unknown key");
    ls_json_fail(&err, doc, data, LS_ECONFIG, "still in the file");
    assert_string_equal(err.text, "c.json:1:13: still in the file");
}

static const cJSON *at(const ls_json *doc, const char *key, const char *inner)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), key);
    return inner ? cJSON_GetObjectItemCaseSensitive(node, inner) : node;
}

static void a_key_is_set_alone_or_with_its_group(void **state)
{
    ls_json *doc = *state;
    assert_false(ls_json_is_set(doc, ls_json_root(doc)));
    assert_false(ls_json_is_set(doc, NULL));
    assert_int_equal(ls_json_set(doc, "data.limit=3", NULL), LS_OK);
    assert_true(ls_json_is_set(doc, at(doc, "data", "limit")));
    assert_true(ls_json_is_set(doc, at(doc, "data", NULL)));
    assert_false(ls_json_is_set(doc, at(doc, "data", "name")));
    assert_false(ls_json_is_set(doc, at(doc, "layers", NULL)));
    assert_int_equal(ls_json_set(doc, "data={\"name\": \"csv\"}", NULL), LS_OK);
    assert_true(ls_json_is_set(doc, at(doc, "data", "name")));
    assert_false(ls_json_is_set(doc, at(doc, "data", "limit"))); /* it was replaced */
}

/* A new node may get the address of one that was replaced long ago. */
static void a_value_set_again_and_again_has_the_last_place(void **state)
{
    ls_json *doc = *state;
    char assignment[16] = "lr=0";
    char expected[32];
    for (int digit = '0'; digit <= '9'; digit++) {
        ls_error err;
        assignment[3] = (char)digit;
        assert_int_equal(ls_json_set(doc, assignment, NULL), LS_OK);
        const cJSON *lr = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "lr");
        assert_true(lr->valuedouble == digit - '0');
        ls_json_fail(&err, doc, lr, LS_ECONFIG, "here");
        snprintf(expected, sizeof expected, "--set lr=%c: here", digit);
        assert_string_equal(err.text, expected);
    }
}

/* cJSON does not allocate from the host; here it allocates from this. */
static long allocations, refused;

static void *refuse(size_t size)
{
    return ++allocations == refused ? NULL : malloc(size);
}

static void a_refused_allocation_of_cjson_leaves_the_document_whole(void **state)
{
    (void)state;
    cJSON_Hooks hooks = {refuse, free};
    static const char *const assignments[] = {"lr=1", "data.limit=3", "a.b.c=[1, {\"d\": 2}]",
                                              "layers.0={\"units\": 5}"};
    int failed = 1;
    cJSON_InitHooks(&hooks);
    for (refused = 1; failed; refused++) {
        ls_json *doc = NULL;
        ls_error err = {0};
        ls_json_writer w;
        allocations = 0;
        failed = ls_json_parse(&doc, "c.json", text, sizeof text - 1, NULL, &err) != LS_OK;
        assert_int_equal(err.status, failed ? LS_ENOMEM : LS_OK);
        for (size_t i = 0; doc && i < sizeof assignments / sizeof *assignments; i++) {
            const int status = ls_json_set(doc, assignments[i], &err);
            assert_true(status == LS_OK || status == LS_ENOMEM);
            failed |= status != LS_OK;
        }
        ls_json_writer_init(&w, 0, NULL); /* every member still has its key */
        if (doc)
            ls_json_put_node(&w, NULL, ls_json_root(doc));
        ls_json_writer_fini(&w);
        ls_json_destroy(doc);
        assert_true(refused < 1000);
    }
    cJSON_InitHooks(NULL);
    assert_true(refused > 20);
}

LS_TESTS(json_set, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_are_replaced_and_added, begin, end),
        cmocka_unit_test_setup_teardown(a_key_is_set_alone_or_with_its_group, begin, end),
        cmocka_unit_test_setup_teardown(missing_objects_are_made_on_the_way, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_json_is_a_string, begin, end),
        cmocka_unit_test_setup_teardown(malformed_assignments_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(errors_name_the_assignment_that_set_a_value, begin, end),
        cmocka_unit_test_setup_teardown(a_value_set_again_and_again_has_the_last_place, begin, end),
        cmocka_unit_test(a_refused_allocation_of_cjson_leaves_the_document_whole),
    };
    return cmocka_run_group_tests_name("json_set", tests, NULL, NULL);
}
