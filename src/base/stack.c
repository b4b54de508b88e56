/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for pthread_getattr_np */
#include "base/stack.h"

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#ifndef __GLIBC__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Addresses of the calling thread's stack, set by the thread's first check. They stay valid,
 * because a stack never moves. */
static _Thread_local struct {
    bool known;
    uintptr_t low, high; /* first address of the stack, and first address after the stack; both 0:
                          * the C library does not know the stack */
} extent;

/* Returns the first address of a stack that pthread_getattr_np describes. Musl describes that of
 * the main thread as far as it has grown by now; it grows to the limit of the process. */
static uintptr_t lowest_address(uintptr_t low, uintptr_t high)
{
#ifndef __GLIBC__
    struct rlimit limit;
    if (getpid() == syscall(SYS_gettid) && getrlimit(RLIMIT_STACK, &limit) == 0 &&
        limit.rlim_cur > high - low)
        return limit.rlim_cur < high ? high - limit.rlim_cur : 0;
#endif
    (void)high;
    return low;
}

static void find_extent(void)
{
    pthread_attr_t attr;
    void *low;
    size_t size;
    extent.known = true;
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return;
    if (pthread_attr_getstack(&attr, &low, &size) == 0) {
        extent.high = (uintptr_t)low + size;
        extent.low = lowest_address((uintptr_t)low, extent.high);
    }
    pthread_attr_destroy(&attr);
}

int ls_stack_check(size_t bytes, const char *function, ls_error *err)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!extent.known)
        find_extent();
    if (here <= extent.low || here >= extent.high || here - extent.low >= bytes)
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "%s: %zu KiB of this thread's stack are left; expected at least %zu: call from "
                   "a thread with a stack of %d KiB or more (pthread_attr_setstacksize, ulimit -s)",
                   function, (size_t)(here - extent.low) / 1024, bytes / 1024, LS_THREAD_STACK_KIB);
}
