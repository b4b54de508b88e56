/* SPDX-License-Identifier: MIT */
/* The vote that decides which members continue when others have been lost. This file has only the
 * rules of the vote; voters.c has the connections, regroup.c the time limits.
 *
 * In this file the number of a member is its origin (join.h). A member is *suspected* if another
 * member believes that it is lost, for example because it has been silent (regroup.c says when). A
 * host group (cluster/cluster.h) has a number and a set of members. The first host group contains
 * all members of the start, and counts as *formed*, that is, decided. Each later one is proposed by
 * the lowest-numbered of the members that have found each other. It is formed when all its members
 * have accepted the proposal:
 *
 *     all        STATE     last formed host group, highest number tried, links, suspected members
 *     lowest     PROPOSE   {number, set}, and the number of the formed host group that it follows
 *     members    ACCEPT    the member has *tried* the proposal from then on
 *     lowest     FORMED    when all have accepted
 *
 * A *link* is a connection of the vote between two members, which have proved to each other that
 * they know the secret. Every member tells the others its links. The members of a proposal all have
 * links to each other, because every member of a host group needs a connection to every other one.
 * If a link is missing, one of its two members is left out: the one with the higher number, which
 * came later. Therefore a process that comes to a run replaces no member that the others reach.
 *
 * A set Q is a *quorum* of a set S if Q contains more than half of the members of S, or exactly
 * half of them with the lowest-numbered member of S. Two quorums of the same set have a common
 * member. A proposal contains only members of the last formed host group, and is a quorum of it. A
 * member accepts a proposal that follows the formed host group F only if the proposal is also a
 * quorum of every proposal with a number higher than F's that this member has tried. This rule is
 * needed because other members can have formed a tried proposal. (The method is dynamic voting, as
 * described by Lotem, Keidar and Dolev, 1997.)
 *
 * A host group is *at work* while it computes sums. Claim: two host groups that do not know of each
 * other are never at work at the same time.
 *
 * A sum needs every member of its host group, which is therefore at work only while all its members
 * have formed it, and no member has left it for another vote. Let F be a formed host group. Among
 * those that follow F and are at work at some time, let S be the one with the lowest number. Let T
 * be another one that follows F and whose members have all accepted it. S and T are quorums of F.
 * Therefore they have a common member m, which has accepted both. A member accepts ascending
 * numbers only, so m has accepted the lower number first.
 *
 * - If S has the lower number, m accepted T after it had tried S. So T is a quorum of S. And m no
 *   longer works in S, so S has ended before T begins its work.
 * - If T has the lower number, m accepted S after it had tried T. So S is a quorum of T. And m no
 *   longer works in T, so T is not at work from then on. By the choice of S, T has not been at work
 *   before either.
 *
 * A host group can also have a new member, the *arrival*: a process that is being admitted to the
 * run. The members of the formed host group know the arrival from an exchange of data before the
 * vote. For such a host group G, "G is a quorum of F" means that the intersection of G and F is a
 * quorum of F: only the old members, those of F, are counted. So a vote that includes an arrival
 * needs of the old members what a vote after a loss needs, more than half of them, or half with the
 * first. The argument stays the same. S and T both contain quorums of F, and two quorums of F have
 * a common member, which is an old one. That member has accepted both. If an arrival counted in the
 * vote on its own admission, this would not hold: of the members 0 and 1, member 1 and the arrival
 * would be two of three, while member 0 alone is half of F with the first.
 *
 * In the two cases of the argument, the later host group is a quorum of the earlier one, and there
 * the arrival of the earlier one counts, because it can have been formed. From then on the arrival
 * is a member like the others. An arrival never makes the old members too few: with the arrival, a
 * host group of n old members has n + 1 members, and the n old ones are more than half of them, or
 * half with the first if n is 1. So if a vote or the connecting fails because of an arrival, the
 * old members repeat it without the arrival.
 *
 * A proposal contains an arrival only if every connected member knows the arrival. A proposal says
 * which member is new, so that all members that form the host group know the new member. If it
 * leaves out an arrival, it says which members have no link to the arrival, so that all of them
 * report the same reason.
 *
 * By induction over the numbers, all host groups that were ever at work form one sequence, in which
 * each contains a quorum of the one before it. Members outside of this sequence end with an error,
 * for example a half of the hosts that is cut off from the others, or a process that was stopped
 * and continues later. If it is unknown after a loss in the middle of a vote whether a host group
 * was formed, it can happen that all members end with an error. In no case do two host groups go
 * on. */
