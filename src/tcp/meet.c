/* SPDX-License-Identifier: MIT */
/* The rendezvous: the members of a run find each other at the start. One member, the first,
 * listens. The other members connect to the first member and wait. When all members have come, the
 * first member sends each of them its number and the addresses of all listeners (TCP_COMPLETE).
 * Then all members connect to each other (join.c). Each member reports to the first member when it
 * is connected to all others (TCP_CONNECTED). When all members have reported, the first member
 * tells them that the run can begin (TCP_GO). If any member fails, the first member tells all
 * others the reason (TCP_FAILED), so that the rendezvous succeeds on all members or fails on all
 * members. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "tcp/join.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Value of joining.caller[m].fd: the note that this member expects from member m has arrived. From
 * the first member (m = 0) that note is TCP_GO, from any other member it is TCP_CONNECTED. */
enum { REPORTED = -2 };
/* time limit for connecting all members to each other, from the time when all have come */
#define CONNECT_NS UINT64_C(60000000000)
/* longest wait for the first member's note about the cause of a failure (receive_cause) */
#define CAUSE_NS UINT64_C(2000000000)
#define ENDING_NS UINT64_C(3000000000) /* longest wait for the previous run to end */
#define TELL_NS UINT64_C(10000000000)  /* interval between two notes to members that wait */

/* ---- listening ------------------------------------------------------------------------------- */

static int resolve(struct addrinfo **out, const ls_tcp_address *a)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    *out = NULL;
    return getaddrinfo(a->host, a->port, &hints, out);
}

/* Listens at all addresses of this host: IPv6 and IPv4, or IPv4 alone if the host has no IPv6. */
static int listen_at_all(joining *j)
{
    struct sockaddr_storage at;
    static const uint8_t any_six[16], any_four[16] = {[10] = 0xff, [11] = 0xff};
    const uint32_t port = (uint32_t)strtoul(j->listen.port, NULL, 10);
    socklen_t bytes = ls_tcp_unpack_address(&at, any_six, port);
    const int error = ls_tcp_listen(j, (struct sockaddr *)&at, bytes, true);
    if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
        return error;
    bytes = ls_tcp_unpack_address(&at, any_four, port);
    return ls_tcp_listen(j, (struct sockaddr *)&at, bytes, false);
}

static int fail_listen(const joining *j, int error, ls_error *err)
{
    char why[LS_REASON];
    const char *port = j->listen.port;
    if (error == EADDRNOTAVAIL)
        return ls_fail(err, LS_EINVAL,
                       "cannot listen at %s:%s: this host has no such address; :%s, without an "
                       "address, listens at all addresses of this host",
                       j->listen.host, port, port);
    if (error == EADDRINUSE)
        return ls_fail(
            err, LS_ESYSTEM,
            "cannot listen at %s:%s: another program or another run has this port; take "
            "another one, on all hosts. Of several processes on this host only the first "
            "needs it; the others can listen at %s:0",
            j->listen.host, port, j->listen.host);
    return ls_fail(err, LS_ESYSTEM, "cannot listen at %s:%s: %s", j->listen.host, port,
                   ls_reason(why, error));
}

/* Fails if a name resolves only to loopback addresses: on some systems /etc/hosts maps the host's
 * own name to 127.0.1.1. A loopback address that the user wrote as such ("127.0.0.1", "localhost")
 * is accepted. `cure`: the words of the message that say what to do, such as "listen at"; the
 * message adds the port. */
static int check_reached(const ls_tcp_address *a, const struct addrinfo *found, const char *cure,
                         ls_error *err)
{
    char shown[80];
    uint8_t packed[16];
    uint32_t port = 0;
    struct sockaddr_storage at = {0};
    if (ls_tcp_is_literal(a->host))
        return LS_OK;
    for (const struct addrinfo *f = found; f; f = f->ai_next)
        if (!ls_tcp_is_loopback(f->ai_addr))
            return LS_OK;
    memcpy(&at, found->ai_addr, found->ai_addrlen);
    ls_tcp_pack_address(packed, &port, &at);
    return ls_fail(err, LS_EINVAL,
                   "%s is %s here (/etc/hosts), which no other host reaches: %s :%s on this host",
                   a->host, ls_tcp_show_address(shown, packed, 0), cure, a->port);
}

