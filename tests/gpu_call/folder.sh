#!/bin/bash
# SPDX-License-Identifier: MIT
# folder.sh SOURCE BUILD: in the folder that pack.sh creates, every program and library finds all
# that it needs in lib/, in the libraries of glibc and gcc, or among NVIDIA's, which empty libraries
# replace here.
source=$1 build=$2
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
kit=$work/kit
"$source/bench/gpu/pack.sh" --built "$build" --no-data "$kit"

failures=0
fail()
{
    failures=$((failures + 1))
    echo "FAILED: $*"
}

files=$(find "$kit/build" "$kit/lib" -type f)
mkdir "$work/nvidia"
echo 'typedef int empty;' >"$work/empty.c"
for name in $(for file in $files; do objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }'; done |
    grep -E '^(libcu|libnv|libnccl)' | sort -u); do
    cc -shared -Wl,-soname,"$name" -o "$work/nvidia/$name" "$work/empty.c"
    echo "NVIDIA's: $name"
done
for file in $files; do
    found=$(LD_LIBRARY_PATH=$work/nvidia:$kit/lib ldd "$file" 2>&1) || fail "$file: $found"
    while read -r name arrow path _; do
        [ "$arrow" = '=>' ] || continue
        case $name in
        libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libgcc_s.so.* | libstdc++.so.* | ld-linux*) ;;
        *)
            case $path in
            "$work"/*) ;;
            *) fail "${file#"$kit"/} takes $name from $path" ;;
            esac
            ;;
        esac
    done <<<"$found"
done

for file in once.sh tests.json paper.json source/bench/gpu/once.py source/CMakeLists.txt include/cmocka.h \
    build/trainer build/liblockstep-cuda.so build/tests/cuda_gpu/doubled/liblockstep-cuda.so \
    build/bench/gpu/gpu_facts build/bench/gpu/gpu_sweep build/gpu_rounds build/gpu_merge; do
    [ -s "$kit/$file" ] || fail "there is no $file"
done
# Every script, data file and program that the suite's commands name was carried too.
while read -r file; do
    case $file in
    @SOURCE@/*) [ -e "$kit/source/${file#*/}" ] || fail "the suite needs $file" ;;
    *) [ -x "$kit/build/${file#*/}" ] || fail "the suite needs $file" ;;
    esac
done < <(grep -o '@\(SOURCE\|BUILD\)@/[^" ]*' "$kit/tests.json" | sort -u)
[ $failures -eq 0 ] && echo "$(echo "$files" | wc -l) files find all they need"
