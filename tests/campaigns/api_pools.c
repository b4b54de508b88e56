/* SPDX-License-Identifier: MIT */
/* Random calls of pool.h, device_pool.h, collective.h, split.h and status.h. */
#include "campaigns/api_world.h"

#include "ref/ref.h"

#include <lockstep/split.h>
#include <string.h>
#include <time.h>

#define MOMENT_NS 2000000u
#define MINUTE_NS 60000000000u
#define FLOATS 50

/* ---- jobs and hooks ---- */

static int job_that_works(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    (void)arg;
    (void)err;
    return LS_OK;
}

static int job_that_fails(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    (void)arg;
    err->status = LS_EDATA;
    memcpy(err->text, "it would not", sizeof "it would not");
    return LS_EDATA;
}

static int job_that_sleeps(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    (void)arg;
    (void)err;
    nanosleep(&(struct timespec){.tv_nsec = MOMENT_NS}, NULL);
    return LS_OK;
}

/* The pool's own functions, from within. */
static int job_that_calls_in(const ls_worker *worker, void *arg, ls_error *err)
{
    world *w = arg;
    (void)worker;
    if (ls_pool_wait(w->pool, LS_FOREVER, err) != LS_EINVAL)
        return LS_EINTERNAL;
    err->text[0] = '\0';
    return LS_OK;
}

static int start_that_fails(ls_worker *worker, void *user, ls_error *err)
{
    (void)worker;
    return job_that_fails(NULL, user, err);
}

static ls_job some_job(world *w)
{
    ls_job const jobs[] = {job_that_works, job_that_works, job_that_fails, job_that_sleeps,
                           job_that_calls_in};
    return jobs[world_draw(w, sizeof jobs / sizeof *jobs)];
}

/* One of the pools, or NULL. A trainer's is given no work beside it. */
static ls_pool *some_pool(world *w)
{
    return w->pool;
}

/* ---- making ---- */

static void create_pool(world *w)
{
    ls_pool_options o = {.size = sizeof o,
                         .workers = 1 + (int)world_draw(w, 3),
                         .inbox = (int)world_draw(w, 3),
                         .caller_works = world_chance(w, 3),
                         .pinning = (ls_pinning)world_draw(w, 4),
                         .time_jobs = world_chance(w, 2),
                         .host = world_host(w)};
    ls_pool *pool;
    if (w->pool)
        return;
    switch (world_draw(w, 12)) {
    case 0: o.workers = 0; break;
    case 1: o.inbox = -1; break;
    case 2: o.size = 0; break;
    case 3: o.start = start_that_fails; break;
    case 4: o.borrowed = o.workers + 1; break;
    case 5: o.cpus_per_worker = 1 + 2 * (o.pinning == LS_PINNING_ON); break;
    default: break;
    }
    if (world_chance(w, 30))
        world_note(w, "ls_pool_create", ls_pool_create(NULL, &o, &w->err));
    if (world_note(w, "ls_pool_create", ls_pool_create(&pool, &o, &w->err)) == LS_OK)
        w->pool = pool;
}

static void create_devices(world *w)
{
    static const char *const lists[] = {"ref:2", "faulty:2", "faulty:2", "ref:1",
                                        "ref:0", "nothing",  "ref:x",    "cuda:7"};
    ls_device_pool_options o = {.size = sizeof o,
                                .registry = w->registry,
                                .devices = lists[world_draw(w, 8)],
                                .caller_works = world_chance(w, 6),
                                .host = world_host(w)};
    ls_pool *pool;
    if (w->devices || w->trainer)
        return;
    if (world_chance(w, 12))
        o.registry = NULL;
    if (world_note(w, "ls_device_pool_create", ls_device_pool_create(&pool, &o, &w->err)))
        return;
    w->devices = pool;
    w->devices_broken = o.caller_works;
}

static void use_registry(world *w)
{
    ls_backend other = *ls_ref_backend();
    ls_registry *registry;
    int i = 0;
    if (world_note(w, "ls_registry_create",
                   ls_registry_create(&registry, world_host(w), &w->err)) != LS_OK)
        return;
    switch (world_draw(w, 4)) {
    case 0: other.abi = 0; break;
    case 1: other.name = NULL; break;
    default: break;
    }
    for (int n = world_chance(w, 3) ? 2 : 1; n > 0; n--)
        world_note(w, "ls_registry_add",
                   ls_registry_add(registry, world_chance(w, 8) ? NULL : &other, &w->err));
    while (ls_registry_at(registry, i))
        i++;
    world_did(w, "ls_registry_at");
    ls_registry_destroy(registry);
    world_did(w, "ls_registry_destroy");
}

