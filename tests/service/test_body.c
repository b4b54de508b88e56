/* The bodies of requests, well-formed and not. */
#include "../../examples/service/service.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct asked {
    row_form form;
    int examples;
} asked;

/* Rows of three bytes, and a label. */
#define BYTES                                                                                      \
    {                                                                                              \
        .channels = 3, .height = 1, .width = 1, .classes = 10, .row_bytes = 3, .target_bytes = 1,  \
        .example_bytes = 4                                                                         \
    }
static const asked labelled = {BYTES, 1}, plain = {BYTES, 0};

static size_t item_bytes(const asked *form)
{
    return form->examples ? form->form.example_bytes : form->form.row_bytes;
}

static int read_body(row_list *p, const asked *form, const char *type, const char *body,
                     size_t length, ls_error *err)
{
    char *exact = malloc(length ? length : 1); /* so that a byte too far is seen */
    memcpy(exact, body, length);
    int status = body_read(p, &form->form, form->examples, type, exact, length, err);
    if (status == LS_OK && !p->owned) { /* what lies in the body goes with it */
        const size_t bytes = p->count * item_bytes(form);
        p->owned = malloc(bytes ? bytes : 1);
        memcpy(p->owned, p->bytes, bytes);
        p->bytes = p->owned;
    }
    free(exact);
    return status;
}

static void accept(const asked *form, const char *type, const char *body, size_t length,
                   const char *expected, uint32_t count)
{
    row_list p;
    ls_error err;
    if (read_body(&p, form, type, body, length, &err) != LS_OK)
        fail_msg("%.*s: %s", (int)length, body, err.text);
    assert_int_equal(p.count, count);
    assert_memory_equal(p.bytes, expected, count * item_bytes(form));
    body_free(&p);
}

static void refuse(const asked *form, const char *type, const char *body, size_t length, int status,
                   const char *message)
{
    row_list p;
    ls_error err;
    assert_int_equal(read_body(&p, form, type, body, length, &err), status);
    if (!strstr(err.text, message))
        fail_msg("\"%s\" is not in: %s", message, err.text);
    const int kept = p.owned != NULL;
    body_free(&p);
    assert_false(kept);
}

static void bytes_are_taken_as_they_are(void **state)
{
    (void)state;
    const char *type = "application/octet-stream";
    accept(&labelled, type, "\1abc\2def", 8, "\1abc\2def", 2);
    accept(&plain, type, "abcdef", 6, "abcdef", 2);
    accept(&plain, "Application/Octet-Stream; x=y", "abc", 3, "abc", 1);
    refuse(&labelled, type, "", 0, LS_EDATA, "0 bytes; expected a multiple of 4");
    refuse(&labelled, type, "\1abc\2", 5, LS_EDATA, "5 bytes; expected a multiple of 4");
    refuse(&labelled, type, "\1abc\012def", 8, LS_EDATA, "row 1: label 10; expected 0 to 9");
    refuse(&plain, type, "abcd", 4, LS_EDATA, "4 bytes; expected a multiple of 3");
}

static void other_types_are_refused(void **state)
{
    (void)state;
    refuse(&plain, NULL, "abc", 3, LS_EUNSUPPORTED, "Content-Type");
    refuse(&plain, "text/plain", "abc", 3, LS_EUNSUPPORTED, "application/json");
    refuse(&plain, "application/jsonx", "{}", 2, LS_EUNSUPPORTED, "application/json");
}

static void accept_json(const asked *form, const char *body, const char *expected, uint32_t count)
{
    accept(form, "application/json; charset=utf-8", body, strlen(body), expected, count);
}

static void refuse_json(const asked *form, const char *body, const char *message)
{
    refuse(form, "application/json", body, strlen(body), LS_EDATA, message);
}