/* Listens at the address that the options give. */
static int listen_as_configured(joining *j, ls_error *err)
{
    struct addrinfo *found;
    int error = EADDRNOTAVAIL;
    if (!j->listen.host[0]) {
        error = listen_at_all(j);
        return error ? fail_listen(j, error, err) : LS_OK;
    }
    const int code = resolve(&found, &j->listen);
    if (code)
        return ls_fail(err, LS_EINVAL, "%s has no address that is known here: %s", j->listen.host,
                       gai_strerror(code));
    int status = check_reached(&j->listen, found, "listen at", err);
    for (const struct addrinfo *a = found; a && status == LS_OK && error; a = a->ai_next)
        error = ls_tcp_listen(j, a->ai_addr, a->ai_addrlen, false);
    freeaddrinfo(found);
    return status == LS_OK && error ? fail_listen(j, error, err) : status;
}

/* ---- the first member ------------------------------------------------------------------------ */

/* Removes the callers (members that have connected) that have closed their connections. *count:
 * number of callers. */
static void drop_gone_callers(joining *j, int *count)
{
    for (int i = *count; i >= 1; i--) {
        if (!ls_tcp_is_closed(j->caller[i].fd))
            continue;
        ls_tcp_log(j, LS_LOG_WARNING, "host %s had come, but has closed its connection",
                   j->entry[i].host);
        close(j->caller[i].fd);
        j->caller[i] = j->caller[*count];
        j->entry[i] = j->entry[*count];
        j->caller[(*count)--].fd = -1;
    }
}

/* Formats "a, b, c", truncated if it gets too long. */
static void list_hosts(char *out, size_t size, const joining *j, int count)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i <= count; i++) {
        if (used + TCP_HOST + 8 > size) {
            snprintf(out + used, size - used, ", …");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", j->entry[i].host);
    }
}

/* Sends a note to the members 1 … count. note.member is here the number of members that have come,
 * the first member included (await_complete reads it from TCP_COMING). */
static void send_to_callers(joining *j, int count, ls_tcp_note_kind kind, const char *text)
{
    ls_tcp_note note = {
        .kind = kind, .members = (uint32_t)j->place.members, .member = (uint32_t)count + 1};
    snprintf(note.text, sizeof note.text, "%.*s", TCP_NOTE - 1, text);
    for (int i = 1; i <= count; i++)
        if (ls_tcp_send_now(&j->caller[i], &note, sizeof note))
            shutdown(j->caller[i].fd, SHUT_RDWR); /* drop_gone_callers() will remove it */
}

/* Logs how many members have come, and sends the number to the callers. */
static void report_progress(joining *j, int count, uint64_t *told_ns)
{
    char hosts[TCP_NOTE - 100];
    const int members = j->place.members, missing = members - count - 1;
    list_hosts(hosts, sizeof hosts, j, count);
    const bool news = missing > 0
                          ? ls_tcp_log_waiting(j, true, "%d of %d have come: %s; waiting for %d",
                                               count + 1, members, hosts, missing)
                          : ls_tcp_log_waiting(j, true, "all %d have come: %s", members, hosts);
    if (missing == 0 || (!news && ls_now_ns() - *told_ns < TELL_NS))
        return;
    *told_ns = ls_now_ns();
    send_to_callers(j, count, TCP_COMING, hosts);
}

/* Reports to this member and to the callers that not all members have come in time. */
static int fail_waiting(joining *j, int count, ls_error *err)
{
    char hosts[TCP_NOTE - 100];
    list_hosts(hosts, sizeof hosts, j, count);
    int status = ls_fail(
        err, LS_ETIMEDOUT,
        "%d of %d hosts have come to %s in %.0f s: %.200s; did every one start, with the same "
        "secret, and with --join to an address that leads here?",
        count + 1, j->place.members, j->where, (double)j->place.timeout * 1e-9, hosts);
    ls_error why = {0};
    ls_fail(&why, status,
            "host %s, the first, has stopped waiting: %d of %d hosts have come: %.200s", j->host,
            count + 1, j->place.members, hosts);
    send_to_callers(j, count, TCP_FAILED, why.text);
    return status;
}

