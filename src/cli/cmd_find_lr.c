/* SPDX-License-Identifier: MIT */
/* trainer find-lr CONFIG: a learning-rate range test (train/range_test.h), as a table, as JSON and
 * as a picture. */
#include "base/error.h"
#include "cli/cli.h"
#include "cli/overwrite.h"
#include "page/page.h"
#include "train/range_test.h"
#include "json/writer.h"

#include <lockstep/version.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: {} find-lr CONFIG [options]\n"
    "\n"
    "Trains CONFIG for a few hundred steps while optimizer.lr grows by the same factor each\n"
    "step, and prints the loss at each rate and a rate to begin with. The weights are not\n"
    "saved.\n"
    "\n"
    "  --from RATE       learning rate of the first step (1e-6)\n"
    "  --to RATE         learning rate of the last step (10)\n"
    "  --steps N         number of steps (300)\n"
    "  --svg FILE        also draws the curve, as a picture\n"
    "  --json FILE|-     also writes all points as JSON; with - the table goes to stderr\n"
    "  --devices LIST    as for training; the result is the same on any devices\n"
    "  --set KEY=VALUE   sets a key of the config; optimizer.lr and schedule are this\n"
    "                    command's own\n"
    "  --quiet           no progress; the result, warnings and errors only\n"
    "  --help            this text\n"
    "\n"
    "The loss is smoothed: it is a moving average of the losses of the minibatches, of which\n"
    "each step keeps 0.95, divided by the sum of its weights. The test ends early if the loss\n"
    "is not finite, or is more than 4 times the least loss so far. The suggestion is the\n"
    "smaller of two rates, which fastai's lr_find uses as well: the rate at which the loss\n"
    "falls steepest, and a tenth of the rate at which it is least. The first tenth of the\n"
    "steps is not used, because the average has few minibatches there. A fall that is smaller\n"
    "than the noise, or smaller than a hundredth of the loss, is ignored.\n";

enum { STEPS = 300, STEPS_LEAST = 20, STEPS_MOST = 10000 };
#define RATE_MOST 1e6
typedef struct arguments {
    const char *config, *json, *svg;
    double from, to;
    int steps;
    bool quiet;
    cli_list set;
    char devices[512];
} arguments;

/* The command's range test. */
typedef struct search {
    ls_range_test test;
    const arguments *a;
    cli_view view;
    char name[64];
    bool synthetic;
} search;

/* Texts of ls_range_end for the JSON file. */
static const char *const ends[] = {
    [LS_RANGE_ALL_STEPS] = "all steps",
    [LS_RANGE_DIVERGED_LOSS] = "diverged",
    [LS_RANGE_NOT_FINITE] = "not finite",
};

