/* SPDX-License-Identifier: MIT */
/* trainer runs: prints a table of the runs in a directory. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/host.h"
#include "cli/columns.h"
#include "page/facts.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: {} runs [DIR] [options]\n"
    "\n"
    "Lists the runs in DIR (runs), the newest last: directory, data, accuracy (R² or AUC for\n"
    "other models) and loss on the test or validation rows, training rows per second,\n"
    "finished epochs, start time (UTC), how the run ended, and the first digits of the\n"
    "weights' SHA-256 that its records have (recorded; compare and report read the weights\n"
    "themselves). If the terminal is too narrow, the less important columns are left out.\n"
    "\n"
    "  --json           prints one JSON object for each run, with all values\n"
    "  --help           this text\n"
    "\n"
    "A run is \"running\" if a process holds the lock of its directory. It was \"killed\" if no\n"
    "process does and its records have no end; --resume continues it.\n";

/* One run of the list. */
typedef struct entry {
    char *path;
    ls_run_facts facts;
} entry;

typedef struct list {
    entry *entry;
    size_t count, capacity;
} list;

/* ---- finding runs ---------------------------------------------------------------------------- */

static bool is_run(const char *dir)
{
    char path[LS_PATH_BYTES];
    struct stat st;
    return stat(ls_path_join(path, dir, "metrics.jsonl"), &st) == 0 ||
           ls_is_run_without_records(dir); /* add_run names it on stderr */
}

static int no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for a list of runs");
}

/* Adds a run to the list. A run whose records cannot be read is named on stderr and left out. */
static int add_run(list *l, const char *path, ls_error *err)
{
    ls_run_log log;
    ls_error why;
    entry *all = ls_grown(NULL, l->entry, l->count, &l->capacity, sizeof *all);
    if (!all)
        return no_memory(err);
    l->entry = all;
    ls_run_log_init(&log, 0, NULL);
    log.brief = true;
    int status = ls_report_read(&log, path, &why);
    entry *e = &all[l->count];
    if (status == LS_OK) {
        ls_run_facts_find(&e->facts, &log, path);
        e->path = ls_strdup(NULL, path);
        l->count += e->path != NULL;
        status = e->path ? LS_OK : no_memory(err);
    } else if (status == LS_ENOMEM) {
        no_memory(err);
    } else {
        cli_say("left out: %s", why.text);
        status = LS_OK;
    }
    ls_run_log_fini(&log);
    return status;
}

static int find_runs(list *l, const char *dir, ls_error *err)
{
    char path[LS_PATH_BYTES];
    DIR *all = opendir(dir);
    int status = LS_OK;
    if (!all)
        return ls_fail(err, errno == ENOENT || errno == ENOTDIR ? LS_ENOENT : LS_EIO,
                       "%.300s: cannot be listed: %s; expected a directory of runs, such as runs",
                       dir, strerror(errno));
    for (struct dirent *e; status == LS_OK && (e = readdir(all)) != NULL;)
        if (e->d_name[0] != '.' && is_run(ls_path_join(path, dir, e->d_name)))
            status = add_run(l, path, err);
    closedir(all);
    return status;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const int order = strcmp(x->facts.begun, y->facts.begun);
    return order ? order : strcmp(x->path, y->path);
}

/* ---- as a table ------------------------------------------------------------------------------ */

enum { RUN, NAME, DATA, VALUE, LOSS, RATE, EPOCHS, BEGUN, ENDED, HASH, COLUMNS };
enum { TEXT = 48 };

static void put_number(char out[TEXT], const char *format, double value)
{
    if (!isnan(value))
        snprintf(out, TEXT, format, value);
}

/* Writes the texts of a row. `named`: write the name of the metric beside its value, because not
 * all runs report the same metric. */
static void fill_row(char text[COLUMNS][TEXT], const ls_run_facts *f, bool named)
{
    snprintf(text[NAME], TEXT, "%.40s", f->name);
    snprintf(text[DATA], TEXT, "%.32s%s", f->data,
             f->synthetic && !f->named_synthetic ? " (synthetic)" : "");
    put_number(text[VALUE], "%.4f", f->value);
    if (named && !isnan(f->value))
        snprintf(text[VALUE], TEXT, "%.15s %.4f", ls_metric_title(f->metric), f->value);
    put_number(text[LOSS], "%.4f", f->measured[LS_METRIC_LOSS]);
    put_number(text[RATE], "%.0f", f->rate);
    if (f->of_epochs)
        snprintf(text[EPOCHS], TEXT, "%d/%d", f->epochs, f->of_epochs);
    if (strlen(f->begun) >= 16)
        snprintf(text[BEGUN], TEXT, "%.10s %.5s", f->begun, f->begun + 11);
    snprintf(text[ENDED], TEXT, "%s", ls_run_states[f->state]);
    snprintf(text[HASH], TEXT, "%.8s", f->hash);
}

