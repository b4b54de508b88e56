#!/bin/sh
# SPDX-License-Identifier: MIT
# onnx_train.sh TRAINER EMBED_ONNX: a model that was exported is trained on from its ONNX file, resumed and used
# without the file, and refused where the file or the data do not fit.
set -eu
trainer=$1
embed=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() {
    echo "onnx_train.sh: $*" >&2
    exit 1
}
config() { # MODEL EPOCHS
    cat <<JSON
{"data": {"name": "synthetic", "limit": 64}, "epochs": $2, "batch_size": 32, "devices": "cpu:1",
 "model": $1, "optimizer": {"name": "sgd", "lr": 1e-9}, "run_dir": "run"}
JSON
}
config '{"layers": [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "batch_norm"}, {"type": "hard_swish"},
  {"type": "global_avg_pool", "name": "means"}, {"type": "dense"}]}' 1 >made.json
"$trainer" made.json --set run_dir=made >out 2>&1 || fail "$(cat out)"
"$trainer" export made --to net.onnx >out 2>&1 || fail "$(cat out)"

# from the file: almost no step is made, so the logits are nearly those of the exported model
config '{"onnx": "net.onnx"}' 1 >on.json
"$trainer" on.json --set run_dir=a >out 2>&1 || fail "$(cat out)"
grep -q '"sha256"' a/config.json || fail "the config does not have the file's hash"
grep -q "$(sha256sum net.onnx | cut -c1-64)" a/config.json || fail "the hash is another one"
if grep -q 'net\.onnx' a/config.json; then fail "the config has the file's path"; fi

# another number of outputs is refused, with what to do
config '{"onnx": "net.onnx", "output": "means:out"}' 1 >part.json
if "$trainer" part.json --set run_dir=part >out 2>&1; then fail "4 outputs were accepted for 10 classes"; fi
grep -q 'part.json:2:.*gives 4 values for a row, but the data need 10.*"new", which replaces its last layer' out || fail "$(cat out)"

# a program trains it on, and its file is read again
"$embed" net.onnx embedded.onnx >out 2>&1 || fail "$(cat out)"
config '{"onnx": "embedded.onnx"}' 1 >embedded.json
"$trainer" embedded.json --set run_dir=embedded >out 2>&1 || fail "$(cat out)"

# from another path the run is the same; without the file it is resumed, and its model is used
mkdir other && mv net.onnx other/moved.onnx
config '{"onnx": "other/moved.onnx"}' 1 >moved.json
"$trainer" moved.json --set run_dir=b >out 2>&1 || fail "$(cat out)"
cmp a/config.json b/config.json >/dev/null || sed 's/"b"/"a"/' b/config.json | cmp - a/config.json ||
    fail "the configs of two paths differ"
"$trainer" moved.json --set run_dir=a --set epochs=2 --resume a >out 2>&1 || fail "$(cat out)"
mv other gone
"$trainer" --resume b --set epochs=2 >out 2>&1 || fail "without the file: $(cat out)"
"$trainer" export b --to again.onnx >out 2>&1 || fail "$(cat out)"

# what does not fit is refused
if "$trainer" b/config.json --set run_dir=c >out 2>&1; then fail "a copied config began without weights"; fi
grep -q 'were in an ONNX file' out || fail "$(cat out)"
config '{"onnx": "none.onnx"}' 1 >none.json
if "$trainer" none.json --set run_dir=e >out 2>&1; then fail "no file was accepted"; fi
grep -q 'none.json:2:.*none.onnx' out || fail "$(cat out)"
