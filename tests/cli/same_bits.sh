#!/bin/sh
# SPDX-License-Identifier: MIT
# same_bits.sh TRAINER CONFIG: LeNet with four shards has bit-identical weights on one, two, three
# and four workers, with momentum, augmentation and a schedule. Each of the three changes the
# weights.
program=$1
config=$2
set -u
LC_ALL=C
export LC_ALL
unset LOCKSTEP_DATA XDG_DATA_HOME
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-same-bits.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

# sha WORKERS [OPTION...]: the hash of the weights after two minibatches of 32 rows and one of 26, which are 7, 7, 6 and
# 6 rows a shard; nothing where the run fails. The rate warms up over one step and then falls along a cosine.
sha() {
    workers=$1
    shift
    rm -f "$scratch/metrics.jsonl"
    "$program" "$config" --devices "cpu:$workers" --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set data.limit=90 --set batch_size=32 --set shards=4 --set epochs=1 \
        --set eval_every=0 --set run_dir=null --set seed=7 --set optimizer.momentum=0.9 \
        --set 'augment={"crop": 4, "flip": true}' \
        --set 'schedule={"name": "cosine", "warmup_epochs": 0.34}' \
        "$@" >/dev/null 2>"$scratch/stderr.txt" || cat "$scratch/stderr.txt" >&2
    grep -qs '"status":"finished","epochs":1,"steps":3,' "$scratch/metrics.jsonl" &&
        sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p' "$scratch/metrics.jsonl"
}

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

wanted=$(sha 1)
[ -n "$wanted" ] || fail "one worker: expected a hash"
for workers in 2 3 4 1; do
    found=$(sha "$workers")
    [ "$found" = "$wanted" ] || fail "$workers workers: expected $wanted, found $found"
done

# Each feature changes the weights; if it did not, the test would not test it.
for without in data.limit=96 optimizer.momentum=0 'augment={"crop": 0}' schedule=constant seed=8; do
    found=$(sha 2 --set "$without")
    # shellcheck disable=SC2015 # both tests must hold, or it fails
    [ -n "$found" ] && [ "$found" != "$wanted" ] || fail "expected other weights with $without"
done

[ "$failures" -eq 0 ]
