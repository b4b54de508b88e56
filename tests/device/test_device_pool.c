/* SPDX-License-Identifier: MIT */
/* Tests the device pool: which thread opens, binds and closes a device, and that a failed start
 * closes everything that was opened. */
#define _GNU_SOURCE /* cpu_set_t */
#include "base/error.h"
#include "device/fake_backend.h"
#include "device/registry.h"
#include "runner.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static ls_registry *registry;
static ls_error err;

static int set_up(void **state)
{
    (void)state;
    fake_reset();
    assert_int_equal(ls_registry_create_empty(&registry, NULL, &err), LS_OK);
    assert_int_equal(ls_registry_add(registry, &fake_listed, &err), LS_OK);
    assert_int_equal(ls_registry_add(registry, &fake_counted, &err), LS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_registry_destroy(registry);
    return 0;
}

/* Observations of the hooks and jobs. */
typedef struct notes {
    ls_device *started[FAKE_MOST], *stopped[FAKE_MOST], *seen[FAKE_MOST];
    void *local[FAKE_MOST];
    pthread_t ran_on[FAKE_MOST];
    atomic_int starts, stops;
    int fail_start_at;
} notes;

static int on_start(const ls_worker *worker, ls_device *device, void **local, void *user,
                    ls_error *e)
{
    notes *n = user;
    if (worker->index == n->fail_start_at)
        return ls_fail(e, LS_EUNSUPPORTED, "worker %d does not like it here", worker->index);
    n->started[worker->index] = device;
    *local = &n->local[worker->index];
    atomic_fetch_add(&n->starts, 1);
    return LS_OK;
}

static void on_stop(const ls_worker *worker, ls_device *device, void *local, void *user)
{
    notes *n = user;
    /* The device is closed after the hook. */
    if (local == &n->local[worker->index] && ((fake_device *)device)->closed == 0)
        n->stopped[worker->index] = device;
    atomic_fetch_add(&n->stops, 1);
}

static int job(const ls_worker *worker, void *arg, ls_error *e)
{
    notes *n = arg;
    (void)e;
    n->seen[worker->index] = ls_worker_device(worker);
    n->local[worker->index] = ls_worker_local(worker);
    n->ran_on[worker->index] = pthread_self();
    return LS_OK;
}

static int create(ls_pool **pool, const char *devices, notes *n)
{
    ls_device_pool_options o = {
        .size = sizeof o,
        .registry = registry,
        .devices = devices,
        .start = on_start,
        .stop = on_stop,
        .user = n,
    };
    memset(&err, 0, sizeof err);
    return ls_device_pool_create(pool, &o, &err);
}

static void every_opened_device_was_closed_once_by_its_own_thread(void)
{
    for (int i = 0; i < fake.opened; i++) {
        assert_int_equal(fake.device[i].closed, 1);
        assert_true(pthread_equal(fake.device[i].closed_by, fake.device[i].opened_by));
    }
}

static void a_device_lives_on_its_workers_thread(void **state)
{
    notes n = {.fail_start_at = -1};
    ls_pool *pool;
    (void)state;
    assert_int_equal(create(&pool, "many:3", &n), LS_OK);
    assert_int_equal(ls_pool_size(pool), 3);
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    for (int w = 0; w < 3; w++) {
        const fake_device *device = (const fake_device *)n.seen[w];
        assert_ptr_equal(n.seen[w], n.started[w]);
        assert_int_equal(device->index, w);
        assert_int_equal(device->bound, 1);
        assert_true(pthread_equal(device->opened_by, n.ran_on[w]));
        assert_true(pthread_equal(device->bound_by, n.ran_on[w]));
        assert_ptr_equal(n.local[w], &n.local[w]); /* value set by the start hook */
    }
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    assert_int_equal(n.starts, 3);
    assert_int_equal(n.stops, 3);
    for (int w = 0; w < 3; w++)
        assert_ptr_equal(n.stopped[w], n.started[w]);
    every_opened_device_was_closed_once_by_its_own_thread();
}

static void a_listed_device_may_be_shared_by_two_workers(void **state)
{
    notes n = {.fail_start_at = -1};
    ls_pool *pool;
    (void)state;
    assert_int_equal(create(&pool, "fake:2,2,0", &n), LS_OK);
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    static const int index[] = {2, 2, 0};
    for (int w = 0; w < 3; w++)
        assert_int_equal(((fake_device *)n.seen[w])->index, index[w]);
    assert_ptr_not_equal(n.seen[0], n.seen[1]);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    every_opened_device_was_closed_once_by_its_own_thread();
}

static void expect_failed_start(notes *n, int status, const char *text, int opened)
{
    ls_pool *pool;
    assert_int_equal(create(&pool, "many:4", n), status);
    assert_string_equal(err.text, text);
    assert_null(pool);
    assert_int_equal(fake.opened, opened);
    assert_int_equal(n->starts, 3);
    assert_int_equal(n->stops, 3); /* the workers that did start */
    every_opened_device_was_closed_once_by_its_own_thread();
}

static void a_device_that_cannot_be_opened_unwinds(void **state)
{
    notes n = {.fail_start_at = -1};
    (void)state;
    fake.fail_open_at = 2;
    expect_failed_start(&n, LS_EDEVICE, "fake(2): cannot be opened", 3);
}

static void a_device_that_cannot_be_bound_is_closed(void **state)
{
    notes n = {.fail_start_at = -1};
    (void)state;
    fake.fail_bind_at = 1;
    expect_failed_start(&n, LS_EDEVICE, "fake(1): cannot be bound", 4);
}

static void a_start_hook_that_fails_unwinds(void **state)
{
    notes n = {.fail_start_at = 3};
    (void)state;
    expect_failed_start(&n, LS_EUNSUPPORTED, "worker 3 does not like it here", 4);
}

/* ---- a device that hangs ---- */

typedef struct hanging {
    atomic_int entered, open, done;
} hanging;

static int hang(const ls_worker *worker, void *arg, ls_error *e)
{
    hanging *h = arg;
    (void)worker;
    (void)e;
    atomic_fetch_add(&h->entered, 1);
    while (!atomic_load(&h->open))
        sched_yield();
    atomic_fetch_add(&h->done, 1);
    return LS_OK;
}

static void hang_in_worker_one(ls_pool *pool, hanging *h)
{
    assert_int_equal(ls_pool_submit(pool, 1, hang, h, &err), LS_OK);
    while (!atomic_load(&h->entered))
        sched_yield();
    assert_int_equal(ls_pool_abandon(pool, 1, &err), LS_OK);
}

static void a_device_that_hangs_is_left_open(void **state)
{
    static ls_pool *pool; /* never freed; static, so that leak checkers see that it is meant */
    static hanging h;
    notes n = {.fail_start_at = -1};
    (void)state;
    assert_int_equal(create(&pool, "many:3", &n), LS_OK);
    hang_in_worker_one(pool, &h);
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_ESTALLED);
    assert_null(n.seen[1]);
    assert_null(n.stopped[1]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fake.device[i].closed, &fake.device[i].base != n.started[1]);
    atomic_store(&h.open, 1);
    while (!atomic_load(&h.done))
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it ends, and closes nothing */
    assert_int_equal(((fake_device *)n.started[1])->closed, 0);
}

