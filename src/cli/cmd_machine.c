/* SPDX-License-Identifier: MIT */
/* The commands about this machine: `trainer devices` lists its devices, and `trainer bench`
 * measures how fast a config trains on them. */
#include "base/clock.h"
#include "base/error.h"
#include "cli/cli.h"
#include "device/registry.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* ---- trainer devices ------------------------------------------------------------------------- */

static const char devices_help[] =
    "usage: {} devices\n"
    "\n"
    "Lists the back ends of this program, their devices on this machine, and the devices that\n"
    "--devices auto selects.\n";

/* Prints one device, which is opened only to query it. */
static void print_device(const ls_backend *backend, int index)
{
    ls_error err;
    ls_device *device;
    ls_device_info info;
    const ls_device_request request = {.size = sizeof request, .index = index, .threads = 1};
    if (backend->open(&device, &request, &err) != LS_OK) {
        printf("  %s(%d)  %s\n", backend->name, index, err.text);
        return;
    }
    device->ops->describe(device, &info);
    printf("  %-8s %s", info.name, info.model);
    if (info.isa[0])
        printf(", %s", info.isa);
    if (info.memory_bytes)
        printf(", %.1f GB", (double)info.memory_bytes / 1e9);
    putchar('\n');
    device->ops->close(device);
}

static void print_backend(const ls_backend *backend)
{
    ls_backend_info info = {0};
    backend->probe(&info);
    if (info.devices == 0) {
        printf("%s: %s: %s\n", backend->name, info.broken ? "broken" : "absent", info.reason);
        return;
    }
    if (backend->counted) /* all devices of this back end are equal, so only the first is printed */
        printf("%s: %s; %d CPU%s, each a device of its own or several a team (`threads`)\n",
               backend->name, info.version, info.devices, info.devices == 1 ? "" : "s");
    else
        printf("%s: %s\n", backend->name, info.version);
    for (int i = 0; i < (backend->counted ? 1 : info.devices); i++)
        print_device(backend, i);
}

int cli_devices(int argc, char **argv, const ls_registry *registry)
{
    ls_device_list list;
    ls_error err;
    const cli_option options[] = {{CLI_HELP, "help", 'h', .text = devices_help}, {0}};
    const int problem = cli_read_options("devices", options, argc, argv);
    if (problem)
        return problem;
    if (optind < argc)
        return cli_usage("devices", "do not know what to do with ", argv[optind]);
    for (int i = 0; ls_registry_at(registry, i); i++)
        print_backend(ls_registry_at(registry, i));
    int status = ls_device_list_parse(&list, registry, "auto", 0, &err);
    if (status)
        return cli_fail(status, err.text);
    printf("auto: %s:%d\n", list.backend->name, list.count);
    return cli_flush();
}

/* ---- trainer bench CONFIG -------------------------------------------------------------------- */

static const char bench_help[] =
    "usage: {} bench CONFIG [options]\n"
    "\n"
    "Measures how fast CONFIG trains on 1, 2, 4, … and all devices of this machine, which are\n"
    "measured in turn. Nothing is saved.\n"
    "\n"
    "  --devices LIST   measures only these devices; may be repeated\n"
    "  --set KEY=VALUE  sets a key of the config\n"
    "  --seconds S      duration of one measurement, after a warm-up (default 1)\n"
    "  --rounds N       number of measurements of each list of devices (default 3)\n"
    "  --json           prints one JSON object\n"
    "  --help           this text\n";

enum { ROWS_MOST = 12, ROUNDS_MOST = 99, MEASURE_SETS = 3 };

/* Result of a measurement. */
typedef struct measurement {
    double images_per_s;
    int workers, batch_size, synthetic;
    char name[64];
    char devices[512]; /* names of the devices: "[cpu(0), cpu(1)]" */
} measurement;

/* A row of the table: devices, and their rates in rows per second. */
typedef struct row {
    char devices[64]; /* the row's devices, as an assignment to the key `devices` */
    measurement last;
    double rate[ROUNDS_MOST]; /* sorted after the last round */
    int rounds;
} row;

/* Arguments and results of `trainer bench`. */
typedef struct bench {
    const char *config;
    bool json;
    int rounds, rows;
    double seconds;
    cli_list set; /* the assignments of --set, to which each measurement appends its own */
    row row[ROWS_MOST];
} bench;

/* ---- arguments ------------------------------------------------------------------------------ */

static int add_devices(bench *b, const char *list)
{
    row *r = &b->row[b->rows++];
    return cli_assignment(r->devices, sizeof r->devices, "devices", list)
               ? 0
               : cli_usage("bench", "--devices: cannot read ", list);
}

