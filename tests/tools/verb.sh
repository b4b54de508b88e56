# SPDX-License-Identifier: MIT
# Helpers for tests of the program's verbs, to be sourced with `.`: POSIX sh.
#
#     . "$(dirname "$0")/verb.sh"       # $1 is the program; creates and enters a directory
#     expect 64 "$trainer" eval         # its output is stored in out and err
#     has err 'which run?'
#     finish

# shellcheck shell=sh
# shellcheck disable=SC2034 # trainer is for the scripts that read this
set -u
trainer=$1
place=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-test-XXXXXX") || exit 71
trap 'rm -rf -- "$place"' EXIT
cd -- "$place" || exit 71
failures=0

fail()
{
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

# expect STATUS COMMAND...
expect()
{
    wanted=$1
    shift
    "$@" >out 2>err
    status=$?
    [ $status -eq "$wanted" ] || {
        fail "exit code $status instead of $wanted: $*"
        cat err >&2
    }
}

has() { grep -qe "$2" "$1" || fail "$1 does not have: $2; it has: $(head -c 600 "$1")"; }
lacks() { ! grep -qe "$2" "$1" || fail "$1 has: $2"; }

finish()
{
    [ $failures -gt 0 ] || echo "all as expected"
    exit $((failures > 0))
}
