/* Protects an HTTP server: starts libmicrohttpd such that no client can prevent others from being
 * answered, and such that no web page of another server can make a browser send requests to it.
 *
 * - A request must name the server by one of its own names (Host and Origin); other requests are
 *   refused.
 * - A client has patience_s seconds to send the headers of a request, as long again to send the
 *   body, and as long again to receive the answer. A connection may be idle for as long.
 * - A new connection is never refused. If there are then too many, the server closes one on which
 *   it waits for the client: of the client with the most connections, the one that has been waited
 *   for longest. Further connections are accepted when closed ones have been removed.
 * - Descriptors are left for the rest of the program.
 *
 * Threads: one thread enforces the time limits, one accepts connections, and libmicrohttpd has
 * threads of its own.
 *
 * This directory is built as an object library of CMake, which programs link. It uses
 * libmicrohttpd, and no other part of Lockstep. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address. */
typedef union http_place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} http_place;

/* The names by which a server may be addressed in a request's Host header and in the Origin of a
 * page that sends requests. Without this check a web page could give the server's address a name of
 * its own (DNS rebinding), and a browser would let it read and write there. */
typedef struct http_names {
    /* allowed names, besides those of loopback and the address to which the client connected */
    const char *const *given;
    int count;
    const char
        *option; /* command-line option that adds a name; the message of a refusal mentions it */
} http_names;

/* Checks Host and Origin of a request. Returns 0, or 403 and a line in `why`, `room` bytes, that
 * says why. A request without a Host is allowed: no browser sends one. */
unsigned http_names_check(const http_names *names, struct MHD_Connection *c, char *why,
                          size_t room);

typedef struct http_guard http_guard;

typedef struct http_guard_options {
    const struct sockaddr *address; /* address on which the server listens */
    http_names names;
    int connections; /* largest number of connections that are answered at the same time */
    /* time limit in seconds: for the headers, for the body, and for receiving the answer */
    int patience_s;
    size_t memory;       /* memory of libmicrohttpd for each connection in bytes; 0: its default */
    int thread_for_each; /* non-zero: each connection has a thread, so that on_request may block */
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_end; /* NULL is allowed */
    void *user;                          /* argument of both callbacks */
} http_guard_options;

/* Starts the server. Its threads are created by this function and block all signals. *out is set
 * before the first request can arrive. Returns 0 or an errno; EMFILE means that there are too few
 * free descriptors for one connection and the rest of the program. */
int http_guard_start(http_guard **out, const http_guard_options *options);
/* Returns the port on which the server listens, or 0 if it is unknown. */
int http_guard_port(const http_guard *guard);

/* Returns the number of connections that can be answered at the same time. It is smaller than
 * options.connections if too few descriptors are free. */
int http_guard_connections(const http_guard *guard);

/* To be called in on_request's first call for a request. Returns 0, or the HTTP status with which
 * to refuse the request and a line in `why`, `room` bytes, that says why. */
unsigned http_guard_check(http_guard *guard, struct MHD_Connection *c, char *why, size_t room);

/* Mark the begin and the end of the work for a request that has arrived completely, in a server
 * with a thread for each connection. http_guard_enter returns the number of connections that are
 * being answered, this one included. If it is more than http_guard_connections, on_request must
 * answer 503, so that the client tries again later, unless it can answer without blocking. */
int http_guard_enter(http_guard *guard, struct MHD_Connection *c);
void http_guard_leave(http_guard *guard, struct MHD_Connection *c);

/* Returns non-zero once http_guard_stop has been called. */
int http_guard_stopping(http_guard *guard);

/* Stops the server: refuses new connections, waits for answers that are being computed (at
 * most 10 s) and for requests and answers in transfer (at most 1 s), closes all connections
 * and frees the guard. */
void http_guard_stop(http_guard *guard);

#endif
