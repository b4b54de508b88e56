/* SPDX-License-Identifier: MIT */
/* Tests the JSON writer: punctuation, numbers, strings, and its buffer. */
#include "runner.h"
#include "json/json.h"
#include "json/writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void write_sample(ls_json_writer *w)
{
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "type", "step");
    ls_json_put_double(w, "loss", 0.5);
    ls_json_open_array(w, "workers");
    ls_json_open_object(w, NULL);
    ls_json_put_uint(w, "worker", 0);
    ls_json_close(w);
    ls_json_put_int(w, NULL, -3);
    ls_json_close(w);
    ls_json_open_array(w, "none");
    ls_json_close(w);
    ls_json_open_object(w, "empty");
    ls_json_close(w);
    ls_json_put_bool(w, "done", 1);
    ls_json_put_null(w, "next");
    ls_json_close(w);
}

static void a_record_is_written_on_one_line(void **state)
{
    (void)state;
    ls_json_writer w;
    size_t length;
    ls_json_writer_init(&w, 0, NULL);
    write_sample(&w);
    const char *text = ls_json_writer_text(&w, &length, NULL);
    assert_string_equal(text, "{\"type\":\"step\",\"loss\":0.5,\"workers\":[{\"worker\":0},-3],"
                              "\"none\":[],\"empty\":{},\"done\":true,\"next\":null}");
    assert_int_equal(length, strlen(text));
    ls_json_writer_fini(&w);
}

static void a_configuration_is_written_indented(void **state)
{
    (void)state;
    ls_json_writer w;
    ls_json_writer_init(&w, 2, NULL);
    write_sample(&w);
    assert_string_equal(ls_json_writer_text(&w, NULL, NULL), "{\n"
                                                             "  \"type\": \"step\",\n"
                                                             "  \"loss\": 0.5,\n"
                                                             "  \"workers\": [\n"
                                                             "    {\n"
                                                             "      \"worker\": 0\n"
                                                             "    },\n"
                                                             "    -3\n"
                                                             "  ],\n"
                                                             "  \"none\": [],\n"
                                                             "  \"empty\": {},\n"
                                                             "  \"done\": true,\n"
                                                             "  \"next\": null\n"
                                                             "}");
    ls_json_writer_fini(&w);
}

static void numbers_have_the_fewest_digits_that_read_back(void **state)
{
    (void)state;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_json_open_array(&w, NULL);
    ls_json_put_double(&w, NULL, 0.1);
    ls_json_put_double(&w, NULL, 1.0 / 3.0);
    ls_json_put_double(&w, NULL, 256);
    ls_json_put_double(&w, NULL, -0.0);
    ls_json_put_double(&w, NULL, 1e300);
    ls_json_put_double(&w, NULL, 5e-324);
    ls_json_put_double(&w, NULL, 0.1 + 0.2);
    ls_json_put_float(&w, NULL, 0.1f);
    ls_json_put_float(&w, NULL, 1.0f / 3.0f);
    ls_json_put_float(&w, NULL, 16777216.0f);
    ls_json_put_double(&w, NULL, (double)NAN);
    ls_json_put_double(&w, NULL, (double)INFINITY);
    ls_json_put_float(&w, NULL, -INFINITY);
    ls_json_put_int(&w, NULL, INT64_MIN);
    ls_json_put_uint(&w, NULL, UINT64_MAX);
    ls_json_close(&w);
    assert_string_equal(ls_json_writer_text(&w, NULL, NULL),
                        "[0.1,0.3333333333333333,256,-0,1e+300,4.94065645841247e-324,"
                        "0.30000000000000004,0.1,0.33333334,16777216,null,null,null,"
                        "-9223372036854775808,18446744073709551615]");
    ls_json_writer_fini(&w);
}

static void random_numbers_read_back_bit_for_bit(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    for (int i = 0; i < 20000; i++) {
        double d;
        float f;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t half = (uint32_t)x;
        memcpy(&d, &x, sizeof d);
        memcpy(&f, &half, sizeof f);
        if (!isfinite(d) || !isfinite(f))
            continue;
        ls_json_writer_reset(&w);
        ls_json_put_double(&w, NULL, d);
        double d_back = strtod(ls_json_writer_text(&w, NULL, NULL), NULL);
        ls_json_writer_reset(&w);
        ls_json_put_float(&w, NULL, f);
        float f_back = strtof(ls_json_writer_text(&w, NULL, NULL), NULL);
        assert_memory_equal(&d, &d_back, sizeof d);
        assert_memory_equal(&f, &f_back, sizeof f);
    }
    ls_json_writer_fini(&w);
}

