#!/bin/sh
# SPDX-License-Identifier: MIT
# init.sh TRAINER: the description that `init` prints for a table, a folder and arrays, and training
# with its configs.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/expect.sh"
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME

expect_stdout() {
    grep -q -e "$1" stdout.txt || fail "expected on stdout: $1"
}
expect_config() {
    grep -q -e "$2" "$1" || fail "expected in $1: $2; it is $(tr -d '\n' <"$1" | head -c 900)"
}

# ---- a table of values, with an id, names, a hole, and a target of the order of 10⁵ -----------------------------

awk 'BEGIN { print "id,name,size,town,price"
    for (i = 0; i < 120; i++) {
        size = 40 + i * 37 % 160
        printf "%d,house %d,%s,%s,%d\n", i + 1, i, i == 7 ? "" : size, i % 2 ? "x" : "y",
            100000 + 2000 * size + 30000 * (i % 2)
    } }' >houses.csv
run init houses.csv --target price --to houses.json
expect_code 0
expect_stdout '^houses.csv: a table of 120 rows and 5 columns$'
expect_stdout '^  column  *kind  *levels  *missing  *mean  *deviation$'
expect_stdout '^  size  *number  *-  *1 '
expect_stdout '^  town  *texts  *2  *0 '
expect_stdout '^  price  *value  *-  *0 .* to be learnt$'
expect_stdout '^  id is left out (data.drop): it counts the rows$'
expect_stdout '^  name is left out (data.drop): it has nearly as many'
expect_stdout 'is standardised for training; results are in its own unit (data.standardize_target)'
expect_stdout 'held out for validation (data.validation)'
expect_config houses.json '"drop": "id,name"'
expect_config houses.json '"labels": "values"'
expect_config houses.json '"missing": "mean"'
expect_config houses.json '"clip": 10'
expect_stdout 'limited to 10 deviations (data.clip)'
expect_last_stdout_line "houses.json: train with \`$program houses.json\`"
expect_config houses.json '"validation": 0.2'
# Without --to, the config is printed on stdout and the description on stderr.
run init houses.csv --target price
expect_code 0
cmp -s stdout.txt houses.json || fail 'the same config on stdout'
grep -q '^houses.csv: a table' stderr.txt || fail 'what was seen on stderr'

# A few values along a curve get a larger network than those along a line, with less dropout if rows have
# several numbers, else with none.
awk 'BEGIN { print "t,u,y"; for (i = 0; i < 300; i++) { t = i * 37 % 300; print t "," i * 53 % 300 "," sin(t / 40) } }' >curve.csv
run init curve.csv --to curve.json
expect_code 0
expect_config curve.json '"name": "hidden2"'
expect_config curve.json '"p": 0.1'
cut -d , -f 1,3 curve.csv >narrow.csv
run init narrow.csv --to curve.json
expect_code 0
expect_config curve.json '"name": "hidden2"'
if grep -q dropout curve.json; then fail 'expected no dropout for 240 rows of one number'; fi
run curve.json --quiet --set devices=ref:1 --set run_dir=null
expect_code 0
r2=$(sed -n 's/.* r2: \([-0-9.]*\),.*/\1/p' stdout.txt)
awk -v r2="$r2" 'BEGIN { exit !(r2 != "" && r2 > 0.9) }' || fail "expected to have learnt a curve: r2 '$r2'"
if grep -q hidden2 houses.json; then fail 'expected one hidden layer for a line'; fi

# Weights that are taken over from a table with other levels and classes.
awk 'BEGIN { print "town,a,y"; for (i = 0; i < 60; i++) printf "%s,%d,%s\n", substr("abc", i % 3 + 1, 1), i % 7, i % 2 ? "yes" : "no" }' >old.csv
sed 's/^c,/d,/; s/yes$/ja/; s/no$/nein/' old.csv >other.csv
run init old.csv --to old.json
expect_code 0
run old.json --quiet --set devices=ref:1 --set run_dir=old --set epochs=2
expect_code 0
run old.json --quiet --set devices=ref:1 --set run_dir=null --set epochs=1 --set init.weights=old/weights.safetensors
expect_code 0
if grep -q 'init.weights' stderr.txt; then fail 'warned of the same names'; fi
run old.json --quiet --set devices=ref:1 --set run_dir=null --set epochs=1 --set init.weights=old/weights.safetensors \
    --set data.path=other.csv
