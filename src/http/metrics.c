/* SPDX-License-Identifier: MIT */
#include "http/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- registering ----------------------------------------------------------------------------- */

static metric *add(metrics *all, metric_kind kind, const char *name, const char *labels,
                   const char *help)
{
    if (all->count == METRICS_MOST)
        return NULL;
    metric *m = &all->list[all->count++];
    *m = (metric){.kind = kind, .name = name, .labels = labels, .help = help};
    return m;
}

metric *metrics_counter(metrics *all, const char *name, const char *labels, const char *help)
{
    return add(all, METRIC_COUNTER, name, labels, help);
}

metric *metrics_gauge(metrics *all, const char *name, const char *labels, const char *help)
{
    return add(all, METRIC_GAUGE, name, labels, help);
}

metric *metrics_histogram(metrics *all, const char *name, const char *labels, const char *help,
                          const double *bounds, int bound_count)
{
    assert(bound_count <= METRICS_BUCKETS);
    metric *m = add(all, METRIC_HISTOGRAM, name, labels, help);
    if (m) {
        m->bounds = bounds;
        m->bound_count = bound_count;
    }
    return m;
}

/* ---- measuring; atomics are relaxed, because they publish no other memory -------------------- */

static double number(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Bits of a hidden metric: a NaN that no arithmetic produces. */
#define HIDDEN UINT64_C(0x7ff800006d697373)

void metric_add(metric *m, double amount)
{
    uint_fast64_t old = atomic_load_explicit(&m->bits, memory_order_relaxed);
    double sum;
    do
        sum = (old == HIDDEN ? 0 : number(old)) + amount;
    while (!atomic_compare_exchange_weak_explicit(&m->bits, &old, bits_of(sum),
                                                  memory_order_relaxed, memory_order_relaxed));
}

void metric_hide(metric *m)
{
    atomic_store_explicit(&m->bits, HIDDEN, memory_order_relaxed);
}

void metric_set(metric *m, double value)
{
    atomic_store_explicit(&m->bits, bits_of(value), memory_order_relaxed);
}

void metric_observe(metric *m, double value)
{
    int b = 0;
    while (b < m->bound_count && value > m->bounds[b])
        b++;
    atomic_fetch_add_explicit(&m->bucket[b], 1, memory_order_relaxed);
    metric_add(m, value);
}

double metric_value(const metric *m)
{
    return number(atomic_load_explicit(&m->bits, memory_order_relaxed));
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writer {
    char *out;
    size_t size, length; /* bytes of `out`; bytes of the whole text, which can be more */
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    const size_t at = w->length < w->size ? w->length : w->size;
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was begun a line before */
    int n = vsnprintf(w->out ? w->out + at : NULL, w->size - at, format, args);
    va_end(args);
    w->length += n > 0 ? (size_t)n : 0;
}

static void put_number(writer *w, double value)
{
    if (isnan(value))
        put(w, " NaN\n");
    else if (isinf(value))
        put(w, value > 0 ? " +Inf\n" : " -Inf\n");
    else
        put(w, " %.17g\n", value);
}

/* Writes the name and its suffix, and the labels. */
static void put_name(writer *w, const metric *m, const char *behind)
{
    put(w, "%s%s", m->name, behind);
    if (m->labels)
        put(w, "{%s}", m->labels);
}

/* Writes a histogram. The line of a bucket has the number of all values up to the bucket's bound,
 * the values in earlier buckets included. The line `_count` repeats the number of the last bucket's
 * line. Therefore the two numbers are equal even if other threads observe values at the same
 * time. */
static void put_histogram(writer *w, const metric *m)
{
    const char *labels = m->labels ? m->labels : "", *comma = m->labels ? "," : "";
    unsigned long long below = 0;
    for (int b = 0; b <= m->bound_count; b++) {
        below += atomic_load_explicit(&m->bucket[b], memory_order_relaxed);
        if (b < m->bound_count)
            put(w, "%s_bucket{%s%sle=\"%g\"} %llu\n", m->name, labels, comma, m->bounds[b], below);
        else
            put(w, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", m->name, labels, comma, below);
    }
    put_name(w, m, "_sum");
    put_number(w, metric_value(m));
    put_name(w, m, "_count");
    put(w, " %llu\n", below);
}

size_t metrics_write(const metrics *all, char *out, size_t size)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    writer w = {out, size, 0};
    if (size > 0)
        *out = '\0';
    const char *name = ""; /* name of the metric that was written last */
    for (int i = 0; i < all->count; i++) {
        const metric *m = &all->list[i];
        if (m->kind != METRIC_HISTOGRAM &&
            atomic_load_explicit(&m->bits, memory_order_relaxed) == HIDDEN)
            continue;
        if (strcmp(m->name, name) != 0)
            put(&w, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, kinds[m->kind]);
        name = m->name;
        if (m->kind == METRIC_HISTOGRAM) {
            put_histogram(&w, m);
            continue;
        }
        put_name(&w, m, "");
        put_number(&w, metric_value(m));
    }
    return w.length;
}
