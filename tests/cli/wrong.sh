#!/bin/sh
# SPDX-License-Identifier: MIT
# wrong.sh TRAINER: the rows that a model predicts wrong, of tables, pictures and values; decisions at
# a threshold; labels that are found to be suspicious by predicting each row out of fold.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/expect.sh"
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME

expect_stdout() {
    grep -q -e "$1" stdout.txt || fail "expected on stdout: $1"
}

# ---- a table: kind is big where u is above 1000, but lines 9 and 30 are labelled wrong; a note has a line break ------

awk 'BEGIN { print "u,note,kind"
    for (i = 0; i < 60; i++) {
        u = 500 + i % 7 * 10 + i % 2 * 1000
        big = i % 2; if (i == 6 || i == 27) big = 1 - big
        printf "%d,%s,%s\n", u, i == 3 ? "\"two\nlines\"" : "x", big ? "big" : "small" } }' >train.csv
cat >table.json <<'END'
{"data": {"name": "csv", "path": "train.csv", "target": "kind", "drop": "note", "standardize": true},
 "batch_size": 10, "epochs": 20, "devices": "ref:1", "init": {"name": "kaiming"},
 "model": {"layers": [{"type": "dense", "out": 2}]}, "optimizer": {"name": "sgd", "lr": 0.5}}
END
run table.json --quiet --set run_dir=run
expect_code 0
run eval run --train --wrong wrong.csv
expect_code 0
expect_stderr_line 'trainer: wrong.csv: 2 wrong predictions of 60 rows'
[ "$(cut -d, -f1-3 wrong.csv | sort | tr '\n' ' ')" = '30,small,big 9,big,small line,label,prediction ' ] ||
    fail "wrong rows: $(cat wrong.csv)"
awk -F, 'NR > 1 && !($4 > 0.5 && $4 + $5 > 0.999 && $4 + $5 < 1.001) { exit 1 }' wrong.csv || fail "probabilities: $(cat wrong.csv)"
sed 1d wrong.csv | cut -d, -f4 | sort -rg | cmp -s - /dev/stdin <<END || fail "order: $(cat wrong.csv)"
$(sed 1d wrong.csv | cut -d, -f4)
END
run predict run --train --rows 6:7
expect_stdout '^row 6: 1 small (0.[0-9]*), but its label is 0 big; line 9$'
run predict run --train --rows 6:7 --json
expect_stdout '"line":9,.*"label":0,"label_name":"big"'
run predict run --train --rows 6:8 --to rows.csv
[ "$(cut -d, -f1,2,5,6 rows.csv | tr '\n' ' ')" = 'row,prediction,line,label 6,small,9,big 7,big,10,big ' ] || fail "rows: $(cat rows.csv)"
run predict run --train --rows 6:7 --to rows.jsonl
grep -q '^{"row":6,"line":9,"prediction":"small","probability":0.[0-9]*,"label":"big",' rows.jsonl || fail "rows: $(cat rows.jsonl)"
run eval run --train --wrong wrong.txt
expect_code 64

