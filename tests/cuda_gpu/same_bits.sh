#!/bin/sh
# SPDX-License-Identifier: MIT
# same_bits.sh PROBE TRAINER CONFIG-OF-LENET CONFIG-OF-RESNET: checks that the weights have the
# same bits with one worker on a GPU and with several workers that share it, and in each run, in
# every precision. LOCKSTEP_TEST_TRAINER can name another program, with another plugin in its
# folder. PRECISIONS, LENET_ROWS and LENET_ALONE make the test smaller.
# shellcheck disable=SC1091,SC2154 # training.sh sets and reads the shared variables
. "$(dirname "$0")/training.sh"
probe=$1
program=${LOCKSTEP_TEST_TRAINER:-$2}
lenet=$3
resnet=$4
"$probe" || exit
rows=${LENET_ROWS:-400}

# sha CONFIG DEVICES OPTION...: trains and prints the hash of the weights, or nothing if the run
# fails.
sha() {
    config=$1
    devices=$2
    shift 2
    rm -f "$scratch/metrics.jsonl"
    "$program" "$config" --devices "$devices" --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set epochs=1 --set eval_every=0 --set run_dir=null \
        --set shards=8 "$@" >/dev/null 2>"$scratch/train.err"
    weights "$scratch/metrics.jsonl"
}

# same_bits NAME CONFIG OPTION...: compares runs with 1 to 3 workers on one GPU. Leaves the hash in
# $wanted.
same_bits() {
    name=$1
    network=$2
    shift 2
    wanted=$(sha "$network" cuda:0 "$@")
    [ -n "$wanted" ] || fail "$name on cuda:0: expected a hash"
    echo "$name on cuda:0: $wanted"
    for devices in cuda:0 cuda:0,0 cuda:0,0,0; do
        found=$(sha "$network" "$devices" "$@")
        echo "$name on $devices: $found"
        [ "$found" = "$wanted" ] || fail "$name on $devices: expected the same hash"
    done
}

for precision in ${PRECISIONS:-fp32 tf32 bf16}; do
    same_bits "LeNet $precision" "$lenet" --set "precision=$precision" --set batch_size=64 \
        --set "data.limit=$rows" --set optimizer.momentum=0.9
done
other=$wanted
if [ -z "${LENET_ALONE-}" ]; then
    same_bits "ResNet-18" "$resnet" --set batch_size=32 --set data.limit=90 \
        --set 'augment={"crop": 4, "flip": true}'
    [ "$other" != "$wanted" ] || fail "two networks have the same weights"
fi

# One worker alone, with each of the three ways to merge.
for allreduce in local ordered nccl; do
    found=$(sha "$lenet" cuda:0 --set allreduce=$allreduce --set batch_size=64 \
        --set "data.limit=$rows" --set optimizer.momentum=0.9 --set precision=fp32)
    echo "LeNet fp32, $allreduce: $found"
    [ -n "$found" ] || fail "LeNet on cuda:0 with allreduce $allreduce: expected a hash"
done

finish