static void json_has_arrays(void **state)
{
    (void)state;
    accept_json(&plain, "{\"rows\": [[97, 98, 99], [100, 101, 102]]}", "abcdef", 2);
    accept_json(&labelled,
                "{\"examples\": [{\"label\": 1, \"row\": [97,98,99]},"
                " {\"row\": [100,101,102], \"label\": 9}]}",
                "\1abc\11def", 2);
    refuse_json(&plain, "", "not JSON");
    refuse_json(&plain, "{\"rows\": [[97, 98, 99]", "not JSON");
    refuse_json(&plain, "{\"rows\": [[97, 98, 99]]} x", "goes on behind its JSON, at byte 25");
    refuse_json(&plain, "[]", "\"rows\"");
    refuse_json(&plain, "{\"rows\": []}", "\"rows\"");
    refuse_json(&plain, "{\"rows\": {}}", "\"rows\"");
    refuse_json(&plain, "{\"rows\": [[97, 98]]}",
                "row 0: \"row\" has 2 numbers; expected an array of 3");
    refuse_json(&plain, "{\"rows\": [[97, 98, 99, 100, 101]]}", "has 5 numbers");
    refuse_json(&plain, "{\"rows\": [[1, 2, 3], [1, 256, 3]]}", "row 1: \"row\", value 1");
    refuse_json(&plain, "{\"rows\": [[1, -1, 3]]}", "row 0: \"row\", value 1");
    refuse_json(&plain, "{\"rows\": [[1, 1.5, 3]]}", "row 0: \"row\", value 1");
    refuse_json(&plain, "{\"rows\": [[1, \"2\", 3]]}", "row 0: \"row\", value 1");
    refuse_json(&plain, "{\"rows\": [[1, 1e999, 3]]}", "row 0: \"row\", value 1");
    refuse_json(&plain, "{\"rows\": [{\"a\": 1, \"b\": 2, \"c\": 3}]}", "expected an array of 3");
    refuse_json(&plain, "{\"rows\": [17]}", "expected an array of 3");
    refuse_json(&plain, "{\"rows\": [\"abc\"]}", "expected an array of 3");
    refuse_json(&labelled, "{\"examples\": [{\"row\": [1,2,3]}]}", "row 0: \"label\"");
    refuse_json(&labelled, "{\"examples\": [{\"label\": 1}]}", "expected an array of 3");
    refuse_json(&labelled, "{\"examples\": [7]}", "row 0: \"label\"");
    refuse_json(&labelled, "{\"examples\": [{\"label\": 10, \"row\": [1,2,3]}]}", "0 to 9");
    refuse_json(&labelled, "{\"examples\": [{\"label\": \"1\", \"row\": [1,2,3]}]}", "0 to 9");
}

/* Rows of two floats. */
#define FLOATS(target)                                                                             \
    .channels = 2, .height = 1, .width = 1, .floats = 1, .row_bytes = 8, .target_bytes = (target), \
    .example_bytes = 8 + (target)
static const asked row_and_target = {{FLOATS(4), .targets = 1}, 1},
                   row_and_label = {{FLOATS(1), .classes = 3}, 1},
                   row_alone = {{FLOATS(4), .targets = 1}, 0};

static void accept_floats(const asked *form, const char *json, const void *expected, uint32_t count)
{
    row_list p;
    ls_error err;
    const size_t bytes = count * item_bytes(form);
    if (read_body(&p, form, "application/json", json, strlen(json), &err) != LS_OK)
        fail_msg("%s: %s", json, err.text);
    assert_int_equal(p.count, count);
    assert_memory_equal(p.bytes, expected, bytes);
    body_free(&p);
    assert_int_equal(read_body(&p, form, "application/octet-stream", expected, bytes, &err), LS_OK);
    assert_int_equal(p.count, count);
    body_free(&p);
}

