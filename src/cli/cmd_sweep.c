/* SPDX-License-Identifier: MIT */
/* trainer sweep CONFIG --vary KEY=VALUE,VALUE…: trains a config with all combinations of values. */
#include "cli/cli.h"
#include "cli/overwrite.h"
#include "cli/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: {} sweep CONFIG --vary KEY=VALUE,VALUE… [options]\n"
    "\n"
    "Trains CONFIG once for every combination of the values, and prints a table of the results.\n"
    "\n"
    "  --vary KEY=V,V,…       a key of the config and its values; may be repeated. lr,\n"
    "                         momentum and weight_decay stand for the optimizer's keys, and a\n"
    "                         whole number as devices is a number of devices: --vary\n"
    "                         lr=0.05,0.1 --vary devices=1,2\n"
    "  --vary K,K=V:V,V:V,…   keys that change together: --vary devices,batch_size=1:256,2:512\n"
    "  --set KEY=VALUE        sets a key for all runs\n"
    "  --json FILE|-          also writes the results as JSON; with - the table goes to stderr\n"
    "  --keep DIR             keeps the directories of the runs, as DIR/1, DIR/2, …\n"
    "  --quiet                no progress; the result, warnings and errors only\n"
    "  --help                 this text\n"
    "\n"
    "The table goes to stdout. If a run fails, its row has the error, the other runs are\n"
    "still trained, and the exit code is that of the first failure. Ctrl-C stops the current\n"
    "run and prints the results so far.\n";

typedef struct sweep_arguments {
    const char *config, *json, *keep;
    bool quiet;
    cli_list set, vary;
} sweep_arguments;

/* State of a sweep. */
typedef struct session {
    const sweep_arguments *a;
    const ls_registry *registry;
    cli_view view;
    ls_host host;
    cli_sweep *sweep;
    cli_sweep_row *rows;
    int row; /* index of the current run */
} session;

