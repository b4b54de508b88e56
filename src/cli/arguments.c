/* SPDX-License-Identifier: MIT */
/* Reads the command line of the program: the options of verbs (subcommands, such as `init`) and
 * those of training. */
#include "cli/cli.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "cli/folds.h"
#include "cli/overwrite.h"
#include "config/keys.h"

#include <getopt.h>
#include <lockstep/cluster.h>
#include <lockstep/sys/plugin.h>
#include <lockstep/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char main_help[] =
    "usage: {} CONFIG [options]\n"
    "       {} [CONFIG] --resume RUN|latest [options]\n"
    "       {} init PATH [--target COLUMN] [--to CONFIG [--train]]\n"
    "       {} sweep CONFIG --vary KEY=VALUE,VALUE… [options]\n"
    "       {} find-lr CONFIG | verify RUN [options]\n"
    "       {} pack FOLDER --to FILE.safetensors\n"
    "       {} report RUN [-o FILE] | runs [DIR] | compare RUN RUN… [--to FILE.html]\n"
    "       {} eval RUN | predict RUN IMAGE…|--rows A:B | export RUN --to FILE\n"
    "       {} devices | bench CONFIG     (each has its own --help)\n"
    "\n"
    "Trains the network that CONFIG describes on all devices of this machine, data-parallel.\n"
    "CONFIG is a file; - is the standard input. The program is installed under two\n"
    "names, lockstep and trainer. `{} train CONFIG` trains as well.\n"
    "\n"
    "  --devices LIST      auto, cpu, cpu:4, … (default: the config's, or auto)\n"
    "  --set KEY=VALUE     sets a key of the config: --set optimizer.lr=0.1 --set epochs=3\n"
    "  --metrics FILE|-    also writes the metrics records to FILE; with - to stdout, and the\n"
    "                      result line to stderr\n"
    "  --resume RUN        continues the run in RUN, on any number of devices, with the same\n"
    "                      bits; latest: the newest run in runs/ with a checkpoint. Without\n"
    "                      CONFIG, the run's own config is used\n"
    "  --at STEP           resumes from the checkpoint after STEP steps\n"
    "  --folds K --wrong OUT.csv   finds suspicious labels\n"
    "  --print-config      prints the config with all defaults and --set applied, and exits\n"
    "  --quiet             prints only warnings, errors and the result\n"
    "  --version           prints the versions of the program, its back ends and their libraries\n"
    "  --help              prints this text; --help config: all keys of a config\n"
    "\n"
    "Observing a run\n"
    "  --serve [ADDR:]PORT serves a web page that follows the run, /metrics for Prometheus, and\n"
    "                      /state.json (ADDR: 127.0.0.1)\n"
    "  --serve-after       keeps serving after the run, until Ctrl-C\n"
    "  --serve-host NAME   host name that browsers may use, besides localhost and the address\n"
    "  --trace FILE        writes a timeline of the run, for https://ui.perfetto.dev\n"
    "  --trace-ops         adds the operations of the network to the timeline\n"
    "\n"
    "Training on several hosts\n"
    "  --listen [ADDR]:PORT  this process is the first one: it writes the run directory, and the\n"
    "                      others connect to it\n"
    "  --join HOST:PORT    connects to the first process at HOST:PORT. If HOST is an address of\n"
    "                      this machine and nothing listens there, this process becomes the first\n"
    "                      one. With on_arrival \"admit\" it can also join a run in progress,\n"
    "                      through any of its processes, and takes part from the next epoch on\n"
    "  --members N         number of processes\n"
    "  --secret FILE       the processes' common secret (head -c 32 /dev/urandom > FILE)\n"
    "  --secret-fd N       reads the secret from file descriptor N\n"
    "  --wait SECONDS      longest time to wait until all processes have connected (600)\n"
    "  --advertise ADDR[:PORT]  with --join: the address at which the other processes reach this\n"
    "                      one, if the first process sees another one\n"
    "  With MPI instead: mpirun -N 1 --bind-to none --enable-recovery -H A,B {} CONFIG\n"
    "\n"
    "Testing recovery\n"
    "  --inject FAULT      injects a fault: worker=1,step=120,kind=fail|stall|spin|corrupt|nan,\n"
    "                      and stage=start|shard|merge|apply|report|evaluate|export, seconds=20\n"
    "\n"
    "The last line on stdout is the result:\n"
    "  test acc: 0.83, 1.9 sec/epoch on [cpu(0), cpu(1)]\n"
    "Metrics, weights and the resolved config are written to a run directory,\n"
    "runs/<time>-<name>/.\n"
    "\n"
    "Ctrl-C finishes the current step, saves a checkpoint and exits; a second Ctrl-C exits at\n"
    "once. A closed terminal (SIGHUP) also saves and exits; under nohup the run continues.\n"
    "\n"
    "Data files are read from the config's data.path, or from $LOCKSTEP_DATA,\n"
    "$XDG_DATA_HOME/datasets or /usr/share/datasets.\n"
    "\n"
    "Exit codes: 0 success, 64 usage, 65 bad data, 66 missing input, 70 internal error,\n"
    "71 system or device, 74 input or output, 75 stopped early with a checkpoint saved,\n"
    "78 config, 130 interrupted.\n";

