/* SPDX-License-Identifier: MIT */
/* trainer verify RUN|RECEIPT: verifies a run (ls_verify). */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "cli/cli.h"
#include "model/trained.h"
#include "store/durable.h"
#include "json/writer.h"

#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char help[] =
    "usage: {} verify RUN|RECEIPT [options]\n"
    "\n"
    "Checks that a run was trained as its receipt.json says. RUN is its directory, or latest.\n"
    "Reads the data again, replays the training or parts of it on the devices of this machine,\n"
    "and compares receipt, weights and records. A RECEIPT alone is replayed from the first step.\n"
    "The exit status is 0 if nothing differs, and 1 if something does. Without --all, 0 means that\n"
    "the run is not refuted: segments that were not drawn may be forged. A file that no --set names\n"
    "is the one that the prover's config.json names; the result lists such files.\n"
    "\n"
    "  --all             replays the whole training; only this proves that nothing differs. A run\n"
    "                    without a receipt can be verified only in this way\n"
    "  --segments N      besides the first and the last segment, replays N more (3), which are\n"
    "                    drawn with a random number of this machine\n"
    "  --seed S          draws the segments that another verifier has drawn with this number\n"
    "  --weights FILE    the weights (weights.safetensors beside RUN's or RECEIPT's other files)\n"
    "  --devices LIST    as for training (cpu, unless the run was made on a GPU); the result is\n"
    "                    the same on any number of devices\n"
    "  --set KEY=VALUE   sets a key of the config that is not part of the recipe, such as\n"
    "                    data.path, or the file init.weights\n"
    "  --to FILE         writes the result as JSON to FILE (verified.json beside the receipt)\n"
    "  --quiet           no progress; the result, warnings and errors only\n"
    "  --help            this text\n";

enum { SEGMENTS = 3, EXIT_REFUTED = 1 };
#define SEED_MOST 9007199254740992.0 /* 2⁵³ */

typedef struct arguments {
    const char *run, *to, *weights;
    bool all, quiet;
    int segments;
    double seed;
    cli_list set;
    char devices[512];
} arguments;

static int parse(arguments *a, int argc, char **argv)
{
    const cli_option options[] = {
        {CLI_FLAG, "all", .flag = &a->all},
        {CLI_WHOLE, "segments", .whole = &a->segments, .least = 0, .greatest = 1000},
        {CLI_NUMBER, "seed", .number = &a->seed, .least = 0, .greatest = SEED_MOST},
        {CLI_LIST, "set", .list = &a->set, .most = CLI_SET_MAX},
        {CLI_KEY, "devices", .list = &a->set, .key = "devices", .buffer = a->devices,
         .size = sizeof a->devices},
        {CLI_TEXT, "weights", .value = &a->weights},
        {CLI_OUT, "to", .value = &a->to},
        {CLI_FLAG, "quiet", .flag = &a->quiet},
        {CLI_HELP, "help", 'h', .text = help},
        {CLI_OPERAND, "run", .value = &a->run, .text = "which run?", .example = "runs/NAME"},
        {0}};
    *a = (arguments){.segments = SEGMENTS, .seed = -1};
    return cli_read_options("verify", options, argc, argv);
}

/* Draws the seed of the segments, unless the caller has given one. */
static int draw(arguments *a)
{
    uint64_t random;
    if (a->seed >= 0)
        return 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return cli_fail(LS_ESYSTEM, "verify: the system gives no random numbers; set --seed");
    a->seed = (double)(random >> 11);
    return 0;
}

typedef struct display {
    bool quiet, tty, drawn;
    uint64_t shown; /* time of the last line, in ns of ls_now_ns */
} display;

enum { SECONDS_APART = 10 /* between two lines, if the output is no terminal */ };

/* Prints how far the replay is, at most ten times a second on a terminal. */
static void show(void *user, const ls_verify_progress *p)
{
    display *d = user;
    const uint64_t now = ls_now_ns();
    const double apart = d->tty ? 0.1 : SECONDS_APART;
    char left[40] = "";
    if (d->quiet || (double)(now - d->shown) < apart * 1e9)
        return;
    d->shown = now;
    if (p->remaining_s >= 60)
        snprintf(left, sizeof left, ", about %.0f min left", p->remaining_s / 60);
    else if (p->remaining_s >= 0)
        snprintf(left, sizeof left, ", about %.0f s left", p->remaining_s);
    fprintf(stderr, "%sreplayed %llu of %llu steps%s%s", d->tty ? "\r\033[K" : "",
            (unsigned long long)p->done, (unsigned long long)p->steps, left, d->tty ? "" : "\n");
    d->drawn = d->tty;
}

/* Returns the path of a file in the directory of the run or of the receipt. */
static const char *beside(char path[LS_PATH_BYTES], const arguments *a, const char *name)
{
    const char *slash = strrchr(a->run, '/');
    char folder[LS_PATH_BYTES] = ".";
    if (ls_is_directory(a->run))
        return ls_path_join(path, a->run, name);
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - a->run), a->run);
    return ls_path_join(path, folder, name);
}

