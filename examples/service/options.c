#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 64 };

static const char help[] =
    "usage: lockstep-service [OPTION...] CONFIG\n"
    "\n"
    "Learns from examples that are sent to it, labelled images or rows of a table, and says what others\n"
    "show: see README.md.\n"
    "CONFIG is Lockstep's; its data.name is \"examples\".\n"
    "\n"
    "  --state DIR          journal and saves (state)\n"
    "  --address A          where to listen (127.0.0.1)\n"
    "  --port N             0: any that is free; the log tells (8080)\n"
    "  --host NAME          it may be asked by, besides localhost and its address; may be repeated\n"
    "  --shape CxHxW        of an image, one byte a value (1x28x28)\n"
    "  --classes N          labels are below this (10)\n"
    "  --floats N           examples are rows of so many floats, not images\n"
    "  --targets N          and have so many floats as targets, not a label\n"
    "  --set KEY=VALUE      changes a value of CONFIG; may be repeated\n"
    "  --http-cpu LIST      CPUs of the server and of predictions, such as 0 or 0,2-3\n"
    "  --train-cpu LIST     CPUs of the training; its devices share them\n"
    "  --passes N           how often training sees each example; 0: training is off (20)\n"
    "  --queue N            examples that may wait for training; more are refused (65536)\n"
    "  --most N             examples that the journal may hold (10000000)\n"
    "  --body BYTES         largest body of a request (1048576)\n"
    "  --connections N      at the same time (64)\n"
    "  --request-s N        for a request's headers, for its body, for taking its reply: each (30)\n"
    "  --predictions N      groups of images that are computed at the same time (1)\n"
    "  --publish-ms N       how far predictions may be behind training (250)\n"
    "  --save-s N           seconds between saves (30)\n"
    "  --help\n";

/* Options that are numbers, and where they go. */
static const struct number {
    const char *name;
    size_t place;
    long least, most;
} numbers[] = {
    {"port", offsetof(options, port), 0, 65535},
    {"classes", offsetof(options, classes), 2, 256},
    {"floats", offsetof(options, floats), 1, 4096},
    {"targets", offsetof(options, targets), 1, 4096},
    {"passes", offsetof(options, passes), 0, 1000000000},
    {"queue", offsetof(options, queue), 1, 1000000000},
    {"most", offsetof(options, most), 1, 1000000000000},
    {"body", offsetof(options, body), 1024, 1 << 30},
    {"connections", offsetof(options, connections), 1, 10000},
    {"request-s", offsetof(options, request_s), 1, 3600},
    {"predictions", offsetof(options, predictions), 1, 1024},
    {"publish-ms", offsetof(options, publish_ms), 1, 3600000},
    {"save-s", offsetof(options, save_s), 1, 1000000},
};

static int usage(const char *message, const char *what)
{
    fprintf(stderr, "lockstep-service: %s%s; --help lists the options\n", message, what);
    return EXIT_USAGE;
}

static int set_number(options *o, const char *name, const char *text)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, name) != 0)
            continue;
        char *end;
        errno = 0;
        long value = strtol(text, &end, 10);
        if (errno || end == text || *end || value < numbers[i].least || value > numbers[i].most) {
            fprintf(stderr, "lockstep-service: --%s %s: expected %ld to %ld\n", name, text,
                    numbers[i].least, numbers[i].most);
            return EXIT_USAGE;
        }
        *(long *)(void *)((char *)o + numbers[i].place) = value;
        return OPTIONS_RUN;
    }
    return usage("no option --", name);
}

static int set_shape(options *o, const char *text)
{
    char rest;
    if (sscanf(text, "%dx%dx%d%c", &o->channels, &o->height, &o->width, &rest) != 3 ||
        o->channels < 1 || o->height < 1 || o->width < 1 || o->channels > 64 || o->height > 4096 ||
        o->width > 4096)
        return usage("--shape: expected channels x height x width, such as 1x28x28, not ", text);
    return OPTIONS_RUN;
}

