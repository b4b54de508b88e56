/* SPDX-License-Identifier: MIT */
/* Loads the plugin. LOCKSTEP_TEST_PLUGIN can name another liblockstep-cuda.so than the one that was
 * built: the plugin over the doubles, with which the suite runs without a GPU
 * (plugin_doubled.c). */
#include "cuda_gpu/cuda_plugged.h"

#include "device/registry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_cuda_begin(dbl_mode mode)
{
    (void)mode;
}

const ls_backend *test_cuda_backend(void)
{
    const ls_backend *backend = NULL;
    const char *path = getenv("LOCKSTEP_TEST_PLUGIN");
    ls_error err = {0};
    int status = ls_plugin_load(&backend, "cuda", path && path[0] ? path : PLUGIN, &err);
    if (status) {
        /* If the plugin exists, its first need is a driver. */
        const int absent = status == LS_ENOENT && strstr(err.text, "no NVIDIA driver");
        printf("%s: %s\n", absent ? "skipped" : "broken", err.text);
        fflush(stdout);
        _exit(absent ? 77 : 1);
    }
    return backend;
}

int plugged_status(FILE *out)
{
    ls_backend_info info;
    test_cuda_backend()->probe(&info);
    if (info.devices > 0)
        fprintf(out, "%d GPU%s, %s\n", info.devices, info.devices > 1 ? "s" : "", info.version);
    else
        fprintf(out, "%s: no GPU: %s\n", info.broken ? "broken" : "skipped", info.reason);
    fflush(out);
    return info.devices > 0 ? 0 : info.broken ? 1 : 77;
}

#ifndef PLUGGED_PROBE
static void need_gpu(void) __attribute__((constructor));

static void need_gpu(void)
{
    /* to stderr, because some programs print results to stdout */
    int status = plugged_status(stderr);
    if (status)
        _exit(status);
}
#endif
