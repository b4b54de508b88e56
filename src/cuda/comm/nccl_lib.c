/* SPDX-License-Identifier: MIT */
#include "cuda/comm/nccl_lib.h"

#include "base/error.h"
#include "cuda/shared_lib.h"

#include <stdio.h>

#ifndef LOCKSTEP_NCCL_FOLDER
#define LOCKSTEP_NCCL_FOLDER ""
#endif

enum { PATH_BYTES = 512 };

static int take_functions(ls_nccl *out, void *library, const char *name, ls_error *err)
{
    int status = LS_OK;
#define TAKE(function)                                                                             \
    if (status == LS_OK)                                                                           \
        status = ls_shared_lib_take(&out->function, library, name, #function, err);
    LS_NCCL_FUNCTIONS(TAKE)
#undef TAKE
    return status;
}

/* Reads the version. An older library than that of the build (by its minor version) is refused,
 * because its structures can be smaller than those of the header. */
static int check_version(ls_nccl *out, ls_error *err)
{
    char have[16], built[16];
    ls_shared_lib_path(out->path, sizeof out->path, &out->ncclGetVersion);
    if (out->ncclGetVersion(&out->version) != ncclSuccess)
        return ls_fail(err, LS_EUNSUPPORTED, "%s does not say its version", out->path);
    if (out->version / 10000 == NCCL_MAJOR && out->version >= NCCL_VERSION_CODE / 100 * 100)
        return LS_OK;
    ls_nccl_version_text(have, out->version);
    ls_nccl_version_text(built, NCCL_VERSION_CODE);
    return ls_fail(
        err, LS_EUNSUPPORTED,
        "NCCL %s was loaded (%s), and this back end needs %d.%d or newer, because it was "
        "built with %s: update it, or train on one GPU",
        have, out->path, NCCL_MAJOR, NCCL_MINOR, built);
}

int ls_nccl_load_from(ls_nccl *out, const char *name, ls_error *err)
{
    ls_nccl loaded = {0};
    void *library = ls_shared_lib_open("NCCL", name, err);
    int status = library ? take_functions(&loaded, library, name, err) : LS_EUNSUPPORTED;
    if (status == LS_OK)
        status = check_version(&loaded, err);
    if (status == LS_OK)
        *out = loaded;
    return status;
}

/* Loads the library by its name, so that the loader gives the copy that the process has already. If
 * the loader finds none, takes the copy with which the plugin was built. */
int ls_nccl_load(ls_nccl *out, ls_error *err)
{
    char path[PATH_BYTES];
    const char *folder = LOCKSTEP_NCCL_FOLDER;
    snprintf(path, sizeof path, "libnccl.so.%d", NCCL_MAJOR);
    void *found = ls_shared_lib_open("NCCL", path, err);
    if (found || folder[0] == '\0')
        return found ? ls_nccl_load_from(out, path, err) : LS_EUNSUPPORTED;
    snprintf(path, sizeof path, "%s/libnccl.so.%d", folder, NCCL_MAJOR);
    return ls_nccl_load_from(out, path, err);
}
