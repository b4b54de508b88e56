/* SPDX-License-Identifier: MIT */
/* Limits the total size of the packed files in the cache. */
#include "data/folder.h"

#include "base/error.h"
#include "base/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 1024 /* largest number of packed files that are considered */, NAME = 96 };

/* A packed file and the time of its last use. */
typedef struct cached {
    char name[NAME];
    uint64_t bytes;
    struct timespec used;
} cached;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const cached *)a)->used, *y = &((const cached *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static bool is_packed(const char *name)
{
    static const char begin[] = "data-", end[] = ".safetensors";
    const size_t n = strlen(name);
    return n > sizeof begin + sizeof end && n < NAME &&
           strncmp(name, begin, sizeof begin - 1) == 0 &&
           strcmp(name + n - (sizeof end - 1), end) == 0;
}

static size_t list_cached(cached *file, DIR *d, uint64_t *sum)
{
    const struct dirent *e;
    struct stat st;
    size_t n = 0;
    while (n < FILES && (e = readdir(d))) {
        if (!is_packed(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        file[n] = (cached){.bytes = (uint64_t)st.st_size, .used = st.st_mtim};
        snprintf(file[n].name, NAME, "%.95s", e->d_name);
        *sum += file[n++].bytes;
    }
    return n;
}

static void report_removal(const ls_folder_watch *watch, const ls_host *host, const char *what)
{
    if (watch && watch->removed)
        watch->removed(watch->user, what);
    else
        ls_log(host, LS_LOG_INFO, "%s", what);
}

/* Removes a packed file from the directory `cache`, which is open as `folder`. Writes a sentence
 * about it to `what`, or "" if it could not be removed. */
static void drop(char what[600], const char *cache, const cached *file, int folder, uint64_t most)
{
    char day[32] = "";
    struct tm when;
    what[0] = '\0';
    if (gmtime_r(&file->used.tv_sec, &when))
        strftime(day, sizeof day, "%Y-%m-%d", &when);
    if (unlinkat(folder, file->name, 0) == 0)
        snprintf(what, 600,
                 "the cache %.300s keeps %.1f GiB of packed images (LOCKSTEP_CACHE_GIB): %s, %.1f "
                 "GiB, used on %s, was removed",
                 cache, (double)most * 0x1p-30, file->name, (double)file->bytes * 0x1p-30, day);
}

void ls_folder_cache_bound(const char *cache, const char *name, uint64_t most,
                           const ls_folder_watch *watch, const ls_host *host)
{
    char what[600];
    uint64_t sum = 0;
    cached *file = ls_alloc_array(host, FILES, sizeof *file);
    DIR *d = file ? opendir(cache) : NULL;
    if (d) {
        utimensat(dirfd(d), name, NULL, 0);
        const size_t n = list_cached(file, d, &sum);
        qsort(file, n, sizeof *file, by_use);
        for (size_t i = 0; i < n && sum > most; i++)
            if (strcmp(file[i].name, name) != 0) {
                drop(what, cache, &file[i], dirfd(d), most);
                if (what[0])
                    report_removal(watch, host, what);
                sum -= file[i].bytes;
            }
        closedir(d);
    }
    ls_free(host, file);
}
