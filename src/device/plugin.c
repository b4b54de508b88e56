/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for dladdr; no other file of this directory defines it */
#include "device/registry.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = LS_LIBRARY_PATH }; /* size of a buffer for a path */

/* ---- search --------------------------------------------------------------------------------- */

static void cut_at_last_slash(char *path)
{
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = '\0';
}

/* Writes the folder of the file that contains this code, which is liblockstep.so or the program
 * into which it was linked; "" if the system does not report the file. */
static void library_folder(char *out, size_t size)
{
    static const char here; /* an object in that file */
    Dl_info info;
    out[0] = '\0';
    /* A relative name is ignored here. It refers to the directory in which the program was started,
     * and the working directory can have changed since then. Only programs have relative names, and
     * program_folder finds the folder of the program. */
    if (dladdr(&here, &info) == 0 || !info.dli_fname || info.dli_fname[0] != '/')
        return;
    int length = snprintf(out, size, "%s", info.dli_fname);
    if (length < 0 || (size_t)length >= size)
        out[0] = '\0';
    cut_at_last_slash(out);
}

/* Writes the folder of the running program; "" if the system does not report it. */
static void program_folder(char *out, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    out[length > 0 ? length : 0] = '\0';
    cut_at_last_slash(out);
}

/* Writes the path of the library `file` in the folder `folder` + `below`. Returns whether the file
 * exists. */
static bool is_file_at(char *out, const char *folder, const char *below, const char *file)
{
    const int n = snprintf(out, PATH_BYTES, "%s%s/%s", folder, below, file);
    return folder[0] && n > 0 && n < PATH_BYTES && access(out, F_OK) == 0;
}

/* Does the same for the plugin `name`. */
static bool is_at(char *out, const char *folder, const char *below, const char *name)
{
    char file[80];
    snprintf(file, sizeof file, "liblockstep-%.60s.so", name);
    return is_file_at(out, folder, below, file);
}

/* Searches for the plugin near `folder`, at three places: in the folder itself, as in a build
 * folder; in the folder of plugins beside the libraries of an installation; and in that folder as
 * seen from the folder of an installation's programs. The paths are relative to `folder`, because
 * an installation can have been moved. */
static bool is_around(char *out, const char *folder, const char *name)
{
    return folder[0] &&
           (is_at(out, folder, "", name) || is_at(out, folder, "/" LOCKSTEP_PLUGIN_FOLDER, name) ||
            is_at(out, folder, "/../" LOCKSTEP_LIBDIR "/" LOCKSTEP_PLUGIN_FOLDER, name));
}

