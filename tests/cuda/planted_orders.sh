#!/bin/sh
# SPDX-License-Identifier: MIT
# planted_orders.sh PROGRAM MODE: checks that each planted bug is detected, and that nothing is
# detected without a bug. planted_order.c lists the bugs.
set -u
program=$1
mode=$2
failed=0

out=$("$program" none "$mode" 2>&1) || {
    echo "without a bug it ended with status $?:"
    echo "$out" | head -40
    failed=1
}
for bug in staging event mixed bucket sync freed; do
    out=$("$program" $bug "$mode" 2>&1)
    status=$?
    case $status,$out in
    1,*noticed:*) how=$(echo "$out" | grep -m 1 noticed:) ;;
    66,*ThreadSanitizer*) how=$(echo "$out" | grep -m 1 SUMMARY) ;;
    *)
        echo "$bug: not noticed (status $status)"
        echo "$out" | head -40
        failed=1
        continue
        ;;
    esac
    echo "$bug: $how"
done
exit $failed