static int parse(arguments *a, int argc, char **argv)
{
    char rates[64];
    const cli_option options[] = {
        {CLI_NUMBER, "from", .number = &a->from, .least = 1e-12, .greatest = RATE_MOST},
        {CLI_NUMBER, "to", .number = &a->to, .least = 1e-12, .greatest = RATE_MOST},
        {CLI_WHOLE, "steps", .whole = &a->steps, .least = STEPS_LEAST, .greatest = STEPS_MOST},
        {CLI_OUT, "svg", .value = &a->svg},
        {CLI_OUT, "json", .value = &a->json},
        {CLI_LIST, "set", .list = &a->set, .most = CLI_SET_MAX},
        {CLI_FLAG, "quiet", .flag = &a->quiet},
        {CLI_KEY, "devices", .list = &a->set, .key = "devices", .buffer = a->devices,
         .size = sizeof a->devices},
        {CLI_HELP, "help", 'h', .text = help},
        {CLI_OPERAND, "config", .value = &a->config, .text = "which config?",
         .example = "examples/fashion_mnist.json"},
        {0}};
    *a = (arguments){.from = 1e-6, .to = 10, .steps = STEPS};
    const int problem = cli_read_options("find-lr", options, argc, argv);
    if (problem)
        return problem;
    if (a->svg && strcmp(a->svg, "-") == 0)
        return cli_usage("find-lr", "--svg -: expected a file's name", "");
    snprintf(rates, sizeof rates, "--from %g --to %g: expected rates that grow", a->from, a->to);
    return a->from < a->to ? 0 : cli_usage("find-lr", rates, "");
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void show_progress(void *user, const ls_step_values *s)
{
    search *r = user;
    const ls_range_test *test = &r->test;
    const ls_progress p = {
        .epoch = 1,
        .epochs = 1,
        .step = (uint64_t)test->count,
        .steps = (uint64_t)test->steps,
        .loss = test->point[test->count - 1].smoothed,
        .accuracy = NAN,
        .rows_per_s = (double)s->images_per_s,
        .remaining_s = (double)s->rows * (test->steps - test->count) / (double)s->images_per_s,
    };
    cli_view_progress(&r->view, &p);
}

/* Trains until the test ends. */
static int train(search *r, const ls_trainer_options *o, ls_error *err)
{
    ls_trainer *trainer;
    int status = ls_trainer_open(&trainer, o, err);
    if (status)
        return status;
    const ls_summary *summary = ls_trainer_summary(trainer);
    snprintf(r->name, sizeof r->name, "%s", summary->name);
    r->synthetic = summary->synthetic;
    cli_view_name_rows(&r->view, summary);
    status = ls_range_test_follow(&r->test, trainer, err);
    if (status == LS_OK)
        status = cli_run(trainer, err);
    if (!cli_interrupted())
        status = ls_range_test_end(&r->test, status);
    ls_trainer_close(trainer, NULL);
    cli_view_clear(&r->view);
    return status;
}

static int run(search *r, const ls_registry *registry, ls_error *err)
{
    cli_directories places;
    char schedule[128], lr[48], epochs[24];
    cli_list set = r->a->set;
    ls_host host = {.size = sizeof host, .log = cli_view_log, .user = &r->view};
    snprintf(lr, sizeof lr, "optimizer.lr=%.17g", r->a->to);
    snprintf(schedule, sizeof schedule,
             "schedule={\"name\": \"exponential\", \"minimum\": %.17g, \"steps\": %d}",
             r->a->from / r->a->to, r->a->steps);
    /* as many epochs as steps are enough, because an epoch has at least one step */
    snprintf(epochs, sizeof epochs, "epochs=%d", r->a->steps);
    const char *const own[] = {lr,
                               schedule,
                               epochs,
                               "eval_every=0",
                               "patience=0",
                               "checkpoint.best=false",
                               "run_dir=null",
                               "on_nonfinite=stop"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        set.item[set.count++] = own[i];
    ls_trainer_options o = cli_options(&places, r->a->config, &set, registry, r->a->quiet, &host);
    return train(r, &o, err);
}

/* ---- results --------------------------------------------------------------------------------- */

static void print_end(const search *r, FILE *stream)
{
    const double last = r->test.point[r->test.count - 1].lr;
    if (r->test.end == LS_RANGE_DIVERGED_LOSS)
        fprintf(stream, "the loss is above %g times its minimum from a rate of %.2g on\n",
                LS_RANGE_DIVERGED, last);
    else if (r->test.end == LS_RANGE_NOT_FINITE)
        fprintf(stream, "the loss is not finite beyond a rate of %.2g\n", last);
}

/* Explains why there is no suggestion. A network can begin on a plateau: its loss is that of
 * guessing, and hardly depends on the weights. The few steps of the test are not enough to leave
 * the plateau, whatever the learning rate is. The network needs many steps, or other initial
 * weights. */
static void print_why_none(const search *r, FILE *stream)
{
    const double first = r->test.point[0].smoothed;
    bool moved = false;
    for (int i = 0; i < r->test.count; i++)
        moved = moved || r->test.point[i].loss < first - fabs(first) / 50;
    if (moved)
        fprintf(stream, "no suggestion: the loss did not fall by more than its noise; try other "
                        "rates with --from and --to, or more --steps\n");
    else
        fprintf(
            stream,
            "no suggestion: the loss stayed at %.4g at each rate: in so few steps the network does "
            "not leave the plateau that it begins on; more steps at higher rates may leave it "
            "(--from 0.01 --steps 2000), or other first weights (\"init\": \"kaiming\")\n",
            first);
}

static void print_table(const search *r, const ls_range_finding *f, FILE *stream)
{
    const int each = r->test.count > 30 ? (r->test.count + 23) / 24 : 1;
    if (r->synthetic)
        fprintf(stream, "SYNTHETIC data: results say nothing of real data\n");
    fprintf(stream, "%10s  %10s  %10s\n", "lr", "loss", "smoothed");
    for (int i = 0; i < r->test.count; i++)
        if (i % each == 0 || i == r->test.count - 1)
            fprintf(stream, "%10.2e  %10.4g  %10.4g\n", r->test.point[i].lr, r->test.point[i].loss,
                    r->test.point[i].smoothed);
    print_end(r, stream);
    if (f->least < 0) {
        print_why_none(r, stream);
        return;
    }
    if (f->least == r->test.count - 1)
        fprintf(stream, "the loss still fell at the end: try a higher rate with --to\n");
    fprintf(stream,
            "the loss falls fastest at the rate %.2g and is lowest at %.2g\nsuggestion: "
            "optimizer.lr %.2g (the smaller of the first rate and a tenth of the second)\n",
            r->test.point[f->steepest].lr, r->test.point[f->least].lr, f->suggestion);
}

static int write_json(const search *r, const ls_range_finding *f)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, NULL);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "lockstep", LS_VERSION);
    ls_json_put_string(&w, "config", r->a->config);
    ls_json_put_string(&w, "name", r->name);
    ls_json_put_bool(&w, "synthetic", r->synthetic);
    ls_json_put_string(&w, "end", ends[r->test.end]);
    ls_json_put_double(&w, "steepest", f->steepest < 0 ? NAN : r->test.point[f->steepest].lr);
    ls_json_put_double(&w, "least", f->least < 0 ? NAN : r->test.point[f->least].lr);
    ls_json_put_double(&w, "suggestion", f->suggestion);
    ls_json_open_array(&w, "points");
    for (int i = 0; i < r->test.count; i++) {
        ls_json_open_object(&w, NULL);
        ls_json_put_double(&w, "lr", r->test.point[i].lr);
        ls_json_put_float(&w, "loss", (float)r->test.point[i].loss);
        ls_json_put_double(&w, "smoothed", r->test.point[i].smoothed);
        ls_json_close(&w);
    }
    ls_json_close(&w);
    ls_json_close(&w);
    return cli_write_json("--json", r->a->json, &w);
}

