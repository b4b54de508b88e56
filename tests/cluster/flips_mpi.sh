#!/bin/sh
# SPDX-License-Identifier: MIT
# flips_mpi.sh TRAINER MPIRUN [--long]: two processes, started by mpirun, train, and a bit flips in the
# memory of one of them. No run may end with status 0 and other weights, or save the changed state, and
# the saved run, resumed in one process, must end with the weights of an undisturbed run, or refuse.
# The short form tries a bit of the weights, one of the optimizer's state and one of the running
# statistics; --long tries the lowest, the middle and the sign bit of each, on both processes, after
# an early and a late step. Exits with 1 if a check fails.
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trainer=$1
mpirun=$2
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT INT TERM
cd "$work"
cat >c.json <<TEXT
{"data": {"name": "synthetic", "limit": 256}, "batch_size": 64, "shards": 4, "epochs": 2, "seed": 3, "run_dir": "run",
 "checkpoint": {"every_steps": 2}, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "devices": "cpu:1",
 "model": {"layers": [{"type": "avg_pool", "kernel": 2}, {"type": "conv2d", "out": 4, "kernel": 5, "stride": 3},
  {"type": "batch_norm"}, {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "out": 10}]}}
TEXT

# hash_of: prints the hash of the weights with which the run has ended; nothing if it has not.
hash_of() {
    sed -n 's/.*"type":"run_end".*"status":"finished".*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' run/metrics.jsonl |
        tail -n 1
}

fail() {
    echo "FAILED: $*"
    cat out
    exit 1
}

# train_pair PROCESS FAULT: trains in two processes; the fault is in process PROCESS. The exit status is
# mpirun's.
train_pair() {
    rm -rf run
    set -- "$1" --inject "$2"
    if [ "$1" = 0 ]; then
        first=$2\ $3 second=
    else
        first='' second=$2\ $3
    fi
    # shellcheck disable=SC2086 # one word is the option, the other its value
    "$mpirun" --bind-to none --oversubscribe -n 1 "$trainer" c.json --quiet $first : \
        -n 1 "$trainer" c.json --quiet $second >out 2>&1
}

"$trainer" c.json --quiet >out 2>&1 || fail "the undisturbed run in one process"
expected=$(hash_of)
[ -n "$expected" ] || fail "the undisturbed run has no end"
train_pair 0 worker=0,step=1000,kind=corrupt || fail "the undisturbed run in two processes"
[ "$(hash_of)" = "$expected" ] || fail "two processes train other weights than one"
cases=0

# flip PROCESS STEP PART BIT
flip() {
    fault=worker=0,step=$2,kind=corrupt,part=$3,bit=$4
    if train_pair "$1" "$fault"; then
        fail "process $1, $fault: status 0"
    fi
    [ -z "$(hash_of)" ] || fail "process $1, $fault: the run has finished"
    [ ! -e run/weights.safetensors ] || fail "process $1, $fault: weights were saved"
    if "$trainer" --resume run --quiet >out 2>&1; then
        [ "$(hash_of)" = "$expected" ] || fail "process $1, $fault: the resumed run has other weights"
    else
        grep -q 'has no checkpoint' out || fail "process $1, $fault: the run cannot be resumed"
    fi
    cases=$((cases + 1))
}

if [ "${3-}" = --long ]; then
    for process in 0 1; do
        for step in 1 6; do
            for part in weights slot0 statistics; do
                for bit in 0 15 31; do
                    flip $process $step $part $bit
                done
            done
        done
    done
else
    flip 0 1 weights 0
    flip 1 3 slot0 15
    flip 1 6 statistics 31
fi
echo "$cases flipped bits, each noticed"
