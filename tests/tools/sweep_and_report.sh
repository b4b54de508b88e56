#!/bin/sh
# SPDX-License-Identifier: MIT
# sweep_and_report.sh TRAINER: both verbs from end to end, on synthetic data and the reference back
# end.
# shellcheck disable=SC1091,SC2154 # verb.sh sets and reads the shared variables
. "$(dirname "$0")/verb.sh"

cat >config.json <<'JSON'
{
  "name": "tiny",
  "data": {"name": "synthetic", "limit": 128},
  "model": {"name": "tiny", "layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]},
  "devices": "ref:1", "batch_size": 64, "shards": 4, "epochs": 2,
  "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}
}
JSON

# One combination asks for no device: its row says so, the rest goes on.
expect 78 "$trainer" sweep config.json --vary devices=ref:1,ref:0,ref:3 --vary lr=0.05,0.1 \
    --json sweep.json --quiet
[ "$(wc -l <out)" -eq 8 ] || fail "a table of $(wc -l <out) lines instead of 8"
has out '^SYNTHETIC data'
has out '^devices    lr  test acc  train loss  s/epoch  images/s  speed-up   weights$'
has out '^  ref:1  0.05    0\.[0-9]* .* 1\.00x  [0-9a-f]\{8\}$'
has out "^  ref:0   0.1  error: .*devices 'ref:0' asks for none"
has err '^trainer: run 3: .*asks for none'
has sweep.json '"status": "failed"'
has sweep.json '"synthetic": true'
[ "$(grep -c '"status": "finished"' sweep.json)" -eq 4 ] || fail "not 4 finished runs"
# The same weights on 1 and 3 devices for each of two learning rates.
[ "$(grep -o '"weights_sha256": "[0-9a-f]*"' sweep.json | sort -u | wc -l)" -eq 2 ] ||
    fail "weights differ between numbers of devices"
[ ! -e runs ] || fail "a sweep left run directories behind"

# JSON alone on stdout, the table on stderr; coupled keys; run directories that are kept.
expect 0 "$trainer" sweep config.json --vary devices,batch_size=\"ref:1\":32,\"ref:2\":64 \
    --set epochs=1 --keep kept --json -
has out '^{$'
lacks out 'test acc'
has out '"batch_size": 64'
has out '"run_dir": "kept/2"'
has err '^run 2/2: devices "ref:2", batch_size 64$'
has err 'speed-up'
for n in 1 2; do
    [ -e kept/$n/metrics.jsonl ] || fail "kept/$n has no metrics"
done

# What cannot be swept.
expect 64 "$trainer" sweep config.json
has err '^trainer sweep: nothing to vary'
expect 64 "$trainer" sweep config.json --vary lr
has err "^trainer: --vary lr: no '='; expected KEY=VALUE"
expect 74 "$trainer" sweep config.json --vary lr=1 --json /nowhere/x.json
has err '^trainer: --json /nowhere/: cannot open the directory: No such file or directory$'
expect 0 "$trainer" sweep --help

# A first signal stops the sweep in good order: what was not run is still listed.
"$trainer" sweep config.json --vary seed=1,2 --set epochs=1000000 --quiet --keep stopped \
    >out 2>err &
tries=0
until [ -e stopped/1/metrics.jsonl ] || [ $((tries += 1)) -gt 300 ]; do
    sleep 0.1
done
kill -INT $!
wait $!
status=$?
[ $status -eq 130 ] || fail "exit code $status after SIGINT"
has out 'interrupted$'
has out '^   2  not run$'

# The report of a run that was kept, and of none.
expect 0 "$trainer" report kept/2
[ "$(cat out)" = kept/2/report.html ] || fail "report printed $(cat out)"
has kept/2/report.html '<h1>tiny</h1>'
has kept/2/report.html 'SYNTHETIC DATA'
expect 0 "$trainer" report kept/1 -o elsewhere.html
has elsewhere.html '</html>'
expect 66 "$trainer" report nowhere
has err '^trainer: nowhere: no such directory; expected the directory of a run'
expect 64 "$trainer" report
expect 64 "$trainer" report kept/1 kept/2
expect 0 "$trainer" report --help

# The curves at the end of a run: on stderr, and not when quiet.
expect 0 env LC_ALL=C "$trainer" config.json --set run_dir=null
has err ' test accuracy, last 0\.'
has err '+-----'
has out '^test acc: '
expect 0 "$trainer" config.json --set run_dir=null --quiet
lacks err 'accuracy'
expect 0 "$trainer" config.json --set run_dir=null --set epochs=1
lacks err ' last 0\.'

finish
