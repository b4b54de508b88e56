/* SPDX-License-Identifier: MIT */
/* The version of the library (version.h). */
#include <lockstep/version.h>

const char *ls_version(void)
{
    return LS_VERSION;
}

int ls_version_number(void)
{
    return LS_VERSION_NUMBER;
}
