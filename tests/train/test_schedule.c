#include "train/config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static void a_wrong_word_is_refused(void **state)
{
    ls_schedule s;
    ls_error err;
    (void)state;
    assert_int_equal(read(&s, "\"cosin\"", &err), LS_ECONFIG);
    assert_string_equal(err.text, "config:1:1: schedule: expected constant, step or cosine, found "
                                  "\"cosin\"");
    assert_int_equal(read(&s, "{\"name\": \"constant\", \"gamma\": 1}", &err), LS_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(step_falls_at_its_epochs),
        cmocka_unit_test(cosine_runs_from_the_full_rate_to_the_minimum),
        cmocka_unit_test(warm_up_grows_linearly_to_the_full_rate),
        cmocka_unit_test(a_wrong_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
