#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs the benchmarks and writes bench/RESULTS.md. `./dev bench` calls it after building what it
# needs. See help below.
set -eu
cd -- "$(dirname -- "$0")/.."
build=build/release
data=/usr/share/datasets/fashion-mnist
out=bench/out
results=bench/RESULTS.md
# Parts that run only if they are named.
by_name='nets batches ladder bits hosts recovery merging'
# Sections that other commands have produced. Each section names its command; this script does not change it.
others='byhand'
# All other parts, in the order of their sections in the results.
parts='lenet resnet lanes startup allreduce scale overlap ring pool service python paper'

help()
{
    cat <<TEXT
usage: ./dev bench [--write] [PART...]

Runs the parts that are named, or all of them, and puts their sections into $results; the
sections of the other parts stay as they are. \`./dev bench overlap\` alone only
prints, and needs no PyTorch; --write puts it there, too. All of them take seven to eight minutes on two cores
beside one PyTorch, and at most ten beside two:

  lenet      LeNet beside PyTorch                          $(expected lenet) s
  resnet     ResNet-18 beside PyTorch; needs 12 GB free    $(expected resnet) s
  lanes      LeNet's kernels against the processor's peak  $(expected lanes) s
  startup    start-up and memory of the main job           $(expected startup) s
  allreduce  the all-reduces, bytes by workers             $(expected allreduce) s
  scale      a cost model, fitted and checked              $(expected scale) s
  overlap    threads or streams to drive the workers       $(expected overlap) s
  ring       ring, pool and barrier                        $(expected ring) s
  pool       a job through three thread pools              $(expected pool) s
  service    predictions over HTTP while it trains         $(expected service) s
  python     what Python adds to a step and a start        $(expected python) s; with NumPy
  paper      a step on a GPU, added up, not measured       $(expected paper) s; with a CUDA toolkit
and by name alone:
  nets       24 networks beside PyTorch's best form $(expected nets) s
  batches    LeNet and ResNet-18 by rows a step, beside it $(expected batches) s
  ladder     seconds to 90, 92, 93 % of Fashion-MNIST      $(expected ladder) s
  bits       the bits of LeNet's weights, beside PyTorch's $(expected bits) s
  hosts      a merge over hosts beside MPI's               $(expected hosts) s; root, and Open MPI
  recovery   a worker or a host lost, beside torchrun      $(expected recovery) s
  merging    what identical bits cost, beside MPI's        $(expected merging) s

Environment, which these seconds heed:
  TORCH_PYTHON="/usr/bin/python3 ..."  interpreters that have PyTorch (default: python3, else
                                       /usr/bin/python3)
  ROUNDS=7, RESNET_ROUNDS=5            rounds of lenet, nets and batches, of resnet
  RESNET_PROCESSES=1                   with 2, PyTorch also as 2 processes
  KILLS=20                             losses of recovery, of each kind
  SERVICE_SECONDS=10                   each of service's four measurements; 60 is the long form
Other work on the machine spoils the figures.
TEXT
}

say() { printf 'bench: %s\n' "$*" >&2; }

# ---- what runs, and for how long -----------------------------------------------------------------

# Prints the Python interpreters that have PyTorch.
pythons()
{
    if [ -n "${TORCH_PYTHON-}" ]; then
        echo "$TORCH_PYTHON"
        return
    fi
    for python in python3 /usr/bin/python3; do
        ! "$python" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' \
            2>/dev/null || {
            echo "$python"
            return
        }
    done
}

# expected PART: prints the seconds that the part takes on two cores.
expected()
{
    # shellcheck disable=SC2086 # a list of words
    set -- "$1" $TORCH_PYTHON
    part=$1
    shift
    case $part in
    lenet) echo $(((31 + 30 * $#) * (ROUNDS + 2) / 9 + 15)) ;;
    resnet) echo $(((110 + (20 + 40 * RESNET_PROCESSES) * $#) * (RESNET_ROUNDS + 2) / 7)) ;;
    nets) echo 1700 ;;
    batches) echo 800 ;;
    ladder) echo 2400 ;;
    bits) echo $((80 + ($# > 0) * 80)) ;;
    lanes | ring) echo 5 ;;
    paper) echo 15 ;;
    python) echo 10 ;;
    startup) echo 3 ;;
    allreduce) echo 25 ;;
    scale) echo 35 ;;
    hosts) echo 700 ;;
    recovery) echo $((KILLS * (6 + 22 * $#) + 60)) ;;
    merging) echo 30 ;;
    overlap) echo 50 ;;
    pool) echo 45 ;;
    service) echo $((4 * (SERVICE_SECONDS + 7))) ;;
    esac
}

# announce PART...
announce()
{
    all=0
    for part; do
        all=$((all + $(expected "$part")))
    done
    say "$*: about $(((all + 59) / 60)) minutes"
    case " $* " in
    *" lenet "* | *" resnet "*)
        say "PyTorch takes part from: ${TORCH_PYTHON:-nowhere, for no python3 has it}"
        ;;
    esac
}

# ---- what a section starts with ------------------------------------------------------------------

cpu_model() { sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1; }

commit()
{
    head=$(git rev-parse --short HEAD 2>/dev/null) || head=unknown
    [ "$head" = unknown ] || git diff --quiet HEAD -- src include examples 'bench/*.[ch]' ||
        head="$head with changes"
    echo "$head"
}

# section TITLE COMMAND
section()
{
    cat <<TEXT
## $1

    $2

$(cpu_model), $(nproc) CPUs; commit $(commit); $(cc --version | head -n 1);
$(./trainer --version | sed -n '2,$p' | sed 's/^ *//' | paste -s -d ';');
$(date -u '+%Y-%m-%d %H:%M') UTC, load before $(cut -d ' ' -f 1-3 /proc/loadavg).

TEXT
}

# Prints the output of COMMAND as a block of code.
verbatim()
{
    printf '```\n'
    "$@"
    printf '```\n'
}

