#!/bin/sh
# floors.sh ROOT: checks every source under ROOT/src and ROOT/include with floors.awk.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd -- "$1"
find src include -type f \
    \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) \
    -exec awk -f "$here/floors.awk" {} +
