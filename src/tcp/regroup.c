#define _GNU_SOURCE /* for POLLRDHUP; only this file and lines.c need it */
/* Regrouping after members have been lost. The surviving members find each other at their
 * listeners, which stay open all the time, vote which of them go on (vote.h), and connect anew.
 *
 * Each member calls those with lower numbers, which it has reached at the start. If a listener
 * refuses, its process has ended. A member with a higher number may be behind a firewall; it is
 * called only if its connections have ended as well, to see whether its listener refuses. A member
 * that was silent, or has said that it leaves, is suspected, and nobody waits for it. The others
 * have a limited time to come. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(5000000)
/* longest interval between two messages with this member's state */
#define SAY_NS UINT64_C(100000000)
#define MOMENT_NS UINT64_C(1500000000) /* most time for members that are not suspected */
#define LEAST_MOMENT_NS UINT64_C(200000000)
/* number of such times for one vote; for all votes and connecting anew */
enum { MOMENTS = 4, MOMENTS_IN_ALL = 6 };
/* channel in the hello of a caller that takes part in the vote */
enum { ON_VOTE = LS_WIRE_CHANNELS };

/* A member of the first group in this vote. */
typedef struct voter {
    int fd; /* −1: not connected */
    size_t got;
    tcp_word in;
    uint64_t next_ns; /* earliest time of the next call */
    bool shunned;     /* it has kept the others waiting */
} voter;

typedef struct meeting {
    joining *j;
    tcp_vote *vote;
    tcp_wire *old;  /* NULL: this process is an arrival */
    tcp_set before; /* members of the group before the loss */
    voter *voter;   /* [vote->members] */
    uint64_t moment_ns, over_ns;
    uint64_t call_ns; /* earliest time of the next outgoing call */
    int called;       /* member that was called last */
    /* since_ns: time of the last change of the connected members or of the vote */
    uint64_t settled_by_ns, since_ns, said_ns;
    bool formed;
} meeting;

/* ---- connections ----------------------------------------------------------------------------- */

static void part_from(meeting *m, int who)
{
    voter *v = &m->voter[who];
    if (v->fd >= 0)
        close(v->fd);
    v->fd = -1;
    v->got = 0;
    tcp_vote_miss(m->vote, who);
    m->since_ns = ls_now_ns();
}

static void say(meeting *m, int who, tcp_word *word)
{
    if (m->voter[who].fd >= 0 &&
        tcp_move_all(m->voter[who].fd, word, sizeof *word, true, ls_now_ns() + m->j->try_ns))
        part_from(m, who);
}

static void say_to_all(meeting *m, const tcp_set *to, tcp_word *word)
{
    for (int i = 0; i < m->vote->members; i++)
        if (i != m->vote->own && (!to || tcp_set_has(to, i)))
            say(m, i, word);
}

static void say_state(meeting *m, int who)
{
    tcp_word word;
    tcp_vote_state(m->vote, &word);
    if (who >= 0)
        say(m, who, &word);
    else
        say_to_all(m, NULL, &word);
}

static void meet_voter(meeting *m, int who, int fd)
{
    part_from(m, who);
    m->voter[who].fd = fd;
    say_state(m, who);
}

static int index_of(const tcp_set *set, int who)
{
    int index = 0;
    for (int i = 0; i < who; i++)
        index += tcp_set_has(set, i);
    return index;
}

/* Returns whether a connection of the old transport has ended, also if data in
 * it are still unread. */
static bool has_hung_up(const meeting *m, int who)
{
    bool hung_up = false;
    if (!m->old || !tcp_set_has(&m->before, who))
        return false;
    for (int i = 0; i < LS_WIRE_CHANNELS; i++) {
        const tcp_line *line = tcp_line_of(m->old, index_of(&m->before, who), i);
        struct pollfd watch = {.fd = line->fd, .events = POLLRDHUP};
        hung_up |= line->broken || poll(&watch, 1, 0) > 0;
    }
    return hung_up;
}

/* Calls a member. If a member with a higher number accepts the connection, it is alive and will
 * call itself. A call that takes long is followed by as much time for incoming connections. */
