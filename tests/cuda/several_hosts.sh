#!/bin/sh
# SPDX-License-Identifier: MIT
# several_hosts.sh TRAINER CONFIG PYTHON: trains with processes that are connected by TCP. Each
# process has simulated GPUs of its own. The weights must equal those of one process. All hosts must
# use the first host's choices of kernels. A host with another driver version must be refused. If a
# process is lost or fails, the others must notice it, and the saved run, or the remaining
# processes, must continue.
# shellcheck disable=SC1091,SC2154 # training.sh sets and reads the shared variables
. "$(dirname "$0")/../cuda_gpu/training.sh"
program=$1
config=$2
python=$3
LOCKSTEP_DOUBLE_GPUS=3
export LOCKSTEP_DOUBLE_GPUS
(umask 077 && head -c 32 /dev/urandom >"$scratch/key")

# start NAME DEVICES OPTION...: starts a host in the background, and leaves its process id in
# $started. $extra: more options.
extra=
start() {
    name=$1
    devices=$2
    shift 2
    # shellcheck disable=SC2086 # options hold no blanks
    "$program" "$config" --devices "$devices" --quiet --metrics "$scratch/$name.jsonl" \
        --set data.name=synthetic --set data.limit=64 --set batch_size=32 --set epochs=2 \
        --set eval_every=0 --set run_dir=null --set optimizer.momentum=0.9 \
        --set cluster.deadline_s=4 $extra "$@" >"$scratch/$name.out" 2>"$scratch/$name.err" &
    started=$!
}

