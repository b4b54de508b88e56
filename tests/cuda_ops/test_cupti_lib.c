/* SPDX-License-Identifier: MIT */
/* Tests that the plugin can load the real CUPTI library. The test needs no GPU. */
#include "cuda/cuda_device.h"
#include "cuda/cupti_lib.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_library_that_is_not_there_is_named(void **state)
{
    ls_cupti cupti;
    ls_error err = {0};
    (void)state;
    assert_int_equal(ls_cupti_load_from(&cupti, "libcupti-of-nobody.so.7", &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "libcupti-of-nobody.so.7"));
    assert_null(strchr(err.text, '\n'));
}

static void another_library_is_refused(void **state)
{
    ls_cupti cupti;
    ls_error err = {0};
    (void)state;
    assert_int_equal(ls_cupti_load_from(&cupti, "libm.so.6", &err), LS_EUNSUPPORTED);
    assert_string_equal(err.text,
                        "libm.so.6 has no function cuptiActivityRegisterTimestampCallback");
}

static void the_installed_one_answers(void **state)
{
    ls_cupti cupti;
    ls_error err = {0};
    const char *text = NULL;
    (void)state;
    if (ls_cupti_load(&cupti, &err)) {
        print_message("             %s\n", err.text);
        skip();
    }
    assert_int_equal(cupti.cuptiGetResultString(CUPTI_ERROR_INVALID_PARAMETER, &text),
                     CUPTI_SUCCESS);
    assert_non_null(strstr(text, "INVALID_PARAMETER"));
    assert_int_not_equal(cupti.cuptiActivityRegisterCallbacks(NULL, NULL), CUPTI_SUCCESS);
}

LS_TESTS(cuda_cupti_lib, "unit doubles")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_not_there_is_named),
        cmocka_unit_test(another_library_is_refused),
        cmocka_unit_test(the_installed_one_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
