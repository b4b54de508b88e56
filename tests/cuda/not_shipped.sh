#!/bin/sh
# SPDX-License-Identifier: MIT
# not_shipped.sh [FILE...]: checks that no file that is built for users contains a double of the
# CUDA runtime or of NCCL. The first FILE must contain doubles, which shows that the check works.
set -u
failed=0
doubles() {
    nm --defined-only "$1" 2>/dev/null | grep -E ' [A-Za-z] (dbl_[a-z]|cuda[A-Z]|nccl[A-Z])' |
        head -5
}
holder=$1
shift
if [ -z "$(doubles "$holder")" ]; then
    echo "$holder holds doubles, but they are not found"
    failed=1
fi
for file in "$@"; do
    [ -e "$file" ] || continue
    found=$(doubles "$file")
    if [ -n "$found" ]; then
        echo "$file holds doubles:"
        echo "$found"
        failed=1
    else
        echo "$file: none"
    fi
done
exit $failed
