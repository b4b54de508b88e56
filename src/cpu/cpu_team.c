/* SPDX-License-Identifier: MIT */
/* A worker's team of threads. cpu_team.h has the argument why this is safe. */
#include "cpu/cpu_team.h"

#include "base/error.h"
#include "base/host.h"
#include "sync/park.h"

#include <lockstep/pool.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* The memory orders of the team's argument (cpu_team.h). They are macros so that a test can weaken
 * each one and check that ThreadSanitizer reports a race (tests/sync/weakened_orders.sh). */
#ifndef LS_TEAM_PUBLISH
#define LS_TEAM_PUBLISH memory_order_release
#endif
#ifndef LS_TEAM_CLAIM
#define LS_TEAM_CLAIM memory_order_acquire
#endif
#ifndef LS_TEAM_DONE
#define LS_TEAM_DONE memory_order_release
#endif
#ifndef LS_TEAM_JOIN
#define LS_TEAM_JOIN memory_order_acquire
#endif

#ifndef LS_TEAM_SPINS
#define LS_TEAM_SPINS ls_spins_for(threads, ls_allowed_cpus())
#endif

#define THREADS_MAX 1024

/* Three parts have cache lines of their own: the job's fields, the word that all threads write when
 * they claim an item, and the count of finished items. */
struct ls_team {
    const ls_host *host;
    int threads, helpers; /* number of threads of the team; number of helpers that were started */
    pid_t process;
    pthread_t *helper;
    ls_team_work *work;
    void *arg;
    uint32_t items;        /* number of items of the current job; only the worker uses it */
    ls_team_counts counts; /* only the worker uses them */
    _Alignas(LS_ALIGN) _Atomic uint64_t word; /* number of items of the job << 32 | next item */
    atomic_bool ended;
    ls_park idle; /* helpers without work wait here */
    _Alignas(LS_ALIGN) _Atomic uint32_t done;
    ls_park join; /* the worker waits here until all items are done */
};