# A threshold: with two classes the second one, small, is positive.
run eval run --train --threshold 1 --json
expect_stdout '"rows":60,"positive":"small",'
run eval run --train
expect_stdout '^  positive: small$'
! grep -q 'warning: most rows' stdout.txt || fail 'half of the rows are positive'
sed '10,40{/,big$/d}' train.csv >common.csv
run eval run --data common.csv --threshold 0.5
expect_stdout '^  warning: most rows (3[0-9] of [45][0-9]) are positive, .* rename the classes'
run eval run --train --threshold 1 --json
expect_stdout '"at_threshold":{"threshold":1,"precision":null,"recall":0,"f1":0,"true_positive":0,'
run eval run --train --threshold 0.000001
expect_stdout '^  positive from 1e-06 on: precision 0.5000, recall 1.0000, f1 0.6667; 60 of 60 rows'
run eval run --train --threshold 0.5 --json
expect_stdout '"auc":0.9[0-9]*,"average_precision":0.9[0-9]*,"f1":0.9666666666666667,"at_threshold":{"threshold":0.5,"precision":0.96[67]*,"recall":0.96[67]*,"f1":0.9666666666666667,'
# The model file keeps a threshold: predictions change, probabilities and weights do not.
weights_of() { tail -c 16 "$1/weights.safetensors" | od -An -tx1; }
weights_of run >before.txt
run predict run --train --rows 0:60 --to half.csv
run eval run --keep
expect_code 64
run eval run --train --threshold 0.000001 --keep
expect_code 0
expect_stderr_line 'trainer: run/weights.safetensors: rows are predicted positive from 1e-06 on'
weights_of run | cmp -s - before.txt || fail 'the weights have changed'
run predict run --train --rows 0:60 --to kept.csv
[ "$(cut -d, -f2 kept.csv | sort | uniq -c | tr -s ' \n' ' ')" = ' 1 prediction 60 small ' ] || fail "kept: $(cut -d, -f2 kept.csv | sort | uniq -c)"
[ "$(cut -d, -f1,3- half.csv)" = "$(cut -d, -f1,3- kept.csv)" ] || fail 'the probabilities have changed'
run predict run --train --rows 0:1 --to kept.jsonl
grep -q '"prediction":"small","probability":' kept.jsonl || fail "$(cat kept.jsonl)"
run eval run --train --json
expect_stdout '"at_threshold":{"threshold":1e-06,"precision":0.5,"recall":1,'
run eval run --train --wrong kept-wrong.csv
[ "$(wc -l <kept-wrong.csv)" -eq 31 ] || fail "wrong at the kept threshold: $(wc -l <kept-wrong.csv)"
run export run --to copy.safetensors
run predict copy.safetensors train.csv --to copy.csv
[ "$(cut -d, -f2 copy.csv | sort -u | tr '\n' ' ')" = 'prediction small ' ] || fail 'the exported file has lost the threshold'
run export run --to copy.onnx
grep -q 'threshold' copy.onnx || fail 'the ONNX file has no threshold'
run eval "$(ls run/checkpoints/* | head -n 1)" --train --threshold 0.1 --keep
expect_code 65
run eval run --train --threshold 0.5 --keep
expect_code 0
run eval run --threshold 3%
expect_code 64
expect_stderr_line 'trainer eval: --threshold 3%: expected a number from 1e-09 to 1; write 3% as 0.03'
run eval run --threshold 0,3
expect_code 64
expect_stderr_line 'trainer eval: --threshold 0,3: expected a number from 1e-09 to 1; write a decimal point'
run predict run --train --rows 0:60 --to again.csv
cmp -s half.csv again.csv || fail 'expected the predictions as before'
# Weights: the row of line 9 counts three times, and that of line 30 not at all. The matrix counts rows.
awk 'BEGIN { print "u,w,kind"
    for (i = 0; i < 60; i++) {
        u = 500 + i % 7 * 10 + i % 2 * 1000
        big = i % 2; if (i == 6 || i == 27) big = 1 - big
        printf "%d,%d,%s\n", u, i == 6 ? 3 : i == 27 ? 0 : 1, big ? "big" : "small" } }' >weights.csv
sed 's/"drop": "note"/"weight": "w"/; s/train.csv/weights.csv/' table.json >weights.json
run weights.json --quiet --set run_dir=weighted
expect_code 0
run eval weighted --train --threshold 0.5 --json
expect_stdout '"accuracy":0.950819672131147[0-9]*,'
expect_stdout '"unweighted":{"accuracy":0.9666666666666667,"auc":.*"f1":0.9666666666666667,"precision":\[0.9666666666666667,0.9666666666666667\],'
expect_stdout '"at_threshold":{"threshold":0.5,"precision":0.90[0-9]*,"recall":1,.*"false_positive":1,"true_negative":29,"false_negative":1,"unweighted":{"precision":0.9666666666666667,'
expect_stdout '"confusion":\[\[29,1\],\[1,29\]\]'
run eval weighted --train
expect_stdout '^  with each row counted once: acc 0.9667, auc '
expect_stdout '^     1.0000 0.9062       30  0 big; 1 as 1 small$'
# The same rows as new ones, for the run and for its file of weights.
run eval weighted --train --json
same=$(sed 's/.*"loss":[^,]*,//; s/"seconds".*//' stdout.txt)
[ -n "$same" ] || fail "no metrics"
cp weighted/weights.safetensors weighted.safetensors
for model in weighted weighted.safetensors; do
    run eval $model --data weights.csv --json
    expect_code 0
    [ "$(sed 's/.*"loss":[^,]*,//; s/"seconds".*//' stdout.txt)" = "$same" ] || fail "expected $same"
