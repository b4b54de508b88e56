/* How members find each other. The one that owns the address is the first: it waits until all have called,
 * and tells them who they are and where the others listen. Then each connects to those before it, by channel. */
#include "tcp/join.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOBODY UINT32_MAX /* a caller that has no number yet */
#define WAIT_NS UINT64_C(100000000000)

static int no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for a rendezvous");
}

/* ---- sockets ---------------------------------------------------------------------------------- */

/* Listens there: 0, or errno. */
static int try_door(joining *j, const struct sockaddr *at, socklen_t bytes)
{
    const int on = 1;
    j->door = socket(at->sa_family, SOCK_STREAM, 0);
    if (j->door < 0)
        return errno;
    tcp_set_up(j->door);
    setsockopt(j->door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(j->door, at, bytes) == 0 && listen(j->door, SOMAXCONN) == 0)
        return 0;
    const int error = errno;
    close(j->door);
    j->door = -1;
    return error;
}

/* On this side of the connection to the first member, which is the network that leads to it. */
static int open_own_door(joining *j, int fd, uint32_t *port, ls_error *err)
{
    char why[LS_REASON];
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&own;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&own;
    int error = getsockname(fd, (struct sockaddr *)&own, &bytes) ? errno : 0;
    in_port_t *at = own.ss_family == AF_INET ? &four->sin_port : &six->sin6_port;
    *at = 0;
    if (!error)
        error = try_door(j, (struct sockaddr *)&own, bytes);
    if (!error && getsockname(j->door, (struct sockaddr *)&own, &bytes))
        error = errno;
    *port = ntohs(*at);
    return error ? ls_fail(err, LS_ESYSTEM, "cannot listen: %s", ls_reason(why, error)) : LS_OK;
}

/* Connects, anew while nobody listens yet: *fd, or −1 and errno in *error. */
static void try_to_reach(int *fd, int *error, const struct sockaddr *at, socklen_t bytes,
                         uint64_t until_ns)
{
    socklen_t size = sizeof *error;
    *fd = socket(at->sa_family, SOCK_STREAM, 0);
    *error = errno;
    if (*fd < 0)
        return;
    tcp_set_up(*fd);
    *error = connect(*fd, at, bytes) ? errno : 0;
    if (*error == EINPROGRESS || *error == EINTR) {
        *error = ETIMEDOUT;
        if (tcp_ready(*fd, POLLOUT, until_ns) &&
            getsockopt(*fd, SOL_SOCKET, SO_ERROR, error, &size) != 0)
            *error = errno;
    }
    if (*error) {
        close(*fd);
        *fd = -1;
    }
}

static void pause_until(uint64_t until_ns)
{
    /* Nothing to be ready: it sleeps. */
    (void)tcp_ready(-1, 0, tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, until_ns));
}

/* ---- calling ---------------------------------------------------------------------------------- */

static int reach_first(joining *j, int *fd, ls_error *err)
{
    char why[LS_REASON];
    int error = 0;
    *fd = -1;
    do {
        for (const struct addrinfo *a = j->found; a && *fd < 0; a = a->ai_next) {
            try_to_reach(fd, &error, a->ai_addr, a->ai_addrlen, tcp_try_until(j));
            if (*fd < 0)
                continue;
            memcpy(&j->first, a->ai_addr, a->ai_addrlen);
            j->first_bytes = a->ai_addrlen;
        }
        if (*fd < 0)
            pause_until(j->until_ns);
    } while (*fd < 0 && ls_now_ns() < j->until_ns);
    return *fd >= 0 ? LS_OK
                    : ls_fail(err, LS_ETIMEDOUT,
                              "nobody answers at %s (%s): has the first host started, and does a "
                              "firewall let it through?",
                              j->meet, ls_reason(why, error));
}

void tcp_reach(joining *j, int origin, int *fd, int *error)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    const struct sockaddr *at = (const struct sockaddr *)&j->first;
    socklen_t bytes = j->first_bytes;
    if (origin > 0) {
        const entry *e = &j->entry[origin];
        memcpy(&six.sin6_addr, e->address, 16);
        memcpy(&four.sin_addr, e->address + 12, 4);
        six.sin6_port = four.sin_port = htons((uint16_t)e->port);
        const bool is_four = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
        at = is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six;
        bytes = is_four ? sizeof four : sizeof six;
    }
    try_to_reach(fd, error, at, bytes, tcp_try_until(j));
}

