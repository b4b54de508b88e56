#!/bin/bash
# SPDX-License-Identifier: MIT
# rehearsal.sh SOURCE BUILD [GPUS]: the folder that pack.sh creates, moved elsewhere, runs a whole
# call over the doubles, which simulate this number of GPUs (1). Steps that need PyTorch are skipped
# if the system's Python has none.
source=$1 build=$2 gpus=${3:-1}
set -u
[ -e "${LOCKSTEP_DATA:-/usr/share/datasets}/fashion-mnist/train-images-idx3-ubyte.gz" ] || {
    echo "skipped: there is no Fashion-MNIST"
    exit 77
}
[ -x /usr/bin/python3 ] || {
    echo "skipped: there is no /usr/bin/python3"
    exit 77
}
work=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-rehearsal.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
"$source/bench/gpu/pack.sh" --built "$build" "$work/packed" || exit 1
mv "$work/packed" "$work/kit"
LOCKSTEP_DOUBLE_GPUS=$gpus SLOWER=${SLOWER:-4} "$work/kit/once.sh" --rehearse "$work/out"
status=$?
cat "$work/out/once.md"
[ "$(wc -l <"$work/out/once.md")" -le 60 ] || {
    echo "FAILED: the summary has more than 60 lines"
    status=1
}
wanted='several: done'
[ "$gpus" -gt 1 ] || wanted='several: skipped'
grep -q "$wanted" "$work/out/once.log" || {
    echo "FAILED: with $gpus GPUs there is no '$wanted'"
    status=1
}
[ $status -eq 0 ] || for log in "$work"/kit/results/once/*.log; do
    echo "== $log"
    tail -n 20 "$log"
done
exit $status
