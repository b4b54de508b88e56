#!/bin/sh
# SPDX-License-Identifier: MIT
# headers.sh ROOT STANDARD COMPILER: every public header compiles on its own, without a warning.
set -u
root=$1
standard=$2
compiler=${3:-}
case $compiler in
'' | *NOTFOUND)
    echo "skipped: no compiler for $standard"
    exit 77
    ;;
esac
case $standard in
c++*) language=c++ ;;
*) language=c ;;
esac

# The header is compiled twice over, so that its guard is tried too.
failed=0
cxx=
[ "$language" = c ] || cxx=$root/include/lockstep/lockstep.hpp
for header in "$root"/include/lockstep/*.h "$root"/include/lockstep/sys/*.h $cxx; do
    name=${header#"$root"/include/}
    printf '#include <%s>\n#include <%s>\nint lockstep_header_alone;\n' "$name" "$name" |
        "$compiler" -x "$language" -std="$standard" -pedantic -Wall -Wextra -Werror \
            -I "$root/include" -fsyntax-only - || {
        echo "$name does not compile alone as $standard"
        failed=1
    }
done
exit $failed
