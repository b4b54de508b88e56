/* The one symbol that liblockstep-cuda.so exports. */
#include "cuda/cuda_device.h"

#include <stdatomic.h>

__attribute__((visibility("default"))) ls_plugin_entry_fn ls_plugin_entry;

/* Written with the same value by every call, so that readers need no lock. */
static _Atomic(const ls_services *) given;

const ls_services *ls_cuda_services(void)
{
    return atomic_load_explicit(&given, memory_order_acquire);
}

const ls_backend *ls_plugin_entry(const ls_services *services)
{
    if (services->abi != LS_PLUGIN_ABI || services->size != sizeof *services)
        return NULL;
    atomic_store_explicit(&given, services, memory_order_release);
    return ls_cuda_backend();
}
