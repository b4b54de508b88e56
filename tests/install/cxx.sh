#!/bin/sh
# cxx.sh PREFIX LIBDIR WORK SOURCE: <lockstep/lockstep.hpp> of the installed library, with every C++
# compiler that is there: examples/embed.cpp, compiled by the command in its first comment, and
# raii.cpp.
set -eu
prefix=$1 libdir=$2 work=$3 here=$4
command -v pkg-config >/dev/null || {
    echo 'skipped: no pkg-config'
    exit 77
}
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
strict='-Wall -Wextra -Wpedantic -Wshadow -Wold-style-cast -Werror'
compiled=0
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    compiled=$((compiled + 1))
    rm -rf -- "$work"
    mkdir -p -- "$work"
    cp -- "$prefix/share/doc/lockstep/examples/embed.cpp" "$here/raii.cpp" "$work"
    cd -- "$work"
    line=$(sed -n 's|^// *c++ ||p' embed.cpp)
    eval "$compiler $strict $line"
    ./embed >embed.txt
    [ "$(grep -cx -e 'accuracy 0\.9[0-9]' -e 'in the circle: 1.00 and 0.00' embed.txt)" -eq 2 ] || {
        cat embed.txt
        echo "$compiler: embed learnt something else"
        exit 1
    }
    cat >other.cpp <<'END'
#include <lockstep/lockstep.hpp>

int status_of_a_missing_file()
{
    try {
        lockstep::model("no such file.safetensors");
    } catch (const lockstep::error &e) {
        return e.status;
    }
    return LS_OK;
}
END
    standard=c++17
    [ "$compiler" = g++ ] || standard=c++20
    # shellcheck disable=SC2046,SC2086 # words on purpose
    "$compiler" -std=$standard $strict raii.cpp other.cpp $(pkg-config --cflags --libs lockstep) -o raii
    ./raii
done
[ "$compiled" -gt 0 ] || {
    echo 'skipped: neither g++ nor clang++ is there'
    exit 77
}
