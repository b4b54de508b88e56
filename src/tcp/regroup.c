/* SPDX-License-Identifier: MIT */
/* Regrouping: when members have been lost, or a process is to be admitted, the members agree which
 * of them continue, and connect to each other again. In this file the number of a member is its
 * origin (join.h).
 *
 * The surviving members find each other at their listening sockets, which stay open during the
 * whole run (voters.c). Then they vote (vote.h), and the members of the host group that is formed
 * connect to each other.
 *
 * Failed admissions. A host group is formed only of members that have links to each other in the
 * vote (vote.h). A link can break between the vote and the connections of the new host group.
 * Therefore nobody begins to work before all have told each other that they are connected to all
 * (TCP_CONNECTED). If one gives up, all vote again, and who gave up suspects the member that it has
 * not reached. A newcomer gives up first.
 *
 * Suspects. A member is *suspected* in three cases: the code that called ls_tcp_regroup reports the
 * member as lost (it was silent, or has announced that it leaves); a connection to its listening
 * socket is refused; or it delays the vote (suspect_silent). No member waits for a suspect. A
 * suspect whose message STATE arrives is no longer suspected. For a member that is not suspected,
 * the others wait for the *grace time*. All other time limits are multiples of the grace time.
 *
 * Only the thread that calls ls_tcp_regroup runs the functions of this file. */
#include "tcp/regroup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Shortest interval between two messages STATE, the second of which tells of new links. */
#define NEWS_NS UINT64_C(10000000)
/* Largest and smallest grace time. Between these limits the grace time is half of the deadline, the
 * time for which a member may be silent. */
#define GRACE_NS UINT64_C(1500000000)
#define LEAST_GRACE_NS UINT64_C(200000000)
/* Time limits in grace times. */
enum {
    GRACES_AFTER_WAIT = 3, /* for a vote, after the wait for members that are not connected */
    GRACES_TO_CONNECT = 2, /* for the connections after a vote; a newcomer gives up after one */
    GRACES_IN_ALL = 8      /* for the whole regrouping: all votes and the new connections */
};

/* ---- voting ---------------------------------------------------------------------------------- */

/* Suspects the members for which the vote waits. The connected member with the lowest number has to
 * propose a host group. If this member has the lowest number, it suspects the members that have not
 * accepted its proposal. If another member has the lowest number, this member suspects that lowest
 * member only if no message of the lowest member has arrived for two grace times.
 *
 * Every member in a vote sends its message STATE several times in a grace time. Therefore a lowest
 * member whose messages arrive has a reason to wait: its own time limit for members that are not
 * connected ends later, or it waits for members that have not accepted. At last it proposes a host
 * group, or leaves the vote and closes its connections. */
static void suspect_silent(regrouping *m)
{
    const ls_tcp_vote *v = m->vote;
    const uint64_t now = ls_now_ns();
    const ls_tcp_set left = ls_tcp_vote_remaining(v);
    const int lowest = ls_tcp_set_nth(&left, 0);
    for (int i = 0; i < v->members; i++) {
        const bool late =
            lowest == v->own
                ? v->proposing && ls_tcp_set_has(&left, i) && !ls_tcp_set_has(&v->accepted, i)
                : i == lowest && now - m->voter[i].heard_ns > 2 * m->grace_ns;
        if (!late || i == v->own)
            continue;
        m->voter[i].refused = true;
        ls_tcp_set_add(&m->vote->suspects, i);
        ls_tcp_disconnect_voter(m, i);
    }
}

/* Returns whether the vote waits for no more members and links, or the time to wait for them is
 * over. While links still come, a further grace time is waited for them, so that a busy machine
 * leaves out no member. */
static bool is_settled(const regrouping *m)
{
    const uint64_t now = ls_now_ns(), until_ns = m->settle_until_ns;
    return ls_tcp_vote_settled(m->vote) ||
           (now > until_ns && (now - m->changed_ns > m->grace_ns || now > until_ns + m->grace_ns));
}

/* Does what the vote allows at this time: proposes a host group, forms the proposed one, or
 * suspects members. */
static void vote(regrouping *m)
{
    const uint64_t now = ls_now_ns();
    ls_tcp_message message;
    const bool settled = is_settled(m);
    if (settled && ls_tcp_vote_propose(m->vote, &message)) {
        m->changed_ns = now;
        ls_tcp_send_to_voters(m, &message.ballot.set, &message);
    }
    if (ls_tcp_vote_formed(m->vote, &message))
        ls_tcp_send_to_voters(m, &message.ballot.set, &message);
    else if (settled && now - m->changed_ns > 2 * m->grace_ns)
        suspect_silent(m);
}

/* Returns LS_OK if the connected members can still form a host group with this member, else
 * LS_ESTALLED. An arrival that is connected to some of the members waits for their result, because
 * the others can still connect to it. */
