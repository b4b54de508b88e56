/* SPDX-License-Identifier: MIT */
/* The rules of the vote by which the surviving members choose the next host group; vote.h describes
 * them. */
#include "tcp/vote.h"
#include "base/error.h"
#include "base/host.h"

#include <string.h>

enum { WORDS = LS_MEMBERS_MAX / 64 };

/* ---- sets ------------------------------------------------------------------------------------ */

int ls_tcp_set_count(const ls_tcp_set *s)
{
    int count = 0;
    for (int i = 0; i < WORDS; i++)
        count += __builtin_popcountll(s->bits[i]);
    return count;
}

int ls_tcp_set_nth(const ls_tcp_set *s, int index)
{
    for (int i = 0; i < LS_MEMBERS_MAX; i++)
        if (ls_tcp_set_has(s, i) && index-- == 0)
            return i;
    return -1;
}

int ls_tcp_set_index(const ls_tcp_set *s, int who)
{
    int index = 0;
    for (int i = 0; i < who; i++)
        index += ls_tcp_set_has(s, i);
    return index;
}

static ls_tcp_set intersection(const ls_tcp_set *a, const ls_tcp_set *b)
{
    ls_tcp_set out;
    for (int i = 0; i < WORDS; i++)
        out.bits[i] = a->bits[i] & b->bits[i];
    return out;
}

static bool is_quorum(const ls_tcp_set *part, const ls_tcp_set *whole)
{
    const ls_tcp_set shared = intersection(part, whole);
    const int twice = 2 * ls_tcp_set_count(&shared), all = ls_tcp_set_count(whole);
    return twice > all || (twice == all && ls_tcp_set_has(part, ls_tcp_set_nth(whole, 0)));
}

static ls_tcp_set difference(const ls_tcp_set *a, const ls_tcp_set *b)
{
    ls_tcp_set out;
    for (int i = 0; i < WORDS; i++)
        out.bits[i] = a->bits[i] & ~b->bits[i];
    return out;
}

static ls_tcp_set union_of(const ls_tcp_set *a, const ls_tcp_set *b)
{
    ls_tcp_set out;
    for (int i = 0; i < WORDS; i++)
        out.bits[i] = a->bits[i] | b->bits[i];
    return out;
}

/* ---- creating -------------------------------------------------------------------------------- */

int ls_tcp_vote_init(ls_tcp_vote *v, int own, int members, ls_error *err)
{
    *v = (ls_tcp_vote){.own = own, .members = members};
    v->state = ls_alloc_array(NULL, (size_t)members, sizeof *v->state);
    for (int i = 0; i < members; i++)
        ls_tcp_set_add(&v->formed.set, i);
    return v->state ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %d members", members);
}

void ls_tcp_vote_fini(ls_tcp_vote *v)
{
    ls_free(NULL, v->state);
    v->state = NULL;
}

int ls_tcp_vote_expect(ls_tcp_vote *v, int who, ls_error *err)
{
    if (who >= v->members) {
        ls_tcp_message *state = ls_alloc_array(NULL, (size_t)who + 1, sizeof *state);
        if (!state)
            return ls_fail(err, LS_ENOMEM, "out of memory for %d members", who + 1);
        memcpy(state, v->state, (size_t)v->members * sizeof *state);
        ls_free(NULL, v->state);
        v->state = state;
        v->members = who + 1;
    }
    v->arrivals = (ls_tcp_set){{0}};
    ls_tcp_set_add(&v->arrivals, who);
    return LS_OK;
}

void ls_tcp_vote_begin(ls_tcp_vote *v, const ls_tcp_set *suspects)
{
    v->proposing = false;
    v->suspects = *suspects;
    v->turned = v->here = (ls_tcp_set){{0}};
    ls_tcp_set_add(&v->here, v->own);
}

/* If this member has proposed a host group with the disconnected member, the proposal is abandoned,
 * because the disconnected member cannot accept it any more. Accepted proposals stay in v->tried:
 * the disconnected member can have accepted them too. */
