/* SPDX-License-Identifier: MIT */
/* The admission of a host to a run (docs/faults.md, src/train/admit.c), with one loss of a host. A
 * *member* is a process of the run; the *newcomer* is the process that is to be admitted.
 *
 * The members of a *group* work in *exchanges*. In an exchange each member sends its part to each
 * other member, one after another. The exchange is complete on a member when the parts of all
 * members have arrived at this member. A member that dies during its sends has sent its part only
 * to some members. Therefore an exchange can be complete on one member and fail on another. With
 * LOSSES 0 nobody dies, and a member sends its part to all others in one step: a cut link can keep
 * the part only from the member at its other end, as if it had been cut before or after that step.
 *
 * In this model an epoch is one step, the sum over SHARDS shards. At the end of an epoch the
 * members exchange whether a newcomer waits (ARRIVALS). If one waits, the members tell each other
 * that they know this (HEADS). Then they vote, together with the newcomer.
 *
 * The vote has the rules of src/tcp/vote.h, but here each member knows at once the states of the
 * members to which it has a *link*. The lowest-numbered member proposes a group, and all members of the proposed group accept.
 * Then the proposer forms the group and tells the others, one after another. A *ballot* is a
 * proposed group; it says which member is new in the group. In a group with a new member the state
 * of the run is sent (STATE), and the members agree to begin (BEGIN). In any other group the
 * members compare what they have done (DEEDS), and members that lack something adopt it from the
 * most advanced member.
 *
 * LOSSES processes (members or the newcomer) die, at any time from the end of the first epoch on.
 * CUTS links are cut, at any time too, and stay cut. Then the two processes do not hear each other.
 * With three old members only links of the newcomer are cut.
 * SLOW members are left out of a vote although they are alive. The newcomer can come too late. The
 * model has no time limits and no connections. Therefore no voter suspects a slow proposer.
 * (suspect_silent in src/tcp/regroup.c does this, and tests/cluster/test_tcp.c tests it.)
 *
 * Checked:
 *   - in an exchange all members send the same kind of part, for the same step;
 *   - each step is the sum of all shards, each counted once, and is applied once, in sequence;
 *   - a newcomer that takes part in a step has the state of the run;
 *   - a run that has lost one host goes on, unless the rule of the quorum forbids it;
 *   - no two groups are at work at the same time;
 *   - an old member stops only if a process has died or its link to another old member is cut: a
 *     newcomer that some members do not reach costs no member;
 *   - all members that end the run normally have done all steps;
 *   - no process waits for ever: an end in which a process still waits is an invalid end state.
 *
 * Planted bugs: BUG_WORKS_AT_ONCE (a newcomer begins without the state), BUG_ONE_KNOWS (a proposer
 * includes a newcomer that another voter does not know), BUG_FRESH_TO_ME (a member calls the
 * newcomer new because the newcomer was not in the member's own last group, even if the ballot does
 * not call it new), BUG_NO_ROUNDS (a member does not adopt that others have completed the end of an
 * epoch), BUG_LEAVES_UNHEARD (a newcomer leaves before it has voted; then two hosts are lost at
 * once), BUG_COUNTS_NEWCOMER (the newcomer counts in the vote on its own admission),
 * BUG_NO_LINKS (a proposal contains members without links to each other), BUG_NEWEST_STAYS (if a
 * link is missing, the older of the two members is left out), BUG_NOT_REPEATED (if a group with the
 * newcomer cannot connect, a member stops instead of voting without the newcomer). */
#ifndef OLD
#define OLD 2 /* members at the start; one more comes */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef SLOW
#define SLOW 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#define SHARDS 2
#define ALL (OLD + 1)
#define NEW OLD
#define NOBODY 255
#define GROUPS 8
#define BIT(i) (1 << (i))

/* Kinds of exchanges. */
#define STEP 1
#define ARRIVALS 2
#define HEADS 3
#define STATE 4
#define BEGIN 5
#define DEEDS 6
#define END 7

/* ---- ballots: set, basis, fresh and by of a ballot do not change ----------------------------- */

byte set[GROUPS];      /* members of the group */
byte basis[GROUPS];    /* formed group that the group follows */
bool fresh[GROUPS];    /* the newcomer is new in the group */
byte by[GROUPS];       /* the group's proposer */
byte accepted[GROUPS]; /* members that have accepted the group */
byte told[GROUPS];     /* members that the proposer has told that the group is formed */
byte ballots = 1;

/* ---- members --------------------------------------------------------------------------------- */