static void a_device_that_comes_back_is_closed(void **state)
{
    hanging h = {0};
    notes n = {.fail_start_at = -1};
    ls_pool *pool;
    (void)state;
    assert_int_equal(create(&pool, "many:3", &n), LS_OK);
    hang_in_worker_one(pool, &h);
    atomic_store(&h.open, 1);
    while (ls_pool_busy(pool, 1) > 0)
        sched_yield();
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    assert_int_equal(n.stops, 3);
    every_opened_device_was_closed_once_by_its_own_thread();
}

static void hooks_are_optional(void **state)
{
    ls_device_pool_options o = {.size = sizeof o, .registry = registry, .devices = "fake:0"};
    ls_pool *pool;
    notes n = {0};
    (void)state;
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_OK);
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    assert_non_null(n.seen[0]);
    assert_null(n.local[0]);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    every_opened_device_was_closed_once_by_its_own_thread();
}

/* ---- threads of the host's ------------------------------------------------------------------ */

struct lender {
    ls_pool *pool;
    int worker, status;
    pthread_t thread;
};

static void *lend(void *arg)
{
    struct lender *l = arg;
    l->status = ls_pool_serve(l->pool, l->worker, NULL);
    return NULL;
}

static void a_device_lives_on_the_thread_that_is_lent(void **state)
{
    ls_device_pool_options o = {.size = sizeof o,
                                .devices = "fake:0,1,2",
                                .start = on_start,
                                .stop = on_stop,
                                .caller_works = 1,
                                .borrowed = -1};
    notes n = {.fail_start_at = -1};
    struct lender l[3];
    ls_pool *pool;
    (void)state;
    o.registry = registry;
    o.user = &n;
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_OK);
    memset(&o, 0xee, sizeof o); /* nothing of it is needed any more */
    assert_int_equal(fake.opened, 1);
    for (int i = 1; i < 3; i++) {
        l[i] = (struct lender){.pool = pool, .worker = i, .status = 1};
        assert_int_equal(pthread_create(&l[i].thread, NULL, lend, &l[i]), 0);
    }
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    assert_true(pthread_equal(n.ran_on[0], pthread_self()));
    for (int i = 1; i < 3; i++) {
        assert_true(pthread_equal(n.ran_on[i], l[i].thread));
        assert_ptr_equal(n.seen[i], n.started[i]);
    }
    assert_int_equal(fake.opened, 3);
    assert_int_equal(ls_pool_destroy(pool, LS_FOREVER, NULL), LS_OK);
    for (int i = 1; i < 3; i++) {
        pthread_join(l[i].thread, NULL);
        assert_int_equal(l[i].status, LS_OK);
    }
    assert_int_equal(atomic_load(&n.stops), 3);
    every_opened_device_was_closed_once_by_its_own_thread();
}

