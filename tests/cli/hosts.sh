#!/bin/sh
# SPDX-License-Identifier: MIT
# hosts.sh PROGRAM CHECK_METRICS: options for runs on several hosts, files of secrets with the modes with which
# Kubernetes and Docker mount them, and the end of a run whose first host ends at once. A run on a
# single host has one member.
check=$2
. "$(dirname "$0")/expect.sh"

cat >c.json <<'TEXT'
{"data": {"name": "synthetic", "limit": 64}, "batch_size": 32, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1},
 "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
TEXT
head -c 32 /dev/zero | tr '\0' x >key
base='c.json --quiet --listen :7070 --members 1'

for mode in 600 400; do
    chmod "$mode" key
    # shellcheck disable=SC2086 # words
    run $base --secret key
    expect_code 0
    if grep -q secret stderr.txt; then fail 'expected no word of the secret'; fi
done
for mode in 644 444 640 440; do # Kubernetes', Docker's, and with an fsGroup
    chmod "$mode" key
    # shellcheck disable=SC2086
    run $base --secret key
    expect_code 0
    [ "$(grep -c "warning: key: users other than its owner may read this secret (mode 0$mode)" stderr.txt)" -eq 1 ] ||
        fail 'expected one warning'
done
for mode in 660 602; do
    chmod "$mode" key
    # shellcheck disable=SC2086
    run $base --secret key
    expect_code 65
    expect_error "key: users other than its owner may write this secret (mode 0$mode): chmod go-w it, and if they \
are not to be trusted, make it anew: head -c 32 /dev/urandom > FILE"
done

chmod 600 key
label='no file'
# shellcheck disable=SC2086
run $base --secret missing
expect_code 66
expect_error 'missing: no such file; make one: head -c 32 /dev/urandom > FILE'
label='--secret-fd from a pipe'
# shellcheck disable=SC2086
"$program" $base --secret-fd 3 3<key >stdout.txt 2>stderr.txt </dev/null
code=$?
expect_code 0
label='--secret-fd, too short'
# shellcheck disable=SC2086
echo short | "$program" $base --secret-fd 0 >stdout.txt 2>stderr.txt
code=$?
expect_code 65
expect_error '--secret-fd 0: expected at least 16 bytes, found 6; make it anew: head -c 32 /dev/urandom > FILE'

# The first host ends in the first step, half a second after its begin. The other host has trained
# nothing, and must save nothing.
port=$((10000 + $$ % 20000))
two="c.json --quiet --devices ref:1 --members 2 --secret key --wait 60 --set shards=2 --set run_dir=two"
# shellcheck disable=SC2086
"$program" $two --listen "127.0.0.1:$port" --inject worker=0,step=1,kind=stall,stage=start,seconds=0.5 \
    --inject worker=0,step=1,kind=fail >first.txt 2>&1 </dev/null &
first=$!
# shellcheck disable=SC2086
run $two --join "127.0.0.1:$port" --listen :0
expect_code 71
grep -q 'has left the run: worker 0, step 1' stderr.txt || fail 'expected why the first host ended'
expect_error 'nothing was trained, so nothing was saved'
[ ! -e two.member-1 ] || fail 'expected no directory'
wait "$first"
code=$?
label='the first host'
expect_code 71
grep -q 'the device failed, as --inject asked for' first.txt || fail "$(cat first.txt)"

# Two processes, each with two devices: the first writes the records, with its own workers only.
label='records of two hosts'
port=$((port + 1))
two="c.json --quiet --devices ref:2 --members 2 --secret key --wait 60 --set shards=4 --set run_dir=records"
# shellcheck disable=SC2086
"$program" $two --listen "127.0.0.1:$port" >first.txt 2>&1 </dev/null &
first=$!
# shellcheck disable=SC2086
run $two --join "127.0.0.1:$port" --listen :0
expect_code 0
wait "$first" || fail "$(cat first.txt)"
"$check" records/metrics.jsonl >checked.txt || fail "$(cat checked.txt)"
grep -q '"devices":\["[^"]*: ref(0)","[^"]*: ref(1)","[^"]*: ref(0)"' records/metrics.jsonl || fail 'expected four devices'
sed 's/,{"worker":1,.*}\]/]/' records/metrics.jsonl >cut.jsonl
if "$check" cut.jsonl >checked.txt; then fail 'expected that a worker is missing'; fi