expect_code 0
grep -q 'init.weights: old/weights.safetensors: it does not have these columns or texts; their weights begin with 0: "d" of "town"$' stderr.txt ||
    fail "$(cat stderr.txt)"
grep -q 'init.weights: .*: it does not have these classes; their weights begin as without it: "ja", "nein"$' stderr.txt || fail "$(cat stderr.txt)"

# A class of less than a fifth of the rows.
awk 'BEGIN { print "a,b,rare"; for (i = 0; i < 100; i++) printf "%d,%d,%s\n", i * 37 % 101, i * 7 % 13, i % 6 ? "no" : "yes" }' >rare.csv
run init rare.csv
expect_code 0
grep -q 'only 17 of 100 rows are of class yes; .*: --set class_weights=balanced$' stderr.txt || fail "$(cat stderr.txt)"
run init rare.csv --set class_weights=balanced --to rare.json
expect_code 0
expect_config rare.json '"class_weights": "balanced"'
if grep -q 'rows are of class' stdout.txt; then fail 'proposed although it is set'; fi
awk 'BEGIN { print "a,b,even"; for (i = 0; i < 100; i++) printf "%d,%d,%s\n", i * 37 % 101, i * 7 % 13, i % 5 ? "no" : "yes" }' >even.csv
run init even.csv
expect_code 0
if grep -q 'rows are of class' stderr.txt; then fail 'a fifth is not rare'; fi

# Dates become numbers, unless they can be read in two ways; years that go up evenly stay.
awk 'BEGIN { print "when,either,some,year,y"
    for (i = 0; i < 60; i++)
        printf "%02d.%02d.%d,%02d/%02d/2020,%s,%d,%d\n", i % 28 + 1, i % 12 + 1, 2000 + i % 7, i % 9 + 1, i % 7 + 1,
            i == 9 ? "2020-02-30" : "2020-02-2" i % 10, 1950 + i, i * i % 101
    }' >dates.csv
run init dates.csv --target y --to dates.json
expect_code 0
expect_stdout '^  when  *dates  *- .* year, month, weekday, days$'
expect_stdout '^  they are drawn at random; if later rows are to be predicted, name a table of later rows: data.test_path$'
expect_stdout '^  either is left out (data.drop): it has dates that can be read in two ways'
expect_stdout '^  some is left out (data.drop): it has dates, but also texts that are no dates, or dates that do not exist'
expect_stdout '^  year  *number '
expect_config dates.json '"drop": "either,some"'
grep -q 'column "when" has dates, with the day first, as .* shows; they become numbers: year, month, weekday, days, counted from' stderr.txt ||
    fail "expected the form of the dates in: $(cat stderr.txt)"
run dates.json --quiet --set devices=ref:1 --set run_dir=dates --set epochs=2
expect_code 0
printf 'when,year\n31.12.2005,1990\n2005-12-31,1990\n31.02.2005,1990\n' >new_dates.csv
run predict dates new_dates.csv --devices ref:1
expect_code 65
[ "$(sed -n 's/^row 0: \([^;]*\);.*/\1/p' stdout.txt)" = "$(sed -n 's/^row 1: \([^;]*\);.*/\1/p' stdout.txt)" ] ||
    fail "one date in two forms: $(cat stdout.txt)"
expect_stdout '^row 2: no prediction: new_dates.csv:4: column "when": expected a date such as 31.12.2024'
run export dates --to dates.onnx
expect_code 0
expect_stderr_line 'trainer: warning: column "when": an ONNX graph cannot read dates, .*: when_year … when_days; .*'
grep -q 'when_weekday' dates.onnx || fail 'the parts of a date are inputs of the graph'

run houses.json --quiet --set devices=ref:1 --set run_dir=houses --set epochs=60
expect_code 0
r2=$(sed -n 's/.* r2: \([-0-9.]*\),.*/\1/p' stdout.txt)
awk -v r2="$r2" 'BEGIN { exit !(r2 != "" && r2 > 0.8) }' || fail "expected to have learnt: r2 '$r2'"
# Predictions, losses and errors have the unit of the target, with the run and with its file of
# weights alone.
printf 'town,size\nx,100\n' >new.csv
for model in houses houses/weights.safetensors; do
    run predict $model new.csv --devices ref:1
    expect_code 0
    price=$(sed -n 's/^row 0: \([^;]*\);.*/\1/p' stdout.txt)
    awk -v p="$price" 'BEGIN { exit !(p > 200000 && p < 460000) }' || fail "expected a price of about 330000, found $price"
