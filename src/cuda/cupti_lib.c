#include "cuda/cupti_lib.h"

#ifdef LS_HAVE_CUPTI
#include "cuda/cuda_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef LOCKSTEP_CUPTI_FOLDER
#define LOCKSTEP_CUPTI_FOLDER ""
#endif

enum { PATH_BYTES = 512, WHY_BYTES = 200 };

static int missing(const char *name, const char *function, ls_error *err)
{
    return ls_fail(err, LS_EUNSUPPORTED, "%.200s has no function %s", name, function);
}

static int take_functions(ls_cupti *out, void *library, const char *name, ls_error *err)
{
    void *symbol;
    _Static_assert(sizeof symbol == sizeof out->cuptiActivityEnable,
                   "dlsym gives functions as pointers to data");
#define TAKE(function)                                                                             \
    symbol = dlsym(library, #function);                                                            \
    if (!symbol)                                                                                   \
        return missing(name, #function, err);                                                      \
    memcpy(&out->function, &symbol, sizeof symbol);
    LS_CUPTI_FUNCTIONS(TAKE)
#undef TAKE
    return LS_OK;
}

int ls_cupti_load_from(ls_cupti *out, const char *name, ls_error *err)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library)
        return take_functions(out, library, name, err);
    char why[WHY_BYTES];
    const char *said = dlerror();
    snprintf(why, sizeof why, "%s", said ? said : "the loader does not say why");
    for (char *c = why; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return ls_fail(err, LS_EUNSUPPORTED, "CUPTI does not load: %s", why);
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
