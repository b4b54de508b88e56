/* The key that CONTRIBUTING.md adds to the config is one like any other. */
#include "base/host.h"
#include "train/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int read_with(ls_config *out, const char *assignment, ls_error *err)
{
    static const char text[] = "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1}}";
    ls_trainer_options options = {
        .config_text = text, .set = &assignment, .set_count = !!assignment};
    return ls_config_read(out, &options, err);
}

static void it_is_read_written_and_checked(void **state)
{
    (void)state;
    ls_config config;
    ls_error err;
    char *text = NULL;
    assert_int_equal(read_with(&config, NULL, &err), LS_OK);
    assert_true(config.pause_s == 0);
    ls_config_fini(&config);
    assert_int_equal(read_with(&config, "pause_s=1.5", &err), LS_OK);
    assert_true(config.pause_s == 1.5);
    assert_int_equal(ls_config_text(&text, &config, NULL, &err), LS_OK);
    assert_non_null(strstr(text, "\"pause_s\": 1.5"));
    ls_free(NULL, text);
    ls_config_fini(&config);
    assert_int_equal(read_with(&config, "pause_s=61", &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "\"pause_s\" must be a number from 0 to 60, found 61"));
    ls_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_read_written_and_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