done
run eval houses --data houses.csv --devices ref:1
mae=$(sed -n 's/.* mae \([0-9.]*\),.*/\1/p' stdout.txt)
awk -v mae="$mae" 'BEGIN { exit !(mae > 100 && mae < 80000) }' || fail "expected a mean error in the unit of prices, found '$mae'"
run predict houses --rows 0:1 --train --devices ref:1
expect_stdout '; its targets are [0-9]*000; line [0-9]*$'

# ---- classes; the target is guessed; numbers that are classes stay so -------------------------------------------

awk -v OFS=, 'BEGIN { print "a,b,species"; for (i = 0; i < 60; i++) print i % 9 + i % 3 * 20, i % 7, i % 3 }' >kinds.csv
run init kinds.csv --to kinds.json
expect_code 0
expect_stdout '^  species  *class  *3  *0 .* to be learnt$'
expect_config kinds.json '"labels": "classes"'
run kinds.json --quiet --set devices=ref:1 --set run_dir=kinds --set epochs=20
expect_code 0
accuracy=$(sed -n 's/.* acc: \([0-9.]*\),.*/\1/p' stdout.txt)
awk -v a="$accuracy" 'BEGIN { exit !(a > 0.8) }' || fail "expected to have learnt: $accuracy"

# With --train, init trains at once, and the trained model predicts.
run init kinds.csv --to now.json --train
expect_code 0
expect_last_stdout_line 'validation acc: .*'
# The run's notes, and so its page, have the command that the user typed.
grep -hq '"command":"[^ ]* init kinds.csv --to now.json --train",' runs/*/notes.jsonl ||
    fail "expected the command of init, found $(grep -h '"command"' runs/*/notes.jsonl)"
# The table of the columns is printed once. The run prints what else it says of the data.
expect_stdout '^  column  *kind  *levels '
expect_no_stderr_line '^  column  *kind \|^  species '
expect_stderr_line 'trainer: data.standardize: .*'
printf 'a,b\n41,3\n' >new.csv
run predict latest new.csv --devices ref:1
expect_code 0
expect_stdout '^row 0: 2 ('
# A run of its own prints the table.
run now.json --set devices=ref:1 --set epochs=1 --set run_dir=null
expect_code 0
expect_stderr_line '  column  *kind  *levels .*'
run init kinds.csv --train
expect_code 64
expect_stderr_line 'trainer init: --train needs --to FILE; .*'

# ---- pictures, grey and in colour -------------------------------------------------------------------------------

mkdir -p set/dark set/light
for i in 0 1 2 3 4 5 6 7 8 9; do
    { printf 'P5 8 8 255\n'; head -c 64 /dev/zero | tr '\0' "\\02$((i % 8))"; } >set/dark/$i.pgm
    { printf 'P5 8 8 255\n'; head -c 64 /dev/zero | tr '\0' "\\33$((i % 8))"; } >set/light/$i.pgm
done
run init set --to set.json
expect_code 0
expect_stdout '^set: pictures, grey$'
expect_stdout '^  dark  *10  *0$'
expect_config set.json '"channels": 1'
run set.json --quiet --set devices=ref:1 --set run_dir=null --set data.image_size=8 --set epochs=1
expect_code 0
{ printf 'P6 8 8 255\n'; head -c 192 /dev/urandom; } >set/light/colour.ppm
run init set --to set.json
expect_config set.json '"channels": 3'
expect_config set.json '"flip": true'

# ---- arrays -----------------------------------------------------------------------------------------------------

npy() { # SHAPE TEXT: an array of u8, a character a value
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
    printf '%s' "$2"
}
mkdir pair
npy '(10, 2)' '!m!m!m!m!mzmzmzmzmzm' >pair/x.npy
{ npy '(10,)' ''; printf '\000\000\000\000\000\001\001\001\001\001'; } >pair/y.npy
for path in pair pair/x.npy; do
    run init $path --to pair.json
    expect_code 0
    expect_stdout 'rows of 2 columns of bytes, each column standardised'
    expect_stdout 'targets: 2 classes (data.labels)'
    expect_config pair.json '"path": "pair"'
    run pair.json --quiet --set devices=ref:1 --set run_dir=null --set epochs=2
    expect_code 0
done

# ---- rows that are all equal ------------------------------------------------------------------------------------

