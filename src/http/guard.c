/* SPDX-License-Identifier: MIT */
/* Implements the protections that guard.h describes. Threads of a server:
 *
 * - libmicrohttpd's own threads, called the *daemon*, report connections and their *phases* (the
 *   enum phase).
 * - The thread `watch` closes the connections that exceed a time limit. If there are too many
 *   connections, it closes further ones, one at a time.
 * - The thread `acceptor` accepts connections while fewer than most_connections() exist.
 *
 * All these threads use the list of connections under `lock`. The condition `changed` is signalled
 * when a connection is added, when a connection is removed from a full list, and when the server
 * stops.
 *
 * To close a connection, this file shuts its socket down. The daemon, which owns the file
 * descriptor, notices the shutdown and closes the descriptor. */
#include "http/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* close_one leaves a connection alone for this number of seconds after its phase began. */
#define GRACE_S 0.1

enum {
    /* connections beyond options.connections that are accepted, so that a new client is served
     * before an answer to another client is complete */
    SPARE = 8,
    CLIENTS = 1024, /* number of values of the hash by which client addresses are distinguished */
    KEPT = 24,      /* number of file descriptors that the server leaves for the rest of the
                     * program: log files, files that are saved */
    /* time limits of http_guard_stop in milliseconds: for answers that are being computed, and for
     * requests and answers in transfer */
    ANSWERS_MS = 10000,
    STRAGGLERS_MS = 1000
};

/* The phase of a connection: the client is idle or sends headers (IDLE), the client sends the body
 * (SENDING_BODY), the server computes the answer (ANSWERING), the client receives the answer
 * (RECEIVING), or the socket is shut down (SHUT_DOWN). The server waits for the client in the
 * phases IDLE, SENDING_BODY and RECEIVING. */
typedef enum phase { IDLE, SENDING_BODY, ANSWERING, RECEIVING, SHUT_DOWN } phase;

typedef struct connection {
    /* `next`: next in the list. `at`: the pointer in the list that points to this connection */
    struct connection *next, **at;
    int fd;          /* the socket, owned by the daemon */
    unsigned client; /* hash of the client's address, below CLIENTS */
    phase phase;
    double since; /* time at which the phase began, in seconds */
} connection;