static void rows_and_targets_may_be_floats(void **state)
{
    (void)state;
    const float two[] = {-1.5F, 0.25F, 3, 4, 0, 1e-3F};
    accept_floats(&row_and_target,
                  "{\"examples\": [{\"target\": [-1.5], \"row\": [0.25, 3]},"
                  " {\"target\": [4], \"row\": [0, 1e-3]}]}",
                  two, 2);
    accept_floats(&row_alone, "{\"rows\": [[-1.5, 0.25], [3, 4]]}",
                  (const float[]){-1.5F, 0.25F, 3, 4}, 2);
    uint8_t labelled_row[9] = {2};
    memcpy(labelled_row + 1, two, 8);
    accept_floats(&row_and_label, "{\"examples\": [{\"label\": 2, \"row\": [-1.5, 0.25]}]}",
                  labelled_row, 1);
}

/* Training would end at it, and again whenever the service is started. */
static void what_is_no_finite_float_is_refused(void **state)
{
    (void)state;
    const char *type = "application/octet-stream";
    float two[] = {1, 2, 3, 4, 5, NAN};
    refuse(&row_and_target, type, (const char *)two, sizeof two, LS_EDATA, "row 1: value 1 is nan");
    two[5] = 0;
    two[3] = -INFINITY;
    refuse(&row_and_target, type, (const char *)two, sizeof two, LS_EDATA,
           "row 1: target 0 is -inf");
    refuse(&row_alone, type, (const char *)two, 16, LS_EDATA, "row 1: value 1 is -inf");
    refuse(&row_and_target, type, (const char *)two, 10, LS_EDATA,
           "10 bytes; expected a multiple of 12: targets and a row of floats");
    refuse_json(&row_alone, "{\"rows\": [[1, 1e39]]}",
                "row 0: \"row\", value 1: expected a number");
    refuse_json(&row_alone, "{\"rows\": [[1, null]]}",
                "row 0: \"row\", value 1: expected a number");
    refuse_json(&row_alone, "{\"rows\": [[1, 2, 3]]}", "has 3 numbers; expected an array of 2");
    refuse_json(&row_alone, "{\"images\": [[1, 2]]}", "\"rows\"");
    refuse_json(&row_and_target, "{\"examples\": [{\"target\": 4, \"row\": [1, 2]}]}",
                "\"target\" has 0 numbers; expected an array of 1");
    refuse_json(&row_and_target, "{\"examples\": [{\"target\": [4, 5], \"row\": [1, 2]}]}",
                "\"target\" has 2 numbers; expected an array of 1");
    refuse_json(&row_and_target, "{\"examples\": [{\"label\": 1, \"row\": [1, 2]}]}",
                "\"target\" has 0 numbers");
    asked bits = row_and_target;
    bits.form.zero_to_one = 1;
    refuse_json(&bits, "{\"examples\": [{\"target\": [1.5], \"row\": [1, 2]}]}",
                "row 0: target 0 is 1.5; expected 0 to 1");
    const float row[] = {1, 2, 3, -0.25F, 2, 3};
    refuse(&bits, type, (const char *)row, sizeof row, LS_EDATA, "row 1: target 0 is -0.25");
    accept_floats(&bits, "{\"examples\": [{\"target\": [1], \"row\": [2, 3]}]}", row, 1);
}

static void large_json_is_refused_before_it_is_read(void **state)
{
    (void)state;
    char *body = malloc(BODY_JSON_MOST + 1);
    memset(body, '[', BODY_JSON_MOST + 1);
    refuse(&plain, "application/json", body, BODY_JSON_MOST + 1, LS_EINVAL, "octet-stream");
    refuse(&plain, "application/json", body, BODY_JSON_MOST, LS_EDATA, "not JSON");
    free(body);
}

LS_TESTS(service_body, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_taken_as_they_are),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(json_has_arrays),
        cmocka_unit_test(rows_and_targets_may_be_floats),
        cmocka_unit_test(what_is_no_finite_float_is_refused),
        cmocka_unit_test(large_json_is_refused_before_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