/* Accepts connections until all members have come, and stores their addresses. */
static int gather_callers(joining *j, ls_error *err)
{
    const int others = j->place.members - 1;
    uint64_t told_ns = 0;
    int count = 0;
    memcpy(j->entry[0].host, j->host, sizeof j->host);
    ls_tcp_log(j, LS_LOG_INFO, "listening at %s, as the first of %d", j->where, others + 1);
    while (count < others) {
        hello h;
        ls_tcp_link link;
        report_progress(j, count, &told_ns);
        const bool came = ls_tcp_await_caller(
            j, ls_tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, j->until_ns), &link, &h);
        drop_gone_callers(j, &count);
        if (!came && ls_now_ns() >= j->until_ns)
            return fail_waiting(j, count, err);
        if (!came)
            continue;
        /* A caller that has a member number already does not come for this rendezvous. */
        if (h.from != TCP_NOBODY) {
            close(link.fd);
            continue;
        }
        j->caller[++count] = link;
        ls_tcp_set_entry(&j->entry[count], link.fd, &h);
    }
    report_progress(j, count, &told_ns);
    j->complete = true;
    return LS_OK;
}

/* Sorts the callers by the addresses of their listeners, so that the members' numbers do not depend
 * on the sequence in which the members came. */
static void sort_callers(joining *j)
{
    for (int i = 2; i < j->place.members; i++)
        for (int k = i; k > 1 && memcmp(&j->entry[k], &j->entry[k - 1], sizeof(entry)) < 0; k--) {
            const entry e = j->entry[k];
            const ls_tcp_link link = j->caller[k];
            j->entry[k] = j->entry[k - 1];
            j->caller[k] = j->caller[k - 1];
            j->entry[k - 1] = e;
            j->caller[k - 1] = link;
        }
}

/* Makes the names of hosts unique, as ls_names_number in src/cluster does: a name
 * that a member with a lower number has too gets "#" and the number of its own member appended. The
 * loop begins with the last member, so that each name is compared with unchanged names. */
static void make_names_unique(joining *j)
{
    for (int m = j->place.members - 1; m > 0; m--)
        for (int k = 0; k < m; k++)
            if (strcmp(j->entry[m].host, j->entry[k].host) == 0) {
                ls_tcp_number_name(j->entry[m].host, m);
                break;
            }
}

/* Sends each caller its number and the addresses of all members. The transport has one connection
 * to each member for each channel (sequence of messages, join.h). The connection over which the
 * caller has come now becomes the transport's connection for channel 0. */
static int send_numbers(joining *j, ls_error *err)
{
    char why[LS_REASON];
    const int members = j->place.members;
    for (int m = 1; m < members; m++) {
        const uint64_t until_ns = ls_tcp_try_until(j);
        ls_tcp_note head = {.kind = TCP_COMPLETE,
                            .members = (uint32_t)members,
                            .member = (uint32_t)m,
                            .run = j->run};
        ls_tcp_link *to = &j->caller[m];
        int error = ls_tcp_send(to, &head, sizeof head, until_ns);
        if (!error)
            error = ls_tcp_send(to, j->entry, (size_t)members * sizeof(entry), until_ns);
        ls_tcp_beat(j); /* tells this process that the thread has not hung (join.h) */
        if (error) {
            ls_error gone = {0};
            ls_fail(&gone, LS_ESYSTEM, "host %s had come, but its connection has ended: %s",
                    j->entry[m].host, ls_reason(why, error));
            send_to_callers(j, members - 1, TCP_FAILED, gone.text);
            return ls_fail(err, gone.status, "%s", gone.text);
        }
        ls_tcp_line_of(j->wire, m, 0)->link = *to;
        to->fd = -1;
    }
    return LS_OK;
}

/* The rendezvous of the first member, until all members have their numbers. */
static int be_first(joining *j, ls_error *err)
{
    j->is_first = true;
    int status = gather_callers(j, err);
    if (status)
        return status;
    sort_callers(j);
    make_names_unique(j);
    status = ls_tcp_draw(&j->run, sizeof j->run, err); /* a random number, the id of the run */
    return status ? status : send_numbers(j, err);
}

