/* SPDX-License-Identifier: MIT */
/* The server: libmicrohttpd, called through the guard of src/http, with a thread for each
 * connection. A request's body of at most --body bytes is collected; then the function of the
 * request's route (path and method) answers. An error is answered with {"error": "…"}. */
#include "service.h"

#include "http/guard.h"

#include <errno.h>
#include <lockstep/model.h>
#include <math.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* bytes of a refused body that are read and discarded, so that the sender then reads the
     * answer */
    DISCARDED_MOST = 64 << 20,
    CONNECTION_MEMORY = 64 * 1024 /* bytes for the headers and a piece of the body */
};

struct server {
    const options *o;
    learner *learner;
    ls_model *model; /* model of table rows; NULL: none */
    numbers *n;
    http_guard *guard;
};

struct route;

/* One request, from its headers to the end of its reply. */
typedef struct call {
    server *s;
    const struct route *route; /* NULL: no route has the request's path */
    uint8_t *body;
    size_t length, discarded;
    /* The reply. */
    /* HTTP status code; 0: not known yet. A code that is set before the route's function is called
     * is that of a refusal */
    int code;
    const char *type, *allow;
    int retry_after_s; /* value of the header Retry-After; 0: no such header */
    char *text;        /* body of the reply, from malloc */
    size_t text_length;
} call;

/* ---- replies -------------------------------------------------------------------------------- */

/* Makes the reply an error with a formatted message, as JSON. */
__attribute__((format(printf, 3, 4))) static void refuse(call *k, int code, const char *format, ...)
{
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    free(k->text);
    k->code = code;
    k->type = "application/json";
    k->text = malloc(6 * sizeof message + 16);
    if (!k->text)
        return;
    char *to = k->text + sprintf(k->text, "{\"error\":\"");
    for (const unsigned char *c = (const unsigned char *)message; *c; c++)
        to += sprintf(to, *c == '"' || *c == '\\' ? "\\%c" : *c < 0x20 ? "\\u%04x" : "%c", *c);
    to += sprintf(to, "\"}\n");
    k->text_length = (size_t)(to - k->text);
}

/* Allocates k->text for a reply of at most `bytes` bytes. If there is no memory, makes the reply an
 * error and returns 0. */
static int make_text(call *k, size_t bytes)
{
    k->text = malloc(bytes);
    if (!k->text)
        refuse(k, 503, "out of memory for the answer");
    return k->text != NULL;
}

/* ---- the routes ----------------------------------------------------------------------------- */

/* Checks the floats of items whose length is right: their values are finite, and the weight of an
 * example is 0, or from 1e-9 to 1e9. If not, makes the reply an error and returns 0. */
static int has_numbers(call *k, size_t item, uint32_t count)
{
    const size_t head = item - k->s->o->image_bytes;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = k->body + i * item;
        float v = 1;
        if (head)
            memcpy(&v, at + 1, sizeof v);
        if (v != 0 && !(v >= 1e-9f && v <= 1e9f)) {
            refuse(k, 400, "row %u: weight %g; expected 0, or 1e-9 to 1e9", i, (double)v);
            return 0;
        }
        for (size_t value = 0; value < k->s->o->image_bytes / sizeof v; value++) {
            memcpy(&v, at + head + value * sizeof v, sizeof v);
            if (!isfinite(v)) {
                refuse(k, 400, "row %u: value %zu is %g; expected a finite number", i, value,
                       (double)v);
                return 0;
            }
        }
    }
    return 1;
}

/* Checks that the body consists of one or more items of `item` bytes (an image, or a label and an
 * image), and sets *count to their number. If not, makes the reply an error and returns 0. */
static int has_images(call *k, const char *type, size_t item, uint32_t *count)
{
    static const char wanted[] = "application/octet-stream";
    if (!http_is_type(type, wanted))
        refuse(k, 415, "Content-Type: expected %s", wanted);
    else if (k->length == 0 || k->length % item != 0)
        refuse(k, 400, "the body has %zu bytes; expected a multiple of %zu: %s", k->length, item,
               item == k->s->o->image_bytes ? "an image"
               : k->s->o->head_bytes > 1    ? "a label, a weight and an image"
                                            : "a label and an image");
    *count = (uint32_t)(k->length / item);
    return !k->code && (k->s->o->row_type == LS_ROW_U8 || has_numbers(k, item, *count));
}

