/* Who goes on when members of a group are lost: the rules alone, without connections.
 *
 * Members are called by their numbers in the first group. A group has a number and a set of members. The first one
 * is *formed* from the start; each later one is proposed by the lowest of those that have found each other, accepted
 * by all that it names, and formed when all have accepted it:
 *
 *     all        STATE     the group that was formed last, the highest number seen, who is suspected
 *     lowest     PROPOSE   {number, set}, and the number of the formed group that it follows
 *     named      ACCEPT    the proposal is *tried* from here on
 *     lowest     FORMED    when all have accepted
 *
 * A set is a *quorum* of another one if it has more than half of it, or half of it with its lowest member. A
 * proposal names members of the last formed group alone, a quorum of it; and a member accepts it only if it is a
 * quorum as well of every proposal that this member has tried since that group and does not know to be dead: that
 * one may have been formed elsewhere. (Dynamic voting, as of Lotem, Keidar and Dolev, 1997.)
 *
 * Why there are never two groups at work that do not know of each other. A sum needs every member of its group, so a
 * group is at work only if all of it has formed it, and none of it has left it for another vote. Let S be the first group
 * behind F, by number, that is at work, and T another one behind F. Both are quorums of F, so they share a member m,
 * which accepted both: the one with the lower number first, as a member accepts rising numbers alone. If that is S, m
 * accepted T with S tried, so T is a quorum of S, and m no longer works in S: S has ended before T begins. If that is T,
 * then S was accepted with T tried and is a quorum of T, and m no longer works in T. By induction over numbers all
 * groups that were ever at work are in one row, each a part of the one before. Whatever is not in the row ends with an
 * error: a half that is cut off, one that was stopped and wakes up, and, where a loss comes in the middle of a vote and
 * leaves it open whether a group was formed, possibly all, rather than two. */
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
} tcp_ballot;

typedef enum tcp_say { TCP_STATE, TCP_PROPOSE, TCP_ACCEPT, TCP_FORMED } tcp_say;

/* What members say; of one byte order, as everything is. */
typedef struct tcp_word {
    uint32_t say, unused;
    tcp_ballot ballot; /* STATE: the group formed last */
    uint64_t number;   /* STATE: the highest seen; PROPOSE: of the formed group that it follows */
    tcp_set suspects;  /* STATE */
} tcp_word;

enum { TCP_TRIED_MOST = 8 };

typedef struct tcp_vote {
    int own, members; /* of the first group */
    tcp_ballot formed;
    tcp_ballot tried[TCP_TRIED_MOST]; /* behind it */
    int tries;
    uint64_t highest;
    tcp_set suspects;
    tcp_set here;    /* whose state is known, and this one */
    tcp_word *state; /* [members]: theirs; of its own the number stays 0 */
    /* Its own proposal. */
    bool proposing;
    tcp_ballot proposal;
    tcp_set accepted;
} tcp_vote;

static inline bool tcp_set_has(const tcp_set *s, int i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}

static inline void tcp_set_add(tcp_set *s, int i)
{
    s->bits[i / 64] |= UINT64_C(1) << (i % 64);
}

int tcp_set_count(const tcp_set *s);
/* The member of the first group that is number `index` of the set; −1: it has fewer. */
int tcp_set_nth(const tcp_set *s, int index);

/* Errors: LS_ENOMEM. */
int tcp_vote_init(tcp_vote *v, int own, int members, ls_error *err);
void tcp_vote_fini(tcp_vote *v);

/* A vote begins: nobody is there yet. `suspects`: of this member. */
void tcp_vote_begin(tcp_vote *v, const tcp_set *suspects);
/* The connection to it is gone. */
void tcp_vote_miss(tcp_vote *v, int who);
void tcp_vote_state(const tcp_vote *v, tcp_word *out);

/* Whether a word names some members of the first group and no others. */
bool tcp_vote_can_be(const tcp_vote *v, const tcp_word *in);

/* Takes in a word from member `from`, for which tcp_vote_can_be holds. True: send *answer back. */
bool tcp_vote_hear(tcp_vote *v, int from, const tcp_word *in, tcp_word *answer);

/* The last formed group that anyone here knows, and those of it who are here. */
const tcp_ballot *tcp_vote_last(const tcp_vote *v);
tcp_set tcp_vote_left(const tcp_vote *v);
/* Everybody of the last group is here, or is suspected by one who is. */
bool tcp_vote_settled(const tcp_vote *v);
/* Whether those who are here may go on, as far as this member knows. */
bool tcp_vote_may(const tcp_vote *v);
/* This one is the lowest of those left, and proposes them: *out goes to all of them but itself. */
bool tcp_vote_propose(tcp_vote *v, tcp_word *out);
/* All have accepted what this one proposed: *out goes to them. */
bool tcp_vote_formed(tcp_vote *v, tcp_word *out);

#endif
