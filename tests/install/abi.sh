#!/bin/sh
# SPDX-License-Identifier: MIT
# abi.sh CMAKE SOURCE WORK BASELINES [--renew]: the binary interface of each shared library (exported functions, and the
# types that they reach) is the one that BASELINES/*.abi describe, and a change of a structure and of a symbol that is
# made here on purpose is found. The libraries are built anew for this, unoptimised and with full debugging information.
# Skipped without libabigail's tools.
set -eu
cmake=$1 source=$(cd -- "$2" && pwd) work=$3 baselines=$4
for tool in abidw abidiff ninja; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool (Debian's abigail-tools, ninja-build)"
        exit 77
    }
done
rm -rf -- "$work"
mkdir -p -- "$work"
cd -- "$work"
sh "$source/src/package/debian.sh" --copy tree
# libabigail knows public headers by their last names, so no other header may have such a name.
for public in tree/include/lockstep/*.h tree/include/lockstep/sys/*.h; do
    name=${public##*/}
    for private in tree/src/*/"$name"; do
        [ -e "$private" ] || continue
        room=${private#tree/src/}
        room=${room%/*}
        mv -- "$private" "tree/src/$room/private_$name"
        find tree/src -name '*.[ch]' -exec sed -i "s|#include \"$room/$name\"|#include \"$room/private_$name\"|" {} +
    done
done
quietly()
{
    "$@" >log 2>&1 || {
        tail -n 50 log
        echo "failed: $*"
        exit 1
    }
}
build() { quietly "$cmake" --build build --target "$@"; }
# The interface does not depend on back ends, nor on options of the program.
quietly "$cmake" -S tree -B build -G Ninja -D CMAKE_BUILD_TYPE=None -D CMAKE_C_FLAGS='-g -O0' -D BUILD_TESTING=OFF \
    -D LOCKSTEP_CPU=OFF -D LOCKSTEP_CUDA=OFF -D LOCKSTEP_MPI=OFF -D LOCKSTEP_HTTP=OFF -D LOCKSTEP_PROGRAM=OFF \
    -D LOCKSTEP_EXAMPLES=OFF -D LOCKSTEP_BENCH=OFF
libraries='lockstep lockstep_pool'
targets='lockstep_shared lockstep_pool_shared'
if "$cmake" --build build --target help | grep '^lockstep_picture_shared:' >log; then
    libraries="$libraries lockstep_picture"
    targets="$targets lockstep_picture_shared"
fi
# shellcheck disable=SC2086 # a list of words
build $targets

# describe LIBRARY FILE: without what depends on the machine and on the folder, and without types of no public header.
describe()
{
    abidw --headers-dir tree/include/lockstep --drop-private-types --exported-interfaces-only --no-architecture \
        --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --type-id-style hash --out-file "$2" \
        "build/src/lib$1.so"
}
if [ "${5-}" = --renew ]; then
    mkdir -p -- "$baselines"
    for library in $libraries; do
        describe "$library" "$baselines/$library.abi"
    done
    exit
fi
failed=0
# differs LIBRARY: prints how the interface differs from the baseline
differs()
{
    describe "$1" now.abi
    ! abidiff --fail-no-debug-info "$baselines/$1.abi" now.abi >differences 2>&1
}
for library in $libraries; do
    ! differs "$library" || {
        cat differences
        failed=1
    }
done
[ $failed -eq 0 ] || {
    cat <<TEXT

The interface has changed. docs/stability.md says in which version it may, and how; if it is meant so, CHANGELOG.md says
what to change in a program, and this describes the new interface:

    sh tests/install/abi.sh cmake . /tmp/abi "\$PWD/tests/install/abi" --renew
TEXT
    exit 1
}

# planted WHAT FILE SED-SCRIPT WORD: the library with a changed file differs, and the differences name WORD.
planted()
{
    cp -- "tree/$2" saved
    sed -i "$3" "tree/$2"
    ! cmp -s saved "tree/$2" || {
        echo "$1: nothing was planted in $2"
        exit 1
    }
    build lockstep_pool_shared
    if differs lockstep_pool && grep -q "$4" differences; then
        echo "found: $1"
    else
        cat differences
        echo "not found: $1"
        failed=1
    fi
    cp -- saved "tree/$2"
}
planted 'a structure with another field' include/lockstep/pool.h 's/^    int workers;.*/    int planted;\n&/' planted
planted 'a symbol that is not exported any more' src/package/exports/lockstep_pool.map.in '/ls_pool_busy;/d' ls_pool_busy
build lockstep_pool_shared
! differs lockstep_pool || {
    cat differences
    echo "the library as it was differs"
    failed=1
}
rm -rf -- tree build
exit $failed
