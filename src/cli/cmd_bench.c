/* trainer bench CONFIG */
#include "cli/trained_args.h"
#include "device/registry.h"
#include "tools/measure.h"
#include "json/writer.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainer bench CONFIG [options]\n"
    "\n"
    "Measures how fast CONFIG trains here, on 1, 2, 4, … and all devices, in turns. Nothing is kept.\n"
    "\n"
    "  --devices LIST   only on these; may be repeated\n"
    "  --set KEY=VALUE  sets a key of the config\n"
    "  --seconds S      of each measurement, behind its warm-up (default 1)\n"
    "  --rounds N       each is measured so many times (default 3)\n"
    "  --json           one JSON object on stdout\n"
    "  --help           this text\n";

enum { ROWS_MOST = 12, ROUNDS_MOST = 99 };

typedef struct row {
    char devices[64]; /* an assignment */
    ls_measurement last;
    double rate[ROUNDS_MOST]; /* sorted when all are there */
    int rounds;
} row;

typedef struct bench {
    const char *config;
    int json, help, rounds, rows, set_count;
    double seconds;
    const char *set[CLI_SET_MAX + 1 + LS_MEASURE_SETS];
    row row[ROWS_MOST];
} bench;

/* ---- arguments ------------------------------------------------------------------------------ */

static int add_devices(bench *b, const char *list)
{
    row *r = &b->row[b->rows];
    if (b->rows == ROWS_MOST)
        return cli_verb_usage("bench", "too many --devices", "");
    int n = snprintf(r->devices, sizeof r->devices, "devices=\"%s\"", list);
    if (n < 0 || (size_t)n >= sizeof r->devices || strpbrk(list, "\"\\"))
        return cli_verb_usage("bench", "--devices: cannot read ", list);
    b->rows++;
    return 0;
}

static int take_number(const char *name, const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && *out >= least && *out <= most)
        return 0;
    fprintf(stderr, "trainer bench: --%s %s: expected a number from %g to %g\n", name, text, least,
            most);
    return EXIT_USAGE;
}

static int take(bench *b, int option, char **argv)
{
    double number = 0;
    int problem = 0;
    switch (option) {
    case 'd': return add_devices(b, optarg);
    case 'j': b->json = 1; return 0;
    case 'h': b->help = 1; return 0;
    case 'n': return take_number("seconds", optarg, 0.01, 3600, &b->seconds);
    case 'r':
        problem = take_number("rounds", optarg, 1, ROUNDS_MOST, &number);
        b->rounds = (int)number;
        return problem;
    case 's':
        if (b->set_count == CLI_SET_MAX)
            return cli_verb_usage("bench", "too many --set", "");
        b->set[b->set_count++] = optarg;
        return 0;
    case ':': return cli_verb_usage("bench", "a value is missing behind ", argv[optind - 1]);
    default: return cli_verb_usage("bench", "unknown option ", argv[optind - 1]);
    }
}

static int parse(bench *b, int argc, char **argv)
{
    static const struct option options[] = {{"devices", required_argument, NULL, 'd'},
                                            {"set", required_argument, NULL, 's'},
                                            {"seconds", required_argument, NULL, 'n'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int problem = 0, c;
    opterr = 0;
    optind = 1;
    while (!problem && !b->help && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1)
        problem = take(b, c, argv);
    if (problem || b->help)
        return problem;
    if (optind == argc)
        return cli_verb_usage("bench", "which config? Try examples/fashion_mnist.json", "");
    if (optind + 1 < argc)
        return cli_verb_usage("bench", "one config at a time; do not know what to do with ",
                              argv[optind + 1]);
    b->config = argv[optind];
    return 0;
}

/* 1, 2, 4, … and all devices that "auto" would take. */
static int choose_devices(bench *b, const ls_registry *registry, long shards, ls_error *err)
{
    ls_device_list list;
    char text[48];
    int status = ls_device_list_parse(&list, registry, "auto", (int)shards, err);
    if (status)
        return status;
    for (int n = 1; n > 0; n = n == list.count ? 0 : 2 * n < list.count ? 2 * n : list.count) {
        size_t used = 0;
        if (list.backend->counted)
            snprintf(text, sizeof text, "%s:%d", list.backend->name, n);
        for (int i = 0; !list.backend->counted && i < n && used < sizeof text - 8; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%d",
                                     i ? "" : list.backend->name, i ? "," : ":", list.index[i]);
        if (b->rows < ROWS_MOST)
            add_devices(b, text);
    }
    return LS_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

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
            b->set[b->set_count] = r->devices;
            o->set_count = b->set_count + 1;
            status = ls_measure(&r->last, o, b->set, b->seconds, cli_set_running, err);
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
    const ls_measurement *m = &b->row[0].last;
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
    ls_error err;
    const ls_measurement *m = &b->row[0].last;
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
    const char *text = ls_json_writer_text(&w, NULL, &err);
    if (text)
        puts(text);
    ls_json_writer_fini(&w);
}

static int run(bench *b, const ls_registry *registry)
{
    char cache[4096];
    ls_error err;
    ls_config config;
    cli_data_dirs dirs;
    ls_host host = {.size = sizeof host};
    cli_find_data_dirs(&dirs);
    ls_trainer_options o = {
        .size = sizeof o,
        .config_path = b->config,
        .set = b->set,
        .set_count = b->set_count,
        .data_dirs = dirs.dir,
        .data_dir_count = dirs.count,
        .registry = registry,
        .cache_dir = cli_find_cache_dir(cache),
        .host = &host,
    };
    int status = ls_config_read(&config, &o, &err);
    if (status)
        return cli_fail(status, &err);
    if (b->rows == 0)
        status = choose_devices(b, registry, config.shards, &err);
    ls_config_fini(&config);
    cli_catch_signals();
    if (status == LS_OK)
        status = measure(b, &o, &err);
    if (status)
        return cli_fail(status, &err);
    if (b->json)
        print_json(b);
    else
        print_table(b);
    return cli_flush();
}

int cli_bench(int argc, char **argv, const ls_registry *registry)
{
    static const bench defaults = {.rounds = 3, .seconds = 1};
    bench b = defaults;
    int code = parse(&b, argc, argv);
    if (code)
        return code;
    if (b.help) {
        fputs(help, stdout);
        return cli_flush();
    }
    return run(&b, registry);
}
