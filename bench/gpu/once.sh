#!/bin/bash
# Everything that a GPU is needed for, in two calls of less than nine minutes each: builds, tests, measures.
# See help below.
# The functions of the steps are called by their names, which are in lists.
# shellcheck disable=SC2317
set -u
cd -- "$(dirname -- "$0")/../.." || exit 71
self=$PWD/bench/gpu/once.sh

help()
{
    cat <<'TEXT'
usage: bench/gpu/once.sh [--rehearse] 1|2 [FOLDER]

Part 1: facts of the machine, the tests of `./dev test-gpu`, the two networks against PyTorch, gradients and
50 losses, our rates.
Part 2: our rates in turns with PyTorch's best forms, timelines, threads or streams, a GPU that is shared,
whole epochs, and what ncu says of the kernels that ran longest. Each part stands alone: it builds what is
not built, and ends within BUDGET_S.

Leaves in FOLDER ($OUT, else build/gpu-out):

  partN.log         what was done, how long it took, how it ended
  partN.md          the summary: the facts or the table, and what failed
  partN.tar.gz      everything else, written anew after every step:
    about.txt       the machine: GPU, driver, clocks, compilers, libraries, what a kernel's launch costs, how
                    fast memory and matrices are, cuDNN's description of the device
    build.log       configuring and building
    tests.log       every test's output
    losses.log      50 steps' losses in fp32, tf32 and bf16 against PyTorch's spread
    bench.*         the table, everything measured, what was said meanwhile, what each op takes
    overlap_gpu.*   threads or streams: the picture, and the page with all figures
    trace_*.json    timelines for Perfetto
    cache           the choices of convolution kernels

Each step has a time limit of its own and writes as it goes on: what comes late can spoil nothing that
came before. Libraries and data that the machine lacks are taken from build/gpu-kit (bench/gpu/pack.sh
makes it). On a machine without cJSON, Nettle and zlib of its own:

    here:   bench/gpu/pack.sh                   then copy the tree with build/gpu-kit
    there:  bench/gpu/once.sh 1 FOLDER          and bench/gpu/once.sh 2 FOLDER

--rehearse: without a GPU, and with no git in reach. The tests run over the doubles of the CUDA runtime, as
far as they can, and PyTorch on the CPU, for a step or two. Fails where a limit is passed.

Environment: BUDGET_S, seconds for a part (535); JOBS; TORCH_PYTHON (python3); CUDA_ARCH, what the
kernels are compiled for (90-real).
TEXT
}

rehearse=${REHEARSE-}
step=
case ${1-} in
--rehearse)
    rehearse=true
    shift
    ;;
--step) # of the script itself, for the sake of its time limit
    step=$2
    shift 2
    ;;
esac
case ${1-} in
1 | 2) number=$1 ;;
*)
    help
    [ "${1-}" = -h ] || [ "${1-}" = --help ] || exit 64
    exit
    ;;