static void print_version(const ls_registry *registry)
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

int cli_print_help(const cli_arguments *a, const ls_registry *registry)
{
    int code = 0;
    if (a->config_help)
        cli_print_config_help();
    else if (a->help)
        code = cli_put_help(main_help);
    else if (a->version)
        print_version(registry);
    if (code)
        return code;
    return a->help || a->version ? CLI_HELPED : 0;
}

/* ---- options of any verb --------------------------------------------------------------------- */

int cli_usage(const char *verb, const char *problem, const char *what)
{
    const char *space = verb ? " " : "";
    verb = verb ? verb : "";
    fprintf(stderr, "%s%s%s: %s%s; `%s%s%s --help` lists what there is\n", cli_name(), space, verb,
            problem, what, cli_program(), space, verb);
    return EXIT_USAGE;
}

int cli_usage_example(const char *verb, const char *problem, const char *example)
{
    ls_buffer text;
    ls_buffer_init(&text, NULL);
    ls_buffer_format(&text, "%s Try `%s%s%s %s`", problem, cli_program(), verb ? " " : "",
                     verb ? verb : "", example);
    const int code = cli_usage(verb, text.text ? text.text : problem, "");
    ls_buffer_fini(&text);
    return code;
}

bool cli_assignment(char *buffer, size_t size, const char *key, const char *text)
{
    const int n = snprintf(buffer, size, "%s=\"%s\"", key, text);
    return n >= 0 && (size_t)n < size && !strpbrk(text, "\"\\");
}

static int take_item(const char *verb, const cli_option *o, const char *value)
{
    const bool is_key = o->kind == CLI_KEY;
    char name[40];
    snprintf(name, sizeof name, "--%.16s%s", o->name, is_key ? ": cannot read " : "");
    if (is_key && !cli_assignment(o->buffer, o->size, o->key, value))
        return cli_usage(verb, name, value);
    if (o->list->count == (is_key ? CLI_SET_MAX : o->most))
        return cli_usage(verb, "too many ", is_key ? "--set" : name);
    o->list->item[o->list->count++] = is_key ? o->buffer : value;
    return 0;
}

