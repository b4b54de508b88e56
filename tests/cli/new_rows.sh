#!/bin/sh
# SPDX-License-Identifier: MIT
# new_rows.sh TRAINER: predictions for new rows from every kind of file. The rows are prepared as
# the training rows were. If data does not fit the model, the message names the data.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/expect.sh"
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME

expect_stdout() {
    grep -q -e "$1" stdout.txt || fail "expected on stdout: $1"
}

# ---- tables: the class is 1 where u is above 1000; columns are scaled by the training rows ------------------------

awk 'BEGIN { print "u,v,kind"
    for (i = 0; i < 60; i++) { u = 500 + i % 7 * 10 + i % 2 * 1000; printf "%d,%s,%s\n", u, i % 3 ? "x" : "y", i % 2 ? "big" : "small" } }' > train.csv
cat > table.json <<'END'
{"data": {"name": "csv", "path": "train.csv", "target": "kind", "standardize": true}, "batch_size": 10, "epochs": 20,
 "devices": "ref:1", "init": {"name": "kaiming"}, "model": {"layers": [{"type": "dense", "out": 2}]},
 "optimizer": {"name": "sgd", "lr": 0.5}}
END
# All rows are of one class, and their values are similar. If they were standardised with their own
# mean, half of them would be predicted as the other class.
printf 'note,kind,v,u\n,big,y,1500\n,big,x,1510\n"a,b",big,x,1520\n,big,x,1530\n' > new.csv
printf 'u,v,kind\n500,x,big\n510,y,small\n1500,y,big\n1510,x,big\n' > mixed.csv
run table.json --quiet --set run_dir=run
expect_code 0
run eval run --data new.csv
expect_stdout '^test acc: 1.0000, .* 4 rows of new.csv'
run eval run --data mixed.csv
expect_stdout '^test acc: 0.7500, .* 4 rows of mixed.csv'
run eval run/weights.safetensors --data mixed.csv
expect_stdout '^test acc: 0.7500, .* 4 rows of mixed.csv'
# One worker predicts so few rows. For more rows there is a worker for each shard.
run eval run --data mixed.csv --devices ref --set shards=2 --json
expect_stdout '"devices":"\[ref(0)\]"'
run eval run --train --devices ref --set shards=2 --json
expect_stdout '"devices":"\[ref(0), ref(1)\]"'
# Class weights "balanced" are computed from the training rows. With --data these are not read, and
# the loss has no class weights.
awk '!/small/ || n++ < 10' train.csv >skew.csv
run table.json --quiet --set run_dir=weighed --set class_weights=balanced --set data.path=skew.csv --set epochs=1
expect_code 0
loss_of() { sed -n 's/.* loss \([0-9.]*\).*/\1/p' stdout.txt; }
run eval weighed --train
weighed=$(loss_of)
run eval weighed --train --set 'class_weights=[1,1]'
plain=$(loss_of)
[ "$weighed" != "$plain" ] || fail 'balanced weights change the loss'
for model in weighed weighed/weights.safetensors; do
    run eval $model --data skew.csv
    expect_stdout "^test acc: .* loss $plain without class_weights, auc "
    expect_stderr_line "trainer: class_weights \"balanced\" need the run's training rows, which are not read; the loss is computed without them"
    run eval $model --data skew.csv --json
    expect_stdout '"class_weights":false'