static int parse(bench *b, int argc, char **argv)
{
    cli_list devices = {0};
    const cli_option options[] = {
        {CLI_LIST, "devices", .list = &devices, .most = ROWS_MOST},
        {CLI_LIST, "set", .list = &b->set, .most = CLI_SET_MAX},
        {CLI_NUMBER, "seconds", .number = &b->seconds, .least = 0.01, .greatest = 3600},
        {CLI_WHOLE, "rounds", .whole = &b->rounds, .least = 1, .greatest = ROUNDS_MOST},
        {CLI_FLAG, "json", .flag = &b->json},
        {CLI_HELP, "help", 'h', .text = bench_help},
        {CLI_OPERAND, "config", .value = &b->config, .text = "which config?",
         .example = "examples/fashion_mnist.json"},
        {0}};
    int problem = cli_read_options("bench", options, argc, argv);
    for (int i = 0; problem == 0 && i < devices.count; i++)
        problem = add_devices(b, devices.item[i]);
    return problem;
}

/* Stores the number of shards that a run of the config uses. The trainer is opened to find it,
 * because without the key `shards` it depends on the model and the data. */
static int find_shards(int *out, bench *b, const ls_trainer_options *options, ls_error *err)
{
    ls_trainer *t;
    ls_trainer_options o = *options;
    b->set.item[o.set_count++] = "devices=auto";
    b->set.item[o.set_count++] = "run_dir=null";
    int status = ls_trainer_open(&t, &o, err);
    if (status)
        return status;
    *out = ls_trainer_summary(t)->shards;
    ls_trainer_close(t, NULL);
    return LS_OK;
}

/* Adds a row for 1, 2, 4, … devices, up to all devices that "auto" selects. */
static int choose_devices(bench *b, const ls_registry *registry, int shards, ls_error *err)
{
    ls_device_list list;
    char text[48];
    int status = ls_device_list_parse(&list, registry, "auto", shards, err);
    if (status)
        return status;
    for (int n = 1, last = 0; last < list.count; n = 2 * n < list.count ? 2 * n : list.count) {
        last = n;
        ls_device_list_first(text, sizeof text, list.backend, n);
        if (b->rows < ROWS_MOST)
            add_devices(b, text);
    }
    /* There are more CPUs than shards. One more row, "auto": a worker for each shard, and several
     * CPUs for each worker. */
    if (list.capped && b->rows < ROWS_MOST)
        add_devices(b, "auto");
    return LS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

#define WARM_NS 333000000u
enum { WARM_STEPS = 3 };

/* Measures the time of a run's steps, from the records that the run writes. */
typedef struct stopwatch {
    ls_trainer *trainer;
    /* times of ls_now_ns: when the run was begun, when the warm-up ended, and the end of the last
     * step; and the duration to be measured */
    uint64_t opened_ns, from_ns, last_ns, need_ns;
    uint64_t steps, rows; /* numbers since from_ns */
    bool warm, done;      /* the warm-up has ended; the duration was measured */
} stopwatch;

/* Called on the coordinator's thread for every record. */
static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    stopwatch *s = user;
    const char *rows = strstr(json, "\"rows\":");
    (void)length;
    (void)err;
    if (strncmp(json, "{\"type\":\"step\"", 14) != 0 || !rows || s->done)
        return LS_OK;
    s->last_ns = ls_now_ns();
    s->steps++;
    s->rows += strtoul(rows + 7, NULL, 10);
    if (!s->warm && s->steps >= WARM_STEPS && s->last_ns - s->opened_ns >= WARM_NS) {
        s->warm = true;
        s->from_ns = s->last_ns;
        s->steps = s->rows = 0;
    } else if (s->warm && s->last_ns - s->from_ns >= s->need_ns) {
        s->done = true;
        ls_trainer_interrupt(s->trainer);
    }
    return LS_OK;
}

static void fill(measurement *out, const stopwatch *s)
{
    const ls_summary *sum = ls_trainer_summary(s->trainer);
    *out = (measurement){
        .images_per_s = (double)s->rows / ((double)(s->last_ns - s->from_ns) * 1e-9),
        .workers = sum->workers,
        .batch_size = sum->batch_size,
        .synthetic = sum->synthetic,
    };
    snprintf(out->name, sizeof out->name, "%s", sum->name);
    snprintf(out->devices, sizeof out->devices, "%s", sum->devices);
}

/* Measures how many rows per second a run trains. It trains for `seconds` seconds, after a warm-up
 * of at least 3 steps and a third of a second, and saves nothing. `set` must have space for
 * MEASURE_SETS more assignments. */
