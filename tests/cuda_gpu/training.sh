# SPDX-License-Identifier: MIT
# Helpers for tests that train on GPUs and compare weights, to be sourced with `.`: POSIX sh.
#
#     . "$(dirname "$0")/training.sh"          # creates $scratch, removed when the script ends
#     "$program" … --metrics "$scratch/metrics.jsonl" 2>"$scratch/train.err"
#     found=$(weights "$scratch/metrics.jsonl")
#     [ "$found" = "$wanted" ] || fail 'expected the same weights'
#     finish
#
# `finish` exits with 1 if an expectation failed.

# shellcheck shell=sh
set -u
LC_ALL=C
export LC_ALL
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-gpu.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
XDG_CACHE_HOME=$scratch/cache # so that kernels are chosen anew, and all runs use this choice
export XDG_CACHE_HOME
failures=0

# fail TEXT...: counts a failed expectation, and prints the programs' stderr ($scratch/*.err).
fail() {
    failures=$((failures + 1))
    echo "FAILED: $*"
    for said in "$scratch"/*.err; do
        [ ! -s "$said" ] || cat "$said"
    done
}

# weights METRICS...: prints the hash of each run's weights, one a line; nothing for a run that did
# not end normally.
weights() { sed -n 's/.*"weights_sha256":"\([0-9a-f]\{64\}\)".*/\1/p' "$@" 2>/dev/null; }

finish() { [ "$failures" -eq 0 ]; exit; }