done
run eval weighed --train --json
! grep -q class_weights stdout.txt || fail 'class_weights of the run itself'
# A file of an earlier version describes only the features of a row, and has no preparation.
mkdir old
cp run/config.json old
bytes=$(od -An -tu4 -N4 run/weights.safetensors | tr -d ' ')
{
    head -c 8 run/weights.safetensors
    tail -c +9 run/weights.safetensors | head -c "$bytes" |
        sed 's/"sha256":"[0-9a-f]*",//; s/\\"preparation\\":{.*},\\"recipe\\"/\\"recipe\\"/' | awk -v n="$bytes" '{ printf "%-" n "s", $0 }'
    tail -c +$((9 + bytes)) run/weights.safetensors
} >old/weights.safetensors
grep -q preparation run/weights.safetensors && ! grep -q preparation old/weights.safetensors || fail 'a file of an earlier version'
run predict run/weights.safetensors mixed.csv --to new-says.csv
run predict old/weights.safetensors mixed.csv --to old-says.csv
cmp -s old-says.csv new-says.csv || fail "predictions of an earlier version's file: $(cat old-says.csv)"
expect_failure 65 "mixed.csv: the file of weights is of an older version and does not name the target column; name the directory of the run instead" eval old/weights.safetensors --data mixed.csv
run eval old --data mixed.csv
expect_stdout '^test acc: 0.7500, .* 4 rows of mixed.csv'
# If the table has changed since the run, eval and predict say that its rows are not those of the run.
cp train.csv changing.csv
run table.json --quiet --set run_dir=changing --set data.path=changing.csv --set data.validation=0.2
changed="trainer: warning: changing.csv: the data have changed since the run, so these are not the run's rows, and the run may have been trained on some of its test or validation rows; put the data back, or name other rows with --data"
run eval changing
expect_code 0
[ ! -s stderr.txt ] || fail "unexpected: $(cat stderr.txt)"
echo 500,x,small >>changing.csv
for command in 'eval changing' 'eval changing --set shards=1' 'predict changing --rows 0:2'; do
    # shellcheck disable=SC2086
    run $command
    expect_code 0
    expect_stderr_line "$changed"
done
sed '2s/500/1500/' train.csv >changing.csv # as many rows
run eval changing
expect_stderr_line "$changed"
cp train.csv changing.csv
run eval changing
[ ! -s stderr.txt ] || fail "unexpected: $(cat stderr.txt)"
# Numbers of 17 digits are levels and classes like other texts. A number that is unknown is named in the same words
# by eval and predict. A file of an earlier version, which rounded them, is named.
awk 'BEGIN { print "id,kind"; for (i = 0; i < 60; i++) printf "9007199254740992%d,9007199254740993%d\n", i % 2 + 1, i % 2 + 1 }' > ids.csv
printf 'id,kind\n90071992547409923,90071992547409931\n' > unknown.csv
run table.json --quiet --set run_dir=ids --set data.path=ids.csv --set data.categorical=id --set data.labels=classes
expect_code 0
run eval ids --data ids.csv
expect_stdout '^test acc: 1.0000, .* 60 rows of ids.csv'
[ ! -s stderr.txt ] || fail "unexpected: $(cat stderr.txt)"
unlearnt='unknown.csv:2: column "id": expected a text that the model has learnt: 90071992547409921, 90071992547409922, found "90071992547409923"'
run eval ids --data unknown.csv # no row is left
expect_code 65
expect_stderr_line "trainer: $unlearnt"
run predict ids unknown.csv --set data.unknown=error
expect_code 65
expect_stderr_line "trainer: $unlearnt; correct it, or leave out such rows: --skip-broken"
run predict ids unknown.csv
expect_code 65
expect_stdout "^row 0: no prediction: $unlearnt$"
expect_stderr_line 'trainer: unknown.csv: 1 of 1 rows has no prediction, because no training row has its value: line 2, column "id": "90071992547409923"'
# A table of another encoding: the message names it.
awk 'BEGIN { print "place,kind"; for (i = 0; i < 60; i++) printf "%s,%s\n", i % 2 ? "Köln" : "Bonn", i % 2 ? "big" : "small" }' > utf8.csv
printf 'place\nBonn\nK\366ln\n' >latin.csv
run table.json --quiet --set run_dir=places --set data.path=utf8.csv
expect_code 0
run predict places latin.csv --to latin-says.csv
expect_code 65
grep -q 'because no training row has its value: line 3, column "place": "K?ln" (not UTF-8)$' stderr.txt || fail "the encoding: $(cat stderr.txt)"
run predict places latin.csv
expect_stdout '; this text is not UTF-8 but perhaps Latin-1: save the table as UTF-8, found "K?ln"$'
mkdir rounded
bytes=$(od -An -tu4 -N4 ids/weights.safetensors | tr -d ' ')
{
    head -c 8 ids/weights.safetensors
    tail -c +9 ids/weights.safetensors | head -c "$bytes" |
        sed 's/"sha256":"[0-9a-f]*",//; s/,\\"\(target_\)*compare\\":\\"digits\\"//g' | awk -v n="$bytes" '{ printf "%-" n "s", $0 }'
    tail -c +$((9 + bytes)) ids/weights.safetensors
} >rounded/weights.safetensors
run predict rounded/weights.safetensors ids.csv
expect_code 0
for text in 'id": "90071992547409921' 'kind": "90071992547409931'; do
    expect_stderr_line "trainer: warning: rounded/weights.safetensors: column \"$text\" may stand for several texts of the training table, because the older version that trained this model rounded numbers of 16 and more digits or beyond 1e308; train again"
