/* The vote that decides which members continue when others have been lost. This file has only the
 * rules of the vote; regroup.c has the connections and the time limits.
 *
 * Members are identified by their numbers in the first group; a member that was admitted later has
 * the next free number. A group has a number and a set of members. The first group contains all
 * members of the start and is *formed* from the start. Each later group is proposed by the
 * lowest-numbered of the members that have found each other. It is formed when all its members have
 * accepted the proposal:
 *
 *     all        STATE     last formed group, highest number seen, suspected members
 *     lowest     PROPOSE   {number, set}, and the number of the formed group that it follows
 *     members    ACCEPT    the member has *tried* the proposal from then on
 *     lowest     FORMED    when all have accepted
 *
 * A set is a *quorum* of another set if it contains more than half of it, or half of it with its
 * lowest member. Two quorums of the same set have a common member. A proposal contains only members
 * of the last formed group, and is a quorum of it. A member accepts a proposal only if it is also a
 * quorum of every proposal that this member has tried since that group and does not know to be
 * dead, because such a proposal may have been formed by others. (Dynamic voting, as described by
 * Lotem, Keidar and Dolev, 1997.)
 *
 * Claim: two groups that do not know of each other are never at work at the same time.
 *
 * A sum needs every member of its group. A group is therefore at work only while all its members
 * have formed it, and none of them has left it for another vote. Let F be a formed group, S the one
 * with the lowest number of the groups that follow F and are at work, and T another group that
 * follows F. Both are quorums of F, so they have a common member m, which has accepted both. A
 * member accepts ascending numbers only, so m has accepted the one with the lower number first.
 *
 * - If that is S, m accepted T after it had tried S. So T is a quorum of S, and m no longer works
 *   in S: S has ended before T begins.
 * - If that is T, m accepted S after it had tried T. So S is a quorum of T, and m no longer works
 *   in T.
 *
 * A group may also have a *new* member, an arrival, which the members of the formed group know from
 * an exchange before the vote. Above, "quorum of a set" means that the part of the group that is in
 * the set is a quorum of it, so the argument is the same: S and T both contain quorums of F, which
 * have a common member. An arrival is part of a proposal only if every member that is here knows of
 * it. A proposal says which of its members is new, so that all that form the group know it.
 *
 * By induction over the numbers, all groups that were ever at work form one sequence, each with a
 * quorum of the one before. Members outside of this sequence end with an error: a half that is cut
 * off, and a process that was stopped and continues later. If a loss in the middle of a vote leaves
 * open whether a group was formed, all members may end with an error, but two groups never go on.
 */
#ifndef TCP_VOTE_H
#define TCP_VOTE_H

#include <lockstep/sys/wire.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tcp_set {
    uint64_t bits[LS_MEMBERS_MAX / 64];
} tcp_set;

typedef struct tcp_ballot {
    uint64_t number; /* 0: the first group */
    tcp_set set;
    tcp_set fresh; /* members that are new in this group */
} tcp_ballot;

typedef enum tcp_say { TCP_STATE, TCP_PROPOSE, TCP_ACCEPT, TCP_FORMED } tcp_say;

/* A message of the vote; all members have the same byte order. */
typedef struct tcp_word {
    uint32_t say, unused;
    tcp_ballot ballot; /* STATE: the group that was formed last */
    /* STATE: highest number seen; PROPOSE: number of the formed group that it follows */
    uint64_t number;
    tcp_set suspects; /* STATE: suspected members */
    tcp_set arrivals; /* STATE: arrivals that the sender knows */
} tcp_word;

enum { TCP_TRIED_MOST = 8 }; /* most proposals that a member tries after a formed group */

typedef struct tcp_vote {
    int own, members;  /* number of this member; all numbers of members are below `members` */
    tcp_ballot formed; /* the group that this member has formed last */
    tcp_ballot tried[TCP_TRIED_MOST]; /* proposals that were tried after the formed group */
    int tries;                        /* number of entries of `tried` used */
    uint64_t highest;                 /* highest number of a proposal that this member has tried */
    tcp_set suspects;                 /* members that this member suspects */
    tcp_set arrivals; /* newcomers that may be in the group that follows the formed group */
    tcp_set here;     /* connected members whose state has arrived, and this member */
    tcp_word *state;  /* [members]: states of the others; the entry of this member stays zero */
    /* This member's own proposal. */
    bool proposing;      /* there is one, and it is neither formed nor abandoned */
    tcp_ballot proposal; /* the proposed group */
    tcp_set accepted;    /* members that have accepted it */
} tcp_vote;

static inline bool tcp_set_has(const tcp_set *s, int i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}

static inline void tcp_set_add(tcp_set *s, int i)
{
    s->bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* Returns the number of members of the set. */
int tcp_set_count(const tcp_set *s);
/* Returns the number of the member at position `index` of the set, counted from 0 in ascending
 * order, or −1 if the set has fewer members. */
int tcp_set_nth(const tcp_set *s, int index);

/* Initialises the state of a vote: the first group, of `members` members, is formed. `own`: number
 * of this member. Errors: LS_ENOMEM. */
int tcp_vote_init(tcp_vote *v, int own, int members, ls_error *err);
/* Frees the vote's contents. A vote that was not initialised, but zeroed, is allowed. */
void tcp_vote_fini(tcp_vote *v);

/* Records that number `who` is a newcomer, until a group is formed. Errors: LS_ENOMEM. */
int tcp_vote_expect(tcp_vote *v, int who, ls_error *err);
/* Begins a vote, in which no other member is connected yet. `suspects`: the members that this
 * member suspects. */
void tcp_vote_begin(tcp_vote *v, const tcp_set *suspects);
/* Records that the connection to a member has been closed. */
void tcp_vote_miss(tcp_vote *v, int who);
/* Writes the STATE message of this member. */
void tcp_vote_state(const tcp_vote *v, tcp_word *out);

/* Checks a received message: whether it has a known kind, and its groups contain only numbers that
 * this member knows. It may name arrivals that this member does not know. */
bool tcp_vote_can_be(const tcp_vote *v, const tcp_word *in);

/* Processes a message from member `from`, which tcp_vote_can_be has accepted. Returns true if
 * *answer must be sent back. */
bool tcp_vote_hear(tcp_vote *v, int from, const tcp_word *in, tcp_word *answer);

/* tcp_vote_last returns the formed group with the highest number that a connected member (or this
 * one) knows. tcp_vote_left returns those of its members that are connected, and this one. */
const tcp_ballot *tcp_vote_last(const tcp_vote *v);
tcp_set tcp_vote_left(const tcp_vote *v);
/* Returns whether every member of tcp_vote_last is connected, or is suspected by a connected member
 * or by this one. */
bool tcp_vote_settled(const tcp_vote *v);
/* Returns whether the members of tcp_vote_left may form a group by the rules above, as far as this
 * member knows. */
bool tcp_vote_may(const tcp_vote *v);
/* Makes a proposal if this member has the lowest number in tcp_vote_left and tcp_vote_may is true.
 * Returns true if *out must be sent to the other members of tcp_vote_left. */
bool tcp_vote_propose(tcp_vote *v, tcp_word *out);
/* Forms the group that this member has proposed, if all its members have accepted the proposal.
 * Returns true if *out must be sent to the other members of the group. */
bool tcp_vote_formed(tcp_vote *v, tcp_word *out);

#endif
