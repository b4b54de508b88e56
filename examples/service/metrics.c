/* SPDX-License-Identifier: MIT */
/* The service's own state: the numbers at /metrics, and the log. */
#include "service.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* ---- numbers -------------------------------------------------------------------------------- */

static const struct {
    int counts; /* 1: a counter; 0: a gauge */
    const char *name, *labels, *help;
} kinds[NUMBERS] = {
    [STEPS] = {1, "lockstep_steps_total", NULL,
               "Steps of the model, those before a restart included."},
    [ROWS_TRAINED] = {1, "lockstep_rows_total", NULL,
                      "Rows trained on since the start, each pass counted."},
    [LOSS] = {0, "lockstep_loss", NULL, "Training loss, a mean of about the last 50 steps."},
    [ACCURACY] = {0, "lockstep_accuracy", NULL, "Training accuracy, likewise."},
    [RATE] = {0, "lockstep_learning_rate", NULL, "Learning rate of the last step."},
    [SHOWN_STEP] = {0, "service_model_step", NULL, "Step of the weights that predictions use."},
    [SAVES] = {1, "service_saves_total", NULL, "Saves since the start."},
    [FAILED_SAVES] = {1, "service_failed_saves_total", NULL, "Saves that failed."},
    [ACCEPTED] = {1, "service_examples_accepted_total", NULL,
                  "Examples that were put into the queue."},
    [REFUSED] = {1, "service_examples_refused_total", NULL,
                 "Examples that the queue had no room for."},
    [PREDICTED] = {1, "service_predictions_total", NULL, "Rows that were predicted."},
    [QUEUE] = {0, "service_queue_examples", NULL, "Examples that wait for their first training."},
    [READY] = {0, "service_ready", NULL, "1 while /healthz answers 200."},
    [ANSWERS_2XX] = {1, "service_requests_total", "code=\"2xx\"", "Requests that were answered."},
    [ANSWERS_4XX] = {1, "service_requests_total", "code=\"4xx\"", "Requests that were answered."},
    [ANSWERS_5XX] = {1, "service_requests_total", "code=\"5xx\"", "Requests that were answered."}};
_Static_assert(NUMBERS <= (int)METRICS_MOST, "more numbers than METRICS_MOST (http/metrics.h)");

void numbers_init(numbers *n)
{
    for (int i = 0; i < NUMBERS; i++) {
        if (kinds[i].counts)
            n->of[i] = metrics_counter(&n->all, kinds[i].name, kinds[i].labels, kinds[i].help);
        else
            n->of[i] = metrics_gauge(&n->all, kinds[i].name, kinds[i].labels, kinds[i].help);
    }
}

static void move_mean(metric *mean, double value, double weight)
{
    const double old = metric_value(mean);
    metric_set(mean, old + weight * (value - old));
}

void numbers_step(numbers *n, const ls_step_result *step, uint32_t rows)
{
    const double weight = metric_value(n->of[ROWS_TRAINED]) > 0 ? 0.02 : 1;
    if (isfinite(step->loss)) {
        move_mean(n->of[LOSS], step->loss, weight);
        move_mean(n->of[ACCURACY], step->accuracy, weight);
    }
    metric_set(n->of[RATE], step->lr);
    metric_add(n->of[STEPS], 1);
    metric_add(n->of[ROWS_TRAINED], rows);
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
    *err = (ls_error){.status = status};
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

void say(const char *format, ...)
{
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
}

static void log_line(void *user, ls_log_level level, const char *text)
{
    (void)user;
    if (level > LS_LOG_DEBUG)
        say("%s", text);
}

const ls_host service_host = {.size = sizeof service_host, .log = log_line};
