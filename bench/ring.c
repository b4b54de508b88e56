/* SPDX-License-Identifier: MIT */
/* Measures the cost of passing work between threads: with Lockstep's ring (a bounded queue between
 * two threads) and barrier, and with a queue and a barrier made of a mutex and a condition
 * variable.
 *
 *     bench_ring [rounds]        (default 15 interleaved rounds)
 *
 * "job there and back": the main thread passes an empty job to a worker and waits until it is done.
 * The job passes through two rings, through the worker pool, or through a queue with a mutex and a
 * condition variable. "barrier": two threads pass a barrier together. "parked": the same as
 * "barrier" or "job", but a waiting thread sleeps at once instead of spinning first. Lockstep's
 * pool also lets threads sleep at once if there are more threads than CPUs.
 *
 * A round measures each row once, so that a disturbance of the machine affects all rows alike. The
 * table shows the median over the rounds and the range of the middle half of them. */
#include "sync/ring.h"
#include "base/clock.h"
#include "measure.h"
#include "pool/pool.h"
#include "sync/barrier.h"

#include <lockstep/pool.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 101

/* For comparison: a queue and a barrier with one mutex and one condition variable. */
struct locked {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long asked, answered; /* number of jobs passed to the worker; number of jobs done */
    int arrived;          /* number of threads that have arrived at the barrier */
    unsigned phase;
};

