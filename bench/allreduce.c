/* SPDX-License-Identifier: MIT */
/* Measures the cost of an all-reduce, an element-wise sum over several workers, with every
 * algorithm, for messages of several sizes and several numbers of workers.
 *
 *     bench_allreduce [--seconds S] [--json FILE] [WORKERS...]
 *
 * A rank is one worker; known_sum.h has the numbers that are added. Before each measurement the
 * result is overwritten with NaN; after the measurement every rank checks every float. A
 * measurement consists of several calls, one after another, which take about a millisecond in
 * total. Its time begins when the first rank begins, and ends when the last rank has returned from
 * the last call.
 *
 * A round makes one measurement for each row of the table, so that a disturbance of the machine
 * affects all rows alike. There are as many rounds as fit in S seconds (default 15). The table
 * shows the median over the rounds, and the range of the middle half of them.
 *
 * The columns algbw and busbw have the meaning of nccl-tests. algbw is bytes / time. busbw is
 * algbw·2(n − 1)/n, the least number of bytes per second that each worker's link must carry. Unlike
 * algbw, busbw can be compared between different numbers of workers. A GB is 10⁹ bytes. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "comm/comm.h"
#include "known_sum.h"
#include "measure.h"
#include "sync/barrier.h"

#include <lockstep/device_pool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARAMETERS = 8,
    WORKERS_MOST = 64,
    TEAMS_MOST = 8,
    ROWS_MOST = 256,
    ROUNDS_LEAST = 3,
    ROUNDS_MOST = 101,
    CALLS_MOST = 20000
};
#define MEASUREMENT_NS 1000000.0
#define TIMEOUT_NS 60000000000ull

/* Lengths of the messages in floats. The shortest fits in any cache; 129072 is the gradient of
 * LeNet, 11175824 that of ResNet-18. */
static const size_t messages[] = {256, 4096, 65536, 129072, 1048576, 11175824};
#define MESSAGES (sizeof messages / sizeof messages[0])

/* The workers of some rows of the table, with an array of each worker. Each array has room for the
 * longest message. */
typedef struct team {
    int workers;
    ls_pool *pool;
    ls_barrier start;
    float *in[WORKERS_MOST], *out[WORKERS_MOST];
} team;

/* One line of the table. */
typedef struct row {
    const ls_comm_type *type;
    team *team;
    size_t floats;
    size_t parameters[PARAMETERS + 1];
    ls_comm_group *group;
    ls_comm *comm[WORKERS_MOST];
    int calls; /* number of calls in a measurement */
    uint64_t begin_ns[WORKERS_MOST], end_ns[WORKERS_MOST];
    double us[ROUNDS_MOST]; /* [round]: time of one call in microseconds */
} row;

static void check(int status, const ls_error *err)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "bench_allreduce: %s\n", err->text);
    exit(1);
}

/* ---- on the workers ------------------------------------------------------------------------- */

/* Allocates the arrays of a worker. Runs on the worker's thread, so that the arrays are in memory
 * near the worker's CPU. */
static int open_member(const ls_worker *w, void *arg, ls_error *err)
{
    team *t = arg;
    const size_t most = messages[MESSAGES - 1];
    t->in[w->index] = ls_alloc_array(NULL, most, sizeof(float));
    t->out[w->index] = ls_alloc_array(NULL, most, sizeof(float));
    if (!t->in[w->index] || !t->out[w->index])
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu floats", most);
    known_fill(t->in[w->index], most, w->index);
    return LS_OK;
}

static int join(const ls_worker *w, void *arg, ls_error *err)
{
    row *r = arg;
    return r->type->join(&r->comm[w->index], r->group, w->index, ls_worker_device(w), err);
}

static int leave(const ls_worker *w, void *arg, ls_error *err)
{
    row *r = arg;
    (void)err;
    r->type->leave(r->comm[w->index]);
    return LS_OK;
}

static int measure_member(const ls_worker *w, void *arg, ls_error *err)
{
    row *r = arg;
    const int rank = w->index;
    const ls_partial partial = {{rank, rank + 1}, r->team->in[rank]};
    float *out = r->team->out[rank];
    ls_comm_times times = {0};
    for (size_t i = 0; i < r->floats; i++)
        out[i] = NAN;
    int status = ls_barrier_wait(&r->team->start, rank, ls_deadline_ns(TIMEOUT_NS), err);
    r->begin_ns[rank] = ls_now_ns();
    for (int i = 0; status == LS_OK && i < r->calls; i++)
        status = r->type->all_reduce(r->comm[rank], NULL, &partial, 1, out, &times, err);
    r->end_ns[rank] = ls_now_ns();
    return status ? status
                  : known_check(out, r->floats, rank, r->team->workers, r->type->name, err);
}

