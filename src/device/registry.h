/* SPDX-License-Identifier: MIT */
/* Back ends, their plugins, and lists of their devices: the internal part of
 * <lockstep/device_pool.h>. */
#ifndef DEVICE_REGISTRY_H
#define DEVICE_REGISTRY_H

#include <lockstep/device_pool.h>
#include <lockstep/sys/plugin.h>
#include <stdbool.h>

#define LS_BACKENDS_MAX 8 /* largest number of back ends of a registry */

/* A registry of back ends. */
struct ls_registry {
    const ls_host *host;
    int count;                                  /* number of back ends */
    const ls_backend *backend[LS_BACKENDS_MAX]; /* preferred ones first */
};

/* Creates an empty registry. Its caller ls_registry_create is defined outside this directory,
 * because it knows all built-in back ends and adds them to the registry. Errors: LS_ENOMEM. */
int ls_registry_create_empty(ls_registry **out, const ls_host *host, ls_error *err);

/* Returns whether `backend` is the library's own CPU back end. Any thread may use a device of that
 * back end, one thread at a time. The function is defined together with ls_registry_create. */
bool ls_is_builtin_cpu(const ls_backend *backend);

/* Returns the back end called `name`, or NULL. The name has `length` bytes and need not be
 * zero-terminated. */
const ls_backend *ls_registry_find(const ls_registry *registry, const char *name, size_t length);

#define LS_DEVICES_MAX 1024 /* largest number of devices of a list */

/* The devices that a specification such as "auto", "cpu:4" or "cuda:0,1" selects. */
typedef struct ls_device_list {
    const ls_backend *backend; /* back end of all devices; a list never mixes back ends */
    int count;                 /* number of devices */
    int index[LS_DEVICES_MAX]; /* number of each device */
    int allowed; /* number of devices of the back end that this process may use. With CPUs, `count`
                  * can be larger, which is worth a warning */
    bool capped; /* max_devices has shortened the list */
} ls_device_list;

/* Parses a specification of devices, as in ls_device_pool_options.devices; NULL: "auto". `max`:
 * largest number of devices for "auto" and for a kind without a list of devices, such as "cpu"; 0:
 * no limit. Any thread. Errors: LS_EINVAL (the specification cannot be parsed), LS_EDEVICE (devices
 * do not exist; the message says why). */
int ls_device_list_parse(ls_device_list *out, const ls_registry *registry, const char *spec,
                         int max, ls_error *err);

/* Writes the specification of the first `count` devices of a back end, such as "cpu:3" or
 * "cuda:0,1,2". If not all of them fit, the last ones are left out. */
void ls_device_list_first(char *out, size_t size, const ls_backend *backend, int count);

/* Checks that a trainer can train with the workers of `pool`, a pool of the embedding program.
 * Called by the pool's owner. Errors: LS_ECANCELED (the pool was cancelled); LS_EINVAL in one of
 * these cases:
 * - ls_device_pool_create did not create the pool;
 * - the pool's owner is one of its workers;
 * - the pool belongs to another process;
 * - the caller is inside a job of the pool. */
int ls_device_pool_check(const ls_pool *pool, ls_error *err);

/* ---- plugins --------------------------------------------------------------------------------- */

/* A plugin is a back end in a shared library of its own, liblockstep-NAME.so.
 *
 * If a path is given, only that file is tried. Otherwise a plugin is searched for near
 * liblockstep.so, near the running program, and in the configured folder, never in the working
 * directory. "Near" a file means its folder, the folder lockstep/ in it, and the place of plugins
 * as seen from bin/. The first file that exists is loaded, with all its symbols resolved and none
 * visible to others, and stays loaded. Errors distinguish a plugin that does not exist (absent)
 * from one that exists but cannot be used (broken). All functions: any thread. */

/* Loads the back end `name`, from `path` unless that is NULL. Repeated calls are cheap.
 * Errors: LS_ENOENT (absent; the message says where the plugin was searched for, or that the
 * machine has no driver for it), LS_EDEVICE (broken: the library does not load, has no entry
 * function, was built for another ABI, or contains another back end). */
int ls_plugin_load(const ls_backend **out, const char *name, const char *path, ls_error *err);

/* Loads a plugin of any kind, liblockstep-NAME.so. Writes the address of its function `wanted` to
 * *symbol, and the path of the library to `found`, which has `size` bytes. Errors: as
 * ls_plugin_load, except that the function is not called, so a wrong ABI or another back end is not
 * detected. */
int ls_plugin_symbol(void **symbol, char *found, size_t size, const char *name, const char *path,
                     const char *wanted, ls_error *err);

enum { LS_LIBRARY_PATH = 512 }; /* size of a buffer for the path of a library */

/* Loads a library of Lockstep that is no plugin, such as the one that decodes pictures, by the name
 * of its file. It is searched for in the folder of liblockstep.so, near the running program, and
 * where the system's loader searches, and stays loaded. Writes the address of its function `wanted`
 * to *symbol, and the path to `found`. Errors: LS_ENOENT (absent), LS_EDEVICE (it does not load, or
 * lacks the function). Any thread. */
int ls_library_symbol(void **symbol, char found[LS_LIBRARY_PATH], const char *file,
                      const char *wanted, ls_error *err);

/* Returns the back end "cuda" for a registry, a static constant. Its plugin is loaded when the back
 * end is first probed or a device is first opened. So a program that does not use the back end does
 * not load the plugin. */
const ls_backend *ls_plugin_cuda(void);

#endif
