#include "traffic.h"

#include <stdio.h>

static const double bounds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5};

/* Metrics of one name follow one another. */
void traffic_init(traffic *t, metrics *all, const char *const *paths, int count)
{
    static const char *const kinds[TRAFFIC_KINDS] = {"2xx", "4xx", "5xx"};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < TRAFFIC_KINDS; k++) {
            snprintf(t->labels[i][k], sizeof t->labels[i][k], "path=\"%.30s\",code=\"%s\"",
                     paths[i], kinds[k]);
            t->requests[i][k] = metrics_counter(all, "service_requests_total", t->labels[i][k],
                                                "Requests that were answered.");
        }
    for (int i = 0; i < count; i++) {
        snprintf(t->path[i], sizeof t->path[i], "path=\"%.30s\"", paths[i]);
        t->latency[i] = metrics_histogram(all, "service_request_seconds", t->path[i],
                                          "From a request's headers to the end of its reply.",
                                          bounds, sizeof bounds / sizeof *bounds);
    }
}

void traffic_count(traffic *t, int path, int code, double latency_s)
{
    metric_add(t->requests[path][code >= 500 ? 2 : code >= 400 ? 1 : 0], 1);
    metric_observe(t->latency[path], latency_s);
}
