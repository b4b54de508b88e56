/* SPDX-License-Identifier: MIT */
/* What programs that measure have in common. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdlib.h>
#include <time.h>

/* Returns the time of a clock in seconds. */
static inline double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the CPU time of the calling thread in seconds. Other programs on the machine do not add
 * to it. */
static inline double cpu_seconds(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts doubles, the least first. */
static inline void sort_values(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
}

#endif
