#!/bin/sh
# SPDX-License-Identifier: MIT
# symbols.sh LIBRARY MAP: LIBRARY exports exactly the symbols that its version script MAP lists, each in its node. A
# pattern would export what nobody has decided on, so the script has none but `local: *`.
set -eu
list()
{
    nm -D --defined-only --with-symbol-versions "$1" |
        sed -n 's/^[0-9a-f]* [TDBRWV] //p' | LC_ALL=C sort
}
listed()
{
    awk '
        /[{]$/ { node = $1 }
        /^ *global:/ { global = 1; next }
        /^ *local:/ { global = 0; next }
        global && /;$/ { sub(/^ */, ""); sub(/;$/, ""); print $0 "@@" node }' "$1" | LC_ALL=C sort
}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM
listed "$2" >"$work/listed"
list "$1" >"$work/exported"
[ -s "$work/listed" ] || {
    echo "$2 lists nothing"
    exit 1
}
! grep -F '*' "$work/listed" || {
    echo "$2 has a pattern among the exported symbols; list each symbol"
    exit 1
}
diff -u -- "$work/listed" "$work/exported" && exit
cat <<TEXT

$1 exports other symbols than its version script lists (src/package/exports).
A symbol that is listed and missing (-) breaks programs: that is for a new minor version. A symbol that is exported and
not listed (+) has no node.
TEXT
exit 1