byte alive;          /* processes that are alive, a bit each */
byte voting;         /* members that take part in a vote */
byte knows;          /* voters that know the newcomer from the exchange ARRIVALS */
byte formed[ALL];    /* the last group that the member knows to be formed */
byte tried[ALL];     /* groups that the member has accepted after `formed`, a bit each */
byte steps[ALL];     /* number of steps that the member has applied */
byte rounds[ALL];    /* number of ends of epochs that the member has completed */

/* Two slots for each member: the exchange in which the member is, and the next exchange, of which
 * parts can have arrived already. */
byte turn[ALL];       /* slot of the present exchange */
byte got[ALL * 2];    /* members whose parts have arrived */
byte what[ALL * 2];   /* kind of the exchange */
byte value[ALL * 2];  /* the largest value that was sent */
byte shards[ALL * 2]; /* STEP: shards that are in the parts that have arrived */

/* ---- the newcomer ---------------------------------------------------------------------------- */

byte called = NOBODY; /* the member at which the newcomer waits */
bool invited;        /* `called` has told the newcomer what it needs for the vote */
byte invitation;     /* the formed group that the next group follows */

/* ---- for the assertions, and what can still happen ------------------------------------------- */

byte losses = LOSSES; /* number of processes that can still die */
byte slow = SLOW;     /* number of members that can still be left out */
byte lost;            /* processes that died, a bit each */
byte left_out;        /* members that the others do not wait for */
byte cuts = CUTS;     /* number of links that can still be cut */
byte cut[ALL];        /* members to which the link of this member is cut, a bit each */
byte finished, stopped; /* members that ended with all steps; members that must not go on */
byte ended;           /* number of processes that have ended */
bool agrees;          /* result of send_part */

/* ---- rules ----------------------------------------------------------------------------------- */

