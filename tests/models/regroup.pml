/* SPDX-License-Identifier: MIT */
/* The steps of a run, their commit points, and what happens when a worker is lost (src/engine,
 * src/comm).
 *
 * Workers hold contiguous shards of each step's minibatch. In a step each worker computes its
 * shards, publishes their sum, and meets the other workers. Then it adds up what all workers have
 * published, and meets them again: this second meeting is the *commit point*. If the worker is
 * released from it, it applies the sum. If the meeting is aborted, it drops the sum. Then it
 * reports. Up to two steps are in flight: sent to the workers and not yet reported. A meeting is a
 * round of the barrier in barrier.pml; one word decides how it ends.
 *
 * The coordinator counts a step as done if any worker reports that the step was committed. If a
 * report says that the step was not committed, or does not come before the deadline, the
 * coordinator
 *
 * - aborts the *group*, the workers that merge with each other;
 * - collects a report of every step in flight from every worker that is not quarantined;
 * - *quarantines* the workers that stay silent, that is, never uses them again;
 * - makes a new group of the survivors, with new ranks and shards;
 * - repeats the first step that is not done.
 *
 * It never uses a group again, because a quarantined worker can still wake up in its old group.
 *
 * Faults can strike a worker at the calls of may_fault: the worker fails (aborts the group,
 * reports, leaves), or falls silent for ever. A worker can also be slow: then a deadline passes for
 * another worker at a barrier, or for the coordinator, although the slow worker is alive. FAULTS
 * and SLOW are the largest numbers of faults and of such deadlines.
 *
 * Checked (a gradient is modelled as the set of the shards that it contains):
 *   - a survivor applies every step once, in sequence, and each time the sum of all shards, each
 *     counted once (then the weights have the bits of an undisturbed run);
 *   - no step is applied by some workers and dropped by others;
 *   - no process waits for ever. (The state graph has no cycles, so every run comes to an end. An
 *     end in which a process still waits is an invalid end state.)
 *
 * The model assumes sequential consistency (see park.pml).
 *
 * Planted bugs: BUG_COMMIT_PER_WORKER, BUG_REGROUP_EARLY, BUG_OLD_RANKS, BUG_REUSED_GROUP,
 * BUG_DONE_BY_ALL, BUG_LATE_REPORT, BUG_NO_DEADLINE. */
#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef SLOW
#define SLOW 1
#endif
#define SHARDS 4
#define STEPS 2
#define IN_FLIGHT 2
#define ALL ((1 << SHARDS) - 1)
#define GROUPS (1 + FAULTS + SLOW)
#define EVERYBODY ((1 << WORKERS) - 1)

/* ---- shared memory ------------------------------------------------------------------------- */

/* A group: its members, which do not change, and the fields of its barrier's word. */
byte members[GROUPS];
byte rounds[GROUPS];
byte arrived[GROUPS];
bool aborted[GROUPS];

/* Sum that a worker has published, in its own arena, which is the same in every group. */
byte partial[WORKERS];

mtype = { STEP, STOP };
mtype = { COMMITTED, ABORTED, FAILED };
chan inbox[WORKERS] = [IN_FLIGHT] of { mtype, byte, byte };  /* group, step */
chan report[WORKERS] = [IN_FLIGHT] of { mtype, byte, byte }; /* outcome, group, step */

/* ---- for the assertions, and what can still happen ----------------------------------------- */

byte faults = FAULTS;
byte slow = SLOW;
byte silent;             /* workers that have fallen silent for ever, a bit each */
byte quarantined;        /* workers that the coordinator has quarantined, a bit each */
byte applied[WORKERS];   /* number of steps that the worker has applied */

inline count_bits(set, n)
{
    n = ((set) & 1) + ((set) >> 1 & 1) + ((set) >> 2 & 1) + ((set) >> 3 & 1)
}

/* The shards of worker `w` among `set`: the first SHARDS mod n ranks get one more. */
inline shards_of(w, set, mask)
{
    count_bits(set, n);
    count_bits((set) & ((1 << (w)) - 1), r);
    c = SHARDS / n + (r < SHARDS % n -> 1 : 0);
    r = r * (SHARDS / n) + (r < SHARDS % n -> r : SHARDS % n);
    mask = ((1 << c) - 1) << r;
    n = 0;
    r = 0;
    c = 0
}

