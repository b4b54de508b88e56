/* SPDX-License-Identifier: MIT */
/* Counters, gauges and histograms in Prometheus' text format, for a monitoring system to fetch.
 *
 *     static metrics all;                                  // zeroed memory of the caller
 *     metric *steps = metrics_counter(&all, "steps_total", NULL, "Steps that were trained.");
 *     metric_add(steps, 1);                                // any thread
 *     size_t length = metrics_write(&all, buffer, sizeof buffer);
 *
 * These functions allocate nothing and need no server. One thread registers all metrics before
 * other threads use them. Metrics with one name and different labels are registered one after
 * another, with the same help text. Then any thread may call the other functions. */
#ifndef HTTP_METRICS_H
#define HTTP_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { METRICS_MOST = 96, METRICS_BUCKETS = 16 };

typedef enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM } metric_kind;

typedef struct metric {
    metric_kind kind;
    const char *name, *labels, *help; /* labels: `path="/x",code="200"`, or NULL */
    /* the bits of a double: the metric's value, or the sum of a histogram's values */
    atomic_uint_fast64_t bits;
    /* [bound_count] upper bounds of a histogram's buckets, ascending; one more bucket has the
     * larger values */
    const double *bounds;
    int bound_count;
    atomic_uint_fast64_t bucket[METRICS_BUCKETS + 1]; /* number of values in each bucket */
} metric;

typedef struct metrics {
    metric list[METRICS_MOST];
    int count;
} metrics;

/* These functions register a metric and return it, or return NULL if METRICS_MOST metrics are
 * registered already. A caller with a fixed number of metrics proves by a static assert that NULL
 * is not returned. Texts and bounds are not copied. At most METRICS_BUCKETS bounds are allowed;
 * more are a programming error (asserted). */
metric *metrics_counter(metrics *all, const char *name, const char *labels, const char *help);
metric *metrics_gauge(metrics *all, const char *name, const char *labels, const char *help);
metric *metrics_histogram(metrics *all, const char *name, const char *labels, const char *help,
                          const double *bounds, int bound_count);

void metric_add(metric *m, double amount); /* adds `amount` to a counter or a gauge */
void metric_set(metric *m, double value);  /* sets a gauge */
/* Omits a gauge or a counter from the text until it is set or added to, which begins at 0. */
void metric_hide(metric *m);
void metric_observe(metric *m, double value); /* counts a value in a histogram */
double metric_value(const metric *m);         /* returns the value; for a histogram: the sum */

/* Writes all metrics and a terminating zero to `out`, as far as `size` bytes allow. Returns the
 * length of the whole text without the zero, as snprintf does. */
size_t metrics_write(const metrics *all, char *out, size_t size);

/* Content-Type of Prometheus' text format. */
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

#endif
