/* The barrier whose every round ends the same way for all (src/sync/barrier.c): one word holds the
 * round, how many ranks have arrived, and the abort bit; the last arrival, an abort, or the first
 * rank whose deadline passes decides, each with one exchange of that word.
 *
 * Checked: in each round all ranks return LS_OK or none does, with aborts and (with -DDEADLINES)
 * deadlines and missing ranks at any time; without them, nobody waits for ever, lost wake-ups
 * included. Loops of compare-and-exchange are one step here: an exchange that fails changes
 * nothing.
 *
 * Sequential consistency only: see park.pml.
 *
 * Planted bugs: BUG_ABORT_FIRST, BUG_TWO_STEPS, BUG_LATE_ARRIVAL, BUG_LOST_ARRIVAL,
 * BUG_RELEASE_WITHOUT_WAKE, BUG_ABORT_WITHOUT_WAKE, BUG_NO_SECOND_LOOK.
 */
#ifndef RANKS
#define RANKS 3
#endif
#define SLEEPERS RANKS
#include "park.pml"

#define ROUNDS 2

/* The word. */
byte round;
byte arrived;
bool aborted;
park_word park;

/* What an observer knows: how each round ended for whom. */
bool passed[ROUNDS];
bool refused[ROUNDS];

#define UNDECIDED (round == mine && !aborted)

/* In C the compare-and-exchange of arrive(). */
inline arrive()
{
#ifdef BUG_LOST_ARRIVAL
    count = arrived; /* a load and a store in place of the exchange */
#endif
    d_step {
#ifdef BUG_LATE_ARRIVAL
        stopped = false;
#else
        stopped = aborted;
#endif
        last = false;
        if
        :: stopped
        :: else ->
#ifdef BUG_LOST_ARRIVAL
            arrived = count;
            count = 0;
#endif
            arrived++;
            last = (arrived == RANKS);
            if
            :: last -> arrived = 0; round++
            :: else
            fi
        fi
    }
}

/* What the rank that waited makes of the word. */
inline look()
{
    d_step {
#ifdef BUG_ABORT_FIRST
        ok = !aborted && round != mine;
        decided = aborted || round != mine;
#else
        ok = (round != mine);
        decided = !UNDECIDED;
#endif
    }
}

inline give_up()
{
#ifdef BUG_TWO_STEPS
    look();
    if
    :: decided
    :: else -> aborted = true; decided = true; ok = false
    fi;
#else
    d_step {
        ok = (round != mine);
        decided = true;
        if
        :: UNDECIDED -> aborted = true
        :: else
        fi
    }
#endif
    park_wake(park, seen)
}

active [RANKS] proctype rank()
{
    byte mine, key, seen;
#ifdef BUG_LOST_ARRIVAL
    byte count;
#endif
    bool stopped, last, ok, decided, late;
    do
    :: mine < ROUNDS ->
#ifdef DEADLINES
        if
        :: true -> break /* it never comes */
        :: true
        fi;
#endif
        arrive();
        d_step {
            ok = last;
            decided = stopped || last;
            stopped = false;
        }
        if
        :: last ->
#ifndef BUG_RELEASE_WITHOUT_WAKE
            park_wake(park, seen)
#else
            skip
#endif
        :: else
        fi;
        do
        :: decided -> break
        :: else ->
            park_prepare(park, key);
#ifndef BUG_NO_SECOND_LOOK
            look();
#endif
            if
            :: decided
            :: else ->
                park_sleep(park, key, _pid, late);
                look();
                if
                :: late && !decided -> give_up()
                :: else
                fi
            fi;
            late = false;
            key = 0
        od;
        if
        :: ok ->
            assert(!refused[mine]);
            passed[mine] = true;
            mine++
        :: else ->
            assert(!passed[mine]);
            refused[mine] = true;
            break
        fi;
        ok = false;
        decided = false;
        last = false
    :: else -> break
    od
}

#ifndef NO_ABORT
active proctype aborter()
{
    byte seen;
    if
    :: true ->
        aborted = true;
#ifndef BUG_ABORT_WITHOUT_WAKE
        park_wake(park, seen)
#endif
    :: true
    fi
}
#endif
