/* SPDX-License-Identifier: MIT */
/* trainer report: writes the report of a run as an HTML page. */
#include "cli/cli.h"

#include "base/host.h"
#include "cli/samples.h"
#include "model/trained.h"
#include "page/page.h"

#include <sys/stat.h>

static const char help[] =
    "usage: {} report RUN [-o FILE] [--samples N] [--set KEY=VALUE]\n"
    "\n"
    "Writes the report of a run as one HTML file that needs no other files: accuracy, loss,\n"
    "learning rate and throughput as curves, where each worker's time goes, the model, the\n"
    "confusion matrix, predictions of test rows with their pictures, and the resolved config.\n"
    "\n"
    "  RUN              the run's directory, runs/<time>-<name>, or latest\n"
    "  -o FILE          writes to FILE instead of RUN/report.html\n"
    "  --samples N      number of predictions that are shown, half of them wrong if there are\n"
    "                   enough (16); 0: none, and the data of the run are not read\n"
    "  --set KEY=VALUE  sets a key of the config for the predictions, such as data.path, if the\n"
    "                   data have been moved\n"
    "  --help           this text\n";

/* Appends predictions of test rows to the page. If the run's data or weights cannot be read,
 * nothing is appended, and a message says why. */
static void add_samples(ls_buffer *lines, const char *run, int count, const cli_list *set,
                        const ls_registry *registry)
{
    ls_error err;
    if (count > 0 && cli_samples_write(lines, run, count, set, registry, &err) != LS_OK)
        cli_say("the page has no predictions: %s", err.text);
}

static int report(const char *run, const char *out, int samples, const cli_list *set,
                  const ls_registry *registry, ls_error *err)
{
    struct stat st;
    ls_buffer lines;
    ls_error doubt;
    ls_buffer_init(&lines, NULL);
    if (stat(run, &st) == 0)
        add_samples(&lines, run, samples, set, registry);
    const int status = ls_report_write_with(run, out, &lines, &doubt, NULL, err);
    ls_buffer_fini(&lines);
    if (status == LS_OK && doubt.status)
        cli_say("warning: %s", doubt.text);
    if (status == LS_OK)
        printf("%s%s\n", out ? out : run, out ? "" : "/report.html");
    return status;
}

int cli_report(int argc, char **argv, const ls_registry *registry)
{
    ls_error err;
    const char *run = NULL, *out = NULL;
    int samples = CLI_SAMPLES;
    cli_list set = {0};
    const cli_option options[] = {
        {CLI_OUT, "output", 'o', .value = &out},
        {CLI_WHOLE, "samples", .whole = &samples, .least = 0, .greatest = CLI_SAMPLES_MOST},
        {CLI_LIST, "set", .list = &set, .most = CLI_SET_MAX},
        {CLI_HELP, "help", 'h', .text = help},
        {CLI_OPERAND, "run", .value = &run, .text = "which run?", .example = "runs/<time>-<name>"},
        {0}};
    const int problem = cli_read_options("report", options, argc, argv);
    if (problem)
        return problem;
    char *path = NULL;
    int status = ls_run_find(&path, run, LS_RUN_RECORDS, NULL, &err);
    if (status == LS_OK)
        status = report(path, out, samples, &set, registry, &err);
    ls_free(NULL, path);
    return status ? cli_fail(status, err.text) : cli_flush();
}