static int check_can_win(const regrouping *m, ls_error *err)
{
    const ls_tcp_ballot *last = ls_tcp_vote_last(m->vote);
    const ls_tcp_set left = ls_tcp_vote_remaining(m->vote);
    const int found = ls_tcp_set_count(&left), all = ls_tcp_set_count(&last->set);
    char hosts[100] = "";
    if (!ls_tcp_set_has(&last->set, m->vote->own) &&
        !(ls_tcp_set_has(&m->vote->arrivals, m->vote->own) &&
          last->number == m->vote->formed.number))
        return ls_fail(err, LS_ESTALLED, "the other hosts have gone on without this one");
    const bool waits = ls_tcp_set_has(&m->vote->arrivals, m->vote->own) && found > 1;
    if (is_settled(m) && !waits && !ls_tcp_vote_may(m->vote)) {
        ls_tcp_list_hosts(hosts, sizeof hosts, m->j, &left);
        return ls_fail(
            err, LS_ESTALLED,
            "%d of %d hosts found each other (%s), which is %s: the other hosts may have "
            "gone on without them, so these hosts stop",
            found, all, hosts,
            2 * found == all  ? "half of them, without the first host"
            : 2 * found > all ? "not certain to be the only group that can go on"
                              : "fewer than half");
    }
    return ls_now_ns() < m->j->until_ns
               ? LS_OK
               : ls_fail(err, LS_ESTALLED,
                         "the hosts that are left did not agree in time which of them go on");
}

/* Runs the vote until a host group is formed. Errors: LS_ESTALLED (this member does not
 * continue). */
static int run_vote(regrouping *m, ls_error *err)
{
    const uint64_t number = m->vote->formed.number;
    int status = LS_OK;
    while (status == LS_OK && m->vote->formed.number == number) {
        ls_tcp_call_voters(m);
        ls_tcp_accept_voter(m);
        for (int i = 0; i < m->vote->members; i++)
            ls_tcp_receive_from_voter(m, i);
        if (m->vote->formed.number != number)
            break;
        if (ls_now_ns() - m->sent_ns > (m->news ? NEWS_NS : TCP_INTERVAL_NS)) {
            m->sent_ns = ls_now_ns();
            m->news = false;
            ls_tcp_send_state(m);
        }
        vote(m);
        if (m->vote->formed.number == number)
            status = check_can_win(m, err);
    }
    return status;
}

/* ---- the new transport ----------------------------------------------------------------------- */

/* If this member has formed a host group shortly before, another member of it can still be waiting
 * for connections, and is not lost. Therefore this member waits until the other one has given up
 * (GRACES_TO_CONNECT), and one grace time more. The vote ends later accordingly, with time for the
 * proposal and the answers. */
ls_tcp_limits ls_tcp_limits_of_vote(uint64_t now, uint64_t formed_ns, uint64_t grace_ns,
                                    uint64_t end_ns)
{
    ls_tcp_limits limits = {.settle_ns = now + grace_ns};
    if (formed_ns && formed_ns + GRACES_TO_CONNECT * grace_ns > now)
        limits.settle_ns = formed_ns + (GRACES_TO_CONNECT + 1) * grace_ns;
    limits.until_ns = ls_tcp_sooner(limits.settle_ns + GRACES_AFTER_WAIT * grace_ns, end_ns);
    return limits;
}

/* Begins a vote: closes the connections of the previous vote and sets the time limits. */
static void begin_vote(regrouping *m, const ls_tcp_set *suspects)
{
    const uint64_t now = m->began_ns = m->changed_ns = ls_now_ns();
    const ls_tcp_limits limits =
        ls_tcp_limits_of_vote(now, m->j->formed_ns, m->grace_ns, m->end_ns);
    ls_tcp_disconnect_voters(m);
    ls_tcp_vote_begin(m->vote, suspects);
    m->settle_until_ns = limits.settle_ns;
    m->j->until_ns = limits.until_ns;
    /* the newcomer is invited before all members have begun to vote */
    m->first_call_ns = m->old ? now : now + TCP_INTERVAL_NS / 2;
}

/* Notes the direction of the connections to the new member of the formed host group. */
static void note_turned(joining *j)
{
    const ls_tcp_ballot *formed = &j->vote.formed;
    const int fresh = ls_tcp_set_nth(&formed->fresh, 0);
    if (fresh == j->vote.own)
        j->turned = formed->turned;
    else if (fresh >= 0 && ls_tcp_set_has(&formed->turned, j->vote.own))
        ls_tcp_set_add(&j->turned, fresh);
}

static bool is_ready(const regrouping *m, int who)
{
    return m->voter[who].ready == m->vote->formed.number;
}

