#include "tools/report_html.h"

#include "base/error.h"
#include "base/host.h"
#include "tools/report_style.h"
#include "tools/report_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Points a chart has at most: about one for two pixels. */
#define POINTS 240

/* ---- the head of the page ------------------------------------------------------------------- */

static const char *text_or(const ls_json *doc, const char *path, const char *fallback)
{
    const char *text = ls_log_text(doc, path);
    return text && *text ? text : fallback;
}

static int is_synthetic(const ls_run_log *log)
{
    return cJSON_IsTrue(ls_log_node(log->start, "data.synthetic")) ||
           cJSON_IsTrue(ls_log_node(log->end, "synthetic"));
}

static void add_note(ls_buffer *b, const char *kind, const char *title, const char *text)
{
    ls_buffer_format(b, "<p class=\"note %s\" role=\"note\"><strong>", kind);
    ls_buffer_escape(b, title);
    ls_buffer_put(b, "</strong> ");
    ls_buffer_escape(b, text);
    ls_buffer_put(b, "</p>\n");
}

/* A worker lost, a step left out, a run resumed: what the curves do not show. */
static void add_event(ls_buffer *b, const ls_json *event)
{
    char title[120], text[400];
    const char *type = text_or(event, "type", "");
    const double step = ls_log_number(event, "step");
    if (strcmp(type, "resume") == 0) {
        snprintf(title, sizeof title, "Resumed behind step %.0f.", step);
        snprintf(text, sizeof text, "What came before was done in an earlier process.");
    } else if (strcmp(type, "nonfinite") == 0) {
        snprintf(title, sizeof title, "Step %.0f was not applied.", step);
        snprintf(text, sizeof text, "The loss of shard %.0f, on worker %.0f, was not finite.",
                 ls_log_number(event, "shard"), ls_log_number(event, "worker"));
    } else {
        snprintf(title, sizeof title, "Step %.0f: worker %.0f, %s, failed.", step,
                 ls_log_number(event, "worker"), text_or(event, "device", "?"));
        snprintf(text, sizeof text, "%.300s (%s; devices left: %.0f)", text_or(event, "error", ""),
                 text_or(event, "action", "?"), ls_log_number(event, "devices_left"));
    }
    add_note(b, "", title, text);
}

static void add_events(ls_buffer *b, const ls_run_log *log)
{
    for (int i = 0; i < log->events && i < LS_LOG_EVENTS; i++)
        add_event(b, log->event[i]);
    if (log->events > LS_LOG_EVENTS)
        add_note(b, "", "And more.", "metrics.jsonl has all faults and resumes.");
}

/* A log that came from no directory is that of a run which goes on. */
static int is_live(const ls_run_log *log)
{
    return log->dir[0] == '\0';
}

static void add_notes(ls_buffer *b, const ls_run_log *log)
{
    const char *status = text_or(log->end, "status", "");
    if (!log->config)
        add_note(b, "", "Starting.", "Data and devices are being opened; the figures follow.");
    if (is_synthetic(log))
        add_note(b, "loud", "SYNTHETIC DATA.",
                 "The images were made up by the program: these results say nothing of real data.");
    if (strcmp(text_or(log->start, "data.payload", ""), "differs") == 0)
        add_note(b, "loud", "Other data.",
                 "The files are not the published ones of this name: results do not compare.");
    if (strcmp(status, "failed") == 0)
        add_note(b, "loud", "The run failed:", text_or(log->end, "error", "no reason was given"));
    else if (strcmp(status, "interrupted") == 0)
        add_note(b, "", "Interrupted.", "The run was stopped before its last epoch was over.");
    else if (!log->end && !is_live(log))
        add_note(b, "", "No end.",
                 "The run was still going when this was written, or it was killed.");
    if (log->cut_line) {
        ls_buffer_put(b, "<p class=\"note\" role=\"note\"><strong>Cut off.</strong> ");
        ls_buffer_format(b,
                         "The last record, line %d of metrics.jsonl, is incomplete and was left "
                         "out.</p>\n",
                         log->cut_line);
    }
    add_events(b, log);
}

