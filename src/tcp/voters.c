/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for POLLRDHUP; only this file and lines.c need it */
/* The connections over which the members vote in a regrouping (regroup.c), and the messages on
 * these connections.
 *
 * Who connects to whom. A member connects to every member with a lower number. It has made
 * connections in this direction at the start of the run, so no firewall is in the way. A member
 * with a higher number connects to this member on its own. This member tries to connect to a
 * higher-numbered member only if the old connections of that member have ended. The attempt serves
 * to learn whether that member's process has ended: if it has, the operating system of its host
 * refuses the connection.
 *
 * An arrival has the highest number, so it connects to all members. A member that it has not
 * reached after half of the grace time connects to the arrival. If this succeeds, the direction
 * between the two is *turned*: the vote says so (ls_tcp_ballot.turned), and from then on that
 * member makes all connections between the two (ls_tcp_calls). If both connect to each other at the
 * same time, both keep the connection that the arrival has made.
 *
 * No attempt to connect makes this member wait, the handshake included. A process that is stopped
 * answers no handshake, and a process that is short of CPU time answers late; meanwhile this member
 * serves all others. A handshake has no time limit of its own, it ends with the vote. */
#include "base/clock.h"
#include "tcp/regroup.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* ---- connections ----------------------------------------------------------------------------- */

void ls_tcp_disconnect_voter(regrouping *m, int who)
{
    ls_tcp_hang_up_link(&m->j->voting[who]);
    m->voter[who].got = 0;
    ls_tcp_vote_disconnect(m->vote, who);
    m->news = true;
    m->changed_ns = ls_now_ns();
}

/* Sends a message of the vote to a member. Closes the connection if the message cannot be sent in
 * time. */
static void send_message(regrouping *m, int who, ls_tcp_message *message)
{
    ls_tcp_link *to = &m->j->voting[who];
    if (to->fd >= 0 && ls_tcp_send(to, message, sizeof *message, ls_now_ns() + m->j->try_ns))
        ls_tcp_disconnect_voter(m, who);
}

void ls_tcp_send_to_voters(regrouping *m, const ls_tcp_set *to, ls_tcp_message *message)
{
    for (int i = 0; i < m->vote->members; i++)
        if (i != m->vote->own && (!to || ls_tcp_set_has(to, i)))
            send_message(m, i, message);
}

void ls_tcp_send_state(regrouping *m)
{
    ls_tcp_message message;
    ls_tcp_vote_state(m->vote, &message);
    ls_tcp_send_to_voters(m, NULL, &message);
}

/* Uses `link` as the vote's connection to a member, in place of an earlier one. */
static void attach(regrouping *m, int who, const ls_tcp_link *link)
{
    ls_tcp_message state;
    ls_tcp_disconnect_voter(m, who);
    m->j->voting[who] = *link;
    m->voter[who].heard_ns = ls_now_ns();
    ls_tcp_vote_state(m->vote, &state);
    send_message(m, who, &state);
}

/* Returns whether the member has closed a connection of the old transport, even if data of the
 * member are still unread. */
static bool has_hung_up(const regrouping *m, int who)
{
    bool hung_up = false;
    if (!m->old || !ls_tcp_set_has(&m->before, who))
        return false;
    for (int i = 0; i < LS_TRANSPORT_CHANNELS; i++) {
        const ls_tcp_line *line = ls_tcp_line_of(m->old, ls_tcp_set_index(&m->before, who), i);
        struct pollfd watch = {.fd = line->link.fd, .events = POLLRDHUP};
        hung_up |= line->broken || poll(&watch, 1, 0) > 0;
    }
    return hung_up;
}

/* Returns whether `who` is an arrival that has not reached this member in half of the grace time.
 */
static bool awaits_arrival(const regrouping *m, int who)
{
    return who > m->vote->own && ls_tcp_set_has(&m->vote->arrivals, who) &&
           ls_now_ns() - m->began_ns > m->grace_ns / 2;
}

