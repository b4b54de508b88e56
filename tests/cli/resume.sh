#!/bin/sh
# SPDX-License-Identifier: MIT
# --resume: by directory, by `latest`, with and without a config; the reason is reported if a run
# cannot be resumed. Also for which run `latest` stands in other commands. $2 is check_metrics.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"
check=$2

sha_of() { tail -n 1 "$1/metrics.jsonl" | grep -o '"weights_sha256":"[0-9a-f]*"'; }

# interrupted DIRECTORY [ARGUMENT...]: trains a run of six steps and stops it after the third or the
# fourth.
interrupted() {
    directory=$1
    shift
    "$program" config.json --set run_dir="$directory" --set epochs=3 "$@" --set checkpoint.every_steps=1 \
        --inject worker=0,step=4,kind=stall,seconds=2 >stdout.txt 2>stderr.txt &
    pid=$!
    tries=0
    while [ ! -e "$directory/checkpoints/step-000000003.safetensors" ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -INT $pid
    wait $pid
    code=$?
    label="an interrupt of $directory"
    expect_code 75
    expect_stderr_line "trainer: saved; go on with: $program --resume $directory"
}

run config.json --set run_dir=whole --set epochs=3
expect_code 0

# killed DIRECTORY [ARGUMENT...]: kills a run of six steps without warning, in its second epoch, when
# the records of the first are in the file. Its checkpoint is due then.
killed() {
    directory=$1
    shift
    "$program" config.json --set run_dir="$directory" --set epochs=3 "$@" \
        --set checkpoint.async=false --set deadline_s=600 --inject worker=0,step=4,kind=stall,seconds=600 \
        >stdout.txt 2>stderr.txt &
    pid=$!
    tries=0
    while ! grep -qs '"type":"step","step":3,' "$directory/metrics.jsonl" && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL $pid
    wait $pid
}

# By default the checkpoint waits for ten seconds in memory, so a kill loses it. A config that says
# when checkpoints are saved has it on the disk.
killed waited --set checkpoint.every_seconds=86400
expect_failure 66 'waited: has no checkpoint; nothing to resume' --resume waited
killed at_once --set checkpoint.every_epochs=1
run --resume at_once --quiet
expect_code 0
[ "$(sha_of at_once)" = "$(sha_of whole)" ] || fail 'expected the bits of the undisturbed run'

interrupted first
run --resume first --devices ref:1
expect_code 0
expect_stderr_line '  resumed     after step 4, from first/checkpoints/step-000000004.safetensors'
[ "$(sha_of first)" = "$(sha_of whole)" ] || fail 'expected the bits of the undisturbed run'
"$check" first/metrics.jsonl >check.txt || fail "$(cat check.txt)"
grep -q 'resumed 1 times' check.txt || fail 'expected one resume'

# The run goes on in its own directory. Another run_dir is refused; a copy of the directory goes on.
interrupted here
cp -a here there
expect_failure 64 "--resume here: a run goes on in its own directory, and run_dir is set to another one; to go on elsewhere, copy the directory, and resume the copy: cp -a here COPY" \
    --resume here --set run_dir=elsewhere
for word in there null; do
    run config.json --set epochs=3 --resume here --set run_dir=$word
    expect_code 64
done
[ ! -e elsewhere ] || fail 'expected no directory'
run --resume there --quiet
expect_code 0
[ "$(sha_of there)" = "$(sha_of whole)" ] || fail 'expected that a copy ends with the bits of the undisturbed run'
grep -q '"type":"resume",.*"ended":{"status":"interrupted","time":"[0-9TZ:-]*"},' there/metrics.jsonl || fail 'expected how it had ended'
expect_no_stderr_line 'had failed'
[ "$(sha_of here)" != "$(sha_of whole)" ] || fail 'expected that the original stays as it was'
run --resume here --quiet --set run_dir=../"$(basename "$PWD")"/here
expect_code 0
[ "$(sha_of here)" = "$(sha_of whole)" ] || fail 'expected the bits of the undisturbed run'

# Resuming a finished run prints the same closing line again and changes nothing.
run --resume first --quiet
expect_code 0
[ "$(sha_of first)" = "$(sha_of whole)" ] || fail 'expected the same bits again'

# The same for a run whose metric is R² instead of the accuracy.
awk -v OFS=, 'BEGIN { print "a,y"; for (i = 0; i < 80; i++) print i % 9 - 4.5, 2 * (i % 9) + i % 2 / 8 }' >table.csv
run config.json --set data.name=csv --set data.path=table.csv --set data.target=y --set data.labels=values \
    --set data.limit=0 --set data.validation=0.2 --set 'model.layers=[{"type":"dense","out":1}]' \
    --set batch_size=16 --set run_dir=values
expect_code 0
closing=$(tail -n 1 stdout.txt)
run --resume values --quiet
expect_code 0
case $closing in
'validation r2: '*[0-9]*,*) [ "$(tail -n 1 stdout.txt)" = "$closing" ] || fail "expected '$closing' again: $(cat stdout.txt)" ;;
*) fail "expected R² in '$closing'" ;;
esac

