#!/bin/sh
# SPDX-License-Identifier: MIT
# verbs.sh TRAINER: eval, predict, export, devices and bench from end to end, on synthetic data and
# the reference back end.
# shellcheck disable=SC1091,SC2154 # verb.sh sets and reads the shared variables
tiny=$2
. "$(dirname "$0")/verb.sh"
cp -- "$tiny" config.json

field() { sed -n "s/.*\"$1\":\\([-0-9.e]*\\).*/\\1/p" | tail -n 1; }

expect 0 "$trainer" config.json --quiet --set run_dir=run --set metrics.tensorboard=true
hash_of() { grep -o '"weights_sha256": *"[0-9a-f]*"' "$1/metrics.jsonl" | tail -n 1; }
set -- run/events.out.tfevents.*
{ [ $# -eq 1 ] && [ -s "$1" ]; } || fail "no TensorBoard events"

# eval: the run's own numbers, to the last bit, on one device and on three.
for devices in ref:1 ref:3; do
    expect 0 "$trainer" eval run --json --devices $devices
    [ "$(field loss <out)" = "$(grep '"eval"' run/metrics.jsonl | field test_loss)" ] ||
        fail "eval on $devices: another loss"
    [ "$(field accuracy <out)" = "$(grep '"eval"' run/metrics.jsonl | field test_accuracy)" ] ||
        fail "eval on $devices: another accuracy"
    has out '"synthetic":true'
    has out '"weights":"run/weights.safetensors"'
done
expect 0 "$trainer" eval run
has out '^test acc: [01]\.[0-9]*, loss .*; 1000 images of synthetic (synthetic data) on \[ref(0)\]'
expect 0 "$trainer" eval run --train
has out '^train acc: .*; 320 images'

# The ending of a file decides its format, whatever its case.
for file in M.ONNX m.Onnx W.SAFETENSORS; do
    expect 0 "$trainer" export run --to $file
    [ -s $file ] || fail "no $file"
done
cmp M.ONNX m.Onnx || fail "M.ONNX has another format than m.Onnx"
cmp W.SAFETENSORS run/weights.safetensors || fail "W.SAFETENSORS has other weights"
for file in P.CSV p.Jsonl; do
    expect 0 "$trainer" predict run --rows 0:2 --to $file
    [ -s $file ] || fail "no $file"
done
expect 64 "$trainer" export run --to onnx
expect 64 "$trainer" export run --to .onnx

# A key that the data refuses is pointed at where it stands.
mkdir beyond
cp run/weights.safetensors beyond
sed 's/"limit": [0-9]*/"limit": 1000001/' run/config.json >beyond/config.json
expect 78 "$trainer" eval beyond
has err "beyond/config.json:$(grep -n '"limit"' run/config.json | cut -d: -f1):[0-9]*: data.limit: expected at most"

# A checkpoint, a file, and a run that has only checkpoints.
for checkpoint in run/checkpoints/step-*; do :; done # the newest stands last
expect 0 "$trainer" eval "$checkpoint" --json
has out "\"weights\":\"$checkpoint\""
expect 0 "$trainer" eval run/weights.safetensors --config config.json --json
# A file is enough, wherever it lies, and one that was exported too.
cp run/weights.safetensors alone.safetensors
expect 0 "$trainer" predict run --rows 0:3 --json --devices ref:1
cp out of_run
expect 0 "$trainer" predict alone.safetensors --rows 0:3 --json --devices ref:1
cmp -s out of_run || fail "a file alone predicts otherwise than its run"
expect 0 "$trainer" eval alone.safetensors --json
[ "$(field accuracy <out)" = "$(grep '"eval"' run/metrics.jsonl | field test_accuracy)" ] ||
    fail "a file alone is evaluated otherwise than its run"
expect 0 "$trainer" export run --to given.safetensors
cmp -s given.safetensors alone.safetensors || fail "the exported file is another"
expect 0 "$trainer" export alone.safetensors --to alone.onnx
# One that lacks a tensor of its model is refused, and nothing is freed twice.
LC_ALL=C sed 's/"sha256"/"former"/; s/"fc.bias"/"fc.bios"/' alone.safetensors >renamed.safetensors
expect 65 "$trainer" eval renamed.safetensors
# So it is where neither says how many shards there were: they follow from the model, as in training.
sed 's/"shards": 4, //' config.json >unsaid.json
expect 0 "$trainer" unsaid.json --quiet --set run_dir=unsaid
for devices in ref:1 ref:3; do
    expect 0 "$trainer" eval unsaid --config unsaid.json --json --devices $devices
    [ "$(field loss <out)" = "$(grep '"eval"' unsaid/metrics.jsonl | field test_loss)" ] ||
        fail "eval without shards on $devices: another loss"
done
expect 0 "$trainer" predict unsaid --config unsaid.json --rows 0:3 --json
# Rows that are not what the file says of its model's are refused: it would read beyond them.
for lie in 's/\[1,28,28\]/[4,14,14]/' 's/floats\\":false/floats\\":true /' 's/targets\\":false/targets\\":true /'; do
    LC_ALL=C sed "s/\"sha256\"/\"former\"/; $lie" alone.safetensors >lying.safetensors
    ! cmp -s lying.safetensors alone.safetensors || fail "$lie changes nothing"
    expect 65 "$trainer" eval lying.safetensors
    has err '^trainer: lying.safetensors: the model reads rows of .*; the rows of synthetic (.*) are 1×28×28 bytes with 10 classes'
    expect 65 "$trainer" predict lying.safetensors --rows 0:3
    expect 0 "$trainer" export lying.safetensors --to lying.onnx
done
bytes=$(wc -c <alone.safetensors) # of them, the bias of the tenth class and its 784 weights go
LC_ALL=C sed '1s/"sha256"/"former"/; 1s/classes\\":10/classes\\": 9/; 1s/out\\":10/out\\": 9/; 1s/\[10\]/[ 9]/; 1s/\[10,784\]/[ 9,784]/
    1s/31360/28224/g; 1s/31400/28260/' alone.safetensors | head -c $((bytes - 3140)) >lying.safetensors
expect 65 "$trainer" eval lying.safetensors
has err 'the model reads rows of 1×28×28 bytes with 9 classes; the rows of synthetic (.*) are 1×28×28 bytes with 10 classes'
# A model that learnt numbers predicts numbers.
i=0
echo a,b,sum >sums.csv
while [ $i -lt 20 ]; do
    echo "$i,$((i * i % 7)),$((i + i * i % 7))" >>sums.csv
    i=$((i + 1))
done
cat >sums.json <<'JSON'
{"data": {"name": "csv", "path": "sums.csv", "target": "sum", "labels": "values", "standardize": true}, "loss": "mse",
 "model": {"layers": [{"type": "dense", "out": 1}]}, "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1},
 "batch_size": 10, "epochs": 3, "devices": "ref:1", "run_dir": "sums"}
JSON
expect 0 "$trainer" sums.json --quiet
expect 0 "$trainer" predict sums --rows 0:2 --train --devices ref:1
has out '^row 0: [-0-9.e]*; its targets are 0; line 2$'
expect 0 "$trainer" predict sums --rows 1:2 --train --json --devices ref:1
has out '"row":1,"line":3,"outputs":\[[-0-9.e]*\],"targets":\[2\]'
lacks out probability
mkdir early
cp -r run/config.json run/checkpoints early
expect 0 "$trainer" eval early --json
has out "\"weights\":\"early/checkpoints/$(basename "$checkpoint")\""
# One that is newer than the final weights: a run that went on and was killed.
touch -d '2001-01-01' run/weights.safetensors
expect 0 "$trainer" eval run --json
has out "\"weights\":\"$checkpoint\""
touch run/weights.safetensors

# predict: rows, and the same pixels from files.
expect 0 "$trainer" predict run --rows 3:8 --json
[ "$(wc -l <out)" -eq 5 ] || fail "$(wc -l <out) predictions instead of 5"
has out '^{"row":3,"class":[0-9],"probability":[0-9.e-]*,"label":[0-9],"logits":\[[-0-9.,e]*\]}$'
cp out five
expect 0 "$trainer" predict run --rows 0:40 --json --devices ref:4
sed -n 4,8p out | cmp -s - five || fail "predictions depend on what else is predicted"
expect 0 "$trainer" predict run --rows 0:2
has out '^row 1: [0-9] ([01]\.[0-9]*)'
{ printf 'P5 28 28 255\n'; head -c 784 /dev/zero; } >black.pgm
expect 0 "$trainer" predict run black.pgm black.pgm
[ "$(sort -u out | wc -l)" -eq 1 ] || fail "one image, two predictions"
has out '^black.pgm: [0-9] ('
expect 0 "$trainer" predict run black.pgm --json
has out '^{"file":"black.pgm","class":'

# An option that another verb has is named as it was written.
expect 64 "$trainer" eval run --rows 1
has err '^trainer eval: unknown option --rows; '

# export: safetensors bit for bit, ONNX.
expect 0 "$trainer" export run --to copy.safetensors
has out '^copy.safetensors: [0-9]* bytes, 2 tensors; from run/weights.safetensors$'
cmp -s copy.safetensors run/weights.safetensors || fail "export changed the weights"
expect 0 "$trainer" export "$checkpoint" --to tiny.onnx
has out '^tiny.onnx: [0-9]* bytes, ONNX IR version 8, opset 17;'
grep -q 'fc.weight' tiny.onnx || fail "tiny.onnx has no fc.weight"
has_metadata() # FILE TEXT…
{
    file=$1
    shift
    for text; do
        LC_ALL=C grep -aqF "$text" "$file" || fail "the metadata of $file do not have $text"
    done
}
has_metadata tiny.onnx 'logits: one for each class' 'pixels, uint8' '[1,28,28]'
# What a table's classes are called, and that its numbers are no logits, where these are what is learned.
awk -v OFS=, 'BEGIN { print "a,b,kind,size"; for (i = 0; i < 40; i++) print i % 7, i % 5, i % 2 ? "red" : "blue", i / 8 }' >table.csv
for target in kind size; do
    labels=values outputs=1
    [ $target = kind ] && labels=classes outputs=2
    expect 0 "$trainer" config.json --quiet --set run_dir=$target --set data.limit=0 --set epochs=1 --set data.name=csv \
        --set data.path=table.csv --set data.target=$target --set data.standardize=false --set data.validation=0.2 --set batch_size=16 \
        --set data.labels="$labels" --set model.layers.1.out="$outputs"
    expect 0 "$trainer" export $target --to $target.onnx
    expect 0 "$trainer" export $target/weights.safetensors --to again.onnx
    cmp -s again.onnx $target.onnx || fail "$target: a file alone is exported otherwise"
done
has_metadata kind.onnx 'numbers as in the table' 'logits: one for each class' '["blue","red"]' '[3,1,1]'
has_metadata size.onnx 'numbers as in the table' 'the values themselves' \
    '[{"column":"a"},{"column":"b"},{"column":"kind","is":"blue"},{"column":"kind","is":"red"}]'
expect 0 "$trainer" config.json --quiet --set run_dir=scaled --set data.limit=0 --set epochs=1 --set data.name=csv \
    --set data.path=table.csv --set data.target=kind --set data.drop=b,size --set data.standardize=true \
    --set batch_size=16 --set model.layers.1.out=2
expect 0 "$trainer" export scaled/weights.safetensors --to scaled.onnx
has_metadata scaled.onnx '[{"column":"a","mean":2.875,"deviation":1.9'

# A dataset that is misspelt gets a suggestion.
expect 78 "$trainer" eval run --set data.name=syntetic
has err 'data.name=syntetic: data.name: unknown dataset "syntetic"; did you mean "synthetic"?$'

# Weights to begin with, and what is wrong with them.
expect 0 "$trainer" config.json --quiet --set init.weights=run/weights.safetensors \
    --set optimizer.lr=1e-38 --set epochs=1 --set run_dir=again
has again/config.json '"weights": "run/weights.safetensors"'
[ "$(hash_of again)" = "$(hash_of run)" ] || fail "init.weights changed the weights"
expect 66 "$trainer" config.json --quiet --set init.weights=nowhere.safetensors
has err '^trainer: --set init.weights=nowhere.safetensors: nowhere.safetensors: no such file'
expect 65 "$trainer" config.json --quiet --set init.weights=run/weights.safetensors \
    --set 'model.layers.1.name="other"'
has err 'there is no tensor "other.weight"; is it the file of another model?'

expect 78 "$trainer" config.json --set metrics.tensorbord=true
has err 'did you mean "tensorboard"?'
expect 78 "$trainer" config.json --set 'init={"weights": 3}'

# devices and bench.
expect 0 "$trainer" devices
has out '^ref: '
has out '^auto: '
expect 0 "$trainer" bench config.json --devices ref:1 --devices ref:2 --seconds 0.05 --rounds 1
has out '^tiny, 64 images a minibatch, synthetic data; medians of 1 × 0.05 s, in turns$'
has out '^\[ref(0), ref(1)\]  *[0-9]*  *[0-9]*-[0-9]*  *[0-9.]*x  *[0-9]*%$'
expect 0 "$trainer" bench config.json --devices ref:1 --seconds 0.05 --rounds 2 --json
has out '"images_per_s": [0-9]'
# Without shards in the config there are as many as in training: 16 rows are one, and one device's.
expect 0 "$trainer" bench unsaid.json --set batch_size=16 --seconds 0.05 --rounds 1
has out '(0)\]'
lacks out '(1)'

# Wrong arguments, missing and foreign files: what was expected, and the fix.
expect 64 "$trainer" eval
has err '^trainer eval: which run?'
expect 64 "$trainer" eval run other
expect 64 "$trainer" eval run --nonsense
expect 64 "$trainer" eval run --rows 0:1
expect 64 "$trainer" predict run
has err '^trainer predict: expected pictures, '
expect 64 "$trainer" predict run --rows 9:3
has err "^trainer: --rows 9:3: expected A:B with A < B, such as 0:10$"
expect 64 "$trainer" predict run --rows 0:1001
has err 'there are only 1000 rows'
expect 64 "$trainer" predict run black.pgm --rows 0:1
expect 64 "$trainer" export run
expect 64 "$trainer" export run --to model.pt
has err 'expected FILE.safetensors or FILE.onnx, found model.pt'
expect 64 "$trainer" eval run/weights.safetensors --set seed=1
has err 'name one: --config CONFIG'
expect 64 "$trainer" devices all
expect 64 "$trainer" bench
expect 64 "$trainer" bench config.json --rounds 0
expect 64 "$trainer" bench config.json --rounds 2.5
has err '^trainer bench: --rounds 2.5: expected a whole number from 1 to 99$'
expect 66 "$trainer" eval nowhere
has err '^trainer: nowhere: no such file or directory; expected a run'
mkdir empty
expect 66 "$trainer" eval empty
has err '^trainer: empty: expected a run.s directory, but it has no config.json'
cp run/config.json empty
expect 66 "$trainer" eval empty
has err 'empty: the run has neither weights.safetensors nor a checkpoint'
printf 'PK\003\004 and so on' >foreign.safetensors
expect 65 "$trainer" eval foreign.safetensors --config config.json
has err 'foreign.safetensors: offset 0: .*torch.save'
expect 65 "$trainer" predict run config.json
has err '^trainer: config.json: offset 0: expected a PNG, .*PPM (P6), BMP or WebP image'
# What is no plain file is refused at once: nobody writes into this pipe.
mkfifo pipe
mkdir piped
cp run/config.json piped
mkfifo piped/metrics.jsonl piped/weights.safetensors
expect 65 timeout 20 "$trainer" predict run pipe
has err '^trainer: pipe: expected an image, found a device or a pipe; copy it to a file first'
expect 65 timeout 20 "$trainer" predict run /dev/zero
has err '^trainer: /dev/zero: expected an image, found a device or a pipe'
expect 65 timeout 20 "$trainer" report piped
has err 'piped/metrics.jsonl: expected a metrics file, found a device or a pipe'
expect 65 timeout 20 "$trainer" eval piped
has err 'piped/weights.safetensors: expected a safetensors file, found a device or a pipe'
expect 74 "$trainer" export run --to /nowhere/x.onnx
has err '^trainer: /nowhere/'
for verb in eval predict export devices bench; do
    expect 0 "$trainer" $verb --help
    has out "^usage: trainer $verb"
done

finish