/* Ends the attempt to connect to a member, if there is one. */
static void stop_calling(voter *v)
{
    ls_tcp_hang_up_link(&v->call);
    v->greets = false;
}

/* Begins the handshake over a new connection to a member. If a member that itself connects to this
 * one accepts the connection, its process is alive, and no handshake is needed. */
static int begin_greeting(regrouping *m, int who)
{
    voter *v = &m->voter[who];
    const hello h = {.from = (uint32_t)m->vote->own,
                     .to = (uint32_t)who,
                     .channel = TCP_ON_VOTE,
                     .formed = m->vote->formed.number};
    if (!ls_tcp_calls(m->j, who) && !awaits_arrival(m, who))
        return LS_EIO;
    v->greets = true;
    return ls_tcp_begin_greeting(m->j, &v->greeting, v->call.fd, &h, NULL);
}

/* Continues an attempt to connect to a member. `error`: 0 if the connection is made, or an errno;
 * EINPROGRESS: not yet. */
static void continue_call(regrouping *m, int who, int error)
{
    voter *v = &m->voter[who];
    if (error == EINPROGRESS && ls_now_ns() < v->call_until_ns)
        return;
    if (error == ECONNREFUSED)
        ls_tcp_set_add(&m->vote->suspects, who);
    int status = error ? LS_EIO : v->greets ? LS_OK : begin_greeting(m, who);
    const bool proved = v->greeting.proved;
    if (status == LS_OK)
        status = ls_tcp_continue_greeting(m->j, &v->greeting, &v->call, NULL);
    if (v->greeting.proved && !proved)
        m->changed_ns = ls_now_ns();
    if (status == LS_EAGAIN)
        return;
    v->next_ns = ls_now_ns() + TCP_INTERVAL_NS;
    /* a connection that an arrival has made stays, one that was made to an arrival does not */
    if (status == LS_OK && !v->refused && (m->j->voting[who].fd < 0 || ls_tcp_calls(m->j, who))) {
        attach(m, who, &v->call);
        ls_tcp_set_remove(&m->vote->turned, who);
        v->call.fd = -1;
    }
    stop_calling(v);
}

/* Begins to connect to a member. */
static void begin_call(regrouping *m, int who)
{
    struct sockaddr_storage at;
    voter *v = &m->voter[who];
    int error;
    const socklen_t bytes = ls_tcp_address_of(m->j, who, &at);
    v->call_until_ns = ls_now_ns() + m->j->try_ns;
    ls_tcp_begin_dial(&v->call.fd, &error, (const struct sockaddr *)&at, bytes);
    continue_call(m, who, error);
}

/* Returns whether to try to connect to a member now. */
static bool must_call(const regrouping *m, int who)
{
    const voter *v = &m->voter[who];
    return who != m->vote->own && m->j->voting[who].fd < 0 && !v->refused &&
           ls_now_ns() >= v->next_ns && !ls_tcp_set_has(&m->vote->suspects, who) &&
           (awaits_arrival(m, who) || (ls_tcp_set_has(&m->vote->formed.set, who) &&
                                       (ls_tcp_calls(m->j, who) || has_hung_up(m, who))));
}

void ls_tcp_call_voters(regrouping *m)
{
    for (int i = 0; i < m->vote->members && ls_now_ns() >= m->first_call_ns; i++) {
        voter *v = &m->voter[i];
        if (v->call.fd >= 0)
            continue_call(m, i, v->greets ? 0 : ls_tcp_dialled(v->call.fd, 0));
        else if (must_call(m, i))
            begin_call(m, i);
    }
}

/* Returns whether to use a connection that the member `who` has made for the vote. An arrival that
 * has not reached the member uses it too, and notes that the direction is turned. */
