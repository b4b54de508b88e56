#!/bin/bash
# Everything that a GPU is needed for, in one call of less than ten minutes: builds, runs the tests of
# `./dev test-gpu`, then the benchmarks of `./dev bench-gpu`. See help below.
set -u
cd -- "$(dirname -- "$0")/../.." || exit 71
self=$PWD/bench/gpu/once.sh

help()
{
    cat <<'TEXT'
usage: bench/gpu/once.sh [--rehearse] [FOLDER]

Leaves in FOLDER ($OUT, else build/gpu-out):

  once.log       what was done, how long it took, how it ended
  about.txt      the machine: GPU, driver, compilers, libraries, cuDNN's description of the device
  build.log      configuring and building
  tests.log      every test's output
  bench.md       the table, and what it was measured with
  bench.json     everything measured, round by round
  overlap_gpu.*  threads or streams: the picture, and the page with all figures
  bench.log      what the benchmarks said meanwhile, and what each op takes
  trace.json     a timeline of two workers that share the GPU, for Perfetto
  plans.tar.gz   the choices of convolution kernels

Each part has a time limit of its own and writes as it goes on: what comes late can spoil nothing that
came before. Libraries and data that the machine lacks are taken from build/gpu-kit (bench/gpu/pack.sh
makes it). On a machine without oneDNN, cJSON, Nettle and zlib of its own:

    here:   bench/gpu/pack.sh                   then copy the tree with build/gpu-kit
    there:  bench/gpu/once.sh FOLDER

--rehearse: without a GPU. The tests run over the doubles of the CUDA runtime, as far as they can, and
PyTorch on the CPU, for a step or two.

Environment: BUDGET_S, seconds for all of it (570); JOBS; TORCH_PYTHON (python3); CUDA_ARCH, what the
kernels are compiled for (90-real).
TEXT
}

rehearse=${REHEARSE-}
part=
case ${1-} in
-h | --help | help)
    help
    exit
    ;;
--rehearse)
    rehearse=true
    shift
    ;;
--part) # of the script itself, for the sake of its time limit
    part=$2
    shift 2
    ;;
esac
[ -z "$part" ] || set -- "" "$@"
out=${1:-${OUT:-$PWD/build/gpu-out}}
case $out in
/*) ;;
*) out=$PWD/$out ;;
esac
mkdir -p "$out" || exit 71
export OUT=$out REHEARSE=$rehearse
build=${BUILD:-$PWD/build/gpu}
kit=$PWD/build/gpu-kit
budget=${BUDGET_S:-570}
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

say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$out/once.log"; }

# part NAME SECONDS LOG COMMAND...: with a time limit, and never beyond the budget's end.
part()
{
    name=$1
    limit=$2
    log=$3
    shift 3
    left=$((budget - SECONDS - 5))
    if [ "$left" -lt 10 ]; then
        say "$name: left out, the time is over"
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    begin=$SECONDS
    timeout -k 5 "$limit" "$@" >>"$out/$log" 2>&1
    ended=$?
    case $ended in
    0) say "$name: done in $((SECONDS - begin)) s" ;;
    77) say "$name: skipped, see $log" ;;
    124 | 137) say "$name: stopped after $limit s, see $log" ;;
    *) say "$name: FAILED ($ended) after $((SECONDS - begin)) s, see $log" ;;
    esac
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
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit \
        --format=csv 2>&1
    for tool in cc g++ cmake ninja nvcc compute-sanitizer; do
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
        --json "$out/bench.json" --markdown "$out/bench.md" "$@"
}

case $part in
configure)
    configure
    exit
    ;;
loaded)
    loaded
    exit
    ;;
bench)
    bench "$2"
    exit
    ;;
esac

# ---- all of it ------------------------------------------------------------------------------------

: >"$out/once.log"
say "begins; at most $budget s${rehearse:+; a rehearsal}"
about >"$out/about.txt"
failed=0
if ! part configure 60 build.log bash "$self" --part configure ||
    ! part build 240 build.log cmake --build "$build" --parallel "$jobs" --target gpu_suite; then
    say "nothing can be run; the end"
    exit 1
fi
part "what is loaded" 30 about.txt bash "$self" --part loaded
gpu=$?
if [ -n "$rehearse" ]; then
    LOCKSTEP_TEST_PLUGIN=$build/tests/cuda_gpu/doubled/liblockstep-cuda.so
    LOCKSTEP_TEST_TRAINER=$build/tests/cuda_gpu/doubled/trainer
    export LOCKSTEP_TEST_PLUGIN LOCKSTEP_TEST_TRAINER
    export PRECISIONS=fp32 LENET_ROWS=100 LENET_ALONE=true
elif [ $gpu -ne 0 ]; then
    say "no GPU that can be used: $(tail -n 1 "$out/about.txt")"
    [ $gpu -ne 77 ] || exit 0
    exit 1
fi

part "cuDNN's description of the device" 30 about.txt "$build/bench/gpu/gpu_facts"
# What PyTorch compiles, the processor works at while the GPU is tested; the benchmarks find it done.
compiling=
if [ -z "$rehearse" ]; then
    for network in resnet lenet; do
        for precision in fp32 tf32 bf16; do
            timeout -k 5 240 "$python" bench/gpu/torch_gpu.py --network $network \
                --precision $precision --data "$data/fashion-mnist" --steps 1 </dev/null \
                >>"$out/bench.log" 2>&1 &
            compiling="$compiling $!"
        done
    done
fi
part tests "${TESTS_S:-240}" tests.log ctest --test-dir "$build" -L '^gpu$' -j 6 \
    --output-on-failure --verbose || failed=1
sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: /       /p' "$out/tests.log" | tee -a "$out/once.log"
# shellcheck disable=SC2086 # a list of words
[ -z "$compiling" ] || wait $compiling
say "PyTorch has compiled"
# In the order of worth. Each adds its rows to bench.json and writes the table anew.
measure() { part "bench $1" "${BENCH_S:-150}" bench.log bash "$self" --part bench "$1" || failed=1; }
measure resnet
measure lenet
for case in "fashion_mnist bf16" "fashion_mnist tf32" "resnet18 bf16" "resnet18 tf32"; do
    # shellcheck disable=SC2086 # two words
    set -- $case
    [ -z "$rehearse" ] || break
    part "times of ops, $case" 40 bench.log "$build/bench/gpu/gpu_op_times" "examples/$1.json" \
        "$data/fashion-mnist" "$2" 256 "$XDG_CACHE_HOME/lockstep" || failed=1
done
measure epochs
measure sharing
if [ -n "$rehearse" ]; then trainer=$LOCKSTEP_TEST_TRAINER; else trainer=$build/trainer; fi
part timeline 30 bench.log "$trainer" examples/fashion_mnist.json --devices cuda:0,0 --quiet \
    --trace "$out/trace.json" --set data.name=synthetic --set data.limit=512 --set epochs=1 \
    --set batch_size=256 --set run_dir=null --set shards=2 || failed=1
measure overlap # one minute at most; it finds the plans that `sharing` left
tar -C "$build" -czf "$out/plans.tar.gz" cache 2>/dev/null
say "the end; results in $out"
exit $failed
