/* SPDX-License-Identifier: MIT */
/* Finds the CPUs that this process may use, and assigns them to workers.
 *
 * Parameters called `root` are a prefix of the paths under /sys and /proc. The library passes "";
 * tests pass a directory that simulates another machine. In this directory only this file and
 * guard.c define _GNU_SOURCE. */
#define _GNU_SOURCE /* for affinity and thread names */
#include "pool/pool.h"

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024 /* size of a buffer for a path in bytes */

/* Reads the first line of the file `path`, without its newline. Returns false on failure. */
static bool read_line(char *line, int size, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(line, size, file) != NULL;
    fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* Returns the lowest CPU of the core that `cpu` belongs to, or `cpu` itself if the system does not
 * report it. */
static int core_of(int cpu, const char *root)
{
    char path[PATH_BYTES], line[256];
    int n = snprintf(path, sizeof path,
                     "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    if (n < 0 || n >= (int)sizeof path || !read_line(line, sizeof line, path))
        return cpu;
    char *end;
    long first = strtol(line, &end, 10); /* the list is ascending: "3,35" or "6-7" */
    return end == line || first < 0 || first >= LS_CPUS_MAX ? cpu : (int)first;
}

void ls_cpus_cores(ls_cpus *core, const ls_cpus *cpus, const char *root)
{
    core->count = cpus->count;
    for (int i = 0; i < cpus->count; i++)
        core->id[i] = (unsigned short)core_of(cpus->id[i], root);
}

/* Sorts the list by (core, CPU), so that CPUs of one core are adjacent. The insertion sort is
 * stable, so the CPUs of a core stay in ascending order. It is fast here because the list is nearly
 * sorted. */
static void sort_by_core(ls_cpus *cpus, const char *root)
{
    ls_cpus core;
    ls_cpus_cores(&core, cpus, root);
    for (int i = 1; i < cpus->count; i++) {
        unsigned short id = cpus->id[i], c = core.id[i];
        int j = i;
        for (; j > 0 && core.id[j - 1] > c; j--) {
            core.id[j] = core.id[j - 1];
            cpus->id[j] = cpus->id[j - 1];
        }
        core.id[j] = c;
        cpus->id[j] = id;
    }
}

/* An affinity mask for LS_CPUS_MAX CPUs; a single cpu_set_t has bits for only 1,024. */
typedef struct wide_set {
    cpu_set_t part[LS_CPUS_MAX / CPU_SETSIZE];
} wide_set;

int ls_cpus_allowed(ls_cpus *out, const char *root, ls_error *err)
{
    wide_set set;
    char why[LS_REASON];
    memset(&set, 0, sizeof set);
    if (sched_getaffinity(0, sizeof set, set.part) != 0)
        return ls_fail(err, LS_ESYSTEM, "cannot read the CPU affinity mask: %s",
                       ls_reason(why, errno));
    out->count = 0;
    for (int cpu = 0; cpu < LS_CPUS_MAX; cpu++)
        if (CPU_ISSET_S((size_t)cpu, sizeof set, set.part))
            out->id[out->count++] = (unsigned short)cpu;
    sort_by_core(out, root);
    return LS_OK;
}

int ls_usable_cpus(int allowed, double quota)
{
    int n = allowed;
    if (quota > 0 && quota < allowed) {
        n = (int)quota;
        if (n < quota)
            n++;
    }
    return n < 1 ? 1 : n;
}

/* Returns the quota in CPUs, quota / period, from the texts of these two numbers in microseconds; 0
 * if there is no quota. For "no quota" cgroup v2 writes "max", and v1 a negative number. */
static double quota_of(const char *quota, const char *period)
{
    double q = strtod(quota, NULL);
    double p = strtod(period, NULL);
    return q > 0 && p > 0 ? q / p : 0;
}

/* Returns the smaller of two quotas, where 0 means no quota. */
static double smaller(double a, double b)
{
    return a > 0 && (a < b || b == 0) ? a : b;
}

/* Returns the quota of the cgroup (v2 or v1) whose directory is `dir`, or 0 if the cgroup has no
 * quota. */
static double cgroup_quota(const char *dir)
{
    char path[PATH_BYTES + 32], quota[128], period[128];
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_line(quota, sizeof quota, path)) {
        char *space = strchr(quota, ' ');
        return space ? quota_of(quota, space + 1) : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(quota, sizeof quota, path))
        return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    return read_line(period, sizeof period, path) ? quota_of(quota, period) : 0;
}

/* Returns the smallest quota of all cgroups from the directory mount/cgroup up to the directory
 * `mount` itself. Inside a container the directory of `cgroup` often does not exist; the directory
 * `mount` then describes the container's own cgroup. */
static double smallest_quota(const char *root, const char *mount, const char *cgroup)
{
    char dir[PATH_BYTES];
    int top = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s", root, mount);
    int n = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s%s", root, mount, cgroup);
    if (top < 0 || n < top || n >= (int)sizeof dir)
        return 0;
    double smallest = 0;
    for (;;) {
        smallest = smaller(smallest, cgroup_quota(dir));
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + top)
            return smallest;
        *slash = '\0';
    }
}

