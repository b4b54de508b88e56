/* SPDX-License-Identifier: MIT */
/* Tests that Lockstep leaves the state of the program that uses it unchanged: its signal handler,
 * its locale, its OpenMP team, and a child that it has forked before. */
#include "data/scratch.h"
#include "embed/scene.h"
#include "runner.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* The back end of a sanitizer build is the reference: its team and its library are seen through. */
static const char *devices = "ref:2";

typedef struct stage {
    scratch files;
    scene s;
} stage;

static void begin(stage *g)
{
    memset(g, 0, sizeof *g);
    scratch_begin(&g->files);
    g->s.devices = devices;
    g->s.registry = scene_registry();
    g->s.save = scratch_path(&g->files, "checkpoint");
}

static void end(stage *g)
{
    ls_registry_destroy(g->s.registry);
    scratch_end(&g->files);
}

static void play(stage *g)
{
    ls_error err;
    int closed;
    if (scene_play(&g->s, &closed, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(closed, LS_OK);
}

/* ---- signals ---- */

static volatile sig_atomic_t interrupts;
static pthread_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupts++;
    interrupted = pthread_self();
}

static void interrupt_the_process(void *unused)
{
    (void)unused;
    kill(getpid(), SIGINT);
}

static void its_signal_handler_runs_on_its_own_thread_and_stays(void **state)
{
    (void)state;
    stage g;
    struct sigaction mine = {.sa_handler = on_interrupt}, before[32], after;
    sigset_t mask_before, mask_after;
    sigaddset(&mine.sa_mask, SIGUSR2);
    assert_int_equal(sigaction(SIGINT, &mine, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    for (int s = 1; s < 32; s++)
        sigaction(s, NULL, &before[s]);
    begin(&g);
    g.s.steps = 5;
    g.s.between = interrupt_the_process;
    play(&g);
    assert_int_equal(interrupts, 5);
    assert_true(pthread_equal(interrupted, pthread_self()));
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    for (int s = 1; s < 32; s++) {
        assert_int_equal(sigismember(&mask_before, s), sigismember(&mask_after, s));
        sigaction(s, NULL, &after);
        assert_ptr_equal(after.sa_handler, before[s].sa_handler);
    }
    sigaction(SIGINT, NULL, &after);
    assert_ptr_equal(after.sa_handler, on_interrupt);
    assert_int_equal(sigismember(&after.sa_mask, SIGUSR2), 1);
    signal(SIGINT, SIG_DFL);
    end(&g);
}

/* ---- locale, environment, arithmetic ---- */

/* Reads the beginning of a checkpoint after the length: a text full of numbers. */
static void read_state(const stage *g, char *out, size_t size)
{
    FILE *f = fopen(g->s.save, "r");
    assert_non_null(f);
    assert_int_equal(fseek(f, 8, SEEK_SET), 0);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
}

static void its_locale_stays_and_files_do_not_follow_it(void **state)
{
    (void)state;
    static const char *const german[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE"};
    char chosen[64] = "", text[8192];
    stage g;
    for (int i = 0; i < 3 && !chosen[0]; i++)
        if (setlocale(LC_ALL, german[i]))
            snprintf(chosen, sizeof chosen, "%s", setlocale(LC_ALL, NULL));
    if (!chosen[0]) {
        print_message("skipped: there is no German locale\n");
        skip();
    }
    assert_string_equal(localeconv()->decimal_point, ","); /* or this shows nothing */
    begin(&g);
    play(&g);
    assert_string_equal(setlocale(LC_ALL, NULL), chosen);
    read_state(&g, text, sizeof text);
    assert_non_null(strstr(text, "0.05"));
    assert_null(strstr(text, "0,05"));
    setlocale(LC_ALL, "C");
    end(&g);
}

static void its_environment_and_its_arithmetic_stay(void **state)
{
    (void)state;
    extern char **environ;
    stage g;
    char directory[400], after[400];
    int variables = 0, still = 0;
    for (char **v = environ; *v; v++)
        variables++;
    const mode_t mask = umask(027);
    assert_non_null(getcwd(directory, sizeof directory));
    fesetround(FE_UPWARD);
    volatile float tiny = 1e-38f;
    begin(&g);
    play(&g);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    tiny /= 16;
    assert_true(tiny > 0); /* numbers below the normal range are not flushed to zero */
    for (char **v = environ; *v; v++)
        still++;
    assert_int_equal(still, variables);
    assert_string_equal(getcwd(after, sizeof after), directory);
    assert_int_equal(umask(mask), 027);
    end(&g);
}

/* Reads the tensors of the checkpoint, which follow its header, and their size in bytes; the caller
 * frees them with free(). */
static uint8_t *read_tensors(const stage *g, size_t *count)
{
    uint8_t length[8];
    long header = 0, end;
    FILE *f = fopen(g->s.save, "rb");
    assert_non_null(f);
    assert_int_equal(fread(length, 1, 8, f), 8);
    for (int i = 3; i >= 0; i--)
        header = header << 8 | length[i];
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    end = ftell(f);
    assert_true(end > 8 + header);
    *count = (size_t)(end - 8 - header);
    uint8_t *tensors = malloc(*count);
    assert_non_null(tensors);
    assert_int_equal(fseek(f, 8 + header, SEEK_SET), 0);
    assert_int_equal(fread(tensors, 1, *count, f), *count);
    fclose(f);
    return tensors;
}

/* As libraries do that were built with -ffast-math, where the processor can. */
static void flush_small_numbers(void)
{
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static void its_arithmetic_changes_no_bit(void **state)
{
    (void)state;
    stage g;
    size_t n, m;
    fenv_t before;
    begin(&g);
    play(&g);
    uint8_t *wanted = read_tensors(&g, &n);
    fegetenv(&before);
    fesetround(FE_UPWARD);
    flush_small_numbers();
    play(&g);
    assert_int_equal(fegetround(), FE_UPWARD); /* and it stays */
#ifdef __SSE__
    assert_int_equal(_mm_getcsr() & 0x8040, 0x8040);
#endif
    fesetenv(&before);
    uint8_t *found = read_tensors(&g, &m);
    assert_int_equal(m, n);
    assert_memory_equal(found, wanted, n);
    free(wanted);
    free(found);
    end(&g);
}

/* ---- threads and processes ---- */

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need more */
static void *play_on(void *arg)
{
    play(arg);
    return NULL;
}

static void a_thread_with_128_kib_of_stack_is_enough(void **state)
{
    (void)state;
    stage g;
    pthread_t thread;
    pthread_attr_t attr;
    struct rlimit before, low;
    begin(&g);
    getrlimit(RLIMIT_STACK, &before);
    low = before;
    low.rlim_cur = 64 << 10; /* default stack size of threads */
    assert_int_equal(setrlimit(RLIMIT_STACK, &low), 0);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 128 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, play_on, &g), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
    pthread_attr_destroy(&attr);
    end(&g);
}
#endif

static void its_team_of_threads_keeps_its_width(void **state)
{
    (void)state;
#ifdef _OPENMP
    stage g;
    omp_set_num_threads(3);
    int before = 0, after = 0;
#pragma omp parallel reduction(+ : before)
    before += 1;
    begin(&g);
    play(&g);
#pragma omp parallel reduction(+ : after)
    after += 1;
    assert_int_equal(before, after);
    assert_int_equal(omp_get_max_threads(), 3);
    end(&g);
#else
    skip();
#endif
}

static void nothing_is_left_of_threads_and_descriptors(void **state)
{
    (void)state;
    stage g;
    begin(&g);
    play(&g); /* lets libraries allocate what they keep */
    const int threads = process_threads(1), descriptors = process_descriptors();
    for (int i = 0; i < 3; i++)
        play(&g);
    assert_int_equal(process_threads(threads), threads);
    assert_int_equal(process_descriptors(), descriptors);
    end(&g);
}

static void a_child_that_was_forked_before_trains_beside_its_parent(void **state)
{
    (void)state;
    stage g;
    begin(&g);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char path[600];
        ls_error err;
        snprintf(path, sizeof path, "%s-of-the-child", g.s.save);
        g.s.save = path;
        _exit(scene_play(&g.s, NULL, &err) == LS_OK ? 0 : 1);
    }
    play(&g);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    end(&g);
}

LS_TESTS(embed_host, "integration")
{
    if (argc > 1)
        devices = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_that_was_forked_before_trains_beside_its_parent),
        cmocka_unit_test(its_signal_handler_runs_on_its_own_thread_and_stays),
        cmocka_unit_test(its_locale_stays_and_files_do_not_follow_it),
        cmocka_unit_test(its_environment_and_its_arithmetic_stay),
        cmocka_unit_test(its_arithmetic_changes_no_bit),
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        cmocka_unit_test(a_thread_with_128_kib_of_stack_is_enough),
#endif
        cmocka_unit_test(its_team_of_threads_keeps_its_width),
        cmocka_unit_test(nothing_is_left_of_threads_and_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