static void strings_are_escaped_and_made_valid(void **state)
{
    (void)state;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "a\"b", "q\" b\\ \b\f\n\r\t \x01\x1f\x7f /");
    ls_json_put_string(&w, "utf8", "\xC3\xA9\xF0\x9F\x98\x80");
    ls_json_put_string(&w, "bad", "x\xFFy\xE2\x82");
    ls_json_put_string(&w, "none", NULL);
    ls_json_close(&w);
    size_t length;
    const char *text = ls_json_writer_text(&w, &length, NULL);
    assert_string_equal(text, "{\"a\\\"b\":\"q\\\" b\\\\ \\b\\f\\n\\r\\t \\u0001\\u001f\\u007f /\","
                              "\"utf8\":\"\xC3\xA9\xF0\x9F\x98\x80\","
                              "\"bad\":\"x\xEF\xBF\xBDy\xEF\xBF\xBD\xEF\xBF\xBD\",\"none\":null}");
    ls_json *doc;
    assert_int_equal(ls_json_parse(&doc, "w", text, length, NULL, NULL), LS_OK);
    const cJSON *first = ls_json_root(doc)->child;
    assert_string_equal(first->string, "a\"b");
    assert_string_equal(first->valuestring, "q\" b\\ \b\f\n\r\t \x01\x1f\x7f /");
    ls_json_destroy(doc);
    ls_json_writer_fini(&w);
}

typedef struct counter {
    int allocations;
    int grants;
} counter;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    counter *c = user;
    if (c->grants-- <= 0)
        return NULL;
    c->allocations++;
    return aligned_alloc(align, bytes);
}

static void counting_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void a_steady_state_does_not_allocate(void **state)
{
    (void)state;
    counter c = {.grants = 1000};
    const ls_host host = {sizeof host, counting_alloc, counting_free, NULL, &c};
    ls_json_writer w;
    ls_json_writer_init(&w, 0, &host);
    assert_int_equal(c.allocations, 0);
    for (int i = 0; i < 100; i++) {
        ls_json_writer_reset(&w);
        ls_json_open_array(&w, NULL);
        for (int k = 0; k < 100; k++)
            write_sample(&w);
        ls_json_close(&w);
        assert_non_null(ls_json_writer_text(&w, NULL, NULL));
        if (i == 0)
            c.grants = 0;
    }
    assert_true(c.allocations > 1);
    ls_json_writer_fini(&w);
}

static void lack_of_memory_is_reported_at_the_end(void **state)
{
    (void)state;
    counter c = {.grants = 1};
    const ls_host host = {sizeof host, counting_alloc, counting_free, NULL, &c};
    ls_json_writer w;
    ls_error err = {0};
    ls_json_writer_init(&w, 0, &host);
    ls_json_open_array(&w, NULL);
    for (int k = 0; k < 100; k++)
        write_sample(&w);
    ls_json_close(&w);
    assert_null(ls_json_writer_text(&w, NULL, &err));
    assert_int_equal(err.status, LS_ENOMEM);
    ls_json_writer_reset(&w);
    ls_json_put_bool(&w, NULL, 0);
    assert_string_equal(ls_json_writer_text(&w, NULL, &err), "false");
    ls_json_writer_fini(&w);
}

LS_TESTS(json_writer, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_written_on_one_line),
        cmocka_unit_test(a_configuration_is_written_indented),
        cmocka_unit_test(numbers_have_the_fewest_digits_that_read_back),
        cmocka_unit_test(random_numbers_read_back_bit_for_bit),
        cmocka_unit_test(strings_are_escaped_and_made_valid),
        cmocka_unit_test(a_steady_state_does_not_allocate),
        cmocka_unit_test(lack_of_memory_is_reported_at_the_end),
    };
    return cmocka_run_group_tests_name("json_writer", tests, NULL, NULL);
}