static void add_heading(ls_buffer *b, const ls_run_log *log)
{
    const char *started = text_or(log->start, "time", NULL);
    const char *version = text_or(log->start, "lockstep", NULL);
    const char *now = !log->config ? "starting" : is_live(log) ? "under way" : "not ended";
    ls_buffer_put(b, "<header><h1>");
    ls_buffer_escape(b, text_or(log->config, "name", "run"));
    ls_buffer_put(b, "</h1><p class=\"sub\">");
    ls_buffer_escape(b, text_or(log->end, "status", now));
    if (started) {
        ls_buffer_put(b, " · started ");
        ls_buffer_escape(b, started);
    }
    if (!is_live(log)) {
        ls_buffer_put(b, " · ");
        ls_buffer_escape(b, log->dir);
    }
    if (version) {
        ls_buffer_put(b, " · Lockstep ");
        ls_buffer_escape(b, version);
    }
    ls_buffer_put(b, "</p></header>\n");
}

/* ---- the tiles ------------------------------------------------------------------------------ */

static void open_tile(ls_buffer *b, const char *name)
{
    ls_buffer_put(b, "<div class=\"tile\"><dt>");
    ls_buffer_escape(b, name);
    ls_buffer_put(b, "</dt><dd>");
}

static void close_tile(ls_buffer *b, const char *detail)
{
    ls_buffer_put(b, "</dd>");
    if (detail && *detail) {
        ls_buffer_put(b, "<dd class=\"detail\">");
        ls_buffer_escape(b, detail);
        ls_buffer_put(b, "</dd>");
    }
    ls_buffer_put(b, "</div>\n");
}

static void add_tile(ls_buffer *b, const char *name, double value, int digits, const char *unit,
                     const char *detail)
{
    open_tile(b, name);
    ls_buffer_number(b, value, digits);
    if (*unit) {
        ls_buffer_put(b, " <small>");
        ls_buffer_escape(b, unit);
        ls_buffer_put(b, "</small>");
    }
    close_tile(b, detail);
}

/* What the finished epochs say together. */
typedef struct totals {
    double seconds_per_epoch, images_per_s, test_accuracy, test_loss;
    int test_epoch;
} totals;

static totals sum_up(const ls_run_log *log)
{
    totals t = {NAN, NAN, NAN, NAN, 0};
    double seconds = 0, images = 0;
    int timed = 0;
    for (size_t i = 0; i < log->epochs; i++) {
        const ls_log_epoch *e = &log->epoch[i];
        if (isfinite(e->seconds) && isfinite(e->images_per_s)) {
            seconds += e->seconds;
            images += e->seconds * e->images_per_s;
            timed++;
        }
        if (isfinite(e->test_accuracy)) {
            t.test_accuracy = e->test_accuracy;
            t.test_loss = e->test_loss;
            t.test_epoch = e->epoch;
        }
    }
    if (timed > 0) {
        t.seconds_per_epoch = seconds / timed;
        t.images_per_s = images / seconds;
    }
    return t;
}

static void add_devices_tile(ls_buffer *b, const ls_run_log *log)
{
    const cJSON *devices = ls_log_node(log->start, "devices"), *device;
    open_tile(b, "Devices");
    ls_buffer_number(b, devices ? cJSON_GetArraySize(devices) : NAN, 0);
    ls_buffer_put(b, "</dd><dd class=\"detail\">");
    const char *between = "";
    cJSON_ArrayForEach(device, devices)
    {
        if (!cJSON_IsString(device))
            continue;
        ls_buffer_put(b, between);
        ls_buffer_escape(b, device->valuestring);
        between = ", ";
    }
    close_tile(b, NULL);
}

static void add_data_tile(ls_buffer *b, const ls_run_log *log)
{
    open_tile(b, "Data");
    ls_buffer_escape(b, text_or(log->start, "data.name", "unknown"));
    ls_buffer_put(b, "</dd><dd class=\"detail\">");
    ls_buffer_number(b, ls_log_number(log->start, "data.train_rows"), 0);
    ls_buffer_put(b, " for training, ");
    ls_buffer_number(b, ls_log_number(log->start, "data.test_rows"), 0);
    ls_buffer_put(b, " for test");
    close_tile(b, is_synthetic(log) ? "SYNTHETIC" : NULL);
}

