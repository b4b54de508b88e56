#include "cli/trained_args.h"

#include "base/error.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char common_help[] =
    "  RUN              a run's directory, runs/<time>-<name>: its final weights, or its newest\n"
    "                   checkpoint where that is newer; or a checkpoint's file; or a\n"
    "                   safetensors file, with --config\n"
    "  --config CONFIG  this config instead of the run's own\n"
    "  --set KEY=VALUE  sets a key of the config: --set data.name=synthetic\n";

int cli_verb_usage(const char *verb, const char *problem, const char *what)
{
    fprintf(stderr, "trainer %s: %s%s; `trainer %s --help` lists what there is\n", verb, problem,
            what, verb);
    return EXIT_USAGE;
}

int cli_only_a_run(const cli_trained_args *a)
{
    return a->rest_count == 0
               ? 0
               : cli_verb_usage(a->verb, "one run at a time; do not know what to do with ",
                                a->rest[0]);
}

int cli_fail(int status, const ls_error *err)
{
    fprintf(stderr, "trainer: %s\n", err->text);
    return cli_exit_code(status);
}

int cli_flush(void)
{
    if (fflush(stdout) == 0 || errno == EPIPE)
        return 0;
    fprintf(stderr, "trainer: standard output: cannot write: %s\n", strerror(errno));
    return EXIT_IO;
}

static int add_set(cli_trained_args *a, const char *assignment)
{
    if (a->set_count == CLI_SET_MAX)
        return cli_verb_usage(a->verb, "too many --set", "");
    a->set[a->set_count++] = assignment;
    return 0;
}

static int add_data(cli_trained_args *a, const char *directory)
{
    int n = snprintf(a->data, sizeof a->data, "data.path=\"%s\"", directory);
    if (n < 0 || (size_t)n >= sizeof a->data || strpbrk(directory, "\"\\"))
        return cli_verb_usage(a->verb, "--data: cannot read ", directory);
    return add_set(a, a->data);
}

enum { SET = 1, CONFIG, DATA };

static int take(cli_trained_args *a, int option, const char *allowed, char **argv)
{
    if (option >= 'a' && option != 'h' && !strchr(allowed, option))
        return cli_verb_usage(a->verb, "unknown option ", argv[optind - 1]);
    switch (option) {
    case SET: return add_set(a, optarg);
    case DATA: return add_data(a, optarg);
    case CONFIG: a->config = optarg; return 0;
    case 'd': a->devices = optarg; return 0;
    case 'j': a->json = 1; return 0;
    case 't': a->train = 1; return 0;
    case 'r': a->rows = optarg; return 0;
    case 'o': a->to = optarg; return 0;
    case 'q': a->quiet = 1; return 0;
    case 'h': a->help = 1; return 0;
    case ':': return cli_verb_usage(a->verb, "a value is missing behind ", argv[optind - 1]);
    default: return cli_verb_usage(a->verb, "unknown option ", argv[optind - 1]);
    }
}

static int parse(cli_trained_args *a, const cli_trained_verb *verb, int argc, char **argv)
{
    static const struct option options[] = {
        {"set", required_argument, NULL, SET},   {"config", required_argument, NULL, CONFIG},
        {"data", required_argument, NULL, DATA}, {"devices", required_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},        {"train", no_argument, NULL, 't'},
        {"rows", required_argument, NULL, 'r'},  {"to", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    int problem = 0, c;
    memset(a, 0, sizeof *a);
    a->verb = verb->name;
    opterr = 0;
    optind = 1;
    while (!problem && !a->help && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1)
        problem = take(a, c, verb->letters, argv);
    if (problem || a->help)
        return problem;
    if (optind == argc)
        return cli_verb_usage(a->verb, "which run? Try a directory runs/<time>-<name>", "");
    a->run = argv[optind];
    a->rest = argv + optind + 1;
    a->rest_count = argc - optind - 1;
    return verb->check(a);
}

static int open_run(ls_trained *out, const cli_trained_args *a, const ls_host *host)
{
    ls_error err;
    cli_data_dirs dirs;
    cli_find_data_dirs(&dirs);
    const ls_trained_options o = {
        .path = a->run,
        .config = a->config,
        .set = a->set,
        .set_count = a->set_count,
        .data_dirs = dirs.dir,
        .data_dir_count = dirs.count,
        .needs_data = a->needs_data,
        .host = host,
    };
    int status = ls_trained_open(out, &o, &err);
    return status ? cli_fail(status, &err) : 0;
}

int cli_trained_run(const cli_trained_verb *verb, int argc, char **argv,
                    const ls_registry *registry)
{
    cli_trained_args a;
    ls_trained t;
    const ls_host host = {.size = sizeof host};
    int code = parse(&a, verb, argc, argv);
    if (code)
        return code;
    if (a.help) {
        printf("%s%s%s", verb->help, common_help, verb->more);
        return cli_flush();
    }
    code = open_run(&t, &a, &host);
    if (code)
        return code;
    code = verb->run(&t, &a, registry);
    ls_trained_close(&t);
    return code;
}

ls_predict_desc cli_predict_desc(const ls_trained *t, const cli_trained_args *a,
                                 const ls_registry *registry, char cache[4096])
{
    return (ls_predict_desc){
        .registry = registry,
        .devices = a->devices ? a->devices : t->config.devices,
        .threads = (int)t->config.threads,
        .precision = t->config.precision,
        .cache_dir = cli_find_cache_dir(cache),
        .model = t->model,
        .weights = t->weights,
        .normalisation = t->config.preprocessing,
        .label_smoothing = (float)t->config.label_smoothing,
        .optimizer = &t->config.optimizer,
        .batch = (uint32_t)t->config.batch_size,
        .shards = (uint32_t)t->config.shards,
        .host = t->host,
    };
}
