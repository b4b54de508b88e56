# SPDX-License-Identifier: MIT
# Helper functions for tests of the program, in POSIX sh. A test sources this file.
#
#     . "$(dirname "$0")/expect.sh"      # $1 is the program; creates and enters a directory
#     run config.json --set epochs=2     # stores stdout, stderr and the exit code
#     expect_code 0
#     expect_error 'config.json: …'      # exactly this one line from the program
#     finish
#
# A failed expectation prints what was found; `finish` exits with 1 if there was one.

# shellcheck shell=sh
# shellcheck disable=SC2034 # closing_line is for the scripts that read this
program=$1
set -u
LC_ALL=C
export LC_ALL
unset LOCKSTEP_DATA XDG_DATA_HOME NO_COLOR
# The directory is so deep that data beside a run, which is looked for up to three directories above
# it, is never a file of somebody else in /tmp.
scratch_root=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-cli.XXXXXX") || exit 1
trap 'cd /; rm -rf "$scratch_root"' EXIT
scratch=$scratch_root/within/three/levels
mkdir -p "$scratch" && cd "$scratch" || exit 1
failures=0
label=
code=

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s: %s\n' "$label" "$1"
    sed 's/^/    stdout: /' stdout.txt | head -n 8
    sed 's/^/    stderr: /' stderr.txt | head -n 12
    printf '    exit code: %s\n' "$code"
}

finish() {
    if [ "$failures" -gt 0 ]; then
        printf '%s expectations failed\n' "$failures"
        exit 1
    fi
    exit 0
}

skip() {
    printf 'skipped: %s\n' "$1"
    exit 77
}

run() {
    label="trainer $*"
    "$program" "$@" >stdout.txt 2>stderr.txt </dev/null
    code=$?
}

expect_code() {
    [ "$code" -eq "$1" ] || fail "expected exit code $1"
}

# Expects that the last line on stderr, the error of the program, is "trainer: $1".
expect_error() {
    [ "$(tail -n 1 stderr.txt)" = "trainer: $1" ] || fail "expected the error
        trainer: $1"
}

# expect_failure CODE TEXT ARGUMENT...: expects that the program with these arguments fails with
# this exit code and this error, and prints nothing on stdout.
expect_failure() {
    wanted_code=$1
    wanted_text=$2
    shift 2
    run "$@"
    expect_code "$wanted_code"
    expect_error "$wanted_text"
    [ ! -s stdout.txt ] || fail 'expected nothing on stdout'
}

# Expects a line on stderr that the basic regular expression $1 matches as a whole.
expect_stderr_line() {
    grep -qx -e "$1" stderr.txt || fail "expected a line on stderr like: $1"
}

expect_no_stderr_line() {
    ! grep -q -e "$1" stderr.txt || fail "expected no line on stderr like: $1"
}

expect_last_stdout_line() {
    tail -n 1 stdout.txt | grep -qx -e "$1" || fail "expected the last line on stdout like: $1"
}

closing_line='test acc: [01]\.[0-9][0-9], [0-9][0-9]*\.[0-9] sec/epoch on \[ref(0), ref(1)\] (synthetic data)'

# A small config. Its data is synthetic, so that no file is needed.
cat >config.json <<'END'
{
  "name": "small",
  "data": {"name": "synthetic", "limit": 96},
  "model": {"layers": [
    {"type": "conv2d", "name": "conv1", "out": 4, "kernel": 5},
    {"type": "relu"},
    {"type": "avg_pool", "kernel": 2},
    {"type": "flatten"},
    {"type": "dense", "name": "fc1", "out": 10}
  ]},
  "devices": "ref:2",
  "batch_size": 64,
  "shards": 4,
  "epochs": 1,
  "seed": 0,
  "init": {"name": "xavier"},
  "optimizer": {"name": "sgd", "lr": 0.05},
  "run_dir": null
}
END
