/* SPDX-License-Identifier: MIT */
/* Tests the worker pool through its public header. Properties of threads are read from /proc. */
#include <lockstep/pool.h>

#include "pool/pool.h"
#include "runner.h"
#include "times.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define WORKERS 4

static ls_pool *new_pool(ls_pool_options o)
{
    ls_pool *pool;
    ls_error err;
    o.size = sizeof o;
    if (o.workers == 0)
        o.workers = WORKERS;
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_OK);
    return pool;
}

/* Data of jobs. It is plain memory, because the pool makes the jobs' writes visible to the
 * owner. */
struct log {
    int count;
    int seen[64];
};

struct entry {
    struct log *log;
    int value;
};

static int append(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    struct entry *e = arg;
    e->log->seen[e->log->count++] = e->value;
    return LS_OK;
}

static int count_by_index(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ((int *)arg)[w->index] += w->workers;
    return LS_OK;
}

struct gate {
    _Atomic int entered; /* number of jobs that have begun */
    _Atomic int open;
};

/* Job that counts itself as begun, and ends when the gate opens. */
static int hold(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    struct gate *gate = arg;
    atomic_fetch_add(&gate->entered, 1);
    while (!atomic_load(&gate->open))
        nap(1);
    return LS_OK;
}

static void wait_for_entries(struct gate *gate, int jobs)
{
    while (atomic_load(&gate->entered) < jobs)
        nap(1);
}

static int fail_on_two(const ls_worker *w, void *arg, ls_error *err)
{
    if (w->index != 2)
        return LS_OK;
    if (err && arg)
        snprintf(err->text, sizeof err->text, "row %d is bad", *(int *)arg);
    return LS_EDATA;
}

static void jobs_of_a_worker_run_in_order(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    struct log logs[WORKERS] = {0};
    struct entry e[WORKERS][60];
    for (int i = 0; i < 60; i++)
        for (int w = 0; w < WORKERS; w++) {
            e[w][i] = (struct entry){&logs[w], i};
            assert_int_equal(ls_pool_submit(pool, w, append, &e[w][i], NULL), LS_OK);
        }
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
    for (int w = 0; w < WORKERS; w++) {
        assert_int_equal(logs[w].count, 60);
        for (int i = 0; i < 60; i++)
            assert_int_equal(logs[w].seen[i], i);
    }
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void a_gang_runs_once_on_every_worker(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 8; workers++) {
        ls_pool *pool = new_pool((ls_pool_options){.workers = workers});
        int counts[8] = {0};
        assert_int_equal(ls_pool_size(pool), workers);
        for (int round = 1; round <= 500; round++) {
            assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), LS_OK);
            for (int w = 0; w < workers; w++)
                assert_int_equal(counts[w], round * workers);
        }
        ls_pool_destroy(pool, LS_FOREVER, NULL);
    }
}

