#!/bin/sh
# SPDX-License-Identifier: MIT
# musl.sh WORK: builds the program and the unit tests with musl, static, and runs them. A run has to be verified, and to have
# the weights that ./trainer gives, if it was built. Needs Debian's musl-tools, cmake, ninja-build and a network; zlib, cJSON,
# Nettle and cmocka are built from Debian's sources. All files are in WORK. Takes about five minutes of CPU time.
#
#     sh tests/install/musl.sh /var/tmp/musl
#
# Left out: the plugins (a static program loads none), pictures, the live page; tests that count allocations, because they
# wrap functions of glibc's allocator, and the simulated file system, which takes the place of glibc's functions. Of the
# unit tests two fail: `plugin`, which loads one, and `store_files`, which knows glibc's texts of errors.
set -eu
mkdir -p -- "$1"
work=$(cd -- "$1" && pwd)
source=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
prefix=$work/prefix
cd -- "$work"
rm -rf -- "$prefix" sources build kernel lists
mkdir -p -- "$prefix/lib" "$prefix/include/cjson" sources kernel lists/partial

# The sources of this Debian, without a change of its lists.
# shellcheck disable=SC1091
. /etc/os-release
echo "deb-src http://deb.debian.org/debian $VERSION_CODENAME main" >debian.list
debian()
{
    apt-get -q -o Dir::Etc::SourceList="$work/debian.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User="$(id -un)" "$@"
}
debian update
(cd sources && debian source --download-only zlib cjson nettle cmocka &&
    for package in *.dsc; do dpkg-source --no-check -x "$package"; done) >sources.log
(cd sources/zlib-*/ && CC=musl-gcc ./configure --static --prefix="$prefix" && make libz.a &&
    cp libz.a "$prefix/lib" && cp zlib.h zconf.h "$prefix/include") >zlib.log 2>&1
(cd sources/nettle-*/ && CC=musl-gcc ./configure --prefix="$prefix" --libdir="$prefix/lib" --disable-shared \
    --disable-public-key --disable-documentation --disable-openssl &&
    make libnettle.a && make install-headers install-static) >nettle.log 2>&1
musl-gcc -O2 -c sources/cjson-*/cJSON.c -o cjson.o
cp sources/cjson-*/cJSON.h "$prefix/include/cjson"
musl-gcc -O2 -w -D_GNU_SOURCE -DHAVE_SIGNAL_H -DHAVE_STRINGS_H -DHAVE_STDINT_H -DHAVE_INTTYPES_H -DHAVE_MALLOC_H \
    -DHAVE_STRUCT_TIMESPEC -DHAVE_CLOCK_GETTIME -I sources/cmocka-*/include -c sources/cmocka-*/src/cmocka.c -o cmocka.o
cp sources/cmocka-*/include/*.h "$prefix/include"
ar rcs "$prefix/lib/libcjson.a" cjson.o
ar rcs "$prefix/lib/libcmocka.a" cmocka.o

# The kernel's headers alone: those beside them are glibc's.
include=/usr/include/$(gcc -print-multiarch)
ln -s /usr/include/linux /usr/include/asm-generic "$include/asm" kernel/

cmake -S "$source" -B build -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_C_COMPILER=musl-gcc \
    -D CMAKE_C_FLAGS="-isystem $prefix/include -idirafter $work/kernel" -D CMAKE_EXE_LINKER_FLAGS="-static -L$prefix/lib" \
    -D CMAKE_PREFIX_PATH="$prefix" -D CMAKE_FIND_ROOT_PATH="$prefix" -D CMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY \
    -D CMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY -D BUILD_SHARED_LIBS=OFF -D LOCKSTEP_CUDA=OFF -D LOCKSTEP_MPI=OFF \
    -D LOCKSTEP_HTTP=OFF -D LOCKSTEP_PNG=OFF -D LOCKSTEP_JPEG=OFF -D LOCKSTEP_WEBP=OFF
cmake --build build --target lockstep_trainer >program.log
cmake --build build -- -k 0 >build.log 2>&1 || grep -c '^FAILED' build.log | sed 's/$/ targets were not built (build.log)/'
ctest --test-dir build -L unit --timeout 300 >ctest.log 2>&1 || grep -e '(Failed)' -e '(Not Run)' ctest.log || true

run() { "$1" "$source/examples/fashion_mnist.json" --devices "$2" --set data.name=synthetic --set data.limit=2048 \
    --set epochs=2 --set run_dir="$work/runs/$2" --quiet; }
rm -rf runs
run build/trainer cpu:2
build/trainer verify runs/cpu:2 --all
[ ! -x "$source/trainer" ] || {
    run "$source/trainer" cpu:1
    cmp runs/cpu:1/weights.safetensors runs/cpu:2/weights.safetensors
    echo "the weights have the bits of this machine's C library"
}
