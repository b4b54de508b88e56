/* SPDX-License-Identifier: MIT */
/* Connects the members of a run to each other. The members have found each other in the rendezvous
 * (meet.c) or in a vote (regroup.c). Then each member connects to all members of the host group
 * with lower numbers, once for each channel, and waits for the connections of the members with
 * higher numbers. If the direction between two members is turned (voters.c), they connect in a
 * second round. A member in a round waits only for members with lower numbers, and, in the second
 * round, for members with higher numbers and for the end of first rounds. So no members wait for
 * each other in a circle.
 *
 * A *hello* is a caller's first message. `j->place` has the options: addresses, number of members
 * and secret. `j->how` is NULL at the start of a run, and has the arguments of a regrouping while
 * one is in progress. */
#include "tcp/join.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS UINT64_C(600000000000) /* default time limit of a rendezvous: 10 minutes */

static int no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for a rendezvous");
}

/* ---- addresses of the others ----------------------------------------------------------------- */

void ls_tcp_reach(joining *j, int origin, int *fd, int *error)
{
    struct sockaddr_storage at;
    const socklen_t bytes = ls_tcp_address_of(j, origin, &at);
    ls_tcp_dial(fd, error, (const struct sockaddr *)&at, bytes, ls_tcp_try_until(j));
}

/* Returns whether a second address of the member's listener is known (ls_tcp_set_entry). */
static bool has_another(const entry *e)
{
    static const uint8_t none[16];
    return memcmp(e->address[1], none, sizeof none) != 0;
}

/* Swaps the first and the second address of a member. */
static void swap_addresses(entry *e)
{
    uint8_t address[16];
    memcpy(address, e->address[0], sizeof address);
    memcpy(e->address[0], e->address[1], sizeof address);
    memcpy(e->address[1], address, sizeof address);
}

/* Reports that a member cannot be reached. The message recommends --advertise, because the other
 * host possibly has a second address at which it can be reached. */
static int fail_reach(const joining *j, const entry *e, int error, ls_error *err)
{
    char why[LS_REASON], shown[80], also[100] = "";
    if (has_another(e))
        snprintf(also, sizeof also, " nor at %s",
                 ls_tcp_show_address(shown, e->address[1], e->port));
    /* LS_EIO: in a regrouping (j->how), an attempt that has timed out is repeated, because a lack
     * of CPU time in this thread can be the cause. */
    return ls_fail(err, j->how && error == ETIMEDOUT ? LS_EIO : LS_ESYSTEM,
                   "host %s cannot be reached from host %s at %s%s: %s; if the others reach it "
                   "at another address, say --advertise ADDRESS:PORT on %s",
                   e->host, j->host, j->target, also, ls_reason(why, error), e->host);
}

/* Connects to the member whose origin is `origin`; the handshake is not made yet. */
static int reach_member(joining *j, int origin, int *fd, ls_error *err)
{
    int error = 0;
    ls_tcp_reach(j, origin, fd, &error);
    ls_tcp_beat(j);
    return *fd >= 0 ? LS_OK : fail_reach(j, &j->entry[origin], error, err);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Connects to a member on one channel. Tries both addresses of the member in turn, if it has two.
 * Repeats the attempt until j->until_ns if the listener closes the connection during the handshake,
 * which happens when the listener has too many pending connections. */
static int connect_to_member(joining *j, int member, int channel, ls_error *err)
{
    const int origin = ls_tcp_set_nth(&j->vote.formed.set, member);
    entry *e = &j->entry[origin];
    const bool both = origin > 0 && has_another(e);
    ls_tcp_link *link = &ls_tcp_line_of(j->wire, member, channel)->link;
    hello h = {.from = (uint32_t)j->wire->base.member,
               .to = (uint32_t)origin,
               .channel = (uint32_t)channel,
               .members = (uint32_t)j->place.members,
               .formed = j->vote.formed.number};
    for (unsigned tries = 0;; tries++) {
        int status = reach_member(j, origin, &link->fd, err);
        if (status == LS_OK)
            /* in a regrouping the listener may be short of CPU time, or still connect itself */
            status = ls_tcp_greet(j, link, &h, j->how ? j->until_ns : ls_tcp_try_until(j), err);
        if (status == LS_OK)
            return LS_OK;
        ls_tcp_hang_up_link(link);
        const bool again = both && tries % 2 == 0;
        if (!again && (status != LS_EIO || ls_now_ns() >= j->until_ns))
            return status;
        if (both)
            swap_addresses(e);
        if (!again)
            ls_tcp_pause(j);
    }
}

/* Returns whether the connections to a member belong to the second round of ls_tcp_connect_all. */
static bool is_turned(const joining *j, int member)
{
    return ls_tcp_set_has(&j->turned, ls_tcp_set_nth(&j->vote.formed.set, member));
}

static bool calls(const joining *j, int member)
{
    return ls_tcp_calls(j, ls_tcp_set_nth(&j->vote.formed.set, member));
}

/* Makes the connections of one round that this member makes. At the start of the run the connection
 * to the first member on channel 0 exists already, from the rendezvous. */
static int make_connections(joining *j, bool turned, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < j->wire->base.members * LS_TRANSPORT_CHANNELS && status == LS_OK; i++) {
        const int member = i / LS_TRANSPORT_CHANNELS;
        if (member == j->wire->base.member || is_turned(j, member) != turned || !calls(j, member) ||
            j->wire->line[i].link.fd >= 0)
            continue;
        status = connect_to_member(j, member, i % LS_TRANSPORT_CHANNELS, err);
        if (status)
            j->unreached = ls_tcp_set_nth(&j->vote.formed.set, member);
    }
    return status;
}

