#!/bin/sh
# SPDX-License-Identifier: MIT
# The environment of a run: configs from a pipe, unusable home directories, directories without a
# run, misspelt words, a terminal that closes, and the message at the end of a run.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"

# ---- a config that is no file ----
label='the config from the standard input'
"$program" - --set run_dir=piped <config.json >stdout.txt 2>stderr.txt
code=$?
expect_code 0
[ -s piped/weights.safetensors ] || fail 'expected weights'

label='the config from a pipe'
mkfifo pipe
cat config.json >pipe &
"$program" pipe --set run_dir=fifo --quiet >stdout.txt 2>stderr.txt
code=$?
wait
expect_code 0
cmp -s piped/weights.safetensors fifo/weights.safetensors || fail 'expected the same weights'

label='a sweep over a config from a pipe'
"$program" sweep - --vary seed=1,2 --json swept.json <config.json >stdout.txt 2>stderr.txt
code=$?
expect_code 0

label='a config that is damaged, from a pipe'
printf '{"epochs": ' | "$program" - >stdout.txt 2>stderr.txt
code=$?
expect_code 78

# ---- what is said at the end ----
run config.json --set run_dir=told
expect_code 0
grep -q '^  run         told$' stderr.txt || fail 'expected where the run lies'
# What comes next: a command on each line, with the program's name as the user has called it.
expect_next() { # PROGRAM RUN
    printf '%s\n' "  next        $1 eval $2" "              $1 predict $2 INPUT" \
        "              $1 export $2 --to model.onnx" "              $1 report $2" >next.txt
    sed -n '/^  next/,$p' stderr.txt >found.txt
    cmp -s next.txt found.txt || fail "expected what comes next: $(cat next.txt)"
}
expect_next "$program" told
label='a program and a run with a space in their names'
ln -s "$program" 'a name'
'./a name' config.json --set 'run_dir="its run"' >stdout.txt 2>stderr.txt
code=$?
expect_code 0
expect_next "'./a name'" "'its run'"
sh -c "$(sed -n 's/^  next  *//p' stderr.txt)" >stdout.txt 2>stderr.txt
code=$?
expect_code 0
run config.json --set run_dir=untold --quiet
! grep -q '^  next' stderr.txt || fail 'expected nothing with --quiet'

# ---- a home that is none ----
for home in / '' relative; do
    label="HOME=$home"
    HOME=$home "$program" config.json --set run_dir=null --quiet >stdout.txt 2>stderr.txt
    code=$?
    expect_code 0
    [ ! -e /.cache/lockstep ] || fail 'expected nothing in /.cache'
done

# ---- no run ----
mkdir empty
: >file
expect_failure 66 '--resume nowhere: there is no such directory; expected the directory of a run, such as runs/NAME, or latest' \
    --resume nowhere
expect_failure 66 '--resume file: is a file; expected the directory of a run, the one that has config.json in it, or latest' \
    --resume file
expect_failure 66 '--resume empty: is not the directory of a run, in which there would be config.json, metrics.jsonl and checkpoints; expected one, such as runs/NAME, or latest' \
    --resume empty
[ -z "$(ls empty)" ] || fail 'expected nothing to be written there'

# ---- nearly right ----
expect_failure 64 "did you mean \`$program predict\`? There is no verb and no config perdict; \`$program --help\` lists what there is" \
    perdict told
expect_failure 64 "did you mean --devices? unknown option --divices; \`$program --help\` lists what there is" \
    config.json --divices ref:1
run config.json --set optimizer.lrr=1
expect_code 78
grep -q 'did you mean' stderr.txt || fail 'expected a key that is near'

finish