/* ---- the picture ---------------------------------------------------------------------------- */

enum { WIDTH = 760, HEIGHT = 400, LEFT = 62, RIGHT = 18, TOP = 76, BOTTOM = 50 };

static const char style[] =
    "<style>.paper{fill:#fff}text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,"
    "'DejaVu Sans',"
    "sans-serif;fill:#59636e}.title{font-size:16px;font-weight:650;fill:#1b1f24}"
    ".grid{stroke:#e6e9ec}.axis{stroke:#8b949e}path{fill:none}"
    ".loss{stroke:#56b4e9;stroke-opacity:.55}"
    ".smoothed{stroke:#0072b2;stroke-width:2.5;stroke-linejoin:round}.steepest{fill:#009e73}"
    ".least{fill:#d55e00}.suggestion{stroke:#855700;stroke-width:2;stroke-dasharray:5 4}\n"
    "@media(prefers-color-scheme:dark){.paper{fill:#181c22}text{fill:#9ba5b0}.title{fill:#e8ebee}"
    ".grid{stroke:#2a3038}.axis{stroke:#6b7682}.loss{stroke:#7cc7f2;stroke-opacity:.4}"
    ".smoothed{stroke:#3a95d6}.steepest{fill:#17b488}.least{fill:#f0793a}"
    ".suggestion{stroke:#e3b341}}"
    "</style>\n";

/* Coordinates of the plot: logarithms of rates from x0 to x1, losses from y0 to y1. */
typedef struct plot {
    ls_buffer b;
    double x0, x1, y0, y1;
} plot;

