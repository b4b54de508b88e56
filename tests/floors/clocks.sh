#!/bin/sh
# SPDX-License-Identifier: MIT
# clocks.sh ROOT: every file under ROOT/src and ROOT/examples that waits until a time sets the waits' clock to the steady
# one. The default is the clock that a person or a time server can set back, and a wait then lasts as much longer.
set -eu
cd -- "$1"
failed=0
# shellcheck disable=SC2013 # names without blanks
for file in $(grep -rlE 'pthread_cond_timedwait|cnd_timedwait|sem_timedwait|mtx_timedlock|pthread_mutex_timedlock' src examples \
    --include='*.[ch]' --include='*.inc'); do
    if ! grep -q 'pthread_condattr_setclock(&[a-z]*, CLOCK_MONOTONIC)' "$file" || grep -q 'clock_gettime(CLOCK_REALTIME' "$file"; then
        echo "$file: expected waits on CLOCK_MONOTONIC (pthread_condattr_setclock)"
        failed=1
    fi
done
exit $failed
