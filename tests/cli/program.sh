#!/bin/sh
# SPDX-License-Identifier: MIT
# The output of the program, on stdout and stderr. $2 is check_metrics.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname "$0")/expect.sh"
check=$2

# ---- help and version ----
run --help
expect_code 0
[ ! -s stderr.txt ] || fail 'expected nothing on stderr'
grep -q '^usage: trainer CONFIG \[options\]$' stdout.txt || fail 'expected the usage'
for option in --devices --set --metrics --print-config --quiet --version --help; do
    grep -q -e "^  $option" stdout.txt || fail "expected $option to be explained"
done
[ "$(wc -L <stdout.txt)" -le 100 ] || fail 'expected lines of at most 100 columns'
mkdir help
cp stdout.txt help/trainer
# shellcheck disable=SC2013 # words, not lines
for verb in $(sed -n '/^$/q; p' stdout.txt | grep -o "\(trainer\||\) [a-z-]* " | sed 's/.* \([a-z-]*\) $/\1/'); do
    run "$verb" --help
    expect_code 0
    cp stdout.txt "help/$verb"
    [ "$(wc -L <stdout.txt)" -le 100 ] || fail "expected lines of at most 100 columns"
done
label='the help of each verb'
[ "$(find help -type f | wc -l)" -eq 14 ] || fail "expected 13 verbs, found $(ls help)"
awk -f "$here/help.awk" help/* >told.txt || fail "$(cat told.txt)"
label='trainer --help'
run -h
expect_code 0
run --help config
expect_code 0
grep -q '](\|`' stdout.txt && fail 'expected no Markdown'
grep -q 'separator of the fields: ",", ";", tab' stdout.txt || fail 'expected marks in quotes'
[ "$(wc -L <stdout.txt)" -le 100 ] || fail 'expected lines of at most 100 columns'
grep -q '^    .*docs/hosts\.md' stdout.txt || fail 'expected the page that a link names'
for topic in 'The run' Data 'Model, minibatch and first weights' 'Optimizer and learning rate' Loss Augmentation \
    'Arithmetic and shards' 'Epochs and devices' 'Evaluation, checkpoints and early stopping' Metrics \
    'Failures, and several hosts' Output; do
    grep -qx "$topic" stdout.txt || fail "expected the topic $topic"
done
run --version
expect_code 0
grep -q '^lockstep [0-9]*\.[0-9]*\.[0-9]*$' stdout.txt || fail 'expected the version'
grep -q '^  ref: ' stdout.txt || fail 'expected the back ends'

# ---- the config ----
run config.json --print-config
expect_code 0
cp stdout.txt once.json
run once.json --print-config
expect_code 0
cmp -s once.json stdout.txt || fail 'expected the printed config to print as itself'
[ ! -d runs ] || fail 'expected no run'

# The model is in a separate file in the directory of the config.
mkdir beside
sed -n '/"model"/,/^  ]},/p' config.json | sed '1s/.*/{"layers": [/; $s/.*/]}/' >beside/net.json
sed '/"model"/,/^  ]},/d; s/"seed": 0,/"seed": 0, "model": "net.json",/' config.json >beside/config.json
run beside/config.json --print-config
expect_code 0
cmp -s once.json stdout.txt || fail 'expected the same config with the model inline'

# --set reaches every key.
set_reaches() { # ASSIGNMENT LINE
    run config.json --set "$1" --print-config
    expect_code 0
    grep -q -e "$2" stdout.txt || fail "expected $2"
}
set_reaches name=other '^  "name": "other",$'
set_reaches data.name=mnist '^    "name": "mnist",$'
set_reaches data.path=/some/where '^    "path": "/some/where"'
set_reaches data.limit=17 '^    "limit": 17'
set_reaches model.layers.0.out=8 '"out": 8'
set_reaches devices=ref:3 '^  "devices": "ref:3",$'
set_reaches batch_size=32 '^  "batch_size": 32,$'
set_reaches shards=2 '^  "shards": 2,$'
set_reaches shards=devices '^  "shards": "devices",$'
set_reaches epochs=7 '^  "epochs": 7,$'
set_reaches seed=9007199254740991 '^  "seed": 9007199254740991,$'
set_reaches optimizer.name=sgd '^    "name": "sgd",$'
set_reaches optimizer.lr=0.3 '^    "lr": 0.3,$'
set_reaches optimizer.momentum=0.9 '^    "momentum": 0.9,$'
set_reaches optimizer.weight_decay=1e-4 '^    "weight_decay": 0.0001'
set_reaches 'init={"name": "normal", "std": 0.02}' '^    "std": 0.02$'
set_reaches init.name=kaiming '^    "name": "kaiming"$'
set_reaches gradient_scale=nominal '^  "gradient_scale": "nominal",$'
set_reaches allreduce=naive '^  "allreduce": "naive",*$'
set_reaches eval_every=3 '^  "eval_every": 3,$'
set_reaches run_dir=here '^  "run_dir": "here"$'
set_reaches threads=2 '^  "threads": 2,$'
run config.json --devices ref:1 --print-config
grep -q '^  "devices": "ref:1",$' stdout.txt || fail 'expected --devices to be taken'
run config.json --set epochs=2 --set epochs=3 --print-config
grep -q '^  "epochs": 3,$' stdout.txt || fail 'expected the last --set to win'

