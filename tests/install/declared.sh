#!/bin/sh
# SPDX-License-Identifier: MIT
# declared.sh LIBRARY ARCHIVE ROOT CC: the shared library exports every function that a public
# header declares and the archive defines.
set -eu
library=$1 archive=$2 root=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM
cat "$root"/include/lockstep/*.h "$root"/include/lockstep/sys/*.h | "$cc" -fpreprocessed -dD -E -P - 2>"$work/log" |
    grep -oE '\bls_[a-z0-9_]+ ?\(' | tr -d ' (' | LC_ALL=C sort -u >"$work/declared"
nm --defined-only "$archive" 2>>"$work/log" | sed -n 's/^[0-9a-f]* T \(ls_.*\)/\1/p' |
    LC_ALL=C sort -u >"$work/defined"
nm -D --defined-only "$library" | sed -n 's/^[0-9a-f]* T \(ls_[^@]*\).*/\1/p' |
    LC_ALL=C sort -u >"$work/exported"
LC_ALL=C comm -12 "$work/declared" "$work/defined" | LC_ALL=C comm -23 - "$work/exported" >"$work/hidden"
[ -s "$work/defined" ] && [ -s "$work/exported" ] || exit 1
[ -s "$work/hidden" ] || exit 0
echo "declared in a public header and not exported:"
sed 's/^/  /' "$work/hidden"
echo "list them in src/package/exports, and put the declarations between"
echo "'#pragma GCC visibility push(default)' and 'pop', as in pool.h"
exit 1