# ---- the parts -----------------------------------------------------------------------------------

# peers NETWORK CONFIG OPTION...
peers()
{
    network=$1
    config=$2
    shift 2
    for python in $TORCH_PYTHON; do
        set -- "$@" --python "$python"
    done
    python3 bench/peers/run.py --network "$network" --data "$data" --shards 8 devices \
        --json "$out/$network.json" --lockstep "$build/bench/trainer_rounds $config" "$@"
}

lenet()
{
    section "LeNet, batch 256, images/s" \
        "bench/peers/run.py --network lenet … # and trainer_rounds examples/fashion_mnist.json"
    cat <<'TEXT'
Lockstep: one single-threaded worker per core; `shards` is the recipe's number of logical shards,
`devices` one per worker. PyTorch: one process with 2 threads, channels_last, AVX-512, malloc tuned,
data preloaded. Rounds of 60 steps, in turns; medians, ratios round by round.

TEXT
    peers lenet examples/fashion_mnist.json --rounds "$ROUNDS" --steps 60 --at-most $((14 * ROUNDS))
}

resnet()
{
    section "ResNet-18, batch 256, images/s" \
        "bench/peers/run.py --network resnet … # and trainer_rounds examples/resnet18.json"
    cat <<'TEXT'
11,175,818 parameters on both sides: convolutions with biases, projections without batch norm. Set
up as LeNet above, but rounds of 2 steps. PyTorch as 2 processes of 1 thread each, with
DistributedDataParallel on gloo, takes part with `RESNET_PROCESSES=2`: it was 3 to 4 % slower than one
process. Peak memory is VmHWM of whole processes: PyTorch's holds its libraries, and the compiler where
the network is compiled.

TEXT
    peers resnet examples/resnet18.json --rounds "$RESNET_ROUNDS" --steps 2 \
        --at-most $((40 * RESNET_ROUNDS)) --torch-processes "$RESNET_PROCESSES"
}

# beside PART: runs nets.py with the last interpreter of TORCH_PYTHON.
beside()
{
    [ -n "$TORCH_PYTHON" ] || say "no python3 has PyTorch: TORCH_PYTHON names one"
    for python in $TORCH_PYTHON; do :; done
    cat <<'TEXT'
Lockstep: the default config on 2 CPUs. PyTorch: the best of eager and compiled, channels last or not, one
process of 2 threads or 1 and two of 1; malloc tuned, data preloaded. AVX2: both sides are held to it (the C
library's tunable; PyTorch's, oneDNN's and MKL's own limits, which its compiler follows). Rounds of 0.4 s, in
turns; medians, ratios round by round. By CPU time: the rows per second of CPU time, which other work on the machine
disturbs less, beside the form of PyTorch that needs the least, of those that have 0.8 of the best form's rate.

TEXT
    python3 bench/nets.py "$1" --python "$python" --rounds-program "$build/bench/trainer_rounds" \
        --rounds "$ROUNDS" --json "$out/$1.json" --picture "bench/$1.svg"
}