# The second host is killed in step 6. The first host saves and stops; its error and its records name
# the lost host, also after the run was resumed in a copy of its directory.
label='a host that is killed'
port=$((port + 1))
long='--set epochs=4 --set deadline_s=600'
# shellcheck disable=SC2086 # words
run c.json --quiet --devices ref:1 --set shards=2 $long --set run_dir=whole
expect_code 0
two="c.json --quiet --devices ref:1 --members 2 --secret key --wait 60 --set shards=2 $long --set run_dir=killed"
# shellcheck disable=SC2086 # words
"$program" $two --listen "127.0.0.1:$port" >stdout.txt 2>stderr.txt </dev/null &
first=$!
# shellcheck disable=SC2086
"$program" $two --join "127.0.0.1:$port" --listen :0 --inject worker=0,step=6,kind=stall,seconds=600 >second.txt 2>&1 </dev/null &
second=$!
tries=0
while ! grep -qs '"type":"step","step":5,' killed/metrics.jsonl && [ $tries -lt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -KILL $second
wait $second
wait $first
code=$?
expect_code 75
expect_stderr_line 'trainer: host .*#1, step 6: the connection to host .*#1 broke: .*'
fault='"type":"fault","worker":-1,"device":"[^"]*#1","step":6,"kind":"host","detected_after_s":0,"action":"stop","devices_left":1,"error":"the connection to host [^"]*#1 broke: '
grep -q "$fault" killed/metrics.jsonl || fail 'expected the lost host in the records'
tail -n 1 killed/metrics.jsonl | grep -q '"devices":\["[^"#]*: ref(0)"\]' || fail 'expected the device that is left'
"$check" killed/metrics.jsonl >checked.txt || fail "$(cat checked.txt)"
mkdir elsewhere && cp -a killed elsewhere/copy
run --resume elsewhere/copy --quiet
expect_code 0
expect_stderr_line 'trainer: warning: the run had failed before it was resumed: host .*#1, step 6: .*'
grep -q "$fault" elsewhere/copy/metrics.jsonl || fail 'expected the lost host in the records of the resumed run'
grep -q '"type":"resume",.*"step":5,.*"ended":{"status":"failed","time":"[0-9TZ:-]*","error":"host [^"]*#1, step 6: ' \
    elsewhere/copy/metrics.jsonl || fail 'expected the end before the resume'
"$check" elsewhere/copy/metrics.jsonl >checked.txt || fail "$(cat checked.txt)"
hash_of() { tail -n 1 "$1/metrics.jsonl" | grep -o '"weights_sha256":"[0-9a-f]*"'; }
[ "$(hash_of elsewhere/copy)" = "$(hash_of whole)" ] || fail 'expected the bits of the undisturbed run'
[ ! -e killed/weights.safetensors ] || [ "$(hash_of killed)" != "$(hash_of whole)" ] || fail 'expected that the copy goes on alone'

usage() {
    text=$1
    shift
    run c.json "$@"
    expect_code 64
    grep -q -- "$text" stderr.txt || fail "expected: $text"
}
usage 'need each other' --listen :7070
usage 'need each other' --join 10.0.0.1:7070 --members 2
usage 'need each other' --members 2 --secret key
usage 'not both' --listen :7070 --members 1 --secret key --secret-fd 3
usage '--wait needs --listen or --join' --wait 3
usage '--advertise needs --join' --listen :7070 --members 1 --secret key --advertise 10.0.0.1
usage 'expected \[ADDRESS\]:PORT' --listen 7070 --members 2 --secret key
usage '\[fd77::1\]:7070' --join fd77::1:7070 --members 2 --secret key
usage '--listen :7070' --join 0.0.0.0:7070 --members 2 --secret key

finish
