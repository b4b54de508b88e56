#!/bin/sh
# --serve: pages that follow a run, numbers for Prometheus; what cannot be served says why.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(cd "$(dirname "$0")" && pwd)/expect.sh"
"$program" --serve 1:2:3 --version >/dev/null 2>&1
run config.json --serve nonsense
grep -q 'built without' stderr.txt && skip 'built without libmicrohttpd'
expect_code 64
expect_error '--serve nonsense: expected PORT or ADDRESS:PORT, such as 8080, 0.0.0.0:8080 or [::1]:8080'
command -v curl >/dev/null || skip 'no curl to ask with'

# A run that stands still for a while in its fifth step, so that it can be asked.
"$program" config.json --set epochs=3 --serve 0 --inject worker=0,step=5,kind=stall,seconds=4 \
    >stdout.txt 2>stderr.txt &
pid=$!
tries=0
url=
while [ $tries -lt 100 ]; do
    url=$(sed -n 's/^  live page   //p' stderr.txt)
    [ -n "$url" ] && curl -s "${url}state.json" | grep -q '"step":4' && break
    sleep 0.1
    tries=$((tries + 1))
done
label="a run that is served at $url"
code=-

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
answer '' 200 'Workers in the newest step'
answer '' 200 'under way'
answer state.json 200 '"run_start":{'
answer metrics 200 '^lockstep_steps_total 4$'
answer metrics 200 '^# TYPE lockstep_loss gauge$'
answer healthz 200 ok
answer nothing 404 state.json
answer '' 405 'only GET' -X POST -d text
grep -q 'http' answer.txt && fail 'expected nothing from elsewhere'
! curl -s "$url" | grep -q -e 'src="http' -e 'href="http' || fail 'expected no resource from elsewhere'
# The same place twice is an error.
port=${url##*:}
run config.json --serve "${port%/}"
expect_code 74
wait $pid
code=$?
label='the run that was served'
expect_code 0
finish
