/* trainer verify RUN: verifies a run by its receipt (train/verify.h). */
#include "base/host.h"
#include "cli/cli.h"
#include "train/verify.h"
#include "json/writer.h"

#include <lockstep/version.h>
#include <string.h>
#include <sys/random.h>

static const char help[] =
    "usage: {} verify RUN [options]\n"
    "\n"
    "Checks that RUN, a run with \"receipt\": true, was trained as its receipt.json says. Reads\n"
    "the data again, and replays parts of the training from the kept checkpoints, on the\n"
    "devices of this machine. The exit status is 0 if nothing differs, and 1 if something does.\n"
    "\n"
    "  --all             replays the whole training; only this proves that nothing differs\n"
    "  --segments N      besides the first and the last segment, replays N more (3), which are\n"
    "                    drawn with a random number of this machine\n"
    "  --seed S          draws the segments that another verifier has drawn with this number\n"
    "  --devices LIST    as for training; the result is the same on any devices\n"
    "  --set KEY=VALUE   sets a key of the config that is not part of the recipe, such as\n"
    "                    data.path\n"
    "  --to FILE         writes the result as JSON to FILE (RUN/verified.json)\n"
    "  --quiet           no progress; the result, warnings and errors only\n"
    "  --help            this text\n";

enum { SEGMENTS = 3, EXIT_REFUTED = 1 };
#define SEED_MOST 9007199254740992.0 /* 2⁵³ */

typedef struct arguments {
    const char *run, *to;
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
        {CLI_TEXT, "to", .value = &a->to},
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

static void show_segment(void *user, int done, int count, uint64_t from, uint64_t to)
{
    const arguments *a = user;
    if (!a->quiet)
        cli_say("replay %d of %d: steps %llu to %llu", done + 1, count,
                (unsigned long long)from + 1, (unsigned long long)to);
}

static int write_result(const arguments *a, const ls_verdict *v)
{
    char path[LS_PATH_BYTES];
    ls_json_writer w;
    ls_json_writer_init(&w, 2, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "lockstep", LS_VERSION);
    ls_json_put_bool(&w, "holds", v->holds);
    ls_json_put_bool(&w, "all", a->all);
    ls_json_put_int(&w, "segments", v->segments);
    ls_json_put_int(&w, "replayed", v->replayed);
    ls_json_put_double(&w, "seed", a->seed);
    if (v->segment >= 0) {
        ls_json_put_int(&w, "segment", v->segment + 1);
        ls_json_put_uint(&w, "from_step", v->from + 1);
        ls_json_put_uint(&w, "to_step", v->to);
    }
    ls_json_put_string(&w, "weights_sha256", v->weights_sha256);
    ls_json_put_string(&w, "result", v->text);
    ls_json_close(&w);
    return cli_write_json("--to", a->to ? a->to : ls_path_join(path, a->run, "verified.json"), &w);
}

int cli_verify(int argc, char **argv, const ls_registry *registry)
{
    arguments a;
    cli_directories places;
    cli_view view;
    ls_verdict verdict;
    ls_error err;
    int code = parse(&a, argc, argv);
    if (code == 0)
        code = draw(&a);
    if (code)
        return code;
    cli_view_init(&view, true);
    const ls_host host = {.size = sizeof host, .log = cli_view_log, .user = &view};
    const ls_trainer_options o = cli_options(&places, NULL, &a.set, registry, true, &host);
    const ls_verify_options options = {.run = a.run,
                                       .trainer = &o,
                                       .all = a.all,
                                       .segments = a.segments,
                                       .seed = (uint64_t)a.seed,
                                       .progress = show_segment,
                                       .user = &a};
    int status = ls_verify(&verdict, &options, &err);
    if (status)
        return cli_fail(status, err.text);
    printf("%s\n", verdict.text);
    if (verdict.holds && verdict.replayed < verdict.segments + 1 && !a.all)
        printf("the segments were drawn with the number %.0f\n", a.seed);
    code = write_result(&a, &verdict);
    return code ? code : verdict.holds ? cli_flush() : EXIT_REFUTED;
}
