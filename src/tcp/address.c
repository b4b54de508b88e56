/* SPDX-License-Identifier: MIT */
/* Parses and formats addresses, and packs them: an address becomes the 16 bytes of an IPv6 address.
 * `six` and `four` stand for IPv6 and IPv4. */
#include "base/error.h"
#include "tcp/join.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- addresses from users -------------------------------------------------------------------- */

static int fail_form(const char *text, bool bare, ls_error *err)
{
    return ls_fail(err, LS_EINVAL, "%.100s: expected %s, such as %s", text ? text : "no address",
                   bare ? "[ADDRESS]:PORT" : "HOST:PORT", bare ? ":7070" : "10.0.0.1:7070");
}

/* Splits "[HOST]:PORT" or "HOST:PORT". Returns false for any other text. */
static bool cut(ls_tcp_address *out, const char *text)
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    if (!colon)
        return false;
    const size_t length = (size_t)(colon - text);
    const bool brackets = length >= 2 && text[0] == '[' && colon[-1] == ']';
    const size_t host = brackets ? length - 2 : length, digits = strlen(colon + 1);
    if (host >= sizeof out->host || digits == 0 || digits >= sizeof out->port ||
        strspn(colon + 1, "0123456789") != digits)
        return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)host, text + brackets);
    snprintf(out->port, sizeof out->port, "%s", colon + 1);
    return true;
}

int ls_tcp_read_address(ls_tcp_address *out, const char *text, bool bare, ls_error *err)
{
    if (!cut(out, text) || (!bare && !out->host[0]))
        return fail_form(text, bare, err);
    if (text[0] != '[' && strchr(out->host, ':'))
        return ls_fail(err, LS_EINVAL,
                       "%.100s: an IPv6 address stands in brackets before the port: [%.100s]:%s",
                       text, out->host, out->port);
    const long port = strtol(out->port, NULL, 10);
    if (port < !bare || port > UINT16_MAX)
        return ls_fail(err, LS_EINVAL, "%.100s: expected a port from 1 to 65535", text);
    return LS_OK;
}

int ls_tcp_read_advertised(struct sockaddr_storage *out, const char *text, ls_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct in6_addr six;
    ls_tcp_address a = {.port = "0"};
    struct addrinfo *found = NULL;
    const bool whole = inet_pton(AF_INET6, text, &six) == 1 || !strchr(text, ':');
    if (whole)
        snprintf(a.host, sizeof a.host, "%.*s", MEET - 1, text);
    int status = whole ? LS_OK : ls_tcp_read_address(&a, text, false, err);
    if (status)
        return status;
    const int code = getaddrinfo(a.host, a.port, &hints, &found);
    if (code)
        return ls_fail(err, LS_EINVAL, "%s, which is to be advertised, has no address: %s", a.host,
                       gai_strerror(code));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    if (ls_tcp_is_any(found->ai_addr))
        status = ls_fail(err, LS_EINVAL,
                         "%s stands for all addresses of a host: advertise one that others reach",
                         a.host);
    freeaddrinfo(found);
    return status;
}

/* ---- kinds of addresses ---------------------------------------------------------------------- */