static void call(meeting *m, int who)
{
    joining *j = m->j;
    hello h = {.from = (uint32_t)m->vote->own, .to = (uint32_t)who, .channel = ON_VOTE};
    const uint64_t began = ls_now_ns(), try_ns = j->try_ns;
    int fd = -1, error = 0;
    j->try_ns = try_ns / 2;
    tcp_reach(j, who, &fd, &error);
    j->try_ns = try_ns;
    tcp_beat(j);
    if (error == ECONNREFUSED)
        tcp_set_add(&m->vote->suspects, who);
    if (fd >= 0 && who < m->vote->own && tcp_greet(j, fd, &h, NULL) == LS_OK)
        meet_voter(m, who, fd);
    else if (fd >= 0)
        close(fd);
    const uint64_t now = ls_now_ns();
    m->voter[who].next_ns = now + SAY_NS;
    m->call_ns = now + (now - began);
}

static bool is_to_call(const meeting *m, int who)
{
    const voter *v = &m->voter[who];
    return who != m->vote->own && v->fd < 0 && !v->shunned && ls_now_ns() >= v->next_ns &&
           tcp_set_has(&m->vote->formed.set, who) && !tcp_set_has(&m->vote->suspects, who) &&
           (who < m->vote->own || has_hung_up(m, who));
}

/* Calls the next member. After an outgoing call that took t, incoming connections are served for t
 * before the next call: they may be the ones that matter. */
static void call_others(meeting *m)
{
    const int members = m->vote->members;
    for (int i = 1; i <= members && ls_now_ns() >= m->call_ns; i++) {
        const int who = (m->called + i) % members;
        if (!is_to_call(m, who))
            continue;
        m->called = who;
        call(m, who);
        return;
    }
}

/* Takes an incoming connection. A connection of a group that was formed and that this member has
 * not heard of yet is kept until it has. */
