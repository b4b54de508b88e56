#!/bin/sh
# SPDX-License-Identifier: MIT
# emulated.sh EMULATED TWINS ORDERS [small]: checks that each kernel, run on the CPU (emulated.h), gives
# the results of its twin in plain C, and the same bits in every order of its blocks and threads.
# ORDERS: those that are compared with the ascending one, as in emulated.h; or none.
# small: without the largest shapes.
set -u
emulated=$1
twins=$2
orders=$3
[ "$orders" != none ] || orders=
shift 3
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-emulated.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
"$twins" write "$scratch/twins.bin" "$@" || exit
"$emulated" write "$scratch/ascending.bin" "$@" || exit
"$twins" compare "$scratch/ascending.bin" "$scratch/twins.bin" >"$scratch/compared.txt" || {
    grep -v 'same bits' "$scratch/compared.txt"
    exit 1
}
tail -n 1 "$scratch/compared.txt"
failed=0
for order in $orders; do
    LOCKSTEP_EMULATED_ORDER=$order "$emulated" write "$scratch/other.bin" "$@" || exit
    if cmp -s "$scratch/ascending.bin" "$scratch/other.bin"; then
        echo "order $order: the same bits"
    else
        echo "order $order: other bits than in ascending order:"
        "$twins" compare "$scratch/other.bin" "$scratch/ascending.bin" | grep -v 'same bits'
        failed=1
    fi
done
exit $failed
