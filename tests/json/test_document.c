/* SPDX-License-Identifier: MIT */
/* Tests JSON documents: line and column of nodes, messages, files, numbers under another locale,
 * failed allocations. */
#include "data/ration.h"
#include "data/scratch.h"
#include "runner.h"
#include "json/json.h"

#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const cJSON *get(const cJSON *object, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_non_null(node);
    return node;
}

static void is_at(const ls_json *doc, const cJSON *node, int line, int column, int value_line,
                  int value_column)
{
    int l;
    int c;
    assert_int_equal(ls_json_where(doc, node, false, &l, &c), LS_OK);
    assert_int_equal(l, line);
    assert_int_equal(c, column);
    assert_int_equal(ls_json_where(doc, node, true, &l, &c), LS_OK);
    assert_int_equal(l, value_line);
    assert_int_equal(c, value_column);
}

static void every_node_knows_its_line_and_column(void **state)
{
    (void)state;
    static const char text[] = "{ \"na\\u0065me\": \"\xC3\xA4\xC3\xB6\", \"lr\":\n"
                               "    0.5,\n"
                               "  \"layers\": [ {\"type\": \"conv\"}, [],\n"
                               "    true ] }";
    ls_json *doc;
    assert_int_equal(ls_json_parse(&doc, "c.json", text, sizeof text - 1, NULL, NULL), LS_OK);
    const cJSON *root = ls_json_root(doc);
    const cJSON *layers = get(root, "layers");
    is_at(doc, root, 1, 1, 1, 1);
    is_at(doc, get(root, "naeme"), 1, 3, 1, 17);
    is_at(doc, get(root, "lr"), 1, 23, 2, 5); /* columns count characters, not bytes */
    is_at(doc, layers, 3, 3, 3, 13);
    is_at(doc, cJSON_GetArrayItem(layers, 0), 3, 15, 3, 15);
    is_at(doc, get(cJSON_GetArrayItem(layers, 0), "type"), 3, 16, 3, 24);
    is_at(doc, cJSON_GetArrayItem(layers, 1), 3, 33, 3, 33);
    is_at(doc, cJSON_GetArrayItem(layers, 2), 4, 5, 4, 5);
    ls_json_destroy(doc);
}

static void failures_name_file_line_and_column(void **state)
{
    (void)state;
    ls_json *doc;
    ls_error err;
    cJSON stranger = {0};
    int line;
    int column;
    assert_int_equal(ls_json_parse(&doc, "c.json", "{\"lr\": \"x\"}", 11, NULL, NULL), LS_OK);
    const cJSON *lr = get(ls_json_root(doc), "lr");
    assert_int_equal(ls_json_fail(&err, doc, lr, LS_ECONFIG, "unknown key \"%s\"", "lr"),
                     LS_ECONFIG);
    assert_int_equal(err.status, LS_ECONFIG);
    assert_string_equal(err.text, "c.json:1:2: unknown key \"lr\"");
    ls_json_fail_value(&err, doc, lr, LS_ECONFIG, "expected a number, found %s", ls_json_kind(lr));
    assert_string_equal(err.text, "c.json:1:8: expected a number, found a string");
    ls_json_fail(&err, doc, NULL, LS_ECONFIG, "found %s", ls_json_kind(NULL));
    assert_string_equal(err.text, "c.json: found nothing");
    assert_int_equal(ls_json_fail(NULL, doc, lr, LS_EDATA, "nobody listens"), LS_EDATA);
    assert_int_equal(ls_json_where(doc, &stranger, false, &line, &column), LS_EINVAL);
    assert_string_equal(ls_json_name(doc), "c.json");
    ls_json_destroy(doc);
    ls_json_destroy(NULL);
}

static void values_keep_their_exact_numbers_and_strings(void **state)
{
    (void)state;
    static const char text[] = "[0.1, -0, 1.7976931348623157e308, 5e-324, 123456789012345678, "
                               "\"a\\u00e9\\ud83d\\ude00\\n\", 1e-999]";
    ls_json *doc;
    assert_int_equal(ls_json_parse(&doc, "c.json", text, sizeof text - 1, NULL, NULL), LS_OK);
    const cJSON *root = ls_json_root(doc);
    assert_true(cJSON_GetArrayItem(root, 0)->valuedouble == 0.1);
    assert_true(cJSON_GetArrayItem(root, 1)->valuedouble == 0.0);
    assert_true(cJSON_GetArrayItem(root, 2)->valuedouble == 1.7976931348623157e308);
    assert_true(cJSON_GetArrayItem(root, 3)->valuedouble == 5e-324);
    assert_true(cJSON_GetArrayItem(root, 4)->valuedouble == 123456789012345678.0);
    assert_string_equal(cJSON_GetArrayItem(root, 5)->valuestring, "a\xC3\xA9\xF0\x9F\x98\x80\n");
    assert_true(cJSON_GetArrayItem(root, 6)->valuedouble == 0.0);
    ls_json_destroy(doc);
}