#ifndef TCP_VOTE_H
#define TCP_VOTE_H

#include <lockstep/sys/transport.h>
#include <stdbool.h>
#include <stdint.h>

/* A set of members, by their numbers: bit i is member i. */
typedef struct ls_tcp_set {
    uint64_t bits[LS_MEMBERS_MAX / 64];
} ls_tcp_set;

/* A proposed or a formed host group. */
typedef struct ls_tcp_ballot {
    uint64_t number; /* its number; 0: the first one */
    ls_tcp_set set;
    ls_tcp_set fresh; /* members that are new in it */
    /* members that connect to the new member; to the other members the new one connects */
    ls_tcp_set turned;
    /* if an arrival was left out: its members without a link to the arrival */
    ls_tcp_set apart;
} ls_tcp_ballot;

typedef enum ls_tcp_message_kind {
    TCP_STATE,
    TCP_PROPOSE,
    TCP_ACCEPT,
    TCP_FORMED,
    TCP_CONNECTED_ALL /* no part of the vote: the sender is connected to the whole host group */
} ls_tcp_message_kind;

/* A message of the vote, in native byte order, which is the same on all members (join.h). */
typedef struct ls_tcp_message {
    uint32_t kind, unused;
    /* STATE: newest host group that the sender has formed; other kinds: the proposal */
    ls_tcp_ballot ballot;
    /* STATE: highest number of a proposal that the sender has tried; PROPOSE: number of the formed
     * host group that the proposal follows */
    uint64_t number;
    ls_tcp_set suspects; /* STATE: suspected members */
    ls_tcp_set arrivals; /* STATE: arrivals that the sender knows */
    ls_tcp_set links;    /* STATE: members with a link to the sender, and the sender */
    ls_tcp_set turned;   /* STATE: see ls_tcp_vote.turned */
} ls_tcp_message;

/* largest number of proposals that a member tries after a formed host group */
enum { TCP_TRIED_MOST = 8 };

typedef struct ls_tcp_vote {
    /* `own`: number of this member. `members`: every member's number is below it */
    int own, members;
    ls_tcp_ballot formed;                /* newest host group that this member has formed */
    ls_tcp_ballot tried[TCP_TRIED_MOST]; /* proposals that this member has tried since `formed` */
    int tries;                           /* number of entries of `tried` used */
    uint64_t highest;    /* highest number of a proposal that this member has tried */
    ls_tcp_set suspects; /* members that this member suspects */
    ls_tcp_set arrivals; /* arrivals that the host group after `formed` can contain */
    /* The links of this member: this member, and the connected members whose STATE has arrived. */
    ls_tcp_set here;
    /* on an arrival: members that have connected to it, because it does not reach them; the caller
     * changes the set */
    ls_tcp_set turned;
    /* [members]: last STATE of each other member; the entry of this member stays zero */
    ls_tcp_message *state;
    /* This member's own proposal. */
    bool proposing; /* this member has made a proposal that is neither formed nor abandoned */
    ls_tcp_ballot proposal; /* the proposed host group */
    ls_tcp_set accepted;    /* members that have accepted the proposal */
} ls_tcp_vote;

static inline bool ls_tcp_set_has(const ls_tcp_set *s, int i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}