/* The rules of tcp/vote.c, written in C, because they are functions of the state alone. */
c_code {
    static int has(int s, int i) { return s >> i & 1; }
    static int lowest(int s) { return __builtin_ctz(s | 1 << 30); }
    static int highest(int s) { return s ? 31 - __builtin_clz(s) : 0; }
    static int is_alive(int i) { return has(now.alive, i); }
    static int linked(int a, int b) { return !has(now.cut[a], b); }

    /* Returns the voters to which the member has links, itself included. */
    static int here(int me) { return now.voting & now.alive & ~now.cut[me]; }

    static int is_quorum(int part, int whole)
    {
        const int twice = 2 * __builtin_popcount(part & whole), all = __builtin_popcount(whole);
        return twice > all || (twice == all && has(part, lowest(whole)));
    }

    /* Returns the newest group that this member or a connected one knows to be formed. */
    static int last_group(int me)
    {
        int last = now.formed[me];
        for (int i = 0; i < ALL; i++)
            if (has(here(me), i) && now.formed[i] > last)
                last = now.formed[i];
        return last;
    }

    /* Returns the connected voters that are members of the last group, and the newcomer if every
     * connected voter knows the newcomer. */
    static int connected(int me)
    {
        const int last = last_group(me);
        int all_know = (here(me) & ~now.knows) == 0;
#ifdef BUG_ONE_KNOWS
        all_know = has(now.knows, me);
#endif
        return here(me) & (now.set[last] | (all_know && now.formed[NEW] == last ? 1 << NEW : 0));
    }

    /* Returns the connected members that all have links to each other, from the lowest on. */
    static int left_of(int me)
    {
        const int all = connected(me);
        int left = 0;
#ifdef BUG_NO_LINKS
        return all;
#endif
#ifdef BUG_NEWEST_STAYS
        for (int i = ALL - 1; i >= 0; i--)
#else
        for (int i = 0; i < ALL; i++)
#endif
            if (has(all, i) && !(left & now.cut[i]))
                left |= 1 << i;
        return left;
    }

    /* Returns whether every member of the last group votes, is dead, is not reached, or is left
     * out. */
    static int is_settled(int me)
    {
        return (now.set[last_group(me)] & now.alive & ~now.voting & ~now.left_out &
                ~now.cut[me]) == 0;
    }

    /* Returns whether the members `who` are a quorum of the last group. */
    static int wins(int me, int who)
    {
        int last = now.set[last_group(me)];
#ifdef BUG_COUNTS_NEWCOMER
        last |= who & 1 << NEW;
#endif
        return is_quorum(who, last);
    }

    /* Returns whether the member `me` may accept a group with the members `who` that follows the
     * group `follows`. */
    static int allows(int me, int who, int follows)
    {
        int ok = has(who, me) && follows >= now.formed[me];
        for (int t = 1; t < GROUPS; t++)
            ok = ok && (!has(now.tried[me], t) || t <= follows || is_quorum(who, now.set[t]));
        return ok;
    }

    /* Returns whether the member's own last proposal is in progress: all members that have to
     * accept it still vote. */
    static int is_proposing(int me)
    {
        const int t = highest(now.tried[me]);
        return t && now.by[t] == me && (now.set[t] & ~here(me)) == 0;
    }

    static int may_propose(int me)
    {
        const int left = left_of(me), last = last_group(me);
        return is_alive(me) && has(now.voting, me) && is_settled(me) && !is_proposing(me) &&
               has(left, me) && lowest(connected(me)) == me && wins(me, left) &&
               allows(me, left, last);
    }

    static void propose(int me)
    {
        const int g = now.ballots++, last = last_group(me), left = left_of(me);
        now.set[g] = left;
        now.basis[g] = last;
        now.fresh[g] = has(left, NEW) && !has(now.set[last], NEW);
        now.by[g] = me;
        now.accepted[g] = 1 << me;
        now.tried[me] |= 1 << g;
    }

    /* Returns whether this member may accept the proposal `g` and has not answered it yet. */
    static int may_accept(int me, int g)
    {
        const int mine = now.set[now.formed[me]] | (has(now.knows, me) ? 1 << NEW : 0);
        return is_alive(me) && has(now.voting, me) && has(now.set[g], me) &&
               !has(now.accepted[g], me) && g > highest(now.tried[me]) && now.by[g] != me &&
               has(here(me), now.by[g]) && highest(now.tried[now.by[g]]) == g &&
               (now.set[g] & ~mine) == 0 && allows(me, now.set[g], now.basis[g]);
    }

    /* Returns the newest proposal that this member may accept; 0: there is none. */
    static int acceptable(int me)
    {
        int g = now.ballots - 1;
        while (g > 0 && !may_accept(me, g))
            g--;
        return g;
    }

    /* Returns the member's own proposal if all its members have accepted it; else 0. */
    static int agreed(int me)
    {
        const int t = highest(now.tried[me]);
        return is_alive(me) && has(now.voting, me) && t && now.by[t] == me &&
               now.accepted[t] == now.set[t] ? t : 0;
    }

    /* Returns the proposal of another member if that member has told this one that the group is
     * formed; else 0. */
    static int heard(int me)
    {
        const int t = highest(now.tried[me]);
        return is_alive(me) && has(now.voting, me) && t && now.by[t] != me &&
               has(now.told[t], me) && linked(me, now.by[t]) ? t : 0;
    }

    /* Returns whether this member can be in no group any more. (The newcomer is in no group before
     * its own.) */
    static int is_hopeless(int me)
    {
        const int last = last_group(me), all = connected(me) | 1 << me;
        if (!is_alive(me) || !has(now.voting, me) || heard(me) || agreed(me))
            return 0;
        if (!has(now.set[last], me) && !(me == NEW && last == now.invitation))
            return 1;
        return is_settled(me) && !(wins(me, all) && allows(me, all, last));
    }

    static void form(int me, int g)
    {
        now.formed[me] = g;
        now.tried[me] &= ~((2 << g) - 1);
        now.voting &= ~(1 << me);
        now.knows &= ~(1 << me);
        now.turn[me] = 0;
        for (int i = 2 * me; i < 2 * me + 2; i++)
            now.got[i] = now.what[i] = now.value[i] = now.shards[i] = 0;
    }

    static int is_connected(int me)
    {
        const int group = now.set[now.formed[me]];
        int all = is_alive(me) && !has(now.voting, me);
        for (int i = 0; i < ALL; i++)
            if (has(group, i))
                all = all && is_alive(i) && now.formed[i] == now.formed[me] &&
                      !(now.cut[i] & group);
        return all;
    }

    /* Returns whether all members of the group work in it. */
    static int is_at_work(int g)
    {
        int all = 1;
        for (int i = 0; i < ALL; i++)
            if (has(now.set[g], i))
                all = all && is_alive(i) && now.formed[i] == g && !has(now.voting, i);
        return all;
    }

    static int two_at_work(void)
    {
        int count = 0;
        for (int g = 0; g < now.ballots; g++)
            count += is_at_work(g);
        return count > 1;
    }

    /* Returns whether this member can notice that another member of its group has died, has left the
     * group, or has not formed it and will not (the time limit for connecting). */
    static int loss_is_seen(int me)
    {
        const int g = now.formed[me], slot = 2 * me + now.turn[me] % 2;
        for (int i = 0; i < ALL; i++)
            if (i != me && has(now.set[g], i) &&
                !(has(now.finished, i) && now.what[slot] == END && has(now.got[slot], i)) &&
                (!is_alive(i) || !linked(me, i) || now.formed[i] > g ||
                 (now.formed[i] < g && highest(now.tried[i]) > g) ||
                 (now.formed[i] == g && has(now.voting, i))))
                return is_alive(me);
        return 0;
    }

    /* ---- exchanges --------------------------------------------------------------------------- */

    static int part_of(int me)
    {
        const int all = now.set[now.formed[me]];
        const int rank = __builtin_popcount(all & ((1 << me) - 1));
        if (__builtin_popcount(all) == 1)
            return (1 << SHARDS) - 1;
        return rank < SHARDS ? 1 << rank : 0;
    }

    /* Delivers this member's part to member `to`. Returns 0 if the two members are not in the same
     * exchange. */
    static int send_part(int me, int to, int kind, int own)
    {
        const int slot = 2 * to + now.turn[me] % 2;
        if (!is_alive(to) || !linked(me, to) || now.formed[to] != now.formed[me] ||
            has(now.voting, to))
            return 1;
        if (now.got[slot] && (now.what[slot] != kind || (kind == STEP && now.value[slot] != own)))
            return 0;
        if (kind == STEP && (now.shards[slot] & part_of(me)))
            return 0;
        now.what[slot] = kind;
        now.value[slot] = own > now.value[slot] ? own : now.value[slot];
        now.shards[slot] |= kind == STEP ? part_of(me) : 0;
        now.got[slot] |= 1 << me;
        return 1;
    }

    static int is_complete(int me)
    {
        return is_alive(me) && now.got[2 * me + now.turn[me] % 2] == now.set[now.formed[me]];
    }

    /* Returns the result of a complete exchange, and goes to the next exchange. −1: a shard is
     * missing from a sum. */
    static int take_result(int me)
    {
        const int slot = 2 * me + now.turn[me] % 2;
        const int result =
            now.what[slot] == STEP && now.shards[slot] != (1 << SHARDS) - 1 ? -1 : now.value[slot];
        now.got[slot] = now.what[slot] = now.value[slot] = now.shards[slot] = 0;
        now.turn[me] ^= 1;
        return result;
    }
}


