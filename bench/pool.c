/* SPDX-License-Identifier: MIT */
/* Measures the cost of running a job in Lockstep's worker pool, in libuv's thread pool, and in a
 * plain pool made of a mutex and condition variables.
 *
 *     bench_pool [rounds]        (default 11 interleaved rounds)
 *
 * "job": gives one worker an empty job and waits for it. "gang": runs an empty job on as many
 * workers as there are CPUs (at most 8) and waits for all; in Lockstep's pool the calling thread is
 * one of the workers. All pools have the same number of workers. Every call is timed separately,
 * either directly after the last one, or after a pause of 1 ms in which the workers fall asleep.
 *
 * A round measures every row of the table once. The figure of a row in a round is the median over
 * the calls. The table shows the median over the rounds and the range of their middle half. Ratios
 * are computed round by round. The last table has the CPU time of idle pools. */
#include "base/clock.h"
#include "measure.h"

#include <lockstep/pool.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef LOCKSTEP_HAVE_UV
#include <uv.h>
#endif

#define ROUNDS_MAX 101
#define CALLS_MAX 4000
#define WORKERS_MAX 8

static int workers;

/* ---- Lockstep ------------------------------------------------------------------------------- */

static ls_pool *lockstep;

static int nothing(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)arg;
    (void)err;
    return LS_OK;
}

static int open_lockstep(int pinned)
{
    ls_pool_options o = {.size = sizeof o,
                         .workers = workers,
                         .caller_works = workers > 1,
                         .pinning = pinned ? LS_PINNING_ON : LS_PINNING_OFF};
    return ls_pool_create(&lockstep, &o, NULL);
}

static int lockstep_open(void)
{
    return open_lockstep(0);
}

/* Opens Lockstep's pool with pinned workers. The kernel may move the threads of the other pools. */
static int pinned_open(void)
{
    return open_lockstep(1);
}

static void lockstep_close(void)
{
    ls_pool_destroy(lockstep, LS_FOREVER, NULL);
}

static void lockstep_job(void)
{
    ls_pool_submit(lockstep, workers - 1, nothing, NULL, NULL);
    ls_pool_wait(lockstep, LS_FOREVER, NULL);
}

static void lockstep_gang(void)
{
    ls_pool_run(lockstep, nothing, NULL, LS_FOREVER, NULL);
}

/* ---- mutex and condition variables ---------------------------------------------------------- */

/* A pool with a single queue for all workers, as many simple pools have. The jobs are empty, so the
 * queue is only the number of waiting jobs. */
static struct plain {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int queued, unfinished, ending;
    pthread_t thread[WORKERS_MAX];
} plain;

static void *plain_worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&plain.lock);
    for (;;) {
        while (plain.queued == 0 && !plain.ending)
            pthread_cond_wait(&plain.work, &plain.lock);
        if (plain.ending)
            break;
        plain.queued--;
        pthread_mutex_unlock(&plain.lock);
        nothing(NULL, NULL, NULL);
        pthread_mutex_lock(&plain.lock);
        if (--plain.unfinished == 0)
            pthread_cond_signal(&plain.done);
    }
    pthread_mutex_unlock(&plain.lock);
    return NULL;
}

static int plain_open(void)
{
    pthread_mutex_init(&plain.lock, NULL);
    pthread_cond_init(&plain.work, NULL);
    pthread_cond_init(&plain.done, NULL);
    plain.ending = 0;
    for (int i = 0; i < workers; i++)
        if (pthread_create(&plain.thread[i], NULL, plain_worker, NULL) != 0)
            return -1;
    return 0;
}

static void plain_close(void)
{
    pthread_mutex_lock(&plain.lock);
    plain.ending = 1;
    pthread_cond_broadcast(&plain.work);
    pthread_mutex_unlock(&plain.lock);
    for (int i = 0; i < workers; i++)
        pthread_join(plain.thread[i], NULL);
    pthread_cond_destroy(&plain.done);
    pthread_cond_destroy(&plain.work);
    pthread_mutex_destroy(&plain.lock);
}

static void plain_jobs(int jobs)
{
    pthread_mutex_lock(&plain.lock);
    plain.queued = plain.unfinished = jobs;
    if (jobs == 1)
        pthread_cond_signal(&plain.work);
    else
        pthread_cond_broadcast(&plain.work);
    while (plain.unfinished > 0)
        pthread_cond_wait(&plain.done, &plain.lock);
    pthread_mutex_unlock(&plain.lock);
}

static void plain_job(void)
{
    plain_jobs(1);
}

static void plain_gang(void)
{
    plain_jobs(workers);
}

/* ---- libuv ---------------------------------------------------------------------------------- */

#ifdef LOCKSTEP_HAVE_UV
static uv_loop_t loop;

static void uv_nothing(uv_work_t *request)
{
    (void)request;
}

static void uv_after(uv_work_t *request, int status)
{
    (void)request;
    (void)status;
}

static void uv_jobs(int jobs)
{
    uv_work_t request[WORKERS_MAX];
    for (int i = 0; i < jobs; i++)
        uv_queue_work(&loop, &request[i], uv_nothing, uv_after);
    uv_run(&loop, UV_RUN_DEFAULT); /* returns when no job is left */
}

