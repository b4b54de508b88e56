/* SPDX-License-Identifier: MIT */
/* Tests how back ends are loaded from shared libraries: the directories in which they are looked
 * for, and the difference between an absent and a broken library. */
#include "device/registry.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void expect(int want, const char *name, const char *path, const char *words)
{
    const ls_backend *backend = (const ls_backend *)1;
    ls_error err = {0};
    int status = ls_plugin_load(&backend, name, path, &err);
    if (status != want || (words && !strstr(err.text, words)))
        fail_msg("%s: %s, not %s: %s", path ? path : name, ls_status_name(status),
                 ls_status_name(want), err.text);
    assert_true((backend != NULL) == (want == LS_OK));
    assert_null(strchr(err.text, '\n'));
}

static void an_explicit_path_is_loaded(void **state)
{
    const ls_backend *backend = NULL, *again = NULL;
    ls_backend_info info;
    (void)state;
    assert_int_equal(ls_plugin_load(&backend, "fake", PLUGIN_GOOD, NULL), LS_OK);
    assert_string_equal(backend->name, "fake");
    backend->probe(&info);
    assert_int_equal(info.devices, 3);
    assert_int_equal(ls_plugin_load(&again, "fake", PLUGIN_GOOD, NULL), LS_OK);
    assert_ptr_equal(again, backend);
}

/* The build puts liblockstep-fake.so beside this program. */
static void the_programs_folder_is_searched(void **state)
{
    (void)state;
    expect(LS_OK, "fake", NULL, NULL);
}

/* A library in the working directory is somebody else's. */
static void the_working_directory_is_never_searched(void **state)
{
    char folder[] = "lockstep-test-XXXXXX", before[512], to[64];
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_non_null(mkdtemp(folder));
    snprintf(to, sizeof to, "%s/liblockstep-elsewhere.so", folder);
    assert_int_equal(symlink(PLUGIN_GOOD, to), 0);
    assert_int_equal(chdir(folder), 0);
    expect(LS_ENOENT, "elsewhere", NULL, "liblockstep-elsewhere.so is in neither");
    expect(LS_ENOENT, "elsewhere", "liblockstep-elsewhere.so", "slash");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void a_missing_library_is_absent(void **state)
{
    (void)state;
    expect(LS_ENOENT, "nothing", NULL, "liblockstep-nothing.so is in neither");
    expect(LS_ENOENT, "nothing", NULL, "/../lib"); /* of the installation with this program */
    expect(LS_ENOENT, "fake", "./there/is/no/such.so", "there is no plugin ./there/is/no/such.so");
}

static void a_library_that_does_not_load_is_broken(void **state)
{
    (void)state;
    expect(LS_EDEVICE, "fake", PLUGIN_UNDEFINED, "lockstep_symbol_that_is_nowhere");
    expect(LS_EDEVICE, "fake", NOT_A_LIBRARY, "does not load");
}

static void a_library_of_another_kind_is_broken(void **state)
{
    (void)state;
    expect(LS_EDEVICE, "fake", PLUGIN_NO_ENTRY,
           "has no function ls_plugin_backend: it is no plugin, or was built for another Lockstep");
    expect(LS_EDEVICE, "fake", PLUGIN_OTHER_ABI, "rebuild it");
    expect(LS_EDEVICE, "fake", PLUGIN_OTHER_NAME, "holds the back end 'other', not 'fake'");
}

/* Its library is not beside this program. */
static void a_registry_says_why_cuda_is_absent(void **state)
{
    ls_backend_info info;
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request};
    ls_error err = {0};
    (void)state;
    ls_plugin_cuda()->probe(&info);
    assert_int_equal(info.devices, 0);
    assert_false(info.broken);
    assert_non_null(strstr(info.reason, "liblockstep-cuda.so"));
    assert_int_equal(ls_plugin_cuda()->open(&device, &request, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "(absent)"));
}

LS_TESTS(plugin, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_explicit_path_is_loaded),
        cmocka_unit_test(the_programs_folder_is_searched),
        cmocka_unit_test(the_working_directory_is_never_searched),
        cmocka_unit_test(a_missing_library_is_absent),
        cmocka_unit_test(a_library_that_does_not_load_is_broken),
        cmocka_unit_test(a_library_of_another_kind_is_broken),
        cmocka_unit_test(a_registry_says_why_cuda_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
