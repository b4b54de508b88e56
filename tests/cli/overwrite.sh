#!/bin/sh
# SPDX-License-Identifier: MIT
# overwrite.sh TRAINER: no command replaces a file that it reads, whatever the file is called; `init` replaces a config
# only, and keeps it if it differs.
# shellcheck disable=SC1091,SC2034,SC2154
. "$(dirname "$0")/expect.sh"
XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME

awk 'BEGIN { print "a,b,kind"; for (i = 0; i < 60; i++) print i % 7 "," i % 5 "," (i % 7 > 3 ? "big" : "small") }' >train.csv
cp train.csv new.csv
cp train.csv other.csv
mkdir -p photos/dark photos/light sub
for i in 1 2 3 4 5; do
    { printf 'P5 8 8 255\n'; head -c 64 /dev/zero | tr '\0' "\\02$i"; } >photos/dark/$i.pgm
    { printf 'P5 8 8 255\n'; head -c 64 /dev/zero | tr '\0' "\\33$i"; } >photos/light/$i.pgm
done
run init train.csv --to train.json --set devices=ref:1 --set epochs=1
expect_code 0
run train.json --quiet --set run_dir=run
expect_code 0
run export run --to model.safetensors
expect_code 0
run pack photos --to photos.safetensors --size 8
expect_code 0
cp model.safetensors model.npz
ln -s new.csv link.csv
ln -s new.csv link.json
ln new.csv hard.csv
cp train.csv before.csv
cat >copies.sums <<END
$(sha256sum train.csv new.csv other.csv train.json model.safetensors model.npz photos.safetensors run/weights.safetensors \
    run/metrics.jsonl photos/dark/1.pgm)
END

# Each line: the arguments of a command that must be refused, with no file changed.
while read -r arguments; do
    # shellcheck disable=SC2086 # words
    run $arguments
    expect_code 64
    grep -q -e '--[a-z]* [^ ]*: .* name another file' stderr.txt || fail 'expected the option, the file and the fix'
    sha256sum --check --quiet copies.sums >changed.txt 2>&1 || {
        fail "changed: $(cat changed.txt)"
        exit 1
    }
done <<END
init train.csv --to train.csv
init train.csv --to sub/../train.csv
init train.csv --to other.csv
init new.csv --to link.json
init train.csv --to model.npz
init train.csv --from model.safetensors --to model.safetensors
init photos --to photos/dark/1.pgm
predict run new.csv --to new.csv
predict run new.csv --to $PWD/new.csv
predict run new.csv --to link.csv
predict run link.csv --to hard.csv
predict run other.csv new.csv --to hard.csv
predict model.safetensors --config train.json --rows 0:3 --to train.csv
eval run --data new.csv --wrong new.csv
eval run --data new.csv --wrong ./hard.csv
eval run --wrong train.csv
eval run --set data.path=new.csv --wrong link.csv
train.json --quiet --folds 2 --wrong train.csv
train.json --quiet --folds 2 --set data.path=new.csv --wrong hard.csv
train.json --quiet --set run_dir=null --metrics train.csv
train.json --quiet --set run_dir=null --metrics train.json
train.json --quiet --set run_dir=null --trace train.csv
train.json --quiet --set run_dir=null --trace train.json
export model.safetensors --to model.safetensors
export model.safetensors --to sub/../model.safetensors
export run --to run/weights.safetensors
report run --output run/metrics.jsonl
pack photos --to photos/dark/1.pgm
pack sub --test photos --to photos/dark/1.pgm
sweep train.json --vary epochs=1,2 --json train.json
sweep train.json --vary epochs=1,2 --json train.csv
find-lr train.json --json train.json
find-lr train.json --svg train.csv
END

# Outputs of an earlier call are replaced, also in a directory that is read.
for arguments in 'predict run new.csv --to out.csv' 'eval run --wrong out.csv' 'export run --to run/copy.safetensors' \
    'report run --output run/page.html' 'pack photos --to photos/packed.safetensors --size 8'; do
    for _ in 1 2; do
        # shellcheck disable=SC2086 # words
        run $arguments
        expect_code 0
    done
done

# A value of an option is no path: "." is a decimal mark, and a config in a directory of data is replaced.
for _ in 1 2; do
    run init train.csv --decimal . --to config.json
    expect_code 0
    run init photos --to photos/config.json
    expect_code 0
done

# `init` replaces a config, and keeps it if somebody has changed it.
run init train.csv --to mine.json
run init train.csv --to mine.json
expect_code 0
[ ! -e mine.json.old ] || fail 'expected no copy of a config that did not change'
sed -i 's/"seed": 0/"seed": 1/; s/"schedule"/ "schedule"/' mine.json
cp mine.json edited.json
run init train.csv --to mine.json
expect_code 0
expect_stderr_line 'trainer: replaces mine.json; the config that it was is kept in mine.json.old'
cmp -s edited.json mine.json.old || fail 'expected the edited config in mine.json.old'

# A copy is never replaced by another one: the edits of both configs are kept. The same edits are kept once.
cp edited.json mine.json
run init train.csv --to mine.json
expect_code 0
expect_stderr_line 'trainer: replaces mine.json; the config that it was is kept in mine.json.old'
[ ! -e mine.json.old2 ] || fail 'expected one copy of the same config'
sed 's/"schedule"/  "schedule"/' edited.json >mine.json
cp mine.json second.json
run init train.csv --to mine.json
expect_code 0
expect_stderr_line 'trainer: replaces mine.json; the config that it was is kept in mine.json.old2'
cmp -s edited.json mine.json.old || fail 'expected the first edits in mine.json.old'
cmp -s second.json mine.json.old2 || fail 'expected the second edits in mine.json.old2'
for text in '{"rows": [1, 2]}' '[1]' 'no JSON'; do
    printf '%s\n' "$text" >mine.json
    run init train.csv --to mine.json
    expect_code 64
    [ "$(cat mine.json)" = "$text" ] || fail "replaced: $text"
done
finish
