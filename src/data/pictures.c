/* SPDX-License-Identifier: MIT */
/* Finds the functions that decode image files (pictures.h). */
#include "data/pictures.h"

#include "base/error.h"
#include "device/registry.h"

#include <string.h>

static int check(const ls_pictures *table, const char *path, ls_error *err)
{
    if (table && table->abi == LS_PICTURES_ABI && table->size == sizeof *table)
        return LS_OK;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "%.300s was built for another Lockstep than this one (pictures ABI %d): rebuild "
                   "it",
                   path, LS_PICTURES_ABI);
}

int ls_pictures_find(const ls_pictures **out, const ls_pictures *given, ls_error *err)
{
    char found[LS_LIBRARY_PATH];
    ls_pictures_entry_fn *entry;
    void *symbol;
    ls_error why;
    *out = given;
    if (given)
        return check(given, "the program's table of functions for pictures", err);
    if (ls_library_symbol(&symbol, found, LOCKSTEP_PICTURE_FILE, LS_PICTURES_ENTRY, &why) != LS_OK)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "reading pictures needs the library %s, Debian's package "
                       "liblockstep-picture" LOCKSTEP_PICTURE_VERSION ": %.300s",
                       LOCKSTEP_PICTURE_FILE, why.text);
    _Static_assert(sizeof entry == sizeof symbol, "dlsym gives functions as pointers to data");
    memcpy(&entry, &symbol, sizeof entry);
    *out = entry();
    return check(*out, found, err);
}
