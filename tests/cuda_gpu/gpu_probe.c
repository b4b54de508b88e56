/* SPDX-License-Identifier: MIT */
/* gpu_probe: reports whether there is a GPU for the tests. Prints the GPU's name, or the reason why
 * there is none, and exits with the status of plugged_status. */
#include "cuda_gpu/cuda_plugged.h"

static int describe(int index)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .index = index};
    ls_device_info info;
    ls_error err = {0};
    if (test_cuda_backend()->open(&device, &request, &err) != LS_OK) {
        printf("broken: %s\n", err.text);
        return 1;
    }
    device->ops->describe(device, &info);
    printf("%s: %s, %s, %s, %zu MiB\n", info.name, info.model, info.isa, info.library,
           info.memory_bytes >> 20);
    device->ops->close(device);
    return 0;
}

int main(void)
{
    int status = plugged_status(stdout);
    return status ? status : describe(0);
}
