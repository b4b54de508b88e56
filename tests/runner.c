/* SPDX-License-Identifier: MIT */
/* The main function of the test program of a directory: lists its tests, runs one, or runs each in
 * a process of its own. */
#include "runner.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77
#define TIME_LIMIT_S 600.0

static ls_tests *first;
static const ls_tests *running;

/* Keeps the list sorted by name: the order of constructors is the linker's. */
void ls_tests_add(ls_tests *tests)
{
    ls_tests **at = &first;
    while (*at && strcmp((*at)->name, tests->name) < 0)
        at = &(*at)->next;
    tests->next = *at;
    *at = tests;
}

unsigned ls_tests_rounds(unsigned rounds, unsigned more)
{
    return running && running->long_form ? more : rounds;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The exit status of a child; that of a shell for one that a signal ended. The child is killed once
 * the time limit is over. */
static int wait_for(pid_t child)
{
    const struct timespec pause = {0, 2000000};
    const double end = now() + TIME_LIMIT_S;
    int status = 0;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            break;
        if (ended < 0 && errno != EINTR)
            return 1;
        if (now() > end)
            kill(child, SIGKILL);
        nanosleep(&pause, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs a test in a new process of the same program: a fork alone would inherit what tests before it
 * left in memory. */
static int run_alone(const char *program, const ls_tests *tests)
{
    const double start = now();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", program, "--run", tests->name, (char *)NULL);
        _exit(127);
    }
    int status = child < 0 ? 1 : wait_for(child);
    const char *word = status == 0 ? "ok" : status == SKIPPED ? "skipped" : "FAILED";
    printf("%-8s%8.2f s  %s", word, now() - start, tests->name);
    if (status > 128)
        printf(" (%s)", strsignal(status - 128));
    printf("\n");
    return status;
}

static int run_all(const char *program)
{
    int passed = 0, failed = 0, skipped = 0;
    for (const ls_tests *t = first; t; t = t->next) {
        int status = run_alone(program, t);
        passed += status == 0;
        skipped += status == SKIPPED;
        failed += status != 0 && status != SKIPPED;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : 0;
}

static int run_named(int argc, char **argv)
{
    const ls_tests *t = first;
    while (t && strcmp(t->name, argv[2]) != 0)
        t = t->next;
    if (!t) {
        fprintf(stderr, "%s: no test '%s'; --list shows them\n", argv[0], argv[2]);
        return 64;
    }
    int skip = 2;
    if (argc > 4 && strcmp(argv[3], "--only") == 0) {
        cmocka_set_test_filter(argv[4]);
        skip = 4;
    }
    argv[skip] = argv[0];
    running = t;
    return t->run(argc - skip, argv + skip);
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return run_all(argv[0]);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const ls_tests *t = first; t; t = t->next)
            printf("%s\t%s\n", t->name, t->labels);
        return 0;
    }
    if (argc > 2 && strcmp(argv[1], "--run") == 0)
        return run_named(argc, argv);
    fprintf(stderr, "usage: %s [--list | --run NAME [--only PATTERN] [ARGUMENT...]]\n", argv[0]);
    return 64;
}
