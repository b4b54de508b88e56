/* SPDX-License-Identifier: MIT */
/* Provides the GPU as the only device to the programs of tests/parity. */
#include "cuda_gpu/cuda_plugged.h"
#include "parity/parity_devices.h"

static int open_cuda(ls_device **out, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    return test_cuda_backend()->open(out, &request, err);
}

const parity_device parity_devices[] = {{"cuda", open_cuda}};
const int parity_device_count = 1;
