/* SPDX-License-Identifier: MIT */
/* The list of the built-in back ends. Only this file knows which back ends were built. */
#include "base/error.h"
#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#else
#include <stdio.h>
#include <string.h>
#endif
#include "device/registry.h"

#ifndef LOCKSTEP_WITH_CPU
/* Replacement for a CPU back end that was not built. Its functions fail with this message. */
#define WITHOUT_CPU "this build has no CPU back end: it was made with LOCKSTEP_CPU=OFF"

static void probe_nothing(ls_backend_info *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->reason, sizeof out->reason, WITHOUT_CPU);
}

static int open_nothing(ls_device **out, const ls_device_request *request, ls_error *err)
{
    (void)request;
    *out = NULL;
    return ls_fail(err, LS_EDEVICE, WITHOUT_CPU);
}

static const ls_backend *ls_cpu_backend(void)
{
    static const ls_backend backend = {.abi = LS_PLUGIN_ABI,
                                       .size = sizeof(ls_backend),
                                       .name = "cpu",
                                       .counted = 1,
                                       .probe = probe_nothing,
                                       .open = open_nothing};
    return &backend;
}
#endif

bool ls_is_builtin_cpu(const ls_backend *backend)
{
    return backend == ls_cpu_backend();
}

int ls_registry_create(ls_registry **out, const ls_host *host, ls_error *err)
{
    if (!out)
        return ls_fail(err, LS_EINVAL, "ls_registry_create: nowhere to put the list of back ends");
    *out = NULL;
    int status = ls_registry_create_empty(out, host, err);
    if (status == LS_OK)
        status = ls_registry_add(*out, ls_plugin_cuda(), err);
    if (status == LS_OK)
        status = ls_registry_add(*out, ls_cpu_backend(), err);
    if (status != LS_OK) {
        ls_registry_destroy(*out);
        *out = NULL;
    }
    return status;
}
