#!/bin/sh
# SPDX-License-Identifier: MIT
# no_locks.sh TRAINER CONFIG SHIM: a file system on which flock fails with one of these errors (524
# has no name) does not stop a run: it warns, trains, saves, and resumes with the same weights.
set -eu
trainer=$1 config=$2 shim=$3
work=$(mktemp -d)
work=$(cd "$work" && pwd -P)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

fail()
{
    echo "FAILED: errno $error: $*"
    head -n 5 "$work/said"
    exit 1
}

without_locks()
{
    LD_PRELOAD=$shim LS_FS_ROOT=$work LS_FS_CALLS=flock LS_FS_AT=1 LS_FS_FAULT=$error LS_FS_KEEP=1 \
        "$trainer" "$@" --quiet >"$work/out" 2>"$work/said"
}

"$trainer" "$config" --set epochs=2 --set run_dir="$work/plain" --quiet >"$work/out" 2>&1
for error in 524 37 38 95 5; do # ENOTSUPP, ENOLCK, ENOSYS, EOPNOTSUPP, EIO
    run=$work/run-$error
    without_locks "$config" --set epochs=1 --set run_dir="$run" || fail "the run ended with $?"
    grep -q "$run: its file system gives no lock (.*), so a second run" "$work/said" ||
        fail "expected a warning"
    without_locks --resume "$run" --set epochs=2 || fail "the resumed run ended with $?"
    cmp -s "$work/plain/weights.safetensors" "$run/weights.safetensors" || fail "other weights"
done
grep -q 'not supported by the file system' "$work/said" && fail "the text of 524 for another error"
exit 0
