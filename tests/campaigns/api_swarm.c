/* SPDX-License-Identifier: MIT */
/* Campaign: random sequences of calls of all functions in the public headers, valid and invalid,
 * with random failures of the allocator, of threads, of devices and of files.
 *
 *     api_swarm --headers DIR --directory DIR [--unreached FILE] [--sequences N | --seconds S]
 *               [--seed S] [--only NUMBER] [--findings N]
 *
 * A call passes if it returns success or an error that its header promises, with a text. Weights
 * that were returned with LS_OK must be those of an undisturbed trainer that made the same steps.
 * Prints one JSON object: the functions that returned success, the errors that each returned, and
 * the promised errors that did not occur and are not in FILE, the list of those that cannot occur
 * here (api_unreached.txt, which has the reasons). Exits with 1 at the first sequence that does not
 * pass, or at the Nth, after naming each. */
#include "base/clock.h"
#include "base/rng.h"
#include "campaigns/api_world.h"
#include "campaigns/arguments.h"
#include "ref/ref.h"
#include "train/faulty_backend.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLS = 40 /* calls of a sequence */, SECONDS = 120 /* for one, then it hangs */ };

static world here; /* one at a time; the alarm's handler reads it */

/* ---- draws, notes ---- */

uint32_t world_draw(world *w, uint32_t below)
{
    uint32_t out[4];
    ls_rng_words(out, w->seed, (uint32_t)w->number, 0, w->drawn++);
    return out[0] % below;
}

int world_chance(world *w, uint32_t times)
{
    return world_draw(w, times) == 0;
}

void world_problem(world *w, const char *format, ...)
{
    va_list args;
    if (w->problem[0])
        return;
    va_start(args, format);
    vsnprintf(w->problem, sizeof w->problem, format, args);
    va_end(args);
}

void world_did(world *w, const char *name)
{
    promise *p = promises_find(name);
    w->calls++;
    if (p)
        p->reached[0]++;
    else
        world_problem(w, "%s: no header declares it", name);
}

int world_note(world *w, const char *name, int status)
{
    promise *p = promises_find(name);
    w->calls++;
    if (!p || status > 0 || -status >= WORLD_STATUSES) {
        world_problem(w, "%s: status %d, or no header declares it", name, status);
        return status;
    }
    p->reached[-status]++;
    if (status && !(p->errors & 1u << -status))
        world_problem(w, "%s returned %s, which its header does not promise: %.300s", name,
                      ls_status_name(status), w->err.text);
    else if (status && (w->err.status != status || !w->err.text[0] || strchr(w->err.text, '\n')))
        world_problem(w, "%s returned %s, but the error says %s: \"%.300s\"", name,
                      ls_status_name(status), ls_status_name(w->err.status), w->err.text);
    return status;
}

/* ---- memory that fails ---- */

static void *alloc(void *user, size_t bytes, size_t align)
{
    world *w = user;
    const long left = atomic_load(&w->fails_in);
    if (left > 0 && atomic_fetch_sub(&w->fails_in, 1) == 1) {
        if (atomic_load(&w->persistent))
            atomic_store(&w->fails_in, 1);
        return NULL;
    }
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

const ls_host *world_host(world *w)
{
    return &w->host;
}

/* ---- threads that the system refuses ---- */

static atomic_int refused_in; /* the thread that is refused, counted down; 0: none */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    if (atomic_load(&refused_in) > 0 && atomic_fetch_sub(&refused_in, 1) == 1)
        return EAGAIN;
    return __real_pthread_create(t, attr, run, arg);
}

/* ---- a sequence ---- */

/* Before a call: sometimes memory, a thread or a device is about to fail. */
static void arm(world *w)
{
    atomic_store(&w->persistent, world_chance(w, 3));
    atomic_store(&w->fails_in, world_chance(w, 5) ? 1 + (long)world_draw(w, 60) : 0);
    atomic_store(&refused_in, world_chance(w, 12) ? 1 + (int)world_draw(w, 4) : 0);
    if (!world_chance(w, 8))
        return;
    fault.device = (int)world_draw(w, 2);
    switch (world_draw(w, 3)) {
    case 0: fault.tail_at = atomic_load(&fault.tails) + 1 + (int)world_draw(w, 6); break;
    case 1: fault.download_at = atomic_load(&fault.downloads) + 1 + (int)world_draw(w, 4); break;
    default: fault.alloc_at = atomic_load(&fault.allocs) + 1 + (int)world_draw(w, 12);
    }
}

