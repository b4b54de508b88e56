#!/bin/sh
# SPDX-License-Identifier: MIT
# man_page.sh TRAINER PAGE: the man page has the options that the program's help has, command by
# command, and the same exit codes.
set -eu
trainer=$1 page=$2
failed=0

# The usage lines of the program's help.
usage() { "$trainer" --help | sed '/^$/,$d'; }

# Option names in the help of the command $1; without, in the program's.
helped()
{
    "$trainer" ${1:+"$1"} --help | sed '1,/^$/d' |
        sed -n 's/^  \(-[a-z-]*\)\( .*\)*$/\1/p'
}

# Option names in the part of the page that is about command $1; without, in its first part.
documented()
{
    awk -v command="$1" '
        /^\.S[hs]/ { on = command == "" ? /DESCRIPTION/ : $2 == "lockstep" && $3 == command }
        on && /^\.It Fl/ { print }' "$page" | sed 's/^\.It Fl \\*\([a-z-]*\).*/-\1/'
}

compare()
{
    helped "$1" | LC_ALL=C sort -u >"$work/helped"
    documented "$1" | LC_ALL=C sort >"$work/documented"
    diff "$work/helped" "$work/documented" >"$work/diff" && return
    echo "trainer $1: --help (<) and the man page (>) differ:"
    cat "$work/diff"
    failed=1
}

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

compare ''
for command in $(usage | grep -oE "(${trainer##*/}|\|) +[a-z-]+" | sed 's/.* //'); do
    compare "$command"
done
for code in $("$trainer" --help | sed -n '/^Exit codes/,$p' | grep -oE '[0-9]+'); do
    grep -qx "\.It $code" "$page" || {
        echo "the man page lacks exit code $code"
        failed=1
    }
done
if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$page" || failed=1
fi
exit $failed