static void a_wait_ends_at_its_deadline_and_can_be_repeated(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    struct gate gate = {0};
    ls_error err;
    assert_int_equal(ls_pool_submit(pool, 1, hold, &gate, NULL), LS_OK);
    assert_int_equal(ls_pool_submit(pool, 3, hold, &gate, NULL), LS_OK);
    assert_int_equal(ls_pool_submit(pool, 3, hold, &gate, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(pool, 20 * MS, &err), LS_ETIMEDOUT);
    assert_string_equal(err.text, "the time limit passed with unfinished jobs: worker 1 (1 job), "
                                  "worker 3 (2 jobs)");
    assert_int_equal(ls_pool_first_error(pool, NULL, NULL), LS_OK);
    atomic_store(&gate.open, 1);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, &err), LS_OK);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void a_gang_that_times_out_goes_on(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    struct gate gate = {0};
    assert_int_equal(ls_pool_run(pool, hold, &gate, 20 * MS, NULL), LS_ETIMEDOUT);
    atomic_store(&gate.open, 1);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void a_full_inbox_refuses_and_a_gang_is_all_or_none(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){.inbox = 2});
    struct gate gate = {0};
    int counts[WORKERS] = {0}, accepted = 0;
    ls_error err;
    assert_int_equal(ls_pool_submit(pool, 1, hold, &gate, NULL), LS_OK);
    wait_for_entries(&gate, 1);
    while (ls_pool_submit(pool, 1, count_by_index, counts, &err) == LS_OK)
        accepted++;
    assert_string_equal(err.text, "the inbox of worker 1 is full: 2 jobs");
    assert_int_equal(err.status, LS_EAGAIN);
    assert_int_equal(accepted, 2);
    assert_int_equal(ls_pool_run(pool, count_by_index, counts, 20 * MS, &err), LS_EAGAIN);
    assert_string_equal(err.text, "the inbox of worker 1 stayed full until the time limit; no "
                                  "worker got the job");
    atomic_store(&gate.open, 1);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 2 * WORKERS);
    assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, &err), LS_OK);
    assert_int_equal(counts[0], WORKERS);
    assert_int_equal(counts[1], 3 * WORKERS);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void a_gang_waits_for_room(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){.inbox = 1});
    int counts[WORKERS] = {0};
    for (int i = 0; i < 200; i++) {
        while (ls_pool_submit(pool, i % WORKERS, count_by_index, counts, NULL) == LS_OK)
            ;
        assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), LS_OK);
    }
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void the_first_error_wins_and_later_jobs_still_run(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    int row = 7, other = 8, worker = -5, counts[WORKERS] = {0};
    ls_error err;
    assert_int_equal(ls_pool_run(pool, fail_on_two, &row, LS_FOREVER, &err), LS_EDATA);
    assert_string_equal(err.text, "row 7 is bad");
    assert_int_equal(err.status, LS_EDATA);
    assert_int_equal(ls_pool_run(pool, fail_on_two, &other, LS_FOREVER, &err), LS_EDATA);
    assert_string_equal(err.text, "row 7 is bad");
    assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), LS_EDATA);
    assert_int_equal(counts[2], WORKERS);
    assert_int_equal(ls_pool_first_error(pool, &worker, &err), LS_EDATA);
    assert_int_equal(worker, 2);

    assert_int_equal(ls_pool_clear(pool, NULL), LS_OK);
    assert_int_equal(ls_pool_first_error(pool, &worker, &err), LS_OK);
    assert_int_equal(ls_pool_run(pool, fail_on_two, NULL, LS_FOREVER, &err), LS_EDATA);
    assert_string_equal(err.text, "worker 2: a job failed with LS_EDATA and gave no message");
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void cancel_drops_what_has_not_begun(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    struct gate gate = {0};
    int counts[WORKERS] = {0}, worker = 5;
    ls_error err;
    for (int w = 0; w < WORKERS; w++) {
        assert_int_equal(ls_pool_submit(pool, w, hold, &gate, NULL), LS_OK);
        assert_int_equal(ls_pool_submit(pool, w, count_by_index, counts, NULL), LS_OK);
    }
    wait_for_entries(&gate, WORKERS);
    ls_pool_cancel(pool);
    assert_int_equal(ls_pool_submit(pool, 0, count_by_index, counts, &err), LS_ECANCELED);
    assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, &err), LS_ECANCELED);
    assert_int_equal(ls_pool_clear(pool, &err), LS_EAGAIN);
    assert_string_equal(err.text, "the pool has unfinished jobs: wait before clearing it");
    atomic_store(&gate.open, 1);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, &err), LS_ECANCELED);
    assert_string_equal(err.text, "the pool was cancelled");
    assert_int_equal(ls_pool_first_error(pool, &worker, NULL), LS_ECANCELED);
    assert_int_equal(worker, -1);
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(counts[w], 0);
    assert_int_equal(ls_pool_clear(pool, NULL), LS_OK);
    assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), LS_OK);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void *cancel_later(void *pool)
{
    nap(2);
    ls_pool_cancel(pool);
    return NULL;
}

static void cancel_from_another_thread_ends_the_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        ls_pool *pool = new_pool((ls_pool_options){0});
        pthread_t t;
        int counts[WORKERS] = {0}, rc;
        assert_int_equal(pthread_create(&t, NULL, cancel_later, pool), 0);
        do
            rc = ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL);
        while (rc == LS_OK);
        assert_int_equal(rc, LS_ECANCELED);
        pthread_join(t, NULL);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
    }
}

static void destroy_runs_what_is_queued(void **state)
{
    (void)state;
    ls_pool *pool = new_pool((ls_pool_options){0});
    int counts[WORKERS] = {0};
    for (int i = 0; i < 50; i++)
        assert_int_equal(ls_pool_submit(pool, i % WORKERS, count_by_index, counts, NULL), LS_OK);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 50 * WORKERS);
    ls_pool_destroy(NULL, LS_FOREVER, NULL);
}

