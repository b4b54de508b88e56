/* SPDX-License-Identifier: MIT */
/* Tests which CPUs the pool may use, according to CPU sets and quotas, and how they are divided
 * among the workers. The machines are simulated by small files in place of /sys and /proc. */
#include "pool/pool.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A directory for each test, in place of the root directory; the tests write files there with
 * put(). */
static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/lockstep_topology_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void assert_quota(double expected)
{
    double q = ls_cgroup_quota(root);
    assert_true(q > expected - 1e-9 && q < expected + 1e-9);
}

static void no_cgroup_means_no_quota(void **state)
{
    (void)state;
    assert_quota(0);
}

static void v2_quota_of_the_own_group_is_read(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/app\n");
    put("/sys/fs/cgroup/app/cpu.max", "150000 100000\n");
    assert_quota(1.5);
}

static void v2_enclosing_groups_count_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/slice/app/unit\n");
    put("/sys/fs/cgroup/slice/app/unit/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/slice/app/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
    assert_quota(3);
}

static void v2_container_sees_its_quota_at_the_top(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/../../host/name/not/visible\n");
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_quota(0.5);
}

static void v1_quota_is_read_and_minus_one_is_none(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/docker/x\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
    assert_quota(0);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_quota(2.5);
}

static void damaged_files_count_as_no_quota(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "nonsense\n0:\n\n0::/app\n");
    put("/sys/fs/cgroup/app/cpu.max", "\n");
    assert_quota(0);
    put("/sys/fs/cgroup/app/cpu.max", "100000 0\n");
    assert_quota(0);
    put("/sys/fs/cgroup/app/cpu.max", "100000\n");
    assert_quota(0);
}

static void quota_is_rounded_up_and_at_least_one(void **state)
{
    (void)state;
    assert_int_equal(ls_usable_cpus(8, 0), 8);
    assert_int_equal(ls_usable_cpus(8, 1.5), 2);
    assert_int_equal(ls_usable_cpus(8, 2.0), 2);
    assert_int_equal(ls_usable_cpus(8, 0.1), 1);
    assert_int_equal(ls_usable_cpus(8, 100), 8);
    assert_int_equal(ls_usable_cpus(0, 0), 1);
}

static void allowed_set_is_this_threads_mask(void **state)
{
    (void)state;
    ls_cpus all, again;
    assert_int_equal(ls_cpus_allowed(&all, "", NULL), LS_OK);
    assert_true(all.count >= 1);
    ls_cpus one = {.count = 1, .id = {all.id[all.count - 1]}};
    assert_int_equal(ls_pin_thread(&one, NULL), LS_OK);
    assert_int_equal(ls_cpus_allowed(&again, "", NULL), LS_OK);
    assert_int_equal(again.count, 1);
    assert_int_equal(again.id[0], one.id[0]);
    assert_int_equal(ls_pin_thread(&all, NULL), LS_OK);
}

static void a_thread_leaves_a_cpu_and_may_come_back(void **state)
{
    (void)state;
    static ls_cpus before, after;
    assert_int_equal(ls_cpus_allowed(&before, "", NULL), LS_OK);
    if (before.count < 2)
        skip();
    int left = 0;
    for (int i = 0; i < 50; i++) { /* several tries, because the kernel can move the thread back at
                                    * once */
        int cpu = ls_this_cpu();
        ls_leave_cpu(cpu);
        left += ls_this_cpu() != cpu;
    }
    assert_true(left > 0);
    assert_int_equal(ls_cpus_allowed(&after, "", NULL), LS_OK);
    assert_memory_equal(&before, &after, sizeof before);
}

static void a_thread_with_one_cpu_stays(void **state)
{
    (void)state;
    static ls_cpus before, one, after;
    assert_int_equal(ls_cpus_allowed(&before, "", NULL), LS_OK);
    one.count = 1;
    one.id[0] = before.id[0];
    assert_int_equal(ls_pin_thread(&one, NULL), LS_OK);
    ls_leave_cpu(one.id[0]);
    assert_int_equal(ls_cpus_allowed(&after, "", NULL), LS_OK);
    assert_int_equal(ls_pin_thread(&before, NULL), LS_OK);
    assert_int_equal(after.count, 1);
    assert_int_equal(after.id[0], one.id[0]);
}