static uint32_t items_of(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* Returns the next item. It exceeds the number of items by at most the number of helpers, because
 * each thread looks at the word before it claims (cpu_team.h, 2). */
static uint32_t next_of(uint64_t word)
{
    return (uint32_t)word;
}

static bool has_items(const ls_team *team)
{
    const uint64_t word = atomic_load_explicit(&team->word, memory_order_relaxed);
    return next_of(word) < items_of(word);
}

static void take_items(ls_team *team)
{
    while (has_items(team)) {
        const uint64_t word = atomic_fetch_add_explicit(&team->word, 1, LS_TEAM_CLAIM);
        if (next_of(word) >= items_of(word))
            return;
        team->work(team->arg, next_of(word));
        if (atomic_fetch_add_explicit(&team->done, 1, LS_TEAM_DONE) + 1 == items_of(word))
            ls_park_wake(&team->join);
    }
}

static bool has_work(void *arg)
{
    ls_team *team = arg;
    /* relaxed: the claim of an item acquires what the item needs, and `ended` hands no data
     * over. */
    return has_items(team) || atomic_load_explicit(&team->ended, memory_order_relaxed);
}

static void *help(void *arg)
{
    ls_team *team = arg;
    while (!atomic_load_explicit(&team->ended, memory_order_relaxed)) {
        take_items(team);
        ls_park_until(&team->idle, has_work, team, UINT64_MAX);
    }
    return NULL;
}

static bool all_done(void *arg)
{
    ls_team *team = arg;
    return atomic_load_explicit(&team->done, LS_TEAM_JOIN) == team->items;
}

/* Runs a job. `counted`: number of items and parts to count. */
static void run_job(ls_team *team, uint32_t items, uint32_t counted, ls_team_work *work, void *arg)
{
    if (!team || team->helpers == 0 || items < 2) {
        for (uint32_t i = 0; i < items; i++)
            work(arg, i);
        return;
    }
    team->items = items;
    team->work = work;
    team->arg = arg;
    team->counts.jobs++;
    team->counts.items += counted;
    /* relaxed: the store of the word publishes the reset of `done`. */
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    atomic_store_explicit(&team->word, (uint64_t)items << 32, LS_TEAM_PUBLISH);
    ls_park_wake(&team->idle);
    take_items(team);
    ls_park_until(&team->join, all_done, team, UINT64_MAX);
}

void ls_team_run(ls_team *team, uint32_t items, ls_team_work *work, void *arg)
{
    run_job(team, items, items, work, arg);
}

/* A job of parts. The counter has a cache line of its own. */
typedef struct parts_job {
    ls_team_part *work;
    void *arg;
    uint32_t parts;
    _Alignas(LS_ALIGN) _Atomic uint32_t next; /* next part; exceeds `parts` by one a slot at most */
} parts_job;

static void take_parts(void *arg, uint32_t slot)
{
    parts_job *job = arg;
    uint32_t part;
    while ((part = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->parts)
        job->work(job->arg, slot, part);
}

void ls_team_run_parts(ls_team *team, uint32_t parts, ls_team_part *work, void *arg)
{
    const uint32_t threads = (uint32_t)ls_team_size(team);
    parts_job job = {.work = work, .arg = arg, .parts = parts};
    run_job(team, parts < threads ? parts : threads, parts, take_parts, &job);
}

int ls_team_size(const ls_team *team)
{
    return team ? team->threads : 1;
}

uint32_t ls_team_cuts(const ls_team *team, uint32_t items, uint32_t most)
{
    const uint32_t threads = (uint32_t)ls_team_size(team), wanted = threads > 1 ? 2 * threads : 1;
    const uint32_t cuts = (wanted + items - 1) / items;
    return cuts < most ? cuts : most;
}

ls_team_counts ls_team_counted(const ls_team *team)
{
    return team ? team->counts : (ls_team_counts){0};
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static int start_helpers(ls_team *team, ls_error *err)
{
    int error = 0;
    char why[LS_THREAD_REASON];
    for (; team->helpers < team->threads - 1 && !error; team->helpers += !error)
        error = ls_thread_start(&team->helper[team->helpers], help, team);
    return error ? ls_fail(err, LS_ESYSTEM,
                           "the system refused thread %d of a team of %d: %s; raise the limit, or "
                           "ask for fewer threads",
                           team->helpers + 2, team->threads, ls_thread_reason(why, error))
                 : LS_OK;
}

int ls_team_create(ls_team **out, int threads, const ls_host *host, ls_error *err)
{
    *out = NULL;
    if (threads < 1 || threads > THREADS_MAX)
        return ls_fail(err, LS_EINVAL, "a team of %d threads: expected 1 to %d", threads,
                       THREADS_MAX);
    ls_team *team = ls_alloc(host, sizeof *team);
    if (!team)
        return ls_fail(err, LS_ENOMEM, "out of memory for a team");
    const unsigned spins = LS_TEAM_SPINS;
    *team = (ls_team){.host = host, .threads = threads, .process = getpid()};
    ls_park_init(&team->idle, spins);
    ls_park_init(&team->join, spins);
    team->helper = ls_alloc_array(host, (size_t)threads, sizeof *team->helper);
    int status = team->helper ? start_helpers(team, err)
                              : ls_fail(err, LS_ENOMEM, "out of memory for a team of %d", threads);
    if (status)
        ls_team_destroy(team);
    else
        *out = team;
    return status;
}

void ls_team_destroy(ls_team *team)
{
    if (!team)
        return;
    atomic_store_explicit(&team->ended, true, memory_order_relaxed);
    ls_park_wake(&team->idle);
    for (int i = 0; i < team->helpers && team->process == getpid(); i++)
        pthread_join(team->helper[i], NULL);
    ls_free(team->host, team->helper);
    ls_free(team->host, team);
}
