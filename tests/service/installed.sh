#!/bin/sh
# SPDX-License-Identifier: MIT
# installed.sh PREFIX LIBDIR SOURCE-FOLDER WORK CC PYTHON: builds the service with the installed
# library, by the command in its README.md, and sends it requests.
set -eu
prefix=$1 libdir=$2 source=$3 work=$4 cc=$5 python=$6
command -v pkg-config >/dev/null || {
    echo 'skipped: no pkg-config'
    exit 77
}
rm -rf -- "$work"
mkdir -p -- "$work/examples" "$work/src"
cp -r -- "$source/examples/service" "$work/examples"
cp -r -- "$source/src/http" "$work/src"
cd -- "$work"
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig" LD_LIBRARY_PATH="$prefix/$libdir"
cc() { "$cc" "$@"; }
line=$(sed -n 's/^    \(cc .*\)/\1/p' examples/service/README.md)
[ -n "$line" ] || {
    echo 'README.md does not say how the service is compiled'
    exit 1
}
eval "$line"
"$python" "$source/tests/service/stories.py" ./lockstep-service "$source" resumes
