/* SPDX-License-Identifier: MIT */
/* Tests the CUDA plugin on a machine without NVIDIA's driver. It must not load any of NVIDIA's
 * libraries, which would take 190 MB and up to half a second. */
#include "base/error.h"
#include "device/registry.h"
#include "runner.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_KB = 8 << 10 /* the plugin has 2 MB of kernels */ };

#ifdef CUDA_PLUGIN
static const char *const plugin = CUDA_PLUGIN;
#else
static const char *const plugin = NULL; /* it was not built */
#endif

/* The most memory that the process has had, in kB. */
static long peak_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    if (file)
        fclose(file);
    return kb;
}

static void expect_nothing_mapped(void)
{
    static const char *const names[] = {"libcudart", "libcublas", "libcudnn",        "libnccl",
                                        "libnvrtc",  "libcupti",  "liblockstep-cuda"};
    char line[1024];
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strstr(line, names[i]))
                fail_msg("mapped: %s", line);
    fclose(file);
}

static void no_library_of_nvidia_is_loaded_without_a_driver(void **state)
{
    const ls_backend *backend = NULL;
    ls_error err = {0};
    const long before = peak_kb();
    (void)state;
    assert_int_equal(ls_plugin_load(&backend, "cuda", plugin, &err), LS_ENOENT);
    assert_non_null(strstr(err.text, "there is no NVIDIA driver (libcuda.so.1)"));
    expect_nothing_mapped();
    const long after = peak_kb();
    if (before <= 0 || after - before > MOST_KB)
        fail_msg("the peak of memory grew from %ld to %ld kB", before, after);
}

LS_TESTS(plugin_without_a_driver, "unit no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_library_of_nvidia_is_loaded_without_a_driver),
    };
    if (!plugin) {
        printf("skipped: the CUDA back end was not built\n");
        return 77;
    }
    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
        printf("skipped: this machine has NVIDIA's driver\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
