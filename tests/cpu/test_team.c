/* SPDX-License-Identifier: MIT */
/* Tests the team of threads with which a CPU worker computes an op. Each item of a job is run
 * exactly once, its writes are visible to the threads that read them, and no item remains. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_team.h"
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 1000 };

/* ---- replaced functions ---------------------------------------------------------------------- */

static int threads_to_give = -1; /* number of threads that the system still grants; −1: all */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    if (threads_to_give == 0)
        return EAGAIN;
    threads_to_give -= threads_to_give > 0;
    return __real_pthread_create(t, attr, run, arg);
}

static atomic_long blocks;

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    atomic_fetch_add(&blocks, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counted_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static ls_team *team_of(int threads)
{
    ls_team *team;
    ls_error err;
    if (ls_team_create(&team, threads, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(ls_team_size(team), threads);
    return team;
}

static int count_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *e; (e = readdir(tasks));)
        n += e->d_name[0] != '.';
    closedir(tasks);
    return n;
}

/* Waits until the process has `expected` threads. The kernel removes an ended thread from the
 * directory a moment after it has been joined. */
static void expect_threads(int expected)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 10000 && count_threads() != expected; i++)
        nanosleep(&moment, NULL);
    assert_int_equal(count_threads(), expected);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef struct sums {
    long in[MOST], out[MOST];
    int calls[MOST];
    uint32_t salt;
} sums;

static void add_salt(void *arg, uint32_t i)
{
    sums *s = arg;
    s->out[i] = s->in[i] + s->salt;
    s->calls[i]++;
}

static void check_one(ls_team *team, sums *s, uint32_t items, uint32_t salt)
{
    memset(s->calls, 0, sizeof s->calls);
    s->salt = salt;
    for (uint32_t i = 0; i < MOST; i++)
        s->in[i] = (long)i * salt;
    ls_team_run(team, items, add_salt, s);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(s->calls[i], i < items);
        if (i < items)
            assert_int_equal(s->out[i], (long)i * salt + salt);
    }
}

static void every_item_is_computed_once(void **state)
{
    static sums s;
    static const uint32_t items[] = {0, 1, 2, 3, 7, 64, 999, 1000};
    (void)state;
    for (int threads = 1; threads <= 9; threads++) {
        ls_team *team = team_of(threads);
        for (size_t i = 0; i < sizeof items / sizeof *items; i++)
            check_one(team, &s, items[i], (uint32_t)(threads * 100 + (int)i));
        ls_team_destroy(team);
    }
    check_one(NULL, &s, 5, 77);
    assert_int_equal(ls_team_size(NULL), 1);
}

/* Runs jobs of all lengths, one directly after another, and again with a pause before each in which
 * the helpers park. */
static void jobs_follow_one_another_without_a_word_lost(void **state)
{
    static sums s;
    const struct timespec rest = {.tv_nsec = 300000};
    uint32_t random = 1;
    (void)state;
    ls_team *team = team_of(3);
    for (uint32_t round = 0; round < 5000; round++) {
        random = random * 1664525 + 1013904223;
        if (random >> 26 == 0)
            nanosleep(&rest, NULL);
        check_one(team, &s, (random >> 10) % 20, round);
    }
    ls_team_destroy(team);
}

/* ---- parts ----------------------------------------------------------------------------------- */

typedef struct slots {
    sums sums;
    uint32_t threads;
    atomic_int busy[9]; /* [slot], 1 while a part is computed in the slot */
    long memory[9];     /* [slot], working memory without synchronisation of its own */
} slots;

static void add_salt_in_slot(void *arg, uint32_t slot, uint32_t part)
{
    slots *s = arg;
    assert_true(slot < s->threads);
    assert_int_equal(atomic_exchange(&s->busy[slot], 1), 0);
    s->memory[slot] = s->sums.in[part];
    add_salt(&s->sums, part);
    s->sums.out[part] += s->memory[slot] - s->sums.in[part];
    atomic_store(&s->busy[slot], 0);
}

static void check_parts(ls_team *team, slots *s, uint32_t parts, uint32_t salt)
{
    memset(s->sums.calls, 0, sizeof s->sums.calls);
    s->sums.salt = salt;
    for (uint32_t i = 0; i < MOST; i++)
        s->sums.in[i] = (long)i * salt;
    ls_team_run_parts(team, parts, add_salt_in_slot, s);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(s->sums.calls[i], i < parts);
        if (i < parts)
            assert_int_equal(s->sums.out[i], (long)i * salt + salt);
    }
}

static void every_part_is_computed_once_and_alone_in_its_slot(void **state)
{
    static slots s;
    static const uint32_t parts[] = {0, 1, 2, 3, 7, 64, 1000};
    (void)state;
    for (int threads = 1; threads <= 9; threads++) {
        ls_team *team = team_of(threads);
        s.threads = (uint32_t)threads;
        for (uint32_t round = 0; round < 20; round++)
            for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                check_parts(team, &s, parts[i], round + (uint32_t)i);
        ls_team_destroy(team);
    }
    s.threads = 1;
    check_parts(NULL, &s, 5, 77);
}

