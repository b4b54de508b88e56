/* SPDX-License-Identifier: MIT */
/* An HTTP service that uses Lockstep: it learns from labelled images that clients send, and
 * predicts the classes of other images at the same time. README.md says how to use it.
 *
 * Threads: the main thread starts the other threads, waits for a signal and stops them. One thread
 * owns the trainer (learner.c). The server has a thread for each connection (http.c). */
#include "service.h"

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
    "Learns from labelled images that are sent to it, and predicts meanwhile: see README.md.\n"
    "CONFIG is Lockstep's; its data.name is \"examples\".\n"
    "\n"
    "  --model FILE     a trained model of a table, whose rows POST /rows predicts\n"
    "  --state DIR      where the model is saved (state)\n"
    "  --address A      where to listen (127.0.0.1)\n"
    "  --port N         0: any that is free; the log tells (8080)\n"
    "  --host NAME      it may be asked by, besides localhost and its address; may be repeated\n"
    "  --shape CxHxW    of an image (1x28x28)\n"
    "  --type T         of its values: u8, bytes, or f32, floats, with a weight per example (u8)\n"
    "  --classes N      labels are below this (10)\n"
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

static int read_shape(options *o, const char *text)
{
    char rest;
    if (sscanf(text, "%dx%dx%d%c", &o->channels, &o->height, &o->width, &rest) == 3 &&
        o->channels >= 1 && o->height >= 1 && o->width >= 1 && o->channels <= 64 &&
        o->height <= 4096 && o->width <= 4096)
        return GO_ON;
    return usage("--shape: expected channels x height x width, such as 1x28x28, not ", text);
}

static int read_type(options *o, const char *text)
{
    const int floats = strcmp(text, "f32") == 0;
    o->row_type = floats ? LS_ROW_F32 : LS_ROW_U8;
    return floats || strcmp(text, "u8") == 0 ? GO_ON
                                             : usage("--type: expected u8 or f32, not ", text);
}

static int add(const char **list, int *count, int most, const char *name, const char *value)
{
    if (*count == most)
        return usage("too many --", name);
    list[(*count)++] = value;
    return GO_ON;
}

/* Computes values from the options. Reduces --body so that the largest request fits into the empty
 * queue. */
static int complete(options *o)
{
    const int floats = o->row_type == LS_ROW_F32;
    o->image_bytes = (size_t)o->channels * (size_t)o->height * (size_t)o->width;
    o->image_bytes *= floats ? sizeof(float) : 1;
    o->head_bytes = 1 + (floats ? sizeof(float) : 0);
    const long example = (long)(o->head_bytes + o->image_bytes);
    if (o->body < example)
        return usage("--body is smaller than an example", "");
    if (o->body / example > o->queue)
        o->body = o->queue * example;
    return GO_ON;
}

/* The options that have a value: a number from `least` to `most`, a text, or a value that take()
 * handles. */
static const struct row {
    const char *name;
    size_t number, text; /* offsets in `options`; 0: the value is not a number, or not a text */
    long least, most;
} rows[] = {
    {"port", offsetof(options, port), 0, 0, 65535},
    {"classes", offsetof(options, classes), 0, 2, 256},
    {"passes", offsetof(options, passes), 0, 0, 1000000000},
    {"queue", offsetof(options, queue), 0, 1, 1000000000},
    {"replay", offsetof(options, replay), 0, 1, 1000000000},
    {"body", offsetof(options, body), 0, 1024, 1 << 30},
    {"connections", offsetof(options, connections), 0, 1, 10000},
    {"request-s", offsetof(options, request_s), 0, 1, 3600},
    {"save-s", offsetof(options, save_s), 0, 1, 1000000},
    {"model", 0, offsetof(options, model), 0, 0},
    {"state", 0, offsetof(options, state), 0, 0},
    {"address", 0, offsetof(options, address), 0, 0},
    {"shape", 0, 0, 0, 0},
    {"type", 0, 0, 0, 0},
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
        return read_shape(o, value);
    if (strcmp(r->name, "type") == 0)
        return read_type(o, value);
    if (strcmp(r->name, "set") == 0)
        return add(o->set, &o->set_count, SETS_MOST, r->name, value);
    if (strcmp(r->name, "host") == 0)
        return add(o->host, &o->host_count, HOSTS_MOST, r->name, value);
    *(const char **)(void *)((char *)o + r->text) = value;
    return GO_ON;
}

/* Reads the options. Returns GO_ON, or the exit status: 0 after --help; 64 after a message about
 * wrong arguments. */
static int read_options(options *o, int argc, char **argv)
{
    *o = (options){.state = "state",
                   .address = "127.0.0.1",
                   .channels = 1,
                   .height = 28,
                   .width = 28,
                   .row_type = LS_ROW_U8,
                   .classes = 10,
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
        status = c == 1 ? take(o, &rows[i], optarg) : EXIT_USAGE; /* getopt has printed a message */
    }
    if (status == GO_ON && argc - optind != 1)
        status = usage("expected one CONFIG", "");
    if (status != GO_ON)
        return status;
    o->config = argv[optind];
    return complete(o);
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Blocks SIGTERM and SIGINT. Called before any thread is created, so that all threads inherit the
 * mask and only sigwait receives the two signals. Ignores SIGXFSZ, so that a write beyond the file
 * size limit fails with an error. */
static void block_signals(sigset_t *awaited)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(awaited);
    sigaddset(awaited, SIGTERM);
    sigaddset(awaited, SIGINT);
    pthread_sigmask(SIG_BLOCK, awaited, NULL);
}

/* Serves requests until a signal arrives. A second signal ends the process at once. */
static int serve(const options *o, learner *l, numbers *n, const sigset_t *signals, ls_error *err)
{
    server *s;
    int port, number;
    const int status = server_start(&s, o, l, n, &port, err);
    if (status)
        return status;
    say("listening on http://%s:%d", o->address, port);
    sigwait(signals, &number);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    say("signal %d: stopping", number);
    server_stop(s);
    return LS_OK;
}

int main(int argc, char **argv)
{
    options o;
    static numbers n;
    ls_error err, ending;
    sigset_t signals;
    learner *l;
    int status = read_options(&o, argc, argv);
    if (status != GO_ON)
        return status;
    block_signals(&signals);
    numbers_init(&n);
    status = learner_start(&l, &o, &n, &err);
    if (status == LS_OK) {
        status = serve(&o, l, &n, &signals, &err);
        const int ended = learner_stop(l, &ending);
        if (status == LS_OK && ended)
            err = ending;
        status = status ? status : ended;
    }
    say("%s", status ? err.text : "stopped, and saved");
    return status != LS_OK;
}