static bool takes_call(regrouping *m, int who)
{
    ls_tcp_vote *v = m->vote;
    if (m->voter[who].refused || who == v->own)
        return false;
    if (!ls_tcp_calls(m->j, who))
        return true;
    if (!ls_tcp_set_has(&v->arrivals, v->own) || m->j->voting[who].fd >= 0)
        return false;
    ls_tcp_set_add(&v->turned, who);
    return true;
}

/* A member can connect for the new host group before the result of the vote has reached this
 * member. Such a connection is kept in j->early until the result arrives (join.c). A data
 * connection for the newest host group that this member has formed is closed, by which the other
 * member learns that this one has left it for another vote. */
void ls_tcp_accept_voter(regrouping *m)
{
    joining *j = m->j;
    hello h;
    ls_tcp_link link;
    if (!ls_tcp_await_caller(j, ls_now_ns() + TCP_LISTEN_NS, &link, &h))
        return;
    if (h.run == j->run && h.channel < LS_TRANSPORT_CHANNELS && h.formed > m->vote->formed.number &&
        j->earlies < PENDING_MAX) {
        j->early[j->earlies].link = link;
        j->early[j->earlies++].said = h;
    } else if (h.run == j->run && h.channel == TCP_ON_VOTE && h.to == (uint32_t)m->vote->own &&
               h.from < (uint32_t)m->vote->members && takes_call(m, (int)h.from)) {
        attach(m, (int)h.from, &link);
    } else {
        close(link.fd);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Processes a message, and sends the answer if there is one. */
static void on_message(regrouping *m, int who, const ls_tcp_message *in)
{
    ls_tcp_message answer;
    if (!ls_tcp_vote_is_valid(m->vote, in)) {
        ls_tcp_disconnect_voter(m, who);
        return;
    }
    const bool links = in->kind == TCP_STATE &&
                       memcmp(&in->links, &m->vote->state[who].links, sizeof in->links) != 0;
    if (in->kind != TCP_STATE || links || !ls_tcp_set_has(&m->vote->here, who))
        m->changed_ns = ls_now_ns();
    m->news |= !ls_tcp_set_has(&m->vote->here, who);
    /* it can arrive before this member knows of the host group */
    if (in->kind == TCP_CONNECTED_ALL)
        m->voter[who].ready = in->ballot.number;
    ls_tcp_set_add(&m->met, who);
    if (ls_tcp_vote_on_message(m->vote, who, in, &answer))
        send_message(m, who, &answer);
}

void ls_tcp_receive_from_voter(regrouping *m, int who)
{
    voter *v = &m->voter[who];
    ls_tcp_link *link = &m->j->voting[who]; /* ls_tcp_disconnect_voter sets its fd to −1 */
    while (link->fd >= 0) {
        const ssize_t n =
            recv(link->fd, (char *)&v->in + v->got, sizeof v->in - v->got, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            ls_tcp_disconnect_voter(m, who);
            return;
        }
        v->got += (size_t)n;
        if (v->got < sizeof v->in)
            continue;
        v->got = 0;
        const ls_tcp_message in = v->in.message;
        if (!ls_tcp_is_sealed(&link->in, &in, sizeof in, v->in.tag)) {
            ls_tcp_log(m->j, LS_LOG_WARNING, "in a vote, from host %s to host %s %s",
                       m->j->entry[who].host, m->j->host, ls_tcp_changed);
            ls_tcp_disconnect_voter(m, who);
            return;
        }
        v->heard_ns = ls_now_ns();
        on_message(m, who, &in);
    }
}

bool ls_tcp_has_left(regrouping *m, int who)
{
    ls_tcp_receive_from_voter(m, who);
    return m->j->voting[who].fd < 0 && m->voter[who].ready != m->vote->formed.number;
}

void ls_tcp_disconnect_voters(regrouping *m)
{
    for (int i = 0; i < m->vote->members; i++) {
        stop_calling(&m->voter[i]);
        ls_tcp_disconnect_voter(m, i);
    }
}
