#!/bin/sh
# SPDX-License-Identifier: MIT
# dev_run.sh BUILD SOURCE: the targets that `./dev run` builds produce every library and program that
# `cmake --install` installs after it. In a build folder with all targets nothing would be missing, so
# the test asks ninja what it would build. Skipped if the build folder is not ninja's.
set -eu
build=$1 source=$2
if ! command -v ninja >/dev/null || [ ! -e "$build/build.ninja" ]; then
    echo "skipped: the build folder is not ninja's"
    exit 77
fi
targets=$(sed -n 's/^    build release OFF \(trainer .*\) || exit$/\1/p' "$source/dev")
[ -n "$targets" ] || {
    echo "./dev run names no targets"
    exit 1
}
# shellcheck disable=SC2086 # a list of words
made=$(ninja -C "$build" -t commands $targets | tr ' ' '\n')
failed=0 count=0
for file in $(find "$build/src" -name cmake_install.cmake -exec cat {} + |
    sed -n "s|.*_LIBRARY FILES \"$build/\\([^\"]*\\)\".*|\\1|p" | sort -u) "$source/trainer"; do
    count=$((count + 1))
    printf '%s\n' "$made" | grep -qxF -- "$file" || {
        echo "./dev run builds no $file, which is installed"
        failed=1
    }
done
[ "$count" -ge 5 ] || {
    echo "found only $count files that are installed"
    failed=1
}
exit $failed
