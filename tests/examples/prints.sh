#!/bin/sh
# SPDX-License-Identifier: MIT
# prints.sh EXPECTED PROGRAM [ARGUMENT...]: the program succeeds and prints the content of EXPECTED.
# A .txt file is the exact text; in a .pattern file each line is an extended regular expression that
# must match the whole line.
set -u
expected=$1
shift
printed=$("$@") || {
    echo "$1 failed"
    exit 1
}
case $expected in
*.txt)
    printf '%s\n' "$printed" | diff -u "$expected" -
    exit
    ;;
esac

wanted=$(wc -l <"$expected")
found=$(printf '%s\n' "$printed" | wc -l)
[ "$wanted" -eq "$found" ] || {
    printf 'expected %d lines, found %d:\n%s\n' "$wanted" "$found" "$printed"
    exit 1
}
failed=0
number=0
while IFS= read -r pattern; do
    number=$((number + 1))
    line=$(printf '%s\n' "$printed" | sed -n "${number}p")
    printf '%s\n' "$line" | grep -qxE -e "$pattern" || {
        printf 'line %d: expected %s\n         found    %s\n' "$number" "$pattern" "$line"
        failed=1
    }
done <"$expected"
exit $failed
