/* What the service tells about itself: the numbers at /metrics, and the log. */
#include "service.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- numbers -------------------------------------------------------------------------------- */

static const double bounds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5};

/* Metrics of one name have to follow one another. */
static void init_requests(numbers *n, const char *const paths[ROUTES])
{
    static const char *const classes[CODE_CLASSES] = {"2xx", "4xx", "5xx"};
    for (int i = 0; i <= ROUTES; i++) {
        const char *path = i < ROUTES ? paths[i] : "other";
        snprintf(n->path[i], sizeof n->path[i], "path=\"%.30s\"", path);
        for (int k = 0; k < CODE_CLASSES; k++) {
            snprintf(n->labels[i][k], sizeof n->labels[i][k], "path=\"%.30s\",code=\"%s\"", path,
                     classes[k]);
            n->requests[i][k] = metrics_counter(&n->all, "service_requests_total", n->labels[i][k],
                                                "Requests that were answered.");
        }
    }
    for (int i = 0; i <= ROUTES; i++)
        n->seconds[i] = metrics_histogram(&n->all, "service_request_seconds", n->path[i],
                                          "From a request's headers to the end of its reply.",
                                          bounds, sizeof bounds / sizeof *bounds);
}

void numbers_init(numbers *n, const char *const paths[ROUTES], int has_classes)
{
    metrics *all = &n->all;
    n->steps = metrics_counter(all, "lockstep_steps_total", NULL,
                               "Steps of the model, those before a restart included.");
    n->trained_rows = metrics_counter(all, "lockstep_rows_total", NULL,
                                      "Rows trained on since the start, each pass counted.");
    n->loss = metrics_gauge(all, "lockstep_loss", NULL,
                            "Training loss, a mean of about the last 50 steps.");
    if (has_classes)
        n->accuracy = metrics_gauge(all, "lockstep_accuracy", NULL, "Training accuracy, likewise.");
    n->rate = metrics_gauge(all, "lockstep_rows_per_second", NULL,
                            "Rows trained on per second, over the last second or more.");
    n->shown_step = metrics_gauge(all, "service_snapshot_step", NULL,
                                  "Step of the weights that predictions use.");
    n->saves = metrics_counter(all, "service_saves_total", NULL, "Saves since the start.");
    n->failed_saves =
        metrics_counter(all, "service_failed_saves_total", NULL, "Saves that failed.");
    n->accepted = metrics_counter(all, "service_examples_accepted_total", NULL,
                                  "Examples that were put into the queue.");
    n->refused = metrics_counter(all, "service_examples_refused_total", NULL,
                                 "Examples that the queue had no room for.");
    n->predicted =
        metrics_counter(all, "service_predictions_total", NULL, "Rows that were predicted.");
    n->queue = metrics_gauge(all, "service_queue_examples", NULL,
                             "Examples that wait for their first training.");
    n->ready = metrics_gauge(all, "service_ready", NULL, "1 while /healthz answers 200.");
    init_requests(n, paths);
}

static void move_mean(metric *mean, double value, double weight)
{
    const double old = metric_value(mean);
    metric_set(mean, old + weight * (value - old));
}

void numbers_step(numbers *n, const ls_step_result *step, uint32_t rows)
{
    const double weight = metric_value(n->trained_rows) > 0 ? 0.02 : 1;
    if (isfinite(step->loss)) {
        move_mean(n->loss, step->loss, weight);
        if (n->accuracy)
            move_mean(n->accuracy, step->accuracy, weight);
    }
    metric_add(n->steps, 1);
    metric_add(n->trained_rows, rows);
}

void numbers_request(numbers *n, int route, int code, double took_s)
{
    metric_add(n->requests[route][code >= 500 ? 2 : code >= 400 ? 1 : 0], 1);
    metric_observe(n->seconds[route], took_s);
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- errors and the log --------------------------------------------------------------------- */

int fail(ls_error *err, int status, const char *format, ...)
{
    va_list args;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

/* One write, so that the lines of several threads stay whole. */
static void write_line(ls_log_level level, const char *text)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    char line[1024], stamp[32];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    int n = snprintf(line, sizeof line, "%s.%03ldZ %s: %s\n", stamp, now.tv_nsec / 1000000,
                     names[level], text);
    if (n >= (int)sizeof line) {
        n = sizeof line - 1;
        line[n - 1] = '\n';
    }
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nobody reads the log */
}

void say(ls_log_level level, const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    write_line(level, text);
}

static void log_line(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level > LS_LOG_DEBUG)
        write_line(level, text);
}

const ls_host service_host = {.size = sizeof service_host, .log = log_line};