done
# The file of weights alone is enough for predictions, without the run directory and the training
# table, in any working directory.
mkdir -p elsewhere && cp run/weights.safetensors elsewhere/w.safetensors
mv train.csv gone.csv
cd elsewhere || exit 1
run predict w.safetensors ../new.csv --to out.csv
expect_code 0
[ ! -s stdout.txt ] || fail 'expected nothing on stdout'
expect_stderr_line 'trainer: out.csv: 4 rows predicted with w.safetensors'
[ "$(cut -d, -f1,2 out.csv | tr '\n' ' ')" = 'row,prediction 0,big 1,big 2,big 3,big ' ] || fail "predictions: $(cat out.csv)"
head -n 1 out.csv | grep -qx 'row,prediction,p_big,p_small,line' || fail 'columns of predictions'
run predict w.safetensors ../mixed.csv --to out.jsonl
[ "$(sed 's/.*"prediction":"\([a-z]*\)".*/\1/' out.jsonl | tr '\n' ' ')" = 'small small big big ' ] || fail 'predictions as lines'
label='a table on standard input'
"$program" predict w.safetensors - < ../mixed.csv > stdout.txt 2> stderr.txt
[ "$(cut -d' ' -f4 stdout.txt | tr '\n' ' ')" = 'small small big big ' ] || fail 'predictions'
run export ../run --to copy.safetensors
expect_code 0
cd .. || exit 1
run eval run --data new.csv
expect_stdout '^test acc: 1.0000'
run eval run
expect_code 66
expect_error "train.csv: the run's data are not there; name where they are now: --set data.path=WHERE; eval and predict also take other rows: --data WHERE"
run eval run --set data.path=gone.csv --train
expect_stdout '^train acc: 1.0000'
printf 'u,kind\n1500,big\n' > bad.csv
expect_failure 65 "bad.csv:1: expected the columns of the model's training table, in any order; missing: \"v\"" predict run bad.csv
# A row with a value that the model does not know has no prediction; the others have one. eval leaves it out.
printf 'u,v\n1500,z\n,x\n1e39,x\n400,y\n' > bad.csv
unknown='because no training row has a value of theirs: line 2, column "v": "z"; line 3, column "u": ""; line 4, column "u": "1e39"'
run predict run bad.csv --to out.csv
expect_code 65
expect_stderr_line "trainer: bad.csv: 3 of 4 rows have no prediction, $unknown"
[ "$(sed 's/small,.*/small,/' out.csv | tr '\n' ' ')" = 'row,prediction,p_big,p_small, 0,,,,2 1,,,,3 2,,,,4 3,small, ' ] || fail "predictions: $(cat out.csv)"
run predict run bad.csv --to out.jsonl
expect_code 65
head -n 1 out.jsonl | grep -qxF '{"row":0,"error":"bad.csv:2: column \"v\": expected a text that the model has learnt: x, y, found \"z\""}' || fail "$(cat out.jsonl)"
run predict run bad.csv --skip-broken --to out.csv
expect_code 0
[ "$(tail -n 1 out.csv | cut -d, -f1,2),$(wc -l < out.csv)" = '3,small,2' ] || fail "predictions: $(cat out.csv)"
run predict run bad.csv --set data.unknown=zeros
expect_code 65
expect_stdout '^row 0: '
expect_stderr_line 'trainer: warning: bad.csv: 1 of 4 rows has a text that no training row has, which counts as none of the texts of its column: line 2, column "v": "z"'
group='data={"name": "csv", "path": "gone.csv", "target": "kind", "standardize": true'
for set in data.unknown=error "$group, \"unknown\": \"error\"}"; do # alone, and with its group
    expect_failure 65 'bad.csv:2: column "v": expected a text that the model has learnt: x, y, found "z"; correct it, or leave out such rows: --skip-broken' predict run bad.csv --set "$set"