/* Tells the other members of the new host group that this member is connected to all, and waits
 * until all of them have said so. A member that has said so and has closed its connection of the
 * vote has heard it from all, or is lost, which the new transport notices. */
static int await_ready(regrouping *m, ls_error *err)
{
    const ls_tcp_set *set = &m->vote->formed.set;
    ls_tcp_message message = {.kind = TCP_CONNECTED_ALL, .ballot = m->vote->formed};
    ls_tcp_send_to_voters(m, set, &message);
    for (;;) {
        bool left = false, whole = true, goes_on = false;
        for (int i = 0; i < m->vote->members; i++)
            if (i != m->vote->own && ls_tcp_set_has(set, i)) {
                left |= ls_tcp_has_left(m, i);
                whole &= is_ready(m, i);
                goes_on |= is_ready(m, i) && m->j->voting[i].fd < 0;
            }
        if (whole || goes_on)
            return LS_OK;
        if (left || ls_now_ns() >= m->j->until_ns)
            return ls_fail(err, LS_EIO, "another host was lost while the hosts were connecting");
        (void)ls_tcp_ready(-1, 0, ls_now_ns() + TCP_LISTEN_NS);
        ls_tcp_beat(m->j);
    }
}

/* Makes the connections of the host group that was formed. The connections of the vote stay open
 * until all members have made all connections. If one member gives up because another was lost
 * meanwhile, the others notice it and give up too (join.c), so all survivors are in the next vote
 * within the grace time. */
