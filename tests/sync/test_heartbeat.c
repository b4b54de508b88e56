/* SPDX-License-Identifier: MIT */
/* Tests heartbeats: what a watching thread can conclude from them about a worker. */
#define _GNU_SOURCE /* for sched_setaffinity: some threads share one CPU */
#include "base/clock.h"
#include "runner.h"
#include "sync/heartbeat.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

static uint64_t beats(const ls_heartbeat *heartbeat)
{
    return atomic_load_explicit(&heartbeat->word, memory_order_relaxed) >> 24;
}

static void a_beat_is_counted_and_says_where(void **state)
{
    (void)state;
    ls_heartbeat h[2] = {{0}};
    /* each heartbeat has a cache line of its own */
    assert_true((uintptr_t)&h[1] - (uintptr_t)&h[0] == 64);
    assert_int_equal(beats(&h[0]), 0);
    assert_int_equal(ls_heartbeat_place(&h[0]), 0);
    ls_beat(&h[0], 7);
    assert_int_equal(ls_heartbeat_place(&h[0]), 7);
    ls_beat(&h[0], 8);
    ls_beat(&h[0], LS_PLACE_MAX);
    assert_int_equal(beats(&h[0]), 3);
    assert_int_equal(ls_heartbeat_place(&h[0]), LS_PLACE_MAX);
    ls_beat(&h[0], LS_PLACE_MAX + 6); /* an invalid place does not change the number of beats */
    assert_int_equal(beats(&h[0]), 4);
    assert_int_equal(ls_heartbeat_place(&h[0]), 5);
    assert_int_equal(beats(&h[1]), 0);
}

static void the_count_wraps_and_still_changes(void **state)
{
    (void)state;
    ls_heartbeat h = {.word = UINT64_MAX};
    uint64_t before = beats(&h);
    ls_beat(&h, 3);
    assert_int_equal(before, (UINT64_C(1) << 40) - 1);
    assert_int_equal(beats(&h), 0);
    assert_int_equal(ls_heartbeat_place(&h), 3);
}

#define BEATS 3000000

/* Beats BEATS times; the place of each beat is the beat's number. */
static void *beat(void *arg)
{
    for (int i = 1; i <= BEATS; i++)
        ls_beat(arg, i);
    return NULL;
}

static void a_watcher_never_goes_back_in_time(void **state)
{
    (void)state;
    static ls_heartbeat h;
    pthread_t t;
    uint64_t last = 0;
    assert_int_equal(pthread_create(&t, NULL, beat, &h), 0);
    while (last < BEATS) {
        uint64_t count = beats(&h);
        uint64_t place = (uint64_t)ls_heartbeat_place(&h), after = beats(&h);
        if (count < last || place < count || after < place)
            fail_msg("after %llu: count %llu, place %llu, count %llu", (unsigned long long)last,
                     (unsigned long long)count, (unsigned long long)place,
                     (unsigned long long)after);
        last = count;
    }
    pthread_join(t, NULL);
}

/* ---- silence -------------------------------------------------------------------------------- */

#define MS 1000000

enum { SLEEPS, SPINS };

typedef struct silent {
    int kind, nice;
    pthread_t thread;
    _Atomic int number, ends;
} silent;

/* The thread that is watched. It never beats; it sleeps or spins (`kind`). */
static void *keep_silent(void *arg)
{
    silent *s = arg;
    /* long, so that the thread seldom wakes and seldom waits for a CPU */
    const struct timespec nap = {.tv_nsec = 100 * MS};
    setpriority(PRIO_PROCESS, 0, s->nice);
    atomic_store(&s->number, ls_thread_self());
    while (!atomic_load_explicit(&s->ends, memory_order_relaxed))
        if (s->kind == SLEEPS)
            nanosleep(&nap, NULL);
    return NULL;
}

static void begin(silent *s, int kind, int nice)
{
    *s = (silent){.kind = kind, .nice = nice};
    assert_int_equal(pthread_create(&s->thread, NULL, keep_silent, s), 0);
    while (!atomic_load(&s->number))
        sched_yield();
}

static void end(silent *s)
{
    atomic_store(&s->ends, 1);
    pthread_join(s->thread, NULL);
}

/* Watches the thread for half a second, or longer on a busy machine. Returns which fraction of that
 * time counts as the thread's silence (held_ns). */
static double share_held(const silent *s)
{
    static ls_heartbeat never;
    const struct timespec nap = {.tv_nsec = LS_NAP_NS};
    ls_silence silence = {0};
    uint64_t seen = ls_now_ns(), begun = seen;
    while (ls_now_ns() - begun < 500 * MS) {
        nanosleep(&nap, NULL);
        ls_silence_look(&silence, &never, atomic_load(&s->number), ls_now_ns() - seen, 0);
        seen = ls_now_ns();
    }
    return (double)silence.held_ns / (double)(ls_now_ns() - begun);
}

static void skip_without_proc(void)
{
    if (ls_thread_self() == 0)
        skip();
}

static void time_asleep_counts(void **state)
{
    silent s;
    (void)state;
    begin(&s, SLEEPS, 0);
    assert_true(share_held(&s) > 0.75);
    end(&s);
}

/* The time for which the thread ran must count. (On a busy machine the thread does not run all the
 * time.) */
static void time_at_work_counts(void **state)
{
    silent s;
    ls_thread_use before, after;
    (void)state;
    skip_without_proc();
    begin(&s, SPINS, 0);
    assert_true(ls_thread_look(&before, s.number));
    const uint64_t begun = ls_now_ns();
    const double held = share_held(&s);
    const double seconds = (double)(ls_now_ns() - begun);
    assert_true(ls_thread_look(&after, s.number));
    const double ran = (double)(after.ran_ns - before.ran_ns) / seconds;
    end(&s);
    assert_true(held > ran / 2 - 0.1 && held < ran + 0.1);
}

static void time_without_a_cpu_does_not_count(void **state)
{
    enum { HOGS = 3 };
    silent s, hog[HOGS];
    cpu_set_t before, one;
    (void)state;
    skip_without_proc();
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one); /* new threads inherit the affinity */
    begin(&s, SPINS, 19);
    for (int i = 0; i < HOGS; i++)
        begin(&hog[i], SPINS, 0);
    sched_setaffinity(0, sizeof before, &before);
    const double held = share_held(&s);
    for (int i = 0; i < HOGS; i++)
        end(&hog[i]);
    end(&s);
    assert_true(held < 0.2);
}

static void a_beat_ends_the_silence(void **state)
{
    ls_silence silence = {0};
    ls_heartbeat h = {0};
    (void)state;
    ls_silence_look(&silence, &h, 0, 20 * MS, 1000 * MS); /* the first look begins the silence */
    assert_int_equal(silence.held_ns, 0);
    for (int i = 1; i <= 3; i++) {
        ls_silence_look(&silence, &h, 0, 20 * MS, 1000 * MS);
        assert_int_equal(silence.held_ns, 20 * i * MS);
    }
    ls_beat(&h, 5);
    ls_silence_look(&silence, &h, 0, 20 * MS, 1000 * MS);
    assert_int_equal(silence.held_ns, 0);
    assert_int_equal(silence.place, 5);
}

LS_TESTS(sync_heartbeat, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_is_counted_and_says_where),
        cmocka_unit_test(the_count_wraps_and_still_changes),
        cmocka_unit_test(a_watcher_never_goes_back_in_time),
        cmocka_unit_test(a_beat_ends_the_silence),
        cmocka_unit_test(time_asleep_counts),
        cmocka_unit_test(time_at_work_counts),
        cmocka_unit_test(time_without_a_cpu_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
