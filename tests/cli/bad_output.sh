#!/bin/sh
# SPDX-License-Identifier: MIT
# Output that cannot be written: the exact message, exit code 74, and only complete lines in the
# file. If the reader of a pipe closes it early, the files of the run are complete. $2 is
# check_metrics.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"
check=$2
fix='choose another run_dir, or --set run_dir=null for none'

# ---- the run directory ----
touch a_file
expect_failure 74 "a_file/run: cannot make the directory: Not a directory; $fix" \
    config.json --set run_dir=a_file/run
expect_failure 74 "a_file: cannot make the directory: Not a directory; $fix" \
    config.json --set run_dir=a_file
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked
    chmod 555 locked
    expect_failure 74 "locked/run: cannot make the directory: Permission denied; $fix" \
        config.json --set run_dir=locked/run
fi
run config.json --set run_dir=deep/er/run
expect_code 0
for file in config.json metrics.jsonl weights.safetensors; do
    [ -s deep/er/run/$file ] || fail "expected $file in the run directory"
done
"$check" deep/er/run/metrics.jsonl >check.txt || fail "$(cat check.txt)"
expect_failure 74 "deep/er/run: already holds a run (metrics.jsonl), which would be lost; $fix" \
    config.json --set run_dir=deep/er/run
mkdir other
touch other/weights.safetensors
expect_failure 74 "other: already holds a run (weights.safetensors), which would be lost; $fix" \
    config.json --set run_dir=other

# Without run_dir, a run creates a directory below runs/. Two runs that begin in the same second get
# different names.
grep -v run_dir config.json | sed 's/"lr": 0.05},/"lr": 0.05}/' >own.json
run own.json
expect_code 0
run own.json
expect_code 0
# shellcheck disable=SC2012 # the names are plain, and only counted
[ "$(ls -d runs/2*-small* | wc -l)" -eq 2 ] || fail 'expected two run directories'

# ---- a disk that is full ----
run config.json --metrics /dev/full
expect_code 74
expect_error '--metrics /dev/full: cannot write: No space left on device'
expect_failure 74 '--metrics no/such/file: cannot write: No such file or directory' \
    config.json --metrics no/such/file
label='trainer config.json >/dev/full'
"$program" config.json >/dev/full 2>stderr.txt
code=$?
expect_code 74
expect_error 'standard output: cannot write: No space left on device'
for option in --help --version --print-config; do
    label="trainer config.json $option >/dev/full"
    "$program" config.json $option >/dev/full 2>stderr.txt
    code=$?
    expect_code 74
done
# a config that is longer than the buffer of the standard output
layers=$(awk 'BEGIN { for (i = 0; i < 400; i++) print "{\"type\": \"relu\"}," }')
echo '{"data": {"name": "synthetic"}, "model": {"layers": ['"$layers"' {"type": "flatten"}, {"type": "dense", "out": 10}]},
    "optimizer": {"name": "sgd", "lr": 0.1}}' >long.json
label='trainer long.json --print-config >/dev/full'
"$program" long.json --print-config >/dev/full 2>stderr.txt
code=$?
expect_code 74
expect_error 'standard output: cannot write: No space left on device'

# ---- what is not replaced ----
# Outputs that are replaced as a whole never replace a device, a pipe or a directory. Outputs as
# text are written into a device or a pipe.
mkfifo pipe.onnx && ln -s pipe.onnx pipe.safetensors
said='expected the name of a file, found a pipe'
expect_failure 64 "\"pipe.onnx\": $said" export deep/er/run --to pipe.onnx
expect_failure 64 "\"pipe.safetensors\": $said" export deep/er/run --to pipe.safetensors
expect_failure 64 "\"pipe.onnx\": $said" config.json --set run_dir=null --trace pipe.onnx
expect_failure 64 "\"pipe.onnx\": $said" pack images --to pipe.onnx
{ [ -p pipe.onnx ] && [ -L pipe.safetensors ]; } || fail 'expected the pipe, and the link to it'
if mknod null.onnx c 1 3 2>/dev/null; then # root only
    expect_failure 64 '"null.onnx": expected the name of a file, found a device' \
        export deep/er/run --to null.onnx
    [ -c null.onnx ] || fail 'expected the device'
