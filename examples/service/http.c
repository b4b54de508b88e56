#include "http.h"

#include "clock.h"
#include "http/guard.h"
#include "report.h"
#include "traffic.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    ROUTES = 4,
    DISCARDED_MOST = 64 << 20, /* of a body that is refused, so that its sender reads the reason */
    CONNECTION_MEMORY = 64 * 1024 /* headers, and the piece of the body that is handed over */
};

struct http {
    service *s;
    http_guard *guard;
    traffic traffic;
};

/* One request, from its headers to the end of its reply. */
typedef struct call {
    http *h;
    int route; /* ROUTES: none */
    int refused;
    reply reply;
    const char *allow;
    int waits; /* for the disk, or for the model: there may be too many of these */
    char *body;
    size_t length, capacity, discarded;
    double start;
} call;

/* ---- the beginning of a request ------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void refuse(call *k, int code, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reply_error(&k->reply, code, "%s", message);
    k->refused = 1;
}

static void refuse_size(call *k)
{
    refuse(k, 413, "a body may have at most %ld bytes here; send less at once", k->h->s->o->body);
}

static int find_route(const char *path)
{
    int i = 0;
    while (i < ROUTES && strcmp(api_routes[i].path, path) != 0)
        i++;
    return i;
}

static void choose(call *k, const char *path, const char *method)
{
    k->route = find_route(path);
    if (k->route == ROUTES) {
        refuse(k, 404,
               "no such path; there are POST /examples, POST /predict, GET /metrics and "
               "GET /healthz");
        return;
    }
    const char *wanted = api_routes[k->route].method;
    k->waits = strcmp(wanted, "POST") == 0;
    const int as_get = strcmp(method, "HEAD") == 0 && strcmp(wanted, "GET") == 0;
    if (strcmp(method, wanted) != 0 && !as_get) {
        k->allow = wanted;
        refuse(k, 405, "%s takes %s", api_routes[k->route].path, wanted);
    }
}

static void prepare_body(call *k, struct MHD_Connection *c)
{
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
    const unsigned long long announced = length ? strtoull(length, NULL, 10) : 0;
    if (announced > (unsigned long long)k->h->s->o->body)
        refuse_size(k);
    else if (announced > 0)
        k->capacity = (size_t)announced;
    if (k->capacity > 0 && (k->body = malloc(k->capacity)) == NULL)
        refuse(k, 503, "out of memory");
}

static call *begin(http *h, struct MHD_Connection *c, const char *path, const char *method)
{
    char why[400];
    call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->h = h;
    k->start = seconds();
    const unsigned refused = http_guard_check(h->guard, c, why, sizeof why);
    choose(k, path, method);
    if (refused)
        refuse(k, (int)refused, "%s", why);
    if (!k->refused && http_guard_stopping(h->guard)) {
        refuse(k, 503, "stopping");
        k->reply.retry_after_s = 5;
    }
    if (!k->refused)
        prepare_body(k, c);
    return k;
}

/* ---- its body ------------------------------------------------------------------------------- */

/* A body of unknown length grows, up to the limit. */
static int make_room(call *k, size_t more)
{
    size_t wanted = 2 * k->capacity, most = (size_t)k->h->s->o->body;
    if (k->length + more <= k->capacity)
        return 1;
    wanted = wanted < k->length + more ? k->length + more : wanted;
    wanted = wanted > most ? most : wanted;
    char *grown = realloc(k->body, wanted);
    if (!grown) {
        refuse(k, 503, "out of memory");
        return 0;
    }
    k->body = grown;
    k->capacity = wanted;
    return 1;
}

/* Returns 0 when it has gone on for too long. */
static int take(call *k, const char *piece, size_t size)
{
    if (!k->refused && k->length + size > (size_t)k->h->s->o->body)
        refuse_size(k);
    if (!k->refused && make_room(k, size)) {
        memcpy(k->body + k->length, piece, size);
        k->length += size;
        return 1;
    }
    k->discarded += size;
    return k->discarded <= DISCARDED_MOST;
}

/* ---- its reply ------------------------------------------------------------------------------ */

static void answer(call *k, struct MHD_Connection *c)
{
    const request r = {MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Type"), k->body,
                       k->length};
    const int most = http_guard_connections(k->h->guard);
    if (http_guard_enter(k->h->guard, c) > most && k->waits && !k->refused) {
        refuse(k, 503, "%d requests are being answered, and at most so many may", most);
        k->reply.retry_after_s = 1;
    }
    if (!k->refused)
        api_routes[k->route].answer(k->h->s, &r, &k->reply);
    if (k->reply.body.lost || !k->reply.body.at) {
        text_free(&k->reply.body);
        reply_error(&k->reply, 503, "out of memory for the answer");
    }
    if (k->reply.code == 0)
        k->reply.code = 200;
}

