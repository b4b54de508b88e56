#include "cli/cli.h"
#include "train/config.h"

#include <getopt.h>
#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: trainer CONFIG [options]\n"
    "       trainer [CONFIG] --resume RUN|latest [options]\n"
    "       trainer sweep CONFIG --vary KEY=VALUE,VALUE… [options]\n"
    "       trainer report RUN [-o FILE]\n"
    "       trainer eval RUN | predict RUN IMAGE…|--rows A:B | export RUN --to FILE\n"
    "       trainer devices | bench CONFIG          (each has a --help of its own)\n"
    "\n"
    "Trains the network that CONFIG describes, data-parallel, on every device of this machine.\n"
    "\n"
    "  --devices LIST      auto, cpu, cpu:4, … (default: the config's, else auto)\n"
    "  --set KEY=VALUE     sets any key of the config: --set optimizer.lr=0.1 --set epochs=3\n"
    "  --metrics FILE|-    also writes the metrics records to FILE, or to stdout for -; with - the\n"
    "                      closing line goes to stderr\n"
    "  --resume RUN        goes on with the run in directory RUN, bit for bit, from its newest\n"
    "                      checkpoint, on any number of devices; latest: the newest run in runs/.\n"
    "                      Without CONFIG the run's own is used\n"
    "  --inject FAULT      a fault on purpose: worker=1,step=120,kind=fail|stall|spin|corrupt|nan\n"
    "                      (and stage=start|shard|merge|apply|report|evaluate|export, seconds=20)\n"
    "  --trace FILE        a timeline of the run, for Perfetto or chrome://tracing\n"
    "  --trace-ops         with each op in it, not only the phases of a step\n"
    "  --serve [ADDR:]PORT a page in a browser that follows the run, /metrics for Prometheus, and\n"
    "                      /state.json; ADDR: 127.0.0.1\n"
    "  --serve-host NAME   a name that browsers may use for it, besides localhost and its address\n"
    "  --print-config      prints the config with all defaults and --set applied, and stops\n"
    "  --quiet             no progress, no start-up lines; warnings and errors only\n"
    "  --version           versions of the program, its back ends and their libraries\n"
    "  --help              this text; --help config: every key of a config\n"
    "\n"
    "The last line on stdout is the result:\n"
    "  test acc: 0.83, 1.9 sec/epoch on [cpu(0), cpu(1)]\n"
    "Metrics, weights and the resolved config go to a run directory, runs/<time>-<name>/.\n"
    "Ctrl-C finishes the step, saves a checkpoint and stops; a second one stops at once.\n"
    "\n"
    "Data is looked for in the config's data.path, else in $LOCKSTEP_DATA,\n"
    "$XDG_DATA_HOME/datasets and /usr/share/datasets.\n"
    "\n"
    "Exit codes: 0 done, 64 usage, 65 bad data, 66 missing input, 70 bug, 71 system or device,\n"
    "74 input/output, 75 stopped early with a checkpoint saved, 78 config, 130 interrupted.\n";

void cli_print_help(void)
{
    fputs(help, stdout);
}

/* What a key takes, from its row alone. */
static void print_kind(const ls_config_key *row)
{
    switch (row->kind) {
    case LS_KEY_INT: printf("an integer from %d to %d", (int)row->min, (int)row->max); break;
    case LS_KEY_NUMBER: printf("a number from %g to %g", row->min, row->max); break;
    case LS_KEY_BOOL: fputs("true or false", stdout); break;
    case LS_KEY_TEXT: fputs("a string", stdout); break;
    case LS_KEY_CHOICE:
        for (int i = 0; row->choices[i]; i++)
            printf("%s\"%s\"", i ? " or " : "", row->choices[i]);
        break;
    case LS_KEY_FORM: break;
    }
}

void cli_print_config_help(void)
{
    puts(
        "The keys of a config, as --set takes them. In the file those with a point are members of an\n"
        "object: {\"data\": {\"limit\": 1000}}.\n");
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        char text[32];
        const char *fallback = ls_config_default(text, row);
        printf("%s%s%s", row->group, *row->group ? "." : "", row->key);
        if (*fallback)
            printf(strcmp(fallback, "required") == 0 ? " (%s)" : " (default %s)", fallback);
        if (row->kind != LS_KEY_FORM) {
            fputs(": ", stdout);
            print_kind(row);
        }
        printf("\n    %s\n", row->help);
    }
}