static int reach_member(joining *j, int member, int *fd, ls_error *err)
{
    char why[LS_REASON];
    int error = 0;
    tcp_reach(j, tcp_set_nth(&j->vote.formed.set, member), fd, &error);
    tcp_beat(j);
    return *fd >= 0 ? LS_OK
                    : ls_fail(err, LS_ESYSTEM, "member %d cannot be reached from here: %s", member,
                              ls_reason(why, error));
}

/* What the first tells each caller. */
typedef struct welcome {
    uint32_t members, member;
    uint64_t run;
} welcome;

/* ---- the first member ------------------------------------------------------------------------- */

/* Callers that have hung up are removed. */
static void forget_gone(joining *j, int *count)
{
    char byte;
    for (int i = *count; i >= 1; i--) {
        const ssize_t n = recv(j->caller[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
            continue;
        close(j->caller[i]);
        j->caller[i] = j->caller[*count];
        j->entry[i] = j->entry[*count];
        j->caller[(*count)--] = -1;
    }
}

static void note_entry(entry *e, int fd, uint32_t port)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof from;
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)&from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)&from;
    memset(e, 0, sizeof *e);
    e->port = port;
    if (getpeername(fd, (struct sockaddr *)&from, &bytes))
        return;
    if (from.ss_family == AF_INET6) {
        memcpy(e->address, &six->sin6_addr, 16);
        return;
    }
    e->address[10] = e->address[11] = 0xff;
    memcpy(e->address + 12, &four->sin_addr, 4);
}

static int gather_callers(joining *j, ls_error *err)
{
    const int others = j->place.members - 1;
    int count = 0;
    while (count < others) {
        hello h;
        const int fd = tcp_await_caller(j, j->until_ns, &h);
        forget_gone(j, &count);
        if (fd < 0)
            return ls_fail(
                err, LS_ETIMEDOUT,
                "%d of %d hosts have come to %s: did every one start, with the same secret?",
                count + 1, others + 1, j->meet);
        if (h.from != NOBODY) {
            close(fd);
            continue;
        }
        j->caller[++count] = fd;
        note_entry(&j->entry[count], fd, h.port);
    }
    return LS_OK;
}

/* By where they listen, so that the same hosts have the same numbers whoever comes first. */
static void sort_callers(joining *j)
{
    for (int i = 2; i < j->place.members; i++)
        for (int k = i; k > 1 && memcmp(&j->entry[k], &j->entry[k - 1], sizeof(entry)) < 0; k--) {
            const entry e = j->entry[k];
            const int fd = j->caller[k];
            j->entry[k] = j->entry[k - 1];
            j->caller[k] = j->caller[k - 1];
            j->entry[k - 1] = e;
            j->caller[k - 1] = fd;
        }
}

/* Each caller's line is its first channel's from now on. */
static int tell_callers(joining *j, ls_error *err)
{
    char why[LS_REASON];
    const int members = j->place.members;
    for (int m = 1; m < members; m++) {
        welcome head = {(uint32_t)members, (uint32_t)m, j->run};
        int error = tcp_move_all(j->caller[m], &head, sizeof head, true, j->until_ns);
        if (!error)
            error = tcp_move_all(j->caller[m], j->entry, (size_t)members * sizeof(entry), true,
                                 j->until_ns);
        if (error)
            return ls_fail(err, LS_ESYSTEM, "a host that had come is gone: %s",
                           ls_reason(why, error));
        tcp_line_of(j->wire, m, 0)->fd = j->caller[m];
        j->caller[m] = -1;
    }
    return LS_OK;
}

static int be_first(joining *j, ls_error *err)
{
    int status = gather_callers(j, err);
    if (status)
        return status;
    sort_callers(j);
    status = tcp_draw(&j->run, sizeof j->run, err);
    return status ? status : tell_callers(j, err);
}

/* ---- the others ------------------------------------------------------------------------------- */

static int hear_first(joining *j, int fd, ls_error *err)
{
    char why[LS_REASON];
    welcome head;
    const int members = j->place.members;
    int error = tcp_move_all(fd, &head, sizeof head, false, j->until_ns);
    if (!error && head.members != (uint32_t)members)
        return ls_fail(err, LS_EINVAL,
                       "this host expects %d members, the first one %u: say the same on all",
                       members, (unsigned)head.members);
    if (!error)
        error = tcp_move_all(fd, j->entry, (size_t)members * sizeof(entry), false, j->until_ns);
    if (error)
        return ls_fail(err, LS_ETIMEDOUT, "the first host waits for the others no longer: %s",
                       error == ETIMEDOUT ? "the time is over" : ls_reason(why, error));
    if (head.member < 1 || head.member >= (uint32_t)members)
        return ls_fail(err, LS_EDATA, "the first host calls this one member %u of %d",
                       (unsigned)head.member, members);
    j->wire->base.member = (int)head.member;
    j->run = head.run;
    return LS_OK;
}