/* ---- on the main thread --------------------------------------------------------------------- */

/* Measures a row once. Returns the time of one call in microseconds. */
static double measure(row *r)
{
    ls_error err;
    check(ls_pool_run(r->team->pool, measure_member, r, LS_FOREVER, &err), &err);
    uint64_t begin = r->begin_ns[0], end = r->end_ns[0];
    for (int rank = 1; rank < r->team->workers; rank++) {
        begin = r->begin_ns[rank] < begin ? r->begin_ns[rank] : begin;
        end = r->end_ns[rank] > end ? r->end_ns[rank] : end;
    }
    return (double)(end - begin) * 1e-3 / r->calls;
}

static void open_team(team *t, int workers, const ls_registry *registry)
{
    char devices[32];
    ls_error err;
    snprintf(devices, sizeof devices, "cpu:%d", workers);
    ls_device_pool_options o = {.size = sizeof o, .registry = registry, .devices = devices};
    t->workers = workers;
    check(ls_device_pool_create(&t->pool, &o, &err), &err);
    check(ls_barrier_init(&t->start, NULL, workers, ls_spins_for(workers, ls_allowed_cpus()), &err),
          &err);
    check(ls_pool_run(t->pool, open_member, t, LS_FOREVER, &err), &err);
}

static void close_team(team *t)
{
    ls_pool_destroy(t->pool, LS_FOREVER, NULL);
    ls_barrier_fini(&t->start);
    for (int rank = 0; rank < t->workers; rank++) {
        ls_free(NULL, t->in[rank]);
        ls_free(NULL, t->out[rank]);
    }
}

/* Creates a row's group of workers, and makes a first call to find out how many calls take about a
 * millisecond. */
static void open_row(row *r, const ls_comm_type *type, team *t, size_t floats)
{
    ls_error err;
    r->type = type;
    r->team = t;
    r->floats = floats;
    for (size_t p = 0; p <= PARAMETERS; p++)
        r->parameters[p] = floats / 16 * p / PARAMETERS * 16;
    ls_comm_group_desc desc = {.type = type,
                               .ranks = t->workers,
                               .shards = t->workers,
                               .floats = floats,
                               .param_offsets = r->parameters,
                               .param_count = PARAMETERS,
                               .timeout_ns = TIMEOUT_NS,
                               .spins = ls_spins_for(t->workers, ls_allowed_cpus())};
    check(type->group_create(&r->group, &desc, &err), &err);
    check(ls_pool_run(t->pool, join, r, LS_FOREVER, &err), &err);
    r->calls = 1;
    measure(r);
    double calls = MEASUREMENT_NS * 1e-3 / measure(r);
    r->calls = calls < 1 ? 1 : calls > CALLS_MOST ? CALLS_MOST : (int)calls;
}

static void close_row(row *r)
{
    ls_pool_run(r->team->pool, leave, r, LS_FOREVER, NULL);
    r->type->group_destroy(r->group);
}

/* Measures all rows for `seconds` seconds, and sorts the times of each row. Returns the number of
 * rounds. */
static int measure_all(row *rows, int count, double seconds)
{
    const uint64_t begin = ls_now_ns();
    int rounds = 0;
    double spent = 0;
    while (rounds < ROUNDS_MOST && (rounds < ROUNDS_LEAST || spent + spent / rounds < seconds)) {
        for (int i = 0; i < count; i++)
            rows[i].us[rounds] = measure(&rows[i]);
        rounds++;
        spent = (double)(ls_now_ns() - begin) * 1e-9;
    }
    for (int i = 0; i < count; i++)
        sort_values(rows[i].us, rounds);
    return rounds;
}

/* ---- the results ---------------------------------------------------------------------------- */

/* Figures of a row. */
typedef struct figures {
    size_t bytes;
    double median_us, low_us, high_us; /* median, and limits of the middle half, in microseconds */
    double algbw, busbw;               /* GB/s */
} figures;

static figures figures_of(const row *r, int rounds)
{
    const int n = r->team->workers;
    figures f = {.bytes = r->floats * sizeof(float),
                 .median_us = r->us[rounds / 2],
                 .low_us = r->us[rounds / 4],
                 .high_us = r->us[rounds - 1 - rounds / 4]};
    f.algbw = (double)f.bytes * 1e-3 / f.median_us;
    f.busbw = f.algbw * 2 * (n - 1) / n;
    return f;
}

