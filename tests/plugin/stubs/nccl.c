/* SPDX-License-Identifier: MIT */
/* A library with the name of NCCL, for tests of which copy a process gets. It has the functions
 * that the plugin takes, and with NEWER one more, which a program like PyTorch needs. */
#include <stddef.h>

#ifdef NEWER
enum { VERSION = 29907 };
int ncclOfLater(void);
int ncclOfLater(void)
{
    return VERSION;
}
#else
enum { VERSION = 21405 };
#endif

int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}

#define FUNCTION(name)                                                                             \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 1;                                                                                  \
    }
FUNCTION(ncclGetErrorString)
FUNCTION(ncclGetUniqueId)
FUNCTION(ncclCommInitRankConfig)
FUNCTION(ncclCommAbort)
FUNCTION(ncclCommGetAsyncError)
FUNCTION(ncclGroupStart)
FUNCTION(ncclGroupEnd)
FUNCTION(ncclAllReduce)
FUNCTION(ncclSend)
FUNCTION(ncclRecv)