void cli_print_version(const ls_registry *registry)
{
    printf("lockstep %s\n", LS_VERSION);
    for (int i = 0; ls_registry_at(registry, i); i++) {
        const ls_backend *backend = ls_registry_at(registry, i);
        ls_backend_info info = {0};
        backend->probe(&info);
        if (info.devices > 0)
            printf("  %s: %s, %d device%s\n", backend->name, info.version, info.devices,
                   info.devices == 1 ? "" : "s");
        else
            printf("  %s: %s: %s\n", backend->name, info.broken ? "broken" : "absent", info.reason);
    }
}

static int usage(const char *problem, const char *what)
{
    fprintf(stderr, "trainer: %s%s; `trainer --help` lists what there is\n", problem, what);
    return EXIT_USAGE;
}

static int add_set(cli_arguments *a, const char *assignment)
{
    if (a->set_count == CLI_SET_MAX)
        return usage("too many --set", "");
    a->set[a->set_count++] = assignment;
    return 0;
}

static int add_devices(cli_arguments *a, const char *list)
{
    int n = snprintf(a->devices, sizeof a->devices, "devices=\"%s\"", list);
    if (n < 0 || (size_t)n >= sizeof a->devices || strpbrk(list, "\"\\"))
        return usage("--devices: cannot read ", list);
    return add_set(a, a->devices);
}

static int add_inject(cli_arguments *a, const char *fault)
{
    if (a->inject_count == CLI_INJECT_MAX)
        return usage("too many --inject", "");
    a->inject[a->inject_count++] = fault;
    return 0;
}

static int add_serve_host(cli_arguments *a, const char *name)
{
    if (a->serve_host_count == CLI_SERVE_HOST_MAX)
        return usage("too many --serve-host", "");
    a->serve_host[a->serve_host_count++] = name;
    return 0;
}

int cli_parse(cli_arguments *out, int argc, char **argv)
{
    enum {
        SET = 1,
        DEVICES,
        METRICS,
        RESUME,
        INJECT,
        TRACE,
        OPS,
        SERVE,
        SERVE_HOST,
        PRINT,
        QUIET,
        VERSION,
        HELP
    };
    static const struct option options[] = {{"set", required_argument, NULL, SET},
                                            {"devices", required_argument, NULL, DEVICES},
                                            {"metrics", required_argument, NULL, METRICS},
                                            {"resume", required_argument, NULL, RESUME},
                                            {"inject", required_argument, NULL, INJECT},
                                            {"trace", required_argument, NULL, TRACE},
                                            {"trace-ops", no_argument, NULL, OPS},
                                            {"serve", required_argument, NULL, SERVE},
                                            {"serve-host", required_argument, NULL, SERVE_HOST},
                                            {"print-config", no_argument, NULL, PRINT},
                                            {"quiet", no_argument, NULL, QUIET},
                                            {"version", no_argument, NULL, VERSION},
                                            {"help", no_argument, NULL, HELP},
                                            {NULL, 0, NULL, 0}};
    memset(out, 0, sizeof *out);
    opterr = 0;
    optind = 1;
    char letter[3] = "-";
    int problem = 0, c;
    while (!problem && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case SET: problem = add_set(out, optarg); break;
        case DEVICES: problem = add_devices(out, optarg); break;
        case METRICS: out->metrics = optarg; break;
        case RESUME: out->resume = optarg; break;
        case INJECT: problem = add_inject(out, optarg); break;
        case TRACE: out->trace = optarg; break;
        case OPS: out->trace_ops = 1; break;
        case SERVE: out->serve = optarg; break;
        case SERVE_HOST: problem = add_serve_host(out, optarg); break;
        case PRINT: out->action = CLI_PRINT_CONFIG; break;
        case QUIET: out->quiet = 1; break;
        case VERSION: out->action = CLI_VERSION; return 0;
        case 'h':
        case HELP:
            out->action =
                optind < argc && strcmp(argv[optind], "config") == 0 ? CLI_HELP_CONFIG : CLI_HELP;
            return 0;
        case ':': problem = usage("a value is missing behind ", argv[optind - 1]); break;
        default: /* a letter may stand among others: -abc */
            letter[1] = (char)(optopt > ' ' ? optopt : 0);
            problem = usage("unknown option ", letter[1] ? letter : argv[optind - 1]);
            break;
        }
    }
    if (!problem && out->trace_ops && !out->trace)
        problem = usage("--trace-ops needs --trace FILE", "");
    if (!problem && out->serve_host_count && !out->serve)
        problem = usage("--serve-host needs --serve PORT", "");
    if (problem)
        return problem;
    if (optind == argc && out->resume && out->action == CLI_TRAIN)
        return 0;
    if (optind == argc)
        return usage("which config? Try `trainer examples/fashion_mnist.json`", "");
    if (optind + 1 < argc)
        return usage("one config at a time; do not know what to do with ", argv[optind + 1]);
    out->config = argv[optind];
    return 0;
}