/* Returns the name of the metric that all runs report, or NULL if they differ. */
static const char *common_metric(const list *l)
{
    const ls_metric metric = l->entry[0].facts.metric;
    for (size_t i = 1; i < l->count; i++)
        if (l->entry[i].facts.metric != metric)
            return NULL;
    return ls_metric_title(metric);
}

static int print_table(const list *l, ls_error *err)
{
    const char *metric = common_metric(l);
    const cli_column columns[COLUMNS] = {
        {"run", 0, 16, false},  {"name", 9, 8, false},
        {"data", 6, 8, false},  {metric ? metric : "metric", 0, 0, true},
        {"loss", 4, 0, true},   {"rows/s", 5, 0, true},
        {"epochs", 3, 0, true}, {"begun (UTC)", 8, 0, false},
        {"ended", 1, 0, false}, {"recorded", 7, 0, false}};
    char(*text)[COLUMNS][TEXT] = ls_alloc_array(NULL, l->count, sizeof *text);
    const char **shown = ls_alloc_array(NULL, l->count * COLUMNS, sizeof *shown);
    if (text && shown) {
        for (size_t i = 0; i < l->count; i++) {
            fill_row(text[i], &l->entry[i].facts, !metric);
            for (int c = 0; c < COLUMNS; c++)
                shown[i * COLUMNS + (size_t)c] = c == RUN ? l->entry[i].path : text[i][c];
        }
        cli_print_table(stdout, columns, COLUMNS, shown, (int)l->count, cli_columns(stdout, 10000));
        for (size_t i = 0; i < l->count; i++)
            if (l->entry[i].facts.lacks_records)
                cli_say("%s: earlier records are missing, because another program had moved or cut "
                        "their file",
                        l->entry[i].path);
    }
    const int status = text && shown ? LS_OK : no_memory(err);
    ls_free(NULL, text);
    ls_free(NULL, shown);
    return status;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void put_text(ls_json_writer *w, const char *key, const char *text)
{
    ls_json_put_string(w, key, text[0] ? text : NULL);
}

static void print_json(const entry *e)
{
    const ls_run_facts *f = &e->facts;
    ls_json_writer writer, *w = &writer;
    ls_json_writer_init(w, 0, NULL);
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "run", e->path);
    put_text(w, "name", f->name);
    put_text(w, "data", f->data);
    ls_json_put_bool(w, "synthetic", f->synthetic);
    ls_json_put_string(w, "ended", ls_run_states[f->state]);
    put_text(w, "begun", f->begun);
    ls_json_put_int(w, "resumed", f->resumed);
    ls_json_put_int(w, "epochs", f->epochs);
    ls_json_put_int(w, "of_epochs", f->of_epochs);
    ls_json_put_uint(w, "steps", f->steps);
    ls_json_put_bool(w, "lacks_records", f->lacks_records);
    put_text(w, "judged_by", f->judged);
    put_text(w, "metric",
             f->metric == LS_METRICS || f->metric == LS_METRIC_AUC ? ls_metric_title(f->metric)
                                                                   : ls_metric_names[f->metric]);
    ls_json_put_double(w, "value", f->value);
    ls_json_put_double(w, "best", f->best);
    ls_json_put_double(w, "loss", f->measured[LS_METRIC_LOSS]);
    ls_json_put_double(w, "train_loss", f->train_loss);
    ls_json_put_double(w, "rows_per_s", f->rate);
    ls_json_put_double(w, "seconds", f->seconds);
    ls_json_put_uint(w, "parameters", f->parameters);
    put_text(w, "devices", f->devices);
    put_text(w, "weights_sha256", f->hash);
    ls_json_close(w);
    cli_put_json(w);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int list_runs(list *l, const char *dir, bool json, ls_error *err)
{
    int status = find_runs(l, dir, err);
    if (status == LS_OK && l->count == 0)
        status = ls_fail(err, LS_ENOENT,
                         "%.300s: there is no run in it; expected directories with a metrics.jsonl",
                         dir);
    if (status)
        return status;
    qsort(l->entry, l->count, sizeof *l->entry, compare_entries);
    if (!json)
        return print_table(l, err);
    for (size_t i = 0; i < l->count; i++)
        print_json(&l->entry[i]);
    return LS_OK;
}

int cli_runs(int argc, char **argv, const ls_registry *registry)
{
    ls_error err;
    list l = {NULL, 0, 0};
    bool json = false;
    const cli_option options[] = {
        {CLI_FLAG, "json", .flag = &json}, {CLI_HELP, "help", 'h', .text = help}, {0}};
    (void)registry;
    const int problem = cli_read_options("runs", options, argc, argv);
    if (problem)
        return problem;
    if (optind + 1 < argc)
        return cli_usage("runs", "one directory at a time; do not know what to do with ",
                         argv[optind + 1]);
    const int status = list_runs(&l, optind < argc ? argv[optind] : "runs", json, &err);
    for (size_t i = 0; i < l.count; i++)
        ls_free(NULL, l.entry[i].path);
    ls_free(NULL, l.entry);
    return status ? cli_fail(status, err.text) : cli_flush();
}