void ls_tcp_vote_disconnect(ls_tcp_vote *v, int who)
{
    ls_tcp_set_remove(&v->here, who);
    if (v->proposing && ls_tcp_set_has(&v->proposal.set, who))
        v->proposing = false;
}

void ls_tcp_vote_state(const ls_tcp_vote *v, ls_tcp_message *out)
{
    *out = (ls_tcp_message){.kind = TCP_STATE, .ballot = v->formed, .number = v->highest};
    out->suspects = v->suspects;
    out->arrivals = v->arrivals;
    out->links = v->here;
    out->turned = v->turned;
}

/* ---- the remaining members --------------------------------------------------------------- */

/* Returns the newest host group that the member `who` has formed, as far as this member knows. */
static const ls_tcp_ballot *formed_of(const ls_tcp_vote *v, int who)
{
    return who == v->own ? &v->formed : &v->state[who].ballot;
}

const ls_tcp_ballot *ls_tcp_vote_last(const ls_tcp_vote *v)
{
    const ls_tcp_ballot *last = &v->formed;
    for (int i = 0; i < v->members; i++)
        if (ls_tcp_set_has(&v->here, i) && formed_of(v, i)->number > last->number)
            last = formed_of(v, i);
    return last;
}

/* Returns the arrivals (processes to be admitted) that every connected member knows. Returns the
 * empty set if a host group has been formed since this member learned of the arrivals. */
static ls_tcp_set known_arrivals(const ls_tcp_vote *v)
{
    ls_tcp_set known = v->arrivals;
    if (ls_tcp_vote_last(v)->number != v->formed.number)
        return (ls_tcp_set){{0}};
    for (int i = 0; i < v->members; i++)
        if (i != v->own && ls_tcp_set_has(&v->here, i))
            known = intersection(&known, &v->state[i].arrivals);
    return known;
}

/* Returns the candidates: the members that the next host group can have (ls_tcp_vote_remaining). */
static ls_tcp_set candidates(const ls_tcp_vote *v)
{
    const ls_tcp_set arrivals = known_arrivals(v);
    return union_of(&ls_tcp_vote_last(v)->set, &arrivals);
}

/* Returns the candidates to which this member has a link, itself included. */
static ls_tcp_set connected(const ls_tcp_vote *v)
{
    const ls_tcp_set able = candidates(v);
    return intersection(&v->here, &able);
}

/* Returns whether the members `a` and `b`, both connected, have a link. */
static bool has_link(const ls_tcp_vote *v, int a, int b)
{
    return ls_tcp_set_has(a == v->own ? &v->here : &v->state[a].links, b) &&
           ls_tcp_set_has(b == v->own ? &v->here : &v->state[b].links, a);
}

/* Returns whether the connected member `who` has links to all members of the set. */
static bool has_links(const ls_tcp_vote *v, int who, const ls_tcp_set *set)
{
    for (int i = 0; i < v->members; i++)
        if (i != who && ls_tcp_set_has(set, i) && !has_link(v, i, who))
            return false;
    return true;
}

ls_tcp_set ls_tcp_vote_remaining(const ls_tcp_vote *v)
{
    const ls_tcp_set able = connected(v);
    ls_tcp_set left = {{0}};
    for (int i = 0; i < v->members; i++)
        if (ls_tcp_set_has(&able, i) && has_links(v, i, &left))
            ls_tcp_set_add(&left, i);
    return left;
}

static bool suspects(const ls_tcp_vote *v, int who, int other)
{
    return ls_tcp_set_has(who == v->own ? &v->suspects : &v->state[who].suspects, other);
}

/* Returns whether the candidate `who`, which is not connected, is suspected by this member or by an
 * older one than `who`. */
static bool is_suspected(const ls_tcp_vote *v, int who)
{
    bool found = suspects(v, v->own, who);
    for (int i = 0; i < who; i++)
        found |= ls_tcp_set_has(&v->here, i) && suspects(v, i, who);
    return found;
}