static void what_was_written_is_read_as_a_tree(void **state)
{
    (void)state;
    ls_json_writer w;
    ls_error err = {0};
    ls_json_writer_init(&w, 0, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "a", "b");
    ls_json_close(&w);
    cJSON *tree = ls_json_written_tree(&w, "a test", &err);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tree, "a")), "b");
    cJSON_Delete(tree);
    ls_json_writer_fini(&w);
    ration none = {0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &none};
    ls_json_writer_init(&w, 0, &host);
    ls_json_put_string(&w, NULL, "text");
    assert_null(ls_json_written_tree(&w, "a test", &err));
    assert_int_equal(err.status, LS_ENOMEM);
    assert_string_equal(err.text, "out of memory for a test");
    ls_json_writer_fini(&w);
}

static void a_locale_with_a_decimal_comma_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    char half[8] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names && strcmp(half, "0,5") != 0; i++)
        if (setlocale(LC_ALL, names[i]))
            snprintf(half, sizeof half, "%.1f", 0.5);
    if (strcmp(half, "0,5") != 0) { /* musl accepts the names, but has no decimal comma */
        setlocale(LC_ALL, "C");
        skip();
    }
    ls_json *doc;
    ls_json_writer w;
    assert_int_equal(ls_json_parse(&doc, "c.json", "[0.5, 1e2]", 10, NULL, NULL), LS_OK);
    assert_true(cJSON_GetArrayItem(ls_json_root(doc), 0)->valuedouble == 0.5);
    ls_json *none;
    assert_int_equal(ls_json_parse(&none, "c.json", "[1.5e999]", 9, NULL, NULL), LS_ECONFIG);
    ls_json_writer_init(&w, 0, NULL);
    ls_json_put_node(&w, NULL, ls_json_root(doc));
    assert_string_equal(ls_json_writer_text(&w, NULL, NULL), "[0.5,100]");
    ls_json_writer_fini(&w);
    ls_json_destroy(doc);
    snprintf(half, sizeof half, "%.1f", 0.5);
    assert_string_equal(half, "0,5"); /* the process's locale is still what it was */
    setlocale(LC_ALL, "C");
}

static void refuses_file(const char *path, int status, const char *message)
{
    ls_json *doc;
    ls_error err = {0};
    char expected[700];
    snprintf(expected, sizeof expected, "%s%s", path, message);
    assert_int_equal(ls_json_read_file(&doc, path, NULL, &err), status);
    assert_null(doc);
    assert_string_equal(err.text, expected);
}

static void files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    scratch s;
    char loop[100];
    scratch_begin(&s);
    scratch_file(&s, "empty.json", "", 0);
    scratch_file(&s, "bad.json", "{\n  \"a\": tru\n}", 14);
    scratch_loop(&s, "loop.json");
    assert_int_equal(mkfifo(scratch_path(&s, "pipe.json"), 0600), 0);
    refuses_file(scratch_path(&s, "none.json"), LS_ENOENT, ": no such file");
    refuses_file(scratch_path(&s, "bad.json/x.json"), LS_ENOENT, ": no such file");
    refuses_file(s.directory, LS_ECONFIG, ": expected a JSON file, found a directory; name a file");
    refuses_file(scratch_path(&s, "empty.json"), LS_ECONFIG,
                 ": expected a JSON file, found an empty file");
    snprintf(loop, sizeof loop, ": cannot be read: %s", strerror(ELOOP));
    refuses_file(scratch_path(&s, "loop.json"), LS_EIO, loop);
    refuses_file(scratch_path(&s, "pipe.json"), LS_ECONFIG,
                 ": expected a JSON file, found a device or a pipe; copy it to a file first");
    refuses_file(scratch_path(&s, "bad.json"), LS_ECONFIG,
                 ":2:8: expected a value, found tru; put strings in double quotes");
    if (geteuid() != 0) {
        scratch_file(&s, "secret.json", "{}", 2);
        assert_int_equal(chmod(scratch_path(&s, "secret.json"), 0), 0);
        refuses_file(scratch_path(&s, "secret.json"), LS_EIO,
                     ": cannot be read: Permission denied");
    }
    scratch_end(&s);
}