done
run predict run bad.csv --set data.unknown=error --set "$group}" # a group that takes its place
expect_stdout '^row 3: '
expect_stderr_line "trainer: bad.csv: 3 of 4 rows have no prediction, $unknown"
# A text in a column of numbers is an error, of which a message names the cure. With --skip-broken the row is left out
# as others without a prediction are, also if data.unknown is "error".
printf 'u,v,kind\n1500,x,big\n40..0,y,small\n400,z,small\n400,y,small\n' > bad.csv
broken='bad.csv:3: column "u": expected a number, found "40..0"; correct it, or leave out such rows: --skip-broken'
skipped='trainer: 2 of 4 rows were left out, because the model cannot read a value of theirs: line 3, column "u": "40..0"; line 4, column "v": "z"'
for form in '' --json '--to broken.csv' '--to broken.jsonl'; do
    # shellcheck disable=SC2086
    expect_failure 65 "$broken" predict run bad.csv $form
    for unknown_is in empty error; do
        # shellcheck disable=SC2086
        run predict run bad.csv $form --skip-broken --set data.unknown=$unknown_is
        expect_code 0
        expect_stderr_line "$skipped"
        case $form in
        *.csv) [ "$(cut -d, -f1,2,5 broken.csv | tr '\n' ' ')" = 'row,prediction,line 0,big,2 3,small,5 ' ] || fail "$(cat broken.csv)" ;;
        *.jsonl) [ "$(cut -c-48 broken.jsonl | tr '\n' ' ')" = '{"row":0,"line":2,"prediction":"big","probabilit {"row":3,"line":5,"prediction":"small","probabil ' ] || fail "$(cat broken.jsonl)" ;;
        *) [ "$(grep -c 'row.* [0-3]\|row.*"name":' stdout.txt)" -eq 2 ] && ! grep -q 'row"*[ :][12]' stdout.txt || fail "$(cat stdout.txt)" ;;
        esac
    done
done
expect_failure 65 "$broken" eval run --data bad.csv
run eval run --data bad.csv --skip-broken --wrong broken.csv
expect_code 0
expect_stdout '^test acc: 1.0000, .*; 2 of 4 rows of bad.csv'
expect_stderr_line 'trainer: warning: bad.csv: 2 of 4 rows are left out, because the model cannot read a value of theirs: line 3, .*'
label='a table on standard input'
"$program" predict run - --skip-broken < bad.csv > stdout.txt 2> stderr.txt
expect_stderr_line 'trainer: 2 of 4 rows were left out, because .*'
printf 'u,v\n1500,x\n40..0,y\n' > bad.csv
run predict run bad.csv --skip-broken
expect_stderr_line 'trainer: 1 of 2 rows was left out, because the model cannot read its value: line 3, column "u": "40..0"'
printf 'u,v\n1500\n' > bad.csv # a row of another form is no value
run predict run bad.csv --skip-broken
expect_code 65
printf 'u,v,kind\n1500,z,big\n,x,small\n1e39,x,big\n400,y,small\n' > bad.csv
run eval run --data bad.csv
expect_code 0
expect_stdout '^test acc: 1.0000, .*; 1 of 4 rows of bad.csv'
expect_stderr_line "trainer: warning: bad.csv: 3 of 4 rows are left out, $unknown"
run eval run --data bad.csv --json
expect_stdout '"rows":1,"rows_left_out":3,'
printf 'u,v,kind\n1500,x,medium\n' > bad.csv
expect_failure 65 'bad.csv:2: column "kind": expected a class that the model has learnt, found "medium"' eval run --data bad.csv

