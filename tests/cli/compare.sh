#!/bin/sh
# SPDX-License-Identifier: MIT
# `runs` and `compare` with three runs of different length. One of them was resumed, and another one
# is still running.
# shellcheck disable=SC1091,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"
unset COLUMNS

# has FILE PATTERN: a line of the file matches the basic regular expression.
has() { grep -q -e "$2" "$1" || fail "expected in $1: $2, found: $(head -c 1500 "$1")"; }

run config.json --set run_dir=runs/one --set epochs=2
expect_code 0
run config.json --set run_dir=runs/two --set epochs=3 --set optimizer.lr=0.1 --quiet
expect_code 0
run --resume runs/two --set epochs=5 --quiet
expect_code 0
"$program" config.json --set run_dir=runs/three --set epochs=1000000 --set batch_size=32 \
    --set optimizer.momentum=0.9 >log.txt 2>&1 &
running=$!
tries=0
until grep -q '"type":"eval"' runs/three/metrics.jsonl 2>grep.txt || [ $((tries += 1)) -gt 100 ]; do
    sleep 0.1
done

# ---- the list ----
run runs
expect_code 0
[ "$(wc -l <stdout.txt)" -eq 4 ] || fail 'expected a heading and three runs'
has stdout.txt '^run  *name  .*data  .*accuracy  .*loss  .*ended  *recorded$'
has stdout.txt '^runs/one  .*small.* synthetic .* [01]\.[0-9]\{4\} .* 2/2 .* finished  [0-9a-f]\{8\}$'
has stdout.txt '^runs/two  .* 5/5 .* finished  [0-9a-f]\{8\}$'
has stdout.txt '^runs/three  .*/1000000 .* running$'
[ "$(sed -n '2s/ .*//p' stdout.txt)" = runs/one ] || fail 'expected the oldest run first'
for width in 40 60 80; do
    label="runs on $width columns"
    COLUMNS=$width "$program" runs >stdout.txt 2>stderr.txt
    [ "$(wc -L <stdout.txt)" -le $width ] || fail "expected lines of at most $width columns"
    has stdout.txt '^runs/one  .* finished'
done
run runs --json
expect_code 0
[ "$(grep -c '^{"run":"runs/.*"weights_sha256":.*}$' stdout.txt)" -eq 3 ] || fail 'expected three objects'
has stdout.txt '"run":"runs/two",.*"ended":"finished",.*"resumed":1,"epochs":5,"of_epochs":5,"steps":10,'
mkdir empty
run runs empty
expect_code 66
expect_error 'empty: there is no run in it; expected directories with a metrics.jsonl'
run runs nowhere
expect_code 66

# ---- the comparison ----
run compare runs/one two runs/three
expect_code 0
has stdout.txt '^A  runs/one$'
has stdout.txt '^B  runs/two$'
has stdout.txt '^ended  *finished  *finished, resumed  *running$'
has stdout.txt '^epochs  *2 of 2  *5 of 5  *[1-9][0-9]* of 1000000$'
has stdout.txt '^optimizer.lr  *0.05  *0.1  *0.05$'
has stdout.txt '^epochs  *2  *5  *1000000$'
has stdout.txt '^batch_size  *64  *64  *32$'
has stdout.txt '^optimizer.momentum  *0  *0  *0.9$'
! grep -q '^run_dir' stdout.txt || fail 'expected no row for the directories'
! grep -q '^seed' stdout.txt || fail 'expected no row for a key that all have in common'
[ "$(tail -n 1 stdout.txt)" = compare.html ] || fail 'expected the place of the page'
for width in 40 60; do
    label="compare on $width columns"
    COLUMNS=$width "$program" compare runs/one runs/two runs/three --no-page >stdout.txt 2>stderr.txt
    [ "$(wc -L <stdout.txt)" -le $width ] || fail "expected lines of at most $width columns"
done

# Runs that end with the same weights.
run config.json --set run_dir=runs/again --set epochs=2 --set devices=ref:1
expect_code 0
for width in 40 100; do
    label="equal runs on $width columns"
    COLUMNS=$width "$program" compare runs/one runs/two runs/again --no-page >stdout.txt 2>stderr.txt
    has stdout.txt '^A, C: identical weights$'
    hash=$(sed -n '/identical weights/,/^$/p' stdout.txt | sed 1d | tr -d '\n')
    grep -q "\"weights_sha256\":\"$hash\"" runs/again/metrics.jsonl || fail "expected the hash, found $hash"
    [ "$(wc -L <stdout.txt)" -le $width ] || fail "expected lines of at most $width columns"
    tr '\n' ' ' <stdout.txt | grep -q 'A, C have the best test accuracy, \|more than A, C\.' ||
        fail "expected the runs with the same accuracy together: $(cat stdout.txt)"