static int take_number(const char *verb, const cli_option *o, const char *text)
{
    char *end;
    const double number = strtod(text, &end);
    const bool whole = o->kind == CLI_WHOLE;
    if (end == text || *end || !(number >= o->least && number <= o->greatest) ||
        (whole && number != (int)number)) {
        fprintf(stderr, "%s%s%s: --%s %s: expected a %snumber from %g to %g", cli_name(),
                verb ? " " : "", verb ? verb : "", o->name, text, whole ? "whole " : "", o->least,
                o->greatest);
        if (end > text && strcmp(end, "%") == 0 && !whole)
            fprintf(stderr, "; write %g%% as %g", number, number / 100);
        else if (*end == ',' && !whole)
            fputs("; write a decimal point", stderr);
        fputc('\n', stderr);
        return EXIT_USAGE;
    }
    if (whole)
        *o->whole = (int)number;
    else
        *o->number = number;
    return 0;
}

static int take(const char *verb, const cli_option *o, const char *value)
{
    switch (o->kind) {
    case CLI_FLAG:
    case CLI_LAST: *o->flag = true; break;
    case CLI_HELP: return cli_put_help(o->text) ? EXIT_IO : CLI_HELPED;
    case CLI_TEXT:
    case CLI_OUT:
    case CLI_OPERAND: *o->value = value; break;
    case CLI_LIST:
    case CLI_KEY: return take_item(verb, o, value);
    case CLI_NUMBER:
    case CLI_WHOLE: return take_number(verb, o, value);
    }
    return 0;
}

/* getopt returns FIRST_LONG + i for the long option number i. These values differ from all
 * letters. */
enum { FIRST_LONG = 256 };

/* Returns the name of the option that the user probably meant by `argument` ("--divices=x":
 * devices), or NULL if no name is close. */
static const char *nearest_option(const cli_option *rows, const char *argument)
{
    const char *names[CLI_OPTIONS_MAX];
    char word[64];
    size_t count = 0;
    for (; rows[count].name && rows[count].kind != CLI_OPERAND && count < CLI_OPTIONS_MAX; count++)
        names[count] = rows[count].name;
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    return ls_closest(word, names, count);
}

/* Returns the key of the config that is called as the unknown option `argument` ("--epochs"), or
 * NULL. Keys of the config itself come first. */
static const ls_config_key *key_of_option(const cli_option *rows, const char *argument)
{
    const ls_config_key *found = NULL;
    bool sets = false;
    for (; rows->name && rows->kind != CLI_OPERAND; rows++)
        sets |= strcmp(rows->name, "set") == 0;
    if (!sets || strncmp(argument, "--", 2) != 0)
        return NULL;
    const size_t length = strcspn(argument + 2, "=");
    for (const ls_config_key *k = ls_config_keys; k->key; k++)
        if (strncmp(k->key, argument + 2, length) == 0 && k->key[length] == '\0' &&
            (!found || !k->object[0]))
            found = k;
    return found;
}

static int fail_unknown(const char *verb, const cli_option *rows, char **argv)
{
    const ls_config_key *key = key_of_option(rows, argv[optind - 1]);
    if (key) {
        char text[120];
        snprintf(text, sizeof text, "did you mean --set %.30s%s%.40s=VALUE? unknown option ",
                 key->object, key->object[0] ? "." : "", key->key);
        return cli_usage(verb, text, argv[optind - 1]);
    }
    const char *meant = nearest_option(rows, argv[optind - 1]);
    char problem[80];
    /* argv's text may have several letters: -abc */
    const char letter[3] = {'-', (char)optopt, '\0'};
    snprintf(problem, sizeof problem, "%s%.40s%sunknown option ", meant ? "did you mean --" : "",
             meant ? meant : "", meant ? "? " : "");
    return cli_usage(verb, problem,
                     optopt > ' ' && optopt < FIRST_LONG ? letter : argv[optind - 1]);
}

/* Checks that no output is a file that another argument names. */
static int spare_inputs(const char *verb, const cli_option *rows, int argc, char **argv)
{
    int code = 0;
    /* state of the file that a value names; a directory is passed over, because "." is also a
     * decimal mark */
    struct stat st;
    for (const cli_option *out = rows; out->name && out->kind != CLI_OPERAND; out++) {
        const char *to = out->kind == CLI_OUT ? *out->value : NULL;
        for (const cli_option *o = rows; to && code == 0 && o->name; o++)
            if (o->kind == CLI_TEXT && *o->value && stat(*o->value, &st) == 0 &&
                S_ISREG(st.st_mode))
                code = cli_spare(verb, out->name, to, *o->value);
        for (int i = optind; to && code == 0 && i < argc; i++)
            code = cli_spare(verb, out->name, to, argv[i]);
    }
    return code;
}

