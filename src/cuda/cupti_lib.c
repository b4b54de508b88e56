/* SPDX-License-Identifier: MIT */
#include "cuda/cupti_lib.h"

#ifdef LS_HAVE_CUPTI
#include "cuda/cuda_device.h"
#include "cuda/shared_lib.h"

#include <stdio.h>

#ifndef LOCKSTEP_CUPTI_FOLDER
#define LOCKSTEP_CUPTI_FOLDER ""
#endif

enum { PATH_BYTES = 512 };

int ls_cupti_load_from(ls_cupti *out, const char *name, ls_error *err)
{
    void *library = ls_shared_lib_open("CUPTI", name, err);
    int status = library ? LS_OK : LS_EUNSUPPORTED;
#define TAKE(function)                                                                             \
    if (status == LS_OK)                                                                           \
        status = ls_shared_lib_take(&out->function, library, name, #function, err);
    LS_CUPTI_FUNCTIONS(TAKE)
#undef TAKE
    return status;
}

/* Loads the library by its name. If that fails, loads it from the folder in which it was at build
 * time. The name includes the major version of the CUDA toolkit, because other major versions have
 * other record types. */
int ls_cupti_load(ls_cupti *out, ls_error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "libcupti.so.%d", CUDART_VERSION / 1000);
    if (ls_cupti_load_from(out, path, err) == LS_OK)
        return LS_OK;
    if (LOCKSTEP_CUPTI_FOLDER[0] == '\0')
        return LS_EUNSUPPORTED;
    snprintf(path, sizeof path, "%s/libcupti.so.%d", LOCKSTEP_CUPTI_FOLDER, CUDART_VERSION / 1000);
    return ls_cupti_load_from(out, path, err);
}
#else
typedef int ls_cupti_is_not_there;
#endif
