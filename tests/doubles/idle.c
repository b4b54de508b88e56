/* SPDX-License-Identifier: MIT */
/* Waiting by yields and short sleeps, which order no memory. */
#include "doubles/inside.h"

#include <sched.h>
#include <time.h>

uint64_t dbl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void dbl_idle_briefly(dbl_idle *idle)
{
    if (idle->rounds == 0)
        idle->start_ns = dbl_now_ns();
    if (idle->rounds++ < 100) {
        sched_yield();
        return;
    }
    struct timespec nap = {0, idle->rounds < 1000 ? 20000 : 200000};
    nanosleep(&nap, NULL);
}

int dbl_idle_too_long(dbl_idle *idle)
{
    return idle->rounds > 100 && dbl_now_ns() - idle->start_ns > dbl_world.patience_ns;
}