/* One that was hung up on, which a crowd of strangers at the other end can cause. */
static bool is_to_call_again(joining *j, tcp_line *line, int status)
{
    if (status != LS_EIO || ls_now_ns() >= j->until_ns)
        return false;
    close(line->fd);
    line->fd = -1;
    pause_until(j->until_ns);
    return true;
}

static int call_first(joining *j, ls_error *err)
{
    hello h = {.from = NOBODY};
    tcp_line *line = tcp_line_of(j->wire, 0, 0);
    int status;
    do {
        status = reach_first(j, &line->fd, err);
        if (status == LS_OK && j->door < 0)
            status = open_own_door(j, line->fd, &h.port, err);
        if (status == LS_OK)
            status = tcp_greet(j, line->fd, &h, err);
    } while (is_to_call_again(j, line, status));
    return status ? status : hear_first(j, line->fd, err);
}

/* ---- the other connections -------------------------------------------------------------------- */

/* To those before this one; at the start the first member's first channel is there already. */
static int call_members(joining *j, ls_error *err)
{
    const int own = j->wire->base.member;
    int status = LS_OK;
    for (int i = 0; i < own * LS_WIRE_CHANNELS && status == LS_OK; i++) {
        const int member = i / LS_WIRE_CHANNELS, channel = i % LS_WIRE_CHANNELS;
        hello h = {
            .from = (uint32_t)own, .channel = (uint32_t)channel, .group = j->vote.formed.number};
        tcp_line *line = tcp_line_of(j->wire, member, channel);
        if (line->fd >= 0)
            continue;
        do {
            status = reach_member(j, member, &line->fd, err);
            if (status == LS_OK)
                status = tcp_greet(j, line->fd, &h, err);
        } while (is_to_call_again(j, line, status));
    }
    return status;
}

/* Makes the caller's connection a line. A caller of another group, or of a vote, is refused. Returns whether it was
 * taken. */
static bool take_member(joining *j, int fd, const hello *h)
{
    const uint32_t own = (uint32_t)j->wire->base.member, members = (uint32_t)j->wire->base.members;
    tcp_line *line = h->from > own && h->from < members && h->channel < LS_WIRE_CHANNELS &&
                             h->run == j->run && h->group == j->vote.formed.number
                         ? tcp_line_of(j->wire, (int)h->from, (int)h->channel)
                         : NULL;
    if (!line || line->fd >= 0) {
        close(fd);
        return false;
    }
    line->fd = fd;
    return true;
}

static int await_members(joining *j, ls_error *err)
{
    const int own = j->wire->base.member, members = j->wire->base.members;
    int missing = 0;
    for (int i = (own + 1) * LS_WIRE_CHANNELS; i < members * LS_WIRE_CHANNELS; i++)
        if (j->wire->line[i].fd < 0)
            missing++;
    while (j->earlies > 0) {
        j->earlies--;
        missing -= take_member(j, j->early[j->earlies].fd, &j->early[j->earlies].said);
    }
    while (missing > 0) {
        hello h;
        const int fd = tcp_await_caller(j, j->until_ns, &h);
        if (fd < 0)
            return ls_fail(err, LS_ETIMEDOUT,
                           "not every host reaches this one: does a firewall let it through?");
        missing -= take_member(j, fd, &h);
    }
    return LS_OK;
}

