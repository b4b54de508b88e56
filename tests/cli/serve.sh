#!/bin/sh
# SPDX-License-Identifier: MIT
# --serve: pages that show a run in progress, and metrics for Prometheus. If the server cannot be
# started, the message says why.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
"$program" --serve 1:2:3 --version >/dev/null 2>&1
run config.json --serve nonsense
grep -q 'built without' stderr.txt && skip 'built without libmicrohttpd'
expect_code 64
expect_error '--serve nonsense: expected PORT or ADDRESS:PORT, such as 8080, 0.0.0.0:8080 or [::1]:8080'
command -v curl >/dev/null || skip 'no curl to ask with'

run config.json --serve-host other.example
expect_code 64
expect_error "--serve-host needs --serve PORT; \`$program --help\` lists what there is"

# url_of FILE: prints the URL of the live page, from the messages of the run.
url_of() {
    tries=0
    url=
    while [ $tries -lt 100 ] && [ -z "$url" ]; do
        sleep 0.1
        url=$(sed -n 's/^  live page   //p' "$1")
        tries=$((tries + 1))
    done
}

# Two runs that stall for a while, so that their servers can be asked. One of them has few file
# descriptors.
(
    # shellcheck disable=SC3045 # dash and bash have it
    ulimit -n 64
    exec "$program" config.json --serve 0 --serve-host other.example --set run_dir=few \
        --inject worker=0,step=1,kind=stall,seconds=9 >few.txt 2>few-stderr.txt
) &
few=$!
"$program" config.json --set epochs=3 --set deadline_s=60 --serve 0 \
    --inject worker=0,step=5,kind=stall,seconds=60 \
    >stdout.txt 2>stderr.txt &
pid=$!
# A run that loses its second worker in step 2.
"$program" config.json --set epochs=3 --set deadline_s=60 --set checkpoint.every_steps=1 --serve 0 --set run_dir=lost \
    --devices ref:2 --inject worker=1,step=2,kind=fail --inject worker=0,step=5,kind=stall,seconds=60 \
    >lost.txt 2>lost-stderr.txt &
lost=$!
awk -v OFS=, 'BEGIN { print "a,y"; for (i = 0; i < 80; i++) print i % 9 - 4.5, 2 * (i % 9) }' >table.csv
sed '2,$s/,.*/,3/' table.csv >flat.csv
for table in table flat; do
    "$program" config.json --set data.name=csv --set data.path=$table.csv --set data.target=y --set data.labels=values \
        --set data.limit=0 --set data.validation=0.2 --set 'model.layers=[{"type":"dense","out":1}]' \
        --set batch_size=16 --set epochs=3 --set deadline_s=60 --serve 0 --set run_dir=$table \
        --inject worker=0,step=9,kind=stall,seconds=60 >$table.txt 2>$table-stderr.txt &
    eval "${table}_pid=\$!"
done
# A page that is open at the end of the run receives the record of the end.
"$program" config.json --set deadline_s=60 --serve 0 --set run_dir=ending \
    --inject worker=0,step=1,kind=stall,seconds=1 >ending.txt 2>ending-stderr.txt &
(
    url_of ending-stderr.txt
    while curl -s "${url}records" >>heard.txt; do
        sleep 0.1
    done
) &
heard=$!
python=$(command -v python3) && [ -r /proc/self/stat ] || python=:

# answer PATH CODE TEXT [OPTION...]: the answer has this code and contains this text.
answer() {
    path=$1
    wanted=$2
    text=$3
    shift 3
    got=$(curl -s -o answer.txt -w '%{http_code}' "$@" "$url$path")
    [ "$got" = "$wanted" ] || fail "expected $wanted for /$path, got $got"
    grep -q -e "$text" answer.txt || fail "expected $text in /$path: $(head -c 300 answer.txt)"
}

