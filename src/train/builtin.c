/* The composition root: the one place that knows which back ends were built in. */
#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu.h"
#endif
#include "device/plugin.h"
#include "device/registry.h"

int ls_registry_create(ls_registry **out, const ls_host *host, ls_error *err)
{
    *out = NULL;
    int status = ls_registry_create_empty(out, host, err);
    if (status == LS_OK)
        status = ls_registry_add(*out, ls_plugin_cuda(), err);
#ifdef LOCKSTEP_WITH_CPU
    if (status == LS_OK)
        status = ls_registry_add(*out, ls_cpu_backend(), err);
#endif
    if (status != LS_OK) {
        ls_registry_destroy(*out);
        *out = NULL;
    }
    return status;
}
