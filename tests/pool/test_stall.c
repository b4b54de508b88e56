/* SPDX-License-Identifier: MIT */
/* Tests workers that stall: the pool abandons them, continues without them, and can be destroyed
 * while they still hang. */
#include "runner.h"
#include "times.h"

#include <lockstep/pool.h>

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define WORKERS 4

/* Everything that a round of a test shares with its workers. An abandoned worker can continue after
 * the round, so a scene is static, or is freed after the worker's thread has ended. */
struct scene {
    ls_pool *pool;
    _Atomic int entered; /* number of jobs that have begun to hang */
    _Atomic int open;    /* the hanging jobs continue when it is set */
    _Atomic int done;    /* number of jobs that have hung, continued, and no longer use the scene */
    int status;          /* status that hanging jobs return */
    /* number of calls of the job `count` by each worker; plain memory, whose visibility the pool
     * guarantees */
    int runs[WORKERS];
    _Atomic int stopped[WORKERS]; /* stop hooks */
    _Atomic int hook_hangs;       /* the stop hook also waits until `open` is set */
    ls_host host;
    _Atomic int blocks; /* number of allocated blocks of memory from `host` */
};

static int hang(const ls_worker *w, void *arg, ls_error *err)
{
    struct scene *s = arg;
    atomic_fetch_add(&s->entered, 1);
    while (!atomic_load_explicit(&s->open, memory_order_relaxed))
        nap(1);
    s->runs[w->index] += 100;
    int status = s->status;
    if (status)
        snprintf(err->text, sizeof err->text, "too late");
    atomic_fetch_add(&s->done, 1);
    return status;
}

static int count(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    ((struct scene *)arg)->runs[w->index]++;
    return LS_OK;
}

static void stop_hook(ls_worker *w, void *user)
{
    struct scene *s = user;
    while (w->index == 1 && atomic_load(&s->hook_hangs) && !atomic_load(&s->open))
        nap(1);
    atomic_fetch_add(&s->stopped[w->index], 1);
}

static void *host_alloc(void *user, size_t bytes, size_t align)
{
    atomic_fetch_add(&((struct scene *)user)->blocks, 1);
    return aligned_alloc(align, bytes);
}

static void host_free(void *user, void *memory)
{
    atomic_fetch_sub(&((struct scene *)user)->blocks, 1);
    free(memory);
}

static void begin(struct scene *s)
{
    ls_error err;
    memset(s, 0, sizeof *s);
    s->host = (ls_host){sizeof s->host, host_alloc, host_free, NULL, s};
    ls_pool_options o = {.size = sizeof o,
                         .workers = WORKERS,
                         .inbox = 8,
                         .stop = stop_hook,
                         .user = s,
                         .host = &s->host};
    assert_int_equal(ls_pool_create(&s->pool, &o, &err), LS_OK);
}

static void hang_worker(struct scene *s, int worker)
{
    int before = atomic_load(&s->entered);
    assert_int_equal(ls_pool_submit(s->pool, worker, hang, s, NULL), LS_OK);
    while (atomic_load(&s->entered) == before)
        nap(1);
}

static void wait_until_idle(const ls_pool *pool, int worker)
{
    while (ls_pool_busy(pool, worker) > 0)
        nap(1);
}

static int threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Waits for abandoned threads, which cannot be joined, to disappear. */
static void wait_for_threads(int wanted)
{
    for (int i = 0; i < 5000 && threads() > wanted; i++)
        nap(1);
    assert_int_equal(threads(), wanted);
}

/* ---- going on ------------------------------------------------------------------------------- */

static void the_others_go_on_without_an_abandoned_worker(void **state)
{
    (void)state;
    struct scene s;
    ls_error err;
    begin(&s);
    hang_worker(&s, 1);
    assert_int_equal(ls_pool_run(s.pool, count, &s, 300 * MS, &err), LS_ETIMEDOUT);
    assert_string_equal(err.text, "the time limit passed with unfinished jobs: worker 1 (2 jobs)");
    assert_int_equal(ls_pool_wait(s.pool, 0, NULL), LS_ETIMEDOUT); /* 0: does not wait */
    assert_int_equal(ls_pool_busy(s.pool, 1), 2);
    assert_int_equal(ls_pool_busy(s.pool, 0), 0);
    assert_int_equal(ls_pool_is_abandoned(s.pool, 1), 0);

    assert_int_equal(ls_pool_abandon(s.pool, 1, &err), LS_OK);
    assert_int_equal(ls_pool_is_abandoned(s.pool, 1), 1);
    assert_int_equal(ls_pool_is_abandoned(s.pool, 0), 0);
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, &err), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, count, &s, LS_FOREVER, &err), LS_OK);
    assert_int_equal(ls_pool_wait(s.pool, 0, NULL), LS_OK);
    assert_int_equal(s.runs[0] + s.runs[2] + s.runs[3], 6);
    assert_int_equal(ls_pool_submit(s.pool, 1, count, &s, &err), LS_ESTALLED);
    assert_string_equal(err.text, "worker 1 was abandoned: it accepts no jobs");
    assert_int_equal(ls_pool_submit(s.pool, 2, count, &s, &err), LS_OK);
    assert_int_equal(ls_pool_size(s.pool), WORKERS);

    atomic_store(&s.open, 1);
    wait_until_idle(s.pool, 1);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(atomic_load(&s.blocks), 0);
}

