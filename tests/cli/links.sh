#!/bin/sh
# SPDX-License-Identifier: MIT
# Nothing in a run directory is written through a symbolic link: the target of the link remains
# unchanged.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"

# Each file of a finished run in turn is replaced by a symbolic link. Then the run is resumed, and a
# report is written.
run config.json --set run_dir=whole --set epochs=2 --set metrics.tensorboard=true
expect_code 0
run report whole
expect_code 0
{ [ -e whole/report.html ] && [ -e whole/lock ] && [ -e whole/metrics.jsonl ]; } || fail 'expected the files'
for file in whole/*; do
    name=${file#whole/}
    [ -f "$file" ] || continue
    rm -rf run elsewhere
    cp -r whole run
    mkdir elsewhere
    mv "run/$name" "elsewhere/$name"
    printf 'precious\n' >>elsewhere/"$name" # what a run cuts away or writes anew
    cp "elsewhere/$name" before
    ln -s "../elsewhere/$name" "run/$name"
    run --resume run --quiet
    run report run
    cmp -s before "elsewhere/$name" || fail "expected that $name is not written through a link"
    rm -rf elsewhere/*
    run --resume run --quiet
    run report run
    [ -z "$(ls elsewhere)" ] || fail "expected that $name is not made through a link"
done

# The message names the link. The page is written as a regular file again.
cp -r whole links
mv links/lock lock && ln -s ../lock links/lock
expect_failure 74 'links/lock: is a symbolic link, which is not followed for writing; put the file itself there, or remove the link' \
    --resume links
mv lock links/lock
mv links/metrics.jsonl metrics.jsonl && ln -s ../metrics.jsonl links/metrics.jsonl
run --resume links
expect_code 74
expect_error 'links/metrics.jsonl: is a symbolic link, which is not followed for writing; put the file itself there, or remove the link'
run report links # reading goes through
expect_code 0
mv links/report.html report.html && ln -s ../report.html links/report.html
run report links
expect_code 0
{ [ -f links/report.html ] && [ ! -L links/report.html ]; } || fail 'expected a file in the place of the link'

# A directory of checkpoints that is a link is refused, because old checkpoints would be deleted in
# its target.
cp -r whole moved
mv moved/checkpoints checkpoints && ln -s ../checkpoints moved/checkpoints
run --resume moved
expect_code 74
expect_error 'moved/checkpoints: is no directory; links are not followed for writing: put the directory itself there, or choose another run_dir'
run eval moved # reading goes through
expect_code 0

# The path of the run directory itself may contain a link, because the user has chosen it.
ln -s whole alias
run --resume alias --quiet
expect_code 0

finish
