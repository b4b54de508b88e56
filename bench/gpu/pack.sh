#!/bin/bash
# SPDX-License-Identifier: MIT
# pack.sh [--built BUILD] [--no-data] [FOLDER]: creates one folder with everything that
# bench/gpu/once.sh needs on a machine with a GPU, compiled and linked here for the GPUs of
# third_party/cmake/CudaLanguage.cmake. On that machine it is run by
#
#     FOLDER/once.sh RESULTS
#
# FOLDER is build/gpu-kit by default and has at most 60 MiB. It contains source/ (files that scripts
# read, and sources for a build on that machine if the programs do not load), build/ (programs, the
# plugin, and the plugin with simulated CUDA libraries, the doubles), lib/ and include/ (libraries
# that the machine may lack), datasets/, tests.json (the commands of the GPU suite) and paper.json
# (estimated times of a step). NVIDIA's libraries are those of the machine.
#
# --built BUILD uses an existing build; --no-data leaves Fashion-MNIST out. JOBS: number of
# compilers.
set -eu
here=$PWD
cd -- "$(dirname -- "$0")/../.."
build=
data=${LOCKSTEP_DATA:-/usr/share/datasets}/fashion-mnist
MOST_MIB=60

while :; do
    case ${1-} in
    --built) build=$(cd -- "$here" && cd -- "$2" && pwd) && shift 2 ;;
    --no-data) data= && shift ;;
    -*)
        echo "usage: pack.sh [--built BUILD] [--no-data] [FOLDER]" >&2
        exit 64
        ;;
    *) break ;;
    esac
done
kit=${1:-$PWD/build/gpu-kit}
case $kit in
/*) ;;
*) kit=$here/$kit ;;
esac

say() { printf 'pack: %s\n' "$*" >&2; }

end()
{
    say "$*"
    exit 1
}

# Programs look for what was carried with them in lib/, and for NVIDIA's libraries where the environment says.
make_build()
{
    build=$PWD/build/gpu
    generator=()
    ! command -v ninja >/dev/null || generator=(-G Ninja)
    launcher=()
    if command -v ccache >/dev/null; then
        launcher=(-D CMAKE_C_COMPILER_LAUNCHER=ccache -D CMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    say "building $build"
    # shellcheck disable=SC2016  # the loader's $ORIGIN
    cmake -S . -B "$build" "${generator[@]}" "${launcher[@]}" -D CMAKE_BUILD_TYPE=Release -D LOCKSTEP_CPU=OFF \
        -D LOCKSTEP_MPI=OFF -D LOCKSTEP_CUDA=ON -D LOCKSTEP_CARRIED=ON -U CMAKE_CUDA_ARCHITECTURES \
        -D LOCKSTEP_HTTP=OFF \
        -D CMAKE_BUILD_RPATH='$ORIGIN/../lib;$ORIGIN/../../lib;$ORIGIN/../../../lib;$ORIGIN/../../../../lib' \
        >"$build.log" 2>&1 || end "configuring failed: $(tail -n 3 "$build.log")"
    cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target gpu_suite cuda_nodes >>"$build.log" 2>&1 ||
        end "building failed, see $build.log: $(grep -m 1 -E 'error|FAILED' "$build.log")"
}

copy_sources()
{
    mkdir -p "$kit/source"
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . -path ./build -prune -o -type f -print0
    fi | grep -z -v -E '^(\./)?(tests/fuzz/corpus|docs/.*\.(svg|png)|\.git/)' |
        tar --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -xf - -C "$kit/source"
    cp bench/gpu/once.sh "$kit/once.sh"
    chmod +x "$kit/once.sh"
    git rev-parse --short HEAD >"$kit/source/COMMIT" 2>/dev/null || rm -f "$kit/source/COMMIT"
}

# The commands of the GPU suite, with placeholders for both folders, and the programs that the commands name.
copy_programs()
{
    ctest --test-dir "$build" --show-only=json-v1 -L '^gpu$' >"$kit/ctest.json"
    python3 -B bench/gpu/pack_tests.py "$kit/ctest.json" "$build" "$PWD" "$kit/tests.json" >"$kit/programs"
    trainer=$build/trainer
    [ -e "$trainer" ] || trainer=$PWD/trainer # such a build has the plugin in the same folder
    for file in "$trainer" "${trainer%/*}/liblockstep-cuda.so"; do
        install -D -s "$file" "$kit/build/${file##*/}"
    done
    {
        cat "$kit/programs"
        for name in gpu_facts gpu_overlap gpu_overlap_doubled gpu_sweep gpu_sweep_doubled; do
            echo "bench/gpu/$name"
        done
        for name in gpu_probe gpu_kernels gpu_twins gpu_tests gpu_resnet_gradient doubled/trainer \
            doubled/liblockstep-cuda.so; do
            echo "tests/cuda_gpu/$name"
        done
    } | sort -u | while read -r name; do
        [ -e "$build/$name" ] || end "$build/$name was not built"
        install -D -s "$build/$name" "$kit/build/$name"
    done
    for name in gpu_rounds gpu_merge; do # they look for the plugin in their own folder
        install -D -s "$build/bench/gpu/$name" "$kit/build/$name"
    done
    rm -f "$kit/ctest.json" "$kit/programs"
    nodes=$build/tests/cuda_ops/cuda_nodes
    [ ! -x "$nodes" ] || python3 -B bench/gpu/paper.py "$nodes" --json "$kit/paper.json" >/dev/null
}