/* Data of hooks. The pointer `local` of each worker points into it. */
struct hooks {
    int local[8];
    int fail_at; /* index of the worker whose start hook fails; −1: none */
    _Atomic int started, stopped;
    int stopped_at[8];
};

static int start_hook(ls_worker *w, void *user, ls_error *err)
{
    struct hooks *h = user;
    if (w->index == h->fail_at) {
        snprintf(err->text, sizeof err->text, "device %d is busy", w->index);
        return LS_EDEVICE;
    }
    h->local[w->index] = 100 + w->index;
    w->local = &h->local[w->index];
    atomic_fetch_add(&h->started, 1);
    return LS_OK;
}

static void stop_hook(ls_worker *w, void *user)
{
    struct hooks *h = user;
    h->stopped_at[w->index]++;
    atomic_fetch_add(&h->stopped, 1);
}

static int read_local(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ((int *)arg)[w->index] = *(int *)w->local;
    return LS_OK;
}

static void jobs_see_what_their_start_hook_left(void **state)
{
    (void)state;
    struct hooks h = {.fail_at = -1};
    int seen[WORKERS] = {0};
    ls_pool *pool = new_pool((ls_pool_options){.start = start_hook, .stop = stop_hook, .user = &h});
    assert_int_equal(h.local[3], 103); /* ls_pool_create has waited for every start hook */
    assert_int_equal(ls_pool_run(pool, read_local, seen, LS_FOREVER, NULL), LS_OK);
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(seen[w], 100 + w);
    assert_int_equal(atomic_load(&h.stopped), 0);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(h.stopped_at[w], 1);
}

static void a_failing_start_hook_unwinds_the_others(void **state)
{
    (void)state;
    for (int fail_at = 0; fail_at < WORKERS; fail_at++) {
        struct hooks h = {.fail_at = fail_at};
        ls_pool_options o = {.size = sizeof o,
                             .workers = WORKERS,
                             .start = start_hook,
                             .stop = stop_hook,
                             .user = &h};
        ls_pool *pool = (ls_pool *)&h;
        ls_error err;
        assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EDEVICE);
        assert_null(pool);
        assert_int_equal(err.status, LS_EDEVICE);
        char expected[32];
        snprintf(expected, sizeof expected, "device %d is busy", fail_at);
        assert_string_equal(err.text, expected);
        assert_int_equal(atomic_load(&h.started), WORKERS - 1);
        assert_int_equal(atomic_load(&h.stopped), WORKERS - 1);
        assert_int_equal(h.stopped_at[fail_at], 0);
    }
}

