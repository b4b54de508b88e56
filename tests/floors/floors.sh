#!/bin/sh
# SPDX-License-Identifier: MIT
# floors.sh ROOT: checks every source under ROOT/src and ROOT/include with floors.awk, and that the
# files that ROOT/src/README.md names exist.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cd -- "$1"

# The map names files that are there.
# shellcheck disable=SC2016
lost=$(grep -o '`[a-z]*/[a-z_0-9/]*\.[a-z]*`' src/README.md | tr -d '`' | sort -u | while read -r file; do
    [ -f "src/$file" ] || [ -f "$file" ] || echo "src/README.md: there is no src/$file"
done)
[ -z "$lost" ] || {
    printf '%s\n' "$lost"
    exit 1
}

find src include -type f \
    \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) \
    -exec awk -f "$here/floors.awk" {} +