/* ---- worker -------------------------------------------------------------------------------- */

/* A fault can strike here. */
inline may_fault()
{
    if
    :: atomic {
           faults > 0 ->
           faults--;
           aborted[g] = true;
           report[me]!FAILED(g, k);
           goto gone
       }
    :: atomic {
           faults > 0 ->
           faults--;
           silent = silent | (1 << me);
           goto gone
       }
    :: true
    fi
}

#define LAST_MISSING (arrived[g] + 1 == n)

/* ls_barrier_wait: `ok` says whether the round was released. The deadline passes only if a worker
 * of the group is silent or slow. */
inline meet()
{
    d_step {
        ok = false;
        waiting = false;
        count_bits(members[g], n);
        if
        :: aborted[g]
        :: !aborted[g] && LAST_MISSING ->
            arrived[g] = 0;
            rounds[g]++;
            ok = true
        :: !aborted[g] && !LAST_MISSING ->
            arrived[g]++;
            mine = rounds[g];
            waiting = true
        fi;
        n = 0
    }
    if
    :: waiting ->
        if
#ifdef BUG_COMMIT_PER_WORKER
        :: d_step { aborted[g] -> ok = false; mine = 0; }
        :: d_step { rounds[g] != mine && !aborted[g] -> ok = true; mine = 0; }
#else
        :: d_step { rounds[g] != mine -> ok = true; mine = 0; }
        :: d_step { rounds[g] == mine && aborted[g] -> ok = false; mine = 0; }
#endif
#ifndef BUG_NO_DEADLINE
        :: d_step {
               rounds[g] == mine && !aborted[g] && (silent & members[g]) ->
               aborted[g] = true;
               mine = 0;
           }
        :: d_step {
               rounds[g] == mine && !aborted[g] && slow > 0 ->
               slow--;
               aborted[g] = true;
               mine = 0;
           }
#endif
        fi;
        waiting = false
    :: else
    fi
}

/* Adds up what the members have published. `twice`: a shard came from two members. */
inline add_up()
{
    d_step {
        total = 0;
        twice = false;
        n = 0;
        do
        :: n < WORKERS ->
            if
            :: members[g] & (1 << n) ->
                twice = twice || (total & partial[n]);
                total = total | partial[n]
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0
    }
}

/* Resets variables that are not needed any more, so that Spin has fewer states to distinguish. */
inline forget()
{
    g = 0;
    k = 0;
    total = 0;
    ok = false;
    twice = false
}

active [WORKERS] proctype worker()
{
    byte g, k, total, mine, n, r, c;
    bool ok, waiting, twice;
    byte me = _pid;
end_of_work:
    do
    :: inbox[me]?STEP(g, k) ->
        may_fault();
        d_step {
#ifdef BUG_OLD_RANKS
            shards_of(me, EVERYBODY, partial[me]);
#else
            shards_of(me, members[g], partial[me]);
#endif
        }
        meet();
        if
        :: ok ->
            add_up();
            may_fault();
            meet()
        :: else
        fi;
        if
        :: ok ->
            may_fault(); /* after the commit point */
            atomic {
                assert(applied[me] == k);
                assert(total == ALL && !twice);
                applied[me]++;
                report[me]!COMMITTED(g, k);
                forget()
            }
        :: else ->
            atomic {
                report[me]!ABORTED(g, k);
                forget()
            }
        fi
    :: inbox[me]?STOP(_, _) -> break
    od;
    goto end;
gone:
    forget();
end:
    skip
}

/* ---- coordinator --------------------------------------------------------------------------- */

inline give_up()
{
    alive = alive & ~(1 << w);
    quarantined = quarantined | (1 << w);
    broken = true
}

