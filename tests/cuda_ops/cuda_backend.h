/* SPDX-License-Identifier: MIT */
/* The CUDA back end for tests. It is either the back end linked with *doubles*, which simulate CUDA
 * and NVIDIA's libraries on the CPU (tests/doubles, cuda_doubled.c), or the plugin itself on a
 * machine with a GPU (cuda_plugged.c). */
#ifndef TESTS_CUDA_OPS_CUDA_BACKEND_H
#define TESTS_CUDA_OPS_CUDA_BACKEND_H

#include "doubles/control.h"

#include <lockstep/sys/plugin.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Begins the doubles with three simulated GPUs. `mode` says how streams run; under the thread
 * sanitizer each stream runs as a thread, whatever `mode` is. If the doubles have begun already,
 * the function ends them first; they must then report no violation of CUDA's rules. With the plugin
 * itself the function does nothing. */
void test_cuda_begin(dbl_mode mode);

/* Returns the back end. If it uses doubles that have not begun yet, begins them in lazy mode. */
const ls_backend *test_cuda_backend(void);

/* Opens a device that computes in this precision, and binds it to the calling thread. Fails the
 * test if that fails. */
static inline ls_device *test_cuda_open(ls_precision precision)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .precision = precision};
    ls_error err = {0};
    if (test_cuda_backend()->open(&device, &request, &err) != LS_OK ||
        device->ops->bind(device, &err) != LS_OK)
        fail_msg("%s", err.text);
    return device;
}

/* Returns cuDNN's description of an H200 as JSON, for which the libraries can plan without a GPU.
 * The text is static. */
const char *test_h200_json(void);

#endif