static void bad_calls_are_refused_with_a_reason(void **state)
{
    (void)state;
    ls_pool *pool;
    ls_error err;
    ls_pool_options o = {.workers = 2};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_string_equal(err.text,
                        "ls_pool_options: `size` is not set: expected sizeof(ls_pool_options)");
    o = (ls_pool_options){.size = sizeof o, .workers = 0};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_string_equal(err.text, "a pool of 0 workers: expected 1 to 4096");
    o = (ls_pool_options){.size = sizeof o, .workers = 1, .inbox = -1};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    o = (ls_pool_options){
        .size = sizeof o, .workers = 1, .pinning = LS_PINNING_ON, .cpus_per_worker = -1};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    o = (ls_pool_options){.size = sizeof o, .workers = 1, .cpus_per_worker = 1};
    assert_int_equal(ls_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_non_null(strstr(err.text, "set options.pinning"));
    pool = new_pool((ls_pool_options){0});
    int counts[WORKERS] = {0};
    assert_int_equal(ls_pool_submit(pool, WORKERS, count_by_index, counts, &err), LS_EINVAL);
    assert_string_equal(err.text, "worker 4 of a pool whose workers are 0 to 3");
    assert_int_equal(ls_pool_submit(pool, -1, count_by_index, counts, &err), LS_EINVAL);
    assert_int_equal(ls_pool_submit(pool, 0, NULL, counts, &err), LS_EINVAL);
    assert_int_equal(ls_pool_run(pool, NULL, counts, LS_FOREVER, &err), LS_EINVAL);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static int entries(const char *directory)
{
    int n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Returns the resident memory in pages, or 0 under a sanitizer or an emulator, which keep memory of
 * their own. */
static long resident_pages(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(LS_EMULATED)
    return 0;
#else
    long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    fclose(f);
    return resident;
#endif
}

static void a_thousand_pools_leave_nothing_behind(void **state)
{
    (void)state;
    ls_pool_destroy(new_pool((ls_pool_options){0}), LS_FOREVER, NULL);
    int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    long pages = 0;
    for (int i = 0; i < 1000; i++) {
        ls_pool *pool = new_pool((ls_pool_options){.workers = 1 + i % 3, .caller_works = i % 2});
        int counts[WORKERS] = {0};
        if (i % 2)
            assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), LS_OK);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
        if (i == 100)
            pages = resident_pages();
    }
    /* a leak of one page for each pool would be 900 pages */
    assert_true(resident_pages() - pages < 250);
    /* A joined thread can stay in /proc for a moment. */
    for (int i = 0; i < 100 && entries("/proc/self/task") != threads; i++)
        nap(10);
    assert_int_equal(entries("/proc/self/task"), threads);
    assert_int_equal(entries("/proc/self/fd"), files);
}

static int report_cpus(const ls_worker *w, void *arg, ls_error *err)
{
    return ls_cpus_allowed(&((ls_cpus *)arg)[w->index], "", err);
}

static void workers_are_pinned_to_disjoint_cpus(void **state)
{
    (void)state;
    static ls_cpus parts[LS_CPUS_MAX], all;
    static int owners[LS_CPUS_MAX];
    assert_int_equal(ls_cpus_allowed(&all, "", NULL), LS_OK);
    int n = all.count < 8 ? all.count : 8;
    ls_pool *pool = new_pool((ls_pool_options){.workers = n, .pinning = LS_PINNING_ON});
    assert_int_equal(ls_pool_run(pool, report_cpus, parts, LS_FOREVER, NULL), LS_OK);
    for (int w = 0; w < n; w++) {
        assert_in_range(parts[w].count, all.count / n, all.count / n + 1);
        for (int i = 0; i < parts[w].count; i++)
            assert_int_equal(owners[parts[w].id[i]]++, 0);
    }
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static void workers_are_not_pinned_unless_asked_or_when_too_many(void **state)
{
    (void)state;
    static ls_cpus parts[LS_CPUS_MAX], all;
    assert_int_equal(ls_cpus_allowed(&all, "", NULL), LS_OK);
    if (all.count > 64)
        skip();
    const ls_pool_options asked[] = {{.workers = 1},
                                     {.workers = all.count + 1, .pinning = LS_PINNING_ON}};
    for (int i = 0; i < 2; i++) {
        ls_pool *pool = new_pool(asked[i]);
        assert_int_equal(ls_pool_run(pool, report_cpus, parts, LS_FOREVER, NULL), LS_OK);
        for (int w = 0; w < asked[i].workers; w++)
            assert_int_equal(parts[w].count, all.count);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
    }
}

static void allowed_cpus_and_cores_are_within_the_mask(void **state)
{
    (void)state;
    ls_cpus all;
    assert_int_equal(ls_cpus_allowed(&all, "", NULL), LS_OK);
    assert_in_range(ls_allowed_cpus(), 1, all.count);
    assert_in_range(ls_allowed_cores(), 1, ls_allowed_cpus());
}

static int read_mask(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    pthread_sigmask(SIG_BLOCK, NULL, arg);
    return LS_OK;
}

static void workers_block_the_hosts_signals_and_the_caller_does_not(void **state)
{
    (void)state;
    sigset_t mine, workers;
    sigemptyset(&workers);
    ls_pool *pool = new_pool((ls_pool_options){.workers = 1});
    assert_int_equal(ls_pool_run(pool, read_mask, &workers, LS_FOREVER, NULL), LS_OK);
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    assert_false(sigismember(&mine, SIGINT));
    assert_true(sigismember(&workers, SIGINT));
    assert_true(sigismember(&workers, SIGTERM));
    assert_true(sigismember(&workers, SIGALRM));
    assert_false(sigismember(&workers, SIGSEGV));
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static int read_name(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    FILE *f = fopen("/proc/thread-self/comm", "r");
    if (!f || !fgets(arg, 32, f))
        return LS_EIO;
    fclose(f);
    return LS_OK;
}

static void threads_carry_the_pools_name_and_their_index(void **state)
{
    (void)state;
    char name[32] = "", given[] = "a-rather-long-name";
    ls_pool *pool = new_pool((ls_pool_options){.name = given});
    memset(given, 'x', sizeof given - 1); /* the pool must have copied the name */
    assert_int_equal(ls_pool_submit(pool, 3, read_name, name, NULL), LS_OK);
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, NULL), LS_OK);
    assert_string_equal(name, "a-rather-long/3\n");
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

/* Tests few workers, which have a CPU each and spin before they sleep, and many workers, which do
 * not spin. */
static void idle_workers_use_no_cpu(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 8; workers *= 8)
        for (int caller = 0; caller <= 1; caller++) {
            ls_pool *pool = new_pool((ls_pool_options){.workers = workers, .caller_works = caller});
            int counts[8] = {0};
            for (int i = 0; i < 100; i++)
                assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL),
                                 LS_OK);
            nap(50);
            uint64_t before = cpu_ns();
            nap(200);
            assert_true(cpu_ns() - before < 2 * MS); /* one percent of one CPU */
            ls_pool_destroy(pool, LS_FOREVER, NULL);
        }
}