/* Uses an incoming connection for the member and the channel that its hello names. Closes
 * the connection in these cases:
 *
 * - It belongs to another host group or to a vote.
 * - It is meant for another member.
 * - The channel already has a connection. */
static void use_connection(joining *j, const ls_tcp_link *link, const hello *h)
{
    const uint32_t own = (uint32_t)j->wire->base.member, members = (uint32_t)j->wire->base.members;
    ls_tcp_line *line = h->from != own && h->from < members && !calls(j, (int)h->from) &&
                                h->channel < LS_TRANSPORT_CHANNELS &&
                                h->to == (uint32_t)j->vote.own && h->run == j->run &&
                                h->formed == j->vote.formed.number
                            ? ls_tcp_line_of(j->wire, (int)h->from, (int)h->channel)
                            : NULL;
    if (!line || line->link.fd >= 0) {
        close(link->fd);
        return;
    }
    line->link = *link;
}

/* Returns the first member that has not made all its connections of one round; −1: there is none.
 */
static int find_missing(const joining *j, bool turned)
{
    const int own = j->wire->base.member;
    for (int i = 0; i < j->wire->base.members * LS_TRANSPORT_CHANNELS; i++) {
        const int member = i / LS_TRANSPORT_CHANNELS;
        if (member != own && is_turned(j, member) == turned && !calls(j, member) &&
            j->wire->line[i].link.fd < 0)
            return member;
    }
    return -1;
}

static int fail_await(joining *j, int member, ls_error *err)
{
    j->unreached = ls_tcp_set_nth(&j->vote.formed.set, member);
    return ls_fail(err, LS_ETIMEDOUT,
                   "host %s does not reach host %s: does a firewall let it through? Or say "
                   "--advertise ADDRESS:PORT on %s",
                   j->wire->host[member], j->host, j->host);
}

/* Returns whether the caller with this hello is a member of the host group and has left the host
 * group for another vote. */
static bool votes_again(const joining *j, const hello *h)
{
    const ls_tcp_ballot *formed = &j->vote.formed;
    return h->channel == TCP_ON_VOTE && h->run == j->run && h->formed == formed->number &&
           h->from < (uint32_t)j->vote.members && ls_tcp_set_has(&formed->set, (int)h->from);
}

/* Called while this member waits for connections. Returns whether another member has left the host
 * group or is lost. A member to which this one connects closes its connections of the new host
 * group when it leaves. A member that connects to this one closes its connection of the vote. */
static bool other_has_left(const joining *j)
{
    const int own = j->wire->base.member;
    for (int i = 0; i < j->wire->base.members * LS_TRANSPORT_CHANNELS; i++) {
        const int member = i / LS_TRANSPORT_CHANNELS, fd = j->wire->line[i].link.fd;
        const bool made = calls(j, member);
        if (member != own &&
            (made ? fd >= 0 && ls_tcp_is_closed(fd)
                  : fd < 0 && ls_tcp_has_left(j->regrouping,
                                              ls_tcp_set_nth(&j->vote.formed.set, member))))
            return true;
    }
    return false;
}