/* Removes a former result beside the receipt. It may be the prover's, and must not stay if this
 * verification comes to no result. */
static void remove_former(const arguments *a)
{
    char path[LS_PATH_BYTES];
    ls_error err;
    if (!a->to)
        (void)ls_remove_file(beside(path, a, "verified.json"),
                             &err); /* if it stays, writing fails too */
}

/* Writes the result beside the receipt. A symbolic link there is replaced, not followed: it comes
 * from the prover, who must not choose which of the verifier's files is overwritten. */
static int write_beside(const arguments *a, ls_json_writer *w)
{
    char path[LS_PATH_BYTES];
    size_t length;
    ls_error err, why;
    ls_buffer_put(&w->out, "\n");
    const char *text = ls_json_writer_text(w, &length, &why);
    int status = text ? ls_replace_file(beside(path, a, "verified.json"), text, length, NULL, &why)
                      : LS_ENOMEM;
    ls_json_writer_fini(w);
    if (status == LS_OK)
        return 0;
    if (status != LS_EIO)
        return cli_fail(status, why.text);
    ls_fail(&err, status, "%.400s; --to FILE writes the result elsewhere", why.text);
    return cli_fail(status, err.text);
}

/* Writes the files that the prover has named, an array of objects. */
static void put_prover_files(ls_json_writer *w, const char *lines)
{
    ls_json_open_array(w, "prover_files");
    while (*lines) {
        const size_t line = strcspn(lines, "\n"), key = strcspn(lines, "=");
        char text[LS_PATH_BYTES];
        snprintf(text, sizeof text, "%.*s", (int)line, lines);
        text[key] = '\0';
        ls_json_open_object(w, NULL);
        ls_json_put_string(w, "key", text);
        ls_json_put_string(w, "path", text + key + 1);
        ls_json_close(w);
        lines += line + (lines[line] == '\n');
    }
    ls_json_close(w);
}

static int write_result(const arguments *a, const ls_verdict *v)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "lockstep", LS_VERSION);
    ls_json_put_bool(&w, "holds", v->holds);
    ls_json_put_bool(&w, "all", v->whole);
    ls_json_put_int(&w, "segments", v->segments);
    ls_json_put_int(&w, "replayed", v->replayed);
    if (!v->whole)
        ls_json_put_uint(&w, "seed", (uint64_t)a->seed);
    if (v->segment >= 0) {
        ls_json_put_int(&w, "segment", v->segment + 1);
        ls_json_put_uint(&w, "from_step", v->from + 1);
        ls_json_put_uint(&w, "to_step", v->to);
    }
    ls_json_put_string(&w, "weights_sha256", v->weights_sha256);
    if (v->weights_file_sha256[0])
        ls_json_put_string(&w, "weights_file_sha256", v->weights_file_sha256); /* for the page */
    if (v->step > 0)
        ls_json_put_uint(&w, "step", v->step);
    if (v->place[0])
        ls_json_put_string(&w, "place", v->place);
    put_prover_files(&w, v->prover_files);
    ls_json_put_string(&w, "result", v->text);
    ls_json_close(&w);
    return a->to ? cli_write_json("--to", a->to, &w) : write_beside(a, &w);
}

static int report(const arguments *a, const ls_verdict *v)
{
    printf("%s\n", v->text);
    if (!v->whole)
        printf("the segments were drawn with the number %.0f\n", a->seed);
    const int code = write_result(a, v);
    return code ? code : v->holds ? cli_flush() : EXIT_REFUTED;
}

/* Verifies the run a->run. */
static int run(const arguments *a, const ls_registry *registry)
{
    cli_directories places;
    cli_view view;
    ls_verdict verdict = {.size = sizeof verdict};
    ls_error err;
    remove_former(a);
    cli_view_init(&view, true);
    display d = {.quiet = a->quiet, .tty = view.tty, .shown = ls_now_ns()};
    const ls_host host = {.size = sizeof host, .log = cli_view_log, .user = &view};
    const ls_trainer_options o = cli_options(&places, NULL, &a->set, registry, true, &host);
    const ls_verify_options options = {.size = sizeof options,
                                       .run = a->run,
                                       .weights = a->weights,
                                       .trainer = &o,
                                       .all = a->all,
                                       .segments = a->segments,
                                       .seed = (uint64_t)a->seed,
                                       .progress = show,
                                       .user = &d};
    int status = ls_verify(&verdict, &options, &err);
    if (d.drawn)
        fputs("\r\033[K", stderr);
    return status ? cli_fail(status, err.text) : report(a, &verdict);
}

int cli_verify(int argc, char **argv, const ls_registry *registry)
{
    arguments a;
    char *found;
    ls_error err;
    int code = parse(&a, argc, argv);
    if (code == 0)
        code = draw(&a);
    if (code)
        return code;
    int status = ls_run_find(&found, a.run, LS_RUN_RECORDS, NULL, &err);
    if (status)
        return cli_fail(status, err.text);
    a.run = found;
    code = run(&a, registry);
    ls_free(NULL, found);
    return code;
}