nets()
{
    section "Networks beside PyTorch's best form, rows/s" "bench/nets.py nets"
    beside nets
}

# Draws bench/batches.svg.
batches()
{
    section "LeNet and ResNet-18 by rows a step, images/s" "bench/nets.py batches"
    printf '![rates by rows a step](batches.svg)\n\n'
    beside batches
}

# with_torch SCRIPT [ARGUMENT...]: runs it with --python and the last interpreter of TORCH_PYTHON, if there is one.
with_torch()
{
    last=
    for python in $TORCH_PYTHON; do
        last=$python
    done
    python3 "$@" ${last:+--python "$last"}
}

# Draws bench/ladder.svg.
ladder()
{
    section "Seconds of training to a test accuracy on Fashion-MNIST" "bench/ladder.py"
    printf '![accuracy over seconds of training](ladder.svg)\n\n'
    cat <<'TEXT'
Configs: `examples/ladder`. A run ends with the first evaluation, after an epoch, that reaches its target. The start,
compilation and evaluations do not count as training time; CPU time includes the evaluations. PyTorch: the same network
and recipe, one process of 2 threads, malloc tuned, in the fastest of eager and compiled, channels last or not. Seeds in
turns; medians, ratios pair by pair.

TEXT
    with_torch bench/ladder.py --json "$out/ladder.json" --picture bench/ladder.svg
}

# Draws bench/bits.svg.
bits()
{
    section "The bits of LeNet's weights, beside PyTorch's" "bench/bits.py"
    printf '![hashes of the weights by instruction set and threads](bits.svg)\n\n'
    cat <<'TEXT'
The network of `examples/fashion_mnist.json`: 20 steps of 256 images, learning rate 0.2, seed 0 in each program. PyTorch: one
process, `use_deterministic_algorithms`, contiguous tensors; `ATEN_CPU_CAPABILITY` limits its instructions, not those of oneDNN
and MKL. Lockstep: one worker for each thread; the C library's tunable limits its instructions. Hash: SHA-256 of the
tensors as little-endian fp32, conv1, conv2, fc1, fc2, each weight and bias. Mean loss: over the 20 steps.

TEXT
    with_torch bench/bits.py --json "$out/bits.json" --picture bench/bits.svg
}

lanes()
{
    section "LeNet's kernels on one core" "$build/bench/bench_lanes"
    verbatim "$build/bench/bench_lanes"
}

startup()
{
    section "Start-up and memory of the main job, 2 workers" \
        "bench/startup.py ./trainer examples/fashion_mnist.json --devices cpu:2"
    python3 bench/startup.py ./trainer examples/fashion_mnist.json --devices cpu:2
}

allreduce()
{
    section "All-reduce, bytes by workers" "$build/bench/bench_allreduce"
    cat <<'TEXT'
algbw is bytes over time; busbw is algbw · 2 (n − 1) / n, as nccl-tests computes it. Every sum was
checked; 516,288 bytes are LeNet's gradient, 44,703,296 ResNet-18's. `*`: more workers than CPUs.

TEXT
    verbatim "$build/bench/bench_allreduce" --json "$out/allreduce.json"
}

# Draws bench/scale.svg.
scale()
{
    [ -e "$out/allreduce.json" ] ||
        "$build/bench/bench_allreduce" --seconds 8 --json "$out/allreduce.json" >/dev/null
    section "How far data parallelism goes: measured, modelled, drawn" \
        "bench/scale.py … # and trainer_rounds, bench_allreduce"
    printf '![efficiency over devices](scale.svg)\n\n'
    set --
    [ ! -e "$out/hosts.json" ] || set -- "$out/hosts.json"
    python3 bench/scale.py --rounds-program "$build/bench/trainer_rounds" \
        --rounds 4 --allreduce "$out/allreduce.json" ${1:+--hosts "$1"} --json "$out/scale.json" --picture bench/scale.svg
}