static void print_table(const row *rows, int count, int rounds)
{
    printf("%-10s %7s %10s %11s   %-20s %10s %10s\n", "", "workers", "bytes", "median us",
           "middle half us", "algbw GB/s", "busbw GB/s");
    for (int i = 0; i < count; i++) {
        const figures f = figures_of(&rows[i], rounds);
        const int n = rows[i].team->workers;
        char half[64];
        snprintf(half, sizeof half, "%.1f to %.1f", f.low_us, f.high_us);
        printf("%-10s %6d%c %10zu %11.1f   %-20s %10.2f %10.2f\n", rows[i].type->name, n,
               n > ls_allowed_cpus() ? '*' : ' ', f.bytes, f.median_us, half, f.algbw, f.busbw);
    }
    printf("%d rounds; every sum was right\n", rounds);
}

static int write_json(const char *path, const row *rows, int count, int rounds)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return 0;
    fprintf(file, "{\"cpus\": %d, \"rounds\": %d, \"rows\": [", ls_allowed_cpus(), rounds);
    for (int i = 0; i < count; i++) {
        const figures f = figures_of(&rows[i], rounds);
        fprintf(file,
                "%s\n  {\"algorithm\": \"%s\", \"workers\": %d, \"bytes\": %zu, \"calls\": %d, "
                "\"median_us\": %.3f, \"low_us\": %.3f, \"high_us\": %.3f, "
                "\"algbw_gb_per_s\": %.4f, \"busbw_gb_per_s\": %.4f}",
                i ? "," : "", rows[i].type->name, rows[i].team->workers, f.bytes, rows[i].calls,
                f.median_us, f.low_us, f.high_us, f.algbw, f.busbw);
    }
    fprintf(file, "\n]}\n");
    const int broken = ferror(file);
    return fclose(file) == 0 && !broken;
}

/* ---- the program ---------------------------------------------------------------------------- */

typedef struct arguments {
    double seconds;
    const char *json;
    int workers[TEAMS_MOST]; /* number of workers of each team */
    int teams;
} arguments;

static int parse(arguments *a, int argc, char **argv)
{
    *a = (arguments){.seconds = 15};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            a->seconds = atof(argv[++i]);
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            a->json = argv[++i];
        } else {
            int workers = atoi(argv[i]);
            if (workers < 2 || workers > WORKERS_MOST || a->teams == TEAMS_MOST)
                return 0;
            a->workers[a->teams++] = workers;
        }
    }
    if (a->teams > 0)
        return 1;
    /* By default 2 and 4 workers, even if there are fewer CPUs, and then 8, 16, … workers up to the
     * number of CPUs. */
    for (int n = 2; n <= WORKERS_MOST && (n <= 4 || n <= ls_allowed_cpus()); n *= 2)
        a->workers[a->teams++] = n;
    return 1;
}

int main(int argc, char **argv)
{
    static team teams[TEAMS_MOST];
    static row rows[ROWS_MOST];
    arguments a;
    ls_registry *registry;
    ls_error err;
    int count = 0;
    if (!parse(&a, argc, argv)) {
        fprintf(stderr,
                "usage: bench_allreduce [--seconds S] [--json FILE] [WORKERS...]\n"
                "       at most %d numbers of workers, each 2 to %d\n",
                TEAMS_MOST, WORKERS_MOST);
        return 64;
    }
    check(ls_registry_create(&registry, NULL, &err), &err);
    for (int t = 0; t < a.teams; t++)
        open_team(&teams[t], a.workers[t], registry);
    for (int i = 0; ls_comm_types()[i]; i++)
        for (int t = 0; t < a.teams; t++)
            for (size_t m = 0; m < MESSAGES && count < ROWS_MOST; m++)
                open_row(&rows[count++], ls_comm_types()[i], &teams[t], messages[m]);

    int rounds = measure_all(rows, count, a.seconds);
    print_table(rows, count, rounds);
    int status = 0;
    if (a.json && !write_json(a.json, rows, count, rounds)) {
        fprintf(stderr, "bench_allreduce: %s: cannot be written\n", a.json);
        status = 1;
    }
    for (int i = 0; i < count; i++)
        close_row(&rows[i]);
    for (int t = 0; t < a.teams; t++)
        close_team(&teams[t]);
    ls_registry_destroy(registry);
    return status;
}
