/* SPDX-License-Identifier: MIT */
/* Tests that the plugin for GPUs leaves a process in which other programs can use NVIDIA's
 * libraries. The stub of PyTorch (stubs/torch.c) needs a function of NCCL that the NCCL of the
 * build lacks. An empty library stands for NVIDIA's driver, so that the plugin loads its other
 * libraries, which are the real ones. Each order is tried in a process of its own, because a
 * process has only one library of a name. */
#include "base/error.h"
#include "device/registry.h"
#include "runner.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef CUDA_PLUGIN
static const char *const plugin = CUDA_PLUGIN, *const driver = STUB_DRIVER,
                         *const torch = STUB_TORCH;
#else
static const char *const plugin = NULL, *const driver = NULL, *const torch = NULL;
#endif

enum { GOOD = 0, BAD = 1 };

static int load(const char *path)
{
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        return GOOD;
    printf("%s\n", dlerror());
    return BAD;
}

/* Loads the plugin and lets it look for GPUs, as `"devices": "auto"` does. */
static int look_for_gpus(void)
{
    const ls_backend *backend = NULL;
    ls_backend_info info;
    ls_error err = {0};
    if (ls_plugin_load(&backend, "cuda", plugin, &err) != LS_OK) {
        printf("%s\n", err.text);
        return BAD;
    }
    backend->probe(&info);
    return GOOD;
}

static int plugin_first(void)
{
    return load(driver) || look_for_gpus() || load(torch);
}

static int torch_first(void)
{
    return load(driver) || load(torch) || look_for_gpus();
}

static void expect_good(int (*run)(void))
{
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int result = run();
        fflush(NULL);
        _exit(result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), GOOD);
}

static void torch_loads_after_the_plugin(void **state)
{
    (void)state;
    expect_good(plugin_first);
}

static void the_plugin_loads_after_torch(void **state)
{
    (void)state;
    expect_good(torch_first);
}

LS_TESTS(plugin_host_process, "integration no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_loads_after_the_plugin),
        cmocka_unit_test(the_plugin_loads_after_torch),
    };
    if (!plugin) {
        printf("skipped: the CUDA back end was not built\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