static int parse(sweep_arguments *a, int argc, char **argv)
{
    const cli_option options[] = {{CLI_LIST, "vary", .list = &a->vary, .most = CLI_SWEEP_KEYS},
                                  {CLI_LIST, "set", .list = &a->set, .most = CLI_SET_MAX},
                                  {CLI_OUT, "json", .value = &a->json},
                                  {CLI_TEXT, "keep", .value = &a->keep},
                                  {CLI_FLAG, "quiet", .flag = &a->quiet},
                                  {CLI_HELP, "help", 'h', .text = help},
                                  {CLI_OPERAND, "config", .value = &a->config,
                                   .text = "which config?",
                                   .example = "examples/fashion_mnist.json --vary lr=0.1,0.2"},
                                  {0}};
    memset(a, 0, sizeof *a);
    const int problem = cli_read_options("sweep", options, argc, argv);
    if (problem == 0 && a->vary.count == 0)
        return cli_usage("sweep", "nothing to vary: add --vary KEY=VALUE,VALUE…", "");
    return problem;
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static void on_progress(void *user, const ls_progress *progress)
{
    session *s = user;
    cli_sweep_row_progress(&s->rows[s->row], progress);
    cli_view_progress(&s->view, progress);
}

/* ---- results -------------------------------------------------------------------------------- */

enum { METRIC, TRAIN_LOSS, SECONDS, RATE, SPEED_UP, WEIGHTS, NUMBERS };

static const struct {
    const char *heading;
    int digits, width; /* decimal places; width of the column in characters */
} columns[NUMBERS] = {{"acc", 4, 8},  {"train loss", 4, 10}, {"s/epoch", 2, 7},
                      {"rate", 0, 8}, {"speed-up", 2, 8},    {"weights", 0, 8}};

static void format_number(char *out, size_t size, const session *s, int row, int column)
{
    const cli_sweep_row *r = &s->rows[row];
    double speedup = cli_sweep_speedup(s->rows, cli_sweep_count(s->sweep), row);
    const char *weights = r->result.weights_sha256;
    const double value[WEIGHTS] = {r->result.metric_value, r->train_loss,
                                   r->result.seconds_per_epoch, r->images_per_s, speedup};
    if (column == WEIGHTS)
        snprintf(out, size, "%.8s", weights[0] ? weights : "-");
    else if (isnan(value[column]))
        snprintf(out, size, "-");
    else
        snprintf(out, size, "%.*f%s",
                 columns[column].digits + (column == SECONDS && value[column] < 1), value[column],
                 column == SPEED_UP ? "x" : "");
}

/* Writes the heading of a column of results. The headings of metric and rate have the names of the
 * first run that was opened. */
static void format_heading(char *out, size_t size, const session *s, int column)
{
    const cli_sweep_row *r = s->rows, *end = s->rows + cli_sweep_count(s->sweep);
    while (r < end && !r->result.metric)
        r++;
    const char *metric = r < end ? r->result.metric : NULL;
    if (column == METRIC && metric)
        snprintf(out, size, "%s %s", r->judged_by,
                 strcmp(metric, "accuracy") == 0 ? "acc" : metric);
    else if (column == RATE && metric)
        snprintf(out, size, "%s/s", r->rows);
    else
        snprintf(out, size, "%s", columns[column].heading);
}

static int number_width(const session *s, int column)
{
    char heading[32];
    format_heading(heading, sizeof heading, s, column);
    const int width = (int)strlen(heading);
    return width > columns[column].width ? width : columns[column].width;
}

static int key_width(const session *s, int key)
{
    size_t width = strlen(cli_sweep_key(s->sweep, key));
    for (int i = 0; i < cli_sweep_count(s->sweep); i++) {
        size_t n = strlen(cli_sweep_value(s->sweep, i, key));
        width = n > width ? n : width;
    }
    return (int)width;
}

static void print_row(const session *s, FILE *stream, int row)
{
    const cli_sweep_row *r = &s->rows[row];
    char text[32];
    for (int k = 0; k < cli_sweep_keys(s->sweep); k++)
        fprintf(stream, "%s%*s", k ? "  " : "", key_width(s, k), cli_sweep_value(s->sweep, row, k));
    if (!r->ran || (r->status && r->status != LS_EINTERRUPTED)) {
        fprintf(stream, "  %s%s\n", r->ran ? "error: " : "not run", r->ran ? r->error : "");
        return;
    }
    for (int c = 0; c < NUMBERS; c++) {
        format_number(text, sizeof text, s, row, c);
        fprintf(stream, "  %*s", number_width(s, c), text);
    }
    fputs(r->status ? "  interrupted\n" : "\n", stream);
}

static void print_table(const session *s, FILE *stream)
{
    int count = cli_sweep_count(s->sweep), synthetic = 0;
    for (int i = 0; i < count; i++)
        synthetic |= s->rows[i].synthetic;
    if (synthetic)
        fprintf(stream, "SYNTHETIC data: results say nothing of real data\n");
    for (int k = 0; k < cli_sweep_keys(s->sweep); k++)
        fprintf(stream, "%s%*s", k ? "  " : "", key_width(s, k), cli_sweep_key(s->sweep, k));
    for (int c = 0; c < NUMBERS; c++) {
        char heading[32];
        format_heading(heading, sizeof heading, s, c);
        fprintf(stream, "  %*s", number_width(s, c), heading);
    }
    fputc('\n', stream);
    for (int i = 0; i < count; i++)
        print_row(s, stream, i);
}

/* Writes the results so far, replacing those written before. */
static int write_json(session *s)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, NULL);
    cli_sweep_json(&w, s->sweep, s->rows, s->a->config);
    return cli_write_json("--json", s->a->json, &w);
}

static int print_results(session *s)
{
    const bool json_on_stdout = s->a->json && strcmp(s->a->json, "-") == 0;
    print_table(s, json_on_stdout ? stderr : stdout);
    const int code = json_on_stdout ? write_json(s) : 0;
    return code ? code : cli_flush();
}

/* ---- running -------------------------------------------------------------------------------- */

