/* SPDX-License-Identifier: MIT */
/* Checks the names by which a request addresses the server, in its headers Host and Origin
 * (http_names in guard.h). */
#include "http/guard.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Splits "name", "name:80" or "[::1]:80" into name and port ("" if there is none). Returns false
 * for any other text. */
static bool split(const char *authority, char name[256], const char **port)
{
    const bool bracketed = authority[0] == '[';
    const char *begin = authority + bracketed;
    size_t length = strcspn(begin, bracketed ? "]" : ":");
    const char *rest = begin + length;
    if (bracketed && *rest++ != ']')
        return false;
    *port = *rest == ':' ? rest + 1 : "";
    if ((*rest && *rest != ':') || (*port)[strspn(*port, "0123456789")] || length >= 256)
        return false;
    if (length > 0 && begin[length - 1] == '.') /* the final dot of a fully qualified DNS name */
        length--;
    memcpy(name, begin, length);
    name[length] = '\0';
    return length > 0;
}

static bool is_loopback(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(name, "localhost") == 0;
}

/* Returns whether `name` is the address to which the client connected. This address belongs to this
 * host, so it cannot be the name of another server. */
static bool is_here(struct MHD_Connection *c, const char *name)
{
    http_address here;
    struct in_addr v4;
    struct in6_addr v6;
    socklen_t length = sizeof here;
    const int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (getsockname(fd, &here.any, &length) != 0)
        return false;
    if (here.any.sa_family == AF_INET && inet_pton(AF_INET, name, &v4) == 1)
        return v4.s_addr == here.v4.sin_addr.s_addr;
    return here.any.sa_family == AF_INET6 && inet_pton(AF_INET6, name, &v6) == 1 &&
           memcmp(&v6, &here.v6.sin6_addr, sizeof v6) == 0;
}

static bool is_given(const http_names *names, const char *name)
{
    int i = 0;
    while (i < names->count && strcasecmp(names->given[i], name) != 0)
        i++;
    return i < names->count;
}

/* A check in progress: argument of check_host and check_origin, which libmicrohttpd calls for each
 * header. */
typedef struct asked {
    const http_names *names;
    struct MHD_Connection *c;
    /* name and value of the header that is refused; NULL: none is refused */
    const char *wrong, *value;
    char port[8]; /* port of the Host header */
} asked;

/* Returns whether `authority` is a name of this server. Sets *given: the options list the name. */
static bool is_own(const asked *a, const char *authority, const char **port, bool *given)
{
    char name[256];
    if (!split(authority, name, port))
        return false;
    *given = is_given(a->names, name);
    return *given || is_loopback(name) || is_here(a->c, name);
}

static enum MHD_Result check_host(void *user, enum MHD_ValueKind kind, const char *key,
                                  const char *value)
{
    asked *a = user;
    const char *port = "";
    bool given;
    (void)kind;
    if (strcasecmp(key, "Host") != 0)
        return MHD_YES;
    if (!value || !is_own(a, value, &port, &given)) {
        a->wrong = "Host";
        a->value = value ? value : "";
    }
    snprintf(a->port, sizeof a->port, "%s", port);
    return a->wrong ? MHD_NO : MHD_YES;
}

/* Checks an Origin header. A page of another server on this host is refused too, because its port
 * differs from the port in the Host header. A name that the options list is accepted with any
 * port. */
static enum MHD_Result check_origin(void *user, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    asked *a = user;
    const char *port, *authority = value ? strstr(value, "://") : NULL;
    bool given;
    (void)kind;
    if (strcasecmp(key, "Origin") != 0)
        return MHD_YES;
    if (authority && is_own(a, authority + 3, &port, &given) &&
        (given || strcmp(port, a->port) == 0))
        return MHD_YES;
    a->wrong = "Origin";
    a->value = value ? value : "";
    return MHD_NO;
}

unsigned http_names_check(const http_names *names, struct MHD_Connection *c, const char *authority,
                          char *why, size_t size)
{
    asked a = {.names = names, .c = c};
    if (authority[0])
        check_host(&a, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST, authority);
    if (!a.wrong)
        MHD_get_connection_values(c, MHD_HEADER_KIND, check_host, &a);
    if (!a.wrong)
        MHD_get_connection_values(c, MHD_HEADER_KIND, check_origin, &a);
    if (!a.wrong)
        return 0;
    snprintf(
        why, size,
        "%s: %.100s is not a name of this server; to make it one, start the server with %s and "
        "that name",
        a.wrong, a.value, names->option);
    return MHD_HTTP_FORBIDDEN;
}