static int read_operand(const char *verb, const cli_option *o, int argc, char **argv)
{
    char problem[64];
    if (optind == argc)
        return o->example ? cli_usage_example(verb, o->text, o->example)
                          : cli_usage(verb, o->text, "");
    snprintf(problem, sizeof problem, "one %s at a time; do not know what to do with ", o->name);
    if (optind + 1 < argc)
        return cli_usage(verb, problem, argv[optind + 1]);
    return take(verb, o, argv[optind]);
}

int cli_read_options(const char *verb, const cli_option *rows, int argc, char **argv)
{
    struct option options[CLI_OPTIONS_MAX + 1] = {{0}};
    char letters[2 * CLI_OPTIONS_MAX + 2] = ":";
    int c, problem = 0, count = 0, row_of[FIRST_LONG] = {0};
    for (; rows[count].name && rows[count].kind != CLI_OPERAND; count++) {
        const cli_option *o = &rows[count];
        const bool alone = o->kind <= CLI_HELP; /* the option has no value */
        const char letter[3] = {o->letter, o->letter && !alone ? ':' : '\0', '\0'};
        strcat(letters, letter);
        row_of[(unsigned char)o->letter] = count;
        options[count] = (struct option){.name = o->name,
                                         .has_arg = alone ? no_argument : required_argument,
                                         .val = FIRST_LONG + count};
    }
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        if (c == ':')
            return cli_usage(verb, "a value is missing after ", argv[optind - 1]);
        if (c == '?')
            return fail_unknown(verb, rows, argv);
        const cli_option *o = &rows[c < FIRST_LONG ? row_of[c] : c - FIRST_LONG];
        problem = take(verb, o, optarg);
        if (problem || o->kind == CLI_LAST)
            return problem;
    }
    problem = rows[count].name ? read_operand(verb, &rows[count], argc, argv) : 0;
    return problem ? problem : spare_inputs(verb, rows, argc, argv);
}

/* ---- options of training --------------------------------------------------------------------- */

static int check_hosts(const cli_arguments *a)
{
    const bool others = a->listen || a->join, secret = a->secret || a->secret_fd >= 0;
    if (others != (a->members > 0) || others != secret)
        return cli_usage(NULL,
                         "--listen [ADDRESS]:PORT on the first host, --join HOST:PORT on the "
                         "others, --members N and --secret FILE (head -c 32 /dev/urandom > FILE) "
                         "need each other",
                         "");
    if (a->secret && a->secret_fd >= 0)
        return cli_usage(NULL, "--secret FILE or --secret-fd N, not both", "");
    if (!others && a->wait_s > 0)
        return cli_usage(NULL, "--wait needs --listen or --join", "");
    return a->advertise && !a->join ? cli_usage(NULL, "--advertise needs --join HOST:PORT", "") : 0;
}

/* Checks that the config is not the user's data. */
static int check_config_path(const char *path)
{
    static const char *const data[] = {".csv", ".tsv", ".npy", ".npz", ".png", ".jpg", ".jpeg"};
    char text[2 * LS_PATH_BYTES + 120];
    bool is_data = ls_is_directory(path);
    for (size_t i = 0; i < sizeof data / sizeof *data && !is_data; i++)
        is_data = ls_path_ends_with(path, data[i]);
    if (!is_data)
        return 0;
    snprintf(text, sizeof text,
             "%.4000s: expected a config, found data; write one and train: `%s init %.4000s --to "
             "my.json --train`",
             path, cli_program(), path);
    return cli_fail(LS_ECONFIG, text);
}