static void add_epochs_tile(ls_buffer *b, const ls_run_log *log)
{
    open_tile(b, "Epochs");
    ls_buffer_number(b, (double)log->epochs, 0);
    ls_buffer_put(b, " <small>of ");
    ls_buffer_number(b, ls_log_number(log->config, "epochs"), 0);
    ls_buffer_put(b, "</small></dd><dd class=\"detail\">");
    ls_buffer_number(b, (double)log->steps, 0);
    ls_buffer_put(b, " steps");
    close_tile(b, NULL);
}

static void add_tiles(ls_buffer *b, const ls_run_log *log)
{
    totals t = sum_up(log);
    ls_buffer_put(b, "<dl class=\"tiles\">\n");
    open_tile(b, "Test accuracy");
    ls_buffer_number(b, t.test_accuracy, 4);
    if (t.test_epoch > 0) {
        ls_buffer_format(b, "</dd><dd class=\"detail\">after epoch %d, loss ", t.test_epoch);
        ls_buffer_number(b, t.test_loss, 4);
    }
    close_tile(b, NULL);
    add_tile(b, "Training", t.seconds_per_epoch, t.seconds_per_epoch < 10 ? 2 : 1, "s/epoch",
             "without evaluation");
    add_tile(b, "Throughput", t.images_per_s, 0, "images/s", "mean over epochs");
    add_data_tile(b, log);
    add_devices_tile(b, log);
    open_tile(b, "Parameters");
    ls_buffer_number(b, ls_log_number(log->start, "parameters"), 0);
    ls_buffer_put(b, "</dd><dd class=\"detail\">");
    ls_buffer_number(b, ls_log_number(log->start, "parameter_bytes") / 1e6, 2);
    ls_buffer_put(b, " MB; ");
    ls_buffer_number(b, ls_log_number(log->start, "device_bytes") / 1e6, 1);
    ls_buffer_put(b, " MB on a device");
    close_tile(b, NULL);
    open_tile(b, "Minibatch");
    ls_buffer_number(b, ls_log_number(log->start, "batch_size"), 0);
    ls_buffer_put(b, "</dd><dd class=\"detail\">");
    ls_buffer_number(b, ls_log_number(log->start, "batch_per_device"), 0);
    ls_buffer_put(b, " per device, ");
    ls_buffer_number(b, ls_log_number(log->start, "shards"), 0);
    ls_buffer_put(b, " shards");
    close_tile(b, NULL);
    add_epochs_tile(b, log);
    ls_buffer_put(b, "</dl>\n");
}

/* ---- the charts ----------------------------------------------------------------------------- */

static double step_value(const ls_log_step *s, int rate)
{
    return rate ? s->images_per_s : s->loss;
}

/* Mean and range of up to POINTS buckets of steps; returns how many there are. */
static size_t bucket_steps(ls_svg_point *out, const ls_run_log *log, int rate)
{
    size_t buckets = log->steps < POINTS ? log->steps : POINTS;
    for (size_t i = 0; i < buckets; i++) {
        size_t first = log->steps * i / buckets, end = log->steps * (i + 1) / buckets, n = 0;
        ls_svg_point p = {.x = (double)log->step[end - 1].step,
                          .y = 0,
                          .lo = INFINITY,
                          .hi = -INFINITY,
                          .from = (double)log->step[first].step};
        for (size_t k = first; k < end; k++) {
            double value = step_value(&log->step[k], rate);
            if (!isfinite(value) || (rate && value <= 0))
                continue;
            p.y += rate ? 1 / value : value;
            p.lo = value < p.lo ? value : p.lo;
            p.hi = value > p.hi ? value : p.hi;
            n++;
        }
        /* Steps have the same images: their rates' harmonic mean is the rate over all of them. */
        p.y = n == 0 ? NAN : rate ? (double)n / p.y : p.y / (double)n;
        if (n == 0 || log->steps <= POINTS)
            p.lo = p.hi = NAN;
        out[i] = p;
    }
    return buckets;
}