# If a record was changed after the checkpoint was written, the message names its line.
cp -r first changed
sed -i '2s/"rows":64/"rows":63/' changed/metrics.jsonl
run --resume changed
expect_code 65
expect_error "changed/metrics.jsonl:2:1: this is not the record that was written before the checkpoint; put the file back, or begin a new run with the checkpoint's weights (init.weights)"

# Another program has moved the records. Commands that read them say so, and a resumed run begins a
# new file.
mkdir -p moved/runs && cp -r first moved/runs/first && cd moved || exit 1
mv runs/first/metrics.jsonl runs/first/metrics.jsonl.1
said='runs/first: its metrics.jsonl was moved or removed; put it back (a run that is resumed without it begins a new one)'
expect_failure 66 "$said" report runs/first
expect_failure 66 "$said" compare runs/first runs/first
run runs runs
expect_stderr_line "trainer: left out: $said"
run --resume latest --quiet
expect_code 0
expect_stderr_line 'trainer: warning: runs/first/metrics.jsonl was moved or removed; a new file begins without the [0-9]* records before the checkpoint'
grep -q '"type":"resume".*"missing_records":' runs/first/metrics.jsonl || fail 'expected the number of missing records'
[ "$(sha_of runs/first)" = "$(sha_of ../whole)" ] || fail 'expected the bits of the undisturbed run'
run report runs/first
expect_code 0
run compare runs/first ../whole
expect_code 0
grep -q '^ended  *finished, resumed, earlier records missing  *finished$' stdout.txt || fail 'expected that records are missing'
run runs runs
expect_code 0
expect_stderr_line 'trainer: runs/first: earlier records are missing, because another program had moved or cut their file'
# The number of finished epochs is known from the end of a run that was resumed after its last one.
mv runs/first/metrics.jsonl runs/first/metrics.jsonl.2
run --resume runs/first --quiet
expect_code 0
[ "$(grep -c '"type":"epoch"' runs/first/metrics.jsonl)" -eq 0 ] || fail 'expected no epoch in the new file'
epochs=$(sed -n 's/.*"type":"run_end".*"status":"finished","epochs":\([0-9]*\),.*/\1/p' runs/first/metrics.jsonl)
run runs runs --json
expect_code 0
grep -q "\"epochs\":$epochs,\"of_epochs\":$epochs,.*\"lacks_records\":true," stdout.txt || fail "expected $epochs epochs"
cd ..

# --resume latest with a config chooses the newest run with the name of the config, according to the
# time in the records. The names of directories do not matter. A name can be the beginning of
# another one, or longer than the name of a directory can be.
interrupted runs/20240101-000000-small
long=$(printf '%0300d' 7)
for name in small small-2 smaller "$long"; do
    short=$(printf '%.20s' "$name")
    for year in 2001 2003 2002; do
        run config.json --set name="$name" --set run_dir="runs/$year-$short"
        expect_code 0
        sed -i "1s/\"time\":\"[^\"]*/\"time\":\"$year-01-31T09:30:00Z/" "runs/$year-$short/metrics.jsonl"
    done
done
mv runs/2003-small runs/00-renamed
mkdir -p runs/20250101-000000-small/checkpoints
cp -r runs/20240101-000000-small/checkpoints runs/20250101-000000-small
latest() {
    run config.json --set name="$1" --resume latest
    grep -q "$2" stderr.txt || fail "expected $2 for the latest run of $1"
    expect_stderr_line '.*warning: --resume latest passes over runs/20250101-000000-small: .*/metrics.jsonl: no such file'
}
run config.json --set epochs=3 --resume latest
expect_code 0
expect_stderr_line '  run         runs/20240101-000000-small'
[ "$(sha_of runs/20240101-000000-small)" = "$(sha_of whole)" ] || fail 'expected the same bits'
rm -r runs/20240101-000000-small
# The times in the records were changed above. Therefore resuming fails, and the message names the
# run that was chosen.
latest small '^trainer: runs/00-renamed/metrics.jsonl:1:1: this is not the record'
latest small-2 '^trainer: runs/2003-small-2/metrics.jsonl:1:1: this is not the record'
latest smaller '^trainer: runs/2003-smaller/metrics.jsonl:1:1: this is not the record'
latest "$long" "^trainer: runs/2003-$(printf '%.20s' "$long")/metrics.jsonl:1:1: this is not the record"
# Without a config, the newest run of any name is chosen. Among runs of the same second it is the
# one whose config was written last; if these times are equal as well, the one with the longest
# name.
begun_last() {
    run --resume latest
    grep -q "^trainer: $1/metrics.jsonl:1:1: " stderr.txt || fail "expected $1"
}
begun_last 'runs/2003-0*'
touch runs/2003-smaller/config.json
begun_last runs/2003-smaller
touch -r runs/2003-smaller/config.json runs/00-renamed/config.json runs/2003-*/config.json
begun_last 'runs/2003-0*'

# A fault that --inject plans and that does not happen: no such worker, no such step, no work for it.
run config.json --set run_dir=unharmed --set epochs=3 --devices ref:2 --inject worker=5,step=2,kind=fail \
    --inject worker=1,step=5000,kind=fail --inject worker=0,step=1,kind=stall,seconds=0
