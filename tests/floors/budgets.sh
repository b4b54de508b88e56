#!/bin/sh
# SPDX-License-Identifier: MIT
# budgets.sh SUMMARY WORK_FOLDER: the output of summary.py for a run of five tests: one within its
# budget, one beyond twice and one beyond four times its budget, one without a tier, one skipped.
# Exit status 1 if it is not as expected.
set -eu
summary=$1
work=$2
command -v python3 >/dev/null || {
    echo "skipped: python3 is not installed"
    exit 77
}
rm -rf -- "$work"
mkdir -p -- "$work"
cat >"$work/CTestTestfile.cmake" <<'TEXT'
add_test(good true)
add_test(slow true)
add_test(slower true)
add_test(stray true)
add_test(absent true)
set_tests_properties(good absent PROPERTIES LABELS "unit;room:x")
set_tests_properties(slow PROPERTIES LABELS "integration;room:x")
set_tests_properties(slower PROPERTIES LABELS "nightly;budget:20;room:x")
TEXT
# results SECONDS-OF-SLOWER
results() {
    cat >"$work/tests.xml" <<TEXT
<testsuite>
<testcase name="good" time="0.9"/><testcase name="slow" time="21"/><testcase name="slower" time="$1"/>
$2<testcase name="absent" time="0"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>skipped: no moon</system-out></testcase>
</testsuite>
TEXT
}
# says STATUS TEXT ARGUMENT...
says() {
    status=$1 text=$2
    shift 2
    found=0
    python3 "$summary" "$work" "$@" >"$work/said" 2>&1 || found=$?
    if [ "$found" -ne "$status" ] || ! grep -q "$text" "$work/said"; then
        echo "FAILED: status $found, not $status, or it does not say: $text"
        cat "$work/said"
        exit 1
    fi
}
results 39 ''
says 0 'warning: slow took 21.0 s; its budget is 10.0 s'
says 0 '1 skipped: no moon'
results 81 ''
says 1 'error: slower took 81.0 s; its budget is 20.0 s'
says 0 'the slowest' --factor 3
says 0 'warning: slow took' --rerun # alone it takes no time
results 39 '<testcase name="stray" time="0.1"/>'
says 1 'error: stray has no tier'