enum { TRAIN_ACCURACY, TEST_ACCURACY, TEST_LOSS };

/* One point for each epoch, at the epoch or at its last step. */
static size_t epoch_points(ls_svg_point *out, const ls_run_log *log, int what)
{
    for (size_t i = 0; i < log->epochs; i++) {
        const ls_log_epoch *e = &log->epoch[i];
        double x = what == TEST_LOSS ? (double)e->last_step : e->epoch;
        double y = what == TEST_LOSS       ? e->test_loss
                   : what == TEST_ACCURACY ? e->test_accuracy
                                           : e->train_accuracy;
        out[i] = (ls_svg_point){.x = x, .y = y, .lo = NAN, .hi = NAN, .from = x};
    }
    return log->epochs;
}

/* Epochs without an evaluation leave no gap in the curve between those with one. */
static size_t drop_gaps(ls_svg_point *point, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(point[i].y))
            point[kept++] = point[i];
    return kept;
}

static void add_loss_chart(ls_buffer *b, const ls_run_log *log, ls_svg_point *steps,
                           ls_svg_point *epochs)
{
    size_t n = bucket_steps(steps, log, 0);
    const char *name = log->steps > POINTS ? "minibatches (mean and range)" : "minibatch";
    ls_svg_chart c = {.title = "Loss",
                      .x_name = "step",
                      .unit = "",
                      .digits = 4,
                      .from_zero = 1,
                      .most = NAN,
                      .curves = 2};
    c.curve[0] = (ls_svg_curve){.name = name, .colour = 2, .point = steps, .count = n};
    c.curve[1] = (ls_svg_curve){.name = "test",
                                .colour = 4,
                                .dots = 1,
                                .no_line = 1,
                                .point = epochs,
                                .count = drop_gaps(epochs, epoch_points(epochs, log, TEST_LOSS))};
    ls_svg_chart_add(b, &c);
}

static void add_accuracy_chart(ls_buffer *b, const ls_run_log *log, ls_svg_point *train,
                               ls_svg_point *test)
{
    ls_svg_chart c = {
        .title = "Accuracy", .x_name = "epoch", .unit = "", .digits = 4, .most = 1, .curves = 2};
    c.curve[0] = (ls_svg_curve){.name = "training",
                                .colour = 2,
                                .dots = 1,
                                .point = train,
                                .count = epoch_points(train, log, TRAIN_ACCURACY)};
    c.curve[1] = (ls_svg_curve){.name = "test",
                                .colour = 4,
                                .dots = 1,
                                .point = test,
                                .count = drop_gaps(test, epoch_points(test, log, TEST_ACCURACY))};
    ls_svg_chart_add(b, &c);
}

static void add_rate_chart(ls_buffer *b, const ls_run_log *log, ls_svg_point *steps)
{
    size_t n = bucket_steps(steps, log, 1);
    const char *name = log->steps > POINTS ? "steps (mean and range)" : "step";
    ls_svg_chart c = {.title = "Throughput",
                      .x_name = "step",
                      .unit = "images/s",
                      .from_zero = 1,
                      .cut_ranges = 1,
                      .most = NAN,
                      .curves = 1};
    c.curve[0] =
        (ls_svg_curve){.name = name, .colour = 2, .unnamed_last = 1, .point = steps, .count = n};
    ls_svg_chart_add(b, &c);
}

static void add_time_chart(ls_buffer *b, const ls_run_log *log, double *ms)
{
    for (int i = 0; i < log->workers * LS_PHASES; i++)
        ms[i] = log->phase_s[i] * 1e3 / (double)log->timed_steps;
    ls_svg_bars s = {.title = "Where a step's time goes",
                     .x_name = "ms per step (mean)",
                     .row_name = "worker",
                     .names = ls_phase_names,
                     .parts = LS_PHASES,
                     .rows = log->workers,
                     .value = ms};
    ls_svg_bars_add(b, &s);
}

