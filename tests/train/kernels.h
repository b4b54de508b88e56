/* SPDX-License-Identifier: MIT */
/* The description of the CPU back end's kernels (the code of its ops), which depend on the
 * instruction set. */
#ifndef TESTS_TRAIN_KERNELS_H
#define TESTS_TRAIN_KERNELS_H

#include "cpu/cpu_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Returns the description of the CPU back end's kernels. If LS_TEST_ISA is set, fails unless the
 * description names that instruction set. */
static inline ls_backend_info kernels_that_are_meant(void)
{
    const char *set = getenv("LS_TEST_ISA");
    ls_backend_info info;
    ls_cpu_backend()->probe(&info);
    if (set && !strstr(info.version, set))
        fail_msg("\"%s\": these kernels are not those of %s", info.version, set);
    return info;
}

#endif