static void locked_wait(struct locked *l)
{
    pthread_mutex_lock(&l->lock);
    unsigned phase = l->phase;
    if (++l->arrived == 2) {
        l->arrived = 0;
        l->phase++;
        pthread_cond_broadcast(&l->changed);
    }
    while (l->phase == phase)
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* The state of a measurement; `times` is the number of jobs or barriers in it. */
struct bench {
    ls_ring there, back;
    ls_barrier barrier;
    struct locked locked;
    ls_pool *pool;
    long times;
    ls_cpus cpus;
};

/* Pins the calling thread to a CPU. `side`, 0 or 1, is the number of the thread among the two
 * threads of a measurement, which run on different CPUs. Does nothing if there is only one CPU. */
static void stay_on(const struct bench *b, int side)
{
    if (b->cpus.count < 2)
        return;
    ls_cpus one = {.count = 1, .id = {b->cpus.id[side]}};
    ls_pin_thread(&one, NULL);
}

static int pop(ls_ring *ring, long *item)
{
    int which = -1;
    return ls_ring_pop_any(item, &which, &ring, 1, UINT64_MAX, NULL);
}

static void *ring_worker(void *arg)
{
    struct bench *b = arg;
    long job;
    stay_on(b, 1);
    while (pop(&b->there, &job) == LS_OK)
        ls_ring_push(&b->back, &job, UINT64_MAX, NULL);
    return NULL;
}

static void ring_owner(struct bench *b)
{
    for (long i = 0; i < b->times; i++) {
        ls_ring_push(&b->there, &i, UINT64_MAX, NULL);
        pop(&b->back, &(long){0});
    }
    ls_ring_close(&b->there);
}

static void *locked_worker(void *arg)
{
    struct bench *b = arg;
    struct locked *l = &b->locked;
    stay_on(b, 1);
    for (long i = 1; i <= b->times; i++) {
        pthread_mutex_lock(&l->lock);
        while (l->asked < i)
            pthread_cond_wait(&l->changed, &l->lock);
        l->answered = i;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static void locked_owner(struct bench *b)
{
    struct locked *l = &b->locked;
    for (long i = 1; i <= b->times; i++) {
        pthread_mutex_lock(&l->lock);
        l->asked = i;
        pthread_cond_broadcast(&l->changed);
        while (l->answered < i)
            pthread_cond_wait(&l->changed, &l->lock);
        pthread_mutex_unlock(&l->lock);
    }
}

static void *barrier_worker(void *arg)
{
    struct bench *b = arg;
    stay_on(b, 1);
    for (long i = 0; i < b->times; i++)
        ls_barrier_wait(&b->barrier, 1, UINT64_MAX, NULL);
    return NULL;
}

static void barrier_owner(struct bench *b)
{
    for (long i = 0; i < b->times; i++)
        ls_barrier_wait(&b->barrier, 0, UINT64_MAX, NULL);
}

static void *locked_barrier_worker(void *arg)
{
    struct bench *b = arg;
    stay_on(b, 1);
    for (long i = 0; i < b->times; i++)
        locked_wait(&b->locked);
    return NULL;
}

static void locked_barrier_owner(struct bench *b)
{
    for (long i = 0; i < b->times; i++)
        locked_wait(&b->locked);
}

static int nothing(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)arg;
    (void)err;
    return LS_OK;
}

static void pool_owner(struct bench *b)
{
    for (long i = 0; i < b->times; i++)
        ls_pool_run(b->pool, nothing, NULL, LS_FOREVER, NULL);
}

struct row {
    const char *name;
    int spins; /* non-zero: a waiting thread spins before it sleeps */
    long times;
    void *(*worker)(void *bench); /* function of the other thread; NULL: a worker of the pool */
    void (*owner)(struct bench *b);
    double ns[ROUNDS_MAX];
};

static struct row rows[] = {
    {"job there and back, rings", 1, 20000, ring_worker, ring_owner, {0}},
    {"job there and back, rings, parked", 0, 3000, ring_worker, ring_owner, {0}},
    {"job there and back, pool of 1", 1, 20000, NULL, pool_owner, {0}},
    {"job there and back, mutex + condvar", 0, 3000, locked_worker, locked_owner, {0}},
    {"barrier of 2", 1, 20000, barrier_worker, barrier_owner, {0}},
    {"barrier of 2, parked", 0, 3000, barrier_worker, barrier_owner, {0}},
    {"barrier of 2, mutex + condvar", 0, 3000, locked_barrier_worker, locked_barrier_owner, {0}},
};
#define ROWS ((int)(sizeof rows / sizeof rows[0]))

static void check(int rc, const ls_error *err)
{
    if (rc == LS_OK)
        return;
    fprintf(stderr, "bench_ring: %s\n", err->text);
    exit(1);
}

static void open_bench(struct bench *b, const struct row *row)
{
    ls_error err;
    unsigned spins = row->spins ? ls_spins_for(2, b->cpus.count) : 0;
    b->times = row->times;
    b->locked =
        (struct locked){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    b->pool = NULL;
    check(ls_ring_init(&b->there, NULL, sizeof(long), 2, &err), &err);
    check(ls_ring_init(&b->back, NULL, sizeof(long), 2, &err), &err);
    b->there.producer.spins = b->there.own.spins = spins;
    b->back.producer.spins = b->back.own.spins = spins;
    check(ls_barrier_init(&b->barrier, NULL, 2, spins, &err), &err);
    ls_pool_options o = {.size = sizeof o, .workers = 1};
    if (!row->worker)
        check(ls_pool_create(&b->pool, &o, &err), &err);
}

static void close_bench(struct bench *b)
{
    ls_pool_destroy(b->pool, LS_FOREVER, NULL);
    ls_barrier_fini(&b->barrier);
    ls_ring_fini(&b->back);
    ls_ring_fini(&b->there);
    pthread_cond_destroy(&b->locked.changed);
    pthread_mutex_destroy(&b->locked.lock);
}

/* Measures a row once. Returns the time of one job or one barrier in nanoseconds. The time includes
 * a small part of the time in which the other thread is started. */
static double measure(struct bench *b, const struct row *row)
{
    pthread_t t;
    open_bench(b, row);
    if (row->worker && pthread_create(&t, NULL, row->worker, b) != 0) {
        fprintf(stderr, "bench_ring: no thread\n");
        exit(1);
    }
    uint64_t begin = ls_now_ns();
    row->owner(b);
    double ns = (double)(ls_now_ns() - begin) / (double)row->times;
    if (row->worker)
        pthread_join(t, NULL);
    close_bench(b);
    return ns;
}

int main(int argc, char **argv)
{
    static struct bench b;
    ls_error err;
    int rounds = argc > 1 ? atoi(argv[1]) : 15;
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "bench_ring: expected 1 to %d rounds\n", ROUNDS_MAX);
        return 2;
    }
    check(ls_cpus_allowed(&b.cpus, "", &err), &err);
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < ROWS; i++) {
            /* The pool pins its worker itself. It can use the CPUs that this thread may use, so
             * this thread is allowed on all CPUs. */
            if (rows[i].worker)
                stay_on(&b, 0);
            else
                ls_pin_thread(&b.cpus, NULL);
            rows[i].ns[r] = measure(&b, &rows[i]);
        }
    printf("%-38s %12s   %s\n", "", "median us", "middle half us");
    for (int i = 0; i < ROWS; i++) {
        sort_values(rows[i].ns, rounds);
        printf("%-38s %12.2f   %.2f to %.2f\n", rows[i].name, rows[i].ns[rounds / 2] / 1000,
               rows[i].ns[rounds / 4] / 1000, rows[i].ns[rounds - 1 - rounds / 4] / 1000);
    }
    return 0;
}