esac
[ -n "$step" ] || out=${2:-${OUT:-$PWD/build/gpu-out}}
out=${out:-$OUT}
case $out in
/*) ;;
*) out=$PWD/$out ;;
esac
build=${BUILD:-$PWD/build/gpu}
kept=$build/results-$number # what the archive is made of
mkdir -p "$out" "$kept" || exit 71
export OUT=$out REHEARSE=$rehearse
kit=$PWD/build/gpu-kit
budget=${BUDGET_S:-535}
jobs=${JOBS:-$(nproc)}
python=${TORCH_PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# Plans are kept where they can be brought home.
XDG_CACHE_HOME=$build/cache
export XDG_CACHE_HOME TORCHINDUCTOR_CACHE_DIR=$build/inductor TRITON_CACHE_DIR=$build/triton
if [ -d "$kit" ]; then
    CMAKE_PREFIX_PATH=$kit${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
    export CMAKE_PREFIX_PATH
fi
data=/usr/share/datasets
[ -e "$data/fashion-mnist/train-images-idx3-ubyte.gz" ] || data=$kit/datasets
export LOCKSTEP_DATA=$data LOCKSTEP_TEST_DATA=$data/fashion-mnist TORCH_PYTHON=$python

say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$out/part$number.log"; }

# ---- what comes home ------------------------------------------------------------------------------

MOST_BYTES=$((16 << 20)) MOST_FILES=8

# The summary and the archive, whole at any time. An archive that is too large goes without timelines, which
# the log says.
bring_home()
{
    {
        echo "# Part $number"
        echo
        sed 's/^/    /' "$out/part$number.log"
        echo
        grep -E '^(a graph|memory:|matrices)|^NVIDIA' "$kept/about.txt" 2>/dev/null | sed 's/$/  /'
        echo
        cat "$kept/bench.md" 2>/dev/null
        grep ': [0-9]* losses off by' "$kept/losses.log" 2>/dev/null | sed 's/$/  /'
        sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: /    /p' "$kept/tests.log" 2>/dev/null
    } >"$out/part$number.md"
    rm -rf "$kept/cache"
    cp -r "$XDG_CACHE_HOME" "$kept/cache" 2>/dev/null
    archive
}

archive()
{
    tar -C "$kept" "$@" -czf "$build/draft.tar.gz" . 2>/dev/null
    if [ $# -eq 0 ] && [ "$(stat -c %s "$build/draft.tar.gz")" -gt $MOST_BYTES ]; then
        say "the archive is too large: it goes without timelines"
        archive --exclude 'trace_*'
        return
    fi
    mv -f "$build/draft.tar.gz" "$out/part$number.tar.gz"
}

# limited NAME SECONDS LOG COMMAND...: with a time limit, and never beyond the budget's end.
limited()
{
    name=$1
    limit=$2
    log=$3
    shift 3
    left=$((budget - SECONDS - 10)) # 5 s to kill it, 5 to pack
    if [ "$left" -lt 10 ]; then
        say "$name: left out, the time is over"
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    begin=$SECONDS
    timeout -k 5 "$limit" "$@" >>"$kept/$log" 2>&1
    ended=$?
    case $ended in
    0) say "$name: done in $((SECONDS - begin)) s" ;;
    77) say "$name: skipped, see $log" ;;
    124 | 137) say "$name: stopped after $limit s, see $log" ;;
    *) say "$name: FAILED ($ended) after $((SECONDS - begin)) s, see $log" ;;
    esac
    bring_home
    return $ended
}

# ---- the machine ----------------------------------------------------------------------------------

about()
{
    date -u '+%Y-%m-%d %H:%M UTC'
    uname -sr
    sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1
    echo "$(nproc) CPUs, $(sed -n 's/^MemTotal: *//p' /proc/meminfo)"
    nvidia-smi 2>&1 | head -n 20
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit \
        --format=csv,noheader 2>&1
    nvidia-smi -q -d CLOCK,PERFORMANCE 2>&1
    for tool in cc g++ cmake ninja nvcc compute-sanitizer ncu; do
        echo "$tool: $("$tool" --version 2>&1 | grep -E '[0-9]\.[0-9]' | head -n 1)"
    done
    "$python" - 2>&1 <<'TEXT'
import sys
print("Python", sys.version.split()[0], sys.executable)
import torch
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())
import nvidia, os
for folder in nvidia.__path__:
    print(folder, sorted(os.listdir(folder)))
TEXT
    ls -d /usr/local/cuda* 2>&1
    ldconfig -p 2>/dev/null | grep -E 'libcuda\.so|libcudnn\.so|libnccl\.so|libcublasLt\.so|libcjson|libnettle\.so'
    echo
}

# ---- building -------------------------------------------------------------------------------------

configure()
{
    command -v cmake
    generator=()
    ! command -v ninja || generator=(-G Ninja)
    [ -n "${CUDACXX-}" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || export CUDACXX=/usr/local/cuda/bin/nvcc
    cmake -S . -B "$build" "${generator[@]}" -D CMAKE_BUILD_TYPE=Release -D LOCKSTEP_CPU=OFF \
        -D LOCKSTEP_CUDA=ON -D CMAKE_CUDA_ARCHITECTURES="${CUDA_ARCH:-90-real}"
}

# The library names that wheels have lie in no folder that the loader looks into by itself; the build's
# run-time paths name them. What is loaded is said here.
loaded()
{
    ldd "$build/liblockstep-cuda.so"
    "$build/trainer" --version
    "$build/tests/cuda_gpu/gpu_probe"
}

bench()
{
    if [ -n "$rehearse" ]; then
        set -- --rehearse "$@"
    fi
    "$python" bench/gpu/run.py --build "$build" --data "$data/fashion-mnist" --python "$python" \
        --json "$kept/bench.json" --markdown "$kept/bench.md" "$@"
}

shift # the number
case $step in
configure | loaded | bench)
    "$step" "$@"
    exit
    ;;
