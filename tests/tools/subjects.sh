#!/bin/sh
# SPDX-License-Identifier: MIT
# Right and wrong subjects of commits, checked by .ci/subjects.
#     subjects.sh PATH_OF_SUBJECTS
set -eu
check() { printf '%s\n' "$1" | python3 "$subjects" - >/dev/null; }
subjects=$1
for right in "Add a row" "sync: wake the producer of a closed ring" "train, data: feed rows in order" \
    "sync: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; do
    check "$right" || { echo "refused: $right" >&2; exit 1; }
done
for wrong in "tests: what AVX2 alone runs" "Fixed the queue" "Adding a row" "cli: add a row." "The queue is shorter" \
    "sync: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; do
    ! check "$wrong" || { echo "accepted: $wrong" >&2; exit 1; }
done