done
"$program" compare runs/one runs/two --no-page >stdout.txt 2>stderr.txt
! grep -q identical stdout.txt || fail 'expected no word of identical weights'
wanted=$(awk '$1 == "accuracy" { a = $2; b = $3
    text = a == b ? "A, B have the same test accuracy, " a : sprintf("%s has the better test accuracy, %s: %.4f more than %s", \
        a > b ? "A" : "B", a > b ? a : b, a > b ? a - b : b - a, a > b ? "B" : "A")
    print text "." }' stdout.txt)
tr '\n' ' ' <stdout.txt | grep -qF "$wanted" || fail "expected '$wanted', found: $(cat stdout.txt)"
"$program" compare runs/one runs/three --no-page >stdout.txt 2>stderr.txt
tr '\n' ' ' <stdout.txt | grep -q 'So far [AB, ]* ha[sv]e* the' || fail "expected the verdict so far: $(cat stdout.txt)"

# ---- the files of weights ----
# says TEXT: the program has printed the text, in lines or in one.
says() { tr '\n' ' ' <stdout.txt | tr -s ' ' | grep -qF -e "$1" || fail "expected '$1', found: $(cat stdout.txt)"; }
# lacks PATTERN [TYPE]: no line of the program matches, and the page has no record of the type.
lacks() {
    ! grep -e "$1" stdout.txt || fail "expected no word of $1"
    ! grep -e "^{\"type\":\"${2:-none}\"" check.html || fail "expected no record $2"
}
hash_of() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
one=$(hash_of runs/one) two=$(hash_of runs/two)
one=${one%"${one#????????????????}"} two=${two%"${two#????????????????}"}
cp -r runs/one forged
cp runs/two/weights.safetensors forged
other="weights.safetensors of B has other weights than its records say: their SHA-256 is $two…, not $one…"
for with in runs/one runs/two; do
    run compare "$with" forged --to check.html
    expect_code 0
    says "$other"
    has check.html "^{\"type\":\"doubt\",\"text\":\"$other\"}"
    has check.html "^<p class=\"note loud\">$other</p>"
    has check.html "^{\"type\":\"compared\",\"kind\":\"figure\",\"name\":\"weights\",.*,\"$(echo "$two" | cut -c1-8)\"\]}"
    lacks identical same
done
run report forged --samples 0
expect_code 0
has stderr.txt "^trainer: warning: ${other%% of B*}${other#* of B}\$"
has forged/report.html "^{.*\"type\":\"weights\",\"sha256\":\"${two}[0-9a-f]*\",\"doubt\":\"${other%% of B*}${other#* of B}\"}"
has forged/report.html "^<tr><th scope=\"row\">Weights’ SHA-256</th><td>$two"
run report runs/one --samples 0
[ ! -s stderr.txt ] || fail 'expected no warning'
has runs/one/report.html "\"type\":\"weights\",\"sha256\":\"${one}[0-9a-f]*\",\"doubt\":null}"
cp -r runs/one flipped
printf '\377\376' | dd of=flipped/weights.safetensors bs=1 seek=$(($(wc -c <flipped/weights.safetensors) - 2)) conv=notrunc 2>dd.txt
cp -r runs/one bare
rm bare/weights.safetensors
run compare flipped bare runs/one --to check.html
expect_code 0
says 'weights.safetensors of A cannot be read: flipped/weights.safetensors: offset 35: expected the SHA-256'
says 'weights.safetensors of B cannot be read: bare/weights.safetensors: no such file'
lacks identical same
run report flipped --samples 0
expect_code 0
has stderr.txt '^trainer: warning: weights.safetensors cannot be read: flipped/weights.safetensors: offset 35: '
has flipped/report.html '"type":"weights","sha256":null,"doubt":"weights.safetensors cannot be read: '
run compare runs/one runs/three --to check.html
lacks 'weights.safetensors of' doubt
# With checkpoint.final "best" the file has other weights than the last ones on purpose.
cp -r forged best
sed 's/"weights_sha256"/"weights_epoch":1,&/' forged/metrics.jsonl >best/metrics.jsonl
run compare best runs/two --to check.html
has stdout.txt '^A, B: identical weights$'
lacks 'weights.safetensors of' doubt

