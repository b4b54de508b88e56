/* SPDX-License-Identifier: MIT */
/* Compares ways in which one process can drive several workers: by threads or by streams.
 *
 *     bench_overlap [--seconds S] [--json FILE] [--config LENET.json]
 *     gpu_overlap [--devices cuda:0] [--resnet RESNET.json] [--precision P] [--cache DIR]
 *                 [--limit S] [--small] …
 *
 * A worker is a device that computes a part of each training step. A *cell* is a combination of a
 * number of workers (1, 2 or 4), a way to drive them (one of three, see overlap.h) and a kind of
 * work (one of three). Every combination is measured with merging (the addition of the workers'
 * gradients) and without a barrier at the end of each step. Some combinations are also measured
 * with neither, with only the barrier, and with both. Before a cell is measured, it makes three
 * steps, whose gradients and weights must be bit-identical to those of one worker. A round measures
 * every cell once.
 *
 * The program gpu_overlap consists of the same sources and of overlap_gpu.c. Its workers share a
 * GPU. Its cells differ in one more respect: the kernels of a shard (a worker's part of the
 * minibatch) are enqueued one by one, or as one CUDA graph. It also measures ResNet-18. If a cell
 * cannot be measured, its row in the table says why. No cell is begun after 3/5 of the time
 * --limit. --small makes a short run to try the program. */
#include "overlap.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/rng.h"
#include "device/registry.h"
#include "measure.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MOST = 64, CPU_WORKS = 3, WORKS = 4 };

static const work cpu_works[CPU_WORKS] = {{"spin 10 us", 0, 6, 10, SHARDS, 0},
                                          {"LeNet b32", 32, 0, 0, SHARDS, 0},
                                          {"LeNet b256", 256, 0, 0, SHARDS, 0}};

static cell cells[CELLS_MOST];
static int count;
static const work *works = cpu_works;

#ifdef OVERLAP_GPU
static const work gpu_works[WORKS] = {{"spin 2 us", 0, 6, 2, SHARDS, 0},
                                      {"LeNet b32", 32, 0, 0, SHARDS, 0},
                                      {"LeNet b256", 256, 0, 0, SHARDS, 0},
                                      {"ResNet-18 b256", 256, 0, 0, 2, 1}};
static const work small_works[WORKS] = {{"spin 2 us", 0, 6, 2, SHARDS, 0},
                                        {"LeNet b8", 8, 0, 0, SHARDS, 0}};
#endif

static void check(int status, const ls_error *err, const cell_desc *d)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "bench_overlap: ");
    if (d)
        fprintf(stderr, "%s, %d workers, %s%s: ", d->work->name, d->workers, host_names[d->host],
                d->graph ? ", graph" : "");
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* ---- networks and their data ---------------------------------------------------------------- */

static ls_replica_data make_data(ls_shape shape, int classes)
{
    const size_t bytes = (size_t)shape.c * (size_t)shape.h * (size_t)shape.w * DATA_ROWS;
    uint8_t *images = malloc(bytes);
    int32_t *labels = malloc(DATA_ROWS * sizeof *labels);
    if (!images || !labels)
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        images[i] = (uint8_t)(256 * ls_rng_uniform(1, 2, 3, i));
    for (uint32_t i = 0; i < DATA_ROWS; i++)
        labels[i] = (int32_t)((double)classes * ls_rng_uniform(1, 3, 3, i));
    return (ls_replica_data){.images = images, .labels = labels, .rows = DATA_ROWS};
}

/* Data of a network, which all its cells share. It is freed at the end of the program. */
static struct shared {
    ls_json *doc, *recipe;
    ls_network *model;
    float *weights;
    ls_replica_data data;
} shared[2];
static int networks;

static void free_models(void)
{
    for (int i = 0; i < networks; i++) {
        ls_network_destroy(shared[i].model, NULL);
        ls_json_destroy(shared[i].doc);
        ls_json_destroy(shared[i].recipe);
        free(shared[i].weights);
        free((void *)shared[i].data.images);
        free((void *)shared[i].data.labels);
    }
}