/* The team that each of `workers` has. */
static int team_on(const char *devices, int most, int threads, int workers)
{
    ls_pool *pool;
    const ls_device_pool_options o = {.size = sizeof o,
                                      .registry = registry,
                                      .devices = devices,
                                      .max_devices = most,
                                      .threads = threads};
    fake.opened = 0;
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_OK);
    assert_int_equal(ls_pool_size(pool), workers);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    for (int i = 1; i < workers; i++)
        assert_int_equal(fake.device[i].threads, fake.device[0].threads);
    return fake.device[0].threads;
}

static void cores_beyond_the_most_devices_go_to_teams(void **state)
{
    (void)state;
    fake.devices = 16;
    assert_int_equal(team_on("many", 2, LS_TEAMS_OF_THE_REST, 2), 8);
    assert_int_equal(team_on("many", 5, LS_TEAMS_OF_THE_REST, 5), 3);
    assert_int_equal(team_on("many", 16, LS_TEAMS_OF_THE_REST, 16), 1);
    assert_int_equal(team_on("many", 0, LS_TEAMS_OF_THE_REST, 16), 1);
    assert_int_equal(team_on("many:2", 2, LS_TEAMS_OF_THE_REST, 2), 1); /* as many as asked for */
    assert_int_equal(team_on("many", 2, 0, 2), 1);
    assert_int_equal(team_on("many", 2, 3, 2), 3);
    assert_int_equal(team_on("fake", 2, LS_TEAMS_OF_THE_REST, 2), 1); /* devices, not cores */
}

static int cpus_of_this_thread(const ls_worker *worker, void *arg, ls_error *e)
{
    cpu_set_t *set = arg;
    (void)worker, (void)e;
    return sched_getaffinity(0, sizeof *set, set) == 0 ? LS_OK : LS_ESYSTEM;
}

/* Another program may have a worker as well: if both were bound to the first CPU, both would have
 * half the speed. */
static void a_single_worker_may_use_every_cpu_whatever_its_team(void **state)
{
    (void)state;
    for (int threads = LS_TEAMS_OF_THE_REST; threads < 3; threads++) {
        ls_pool *pool;
        cpu_set_t here, there;
        const ls_device_pool_options o = {
            .size = sizeof o, .registry = registry, .devices = "many:1", .threads = threads};
        fake.opened = 0;
        assert_int_equal(sched_getaffinity(0, sizeof here, &here), 0);
        assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_OK);
        assert_int_equal(ls_pool_run(pool, cpus_of_this_thread, &there, LS_FOREVER, &err), LS_OK);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
        assert_true(CPU_EQUAL(&here, &there));
    }
}

/* A program that was built when there were fewer options. */
static void options_of_an_older_size_are_taken(void **state)
{
    ls_device_pool_options o;
    ls_pool *pool;
    notes n = {.fail_start_at = -1};
    (void)state;
    memset(&o, 0xee, sizeof o);
    memset(&o, 0, offsetof(ls_device_pool_options, name));
    o.size = offsetof(ls_device_pool_options, name);
    o.registry = registry;
    o.devices = "fake:0,1";
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_OK);
    assert_int_equal(ls_pool_run(pool, job, &n, LS_FOREVER, &err), LS_OK);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    every_opened_device_was_closed_once_by_its_own_thread();
}

static void wrong_options_are_refused(void **state)
{
    ls_device_pool_options o = {.size = 0, .registry = registry};
    ls_pool *pool;
    (void)state;
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_EINVAL);
    o.size = sizeof o;
    o.registry = NULL;
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_EINVAL);
    o.registry = registry;
    o.devices = "many:0";
    assert_int_equal(ls_device_pool_create(&pool, &o, &err), LS_EINVAL);
    assert_string_equal(err.text, "devices 'many:0' asks for none: at least 1 is needed");
}

LS_TESTS(device_pool, "unit")
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_device_lives_on_its_workers_thread),
        TEST(a_listed_device_may_be_shared_by_two_workers),
        TEST(a_single_worker_may_use_every_cpu_whatever_its_team),
        TEST(a_device_that_cannot_be_opened_unwinds),
        TEST(a_device_that_cannot_be_bound_is_closed),
        TEST(a_start_hook_that_fails_unwinds),
        TEST(a_device_that_comes_back_is_closed),
        TEST(hooks_are_optional),
        TEST(a_device_lives_on_the_thread_that_is_lent),
        TEST(cores_beyond_the_most_devices_go_to_teams),
        TEST(options_of_an_older_size_are_taken),
        TEST(wrong_options_are_refused),
        TEST(a_device_that_hangs_is_left_open), /* last: its thread may outlive it */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
