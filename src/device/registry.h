/* The list of back ends: the inside of <lockstep/device_pool.h>. */
#ifndef DEVICE_REGISTRY_H
#define DEVICE_REGISTRY_H

#include <lockstep/device_pool.h>

#define LS_BACKENDS_MAX 8

struct ls_registry {
    const ls_host *host;
    int count;
    const ls_backend *backend[LS_BACKENDS_MAX];
};

/* An empty registry; ls_registry_create (the composition root, above) fills it. */
int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err);

/* The back end of that name (`length` bytes, not necessarily terminated), or NULL. */
const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length);

#endif
