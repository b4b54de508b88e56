/* trainer report RUN */
#include "cli/cli.h"
#include "page/page.h"

#include <getopt.h>
#include <stdio.h>

static const char help[] =
    "usage: trainer report RUN [-o FILE]\n"
    "\n"
    "Writes the report of a run as one HTML file that needs nothing but itself: accuracy, loss and\n"
    "throughput as curves, where each worker's time goes, and the resolved config.\n"
    "\n"
    "  RUN          the run's directory, runs/<time>-<name>\n"
    "  -o FILE      writes to FILE instead of RUN/report.html\n"
    "  --help       this text\n";

static int usage(const char *problem, const char *what)
{
    fprintf(stderr, "trainer report: %s%s; `trainer report --help` lists what there is\n", problem,
            what);
    return EXIT_USAGE;
}

int cli_report(int argc, char **argv)
{
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *out = NULL;
    int c;
    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
        switch (c) {
        case 'o': out = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        case ':': return usage("a value is missing behind ", argv[optind - 1]);
        default: return usage("unknown option ", argv[optind - 1]);
        }
    }
    if (optind == argc)
        return usage("which run? Try `trainer report runs/<time>-<name>`", "");
    if (optind + 1 < argc)
        return usage("one run at a time; do not know what to do with ", argv[optind + 1]);
    ls_error err;
    int status = ls_report_write(argv[optind], out, NULL, &err);
    if (status) {
        fprintf(stderr, "trainer: %s\n", err.text);
        return cli_exit_code(status);
    }
    printf("%s%s\n", out ? out : argv[optind], out ? "" : "/report.html");
    return 0;
}
