#!/bin/sh
# Runs the benchmarks and writes bench/RESULTS.md. Called by `./dev bench`, which has built what is
# needed. Interpreters that have PyTorch: TORCH_PYTHON="/usr/bin/python3 …" (default: python3).
set -eu
cd -- "$(dirname -- "$0")/.."
build=build/release
data=/usr/share/datasets/fashion-mnist
rounds=${ROUNDS:-7}
mkdir -p bench/out
results=bench/out/results.md

cpu_model() { sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1; }
say() { printf 'bench: %s\n' "$*" >&2; }

header()
{
    cat <<TEXT
# Results

Made by \`./dev bench\`; every table says which program it comes from. Figures of one machine at one
time: compare within a table, not with other machines. Rows of one table were measured in turns.

| | |
|---|---|
| machine | $(cpu_model), $(nproc) CPUs |
| commit | $(git rev-parse --short HEAD 2>/dev/null || echo unknown) |
| compiler | $(cc --version | head -n 1) |
| back ends | $(./trainer --version | sed -n '2,$p' | sed 's/^ *//' | tr '\n' ';') |
| load before | $(cut -d ' ' -f 1-3 /proc/loadavg) |
TEXT
}

section() { printf '\n## %s\n\n    %s\n\n' "$1" "$2"; }

peers()
{
    set -- --data "$data" --rounds "$rounds" --json "$1" --lockstep "$2"
    for python in ${TORCH_PYTHON:-python3}; do
        set -- "$@" --python "$python"
    done
    python3 bench/peers/run.py "$@"
}

{
    header
    say "LeNet beside PyTorch"
    section "LeNet, batch 256, images/s" \
        "bench/peers/run.py … --lockstep '$build/bench/trainer_rounds examples/fashion_mnist.json'"
    printf 'Lockstep with \140shards\140 8, one single-threaded worker per core. PyTorch: 2 threads,\n'
    printf 'channels_last, AVX-512, malloc tuned, data preloaded.\n\n'
    peers bench/out/lenet.json "$build/bench/trainer_rounds examples/fashion_mnist.json"
    say "lanes kernels against the machine's peak"
    section "LeNet's kernels on one core" "$build/bench/bench_lanes"
    printf '\140\140\140\n'
    "$build/bench/bench_lanes"
    printf '\140\140\140\n'
    say "start-up"
    section "Start-up and memory of the main job, 2 workers" \
        "bench/startup.py ./trainer examples/fashion_mnist.json --devices cpu:2"
    python3 bench/startup.py ./trainer examples/fashion_mnist.json --devices cpu:2
    say "ring, pool and barrier"
    section "Ring, pool and barrier against mutex and condition variable" "$build/bench/bench_ring"
    printf '\140\140\140\n'
    "$build/bench/bench_ring"
    printf '\140\140\140\n'
} >"$results"
cp -- "$results" bench/RESULTS.md
say "wrote bench/RESULTS.md"