#define IS_ALIVE(i) (alive & BIT(i))
#define EVERYBODY (BIT(ALL) - 1)
#define HAS_TO_TELL (formed[me] > 0 && by[formed[me]] == me && told[formed[me]] != EVERYBODY)

/* ---- processes ------------------------------------------------------------------------------- */

#define SEND(does)                                                                                 \
    if                                                                                             \
    :: does ->                                                                                     \
        c_code { now.agrees = send_part(Phost->me, Phost->to, Phost->kind, Phost->own); };         \
        assert(agrees)                                                                             \
    :: else                                                                                        \
    fi

/* An exchange of kind `k` with this member's value `v`. Sets `ok` if it is complete on this member,
 * and `result` to the largest value that was sent. */
inline exchange(k, v)
{
    atomic { kind = k; own = v; to = 0; result = 0; ok = true }
    do
    :: atomic {
           IS_ALIVE(me) && to < ALL ->
           do /* no message to itself, and none to processes outside the group */
           :: to < ALL && (LOSSES == 0 || to == me || !(set[formed[me]] & BIT(to))) ->
               SEND(to == me || (set[formed[me]] & BIT(to)));
               to++
           :: else -> break
           od;
           if
           :: to < ALL ->
               SEND(true);
               to++
           :: else
           fi
       }
    :: atomic { to < ALL && c_expr { loss_is_seen (Phost->me) } ->
           ok = false; kind = 0; own = 0; to = 0; break }
    :: atomic { IS_ALIVE(me) && to == ALL && c_expr { is_complete (Phost->me) } ->
           c_code { Phost->result = take_result(Phost->me); };
           assert(result >= 0); /* no shard is missing */
           kind = 0; own = 0; to = 0; break }
    :: atomic { to == ALL && c_expr { loss_is_seen (Phost->me) } ->
           ok = false; kind = 0; own = 0; to = 0; break }
    :: atomic { !IS_ALIVE(me) -> goto gone }
    od
}

