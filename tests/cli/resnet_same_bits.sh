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

# idx SPLIT ROWS COUNT: an IDX data set's two files, with ROWS images out of the program's own bytes. The
# evaluation that ends a run has four rows: the 1,000 of the built-in made-up data would take four times as
# long as the steps. COUNT: the rows as the last byte of a big-endian number, in octal.
idx() {
    { printf '\0\0\10\3\0\0\0%b\0\0\0\34\0\0\0\34' "\0$3" && tail -c 1000000 "$program" | head -c $(($2 * 784)); } \
        >"$scratch/$1-images-idx3-ubyte"
    { printf '\0\0\10\1\0\0\0%b' "\0$3" && for _ in $(seq $(($2 / 4))); do printf '\0\3\5\11'; done; } \
        >"$scratch/$1-labels-idx1-ubyte"
}
idx train 96 140
idx t10k 4 4

# sha DEVICES [OPTION...]: the hash of the weights after three steps; nothing where the run fails.
# The rate warms up over one step and then falls along a cosine.
sha() {
    devices=$1
    shift
    rm -f "$scratch/metrics.jsonl"
    "$program" "$config" --devices "$kind:$devices" --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=mnist --set "data.path=$scratch" --set batch_size=32 --set shards=4 --set epochs=1 \
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
