#!/bin/sh
# SPDX-License-Identifier: MIT
# --trace: a timeline whose spans nest and add up; it is complete or does not exist.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(cd "$(dirname "$0")" && pwd)/expect.sh"
check=$3
command -v python3 >/dev/null || skip 'no python3 to read the timeline with'

# sound FILE OPTION...
sound() {
    python3 "$check" "$@" >check.txt 2>&1 || fail "$(cat check.txt)"
}

run config.json --set epochs=3 --trace phases.json
expect_code 0
sound phases.json --workers 2 --steps 6

run config.json --trace ops.json --trace-ops --devices ref:3 --set data.limit=200
expect_code 0
sound ops.json --workers 3 --steps 4 --ops
grep -q '"name":"forward of conv1' ops.json || fail 'expected the ops by their names'

run config.json --set run_dir=saved --set checkpoint.every_steps=1 --trace saved.json
expect_code 0
sound saved.json --workers 2 --steps 2
grep -q '"name":"write a checkpoint"' saved.json || fail 'expected what the saver wrote'

# If opening takes long, as for a large model, the events before the replicas exist are in the
# timeline, too.
run config.json --trace wide.json --trace-ops --set model.layers.0.out=400 --set batch_size=48
expect_code 0
sound wide.json --workers 2 --steps 2 --ops

# A step that was repeated after the loss of a device is in the timeline once for each worker that
# computed it.
run config.json --trace lost.json --inject worker=1,step=2,kind=fail --devices ref:3
expect_code 0
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' lost.json || fail 'expected JSON'

expect_failure 74 'nowhere/: cannot open the directory: No such file or directory' \
    config.json --trace nowhere/trace.json
expect_failure 64 "--trace-ops needs --trace FILE; \`$program --help\` lists what there is" \
    config.json --trace-ops
run config.json --trace refused.json --set optimizer.lr=-1
[ ! -e refused.json ] || fail 'expected no timeline of a run that did not begin'
finish
