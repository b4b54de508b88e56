#!/bin/sh
# SPDX-License-Identifier: MIT
# seeds.sh TRAINER CONFIG LOW HIGH SEED...: trains with each seed and checks that the test accuracy
# of every run is between LOW and HIGH. Skipped (77) if the data is missing.
set -eu
trainer=$1
config=$2
low=$3
high=$4
shift 4
failed=0
for seed; do
    status=0
    line=$("$trainer" "$config" --quiet --set seed="$seed" --set run_dir=null --set eval_every=0) || status=$?
    [ "$status" -ne 66 ] || exit 77
    [ "$status" -eq 0 ] || exit 1
    accuracy=$(echo "$line" | sed -n 's/^test acc: \([0-9.]*\),.*/\1/p')
    echo "seed $seed: $line"
    awk -v a="$accuracy" -v low="$low" -v high="$high" 'BEGIN { exit !(a >= low && a <= high) }' || {
        echo "seed $seed: test accuracy $accuracy is outside $low … $high"
        failed=1
    }
done
exit $failed
