/* SPDX-License-Identifier: MIT */
/* gpu_merge: measures the merge alone, the sum of an array over several GPUs, by sizes.
 *
 *     gpu_merge [--json FILE] [--seconds S] [--small] GPUS...
 *
 * For each number of GPUs (cuda:0 to cuda:N-1, one worker each), each communicator that merges
 * between GPUs (`ordered`, `nccl`) and each size, several merges are made, one after another. The
 * columns are those of nccl-tests: algbw is bytes / time, busbw is algbw·2(N − 1)/N. The time is
 * that of the slowest worker, and begins after a barrier; a worker's thread waits for each merge,
 * as in training. ../known_sum.h has the numbers that are added; before each measurement the result
 * is overwritten, and after it every float is checked. The table shows the median of the rounds
 * that fit in S seconds (default 8) for all rows.
 *
 * --small: without the largest sizes. The program finds the plugin in its own folder. With one GPU
 * there is nothing to merge: status 77. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "known_sum.h"
#include "measure.h"
#include "sync/barrier.h"

#include <lockstep/device_pool.h>
#include <lockstep/sys/communicator.h>
#include <lockstep/sys/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MOST = 16, TEAMS_MOST = 4, ROWS_MOST = 64, ROUNDS_MOST = 64 };
#define MEASUREMENT_US 3000.0
#define TIMEOUT_NS 20000000000ull

/* Lengths in floats: 129072 is the gradient of LeNet, 11175824 that of ResNet-18. */
static const size_t sizes[] = {256, 129072, 1048576, 11175824};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
static const char *const ways[] = {"ordered", "nccl"};
enum { WAYS = 2 };

typedef struct team {
    int gpus;
    ls_pool *pool;
    ls_barrier start;
    float *in[GPUS_MOST], *out[GPUS_MOST]; /* [rank]: on its GPU, `most` floats */
    float *host[GPUS_MOST];                /* [rank]: in host memory, `most` floats */
    size_t most;
} team;

typedef struct row {
    const char *way;
    team *team;
    size_t floats, end[2];
    const ls_comm_type *type;
    ls_comm_group *group;
    ls_comm *comm[GPUS_MOST];
    int calls, rounds;
    uint64_t begin_ns[GPUS_MOST], end_ns[GPUS_MOST];
    double us[ROUNDS_MOST];
} row;

static void check(int status, const ls_error *err)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "gpu_merge: %s\n", err->text);
    exit(1);
}

/* ---- on the workers -------------------------------------------------------------------------- */

static int open_member(const ls_worker *w, void *arg, ls_error *err)
{
    team *t = arg;
    ls_device *d = ls_worker_device(w);
    void *in = NULL, *out = NULL;
    const size_t bytes = t->most * sizeof(float);
    float *host = t->host[w->index] = ls_alloc_array(NULL, t->most, sizeof(float));
    int status = host ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu floats", t->most);
    if (status == LS_OK)
        status = d->ops->alloc(&in, d, bytes, err);
    if (status == LS_OK)
        status = d->ops->alloc(&out, d, bytes, err);
    t->in[w->index] = in;
    t->out[w->index] = out;
    if (status)
        return status;
    known_fill(host, t->most, w->index);
    status = d->ops->upload(d, NULL, in, host, bytes, err);
    return status ? status : d->ops->sync(d, NULL, err);
}

static int close_member(const ls_worker *w, void *arg, ls_error *err)
{
    team *t = arg;
    ls_device *d = ls_worker_device(w);
    (void)err;
    d->ops->free(d, t->in[w->index]);
    d->ops->free(d, t->out[w->index]);
    ls_free(NULL, t->host[w->index]);
    return LS_OK;
}