done
cut -d, -f1,3 weights.csv >without.csv
run eval weighted.safetensors --data without.csv
expect_stderr_line 'trainer: warning: without.csv has no column "w" of weights: each row counts once'
expect_stdout '^test acc: 0.9667, loss '
sed '5s/,1,/,-1,/' weights.csv >bad_weights.csv
run eval weighted.safetensors --data bad_weights.csv
expect_error 'bad_weights.csv:5: column "w": expected a weight: 0, or a number from 1e-9 to 1e9, found "-1"'
awk 'NR == 1 || /,big$/' weights.csv >weighed_ones.csv
run eval weighted.safetensors --data weighed_ones.csv --json
expect_stdout '"unweighted":{"accuracy":[^}]*"auc":null,'
# Without a row that counts, the weighted metrics have no value, the loss included.
sed '2,$s/,[0-9]*,/,0,/' weights.csv >no_weight.csv
run eval weighted.safetensors --data no_weight.csv --json
expect_stdout '"loss":null,"accuracy":null,"auc":null,.*"no_value":{"auc":"there are no rows, or all their weights are 0"'
run eval weighted.safetensors --data no_weight.csv
expect_stdout '^test no loss; 60 rows of '
awk 'NR == 1 || /x,big$/' train.csv >ones.csv
run eval run --data ones.csv
expect_stdout '^  auc has no value: it needs rows of at least two classes'
run eval run --data ones.csv --json
expect_stdout '"auc":null,.*"no_value":{"auc":"it needs rows'

# ---- out of fold ----------------------------------------------------------------------------------------------------

run table.json --quiet --folds 5 --wrong folds.csv
expect_code 0
expect_stdout '^out of fold: loss .*, 2 of 60 rows are predicted wrong (acc 0.9667); folds.csv has them, the least probable labels first$'
expect_stdout '^  line 30: label small, predicted big (probability 0.[0-9]*, of the label 0.0[0-9]*)$'
[ "$(cut -d, -f1-3 folds.csv | sort | tr '\n' ' ')" = '30,small,big 9,big,small line,label,prediction ' ] ||
    fail "wrong rows: $(cat folds.csv)"
expect_stderr_line 'trainer: folds.folds has 5 runs, .* MB; it is not needed any more'
# Each row is held out once, and each fold has its share of each class.
for i in 1 2 3 4 5; do
    run eval folds.folds/$i --json
    expect_stdout '"split":"validation",.*"rows":12,'
done
run table.json --quiet --folds 5 --wrong folds.csv
expect_code 64
cp folds.csv first.csv
rm -r folds.folds
run table.json --quiet --folds 5 --wrong folds.csv --devices ref:2
cmp -s folds.csv first.csv || fail 'the rows depend on the number of devices'
rm -r folds.folds
run table.json --folds 5
expect_code 64
expect_stderr_line 'trainer: --folds K and --wrong FILE.csv need each other; .*'
run table.json --set data.validation=0.2 --set data.fold=6
expect_code 78
rm folds.csv
run table.json --quiet --folds 5 --wrong folds.csv --set 'model={"layers":[{"type":"dense","out":3}]}'
expect_code 78
[ ! -e folds.csv ] || fail 'a file of a failed call'
expect_stderr_line 'trainer: stopped in fold 1 of 5; folds.csv was not written'

# Of several classes the labels with the least probability are first, whatever the probability of the prediction is. The
# row of line 2 may be a or b, but is surely not c, its label; that of line 4 is surely b, but a is more probable than c was.
printf 'u,v,kind\n' >three.csv
for i in 1 2 3 4 5 6; do printf '9,0,a\n0,9,b\n0,0,c\n'; done >>three.csv
cat >three.json <<'END'
{"data": {"name": "csv", "path": "three.csv", "target": "kind"}, "batch_size": 18, "epochs": 60, "devices": "ref:1",
 "init": {"name": "kaiming"}, "model": {"layers": [{"type": "dense", "out": 3}]}, "optimizer": {"name": "sgd", "lr": 0.1}}