# ---- a run ----
run config.json --set run_dir=first --set epochs=2
expect_code 0
expect_last_stdout_line "$closing_line"
[ "$(wc -l <stdout.txt)" -eq 1 ] || fail 'expected one line on stdout'
expect_stderr_line 'small on \[ref(0), ref(1)\]'
expect_stderr_line '  data        SYNTHETIC synthetic: 96 training and 1000 test images of 1×28×28, bytes / 255'
expect_stderr_line '              made up by the program: results say nothing of real data'
expect_stderr_line '  model       5874 parameters, 23496 bytes'
expect_stderr_line '              conv2d, relu, avg_pool, flatten  *576  *104'
expect_stderr_line '              dense  *10  *5770'
expect_stderr_line '  minibatch   64 images, 32 per device, in 4 shards'
expect_stderr_line '  run         first'
expect_stderr_line '  epoch  2/2  loss [0-9.]*  acc [0-9.]*  [0-9]* images/s  test .*[0-9.]*  .*acc [0-9.]*'
! grep -q "$(printf '\033')" stderr.txt || fail 'expected no escape sequences away from a terminal'
! grep -q "$(printf '\r')" stderr.txt || fail 'expected no animation away from a terminal'
"$check" first/metrics.jsonl >check.txt || fail "$(cat check.txt)"
grep -q '^{"type":"program",.*"host":".*"command":".* config.json --set run_dir=first --set epochs=2",' first/notes.jsonl ||
    fail "expected the program's notes, found $(cat first/notes.jsonl)"
run first/config.json --print-config
expect_code 0

# A run with the resolved config (--print-config) has bit-identical weights.
sha() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1"; }
run first/config.json --set run_dir=second
expect_code 0
[ -n "$(sha first/metrics.jsonl)" ] || fail 'expected a hash'
[ "$(sha first/metrics.jsonl)" = "$(sha second/metrics.jsonl)" ] || fail 'expected the same weights'
cmp -s first/weights.safetensors second/weights.safetensors || fail 'expected the same file'

# ---- metrics elsewhere ----
run config.json --metrics -
expect_code 0
expect_stderr_line "$closing_line"
"$check" stdout.txt >check.txt || fail "$(cat check.txt)"
run config.json --metrics here.jsonl
expect_code 0
expect_last_stdout_line "$closing_line"
"$check" here.jsonl >check.txt || fail "$(cat check.txt)"

# ---- values are learned, and nothing speaks of accuracy or images ----
awk -v OFS=, 'BEGIN { print "a,y"; for (i = 0; i < 80; i++) print i % 9 - 4.5, 2 * (i % 9) + i % 2 / 8 }' >table.csv
set -- --set data.name=csv --set data.path=table.csv --set data.target=y --set data.labels=values --set data.limit=0 \
    --set data.validation=0.2 --set 'model.layers=[{"type":"dense","out":1}]' --set batch_size=16 --set epochs=3