/* ---- using ---- */

static void submit(world *w)
{
    ls_pool *pool = some_pool(w);
    if (!pool)
        return;
    const int worker = (int)world_draw(w, (uint32_t)ls_pool_size(pool) + 2) - 1;
    world_did(w, "ls_pool_size");
    for (uint32_t n = world_draw(w, 6); n > 0; n--)
        world_note(
            w, "ls_pool_submit",
            ls_pool_submit(pool, worker, world_chance(w, 12) ? NULL : some_job(w), w, &w->err));
}

static ls_timeout some_timeout(world *w)
{
    const ls_timeout times[] = {0, 1, MOMENT_NS / 2, LS_FOREVER, LS_FOREVER};
    return times[world_draw(w, sizeof times / sizeof *times)];
}

static void run(world *w)
{
    ls_pool *pool = some_pool(w);
    if (pool)
        world_note(w, "ls_pool_run", ls_pool_run(pool, some_job(w), w, some_timeout(w), &w->err));
}

static void wait_for_all(world *w)
{
    ls_pool *pool = some_pool(w);
    if (pool)
        world_note(w, "ls_pool_wait", ls_pool_wait(pool, some_timeout(w), &w->err));
}

/* The trainer's pool, too: its owner is this thread, and no step is under way. */
static void cancel_or_clear(world *w)
{
    ls_pool *pool = world_chance(w, 2) ? w->devices : w->pool;
    if (!pool)
        return;
    if (world_chance(w, 2)) {
        ls_pool_cancel(pool);
        world_did(w, "ls_pool_cancel");
        if (world_chance(w, 2))
            return; /* and whatever comes next finds it so */
    }
    world_note(w, "ls_pool_clear", ls_pool_clear(pool, &w->err));
}

static void ask(world *w)
{
    ls_pool *pool = world_chance(w, 2) && w->devices ? w->devices : w->pool;
    ls_pool_stats stats = {.size = sizeof stats};
    int worker;
    if (!pool)
        return;
    ls_pool_busy(pool, (int)world_draw(w, 5) - 1);
    world_did(w, "ls_pool_busy");
    ls_pool_is_abandoned(pool, (int)world_draw(w, 5) - 1);
    world_did(w, "ls_pool_is_abandoned");
    world_note(w, "ls_pool_first_error", ls_pool_first_error(pool, &worker, &w->err));
    world_note(w, "ls_pool_get_stats",
               ls_pool_get_stats(pool, (int)world_draw(w, 6) - 2, &stats, &w->err));
    if (world_chance(w, 4))
        world_note(w, "ls_pool_serve", ls_pool_serve(pool, 0, &w->err));
}

static void abandon(world *w)
{
    ls_pool *pool = some_pool(w);
    if (pool && world_chance(w, 3))
        w->abandoned |=
            world_note(w, "ls_pool_abandon",
                       ls_pool_abandon(pool, (int)world_draw(w, 5) - 1, &w->err)) == LS_OK;
}

/* Destroys a pool. An abandoned worker may still be in a job, which uses the world; a destroy with
 * a time limit waits for it. LS_FOREVER does not, and a pool that leaves a worker is never
 * freed. */
static void end_pool(world *w, ls_pool **pool)
{
    ls_timeout timeout = w->abandoned || world_chance(w, 2) ? MINUTE_NS : LS_FOREVER;
    world_note(w, "ls_pool_destroy", ls_pool_destroy(*pool, timeout, &w->err));
    *pool = NULL;
    w->abandoned = w->abandoned && (w->pool || w->devices);
}

static void destroy_pool(world *w)
{
    if (w->pool && world_chance(w, 3))
        end_pool(w, &w->pool);
}

/* ---- sums ---- */

static void create_collective(world *w)
{
    ls_collective_options o = {.size = sizeof o,
                               .ranks = w->devices ? ls_pool_size(w->devices) : 1,
                               .floats = FLOATS,
                               .timeout = 200000000u,
                               .host = world_host(w)};
    if (w->collective) {
        if (world_chance(w, 4))
            ls_collective_abort(w->collective);
        ls_collective_destroy(w->collective);
        world_did(w, "ls_collective_destroy");
        w->collective = NULL;
        return;
    }
    switch (world_draw(w, 8)) {
    case 0: o.ranks = 0; break;
    case 1: o.floats = 0; break;
    case 2: o.algorithm = "guessing"; break;
    case 3: o.algorithm = "naive"; break;
    case 4: o.size = 1; break;
    default: break;
    }
    w->ranks = o.ranks;
    if (world_note(w, "ls_collective_create", ls_collective_create(&w->collective, &o, &w->err)) !=
        LS_OK)
        w->collective = NULL;
}