/* ---- the other members ----------------------------------------------------------------------- */

/* Opens this member's listener and writes its address into the hello. If the options give no
 * address, the listener uses the local address of this member's connection `fd` to the first
 * member. The first member can be reached in that network, so this member can probably be reached
 * there too. */
static int open_own_listener(joining *j, int fd, hello *h, ls_error *err)
{
    char why[LS_REASON];
    struct sockaddr_storage own = {0}, there = {0};
    socklen_t bytes = sizeof own;
    uint8_t unused[16];
    uint32_t port;
    int error = getsockname(fd, (struct sockaddr *)&own, &bytes) ? errno : 0;
    if (error)
        return ls_fail(err, LS_ESYSTEM, "cannot listen: %s", ls_reason(why, error));
    if (j->listen_fd < 0 && j->listen.port[0]) {
        int status = listen_as_configured(j, err);
        if (status)
            return status;
    }
    ls_tcp_pack_address(h->address, &port, &own);
    if (j->listen_fd < 0) {
        bytes = ls_tcp_unpack_address(&there, h->address, 0);
        if (own.ss_family == AF_INET6)
            ((struct sockaddr_in6 *)(void *)&there)->sin6_scope_id =
                ((struct sockaddr_in6 *)(void *)&own)->sin6_scope_id;
        error = ls_tcp_listen(j, (struct sockaddr *)&there, bytes, false);
    }
    bytes = sizeof there;
    if (!error && getsockname(j->listen_fd, (struct sockaddr *)&there, &bytes))
        error = errno;
    if (error)
        return ls_fail(err, LS_ESYSTEM, "cannot listen: %s", ls_reason(why, error));
    ls_tcp_pack_address(unused, &h->port, &there);
    if (j->advertises) {
        ls_tcp_pack_address(h->address, &port, &j->advertise);
        h->port = port ? port : h->port;
        h->advertised = 1;
    }
    return LS_OK;
}

/* Returns whether to try an address to which the name of the first member resolves. A loopback
 * address is tried only if the user wrote it. If the user wrote a name, a loopback address comes
 * from an entry for this host's own name in /etc/hosts. */
static bool is_to_try(const joining *j, const struct addrinfo *a)
{
    return ls_tcp_is_literal(j->meet.host) || !ls_tcp_is_loopback(a->ai_addr);
}

/* Tries the addresses of the first member in turn, until one answers. Stores that address in
 * j->first. */
static void reach_any(joining *j, int *fd, int *error)
{
    for (const struct addrinfo *a = j->found; a && *fd < 0; a = a->ai_next) {
        if (!is_to_try(j, a))
            continue;
        ls_tcp_dial(fd, error, a->ai_addr, a->ai_addrlen, ls_tcp_try_until(j));
        ls_tcp_beat(j);
        if (*fd < 0)
            continue;
        memcpy(&j->first, a->ai_addr, a->ai_addrlen);
        j->first_bytes = a->ai_addrlen;
    }
}

/* Resolves the first member's name again. The name can have another address by now, for example if
 * a cluster manager has restarted the first member. */
static void resolve_again(joining *j)
{
    struct addrinfo *found;
    if (resolve(&found, &j->meet))
        return;
    freeaddrinfo(j->found);
    j->found = found;
}

/* Connects to the address of the rendezvous. Tries again until j->until_ns. */
static int reach_first(joining *j, int *fd, ls_error *err)
{
    char why[LS_REASON];
    int error = 0;
    *fd = -1;
    snprintf(j->target, sizeof j->target, "%s", j->where);
    do {
        reach_any(j, fd, &error);
        if (*fd >= 0)
            break;
        ls_tcp_log_waiting(j, false,
                           "nobody answers at %s (%s): waiting for the first host, which says "
                           "--listen or has this address",
                           j->where, ls_reason(why, error));
        ls_tcp_pause(j);
        resolve_again(j);
    } while (ls_now_ns() < j->until_ns);
    return *fd >= 0 ? LS_OK
                    : ls_fail(err, LS_ETIMEDOUT,
                              "nobody answers at %s (%s) in %.0f s: has the first host started, "
                              "with --listen, and does a firewall let it through?",
                              j->where, ls_reason(why, error), (double)j->place.timeout * 1e-9);
}