/* Writes the path of the plugin `name` to `out`. */
static int find(char *out, const char *name, const char *path, ls_error *err)
{
    char library[PATH_BYTES], program[PATH_BYTES];
    if (path) {
        snprintf(out, PATH_BYTES, "%s", path);
        if (strchr(path, '/') && access(path, F_OK) == 0)
            return LS_OK;
        return ls_fail(err, LS_ENOENT, "there is no plugin %.300s%s", path,
                       strchr(path, '/') ? "" : " (give a path with a slash)");
    }
    library_folder(library, sizeof library);
    program_folder(program, sizeof program);
    if (is_around(out, library, name) || is_around(out, program, name) ||
        is_at(out, LOCKSTEP_PLUGIN_DIR, "", name))
        return LS_OK;
    return ls_fail(err, LS_ENOENT, "liblockstep-%s.so is in neither %.160s%s nor %.60s", name,
                   program[0] ? program : "the installation",
                   "/../" LOCKSTEP_LIBDIR "/" LOCKSTEP_PLUGIN_FOLDER, LOCKSTEP_PLUGIN_DIR);
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Writes the error for a plugin that does not load, with the loader's reason on one line. If the
 * NVIDIA driver is missing, the plugin counts as absent, because the machine then has no usable
 * GPU. The driver is the first library that the CUDA plugin needs (src/cuda/CMakeLists.txt), so the
 * loader's reason names the driver. */
static int cannot_load(const char *path, ls_error *err)
{
    static const char driver[] = "libcuda.so.1:";
    char text[300];
    const char *why = dlerror();
    snprintf(text, sizeof text, "%s", why ? why : "the loader does not say why");
    if (strncmp(text, driver, sizeof driver - 1) == 0)
        return ls_fail(err, LS_ENOENT,
                       "there is no NVIDIA driver (libcuda.so.1) on this machine: install one to "
                       "use its GPUs");
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return ls_fail(err, LS_EDEVICE, "%.120s does not load: %s", path, text);
}

/* Checks the table of functions that a plugin returned. */
static int check(const ls_backend *backend, const char *path, const char *name, ls_error *err)
{
    if (!backend || backend->abi != LS_PLUGIN_ABI || backend->size != sizeof *backend)
        return ls_fail(err, LS_EDEVICE,
                       "%.300s was built for another Lockstep than this one (plugin ABI %u): "
                       "rebuild it",
                       path, (unsigned)LS_PLUGIN_ABI);
    if (strcmp(backend->name, name) != 0)
        return ls_fail(err, LS_EDEVICE, "%.300s holds the back end '%.32s', not '%s'", path,
                       backend->name, name);
    return LS_OK;
}

int ls_plugin_symbol(void **symbol, char *found, size_t size, const char *name, const char *path,
                     const char *wanted, ls_error *err)
{
    char at[PATH_BYTES];
    int status = find(at, name, path, err);
    if (status)
        return status;
    void *library = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cannot_load(at, err);
    snprintf(found, size, "%s", at);
    *symbol = dlsym(library, wanted);
    return *symbol ? LS_OK
                   : ls_fail(err, LS_EDEVICE,
                             "%.300s has no function %s: it is no plugin, or was built "
                             "for another Lockstep than this one (plugin ABI %u): rebuild it",
                             at, wanted, (unsigned)LS_PLUGIN_ABI);
}

int ls_plugin_load(const ls_backend **out, const char *name, const char *path, ls_error *err)
{
    char found[PATH_BYTES];
    ls_plugin_entry_fn *entry;
    void *symbol;
    *out = NULL;
    int status = ls_plugin_symbol(&symbol, found, sizeof found, name, path, LS_PLUGIN_ENTRY, err);
    if (status)
        return status;
    _Static_assert(sizeof entry == sizeof symbol, "dlsym gives functions as pointers to data");
    memcpy(&entry, &symbol, sizeof entry);
    const ls_backend *backend = entry();
    status = check(backend, found, name, err);
    if (status == LS_OK)
        *out = backend;
    return status;
}

/* ---- other libraries ------------------------------------------------------------------------ */

int ls_library_symbol(void **symbol, char found[LS_LIBRARY_PATH], const char *file,
                      const char *wanted, ls_error *err)
{
    char library[PATH_BYTES], program[PATH_BYTES];
    library_folder(library, sizeof library);
    program_folder(program, sizeof program);
    if (!is_file_at(found, library, "", file) && !is_file_at(found, program, "", file) &&
        !is_file_at(found, program, "/../" LOCKSTEP_LIBDIR, file))
        snprintf(found, LS_LIBRARY_PATH, "%s", file); /* the loader searches for it */
    void *handle = dlopen(found, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        char text[300];
        const char *why = dlerror();
        snprintf(text, sizeof text, "%s", why ? why : "the loader does not say why");
        return ls_fail(err, strchr(found, '/') ? LS_EDEVICE : LS_ENOENT, "%s", text);
    }
    *symbol = dlsym(handle, wanted);
    return *symbol
               ? LS_OK
               : ls_fail(err, LS_EDEVICE,
                         "%.300s has no function %s: it was built for another Lockstep: rebuild "
                         "it",
                         found, wanted);
}

/* ---- the row of the registry ---------------------------------------------------------------- */

static void cuda_probe(ls_backend_info *out)
{
    const ls_backend *backend;
    ls_error err = {0};
    int status = ls_plugin_load(&backend, "cuda", NULL, &err);
    if (status == LS_OK) {
        backend->probe(out);
        return;
    }
    memset(out, 0, sizeof *out);
    out->broken = status != LS_ENOENT;
    snprintf(out->reason, sizeof out->reason, "%.*s", (int)sizeof out->reason - 1, err.text);
}

static int cuda_open(ls_device **out, const ls_device_request *request, ls_error *err)
{
    const ls_backend *backend;
    ls_error why = {0};
    *out = NULL;
    int status = ls_plugin_load(&backend, "cuda", NULL, &why);
    if (status == LS_OK)
        return backend->open(out, request, err);
    return ls_fail(err, LS_EDEVICE, "no cuda device: %.400s (%s)", why.text,
                   status == LS_ENOENT ? "absent" : "broken");
}

const ls_backend *ls_plugin_cuda(void)
{
    static const ls_backend backend = {
        .abi = LS_PLUGIN_ABI,
        .size = sizeof(ls_backend),
        .name = "cuda",
        .counted = 0,
        .probe = cuda_probe,
        .open = cuda_open,
    };
    return &backend;
}
