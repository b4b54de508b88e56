#!/bin/sh
# SPDX-License-Identifier: MIT
# places.sh CMAKE PROJECT SCRATCH CPU: builds in unusual conditions: in a path with blanks, from a
# source tree into which nothing may be written; if CPU is ON, with the CPU back end compiled by
# clang as well; and for 32 bits, which must be refused with a message.
cmake=$1
project=$2
scratch="$3/a path with blanks"
cpu=$4
set -u
writable() { [ ! -d "$1" ] || chmod -R u+w "$1"; }
writable "$3"
rm -rf "$3"
trap 'writable "$3"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$scratch/source"
cd "$project" || exit 1
for part in CMakeLists.txt src include third_party examples bench README.md LICENSE; do
    cp -R "$part" "$scratch/source" || exit 1
done
cd "$scratch" || exit 1
chmod -R a-w source # which root does not mind: what is written is looked for below
find source | LC_ALL=C sort >before

fail() {
    echo "$1"
    cat log
    exit 1
}

# configure BUILD OPTION...
configure() { "$cmake" -S source -B "$@" -D BUILD_TESTING=OFF -D LOCKSTEP_CUDA=OFF >log 2>&1; }

configure build -D CMAKE_BUILD_TYPE=Debug -D "LOCKSTEP_CPU=$cpu" || fail "the configuration fails"
"$cmake" --build build --parallel 2 --target lockstep_pool_shared --target ls_page --target embed_pool >log 2>&1 ||
    fail "the build fails"
build/examples/embed_pool >log 2>&1 || fail "the program fails"
find source | LC_ALL=C sort | diff before - >log || fail "something was written into the source tree"

if [ "$(uname -m)" = x86_64 ]; then
    configure small -D CMAKE_C_FLAGS=-m32 -D CMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY &&
        fail "it is configured for 32 bits"
    grep -q "Lockstep is for 64-bit machines" log || fail "the message does not say that 64 bits are needed"
fi
if [ "$cpu" = ON ] && command -v clang >/dev/null; then
    configure clang -D CMAKE_C_COMPILER=clang -D LOCKSTEP_CPU=ON || fail "with clang there is no CPU back end"
fi
chmod -R u+w source
rm -rf "$3"