static cell make_model(const char *config)
{
    static ls_optimizer optimizer;
    static const char sgd[] = "{\"name\": \"sgd\", \"lr\": 0.05}";
    const ls_shape shape = {1, 28, 28};
    const ls_init init = {LS_INIT_XAVIER, 0};
    ls_json *doc, *recipe;
    ls_network *model;
    ls_error err;
    check(ls_json_read_file(&doc, config, NULL, &err), &err, NULL);
    check(ls_json_parse(&recipe, "sgd", sgd, strlen(sgd), NULL, &err), &err, NULL);
    check(ls_optimizer_parse(&optimizer, recipe, ls_json_root(recipe), &err), &err, NULL);
    check(ls_network_parse(&model, doc,
                           cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model"), shape, 10,
                           NULL, &err),
          &err, NULL);
    float *weights = calloc(model->floats, sizeof *weights);
    if (!weights)
        exit(1);
    ls_init_weights(weights, model, &init, 1);
    shared[networks] = (struct shared){doc, recipe, model, weights, make_data(shape, 10)};
    return (cell){.model = model,
                  .optimizer = &optimizer,
                  .first_weights = weights,
                  .data = shared[networks++].data};
}

static void add(const cell *common, cell_desc d)
{
    if (count == CELLS_MOST)
        return;
    cells[count] = *common;
    cells[count++].desc = d;
}

/* Values of the options of the command line. */
typedef struct settings {
    double seconds, limit;
    const char *json, *config, *resnet, *devices, *precision, *cache;
    int small;
} settings;

#ifndef OVERLAP_GPU
/* Adds the cells: first all combinations, with merging and without a barrier; then, for two
 * workers, cells with neither, with only a barrier, and with both. */
static void list_cells(const cell *common)
{
    static const int workers[] = {1, 2, 4};
    for (int w = 0; w < CPU_WORKS; w++)
        for (int n = 0; n < 3; n++)
            for (int h = 0; h < HOST_MODES; h++)
                add(common, (cell_desc){workers[n], (host_mode)h, &works[w], 1, 0, 0, NULL});
    for (int h = 0; h <= HOST_STREAMS; h++)
        for (int k = 0; k < 3; k++)
            add(common, (cell_desc){2, (host_mode)h, &works[2], k == 2, k > 0, 0, NULL});
    for (int k = 0; k < 3; k++)
        add(common, (cell_desc){2, HOST_THREADS, &works[0], k == 2, k > 0, 0, NULL});
}

#else
/* Adds the cells for a GPU: combinations of workers, work, separate pieces or graphs, and ways of
 * driving. The most important cells come first, because the time limit can end before the last
 * cells are measured. With one worker the three ways of driving do the same, so only one is
 * measured. */
static void list_gpu_cells(const cell *lenet, const cell *resnet, int small)
{
    static const int workers[] = {1, 2, 4};
    for (int n = 0; n < (small ? 2 : 3); n++)
        for (int w = 0; w < (small ? 1 + (n == 1) : 3); w++)
            for (int g = 0; g < 2; g++)
                for (int h = 0; h < (workers[n] == 1 ? 1 : HOST_MODES); h++)
                    add(lenet, (cell_desc){workers[n], (host_mode)h, &works[w], 1, 0, g, NULL});
    for (int h = 0; h < HOST_MODES; h++)
        add(lenet, (cell_desc){2, (host_mode)h, &works[small ? 0 : 2], 2, 0, 1, NULL});
    for (int h = 0; h < (small ? 1 : HOST_STREAMS + 1); h++)
        for (int k = 0; k < 3; k++)
            add(lenet, (cell_desc){2, (host_mode)h, &works[small ? 0 : 2], k == 2, k > 0, 1, NULL});
    if (resnet)
        for (int n = 0; n < 2; n++)
            for (int h = 0; h < (n ? HOST_STREAMS + 1 : 1); h++)
                add(resnet, (cell_desc){workers[n], (host_mode)h, &works[3], 1, 0, 1, NULL});
}
#endif

/* Opens each cell, and compares the cell's result with that of one worker that does the same work.
 */
static void open_and_check(double limit_s, uint64_t begin)
{
    ls_error err;
    outcome wanted[WORKS][2];
    int known[WORKS][2] = {{0}};
    for (int i = 0; i < count; i++) {
        cell *c = &cells[i];
        const int w = (int)(c->desc.work - works), m = c->desc.merge;
        if (!c->desc.why_not && limit_s > 0 && (double)(ls_now_ns() - begin) * 1e-9 > 0.6 * limit_s)
            c->desc.why_not = "left out: the time was over";
        if (c->desc.why_not)
            continue;
        if (!known[w][m])
            check(reference_run(&wanted[w][m], c, &err), &err, &c->desc);
        known[w][m] = 1;
        check(c->engine->open(c, &err), &err, &c->desc);
        check(c->engine->check(c, &wanted[w][m], &err), &err, &c->desc);
    }
    fprintf(stderr, "bench_overlap: opened in %.1f s\n", (double)(ls_now_ns() - begin) * 1e-9);
}

/* ---- results -------------------------------------------------------------------------------- */

