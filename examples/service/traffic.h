/* What is counted of requests: how many by path and kind of status, and how long they took. */
#ifndef SERVICE_TRAFFIC_H
#define SERVICE_TRAFFIC_H

#include "http/metrics.h"

enum { TRAFFIC_PATHS = 8, TRAFFIC_KINDS = 3 /* 2xx, 4xx, 5xx */ };

typedef struct traffic {
    metric *requests[TRAFFIC_PATHS][TRAFFIC_KINDS], *latency[TRAFFIC_PATHS];
    char labels[TRAFFIC_PATHS][TRAFFIC_KINDS][64], path[TRAFFIC_PATHS][40];
} traffic;

/* At most TRAFFIC_PATHS names; `t` stays where it is. */
void traffic_init(traffic *t, metrics *all, const char *const *paths, int count);
void traffic_count(traffic *t, int path, int code, double latency_s);

#endif