/* Waits until all members have come, and receives this member's number and all addresses. In
 * TCP_COMING notes, note.member is the number of members that have come. In TCP_COMPLETE, it is the
 * number that the first member gives to this member. */
static int await_complete(joining *j, ls_tcp_link *link, ls_error *err)
{
    char why[LS_REASON];
    const int members = j->place.members;
    ls_tcp_note note = {0};
    int status;
    do {
        status = ls_tcp_receive_note(j, link, &note, j->until_ns, err);
        if (status == LS_OK && note.kind == TCP_FAILED)
            status = ls_fail(err, LS_ETIMEDOUT, "%s", note.text);
        if (status == LS_OK && note.kind == TCP_COMING)
            ls_tcp_log_waiting(j, true, "%u of %u have come: %s; waiting for %u",
                               (unsigned)note.member, (unsigned)note.members, note.text,
                               (unsigned)(note.members - note.member));
    } while (status == LS_OK && note.kind == TCP_COMING);
    if (status)
        return status;
    /* the number of this member, or of all members, does not fit this member's options */
    if (note.kind != TCP_COMPLETE || note.members != (uint32_t)members || note.member < 1 ||
        note.member >= (uint32_t)members)
        return ls_fail(err, LS_EDATA, "host %s, the first, calls this one member %u of %u",
                       j->verdict.host, (unsigned)note.member, (unsigned)note.members);
    const int error =
        ls_tcp_receive(link, j->entry, (size_t)members * sizeof(entry), ls_tcp_try_until(j));
    if (error)
        return ls_fail(err, error == EBADMSG ? LS_ESYSTEM : LS_EIO,
                       "the connection to host %s, the first, has failed before all had come: %s",
                       j->verdict.host, ls_tcp_reason(why, error));
    for (int m = 0; m < members; m++)
        j->entry[m].host[TCP_HOST - 1] = '\0';
    j->wire->base.member = (int)note.member;
    j->run = note.run;
    ls_tcp_log_waiting(j, true, "all %d have come: this is member %u, host %s is the first",
                       members, (unsigned)note.member, j->entry[0].host);
    return LS_OK;
}

/* Returns whether to call again after the verdict that the run has begun (TCP_BEGUN). The verdict
 * can come from the previous run, which is still ending on the first member's host. This process
 * waits up to ENDING_NS for its end. *until_ns: end of that wait; 0 before the first such
 * verdict. */
static bool may_end_soon(const joining *j, int status, uint64_t *until_ns)
{
    if (status != LS_EUNSUPPORTED || j->verdict.kind != TCP_BEGUN)
        return false;
    if (*until_ns == 0)
        *until_ns = ls_deadline_ns(ENDING_NS);
    return ls_now_ns() < *until_ns;
}

/* Returns whether to call again, and prepares the next call. This process calls again in two cases:
 * the connection was closed, for example by a gateway whose target does not listen yet; or the
 * previous run can still be ending (may_end_soon). */
static bool is_to_call_again(joining *j, ls_tcp_link *link, int status, const ls_error *why,
                             uint64_t *ending_ns)
{
    if ((status != LS_EIO && !may_end_soon(j, status, ending_ns)) || ls_now_ns() >= j->until_ns)
        return false;
    ls_tcp_log_waiting(j, false, "%.250s; calling again", why->text);
    ls_tcp_hang_up_link(link);
    ls_tcp_pause(j);
    resolve_again(j);
    return true;
}

