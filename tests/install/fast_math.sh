#!/bin/sh
# SPDX-License-Identifier: MIT
# fast_math.sh CMAKE SOURCES WORK_FOLDER CC: the configuration fails with compiler flags that allow
# sums to be reordered, and the message names the flag: flags of the build, and options of a host
# that contains Lockstep. With gcc a flag that CMake does not see fails in the compiler.
set -eu
cmake=$1 sources=$2 work=$3 cc=$4
rm -rf -- "$work"
mkdir -p -- "$work/host"

die()
{
    cat "$work/log"
    echo "FAILED: $*"
    exit 1
}

# refuses FLAG ARGUMENT...: the configuration with these arguments names FLAG
refuses()
{
    flag=$1
    shift
    rm -rf -- "$work/build"
    ! "$cmake" -B "$work/build" "$@" >"$work/log" 2>&1 || die "$flag was accepted: $*"
    tr -s ' \n' ' ' <"$work/log" | grep -q -e "$flag is among the flags" || die "the message does not name $flag: $*"
}

# host OPTIONS: a host that gives OPTIONS to add_compile_options before it adds Lockstep
host()
{
    cat >"$work/host/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.22)
project(host LANGUAGES C CXX)
add_compile_options($1)
add_subdirectory("$sources" lockstep)
TEXT
}

for flag in -ffast-math -Ofast -fassociative-math -fno-signed-zeros; do
    refuses $flag -S "$sources" -D BUILD_TESTING=OFF -D LOCKSTEP_CUDA=OFF -D CMAKE_C_FLAGS="-O2 $flag"
done
refuses -freciprocal-math -S "$sources" -D BUILD_TESTING=OFF -D LOCKSTEP_CUDA=OFF \
    -D CMAKE_BUILD_TYPE=Debug -D CMAKE_C_FLAGS_DEBUG="-freciprocal-math -g"
for options in -funsafe-math-optimizations '-O3 -Ofast -g' '$<$<CONFIG:Release>:-ffast-math>' \
    '$<$<CONFIG:Release>:-O3;-ffinite-math-only>' '"SHELL:-g -fno-signed-zeros"' '$<$<COMPILE_LANGUAGE:C>:-Ofast>'; do
    flag=$(printf '%s\n' "$options" | grep -oE -e '-(Ofast|f[a-z-]+)')
    host "$options"
    refuses "$flag" -S "$work/host" -D CMAKE_BUILD_TYPE=Release
done
host '-fno-math-errno -O3 $<$<COMPILE_LANGUAGE:CXX>:-ffast-math>'
"$cmake" -S "$work/host" -B "$work/accepted" >"$work/log" 2>&1 || die "a flag that is none of Lockstep's was refused"

# compile FLAG: compiles what all files that compute include
compile() { echo '#include "base/thread_state.h"' | "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L "$@" -I "$sources/src" -fsyntax-only -x c - >"$work/log" 2>&1; }

compile -O2 || die "it does not compile"
flags='-Ofast -ffast-math -ffinite-math-only'
if "$cc" -dM -E -x c - </dev/null | grep -q __GCC_IEC_559; then
    flags="$flags -funsafe-math-optimizations -freciprocal-math -fno-signed-zeros"
fi
for flag in $flags; do
    ! compile "$flag" || die "the compiler accepts $flag"
    grep -q 'lets the compiler reorder sums' "$work/log" || die "another error with $flag"
done
rm -rf -- "$work"