/* Returns whether the vote need not wait for a link between the connected candidates `a` and `b`,
 * `a` < `b`. An arrival that does not reach `a` suspects `a`, but `a` may reach the arrival. */
static bool is_decided(const ls_tcp_vote *v, int a, int b)
{
    return has_link(v, a, b) || suspects(v, a, b) ||
           (suspects(v, b, a) && ls_tcp_set_has(&ls_tcp_vote_last(v)->set, b));
}

bool ls_tcp_vote_settled(const ls_tcp_vote *v)
{
    const ls_tcp_set able = candidates(v);
    for (int b = 0; b < v->members; b++) {
        if (!ls_tcp_set_has(&able, b))
            continue;
        if (!ls_tcp_set_has(&v->here, b) && !is_suspected(v, b))
            return false;
        for (int a = 0; a < b && ls_tcp_set_has(&v->here, b); a++)
            if (ls_tcp_set_has(&able, a) && ls_tcp_set_has(&v->here, a) && !is_decided(v, a, b))
                return false;
    }
    return true;
}

/* Returns whether this member may accept a proposal with the members `set` that follows the formed
 * host group number `basis`. The conditions:
 *
 * - The set contains this member.
 * - The formed host group is at least as new as the one that this member has formed.
 * - The set is a quorum of every proposal after that host group that this member has tried.
 * - There is room to remember the proposal. */
static bool allows(const ls_tcp_vote *v, const ls_tcp_set *set, uint64_t basis)
{
    bool allowed = basis >= v->formed.number && ls_tcp_set_has(set, v->own);
    for (int i = 0; i < v->tries; i++)
        allowed &= v->tried[i].number <= basis || is_quorum(set, &v->tried[i].set);
    return allowed && v->tries < TCP_TRIED_MOST;
}

/* Returns whether the rules allow the members `set` to form the next host group with this
 * member. */
static bool may_form(const ls_tcp_vote *v, const ls_tcp_set *set)
{
    const ls_tcp_ballot *last = ls_tcp_vote_last(v);
    return is_quorum(set, &last->set) && allows(v, set, last->number);
}

bool ls_tcp_vote_may(const ls_tcp_vote *v)
{
    const ls_tcp_set all = connected(v);
    return may_form(v, &all);
}

/* ---- voting ---------------------------------------------------------------------------------- */

static void add_tried(ls_tcp_vote *v, const ls_tcp_ballot *ballot)
{
    v->highest = ballot->number;
    v->tried[v->tries++] = *ballot;
}

/* Forms a host group. Forgets the tried proposals with lower numbers, because such a proposal can
 * never become a host group at work: one is at work only if all its members have formed it
 * (vote.h), and this member forms none with a lower number any more. */
static void form(ls_tcp_vote *v, const ls_tcp_ballot *ballot)
{
    int kept = 0;
    v->formed = *ballot;
    for (int i = 0; i < v->tries; i++)
        if (v->tried[i].number > ballot->number)
            v->tried[kept++] = v->tried[i];
    v->tries = kept;
    v->proposing = false;
    v->arrivals = (ls_tcp_set){{0}};
}

/* Sets the fields of a ballot that are about the arrival, or about the new member of the last host
 * group in the vote after a failed admission. */
static void describe_arrival(const ls_tcp_vote *v, ls_tcp_ballot *ballot, const ls_tcp_ballot *last)
{
    const ls_tcp_set comes = union_of(&v->arrivals, &last->fresh);
    const int who = ls_tcp_set_nth(&comes, 0);
    if (who < 0 || who == v->own)
        return;
    if (ls_tcp_set_has(&ballot->set, who)) {
        ballot->turned = intersection(&v->state[who].turned, &ballot->set);
        return;
    }
    for (int i = 0; i < v->members; i++)
        if (ls_tcp_set_has(&ballot->set, i) &&
            !(ls_tcp_set_has(&v->here, who)
                  ? has_link(v, i, who)
                  : ls_tcp_set_has(i == v->own ? &v->here : &v->state[i].links, who)))
            ls_tcp_set_add(&ballot->apart, i);
}