typedef struct sum {
    world *w;
    int wrong_rank; /* the worker that comes as another rank, or without an array; −1: none */
    int without;
    int status[8];
    ls_error err[8];
} sum;

static int add_up(const ls_worker *worker, void *arg, ls_error *err)
{
    sum *s = arg;
    float in[FLOATS], out[FLOATS];
    const int ranks = s->w->ranks, i = worker->index, wrong = i == s->wrong_rank;
    (void)err;
    if (ls_worker_local(worker)) /* no start hook has set one */
        return LS_EINTERNAL;
    for (int f = 0; f < FLOATS; f++)
        in[f] = (float)(i + f);
    s->status[i] =
        ls_all_reduce(s->w->collective, wrong && !s->without ? 77 : i, ls_worker_device(worker),
                      wrong && s->without ? NULL : in, out, &s->err[i]);
    for (int f = 0; f < FLOATS && s->status[i] == LS_OK; f++)
        if (out[f] != (float)(ranks * f + ranks * (ranks - 1) / 2))
            s->status[i] = 1; /* no status: a finding */
    return LS_OK;
}

static void all_reduce(world *w)
{
    sum s = {.w = w, .wrong_rank = -1, .without = world_chance(w, 2)};
    if (!w->collective || !w->devices || w->trainer || w->devices_broken)
        return;
    if (world_chance(w, 6))
        s.wrong_rank = 0;
    if (world_chance(w, 8)) {
        ls_collective_abort(w->collective);
        world_did(w, "ls_collective_abort");
    }
    const int size = ls_pool_size(w->devices);
    for (int i = 0; i < size; i++)
        s.status[i] = LS_EABORTED, s.err[i] = (ls_error){.status = LS_EABORTED, .text = "not run"};
    if (world_note(w, "ls_pool_run", ls_pool_run(w->devices, add_up, &s, LS_FOREVER, &w->err)) !=
        LS_OK)
        return;
    world_did(w, "ls_worker_device");
    world_did(w, "ls_worker_local");
    for (int i = 0; i < size; i++) {
        w->err = s.err[i];
        world_note(w, "ls_all_reduce", s.status[i]);
    }
}

static void destroy_devices(world *w)
{
    if (!w->devices || w->trainer || !world_chance(w, 3))
        return;
    ls_collective_destroy(w->collective); /* its ranks used these devices */
    w->collective = NULL;
    end_pool(w, &w->devices);
}

/* ---- arithmetic ---- */

static void split(world *w)
{
    uint32_t first, count, parts = world_draw(w, 6), index = world_draw(w, 7);
    const double capacity[] = {1, 2, 3, 4, 5};
    const uint32_t rows = world_draw(w, 100);
    ls_split(rows, parts, index, &first, &count);
    world_did(w, "ls_split");
    if (first > rows || count > rows - first)
        world_problem(w, "ls_split: part %u of %u of %u", index, parts, rows);
    ls_split_by_weights(rows, parts, index, capacity, &first, &count);
    world_did(w, "ls_split_by_weights");
    if (first > rows || count > rows - first)
        world_problem(w, "ls_split_by_weights: part %u of %u of %u", index, parts, rows);
    if (ls_allowed_cpus() < 1 || ls_allowed_cores() < 1)
        world_problem(w, "ls_allowed_cpus: none");
    world_did(w, "ls_allowed_cpus");
    world_did(w, "ls_allowed_cores");
    ls_status_name((int)world_draw(w, 40) - 30);
    world_did(w, "ls_status_name");
}

void world_end_pools(world *w)
{
    ls_collective_destroy(w->collective);
    w->collective = NULL;
    if (w->devices)
        end_pool(w, &w->devices);
    if (w->pool)
        end_pool(w, &w->pool);
}

world_call *const pool_calls[] = {create_pool,
                                  create_devices,
                                  use_registry,
                                  submit,
                                  submit,
                                  run,
                                  run,
                                  wait_for_all,
                                  cancel_or_clear,
                                  ask,
                                  abandon,
                                  destroy_pool,
                                  destroy_devices,
                                  create_collective,
                                  all_reduce,
                                  all_reduce,
                                  split,
                                  NULL};