/* An allocator of the host program that fails after `left` allocations. All memory must be freed,
 * and every failure must become an error, not a crash. */
struct budget {
    _Atomic int blocks;
    _Atomic int left;
};

static void *budget_alloc(void *user, size_t bytes, size_t align)
{
    struct budget *b = user;
    if (atomic_fetch_sub(&b->left, 1) <= 0)
        return NULL;
    atomic_fetch_add(&b->blocks, 1);
    return aligned_alloc(align, bytes);
}

static void budget_free(void *user, void *memory)
{
    atomic_fetch_sub(&((struct budget *)user)->blocks, 1);
    free(memory);
}

static void memory_that_runs_out_is_an_error_and_nothing_leaks(void **state)
{
    (void)state;
    for (int allowed = 0, rc = LS_ENOMEM; rc != LS_OK; allowed++) {
        struct budget b = {0, allowed};
        ls_host host = {sizeof host, budget_alloc, budget_free, NULL, &b};
        ls_pool_options o = {.size = sizeof o, .workers = 3, .host = &host};
        ls_pool *pool;
        ls_error err;
        rc = ls_pool_create(&pool, &o, &err);
        assert_true(allowed < 20);
        assert_int_equal(rc, rc == LS_OK ? LS_OK : LS_ENOMEM);
        if (rc == LS_OK) {
            int counts[3] = {0}, before = atomic_load(&b.left);
            for (int i = 0; i < 100; i++)
                assert_int_equal(ls_pool_run(pool, count_by_index, counts, LS_FOREVER, NULL), 0);
            assert_int_equal(atomic_load(&b.left), before); /* jobs allocate nothing */
        }
        ls_pool_destroy(pool, LS_FOREVER, NULL);
        assert_int_equal(atomic_load(&b.blocks), 0);
    }
}

LS_TESTS(pool, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_a_worker_run_in_order),
        cmocka_unit_test(a_gang_runs_once_on_every_worker),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_can_be_repeated),
        cmocka_unit_test(a_gang_that_times_out_goes_on),
        cmocka_unit_test(a_full_inbox_refuses_and_a_gang_is_all_or_none),
        cmocka_unit_test(a_gang_waits_for_room),
        cmocka_unit_test(the_first_error_wins_and_later_jobs_still_run),
        cmocka_unit_test(cancel_drops_what_has_not_begun),
        cmocka_unit_test(cancel_from_another_thread_ends_the_wait),
        cmocka_unit_test(destroy_runs_what_is_queued),
        cmocka_unit_test(jobs_see_what_their_start_hook_left),
        cmocka_unit_test(a_failing_start_hook_unwinds_the_others),
        cmocka_unit_test(bad_calls_are_refused_with_a_reason),
        cmocka_unit_test(a_thousand_pools_leave_nothing_behind),
        cmocka_unit_test(workers_are_pinned_to_disjoint_cpus),
        cmocka_unit_test(workers_are_not_pinned_unless_asked_or_when_too_many),
        cmocka_unit_test(allowed_cpus_and_cores_are_within_the_mask),
        cmocka_unit_test(workers_block_the_hosts_signals_and_the_caller_does_not),
        cmocka_unit_test(threads_carry_the_pools_name_and_their_index),
        cmocka_unit_test(idle_workers_use_no_cpu),
        cmocka_unit_test(memory_that_runs_out_is_an_error_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
