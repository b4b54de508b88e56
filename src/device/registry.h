/* Back ends, their plugins, and lists of their devices: the internal part of
 * <lockstep/device_pool.h>. */
#ifndef DEVICE_REGISTRY_H
#define DEVICE_REGISTRY_H

#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stdbool.h>

#define LS_BACKENDS_MAX 8 /* most back ends of a registry */

/* A registry of back ends. */
struct ls_registry {
    const ls_host *host;
    int count;                                  /* number of back ends */
    const ls_backend *backend[LS_BACKENDS_MAX]; /* preferred ones first */
};

/* Creates an empty registry. ls_registry_create, which lies in a higher directory and knows all
 * built-in back ends, fills it. Errors: LS_ENOMEM. */
int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err);

/* Returns whether `backend` is the library's own CPU back end, whose devices any thread may use,
 * one thread at a time. It is defined together with ls_registry_create. */
bool ls_is_builtin_cpu(const ls_backend *backend);

/* Returns the back end called `name`, or NULL. The name has `length` bytes and need not be
 * zero-terminated. */
const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length);

#define LS_DEVICES_MAX 1024 /* most devices of a list */

/* The devices that a specification such as "auto", "cpu:4" or "cuda:0,1" selects. */
typedef struct ls_device_list {
    const ls_backend *backend; /* back end of all devices; a list never mixes back ends */
    int count;                 /* number of devices */
    int index[LS_DEVICES_MAX]; /* number of each device */
    int allowed; /* number of devices that exist; worth a warning if it is less than `count` */
    bool capped; /* max_devices has shortened the list */
} ls_device_list;

/* Parses a specification of devices, as in ls_device_pool_options.devices; NULL: "auto". At most
 * `max` devices are taken for "auto" and for a bare kind; 0: no limit. Any thread. Errors:
 * LS_EINVAL (the specification cannot be parsed), LS_EDEVICE (devices do not exist; the message
 * says why). */
int ls_device_list_parse(ls_device_list *out, const ls_registry *registry, const char *spec,
                         int max, ls_error *err);

/* Checks that a trainer can train with the workers of `pool`, a pool of the embedding program. The
 * pool's owner. Errors: LS_EINVAL (ls_device_pool_create did not create it; its owner is one of its
 * workers; it belongs to another process; or the caller is inside one of its jobs),
 * LS_ECANCELED. */
int ls_device_pool_check(const ls_pool *pool, ls_error *err);

/* ---- plugins --------------------------------------------------------------------------------- */

/* A plugin is a back end in a shared library of its own, liblockstep-NAME.so.
 *
 * If a path is given, only that file is tried. Otherwise a plugin is searched for near
 * liblockstep.so, then near the running program, and then in the folder that was configured for
 * installations, but never in the working directory. "Near" a file means its folder, the folder
 * lockstep/ in it, and the place of plugins in an installation as seen from bin/. The first file
 * that exists is used. It is loaded with all its symbols resolved and none of them visible to other
 * libraries, and stays loaded until the program ends. Errors distinguish a plugin that does not
 * exist (absent) from one that exists but cannot be used (broken). All functions: any thread. */

/* Loads the back end `name`, from `path` unless that is NULL. Repeated calls are cheap.
 * Errors: LS_ENOENT (absent; the message says where it was searched for, or that the machine has no
 * driver for it), LS_EDEVICE (broken: the library does not load, has no entry function, was built
 * for another ABI, or contains another back end). */
int ls_plugin_load(const ls_backend **out, const char *name, const char *path, ls_error *err);

/* Does the same for plugins that are no back ends: loads liblockstep-NAME.so, writes the address of
 * its function `wanted` to *symbol, and the path of the library to `found`, which has `size` bytes.
 * Errors: as ls_plugin_load, except that the function is not called and its result not checked. */
int ls_plugin_symbol(void **symbol, char *found, size_t size, const char *name, const char *path,
                     const char *wanted, ls_error *err);

/* Returns the back end "cuda" for a registry, a static constant. Its plugin is loaded when the back
 * end is first probed or a device is first opened, so a program that does not use it does not load
 * it. */
const ls_backend *ls_plugin_cuda(void);

#endif