esac

# of_self NAME SECONDS LOG STEP ARGUMENT...
of_self()
{
    limited "$1" "$2" "$3" bash "$self" --step "$4" "$number" "${@:5}"
}

# ---- both parts -----------------------------------------------------------------------------------

# A machine without git, as far as one can be had.
without_git()
{
    mkdir -p "$build/no-git"
    printf '#!/bin/sh\necho "git is not here" >&2\nexit 127\n' >"$build/no-git/git"
    chmod +x "$build/no-git/git"
    PATH=$build/no-git:$PATH
}

# Leaves the part when there is nothing to run it on.
prepare()
{
    rm -rf "$kept" "$out/part$number".*
    mkdir -p "$kept"
    say "part $number begins; at most $budget s${rehearse:+; a rehearsal}"
    [ -z "$rehearse" ] || without_git
    about >"$kept/about.txt"
    if ! of_self configure 60 build.log configure ||
        ! limited build 240 build.log cmake --build "$build" --parallel "$jobs" --target gpu_suite; then
        say "nothing can be run; the end"
        bring_home
        exit 1
    fi
    of_self "what is loaded" 30 about.txt loaded
    gpu=$?
    if [ -n "$rehearse" ]; then
        doubled=$build/tests/cuda_gpu/doubled
        export LOCKSTEP_TEST_PLUGIN=$doubled/liblockstep-cuda.so LOCKSTEP_TEST_TRAINER=$doubled/trainer
        export PRECISIONS=fp32 LENET_ROWS=100 LENET_ALONE=true
    elif [ $gpu -ne 0 ]; then
        say "no GPU that can be used: $(tail -n 1 "$kept/about.txt")"
        bring_home
        [ $gpu -eq 77 ] || exit 1
        exit 0
    fi
}

failed=0
measure() { of_self "bench $*" "$measure_s" bench.log bench "$@" || failed=1; }
op_times()
{
    [ -z "$rehearse" ] || return 0
    limited "times of ops, $1 $2" 30 bench.log "$build/bench/gpu/gpu_op_times" "examples/$1.json" \
        "$data/fashion-mnist" "$2" 256 "$XDG_CACHE_HOME/lockstep" || failed=1
}

# Alone: nothing else runs while they do.
suite()
{
    limited "$1" "$2" tests.log ctest --test-dir "$build" -L '^gpu$' "${@:3}" --output-on-failure --verbose ||
        failed=1
}

part_1()
{
    limited "facts" 40 about.txt "$build/bench/gpu/gpu_facts"
    suite tests 170 -j 6 -E parity
    suite "beside PyTorch" 60 -j 1 -R parity
    limited "losses beside PyTorch" 90 losses.log "$python" bench/gpu/losses.py ${rehearse:+--rehearse} \
        --trainer "${LOCKSTEP_TEST_TRAINER:-$build/trainer}" --data "$data/fashion-mnist" || failed=1
    measure_s=60
    measure --ours lenet
    measure --ours resnet
    op_times resnet18 bf16
    op_times fashion_mnist tf32
}

part_2()
{
    measure_s=170
    measure --precisions bf16 tf32 -- resnet
    measure_s=90
    measure --precisions bf16 tf32 -- lenet
    measure_s=60
    measure timeline
    measure epochs
    measure sharing
    measure_s=100
    measure ncu
    measure overlap
}

prepare
"part_$number"
say "the end after $SECONDS s; results in $out"
bring_home
if [ "$(find "$out" -type f | wc -l)" -gt $MOST_FILES ] || [ "$SECONDS" -gt 540 ] ||
    [ -n "$(find "$out" -type f -size +${MOST_BYTES}c)" ]; then
    say "FAILED: more than $MOST_FILES files, 16 MiB a file or 540 s"
    failed=1
fi
exit $failed