fi

# A link is followed by each verb that writes a file for other programs, to a file that is there or
# is not there yet, and stays. Two links in a row, the second one relative to another folder.
mkdir -p store/images
for kind in onnx safetensors; do
    ln -s store/$kind current.$kind
    ln -s images/$kind store/$kind
    for time in first second; do
        run export deep/er/run --to current.$kind
        expect_code 0
        { [ -L current.$kind ] && [ -L store/$kind ] && [ -s store/images/$kind ]; } ||
            fail "expected a file at the end of the links, the $time time"
    done
    cmp -s current.$kind store/images/$kind || fail "expected one file"
done
rm store/images/safetensors
mkdir -p images/a images/b
for class in a b; do printf 'P5\n2 2\n255\n%s%s' $class "$class$class$class" >images/$class/1.pgm; done
run pack images --to current.safetensors --size 2
expect_code 0
{ [ -L current.safetensors ] && [ -s store/images/safetensors ]; } || fail 'expected a packed file at the end of the links'
run report deep/er/run -o /dev/null
expect_code 0
[ -c /dev/null ] || fail 'expected a device'

# A limit on the size of files simulates a disk that becomes full during the run. The records that
# fit are complete lines, and no incomplete file of weights is left.
label='trainer under ulimit -f'
: >stdout.txt
(ulimit -f 8 && exec "$program" config.json --set epochs=9 --set run_dir=limited) >stdout.txt 2>stderr.txt
code=$?
expect_code 74
grep -q 'trainer: limited/.*: .*: File too large' stderr.txt || fail 'expected the reason'
[ -s limited/metrics.jsonl ] || fail 'expected the records that did fit'
"$check" --cut limited/metrics.jsonl >check.txt || fail "$(cat check.txt)"
[ ! -e limited/weights.safetensors ] || fail 'expected no half of a weights file'
# shellcheck disable=SC2012 # the names are plain, and only counted
[ "$(ls -A limited | wc -l)" -eq 5 ] || fail 'expected config, metrics, notes, lock and checkpoints alone'
[ -z "$(ls -A limited/checkpoints)" ] || fail 'expected no half of a checkpoint'

# A disk that really becomes full, if the user is allowed to mount one.
mkdir disk
if mount -t tmpfs -o size=12k none disk 2>mount.txt; then
    run config.json --set epochs=30 --set run_dir=disk/run
    expect_code 74
    grep -q 'No space left on device' stderr.txt || fail 'expected the reason'
    "$check" --cut disk/run/metrics.jsonl >check.txt || fail "$(cat check.txt)"
    umount disk
fi

# ---- pipes that close ----
label='trainer --metrics - | head -n 1'
{ "$program" config.json --metrics - --set epochs=20 --set run_dir=piped 2>stderr.txt; echo $? >code.txt; } |
    head -n 1 >stdout.txt
code=$(cat code.txt)
expect_code 0
grep -q '^{"type":"run_start"' stdout.txt || fail 'expected the first record'
"$check" piped/metrics.jsonl >check.txt || fail "$(cat check.txt)"
grep -q '"type":"run_end"' piped/metrics.jsonl || fail 'expected all records in the run directory'
[ -s piped/weights.safetensors ] || fail 'expected weights'
expect_stderr_line "$closing_line"
label='trainer | true'
{ "$program" config.json --set run_dir=piped2 2>stderr.txt; echo $? >code.txt; } | true
code=$(cat code.txt)
expect_code 0
[ -s piped2/weights.safetensors ] || fail 'expected weights'
# If a standard stream is closed, no file that the program opens may get its descriptor.
label='trainer >&- 2>&-'
"$program" config.json --set run_dir=closed >&- 2>&-
code=$?
expect_code 0
"$check" closed/metrics.jsonl >check.txt || fail "$(cat check.txt)"

finish
