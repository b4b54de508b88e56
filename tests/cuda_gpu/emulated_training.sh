#!/bin/sh
# SPDX-License-Identifier: MIT
# emulated_training.sh TWINS EMULATED PYTHON NEAR CONFIG...: checks that three training steps
# with the kernels on the CPU (emulated.h) give the same weights as with the kernels' twins in plain
# C, and the same bits in every order of threads. TWINS and EMULATED are trainers with a plugin in
# the same folder. NEAR is the program that compares folders of runs.
# shellcheck disable=SC1091,SC2154 # training.sh sets and reads the shared variables
. "$(dirname "$0")/training.sh"
twins=$1
emulated=$2
python=$3
near=$4
shift 4

# train NAME PROGRAM: trains, and leaves the hash of the weights in $found and the run in folder
# NAME.
train() {
    rm -rf "${scratch:?}/$1"
    "$2" "$config" --devices cuda:0 --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set data.limit=24 --set batch_size=8 --set epochs=1 --set shards=2 \
        --set eval_every=0 --set "run_dir=$scratch/$1" >/dev/null 2>"$scratch/train.err" || fail "$config: $1"
    found=$(weights "$scratch/metrics.jsonl")
    rm -f "$scratch/metrics.jsonl"
    echo "$config, $1: $found"
}

for config in "$@"; do
    train twins "$twins"
    train ascending "$emulated"
    wanted=$found
    [ -n "$wanted" ] || fail "$config: expected a hash"
    "$python" -B "$near" "$scratch/ascending" "$scratch/twins" || fail "$config: other weights than the twins'"
    for order in descending 1; do
        LOCKSTEP_EMULATED_ORDER=$order
        export LOCKSTEP_EMULATED_ORDER
        train "$order" "$emulated"
        unset LOCKSTEP_EMULATED_ORDER
        [ "$found" = "$wanted" ] || fail "$config, order $order: other bits than in ascending order"
    done
done
finish
