/* SPDX-License-Identifier: MIT */
/* Tests which NCCL the plugin loads, with libraries that only have NCCL's name (tests/plugin/stubs)
 * and with the real one. The test needs no GPU. A process has only one library of a name, so each
 * case that loads one has a process of its own. */
#include "cuda/comm/nccl_lib.h"
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

/* Runs a case in a process of its own, in which asserts of cmocka do not work. */
static void in_a_process(int (*run)(void))
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
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_library_that_is_not_there_is_named(void **state)
{
    ls_nccl nccl = {0};
    ls_error err = {0};
    (void)state;
    assert_int_equal(ls_nccl_load_from(&nccl, "libnccl-of-nobody.so.7", &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "libnccl-of-nobody.so.7"));
    assert_int_equal(ls_nccl_load_from(&nccl, "libm.so.6", &err), LS_EUNSUPPORTED);
    assert_string_equal(err.text, "libm.so.6 has no function ncclGetVersion");
    assert_int_equal(nccl.version, 0);
}

static int load_older(void)
{
    ls_nccl nccl = {0};
    ls_error err = {0};
    const int status = ls_nccl_load_from(&nccl, STUB_NCCL_OLDER, &err);
    printf("             %s\n", err.text);
    return !(status == LS_EUNSUPPORTED && strstr(err.text, "NCCL 2.14.5 was loaded") &&
             strstr(err.text, STUB_NCCL_OLDER) && nccl.version == 0);
}

static void an_older_one_is_refused(void **state)
{
    (void)state;
    in_a_process(load_older);
}

static int load_after_another(void)
{
    ls_nccl nccl = {0};
    ls_error err = {0};
    void *library = dlopen(STUB_NCCL, RTLD_NOW | RTLD_LOCAL);
    const int status = ls_nccl_load(&nccl, &err);
    printf("             %d %s%s\n", nccl.version, nccl.path, err.text);
    return !(library && status == LS_OK && nccl.version == 29907 &&
             strcmp(nccl.path, STUB_NCCL) == 0);
}

static void the_one_that_the_process_has_is_taken(void **state)
{
    (void)state;
    in_a_process(load_after_another);
}

static int load_real(void)
{
    ls_nccl nccl = {0};
    ls_error err = {0};
    ncclUniqueId id;
    const int status = ls_nccl_load(&nccl, &err);
    printf("             %d %s%s\n", nccl.version, nccl.path, err.text);
    return !(status == LS_OK && nccl.version >= NCCL_VERSION_CODE &&
             nccl.ncclGetUniqueId(&id) == ncclSuccess);
}

static void the_installed_one_answers(void **state)
{
    (void)state;
    in_a_process(load_real);
}

LS_TESTS(cuda_nccl_lib, "unit doubles no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_not_there_is_named),
        cmocka_unit_test(an_older_one_is_refused),
        cmocka_unit_test(the_one_that_the_process_has_is_taken),
        cmocka_unit_test(the_installed_one_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