#define ALIVE_AND_VOTING (IS_ALIVE(me) && (voting & BIT(me)))

/* Votes until this member is connected to all members of a new group. Goes to `no_part` if this
 * member can be in no group. `of_newcomer`: the vote is about the newcomer. */
inline vote(of_newcomer)
{
    atomic {
        if
        :: !IS_ALIVE(me) -> goto gone
        :: else
        fi;
        voting = voting | BIT(me);
        if
        :: of_newcomer -> knows = knows | BIT(me)
        :: else -> knows = knows & ~BIT(me)
        fi
    }
    do
    :: atomic { c_expr { acceptable (Phost->me) } ->
           c_code {
               const int g = acceptable(Phost->me);
               now.accepted[g] |= 1 << Phost->me;
               now.tried[Phost->me] |= 1 << g;
           } }
    :: atomic { c_expr { may_propose (Phost->me) } ->
           assert(ballots < GROUPS);
           c_code { propose(Phost->me); } }
    :: atomic { c_expr { agreed (Phost->me) } -> c_code { form(Phost->me, agreed(Phost->me)); } }
    :: atomic { IS_ALIVE(me) && HAS_TO_TELL -> /* tells the members one after another */
           told[formed[me]] = told[formed[me]] | (told[formed[me]] + 1) }
    :: atomic { c_expr { heard (Phost->me) } -> c_code { form(Phost->me, heard(Phost->me)); } }
    :: atomic { c_expr { is_connected (Phost->me) } ->
           assert(!c_expr { two_at_work () });
           break }
    :: atomic { !(voting & BIT(me)) && !HAS_TO_TELL && c_expr { loss_is_seen (Phost->me) } ->
#ifdef BUG_NOT_REPEATED
           if
           :: fresh[formed[me]] && me != NEW -> goto no_part
           :: else
           fi;
#endif
           voting = voting | BIT(me) }
    :: atomic { c_expr { is_hopeless (Phost->me) } -> goto no_part }
    :: atomic { ALIVE_AND_VOTING && (left_out & BIT(me)) -> goto no_part }
    :: atomic { !IS_ALIVE(me) -> goto gone }
    od
}

/* Progress of a member: number of steps, then number of ends of epochs that it has completed. */
#define DONE (steps[me] * 8 + rounds[me])

inline adopt()
{
    atomic {
        assert(steps[me] + 1 >= result / 8); /* members differ by at most one step */
        steps[me] = (result / 8 > steps[me] -> result / 8 : steps[me]);
#ifndef BUG_NO_ROUNDS
        rounds[me] = (result % 8 > rounds[me] -> result % 8 : rounds[me]);
#endif
        result = 0
    }
}

#ifdef BUG_FRESH_TO_ME
#define IS_FRESH ((set[formed[me]] & BIT(NEW)) && !(set[published] & BIT(NEW)))
#else
#define IS_FRESH fresh[formed[me]]
#endif

