/* The server: libmicrohttpd behind the guard of src/http, a thread for each connection. A request's body
 * is gathered first, up to --body bytes; then its route answers. Errors are {"error": "…"}. */
#include "service.h"

#include "http/guard.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    DISCARDED_MOST = 64 << 20, /* of a body that is refused, so that its sender reads the reason */
    CONNECTION_MEMORY = 64 * 1024, /* headers, and the piece of the body that is handed over */
    SCORES_MOST = 1 << 20          /* floats of one answer */
};

struct server {
    const options *o;
    learner *learner;
    numbers *n;
    http_guard *guard;
};

/* One request, from its headers to the end of its reply. */
typedef struct call {
    server *s;
    int route;
    double start;
    char *body;
    size_t length, room, discarded;
    /* The reply. */
    int code; /* 0: not yet; a code before the route was asked is a refusal */
    const char *type, *allow;
    int retry_after_s; /* 0: not said */
    char *text;        /* from malloc */
    size_t text_length;
} call;

/* ---- replies -------------------------------------------------------------------------------- */

/* The reply is an error, whose text is put into JSON. */
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

/* Room for a reply of at most `bytes`. False: there is no memory, and that is the reply. */
static int make_text(call *k, size_t bytes)
{
    k->text = malloc(bytes);
    if (!k->text)
        refuse(k, 503, "out of memory for the answer");
    return k->text != NULL;
}

/* ---- the routes ----------------------------------------------------------------------------- */

static int read_rows(call *k, const char *type, int examples, row_list *r)
{
    ls_error err;
    const int status = body_read(r, &k->s->o->form, examples, type, k->body, k->length, &err);
    if (status)
        refuse(k,
               status == LS_EDATA          ? 400
               : status == LS_EINVAL       ? 413
               : status == LS_EUNSUPPORTED ? 415
                                           : 503,
               "%s", err.text);
    return status == LS_OK;
}

static void take_examples(call *k, const char *type)
{
    row_list r;
    ls_error err;
    if (!read_rows(k, type, 1, &r))
        return;
    learner_look(k->s->learner, &err);
    int status = err.status;
    if (status)
        refuse(k, 503, "training has failed: %.400s", err.text);
    else if ((status = learner_give(k->s->learner, r.bytes, r.count, &err)) != LS_OK) {
        refuse(k, 503, "%s", err.text);
        k->retry_after_s = 1;
    } else if (make_text(k, 64)) {
        k->text_length = (size_t)sprintf(k->text, "{\"accepted\":%u}\n", r.count);
    }
    metric_add(status ? k->s->n->refused : k->s->n->accepted, r.count);
    body_free(&r);
}

/* One row's scores: logits become probabilities; targets that are floats stay. Returns the end. */
static char *put_scores(char *to, const row_form *f, float *scores, int outputs)
{
    int best = 0;
    for (int k = 1; k < outputs; k++)
        best = scores[k] > scores[best] ? k : best;
    if (!f->targets) {
        const float most = scores[best];
        float sum = 0;
        for (int k = 0; k < outputs; k++)
            sum += scores[k] = expf(scores[k] - most);
        for (int k = 0; k < outputs; k++)
            scores[k] /= sum;
        to += sprintf(to, "{\"class\":%d,\"probabilities\":[", best);
    } else {
        to += sprintf(to, "{\"outputs\":[");
    }
    for (int k = 0; k < outputs; k++)
        to += sprintf(to, "%s%.6g", k ? "," : "", (double)scores[k]);
    return to + sprintf(to, "]}");
}

static void put_predictions(call *k, uint64_t step, float *scores, uint32_t count, int outputs)
{
    if (!make_text(k, 100 + count * (60 + (size_t)outputs * 16)))
        return;
    char *to =
        k->text + sprintf(k->text, "{\"step\":%llu,\"predictions\":[", (unsigned long long)step);
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            *to++ = ',';
        to = put_scores(to, &k->s->o->form, scores + (size_t)i * (size_t)outputs, outputs);
    }
    to += sprintf(to, "]}\n");
    k->text_length = (size_t)(to - k->text);
}

static void predict_rows(call *k, const row_list *r)
{
    const row_form *f = &k->s->o->form;
    const int outputs = f->targets ? f->targets : f->classes;
    const size_t count = r->count * (size_t)outputs;
    if (count > SCORES_MOST) {
        refuse(k, 413, "%u rows of %d outputs; send at most %d rows at once", r->count, outputs,
               SCORES_MOST / outputs);
        return;
    }
    ls_error err;
    ls_snapshot_info info = {0};
    float *scores = malloc(count * sizeof *scores);
    ls_snapshot *snapshot = learner_snapshot(k->s->learner);
    ls_snapshot_describe(snapshot, &info);
    int status = scores ? ls_snapshot_predict(snapshot, r->bytes, r->count, scores, count, &err)
                        : fail(&err, LS_ENOMEM, "out of memory for predictions");
    ls_snapshot_release(snapshot);
    for (size_t i = 0; i < count && status == LS_OK; i++)
        if (!isfinite(scores[i])) /* JSON has no other numbers */
            status = fail(&err, LS_ENONFINITE, "the model's scores are not finite");
    if (status)
        refuse(k, 503, "%s", err.text);
    else
        put_predictions(k, info.steps, scores, r->count, outputs);
    metric_add(k->s->n->predicted, status ? 0 : r->count);
    free(scores);
}

