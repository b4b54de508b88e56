#!/bin/sh
# launched.sh TRAINER: a program that a launcher has started several times over, and that has no engine to talk to the
# others by, refuses to train the same thing as often; absent and broken are told apart. Exit status 1 if not.
set -eu
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT INT TERM
cp -- "$1" "$work/trainer"
cat >"$work/c.json" <<TEXT
{"data": {"name": "synthetic", "limit": 64}, "batch_size": 32, "epochs": 1, "run_dir": null,
 "optimizer": {"name": "sgd", "lr": 0.05}, "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
TEXT

# refuses VARIABLE WORD
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
echo "no library" >"$work/liblockstep-mpi.so"
refuses OMPI_COMM_WORLD_SIZE broken
OMPI_COMM_WORLD_SIZE=3 "$work/trainer" "$work/c.json" --devices cpu:1 --quiet --set cluster.engine=none >/dev/null 2>&1