static void files_are_read_up_to_the_limit(void **state)
{
    (void)state;
    scratch s;
    ls_json *doc;
    ls_error err;
    scratch_begin(&s);
    char *long_text = malloc(LS_JSON_BYTES + 1);
    assert_non_null(long_text);
    memset(long_text, ' ', LS_JSON_BYTES + 1);
    memcpy(long_text, "[1, 2, 3]", 9);
    scratch_file(&s, "long.json", long_text, LS_JSON_BYTES + 1);
    assert_int_equal(ls_json_read_file(&doc, scratch_path(&s, "long.json"), NULL, &err),
                     LS_ECONFIG);
    assert_non_null(strstr(err.text, "long.json: expected a JSON file of at most 16777216 bytes, "
                                     "found 16777217"));
    scratch_file(&s, "nine.json", long_text, LS_JSON_BYTES);
    free(long_text);
    const char *path = scratch_path(&s, "nine.json");
    assert_int_equal(ls_json_read_file(&doc, path, NULL, &err), LS_OK);
    assert_int_equal(cJSON_GetArraySize(ls_json_root(doc)), 3);
    assert_string_equal(ls_json_name(doc), path);
    ls_json_destroy(doc);
    scratch_end(&s);
}

static void a_text_that_is_one_line_of_a_file_is_called_by_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } of[] = {{"{\"a\": 01}", "m:7:7: expected a number, found a leading zero; remove it"},
              {"{\"a\":\n1,\"a\":2}", "m:8:3: expected each key once, found \"a\" again (first at "
                                      "7:2); remove one of the two"},
              {"[", "m:7:2: expected"}};
    ls_json *doc;
    ls_error err;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const size_t length = strlen(of[i].message);
        assert_int_equal(
            ls_json_parse_line(&doc, "m", of[i].text, strlen(of[i].text), 7, NULL, &err),
            LS_ECONFIG);
        if (strncmp(err.text, of[i].message, length) != 0)
            fail_msg("\"%s\" instead of \"%s\"", err.text, of[i].message);
    }
    assert_int_equal(ls_json_parse_line(&doc, "m", "{\"a\":1}", 7, 7, NULL, &err), LS_OK);
    ls_json_fail(&err, doc, ls_json_root(doc)->child, LS_EDATA, "wrong");
    assert_string_equal(err.text, "m:7:2: wrong");
    ls_json_destroy(doc);
}

static void a_text_that_is_too_long_is_refused_before_it_is_copied(void **state)
{
    (void)state;
    ration m = {0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &m};
    ls_json *doc;
    ls_error err = {0};
    assert_int_equal(ls_json_parse(&doc, "c.json", "", LS_JSON_BYTES + 1u, &host, &err),
                     LS_ECONFIG);
    assert_string_equal(err.text, "c.json: expected at most 16777216 bytes, found 16777217");
}

static void lack_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": {\"b\": [1, 2], \"c\": 3}, \"d\": 4}";
    ration m = {0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &m};
    for (int grants = 0;; grants++) {
        ls_json *doc;
        ls_error err = {0};
        m.grants = grants;
        int rc = ls_json_parse(&doc, "c.json", text, sizeof text - 1, &host, &err);
        if (rc == LS_OK)
            rc = ls_json_set(doc, "a.x.y=5", &err);
        if (rc != LS_OK)
            assert_string_equal(err.text, "c.json: out of memory");
        ls_json_destroy(doc);
        assert_int_equal(m.blocks, 0);
        if (rc == LS_OK)
            break;
        assert_int_equal(rc, LS_ENOMEM);
        assert_true(grants < 100);
    }
}

LS_TESTS(json_document, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_knows_its_line_and_column),
        cmocka_unit_test(failures_name_file_line_and_column),
        cmocka_unit_test(values_keep_their_exact_numbers_and_strings),
        cmocka_unit_test(what_was_written_is_read_as_a_tree),
        cmocka_unit_test(a_locale_with_a_decimal_comma_changes_nothing),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(files_are_read_up_to_the_limit),
        cmocka_unit_test(a_text_that_is_one_line_of_a_file_is_called_by_its_number),
        cmocka_unit_test(a_text_that_is_too_long_is_refused_before_it_is_copied),
        cmocka_unit_test(lack_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests_name("json_document", tests, NULL, NULL);
}
