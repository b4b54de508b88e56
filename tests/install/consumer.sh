#!/bin/sh
# SPDX-License-Identifier: MIT
# consumer.sh WAY WHAT KIND PREFIX LIBDIR WORK CMAKE CC CXX: builds and runs a program that uses
# only the installed PREFIX, as C11 and as C++17.
#   WAY   cmake or pkgconfig     WHAT  pool, trainer or picture     KIND  shared, static, or archive: static where
#                                                                         there is no shared library
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
way=$1 what=$2 kind=$3 prefix=$4 libdir=$5 work=$6 cmake=$7 cc=$8 cxx=$9
rm -rf -- "$work"
mkdir -p -- "$work"
cp -- "$here/consumer/CMakeLists.txt" "$here/consumer/$what.c" "$work"
cd -- "$work"

die()
{
    echo "$way, $what, $kind: $*"
    exit 1
}

# needed FILE: the libraries it names
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

by_cmake()
{
    case $what-$kind in
    pool-shared) set -- "$1" pool lockstep::pool ;;
    pool-static) set -- "$1" pool lockstep::pool_static ;;
    pool-archive) set -- "$1" pool lockstep::pool ;;
    trainer-shared | trainer-archive) set -- "$1" '' lockstep::lockstep ;;
    trainer-static) set -- "$1" static lockstep::static ;;
    picture-shared) set -- "$1" picture lockstep::picture ;;
    esac
    "$cmake" -S . -B "$1" -D CMAKE_PREFIX_PATH="$prefix" -D LANGUAGE="$1" -D COMPONENTS="$2" \
        -D TARGET="$3" -D SOURCE="$what.c" -D NAMES="$here/names.cmake" -D CMAKE_C_COMPILER="$cc" -D CMAKE_CXX_COMPILER="$cxx" \
        >"$1.log" 2>&1 || {
        cat "$1.log"
        die "cmake fails"
    }
    grep -q "^lockstep_DIR:PATH=$prefix/" "$1/CMakeCache.txt" || die "another lockstep was found"
    "$cmake" --build "$1" >"$1.log" 2>&1 || {
        cat "$1.log"
        die "the build fails"
    }
    mv "$1/consumer" "consumer_$1"
}

# With both kinds installed, the linker has to be told that it is the archive.
by_pkgconfig()
{
    name=lockstep-$what
    [ "$what" != trainer ] || name=lockstep
    export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
    compiler="$cc -std=c11"
    [ "$1" = C ] || compiler="$cxx -std=c++17 -x c++"
    cflags=$(pkg-config --cflags "$name")
    if [ "$kind" = static ]; then
        libs=$(pkg-config --static --libs "$name" |
            sed 's/-l\(lockstep[a-z_]*\)/-l:lib\1.a/')
    else
        libs=$(pkg-config --libs "$name")
    fi
    # shellcheck disable=SC2086 # words on purpose
    $compiler -Wall -Wextra -pedantic -Werror $cflags "$what.c" -x none $libs -o "consumer_$1" ||
        die "does not compile: $cflags $libs"
}

[ "$way" = cmake ] || command -v pkg-config >/dev/null || exit 77
for language in C CXX; do
    case $way in
    cmake) by_cmake "$language" ;;
    pkgconfig) by_pkgconfig "$language" ;;
    esac
    "./consumer_$language" || die "$language: the program fails"
    if needed "consumer_$language" | grep -q '^liblockstep'; then
        [ "$kind" = shared ] || die "$language: linked the shared library"
    else
        [ "$kind" != shared ] || die "$language: linked the archive"
    fi
done

# liblockstep needs no picture library, and does not know of the library that does.
if [ "$what" = picture ]; then
    needed "$prefix/$libdir/liblockstep.so" | grep -e spng -e jpeg -e picture && die "liblockstep needs them"
fi

# The pool needs the C library and its threads, and nothing else.
if [ "$what" = pool ]; then
    for file in consumer_C "$prefix/$libdir/liblockstep_pool.so"; do
        [ -e "$file" ] || continue
        others=$(needed "$file" | grep -v -e '^libc\.so' -e '^libpthread\.so' -e '^ld-linux' \
            -e '^liblockstep_pool\.so') && die "$file needs $others"
    done
fi
exit 0
