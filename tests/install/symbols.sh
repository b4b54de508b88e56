#!/bin/sh
# symbols.sh LIBRARY GOLDEN [--renew]: LIBRARY exports exactly the symbols in GOLDEN.
set -eu
list()
{
    nm -D --defined-only --with-symbol-versions "$1" |
        sed -n 's/^[0-9a-f]* [TDBRWV] //p' | LC_ALL=C sort
}
if [ "${3-}" = --renew ]; then
    list "$1" >"$2"
    exit
fi
list "$1" | diff -u -- "$2" - && exit
cat <<TEXT

$1 exports other symbols than $2 lists.
A missing one (-) breaks programs: that is for a new minor version. A new one (+) has to be declared
and documented in a public header. If it is meant so:

    sh tests/install/symbols.sh $1 \\
        $2 --renew
TEXT
exit 1