# together DEVICES... -- OPTION...: trains on one host for each DEVICES. Leaves their exit statuses
# in $statuses, and the hash of the weights in $found. $special is evaluated for the second host
# only. $meanwhile is run while all hosts train.
together() {
    rm -f "$scratch"/*.jsonl "$scratch"/*.err
    hosts=
    pids=
    while [ "$1" != -- ]; do
        hosts="$hosts $1"
        shift
    done
    shift
    port=$("$python" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
    number=0
    # shellcheck disable=SC2086 # names hold no blanks
    count=$(set -- $hosts && echo $#)
    for devices in $hosts; do
        number=$((number + 1))
        (
            [ "$number" -ne 2 ] || eval "$special"
            start "host$number" "$devices" --join "127.0.0.1:$port" --members "$count" \
                --secret "$scratch/key" "$@"
            echo "$started" >"$scratch/host$number.pid"
            wait "$started"
            echo $? >"$scratch/host$number.status"
        ) &
        pids="$pids $!"
    done
    [ -z "$meanwhile" ] || $meanwhile
    # shellcheck disable=SC2086
    wait $pids
    statuses=$(cat "$scratch"/host?.status | tr '\n' ' ')
    rm -f "$scratch"/host?.status "$scratch"/host?.pid
    found=$(weights "$scratch"/host?.jsonl)
    echo "$hosts -- $*: statuses $statuses, weights $found"
}
special=
meanwhile=

# alone DEVICES OPTION...: trains with one process, and leaves the hash in $wanted.
alone() {
    rm -f "$scratch"/*.jsonl
    start alone "$@"
    wait "$started" || fail "alone $*"
    wanted=$(weights "$scratch/alone.jsonl")
    echo "alone $*: $wanted"
}

# same STATUSES WHAT: the last hosts must have ended with STATUSES and the weights $wanted.
same() {
    if [ "$statuses" != "$1" ] || [ -z "$found" ] || [ "$found" != "$wanted" ]; then
        fail "$2: expected statuses $1 and the weights $wanted"
    fi
}

alone cuda:0 --set shards=6
together cuda:0 cuda:1,2 -- --set shards=6
same "0 0 " "two hosts"
together cuda:0,0 cuda:0,1 cuda:2 -- --set shards=6
same "0 0 0 " "three hosts"

# Two hosts with one GPU each. The gradient has two buckets; the first is sent while the second is
# computed.
small=$config
cat >"$scratch/large.json" <<'END'
{"model": {"name": "large", "layers": [{"type": "flatten"},
  {"type": "dense", "out": 1536}, {"type": "relu"},
  {"type": "dense", "out": 1024}, {"type": "relu"}, {"type": "dense", "out": 10}]},
 "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.01}}
END
config=$scratch/large.json
alone cuda:0 --set shards=2 --set epochs=1
together cuda:0 cuda:1 -- --set shards=2 --set epochs=1
same "0 0 " "two hosts that merge ahead"
config=$small

# If each host chose its own kernels, the bits would differ.
special='LOCKSTEP_DOUBLE_ENGINE=1; export LOCKSTEP_DOUBLE_ENGINE'
together cuda:0 cuda:1 -- --set shards=2
both=$found
alone cuda:0 --set shards=2
first=$wanted
wanted=$(eval "$special" && alone cuda:0 --set shards=2 >/dev/null && echo "$wanted")
[ "$first" != "$wanted" ] || fail "two engines give the same bits"
[ "$both" = "$first" ] || [ "$both" = "$wanted" ] || fail "hosts that would choose other kernels"

special='LOCKSTEP_DOUBLE_DRIVER=12080; export LOCKSTEP_DOUBLE_DRIVER'
together cuda:0 cuda:1 -- --set shards=2
if [ "$statuses" = "0 0 " ] || ! grep -q 'driver 12.8.*their bits differ' "$scratch"/host1.err; then
    fail "another driver: expected a refusal"
fi
special=

together cuda:0 cpu:1 -- --set shards=2
grep -q 'computes on .*CPUs.*their bits differ' "$scratch"/host1.err || fail "a host without a GPU"
together cuda:0 cuda:1 -- --set shards=2 --set allreduce=nccl
grep -q "'nccl' works within one host; over several use \"ordered\"" "$scratch"/host1.err || fail nccl

# NCCL fails on a host with two GPUs, which goes on with the other GPU. Then a worker fails on a
# host that has no other worker.
alone cuda:0 --set shards=6
special='LOCKSTEP_DOUBLE_NCCL=17; export LOCKSTEP_DOUBLE_NCCL'
together cuda:0 cuda:1,2 -- --set shards=6
same "0 0 " "NCCL fails on one of two hosts"
grep -q 'NCCL' "$scratch"/host2.err || fail "NCCL did not fail"
special=

special='extra="--inject worker=0,step=2,kind=fail,stage=merge"'
together cuda:0 cuda:1 -- --set shards=2 --set "run_dir=$scratch/failed"
[ "$statuses" = "75 71 " ] || fail "$special: statuses $statuses"
grep -q 'has left the run: worker 0, step 2' "$scratch/host1.err" || fail "$special: it is not said"
special=

# A bit flips on one host, and the steps find it.
special='extra="--inject worker=0,step=1,kind=corrupt,bit=31"'
together cuda:0 cuda:1 -- --set shards=2 --set batch_size=8
[ "$statuses" = "71 71 " ] || fail "$special: statuses $statuses"
grep -q ' step 4: .* have different copies of the model' "$scratch/host1.err" || fail "$special: it is not said"
special=

# A host is killed in the middle of a run. The other host must save; the saved run is resumed on one
# host.
kill_host2() {
    for _ in $(seq 200); do
        cat "$scratch"/host?.jsonl 2>/dev/null | grep -q '"step"' && break
        sleep 0.05
    done
    kill -9 "$(cat "$scratch/host2.pid")"
}
alone cuda:0 --set shards=2 --set epochs=30
meanwhile=kill_host2
together cuda:0 cuda:1 -- --set shards=2 --set epochs=30 --set "run_dir=$scratch/killed"
meanwhile=
case $statuses in "75 137 ") ;; *) fail "a host killed: statuses $statuses" ;; esac
saved=$(find "$scratch" -maxdepth 1 -type d -name 'killed*' | head -1)
rm -f "$scratch"/*.jsonl
"$program" --resume "$saved" --devices cuda:0 --quiet --metrics "$scratch/resumed.jsonl" \
    >"$scratch/resumed.out" 2>"$scratch/resumed.err" || fail "resuming $saved"
found=$(weights "$scratch/resumed.jsonl")
[ "$found" = "$wanted" ] || fail "resumed: weights $found, expected $wanted"

# One of three hosts is killed. The other two must continue without being restarted. At first each
# host has one GPU and one shard.
alone cuda:0 --set shards=3 --set epochs=30
meanwhile=kill_host2
together cuda:0 cuda:1 cuda:2 -- --set shards=3 --set epochs=30 --set cluster.on_host_loss=continue
same "0 137 0 " "a host killed, the others go on"

finish