/* libuv's threads belong to the process: they start with the first job and never end. */
static int libuv_open(void)
{
    char text[16];
    snprintf(text, sizeof text, "%d", workers);
    setenv("UV_THREADPOOL_SIZE", text, 1);
    return uv_loop_init(&loop);
}

static void libuv_close(void)
{
    uv_loop_close(&loop);
}

static void libuv_job(void)
{
    uv_jobs(1);
}

static void libuv_gang(void)
{
    uv_jobs(workers);
}
#endif

/* ---- measuring ------------------------------------------------------------------------------ */

static const struct kind {
    const char *name;
    int (*open)(void);
    void (*close)(void);
    void (*call[2])(void); /* the functions for "job" and "gang" */
} kinds[] = {
    {"Lockstep", lockstep_open, lockstep_close, {lockstep_job, lockstep_gang}},
    {"Lockstep pinned", pinned_open, lockstep_close, {lockstep_job, lockstep_gang}},
    {"mutex + condvar", plain_open, plain_close, {plain_job, plain_gang}},
#ifdef LOCKSTEP_HAVE_UV
    {"libuv", libuv_open, libuv_close, {libuv_job, libuv_gang}},
#endif
};
#define KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static const struct {
    const char *name;
    int call;
    int calls;
    long pause_ns;
} cases[] = {
    {"job, back to back", 0, 4000, 0},
    {"gang, back to back", 1, 4000, 0},
    {"job, 1 ms apart", 0, 200, 1000000},
    {"gang, 1 ms apart", 1, 200, 1000000},
};
#define CASES ((int)(sizeof cases / sizeof cases[0]))

static double us[CASES][KINDS][ROUNDS_MAX];
static double idle_percent[KINDS][ROUNDS_MAX];

static void nap(long ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
}

/* Returns the median time of a call in microseconds. */
static double measure(const struct kind *kind, int c)
{
    static double took[CALLS_MAX];
    for (int i = 0; i < 20; i++)
        kind->call[cases[c].call]();
    for (int i = 0; i < cases[c].calls; i++) {
        if (cases[c].pause_ns)
            nap(cases[c].pause_ns);
        uint64_t begin = ls_now_ns();
        kind->call[cases[c].call]();
        took[i] = (double)(ls_now_ns() - begin) / 1000;
    }
    sort_values(took, cases[c].calls);
    return took[cases[c].calls / 2];
}

/* Returns the CPU time of the whole process during 0.3 s without a job, in percent of one CPU. */
static double measure_idle(const struct kind *kind)
{
    kind->call[1]();
    double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    nap(300000000);
    return (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before) / 0.3 * 100;
}

static void measure_round(int round)
{
    for (int i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[(i + round) % KINDS];
        int k = (i + round) % KINDS;
        if (kind->open() != 0) {
            fprintf(stderr, "bench_pool: %s does not start\n", kind->name);
            exit(1);
        }
        for (int c = 0; c < CASES; c++)
            us[c][k][round] = measure(kind, c);
        idle_percent[k][round] = measure_idle(kind);
        kind->close();
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static void print_spread(const double *values, int n, const char *format)
{
    double sorted[ROUNDS_MAX];
    memcpy(sorted, values, (size_t)n * sizeof sorted[0]);
    sort_values(sorted, n);
    printf(format, sorted[n / 2], sorted[n / 4], sorted[n - 1 - n / 4]);
}

static void print_case(int c, int rounds)
{
    for (int k = 0; k < KINDS; k++) {
        double ratio[ROUNDS_MAX];
        for (int r = 0; r < rounds; r++)
            ratio[r] = us[c][k][r] / us[c][0][r];
        printf("%-20s %-18s", cases[c].name, kinds[k].name);
        print_spread(us[c][k], rounds, "%10.2f   %7.2f to %7.2f");
        if (k > 0)
            print_spread(ratio, rounds, "  %10.2f   %6.2f to %6.2f");
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_pool: expected 1 to %d rounds\n", ROUNDS_MAX);
        return 2;
    }
    workers = ls_allowed_cpus() < WORKERS_MAX ? ls_allowed_cpus() : WORKERS_MAX;
    for (int r = 0; r < rounds; r++)
        measure_round(r);
    printf("%d workers\n\n%-39s%10s   %18s  %10s   %15s\n", workers, "", "median us",
           "middle half us", "x Lockstep", "middle half");
    for (int c = 0; c < CASES; c++)
        print_case(c, rounds);
    printf("\n%-39s%10s   %18s\n", "", "median %", "middle half %");
    for (int k = 0; k < KINDS; k++) {
        printf("%-20s %-18s", "idle, CPU time", kinds[k].name);
        print_spread(idle_percent[k], rounds, "%10.3f   %7.3f to %7.3f\n");
    }
#ifndef LOCKSTEP_HAVE_UV
    printf("\nlibuv: not found when this was built (Debian: libuv1-dev)\n");
#endif
    return 0;
}
