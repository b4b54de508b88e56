/* SPDX-License-Identifier: MIT */
/* Tests schedules: reading them from a config, and the learning rate of each step. */
#include "config/config.h"
#include "runner.h"
#include "json/writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int read(ls_schedule *out, const char *text, ls_error *err)
{
    ls_json *doc;
    if (ls_json_parse(&doc, "config", text, strlen(text), NULL, err))
        return err->status;
    int status = ls_schedule_parse(out, doc, ls_json_root(doc), err);
    ls_json_destroy(doc);
    return status;
}

static ls_schedule schedule(const char *text)
{
    ls_schedule s;
    ls_error err;
    if (read(&s, text, &err))
        fail_msg("%s", err.text);
    return s;
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void constant_stays(void **state)
{
    (void)state;
    ls_schedule s = schedule("\"constant\"");
    NEAR(ls_schedule_rate(&s, 0.2, 0, 100, 10), 0.2);
    NEAR(ls_schedule_rate(&s, 0.2, 999, 100, 10), 0.2);
}

static void step_falls_at_its_epochs(void **state)
{
    (void)state;
    ls_schedule s = schedule("{\"name\": \"step\", \"every_epochs\": 2, \"gamma\": 0.5}");
    NEAR(ls_schedule_rate(&s, 1, 199, 100, 10), 1);
    NEAR(ls_schedule_rate(&s, 1, 200, 100, 10), 0.5);
    NEAR(ls_schedule_rate(&s, 1, 999, 100, 10), 0.0625);
}

static void cosine_runs_from_the_full_rate_to_the_minimum(void **state)
{
    (void)state;
    ls_schedule s = schedule("{\"name\": \"cosine\", \"minimum\": 0.1}");
    NEAR(ls_schedule_rate(&s, 2, 0, 100, 10), 2);
    NEAR(ls_schedule_rate(&s, 2, 500, 100, 10), 2 * 0.55);
    NEAR(ls_schedule_rate(&s, 2, 1000, 100, 10), 0.2);
}

static void warm_up_grows_linearly_to_the_full_rate(void **state)
{
    (void)state;
    ls_schedule s = schedule("{\"name\": \"cosine\", \"warmup_epochs\": 2}");
    NEAR(ls_schedule_rate(&s, 1, 0, 100, 10), 1.0 / 200);
    NEAR(ls_schedule_rate(&s, 1, 99, 100, 10), 0.5);
    NEAR(ls_schedule_rate(&s, 1, 199, 100, 10), 1);
    NEAR(ls_schedule_rate(&s, 1, 200, 100, 10), 1);
    NEAR(ls_schedule_rate(&s, 1, 600, 100, 10), 0.5);
}

/* The numbers are PyTorch's: OneCycleLR(max_lr=2, total_steps=200). */
static void one_cycle_is_pytorchs(void **state)
{
    static const struct {
        uint64_t step;
        double rate;
    } is[] = {{0, 0.08},   {1, 0.08136061215030876}, {30, 1.0655557005802638},
              {59, 2},     {60, 1.9997482359495669}, {130, 0.9775660254564523},
              {199, 8e-06}};
    (void)state;
    ls_schedule s = schedule("\"one_cycle\"");
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        NEAR(ls_schedule_rate(&s, 2, is[i].step, 20, 10), is[i].rate);
    NEAR(ls_schedule_rate(&s, 2, 300, 20, 10), 8e-06); /* after its end */
}

/* CyclicLR(base_lr=0.2, max_lr=2, step_size_up=10). */
static void triangles_are_pytorchs(void **state)
{
    (void)state;
    ls_schedule s = schedule("{\"name\": \"triangular\", \"every_epochs\": 2, \"minimum\": 0.1}");
    NEAR(ls_schedule_rate(&s, 2, 0, 10, 6), 0.2);
    NEAR(ls_schedule_rate(&s, 2, 3, 10, 6), 0.74);
    NEAR(ls_schedule_rate(&s, 2, 10, 10, 6), 2);
    NEAR(ls_schedule_rate(&s, 2, 17, 10, 6), 0.74);
    NEAR(ls_schedule_rate(&s, 2, 20, 10, 6), 0.2);
    NEAR(ls_schedule_rate(&s, 2, 35, 10, 6), 1.1);
}

static void an_exponential_multiplies_by_the_same_factor_each_step(void **state)
{
    (void)state;
    ls_schedule s = schedule("{\"name\": \"exponential\", \"minimum\": 1e-6, \"steps\": 31}");
    for (uint64_t step = 0; step <= 30; step++)
        NEAR(ls_schedule_rate(&s, 2, step, 7, 10) / (2e-6 * pow(10, (double)step / 5)), 1);
    NEAR(ls_schedule_rate(&s, 2, 31, 7, 10), 2);
}

static void what_is_written_is_read_again(void **state)
{
    static const char *const names[] = {"constant",  "step",       "cosine",
                                        "one_cycle", "triangular", "exponential"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[64];
        ls_json_writer w;
        snprintf(text, sizeof text, "\"%s\"", names[i]);
        ls_schedule s = schedule(text);
        ls_json_writer_init(&w, 0, NULL);
        ls_schedule_write(&w, NULL, &s);
        const ls_schedule again = schedule(ls_json_writer_text(&w, NULL, NULL));
        assert_memory_equal(&again, &s, sizeof s);
        ls_json_writer_fini(&w);
    }
}

static void a_wrong_word_is_refused(void **state)
{
    ls_schedule s;
    ls_error err;
    (void)state;
    assert_int_equal(read(&s, "\"cosin\"", &err), LS_ECONFIG);
    assert_string_equal(err.text,
                        "config:1:1: schedule: unknown name \"cosin\"; did you mean \"cosine\"?");
    assert_int_equal(read(&s, "\"linear\"", &err), LS_ECONFIG);
    assert_string_equal(err.text,
                        "config:1:1: schedule: unknown name \"linear\"; expected one of: constant, "
                        "step, cosine, one_cycle, triangular, exponential");
    assert_int_equal(read(&s, "{\"name\": \"one_cycle\", \"warmup_epochs\": 1}", &err), LS_ECONFIG);
    assert_int_equal(read(&s, "{\"name\": \"constant\", \"gamma\": 1}", &err), LS_ECONFIG);
    assert_int_equal(read(&s, "{\"name\": \"exponential\", \"minimum\": 0}", &err), LS_ECONFIG);
    assert_int_equal(read(&s, "{\"name\": \"exponential\", \"steps\": 1}", &err), LS_ECONFIG);
}

LS_TESTS(train_schedule, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(step_falls_at_its_epochs),
        cmocka_unit_test(cosine_runs_from_the_full_rate_to_the_minimum),
        cmocka_unit_test(warm_up_grows_linearly_to_the_full_rate),
        cmocka_unit_test(one_cycle_is_pytorchs),
        cmocka_unit_test(triangles_are_pytorchs),
        cmocka_unit_test(an_exponential_multiplies_by_the_same_factor_each_step),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(a_wrong_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
