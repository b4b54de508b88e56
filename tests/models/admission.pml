/* The admission of a host to a run (docs/faults.md, src/train/admit.c), with one loss.
 *
 * Members of a group work in exchanges: each sends its part to each other member, one after the
 * other, and an exchange is complete on a member when the parts of all have arrived there. A member
 * that dies in between has sent its part to some and not to others, so an exchange may be complete
 * on one member and fail on another. An epoch is one step here, the sum over SHARDS shards. At its
 * end the members exchange whether a newcomer waits (ARRIVALS). If so, they announce that they all
 * know (HEADS) and vote, with the newcomer among them.
 *
 * The vote is that of src/tcp/vote.h, with the rules of the quorum, but what a member says of its
 * state is known to the others at once. The lowest member proposes, all that are named accept, then
 * the proposer forms the group and tells the others one after the other. A ballot says which member
 * is new in its group. In a group with a new member the state is sent (STATE) and the start is
 * agreed (BEGIN); in any other group the members compare what they have done (DEEDS), and those
 * that lack something adopt it from the most advanced one.
 *
 * LOSSES processes die, at any time from the end of the first epoch on: any member, or the newcomer.
 * SLOW members are left out of a vote although they are alive. The newcomer may always come too
 * late. There are no time limits and no connections in the model: no voter suspects a proposer that
 * is slow (suspect_silent in src/tcp/regroup.c; its test is in tests/cluster/test_tcp.c).
 *
 * Checked:
 *   - members that exchange something exchange the same thing, about the same step;
 *   - each step is the sum of every shard, each once, and is applied once, in order;
 *   - a newcomer that takes part in a step has the state of the run;
 *   - a run that has lost one host goes on, unless the rule of the quorum forbids it, and all that
 *     end it have done all steps;
 *   - nobody waits for ever: an end in which a process still waits is an invalid end state.
 *
 * Planted bugs: BUG_WORKS_AT_ONCE (a newcomer begins without the state), BUG_ONE_KNOWS (a proposer
 * includes a newcomer that another voter does not know), BUG_FRESH_TO_ME (a member calls a newcomer
 * new if it is new to it, whatever the ballot says), BUG_NO_ROUNDS (the end of an epoch that others
 * have left behind is not adopted), BUG_LEAVES_UNHEARD (a newcomer leaves before it has voted, so
 * that two hosts are lost at once).
 */
#ifndef OLD
#define OLD 2 /* members at the start; one more comes */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef SLOW
#define SLOW 0
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

/* What is exchanged. */
#define STEP 1
#define ARRIVALS 2
#define HEADS 3
#define STATE 4
#define BEGIN 5
#define DEEDS 6
#define END 7

/* ---- ballots: what a proposal says does not change ------------------------------------------- */

byte set[GROUPS];   /* members of the group */
byte basis[GROUPS]; /* group that it follows */
bool fresh[GROUPS]; /* the newcomer is new in it */
byte by[GROUPS];    /* its proposer */
byte accepted[GROUPS];
byte told[GROUPS];  /* members to which the proposer has said that the group is formed */
byte ballots = 1;

/* ---- members --------------------------------------------------------------------------------- */

byte alive;          /* a bit each */
byte voting;         /* members that take part in a vote */
byte knows;          /* voters that know of the newcomer from the exchange of arrivals */
byte formed[ALL];    /* the last group that the member knows to be formed */
byte tried[ALL];     /* groups that it has accepted after that, a bit each */
byte steps[ALL];     /* steps that it has applied */
byte rounds[ALL];    /* ends of epochs that it has left behind */

/* The exchange in which a member is, and the next one, of which parts may have come already. */
byte turn[ALL];
byte got[ALL * 2];   /* senders */
byte what[ALL * 2];
byte value[ALL * 2]; /* the largest one that was sent */
byte shards[ALL * 2];

/* ---- the newcomer ---------------------------------------------------------------------------- */

byte called = NOBODY; /* the member at which the newcomer waits */
bool invited;        /* that member has said what the newcomer needs for the vote */
byte invitation;     /* the group that is followed */

/* ---- what an observer knows ------------------------------------------------------------------ */

byte losses = LOSSES;
byte slow = SLOW;
byte lost;           /* members that died */
byte left_out;
byte finished, stopped; /* members that ended with all steps, and those that may not go on */
byte ended;
bool agrees;