/* Returns whether the comma-separated list `names` of `length` bytes contains "cpu". */
static bool has_cpu(const char *names, size_t length)
{
    while (length > 0) {
        const char *comma = memchr(names, ',', length);
        size_t n = comma ? (size_t)(comma - names) : length;
        if (n == 3 && memcmp(names, "cpu", 3) == 0)
            return true;
        if (!comma)
            return false;
        names += n + 1;
        length -= n + 1;
    }
    return false;
}

/* Returns the smallest quota for one line of /proc/self/cgroup, "number:controllers:/cgroup". */
static double line_quota(const char *root, char *line)
{
    static const char *const v2[] = {"", "/unified", NULL};
    static const char *const v1[] = {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu", NULL};
    line[strcspn(line, "\n")] = '\0';
    char *names = strchr(line, ':');
    char *cgroup = names ? strchr(names + 1, ':') : NULL;
    if (!cgroup)
        return 0;
    names++;
    bool is_v2 = cgroup == names;
    if (!is_v2 && !has_cpu(names, (size_t)(cgroup - names)))
        return 0;
    double smallest = 0;
    for (const char *const *mount = is_v2 ? v2 : v1; *mount; mount++) {
        smallest = smaller(smallest, smallest_quota(root, *mount, cgroup + 1));
    }
    return smallest;
}

double ls_cgroup_quota(const char *root)
{
    char line[PATH_BYTES];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    if (!file)
        return 0;
    double smallest = 0;
    while (fgets(line, sizeof line, file)) {
        smallest = smaller(smallest, line_quota(root, line));
    }
    fclose(file);
    return smallest;
}

/* Reduces `part`, the CPUs of one worker, to `want` CPUs: first takes one CPU of each core, then
 * further CPUs of the same cores. core[i] is the core of CPU i of the part. */
static void trim(ls_cpus *part, const unsigned short *core, int want)
{
    bool taken[LS_CPUS_MAX] = {false};
    ls_cpus kept = {.count = 0};
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < part->count && kept.count < want; i++) {
            bool first = i == 0 || core[i] != core[i - 1];
            if (taken[i] || (pass == 0 && !first))
                continue;
            taken[i] = true;
            kept.id[kept.count++] = part->id[i];
        }
    *part = kept;
}

int ls_cpus_split(ls_cpus *part, const ls_cpus *all, const ls_cpus *core, int n, int w, int want)
{
    part->count = 0;
    int share = all->count / n, rest = all->count % n;
    if (share < 1 || want > share)
        return 0;
    /* The first `rest` workers get one CPU more, as in ls_split (<lockstep/split.h>). ls_split is
     * not called here, because the pool can be linked as a separate library, which does not contain
     * ls_split. */
    int begin = w * share + (w < rest ? w : rest);
    part->count = share + (w < rest);
    memcpy(part->id, all->id + begin, (size_t)part->count * sizeof part->id[0]);
    if (want > 0)
        trim(part, core->id + begin, want);
    return part->count;
}

int ls_pin_thread(const ls_cpus *cpus, ls_error *err)
{
    wide_set set;
    char why[LS_REASON];
    memset(&set, 0, sizeof set);
    for (int i = 0; i < cpus->count; i++)
        CPU_SET_S(cpus->id[i], sizeof set, set.part);
    int error = pthread_setaffinity_np(pthread_self(), sizeof set, set.part);
    return error ? ls_fail(err, LS_ESYSTEM, "cannot pin a thread to its CPUs: %s",
                           ls_reason(why, error))
                 : LS_OK;
}

int ls_this_cpu(void)
{
    return sched_getcpu();
}

void ls_leave_cpu(int cpu)
{
    wide_set all, rest;
    memset(&all, 0, sizeof all);
    if (cpu < 0 || sched_getaffinity(0, sizeof all, all.part) != 0)
        return;
    rest = all;
    CPU_CLR_S((size_t)cpu, sizeof rest, rest.part);
    /* The first call moves the thread; it fails if the mask has no other CPU. The second call
     * restores the mask; it does not move the thread back. */
    if (sched_setaffinity(0, sizeof rest, rest.part) == 0)
        (void)sched_setaffinity(0, sizeof all, all.part);
}

void ls_name_thread(const char *name)
{
    char cut[16];
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(pthread_self(), cut);
}
