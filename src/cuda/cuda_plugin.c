/* The one symbol that liblockstep-cuda.so exports. */
#include "cuda/cuda_device.h"

__attribute__((visibility("default"))) ls_plugin_entry_fn ls_plugin_backend;

const ls_backend *ls_plugin_backend(void)
{
    return ls_cuda_backend();
}