# The hosts are network namespaces of this machine.
hosts()
{
    section "A merge over several hosts, beside MPI's" "bench/hosts.py $build/bench/bench_hosts"
    python3 bench/hosts.py "$build/bench/bench_hosts" --json "$out/hosts.json"
}

# Draws bench/overlap.svg; the page with all numbers is bench/out/overlap.html.
overlap()
{
    section "Threads or streams: who drives the workers" "$build/bench/bench_overlap"
    printf '![steps per second, launch time, overlap](overlap.svg)\n\n'
    "$build/bench/bench_overlap" --seconds 45 --json "$out/overlap.json" >"$out/overlap.txt"
    verbatim python3 bench/overlap_page.py "$out/overlap.json" bench/overlap.svg "$out/overlap.html"
    echo
    verbatim cat "$out/overlap.txt"
}

# If this is the only part, its results are printed, and no tracked file changes.
show_overlap()
{
    busy=$(awk -v cpus="$(nproc)" '{ print ($1 > cpus / 4) }' /proc/loadavg)
    [ "$busy" = 0 ] || say "this machine is busy (load $(cut -d ' ' -f 1 /proc/loadavg)" \
        "on $(nproc) CPUs): rates fall and spread with what else it does; the best time is when it does nothing"
    say "about $(expected overlap) s"
    "$build/bench/bench_overlap" --seconds 45 --json "$out/overlap.json" >"$out/overlap.txt" || return
    python3 bench/overlap_page.py "$out/overlap.json" "$out/overlap.svg" "$out/overlap.html" || return
    echo
    cat "$out/overlap.txt"
    say "the picture is $out/overlap.svg, the page with all numbers $out/overlap.html;" \
        "\`./dev bench --write overlap\` puts them into $results and bench/overlap.svg"
}

# Draws bench/recovery.svg.
recovery()
{
    section "What a loss costs, beside torchrun" "bench/recovery.py $build/bench/bench_recovery"
    printf '![time from a loss to the next new step](recovery.svg)\n\n'
    with_torch bench/recovery.py "$build/bench/bench_recovery" --kills "$KILLS" --json "$out/recovery.json" \
        --picture bench/recovery.svg
}

merging()
{
    section "What identical bits cost, as a share of a step" "bench/recovery.py $build/bench/bench_recovery --shares"
    set --
    ! command -v mpirun >/dev/null || [ ! -x "$build/bench/bench_hosts" ] || set -- --mpi "$build/bench/bench_hosts"
    python3 bench/recovery.py "$build/bench/bench_recovery" --shares "$@"
}

ring()
{
    section "Ring, pool and barrier against mutex and condition variable" "$build/bench/bench_ring"
    verbatim "$build/bench/bench_ring"
}

pool()
{
    section "The worker pool beside libuv's and a plain one" "$build/bench/bench_pool"
    cat <<'TEXT'
Empty jobs: one, there and back; and a gang, one on every worker, in which Lockstep's caller takes part.
The plain pool is one queue under a mutex with condition variables. Each call is timed by itself, back to
back or 1 ms apart, when the workers sleep; a round's figure is its median call, the table has medians
over interleaved rounds. `x Lockstep`: so many times Lockstep's (first row, defaults), round by round.
Where other work has the CPUs, a pinned worker waits for its own while the kernel moves the others'.

TEXT
    verbatim "$build/bench/bench_pool"
}

service()
{
    section "Predictions over HTTP while training goes on" \
        "bench/service.py $build/examples/service/lockstep-service"
    cat <<TEXT
One image a request, 16 connections, $SERVICE_SECONDS s. wrk and a feeder of 200 labelled images a second have
CPU 0; the service may use both. Training, LeNet at batch 64 on one worker, is on or off.

TEXT
    python3 bench/service.py --seconds "$SERVICE_SECONDS" "$build/examples/service/lockstep-service"
}

python()
{
    section "What Python adds" "bench/python.py $build/bench/bench_python_step"
    cat <<'TEXT'
Rounds of 300 steps, in turns with the same steps in C; a round's figure is its median step. Imports are whole
processes, with the interpreter's own start (`pass`) and NumPy's beside them.

TEXT
    PYTHONPATH=src/python LD_LIBRARY_PATH=$build/src /usr/bin/python3 -B bench/python.py "$build/bench/bench_python_step"
}

