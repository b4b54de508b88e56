/* SPDX-License-Identifier: MIT */
/* Complaints, counts of live objects, and records of destroyed ones. */
#include "doubles/inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char complaints[8192];
static void **graves;
static size_t grave_count, grave_room;
static _Atomic int live[DBL_THINGS];
static const char *const names[DBL_THINGS] = {
    "device allocation", "pinned allocation", "stream", "event", "graph",
    "executable graph",  "communicator"};

void dbl_ledger_begin(void)
{
    complaints[0] = 0;
    memset(live, 0, sizeof live);
}

/* The first complaints are the ones that matter; later ones are cut off. */
void dbl_complain(const char *format, ...)
{
    va_list args;
    char line[512];
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args); /* NOLINT(clang-analyzer-valist.Uninitialized) */
    va_end(args);
    pthread_mutex_lock(&lock);
    size_t used = strlen(complaints);
    if (!strstr(complaints, line))
        snprintf(complaints + used, sizeof complaints - used, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

const char *dbl_complaints(void)
{
    return complaints;
}

void dbl_clear_complaints(void)
{
    pthread_mutex_lock(&lock);
    complaints[0] = 0;
    pthread_mutex_unlock(&lock);
}

void dbl_count(dbl_thing thing, int change)
{
    atomic_fetch_add_explicit(&live[thing], change, memory_order_relaxed);
}

static int live_of(dbl_thing thing)
{
    return atomic_load_explicit(&live[thing], memory_order_relaxed);
}

dbl_live dbl_count_live(void)
{
    size_t taken = 0;
    for (int d = 0; d < dbl_world.devices; d++)
        taken += dbl_taken_bytes(d);
    return (dbl_live){
        .allocations = live_of(DBL_ALLOCATION),
        .pinned = live_of(DBL_PINNED),
        .streams = live_of(DBL_STREAM),
        .events = live_of(DBL_EVENT),
        .graphs = live_of(DBL_GRAPH),
        .execs = live_of(DBL_EXEC),
        .comms = live_of(DBL_COMM),
        .device_bytes = taken,
    };
}

void dbl_count_leaks(void)
{
    for (int t = 0; t < DBL_THINGS; t++)
        if (live_of((dbl_thing)t) != 0)
            dbl_complain("leak: %d %s(s)", live_of((dbl_thing)t), names[t]);
}

void dbl_bury(void *memory)
{
    pthread_mutex_lock(&lock);
    if (grave_count == grave_room) {
        grave_room = grave_room ? 2 * grave_room : 64;
        graves = realloc(graves, grave_room * sizeof *graves);
    }
    graves[grave_count++] = memory;
    pthread_mutex_unlock(&lock);
}

void dbl_empty_graves(void)
{
    for (size_t i = 0; i < grave_count; i++)
        free(graves[i]);
    free(graves);
    graves = NULL;
    grave_count = grave_room = 0;
}
