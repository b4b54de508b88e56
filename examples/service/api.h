/* What the service answers, without the server: a request's body in, a status and a text out. */
#ifndef SERVICE_API_H
#define SERVICE_API_H

#include "learner.h"
#include "text.h"
#include "together.h"

typedef struct service {
    const options *o;
    journal *examples;
    board snapshots;
    learner *training;
    metrics numbers;
    together predictions;
    metric *accepted, *refused, *predicted, *queue, *held, *syncs, *cut, *ready;
} service;

typedef struct request {
    const char *content_type; /* may be NULL */
    const char *body;
    size_t length;
} request;

typedef struct reply {
    int code;         /* 0 becomes 200 */
    const char *type; /* NULL: application/json */
    text body;
    int retry_after_s; /* 0: says nothing */
} reply;

typedef struct route {
    const char *path, *method;
    void (*answer)(service *s, const request *r, reply *out);
} route;

extern const route api_routes[];
extern const int api_route_count;

/* The body becomes {"error": …}. */
__attribute__((format(printf, 3, 4))) void reply_error(reply *out, int code, const char *format,
                                                       ...);

/* Registers what is counted here, and sets up what the caller does not set. */
void api_init(service *s);
void api_fini(service *s);

#endif
