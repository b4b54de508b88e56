#!/bin/sh
# SPDX-License-Identifier: MIT
# Shows that ThreadSanitizer detects each weakened memory order of these structures: the ring, the
# barrier, the pool's count of finished jobs, a pool's worker that several threads serve one after
# another, the flag for readers of a merging group, a team, a deal and a progress thread. The stress
# test passes with the memory orders as they are, and reports a race with each order weakened.
#
#     weakened_orders.sh COMPILER PROJECT_ROOT WORK_FOLDER
set -eu
cc=$1 root=$2 work=$3
mkdir -p "$work"
rm -f "$work"/*.o # of another compiler, perhaps
failures=0
runner=

sources="tests/sync/order_stress.c"
for file in base/clock base/digest base/error base/host base/sized base/split base/stack base/utf8 sync/park \
    sync/ring sync/barrier sync/deal sync/heartbeat \
    pool/start pool/pool pool/worker pool/stall pool/state pool/spin pool/guard pool/topology \
    merge/tree merge/group device/plugin cluster/admit cluster/cluster cluster/progress \
    cluster/names cluster/sum cluster/watch comm/comm comm/comm_ordered comm/comm_naive \
    cpu/cpu_team; do
    sources="$sources src/$file.c"
done

compile() {
    "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -g -fsanitize=thread "$@"
}

# object SOURCE [DEFINITION…]: compiles a source file and prints the name of the object file. The name is the
# checksum of the preprocessed text, so forms of the test with the same text share the object file.
object() {
    source=$1
    shift
    (cd "$root" && compile "$@" -D 'LOCKSTEP_PLUGIN_DIR=""' -D 'LOCKSTEP_LIBDIR=""' \
        -D 'LOCKSTEP_PLUGIN_FOLDER=""' -Isrc -Iinclude -E -o "$work/form.i" "$source") || return
    found=$(cksum <"$work/form.i" | tr ' ' -).o
    [ -e "$work/$found" ] || compile -x cpp-output -c -o "$work/$found" "$work/form.i" || return
    echo "$found"
}

# run NAME STRUCTURE [DEFINITION…]: compiles and runs one form of the test: the stress test of STRUCTURE with these
# macro definitions. The output goes to $work/NAME.log
run() {
    name=$1 structure=$2
    shift 2
    rm -f "$work/$name" "$work/$name.log"
    objects=
    for file in $sources; do
        objects="$objects $(object "$file" "$@")" || exit 2
    done
    # $objects is split at blanks on purpose; the names contain no blanks.
    # shellcheck disable=SC2086
    (cd "$work" && compile -o "$name" $objects -pthread) || exit 2
    execute
}

# execute: runs the form that `run` has compiled last
execute() {
    # history_size: the sanitizer reports a race only while it remembers the older access.
    TSAN_OPTIONS="exitcode=66 halt_on_error=1 history_size=7" $runner "$work/$name" "$structure" \
        >"$work/$name.log" 2>&1
}

passes() {
    if run "$@"; then
        echo "ok: $1 passes as it is"
        return
    fi
    # Older sanitizers fail to start if the kernel randomises addresses over a wide range.
    if [ -z "$runner" ] && grep -q 'unexpected memory mapping' "$work/$1.log"; then
        runner="setarch $(uname -m) -R"
        passes "$@"
        return
    fi
    echo "FAILED: $1 as it is"
    cat "$work/$1.log"
    failures=$((failures + 1))
}

# A race is reported only if the two accesses happen close together, so a run without a report is repeated.
is_caught() {
    occasions=8
    status=0
    run "$@" || status=$?
    while [ $status -eq 0 ] && [ $((occasions -= 1)) -gt 0 ]; do
        execute || status=$?
    done
    if [ $status -eq 0 ]; then
        echo "FAILED: nothing was reported for $1 ($3)"
        failures=$((failures + 1))
    elif grep -q 'WARNING: ThreadSanitizer: data race' "$work/$1.log"; then
        echo "ok: a race is reported for $1 ($3)"
    else
        echo "FAILED: $1 ($3) ended without a report of a race"
        cat "$work/$1.log"
        failures=$((failures + 1))
    fi
}

passes ring ring
is_caught ring_tail_release ring -DLS_RING_TAIL_RELEASE=memory_order_relaxed
is_caught ring_tail_acquire ring -DLS_RING_TAIL_ACQUIRE=memory_order_relaxed
is_caught ring_head_release ring -DLS_RING_HEAD_RELEASE=memory_order_relaxed
is_caught ring_head_acquire ring -DLS_RING_HEAD_ACQUIRE=memory_order_relaxed
is_caught ring_close_release ring -DLS_RING_CLOSE_RELEASE=memory_order_relaxed
passes barrier barrier
is_caught barrier_arrive_release barrier -DLS_BARRIER_ARRIVE=memory_order_acquire
is_caught barrier_arrive_acquire barrier -DLS_BARRIER_ARRIVE=memory_order_release
is_caught barrier_arrive_both barrier -DLS_BARRIER_ARRIVE=memory_order_relaxed
is_caught barrier_observe barrier -DLS_BARRIER_OBSERVE=memory_order_relaxed
passes pool pool
is_caught pool_finished_release pool -DLS_POOL_FINISHED_RELEASE=memory_order_relaxed
is_caught pool_finished_acquire pool -DLS_POOL_FINISHED_ACQUIRE=memory_order_relaxed
passes lent lent
is_caught lent_give_release lent -DLS_POOL_GIVE_RELEASE=memory_order_relaxed
is_caught lent_take_acquire lent -DLS_POOL_TAKE_ACQUIRE=memory_order_relaxed
passes group group
is_caught group_reading_release group -DLS_READING_RELEASE=memory_order_relaxed
is_caught group_reading_acquire group -DLS_READING_ACQUIRE=memory_order_relaxed
passes one_total one_total
is_caught one_total_arrive one_total -DLS_BARRIER_ARRIVE=memory_order_relaxed
is_caught one_total_observe one_total -DLS_BARRIER_OBSERVE=memory_order_relaxed
passes pieces pieces
is_caught pieces_arrive pieces -DLS_BARRIER_ARRIVE=memory_order_relaxed
is_caught pieces_observe pieces -DLS_BARRIER_OBSERVE=memory_order_relaxed
is_caught pieces_release pieces -DLS_READING_RELEASE=memory_order_relaxed
is_caught pieces_acquire pieces -DLS_READING_ACQUIRE=memory_order_relaxed
passes deal deal
is_caught deal_claim deal '-DLS_DEAL_CLAIM(word, seen, now)=(atomic_store_explicit(word, now, memory_order_relaxed), 1)'
is_caught deal_arrive deal -DLS_BARRIER_ARRIVE=memory_order_relaxed
spins=-DLS_TEAM_SPINS=20000000
passes team team $spins
is_caught team_publish team -DLS_TEAM_PUBLISH=memory_order_relaxed $spins
is_caught team_claim team -DLS_TEAM_CLAIM=memory_order_relaxed $spins
is_caught team_done team -DLS_TEAM_DONE=memory_order_relaxed $spins
is_caught team_join team -DLS_TEAM_JOIN=memory_order_relaxed $spins
spins=-DLS_PROGRESS_SPINS=20000000
passes progress progress $spins
is_caught progress_done progress -DLS_PROGRESS_DONE=memory_order_relaxed $spins
is_caught progress_seen progress -DLS_PROGRESS_SEEN=memory_order_relaxed $spins
passes brought brought $spins
is_caught progress_ready brought -DLS_PROGRESS_READY=memory_order_relaxed $spins
is_caught progress_takes brought -DLS_PROGRESS_TAKES=memory_order_relaxed $spins
[ "$failures" -eq 0 ]
