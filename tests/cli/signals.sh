#!/bin/sh
# SPDX-License-Identifier: MIT
# SIGINT and SIGTERM: the step is finished, a checkpoint and the weights are written, exit code 75.
# Without a run directory nothing can be resumed: 130. A second signal exits at once. $2 is
# check_metrics.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"
check=$2

# await TRIES COMMAND…: repeats the command every tenth of a second until it succeeds, at most TRIES
# times.
await() {
    tries=$1
    shift
    until "$@"; do
        [ "$tries" -gt 0 ] || return 1
        tries=$((tries - 1))
        sleep 0.1
    done
}

# Waits until the run that writes to stderr.txt reports an epoch.
wait_for_steps() {
    await 600 grep -q 'epoch' stderr.txt || fail 'expected an epoch to begin'
}

# has_records RUN TYPE COUNT: succeeds if a run has at least COUNT records of a type.
has_records() {
    count=$(grep -c "\"type\":\"$2\"" "$1/metrics.jsonl" 2>/dev/null)
    [ "${count:-0}" -ge "$3" ]
}

# start DIRECTORY: starts a very long run in the background, and returns when it trains.
start() {
    : >stderr.txt
    "$program" config.json --set epochs=1000000 --set eval_every=0 --set run_dir="$1" \
        >stdout.txt 2>stderr.txt &
    pid=$!
    wait_for_steps
}

# If this shell ignores SIGHUP, for example under nohup, its children ignore it as well.
hangup=HUP
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/self/status) in
*[13579bdf]) hangup= ;;
esac
for signal in INT TERM $hangup; do
    label="SIG$signal"
    start $signal
    kill -$signal $pid
    wait $pid
    code=$?
    expect_code 75
    expect_last_stdout_line 'test acc: -, [0-9]*\.[0-9] sec/epoch on \[ref(0), ref(1)\] (synthetic data)'
    grep -q '^trainer: interrupted after [0-9]* steps\?$' stderr.txt || fail 'expected the reason'
    grep -q "^trainer: saved; go on with: $program --resume $signal\$" stderr.txt ||
        fail 'expected how to go on'
    [ -s $signal/weights.safetensors ] || fail 'expected weights'
    "$check" $signal/metrics.jsonl >check.txt || fail "$(cat check.txt)"
    tail -n 1 $signal/metrics.jsonl | grep -q '"status":"interrupted"' || fail 'expected the record'
done

label='a terminal that closes under nohup changes nothing'
: >stderr.txt # an earlier run's says `epoch`, too
(
    trap '' HUP
    exec "$program" config.json --set epochs=1000000 --set eval_every=0 --set run_dir=nohup
) >stdout.txt 2>stderr.txt &
pid=$!
wait_for_steps
before=$(grep -c '"type":"epoch"' nohup/metrics.jsonl)
kill -HUP $pid
await 900 has_records nohup epoch $((before + 3)) || fail 'expected the run to go on'
kill -TERM $pid
wait $pid
code=$?
expect_code 75

label='what was done is on record while the next step hangs'
"$program" config.json --set data.limit=960 --set eval_every=0 --set run_dir=hung --set deadline_s=60 --devices ref:1 \
    --quiet \
    --inject worker=0,step=5,kind=stall,seconds=60 >stdout.txt 2>stderr.txt &
pid=$!
await 100 has_records hung step 4 || fail "expected four steps in $(cat hung/metrics.jsonl)"
kill -KILL $pid
wait $pid

label='without a run directory'
start null
kill -INT $pid
wait $pid
code=$?
expect_code 130

# Two signals of the same kind that follow each other closely are merged into one. The second signal
# is therefore of another kind.
label='a second signal'
start twice
kill -INT $pid
kill -TERM $pid
wait $pid
code=$?
expect_code 130

finish