proctype host(byte me)
{
    byte kind, own, to, published;
    short result;
    bool ok;
    if
    :: me == NEW -> goto comes
    :: else
    fi;

train:
    do
    :: atomic { steps[me] == EPOCHS -> break }
    :: steps[me] < EPOCHS && steps[me] == rounds[me] ->
        exchange(STEP, steps[me]);
        if
        :: atomic { ok -> steps[me]++; ok = false; result = 0 }
        :: !ok -> vote(false); goto regrouped
        fi
    :: steps[me] < EPOCHS && steps[me] == rounds[me] + 1 -> /* the end of an epoch */
        exchange(ARRIVALS, (called == me && !invited -> 1 : 0));
        if
        :: atomic { ok && !result -> rounds[me]++; ok = false }
        :: !ok -> vote(false); goto regrouped
        :: ok && result ->
            exchange(HEADS, 0);
            atomic {
                ok = false;
                if
                :: IS_ALIVE(me) && called == me -> invited = true; invitation = formed[me]
                :: else
                fi
            }
            vote(true);
            goto regrouped
        fi
    od;
    exchange(END, 0);
    if
    :: atomic {
           ok ->
           assert(steps[me] == EPOCHS);
           finished = finished | BIT(me);
           alive = alive & ~BIT(me);
           goto gone
       }
    :: !ok -> vote(false)
    fi;

regrouped:
    atomic { ok = false; result = 0 }
    if
    :: atomic { IS_FRESH -> published = formed[me] }
#ifndef BUG_WORKS_AT_ONCE
        exchange(STATE, DONE);
        if
        :: ok -> exchange(BEGIN, 0)
        :: else
        fi;
#else
        ok = true;
#endif
        if
        :: ok -> goto train
        :: else -> vote(false); goto regrouped
        fi
    :: atomic { !IS_FRESH -> published = formed[me] }
        exchange(DEEDS, DONE);
        if
        :: ok -> adopt(); goto train
        :: else -> vote(false); goto regrouped
        fi
    fi;

comes:
    do
    :: atomic { called == NOBODY && IS_ALIVE(0) && !(cut[me] & BIT(0)) -> called = 0 }
    :: atomic { called == NOBODY && IS_ALIVE(1) && !(cut[me] & BIT(1)) -> called = 1 }
#if OLD > 2
    :: atomic { called == NOBODY && IS_ALIVE(2) && !(cut[me] & BIT(2)) -> called = 2 }
#endif
    :: atomic { called != NOBODY && !invited && !(IS_ALIVE(called) && !(cut[me] & BIT(called))) -> called = NOBODY }
    :: atomic { invited && IS_ALIVE(me) -> formed[me] = invitation; break }
    :: atomic { (alive & ~BIT(NEW)) == 0 -> goto leaves }
    :: atomic { !IS_ALIVE(me) -> goto gone }
    od;
    vote(true);
    if
    :: atomic { fresh[formed[me]] -> published = formed[me] }
    :: atomic { !fresh[formed[me]] -> goto leaves }
    fi;
#ifndef BUG_WORKS_AT_ONCE
    exchange(STATE, 0);
    if
    :: atomic { ok -> steps[me] = result / 8; rounds[me] = result % 8; ok = false; result = 0 }
        exchange(BEGIN, 0)
    :: else
    fi;
#else
    ok = true;
#endif
    if
    :: ok -> goto train
    :: else
    fi;
#ifndef BUG_LEAVES_UNHEARD
    vote(false);
#endif
leaves:
    atomic { voting = voting & ~BIT(me); alive = alive & ~BIT(me); goto gone }

no_part:
    atomic {
        voting = voting & ~BIT(me);
        alive = alive & ~BIT(me);
        stopped = stopped | BIT(me);
        assert(me == NEW || LOSSES > 0 || SLOW > 0 || finished ||
               (cut[me] & ~BIT(NEW)))
    }
gone:
    atomic {
        ended++;
        /* The run survives one loss. A run of two hosts survives it if the first host is not
         * lost. */
        assert(ended < ALL || finished || (OLD == 2 && (lost & 1)) || SLOW > 0 || LOSSES > 1 ||
               (CUTS > 0 && (LOSSES > 0 || ((cut[0] | cut[1]) & ~BIT(NEW)))))
    }
}

inline select_one()
{
    if
    :: IS_ALIVE(0) -> i = 0
    :: IS_ALIVE(1) -> i = 1
    :: IS_ALIVE(2) -> i = 2
#if OLD > 2
    :: IS_ALIVE(3) -> i = 3
#endif
    fi
}

#define CUT(a, b) cuts--; cut[a] = cut[a] | BIT(b); cut[b] = cut[b] | BIT(a)

/* Decides when processes die, which links are cut, and which members the others do not wait for. */
proctype fate()
{
    byte i;
end:
    do
    :: atomic {
           losses > 0 && alive ->
           select_one();
           losses--;
           lost = lost | BIT(i);
           alive = alive & ~BIT(i);
           i = 0
       }
    :: atomic {
           slow > 0 && alive ->
           select_one();
           slow--;
           left_out = left_out | BIT(i);
           i = 0
       }
#if CUTS > 0
    :: atomic { cuts > 0 && (alive & BIT(NEW)) -> CUT(0, NEW) }
    :: atomic { cuts > 0 && (alive & BIT(NEW)) -> CUT(1, NEW) }
#if OLD > 2
    :: atomic { cuts > 0 && (alive & BIT(NEW)) -> CUT(2, NEW) }
#else
    :: atomic { cuts > 0 && alive -> CUT(0, 1) }
#endif
#endif
    od
}

init
{
    atomic {
        set[0] = BIT(OLD) - 1;
        steps[0] = 1; /* The first epoch is done. A newcomer can have called. */
        steps[1] = 1;
#if OLD > 2
        steps[2] = 1;
#endif
        alive = EVERYBODY;
        run host(0);
        run host(1);
        run host(2);
#if OLD > 2
        run host(3);
#endif
        run fate()
    }
}
