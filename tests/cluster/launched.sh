#!/bin/sh
# SPDX-License-Identifier: MIT
# launched.sh TRAINER [OLD_MPICH]: a launcher has started the program several times. If the program
# has no transport to reach the other processes, or the transport finds none, it must refuse to train the
# same model in each process. An absent transport and a broken transport must have different messages. An
# MPICH that would hang must be refused by its version. When the program is told to stop, it must
# save exactly once. Exits with 1 if a check fails.
set -eu
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_SIZE SLURM_STEP_NUM_TASKS
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT INT TERM
cp -- "$1" "$work/trainer"
cat >"$work/c.json" <<TEXT
{"data": {"name": "synthetic", "limit": 64}, "batch_size": 32, "shards": 2, "epochs": 1, "run_dir": null,
 "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.05}, "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
TEXT

# refuses VARIABLE WORD: with VARIABLE=3 the trainer must refuse, with WORD in the message.
refuses() {
    if env "$1=3" "$work/trainer" "$work/c.json" --devices cpu:1 --quiet >"$work/out" 2>&1; then
        echo "FAILED: $1=3 trains"
        exit 1
    fi
    if ! grep -q "started as 3 processes.*liblockstep-mpi.so.*($2)" "$work/out"; then
        echo "FAILED: $1=3 says:"
        cat "$work/out"
        exit 1
    fi
}
refuses OMPI_COMM_WORLD_SIZE absent
refuses PMI_SIZE absent
refuses SLURM_STEP_NUM_TASKS absent

# A process that fails must not let the others wait for it, whether it has joined them or not. It says what is wrong, and they
# end and name its host. The time limit is shorter than the time for which a process waits for one that does not come (OPEN_NS).

# The program with a file for its output, because lines of two processes can mix in one.
cat >"$work/apart" <<'TEXT'
#!/bin/sh
exec "${0%/*}/trainer" "$@" >"${0%/*}/own.$$" 2>&1
TEXT
chmod +x "$work/apart"

# two ARGUMENTS… : ARGUMENTS…: starts two processes with MPI. Their output is in $work/out.
two() {
    got=0
    rm -f "$work"/own.*
    timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none --enable-recovery -np 1 "$work/apart" "$@" >"$work/own.mpirun" 2>&1 || got=$?
    cat "$work"/own.* >"$work/out"
}
# says OWN TOLD: one of the two has printed OWN, and the other TOLD after the name of the host; both have ended.
says() {
    if [ $got -ne 0 ] || ! grep -v "has left the run" "$work/out" | grep -q -e "^trainer: .*$1" ||
        ! grep -q -e "^trainer: .*host $(uname -n)[#1]* has left the run: .*$2" "$work/out"; then
        echo "FAILED: beside a process that fails with '$1': $got:"
        cat "$work/out"
        exit 1
    fi
}
# beside OWN TOLD CONFIG OPTION…: a process with CONFIG OPTION… fails, and the other must end.
beside() {
    own=$1 told=$2
    shift 2
    two "$work/c.json" --devices cpu:1 --quiet : -np 1 "$work/apart" "$@" --quiet
    says "$own" "$told"
}
beside_others() {
    beside "missing.json: no such file" "missing.json: no such file" "$work/missing.json"
    beside "unknown option --sett" "its arguments are refused" "$work/c.json" --sett epochs=2
    beside "this command reads that file" "its arguments are refused" "$work/c.json" --metrics "$work/c.json"
    beside "--metrics .*cannot write" "--metrics .*cannot write" "$work/c.json" --metrics "$work/none/m.jsonl"
    beside "--serve 192.0.2.1:1" "--serve 192.0.2.1:1" "$work/c.json" --serve 192.0.2.1:1
    beside "inject: cannot read" "inject: cannot read" "$work/c.json" --inject worker=none
    beside "fashion_mnist not found" "fashion_mnist not found" "$work/c.json" --set data.name=fashion_mnist --set data.path=/none
    echo "no library" >"$work/liblockstep-cuda.so"
    beside "cuda" "cuda" "$work/c.json" --devices cuda:0
    rm "$work/liblockstep-cuda.so"
    two "$work/c.json" --devices cpu:1 --quiet --set "run_dir=$work/c.json/run" : -np 1 "$work/apart" "$work/c.json" --devices cpu:1 --quiet
    says "c.json/run" "c.json/run"
    # Processes that train each for itself wait for none.
    two "$work/c.json" --devices cpu:1 --set cluster.transport=none : -np 1 "$work/apart" "$work/missing.json" --set cluster.transport=none
    if [ $got -ne 0 ] || ! grep -q "^trainer: .*missing.json: no such file" "$work/out" || ! grep -q "^test acc" "$work/out"; then
        echo "FAILED: beside a process that trains for itself: $got:"
        cat "$work/out"
        exit 1
    fi
}
if [ -e "$(dirname -- "$1")/liblockstep-mpi.so" ]; then # with processes that MPI did not start
    cp -- "$(dirname -- "$1")/liblockstep-mpi.so" "$work/"
    if SLURM_STEP_NUM_TASKS=3 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet >"$work/out" 2>&1 ||
        ! grep -q "started as 3 processes that do not find each other" "$work/out"; then
        echo "FAILED: with a transport that finds no others it says:"
        cat "$work/out"
        exit 1
    fi
    if [ "$(ldd "$work/liblockstep-mpi.so" | sed -n 's/.*libmpi\.so\.40 .*/open/p')" = open ] && command -v mpirun >/dev/null; then
        beside_others
    fi
fi
if [ -n "${2-}" ]; then
    if LD_PRELOAD=$2 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet --set cluster.transport=mpi >"$work/out" 2>&1 ||
        ! grep -q "MPICH 4.0 hangs .*or MPICH 5" "$work/out"; then
        echo "FAILED: MPICH 4.0 is not refused:"
        cat "$work/out"
        exit 1
    fi
fi
echo "no library" >"$work/liblockstep-mpi.so"
refuses OMPI_COMM_WORLD_SIZE broken
OMPI_COMM_WORLD_SIZE=3 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet --set cluster.transport=none >/dev/null 2>&1
rm "$work/liblockstep-mpi.so"

# MPICH's launcher sends SIGUSR1 whenever a process ends. A second SIGUSR1 must not stop the program
# at once.
(cd "$work" && exec ./trainer c.json --devices cpu:1 --quiet --set data.limit=2048 --set epochs=100000 --set run_dir=told) \
    >"$work/out" 2>&1 &
told=$!
while [ ! -s "$work/told/metrics.jsonl" ]; do sleep 0.05; done
sleep 0.3
i=0
while [ $i -lt 300 ]; do
    kill -USR1 $told 2>/dev/null || true
    i=$((i + 1))
done
got=0
wait $told || got=$?
if [ $got -ne 75 ]; then
    echo "FAILED: told often, it ends with $got:"
    cat "$work/out"
    exit 1
fi
