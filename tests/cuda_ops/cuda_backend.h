/* The CUDA back end for tests: linked with doubles of everything below it (cuda_doubled.c), or the
 * plugin itself, on a machine with a GPU (cuda_plugged.c). */
#ifndef TESTS_CUDA_OPS_CUDA_BACKEND_H
#define TESTS_CUDA_OPS_CUDA_BACKEND_H

#include "doubles/control.h"

#include <lockstep/sys/plugin.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Begins the doubles with two GPUs whose streams run as `mode` says, but as threads under the
 * thread sanitizer. Doubles that have begun already must end without a complaint. With the plugin
 * itself it does nothing. */
void test_cuda_begin(dbl_mode mode);

/* Returns the back end. Over the doubles it begins them in lazy mode unless they have begun. */
const ls_backend *test_cuda_backend(void);

/* Opens a device that computes in this precision, bound to the calling thread; fails the test
 * otherwise. */
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

/* Returns cuDNN's description of an H200, for which the libraries can plan without a GPU.
 * Static. */
const char *test_h200_json(void);

#endif
