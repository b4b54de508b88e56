/* SPDX-License-Identifier: MIT */
/* trainer compare: shows several runs side by side, as text and as an HTML page. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/host.h"
#include "base/thread_state.h"
#include "cli/columns.h"
#include "model/trained.h"
#include "page/compare.h"
#include "store/durable.h"

#include <getopt.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: {} compare RUN RUN… [--to FILE.html] [options]\n"
    "\n"
    "Compares 2 to 8 runs: prints their final figures, which of them have the same weights in\n"
    "weights.safetensors, and the keys in which their configs differ, and writes a page that\n"
    "shows the curves of all runs in the same charts, as one HTML file that needs no other\n"
    "files. A run may still be in progress; the page shows what it has recorded so far.\n"
    "\n"
    "  RUN              a run's directory, its name in runs/, or latest\n"
    "  --to FILE        writes the page to FILE (compare.html)\n"
    "  --no-page        prints the table only\n"
    "  --help           this text\n";

/* ---- which runs ------------------------------------------------------------------------------ */

/* The runs that are compared. */
typedef struct named {
    int count;
    char *path[LS_COMPARED];
} named;

/* Finds the directory of a run: the path itself, "latest", or a name in runs/. */
static int find_run(char **out, const char *argument, ls_error *err)
{
    struct stat st;
    char in_runs[LS_PATH_BYTES];
    const bool is_in_runs = stat(argument, &st) != 0 && strcmp(argument, "latest") != 0 &&
                            stat(ls_path_join(in_runs, "runs", argument), &st) == 0;
    return ls_run_find(out, is_in_runs ? in_runs : argument, LS_RUN_RECORDS, NULL, err);
}

