#!/bin/sh
# SPDX-License-Identifier: MIT
# examples.sh PREFIX LIBDIR WORK CC NAME...: builds these installed examples against the installed
# library and runs them. An example whose first comment says how it is compiled is compiled by that
# command.
set -eu
prefix=$1 libdir=$2 work=$3 cc=$4
shift 4
command -v pkg-config >/dev/null || exit 77
rm -rf -- "$work"
mkdir -p -- "$work"
cp -- "$prefix"/share/doc/lockstep/examples/*.c "$work"
cd -- "$work"
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig"
cc() { "$cc" "$@"; }
for name; do
    line=$(sed -n 's/^ \*  *\(cc .*\)/\1/p' "$name.c" | head -n 1)
    # shellcheck disable=SC2016 # evaluated below
    eval "${line:-cc "$name.c" -pthread \$(pkg-config --cflags --libs lockstep) -o $name}"
    "./$name"
done
