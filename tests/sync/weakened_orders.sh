#!/bin/sh
# Shows that ThreadSanitizer can see each memory order of the ring and the barrier: the stress
# passes with the orders as they are, and is reported with each of them weakened.
#
#     weakened_orders.sh COMPILER PROJECT_ROOT WORK_FOLDER
set -eu
cc=$1 root=$2 work=$3
mkdir -p "$work"
failures=0
runner=

# run NAME STRUCTURE [DEFINITION…]: compiles and runs one form; its output goes to $work/NAME.log
run() {
    name=$1 structure=$2
    shift 2
    rm -f "$work/$name" "$work/$name.log"
    "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -O1 -g -fsanitize=thread "$@" \
        -I"$root/src" -I"$root/include" -o "$work/$name" "$root/tests/sync/order_stress.c" \
        "$root/src/sync/ring.c" "$root/src/sync/barrier.c" "$root/src/sync/park.c" \
        "$root/src/base/error.c" "$root/src/base/host.c" -pthread || exit 2
    # The sanitizer reports a race only while it remembers the older access: a long memory.
    TSAN_OPTIONS="exitcode=66 halt_on_error=1 history_size=7" $runner "$work/$name" "$structure" \
        >"$work/$name.log" 2>&1
}

passes() {
    if run "$@"; then
        echo "ok: $1 passes as it is"
        return
    fi
    # Older sanitizers cannot map their shadow where the kernel randomises addresses widely.
    if [ -z "$runner" ] && grep -q 'unexpected memory mapping' "$work/$1.log"; then
        runner="setarch $(uname -m) -R"
        passes "$@"
        return
    fi
    echo "FAILED: $1 as it is"
    cat "$work/$1.log"
    failures=$((failures + 1))
}

is_caught() {
    if run "$@"; then
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
passes barrier barrier
is_caught barrier_arrive_release barrier -DLS_BARRIER_ARRIVE=memory_order_acquire
is_caught barrier_arrive_acquire barrier -DLS_BARRIER_ARRIVE=memory_order_release
is_caught barrier_arrive_both barrier -DLS_BARRIER_ARRIVE=memory_order_relaxed
is_caught barrier_observe barrier -DLS_BARRIER_OBSERVE=memory_order_relaxed
[ "$failures" -eq 0 ]
