/* The bodies of requests, well-formed and not. */
#include "base64.h"
#include "payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const payload_form labelled = {1, 3, 10}, plain = {0, 3, 10};

static int read_body(payload *p, const payload_form *form, const char *type, const char *body,
                     size_t length, ls_error *err)
{
    char *exact = malloc(length ? length : 1); /* so that a byte too far is seen */
    memcpy(exact, body, length);
    int status = payload_read(p, form, type, exact, length, err);
    if (status == LS_OK && !p->owned) { /* what lies in the body goes with it */
        const size_t bytes = (size_t)p->count * (form->image_bytes + (form->labelled ? 1u : 0u));
        p->owned = malloc(bytes);
        memcpy(p->owned, p->bytes, bytes);
        p->bytes = p->owned;
    }
    free(exact);
    return status;
}

static void accept(const payload_form *form, const char *type, const char *body, size_t length,
                   const char *expected, uint32_t count)
{
    payload p;
    ls_error err;
    if (read_body(&p, form, type, body, length, &err) != LS_OK)
        fail_msg("%.*s: %s", (int)length, body, err.text);
    assert_int_equal(p.count, count);
    assert_memory_equal(p.bytes, expected, count * (form->labelled ? 4u : 3u));
    payload_free(&p);
}

static void refuse(const payload_form *form, const char *type, const char *body, size_t length,
                   int status, const char *message)
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

static void accept_json(const payload_form *form, const char *body, const char *expected,
                        uint32_t count)
{
    accept(form, "application/json; charset=utf-8", body, strlen(body), expected, count);
}

static void refuse_json(const payload_form *form, const char *body, const char *message)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_taken_as_they_are),
        cmocka_unit_test(other_types_are_refused),
        cmocka_unit_test(json_has_arrays_and_base64),
        cmocka_unit_test(large_json_is_refused_before_it_is_read),
        cmocka_unit_test(base64_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