run config.json "$@" --set run_dir=values
expect_code 0
expect_last_stdout_line 'validation r2: -*[0-9.e-]*, [0-9.]* sec/epoch on \[ref(0), ref(1)\]'
expect_stderr_line '  minibatch   16 rows, 8 per device, in 4 shards'
expect_stderr_line '  epoch  3/3  loss [0-9.]*  [0-9]* rows/s  validation [0-9.]*  r2 -*[0-9.]*'
expect_stderr_line ' *validation r2, last .* training loss, last .*'
expect_no_stderr_line 'acc\|image\|nan'
grep -q '"test_rows":16,"targets":1[,}]' values/metrics.jsonl || fail 'expected the number of targets'
"$check" values/metrics.jsonl >check.txt || fail "$(cat check.txt)"
run sweep config.json "$@" --vary lr=0.01,0.02 --json sweep.json
expect_code 0
expect_stderr_line '  epoch  3/3  loss [0-9.]*  [0-9]* rows/s  validation [0-9.]*  r2 -*[0-9.]*'
grep -q '^ *lr  *validation r2  *train loss  *s/epoch  *rows/s' stdout.txt || fail 'expected a column for r2'
grep -q '"metric": "r2"' sweep.json || fail 'expected the metric to be named'
run report values
expect_code 0
sed -n '/<noscript>/,/<\/noscript>/p' values/report.html >noscript.html
grep -q 'R²' noscript.html || fail 'expected R² in the page without scripts'
! grep -q -i 'accuracy' noscript.html || fail 'expected no accuracy in the page without scripts'
run config.json "$@" --set 'metrics.names=["mae"]'
expect_last_stdout_line 'validation mae: [0-9.e-]*, .*'
run config.json "$@" --set 'metrics.names=[]'
expect_last_stdout_line 'validation loss: [0-9.e-]*, .*'
run config.json "$@" --set data.validation=0
expect_last_stdout_line 'test r2: -, .*'

# ---- skipped steps ----
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 60; i++) print i % 7 "," i % 5 "," (i % 2 ? "u" : "v") }' >skipped.csv
cat >skipped.json <<'END'
{"data": {"name": "csv", "path": "skipped.csv", "target": "y"}, "batch_size": 20, "epochs": 4, "devices": "ref:1",
 "init": {"name": "kaiming"}, "model": {"layers": [{"type": "dense", "out": 8}, {"type": "relu"}, {"type": "dense"}]},
 "optimizer": {"name": "sgd", "lr": 1e6}, "on_nonfinite": "skip"}
END
run skipped.json --set run_dir=skipping
expect_code 0
skipped=$(grep -c '"type":"nonfinite"' skipping/metrics.jsonl)
steps=$(grep -c '"type":"step"' skipping/metrics.jsonl)
[ "$skipped" -gt 0 ] || fail 'expected skipped steps'
expect_stderr_line "trainer: warning: $skipped of $steps steps were skipped, because the loss was not finite; try a smaller optimizer.lr"
grep -q "\"type\":\"run_end\".*\"skipped_steps\":$skipped," skipping/metrics.jsonl || fail 'expected skipped_steps in run_end'
expect_no_stderr_line '[-+ ]nan'

# ---- losses that are finite, and whose sum is not ----
printf 'a,y\n1,1.6e19\n2,1.6e19\n' >large.csv
cat >large.json <<'END'
{"data": {"name": "csv", "path": "large.csv", "target": "y", "standardize_target": false}, "loss": "mse",
 "model": {"layers": [{"type": "dense"}]}, "batch_size": 2, "shards": 2, "epochs": 1, "optimizer": {"name": "sgd", "lr": 1e-30}}
END
for devices in ref:1 ref:2; do
    expect_failure 65 "step 1: the loss of shard 0, on worker 0, is not finite any more; the step was not applied; try a smaller optimizer.lr" \
        large.json --devices $devices --quiet
done

# ---- quiet ----
run config.json --quiet
expect_code 0
expect_last_stdout_line "$closing_line"
[ ! -s stderr.txt ] || fail 'expected nothing on stderr'

# A locale with a decimal comma in the environment has no effect.
label='trainer under a locale with a decimal comma'
LC_ALL=de_DE.UTF-8 "$program" config.json --metrics - >stdout.txt 2>stderr.txt
code=$?
expect_code 0
"$check" stdout.txt >check.txt || fail "$(cat check.txt)"

# The verb `train` may be given or omitted.
run train config.json --print-config
expect_code 0
cp stdout.txt said.txt
run config.json --print-config
cmp -s stdout.txt said.txt || fail 'train CONFIG is CONFIG'
expect_failure 64 "which config? Try \`$program examples/fashion_mnist.json\`; \`$program --help\` lists what there is" train

finish