/* Columns of a cell's row, with their names in the JSON. */
static const struct column {
    const char *key;
    size_t at; /* offset in `figures` */
} columns[] = {
    {"steps_per_s", offsetof(figures, steps_per_s)},
    {"launches_per_step", offsetof(figures, launches)},
    {"launch_p50_s", offsetof(figures, launch_p50)},
    {"launch_p99_s", offsetof(figures, launch_p99)},
    {"overlap", offsetof(figures, overlap)},
    {"exposed_s", offsetof(figures, exposed)},
    {"merge_wait_s", offsetof(figures, merge_wait)},
    {"barrier_wait_s", offsetof(figures, barrier_wait)},
    {"switches_per_step", offsetof(figures, switches)},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

typedef struct summary {
    double low, median, high; /* median, and limits of the middle half */
} summary;

/* Sorts the values of `n` rounds, and returns their median and middle half. */
static summary middle_of(double *v, int n)
{
    sort_values(v, n);
    return (summary){v[n / 4], (v[(n - 1) / 2] + v[n / 2]) / 2, v[n - 1 - n / 4]};
}

static summary summarise(const cell *c, size_t at)
{
    double v[ROUNDS_MOST];
    for (int i = 0; i < c->rounds; i++)
        memcpy(&v[i], (const char *)&c->round[i] + at, sizeof v[i]);
    return middle_of(v, c->rounds);
}

/* Returns the cell that differs from `c` only in `host` and `merge`; NULL: it was not measured. */
static const cell *same_but(const cell *c, host_mode host, int merge)
{
    for (int i = 0; i < count; i++) {
        const cell_desc *d = &cells[i].desc;
        if (d->host == host && d->merge == merge && d->work == c->desc.work &&
            d->workers == c->desc.workers && d->barrier == c->desc.barrier &&
            d->graph == c->desc.graph && !d->why_not)
            return &cells[i];
    }
    return NULL;
}

/* Computes, round by round, the rate of a cell divided by the rate of the same cell driven by
 * threads. */
static summary against_threads(const cell *c)
{
    double v[ROUNDS_MOST];
    const cell *base = same_but(c, HOST_THREADS, c->desc.merge);
    if (!base)
        base = c;
    for (int r = 0; r < c->rounds; r++)
        v[r] = c->round[r].steps_per_s / base->round[r].steps_per_s;
    return middle_of(v, c->rounds);
}

/* For cells on a GPU: computes by how much merging makes a step longer. While a GPU merges, no host
 * thread waits, so waiting times do not show this. The function subtracts, round by round, the time
 * of a step in the cell without merging from the time of a step in this cell. The result is −1 if
 * the cell without merging was not measured. */
static void take_exposed(void)
{
    for (int i = 0; i < count; i++) {
        cell *c = &cells[i];
        const cell *without = same_but(c, c->desc.host, 0);
        for (int r = 0; c->desc.merge && r < c->rounds; r++)
            c->round[r].exposed =
                without ? 1 / c->round[r].steps_per_s - 1 / without->round[r].steps_per_s : -1;
    }
}

/* Formats a value, or "-" if it is not known. */
static const char *known(char *out, size_t size, int is_known, double value, int decimals)
{
    if (is_known)
        snprintf(out, size, "%.*f", decimals, value);
    else
        snprintf(out, size, "-");
    return out;
}

static void print_row(const cell *c)
{
    static const char *const ends[] = {"-",       "barrier",        "merge", "merge+barrier",
                                       "buckets", "buckets+barrier"};
    const cell_desc *d = &c->desc;
    double m[COLUMNS];
    char host[32], overlap[16], exposed[16];
    snprintf(host, sizeof host, "%s%s", host_names[d->host], d->graph ? " graph" : "");
    printf("%-14s %3d%c %-16s %-13s ", d->work->name, d->workers,
           d->workers > ls_allowed_cpus() ? '*' : ' ', host, ends[2 * d->merge + d->barrier]);
    if (d->why_not) {
        printf("%s\n", d->why_not);
        return;
    }
    const summary rate = summarise(c, columns[0].at);
    for (int i = 0; i < COLUMNS; i++)
        m[i] = summarise(c, columns[i].at).median;
    printf("%7.0f %3.0f%% %5.2f %5.0f %6.2f %7.2f %5s %8s %8.1f %6.1f\n", m[0],
           50 * (rate.high - rate.low) / rate.median, against_threads(c).median, m[1], m[2] * 1e6,
           m[3] * 1e6, known(overlap, sizeof overlap, m[4] > 0, m[4], 2),
           known(exposed, sizeof exposed, c->engine == &cpu_engine || d->merge == 0 || m[5] != -1,
                 m[5] * 1e6, 1),
           (m[6] + m[7]) * 1e6, m[8]);
}

static int measured_rounds(void)
{
    for (int i = 0; i < count; i++)
        if (!cells[i].desc.why_not)
            return cells[i].rounds;
    return 0;
}

static void print_table(int on_gpu)
{
    const char *form = "%-14s %4s %-16s %-13s %7s %4s %5s %5s %6s %7s %5s %8s %8s %6s\n";
    printf(form, "", "wor-", "", "end of", "", "", "over", "laun-", "p50", "p99", "over-",
           "exposed", "wait", "swit-");
    printf(form, "work", "kers", "host", "step", "steps/s", "+/-", "thr.", "ches", "us", "us",
           "lap", "us", "us", "ches");
    for (int i = 0; i < count; i++)
        print_row(&cells[i]);
    printf(
        "%d rounds in turns, medians. +/-: half the range of the middle half. over thr.: against\n"
        "the same cell driven by threads, round by round. Launches, exposed, wait (for others, in\n"
        "merge and barrier; of one worker) and context switches are a step's. *: more workers\n"
        "than CPUs. Every cell's gradients and weights were one worker's, bit for bit. %s\n",
        measured_rounds(),
        on_gpu
            ? "A launch is the\n"
              "call that enqueues an op, or a graph; overlap is kernel time over the time in which\n"
              "a kernel ran, seen by CUPTI in steps of its own; exposed is what merging adds to a\n"
              "step; hosts wait for their stream every second step, with a barrier in every one."
            : "No graphs\non the CPU.");
}

static void write_summary(FILE *f, const char *key, summary s)
{
    fprintf(f, ",\n   \"%s\": {\"median\": %.9g, \"low\": %.9g, \"high\": %.9g}", key, s.median,
            s.low, s.high);
}

static void write_columns(FILE *f, const cell *c)
{
    for (int k = 0; k < COLUMNS; k++)
        write_summary(f, columns[k].key, summarise(c, columns[k].at));
    write_summary(f, "over_threads", against_threads(c));
}

static int write_json(const char *path, int on_gpu)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return 0;
    fprintf(f, "{\"cpus\": %d, \"rounds\": %d, \"shards\": %d, \"graphs\": %s, \"cells\": [",
            ls_allowed_cpus(), measured_rounds(), SHARDS, on_gpu ? "true" : "false");
    for (int i = 0; i < count; i++) {
        const cell_desc *d = &cells[i].desc;
        fprintf(f,
                "%s\n  {\"work\": \"%s\", \"workers\": %d, \"host\": \"%s\", \"merge\": %s, "
                "\"barrier\": %s",
                i ? "," : "", d->work->name, d->workers, host_names[d->host],
                d->merge ? "true" : "false", d->barrier ? "true" : "false");
        fprintf(f, ", \"launch\": \"%s\"", d->graph ? "graph" : "eager");
        if (d->merge == 2)
            fprintf(f, ", \"buckets\": true");
        if (d->why_not)
            fprintf(f, ", \"why_not\": \"%s\"", d->why_not);
        else
            write_columns(f, &cells[i]);
        fprintf(f, "}");
    }
    fprintf(f, "\n]}\n");
    const int broken = ferror(f);
    return fclose(f) == 0 && !broken;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Measures as many rounds as fit in the time. A cell is measured for at least a tenth of a second
 * in each round. The rounds end after 17/20 of --limit at the latest. */
static void measure_all(const settings *s, uint64_t begin)
{
    ls_error err;
    double each = 0.25;
    int open = 0;
    for (int i = 0; i < count; i++)
        open += !cells[i].desc.why_not;
    int rounds = open ? (int)(s->seconds / each / open) : 0;
    if (open && (rounds < 3 || s->small)) {
        rounds = s->small ? 1 : 3;
        each = s->seconds / rounds / open > 0.1 ? s->seconds / rounds / open : 0.1;
    }
    for (int r = 0; r < rounds && r < ROUNDS_MOST; r++) {
        if (r > 0 && s->limit > 0 && (double)(ls_now_ns() - begin) * 1e-9 > 0.85 * s->limit)
            break;
        for (int i = 0; i < count; i++)
            if (!cells[i].desc.why_not)
                check(cells[i].engine->measure(&cells[i], each, &err), &err, &cells[i].desc);
        fprintf(stderr, "bench_overlap: round %d of %d\n", r + 1, rounds);
    }
}

/* Measures how the workers' computations overlap. Runs last, because timing single kernels slows
 * down everything after it. */
static void look_at_all(void)
{
    ls_error err;
    for (int i = 0; i < count; i++) {
        if (cells[i].desc.why_not || !cells[i].engine->look)
            continue;
        const int status = cells[i].engine->look(&cells[i], &err);
        if (status == LS_EUNSUPPORTED) {
            fprintf(stderr, "bench_overlap: nothing is known of overlap: %s\n", err.text);
            return;
        }
        check(status, &err, &cells[i].desc);
    }
}

#ifdef OVERLAP_GPU
static ls_precision precision_of(const char *name)
{
    static const char *const names[] = {"fp32", "tf32", "bf16"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (ls_precision)i;
    fprintf(stderr, "bench_overlap: --precision is fp32, tf32 or bf16, not %s\n", name);
    exit(64);
}

/* Adds the cells for the GPUs of --devices, or for the CPU. */
static void prepare(const settings *s)
{
    static ls_device_list list;
    const ls_backend *backend = overlap_gpu_backend();
    ls_registry *registry;
    ls_error err;
    works = s->small ? small_works : gpu_works;
    check(ls_registry_create_empty(&registry, NULL, &err), &err, NULL);
    check(ls_registry_add(registry, backend, &err), &err, NULL);
    check(ls_device_list_parse(&list, registry, s->devices, 0, &err), &err, NULL);
    ls_registry_destroy(registry);
    cell common[2] = {make_model(s->config), {.pieces = {0}}};
    if (s->resnet)
        common[1] = make_model(s->resnet);
    for (int i = 0; i < 2; i++) {
        common[i].backend = backend;
        common[i].engine = &gpu_engine;
        common[i].device = list.index;
        common[i].device_count = list.count;
        common[i].precision = precision_of(s->precision);
        common[i].cache_dir = s->cache;
    }
    check(overlap_gpu_calibrate(backend, list.index[0], &err), &err, NULL);
    list_gpu_cells(&common[0], s->resnet ? &common[1] : NULL, s->small);
    for (int i = 0; i < count; i++)
        cells[i].desc.why_not = overlap_gpu_why_not(&cells[i].desc, list.index, list.count);
}
#else
static void prepare(const settings *s)
{
    ls_registry *registry;
    ls_device_list list;
    ls_error err;
    check(ls_registry_create(&registry, NULL, &err), &err, NULL);
    check(ls_device_list_parse(&list, registry, "cpu:1", 0, &err), &err, NULL);
    cell common = make_model(s->config);
    common.backend = list.backend;
    common.engine = &cpu_engine;
    spin_calibrate();
    list_cells(&common);
    ls_registry_destroy(registry);
}
#endif

/* Returns the address of the variable for the value of an option; NULL: there is no such option. */
static const char **place_of(settings *s, const char *option)
{
    if (strcmp(option, "--json") == 0)
        return &s->json;
    if (strcmp(option, "--config") == 0)
        return &s->config;
#ifdef OVERLAP_GPU
    if (strcmp(option, "--devices") == 0)
        return &s->devices;
    if (strcmp(option, "--resnet") == 0)
        return &s->resnet;
    if (strcmp(option, "--precision") == 0)
        return &s->precision;
    if (strcmp(option, "--cache") == 0)
        return &s->cache;
#endif
    return NULL;
}

static int read_options(settings *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char **place = place_of(s, argv[i]);
        if (strcmp(argv[i], "--small") == 0)
            s->small = 1;
        else if (i + 1 < argc && place)
            *place = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            s->seconds = atof(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--limit") == 0)
            s->limit = atof(argv[++i]);
        else
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    settings s = {.seconds = 60,
                  .config = "examples/fashion_mnist.json",
                  .devices = "cuda:0",
                  .precision = "tf32"};
    if (!read_options(&s, argc, argv)) {
        fprintf(stderr,
                "usage: bench_overlap [--seconds S] [--json FILE] [--config LENET.json]; what "
                "gpu_overlap takes besides is said at the head of bench/overlap.c\n");
        return 64;
    }
    const uint64_t begin = ls_now_ns();
    prepare(&s);
    const int on_gpu = cells[0].engine != &cpu_engine;
    open_and_check(s.limit, begin);
    measure_all(&s, begin);
    look_at_all();
    if (on_gpu)
        take_exposed();
    print_table(on_gpu);
    fflush(stdout);
    for (int i = 0; i < count; i++)
        if (!cells[i].desc.why_not)
            cells[i].engine->close(&cells[i]);
    free_models();
    if (s.json && !write_json(s.json, on_gpu)) {
        fprintf(stderr, "bench_overlap: %s: cannot be written\n", s.json);
        return 1;
    }
    return 0;
}