/* Worker 0 finds the communicator of the row. */
static int find_type(const ls_worker *w, void *arg, ls_error *err)
{
    row *r = arg;
    if (w->index != 0)
        return LS_OK;
    const ls_comm_type *const *types = ls_worker_device(w)->ops->communicators();
    for (int i = 0; types[i]; i++)
        if (strcmp(types[i]->name, r->way) == 0)
            r->type = types[i];
    return r->type ? LS_OK : ls_fail(err, LS_EUNSUPPORTED, "there is no communicator %s", r->way);
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

/* Copies the rank's result to the host and checks every float. */
static int verify(const row *r, int rank, ls_device *d, ls_error *err)
{
    float *host = r->team->host[rank];
    int status = d->ops->download(d, NULL, host, r->team->out[rank], r->floats * 4, err);
    if (status == LS_OK)
        status = d->ops->sync(d, NULL, err);
    return status ? status : known_check(host, r->floats, rank, r->team->gpus, r->way, err);
}

static int measure_member(const ls_worker *w, void *arg, ls_error *err)
{
    row *r = arg;
    ls_device *d = ls_worker_device(w);
    const int rank = w->index;
    const ls_partial partial = {{rank, rank + 1}, r->team->in[rank]};
    float *out = r->team->out[rank], *host = r->team->host[rank];
    ls_comm_times times = {0};
    for (size_t i = 0; i < r->floats; i++)
        host[i] = NAN;
    int status = d->ops->upload(d, NULL, out, host, r->floats * 4, err);
    if (status == LS_OK)
        status = d->ops->sync(d, NULL, err);
    const int met =
        ls_barrier_wait(&r->team->start, rank, ls_deadline_ns(TIMEOUT_NS), status ? NULL : err);
    status = status ? status : met;
    r->begin_ns[rank] = ls_now_ns();
    for (int i = 0; status == LS_OK && i < r->calls; i++)
        status = r->type->all_reduce(r->comm[rank], NULL, &partial, 1, out, &times, err);
    r->end_ns[rank] = ls_now_ns();
    return status ? status : verify(r, rank, d, err);
}

/* ---- on the main thread ---------------------------------------------------------------------- */

/* Returns the time of a merge in microseconds. */
static double measure(row *r)
{
    ls_error err;
    check(ls_pool_run(r->team->pool, measure_member, r, LS_FOREVER, &err), &err);
    uint64_t begin = r->begin_ns[0], end = r->end_ns[0];
    for (int rank = 1; rank < r->team->gpus; rank++) {
        begin =
            r->begin_ns[rank] > begin ? r->begin_ns[rank] : begin; /* all are past the barrier */
        end = r->end_ns[rank] > end ? r->end_ns[rank] : end;
    }
    return (double)(end - begin) * 1e-3 / r->calls;
}

static void open_team(team *t, int gpus, size_t most, const ls_registry *registry)
{
    char devices[80] = "cuda:0";
    ls_error err;
    for (int i = 1; i < gpus; i++)
        snprintf(devices + strlen(devices), sizeof devices - strlen(devices), ",%d", i);
    ls_device_pool_options o = {.size = sizeof o, .registry = registry, .devices = devices};
    t->gpus = gpus;
    t->most = most;
    check(ls_device_pool_create(&t->pool, &o, &err), &err);
    check(ls_barrier_init(&t->start, NULL, gpus, ls_spins_for(gpus, ls_allowed_cpus()), &err),
          &err);
    check(ls_pool_run(t->pool, open_member, t, LS_FOREVER, &err), &err);
}

/* Makes the group of a row, and finds how many merges take MEASUREMENT_US. */
static void open_row(row *r, const char *way, team *t, size_t floats)
{
    ls_error err;
    *r = (row){.way = way, .team = t, .floats = floats, .end = {0, floats}, .calls = 1};
    check(ls_pool_run(t->pool, find_type, r, LS_FOREVER, &err), &err);
    ls_comm_group_desc desc = {.type = r->type,
                               .ranks = t->gpus,
                               .shards = t->gpus,
                               .floats = floats,
                               .param_offsets = r->end,
                               .param_count = 1,
                               .timeout_ns = TIMEOUT_NS,
                               .spins = ls_spins_for(t->gpus, ls_allowed_cpus())};
    check(r->type->group_create(&r->group, &desc, &err), &err);
    check(ls_pool_run(t->pool, join, r, LS_FOREVER, &err), &err);
    measure(r); /* connects the GPUs */
    const double calls = MEASUREMENT_US / measure(r);
    r->calls = calls < 1 ? 1 : calls > 200 ? 200 : (int)calls;
}

static void close_row(row *r)
{
    ls_pool_run(r->team->pool, leave, r, LS_FOREVER, NULL);
    r->type->group_destroy(r->group);
}

static void measure_all(row *rows, int count, double seconds)
{
    const uint64_t begin = ls_now_ns();
    for (int round = 0; round < ROUNDS_MOST; round++) {
        if (round > 0 && (double)(ls_now_ns() - begin) * 1e-9 > seconds)
            break;
        for (int i = 0; i < count; i++)
            rows[i].us[rows[i].rounds++] = measure(&rows[i]);
    }
    for (int i = 0; i < count; i++)
        sort_values(rows[i].us, rows[i].rounds);
}

static void print_rows(const row *rows, int count, FILE *json)
{
    printf("%-10s %5s %10s %11s %11s %11s\n", "", "GPUs", "bytes", "median us", "algbw GB/s",
           "busbw GB/s");
    if (json)
        fprintf(json, "{\"rows\": [");
    for (int i = 0; i < count; i++) {
        const row *r = &rows[i];
        const int n = r->team->gpus;
        const size_t bytes = r->floats * sizeof(float);
        const double us = r->us[r->rounds / 2], algbw = (double)bytes * 1e-3 / us;
        printf("%-10s %5d %10zu %11.1f %11.2f %11.2f\n", r->way, n, bytes, us, algbw,
               algbw * 2 * (n - 1) / n);
        if (json)
            fprintf(json,
                    "%s\n {\"way\": \"%s\", \"gpus\": %d, \"bytes\": %zu, \"us\": %.3f, "
                    "\"low_us\": %.3f, \"high_us\": %.3f, \"busbw_gb_per_s\": %.4f}",
                    i ? "," : "", r->way, n, bytes, us, r->us[0], r->us[r->rounds - 1],
                    algbw * 2 * (n - 1) / n);
    }
    if (json)
        fprintf(json, "\n]}\n");
    printf("every sum was right\n");
}

/* Returns the number of GPUs. */
static int gpus_here(const ls_registry *registry)
{
    ls_backend_info info = {0};
    const ls_backend *b;
    for (int i = 0; (b = ls_registry_at(registry, i)); i++)
        if (strcmp(b->name, "cuda") == 0)
            b->probe(&info);
    return info.devices;
}

typedef struct arguments {
    const char *json;
    double seconds;
    size_t most; /* largest size in floats */
    int gpus[TEAMS_MOST], teams;
} arguments;

static int parse(arguments *a, int argc, char **argv)
{
    *a = (arguments){.seconds = 8, .most = sizes[SIZES - 1]};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            a->json = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            a->seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--small") == 0)
            a->most = sizes[1];
        else if (atoi(argv[i]) >= 2 && atoi(argv[i]) <= GPUS_MOST && a->teams < TEAMS_MOST)
            a->gpus[a->teams++] = atoi(argv[i]);
        else
            return 0;
    }
    return a->teams > 0;
}