/* Waits for the connections of one round that other members make. */
static int await_connections(joining *j, bool turned, ls_error *err)
{
    int status = LS_OK, missing;
    /* connections that came before this member knew of the host group */
    while (j->earlies > 0) {
        j->earlies--;
        use_connection(j, &j->early[j->earlies].link, &j->early[j->earlies].said);
    }
    while ((missing = find_missing(j, turned)) >= 0 && status == LS_OK) {
        hello h;
        ls_tcp_link link;
        const bool came = ls_tcp_await_caller(
            j, ls_tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, j->until_ns), &link, &h);
        const bool left = j->how && came && votes_again(j, &h);
        if (came)
            use_connection(j, &link, &h);
        else if (ls_now_ns() >= j->until_ns)
            status = fail_await(j, missing, err);
        if (left || (j->how && !came && other_has_left(j)))
            status = ls_fail(err, LS_EIO, "another host was lost while the hosts were connecting");
        /* a note of another member can say that the rendezvous has failed */
        if (status == LS_OK && !j->how)
            status = ls_tcp_check_notes(j, err);
    }
    return status;
}

int ls_tcp_connect_all(joining *j, ls_error *err)
{
    for (int m = 0; m < j->wire->base.members; m++)
        memcpy(j->wire->host[m], j->entry[ls_tcp_set_nth(&j->vote.formed.set, m)].host, TCP_HOST);
    int status = LS_OK;
    for (int turned = 0; turned < 2 && status == LS_OK; turned++) {
        status = make_connections(j, turned, err);
        if (status == LS_OK)
            status = await_connections(j, turned, err);
    }
    return status;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Reads and checks the options in j->place. Can wait for the resolution of the advertised name, and
 * for nothing else. */
static int read_place(joining *j, ls_error *err)
{
    const ls_tcp_place *p = &j->place;
    int status = LS_OK;
    if (p->meet || !p->listen)
        status = ls_tcp_read_address(&j->meet, p->meet, false, err);
    if (status == LS_OK && p->listen)
        status = ls_tcp_read_address(&j->listen, p->listen, true, err);
    if (status)
        return status;
    if (!p->meet && strtol(j->listen.port, NULL, 10) == 0)
        return ls_fail(err, LS_EINVAL,
                       "%.100s: the first host's port has to be one from 1 to 65535", p->listen);
    /* the others connect to the first host at the address in their own options, so an advertised
     * address would have no use */
    if (!p->meet && p->advertise)
        return ls_fail(
            err, LS_EINVAL,
            "the first host advertises nothing: the others reach it at the address that they join");
    if (p->members < 1 || p->members > LS_MEMBERS_MAX)
        return ls_fail(err, LS_EINVAL, "%d members: expected 1 to %d", p->members, LS_MEMBERS_MAX);
    if (!p->secret || p->secret_bytes < LS_TCP_SECRET_LEAST)
        return ls_fail(err, LS_EINVAL,
                       "a secret of %zu bytes: expected at least %d; make one: " TCP_MAKE_SECRET,
                       p->secret_bytes, LS_TCP_SECRET_LEAST);
    snprintf(j->where, sizeof j->where, "%s", p->meet ? p->meet : p->listen);
    j->advertises = p->advertise != NULL;
    return p->advertise ? ls_tcp_read_advertised(&j->advertise, p->advertise, err) : LS_OK;
}

/* Warns of a secret that can be guessed: whoever connects gets a proof (greet.c), by which guesses
 * can be tested without another packet. The least length is that of 18 random bytes in base 64. */
static void check_strength(const joining *j)
{
    enum { LEAST = 24 };
    const uint8_t *secret = j->place.secret;
    size_t bytes = j->place.secret_bytes;
    while (bytes > 0 && (secret[bytes - 1] == '\n' || secret[bytes - 1] == '\r'))
        bytes--;
    for (size_t i = 0; i < bytes; i++)
        if ((secret[i] < ' ' && secret[i] != '\t') || secret[i] > '~')
            return;
    if (bytes < LEAST)
        ls_tcp_log(j, LS_LOG_WARNING,
                   "the secret is a text of %zu characters: who can connect can test guesses of it "
                   "as fast as a computer can; make a random one: " TCP_MAKE_SECRET,
                   bytes);
}

/* Copies the secret, because a regrouping needs the secret later. The function `open` of the
 * transport has returned by then, and the memory that the program passed to it can be freed. */
static int keep_secret(joining *j, ls_error *err)
{
    j->secret = ls_alloc(NULL, j->place.secret_bytes);
    if (!j->secret)
        return no_memory(err);
    j->place.secret = memcpy(j->secret, j->place.secret, j->place.secret_bytes);
    j->place.meet = j->place.listen = j->place.advertise = NULL; /* read_place has parsed them */
    return LS_OK;
}

/* Waits until a run that has begun admits this process. Connects again if the new host group does
 * not contain this process, or if the member at which this process waits is lost. */
static int be_admitted(joining *j, ls_error *err)
{
    ls_error why = {0};
    int status = ls_tcp_await_admission(j, &why);
    while (status == LS_EIO && ls_now_ns() < j->until_ns) {
        ls_tcp_log_waiting(j, true, "%.250s; calling again", why.text);
        ls_tcp_pause(j);
        status = ls_tcp_call_first(j, &why);
        if (status == LS_OK && j->verdict.kind != TCP_WAIT)
            status = ls_fail(&why, LS_EUNSUPPORTED,
                             "another run has begun at %s while this host waited", j->where);
        if (status == LS_OK)
            status = ls_tcp_await_admission(j, &why);
    }
    /* the time is over while this process calls again: the reason is the failed admission */
    if ((status == LS_EIO || status == LS_ETIMEDOUT) && j->give_up_ns &&
        ls_now_ns() >= j->give_up_ns)
        status = ls_tcp_fail_admission(j, &why);
    if (status && err)
        *err = why;
    return status;
}

/* Meets the other members and connects to all of them, or waits to be admitted to a run that has
 * begun. */
static int run_rendezvous(joining *j, ls_error *err)
{
    const size_t members = (size_t)j->place.members;
    j->caller = ls_alloc_array(NULL, members, sizeof *j->caller);
    j->entry = ls_alloc_array(NULL, members, sizeof *j->entry);
    if (!j->caller || !j->entry)
        return no_memory(err);
    for (size_t i = 0; i < members; i++)
        j->caller[i].fd = -1;
    int status = ls_tcp_meet(j, err);
    if (status == LS_OK && j->verdict.kind == TCP_WAIT)
        return be_admitted(j, err);
    if (status == LS_OK)
        status = ls_tcp_vote_init(&j->vote, j->wire->base.member, j->place.members, err);
    if (status)
        return status;
    status = ls_tcp_agree_to_go(j, ls_tcp_connect_all(j, err), err);
    if (status == LS_OK)
        ls_tcp_expand_keys(j->wire);
    return status;
}

void ls_tcp_hang_up(joining *j)
{
    for (int i = 0; j->caller && i < j->place.members; i++)
        ls_tcp_hang_up_link(&j->caller[i]);
    while (j->pending_count > 0)
        close(j->pending[--j->pending_count].fd);
    while (j->earlies > 0)
        close(j->early[--j->earlies].link.fd);
    ls_free(NULL, j->caller);
    j->caller = NULL;
}

void ls_tcp_free_rendezvous(joining *j)
{
    if (!j)
        return;
    ls_tcp_hang_up(j);
    for (int i = 0; i < j->waiting_count; i++)
        close(j->waiting[i].link.fd);
    if (j->listen_fd >= 0)
        close(j->listen_fd);
    if (j->found)
        freeaddrinfo(j->found);
    ls_free(NULL, j->secret);
    ls_free(NULL, j->entry);
    ls_tcp_vote_fini(&j->vote);
    ls_free(NULL, j);
}

static void name_this_host(joining *j)
{
    char name[TCP_HOST] = "";
    if (gethostname(name, sizeof name - 1) != 0 || !name[0])
        snprintf(name, sizeof name, "this");
    ls_tcp_take_name(j->host, name);
}

/* The first member keeps its listener open during the run. Then no other program gets the port, and
 * callers are told that the run has begun. With the option `regroups`, all members keep their
 * listeners open. */
int ls_tcp_join(ls_tcp_wire *w, const ls_tcp_place *place, const ls_wire_options *options,
                ls_error *err)
{
    joining *j = ls_alloc(NULL, sizeof *j);
    if (!j)
        return no_memory(err);
    j->wire = w;
    j->place = *place;
    j->options = *options;
    j->listen_fd = -1;
    j->place.timeout = place->timeout ? place->timeout : WAIT_NS;
    j->until_ns = ls_deadline_ns(j->place.timeout);
    j->try_ns = TCP_TRY_NS;
    name_this_host(j);
    int status = read_place(j, err);
    if (status == LS_OK)
        status = keep_secret(j, err);
    if (status == LS_OK)
        check_strength(j);
    if (status == LS_OK)
        status = ls_tcp_make_lines(w, place->members, err);
    const bool alone = place->members == 1 && !options->admits;
    if (status == LS_OK && !alone)
        status = run_rendezvous(j, err);
    if (status || alone || (!j->is_first && !options->regroups)) {
        ls_tcp_free_rendezvous(j);
        return status;
    }
    ls_tcp_hang_up(j);
    j->running = true;
    w->rendezvous = j;
    return LS_OK;
}
