#!/bin/sh
# SPDX-License-Identifier: MIT
# Every command that writes a file, under a limit on the size of files (ulimit -f): exit code 74 and
# a message that names the file and the reason, instead of an end by SIGXFSZ. No incomplete file is
# left at the name of the output.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"

# limited FILE ARGUMENT...: no byte of a file can be written. Standard error is a pipe, because the
# limit would hold for a file too.
limited() {
    file=$1
    shift
    label="trainer $* under ulimit -f 0"
    : >stdout.txt
    {
        (ulimit -f 0 && exec "$program" "$@" 2>&1 >/dev/null </dev/null)
        echo $? >code.txt
    } | cat >stderr.txt
    code=$(cat code.txt)
    expect_code 74
    grep -q "^trainer: .*$file.*: File too large" stderr.txt || fail "expected that $file is too large"
    [ -d "$file" ] || [ ! -s "$file" ] || fail "expected no part of $file"
}

run config.json --set run_dir=run
expect_code 0
awk 'BEGIN { print "a,y"; for (i = 0; i < 80; i++) print i % 9 - 4.5 "," i % 2 }' >table.csv
mkdir -p images/a images/b
for class in a b; do printf 'P5\n2 2\n255\n%s' "$class$class$class$class" >images/$class/1.pgm; done

limited new config.json --set run_dir=new
limited trace.json config.json --trace trace.json
limited records.jsonl config.json --metrics records.jsonl
limited own.json init table.csv --target y --to own.json
limited packed.safetensors pack images --to packed.safetensors --size 2
limited swept.json sweep config.json --vary lr=0.05 --json swept.json
limited kept sweep config.json --vary lr=0.05 --keep kept
limited found.json find-lr config.json --steps 20 --json found.json
limited curve.svg find-lr config.json --steps 20 --svg curve.svg
limited run/report.html report run
limited verified.json verify run --all --devices ref:1 --to verified.json
limited run/verified.json verify run --all --devices ref:1
grep -q -e '--to FILE writes the result elsewhere' stderr.txt || fail 'expected the way out'
limited wrong.csv eval run --wrong wrong.csv
limited predicted.csv predict run --rows 0:10 --to predicted.csv
limited model.onnx export run --to model.onnx
limited model.safetensors export run --to model.safetensors
limited compare.html compare run run --to compare.html

finish