static double across(const plot *p, double lr)
{
    return LEFT + (log10(lr) - p->x0) / (p->x1 - p->x0) * (WIDTH - LEFT - RIGHT);
}

static double up(const plot *p, double loss)
{
    return HEIGHT - BOTTOM - (loss - p->y0) / (p->y1 - p->y0) * (HEIGHT - TOP - BOTTOM);
}

/* Chooses the range of losses in the plot. It begins at the lowest loss, and ends above the first
 * loss by half the difference between the two. */
static void choose_scale(plot *p, const search *r)
{
    double most = 0, least = r->test.least;
    for (int i = 0; i < r->test.count; i++) {
        most = fmax(most, r->test.point[i].smoothed);
        least = fmin(least, r->test.point[i].loss);
    }
    const double fall = r->test.point[0].smoothed - r->test.least;
    p->x0 = log10(r->a->from);
    p->x1 = log10(r->a->to);
    p->y1 = fall > 0 ? fmin(most, r->test.point[0].smoothed + fall / 2) : most;
    const double margin = p->y1 > least ? (p->y1 - least) / 12 : fabs(p->y1) / 12 + 1e-12;
    p->y0 = least - margin;
    p->y1 += margin;
}

static void draw_axes(plot *p)
{
    const double rough = (p->y1 - p->y0) / 6, power = pow(10, floor(log10(rough)));
    double tick = power;
    if (rough > 5 * power)
        tick = power * 10;
    else if (rough > 2 * power)
        tick = power * 5;
    else if (rough > power)
        tick = power * 2;
    const int digits = (int)fmax(0, -floor(log10(tick) + 1e-9));
    const double first = ceil(p->y0 / tick);
    for (int n = 0; (first + n) * tick <= p->y1; n++) {
        const double v = (first + n) * tick;
        ls_buffer_format(&p->b,
                         "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                         "text-anchor=\"end\">%.*f</text>\n",
                         LEFT, up(p, v), WIDTH - RIGHT, LEFT - 8, up(p, v) + 4, digits,
                         fabs(v) < tick / 2 ? 0 : v);
    }
    for (int e = (int)ceil(p->x0 - 1e-9); e <= p->x1 + 1e-9; e++)
        ls_buffer_format(&p->b,
                         "<path class=\"axis\" d=\"M%.1f %dv5\"/><text x=\"%.1f\" y=\"%d\" "
                         "text-anchor=\"middle\">1e%d</text>\n",
                         across(p, pow(10, e)), HEIGHT - BOTTOM, across(p, pow(10, e)),
                         HEIGHT - BOTTOM + 19, e);
    ls_buffer_format(&p->b,
                     "<path class=\"axis\" d=\"M%d %dH%d\"/><text x=\"%d\" y=\"%d\" "
                     "text-anchor=\"middle\">optimizer.lr</text>\n",
                     LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

static void draw_curve(plot *p, const search *r, bool smoothed)
{
    ls_buffer_format(&p->b, "<path class=\"%s\" clip-path=\"url(#frame)\" d=\"",
                     smoothed ? "smoothed" : "loss");
    for (int i = 0; i < r->test.count; i++) {
        const double y = up(p, smoothed ? r->test.point[i].smoothed : r->test.point[i].loss);
        ls_buffer_format(
            &p->b, "%c%.1f %.1f", i ? 'L' : 'M', across(p, r->test.point[i].lr),
            fmax(-HEIGHT, y)); /* lines far outside of the plot are clipped in any case */
    }
    ls_buffer_put(&p->b, "\"/>\n");
}

/* Draws an entry of the legend at `x`: the SVG element `shape` as a sample, and the name. */
static void draw_key(plot *p, int x, const char *shape, const char *name, double value)
{
    ls_buffer_format(&p->b, "<g transform=\"translate(%d 50)\">%s<text x=\"24\" y=\"4\">%s", x,
                     shape, name);
    if (!isnan(value))
        ls_buffer_format(&p->b, " %.2g", value);
    ls_buffer_put(&p->b, "</text></g>\n");
}

static void draw_findings(plot *p, const search *r, const ls_range_finding *f)
{
    const ls_range_point *steepest = &r->test.point[f->steepest], *least = &r->test.point[f->least];
    ls_buffer_format(&p->b,
                     "<path class=\"suggestion\" d=\"M%.1f %dV%d\"/>"
                     "<circle class=\"steepest\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>"
                     "<circle class=\"least\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n",
                     across(p, f->suggestion), TOP, HEIGHT - BOTTOM, across(p, steepest->lr),
                     up(p, steepest->smoothed), across(p, least->lr), up(p, least->smoothed));
    draw_key(p, 270, "<circle class=\"steepest\" cx=\"12\" r=\"6\"/>", "steepest", steepest->lr);
    draw_key(p, 410, "<circle class=\"least\" cx=\"12\" r=\"6\"/>", "least", least->lr);
    draw_key(p, 520, "<path class=\"suggestion\" d=\"M0 0H20\"/>", "suggestion", f->suggestion);
}

static int write_svg(const search *r, const ls_range_finding *f)
{
    ls_error err;
    plot p;
    ls_buffer_init(&p.b, NULL);
    choose_scale(&p, r);
    ls_buffer_format(
        &p.b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
        "%s<clipPath id=\"frame\"><rect x=\"%d\" y=\"%d\" width=\"%d\" "
        "height=\"%d\"/></clipPath>\n<rect class=\"paper\" width=\"%d\" "
        "height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"28\">",
        WIDTH, HEIGHT, style, LEFT, TOP - 6, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 6, WIDTH,
        HEIGHT, LEFT - 40);
    ls_page_escape(&p.b, r->name);
    ls_buffer_format(&p.b, "%s: loss by learning rate</text>\n",
                     r->synthetic ? " (SYNTHETIC data)" : "");
    draw_axes(&p);
    draw_key(&p, LEFT - 40, "<path class=\"loss\" d=\"M0 0H20\"/>", "minibatches", NAN);
    draw_key(&p, LEFT + 90, "<path class=\"smoothed\" d=\"M0 0H20\"/>", "smoothed", NAN);
    draw_curve(&p, r, false);
    draw_curve(&p, r, true);
    if (f->least >= 0)
        draw_findings(&p, r, f);
    ls_buffer_put(&p.b, "</svg>\n");
    int code = ls_buffer_status(&p.b, &err);
    code = code ? cli_fail(code, err.text) : cli_write("--svg", r->a->svg, p.b.text, p.b.length);
    ls_buffer_fini(&p.b);
    return code;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int print(const search *r)
{
    const ls_range_finding f = ls_range_test_judge(&r->test);
    const bool json_on_stdout = r->a->json && strcmp(r->a->json, "-") == 0;
    print_table(r, &f, json_on_stdout ? stderr : stdout);
    int code = cli_flush();
    if (r->a->svg && code == 0)
        code = write_svg(r, &f);
    if (r->a->json && code == 0)
        code = write_json(r, &f);
    return code;
}

int cli_find_lr(int argc, char **argv, const ls_registry *registry)
{
    arguments a;
    ls_error err;
    int code = parse(&a, argc, argv);
    if (code)
        return code;
    cli_directories places;
    const ls_trainer_options o = cli_options(&places, a.config, &a.set, registry, true, NULL);
    code = cli_spare_config("find-lr", "svg", a.svg, &o);
    code = code ? code : cli_spare_config("find-lr", "json", a.json, &o);
    if (code)
        return code;
    search r = {
        .test = {.from = a.from, .to = a.to, .steps = a.steps, .progress = show_progress},
        .a = &a,
    };
    r.test.user = &r;
    r.test.point = calloc((size_t)a.steps, sizeof *r.test.point);
    if (!r.test.point)
        return cli_fail(LS_ENOMEM, "out of memory for the points of a range test");
    cli_view_init(&r.view, a.quiet);
    cli_catch_signals();
    int status = run(&r, registry, &err);
    code = status ? cli_fail(status, err.text) : print(&r);
    free(r.test.point);
    return code;
}
