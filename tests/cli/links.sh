#!/bin/sh
# Nothing in a run directory is written through a symbolic link: the target of the link remains
# unchanged.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"

# Every file of a finished run in turn gives its place to a link; then the run is resumed and reported on.
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

# The message says which it was; the page has its place again.
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

# Checkpoints in another place would be pruned there.
cp -r whole moved
mv moved/checkpoints checkpoints && ln -s ../checkpoints moved/checkpoints
run --resume moved
expect_code 74
expect_error 'moved/checkpoints: is no directory; links are not followed for writing: put the directory itself there, or choose another run_dir'
run eval moved # reading goes through
expect_code 0

# A directory is named by whoever starts the program: its own path may be a link.
ln -s whole alias
run --resume alias --quiet
expect_code 0

finish