static void a_worker_that_comes_back_drops_its_jobs_and_stays_out(void **state)
{
    (void)state;
    struct scene s;
    ls_error err;
    begin(&s);
    s.status = LS_EDEVICE;
    hang_worker(&s, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ls_pool_submit(s.pool, 1, count, &s, NULL), LS_OK);
    assert_int_equal(ls_pool_busy(s.pool, 1), 6);
    assert_int_equal(ls_pool_abandon(s.pool, 1, &err), LS_OK);
    /* ls_pool_clear does not wait for the abandoned worker */
    assert_int_equal(ls_pool_clear(s.pool, &err), LS_OK);
    atomic_store(&s.open, 1);
    wait_until_idle(s.pool, 1);
    /* the worker's writes are visible; its queued jobs were dropped */
    assert_int_equal(s.runs[1], 100);
    /* the worker's error came after it was abandoned */
    assert_int_equal(ls_pool_first_error(s.pool, NULL, &err), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, count, &s, LS_FOREVER, &err), LS_OK);
    assert_int_equal(s.runs[1], 100);
    assert_int_equal(ls_pool_submit(s.pool, 1, count, &s, NULL), LS_ESTALLED);
    /* the worker's stop hook runs when the pool is destroyed */
    assert_int_equal(atomic_load(&s.stopped[1]), 0);

    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(atomic_load(&s.stopped[w]), 1);
    assert_int_equal(atomic_load(&s.blocks), 0);
}

static void a_full_inbox_of_an_abandoned_worker_holds_nobody_up(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    hang_worker(&s, 3);
    while (ls_pool_submit(s.pool, 3, count, &s, NULL) == LS_OK)
        ;
    assert_int_equal(ls_pool_busy(s.pool, 3), 9);
    assert_int_equal(ls_pool_run(s.pool, count, &s, 10 * MS, NULL), LS_EAGAIN);
    assert_int_equal(ls_pool_abandon(s.pool, 3, NULL), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, count, &s, LS_FOREVER, NULL), LS_OK);
    atomic_store(&s.open, 1);
    wait_until_idle(s.pool, 3);
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(s.runs[0] + s.runs[1] + s.runs[2], 3);
    assert_int_equal(s.runs[3], 100);
}