bool ls_tcp_vote_propose(ls_tcp_vote *v, ls_tcp_message *out)
{
    const ls_tcp_ballot last = *ls_tcp_vote_last(v);
    const ls_tcp_set left = ls_tcp_vote_remaining(v);
    uint64_t highest = v->highest;
    if (v->proposing || ls_tcp_set_nth(&left, 0) != v->own || !may_form(v, &left))
        return false;
    for (int i = 0; i < v->members; i++)
        if (ls_tcp_set_has(&v->here, i) && v->state[i].number > highest)
            highest = v->state[i].number;
    v->proposal =
        (ls_tcp_ballot){.number = highest + 1, .set = left, .fresh = difference(&left, &last.set)};
    describe_arrival(v, &v->proposal, &last);
    v->proposing = true;
    v->accepted = (ls_tcp_set){{0}};
    ls_tcp_set_add(&v->accepted, v->own);
    add_tried(v, &v->proposal);
    *out = (ls_tcp_message){.kind = TCP_PROPOSE, .ballot = v->proposal, .number = last.number};
    return true;
}

bool ls_tcp_vote_formed(ls_tcp_vote *v, ls_tcp_message *out)
{
    if (!v->proposing || memcmp(&v->accepted, &v->proposal.set, sizeof v->accepted) != 0)
        return false;
    *out = (ls_tcp_message){.kind = TCP_FORMED, .ballot = v->proposal};
    form(v, &v->proposal);
    return true;
}

static bool is_part(const ls_tcp_set *part, const ls_tcp_set *whole)
{
    const ls_tcp_set shared = intersection(part, whole);
    return memcmp(&shared, part, sizeof shared) == 0;
}

/* Accepts a proposal if the rules allow it, and returns whether it has accepted. By accepting, this
 * member abandons its own proposal, because the number of its own proposal is lower. */
static bool accept(ls_tcp_vote *v, const ls_tcp_message *in)
{
    const ls_tcp_set able = union_of(&v->formed.set, &v->arrivals);
    if (in->ballot.number <= v->highest || !is_part(&in->ballot.set, &able) ||
        !allows(v, &in->ballot.set, in->number))
        return false;
    v->proposing = false;
    add_tried(v, &in->ballot);
    return true;
}

bool ls_tcp_vote_is_valid(const ls_tcp_vote *v, const ls_tcp_message *in)
{
    ls_tcp_set all = {{0}};
    for (int i = 0; i < v->members; i++)
        ls_tcp_set_add(&all, i);
    return in->kind <= TCP_CONNECTED_ALL && ls_tcp_set_count(&in->ballot.set) > 0 &&
           is_part(&in->ballot.set, &all) && is_part(&in->suspects, &all);
}

bool ls_tcp_vote_on_message(ls_tcp_vote *v, int from, const ls_tcp_message *in,
                            ls_tcp_message *answer)
{
    switch ((ls_tcp_message_kind)in->kind) {
    case TCP_STATE: /* a member whose message STATE has arrived is no longer suspected */
        ls_tcp_set_remove(&v->suspects, from);
        v->state[from] = *in;
        ls_tcp_set_add(&v->here, from);
        return false;
    case TCP_PROPOSE:
        *answer = (ls_tcp_message){.kind = TCP_ACCEPT, .ballot = in->ballot};
        return accept(v, in);
    case TCP_ACCEPT:
        if (v->proposing && in->ballot.number == v->proposal.number)
            ls_tcp_set_add(&v->accepted, from);
        return false;
    case TCP_FORMED: /* this member can form only the last proposal that it has tried */
        if (v->tries > 0 && in->ballot.number == v->highest && v->highest > v->formed.number)
            form(v, &v->tried[v->tries - 1]);
        return false;
    case TCP_CONNECTED_ALL: return false;
    }
    return false;
}
