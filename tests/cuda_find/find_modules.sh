#!/bin/sh
# SPDX-License-Identifier: MIT
# find_modules.sh CMAKE MODULES PROJECT: checks that CMake finds NVIDIA's libraries in each of the
# three layouts in which they are distributed. Of two versions it must find the right one, and it
# must not accept versions that are too old.
cmake=$1
modules=$2
project=$3
set -u
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-find.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

# header FOLDER cudnn MINOR | nccl | cublasLt: makes the header of one library.
header() {
    mkdir -p "$1"
    : >"$1/$2.h"
    [ "$2" != cudnn ] ||
        printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL 0\n' "$3" \
            >"$1/cudnn_version.h"
    [ "$2" != nccl ] ||
        printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n' >"$1/nccl.h"
}

# headers FOLDER CUDNN-MINOR: makes the headers of all three libraries.
headers() {
    header "$1" cudnn "$2"
    header "$1" nccl
    header "$1" cublasLt
}

# libraries FOLDER NAME...: makes empty library files.
libraries() {
    folder=$1
    shift
    mkdir -p "$folder"
    for name; do
        : >"$folder/$name"
    done
}

# find_them LAYOUT TOOLKIT WHEELS PACKAGE=LIBRARY...: CMake must find exactly these libraries.
find_them() {
    layout=$1
    toolkit=$2
    wheels=$3
    shift 3
    expect=$(printf '%s;' "$@")
    "$cmake" -S "$project" -B "$scratch/build.$layout" -D "MODULES=$modules" \
        -D "TREE=$scratch/$layout" -D "TOOLKIT=${toolkit:+$scratch/$layout$toolkit}" \
        -D "WHEELS=${wheels:+$scratch/$layout$wheels}" -D "EXPECT=${expect%;}" \
        >"$scratch/log" 2>&1 || {
        failures=$((failures + 1))
        echo "FAILED: $layout"
        grep -A2 'Error' "$scratch/log"
    }
}

# All headers and libraries are in /usr/local/cuda.
headers "$scratch/toolkit/usr/local/cuda/include" 19
libraries "$scratch/toolkit/usr/local/cuda/lib64" libcudnn.so libnccl.so libcublasLt.so
find_them toolkit /usr/local/cuda '' CUDNN=usr/local/cuda/lib64/libcudnn.so \
    NCCL=usr/local/cuda/lib64/libnccl.so CUBLASLT=usr/local/cuda/lib64/libcublasLt.so

# The libraries are a distribution's packages; the toolkit has none of them.
headers "$scratch/packages/usr/include/x86_64-linux-gnu" 10
libraries "$scratch/packages/usr/lib/x86_64-linux-gnu" libcudnn.so libnccl.so libcublasLt.so
find_them packages /usr/local/cuda '' CUDNN=usr/lib/x86_64-linux-gnu/libcudnn.so \
    NCCL=usr/lib/x86_64-linux-gnu/libnccl.so CUBLASLT=usr/lib/x86_64-linux-gnu/libcublasLt.so

# The libraries are in Python's wheels, without the file names (lib….so) that a linker looks for.
wheels=/opt/python/site-packages/nvidia
header "$scratch/wheels$wheels/cudnn/include" cudnn 15
header "$scratch/wheels$wheels/nccl/include" nccl
header "$scratch/wheels$wheels/cu13/include" cublasLt
libraries "$scratch/wheels$wheels/cudnn/lib" libcudnn.so.9
libraries "$scratch/wheels$wheels/nccl/lib" libnccl.so.2
libraries "$scratch/wheels$wheels/cu13/lib" libcublasLt.so.13
find_them wheels '' "$wheels" "CUDNN=${wheels#/}/cudnn/lib/libcudnn.so.9" \
    "NCCL=${wheels#/}/nccl/lib/libnccl.so.2" "CUBLASLT=${wheels#/}/cu13/lib/libcublasLt.so.13"

# Both the toolkit and the wheels have the libraries. CMake must find the toolkit's, and must never
# combine a header of one with a library of the other.
cp -R "$scratch/wheels" "$scratch/both"
headers "$scratch/both/usr/local/cuda/include" 19
libraries "$scratch/both/usr/local/cuda/lib64" libcudnn.so libnccl.so libcublasLt.so
find_them both /usr/local/cuda "$wheels" CUDNN=usr/local/cuda/lib64/libcudnn.so \
    NCCL=usr/local/cuda/lib64/libnccl.so CUBLASLT=usr/local/cuda/lib64/libcublasLt.so

# The toolkit has only nvcc; the libraries are in wheels.
cp -R "$scratch/wheels" "$scratch/mixed"
mkdir -p "$scratch/mixed/usr/local/cuda/include" "$scratch/mixed/usr/local/cuda/lib64"
find_them mixed /usr/local/cuda "$wheels" "CUDNN=${wheels#/}/cudnn/lib/libcudnn.so.9" \
    "NCCL=${wheels#/}/nccl/lib/libnccl.so.2" "CUBLASLT=${wheels#/}/cu13/lib/libcublasLt.so.13"

# The libraries are too old, or absent.
headers "$scratch/old/usr/local/cuda/include" 7
libraries "$scratch/old/usr/local/cuda/lib64" libcudnn.so libnccl.so libcublasLt.so
find_them old /usr/local/cuda '' CUDNN= NCCL=usr/local/cuda/lib64/libnccl.so
mkdir -p "$scratch/nothing"
find_them nothing /usr/local/cuda '' CUDNN= NCCL= CUBLASLT=

[ "$failures" -eq 0 ]