# Copies system libraries that a machine with PyTorch may lack. glibc's and gcc's libraries are on every machine; the
# driver's and NVIDIA's libraries are those of the machine.
copy_libraries()
{
    mkdir -p "$kit/lib"
    find "$kit/build" -type f | while read -r file; do
        ldd "$file" 2>/dev/null
    done | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => \(\/[^ ]*\).*/\1 \2/p' | sort -u | while read -r name path; do
        case $name in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libgcc_s.so.* | libstdc++.so.* | \
            libcu*.so.* | libnv*.so.* | libnccl.so.*) ;;
        *) install -s "$(readlink -f "$path")" "$kit/lib/$name" ;;
        esac
    done
}

# Copies what a build on the machine needs: headers, except those of the C library, and libraries under the names that
# the linker searches for. There are no symbolic links, because some ways of copying a folder lose them.
copy_headers()
{
    mkdir -p "$kit/include"
    printf '#include <%s>\n' setjmp.h stdarg.h stddef.h stdint.h cmocka.h cjson/cJSON.h nettle/sha2.h nettle/hmac.h nettle/umac.h \
        nettle/version.h zlib.h >"$kit/all.c"
    cc -M "$kit/all.c" | tr -s ' ' '\n' | grep -E '/(cmocka|cjson|nettle|zlib|zconf)' | sort -u |
        while read -r header; do
        case $header in
        */cjson/* | */nettle/*) folder=$(basename "$(dirname "$header")") ;;
        *) folder=. ;;
        esac
        mkdir -p "$kit/include/$folder"
        cp -- "$header" "$kit/include/$folder"
    done
    rm -f "$kit/all.c"
    for name in cjson nettle z cmocka; do
        library=$(readlink -f "$(cc -print-file-name=lib$name.so)")
        [ -e "$library" ] || end "there is no lib$name.so; third_party/setup.sh installs it"
        install -s "$library" "$kit/lib/lib$name.so"
        install -s "$library" "$kit/lib/$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')"
    done
}

mkdir -p build
given=$build
[ -n "$build" ] || make_build
rm -rf -- "$kit"
mkdir -p "$kit"
copy_sources
copy_programs
copy_libraries
copy_headers
if [ -n "$data" ]; then
    [ -e "$data/train-images-idx3-ubyte.gz" ] || end "there is no Fashion-MNIST in $data"
    mkdir -p "$kit/datasets/fashion-mnist"
    cp -- "$data"/*.gz "$kit/datasets/fashion-mnist"
fi
size=$(du -sk --apparent-size -- "$kit" | cut -f 1)
say "$kit: $((size / 1024)) MiB, $(uname -m), in $SECONDS s"
# A build of --built can be for every GPU, and contain libraries of other tests. Then the folder is too large to copy.
if [ "$size" -gt $((MOST_MIB * 1024)) ]; then
    [ -n "$given" ] || end "more than $MOST_MIB MiB"
    say "more than $MOST_MIB MiB: only for a rehearsal here"
fi
