/* The back ends that there are, their plugins, and lists of their devices: the inside of
 * <lockstep/device_pool.h>. */
#ifndef DEVICE_REGISTRY_H
#define DEVICE_REGISTRY_H

#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stdbool.h>

#define LS_BACKENDS_MAX 8

struct ls_registry {
    const ls_host *host;
    int count;
    const ls_backend *backend[LS_BACKENDS_MAX];
};

/* An empty registry; ls_registry_create (the composition root, above) fills it. */
int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err);

/* Whether it is the library's own, whose devices any thread may use, one at a time. Beside ls_registry_create. */
bool ls_is_builtin_cpu(const ls_backend *backend);

/* The back end of that name (`length` bytes, not necessarily terminated), or NULL. */
const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length);

#define LS_DEVICES_MAX 1024

/* What a word such as "auto", "cpu:4" or "cuda:0,1" means. */
typedef struct ls_device_list {
    const ls_backend *backend; /* one kind: a group never mixes back ends */
    int count;
    int index[LS_DEVICES_MAX];
    int allowed; /* devices of this kind that are there: fewer than `count` is worth a warning */
    bool capped; /* max_devices cut the list */
} ls_device_list;

/* `spec` as in ls_device_pool_options.devices; NULL: "auto". `max` cuts "auto" and a bare kind; 0:
 * no limit. Errors: LS_EINVAL for a word that cannot be read, LS_EDEVICE for devices that are not
 * there, saying why. Any thread. */
int ls_device_list_parse(ls_device_list *out, const ls_registry *registry, const char *spec,
                         int max, ls_error *err);

/* Whether a trainer can train with the workers of `pool`, which is a caller's. Errors: LS_EINVAL (not of
 * ls_device_pool_create; its owner is one of the workers; it is another process's, or the caller is in one of its
 * jobs), LS_ECANCELED. The pool's owner. */
int ls_device_pool_check(const ls_pool *pool, ls_error *err);

/* ---- plugins ---------------------------------------------------------------------------------- */

/* Back ends in shared libraries of their own: liblockstep-NAME.so.
 *
 * A library is looked for at an explicit path; without one, around liblockstep.so, then around the
 * running program (each time in the folder itself, in lockstep/ below it, and where an installation
 * has its plugins as seen from bin/), and in the folder that installations were configured with;
 * never in the working directory. The first that exists is the one; it is loaded with all of its symbols
 * resolved and visible to nobody else, and stays until the program ends. Not being there (absent) and being
 * there but unusable (broken) are told apart. Any thread. */

/* Loads the back end `name`: from `path`, unless that is NULL. May be called again at no cost.
 * Errors: LS_ENOENT, absent: says where it was looked for, or that the machine has no driver for it.
 * LS_EDEVICE, broken: a library that does not load, has no entry, was built for another ABI or holds another
 * back end. */
int ls_plugin_load(const ls_backend **out, const char *name, const char *path, ls_error *err);

/* The same for other plugins: the function `wanted` of liblockstep-NAME.so, and the file that it was found
 * in. Errors: as above, but of what the function returns. */
int ls_plugin_symbol(void **symbol, char *found, size_t size, const char *name, const char *path,
                     const char *wanted, ls_error *err);

/* The back end "cuda" as a row of a registry. Its library is loaded when it is first probed or
 * opened, so that a program that never asks for it does not pay for it. Static, constant. */
const ls_backend *ls_plugin_cuda(void);

#endif