# ---- records that contradict each other ----
cp -r runs/one better
sed 's/\("type":"eval".*"test_accuracy":\)[^,]*/\10.7799/' runs/one/metrics.jsonl >better/metrics.jsonl
lie=$(sed -n 's/.*"type":"eval".*"test_accuracy":\([^,]*\).*/\1/p' runs/one/metrics.jsonl | tail -n 1)
lie="The records contradict each other: on the same rows the same weights have the test accuracy $lie in A and 0.7799 in C."
run compare runs/one runs/again better --to check.html
expect_code 0
says "A, B, C: identical weights $(hash_of runs/one) $lie"
has check.html "^{\"type\":\"same\",\"runs\":\"A, B, C\",\"sha256\":\"${one}[0-9a-f]*\",\"but\":\"$lie\"}"
has check.html "^<p class=\"note loud\"><strong>A, B, C:</strong> identical weights .*$lie</p>"
run compare runs/one runs/two better --to check.html
says "A, C: identical weights $(hash_of runs/one) $lie"
lacks 'more than' verdict
run compare runs/one runs/again --to check.html
has check.html '^{"type":"same",.*"but":null}'
lacks 'contradict each'
# An evaluation before the last step is not one of these weights.
sed 's/"status":"finished"/"status":"interrupted"/' better/metrics.jsonl >metrics.txt && mv metrics.txt better/metrics.jsonl
run compare runs/one better --to check.html
has stdout.txt '^A, B: identical weights$'
lacks 'contradict each'

# ---- a run that is not verified ----
cp -r runs/one refuted
verdict="{\"holds\":false,\"weights_sha256\":\"$(hash_of runs/one)\",\"result\":\"NOT verified: records <b>\"}"
echo "$verdict" >refuted/verified.json
run compare runs/one refuted --to check.html
expect_code 0
says "A, B: identical weights $(hash_of runs/one) verified.json of B says: NOT verified: records <b>"
has check.html '^{"type":"same",.*"but":"verified.json of B says: NOT verified: records .*}'
has check.html '^<p class="note loud"><strong>A, B:.*verified.json of B says: NOT verified: records &lt;b&gt;</p>'
echo "$verdict" | sed 's/false/true/' >refuted/verified.json
run compare runs/one refuted --to check.html
lacks 'verified.json' none
has check.html '^{"type":"same",.*"but":null}'

# ---- other kernels ----
lacks kernels others
sed '1s/"library":"[^"]*"/"library":"other kernels"/' runs/one/metrics.jsonl >better/metrics.jsonl
run compare runs/one better --to check.html
says 'The configs are equal. The kernels differ: '
has stdout.txt '^kernels  *[^ ].*  other kernels$'
has check.html '^{"type":"others","text":"The kernels differ"}'
has check.html '^{"type":"compared","kind":"given","name":"kernels","values":\["..*","other kernels"\]}'
has check.html '^<p>The kernels differ.</p>'

# Each run's steps are on the page once, in order.
label='the page'
steps_of() {
    awk -v run="$1" '/^\{"type":"run",/ { in_run = index($0, "\"path\":\"" run "\"") }
        in_run && /^\{"type":"step"/ { sub(/.*"step":/, ""); sub(/,.*/, ""); print }' compare.html
}
[ "$(steps_of runs/one | tr '\n' ' ')" = '1 2 3 4 ' ] || fail "expected four steps: $(steps_of runs/one)"
[ "$(steps_of runs/two | tr '\n' ' ')" = '1 2 3 4 5 6 7 8 9 10 ' ] || fail "expected ten steps: $(steps_of runs/two)"
[ "$(steps_of runs/three | wc -l)" -ge 3 ] || fail 'expected the steps so far'
! grep -q -e 'src="http' -e 'href="http' compare.html || fail 'expected no resource outside the page'

# ---- all metrics of the evaluations ----
# Expects in the table and on the page the values of a metric's key in the newest evaluation of each run.
has_metric() {
    name=$1 key=$2
    shift 2
    wanted='' values=''
    for one; do
        value=$(grep '"type":"eval"' "$one/metrics.jsonl" | tail -n 1 | sed -n "s/.*\"$key\":\([^,}]*\).*/\1/p")
        case $value in *[0-9]*) value=$(printf %.4f "$value") ;; *) value='' ;; esac
        wanted="$wanted  *${value:--}"
        values="$values,\"$value\""
    done
    has stdout.txt "^$name$wanted\$"
    has compare.html "{\"type\":\"compared\",\"kind\":\"figure\",\"name\":\"$name\",\"values\":\[${values#,}\]}"
    has compare.html "^<tr><th scope=\"row\">$name</th>"
    case $name in *loss) ;; *) has report.html "{\"key\":\"$key\",\"name\":\"$name\"," ;; esac
}
awk 'BEGIN { print "a,b,bought"; for (i = 0; i < 200; i++) print i % 17 "," i % 7 "," (i % 17 + i % 5 > 11 ? "yes" : "no") }' >people.csv
cat >people.json <<'END'
{"data": {"name": "csv", "path": "people.csv", "target": "bought", "validation": 0.25},
 "model": {"layers": [{"type": "dense", "out": 2}]},
 "devices": "ref:1", "batch_size": 25, "epochs": 2, "optimizer": {"name": "sgd", "lr": 0.05}}