/* Checks that each example's label is a class. If not, makes the reply an error and returns 0. */
static int has_labels(call *k, size_t item, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const int label = k->body[i * item];
        if (label >= k->s->o->classes) {
            refuse(k, 400, "row %u: label %d; expected 0 to %ld", i, label, k->s->o->classes - 1);
            return 0;
        }
    }
    return 1;
}

static void take_examples(call *k, const char *type)
{
    uint32_t count;
    ls_error err;
    const size_t item = k->s->o->head_bytes + k->s->o->image_bytes;
    if (!has_images(k, type, item, &count) || !has_labels(k, item, count))
        return;
    const int status = learner_give(k->s->learner, k->body, count, &err);
    metric_add(k->s->n->of[status ? REFUSED : ACCEPTED], count);
    if (status) {
        refuse(k, 503, "%s", err.text);
        k->retry_after_s = status == LS_EAGAIN;
    } else if (make_text(k, 64)) {
        k->text_length = (size_t)sprintf(k->text, "{\"accepted\":%u}\n", count);
    }
}

/* Writes the predicted class and the probabilities of one image, computed from its scores (logits).
 * Returns the end of the text. */
static char *put_scores(char *to, float *scores, int classes)
{
    int best = 0;
    float sum = 0;
    for (int i = 1; i < classes; i++)
        if (scores[i] > scores[best])
            best = i;
    const float most = scores[best];
    for (int i = 0; i < classes; i++)
        sum += scores[i] = expf(scores[i] - most);
    to += sprintf(to, "{\"class\":%d,\"probabilities\":[", best);
    for (int i = 0; i < classes; i++)
        to += sprintf(to, "%s%.6g", i ? "," : "", (double)(scores[i] / sum));
    return to + sprintf(to, "]}");
}

static void put_predictions(call *k, uint64_t step, float *scores, uint32_t count, int classes)
{
    if (!make_text(k, 100 + count * (60 + (size_t)classes * 16)))
        return;
    char *to =
        k->text + sprintf(k->text, "{\"step\":%llu,\"predictions\":[", (unsigned long long)step);
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            *to++ = ',';
        to = put_scores(to, scores + (size_t)i * (size_t)classes, classes);
    }
    to += sprintf(to, "]}\n");
    k->text_length = (size_t)(to - k->text);
}

static void predict(call *k, const char *type)
{
    const int classes = (int)k->s->o->classes;
    uint32_t rows;
    if (!has_images(k, type, k->s->o->image_bytes, &rows))
        return;
    const size_t count = rows * (size_t)classes;
    ls_error err;
    ls_model_info info = {.size = sizeof info};
    float *scores = malloc(count * sizeof *scores);
    ls_model *model = learner_model(k->s->learner);
    ls_model_describe(model, &info, NULL);
    int status = scores ? ls_model_predict(model, k->body, k->s->o->row_type, rows,
                                           LS_OUTPUT_LOGITS, scores, count, &err)
                        : fail(&err, LS_ENOMEM, "out of memory for predictions");
    ls_model_release(model);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        if (!isfinite(scores[i])) /* JSON has no infinity and no NaN */
            status = fail(&err, LS_ENONFINITE, "the model's scores are not finite");
    if (status)
        refuse(k, 503, "%s", err.text);
    else
        put_predictions(k, info.steps, scores, rows, classes);
    metric_add(k->s->n->of[PREDICTED], status ? 0 : rows);
    free(scores);
}

static void set_rate(call *k, const char *type)
{
    char text[32], *end;
    ls_error err;
    (void)type;
    snprintf(text, sizeof text, "%.*s", k->length < 31 ? (int)k->length : 31, (char *)k->body);
    const double rate = strtod(text, &end);
    const int number = end != text && end[strspn(end, " \r\n")] == '\0';
    const int status = learner_set_rate(k->s->learner, number ? rate : NAN, &err);
    if (status)
        refuse(k, status == LS_EINVAL ? 400 : 503, "%s", err.text);
    else if (make_text(k, 64))
        k->text_length = (size_t)sprintf(k->text, "{\"rate\":%g}\n", rate);
}

