/* SPDX-License-Identifier: MIT */
/* An HTTP server on libmicrohttpd with two protections. A client cannot prevent other clients from
 * being answered. A request that a web page of another server makes a browser send is refused.
 *
 * - A request must name the server by one of its own names (in the headers Host and Origin). The
 *   server refuses other requests.
 * - A client has time_limit_s seconds for each of these: to begin a request and send its headers,
 *   to send its body, and to receive the answer.
 * - A new connection is never refused. If there are too many connections after one was accepted,
 *   the server closes one on which it waits for the client. It chooses the client with the most
 *   connections, and of that client's connections the one on which the server has waited longest.
 *   It accepts further connections when libmicrohttpd has removed closed ones.
 * - The server leaves KEPT (guard.c) file descriptors for the rest of the program.
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
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address with its port. */
typedef union http_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
} http_address;

/* The names by which a server may be addressed, in the Host header of a request and in the Origin
 * header that a browser sends for a page. The check is against DNS rebinding, by which a web page
 * with a name of its own for the server's address could read and write on the server. */
typedef struct http_names {
    /* allowed host names, in addition to those of the loopback interface and the address to which
     * the client connected */
    const char *const *given;
    int count;
    const char *option; /* command-line option that adds a name, for the message of a refusal */
} http_names;

/* Checks Host and Origin of a request, and the host in its target. `authority`: that host, with a
 * port if there is one, or "". Returns 0 if the request is allowed. Otherwise returns 403 and
 * writes the reason to `why`, one line of at most `size` bytes. No browser sends a request without
 * a Host header; it is allowed. */
unsigned http_names_check(const http_names *names, struct MHD_Connection *c, const char *authority,
                          char *why, size_t size);

/* Checks how a request says where its body ends (RFC 9112, section 6): by Content-Length, or by a
 * Transfer-Encoding that is chunked. Returns 0 if the server can read such a body. Otherwise
 * returns 400 or 501, and writes the reason to `why`, one line of at most `size` bytes. */
unsigned http_framing_check(struct MHD_Connection *c, const char *version, char *why, size_t size);
/* Returns the path of a request's target, which is a path, or a URL as proxies send it. Writes the
 * URL's host and port, or "", to `authority`. A longer one is cut off at `size` bytes. */
const char *http_path(const char *target, char *authority, size_t size);
/* Returns whether a Content-Type is `wanted`, whatever its case and parameters are. `content_type`
 * NULL: the request has none. */
bool http_is_type(const char *content_type, const char *wanted);

typedef struct http_guard http_guard;

typedef struct http_guard_options {
    const struct sockaddr *address; /* address on which the server listens */
    http_names names;               /* host names by which requests may address this server */
    int connections;                /* most connections that are answered at the same time */
    /* time limit in seconds for each phase of a connection (see the head of this file) */
    int time_limit_s;
    size_t memory;       /* memory of libmicrohttpd for each connection in bytes; 0: its default */
    int thread_for_each; /* non-zero: each connection has a thread; on_request may block */
    MHD_AccessHandlerCallback on_request; /* libmicrohttpd calls it for each part of a request */
    MHD_RequestCompletedCallback on_end;  /* called after a request; NULL is allowed */
    void *user;                           /* argument of both callbacks */
} http_guard_options;

/* Starts the server and its threads, in which all signals are blocked. *out is set before the first
 * request can arrive. Returns 0 or an errno; EMFILE means that there are too few free file
 * descriptors for one connection and the rest of the program. */
int http_guard_start(http_guard **out, const http_guard_options *options);
/* Returns the port on which the server listens, or 0 if it is unknown. */
int http_guard_port(const http_guard *guard);

/* Returns the number of connections that can be answered at the same time. This number is smaller
 * than options.connections if too few file descriptors are free. */
int http_guard_connections(const http_guard *guard);

/* Checks a request. on_request must call this function in its first call for a request, with its
 * arguments `target` and `version`. Sets *target to the path. Returns 0 if the request is allowed.
 * Otherwise returns the HTTP status with which on_request must refuse it, and writes the reason to
 * `why`, one line of at most `size` bytes. With a status other than 403 on_request must answer in
 * this call, because nobody knows where the body ends; libmicrohttpd then closes the connection. */
unsigned http_guard_check(http_guard *guard, struct MHD_Connection *c, const char **target,
                          const char *version, char *why, size_t size);

/* Marks the beginning of the work for a request that has arrived completely. Only for a server with
 * a thread for each connection. Returns the number of connections that are being answered. If it is
 * greater than http_guard_connections, on_request must refuse each request whose answer can block,
 * with the status 503. */
int http_guard_enter(http_guard *guard, struct MHD_Connection *c);
/* Marks the end of the work that http_guard_enter began. */
void http_guard_leave(http_guard *guard, struct MHD_Connection *c);

/* Returns non-zero once http_guard_stop has been called. */
int http_guard_stopping(http_guard *guard);

/* Stops the server: refuses new connections, waits for answers that are being computed (at
 * most 10 s) and for requests and answers in transfer (at most 1 s), closes all connections
 * and frees the guard. */
void http_guard_stop(http_guard *guard);

#endif