/* Takes the report of worker `w`, or gives the worker up. */
inline collect()
{
    if
    :: atomic {
           report[w]?outcome, from, which ->
#ifdef BUG_REGROUP_EARLY
           stale = (from != group);
#else
           assert(from == group && which == step);
#endif
           if
           :: stale -> w-- /* the report is about a repeated step: the next report counts */
           :: !stale && outcome == COMMITTED -> committed = true
           :: !stale && outcome == ABORTED -> broken = true; refused = true
           :: !stale && outcome == FAILED -> broken = true; alive = alive & ~(1 << w)
           fi;
           stale = false;
           outcome = 0;
           from = 0;
           which = 0
       }
    :: d_step {
           empty(report[w]) && (silent & (1 << w)) ->
           give_up();
       }
    :: d_step {
           empty(report[w]) && !(silent & (1 << w)) && slow > 0 ->
           slow--;
           give_up();
       }
    fi;
    /* A step of its own, because the group can commit between the report and the abort. */
    if
    :: d_step { broken && !aborted[group] -> aborted[group] = true; }
    :: d_step { !broken || aborted[group] -> skip; }
    fi
}

/* Reads the late report of a worker that was quarantined. */
inline collect_late()
{
    atomic {
        if
        :: nempty(report[w]) ->
            report[w]?outcome, from, which;
            committed = committed || outcome == COMMITTED;
            outcome = 0;
            from = 0;
            which = 0
        :: empty(report[w])
        fi
    }
}

#define AWAITED(w) (alive & (1 << (w)))
#define GIVEN_UP(w) (quarantined & (1 << (w)))

/* Collects the reports of all awaited workers on step `step`. Then the step is done if a worker has
 * committed it. */
inline collect_step()
{
    w = 0;
    do
    :: w < WORKERS && AWAITED(w) ->
        collect();
        w++
#ifdef BUG_LATE_REPORT
    :: w < WORKERS && GIVEN_UP(w) ->
        collect_late();
        w++
    :: d_step { w < WORKERS && !AWAITED(w) && !GIVEN_UP(w) -> w++; }
#else
    :: d_step { w < WORKERS && !AWAITED(w) -> w++; }
#endif
    :: w == WORKERS -> break
    od;
    atomic {
        w = 0;
#ifdef BUG_DONE_BY_ALL
        committed = committed && !broken;
#endif
        assert(!(committed && refused)); /* not applied by some workers and dropped by others */
        if
        :: committed ->
            assert(done == step);
            done++
        :: else
        fi;
        committed = false;
        refused = false
    }
}

/* Makes a new group of the workers that are alive. */
inline regroup()
{
    d_step {
#ifdef BUG_REUSED_GROUP
        arrived[group] = 0;
        aborted[group] = false;
#else
        group++;
#endif
        members[group] = alive;
        broken = false;
        sent = done;
    }
}

/* Does not wait, because inboxes have room for all steps in flight. */
inline send(kind)
{
    atomic {
        w = 0;
        do
        :: w < WORKERS && AWAITED(w) ->
            inbox[w]!kind(group, sent);
            w++
        :: w < WORKERS && !AWAITED(w) -> w++
        :: w == WORKERS -> break
        od;
        w = 0
    }
}

active proctype coordinator()
{
    byte alive = EVERYBODY;
    byte group, sent, done, step, w, from, which;
    mtype outcome;
    bool broken, committed, refused, stale;
    members[0] = alive;
    do
    :: done == STEPS || !alive -> break
    :: done < STEPS && alive && !broken && sent < STEPS && sent - done < IN_FLIGHT ->
        send(STEP);
        sent++
    :: done < STEPS && alive && !broken && (sent == STEPS || sent - done == IN_FLIGHT) ->
        step = done;
        collect_step()
    :: done < STEPS && alive && broken ->
#ifndef BUG_REGROUP_EARLY
        /* First collects the reports of all other steps in flight, from all workers that answer. */
        do
        :: step + 1 < sent && alive ->
            step++;
            collect_step()
        :: else -> break
        od;
#endif
        if
        :: alive && done < STEPS -> regroup()
        :: else
        fi
    od;
    send(STOP);
    atomic {
        do
        :: w < WORKERS ->
            assert(!AWAITED(w) || applied[w] == STEPS);
            w++
        :: else -> break
        od
    }
}
