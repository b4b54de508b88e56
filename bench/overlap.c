/* Threads or streams: what it costs to drive several workers from one process, and how.
 *
 *     bench_overlap [--seconds S] [--json FILE] [--config LENET.json]
 *
 * Every combination of 1, 2 and 4 workers, three ways of driving them (overlap.h) and three kinds of
 * work; and around two of these cells, merging and the barrier at the end of a step varied one by
 * one. Before it is measured each cell makes three steps, whose gradients and weights must be
 * one worker's, bit for bit. Rounds are taken in turns over all cells. There are no graphs on the
 * CPU: a piece is enqueued each time.
 */
#include "overlap.h"

#include "base/host.h"
#include "base/rng.h"
#include "device/device_list.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MOST = 48, WORKS = 3, LINE = 100 };

static const work works[WORKS] = {
    {"spin 10 us", 0, 6, 10}, {"LeNet b32", 32, 0, 0}, {"LeNet b256", 256, 0, 0}};

static cell cells[CELLS_MOST];
static int count;

static void check(int status, const ls_error *err, const cell_desc *d)
{
    if (status == LS_OK)
        return;
    fprintf(stderr, "bench_overlap: ");
    if (d)
        fprintf(stderr, "%s, %d workers, %s: ", d->work->name, d->workers, host_names[d->host]);
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* ---- what there is to compute --------------------------------------------------------------- */

static ls_replica_data make_data(ls_shape shape, int classes)
{
    const size_t bytes = (size_t)shape.c * (size_t)shape.h * (size_t)shape.w * DATA_ROWS;
    uint8_t *images = malloc(bytes), *labels = malloc(DATA_ROWS);
    if (!images || !labels)
        exit(1);
    for (size_t i = 0; i < bytes; i++)
        images[i] = (uint8_t)(256 * ls_rng_uniform(1, 2, 3, i));
    for (uint32_t i = 0; i < DATA_ROWS; i++)
        labels[i] = (uint8_t)((double)classes * ls_rng_uniform(1, 3, 3, i));
    return (ls_replica_data){images, labels, DATA_ROWS};
}

/* Everything that all cells share. */
static cell make_model(const char *config)
{
    static ls_optimizer optimizer;
    static const char sgd[] = "{\"name\": \"sgd\", \"lr\": 0.05}";
    const ls_shape shape = {1, 28, 28};
    const ls_init init = {LS_INIT_XAVIER, 0};
    ls_json *doc, *recipe;
    ls_model *model;
    ls_error err;
    check(ls_json_read_file(&doc, config, NULL, &err), &err, NULL);
    check(ls_json_parse(&recipe, "sgd", sgd, strlen(sgd), NULL, &err), &err, NULL);
    check(ls_optimizer_parse(&optimizer, recipe, ls_json_root(recipe), &err), &err, NULL);
    check(ls_model_parse(&model, doc, cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model"),
                         shape, 10, NULL, &err),
          &err, NULL);
    float *weights = calloc(model->floats, sizeof *weights);
    if (!weights)
        exit(1);
    ls_init_weights(weights, model, &init, 1);
    return (cell){.model = model,
                  .optimizer = &optimizer,
                  .first_weights = weights,
                  .data = make_data(shape, 10)};
}

static void add(const cell *common, cell_desc d)
{
    if (count == CELLS_MOST)
        return;
    cells[count] = *common;
    cells[count++].desc = d;
}

/* Workers × host × work with merging and without a barrier; then merge and barrier varied. */
static void list_cells(const cell *common)
{
    static const int workers[] = {1, 2, 4};
    for (int w = 0; w < WORKS; w++)
        for (int n = 0; n < 3; n++)
            for (int h = 0; h < HOST_MODES; h++)
                add(common, (cell_desc){workers[n], (host_mode)h, &works[w], 1, 0});
    for (int h = 0; h <= HOST_STREAMS; h++)
        for (int k = 0; k < 3; k++)
            add(common, (cell_desc){2, (host_mode)h, &works[2], k == 2, k > 0});
    for (int k = 0; k < 3; k++)
        add(common, (cell_desc){2, HOST_THREADS, &works[0], k == 2, k > 0});
}

/* Each cell's result is compared with one worker's, of the same work. */
static void open_and_check(void)
{
    ls_error err;
    outcome wanted[WORKS][2];
    int known[WORKS][2] = {{0}};
    for (int i = 0; i < count; i++) {
        cell *c = &cells[i];
        const int w = (int)(c->desc.work - works), m = c->desc.merge;
        if (!known[w][m])
            check(reference_run(&wanted[w][m], c, &err), &err, &c->desc);
        known[w][m] = 1;
        check(cell_open(c, &err), &err, &c->desc);
        check(cell_check(c, &wanted[w][m], &err), &err, &c->desc);
    }
}

/* ---- results -------------------------------------------------------------------------------- */

/* What is told of a cell, by the name of the JSON. */
static const struct column {
    const char *key;
    size_t at; /* in figures */
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
    double low, median, high; /* the middle half */
} summary;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static summary summarise(const cell *c, size_t at)
{
    double v[ROUNDS_MOST];
    const int n = c->rounds;
    for (int i = 0; i < n; i++)
        memcpy(&v[i], (const char *)&c->round[i] + at, sizeof v[i]);
    qsort(v, (size_t)n, sizeof v[0], by_value);
    return (summary){v[n / 4], (v[(n - 1) / 2] + v[n / 2]) / 2, v[n - 1 - n / 4]};
}

/* A cell's rate over that of the same cell driven by threads, round by round: the median. */
static double against_threads(const cell *c)
{
    double v[ROUNDS_MOST];
    const cell *base = c;
    for (int i = 0; i < count; i++) {
        const cell_desc *d = &cells[i].desc;
        if (d->host == HOST_THREADS && d->work == c->desc.work && d->workers == c->desc.workers &&
            d->merge == c->desc.merge && d->barrier == c->desc.barrier)
            base = &cells[i];
    }
    for (int r = 0; r < c->rounds; r++)
        v[r] = c->round[r].steps_per_s / base->round[r].steps_per_s;
    qsort(v, (size_t)c->rounds, sizeof v[0], by_value);
    return (v[(c->rounds - 1) / 2] + v[c->rounds / 2]) / 2;
}

static void print_row(const cell *c)
{
    static const char *const ends[] = {"-", "barrier", "merge", "merge+barrier"};
    const cell_desc *d = &c->desc;
    const summary rate = summarise(c, columns[0].at);
    double m[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        m[i] = summarise(c, columns[i].at).median;
    printf(
        "%-10s %3d%c %-10s %-13s %7.0f %3.0f%% %5.2f %5.0f %6.2f %7.2f %5.2f %8.1f %8.1f %6.1f\n",
        d->work->name, d->workers, d->workers > ls_allowed_cpus() ? '*' : ' ', host_names[d->host],
        ends[2 * d->merge + d->barrier], m[0], 50 * (rate.high - rate.low) / rate.median,
        against_threads(c), m[1], m[2] * 1e6, m[3] * 1e6, m[4], m[5] * 1e6, (m[6] + m[7]) * 1e6,
        m[8]);
}

static void print_table(void)
{
    const char *form = "%-10s %4s %-10s %-13s %7s %4s %5s %5s %6s %7s %5s %8s %8s %6s\n";
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
        "than CPUs. Every cell's gradients and weights were one worker's, bit for bit. No graphs\n"
        "on the CPU.\n",
        cells[0].rounds);
}

static int write_json(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return 0;
    fprintf(f, "{\"cpus\": %d, \"rounds\": %d, \"shards\": %d, \"graphs\": false, \"cells\": [",
            ls_allowed_cpus(), cells[0].rounds, SHARDS);
    for (int i = 0; i < count; i++) {
        const cell_desc *d = &cells[i].desc;
        fprintf(f,
                "%s\n  {\"work\": \"%s\", \"workers\": %d, \"host\": \"%s\", \"merge\": %s, "
                "\"barrier\": %s",
                i ? "," : "", d->work->name, d->workers, host_names[d->host],
                d->merge ? "true" : "false", d->barrier ? "true" : "false");
        for (int k = 0; k < COLUMNS; k++) {
            const summary s = summarise(&cells[i], columns[k].at);
            fprintf(f, ",\n   \"%s\": {\"median\": %.9g, \"low\": %.9g, \"high\": %.9g}",
                    columns[k].key, s.median, s.low, s.high);
        }
        fprintf(f, ",\n   \"over_threads\": %.6g}", against_threads(&cells[i]));
    }
    fprintf(f, "\n]}\n");
    const int broken = ferror(f);
    return fclose(f) == 0 && !broken;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* As many rounds as fit, none shorter than a tenth of a second. */
static void measure_all(double seconds)
{
    ls_error err;
    double each = 0.25;
    int rounds = (int)(seconds / each / count);
    if (rounds < 3) {
        rounds = 3;
        each = seconds / rounds / count > 0.1 ? seconds / rounds / count : 0.1;
    }
    for (int r = 0; r < rounds && r < ROUNDS_MOST; r++) {
        for (int i = 0; i < count; i++)
            check(cell_measure(&cells[i], each, &err), &err, &cells[i].desc);
        fprintf(stderr, "bench_overlap: round %d of %d\n", r + 1, rounds);
    }
}

int main(int argc, char **argv)
{
    double seconds = 60;
    const char *json = NULL, *config = "examples/fashion_mnist.json";
    ls_registry *registry;
    ls_device_list list;
    ls_error err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            json = argv[++i];
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            config = argv[++i];
        else
            return fprintf(stderr, "usage: bench_overlap [--seconds S] [--json FILE] [--config "
                                   "LENET.json]\n"),
                   64;
    }
    check(ls_registry_create(&registry, NULL, &err), &err, NULL);
    check(ls_device_list_parse(&list, registry, "cpu:1", 0, &err), &err, NULL);
    cell common = make_model(config);
    common.backend = list.backend;
    spin_calibrate();
    list_cells(&common);
    open_and_check();
    measure_all(seconds);
    print_table();
    for (int i = 0; i < count; i++)
        cell_close(&cells[i]);
    ls_registry_destroy(registry);
    if (json && !write_json(json)) {
        fprintf(stderr, "bench_overlap: %s: cannot be written\n", json);
        return 1;
    }
    return 0;
}
