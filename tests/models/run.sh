#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the models with Spin. Each model must hold in every interleaving of its processes. With
# each of the planted bugs, one at a time, the violation must be detected.
#
#     run.sh [--long] WORK_FOLDER [COMPILER]
#
# --long adds the larger configurations (some minutes). Exit codes: 0, 1 (a model fails, or a bug is
# not detected), 77 (no spin or no compiler).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
long=
if [ "$1" = --long ]; then
    long=true
    shift
fi
work=$1
cc=${2:-cc}
if ! command -v spin >/dev/null || ! command -v "$cc" >/dev/null; then
    echo "skipped: spin or $cc is not installed"
    exit 77
fi
rm -rf -- "$work"
mkdir -p -- "$work"
failures=0
optimise=-O1

# search MODEL [DEFINITION...]: goes through all interleavings and writes Spin's verdict to the file
# $report.
search() {
    model=$1
    shift
    folder=$work/$(echo "$model$*" | tr -c 'A-Za-z0-9\n' _)
    report=$folder/report
    mkdir -p "$folder"
    cp "$here"/*.pml "$folder"
    # The verifier, pan, is a C program that spin writes. It stops at 2 GB of memory.
    (cd "$folder" && spin "$@" -a "$model.pml" >spin.log 2>&1 &&
        "$cc" -w "$optimise" -DSAFETY -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c &&
        ./pan -m200000 >report 2>&1) || {
        echo "FAILED: $model $* cannot be checked"
        cat "$folder/spin.log" "$report"
        exit 1
    }
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$report")
    violation=$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$report")
}

# holds MODEL [DEFINITION...]: the model must hold. Only a complete search proves this.
holds() {
    search "$@"
    if grep -q 'errors: 0$' "$report" &&
        ! grep -Eq 'Search not completed|search depth too small|out of memory' "$report"; then
        echo "ok: $* holds ($states states)"
    else
        echo "FAILED: $* does not hold"
        cat "$report"
        failures=$((failures + 1))
    fi
}

# is_caught MODEL DEFINITION...: the bug must be detected. A bug is found soon, so compiling would
# take longer than running; therefore the compiler does not optimise.
is_caught() {
    optimise=-O0
    search "$@"
    optimise=-O1
    if [ -n "$violation" ]; then
        echo "ok: $* is caught ($violation)"
    else
        echo "FAILED: $* goes unnoticed"
        failures=$((failures + 1))
    fi
    rm -rf "$folder"
}

holds ring
for bug in CLOSE_APART NO_SECOND_LOOK WAKE_FIRST PUBLISH_FIRST FREE_FIRST ONE_TOO_MANY \
    CLOSE_WAKES_ONE; do
    is_caught ring "-DBUG_$bug"
done

holds barrier
holds barrier -DDEADLINES -DRANKS=2
holds barrier -DDEADLINES -DNO_ABORT
for bug in ABORT_FIRST LATE_ARRIVAL LOST_ARRIVAL RELEASE_WITHOUT_WAKE ABORT_WITHOUT_WAKE \
    NO_SECOND_LOOK; do
    is_caught barrier "-DBUG_$bug"
done
is_caught barrier -DDEADLINES -DRANKS=2 -DBUG_TWO_STEPS

holds regroup -DWORKERS=2 -DFAULTS=2 -DSLOW=2
holds regroup -DWORKERS=3 -DFAULTS=2 -DSLOW=0
for bug in COMMIT_PER_WORKER REGROUP_EARLY OLD_RANKS REUSED_GROUP DONE_BY_ALL LATE_REPORT; do
    is_caught regroup -DWORKERS=2 "-DBUG_$bug"
done
is_caught regroup -DBUG_NO_DEADLINE

holds admission
for bug in WORKS_AT_ONCE NO_ROUNDS LEAVES_UNHEARD; do
    is_caught admission "-DBUG_$bug"
done
is_caught admission -DOLD=3 -DBUG_ONE_KNOWS
for bug in COUNTS_NEWCOMER NO_LINKS NEWEST_STAYS NOT_REPEATED; do
    is_caught admission -DLOSSES=0 -DCUTS=1 "-DBUG_$bug"
done

if [ -n "$long" ]; then
    holds admission -DLOSSES=0 -DCUTS=1
    holds admission -DOLD=3 -DLOSSES=0 -DCUTS=1 # 16.8 million states, 1.6 GB
    is_caught admission -DOLD=3 -DBUG_FRESH_TO_ME
    # With three old members their own links are not cut, so COUNTS_NEWCOMER cannot do harm.
    for bug in NO_LINKS NEWEST_STAYS NOT_REPEATED; do
        is_caught admission -DOLD=3 -DLOSSES=0 -DCUTS=1 "-DBUG_$bug"
    done
    holds barrier -DDEADLINES
    holds regroup -DWORKERS=3 -DFAULTS=1 -DSLOW=1
    holds regroup -DWORKERS=3 -DFAULTS=0 -DSLOW=2
    holds regroup -DWORKERS=4 -DFAULTS=1 -DSLOW=0
fi
[ "$failures" -eq 0 ]