static void put_headers(const call *k, struct MHD_Response *to)
{
    char after[16];
    MHD_add_response_header(to, "Content-Type", k->reply.type ? k->reply.type : "application/json");
    if (k->allow)
        MHD_add_response_header(to, "Allow", k->allow);
    if (k->reply.retry_after_s) {
        snprintf(after, sizeof after, "%d", k->reply.retry_after_s);
        MHD_add_response_header(to, "Retry-After", after);
    }
    if (http_guard_stopping(k->h->guard))
        MHD_add_response_header(to, "Connection", "close");
}

static enum MHD_Result finish(call *k, struct MHD_Connection *c)
{
    answer(k, c);
    text *body = &k->reply.body;
    if (!body->at)
        return MHD_NO;
    struct MHD_Response *to =
        MHD_create_response_from_buffer(body->length, body->at, MHD_RESPMEM_MUST_FREE);
    if (!to)
        return MHD_NO;
    *body = (text){0};
    put_headers(k, to);
    http_guard_leave(k->h->guard, c);
    enum MHD_Result queued = MHD_queue_response(c, (unsigned)k->reply.code, to);
    MHD_destroy_response(to);
    return queued;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *piece,
                                  size_t *size, void **state)
{
    (void)version;
    call *k = *state;
    if (!k) {
        *state = k = begin(user, c, path, method);
        return k ? MHD_YES : MHD_NO;
    }
    if (*size == 0)
        return finish(k, c);
    int goes_on = take(k, piece, *size);
    *size = 0;
    return goes_on ? MHD_YES : MHD_NO;
}

static void on_end(void *user, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode how)
{
    http *h = user;
    call *k = *state;
    (void)c;
    (void)how;
    if (!k)
        return;
    if (k->reply.code) /* else its sender went away */
        traffic_count(&h->traffic, k->route, k->reply.code, seconds() - k->start);
    text_free(&k->reply.body);
    free(k->body);
    free(k);
    *state = NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void count_traffic(http *h)
{
    const char *paths[ROUTES + 1];
    for (int i = 0; i < ROUTES; i++)
        paths[i] = api_routes[i].path;
    paths[ROUTES] = "other";
    traffic_init(&h->traffic, &h->s->numbers, paths, ROUTES + 1);
}

static int start_guard(http *h, const struct sockaddr *where, int *port, ls_error *err)
{
    const options *o = h->s->o;
    const http_guard_options wanted = {.address = where,
                                       .names = {o->hosts, o->host_count, "--host"},
                                       .connections = (int)o->connections,
                                       .patience_s = (int)o->request_s,
                                       .memory = CONNECTION_MEMORY,
                                       .thread_for_each = 1,
                                       .on_request = on_request,
                                       .on_end = on_end,
                                       .user = h};
    const int error = http_guard_start(&h->guard, &wanted);
    if (error)
        return fail(err, LS_ESYSTEM, "cannot listen on %s, port %ld: %s%s", o->address, o->port,
                    strerror(error), error == EADDRINUSE ? "; is the port taken?" : "");
    if (http_guard_connections(h->guard) < (int)o->connections)
        say(LS_LOG_WARNING, "%d connections at a time, not %ld: open files are limited (ulimit -n)",
            http_guard_connections(h->guard), o->connections);
    *port = http_guard_port(h->guard);
    return LS_OK;
}

int http_start(http **out, service *s, int *port, ls_error *err)
{
    char number[16];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICHOST};
    struct addrinfo *where;
    snprintf(number, sizeof number, "%ld", s->o->port);
    int error = getaddrinfo(s->o->address, number, &hints, &where);
    if (error)
        return fail(err, LS_EINVAL, "--address %s: %s", s->o->address, gai_strerror(error));
    http *h = calloc(1, sizeof *h);
    int status = h ? LS_OK : fail(err, LS_ENOMEM, "out of memory for the server");
    if (status == LS_OK) {
        h->s = s;
        count_traffic(h);
        status = start_guard(h, where->ai_addr, port, err);
    }
    freeaddrinfo(where);
    if (status)
        free(h);
    else
        *out = h;
    return status;
}

void http_stop(http *h)
{
    http_guard_stop(h->guard);
    free(h);
}