int ls_tcp_call_first(joining *j, ls_error *err)
{
    hello h = {.from = TCP_NOBODY, .members = (uint32_t)j->place.members};
    ls_tcp_link *link = &ls_tcp_line_of(j->wire, 0, 0)->link;
    ls_error why = {0};
    uint64_t ending_ns = 0;
    int status;
    ls_tcp_log(j, LS_LOG_INFO, "joining the run at %s, as one of %d", j->where, j->place.members);
    do {
        j->verdict.kind = 0;
        status = reach_first(j, &link->fd, &why);
        if (status == LS_OK)
            status = open_own_listener(j, link->fd, &h, &why);
        if (status == LS_OK)
            status = ls_tcp_greet(j, link, &h, ls_tcp_try_until(j), &why);
        if (status == LS_OK && j->verdict.kind == TCP_WELCOME)
            status = await_complete(j, link, &why);
    } while (is_to_call_again(j, link, status, &why, &ending_ns));
    if (status && err)
        *err = why;
    return status;
}

/* ---- choosing the first member --------------------------------------------------------------- */

/* Resolves the first member's name. If the name is unknown, tries again until j->until_ns, because
 * some cluster managers make names known only after the hosts have started. */
static int await_name(joining *j, ls_error *err)
{
    int code;
    while ((code = resolve(&j->found, &j->meet)) != 0) {
        if (ls_now_ns() >= j->until_ns || (code != EAI_AGAIN && code != EAI_NONAME))
            return ls_fail(err, LS_EINVAL, "%s has no address that is known here: %s", j->meet.host,
                           gai_strerror(code));
        ls_tcp_log_waiting(j, false, "%s has no address that is known here (%s): waiting for one",
                           j->meet.host, gai_strerror(code));
        ls_tcp_pause(j);
    }
    if (ls_tcp_is_any(j->found->ai_addr))
        return ls_fail(
            err, LS_EINVAL,
            "%s stands for all addresses of a host and cannot be joined: say --listen :%s "
            "on the first host, and on the others --join with one of its addresses",
            j->where, j->meet.port);
    return check_reached(&j->meet, j->found, "say --listen", err);
}

/* Returns whether the error says that the address belongs to another host, or to a family (IPv6 or
 * IPv4) that this host does not have. */
static bool is_elsewhere(int error)
{
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

/* Decides whether this member is the first member. Called if the options do not say it. This member
 * is the first if it can listen at the address of the rendezvous. */
static int guess_first(joining *j, bool *first, ls_error *err)
{
    char why[LS_REASON];
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *a = j->found; a && is_elsewhere(error); a = a->ai_next)
        if (is_to_try(j, a))
            error = ls_tcp_listen(j, a->ai_addr, a->ai_addrlen, false);
    *first = error == 0;
    return *first || is_elsewhere(error) || error == EADDRINUSE
               ? LS_OK /* EADDRINUSE: another process on this host is the first member */
               : ls_fail(err, LS_ESYSTEM, "cannot listen at %s: %s", j->where,
                         ls_reason(why, error));
}

int ls_tcp_meet(joining *j, ls_error *err)
{
    bool first = !j->meet.port[0];
    int status = first ? listen_as_configured(j, err) : await_name(j, err);
    if (status == LS_OK && !first && !j->listen.port[0])
        status = guess_first(j, &first, err);
    if (status)
        return status;
    status = first ? be_first(j, err) : ls_tcp_call_first(j, err);
    j->until_ns = ls_deadline_ns(CONNECT_NS);
    return status;
}

/* ---- waiting until all are connected --------------------------------------------------------- */

static int fail_note(const joining *j, int member, const ls_tcp_note *note, ls_error *err)
{
    const char *host = j->entry[member].host;
    return member == 0 ? ls_fail(err, LS_ESYSTEM, "%.400s", note->text)
                       : ls_fail(err, LS_ESYSTEM, "host %s says: %.380s", host, note->text);
}

/* Reads the note that the member `member` has sent to this member, if it has arrived. (The first
 * member gets notes from all others; the others get notes from the first member, 0.) The first
 * member expects TCP_CONNECTED, the others expect TCP_GO. Fails if the note has another kind. Does
 * not wait. */