static void answer_door(meeting *m)
{
    joining *j = m->j;
    hello h;
    const int fd = tcp_await_caller(j, ls_now_ns() + LOOK_NS, &h);
    if (fd < 0)
        return;
    if (h.run == j->run && h.channel < LS_WIRE_CHANNELS && j->earlies < GUESTS) {
        j->early[j->earlies].fd = fd;
        j->early[j->earlies++].said = h;
    } else if (h.run == j->run && h.channel == ON_VOTE && h.to == (uint32_t)m->vote->own &&
               h.from > (uint32_t)m->vote->own && h.from < (uint32_t)m->vote->members &&
               !m->voter[h.from].shunned) {
        meet_voter(m, (int)h.from, fd);
    } else {
        close(fd);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void hear(meeting *m, int who, const tcp_word *in)
{
    tcp_word answer;
    if (!tcp_vote_can_be(m->vote, in)) {
        part_from(m, who);
        return;
    }
    if (in->say != TCP_STATE || !tcp_set_has(&m->vote->here, who))
        m->since_ns = ls_now_ns();
    if (tcp_vote_hear(m->vote, who, in, &answer))
        say(m, who, &answer);
}

static void listen_to(meeting *m, int who)
{
    voter *v = &m->voter[who];
    while (v->fd >= 0) {
        const ssize_t n = recv(v->fd, (char *)&v->in + v->got, sizeof v->in - v->got, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            part_from(m, who);
            return;
        }
        v->got += (size_t)n;
        if (v->got < sizeof v->in)
            continue;
        v->got = 0;
        const tcp_word in = v->in;
        hear(m, who, &in);
    }
}

/* ---- voting ---------------------------------------------------------------------------------- */

/* Suspects the members that keep the vote waiting: the lowest, if it has not proposed; in a vote of
 * this member's own, those that have not accepted. */
static void shun_silent(meeting *m)
{
    const tcp_vote *v = m->vote;
    const tcp_set left = tcp_vote_left(v);
    const int lowest = tcp_set_nth(&left, 0);
    for (int i = 0; i < v->members; i++) {
        const bool late = lowest == v->own ? v->proposing && tcp_set_has(&left, i) &&
                                                 !tcp_set_has(&v->accepted, i)
                                           : i == lowest;
        if (!late || i == v->own)
            continue;
        m->voter[i].shunned = true;
        tcp_set_add(&m->vote->suspects, i);
        part_from(m, i);
    }
    m->since_ns = ls_now_ns();
}

static void vote(meeting *m)
{
    const uint64_t now = ls_now_ns();
    tcp_word word;
    const bool settled = tcp_vote_settled(m->vote) || now > m->settled_by_ns;
    if (settled && tcp_vote_propose(m->vote, &word)) {
        m->since_ns = now;
        say_to_all(m, &word.ballot.set, &word);
    }
    if (tcp_vote_formed(m->vote, &word))
        say_to_all(m, &word.ballot.set, &word);
    else if (settled && now - m->since_ns > 2 * m->moment_ns)
        shun_silent(m);
}

/* Formats "a, b", truncated to `size` bytes. */
static void list_hosts(char *out, size_t size, const meeting *m, const tcp_set *set)
{
    size_t used = 0;
    for (int i = 0; i < m->vote->members && used < size; i++)
        if (tcp_set_has(set, i))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     m->j->entry[i].host);
}

/* Returns LS_OK if the connected members may still win the vote, else LS_ESTALLED. */
static int check_hope(const meeting *m, ls_error *err)
{
    const tcp_ballot *last = tcp_vote_last(m->vote);
    const tcp_set left = tcp_vote_left(m->vote);
    const int found = tcp_set_count(&left), all = tcp_set_count(&last->set);
    char hosts[100] = "";
    if (!tcp_set_has(&last->set, m->vote->own) &&
        !(tcp_set_has(&m->vote->arrivals, m->vote->own) && last->number == m->vote->formed.number))
        return ls_fail(err, LS_ESTALLED, "the other hosts have gone on without this one");
    if ((tcp_vote_settled(m->vote) || ls_now_ns() > m->settled_by_ns) && !tcp_vote_may(m->vote)) {
        list_hosts(hosts, sizeof hosts, m, &left);
        return ls_fail(err, LS_ESTALLED,
                       "%d of %d hosts found each other (%s), which is %s, so that the others may "
                       "go on, and these do not",
                       found, all, hosts,
                       2 * found == all  ? "half of them, without the first"
                       : 2 * found > all ? "not certain to be the only part that does"
                                         : "fewer than half");
    }
    return ls_now_ns() < m->j->until_ns
               ? LS_OK
               : ls_fail(err, LS_ESTALLED,
                         "the hosts that are left did not agree who goes on in time");
}

static int agree(meeting *m, ls_error *err)
{
    const uint64_t number = m->vote->formed.number;
    int status = LS_OK;
    while (status == LS_OK && m->vote->formed.number == number) {
        call_others(m);
        answer_door(m);
        for (int i = 0; i < m->vote->members; i++)
            listen_to(m, i);
        if (m->vote->formed.number != number)
            break;
        if (ls_now_ns() - m->said_ns > SAY_NS) {
            m->said_ns = ls_now_ns();
            say_state(m, -1);
        }
        vote(m);
        if (m->vote->formed.number == number)
            status = check_hope(m, err);
    }
    return status;
}

/* ---- the new transport ----------------------------------------------------------------------- */

static void part_from_all(meeting *m)
{
    for (int i = 0; i < m->vote->members; i++)
        part_from(m, i);
}

static void begin(meeting *m, const tcp_set *suspects)
{
    const uint64_t now = ls_now_ns();
    part_from_all(m);
    tcp_vote_begin(m->vote, suspects);
    m->settled_by_ns = now + m->moment_ns;
    m->since_ns = now;
    m->j->until_ns = tcp_sooner(now + MOMENTS * m->moment_ns, m->over_ns);
}

/* Connects the group that was formed. The connections of the vote stay open until then, so that the
 * last messages arrive. */
static int connect_anew(tcp_wire **out, meeting *m, ls_error *err)
{
    const tcp_set *set = &m->vote->formed.set;
    tcp_wire *w = ls_alloc(NULL, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for a wire");
    m->j->wire = w;
    m->j->until_ns = tcp_sooner(ls_now_ns() + 2 * m->moment_ns, m->over_ns);
    w->base.member = index_of(set, m->vote->own);
    int status = tcp_make_lines(w, tcp_set_count(set), err);
    if (status == LS_OK)
        status = tcp_connect_all(m->j, err);
    if (status)
        tcp_free(w);
    else
        *out = w;
    return status;
}

/* Votes and connects. If another member is lost while connecting, another vote follows, in which
 * one fewer may take part. */
static int meet_anew(tcp_wire **out, meeting *m, const tcp_set *suspects, ls_error *err)
{
    int status = LS_ESTALLED;
    m->over_ns = ls_now_ns() + MOMENTS_IN_ALL * m->moment_ns;
    for (int tries = 0; status && tries < TCP_TRIED_MOST; tries++) {
        begin(m, suspects);
        status = agree(m, err);
        if (status)
            break;
        status = connect_anew(out, m, err);
    }
    part_from_all(m);
    return status;
}

static uint64_t moment(uint64_t deadline_ns)
{
    const uint64_t half = deadline_ns / 2;
    if (half > MOMENT_NS)
        return MOMENT_NS;
    return half < LEAST_MOMENT_NS ? LEAST_MOMENT_NS : half;
}

/* Allocates the voters of a meeting and lets the members meet. */
static int hold(tcp_wire **out, meeting *m, const tcp_set *suspects, ls_error *err)
{
    const size_t members = (size_t)m->vote->members;
    m->voter = ls_alloc_array(NULL, members, sizeof *m->voter);
    if (!m->voter)
        return ls_fail(err, LS_ENOMEM, "out of memory for a vote");
    for (size_t i = 0; i < members; i++)
        m->voter[i].fd = -1;
    m->j->try_ns = m->moment_ns / 4;
    int status = meet_anew(out, m, suspects, err);
    ls_free(NULL, m->voter);
    return status;
}

/* Sets the index of the member that is new in the group, which is the same on all its members. */
static void note_new(tcp_wire *w, const tcp_vote *v)
{
    w->base.admitted = 0;
    for (int i = 1; i < w->base.members; i++)
        if (tcp_set_has(&v->formed.fresh, tcp_set_nth(&v->formed.set, i)))
            w->base.admitted = i;
}

int tcp_vote_in(tcp_wire **out, joining *j, uint64_t moment_ns, ls_error *err)
{
    const ls_regroup how = {.size = sizeof how, .alive = j->options.alive, .user = j->options.user};
    const tcp_set none = {{0}};
    meeting m = {.j = j,
                 .vote = &j->vote,
                 .before = j->vote.formed.set,
                 .moment_ns = moment_ns ? moment_ns : MOMENT_NS};
    j->how = &how;
    int status = hold(out, &m, &none, err);
    j->how = NULL;
    j->try_ns = TCP_TRY_NS;
    if (status)
        return status;
    note_new(*out, &j->vote);
    if ((*out)->base.admitted == (*out)->base.member)
        return LS_OK;
    /* Another member was lost after the group with this process was formed. This process is in the
     * group that followed, but the others do not know that it lacks their state. */
    tcp_free(*out);
    *out = NULL;
    return ls_fail(err, LS_ESTALLED, "another host was lost during the admission");
}

int tcp_regroup(tcp_wire **out, tcp_wire *old, const ls_regroup *how, ls_error *err)
{
    joining *j = old->meeting;
    if (!j || !j->options.regroups)
        return ls_fail(err, LS_EUNSUPPORTED, "the wire was not opened to be left for another");
    meeting m = {.j = j,
                 .vote = &j->vote,
                 .old = old,
                 .before = j->vote.formed.set,
                 .moment_ns = moment(how->deadline_ns)};
    tcp_set suspects = {{0}};
    for (int i = 0; i < old->base.members; i++)
        if (how->lost[i])
            tcp_set_add(&suspects, tcp_set_nth(&m.before, i));
    j->vote.arrivals = (tcp_set){{0}};
    j->try_ns = m.moment_ns / 4;
    int status = how->arrival ? tcp_invite(j, how->arrival, m.moment_ns, err) : LS_OK;
    if (status)
        return status;
    j->how = how;
    j->running = false;
    status = hold(out, &m, &suspects, err);
    j->how = NULL;
    j->running = true;
    /* Closes connections of callers that have not proved themselves, or came too late. */
    tcp_hang_up(j);
    if (status)
        return status;
    for (int i = 0; i < (*out)->base.members; i++) {
        const int number = tcp_set_nth(&j->vote.formed.set, i);
        how->origin[i] = tcp_set_has(&m.before, number) ? index_of(&m.before, number) : -1;
    }
    note_new(*out, &j->vote);
    (*out)->meeting = j;
    old->meeting = NULL;
    return LS_OK;
}