mkdir same twins twins/a twins/b
npy '(10, 2)' 'abababababababababab' >same/x.npy
cp pair/y.npy same
{ printf 'P5 8 8 255\n'; head -c 64 set/light/1.pgm; } >twins/a/1.pgm
cp twins/a/1.pgm twins/a/2.pgm
cp twins/a/1.pgm twins/b/3.pgm
run init same --to none.json
expect_code 65
expect_stderr_line 'trainer: same: expected rows that differ, found 10 equal ones, so there is nothing to learn from them; .*'
run init twins --to none.json
expect_code 65
expect_stderr_line 'trainer: twins: expected images that differ, but all 3 training images are equal at 8×8 pixels, so .*'
[ ! -e none.json ] || fail 'expected no config for rows that are all equal'
cp set/dark/0.pgm twins/b/4.pgm
run init twins --to twins.json
expect_code 0
cat >same.json <<'END'
{"data": {"name": "npy", "x": "same/x.npy", "y": "same/y.npy"}, "epochs": 1, "devices": "ref:1",
 "model": {"layers": [{"type": "dense"}]}, "optimizer": {"name": "sgd", "lr": 0.01}, "run_dir": null}
END
run same.json --quiet
expect_code 0
expect_stderr_line 'trainer: warning: all training rows are equal, so there is nothing to learn from them'

# ---- what is not there ------------------------------------------------------------------------------------------

run init nowhere.csv
expect_code 66
run init houses.csv --target prize
expect_code 78
run init set --target a
expect_code 64
run init
expect_code 64
expect_stderr_line "trainer init: expected a table, a folder of pictures, or arrays. Try \`$program init my.csv\`; .*"
rm pair/y.npy
run init pair/x.npy
expect_code 66
run init --help
expect_code 0

# ---- --set reaches the config that is written -------------------------------------------------------------------

run init houses.csv --set epochs=3 --set optimizer.lr=0.5 --set data.validation=0.3 --to other.json
expect_code 0
expect_config other.json '"epochs": 3'
expect_config other.json '"lr": 0.5'
expect_config other.json '"name": "adamw"'
expect_config other.json '"validation": 0.3'
run other.json --quiet --set devices=ref:1 --set run_dir=null
expect_code 0
rm other.json
run init houses.csv --set epoch=3 --to other.json
expect_code 78
[ ! -e other.json ] || fail 'expected no config with an unknown key'

# Data in place of a config, and keys of the config as options.
mkdir -p photos_only/a
for data in houses.csv photos_only; do
    run $data --quiet
    expect_code 78
    expect_stderr_line "trainer: $data: expected a config, found data; write one and train: .*init $data --to my.json --train.*"
done
run other.json --epochs 5
expect_stderr_line 'trainer: did you mean --set epochs=VALUE? unknown option --epochs; .*'
run other.json --image_size=5
expect_stderr_line 'trainer: did you mean --set data.image_size=VALUE? unknown option .*'

# A class that is called as its number is has no second name.
awk 'BEGIN { print "a,y"; for (i = 0; i < 400; i++) print i % 9 "," (i % 9 > 4) }' >bits.csv
run init bits.csv --target y --to bits.json
run bits.json --quiet --set devices=ref:1 --set epochs=1 --set optimizer.lr=0 --set run_dir=bits
run eval bits
expect_code 0
[ "$(grep -cE '^ +[0-9.nan]+ +[0-9.]+ +[0-9]+  [01](; [0-9]+ as [01])?$' stdout.txt)" -eq 2 ] || fail 'expected the classes 0 and 1 without names'
run predict bits --rows 0:20
grep -qE '^row [0-9]+: [01] \(0[.0-9]*\), but its label is [01]; line [0-9]+$' stdout.txt || fail 'expected a wrong row, with numbers only'

# With a loss of values, small counts are values, also without data.labels.
awk 'BEGIN { print "a,n"; for (i = 0; i < 200; i++) print i % 9 "," int(i % 9 / 2) }' >counts.csv
run init counts.csv --target n --set loss=poisson --to counts.json
expect_code 0
expect_stdout '^  n  *value  .* to be learnt$'
expect_config counts.json '"labels": "values"'
run counts.json --quiet --set devices=ref:1 --set epochs=1 --set run_dir=counts
expect_code 0
expect_stdout '^validation deviance: '
cat >by_hand.json <<'END'
{"data": {"name": "csv", "path": "counts.csv", "target": "n"}, "loss": "poisson", "epochs": 1, "devices": "ref:1",
 "model": {"layers": [{"type": "dense"}]}, "optimizer": {"name": "sgd", "lr": 0.01}, "run_dir": null}
END
run by_hand.json --quiet
expect_code 0

finish