struct http_guard {
    http_guard_options options;
    struct MHD_Daemon *daemon;
    int listening; /* the listening socket */
    pthread_t watch, acceptor;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    connection *first;     /* newest connection of the list */
    int count;             /* number of connections in the list */
    int in[SHUT_DOWN + 1]; /* number of connections in each phase */
    int stopping;          /* http_guard_stop was called: no connection is accepted any more */
    int ending;            /* the thread `watch` has to return */
    unsigned admitted;     /* number of connections that were added since the start */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct timespec time_at(double s)
{
    return (struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
}

static int descriptor(struct MHD_Connection *c)
{
    return MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* ---- connections; callers of set_phase, shut_down, is_crowded and close_one hold the lock ---- */

/* Changes the phase of a connection. The phase SHUT_DOWN is final. */
static void set_phase(http_guard *g, connection *v, phase to)
{
    if (v->phase == SHUT_DOWN)
        return;
    g->in[v->phase]--;
    g->in[to]++;
    v->phase = to;
    v->since = seconds();
}

/* Shuts a connection's socket down. The daemon notices the shutdown later and closes the
 * descriptor. */
static void shut_down(http_guard *g, connection *v)
{
    shutdown(v->fd, SHUT_RDWR);
    set_phase(g, v, SHUT_DOWN);
}

/* Returns the largest number of connections: options.connections, SPARE for new connections, and
 * SPARE for connections whose sockets are shut down but not yet closed. */
static int most_connections(const http_guard *g)
{
    return g->options.connections + 2 * SPARE;
}

static bool is_crowded(const http_guard *g)
{
    return g->count - g->in[SHUT_DOWN] > g->options.connections + SPARE;
}

/* Returns whether the server waits for the client on this connection. */
static bool server_waits(const connection *v)
{
    return v->phase != ANSWERING && v->phase != SHUT_DOWN;
}

/* Shuts down, of the client with the most connections, the one on which the server has waited
 * longest for the client, unless its phase began less than GRACE_S seconds ago. Returns 0, or the
 * time at which the caller may try again. */
static double close_one(http_guard *g, double now)
{
    unsigned of[CLIENTS] = {0};
    connection *worst = NULL;
    for (const connection *v = g->first; v; v = v->next)
        of[v->client] += v->phase != SHUT_DOWN;
    for (connection *v = g->first; v; v = v->next)
        if (server_waits(v) && (!worst || of[v->client] > of[worst->client] ||
                                (of[v->client] == of[worst->client] && v->since < worst->since)))
            worst = v;
    const double earliest = worst ? worst->since + GRACE_S : now + GRACE_S;
    if (earliest > now)
        return earliest;
    shut_down(g, worst);
    return 0;
}

/* Hashes a client's address to a number below CLIENTS. It uses only the first half of an IPv6
 * address, because one client usually owns all addresses with the same first half. */
static unsigned number_client(const struct sockaddr *from)
{
    const http_address *p = (const http_address *)(const void *)from;
    uint64_t address = 0;
    if (from && from->sa_family == AF_INET6)
        memcpy(&address, &p->v6.sin6_addr, sizeof address);
    else if (from && from->sa_family == AF_INET)
        address = p->v4.sin_addr.s_addr;
    return (unsigned)(address * 0x9e3779b97f4a7c15u >> 54);
}

/* Sets *what to 1 under the lock and signals `changed` to all threads that wait. */
static void set_flag(http_guard *g, int *what)
{
    pthread_mutex_lock(&g->lock);
    *what = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void add_connection(http_guard *g, connection *v)
{
    pthread_mutex_lock(&g->lock);
    v->since = seconds();
    v->at = &g->first;
    v->next = g->first;
    if (v->next)
        v->next->at = &v->next;
    g->first = v;
    g->in[IDLE]++;
    g->count++;
    g->admitted++;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void remove_connection(http_guard *g, connection *v)
{
    pthread_mutex_lock(&g->lock);
    *v->at = v->next;
    if (v->next)
        v->next->at = v->at;
    g->in[v->phase]--;
    if (g->count-- == most_connections(g))
        pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    free(v);
}

/* ---- callbacks of the daemon ----------------------------------------------------------------- */

/* Called by the daemon when a connection begins or ends. If there is no memory for the record of a
 * new connection, its socket is shut down at once. */
static void on_connection(void *user, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    http_guard *g = user;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            remove_connection(g, *context);
        *context = NULL;
        return;
    }
    connection *v = *context = calloc(1, sizeof *v);
    if (!v) {
        shutdown(descriptor(c), SHUT_RDWR);
        return;
    }
    v->fd = descriptor(c);
    v->client =
        number_client(MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    add_connection(g, v);
}

/* Sets a connection's phase. Returns the number of connections that are being answered. */
static int set_phase_of(http_guard *g, struct MHD_Connection *c, phase to)
{
    connection *v = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    pthread_mutex_lock(&g->lock);
    if (v)
        set_phase(g, v, to);
    const int answered = g->in[ANSWERING];
    pthread_mutex_unlock(&g->lock);
    return answered;
}

static void on_end(void *user, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode how)
{
    http_guard *g = user;
    set_phase_of(g, c, IDLE);
    if (g->options.on_end)
        g->options.on_end(g->options.user, c, state, how);
}

unsigned http_guard_check(http_guard *g, struct MHD_Connection *c, const char **target,
                          const char *version, char *why, size_t size)
{
    char authority[256];
    set_phase_of(g, c, SENDING_BODY);
    const char *path = http_path(*target, authority, sizeof authority);
    unsigned refused = http_framing_check(c, version, why, size);
    if (!refused && path != *target && !authority[0]) {
        snprintf(why, size, "%.100s: expected a host", *target);
        refused = MHD_HTTP_BAD_REQUEST;
    }
    *target = path;
    return refused ? refused : http_names_check(&g->options.names, c, authority, why, size);
}

int http_guard_enter(http_guard *g, struct MHD_Connection *c)
{
    return set_phase_of(g, c, ANSWERING);
}

void http_guard_leave(http_guard *g, struct MHD_Connection *c)
{
    set_phase_of(g, c, RECEIVING);
}

/* ---- the thread that enforces time limits ---------------------------------------------------- */

/* Shuts down the connections that have exceeded the time limit of their phase. Returns the earliest
 * time at which another connection can exceed the limit. The thread need not wake before the
 * returned time. All phases have the same limit, so a phase that begins after this call reaches its
 * limit later. */
static double close_late(http_guard *g, double now)
{
    const double limit = g->options.time_limit_s;
    double next = now + limit;
    for (connection *v = g->first; v; v = v->next) {
        if (!server_waits(v))
            continue;
        if (v->since + limit <= now)
            shut_down(g, v);
        else if (v->since + limit < next)
            next = v->since + limit;
    }
    return next;
}

/* Closes connections that exceed a limit, then waits until something has changed, or until the next
 * connection can be closed. Called with the lock. */
static void enforce_limits(http_guard *g)
{
    const double now = seconds();
    const double next = close_late(g, now);
    double retry_at = 0; /* time at which close_one can be called again; 0: at once */
    while (is_crowded(g) && retry_at == 0)
        retry_at = close_one(g, now);
    /* It can be that the daemon has not noticed yet that some connections have ended. To shut one
     * down wakes the daemon. */
    if (g->count >= most_connections(g) && retry_at == 0 && (retry_at = close_one(g, now)) == 0)
        retry_at = now + GRACE_S;
    const struct timespec until =
        time_at((retry_at > 0 && retry_at < next ? retry_at : next) + 0.001);
    pthread_cond_timedwait(&g->changed, &g->lock, &until);
}

static void *watch(void *user)
{
    http_guard *g = user;
    pthread_mutex_lock(&g->lock);
    while (!g->ending) {
        if (g->count == 0)
            pthread_cond_wait(&g->changed, &g->lock);
        else
            enforce_limits(g);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- the thread that accepts connections ----------------------------------------------------- */

/* Accepts a connection and gives it to the daemon. Waits at most 50 ms until the daemon has
 * reported the connection. A daemon that has no resources for the connection closes it. */
static void accept_one(http_guard *g)
{
    http_address from;
    socklen_t length = sizeof from;
    const int fd = accept(g->listening, &from.any, &length);
    pthread_mutex_lock(&g->lock);
    const unsigned before = g->admitted;
    const struct timespec until = time_at(seconds() + (fd < 0 ? 0.01 : 0.05));
    pthread_mutex_unlock(&g->lock);
    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        MHD_add_connection(g->daemon, fd, &from.any, length);
    }
    pthread_mutex_lock(&g->lock);
    while (!g->stopping && g->admitted == before &&
           pthread_cond_timedwait(&g->changed, &g->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&g->lock);
}

static void *accept_connections(void *user)
{
    http_guard *g = user;
    for (;;) {
        pthread_mutex_lock(&g->lock);
        while (!g->stopping && g->count >= most_connections(g))
            pthread_cond_wait(&g->changed, &g->lock);
        const int stopping = g->stopping;
        pthread_mutex_unlock(&g->lock);
        if (stopping)
            return NULL;
        accept_one(g);
    }
}

/* Opens the listening socket. Returns its descriptor, or a negative errno. */
static int listen_at(const struct sockaddr *at)
{
    const int six = at->sa_family == AF_INET6, on = 1;
    const int fd = socket(at->sa_family, SOCK_STREAM, 0);
    if (fd < 0)
        return -errno;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (six)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, at, six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) == 0 &&
        listen(fd, SOMAXCONN) == 0)
        return fd;
    const int error = errno;
    close(fd);
    return -error;
}

/* ---- starting and stopping ------------------------------------------------------------------- */

/* Returns the number of descriptors, at most `wanted`, that can be opened now. */
static int free_descriptors(int wanted)
{
    struct rlimit most;
    int found = 0;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0)
        return wanted;
    for (int fd = 0; (rlim_t)fd < most.rlim_cur && found < wanted; fd++)
        found += fcntl(fd, F_GETFD) < 0;
    return found;
}

/* Reduces options.connections to the number for which file descriptors are free. */
static int fit_connections(http_guard *g)
{
    const int others = 2 * SPARE + KEPT;
    const int most = free_descriptors(g->options.connections + others) - others;
    if (most < 1)
        return EMFILE;
    if (g->options.connections > most)
        g->options.connections = most;
    return 0;
}

static void end_watch(http_guard *g)
{
    set_flag(g, &g->ending);
    pthread_join(g->watch, NULL);
}

static int start_daemon(http_guard *g)
{
    const http_guard_options *o = &g->options;
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
                           MHD_USE_NO_LISTEN_SOCKET |
                           (o->thread_for_each ? MHD_USE_THREAD_PER_CONNECTION : 0) |
                           (o->address->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    const struct MHD_OptionItem memory[] = {
        {o->memory ? MHD_OPTION_CONNECTION_MEMORY_LIMIT : MHD_OPTION_END, (intptr_t)o->memory,
         NULL},
        {MHD_OPTION_END, 0, NULL}};
    errno = 0;
    g->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, o->on_request, o->user, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)most_connections(g) + 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, g,
        MHD_OPTION_NOTIFY_COMPLETED, on_end, g, MHD_OPTION_ARRAY, memory, MHD_OPTION_END);
    return g->daemon ? 0 : errno ? errno : EIO;
}

static int start_threads(http_guard *g)
{
    int error = start_daemon(g);
    if (error)
        return error;
    error = pthread_create(&g->watch, NULL, watch, g);
    if (!error && (error = pthread_create(&g->acceptor, NULL, accept_connections, g)) != 0)
        end_watch(g);
    if (error)
        MHD_stop_daemon(g->daemon);
    return error;
}

static void free_guard(http_guard *g)
{
    if (g->listening >= 0)
        close(g->listening);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

int http_guard_start(http_guard **out, const http_guard_options *options)
{
    pthread_condattr_t steady;
    sigset_t all, before;
    http_guard *g = calloc(1, sizeof *g);
    if (!g)
        return ENOMEM;
    g->options = *options;
    pthread_mutex_init(&g->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &steady);
    pthread_condattr_destroy(&steady);
    g->listening = -1;
    int error = fit_connections(g);
    *out = g; /* set before the threads start, because a request can arrive at once */
    if (!error && (g->listening = listen_at(options->address)) < 0)
        error = -g->listening;
    if (!error) { /* The server's threads inherit the mask that blocks all signals. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = start_threads(g);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (error) {
        *out = NULL;
        free_guard(g);
    }
    return error;
}

int http_guard_port(const http_guard *g)
{
    http_address here;
    socklen_t length = sizeof here;
    if (getsockname(g->listening, &here.any, &length) != 0)
        return 0;
    return ntohs(here.any.sa_family == AF_INET6 ? here.v6.sin6_port : here.v4.sin_port);
}

int http_guard_connections(const http_guard *g)
{
    return g->options.connections;
}

int http_guard_stopping(http_guard *g)
{
    pthread_mutex_lock(&g->lock);
    const int stopping = g->stopping;
    pthread_mutex_unlock(&g->lock);
    return stopping;
}

/* Waits until answers and transfers in progress have ended, within the time limits of
 * http_guard_stop. */
static void wait_for_answers(http_guard *g)
{
    const struct timespec pause = {0, 5000000};
    for (int ms = 0; ms < ANSWERS_MS; ms += 5) {
        pthread_mutex_lock(&g->lock);
        const int stragglers = ms < STRAGGLERS_MS ? g->in[SENDING_BODY] + g->in[RECEIVING] : 0;
        const int left = g->in[ANSWERING] + stragglers;
        pthread_mutex_unlock(&g->lock);
        if (left == 0)
            return;
        nanosleep(&pause, NULL);
    }
}

void http_guard_stop(http_guard *g)
{
    set_flag(g, &g->stopping);
    shutdown(g->listening, SHUT_RDWR); /* new connections are refused, and accept() returns */
    pthread_join(g->acceptor, NULL);
    wait_for_answers(g);
    end_watch(g);
    MHD_stop_daemon(g->daemon);
    free_guard(g);
}
