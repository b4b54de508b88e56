/* An HTTP service around Lockstep: it learns from examples that are sent to it, labelled images or rows of
 * a table, while it answers what others show. README.md says how to use it.
 *
 * Threads: this one starts and stops the others and waits for a signal in between; one owns the trainer
 * (learner.c); the server has one for each connection (http.c). */
#include "service.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 64, GO_ON = -1 };

static const char help[] =
    "usage: lockstep-service [OPTION...] CONFIG\n"
    "\n"
    "Learns from examples that are sent to it, labelled images or rows of a table, and predicts\n"
    "meanwhile: see README.md. CONFIG is Lockstep's; its data.name is \"examples\".\n"
    "\n"
    "  --state DIR      where the model is saved (state)\n"
    "  --address A      where to listen (127.0.0.1)\n"
    "  --port N         0: any that is free; the log tells (8080)\n"
    "  --host NAME      it may be asked by, besides localhost and its address; may be repeated\n"
    "  --shape CxHxW    of an image, one byte a value (1x28x28)\n"
    "  --classes N      labels are below this (10)\n"
    "  --floats N       rows are so many floats, not images\n"
    "  --targets N      examples have so many floats as targets, not a label\n"
    "  --set KEY=VALUE  changes a value of CONFIG; may be repeated\n"
    "  --passes N       how often training sees each example; 0: training is off (20)\n"
    "  --queue N        examples that may wait for training; more are refused (16384)\n"
    "  --replay N       older examples that are kept in memory for further passes (65536)\n"
    "  --body BYTES     largest body of a request (1048576)\n"
    "  --connections N  that are answered at the same time (64)\n"
    "  --request-s N    for a request's headers, for its body, for taking its reply: each (30)\n"
    "  --save-s N       seconds between saves (30)\n"
    "  --help\n";

/* ---- options -------------------------------------------------------------------------------- */

static int usage(const char *message, const char *what)
{
    fprintf(stderr, "lockstep-service: %s%s; --help lists the options\n", message, what);
    return EXIT_USAGE;
}

static int read_number(long *to, const char *name, const char *text, long least, long most)
{
    char *end;
    errno = 0;
    *to = strtol(text, &end, 10);
    if (!errno && end != text && !*end && *to >= least && *to <= most)
        return GO_ON;
    fprintf(stderr, "lockstep-service: --%s %s: expected %ld to %ld\n", name, text, least, most);
    return EXIT_USAGE;
}

static int read_shape(row_form *f, const char *text)
{
    char rest;
    if (sscanf(text, "%dx%dx%d%c", &f->channels, &f->height, &f->width, &rest) == 3 &&
        f->channels >= 1 && f->height >= 1 && f->width >= 1 && f->channels <= 64 &&
        f->height <= 4096 && f->width <= 4096)
        return GO_ON;
    return usage("--shape: expected channels x height x width, such as 1x28x28, not ", text);
}

static int add(const char **list, int *count, int most, const char *name, const char *value)
{
    if (*count == most)
        return usage("too many --", name);
    list[(*count)++] = value;
    return GO_ON;
}

/* Fills in what was not given, and the sizes that follow. What one request may bring has to fit into the
 * queue, or it could never be taken. */
static int complete(options *o)
{
    const long classes = o->classes, floats = o->floats, targets = o->targets;
    row_form *f = &o->form;
    if (floats && f->channels)
        return usage("a row is --floats or an image of a --shape: take one", "");
    if (targets && classes)
        return usage("an example has --targets or one of --classes: take one", "");
    if (!f->channels) {
        f->channels = floats ? (int)floats : 1;
        f->height = f->width = floats ? 1 : 28;
    }
    f->floats = floats > 0;
    f->targets = (int)targets;
    f->classes = targets ? 0 : classes ? (int)classes : 10;
    f->row_bytes = (size_t)f->channels * (size_t)f->height * (size_t)f->width;
    f->row_bytes *= f->floats ? sizeof(float) : 1;
    f->target_bytes = targets ? (size_t)targets * sizeof(float) : 1;
    f->example_bytes = f->target_bytes + f->row_bytes;
    const long examples = o->body / (long)f->example_bytes;
    if (examples < 1)
        return usage("--body is smaller than an example", "");
    if (examples > o->queue)
        o->body = o->queue * (long)f->example_bytes;
    return GO_ON;
}

