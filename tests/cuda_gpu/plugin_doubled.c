/* SPDX-License-Identifier: MIT */
/* liblockstep-cuda.so over the doubles, the simulated CUDA runtime and libraries. The GPU tests can
 * load it to run without a GPU. The doubles begin when the library is loaded, and end with the
 * program, which then reports the violations that they have detected. Environment variables:
 *
 *     LOCKSTEP_DOUBLE_GPUS     number of GPUs (1)
 *     LOCKSTEP_DOUBLE_ENGINE   engine that convolutions choose
 *     LOCKSTEP_DOUBLE_DRIVER   version of the driver
 *     LOCKSTEP_DOUBLE_ODD      number of a GPU of another model
 *     LOCKSTEP_DOUBLE_NCCL     the call of ncclSend that fails
 *     LOCKSTEP_DOUBLE_CUPTI    "odd names" for all kernels, or the function of CUPTI that fails
 *                              ("load": the library is missing) */
#include "doubles/control.h"
#include "doubles/cupti.h"

#include <stdlib.h>
#include <string.h>

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void set_cupti(void)
{
    const char *how = getenv("LOCKSTEP_DOUBLE_CUPTI");
    if (how && strcmp(how, "odd names") == 0)
        dbl_cupti_name("an \"odd\" name\n\\ \x01 \xff of a kernel");
    else if (how && how[0])
        dbl_cupti_fail(how, 1);
}

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static void begin(void)
{
    const char *gpus = getenv("LOCKSTEP_DOUBLE_GPUS");
    dbl_begin(&(dbl_options){.mode = DBL_THREADS,
                             .devices = gpus ? atoi(gpus) : 1,
                             .memory_bytes = (size_t)4 << 30,
                             .patience_ns = 300 * (uint64_t)1000000000});
    set_cupti();
    dbl_prefer_engine(number_of("LOCKSTEP_DOUBLE_ENGINE"));
    dbl_set_driver(number_of("LOCKSTEP_DOUBLE_DRIVER"));
    if (number_of("LOCKSTEP_DOUBLE_ODD") > 0)
        dbl_name_device(number_of("LOCKSTEP_DOUBLE_ODD"), "Another double");
    if (number_of("LOCKSTEP_DOUBLE_NCCL") > 0)
        dbl_fail("ncclSend", number_of("LOCKSTEP_DOUBLE_NCCL"), 0);
}

static void end(void)
{
    dbl_end_of_program();
}