void world_disarm(world *w)
{
    atomic_store(&w->fails_in, 0);
    atomic_store(&refused_in, 0);
}

static void begin(world *w, uint64_t seed, uint64_t number, const char *directory)
{
    memset(w, 0, sizeof *w);
    w->seed = seed;
    w->number = number;
    w->directory = directory;
    w->host = (ls_host){sizeof w->host, alloc, give_back, NULL, w};
    pthread_mutex_init(&w->lock, NULL);
    fault_reset();
    if (ls_registry_create(&w->registry, NULL, &w->err) ||
        ls_registry_add(w->registry, ls_ref_backend(), &w->err) ||
        ls_registry_add(w->registry, faulty_backend(), &w->err))
        abort();
}

static int table_length(world_call *const *table)
{
    int n = 0;
    while (table[n])
        n++;
    return n;
}

static void play(world *w)
{
    const uint32_t pools = (uint32_t)table_length(pool_calls);
    const uint32_t rare = (uint32_t)table_length(rare_calls);
    const uint32_t trainers = (uint32_t)table_length(trainer_calls);
    for (int i = 0; i < CALLS && !w->problem[0]; i++) {
        arm(w);
        if (world_chance(w, 40))
            rare_calls[world_draw(w, rare)](w);
        else if (world_chance(w, 3))
            pool_calls[world_draw(w, pools)](w);
        else
            trainer_calls[world_draw(w, trainers)](w);
    }
    world_disarm(w);
    fault_reset();
    world_end_trainer(w);
    world_end_pools(w);
    ls_registry_destroy(w->registry);
    pthread_mutex_destroy(&w->lock);
}

/* One of these hangs. */
static void on_alarm(int number)
{
    char text[200];
    const int n = snprintf(text, sizeof text, "api_swarm: sequence %llu of seed %llu hangs in %s\n",
                           (unsigned long long)here.number, (unsigned long long)here.seed,
                           here.call ? here.call : "the swarm");
    (void)number;
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(3);
    _exit(1);
}

int main(int argc, char **argv)
{
    const uint64_t seed = (uint64_t)number_argument(argc, argv, "--seed", 1);
    const double seconds = number_argument(argc, argv, "--seconds", 0);
    const double only = number_argument(argc, argv, "--only", -1);
    const double most = number_argument(argc, argv, "--sequences", seconds > 0 ? 1e15 : 200);
    const double most_findings = number_argument(argc, argv, "--findings", 1);
    const uint64_t begun = ls_now_ns();
    int findings = 0;
    unsigned long long calls = 0, sequences = 0;
    promises_read(argument(argc, argv, "--headers", "include/lockstep"));
    if (argument(argc, argv, "--unreached", NULL))
        promises_read_unreached(argument(argc, argv, "--unreached", NULL));
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, on_alarm);
    signal(SIGXFSZ, SIG_IGN);
    for (uint64_t n = only >= 0 ? (uint64_t)only : 0; (double)sequences < most; n++, sequences++) {
        if (seconds > 0 && (double)(ls_now_ns() - begun) * 1e-9 > seconds)
            break;
        alarm(SECONDS);
        begin(&here, seed, n, argument(argc, argv, "--directory", "."));
        play(&here);
        calls += here.calls;
        if (here.problem[0]) {
            printf("sequence %llu of seed %llu: %s\n", (unsigned long long)n,
                   (unsigned long long)seed, here.problem);
            if (++findings >= most_findings)
                return 1;
        }
        if (only >= 0)
            break;
    }
    if (findings)
        return 1;
    promises_print(sequences, calls);
    return 0;
}
