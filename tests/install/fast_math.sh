#!/bin/sh
# SPDX-License-Identifier: MIT
# fast_math.sh CMAKE SOURCES WORK_FOLDER: the configuration fails with compiler flags that allow
# sums to be reordered, and the message names the flag.
set -eu
cmake=$1 sources=$2 work=$3
for flag in -ffast-math -Ofast -fassociative-math; do
    rm -rf -- "$work"
    if "$cmake" -S "$sources" -B "$work" -D BUILD_TESTING=OFF -D LOCKSTEP_CUDA=OFF \
        -D CMAKE_C_FLAGS="-O2 $flag" >"$work.log" 2>&1; then
        echo "FAILED: $flag was accepted"
        exit 1
    fi
    grep -q -e "$flag is among the flags" "$work.log" || {
        cat "$work.log"
        echo "FAILED: the message does not name $flag"
        exit 1
    }
done
rm -rf -- "$work" "$work.log"