static int measure_one(measurement *out, const ls_trainer_options *options, const char **set,
                       double seconds, ls_error *err)
{
    stopwatch s = {.need_ns = (uint64_t)(seconds * 1e9)};
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .record = on_record, .user = &s};
    ls_trainer_options o = *options;
    o.set = set;
    set[o.set_count++] = "run_dir=null";
    set[o.set_count++] = "epochs=1000000";
    set[o.set_count++] = "eval_every=0";
    o.callbacks = &callbacks;
    int status = ls_trainer_open(&s.trainer, &o, err);
    if (status)
        return status;
    s.opened_ns = ls_now_ns();
    status = cli_run(s.trainer, err);
    if (status == LS_EINTERRUPTED && s.done) {
        fill(out, &s);
        status = LS_OK;
    }
    ls_trainer_close(s.trainer, NULL);
    return status;
}

static int by_rate(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(bench *b, ls_trainer_options *o, ls_error *err)
{
    int status = LS_OK;
    for (int k = 0; k < b->rounds; k++) {
        for (int i = 0; status == LS_OK && i < b->rows; i++) {
            row *r = &b->row[i];
            b->set.item[b->set.count] = r->devices;
            o->set_count = b->set.count + 1;
            status = measure_one(&r->last, o, b->set.item, b->seconds, err);
            if (status == LS_OK)
                r->rate[r->rounds++] = r->last.images_per_s;
        }
    }
    for (int i = 0; i < b->rows; i++)
        qsort(b->row[i].rate, (size_t)b->row[i].rounds, sizeof b->row[i].rate[0], by_rate);
    return status;
}

/* ---- results -------------------------------------------------------------------------------- */

static double median(const row *r)
{
    return (r->rate[(r->rounds - 1) / 2] + r->rate[r->rounds / 2]) / 2;
}

static void print_table(const bench *b)
{
    const measurement *m = &b->row[0].last;
    printf("%s, %d images a minibatch%s; medians of %d × %g s, in turns\n", m->name, m->batch_size,
           m->synthetic ? ", synthetic data" : "", b->rounds, b->seconds);
    printf("%-24s %10s  %15s  %8s  %10s\n", "devices", "images/s", "range", "speed-up",
           "efficiency");
    for (int i = 0; i < b->rows; i++) {
        const row *r = &b->row[i];
        char range[32], devices[32];
        const double up = median(r) / median(&b->row[0]);
        const double per = up * b->row[0].last.workers / r->last.workers;
        snprintf(range, sizeof range, "%.0f-%.0f", r->rate[0], r->rate[r->rounds - 1]);
        if (strlen(r->last.devices) <= 24)
            snprintf(devices, sizeof devices, "%.24s", r->last.devices);
        else
            snprintf(devices, sizeof devices, "%d devices", r->last.workers);
        printf("%-24s %10.0f  %15s  %7.2fx  %9.0f%%\n", devices, median(r), range, up, 100 * per);
    }
}

static void print_json(const bench *b)
{
    ls_json_writer w;
    const measurement *m = &b->row[0].last;
    ls_json_writer_init(&w, 2, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "name", m->name);
    ls_json_put_int(&w, "batch_size", m->batch_size);
    ls_json_put_bool(&w, "synthetic", m->synthetic);
    ls_json_put_double(&w, "seconds", b->seconds);
    ls_json_open_array(&w, "rows");
    for (int i = 0; i < b->rows; i++) {
        const row *r = &b->row[i];
        ls_json_open_object(&w, NULL);
        ls_json_put_string(&w, "devices", r->last.devices);
        ls_json_put_int(&w, "workers", r->last.workers);
        ls_json_put_double(&w, "images_per_s", median(r));
        ls_json_open_array(&w, "rounds");
        for (int k = 0; k < r->rounds; k++)
            ls_json_put_double(&w, NULL, r->rate[k]);
        ls_json_close(&w);
        ls_json_close(&w);
    }
    ls_json_close(&w);
    ls_json_close(&w);
    cli_put_json(&w);
}

static int run(bench *b, const ls_registry *registry)
{
    ls_error err;
    int shards = 0, status = LS_OK;
    cli_directories places;
    ls_host host = {.size = sizeof host};
    ls_trainer_options o = cli_options(&places, b->config, &b->set, registry, b->json, &host);
    if (b->rows == 0)
        status = find_shards(&shards, b, &o, &err);
    if (status == LS_OK && b->rows == 0)
        status = choose_devices(b, registry, shards, &err);
    cli_catch_signals();
    if (status == LS_OK)
        status = measure(b, &o, &err);
    if (status)
        return cli_fail(status, err.text);
    if (b->json)
        print_json(b);
    else
        print_table(b);
    return cli_flush();
}

int cli_bench(int argc, char **argv, const ls_registry *registry)
{
    bench b = {.rounds = 3, .seconds = 1};
    const int code = parse(&b, argc, argv);
    return code ? code : run(&b, registry);
}
