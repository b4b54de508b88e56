#!/bin/sh
# SPDX-License-Identifier: MIT
# find_lr.sh TRAINER: the learning-rate finder from end to end, on a table and the reference back
# end.
# shellcheck disable=SC1091,SC2154 # verb.sh sets and reads the shared variables
. "$(dirname "$0")/verb.sh"

# y = 2a − b and a little noise, by least squares: the largest curvature is the bias's, 2, so that steps of a rate above
# 1 grow; of optimizer.lr above 4, which is for 256 rows here and scaled to 64.
awk 'BEGIN {
    print "a,b,y"
    for (i = 0; i < 400; i++) {
        a = (i * 37 % 101) / 50 - 1; b = (i * 59 % 97) / 48 - 1
        printf "%.4f,%.4f,%.4f\n", a, b, 2 * a - b + 0.02 * ((i * 13 % 11) - 5)
    }
}' >table.csv
cat >config.json <<'JSON'
{
  "name": "a <line>",
  "data": {"name": "csv", "path": "table.csv", "target": "y", "labels": "values", "validation": 0.1,
           "standardize": false, "standardize_target": false},
  "model": {"layers": [{"type": "dense", "out": 1}]},
  "devices": "ref:1", "batch_size": 64, "shards": 4, "epochs": 2, "patience": 3,
  "checkpoint": {"best": true}, "lr_scaling": "linear",
  "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}
}
JSON

# The same numbers on any number of workers, and nothing is left behind but what was asked for.
for devices in 1 2 3; do
    expect 0 "$trainer" find-lr config.json --devices ref:$devices --json $devices.json --svg $devices.svg --quiet
    cp out $devices.txt
done
for devices in 2 3; do
    for what in json svg txt; do
        cmp -s 1.$what $devices.$what || fail "$what of 1 and $devices workers differ"
    done
done
[ "$(ls)" = "$(printf '%s\n' 1.json 1.svg 1.txt 2.json 2.svg 2.txt 3.json 3.svg 3.txt config.json err out table.csv)" ] ||
    fail "left behind: $(ls)"
! grep -v 'workers share' err || fail "said: $(cat err)"
has 1.txt '^ *lr  *loss  *smoothed$'
has 1.txt '^  1.00e-06 '
has 1.txt '^the loss is above 4 times its minimum from a rate of [1-9]'
has 1.txt '^suggestion: optimizer.lr 0.'
has 1.json '"end": "diverged"'
has 1.json '"name": "a <line>"'
has 1.svg 'a &lt;line&gt;: loss by learning rate'

# It stops where the average is above four times its least, and not before.
awk -F'[:,]' '/"smoothed"/ { v = $2; n++; least = n == 1 || v < least ? v : least; if (v > 4 * least) over[n] = 1 }
    END { for (i in over) many++; exit !(n < 300 && many == 1 && over[n]) }' 1.json || fail 'expected an end at four times the least'

# The suggestion trains, and ten times the rate of the least loss does not.
value() { sed -n "s/^  \"$1\": \(.*\),\$/\1/p" 1.json; }
final() {
    "$trainer" config.json --set optimizer.lr="$1" --set run_dir=null --set epochs=20 --metrics - --quiet 2>err |
        sed -n 's/.*"type":"eval".*"test_loss":\([^,}]*\).*/\1/p' | tail -n 1
}
at=$(value suggestion)
[ -n "$at" ] || fail "no suggestion in $(head -c 300 1.json)"
good=$(final "$at")
awk -v loss="$good" 'BEGIN { exit !(loss != "" && loss < 0.02) }' || fail "a rate of $at ends with a loss of $good"
bad=$(final "$(awk -v x="$at" 'BEGIN { print 100 * x }')")
awk -v loss="$bad" 'BEGIN { exit loss != "" && loss < 1 }' || fail "100 times that rate ends with a loss of $bad"

