#!/bin/sh
# SPDX-License-Identifier: MIT
# trace.sh PROBE TRAINER CHECK CONFIG-OF-LENET: checks that the file of --trace shows the
# activity of GPUs, below the workers that use them. If CUPTI fails, the run must be the same, and
# the timeline must say why the activity is missing. LOCKSTEP_TEST_TRAINER can name another program,
# with another plugin in its folder.
# shellcheck disable=SC1091,SC2154 # training.sh sets and reads the shared variables
. "$(dirname "$0")/training.sh"
probe=$1
program=${LOCKSTEP_TEST_TRAINER:-$2}
check=$3
lenet=$4
command -v python3 >/dev/null || {
    echo 'skipped: no python3 to read the timeline with'
    exit 77
}
"$probe" || exit

# run DEVICES OPTION...: trains for three steps; leaves trace.json, train.err and metrics.jsonl.
run() {
    devices=$1
    shift
    rm -f "$scratch"/*.json*
    "$program" "$lenet" --devices "$devices" --quiet --metrics "$scratch/metrics.jsonl" \
        --trace "$scratch/trace.json" --set data.name=synthetic --set data.limit=96 --set epochs=1 \
        --set batch_size=32 --set run_dir=null --set shards=4 --set precision=fp32 "$@" \
        >/dev/null 2>"$scratch/train.err" || fail "$devices"
}

sound() {
    python3 -B "$check" "$scratch/trace.json" "$@" 2>&1 || fail "$devices: the timeline is not sound"
}

run cuda:0
case ${LOCKSTEP_TEST_PLUGIN-} in
*/doubled/*) doubled=true ;;
*) doubled=false ;;
esac
if ! $doubled && grep -q no_device_spans "$scratch/trace.json"; then
    echo "skipped: $(cat "$scratch/train.err")"
    exit 77
fi
wanted=$(weights "$scratch/metrics.jsonl")
[ -n "$wanted" ] || fail 'expected the hash of the weights'
sound --workers 1 --steps 3 --devices
grep -q '"name":"cuda(0) stream [0-9]*"' "$scratch/trace.json" || fail "expected the stream's track"
grep -q '"cat":"device","name":"[^"]*ls_k_\|"cat":"device","name":"[^"]*sum' "$scratch/trace.json" ||
    fail 'expected our kernels by their names'
run cuda:0,0
sound --workers 2 --steps 3 --devices
[ "$(weights "$scratch/metrics.jsonl")" = "$wanted" ] || fail 'expected the same weights from two workers'

# Faults that only the double of CUPTI can simulate.
if $doubled; then
    LOCKSTEP_DOUBLE_CUPTI='odd names' run cuda:0
    sound --workers 1 --steps 3 --devices
    grep -qF '"name":"an \"odd\" name\n\\ \u0001 � of a kernel"' "$scratch/trace.json" ||
        fail 'expected names with their quotes and control characters escaped'
    for function in load cuptiActivityEnable; do # cuda_spans tests the other functions
        LOCKSTEP_DOUBLE_CUPTI=$function run cuda:0,0
        sound --workers 2 --steps 3
        [ "$(weights "$scratch/metrics.jsonl")" = "$wanted" ] || fail "$function fails: expected the same weights"
        said=$(grep -c "the timeline has nothing of cuda(0)'s own: cupti\|own: CUPTI" "$scratch/train.err")
        [ "$said" -eq 1 ] || fail "$function fails: expected one line of why, not $said"
        grep -q '"no_device_spans":"' "$scratch/trace.json" ||
            fail "$function fails: expected the timeline to say why"
    done
fi
finish
