#!/bin/sh
# SPDX-License-Identifier: MIT
# former_keys.sh TRAINER: config keys that had another name in version 0.2 and earlier. former/
# contains a run of that time: every verb must read it. A user's own config and --set must use
# today's names.
# shellcheck disable=SC1091,SC2154
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
cp -R "$here/former/." . && chmod -R u+w . || exit 1
grep -q '"on_nan": "mean"' run/config.json || fail 'the run has a key by its former name'
grep -q '"normalize": "nominal"' run/config.json || fail 'the run has a key by its former name'

grep -q '"engine": "auto"' run/config.json || fail 'the run has a key by its former name'

# ---- what was written is read ---------------------------------------------------------------------------------

run eval run
expect_code 0
grep -q '^test acc: 1.0000, loss 0.4503, auc 1.0000, average_precision 1.0000, f1 1.0000; 8 rows' stdout.txt || fail 'what the weights came to then'
run eval run/checkpoints/step-000000006.safetensors
expect_code 0
run predict run points.csv --to rows.csv
expect_code 0
[ "$(cut -d, -f2 rows.csv | tr '\n' ' ')" = 'prediction no yes no yes no yes no yes ' ] || fail "predictions: $(cat rows.csv)"
run predict run/weights.safetensors points.csv
expect_code 0
run export run --to copy.safetensors
expect_code 0
run report run
expect_code 0

# ---- a run goes on, and what it writes has the names of today ---------------------------------------------------

run --resume run --quiet --set epochs=3
expect_code 0
tr -d '\134' <run/checkpoints/step-000000009.safetensors | grep -ao '"recipe":{.*"shards":1}' >recipe.txt
for word in missing image_size gradient_scale; do
    grep -q "\"$word\"" recipe.txt || fail "the checkpoint's recipe has $word"
done
for word in on_nan size normalize; do
    ! grep -q "\"$word\"" recipe.txt || fail "the checkpoint's recipe has $word"
done
# The recipes of the old run and of a config with the new names are equal if all values are. A
# different value is refused, with its position.
expect_failure 78 '--set gradient_scale=batch: gradient_scale: this run was made with "nominal", not with "batch"; a resumed run keeps its recipe' \
    --resume run --quiet --set epochs=4 --set gradient_scale=batch

# ---- what a user writes has them, too ----------------------------------------------------------------------------

expect_failure 78 '--set normalize=batch: the config: the key "normalize" is called "gradient_scale" now: rename it' \
    --resume run --set normalize=batch
expect_failure 78 '--set data.size=3: data: the key "size" is called "image_size" now: rename it' \
    eval run --set data.size=3
printf '{"optimizer": {"lr": 1},\n "cluster": {"on_member_loss": "stop"}, "model": {"layers": []}}\n' >old.json
expect_failure 78 'old.json:2:14: cluster: the key "on_member_loss" is called "on_host_loss" now: rename it' old.json
expect_failure 78 '--set cluster''.engine=none: cluster: the key "engine" is called "transport" now: rename it' \
    --resume run --set cluster''.engine=none
printf '{"data": {"name": "csv", "missing": "mean",\n  "on_nan": "mean"}}\n' >old.json
expect_failure 78 'old.json:2:3: data: the key "on_nan" is called "missing" now: rename it' old.json
finish