# ---- pictures: of any size, in folders; the cache and the working directory do not matter --------------------------

# picture PATH WIDTH HEIGHT GREY: writes a picture whose square in the middle is GREY and whose
# other pixels are not.
picture() {
    { printf 'P5\n%d %d\n255\n' "$2" "$3"; head -c $(($2 * $3)) /dev/zero | tr '\0' "$4"; } > "$1"
}
mkdir -p photos/dark photos/light
for i in 1 2 3 4 5 6; do picture photos/dark/$i.pgm $((8 + i)) 8 ' '; picture photos/light/$i.pgm 8 $((8 + i)) '~'; done
cat > photos.json <<'END'
{"data": {"name": "folder", "path": "photos", "image_size": 8, "channels": 1, "mean": 0.3, "std": 0.2, "validation": 0.34}, "batch_size": 4,
 "epochs": 8, "devices": "ref:1", "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]},
 "optimizer": {"name": "sgd", "lr": 0.1}, "init": {"name": "kaiming"}, "checkpoint": {"every_epochs": 1}}
END
run photos.json --quiet --set run_dir=runs/photos
expect_code 0
mkdir -p rotated/dark rotated/light other/dark other/grey big
for i in 1 2 3; do picture rotated/dark/$i.pgm 30 20 '~'; picture rotated/light/$i.pgm 20 41 ' '; done
picture big/a.pgm 100 61 ' '
picture big/b.pgm 31 200 '~'
cp rotated/dark/1.pgm other/dark && cp rotated/dark/1.pgm other/grey
run eval runs/photos
expect_stdout '^validation acc: 1.0000'
run eval runs/photos --data rotated
expect_stdout '^test acc: 0.0000, .* 6 images of rotated'
run eval runs/photos --set data.path=rotated
expect_stdout '^validation acc: 0.0000'
run eval runs/photos/weights.safetensors --data rotated
expect_stdout '^test acc: 0.0000, .* 6 images of rotated'
mkdir -p part/dark part/light
cp rotated/dark/1.pgm part/dark && cp rotated/light/1.pgm part/light && printf 'P5 4 4 255\nshort' >part/dark/2.pgm
run eval runs/photos --data part
expect_code 65
run eval runs/photos --data part --skip-broken
expect_code 0
expect_stdout '^test acc: 0.0000, .* 2 images of part'
expect_failure 66 'nowhere: cannot be read: No such file or directory' eval runs/photos --data nowhere
expect_failure 65 'other/grey: expected sub-folders named as classes of the model, which are "dark", "light"' eval runs/photos --data other
run predict latest big rotated/dark/2.pgm --to out.csv
expect_code 0
[ "$(cut -d, -f1,2 out.csv | tr '\n' ' ')" = 'file,prediction big/a.pgm,dark big/b.pgm,light rotated/dark/2.pgm,light ' ] || fail "pictures: $(cat out.csv)"
run predict runs/photos/weights.safetensors big/a.pgm --config photos.json
expect_stdout '^big/a.pgm: 0 dark'
label='a picture on standard input'
"$program" predict latest - --to one.jsonl < big/b.pgm > stdout.txt 2> stderr.txt
expect_stderr_line 'trainer: one.jsonl: 1 picture predicted with runs/photos/.*'
"$program" predict latest - < big/b.pgm > stdout.txt 2> stderr.txt
expect_stdout '^-: 1 light'
# If the cache is gone, the folder is packed again. If the folder is gone as well, the message says
# what to do.
rm -r cache
mkdir away && cd away || exit 1
run predict ../runs/photos ../big/b.pgm
expect_stdout ': 1 light'
run eval ../runs/photos
expect_stdout '^validation acc: 1.0000'
rm -r ../cache
run --resume ../runs/photos --set epochs=9 --quiet
expect_code 0
cd .. || exit 1
rm -r cache
mv photos moved
run predict runs/photos big/b.pgm
expect_stdout ': 1 light'
run --resume runs/photos --set epochs=10
expect_code 66
expect_stderr_line 'trainer: .*: the packed images of the run are gone, and photos, .*: --set data.path=FOLDER'
run --resume runs/photos --set epochs=10 --set data.path=moved --quiet
expect_code 0
run eval runs/photos --set data.path=moved
expect_stdout '^validation acc: 1.0000'
for verb in eval report; do
    run $verb latest --set data.path=moved
    [ $verb = report ] || expect_code 0