END
run three.json --quiet --set run_dir=three
expect_code 0
printf 'u,v,kind\n9,9,c\n0,0.4,a\n0,9,a\n0,9,b\n' >doubtful.csv
run eval three --data doubtful.csv --wrong doubtful-wrong.csv
expect_code 0
sed 1d doubtful-wrong.csv | cut -d, -f5 | sort -g >ordered.txt
sed 1d doubtful-wrong.csv | cut -d, -f5 | cmp -s - ordered.txt || fail "order: $(cat doubtful-wrong.csv)"
sed 1d doubtful-wrong.csv | cut -d, -f4 | sort -rgc 2>/dev/null && fail "the order is that of the predictions' probabilities, too: $(cat doubtful-wrong.csv)"

# ---- pictures: the file's name ----------------------------------------------------------------------------------------

picture() { # PATH CHARACTER: a grey picture of one colour
    { printf 'P5 8 8 255\n'; head -c 64 /dev/zero | tr '\0' "$2"; } >"$1"
}
mkdir -p photos/dark photos/light
for i in 1 2 3 4 5 6 7 8 9; do picture photos/dark/$i.pgm '!'; picture photos/light/$i.pgm '~'; done
picture photos/dark/bright.pgm '}'
cat >photos.json <<'END'
{"data": {"name": "folder", "path": "photos", "image_size": 8, "channels": 1}, "batch_size": 10, "epochs": 30,
 "devices": "ref:1", "init": {"name": "kaiming"}, "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]},
 "optimizer": {"name": "sgd", "lr": 0.05}}
END
run photos.json --quiet --folds 3 --wrong photos.csv
expect_code 0
[ "$(sed -n 2p photos.csv | cut -d, -f1-3)" = 'photos/dark/bright.pgm,dark,light' ] || fail "pictures: $(cat photos.csv)"
run predict photos.folds/1 --rows 0:2
expect_stdout '^photos/[a-z]*/[0-9a-z]*.pgm: '
mkdir other other/dark other/light
cp photos/dark/[12].pgm other/dark && cp photos/dark/3.pgm other/light
run predict photos.folds/1 train.csv
expect_code 65
run predict run photos/dark/1.pgm
expect_code 65
run init train.csv --from train.csv
expect_code 64
run eval photos.folds/1 --data other --wrong other.csv
[ "$(cut -d, -f1-3 other.csv | tr '\n' ' ')" = 'file,label,prediction other/light/3.pgm,light,dark ' ] || fail "pictures: $(cat other.csv)"
run report photos.folds/1
grep -q '"file":"photos/' photos.folds/1/report.html || fail 'no files on the page'

# ---- values: the largest errors first --------------------------------------------------------------------------------

awk 'BEGIN { print "u,w"; for (i = 0; i < 40; i++) print i % 10 "," (i == 11 ? 92.9 : i == 22 ? -40 : 2 * (i % 10)) }' >values.csv
cat >values.json <<'END'
{"data": {"name": "csv", "path": "values.csv", "target": "w", "labels": "values", "standardize": true}, "loss": "mse",
 "batch_size": 10, "epochs": 40, "devices": "ref:1", "init": {"name": "kaiming"},
 "model": {"layers": [{"type": "dense", "out": 1}]}, "optimizer": {"name": "sgd", "lr": 0.05}}
END
run values.json --quiet --set run_dir=values
run eval values --train --wrong values-wrong.csv
expect_code 0
[ "$(head -n 3 values-wrong.csv | cut -d, -f1,2 | tr '\n' ' ')" = 'line,label 13,92.9 24,-40 ' ] || fail "errors: $(head values-wrong.csv)"
[ "$(wc -l <values-wrong.csv)" -eq 41 ] || fail 'not all rows have an error'
run eval values --train --threshold 0.5
expect_code 64
finish
