#!/bin/sh
# SPDX-License-Identifier: MIT
# changed.sh SOURCE_DIR STAMP_FILE
#     exits with 0 if the inputs of the tests with the label `doubles` have changed since these
#     tests passed, or if there is no stamp; otherwise exits with 1
# changed.sh --passed SOURCE_DIR STAMP_FILE
#     writes the stamp; called after the tests have passed
#
# The inputs are the sources of the back end, of digests, of the communicators' tree, of the network and
# of the workers' steps, the public headers, and the sources of these tests. The stamp is a hash of names and contents.
set -u
LC_ALL=C
export LC_ALL
passed=
if [ "${1-}" = --passed ]; then
    passed=true
    shift
fi
if [ $# -ne 2 ] || [ ! -d "$1/src/cuda" ]; then
    echo 'usage: changed.sh [--passed] SOURCE_DIR STAMP_FILE' >&2
    exit 64
fi
stamp=$2

# Runs in the source folder, so that the stamp does not depend on the folder's path.
hash_of_all() {
    cd -- "$1" || exit
    find src/base src/cuda src/engine src/merge src/nn include/lockstep tests/cuda tests/cuda_* tests/doubles \
        tests/train/test_flips.c -type f \
        ! -name '*.pyc' -exec sha256sum {} + | sort -k 2 | sha256sum | cut -d ' ' -f 1
}

found=$(hash_of_all "$1") || exit 74
if [ -n "$passed" ]; then
    printf '%s\n' "$found" >"$stamp.new" && mv -- "$stamp.new" "$stamp"
    exit
fi
[ ! -e "$stamp" ] || [ "$(cat -- "$stamp")" != "$found" ]