int cli_parse(cli_arguments *out, int argc, char **argv)
{
    const cli_option config = {CLI_OPERAND, "config", .value = &out->config,
                               .text = "which config?", .example = "examples/fashion_mnist.json"};
    const cli_option options[] = {
        {CLI_LIST, "set", .list = &out->set, .most = CLI_SET_MAX},
        {CLI_KEY, "devices", .list = &out->set, .key = "devices", .buffer = out->devices,
         .size = sizeof out->devices},
        {CLI_OUT, "metrics", .value = &out->metrics},
        {CLI_TEXT, "resume", .value = &out->resume},
        {CLI_WHOLE, "at", .whole = &out->resume_at, .least = 1, .greatest = 2e9},
        {CLI_LIST, "inject", .list = &out->inject, .most = 16},
        {CLI_OUT, "trace", .value = &out->trace},
        {CLI_WHOLE, "folds", .whole = &out->folds, .least = 2, .greatest = CLI_FOLDS_MOST},
        {CLI_OUT, "wrong", .value = &out->wrong},
        {CLI_FLAG, "trace-ops", .flag = &out->trace_ops},
        {CLI_TEXT, "serve", .value = &out->serve},
        {CLI_FLAG, "serve-after", .flag = &out->serve_after},
        {CLI_LIST, "serve-host", .list = &out->serve_host, .most = 16},
        {CLI_TEXT, "listen", .value = &out->listen},
        {CLI_TEXT, "join", .value = &out->join},
        {CLI_TEXT, "advertise", .value = &out->advertise},
        {CLI_NUMBER, "wait", .number = &out->wait_s, .least = 0.1, .greatest = 1e6},
        {CLI_WHOLE, "members", .whole = &out->members, .least = 1, .greatest = LS_MEMBERS_MAX},
        {CLI_TEXT, "secret", .value = &out->secret},
        {CLI_WHOLE, "secret-fd", .whole = &out->secret_fd, .least = 0, .greatest = 1e6},
        {CLI_FLAG, "print-config", .flag = &out->print_config},
        {CLI_FLAG, "quiet", .flag = &out->quiet},
        {CLI_LAST, "version", .flag = &out->version},
        {CLI_LAST, "help", 'h', .flag = &out->help},
        {0},
    };
    memset(out, 0, sizeof *out);
    out->secret_fd = -1;
    int problem = cli_read_options(NULL, options, argc, argv);
    out->config_help = out->help && optind < argc && strcmp(argv[optind], "config") == 0;
    if (problem || out->help || out->version)
        return problem;
    if (out->resume_at && !out->resume)
        return cli_usage(NULL, "--at needs --resume RUN", "");
    if ((out->folds > 0) != (out->wrong != NULL))
        return cli_usage(NULL, "--folds K and --wrong FILE.csv need each other", "");
    if (out->wrong && !ls_path_ends_with(out->wrong, ".csv"))
        return cli_usage(NULL, "--wrong: expected FILE.csv, found ", out->wrong);
    if (out->folds && (out->resume || out->serve || out->metrics || out->trace || out->listen ||
                       out->join || out->inject.count || out->print_config))
        return cli_usage(NULL, "--folds: expected only --set, --devices, --wrong and --quiet", "");
    if (out->trace_ops && !out->trace)
        return cli_usage(NULL, "--trace-ops needs --trace FILE", "");
    if (out->serve_after && !out->serve)
        return cli_usage(NULL, "--serve-after needs --serve PORT", "");
    if (out->serve_host.count && !out->serve)
        return cli_usage(NULL, "--serve-host needs --serve PORT", "");
    problem = check_hosts(out);
    if (problem)
        return problem;
    if (optind == argc && out->resume && !out->print_config)
        return 0;
    problem = read_operand(NULL, &config, argc, argv);
    return problem ? problem : check_config_path(out->config);
}
