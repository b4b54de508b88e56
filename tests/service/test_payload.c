/* The bodies of requests, well-formed and not. */
#include "base64.h"
#include "payload.h"
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
    example_form form;
    int examples;
} asked;

static const asked labelled = {{.row_bytes = 3, .classes = 10}, 1},
                   plain = {{.row_bytes = 3, .classes = 10}, 0};

static int read_body(payload *p, const asked *form, const char *type, const char *body,
                     size_t length, ls_error *err)
{
    char *exact = malloc(length ? length : 1); /* so that a byte too far is seen */
    memcpy(exact, body, length);
    int status = payload_read(p, &form->form, form->examples, type, exact, length, err);
    if (status == LS_OK && !p->owned) { /* what lies in the body goes with it */
        const size_t bytes =
            (size_t)p->count * (form->examples ? example_bytes(&form->form) : form->form.row_bytes);
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
    payload p;
    ls_error err;
    if (read_body(&p, form, type, body, length, &err) != LS_OK)
        fail_msg("%.*s: %s", (int)length, body, err.text);
    assert_int_equal(p.count, count);
    assert_memory_equal(p.bytes, expected,
                        count *
                            (form->examples ? example_bytes(&form->form) : form->form.row_bytes));
    payload_free(&p);
}

static void refuse(const asked *form, const char *type, const char *body, size_t length, int status,
                   const char *message)
{
    payload p;
    ls_error err;
    assert_int_equal(read_body(&p, form, type, body, length, &err), status);
    if (!strstr(err.text, message))
        fail_msg("\"%s\" is not in: %s", message, err.text);
    const int kept = p.owned != NULL;
    payload_free(&p);
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
    refuse(&labelled, type, "\1abc\012def", 8, LS_EDATA,
           "example 1 (byte 4 of the body): label 10");
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

static void json_has_arrays_and_base64(void **state)
{
    (void)state;
    accept_json(&plain, "{\"images\": [[97, 98, 99], \"ZGVm\"]}", "abcdef", 2);
    accept_json(&labelled,
                "{\"examples\": [{\"label\": 1, \"image\": [97,98,99]},"
                " {\"image\": \"ZGVm\", \"label\": 9}]}",
                "\1abc\11def", 2);
    refuse_json(&plain, "", "not JSON");
    refuse_json(&plain, "{\"images\": [[97, 98, 99]", "not JSON");
    refuse_json(&plain, "[]", "\"images\"");
    refuse_json(&plain, "{\"images\": []}", "\"images\"");
    refuse_json(&plain, "{\"images\": {}}", "\"images\"");
    refuse_json(&plain, "{\"images\": [[97, 98]]}", "image 0: 2 numbers; expected 3");
    refuse_json(&plain, "{\"images\": [[97, 98, 99, 100, 101]]}", "image 0: 5 numbers");
    refuse_json(&plain, "{\"images\": [\"ZGVm\", [1, 256, 3]]}", "image 1, value 1");
    refuse_json(&plain, "{\"images\": [[1, -1, 3]]}", "image 0, value 1");
    refuse_json(&plain, "{\"images\": [[1, 1.5, 3]]}", "image 0, value 1");
    refuse_json(&plain, "{\"images\": [[1, \"2\", 3]]}", "image 0, value 1");
    refuse_json(&plain, "{\"images\": [[1, 1e999, 3]]}", "image 0, value 1");
    refuse_json(&plain, "{\"images\": [\"ZGVmZw==\"]}", "base64 of 3 bytes");
    refuse_json(&plain, "{\"images\": [17]}", "image 0: expected an array");
    refuse_json(&labelled, "{\"examples\": [{\"image\": [1,2,3]}]}", "example 0: expected");
    refuse_json(&labelled, "{\"examples\": [7]}", "example 0: expected");
    refuse_json(&labelled, "{\"examples\": [{\"label\": 10, \"image\": [1,2,3]}]}", "0 to 9");
    refuse_json(&labelled, "{\"examples\": [{\"label\": \"1\", \"image\": [1,2,3]}]}", "0 to 9");
}

static const asked row_and_target = {{.row_bytes = 8, .floats = 1, .targets = 1}, 1},
                   row_and_label = {{.row_bytes = 8, .floats = 1, .classes = 3}, 1},
                   row_alone = {{.row_bytes = 8, .floats = 1, .targets = 1}, 0};

static void accept_floats(const asked *form, const char *json, const void *expected, uint32_t count)
{
    payload p;
    ls_error err;
    const size_t bytes =
        count * (form->examples ? example_bytes(&form->form) : form->form.row_bytes);
    if (read_body(&p, form, "application/json", json, strlen(json), &err) != LS_OK)
        fail_msg("%s: %s", json, err.text);
    assert_int_equal(p.count, count);
    assert_memory_equal(p.bytes, expected, bytes);
    payload_free(&p);
    assert_int_equal(read_body(&p, form, "application/octet-stream", expected, bytes, &err), LS_OK);
    assert_int_equal(p.count, count);
    payload_free(&p);
}

static void rows_and_targets_may_be_floats(void **state)
{
    (void)state;
    const float two[] = {-1.5F, 0.25F, 3, 4, 0, 1e-3F};
    accept_floats(&row_and_target,
                  "{\"examples\": [{\"target\": [-1.5], \"row\": [0.25, 3]},"
                  " {\"target\": [4], \"row\": [0, 1e-3]}]}",
                  two, 2);
    accept_floats(&row_alone, "{\"rows\": [[-1.5, 0.25], \"AABAQAAAgEA=\"]}",
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
    refuse(&row_and_target, type, (const char *)two, sizeof two, LS_EDATA,
           "example 1: value 1 is nan");
    two[5] = 0;
    two[3] = -INFINITY;
    refuse(&row_and_target, type, (const char *)two, sizeof two, LS_EDATA,
           "example 1: target 0 is -inf");
    refuse(&row_alone, type, (const char *)two, 16, LS_EDATA, "row 1: value 1 is -inf");
    refuse(&row_and_target, type, (const char *)two, 10, LS_EDATA,
           "10 bytes; expected a multiple of 12: targets and a row of floats");
    refuse_json(&row_alone, "{\"rows\": [\"AACAfwAAgEA=\"]}", "row 0: value 0 is inf");
    refuse_json(&row_alone, "{\"rows\": [[1, 1e39]]}", "row 0, value 1: expected a number");
    refuse_json(&row_alone, "{\"rows\": [[1, null]]}", "row 0, value 1: expected a number");
    refuse_json(&row_alone, "{\"rows\": [[1, 2, 3]]}", "row 0: 3 numbers; expected 2");
    refuse_json(&row_alone, "{\"images\": [[1, 2]]}", "\"rows\"");
    refuse_json(&row_and_target, "{\"examples\": [{\"target\": 4, \"row\": [1, 2]}]}",
                "target 0: expected an array of 1 numbers");
    refuse_json(&row_and_target, "{\"examples\": [{\"target\": [4, 5], \"row\": [1, 2]}]}",
                "target 0: 2 numbers; expected 1");
    refuse_json(&row_and_target, "{\"examples\": [{\"label\": 1, \"row\": [1, 2]}]}",
                "expected {\"target\": …, \"row\": …}");
    asked bits = row_and_target;
    bits.form.bits = 1;
    refuse_json(&bits, "{\"examples\": [{\"target\": [1.5], \"row\": [1, 2]}]}",
                "example 0: target 0 is 1.5; expected 0 to 1");
    const float row[] = {1, 2, 3, -0.25F, 2, 3};
    refuse(&bits, type, (const char *)row, sizeof row, LS_EDATA, "example 1: target 0 is -0.25");
    accept_floats(&bits, "{\"examples\": [{\"target\": [1], \"row\": [2, 3]}]}", row, 1);
}

static void large_json_is_refused_before_it_is_read(void **state)
{
    (void)state;
    char *body = malloc(PAYLOAD_JSON_MOST + 1);
    memset(body, '[', PAYLOAD_JSON_MOST + 1);
    refuse(&plain, "application/json", body, PAYLOAD_JSON_MOST + 1, LS_EINVAL, "octet-stream");
    refuse(&plain, "application/json", body, PAYLOAD_JSON_MOST, LS_EDATA, "not JSON");
    free(body);
}

static void base64_is_exact(void **state)
{
    (void)state;
    uint8_t out[8];
    assert_true(base64_decode(out, 1, "YQ==") && out[0] == 'a');
    assert_true(base64_decode(out, 1, "YQ"));
    assert_true(base64_decode(out, 2, "YWI=") && memcmp(out, "ab", 2) == 0);
    assert_true(base64_decode(out, 3, "+/+/") && memcmp(out, "\xfb\xff\xbf", 3) == 0);
    assert_true(base64_decode(out, 0, ""));
    static const char *const wrong[] = {
        "YWI", "YWJj", "YR==", "YQ=x", "Y", "YQ===", "YQ== ", "Y Q=", "", "=", "Y===", "YQ==YQ=="};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (base64_decode(out, 1, wrong[i]))
            fail_msg("\"%s\" was taken for one byte", wrong[i]);
}

LS_TESTS(service_payload, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_taken_as_they_are),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(json_has_arrays_and_base64),
        cmocka_unit_test(rows_and_targets_may_be_floats),
        cmocka_unit_test(what_is_no_finite_float_is_refused),
        cmocka_unit_test(large_json_is_refused_before_it_is_read),
        cmocka_unit_test(base64_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