static int add_charts(ls_buffer *b, const ls_run_log *log, ls_error *err)
{
    size_t points = POINTS + 2 * log->epochs;
    ls_svg_point *point = ls_alloc_array(log->host, points, sizeof *point);
    double *ms = ls_alloc_array(log->host, (size_t)log->workers * LS_PHASES, sizeof *ms);
    int status = point && ms ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the charts");
    if (status == LS_OK) {
        ls_svg_point *first = point + POINTS, *second = first + log->epochs;
        ls_buffer_put(b, "<section class=\"charts\">\n");
        add_accuracy_chart(b, log, first, second);
        add_loss_chart(b, log, point, first);
        add_rate_chart(b, log, point);
        add_time_chart(b, log, ms);
        ls_buffer_put(b, "</section>\n");
    }
    ls_free(log->host, ms);
    ls_free(log->host, point);
    return status;
}

/* ---- facts and config ----------------------------------------------------------------------- */

static void add_fact(ls_buffer *b, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    ls_buffer_put(b, "<dt>");
    ls_buffer_escape(b, name);
    ls_buffer_put(b, "</dt><dd>");
    ls_buffer_escape(b, value);
    ls_buffer_put(b, "</dd>\n");
}

static void add_facts(ls_buffer *b, const ls_run_log *log)
{
    ls_buffer_put(b, "<section><h2>Where and what</h2><dl class=\"facts\">\n");
    add_fact(b, "Device", ls_log_text(log->start, "device_model"));
    add_fact(b, "Instruction set", ls_log_text(log->start, "instruction_set"));
    add_fact(b, "Library", ls_log_text(log->start, "library"));
    add_fact(b, "Data from", ls_log_text(log->start, "data.source"));
    add_fact(b, "Data is", ls_log_text(log->start, "data.payload"));
    add_fact(b, "Started", ls_log_text(log->start, "time"));
    add_fact(b, "Ended", ls_log_text(log->end, "time"));
    add_fact(b, "Weights' SHA-256", ls_log_text(log->end, "weights_sha256"));
    ls_buffer_put(b, "</dl></section>\n");
}

static int add_config(ls_buffer *b, const ls_run_log *log, ls_error *err)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, log->host);
    ls_json_put_node(&w, NULL, ls_json_root(log->config));
    const char *text = ls_json_writer_text(&w, NULL, err);
    if (text) {
        ls_buffer_put(b, "<section><h2>Resolved config</h2><pre tabindex=\"0\">");
        ls_buffer_escape(b, text);
        ls_buffer_put(b, "</pre></section>\n");
    }
    ls_json_writer_fini(&w);
    return text ? LS_OK : LS_ENOMEM;
}

static int add_figures(ls_buffer *b, const ls_run_log *log, const ls_report_live *live,
                       ls_error *err)
{
    add_tiles(b, log);
    int status = add_charts(b, log, err);
    if (status)
        return status;
    ls_buffer_put(b, live ? live->section : "");
    add_facts(b, log);
    return add_config(b, log, err);
}

int ls_report_page(ls_buffer *b, const ls_run_log *log, const ls_report_live *live, ls_error *err)
{
    ls_buffer_put(b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'");
    ls_buffer_put(b, live ? "; script-src 'unsafe-inline'; connect-src 'self'" : "");
    ls_buffer_put(b, "\">\n"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    ls_buffer_escape(b, text_or(log->config, "name", "run"));
    ls_buffer_put(b, is_synthetic(log) ? " (SYNTHETIC data)" : "");
    ls_buffer_put(b, ": Lockstep run report</title>\n<style>\n");
    ls_buffer_put(b, ls_report_style);
    ls_buffer_put(b, "</style>\n</head>\n<body>\n<main>\n");
    add_heading(b, log);
    add_notes(b, log);
    const int status = log->config ? add_figures(b, log, live, err) : LS_OK;
    ls_buffer_put(b, "</main>\n");
    if (live) {
        ls_buffer_put(b, "<script>\n");
        ls_buffer_put(b, live->script);
        ls_buffer_put(b, "</script>\n");
    }
    ls_buffer_put(b, "</body>\n</html>\n");
    return status ? status : ls_buffer_status(b, err);
}
