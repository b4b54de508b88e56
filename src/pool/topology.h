/* Which CPUs this process may use, and who gets which of them.
 *
 * The file system's root is a parameter wherever files are read, so that tests can show a machine
 * of their own; all other callers pass "". All functions may be called from any thread.
 */
#ifndef POOL_TOPOLOGY_H
#define POOL_TOPOLOGY_H

#include <lockstep/status.h>

#define LS_CPUS_MAX 4096

/* A list of CPU numbers as the kernel counts them. */
typedef struct ls_cpus {
    int count;
    unsigned short id[LS_CPUS_MAX];
} ls_cpus;

/* The calling thread's affinity mask, core by core: hardware threads of one core are neighbours in
 * the list (read from /sys; in ascending order where that cannot be read).
 * Errors: LS_ESYSTEM. */
int ls_cpus_allowed(ls_cpus *out, const char *root, ls_error *err);

/* The smallest CPU quota, in CPUs (1.5: one and a half), of the cgroups this process is in, theirs
 * included that enclose them; 0 when there is none. Reads cgroup v2 and v1 files under `root` in
 * their usual places (/sys/fs/cgroup); what cannot be read counts as "no quota". */
double ls_cgroup_quota(const char *root);

/* How many threads can really run at once: `mask` CPUs cut down by `quota`, rounded up; ≥ 1. */
int ls_usable_cpus(int mask, double quota);

/* Worker w of n gets a part of `all` that no other worker gets: an equal share, or, where `want` is
 * not 0, `want` CPUs of its share, on as many different cores as possible (`core` as from
 * ls_cpus_cores). Returns 0 and an empty part when `all` does not suffice for n workers. */
int ls_cpus_split(ls_cpus *part, const ls_cpus *all, const ls_cpus *core, int n, int w, int want);

/* For each CPU of `cpus` the number of the core it belongs to: the lowest CPU of that core. */
void ls_cpus_cores(ls_cpus *core, const ls_cpus *cpus, const char *root);

/* Confines the calling thread to `cpus`. Errors: LS_ESYSTEM. */
int ls_pin_thread(const ls_cpus *cpus, ls_error *err);

/* The CPU that the calling thread was on a moment ago. */
int ls_this_cpu(void);

/* Moves the calling thread from `cpu` to another of those it may use, if there is one; it may use
 * the same ones afterwards. */
void ls_leave_cpu(int cpu);

/* Names the calling thread; the kernel keeps 15 bytes. */
void ls_name_thread(const char *name);

#endif
