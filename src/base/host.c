/* SPDX-License-Identifier: MIT */
#include "base/host.h"

#include "base/error.h"
#include "base/utf8.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define LEAST_STACK ((size_t)1 << 20) /* smallest stack size of a thread in bytes */

static size_t rounded_up(size_t bytes)
{
    return bytes == 0 ? LS_ALIGN : (bytes + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
}

void *ls_alloc_unset(const ls_host *host, size_t bytes)
{
    if (bytes > SIZE_MAX - LS_ALIGN)
        return NULL;
    const size_t n = rounded_up(bytes);
    return host && host->alloc ? host->alloc(host->user, n, LS_ALIGN) : aligned_alloc(LS_ALIGN, n);
}

void *ls_alloc(const ls_host *host, size_t bytes)
{
    void *memory = ls_alloc_unset(host, bytes);
    if (memory)
        memset(memory, 0, rounded_up(bytes));
    return memory;
}

void *ls_alloc_array(const ls_host *host, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    return ls_alloc(host, count * size);
}

void *ls_grown(const ls_host *host, void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    const size_t more = *room ? 2 * *room : 64;
    void *longer = ls_alloc_array(host, more, size);
    if (!longer)
        return NULL;
    if (count > 0)
        memcpy(longer, list, count * size);
    ls_free(host, list);
    *room = more;
    return longer;
}

char *ls_strdup(const ls_host *host, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = ls_alloc(host, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

const char *ls_path_join(char out[LS_PATH_BYTES], const char *folder, const char *name)
{
    snprintf(out, LS_PATH_BYTES, "%s/%s", folder, name);
    return out;
}

bool ls_path_ends_with(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

int ls_path_copy(char **out, const char *path, const ls_host *host, ls_error *err)
{
    *out = ls_strdup(host, path);
    return *out ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a path");
}

void ls_free(const ls_host *host, void *memory)
{
    if (!memory)
        return;
    if (host && host->alloc)
        host->free(host->user, memory);
    else
        free(memory);
}

void ls_log(const ls_host *host, ls_log_level level, const char *format, ...)
{
    if (!host || !host->log)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ls_utf8_tidy(text);
    host->log(host->user, level, text);
}

int ls_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t blocked, before;
    pthread_attr_t attr;
    size_t stack;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    if (pthread_attr_getstacksize(&attr, &stack) == 0 && stack < LEAST_STACK)
        pthread_attr_setstacksize(&attr, LEAST_STACK);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        sigdelset(&blocked, kept[i]);
    /* A thread inherits the signal mask of its creator, so the mask of the calling thread is
     * changed while it creates the thread. */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    error = pthread_create(out, &attr, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

/* Appends the limit to the text, if it is set: "ulimit -v is 20480 KiB, ". */
static void add_limit(char out[LS_THREAD_REASON], int resource, const char *option, rlim_t unit,
                      const char *of)
{
    struct rlimit limit;
    const size_t used = strlen(out);
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(out + used, LS_THREAD_REASON - used, "ulimit %s is %llu %s, ", option,
                 (unsigned long long)(limit.rlim_cur / unit), of);
}

static void add_memory_limits(char out[LS_THREAD_REASON])
{
    add_limit(out, RLIMIT_AS, "-v", 1024, "KiB");
    add_limit(out, RLIMIT_DATA, "-d", 1024, "KiB");
}

const char *ls_memory_limits(char out[LS_MEMORY_LIMITS])
{
    out[0] = '\0';
    add_memory_limits(out);
    if (out[0])
        out[strlen(out) - strlen(", ")] = '\0';
    return out;
}

const char *ls_thread_reason(char out[LS_THREAD_REASON], int error)
{
    char why[LS_REASON];
    snprintf(out, LS_THREAD_REASON, "%s", ls_reason(why, error));
    if (error != EAGAIN && error != ENOMEM)
        return out;
    strcat(out, "; one of these limits is too low: ");
    add_limit(out, RLIMIT_NPROC, "-u", 1, "threads of this user");
    add_memory_limits(out);
    strcat(out, "pids.max of the cgroup, or memory");
    return out;
}
