#!/bin/sh
# pack.sh [FOLDER]: what a machine with a GPU may lack, taken from this one: headers and libraries of
# cJSON, Nettle, zlib and cmocka, and Fashion-MNIST, 33 MB in all. Copied to that machine as
# build/gpu-kit (the default), it is found there by once.sh.
set -eu
cd -- "$(dirname -- "$0")/../.."
kit=${1:-build/gpu-kit}
data=${LOCKSTEP_DATA:-/usr/share/datasets}/fashion-mnist

say() { printf 'pack: %s\n' "$*" >&2; }

rm -rf -- "$kit"
mkdir -p "$kit/include" "$kit/lib" "$kit/datasets/fashion-mnist"

# The headers that these four include, without those of every system's C library.
cat >"$kit/all.c" <<'TEXT'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <cjson/cJSON.h>
#include <nettle/sha2.h>
#include <nettle/version.h>
#include <zlib.h>
TEXT
cc -M "$kit/all.c" | tr -s ' ' '\n' | grep -E '/(cmocka|cjson|nettle|zlib|zconf)' |
    sort -u | while read -r header; do
    case $header in
    */cjson/* | */nettle/*) folder=$(basename "$(dirname "$header")") ;;
    *) folder=. ;;
    esac
    mkdir -p "$kit/include/$folder"
    cp -- "$header" "$kit/include/$folder"
done
rm -f "$kit/all.c"

# Each under the name that the linker looks for and under the one that the loader does; no links,
# which not every way of copying keeps.
for name in cjson nettle z cmocka; do
    library=$(readlink -f "$(cc -print-file-name=lib$name.so)")
    [ -e "$library" ] || {
        say "there is no lib$name.so; third_party/setup.sh installs it"
        exit 1
    }
    soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
    cp -- "$library" "$kit/lib/lib$name.so"
    cp -- "$library" "$kit/lib/$soname"
done

if [ -e "$data/train-images-idx3-ubyte.gz" ]; then
    cp -- "$data"/*.gz "$kit/datasets/fashion-mnist"
else
    say "there is no Fashion-MNIST in $data: parity with PyTorch and the benchmarks will lack it"
fi
say "$kit: $(du -sk -- "$kit" | cut -f 1) kB, $(uname -m)"
