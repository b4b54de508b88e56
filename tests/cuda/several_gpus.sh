#!/bin/sh
# SPDX-License-Identifier: MIT
# several_gpus.sh TRAINER CONFIG: whole training runs over three simulated GPUs (tests/doubles). The
# weights must equal those of one worker, in whatever way the workers share the GPUs, and whether or
# not a worker fails. With nccl, and a model whose gradient has two buckets, a worker fails while
# the first bucket is being merged.
# shellcheck disable=SC1091,SC2154 # training.sh sets and reads the shared variables
. "$(dirname "$0")/../cuda_gpu/training.sh"
program=$1
config=$2
LOCKSTEP_DOUBLE_GPUS=3
export LOCKSTEP_DOUBLE_GPUS

# train DEVICES OPTION...: leaves the exit status in $status and the hash of the weights in $found.
train() {
    devices=$1
    shift
    rm -f "$scratch/metrics.jsonl"
    "$program" "$config" --devices "$devices" --quiet --metrics "$scratch/metrics.jsonl" \
        --set data.name=synthetic --set data.limit=64 --set batch_size=32 --set epochs=1 \
        --set eval_every=0 --set run_dir=null --set optimizer.momentum=0.9 "$@" \
        >/dev/null 2>"$scratch/train.err"
    status=$?
    found=$(weights "$scratch/metrics.jsonl")
    echo "$devices $*: status $status, weights $found"
}

# expect HASH WHAT: the last run must have ended with status 0 and this hash.
expect() {
    if [ "$status" -ne 0 ] || [ -z "$found" ] || [ "$found" != "$1" ]; then
        fail "$2: expected status 0 and the weights '$1'"
    fi
}

train cuda:0 --set shards=5
wanted=$found
expect "$wanted" cuda:0
for devices in cuda:0,0,1,1 cuda:0,1,0,1,2; do
    train "$devices" --set shards=5
    expect "$wanted" "$devices"
done
# GPUs of two models: a warning.
LOCKSTEP_DOUBLE_ODD=2 train cuda:0,1,2 --set shards=5
grep -q 'cuda(2) is a Another double.*depend on which of them computes which shard' "$scratch/train.err" ||
    fail "GPUs of two models: no warning"
train cuda:0,1 --set shards=5
! grep -q 'depend on which' "$scratch/train.err" || fail "GPUs of one model: a warning"
# Some workers have no shard: alone on a GPU, or on a GPU with other workers.
train cuda:0 --set shards=2
fewer=$found
for devices in cuda:0,1,2 cuda:0,0,1,2,2; do
    train "$devices" --set shards=2
    expect "$fewer" "$devices on two shards"
done
train cuda:1,1,1 --set shards=2 --set allreduce=local
expect "$fewer" "local on two shards"
train cuda:0,1,2 --set shards=2 --set allreduce=nccl
[ "$status" -eq 0 ] || fail "nccl on two shards"
fault=worker=0,step=2,kind=fail,stage=merge # the worker that merges for its GPU
train cuda:0,0,1 --set shards=5 --inject "$fault"
expect "$wanted" "$fault"
grep -q 'go on without it' "$scratch/train.err" || fail "$fault: nobody failed"

# refused ALLREDUCE TEXT: training must fail, with TEXT in the message.
refused() {
    train cuda:0,0,1 --set shards=5 --set "allreduce=$1"
    if [ "$status" -eq 0 ] || ! grep -q "$2" "$scratch/train.err"; then
        fail "$1: expected '$2'"
    fi
}
refused nccl "'nccl' needs a GPU for each worker, and 3 workers have 2 here; .* 'ordered'"
refused local "'local' is for workers that share one GPU, and there are 2 here; use 'ordered'"

cat >"$scratch/large.json" <<'END'
{"model": {"name": "large", "layers": [{"type": "flatten"},
  {"type": "dense", "out": 1536}, {"type": "relu"},
  {"type": "dense", "out": 1024}, {"type": "relu"}, {"type": "dense", "out": 10}]},
 "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.01}, "shards": "devices"}
END
config=$scratch/large.json
train cuda:0,1
wanted=$found
train cuda:0,1 --set allreduce=nccl # two numbers have the same sum in each order
expect "$wanted" nccl
# A step whose gradient is not finite is skipped, even if parts of the gradient have been merged.
fault=worker=1,step=2,kind=nan
for how in ordered nccl; do
    train cuda:0,1 --set allreduce=$how --set on_nonfinite=skip --inject "$fault"
    [ $how = nccl ] || spoilt=$found
    expect "$spoilt" "$how, $fault"
    [ "$found" != "$wanted" ] || fail "$how, $fault: nothing was left out"
    grep -q '"type":"nonfinite","step":2,"worker":1,"shard":1,"action":"skip' "$scratch/metrics.jsonl" ||
        fail "$how, $fault: $(grep nonfinite "$scratch/metrics.jsonl")"
done
fault=worker=1,step=2,kind=fail,stage=merge
train cuda:0,1,2 --set allreduce=nccl --inject "$fault"
expect "$found" "nccl, $fault"
grep -q 'go on without it' "$scratch/train.err" || fail "nccl, $fault: nobody failed"

finish
