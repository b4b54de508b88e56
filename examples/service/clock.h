#ifndef SERVICE_CLOCK_H
#define SERVICE_CLOCK_H

#include <time.h>

/* Seconds that never go back. */
static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