/* The options with a value: a number within bounds, a text, or, of none, what take() knows. */
static const struct row {
    const char *name;
    size_t number, text; /* places in `options`; 0: it is not one */
    long least, most;
} rows[] = {
    {"port", offsetof(options, port), 0, 0, 65535},
    {"classes", offsetof(options, classes), 0, 2, 256},
    {"floats", offsetof(options, floats), 0, 1, 4096},
    {"targets", offsetof(options, targets), 0, 1, 4096},
    {"passes", offsetof(options, passes), 0, 0, 1000000000},
    {"queue", offsetof(options, queue), 0, 1, 1000000000},
    {"replay", offsetof(options, replay), 0, 1, 1000000000},
    {"body", offsetof(options, body), 0, 1024, 1 << 30},
    {"connections", offsetof(options, connections), 0, 1, 10000},
    {"request-s", offsetof(options, request_s), 0, 1, 3600},
    {"save-s", offsetof(options, save_s), 0, 1, 1000000},
    {"state", 0, offsetof(options, state), 0, 0},
    {"address", 0, offsetof(options, address), 0, 0},
    {"shape", 0, 0, 0, 0},
    {"set", 0, 0, 0, 0},
    {"host", 0, 0, 0, 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int take(options *o, const struct row *r, const char *value)
{
    if (r->number)
        return read_number((long *)(void *)((char *)o + r->number), r->name, value, r->least,
                           r->most);
    if (strcmp(r->name, "shape") == 0)
        return read_shape(&o->form, value);
    if (strcmp(r->name, "set") == 0)
        return add(o->set, &o->set_count, SETS_MOST, r->name, value);
    if (strcmp(r->name, "host") == 0)
        return add(o->host, &o->host_count, HOSTS_MOST, r->name, value);
    *(const char **)(void *)((char *)o + r->text) = value;
    return GO_ON;
}

/* GO_ON, or the status to exit with: 0 after --help, 64 after a mistake, with a message. */
static int read_options(options *o, int argc, char **argv)
{
    *o = (options){.state = "state",
                   .address = "127.0.0.1",
                   .port = 8080,
                   .passes = 20,
                   .queue = 16384,
                   .replay = 65536,
                   .body = 1 << 20,
                   .connections = 64,
                   .request_s = 30,
                   .save_s = 30,
                   .set = {"data.name=examples", "run_dir=null"},
                   .set_count = 2};
    struct option all[ROWS + 2] = {{0}};
    for (int i = 0; i < ROWS; i++)
        all[i] = (struct option){rows[i].name, required_argument, NULL, 1};
    all[ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    int status = GO_ON, i, c;
    while (status == GO_ON && (c = getopt_long(argc, argv, "h", all, &i)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        status = c == 1 ? take(o, &rows[i], optarg) : EXIT_USAGE; /* getopt has said why */
    }
    if (status == GO_ON && argc - optind != 1)
        status = usage("expected one CONFIG", "");
    if (status != GO_ON)
        return status;
    o->config = argv[optind];
    return complete(o);
}

/* Targets of bce lie in 0 … 1: one that does not would end training, so whoever sends it is told. */
static int find_loss(options *o, ls_error *err)
{
    char *resolved;
    const ls_trainer_options wanted = {
        .size = sizeof wanted, .config_path = o->config, .set = o->set, .set_count = o->set_count};
    int status = ls_config_resolve(&resolved, &wanted, err);
    if (status)
        return status;
    cJSON *config = cJSON_Parse(resolved);
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(config, "loss");
    o->form.zero_to_one = cJSON_IsString(loss) && strcmp(loss->valuestring, "bce") == 0;
    cJSON_Delete(config);
    ls_text_free(resolved);
    return LS_OK;
}

/* ---- start and stop ------------------------------------------------------------------------- */

static int exit_code(int status)
{
    switch (status) {
    case LS_OK: return 0;
    case LS_EDATA: return 65;
    case LS_ENOENT: return 66;
    case LS_EIO: return 74;
    case LS_ECONFIG: return 78;
    default: return 71;
    }
}

/* Before any thread is made: all of them leave these signals to sigwait. A file that may not grow is an
 * error like any other. */
static void block_signals(sigset_t *awaited)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(awaited);
    sigaddset(awaited, SIGTERM);
    sigaddset(awaited, SIGINT);
    pthread_sigmask(SIG_BLOCK, awaited, NULL);
}

/* Until a signal comes; a second one ends the process at once. */
static int serve(const options *o, learner *l, numbers *n, const sigset_t *signals, ls_error *err)
{
    server *s;
    int port, number;
    const int status = server_start(&s, o, l, n, &port, err);
    if (status)
        return status;
    say(LS_LOG_INFO, "listening on http://%s:%d", o->address, port);
    sigwait(signals, &number);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    say(LS_LOG_INFO, "signal %d: stopping", number);
    server_stop(s);
    return LS_OK;
}

static int run(options *o, numbers *n, const sigset_t *signals, ls_error *err)
{
    learner *l;
    ls_error ending;
    int status = find_loss(o, err);
    if (status == LS_OK) {
        numbers_init(n, server_paths, o->form.targets == 0);
        status = learner_start(&l, o, n, err);
    }
    if (status)
        return status;
    status = serve(o, l, n, signals, err);
    const int ended = learner_stop(l, &ending);
    if (status == LS_OK && ended)
        *err = ending;
    return status ? status : ended;
}

int main(int argc, char **argv)
{
    options o;
    static numbers n;
    ls_error err;
    sigset_t signals;
    int status = read_options(&o, argc, argv);
    if (status != GO_ON)
        return status;
    block_signals(&signals);
    status = run(&o, &n, &signals, &err);
    if (status)
        say(LS_LOG_ERROR, "%s", err.text);
    else
        say(LS_LOG_INFO, "stopped, and saved");
    return exit_code(status);
}