static int find_all(named *n, char **arguments, int count, ls_error *err)
{
    int status = LS_OK;
    for (; n->count < count && status == LS_OK; n->count += status == LS_OK)
        status = find_run(&n->path[n->count], arguments[n->count], err);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

enum { GAP = 2 };

/* Returns the width of the rows' names, or of the values of run number `run`; run −1: the names. */
static int widest(const ls_comparison *c, int run)
{
    int width = run < 0 ? 0 : 1;
    for (size_t r = 0; r < c->rows; r++) {
        const int n = cli_width(run < 0 ? c->row[r].name : c->row[r].value[run]);
        width = n > width ? n : width;
    }
    return width;
}

static bool is_different(const ls_comparison *c, const ls_compared_row *row)
{
    for (int i = 1; i < c->count; i++)
        if (strcmp(row->value[0], row->value[i]) != 0)
            return true;
    return false;
}

/* Prints a row whose values do not fit side by side: a line with the value of each run, or a single
 * line if all runs have the same value. */
static void print_tall_row(const ls_comparison *c, const ls_compared_row *row, int width)
{
    if (!is_different(c, row)) {
        printf("%s: ", row->name);
        cli_put_cut(stdout, row->value[0], width - cli_width(row->name) - 2);
        putchar('\n');
        return;
    }
    printf("%s:\n", row->name);
    for (int i = 0; i < c->count; i++) {
        printf("  %s  ", ls_compared_letter(i));
        cli_put_cut(stdout, row->value[i][0] ? row->value[i] : "-", width - 5);
        putchar('\n');
    }
}

/* Prints a row with the values side by side. No line ends with spaces. */
static void print_wide_row(const ls_comparison *c, const char *name, const char *const *value,
                           const int *width)
{
    int pending = widest(c, -1) - cli_width(name);
    fputs(name, stdout);
    for (int i = 0; i < c->count; i++) {
        const char *text = value[i][0] ? value[i] : "-";
        printf("%*s%s", pending + GAP, "", text);
        pending = width[i] - cli_width(text);
    }
    putchar('\n');
}

/* Prints the rows of a kind. */
static void print_rows(const ls_comparison *c, ls_compared_kind kind, const int *value, bool wide,
                       int width)
{
    for (size_t r = 0; r < c->rows; r++) {
        const ls_compared_row *row = &c->row[r];
        if (row->kind != kind)
            continue;
        const char *texts[LS_COMPARED];
        for (int i = 0; i < c->count; i++)
            texts[i] = row->value[i];
        if (wide)
            print_wide_row(c, row->name, texts, value);
        else
            print_tall_row(c, row, width);
    }
}

/* Prints which run is the best, in lines of at most `width` characters. */
static void print_verdict(const ls_comparison *c, int width)
{
    char text[LS_SENTENCE];
    if (!ls_compared_verdict(text, c))
        return;
    putchar('\n');
    cli_put_wrapped(stdout, text, 0, 0, width);
}

/* Prints a warning, in red on a terminal, in lines of at most `width` characters. */
static void print_warning(const char *text, int width)
{
    const bool colour = cli_has_colour(stdout);
    fputs(colour ? "\033[31m" : "", stdout);
    cli_put_wrapped(stdout, text, 0, 0, width);
    fputs(colour ? "\033[0m" : "", stdout);
}

/* Prints what is wrong with the runs' files of weights. */
static void print_doubts(const ls_comparison *c, int width)
{
    char text[LS_SENTENCE];
    for (int i = 0; i < c->count; i++) {
        if (!ls_compared_doubt(text, c, i))
            continue;
        putchar('\n');
        print_warning(text, width);
    }
}

/* Prints which runs have identical weights, in green on a terminal unless something speaks
 * against them, and the hash in lines of at most `width` characters. */
static void print_same(const ls_comparison *c, int width)
{
    char letters[LS_COMPARED * 3], text[LS_SENTENCE];
    for (int i = 0; i < c->count; i++) {
        if (!ls_compared_same(letters, c, i))
            continue;
        const bool but = ls_compared_objection(text, c, i);
        const bool green = !but && cli_has_colour(stdout);
        printf("\n%s%s: identical weights%s\n", green ? "\033[32m" : "", letters,
               green ? "\033[0m" : "");
        const int length = (int)strlen(c->facts[i].hash), each = width < length ? width : length;
        for (int at = 0; at < length; at += each)
            printf("%.*s\n", each, c->facts[i].hash + at);
        if (but)
            print_warning(text, width);
    }
}

/* Returns whether there is a row of the kind. */
static bool has_rows(const ls_comparison *c, ls_compared_kind kind)
{
    for (size_t r = 0; r < c->rows; r++)
        if (c->row[r].kind == kind)
            return true;
    return false;
}

static void print_comparison(const ls_comparison *c, int width)
{
    const char *letters[LS_COMPARED];
    int value[LS_COMPARED], total = widest(c, -1);
    for (int i = 0; i < c->count; i++) {
        value[i] = widest(c, i);
        total += GAP + value[i];
        letters[i] = ls_compared_letter(i);
        printf("%s  ", letters[i]);
        cli_put_cut(stdout, c->run_dir[i], width - 3);
        putchar('\n');
    }
    const bool wide = total <= width;
    putchar('\n');
    if (wide)
        print_wide_row(c, "", letters, value);
    print_rows(c, LS_COMPARED_FIGURE, value, wide, width);
    print_verdict(c, width);
    print_doubts(c, width);
    print_same(c, width);
    puts(has_rows(c, LS_COMPARED_CONFIG) ? "\nThe configs differ in:\n"
                                         : "\nThe configs are equal.");
    print_rows(c, LS_COMPARED_CONFIG, value, wide, width);
    if (ls_compared_others(c))
        printf("\n%s:\n\n", ls_compared_others(c));
    print_rows(c, LS_COMPARED_GIVEN, value, wide, width);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int write_page(const ls_comparison *c, const char *to, ls_error *err)
{
    ls_buffer page;
    ls_buffer_init(&page, NULL);
    ls_c_locale locale = ls_c_locale_enter();
    int status = ls_comparison_page(&page, c, err);
    ls_c_locale_leave(locale);
    if (status == LS_OK)
        status = ls_write_file(to, page.text, page.length, NULL, err);
    ls_buffer_fini(&page);
    if (status == LS_OK)
        printf("\n%s\n", to);
    return status;
}

static int compare(const named *n, const char *to, ls_error *err)
{
    ls_comparison c;
    int status = ls_comparison_open(&c, (const char *const *)n->path, n->count, NULL, err);
    if (status == LS_OK) {
        print_comparison(&c, cli_columns(stdout, CLI_WIDE));
        status = to ? write_page(&c, to, err) : LS_OK;
    }
    ls_comparison_close(&c);
    return status;
}

int cli_compare(int argc, char **argv, const ls_registry *registry)
{
    ls_error err;
    named n = {0};
    const char *to = "compare.html";
    bool no_page = false;
    const cli_option options[] = {{CLI_OUT, "to", .value = &to},
                                  {CLI_FLAG, "no-page", .flag = &no_page},
                                  {CLI_HELP, "help", 'h', .text = help},
                                  {0}};
    (void)registry;
    const int problem = cli_read_options("compare", options, argc, argv);
    if (problem)
        return problem;
    const int count = argc - optind;
    if (count < 2)
        return cli_usage_example("compare", "which runs?", "runs/A runs/B");
    if (count > LS_COMPARED)
        return cli_usage("compare", "at most 8 runs at a time; do not know what to do with ",
                         argv[optind + LS_COMPARED]);
    int status = find_all(&n, argv + optind, count, &err);
    if (status == LS_OK)
        status = compare(&n, no_page ? NULL : to, &err);
    for (int i = 0; i < n.count; i++)
        ls_free(NULL, n.path[i]);
    return status ? cli_fail(status, err.text) : cli_flush();
}