# The points are those of a run with the schedule: the last one has the rate that was asked for.
expect 0 "$trainer" find-lr config.json --from 0.05 --to 0.5 --steps 60 --json - --quiet
has err '^  5.00e-01 '
has err 'still fell at the end'
lacks out 'suggestion:'
[ "$(grep -c '"lr":' out)" -eq 60 ] || fail "$(grep -c '"lr":' out) points"
has out '"end": "all steps"'
[ "$(grep '"lr":' out | tail -n 1 | tr -d ' ,')" = '"lr":0.5' ] || fail "ends at $(grep '"lr":' out | tail -n 1)"

# A flat loss has no suggestion; one that is not finite is an end.
expect 0 "$trainer" find-lr config.json --from 1e-12 --to 1e-11 --steps 60 --quiet --svg flat.svg --json flat.json
has out '^no suggestion: the loss did not fall by more than its noise'
has flat.json '"suggestion": null'
lacks flat.svg 'class="steepest" cx'
expect 0 "$trainer" find-lr config.json --from 1e5 --to 1e6 --steps 20 --quiet --json wild.json
has out '^no suggestion'
has wild.json '"end": "diverged"'
awk -F, -v OFS=, 'NR > 1 { $3 = $3 * 1e18 } { print }' table.csv >huge.csv
sed 's/table.csv/huge.csv/' config.json >huge.json
expect 0 "$trainer" find-lr huge.json --from 1e3 --to 1e6 --steps 20 --quiet --json huge-end.json
has huge-end.json '"end": "not finite"'
has out '^the loss is not finite beyond a rate of'
sed '/"standardize": false/d; s/"data": {.*/"data": {"name": "synthetic", "limit": 64},/; s/\[{"type": "dense", "out": 1}\]/[{"type": "flatten"}, {"type": "dense", "out": 10}]/' \
    config.json >synthetic.json
expect 0 "$trainer" find-lr synthetic.json --steps 20 --quiet
has out '^SYNTHETIC data'

# One that begins on a plateau is told so: without weights a hidden layer learns nothing.
sed 's/"data": {"name": "csv".*/"data": {"name": "synthetic", "limit": 64},/; /"standardize": false/d
    s/\[{"type": "dense", "out": 1}\]/[{"type": "flatten"}, {"type": "dense", "out": 4}, {"type": "relu"}, {"type": "dense"}]/
    s/"std": 0.01/"std": 0/' config.json >plateau.json
expect 0 "$trainer" find-lr plateau.json --from 1e-6 --to 1e-3 --steps 20 --quiet
has out '^no suggestion: the loss stayed at 2.30'

# What cannot be looked for.
expect 64 "$trainer" find-lr
has err "^trainer find-lr: which config? Try .$trainer find-lr examples/fashion_mnist.json.; .*"
expect 64 "$trainer" find-lr config.json other.json
expect 64 "$trainer" find-lr config.json --from 0
has err '^trainer find-lr: --from 0: expected a number from 1e-12 to 1e+06$'
expect 64 "$trainer" find-lr config.json --to fast
has err '^trainer find-lr: --to fast: expected a number'
expect 64 "$trainer" find-lr config.json --steps 19
has err '^trainer find-lr: --steps 19: expected a whole number from 20 to 10000$'
expect 64 "$trainer" find-lr config.json --steps 20.5
has err '^trainer find-lr: --steps 20.5: expected a whole number from 20 to 10000$'
expect 64 "$trainer" find-lr config.json --svg - --json -
has err "^trainer find-lr: --svg -: expected a file's name; .$trainer find-lr --help. lists what there is$"
expect 64 "$trainer" find-lr config.json --from 1 --to 0.1
has err "^trainer find-lr: --from 1 --to 0.1: expected rates that grow; .$trainer find-lr --help. lists what there is$"
expect 66 "$trainer" find-lr nowhere.json
expect 78 "$trainer" find-lr config.json --set optimizer.name=sdg
expect 74 "$trainer" find-lr config.json --steps 20 --quiet --svg /nowhere/x.svg
has err '^trainer: --svg /nowhere/: cannot open the directory'
has out '^suggestion\|^no suggestion'
expect 0 "$trainer" find-lr --help

finish