done
run report latest
expect_last_stdout_line 'runs/photos/report.html'
run export latest --to latest.onnx
expect_code 0

# ---- arrays: the class is 1 where the first byte is a "z" -----------------------------------------------------------

# npy SHAPE TEXT: prints an .npy file of u8; each character of TEXT is a value.
npy() {
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
    printf '%s' "$2"
}
twenty() { printf '%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s' "$1" "$2" "$1" "$2" "$1" "$2" "$1" "$2" "$1" "$2" \
    "$1" "$2" "$1" "$2" "$1" "$2" "$1" "$2" "$1" "$2"; }
npy '(20, 2)' "$(twenty !m zm)" >x.npy
{ npy '(20,)' ''; printf '\000\001\000\001\000\001\000\001\000\001\000\001\000\001\000\001\000\001\000\001'; } >y.npy
cat >array.json <<'END'
{"data": {"name": "npy", "x": "x.npy", "y": "y.npy"}, "batch_size": 10, "epochs": 40, "devices": "ref:1",
 "init": {"name": "kaiming"}, "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]},
 "optimizer": {"name": "sgd", "lr": 0.5}}
END
run array.json --quiet --set run_dir=array
expect_code 0
mkdir alone
mv array/weights.safetensors alone
npy '(3, 2)' 'zm!mzm' >new.npy
run predict alone/weights.safetensors new.npy --to out.csv
expect_code 0
[ "$(cut -d, -f1,2 out.csv | tr '\n' ' ')" = 'row,prediction 0,1 1,0 2,1 ' ] || fail "predictions of an array: $(cat out.csv)"
label='an array on standard input'
"$program" predict alone/weights.safetensors - --to piped.csv <new.npy >stdout.txt 2>stderr.txt
cmp -s piped.csv out.csv || fail "predictions: $(cat piped.csv stderr.txt)"
head -c 130 new.npy >cut.npy
"$program" predict alone/weights.safetensors - <cut.npy >stdout.txt 2>stderr.txt
grep -q 'standard input: offset 10: expected as many bytes as shape and type make' stderr.txt || fail "an array that is cut off: $(cat stderr.txt)"
"$program" predict run/weights.safetensors - <new.npy >stdout.txt 2>stderr.txt
grep -q 'standard input: expected rows of (N, 3, 1, 1), or (N, features), as the model reads them, found (N, 2)' stderr.txt ||
    fail "an array for a table of three: $(cat stderr.txt)"
"$program" predict alone/weights.safetensors - <new.csv >stdout.txt 2>stderr.txt
grep -q 'standard input: the model reads arrays, not pictures; name an .npy file' stderr.txt ||
    fail "a table for a model of arrays: $(cat stderr.txt)"