static void predict(call *k, const char *type)
{
    row_list r;
    if (!read_rows(k, type, 0, &r))
        return;
    predict_rows(k, &r);
    body_free(&r);
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
    metric_set(n->queue, (double)learner_look(k->s->learner, &why));
    metric_set(n->ready, why.status == LS_OK);
    const size_t room = metrics_write(&n->all, NULL, 0) + 4096; /* numbers grow meanwhile */
    if (!make_text(k, room))
        return;
    k->text_length = metrics_write(&n->all, k->text, room);
    k->type = METRICS_CONTENT_TYPE;
}

const char *const server_paths[ROUTES] = {"/examples", "/predict", "/metrics", "/healthz"};

static const struct {
    const char *method;
    void (*answer)(call *k, const char *type);
} routes[ROUTES] = {
    {"POST", take_examples}, {"POST", predict}, {"GET", tell_metrics}, {"GET", tell_health}};

/* ---- a request ------------------------------------------------------------------------------ */

static void find_route(call *k, const char *path, const char *method)
{
    for (k->route = 0; k->route < ROUTES && strcmp(server_paths[k->route], path) != 0;)
        k->route++;
    if (k->route == ROUTE_NONE) {
        refuse(k, 404,
               "no such path; there are POST /examples, POST /predict, GET /metrics and "
               "GET /healthz");
        return;
    }
    const char *wanted = routes[k->route].method;
    const int as_get = strcmp(method, "HEAD") == 0 && strcmp(wanted, "GET") == 0;
    if (strcmp(method, wanted) != 0 && !as_get) {
        k->allow = wanted;
        refuse(k, 405, "%s takes %s", server_paths[k->route], wanted);
    }
}

static void refuse_size(call *k)
{
    refuse(k, 413, "a body may have at most %ld bytes here; send less at once", k->s->o->body);
}

static call *begin(server *s, struct MHD_Connection *c, const char *path, const char *method)
{
    char why[400];
    call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->s = s;
    k->start = seconds_now();
    find_route(k, path, method);
    const unsigned refused = http_guard_check(s->guard, c, why, sizeof why);
    if (refused)
        refuse(k, (int)refused, "%s", why);
    if (!k->code && http_guard_stopping(s->guard)) {
        refuse(k, 503, "stopping");
        k->retry_after_s = 5;
    }
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    if (!k->code && length && strtoull(length, NULL, 10) > (unsigned long long)s->o->body)
        refuse_size(k);
    return k;
}

/* A piece of the body. Returns 0 when its sender goes on for too long after it was refused. */
static int take_piece(call *k, const char *piece, size_t size)
{
    const size_t most = (size_t)k->s->o->body;
    if (!k->code && k->length + size > most)
        refuse_size(k);
    if (!k->code && k->length + size > k->room) {
        size_t room = 2 * (k->length + size);
        room = room < most ? room : most;
        char *grown = realloc(k->body, room);
        if (grown) {
            k->body = grown;
            k->room = room;
        } else {
            refuse(k, 503, "out of memory");
        }
    }
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
    const int waits = k->route < ROUTES && strcmp(routes[k->route].method, "POST") == 0;
    if (http_guard_enter(k->s->guard, c) > most && waits && !k->code) {
        refuse(k, 503, "%d requests are being answered, and at most so many may", most);
        k->retry_after_s = 1;
    }
    if (!k->code)
        routes[k->route].answer(k, MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Type"));
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

/* Called with the headers, then for each piece of the body, then once more. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *piece,
                                  size_t *size, void **state)
{
    call *k = *state;
    (void)version;
    if (!k) {
        *state = k = begin(user, c, path, method);
        return k ? MHD_YES : MHD_NO;
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
    if (k->code) /* else its sender went away */
        numbers_request(k->s->n, k->route, k->code, seconds_now() - k->start);
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
                                       .patience_s = (int)o->request_s,
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
        say(LS_LOG_WARNING, "%d connections at a time, not %ld: open files are limited (ulimit -n)",
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
        status = start_guard(s, where->ai_addr, err);
    }
    freeaddrinfo(where);
    if (status) {
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
    free(s);
}
