#!/bin/sh
# SPDX-License-Identifier: MIT
# host.sh CMAKE SOURCE WORK [build]: configures a host project that contains Lockstep, by add_subdirectory with static
# libraries and by FetchContent with shared ones; with `build` each way has both kinds, and two of the four hosts are also
# built, run as C11 and as C++17, and installed, from two copies of the sources in two folders, and of the others the
# programs with the worker pool. All targets of Lockstep have its prefix, the host's own settings stay, nothing of Lockstep is installed with the
# host, and the objects of both builds have the same bytes.
set -eu
cmake=$1 source=$2 work=$3 build=${4-}
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

# configure WAY SHARED SOURCE: in the folder WAY-SHARED
configure()
{
    folder=$work/$1-$2
    # Generators of Ninja files tell all targets.
    "$cmake" -S "$here/host" -B "$folder" -G Ninja -D WAY="$1" -D LOCKSTEP="$3" -D CONSUMER="$here/consumer" \
        -D BUILD_SHARED_LIBS="$2" -D CMAKE_C_FLAGS=-g >log 2>&1 || die "$1: the configuration fails"
    grep -q 'was found\|left out\|Looking for CUDA' log && die "$1: it looks for what nobody asked for"
    : >log
    grep -E '^(CMAKE_BUILD_TYPE|BUILD_TESTING):[A-Z]*=.+' "$folder/CMakeCache.txt" && die "$1: a setting has changed"
    [ ! -e "$folder/compile_commands.json" ] || die "$1: CMAKE_EXPORT_COMPILE_COMMANDS has changed"
    targets=$("$cmake" --build "$folder" --target help | sed -n 's|^\(.*\): phony$|\1|p' |
        grep -v -e / -e '^cmake_' -e '[.]\(a\|so\)$' -e '^\(ls_\|lockstep\)' -e '^\(all\|clean\|help\|test\|edit_cache\)$' \
            -e '^\(rebuild_cache\|list_install_components\|install\|build.ninja\|default\)$')
    own=$(sed -n '/^foreach(name/,/)/p' "$here/names.cmake" | tr -d '()' | sed 's/foreachname//' | tr -s ' \n' '\n')
    for target in $targets; do
        echo "$own" | grep -qx -- "$target" || die "$1: the target $target has no prefix"
    done
}

# build WAY SHARED PROGRAM...: builds the programs in both languages, and runs them.
build()
{
    way=$1 shared=$2 folder=$work/$1-$2
    shift 2
    for program in "$@"; do
        "$cmake" --build "$folder" --parallel 2 --target "${program}_C" "${program}_CXX" >log 2>&1 ||
            die "$way: the build of $program fails"
        for language in C CXX; do
            "$folder/${program}_$language" >out 2>&1 || die "$way: ${program}_$language fails: $(cat out)"
            kind=$(readelf -d "$folder/${program}_$language" | grep -c 'NEEDED.*liblockstep' || true)
            case $shared-$kind in
            ON-1 | OFF-0) ;;
            *) die "$way: ${program}_$language links $kind shared libraries of Lockstep" ;;
            esac
        done
    done
}

# build_all WAY SHARED
build_all()
{
    build "$1" "$2" trainer pool
    "$cmake" --build "$folder" --parallel 2 >log 2>&1 || die "$1: the build fails"
    "$cmake" --install "$folder" --prefix "$folder/prefix" >log 2>&1 || die "$1: the installation fails"
    [ "$(find "$folder/prefix" -type f)" = "$folder/prefix/bin/trainer_C" ] ||
        die "$1: installed with the host: $(find "$folder/prefix" -type f)"
}

# objects FOLDER: names and checksums of what was compiled of Lockstep
objects() { (cd -- "$1" && find . -name '*.c.o' -exec sha256sum {} + | LC_ALL=C sort -k 2); }

command -v ninja >/dev/null || exit 77
copy=$source
if [ -n "$build" ]; then
    copy=$work/a\ copy/of-the-sources
    mkdir -p -- "$copy"
    for part in CMakeLists.txt src include third_party; do
        cp -R -- "$source/$part" "$copy"
    done
fi
for way in add_subdirectory FetchContent; do
    for shared in OFF ON; do
        case $build-$way-$shared in
        -add_subdirectory-ON | -FetchContent-OFF) continue ;;
        esac
        [ $way = FetchContent ] && from=$copy || from=$source
        configure $way $shared "$from"
    done
done
[ -n "$build" ] || exit 0
build_all add_subdirectory OFF
build_all FetchContent ON
build add_subdirectory ON pool
build FetchContent OFF pool
objects add_subdirectory-OFF/lockstep >first
objects FetchContent-ON/_deps/lockstep-build >second
[ "$(wc -l <first)" -ge 150 ] || die "only $(wc -l <first) objects were found"
cmp first second || die "two builds differ: $(diff first second | head -n 4)"
rm -rf -- "$work"