/* Lists the CPUs 0 … n − 1 in the order of their cores. Core i has the CPUs i and i + n/2. */
static void paired(ls_cpus *all, ls_cpus *core, int n)
{
    all->count = core->count = n;
    for (int i = 0; i < n; i++) {
        core->id[i] = (unsigned short)(i / 2);
        all->id[i] = (unsigned short)(i / 2 + i % 2 * (n / 2));
    }
}

static void cores_are_read_from_the_system(void **state)
{
    (void)state;
    ls_cpus cpus = {.count = 4, .id = {0, 1, 2, 3}}, core;
    put("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n");
    put("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n");
    put("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n");
    ls_cpus_cores(&core, &cpus, root);
    assert_int_equal(core.id[0], 0);
    assert_int_equal(core.id[1], 1);
    assert_int_equal(core.id[2], 0);
    assert_int_equal(core.id[3], 3);
}

static void parts_are_disjoint_equal_and_use_all(void **state)
{
    (void)state;
    ls_cpus all, core, part;
    for (int n = 1; n <= 16; n++) {
        int times[16] = {0}, total = 0;
        paired(&all, &core, 16);
        for (int w = 0; w < n; w++) {
            int count = ls_cpus_split(&part, &all, &core, n, w, 0);
            assert_in_range(count, 16 / n, 16 / n + 1);
            total += count;
            for (int i = 0; i < count; i++)
                times[part.id[i]]++;
        }
        assert_int_equal(total, 16);
        for (int i = 0; i < 16; i++)
            assert_int_equal(times[i], 1);
    }
}

static void whole_cores_stay_together(void **state)
{
    (void)state;
    ls_cpus all, core, part;
    paired(&all, &core, 8);
    assert_int_equal(ls_cpus_split(&part, &all, &core, 2, 1, 0), 4);
    const unsigned short expected[] = {2, 6, 3, 7};
    assert_memory_equal(part.id, expected, sizeof expected);
}

static void few_cpus_are_taken_from_different_cores(void **state)
{
    (void)state;
    ls_cpus all, core, part;
    paired(&all, &core, 8);
    assert_int_equal(ls_cpus_split(&part, &all, &core, 2, 1, 1), 1);
    assert_int_equal(part.id[0], 2);
    assert_int_equal(ls_cpus_split(&part, &all, &core, 2, 1, 3), 3);
    const unsigned short expected[] = {2, 3, 6};
    assert_memory_equal(part.id, expected, sizeof expected);
}

static void a_set_that_does_not_suffice_gives_nothing(void **state)
{
    (void)state;
    ls_cpus all, core, part;
    paired(&all, &core, 8);
    assert_int_equal(ls_cpus_split(&part, &all, &core, 9, 0, 0), 0);
    assert_int_equal(ls_cpus_split(&part, &all, &core, 4, 0, 3), 0);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

LS_TESTS(pool_topology, "unit")
{
    const struct CMUnitTest tests[] = {
        WITH_ROOT(no_cgroup_means_no_quota),
        WITH_ROOT(v2_quota_of_the_own_group_is_read),
        WITH_ROOT(v2_enclosing_groups_count_too),
        WITH_ROOT(v2_container_sees_its_quota_at_the_top),
        WITH_ROOT(v1_quota_is_read_and_minus_one_is_none),
        WITH_ROOT(damaged_files_count_as_no_quota),
        cmocka_unit_test(quota_is_rounded_up_and_at_least_one),
        cmocka_unit_test(allowed_set_is_this_threads_mask),
        cmocka_unit_test(a_thread_leaves_a_cpu_and_may_come_back),
        cmocka_unit_test(a_thread_with_one_cpu_stays),
        WITH_ROOT(cores_are_read_from_the_system),
        cmocka_unit_test(parts_are_disjoint_equal_and_use_all),
        cmocka_unit_test(whole_cores_stay_together),
        cmocka_unit_test(few_cpus_are_taken_from_different_cores),
        cmocka_unit_test(a_set_that_does_not_suffice_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