npy '(3, 3)' 'zm!mzmzmz' >wide.npy
expect_failure 65 'wide.npy: expected rows of (N, 2, 1, 1), or (N, features), as the model reads them, found (N, 3)' predict alone/weights.safetensors wide.npy
# New rows with labels, three of four of which the model predicts: from two .npy files, and from a
# safetensors file.
mkdir four wide labels floats half
npy '(4, 2)' 'zm!mzm!m' >four/x.npy
{ npy '(4,)' ''; printf '\001\000\000\000'; } >four/y.npy
header='{"x":{"dtype":"U8","shape":[4,2],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}}'
{ printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%szm!mzm!m" "$header"; printf '\001\000\000\000'; } >four.safetensors
for model in array alone/weights.safetensors; do
    run eval $model --data four
    expect_stdout '^test acc: 0.7500, .*; 4 images of four/x.npy '
    [ $model = array ] || run eval $model --data four.safetensors
    [ $model = array ] || expect_stdout '^test acc: 0.7500, .*; 4 images of four.safetensors '
    run eval $model --data four --json
    expect_stdout '"split":"test"'
done
run eval array --set data.name=safetensors --set data.x=x --set data.y=y --data four.safetensors
expect_stdout '^test acc: 0.7500, .*; 4 images of four.safetensors '
cp four/y.npy wide; cp four/y.npy floats; cp four/x.npy labels
npy '(4, 3)' 'zm!mzmzmzmzm' >wide/x.npy
{ npy '(4,)' ''; printf '\001\000\002\000'; } >labels/y.npy
npy '(4, 2)' 'zm!mzm!mzm!mzm!m' | sed 's/|u1/<f2/' >floats/x.npy
for model in array alone/weights.safetensors; do
    for rows in wide floats; do
        run eval $model --data $rows
        expect_code 65
        kind=$([ $rows = wide ] && echo '3×1×1 bytes' || echo '2×1×1 floats')
        expect_stderr_line "trainer: .*: the model reads rows of 2×1×1 bytes with 2 classes; the rows of $rows (.*) are $kind with 2 classes; give rows as those that it was trained on"
    done
    expect_failure 65 'labels/y.npy: y: row 2: expected labels from 0 to 1, found 2; the model has learnt no other labels' eval $model --data labels
    run eval $model --data nowhere
    expect_code 66
done
# Missing numbers are replaced by the means of the training rows, 0.5 and 1.
{ npy '(20, 2)' '' | sed 's/|u1/<f2/'; for i in 1 2 3 4 5 6 7 8 9 10; do printf '\000\074\000\074\000\000\000\074'; done; } >half/x.npy
cp y.npy half/y.npy # 0 where the first is 1
run array.json --quiet --set run_dir=holes --set data.path=half --set data.missing=mean
expect_code 0
{ npy '(4, 2)' '' | sed 's/|u1/<f2/'; printf '\000\074\000\176\000\000\000\176\000\074\000\074\000\000\000\074'; } >floats/x.npy
{ npy '(4,)' ''; printf '\000\001\000\001'; } >floats/y.npy
mv half gone
run eval holes --data floats
expect_stdout '^test acc: 1.0000, .*; 4 rows of floats/x.npy '
cp stdout.txt whole.txt
run eval holes/weights.safetensors --data floats
[ "$(cut -d';' -f1 stdout.txt)" = "$(cut -d';' -f1 whole.txt)" ] || fail "holes: $(cat whole.txt)"

# ---- values: an output for each quantile has its name, and counts are counts ----------------------------------------

awk 'BEGIN { print "u,v,w"; for (i = 0; i < 80; i++) printf "%d,%d,%d\n", i % 4, i % 5, 1000 + 100 * (i % 4) + 10 * (i % 5) }' >values.csv
printf 'u,v\n3,0\n0,4\n' >rows.csv
cat >values.json <<'END'
{"data": {"name": "csv", "path": "values.csv", "target": "w", "labels": "values"}, "batch_size": 20, "epochs": 60,
 "devices": "ref:1", "init": {"name": "kaiming"}, "model": {"layers": [{"type": "dense", "out": 2}]},
 "loss": "quantile", "quantiles": [0.125, 0.75], "optimizer": {"name": "sgd", "lr": 0.1}}
END
run values.json --quiet --set run_dir=quantiles
expect_code 0
run predict quantiles rows.csv --to quantiles.csv
expect_code 0
[ "$(head -1 quantiles.csv)" = row,q0.125,q0.75,line ] || fail "names of quantiles: $(cat quantiles.csv)"
awk -F, 'NR > 1 && !($2 > 900 && $2 < 1500 && $3 > 900 && $3 < 1500 && $4 == NR && NF == 4) { exit 1 }' quantiles.csv || fail "quantiles: $(cat quantiles.csv)"
printf 'u,v\n3,0\n0,\n' >hole.csv
run predict quantiles hole.csv --to hole-says.csv
expect_code 65
[ "$(tail -n 1 hole-says.csv)" = 1,,,3 ] || fail "a row without quantiles: $(cat hole-says.csv)"
run predict quantiles --train --rows 7:8 --to quantiles.csv
[ "$(cut -d, -f1,4- quantiles.csv | tr '\n' ' ')" = 'row,line,label 7,9,1320 ' ] || fail "a label of quantiles: $(cat quantiles.csv)"
run predict quantiles rows.csv --to quantiles.jsonl
grep -q '^{"row":0,"line":2,"prediction":{"q0.125":1[0-9.]*,"q0.75":1[0-9.]*}}$' quantiles.jsonl || fail "quantiles: $(cat quantiles.jsonl)"
run predict quantiles --train --rows 7:9
expect_stdout '^row 7: q0.125 1[0-9.]*, q0.75 1[0-9.]*; its targets are 1320; line 9$'
expect_stdout '^row 8: q0.125 [0-9.]*, q0.75 1[0-9.]*; its targets are 1030; line 10$'
run eval quantiles --train
expect_stdout 'pinball'
# Several targets have a column each.
mkdir two
npy '(20, 2)' "$(twenty !m zm)" >two/x.npy
{ npy '(20, 2)' '' | sed 's/|u1/<f2/'; for i in 1 2 3 4 5 6 7 8 9 10; do printf '\000\074\000\076\000\000\000\074'; done; } >two/y.npy
run array.json --quiet --set run_dir=two-run --set data.path=two --set data.x=x.npy --set data.y=y.npy --set loss=mse
expect_code 0
run predict two-run --train --rows 0:2 --to two.csv
[ "$(head -n 1 two.csv),$(cut -d, -f1,4- two.csv | tail -n 2 | tr '\n' ' ')" = 'row,value_0,value_1,label_0,label_1,0,1,1.5 1,0,1 ' ] ||
    fail "two targets: $(cat two.csv)"
run predict two-run two/x.npy --to two.csv
awk -F, 'NR > 1 && !(NF == 3 && $2 > -9 && $2 < 9 && $3 > -9 && $3 < 9) { exit 1 }' two.csv || fail "two targets: $(cat two.csv)"
run values.json --quiet --set run_dir=counts --set loss=poisson --set quantiles=null --set optimizer.lr=0.0001 \
    --set 'model={"layers": [{"type": "dense"}]}'
expect_code 0
run predict counts rows.csv --json
expect_stdout '^{"row":0,"line":2,"outputs":\[\([0-9.e+]*\)\],"logits":\[[0-9.e-]*\]}$'
sed 's/.*"outputs":\[\(.*\)\],"logits":\[\(.*\)\]}/\1 \2/' stdout.txt | awk '{ e = $1 / exp($2) - 1; if (e > 1e-5 || e < -1e-5) exit 1 }' ||
    fail "counts: $(cat stdout.txt)"

# ---- generated images have no files ---------------------------------------------------------------------------------

sed 's/{"name": "npy".*y.npy"}/{"name": "synthetic", "limit": 32}/; s/"out": 2/"out": 10/; s/: 40/: 1/' array.json >drawn.json
run drawn.json --quiet --set run_dir=drawn
expect_code 0
run eval drawn --data new.csv
expect_stderr_line "trainer: new.csv: the run's data are generated.*"
finish
