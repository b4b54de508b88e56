#!/bin/sh
# SPDX-License-Identifier: MIT
# one_kind.sh CMAKE SOURCE WORK LIBDIR CC CXX: installs Lockstep's libraries without the program, as an archive alone
# and as shared libraries alone (BUILD_SHARED_LIBS), and uses them by their usual names. There is no program, and an
# option that is ON without its library is an error. The sources are the release's archive, unless something is not
# committed.
set -eu
cmake=$1 source=$2 work=$3 libdir=$4 cc=$5 cxx=$6
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
rm -rf -- "$work"
mkdir -p -- "$work"
cd -- "$work"

die()
{
    echo "$*"
    [ ! -s log ] || cat log
    exit 1
}

# configure FOLDER OPTION...
configure()
{
    folder=$1
    shift
    "$cmake" -S "$source" -B "$folder" -D BUILD_TESTING=OFF -D LOCKSTEP_PROGRAM=OFF -D LOCKSTEP_BENCH=OFF \
        -D LOCKSTEP_EXAMPLES=OFF -D LOCKSTEP_CUDA=OFF -D LOCKSTEP_MPI=OFF -D LOCKSTEP_HTTP=OFF -D LOCKSTEP_PNG=OFF \
        -D LOCKSTEP_JPEG=OFF -D LOCKSTEP_WEBP=OFF -D CMAKE_BUILD_TYPE=Release -D CMAKE_C_FLAGS_RELEASE=-O1 \
        -D CMAKE_C_COMPILER="$cc" "$@" >log 2>&1
}

if [ -z "$(git -C "$source" status --porcelain 2>&1)" ]; then
    archive=$(cd -- "$source" && ./dev dist) || die "there is no archive"
    (cd -- "$source/build/dist" && sha256sum --quiet -c ./*.sha256) || die "the checksum is not the archive's"
    tar -xzf "$source/$archive"
    source=$(echo "$PWD"/lockstep-*)
fi

for shared in OFF ON; do
    configure build -D BUILD_SHARED_LIBS=$shared || die "the configuration fails" # the objects are the same
    "$cmake" --build build --parallel 2 >log 2>&1 || die "the build fails"
    "$cmake" --install build --prefix "$work/prefix_$shared" >log 2>&1 || die "the installation fails"
    kind=shared other='*.a'
    [ $shared = ON ] || kind=archive other='*.so*'
    found=$(find "prefix_$shared" -name "$other" -o -name trainer -o -name lockstep.1 -o -name lockstep -path '*/bin/*')
    [ -z "$found" ] || die "installed: $found"
    for what in trainer pool; do
        for way in cmake pkgconfig; do
            sh "$here/consumer.sh" $way $what $kind "$work/prefix_$shared" "$libdir" "$work/use" "$cmake" "$cc" "$cxx" ||
                [ $? -eq 77 ] || die "$way, $what, $kind"
        done
    done
done

configure without -D LOCKSTEP_WEBP=ON -D CMAKE_DISABLE_FIND_PACKAGE_WebP=ON && die "an option that is ON is ignored"
grep -q "LOCKSTEP_WEBP is ON, and WebP was not found" log || die "the message does not name the option"
rm -rf -- "$work"