static int connect_anew(ls_tcp_wire **out, regrouping *m, ls_error *err)
{
    const ls_tcp_set *set = &m->vote->formed.set;
    const bool comes = ls_tcp_set_has(&m->vote->formed.fresh, m->vote->own);
    ls_tcp_wire *w = ls_alloc(NULL, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for a wire");
    m->j->wire = w;
    m->j->until_ns =
        ls_tcp_sooner(ls_now_ns() + (comes ? 1 : GRACES_TO_CONNECT) * m->grace_ns, m->end_ns);
    m->j->unreached = -1;
    w->base.member = ls_tcp_set_index(set, m->vote->own);
    int status = ls_tcp_make_lines(w, ls_tcp_set_count(set), err);
    if (status == LS_OK)
        status = ls_tcp_connect_all(m->j, err);
    if (status == LS_OK)
        status = await_ready(m, err);
    if (status == LS_OK)
        ls_tcp_expand_keys(w);
    if (status)
        ls_tcp_free(w);
    else
        *out = w;
    return status;
}

/* Returns whether the missing connection to the member `who` is one between a newcomer and another
 * member; `who` −1: none is missing. */
static bool is_of_newcomer(const regrouping *m, int who)
{
    const ls_tcp_set *fresh = &m->vote->formed.fresh;
    return who >= 0 && (ls_tcp_set_has(fresh, m->vote->own) || ls_tcp_set_has(fresh, who));
}

/* Votes and connects. If another member is lost before all members have connected, the others vote
 * again without that member. */
static int vote_and_connect(ls_tcp_wire **out, regrouping *m, ls_tcp_set suspects, ls_error *err)
{
    int status = LS_ESTALLED;
    m->end_ns = ls_now_ns() + GRACES_IN_ALL * m->grace_ns;
    for (int tries = 0; status && tries < TCP_TRIED_MOST; tries++) {
        begin_vote(m, &suspects);
        status = run_vote(m, err);
        if (status)
            break;
        m->j->formed_ns = ls_now_ns();
        note_turned(m->j);
        status = connect_anew(out, m, err);
        if (status && is_of_newcomer(m, m->j->unreached))
            ls_tcp_set_add(&suspects, m->j->unreached);
    }
    ls_tcp_disconnect_voters(m);
    return status;
}

/* Returns the grace time. `deadline_ns`: longest time for which a member may be silent. */
static uint64_t grace_of(uint64_t deadline_ns)
{
    const uint64_t half = deadline_ns / 2;
    if (half > GRACE_NS)
        return GRACE_NS;
    return half < LEAST_GRACE_NS ? LEAST_GRACE_NS : half;
}

/* Allocates the voters, then votes and connects. */
static int run_regrouping(ls_tcp_wire **out, regrouping *m, const ls_tcp_set *suspects,
                          ls_error *err)
{
    const size_t members = (size_t)m->vote->members;
    ls_tcp_link *voting = ls_alloc_array(NULL, members, sizeof *voting);
    m->voter = ls_alloc_array(NULL, members, sizeof *m->voter);
    for (size_t i = 0; voting && m->voter && i < members; i++)
        voting[i].fd = m->voter[i].call.fd = -1;
    m->j->voting = voting;
    m->j->regrouping = m;
    m->j->try_ns = m->grace_ns / 4;
    int status = voting && m->voter ? vote_and_connect(out, m, *suspects, err)
                                    : ls_fail(err, LS_ENOMEM, "out of memory for a vote");
    m->j->voting = NULL;
    m->j->regrouping = NULL;
    ls_free(NULL, voting);
    ls_free(NULL, m->voter);
    return status;
}

/* Replaces the reason why this newcomer was not admitted, if it has not reached all members of the
 * run. `old`: the members before the vote. */
static int explain(const regrouping *m, int status, const ls_tcp_set *old, ls_error *err)
{
    char why[TCP_NOTE];
    ls_tcp_set apart = {{0}};
    for (int i = 0; i < m->vote->own; i++)
        if (ls_tcp_set_has(old, i) && (!ls_tcp_set_has(&m->met, i) || m->j->unreached == i))
            ls_tcp_set_add(&apart, i);
    if (status != LS_ESTALLED || ls_tcp_set_count(&apart) == 0)
        return status;
    ls_tcp_say_apart(why, sizeof why, m->j, m->j->host, &apart, ls_tcp_set_count(old));
    return ls_fail(err, status, "%s", why);
}

/* Sets w->base.admitted, the member number of the newcomer in the new host group. All members set
 * the same number, because the proposal names the newcomer (ls_tcp_ballot.fresh). */
static void set_admitted(ls_tcp_wire *w, const ls_tcp_vote *v)
{
    w->base.admitted = 0;
    for (int i = 1; i < w->base.members; i++)
        if (ls_tcp_set_has(&v->formed.fresh, ls_tcp_set_nth(&v->formed.set, i)))
            w->base.admitted = i;
}

int ls_tcp_vote_in(ls_tcp_wire **out, joining *j, uint64_t grace_ns, ls_error *err)
{
    const ls_regroup how = {.size = sizeof how, .alive = j->options.alive, .user = j->options.user};
    const ls_tcp_set none = {{0}};
    regrouping m = {.j = j,
                    .vote = &j->vote,
                    .before = j->vote.formed.set,
                    .grace_ns = grace_ns ? grace_ns : GRACE_NS};
    j->how = &how;
    j->unreached = -1;
    int status = run_regrouping(out, &m, &none, err);
    j->how = NULL;
    j->try_ns = TCP_TRY_NS;
    if (status)
        return explain(&m, status, &m.before, err);
    set_admitted(*out, &j->vote);
    if ((*out)->base.admitted == (*out)->base.member)
        return LS_OK;
    /* Another member was lost after the host group with this process was formed. This process is
     * also in the host group after that one, but the other members do not know that it lacks the
     * state of the run. Therefore it leaves. It closes its listening socket before its connections,
     * so that the others' attempts to connect are refused. The next call opens a listening socket
     * again (meet.c). */
    close(j->listen_fd);
    j->listen_fd = -1;
    ls_tcp_free(*out);
    *out = NULL;
    return ls_fail(err, LS_ESTALLED, "another host was lost during the admission");
}

int ls_tcp_regroup(ls_tcp_wire **out, ls_tcp_wire *old, const ls_regroup *how, ls_error *err)
{
    joining *j = old->rendezvous;
    if (!j || !j->options.regroups)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the wire was opened without `regroups`, so it cannot regroup");
    regrouping m = {.j = j,
                    .vote = &j->vote,
                    .old = old,
                    .before = j->vote.formed.set,
                    .grace_ns = grace_of(how->deadline_ns)};
    ls_tcp_set suspects = {{0}};
    for (int i = 0; i < old->base.members; i++)
        if (how->lost[i])
            ls_tcp_set_add(&suspects, ls_tcp_set_nth(&m.before, i));
    j->vote.arrivals = (ls_tcp_set){{0}};
    j->try_ns = m.grace_ns / 4;
    int status = how->arrival ? ls_tcp_invite(j, how->arrival, m.grace_ns, err) : LS_OK;
    if (status)
        return status;
    j->how = how;
    j->running = false;
    status = run_regrouping(out, &m, &suspects, err);
    j->how = NULL;
    j->running = true;
    /* Closes pending connections and connections that came too late for the new host group. */
    ls_tcp_hang_up(j);
    if (status)
        return status;
    for (int i = 0; i < (*out)->base.members; i++) {
        const int number = ls_tcp_set_nth(&j->vote.formed.set, i);
        how->origin[i] =
            ls_tcp_set_has(&m.before, number) ? ls_tcp_set_index(&m.before, number) : -1;
    }
    set_admitted(*out, &j->vote);
    if (how->arrival && (*out)->base.admitted == 0)
        ls_tcp_explain_failure(j, how);
    (*out)->rendezvous = j;
    old->rendezvous = NULL;
    return LS_OK;
}