static int add(const char **list, int *count, int most, const char *too_many, const char *value)
{
    if (*count == most)
        return usage(too_many, "");
    list[(*count)++] = value;
    return OPTIONS_RUN;
}

static int set_one(options *o, const char *name, const char *value)
{
    const struct {
        const char *name, **place;
    } texts[] = {{"state", &o->state},
                 {"address", &o->address},
                 {"http-cpu", &o->http_cpu},
                 {"train-cpu", &o->train_cpu}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].name, name) != 0)
            continue;
        *texts[i].place = value;
        return OPTIONS_RUN;
    }
    if (strcmp(name, "shape") == 0)
        return set_shape(o, value);
    if (strcmp(name, "set") == 0)
        return add(o->set, &o->set_count, OPTIONS_MOST_SET, "too many --set", value);
    if (strcmp(name, "host") == 0)
        return add(o->hosts, &o->host_count, OPTIONS_MOST_HOSTS, "too many --host", value);
    return set_number(o, name, value);
}

static const struct option all[] = {
    {"state", required_argument, NULL, 1},      {"address", required_argument, NULL, 1},
    {"port", required_argument, NULL, 1},       {"host", required_argument, NULL, 1},
    {"shape", required_argument, NULL, 1},      {"classes", required_argument, NULL, 1},
    {"floats", required_argument, NULL, 1},     {"targets", required_argument, NULL, 1},
    {"set", required_argument, NULL, 1},        {"http-cpu", required_argument, NULL, 1},
    {"train-cpu", required_argument, NULL, 1},  {"passes", required_argument, NULL, 1},
    {"queue", required_argument, NULL, 1},      {"most", required_argument, NULL, 1},
    {"body", required_argument, NULL, 1},       {"connections", required_argument, NULL, 1},
    {"request-s", required_argument, NULL, 1},  {"predictions", required_argument, NULL, 1},
    {"publish-ms", required_argument, NULL, 1}, {"save-s", required_argument, NULL, 1},
    {"help", no_argument, NULL, 'h'},           {0},
};

/* What one request may bring must fit into the queue, or it could never be taken. */
static int check(options *o)
{
    if (o->floats && o->channels)
        return usage("a row is --floats or an image of a --shape: take one", "");
    if (o->targets && o->classes)
        return usage("an example has --targets or one of --classes: take one", "");
    if (!o->channels) {
        o->channels = o->floats ? (int)o->floats : 1;
        o->height = o->width = o->floats ? 1 : 28;
    }
    const uint32_t values = (uint32_t)o->channels * (uint32_t)o->height * (uint32_t)o->width;
    o->form = (example_form){.row_bytes = o->floats ? values * (uint32_t)sizeof(float) : values,
                             .floats = o->floats > 0,
                             .targets = (int)o->targets,
                             .classes = o->targets   ? 0
                                        : o->classes ? (int)o->classes
                                                     : 10};
    const long bytes = (long)example_bytes(&o->form), examples = o->body / bytes;
    if (examples < 1)
        return usage("--body is smaller than an example", "");
    if (examples > o->queue)
        o->body = o->queue * bytes;
    return OPTIONS_RUN;
}

int options_read(options *out, int argc, char **argv)
{
    *out = (options){.state = "state",
                     .address = "127.0.0.1",
                     .port = 8080,
                     .passes = 20,
                     .queue = 65536,
                     .most = 10000000,
                     .body = 1 << 20,
                     .connections = 64,
                     .request_s = 30,
                     .predictions = 1,
                     .publish_ms = 250,
                     .save_s = 30,
                     .set = {"data.name=examples", "run_dir=null"},
                     .set_count = 2};
    int status = OPTIONS_RUN, index, c;
    while (status == OPTIONS_RUN && (c = getopt_long(argc, argv, "h", all, &index)) != -1) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        status = c == 1 ? set_one(out, all[index].name, optarg) : EXIT_USAGE;
    }
    if (status == OPTIONS_RUN && argc - optind != 1)
        status = usage("expected one CONFIG", "");
    if (status != OPTIONS_RUN)
        return status;
    out->config = argv[optind];
    return check(out);
}
