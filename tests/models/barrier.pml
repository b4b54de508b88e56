/* SPDX-License-Identifier: MIT */
/* The barrier (src/sync/barrier.c). *Ranks* are the threads that meet at it. Each round ends in the
 * same way for all ranks. One word contains the number of the round, the number of ranks that have
 * arrived, and the abort bit. How a round ends is decided by one exchange of that word, which is
 * made by the first of these:
 *
 * - the rank that arrives last;
 * - a thread that aborts;
 * - the first rank whose deadline passes.
 *
 * Checked: in each round all ranks return LS_OK or none does. Aborts can happen at any time; with
 * -DDEADLINES deadlines can pass and ranks can be missing at any time. Without -DDEADLINES no rank
 * waits for ever, so no wake-up is lost. A loop of compare-and-exchange is one step in this model,
 * because an exchange that fails changes nothing.
 *
 * The model assumes sequential consistency (see park.pml).
 *
 * Planted bugs: BUG_ABORT_FIRST, BUG_TWO_STEPS, BUG_LATE_ARRIVAL, BUG_LOST_ARRIVAL,
 * BUG_RELEASE_WITHOUT_WAKE, BUG_ABORT_WITHOUT_WAKE, BUG_NO_SECOND_LOOK. */
#ifndef RANKS
#define RANKS 3
#endif
#define SLEEPERS RANKS
#include "park.pml"

#define ROUNDS 2

/* The fields of the word. */
byte round;
byte arrived;
bool aborted;
park_word park;

/* For the assertions: a rank has passed round i; a rank was refused in round i. */
bool passed[ROUNDS];
bool refused[ROUNDS];

#define UNDECIDED (round == mine && !aborted)

/* The compare-and-exchange of the C function arrive(). */
inline arrive()
{
#ifdef BUG_LOST_ARRIVAL
    count = arrived; /* the bug: a load and a store instead of the exchange */
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

/* A rank that has waited reads the word: sets `decided` if the round has ended, and `ok` if it has
 * ended with success. */
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
        :: true -> break /* this rank never arrives */
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