static void predict_rows(call *k, const char *type)
{
    uint32_t predicted;
    ls_error err;
    if (!k->s->model) {
        refuse(k, 404, "no model of a table; start the service with --model FILE");
        return;
    }
    if (!http_is_type(type, "application/json")) {
        refuse(k, 415, "Content-Type: expected application/json");
        return;
    }
    const int status =
        rows_predict(k->s->model, (const char *)k->body, k->length, &k->text, &predicted, &err);
    metric_add(k->s->n->of[PREDICTED], predicted);
    if (status)
        refuse(k, status == LS_EDATA ? 400 : 503, "%s", err.text);
    else
        k->text_length = strlen(k->text);
}

static void tell_health(call *k, const char *type)
{
    ls_error why;
    (void)type;
    const uint64_t waiting = learner_look(k->s->learner, &why);
    if (why.status)
        refuse(k, 503, "training has failed: %.400s", why.text);
    else if (make_text(k, 100))
        k->text_length = (size_t)sprintf(k->text, "{\"status\":\"ok\",\"waiting\":%llu}\n",
                                         (unsigned long long)waiting);
}

static void tell_metrics(call *k, const char *type)
{
    ls_error why;
    numbers *n = k->s->n;
    (void)type;
    metric_set(n->of[QUEUE], (double)learner_look(k->s->learner, &why));
    metric_set(n->of[READY], why.status == LS_OK);
    /* the text can get longer before it is written */
    const size_t room = metrics_write(&n->all, NULL, 0) + 4096;
    if (!make_text(k, room))
        return;
    k->text_length = metrics_write(&n->all, k->text, room);
    k->type = METRICS_CONTENT_TYPE;
}

static const struct route {
    const char *path, *method;
    void (*answer)(call *k, const char *type);
} routes[] = {{"/examples", "POST", take_examples}, {"/predict", "POST", predict},
              {"/rows", "POST", predict_rows},      {"/rate", "POST", set_rate},
              {"/metrics", "GET", tell_metrics},    {"/healthz", "GET", tell_health}};

/* ---- a request ------------------------------------------------------------------------------ */

static void find_route(call *k, const char *path, const char *method)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(routes[i].path, path) == 0)
            k->route = &routes[i];
    if (!k->route) {
        refuse(k, 404,
               "no such path; there are POST /examples, POST /predict, POST /rows, POST /rate, GET "
               "/metrics and GET /healthz");
        return;
    }
    const char *wanted = k->route->method;
    const int as_get = strcmp(method, "HEAD") == 0 && strcmp(wanted, "GET") == 0;
    if (strcmp(method, wanted) != 0 && !as_get) {
        k->allow = wanted;
        refuse(k, 405, "%s takes %s", path, wanted);
    }
}

/* Begins a request. Sets *at_once if it must be answered before its body arrives. */
static call *begin(server *s, struct MHD_Connection *c, const char *target, const char *method,
                   const char *version, int *at_once)
{
    char why[400];
    call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->s = s;
    const unsigned refused = http_guard_check(s->guard, c, &target, version, why, sizeof why);
    *at_once = refused && refused != MHD_HTTP_FORBIDDEN;
    if (refused)
        refuse(k, (int)refused, "%s", why);
    else
        find_route(k, target, method);
    if (!k->code && http_guard_stopping(s->guard)) {
        refuse(k, 503, "stopping");
        k->retry_after_s = 5;
    }
    return k;
}

/* Stores a piece of the body. If the request is refused, discards the piece. Returns 0 if the
 * sender has sent more than DISCARDED_MOST bytes of a refused request. */
static int take_piece(call *k, const char *piece, size_t size)
{
    const size_t most = (size_t)k->s->o->body;
    if (!k->body && !k->code)
        k->body = malloc(most);
    if (!k->code && k->length + size > most)
        refuse(k, 413, "a body may have at most %zu bytes here; send less at once", most);
    if (!k->code && !k->body)
        refuse(k, 503, "out of memory");
    if (k->code) {
        k->discarded += size;
        return k->discarded <= DISCARDED_MOST;
    }
    memcpy(k->body + k->length, piece, size);
    k->length += size;
    return 1;
}

