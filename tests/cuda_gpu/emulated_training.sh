#!/bin/sh
# emulated_training.sh TWINS EMULATED PYTHON NEAR CONFIG...: three steps of training with the kernels on the CPU
# (emulated.h) come to the weights that they come to with the kernels' twins, and to the same bits in whatever order
# threads run. TWINS and EMULATED are trainers with a plugin beside them; NEAR compares folders of runs.
set -u
twins=$1
emulated=$2
python=$3
near=$4
shift 4
LC_ALL=C
export LC_ALL
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-emulated.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME
failures=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
}

# train NAME PROGRAM: leaves the hash of the weights in $found, and the run in the folder NAME.
train() {
    rm -rf "${scratch:?}/$1"
    "$2" "$config" --devices cuda:0 --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set data.limit=24 --set batch_size=8 --set epochs=1 --set shards=2 \
        --set eval_every=0 --set "run_dir=$scratch/$1" >"$scratch/out.txt" 2>&1 || {
        fail "$config: $1"
        cat "$scratch/out.txt"
    }
    found=$(sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p' "$scratch/metrics.jsonl")
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
[ "$failures" -eq 0 ]
