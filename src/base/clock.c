#include "base/clock.h"

#include <time.h>

uint64_t ls_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ls_deadline_ns(uint64_t timeout)
{
    uint64_t now = ls_now_ns();
    return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}