int tcp_connect_all(joining *j, ls_error *err)
{
    int status = call_members(j, err);
    return status ? status : await_members(j, err);
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* "HOST:PORT", the host in brackets where it has colons itself. */
static int read_place(joining *j, ls_error *err)
{
    const ls_tcp_place *p = &j->place;
    const char *colon = p->meet ? strrchr(p->meet, ':') : NULL;
    const size_t length = colon ? (size_t)(colon - p->meet) : 0;
    const bool brackets = length > 2 && p->meet[0] == '[' && colon[-1] == ']';
    if (!length || length >= MEET || !colon[1] ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return ls_fail(err, LS_EINVAL, "%.100s: expected HOST:PORT, such as 10.0.0.1:7070",
                       p->meet ? p->meet : "no address");
    const long port = strtol(colon + 1, NULL, 10);
    if (port < 1 || port > UINT16_MAX)
        return ls_fail(err, LS_EINVAL, "%.100s: expected a port from 1 to 65535", p->meet);
    if (p->members < 1 || p->members > LS_MEMBERS_MAX)
        return ls_fail(err, LS_EINVAL, "%d members: expected 1 to %d", p->members, LS_MEMBERS_MAX);
    if (!p->secret || p->secret_bytes < LS_TCP_SECRET_LEAST)
        return ls_fail(err, LS_EINVAL, "a secret of %zu bytes: expected at least %d",
                       p->secret_bytes, LS_TCP_SECRET_LEAST);
    snprintf(j->meet, sizeof j->meet, "%s", p->meet);
    snprintf(j->host, sizeof j->host, "%.*s", (int)(brackets ? length - 2 : length),
             p->meet + brackets);
    j->port = j->meet + length + 1;
    return LS_OK;
}

/* A copy: the caller may be gone when this still goes on. */
static int keep_secret(joining *j, ls_error *err)
{
    j->secret = ls_alloc(NULL, j->place.secret_bytes);
    if (!j->secret)
        return no_memory(err);
    j->place.secret = memcpy(j->secret, j->place.secret, j->place.secret_bytes);
    return LS_OK;
}

static int find_address(joining *j, ls_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const int code = getaddrinfo(j->host, j->port, &hints, &j->found);
    return code ? ls_fail(err, LS_EINVAL, "%s has no address that is known here: %s", j->host,
                          gai_strerror(code))
                : LS_OK;
}

/* No address of this machine, or of no network that it has. */
static bool is_elsewhere(int error)
{
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

/* The member that can bind the address is member 0. */
static int find_first(joining *j, bool *first, ls_error *err)
{
    char why[LS_REASON];
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *a = j->found; a && is_elsewhere(error); a = a->ai_next)
        error = try_door(j, a->ai_addr, a->ai_addrlen);
    *first = error == 0;
    return *first || is_elsewhere(error) || error == EADDRINUSE
               ? LS_OK /* in use: by the first member, on this machine */
               : ls_fail(err, LS_ESYSTEM, "cannot listen at %s: %s", j->meet,
                         ls_reason(why, error));
}

static int meet(joining *j, ls_error *err)
{
    bool first = false;
    const size_t members = (size_t)j->place.members;
    j->caller = ls_alloc_array(NULL, members, sizeof *j->caller);
    j->entry = ls_alloc_array(NULL, members, sizeof *j->entry);
    if (!j->caller || !j->entry)
        return no_memory(err);
    for (size_t i = 0; i < members; i++)
        j->caller[i] = -1;
    int status = find_address(j, err);
    if (status == LS_OK)
        status = find_first(j, &first, err);
    if (status == LS_OK)
        status = first ? be_first(j, err) : call_first(j, err);
    if (status == LS_OK)
        status = tcp_vote_init(&j->vote, j->wire->base.member, j->place.members, err);
    return status ? status : tcp_connect_all(j, err);
}

void tcp_hang_up(joining *j)
{
    for (int i = 0; j->caller && i < j->place.members; i++)
        if (j->caller[i] >= 0)
            close(j->caller[i]);
    while (j->guests > 0)
        close(j->guest[--j->guests].fd);
    while (j->earlies > 0)
        close(j->early[--j->earlies].fd);
    ls_free(NULL, j->caller);
    j->caller = NULL;
}

void tcp_forget_meeting(joining *j)
{
    if (!j)
        return;
    tcp_hang_up(j);
    if (j->door >= 0)
        close(j->door);
    if (j->found)
        freeaddrinfo(j->found);
    ls_free(NULL, j->secret);
    ls_free(NULL, j->entry);
    tcp_vote_fini(&j->vote);
    ls_free(NULL, j);
}

int tcp_join(tcp_wire *w, const ls_tcp_place *place, bool again, ls_error *err)
{
    joining *j = ls_alloc(NULL, sizeof *j);
    if (!j)
        return no_memory(err);
    j->wire = w;
    j->place = *place;
    j->door = -1;
    j->until_ns = ls_deadline_ns(place->wait_ns ? place->wait_ns : WAIT_NS);
    j->try_ns = TCP_TRY_NS;
    int status = read_place(j, err);
    if (status == LS_OK)
        status = keep_secret(j, err);
    if (status == LS_OK)
        status = tcp_make_lines(w, place->members, err);
    if (status == LS_OK && place->members > 1)
        status = meet(j, err);
    if (status || !again || place->members == 1) {
        tcp_forget_meeting(j);
        return status;
    }
    tcp_hang_up(j);
    w->meeting = j; /* the door stays open, so that nobody else gets its port; callers wait at it */
    return LS_OK;
}
