#include "device/registry.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>

int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err)
{
    ls_registry *registry = ls_alloc(host, sizeof *registry);
    if (!registry)
        return ls_fail(err, LS_ENOMEM, "out of memory for the list of back ends");
    registry->host = host;
    *out = registry;
    return LS_OK;
}

void ls_registry_destroy(ls_registry *registry)
{
    if (registry)
        ls_free(registry->host, registry);
}

int ls_registry_add(ls_registry *registry, const ls_backend *backend, ls_error *err)
{
    if (backend->abi != LS_PLUGIN_ABI || backend->size != sizeof *backend)
        return ls_fail(err, LS_EINVAL,
                       "a back end was built for plugin ABI %u, this library has %u: rebuild it",
                       (unsigned)backend->abi, (unsigned)LS_PLUGIN_ABI);
    if (ls_registry_find(registry, backend->name, strlen(backend->name)))
        return ls_fail(err, LS_EINVAL, "there already is a back end named '%s'", backend->name);
    if (registry->count == LS_BACKENDS_MAX)
        return ls_fail(err, LS_EINVAL, "more than %d back ends", LS_BACKENDS_MAX);
    registry->backend[registry->count++] = backend;
    return LS_OK;
}

const ls_backend *ls_registry_at(const ls_registry *registry, int index)
{
    return index >= 0 && index < registry->count ? registry->backend[index] : NULL;
}

const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length)
{
    for (int i = 0; i < registry->count; i++) {
        const char *known = registry->backend[i]->name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return registry->backend[i];
    }
    return NULL;
}
