#!/bin/sh
# SPDX-License-Identifier: MIT
# planted_barriers.sh EMULATED SOURCE_DIR: removes each of the kernels' barriers in turn. Without
# the barrier, some order of threads must give other bits, or crash. If no order does, either the
# barrier is unnecessary, or no case of kernels_cases needs it. Barriers that are marked as being
# for more than 65,535 images are not tried, because emulated threads are too slow for so many
# images.
set -u
emulated=$1
sources=$2
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-barriers.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0
count=0
"$emulated" write "$scratch/whole.bin" small || exit

# missed FILE:LINE: prints the order of threads that shows that this barrier is missing.
missed() {
    for order in ascending descending 1 2; do
        LOCKSTEP_EMULATED_WITHOUT=$1 LOCKSTEP_EMULATED_ORDER=$order \
            "$emulated" write "$scratch/without.bin" small 2>"$scratch/said" || {
            echo "$order: it crashed"
            return 0
        }
        cmp -s "$scratch/whole.bin" "$scratch/without.bin" || {
            echo "$order"
            return 0
        }
    done
    return 1
}

for barrier in $(cd "$sources" && grep -n '__syncthreads()' ./*.cu ./*.cuh | grep -v '65,535' |
    sed 's|^\./\([^:]*:[0-9]*\):.*|\1|'); do
    count=$((count + 1))
    if order=$(missed "$barrier"); then
        echo "$barrier: missed in order $order"
    else
        echo "$barrier: NOT missed in any order"
        failed=1
    fi
done
echo "$count barriers"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
