/* Numbers that a monitoring system fetches: counters, gauges and histograms in Prometheus' text form.
 *
 *     static metrics all;                                  // zeroed memory of the caller's
 *     metric *steps = metrics_counter(&all, "steps_total", NULL, "Steps that were trained.");
 *     metric_add(steps, 1);                                // any thread
 *     size_t length = metrics_write(&all, buffer, sizeof buffer);
 *
 * It allocates nothing, and knows of no server. Metrics are registered by one thread before others see
 * them; those of one name and different labels are registered one after another, with the same help.
 * All other functions may be called by any thread at any time.
 */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { METRICS_MOST = 64, METRICS_BUCKETS = 16 };

typedef enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM } metric_kind;

typedef struct metric {
    metric_kind kind;
    const char *name, *labels, *help; /* labels: `path="/x",code="200"`, or NULL */
    atomic_uint_fast64_t bits;        /* of a double: the value, or a histogram's sum */
    const double *bounds;             /* upper, ascending; one more bucket holds what is above */
    int bound_count;
    atomic_uint_fast64_t bucket[METRICS_BUCKETS + 1];
} metric;

typedef struct metrics {
    metric list[METRICS_MOST];
    int count;
} metrics;

/* Each returns the new metric. Texts and bounds are kept, not copied. There is room for METRICS_MOST
 * metrics of at most METRICS_BUCKETS bounds: more are an error of the programmer's. */
metric *metrics_counter(metrics *all, const char *name, const char *labels, const char *help);
metric *metrics_gauge(metrics *all, const char *name, const char *labels, const char *help);
metric *metrics_histogram(metrics *all, const char *name, const char *labels, const char *help,
                          const double *bounds, int bound_count);

void metric_add(metric *m, double amount);    /* counters and gauges */
void metric_set(metric *m, double value);     /* gauges */
void metric_hide(metric *m);                  /* gauges: not written until they are set again */
void metric_observe(metric *m, double value); /* histograms */
double metric_value(const metric *m);         /* of a histogram: its sum */

/* Writes all of them, and a terminating zero, into `out` as far as `size` allows; returns the length of
 * the whole, without the zero, as snprintf does. */
size_t metrics_write(const metrics *all, char *out, size_t size);

/* What Prometheus' text form wants as Content-Type. */
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

#endif