static inline void ls_tcp_set_add(ls_tcp_set *s, int i)
{
    s->bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void ls_tcp_set_remove(ls_tcp_set *s, int i)
{
    s->bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* Returns the number of members of the set. */
int ls_tcp_set_count(const ls_tcp_set *s);
/* Returns the number of the member at position `index` of the set, counted from 0 by ascending
 * numbers. Returns −1 if the set has fewer members. */
int ls_tcp_set_nth(const ls_tcp_set *s, int index);
/* Returns the position of the member `who` in the set, which is its member number. */
int ls_tcp_set_index(const ls_tcp_set *s, int who);

/* Initialises the state of a vote. The formed host group becomes the first one, which has `members`
 * members. `own`: number of this member. Errors: LS_ENOMEM. */
int ls_tcp_vote_init(ls_tcp_vote *v, int own, int members, ls_error *err);
/* Frees the vote's contents. A zeroed vote is allowed. */
void ls_tcp_vote_fini(ls_tcp_vote *v);

/* Records the process with number `who` as the arrival. Forming a host group clears the record.
 * Errors: LS_ENOMEM. */
int ls_tcp_vote_expect(ls_tcp_vote *v, int who, ls_error *err);
/* Begins a vote. Another member counts as connected from the time when its message STATE arrives.
 * `suspects`: the members that this member suspects. */
void ls_tcp_vote_begin(ls_tcp_vote *v, const ls_tcp_set *suspects);
/* Records that the connection to a member has been closed. */
void ls_tcp_vote_disconnect(ls_tcp_vote *v, int who);
/* Writes the message STATE of this member to *out. */
void ls_tcp_vote_state(const ls_tcp_vote *v, ls_tcp_message *out);

/* Returns whether a received message is well formed: its kind is known, and its sets contain only
 * member numbers that this member knows. (The set `arrivals` can contain other numbers.) */
bool ls_tcp_vote_is_valid(const ls_tcp_vote *v, const ls_tcp_message *in);

/* Processes a message from member `from`. The caller has checked the message with
 * ls_tcp_vote_is_valid. Returns true if *answer must be sent back. */
bool ls_tcp_vote_on_message(ls_tcp_vote *v, int from, const ls_tcp_message *in,
                            ls_tcp_message *answer);

/* Returns the *last host group*: the formed one with the highest number that this member or a
 * connected member knows. */
const ls_tcp_ballot *ls_tcp_vote_last(const ls_tcp_vote *v);
/* Returns the *remaining members*, which the next host group would have. The *candidates* are the
 * members of the last one, and the arrivals that every connected member knows. (This member counts
 * as connected.) They are the connected candidates that all have links to each other: from the
 * lowest number on, each candidate is added that has links to all added before. */
ls_tcp_set ls_tcp_vote_remaining(const ls_tcp_vote *v);
/* Returns whether the vote can go on without waiting for more members. This is so if every
 * candidate (see ls_tcp_vote_remaining) is connected or suspected, and every two connected
 * candidates have a link or one of them suspects the other. This member believes its own
 * suspicions, and those of a member about members with higher numbers. A member that does not reach
 * an older one thus cannot hurry the others to go on without the older one. */
bool ls_tcp_vote_settled(const ls_tcp_vote *v);
/* Returns whether the rules at the head of this file can allow the connected candidates to form a
 * host group with this member, as far as this member knows. (Links can still be missing.) */
bool ls_tcp_vote_may(const ls_tcp_vote *v);
/* Proposes the remaining members as the next host group, if this member has the lowest number among
 * them and the rules at the head of this file allow it. Returns true if *out must be sent to the
 * other remaining members. */
bool ls_tcp_vote_propose(ls_tcp_vote *v, ls_tcp_message *out);
/* Forms the host group that this member has proposed, if all its members have accepted the
 * proposal. Returns true if *out must be sent to its other members. */
bool ls_tcp_vote_formed(ls_tcp_vote *v, ls_tcp_message *out);

#endif
