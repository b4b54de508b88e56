/* Pinned memory for the device's user: what a GPU writes to it is there when the GPU has written it,
 * so a download into it can be recorded. */
#include "cuda/cuda_device.h"

#include <stdint.h>
#include <string.h>

int ls_cuda_pinned_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    void *memory = NULL;
    *out = NULL;
    ls_cuda_pinned *p = ls_alloc(d->host, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for pinned memory", d->name);
    int status = cuda_check(err, cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                            "%s: %zu bytes of pinned memory", d->name, bytes);
    if (status) {
        ls_free(d->host, p);
        return status;
    }
    memset(memory, 0, bytes);
    *p = (ls_cuda_pinned){memory, bytes, d->pinned};
    d->pinned = p;
    *out = memory;
    return LS_OK;
}

void ls_cuda_pinned_free(ls_device *device, void *memory)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    for (ls_cuda_pinned **at = &d->pinned; memory && *at; at = &(*at)->next)
        if ((*at)->memory == memory) {
            ls_cuda_pinned *p = *at;
            *at = p->next;
            cudaFreeHost(p->memory);
            ls_free(d->host, p);
            return;
        }
}

void ls_cuda_pinned_fini(ls_cuda_device *d)
{
    while (d->pinned)
        ls_cuda_pinned_free(&d->device, d->pinned->memory);
}

int ls_cuda_is_pinned(const ls_cuda_device *d, const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    for (const ls_cuda_pinned *p = d->pinned; p; p = p->next) {
        const uintptr_t begin = (uintptr_t)p->memory;
        if (at >= begin && at - begin <= p->bytes && p->bytes - (at - begin) >= bytes)
            return 1;
    }
    return 0;
}
