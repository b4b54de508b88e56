/* What stands between a server and those who ask it: libmicrohttpd's daemon, started so that nobody can
 * lock others out of it, and that no page of elsewhere can make a browser talk to it.
 *
 *  - A request is for one of the server's own names; others are refused.
 *  - A connection has so many seconds to bring a request's headers, as many for the body, and as many to
 *    take the answer; it may sit idle for as long.
 *  - A connection is never turned away. When there are too many, one that is not being answered is closed:
 *    the client that has most of them loses the one that has kept the server waiting longest. Those who
 *    come meanwhile wait a moment.
 *  - Descriptors are left for the rest of the program.
 *
 * For programs: an OBJECT of its own, which needs libmicrohttpd and nothing of Lockstep. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

/* An address of either family. */
typedef union http_place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
} http_place;

/* By which names a server may be asked: its Host, and the Origin of the page that asks. A web page may give the
 * server's address a name of its own (DNS rebinding), and a browser then lets it read and write there. */
typedef struct http_names {
    const char *const *given; /* besides loopback's names and the address that the client reached */
    int count;
    const char *option; /* which adds one; for the message */
} http_names;

/* 0, or 403, and a line that says why. A request without a Host is no browser's. */
unsigned http_names_check(const http_names *names, struct MHD_Connection *c, char *why,
                          size_t room);

typedef struct http_guard http_guard;

typedef struct http_guard_options {
    const struct sockaddr *address; /* where it listens */
    http_names names;
    int connections;     /* that are answered at the same time */
    int patience_s;      /* for the headers, for the body, for taking the answer: each */
    size_t memory;       /* of a connection; 0: the library's choice */
    int thread_for_each; /* a thread for each connection, so that answers may wait */
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_end; /* NULL is allowed */
    void *user;                          /* of both */
} http_guard_options;

/* Listens; the server's threads are made by this one, and take no signals. Returns 0 or an errno; EMFILE: fewer
 * descriptors are free than one connection and the program itself need. */
int http_guard_start(http_guard **out, const http_guard_options *options);
int http_guard_port(const http_guard *guard);

/* How many connections are answered at the same time: fewer than were asked for where descriptors are short. */
int http_guard_connections(const http_guard *guard);

/* In on_request's first call for a request: 0, or the code to refuse it with, and a line that says why. */
unsigned http_guard_check(http_guard *guard, struct MHD_Connection *c, char *why, size_t room);

/* In a server with a thread for each connection: around the work for a request that came as a whole. The first
 * returns how many are answered now, this one included: more than http_guard_connections must be told to
 * come again, unless the answer needs no waiting. */
int http_guard_enter(http_guard *guard, struct MHD_Connection *c);
void http_guard_leave(http_guard *guard, struct MHD_Connection *c);

/* Non-zero from the moment that http_guard_stop was called. */
int http_guard_stopping(http_guard *guard);

/* Refuses what is new, lets answers that are being made end (10 s), and bodies that are half here (1 s), closes
 * everything and frees. */
void http_guard_stop(http_guard *guard);

#endif
