/* SPDX-License-Identifier: MIT */
/* Time in tests. */
#ifndef LS_TESTS_TIMES_H
#define LS_TESTS_TIMES_H

#include <stdint.h>
#include <time.h>

static inline void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Returns the CPU time of the process in nanoseconds. */
static inline uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