/* ---- rules ----------------------------------------------------------------------------------- */

/* The rules of tcp/vote.c, as C, because they are conditions of the state alone. */
c_code {
    static int has(int s, int i) { return s >> i & 1; }
    static int lowest(int s) { return __builtin_ctz(s | 1 << 30); }
    static int highest(int s) { return s ? 31 - __builtin_clz(s) : 0; }
    static int is_alive(int i) { return has(now.alive, i); }
    static int here(void) { return now.voting & now.alive; }

    static int is_quorum(int part, int whole)
    {
        const int twice = 2 * __builtin_popcount(part & whole), all = __builtin_popcount(whole);
        return twice > all || (twice == all && has(part, lowest(whole)));
    }

    /* The last group that a voter knows to be formed. */
    static int last_group(void)
    {
        int last = 0;
        for (int i = 0; i < ALL; i++)
            if (has(here(), i) && now.formed[i] > last)
                last = now.formed[i];
        return last;
    }

    /* Members of the last group that are here, and the newcomer if every voter knows of it. */
    static int left_of(int me)
    {
        const int last = last_group();
        int all_know = (here() & ~now.knows) == 0;
#ifdef BUG_ONE_KNOWS
        all_know = has(now.knows, me);
#endif
        return here() & (now.set[last] | (all_know && now.formed[NEW] == last ? 1 << NEW : 0));
    }

    /* All of the last group are here, dead, or left out. */
    static int is_settled(void)
    {
        return (now.set[last_group()] & now.alive & ~now.voting & ~now.left_out) == 0;
    }

    /* Whether this member may be in a group that follows the group `follows`. */
    static int allows(int me, int who, int follows)
    {
        int ok = has(who, me) && follows >= now.formed[me];
        for (int t = 1; t < GROUPS; t++)
            ok = ok && (!has(now.tried[me], t) || t <= follows || is_quorum(who, now.set[t]));
        return ok;
    }

    /* Its own last proposal is in progress: nobody who is to accept it has gone. */
    static int is_proposing(int me)
    {
        const int t = highest(now.tried[me]);
        return t && now.by[t] == me && (now.set[t] & ~here()) == 0;
    }

    static int may_propose(int me)
    {
        const int left = left_of(me), last = last_group();
        return is_alive(me) && has(now.voting, me) && is_settled() && !is_proposing(me) &&
               has(left, me) && lowest(left) == me && is_quorum(left, now.set[last]) &&
               allows(me, left, last);
    }

    static void propose(int me)
    {
        const int g = now.ballots++, last = last_group(), left = left_of(me);
        now.set[g] = left;
        now.basis[g] = last;
        now.fresh[g] = has(left, NEW) && !has(now.set[last], NEW);
        now.by[g] = me;
        now.accepted[g] = 1 << me;
        now.tried[me] |= 1 << g;
    }

    /* The newest proposal, if this member has to answer it and accepts it; else 0. */
    static int acceptable(int me)
    {
        const int g = now.ballots - 1;
        const int mine = now.set[now.formed[me]] | (has(now.knows, me) ? 1 << NEW : 0);
        return g > 0 && is_alive(me) && has(now.voting, me) && has(now.set[g], me) &&
               !has(now.accepted[g], me) && g > highest(now.tried[me]) && now.by[g] != me &&
               has(here(), now.by[g]) && highest(now.tried[now.by[g]]) == g &&
               (now.set[g] & ~mine) == 0 && allows(me, now.set[g], now.basis[g]) ? g : 0;
    }

    /* Its own proposal, if all have accepted it; else 0. */
    static int agreed(int me)
    {
        const int t = highest(now.tried[me]);
        return is_alive(me) && has(now.voting, me) && t && now.by[t] == me &&
               now.accepted[t] == now.set[t] ? t : 0;
    }

    /* Another one's proposal, if its proposer has said that it is formed; else 0. */
    static int heard(int me)
    {
        const int t = highest(now.tried[me]);
        return is_alive(me) && has(now.voting, me) && t && now.by[t] != me &&
               has(now.told[t], me) ? t : 0;
    }

    /* This member can be in no group any more. The newcomer has no part in those before its own. */
    static int is_hopeless(int me)
    {
        const int last = last_group(), left = left_of(me);
        if (!is_alive(me) || !has(now.voting, me) || heard(me) || agreed(me))
            return 0;
        if (!has(now.set[last], me) && !(me == NEW && last == now.invitation))
            return 1;
        return is_settled() &&
               !(is_quorum(left, now.set[last]) && allows(me, left | 1 << me, last));
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
        int all = is_alive(me) && !has(now.voting, me);
        for (int i = 0; i < ALL; i++)
            if (has(now.set[now.formed[me]], i))
                all = all && is_alive(i) && now.formed[i] == now.formed[me];
        return all;
    }

    /* A member of this group can be seen to work in it no longer. */
    static int loss_is_seen(int me)
    {
        const int g = now.formed[me];
        for (int i = 0; i < ALL; i++)
            if (i != me && has(now.set[g], i) &&
                !(has(now.finished, i) && has(now.got[2 * me + now.turn[me] % 2], i)) &&
                (!is_alive(i) || now.formed[i] > g || (now.formed[i] == g && has(now.voting, i))))
                return is_alive(me);
        return 0;
    }

    /* ---- exchanges: a part arrives at member `to` -------------------------------------------- */

    static int part_of(int me)
    {
        const int all = now.set[now.formed[me]];
        const int rank = __builtin_popcount(all & ((1 << me) - 1));
        if (__builtin_popcount(all) == 1)
            return (1 << SHARDS) - 1;
        return rank < SHARDS ? 1 << rank : 0;
    }

    /* Returns false if the two do not do the same. */
    static int send_part(int me, int to, int kind, int own)
    {
        const int slot = 2 * to + now.turn[me] % 2;
        if (!is_alive(to) || now.formed[to] != now.formed[me] || has(now.voting, to))
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

    /* Takes the result of a complete exchange; −1: a shard is missing from a sum. */
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

/* An exchange: `ok` if it is complete here; `result` is the largest value that was sent. */
inline exchange(k, v)
{
    atomic { kind = k; own = v; to = 0; result = 0; ok = true }
    do
    :: atomic {
           IS_ALIVE(me) && to < ALL ->
           do /* its own part costs no message, and neither does who is not in the group */
           :: to < ALL && (to == me || !(set[formed[me]] & BIT(to))) ->
               SEND(to == me);
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

/* Votes until this member is connected in a new group. Goes to `no_part` if it can be in none. */
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
    :: atomic { IS_ALIVE(me) && HAS_TO_TELL -> /* it tells one after the other */
           told[formed[me]] = told[formed[me]] | (told[formed[me]] + 1) }
    :: atomic { c_expr { heard (Phost->me) } -> c_code { form(Phost->me, heard(Phost->me)); } }
    :: atomic { c_expr { is_connected (Phost->me) } -> break }
    :: atomic { !(voting & BIT(me)) && !HAS_TO_TELL && c_expr { loss_is_seen (Phost->me) } ->
           voting = voting | BIT(me) }
    :: atomic { c_expr { is_hopeless (Phost->me) } -> goto no_part }
    :: atomic { ALIVE_AND_VOTING && (left_out & BIT(me)) -> goto no_part }
    :: atomic { !IS_ALIVE(me) -> goto gone }
    od
}

/* Progress of a member: steps, then ends of epochs that it has left behind. */
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
    :: atomic { called == NOBODY && IS_ALIVE(0) -> called = 0 }
    :: atomic { called == NOBODY && IS_ALIVE(1) -> called = 1 }
#if OLD > 2
    :: atomic { called == NOBODY && IS_ALIVE(2) -> called = 2 }
#endif
    :: atomic { called != NOBODY && !invited && !IS_ALIVE(called) -> called = NOBODY }
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
        stopped = stopped | BIT(me)
    }
gone:
    atomic {
        ended++;
        /* One loss is survived, by two hosts if it is not the first that is lost. */
        assert(ended < ALL || finished || (OLD == 2 && (lost & 1)) || SLOW > 0 || LOSSES > 1)
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

/* Losses, and members that the others do not wait for. */
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
    od
}

init
{
    atomic {
        set[0] = BIT(OLD) - 1;
        steps[0] = 1; /* the first epoch is done: a newcomer may have called */
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