static struct in6_addr six_of(const struct sockaddr *at)
{
    struct in6_addr six = IN6ADDR_ANY_INIT;
    struct sockaddr_storage copy = {0};
    uint32_t port;
    memcpy(&copy, at,
           at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
    ls_tcp_pack_address(six.s6_addr, &port, &copy);
    return six;
}

bool ls_tcp_is_loopback(const struct sockaddr *at)
{
    const struct in6_addr six = six_of(at);
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool ls_tcp_is_any(const struct sockaddr *at)
{
    static const uint8_t none[4];
    const struct in6_addr six = six_of(at);
    return IN6_IS_ADDR_UNSPECIFIED(&six) ||
           (IN6_IS_ADDR_V4MAPPED(&six) && memcmp(six.s6_addr + 12, none, 4) == 0);
}

bool ls_tcp_is_literal(const char *host)
{
    const size_t length = strlen(host), suffix = strlen(".localhost");
    struct in6_addr six;
    struct in_addr four;
    return strcasecmp(host, "localhost") == 0 || strcasecmp(host, "ip6-localhost") == 0 ||
           (length > suffix && strcasecmp(host + length - suffix, ".localhost") == 0) ||
           inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1;
}

/* ---- addresses in messages ------------------------------------------------------------------- */

void ls_tcp_pack_address(uint8_t out[16], uint32_t *port, const struct sockaddr_storage *at)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)at;
    memset(out, 0, 16);
    *port = ntohs(at->ss_family == AF_INET ? four->sin_port : six->sin6_port);
    if (at->ss_family == AF_INET6) {
        memcpy(out, &six->sin6_addr, 16);
        return;
    }
    out[10] = out[11] = 0xff;
    memcpy(out + 12, &four->sin_addr, 4);
}

socklen_t ls_tcp_unpack_address(struct sockaddr_storage *out, const uint8_t address[16],
                                uint32_t port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    memcpy(&six.sin6_addr, address, 16);
    memcpy(&four.sin_addr, address + 12, 4);
    const bool is_four = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
    memset(out, 0, sizeof *out);
    memcpy(out, is_four ? (const void *)&four : (const void *)&six,
           is_four ? sizeof four : sizeof six);
    return is_four ? sizeof four : sizeof six;
}

const char *ls_tcp_show_address(char out[80], const uint8_t address[16], uint32_t port)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct in6_addr six;
    memcpy(&six, address, 16);
    const bool is_four = IN6_IS_ADDR_V4MAPPED(&six);
    inet_ntop(is_four ? AF_INET : AF_INET6, is_four ? address + 12 : address, text, sizeof text);
    if (port)
        snprintf(out, 80, is_four ? "%s:%u" : "[%s]:%u", text, (unsigned)port);
    else
        snprintf(out, 80, "%s", text);
    return out;
}

/* j->first is the address of the first member, and j->where is that address as text. j->target
 * receives the text of the address that is called, for messages. */
socklen_t ls_tcp_address_of(joining *j, int origin, struct sockaddr_storage *at)
{
    const entry *e = &j->entry[origin];
    char shown[80];
    if (origin > 0) {
        snprintf(j->target, sizeof j->target, "%s",
                 ls_tcp_show_address(shown, e->address[0], e->port));
        return ls_tcp_unpack_address(at, e->address[0], e->port);
    }
    snprintf(j->target, sizeof j->target, "%s", j->where);
    *at = j->first;
    return j->first_bytes;
}

void ls_tcp_take_name(char out[TCP_HOST], const char *from)
{
    memset(out, 0, TCP_HOST);
    for (int i = 0; i < TCP_HOST - 1 && from[i]; i++)
        out[i] = from[i] > ' ' && from[i] <= '~' ? from[i] : '?';
    if (!out[0])
        memcpy(out, "?", 2);
}

void ls_tcp_set_entry(entry *e, int fd, const hello *h)
{
    struct sockaddr_storage from = {0}, own;
    socklen_t bytes = sizeof from;
    uint32_t port;
    memset(e, 0, sizeof *e);
    e->port = h->port;
    ls_tcp_take_name(e->host, h->host);
    memcpy(e->address[0], h->address, 16);
    if (h->advertised || getpeername(fd, (struct sockaddr *)&from, &bytes))
        return;
    ls_tcp_pack_address(e->address[0], &port, &from);
    ls_tcp_unpack_address(&own, h->address, 0);
    if (memcmp(e->address[0], h->address, 16) != 0 && !ls_tcp_is_any((struct sockaddr *)&own) &&
        !ls_tcp_is_loopback((struct sockaddr *)&own))
        memcpy(e->address[1], h->address, 16);
}

void ls_tcp_number_name(char host[TCP_HOST], int number)
{
    const size_t length = strnlen(host, TCP_HOST - 8);
    snprintf(host + length, TCP_HOST - length, "#%d", number);
}
