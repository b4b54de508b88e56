/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for dladdr */
#include "cuda/shared_lib.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { WHY_BYTES = 300 };

_Static_assert(sizeof(void *) == sizeof(void (*)(void)),
               "dlsym gives functions as pointers to data");

void *ls_shared_lib_open(const char *what, const char *name, ls_error *err)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library)
        return library;
    char why[WHY_BYTES];
    const char *said = dlerror();
    snprintf(why, sizeof why, "%s", said ? said : "the loader does not say why");
    for (char *c = why; *c; c++)
        if (*c == '\n')
            *c = ' ';
    (void)ls_fail(err, LS_EUNSUPPORTED, "%s does not load: %s", what, why);
    return NULL;
}

int ls_shared_lib_take(void *out, void *library, const char *name, const char *function,
                       ls_error *err)
{
    void *symbol = dlsym(library, function);
    if (!symbol)
        return ls_fail(err, LS_EUNSUPPORTED, "%.200s has no function %s", name, function);
    memcpy(out, &symbol, sizeof symbol);
    return LS_OK;
}

void ls_shared_lib_path(char *out, size_t size, const void *function)
{
    void *address;
    Dl_info info;
    memcpy(&address, function, sizeof address);
    const int known = dladdr(address, &info) != 0 && info.dli_fname;
    snprintf(out, size, "%s", known ? info.dli_fname : "");
}