# await TEXT: waits until a line of the metrics contains this text, at most a minute.
await() {
    tries=0
    until curl -s "${url}metrics" | grep -q -e "$1" || [ $tries -ge 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

# With few file descriptors the server accepts fewer connections, does not busy-wait, and the run
# can save its files.
url_of few-stderr.txt
label="a run with few descriptors, served at $url"
answer healthz 200 ok -H 'Host: other.example:80'
answer healthz 200 ok -H 'Host: other.example' -H 'Origin: https://other.example'
answer healthz 403 evil -H 'Host: other.example' -H 'Origin: https://evil.example'
"$python" "$here/../service/dribble.py" "$url" 0 $few >few-dribble.txt 2>&1 &
dribble=$!

url_of stderr.txt
label="a run that is served at $url"
code=-
await '^lockstep_steps_total 4$' # it goes as far as the stall in step 5
answer '' 200 'data-from="records"'
answer records 200 '"at":0,"type":"run_start"'
answer records 200 "{\"at\":0,\"type\":\"live\",\"host\":\"$(hostname)\""
answer 'records?have=0,1,5,1' 200 '"type":"newest","step":{"type":"step","step":4,'
answer state.json 200 '"run_start":{'
answer metrics 200 '^lockstep_steps_total 4$'
answer metrics 200 '^# TYPE lockstep_loss gauge$'
answer metrics 200 '^lockstep_test_accuracy [01]'
! grep -q 'lockstep_test_r2\|NaN' answer.txt || fail "expected no metrics that the run has not: $(cat answer.txt)"
# the run has the workers 0 and 1
for series in 'seconds_total{worker="[0-9]*",phase="forward"}' 'queued{worker="[0-9]*"}'; do
    [ "$(sed -n "s/^lockstep_worker_$series .*/&/p" answer.txt | sed 's/.*worker="\([0-9]*\)".*/\1/' | tr '\n' ' ')" = '0 1 ' ] ||
        fail "expected $series of both workers alone: $(grep '^lockstep_worker' answer.txt)"
done
answer healthz 200 ok
answer nothing 404 state.json
answer '' 405 'only GET' -X POST -d text
grep -q 'http' answer.txt && fail 'expected nothing from elsewhere'
! curl -s "$url" | grep -q -e 'src="http' -e 'href="http' || fail 'expected no resource from elsewhere'

# A request for a host name that DNS maps to this address is refused, and a request from the page of
# another server on this machine.
for header in 'Host: evil.example' 'Host: evil.example:80' 'Host: localhost.evil.example' 'Host: 10.1.2.3' \
    'Host: ' 'Origin: null' 'Origin: http://evil.example' 'Origin: http://localhost:1' 'Origin: http://localhost'; do
    for path in '' records state.json metrics healthz; do
        answer "$path" 403 'start the server with --serve-host' -H "$header"
    done
done
for host in localhost LocalHost. 127.0.0.1:80 127.1.2.3 '[::1]:1234'; do
    answer healthz 200 ok -H "Host: $host"
done
answer healthz 200 ok -H "Origin: ${url%/}"
answer '' 200 ok --request-target "${url}healthz"
answer '' 403 'evil.example is not a name' --request-target http://evil.example/healthz
answer healthz 501 'expected chunked' -H 'Transfer-Encoding: gzip, chunked'
answer healthz 400 'not with Content-Length' -H 'Transfer-Encoding: chunked' -H 'Content-Length: 0'

# A run that learns values has other metrics. If all values are equal, R² is undefined and not
# shown.
# shellcheck disable=SC2154 # eval has set them
for table in table flat; do
    url_of $table-stderr.txt
    label="a run of values, served at $url"
    await '^lockstep_steps_total 8$'
    answer metrics 200 '^lockstep_test_mae '
    ! grep -q 'accuracy\|NaN' answer.txt || fail "expected nothing of accuracy: $(cat answer.txt)"
    case $table$(grep -c '^lockstep_test_r2 ' answer.txt) in
    table1) pid_of=$table_pid ;;
    flat0) pid_of=$flat_pid ;;
    *) fail "expected R² of the table alone: $(cat answer.txt)" ;;
    esac
    kill -TERM "$pid_of"
    sleep 0.2
    kill -TERM "$pid_of"
    wait "$pid_of"
done
url_of lost-stderr.txt
label="a run that loses a worker, served at $url"
await '^lockstep_checkpoint_step 4$'
for line in faults_total\ 1 steps_total\ 4 epochs_planned\ 3 checkpoint_step\ 4 'worker_queued{worker="0"} [0-9]'; do
    answer metrics 200 "^lockstep_$line"
done
answer metrics 200 '^lockstep_worker_seconds_total{worker="1",phase="forward"} '
! grep -q '^lockstep_worker_queued{worker="1"}' answer.txt || fail 'expected no queue of the lost worker'
saved=$(sed -n 's/^lockstep_checkpoint_time_seconds //p' answer.txt)
[ "${saved:-0}" -gt $(($(date +%s) - 300)) ] && [ "$saved" -le "$(date +%s)" ] || fail "expected the time of the checkpoint: $saved"
kill -TERM $lost
sleep 0.2
kill -TERM $lost
wait $lost
url_of stderr.txt
label="a run that is served at $url"

# Clients that send their requests very slowly do not prevent other clients from being answered, and
# their connections are closed.
"$python" "$here/../service/dribble.py" "$url" 8 $pid >dribble.txt 2>&1 || fail "$(cat dribble.txt)"

wait $heard
grep -q '"type":"run_end"' heard.txt || fail 'expected that the server answers until the page knows the end'

# Two servers at the same address are an error.
port=${url##*:}
run config.json --serve "${port%/}"
expect_code 74
kill -TERM $pid
sleep 0.2
kill -TERM $pid
wait $pid
label='the run with few descriptors'
wait $dribble || fail "$(cat few-dribble.txt)"
wait $few
code=$?
expect_code 0
[ -s few/weights.safetensors ] || fail 'expected weights'
# --serve-after: after the run the page stays available, with predictions, until a signal arrives.
"$program" config.json --serve 0 --serve-after --set run_dir=after >stdout.txt 2>stderr.txt &
pid=$!
label='--serve-after'
tries=0
while ! grep -q 'its page stays until Ctrl-C' stderr.txt && [ $((tries += 1)) -lt 100 ]; do
    sleep 0.1
done
url_of stderr.txt
answer state.json 200 '"run_end"'
while ! curl -s "${url}records" | grep -q '"type":"samples"' && [ $((tries += 1)) -lt 200 ]; do
    sleep 0.1
done
answer records 200 '"type":"samples","text":".* of 512 test rows'
answer records 200 '"type":"program","time":".*"layers":\[{"name":"conv1","type":"conv2d","output":\[4,24,24\],"parameters":104}'
kill -INT $pid
wait $pid
code=$?
expect_code 0
expect_last_stdout_line "$closing_line"
run config.json --serve-after
expect_code 64
run config.json --serve 0 --serve-after --set batch_size=0
expect_code 78

finish