static void a_pool_without_workers_left_says_so(void **state)
{
    (void)state;
    struct scene s;
    ls_error err;
    begin(&s);
    assert_int_equal(ls_pool_abandon(s.pool, WORKERS, &err), LS_EINVAL);
    assert_string_equal(err.text, "worker 4 of a pool whose workers are 0 to 3");
    assert_int_equal(ls_pool_abandon(s.pool, -1, &err), LS_EINVAL);
    assert_int_equal(ls_pool_busy(s.pool, WORKERS), 0);
    assert_int_equal(ls_pool_is_abandoned(s.pool, -1), 0);
    for (int twice = 0; twice < 2; twice++)
        for (int w = 0; w < WORKERS; w++)
            assert_int_equal(ls_pool_abandon(s.pool, w, &err), LS_OK);
    assert_int_equal(ls_pool_run(s.pool, count, &s, LS_FOREVER, &err), LS_ESTALLED);
    assert_string_equal(err.text, "every worker of the pool was abandoned");
    assert_int_equal(ls_pool_wait(s.pool, LS_FOREVER, &err), LS_OK);
    /* all workers are idle, so all threads are joined */
    assert_int_equal(ls_pool_destroy(s.pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(atomic_load(&s.blocks), 0);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The pool of a scene with an abandoned worker is never freed. The pointers in `kept` tell leak
 * checkers that this is intended. */
static ls_pool *kept[256];
static int kept_count;

static void keep(ls_pool *pool)
{
    assert_true(kept_count < 256);
    kept[kept_count++] = pool;
}

/* Destroys the pool while worker 2 hangs, with two jobs queued after the hanging job. */
static void leave_behind(int abandon, ls_timeout timeout)
{
    int before = threads();
    struct scene *s = malloc(sizeof *s);
    ls_error err = {0};
    assert_non_null(s);
    begin(s);
    hang_worker(s, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ls_pool_submit(s->pool, 2, count, s, NULL), LS_OK);
    assert_int_equal(ls_pool_submit(s->pool, 3, count, s, NULL), LS_OK);
    if (abandon)
        assert_int_equal(ls_pool_abandon(s->pool, 2, NULL), LS_OK);
    keep(s->pool);
    assert_int_equal(ls_pool_destroy(s->pool, timeout, &err), LS_ESTALLED);
    assert_string_equal(err.text, "still running when the pool was destroyed: worker 2 (3 jobs)");
    for (int w = 0; w < WORKERS; w++)
        assert_int_equal(atomic_load(&s->stopped[w]), w != 2);
    assert_int_equal(s->runs[3], 1);
    assert_int_equal(threads(), before + 1);
    /* Three blocks are left: the pool, the array of workers, and the inbox of worker 2. The thread
     * that is left running must not call the host's allocator, which is zeroed here. */
    assert_int_equal(atomic_load(&s->blocks), 3);
    memset(&s->host, 0, sizeof s->host);

    atomic_store_explicit(&s->open, 1, memory_order_relaxed);
    wait_for_threads(before);
    assert_int_equal(atomic_load(&s->stopped[2]), 0);
    assert_int_equal(atomic_load(&s->done), 1);
    assert_int_equal(s->runs[2], 100); /* the queued jobs are dropped */
    free(s);
}

static void a_worker_that_misses_the_end_is_left_behind(void **state)
{
    (void)state;
    leave_behind(0, 400 * MS);
    leave_behind(1, 400 * MS);
}

static void an_abandoned_worker_does_not_hold_up_destroy(void **state)
{
    (void)state;
    leave_behind(1, LS_FOREVER);
}

static void *open_later(void *arg)
{
    nap(30);
    atomic_store(&((struct scene *)arg)->open, 1);
    return NULL;
}

static void a_worker_that_comes_back_in_time_is_joined(void **state)
{
    (void)state;
    for (int abandon = 0; abandon < 2; abandon++) {
        struct scene s;
        pthread_t t;
        begin(&s);
        hang_worker(&s, 2);
        if (abandon)
            assert_int_equal(ls_pool_abandon(s.pool, 2, NULL), LS_OK);
        assert_int_equal(pthread_create(&t, NULL, open_later, &s), 0);
        assert_int_equal(ls_pool_destroy(s.pool, 600000 * MS, NULL), LS_OK);
        pthread_join(t, NULL);
        assert_int_equal(s.runs[2], 100);
        for (int w = 0; w < WORKERS; w++)
            assert_int_equal(atomic_load(&s.stopped[w]), 1);
        assert_int_equal(atomic_load(&s.blocks), 0);
    }
    assert_int_equal(ls_pool_destroy(NULL, 0, NULL), LS_OK);
}

static void a_stop_hook_that_hangs_is_left_behind_too(void **state)
{
    (void)state;
    static struct scene s;
    int before = threads();
    ls_error err;
    begin(&s);
    atomic_store(&s.hook_hangs, 1);
    keep(s.pool);
    assert_int_equal(ls_pool_destroy(s.pool, 400 * MS, &err), LS_ESTALLED);
    assert_string_equal(err.text, "still running when the pool was destroyed: "
                                  "worker 1 (stopping)");
    atomic_store(&s.open, 1);
    wait_for_threads(before);
    assert_int_equal(atomic_load(&s.stopped[1]), 1);
}

/* ---- at any moment -------------------------------------------------------------------------- */

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

struct visit {
    struct scene *scene;
    unsigned pause; /* loops */
};

/* Job that is busy for a short random time. */
static int linger(const ls_worker *w, void *arg, ls_error *err)
{
    struct visit *v = arg;
    for (volatile unsigned i = v->pause; i > 0; i--)
        ;
    v->scene->runs[w->index]++;
    (void)err;
    return LS_EDATA;
}

/* A worker's job returns shortly before, during or shortly after the calls that abandon the worker
 * and destroy the pool. In every case the stop hook of each other worker runs once, the stop hook
 * of the abandoned worker runs at most once, and the results of the other workers are correct. */
static void giving_up_at_any_moment_is_safe(void **state)
{
    (void)state;
    enum { MOST = 200 };
    static struct scene scene[MOST];
    static struct visit visit[MOST];
    const unsigned rounds = ls_tests_rounds(50, MOST);
    int before = threads();
    unsigned seed = 1;
    for (unsigned r = 0; r < rounds; r++) {
        struct scene *s = &scene[r];
        int victim = (int)draw(&seed, WORKERS), lived = 0;
        begin(s);
        visit[r] = (struct visit){s, draw(&seed, 1500000)};
        assert_int_equal(ls_pool_submit(s->pool, victim, linger, &visit[r], NULL), LS_OK);
        for (volatile unsigned i = draw(&seed, 300000); i > 0; i--)
            ;
        assert_int_equal(ls_pool_abandon(s->pool, victim, NULL), LS_OK);
        int latched = ls_pool_first_error(s->pool, NULL, NULL);
        assert_int_equal(ls_pool_run(s->pool, count, s, LS_FOREVER, NULL), latched);
        keep(s->pool);
        ls_timeout limit = draw(&seed, 2) ? LS_FOREVER : draw(&seed, 400000);
        int rc = ls_pool_destroy(s->pool, limit, NULL);
        for (int w = 0; w < WORKERS; w++) {
            lived += atomic_load(&s->stopped[w]);
            if (w != victim)
                assert_int_equal(s->runs[w], 1);
        }
        if (rc == LS_OK) {
            kept_count--;
            assert_int_equal(lived, WORKERS);
            /* 0 if the job had not begun when the worker was abandoned */
            assert_true(s->runs[victim] <= 1);
            assert_int_equal(atomic_load(&s->blocks), 0);
        } else {
            assert_int_equal(rc, LS_ESTALLED);
        }
    }
    wait_for_threads(before);
}

/* ---- a pause of the process ----------------------------------------------------------------- */

/* Job that reports that it runs, and then uses 10 ms of CPU time, a hundredth of the time limit. It
 * is so short that a busy machine does not make it miss the limit. */
static int tell_and_work(const ls_worker *w, void *arg, ls_error *err)
{
    struct timespec used;
    (void)err;
    if (w->index == 0 && write(*(int *)arg, "", 1) != 1)
        return LS_EIO;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    while (used.tv_nsec < 10000000 && used.tv_sec == 0);
    return LS_OK;
}

/* Runs in a child process. Returns 0 if neither the wait nor the destruction gave up. */
static int work_through_a_pause(int pipe_end, int destroy)
{
    ls_pool *pool;
    const ls_pool_options o = {.size = sizeof o, .workers = 2};
    int status = ls_pool_create(&pool, &o, NULL);
    for (int w = 0; w < 2 && status == LS_OK; w++)
        status = ls_pool_submit(pool, w, tell_and_work, &pipe_end, NULL);
    if (status == LS_OK && !destroy)
        status = ls_pool_wait(pool, 1000 * MS, NULL);
    if (status == LS_OK)
        status = ls_pool_destroy(pool, 1000 * MS, NULL);
    return status != LS_OK;
}

static void a_pause_of_the_process_uses_up_no_timeout(void **state)
{
    (void)state;
    for (int destroy = 0; destroy < 2; destroy++) {
        int ends[2], status;
        char byte;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            _exit(work_through_a_pause(ends[1], destroy));
        assert_int_equal(read(ends[0], &byte, 1), 1);
        kill(child, SIGSTOP);
        nap(1400);
        kill(child, SIGCONT);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(ends[0]);
        close(ends[1]);
    }
}

LS_TESTS(pool_stall, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_an_abandoned_worker),
        cmocka_unit_test(a_worker_that_comes_back_drops_its_jobs_and_stays_out),
        cmocka_unit_test(a_full_inbox_of_an_abandoned_worker_holds_nobody_up),
        cmocka_unit_test(a_pool_without_workers_left_says_so),
        cmocka_unit_test(a_worker_that_misses_the_end_is_left_behind),
        cmocka_unit_test(an_abandoned_worker_does_not_hold_up_destroy),
        cmocka_unit_test(a_worker_that_comes_back_in_time_is_joined),
        cmocka_unit_test(a_stop_hook_that_hangs_is_left_behind_too),
        cmocka_unit_test(giving_up_at_any_moment_is_safe),
        cmocka_unit_test(a_pause_of_the_process_uses_up_no_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(pool_stall, "nightly no-asan")
