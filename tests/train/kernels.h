/* The kernels of the CPU back end. */
#ifndef TESTS_TRAIN_KERNELS_H
#define TESTS_TRAIN_KERNELS_H

#include "cpu/cpu_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Returns the kernels' description. It must name the instruction set that the test is for
 * (LS_TEST_ISA), if that is set. */
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
