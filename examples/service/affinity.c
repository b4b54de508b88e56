#define _GNU_SOURCE /* CPU_SET */
#include "affinity.h"

#include "report.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static int read_list(cpu_set_t *set, const char *list)
{
    CPU_ZERO(set);
    for (const char *p = list;;) {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (end == p)
            return 0;
        p = end;
        if (*p == '-') {
            last = strtoul(p + 1, &end, 10);
            if (end == p + 1)
                return 0;
            p = end;
        }
        if (first > last || last >= CPU_SETSIZE)
            return 0;
        for (; first <= last; first++)
            CPU_SET(first, set);
        if (*p == '\0')
            return 1;
        if (*p++ != ',')
            return 0;
    }
}

int affinity_set(const char *list, ls_error *err)
{
    cpu_set_t set;
    if (!list)
        return LS_OK;
    if (!read_list(&set, list))
        return fail(err, LS_EINVAL, "\"%.100s\" is no list of CPUs; expected such as 0 or 0,2-3",
                    list);
    int error = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (error)
        return fail(err, LS_EINVAL, "CPUs %.100s: %s", list, strerror(error));
    return LS_OK;
}
