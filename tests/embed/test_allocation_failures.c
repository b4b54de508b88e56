/* SPDX-License-Identifier: MIT */
/* Lets every allocation through the host's allocator fail once: alone, and together with all later
 * ones. The public function that needed the memory must return an error, nothing may leak, and it
 * must be possible to close the handle.
 *
 *     embed_allocation_failures          every allocation; under a sanitizer, only every n-th
 *     embed_allocation_failures --all    every allocation */
#include "base/host.h"
#include "data/scratch.h"
#include "embed/scene.h"
#include "runner.h"

#include <lockstep/sys/plugin.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static int every;       /* how many points a step of the sweep goes */
static int at_rest = 1; /* threads of the process */

/* An allocator that fails on demand, and counts. Threads of the library call it concurrently. */
typedef struct meter {
    ls_host host;
    atomic_long calls, living;
    long fail_at;   /* the call, from 1; 0: none */
    int persistent; /* all later ones fail as well */
    atomic_long failed;
} meter;

static void *metered_alloc(void *user, size_t bytes, size_t align)
{
    meter *m = user;
    const long call = atomic_fetch_add(&m->calls, 1) + 1;
    if (m->fail_at && (m->persistent ? call >= m->fail_at : call == m->fail_at)) {
        atomic_fetch_add(&m->failed, 1);
        return NULL;
    }
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory)
        atomic_fetch_add(&m->living, 1);
    return memory;
}

static void metered_free(void *user, void *memory)
{
    atomic_fetch_sub(&((meter *)user)->living, 1);
    free(memory);
}

static void meter_begin(meter *m, long fail_at, int persistent)
{
    memset(m, 0, sizeof *m);
    m->host = (ls_host){sizeof m->host, metered_alloc, metered_free, NULL, m};
    m->fail_at = fail_at;
    m->persistent = persistent;
}

/* One scene with one failure. */
static void fail_once(const scene *base, long at, int persistent)
{
    const int had = process_descriptors();
    meter m;
    ls_error err = {0};
    int closed = -1;
    scene s = *base;
    meter_begin(&m, at, persistent);
    s.host = &m.host;
    const int status = scene_play(&s, &closed, &err);
    const int threads = process_threads(at_rest) - at_rest,
              descriptors = process_descriptors() - had;
    if (m.living != 0 || closed != LS_OK || threads != 0 || descriptors != 0)
        fail_msg("allocation %ld%s: %ld blocks, %d threads, %d descriptors leaked; closed: %d", at,
                 persistent ? " and all behind it" : "", (long)m.living, threads, descriptors,
                 closed);
    if (m.failed > 0 && status == LS_OK && persistent)
        fail_msg("allocation %ld and all behind it failed, and nobody said so", at);
    if (status != LS_OK && (status != LS_ENOMEM || err.text[0] == '\0'))
        fail_msg("allocation %ld: %s: %s", at, ls_status_name(status), err.text);
}

static void sweep(const char *devices)
{
    scratch files;
    meter m;
    ls_error err;
    scratch_begin(&files);
    scene s = {.devices = devices, .registry = scene_registry()};
    s.save = scratch_path(&files, "checkpoint");
    scene_play(&s, NULL, &err); /* lets libraries allocate what they keep */
    meter_begin(&m, 0, 0);
    s.host = &m.host;
    if (scene_play(&s, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    const long points = m.calls;
    assert_int_equal(m.living, 0);
    long tried = 0;
    for (long at = 1; at <= points; at += every, tried++) {
        fail_once(&s, at, 0);
        fail_once(&s, at, 1);
    }
    print_message("%s: %ld allocations, %ld of them failed, once and for good\n", devices, points,
                  tried);
    ls_registry_destroy(s.registry);
    scratch_end(&files);
}

static void every_allocation_may_fail_with_one_worker(void **state)
{
    (void)state;
    sweep("ref:1");
}

static void every_allocation_may_fail_with_two_workers(void **state)
{
    (void)state;
    sweep("ref:2");
}

static void every_allocation_of_the_cpu_back_end_may_fail(void **state)
{
    (void)state;
    ls_registry *registry = scene_registry();
    const int present = strcmp(ls_registry_at(registry, 0)->name, "ref") != 0;
    ls_registry_destroy(registry);
    if (!present)
        skip();
    sweep("cpu:2");
}

static void *end_at_once(void *unused)
{
    return unused;
}

LS_TESTS(embed_allocation_failures, "integration")
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    every = 7;
#else
    every = 1;
#endif
    if (argc > 1 && strcmp(argv[1], "--all") == 0)
        every = 1;
    pthread_t first; /* a sanitizer may begin one of its own beside it */
    if (pthread_create(&first, NULL, end_at_once, NULL) == 0)
        pthread_join(first, NULL);
    at_rest = process_threads(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail_with_one_worker),
        cmocka_unit_test(every_allocation_may_fail_with_two_workers),
        cmocka_unit_test(every_allocation_of_the_cpu_back_end_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
