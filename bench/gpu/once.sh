#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs everything that needs a GPU in one call of seven minutes: see help below.
set -u
SPENT_S=0
here=$(cd -- "$(dirname -- "$0")" && pwd) || exit 71
if [ -d "$here/source" ]; then # the folder that pack.sh made
    kit=$here
else
    kit=$(cd -- "$here/../.." && pwd)/build/gpu-kit
fi

help()
{
    cat <<'TEXT'
usage: once.sh [--rehearse] [FOLDER]           all steps, at most 420 s
       once.sh again [--seconds N] STEP... [-- FOLDER]
                                               some of them, at most N s (240), after a repair
       once.sh --plan                          the steps, their limits and when each begins at the latest

Runs what bench/gpu/pack.sh has put into one folder, on a machine with a GPU where that folder was carried:
nothing is built, unless what was carried does not load. There are needed bash, the Python that has
PyTorch (TORCH_PYTHON, else python3), and the CUDA runtime, cuBLAS, cuDNN and NCCL that this Python's
PyTorch came with.

Leaves in FOLDER ($OUT, else build/gpu-out beside the sources, gpu-out in the folder that was carried):

  once.log        each step: how it ended, how long it took (again.* of a second call)
  once.md         at most 60 lines: the table against PyTorch, estimates beside what was measured, what failed
  once.tar.gz     all output, rows, timelines, choices of convolution kernels; written anew after every step

--rehearse: on a machine without a GPU, with neither git nor a compiler nor CUDA's toolkit in reach: over the
doubles of the CUDA runtime. Fails where a step fails or passes its limit; SLOWER=N, on a machine that is busy,
makes all limits N times as long; LOCKSTEP_DOUBLE_GPUS=N simulates N GPUs (1).
TEXT
}

# Runs this script again with an empty environment, and with a PATH without git and compilers.
bare()
{
    links=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-bare.XXXXXX") || exit 71
    ln -s /usr/bin/* "$links" 2>/dev/null
    (cd "$links" && rm -f git git-* cmake ctest cpack ninja make gmake cc c89* c99* c++ gcc* g++* clang* ld ld.* as \
        nvcc x86_64-linux-gnu-* python3-config ccache)
    exec env -i BARE="$links" PATH="$links" HOME="$links" TMPDIR="${TMPDIR:-/tmp}" OUT="${OUT-}" SLOWER="${SLOWER:-1}" \
        LOCKSTEP_DOUBLE_GPUS="${LOCKSTEP_DOUBLE_GPUS:-1}" \
        "$links/bash" "$0" --rehearse "$@"
}

rehearse=() again=()
case ${1-} in
-h | --help)
    help
    exit
    ;;
--plan)
    set -- "${TORCH_PYTHON:-python3}" "$here"/plan.py "$here"/source/bench/gpu/plan.py
    [ -e "$2" ] || set -- "$1" "$3"
    exec "$1" -B "$2"
    ;;
--rehearse)
    shift
    [ -n "${BARE-}" ] || bare "$@"
    trap 'rm -rf "$BARE"' EXIT
    rehearse=(--rehearse)
    ;;
again)
    shift
    seconds=()
    [ "${1-}" != --seconds ] || {
        seconds=(--seconds "${2:?}")
        shift 2
    }
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        again+=("$1")
        shift
    done
    [ $# -eq 0 ] || shift
    [ ${#again[@]} -gt 0 ] || {
        help >&2
        exit 64
    }
    again=("${seconds[@]}" --again "${again[@]}")
    ;;
esac
out=${1:-${OUT:-$kit/../gpu-out}}
python=${TORCH_PYTHON:-python3}
[ -d "$kit/source" ] || {
    echo "once.sh: there is no $kit/source: bench/gpu/pack.sh makes it" >&2
    exit 66
}
command -v "$python" >/dev/null || {
    echo "once.sh: there is no $python" >&2
    exit 69
}
export SPENT_S=$SECONDS
mkdir -p "$out" || exit 73
"$python" -B "$kit/source/bench/gpu/once.py" "$kit" "$out" "${rehearse[@]}" "${again[@]}"
