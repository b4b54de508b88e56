#!/bin/sh
# resnet_same_bits.sh TRAINER CONFIG KIND: ResNet-18 in four shards ends with the same bits on one,
# two, three and four devices of a kind, twice, with momentum, augmentation and a schedule on.
program=$1
config=$2
kind=$3
set -u
LC_ALL=C
export LC_ALL
unset LOCKSTEP_DATA XDG_DATA_HOME
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-same-bits.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

# sha DEVICES [OPTION...]: the hash of the weights after three steps; nothing where the run fails.
# Made-up data needs no file. The rate warms up over one step and then falls along a cosine.
sha() {
    devices=$1
    shift
    rm -f "$scratch/metrics.jsonl"
    "$program" "$config" --devices "$kind:$devices" --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set batch_size=32 --set shards=4 --set epochs=1 \
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

# Two minibatches of 32, 8 rows a shard, and one of 26: 7, 7, 6 and 6 rows.
wanted=$(sha 1 --set data.limit=90)
[ -n "$wanted" ] || fail "$kind:1: expected a hash"
echo "$kind:1: $wanted"
for devices in 2 3 4 1; do
    found=$(sha "$devices" --set data.limit=90)
    echo "$kind:$devices: $found"
    [ "$found" = "$wanted" ] || fail "$kind:$devices: expected the same hash"
done

# What is switched on does change the result, or the test would show nothing.
for without in data.limit=96 optimizer.momentum=0 'augment={"crop": 0}' schedule=constant seed=8; do
    found=$(sha 2 --set data.limit=90 --set "$without")
    # shellcheck disable=SC2015 # both tests must hold, or it fails
    [ -n "$found" ] && [ "$found" != "$wanted" ] || fail "expected other weights with $without"
done

[ "$failures" -eq 0 ]