static void answer(call *k, struct MHD_Connection *c)
{
    const int most = http_guard_connections(k->s->guard);
    const int waits = k->route && strcmp(k->route->method, "POST") == 0;
    if (http_guard_enter(k->s->guard, c) > most && waits && !k->code) {
        refuse(k, 503, "%d requests are being answered, and at most so many may", most);
        k->retry_after_s = 1;
    }
    if (!k->code)
        k->route->answer(k, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Type"));
    if (!k->code)
        k->code = 200;
}

static enum MHD_Result finish(call *k, struct MHD_Connection *c)
{
    char after[16];
    answer(k, c);
    if (!k->text)
        return MHD_NO;
    struct MHD_Response *to =
        MHD_create_response_from_buffer(k->text_length, k->text, MHD_RESPMEM_MUST_FREE);
    if (!to)
        return MHD_NO;
    k->text = NULL;
    MHD_add_response_header(to, "Content-Type", k->type ? k->type : "application/json");
    if (k->allow)
        MHD_add_response_header(to, "Allow", k->allow);
    if (k->retry_after_s) {
        snprintf(after, sizeof after, "%d", k->retry_after_s);
        MHD_add_response_header(to, "Retry-After", after);
    }
    if (http_guard_stopping(k->s->guard))
        MHD_add_response_header(to, "Connection", "close");
    http_guard_leave(k->s->guard, c);
    const enum MHD_Result queued = MHD_queue_response(c, (unsigned)k->code, to);
    MHD_destroy_response(to);
    return queued;
}

/* Callback of libmicrohttpd. It is called after the headers, for each piece of the body, and once
 * more at the end of the body. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *target,
                                  const char *method, const char *version, const char *piece,
                                  size_t *size, void **state)
{
    call *k = *state;
    int at_once = 0;
    if (!k) {
        *state = k = begin(user, c, target, method, version, &at_once);
        return !k ? MHD_NO : at_once ? finish(k, c) : MHD_YES;
    }
    if (*size == 0)
        return finish(k, c);
    const int goes_on = take_piece(k, piece, *size);
    *size = 0;
    return goes_on ? MHD_YES : MHD_NO;
}

static void on_end(void *user, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode how)
{
    call *k = *state;
    (void)user;
    (void)c;
    (void)how;
    if (!k)
        return;
    if (k->code >= 500)
        metric_add(k->s->n->of[ANSWERS_5XX], 1);
    else if (k->code >= 400)
        metric_add(k->s->n->of[ANSWERS_4XX], 1);
    else if (k->code) /* 0: the client closed the connection before it was answered */
        metric_add(k->s->n->of[ANSWERS_2XX], 1);
    free(k->text);
    free(k->body);
    free(k);
    *state = NULL;
}

/* ---- start and stop ------------------------------------------------------------------------- */

static int start_guard(server *s, const struct sockaddr *where, ls_error *err)
{
    const options *o = s->o;
    const http_guard_options wanted = {.address = where,
                                       .names = {o->host, o->host_count, "--host"},
                                       .connections = (int)o->connections,
                                       .time_limit_s = (int)o->request_s,
                                       .memory = CONNECTION_MEMORY,
                                       .thread_for_each = 1,
                                       .on_request = on_request,
                                       .on_end = on_end,
                                       .user = s};
    const int error = http_guard_start(&s->guard, &wanted);
    if (error)
        return fail(err, LS_ESYSTEM, "cannot listen on %s, port %ld: %s%s", o->address, o->port,
                    strerror(error), error == EADDRINUSE ? "; is the port taken?" : "");
    if (http_guard_connections(s->guard) < (int)o->connections)
        say("%d connections at a time, not %ld: open files are limited (ulimit -n)",
            http_guard_connections(s->guard), o->connections);
    return LS_OK;
}

int server_start(server **out, const options *o, learner *l, numbers *n, int *port, ls_error *err)
{
    char number[16];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICHOST};
    struct addrinfo *where;
    snprintf(number, sizeof number, "%ld", o->port);
    const int error = getaddrinfo(o->address, number, &hints, &where);
    if (error)
        return fail(err, LS_EINVAL, "--address %s: %s", o->address, gai_strerror(error));
    server *s = calloc(1, sizeof *s);
    int status = s ? LS_OK : fail(err, LS_ENOMEM, "out of memory for the server");
    if (status == LS_OK) {
        *s = (server){.o = o, .learner = l, .n = n};
        if (o->model)
            status = ls_model_open(&s->model, o->model, NULL, err);
        if (status == LS_OK)
            status = start_guard(s, where->ai_addr, err);
    }
    freeaddrinfo(where);
    if (status) {
        if (s)
            ls_model_release(s->model);
        free(s);
        return status;
    }
    *port = http_guard_port(s->guard);
    *out = s;
    return LS_OK;
}

void server_stop(server *s)
{
    http_guard_stop(s->guard);
    ls_model_release(s->model);
    free(s);
}
