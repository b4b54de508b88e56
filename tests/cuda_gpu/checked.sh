#!/bin/sh
# SPDX-License-Identifier: MIT
# checked.sh TOOL PROGRAM [ARGUMENT...]: runs the program under compute-sanitizer's memcheck or
# racecheck. For `sh kernels.sh …` only the program with the kernels runs under it. Skipped if the
# tool is not installed, or if it reports that it does not support this device.
tool=$1
shift
set -u
sanitizer=$(command -v compute-sanitizer) || sanitizer=/usr/local/cuda/bin/compute-sanitizer
[ -x "$sanitizer" ] || {
    echo "skipped: there is no compute-sanitizer"
    exit 77
}
log=$(mktemp "${TMPDIR:-/tmp}/lockstep-sanitizer.XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT
if [ "$1" = sh ]; then
    "$@" "$sanitizer" --tool "$tool" --error-exitcode 9 >"$log" 2>&1
else
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1
fi
status=$?
tail -n 40 "$log"
if grep -q 'Device not supported' "$log"; then
    echo "skipped: compute-sanitizer does not support this device"
    exit 77
fi
exit $status