static int check_note_of(joining *j, int member, ls_error *err)
{
    ls_tcp_note note = {0};
    char why[LS_REASON];
    ls_tcp_link *link = &ls_tcp_line_of(j->wire, member, 0)->link;
    struct pollfd watch = {.fd = link->fd, .events = POLLIN};
    if (j->caller[member].fd == REPORTED || link->fd < 0 || poll(&watch, 1, 0) <= 0)
        return LS_OK;
    const int error = ls_tcp_receive(link, &note, sizeof note, ls_tcp_try_until(j));
    if (error)
        return ls_fail(err, LS_ESYSTEM,
                       "the connection to host %s has failed while the hosts were connecting: %s",
                       j->entry[member].host, ls_tcp_reason(why, error));
    note.text[TCP_NOTE - 1] = '\0';
    if (note.kind != (member == 0 ? TCP_GO : TCP_CONNECTED)) {
        j->failed_member = member;
        return fail_note(j, member, &note, err);
    }
    j->caller[member].fd = REPORTED;
    return LS_OK;
}

int ls_tcp_check_notes(joining *j, ls_error *err)
{
    int status = LS_OK;
    if (!j->is_first)
        return check_note_of(j, 0, err);
    for (int m = 1; m < j->place.members && status == LS_OK; m++)
        status = check_note_of(j, m, err);
    return status;
}

/* Returns whether all notes for which this member waits have arrived. */
static bool all_reported(const joining *j)
{
    for (int m = j->is_first; m < (j->is_first ? j->place.members : 1); m++)
        if (j->caller[m].fd != REPORTED)
            return false;
    return true;
}

/* Sends a note about this member's result: the first member to all others, another member to the
 * first. */
static void send_result(joining *j, int status, const char *text)
{
    ls_tcp_note note = {.kind = status        ? TCP_FAILED
                                : j->is_first ? TCP_GO
                                              : TCP_CONNECTED,
                        .members = (uint32_t)j->place.members,
                        .member = (uint32_t)j->failed_member};
    snprintf(note.text, sizeof note.text, "%.*s", TCP_NOTE - 1, text);
    for (int m = j->is_first; m < (j->is_first ? j->place.members : 1); m++) {
        ls_tcp_link *link = &ls_tcp_line_of(j->wire, m, 0)->link;
        if (link->fd >= 0)
            ls_tcp_send(link, &note, sizeof note, ls_tcp_try_until(j));
    }
}

/* Waits until the expected notes of all members have arrived (check_note_of). */
static int await_all(joining *j, ls_error *err)
{
    int status = ls_tcp_check_notes(j, err);
    while (status == LS_OK && !all_reported(j)) {
        if (ls_now_ns() >= j->until_ns)
            return ls_fail(err, LS_ETIMEDOUT,
                           "not all hosts have connected to each other in time: does a firewall "
                           "let them through?");
        (void)ls_tcp_ready(-1, 0, ls_now_ns() + TCP_AGAIN_NS / 20);
        ls_tcp_beat(j);
        status = ls_tcp_check_notes(j, err);
    }
    return status;
}

/* Replaces this member's error by the error of the member that failed first, because the failure of
 * one member makes other members fail too. The first member of the run receives the errors of all
 * members. It sends the error that arrives first to all other members. */
static int receive_cause(const joining *j, int status, ls_error *why)
{
    ls_tcp_note note = {0};
    ls_tcp_link *link = &ls_tcp_line_of(j->wire, 0, 0)->link;
    const uint64_t until_ns = ls_now_ns() + CAUSE_NS;
    if (link->fd < 0 || !ls_tcp_ready(link->fd, POLLIN, until_ns) ||
        ls_tcp_receive(link, &note, sizeof note, until_ns) || note.kind != TCP_FAILED)
        return status;
    note.text[TCP_NOTE - 1] = '\0';
    return note.member == (uint32_t)j->wire->base.member ? status : fail_note(j, 0, &note, why);
}

int ls_tcp_agree_to_go(joining *j, int status, ls_error *err)
{
    ls_error why = {0};
    if (status && err)
        why = *err;
    if (!j->is_first)
        send_result(j, status, why.text);
    if (status == LS_OK)
        status = await_all(j, &why);
    else if (!j->is_first)
        status = receive_cause(j, status, &why);
    if (j->is_first)
        send_result(j, status, why.text);
    if (status && err)
        *err = why;
    for (int m = 0; m < j->place.members; m++)
        j->caller[m].fd = -1;
    return status;
}
