#!/bin/sh
# SPDX-License-Identifier: MIT
# archive_names.sh ARCHIVE...: all global names of the archives begin with ls_. A program that links an archive has all
# other names for itself, except those beginning with __, which are the compiler's.
set -eu
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM
for archive; do
    nm -A -g --defined-only "$archive" >"$work/all" 2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
    grep -q ' T ls_' "$work/all" || {
        echo "$archive defines nothing"
        exit 1
    }
    if grep -vE ' [A-Za-z] (ls_|__)[A-Za-z0-9_.]*$' "$work/all"; then
        echo "these names of $archive can be those of a program that links it: let them begin with ls_"
        exit 1
    fi
done