expect_code 0
expect_stderr_line 'trainer: warning: the fault that --inject planned for worker 5 in step 2 did not happen: there is no worker after worker 1'
expect_stderr_line 'trainer: warning: the fault that --inject planned for worker 1 in step 5000 did not happen: the run ended after step 6'
! grep -q 'for worker 0' stderr.txt || fail 'a fault that happened is told as one that did not'

# A fault that --inject causes.
run config.json --set run_dir=lost --set epochs=3 --inject worker=1,step=2,kind=fail
expect_code 0
expect_stderr_line 'trainer: warning: worker 1, ref(1): the device failed, as --inject asked for; the others go on without it'
[ "$(sha_of lost)" = "$(sha_of whole)" ] || fail 'expected the bits of the undisturbed run'
"$check" lost/metrics.jsonl >check.txt || fail "$(cat check.txt)"
run config.json --set run_dir=stopped --set epochs=3 --set on_device_loss=stop \
    --inject worker=1,step=2,kind=fail
expect_code 75
expect_stderr_line "trainer: saved; go on with: $program --resume stopped"
run --resume stopped --quiet
expect_code 0
[ "$(sha_of stopped)" = "$(sha_of whole)" ] || fail 'expected the bits of the undisturbed run'

# `latest` is the newest run that has what the command needs. A newer run is passed over, and a
# warning names it. Here this is a run in its first epoch: it has records, and no weights yet.
mkdir passed && cd passed || exit 1
run ../config.json --set run_dir=runs/whole --quiet
expect_code 0
mkdir runs/young
cp runs/whole/config.json runs/young
sed '1s/"time":"[^"]*/"time":"2099-01-31T09:30:00Z/' runs/whole/metrics.jsonl >runs/young/metrics.jsonl
for words in 'eval latest' 'predict latest --rows 0:2' 'export latest --to model.onnx'; do
    # shellcheck disable=SC2086 # words
    run $words
    expect_code 0
    expect_stderr_line 'trainer: warning: latest passes over runs/young: it has neither weights nor a checkpoint'
done
run --resume latest --quiet
expect_code 0
expect_stderr_line 'trainer: warning: --resume latest passes over runs/young: it has no checkpoint'
run report latest
expect_last_stdout_line 'runs/young/report.html'
cp runs/whole/weights.safetensors runs/young
run eval latest
expect_code 0
expect_no_stderr_line 'passes over'
run eval latest --best
expect_code 0
expect_stderr_line 'trainer: warning: latest passes over runs/young: it has no checkpoint'
# If no run has what is needed, the message says what the newest run lacks.
rm -r runs/whole runs/young/weights.safetensors
run eval latest
expect_code 66
grep -q '^trainer: runs/young: the run has neither weights.safetensors nor a checkpoint' stderr.txt ||
    fail 'expected what the run lacks'
# A run that cannot be read is named once.
mkdir runs/unread && : >runs/unread/metrics.jsonl && : >runs/unread/weights.safetensors
run eval latest
expect_code 66
[ "$(grep -c 'latest passes over runs/unread:' stderr.txt)" -eq 1 ] || fail 'expected one warning about runs/unread'
cd ..

# ---- what cannot be ----
mkdir empty
expect_failure 66 '--resume empty: is not the directory of a run, in which there would be config.json, metrics.jsonl and checkpoints; expected one, such as runs/NAME, or latest' \
    config.json --resume empty
cp -r first bare
rm bare/checkpoints/*
expect_failure 66 'bare: has no checkpoint; nothing to resume' config.json --resume bare
cd empty || exit 1
expect_failure 66 '--resume latest: no run of small in runs/ has a checkpoint; name its directory: --resume DIR' \
    ../config.json --resume latest
expect_failure 66 '--resume latest: no run in runs/ has a checkpoint; name its directory: --resume DIR' \
    --resume latest
cd ..
run config.json --set epochs=3 --set batch_size=32 --resume first
expect_code 78
grep -q 'batch_size: this run was made with 64, not with 32; a resumed run keeps its recipe$' \
    stderr.txt || fail 'expected both values'
expect_failure 64 "inject: cannot read 'worker=1': expected worker=N,step=N,kind=fail|stall|spin|corrupt|nan, and if need be stage=start|shard|merge|apply|report|evaluate|export and seconds=X; with kind=corrupt, part=weights|slot0|slot1|average|statistics, bit=0 to 31 and index=N" \
    config.json --inject worker=1
cp -r first old
rm old/checkpoints/*
mkdir old/checkpoints/step-000000004
expect_failure 65 "old/checkpoints: step-000000004 is a directory, as versions before 0.2 saved; this version reads one file for each: finish the run with the version that began it, or begin a new one with its weights: init.weights, step-000000004/weights.safetensors" \
    --resume old
for file in first/checkpoints/*; do
    printf 'x' >>"$file"
done
run --resume first
expect_code 65
grep -q 'warning: checkpoint step-.* is damaged' stderr.txt || fail 'expected which is damaged'

finish