static void jobs_and_their_items_are_counted(void **state)
{
    static slots s;
    (void)state;
    ls_team *team = team_of(3);
    assert_int_equal(ls_team_counted(NULL).jobs, 0);
    s.threads = 3;
    check_one(team, &s.sums, 1, 1); /* by the caller alone */
    check_parts(team, &s, 1, 1);
    assert_int_equal(ls_team_counted(team).jobs, 0);
    check_one(team, &s.sums, 10, 1);
    check_parts(team, &s, 2, 1);
    check_parts(team, &s, 100, 1);
    assert_int_equal(ls_team_counted(team).jobs, 3);
    assert_int_equal(ls_team_counted(team).items, 112);
    ls_team_destroy(team);
}

static void items_are_cut_until_each_thread_has_two_pieces(void **state)
{
    (void)state;
    assert_int_equal(ls_team_cuts(NULL, 1, 100), 1);
    ls_team *team = team_of(4);
    assert_int_equal(ls_team_cuts(team, 1, 100), 8);
    assert_int_equal(ls_team_cuts(team, 1, 3), 3);
    assert_int_equal(ls_team_cuts(team, 3, 100), 3);
    assert_int_equal(ls_team_cuts(team, 8, 100), 1);
    assert_int_equal(ls_team_cuts(team, 100, 100), 1);
    ls_team_destroy(team);
}

typedef struct meeting {
    pthread_t here[2];
    sigset_t mask[2];
    atomic_int arrived;
} meeting;

/* Returns when two threads have called it. */
static void meet(void *arg, uint32_t i)
{
    meeting *m = arg;
    m->here[i] = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &m->mask[i]);
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < 2)
        sched_yield();
}

static void items_run_at_the_same_time_and_helpers_take_no_signals(void **state)
{
    meeting m = {.arrived = 0};
    (void)state;
    ls_team *team = team_of(2);
    ls_team_run(team, 2, meet, &m);
    const int helper = pthread_equal(m.here[0], pthread_self()) ? 1 : 0;
    assert_true(pthread_equal(m.here[!helper], pthread_self()));
    assert_false(pthread_equal(m.here[helper], pthread_self()));
    assert_true(sigismember(&m.mask[helper], SIGINT));
    assert_true(sigismember(&m.mask[helper], SIGUSR1));
    assert_false(sigismember(&m.mask[helper], SIGSEGV));
    assert_false(sigismember(&m.mask[!helper], SIGINT));
    ls_team_destroy(team);
}

static void a_run_allocates_nothing_and_destroy_leaves_no_thread(void **state)
{
    static sums s;
    const ls_host host = {.alloc = counted_alloc, .free = counted_free};
    const int before = count_threads();
    ls_team *team;
    (void)state;
    assert_int_equal(ls_team_create(&team, 4, &host, NULL), LS_OK);
    assert_int_equal(count_threads(), before + 3);
    const long made = atomic_load(&blocks);
    assert_true(made > 0);
    for (uint32_t i = 0; i < 100; i++)
        check_one(team, &s, 50, i);
    assert_int_equal(atomic_load(&blocks), made);
    ls_team_destroy(team);
    expect_threads(before);
}

static void a_thread_that_is_refused_is_named_and_the_others_are_ended(void **state)
{
    const int before = count_threads();
    ls_team *team;
    ls_error err;
    (void)state;
    threads_to_give = 2;
    assert_int_equal(ls_team_create(&team, 6, NULL, &err), LS_ESYSTEM);
    threads_to_give = -1;
    assert_null(team);
    /* the limits that are named in between are those of the machine */
    assert_non_null(strstr(err.text, "the system refused thread 4 of a team of 6: Resource "
                                     "temporarily unavailable; "));
    assert_non_null(strstr(err.text, "; raise the limit, or ask for fewer threads"));
    expect_threads(before);
    assert_int_equal(ls_team_create(&team, 0, NULL, &err), LS_EINVAL);
    assert_string_equal(err.text, "a team of 0 threads: expected 1 to 1024");
}

static void the_child_of_a_fork_works_alone(void **state)
{
    static sums s;
    int how;
    (void)state;
    ls_team *team = team_of(3);
    check_one(team, &s, 40, 1);
    const pid_t child = fork();
    if (child == 0) {
        memset(s.out, 0, sizeof s.out);
        ls_team_run(team, 40, add_salt, &s);
        ls_team_destroy(team);
        _exit(s.out[39] == 40 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    check_one(team, &s, 40, 2);
    ls_team_destroy(team);
}

LS_TESTS(cpu_team, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_computed_once),
        cmocka_unit_test(jobs_follow_one_another_without_a_word_lost),
        cmocka_unit_test(every_part_is_computed_once_and_alone_in_its_slot),
        cmocka_unit_test(jobs_and_their_items_are_counted),
        cmocka_unit_test(items_are_cut_until_each_thread_has_two_pieces),
        cmocka_unit_test(items_run_at_the_same_time_and_helpers_take_no_signals),
        cmocka_unit_test(a_run_allocates_nothing_and_destroy_leaves_no_thread),
        cmocka_unit_test(a_thread_that_is_refused_is_named_and_the_others_are_ended),
        cmocka_unit_test(the_child_of_a_fork_works_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
