/* SPDX-License-Identifier: MIT */
/* A library for LD_PRELOAD. With it, the MPI library reports the version of an MPICH that Lockstep
 * refuses. */
#include <string.h>

int MPI_Get_library_version(char *text, int *length);
int MPI_Get_library_version(char *text, int *length)
{
    strcpy(text, "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n");
    *length = (int)strlen(text);
    return 0;
}
