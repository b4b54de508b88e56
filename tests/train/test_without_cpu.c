/* SPDX-License-Identifier: MIT */
/* Tests the registry of back ends (their list) in a build without the CPU back end. The entry of
 * the CPU back end must report that this build has none. This test compiles src/train/builtin.c in
 * the same way as such a build. */
#include "device/registry.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_build_without_cpu_says_so(void **state)
{
    ls_registry *registry;
    ls_device *device;
    ls_backend_info info;
    ls_error err = {0};
    const ls_device_request request = {.size = sizeof request};
    (void)state;
    assert_int_equal(ls_registry_create(&registry, NULL, &err), LS_OK);
    const ls_backend *cpu = ls_registry_find(registry, "cpu", strlen("cpu"));
    assert_non_null(cpu);
    cpu->probe(&info);
    assert_int_equal(info.devices, 0);
    assert_int_equal(info.broken, 0);
    assert_string_equal(info.reason,
                        "this build has no CPU back end: it was made with LOCKSTEP_CPU=OFF");
    assert_int_equal(cpu->open(&device, &request, &err), LS_EDEVICE);
    assert_string_equal(err.text, info.reason);
    ls_registry_destroy(registry);
}

LS_TESTS(train_without_cpu, "unit")
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_build_without_cpu_says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