int main(int argc, char **argv)
{
    static team teams[TEAMS_MOST];
    static row rows[ROWS_MOST];
    arguments a;
    ls_registry *registry;
    ls_error err;
    int count = 0, opened = 0;
    if (!parse(&a, argc, argv)) {
        fprintf(stderr, "usage: gpu_merge [--json FILE] [--seconds S] [--small] GPUS...\n");
        return 64;
    }
    check(ls_registry_create(&registry, NULL, &err), &err);
    const int here = gpus_here(registry);
    for (int t = 0; t < a.teams && a.gpus[t] <= here; t++)
        open_team(&teams[opened++], a.gpus[t], a.most, registry);
    for (int t = 0; t < opened; t++)
        for (int w = 0; w < WAYS; w++)
            for (int s = 0; s < SIZES && sizes[s] <= a.most; s++)
                open_row(&rows[count++], ways[w], &teams[t], sizes[s]);
    FILE *json = a.json && opened ? fopen(a.json, "w") : NULL;
    measure_all(rows, count, a.seconds);
    if (opened)
        print_rows(rows, count, json);
    else
        printf("skipped: %d GPU: there is nothing to merge\n", here);
    const int broken = json && fclose(json) != 0;
    for (int i = 0; i < count; i++)
        close_row(&rows[i]);
    for (int t = 0; t < opened; t++) {
        check(ls_pool_run(teams[t].pool, close_member, &teams[t], LS_FOREVER, &err), &err);
        ls_pool_destroy(teams[t].pool, LS_FOREVER, NULL);
        ls_barrier_fini(&teams[t].start);
    }
    ls_registry_destroy(registry);
    return opened == 0 ? 77 : broken;
}