END
run people.json --quiet --set run_dir=people
expect_code 0
run people.json --quiet --set run_dir=people2 --set epochs=4
expect_code 0
run report people -o report.html --samples 0 # its script has the names of all metrics
expect_code 0
run compare people people2
expect_code 0
for metric in 'accuracy=accuracy' 'AUC=auc' 'average precision=average_precision' 'F1=f1' 'validation loss=loss'; do
    has_metric "${metric%=*}" "test_${metric#*=}" people people2
done
[ "$(sed -n '/^best accuracy/,/^validation loss/s/   *.*//p' stdout.txt | tr '\n' ';')" = \
    'best accuracy;AUC;average precision;F1;validation loss;' ] || fail 'expected each metric once, before the loss'
has compare.html '"metric":"accuracy","metric_key":"test_accuracy","metric_rises":true,"judged":"validation"'
# The same config with other rows in the file of the same name.
sed '2s/^[0-9]*/99/' people.csv >people.txt && mv people.txt people.csv
run people.json --quiet --set run_dir=people3
expect_code 0
run compare people people3
expect_code 0
tr '\n' ' ' <stdout.txt | grep -q "The configs are equal\\. *The data differ:  *data's SHA-256 (training rows)  *[0-9a-f]\{16\}  *[0-9a-f]\{16\} " ||
    fail "expected other data, found: $(cat stdout.txt)"
! grep 'has the\|have the' stdout.txt || fail 'expected no verdict on other rows'
run compare people people2
! grep 'data differ' stdout.txt || fail 'expected the same data'
cp -r people2 tie # a value between two of four digits
sed -i 's/"test_accuracy":[0-9.]*/"test_accuracy":0.85625/' tie/metrics.jsonl
run compare tie people
expect_code 0
has stdout.txt '^accuracy  *0\.8562 '
has stdout.txt 'accuracy.* 0\.8562'
! grep '0\.8563' stdout.txt || fail 'expected one rounding in table and sentence'
run people.json --quiet --set run_dir=values --set data.target=a --set data.labels=values --set 'model.layers=[{"type":"dense","out":1}]'
expect_code 0
run compare people values
expect_code 0
for metric in 'accuracy=accuracy' 'R²=r2' 'AUC=auc' 'mean abs. error=mae' 'F1=f1'; do
    has_metric "${metric%=*}" "test_${metric#*=}" people values
done
! grep -e '^metric' -e '^value' stdout.txt || fail 'expected no row of two metrics'
has stdout.txt '^best value  *0\.[0-9]*  *-\{0,1\}[0-9]'

kill -INT $running
wait $running
run runs
has stdout.txt '^runs/three  .* interrupted  [0-9a-f]\{8\}$'
grep -v '"type":"run_end"' runs/three/metrics.jsonl >cut.jsonl && mv cut.jsonl runs/three/metrics.jsonl
run runs
has stdout.txt '^runs/three  .* killed'

run compare runs/one
expect_code 64
has stderr.txt "^trainer compare: which runs? Try .$program compare runs/A runs/B.; "
run compare runs/one nowhere
expect_code 66
expect_error 'nowhere: no such directory; expected the directory of a run, such as runs/<time>-<name>'
finish