static void announce(const session *s)
{
    if (s->view.quiet)
        return;
    fprintf(stderr, "%srun %d/%d:", s->view.colour ? "\033[1m" : "", s->row + 1,
            cli_sweep_count(s->sweep));
    for (int k = 0; k < cli_sweep_keys(s->sweep); k++)
        fprintf(stderr, "%s %s %s", k ? "," : "", cli_sweep_key(s->sweep, k),
                cli_sweep_value(s->sweep, s->row, k));
    fprintf(stderr, "%s\n", s->view.colour ? "\033[0m" : "");
}

/* Returns the assignments for the current run: those of --set, the values of its combination, and
 * the run directory. */
static cli_list collect_sets(const session *s, char *run_dir, size_t size)
{
    cli_list set = s->a->set;
    for (int k = 0; k < cli_sweep_keys(s->sweep); k++)
        set.item[set.count++] = cli_sweep_assignment(s->sweep, s->row, k);
    if (s->a->keep)
        snprintf(run_dir, size, "run_dir=%s/%d", s->a->keep, s->row + 1);
    else
        snprintf(run_dir, size, "run_dir=null");
    set.item[set.count++] = run_dir;
    return set;
}

static void run_one(session *s)
{
    char run_dir[4200];
    cli_list set = collect_sets(s, run_dir, sizeof run_dir);
    cli_directories places;
    ls_trainer *trainer = NULL;
    ls_error err = {0};
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = s};
    ls_trainer_options o =
        cli_options(&places, s->a->config, &set, s->registry, s->view.quiet, &s->host);
    o.callbacks = &callbacks;
    int status = ls_trainer_open(&trainer, &o, &err);
    if (status == LS_OK) {
        cli_view_name_rows(&s->view, ls_trainer_summary(trainer));
        status = cli_run(trainer, &err);
    }
    cli_sweep_row_end(&s->rows[s->row], trainer, status, err.text);
    cli_view_clear(&s->view);
    if (status && status != LS_EINTERRUPTED)
        cli_say("run %d: %s", s->row + 1, err.text);
    ls_trainer_close(trainer, NULL);
}

static int run_all(session *s)
{
    int count = cli_sweep_count(s->sweep), code = 0;
    bool to_file = s->a->json && strcmp(s->a->json, "-") != 0;
    /* writes the file once before training, so that an error in its path is reported at once */
    if (to_file && (code = write_json(s)) != 0)
        return code;
    cli_catch_signals();
    for (s->row = 0; s->row < count && !cli_interrupted(); s->row++) {
        announce(s);
        run_one(s);
        int status = s->rows[s->row].status;
        if (code == 0 && status)
            code = cli_exit_code(status);
        int written = to_file ? write_json(s) : 0;
        if (written)
            to_file = false; /* report it only once */
        code = code ? code : written;
    }
    int printed = print_results(s);
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    return code ? code : printed;
}

int cli_sweep_verb(int argc, char **argv, const ls_registry *registry)
{
    sweep_arguments a;
    session s = {.a = &a, .registry = registry};
    ls_error err;
    int code = parse(&a, argc, argv);
    if (code)
        return code;
    cli_directories places;
    const ls_trainer_options o = cli_options(&places, a.config, &a.set, registry, true, NULL);
    code = cli_spare_config("sweep", "json", a.json, &o);
    if (code)
        return code;
    s.host = (ls_host){.size = sizeof s.host, .log = cli_view_log, .user = &s.view};
    cli_view_init(&s.view, a.quiet);
    int status = cli_sweep_create(&s.sweep, a.vary.item, a.vary.count, registry, NULL, &err);
    if (status)
        return cli_fail(status, err.text);
    s.rows = calloc((size_t)cli_sweep_count(s.sweep), sizeof *s.rows);
    if (s.rows) {
        for (int i = 0; i < cli_sweep_count(s.sweep); i++)
            cli_sweep_row_init(&s.rows[i]);
        code = run_all(&s);
    } else {
        code = cli_fail(LS_ENOMEM, "out of memory for the results of a sweep");
    }
    free(s.rows);
    cli_sweep_destroy(s.sweep);
    return code;
}
