/* renameat2 is Linux's own. */
#define _GNU_SOURCE
#include "store/io.h"

#include <errno.h>
#include <stdio.h>

int ls_io_exchange(int folder, const char *a, const char *b)
{
#ifdef RENAME_EXCHANGE
    int failed;
    do
        failed = renameat2(folder, a, folder, b, RENAME_EXCHANGE);
    while (failed && errno == EINTR);
    if (!failed)
        return 0;
    return errno == EINVAL || errno == ENOSYS ? EOPNOTSUPP : errno;
#else
    (void)folder;
    (void)a;
    (void)b;
    return EOPNOTSUPP;
#endif
}