paper()
{
    section "A step on one H100, on paper" "bench/gpu/paper.py $build/tests/cuda_ops/cuda_nodes"
    cat <<'TEXT'
An **estimate**, made before a GPU had run it; "On one H200" has what was measured beside it. What each
kernel moves and computes is read off the recorded step, which runs over doubles of the CUDA libraries;
instructions are those that nvcc 13.0 made.

TEXT
    python3 bench/gpu/paper.py "$build/tests/cuda_ops/cuda_nodes"
}

# ---- putting the results together ----------------------------------------------------------------

# Prints a part's section of the results, with the mark before it; nothing if the results have no such section.
kept()
{
    [ ! -e "$results" ] ||
        awk -v mark="<!-- $1 -->" '/^<!-- [a-z]+ -->$/ { on = $0 == mark } on' "$results"
}

# replace PART FILE: prints the results, with FILE in place of the part's section.
replace()
{
    cat <<TEXT
# Results

Made by \`./dev bench\`, but for the last sections, each of which names the command that made it; every section
says by which program, when, and from which commit. Figures of
one machine at one time: compare within a table, not with other machines. Rows of one table were
measured in turns. Sections of \`./dev bench\` end with how long it took.

TEXT
    for part in $parts $by_name $others; do
        if [ "$part" = "$1" ]; then
            printf '<!-- %s -->\n' "$part"
            cat -- "$2"
            printf '\n'
        else
            kept "$part"
        fi
    done | cat -s | sed '$ { /^$/ d; }'
}

# If a part fails, its old section stays. The part runs in a shell of its own, in which `set -e` has an effect.
run_part()
{
    say "$1, about $(expected "$1") s"
    start=$(date +%s)
    sh bench/run.sh --section "$1" >"$out/$1.md" || {
        say "$1 failed; $results is as it was"
        return 1
    }
    took=$(($(date +%s) - start))
    printf '\nTook %d s.\n' "$took" >>"$out/$1.md"
    replace "$1" "$out/$1.md" >"$out/results.md"
    cp -- "$out/results.md" "$results"
    times="$times
  $(printf '%-10s %4d s, of %d expected' "$1" "$took" "$(expected "$1")")"
}

known()
{
    case " $parts $by_name " in
    *" $1 "*) ;;
    *)
        say "no part '$1'; there are: $parts $by_name"
        exit 64
        ;;
    esac
}

TORCH_PYTHON=$(pythons)
ROUNDS=${ROUNDS:-7}
RESNET_ROUNDS=${RESNET_ROUNDS:-5}
RESNET_PROCESSES=${RESNET_PROCESSES:-1}
KILLS=${KILLS:-20}
SERVICE_SECONDS=${SERVICE_SECONDS:-10}
export TORCH_PYTHON ROUNDS RESNET_ROUNDS RESNET_PROCESSES KILLS SERVICE_SECONDS

case ${1-} in
-h | --help | help)
    help
    exit
    ;;
--section)
    case $2 in
    lenet) lenet ;;
    resnet) resnet ;;
    nets) nets ;;
    batches) batches ;;
    ladder) ladder ;;
    bits) bits ;;
    lanes) lanes ;;
    startup) startup ;;
    allreduce) allreduce ;;
    scale) scale ;;
    hosts) hosts ;;
    recovery) recovery ;;
    merging) merging ;;
    overlap) overlap ;;
    ring) ring ;;
    pool) pool ;;
    service) service ;;
    python) python ;;
    paper) paper ;;
    esac
    exit
    ;;
esac
writes=
if [ "${1-}" = --write ]; then
    writes=1
    shift
fi
for part; do
    known "$part"
done
if [ -z "$writes" ] && [ "$*" = overlap ]; then
    mkdir -p "$out"
    show_overlap
    exit
fi
# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $parts
mkdir -p "$out"
announce "$@"
began=$(date +%s)
times=
failed=0
for part; do
    run_part "$part" || failed=1
done
say "all of it took $(($(date +%s) - began)) s and is in $results:$times"
exit $failed
