#!/bin/sh
# SPDX-License-Identifier: MIT
# On a terminal the progress line is redrawn in place, in colour unless NO_COLOR is set.
# shellcheck disable=SC1091,SC2034,SC2154 # expect.sh sets and reads the shared variables
. "$(dirname "$0")/expect.sh"
script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip 'util-linux script is not here'

# on_terminal [VARIABLE=VALUE…]: runs the program on a terminal, whose output is written to
# screen.txt.
on_terminal() {
    label="on a terminal, with $*"
    env TERM=xterm "$@" script -qec "'$program' config.json --set epochs=3 --set data.limit=1024" \
        /dev/null </dev/null >screen.txt 2>&1
    code=$?
    : >stdout.txt
    cp screen.txt stderr.txt
    expect_code 0
}

escape=$(printf '\033')
return=$(printf '\r')
on_terminal A=B
grep -q "$return$escape\\[?7l  epoch [123]/3 .* images/s  0:0[0-9] left$escape\\[K$escape\\[?7h" screen.txt ||
    fail 'expected a progress line'
grep -q "$escape\\[1m" screen.txt || fail 'expected bold'
grep -q "$closing_line" screen.txt || fail 'expected the closing line'
on_terminal NO_COLOR=1
grep -q "$escape\\[K" screen.txt || fail 'expected a progress line'
! grep -q "$escape\\[[0-9]*m" screen.txt || fail 'expected no colour'
on_terminal NO_COLOR=
grep -q "$escape\\[1m" screen.txt || fail 'expected colour: an empty NO_COLOR does not count'
on_terminal NO_COLOR=1 COLUMNS=40
tr -d '\r' <screen.txt | sed "s/$escape\[[?0-9]*[a-zA-Z]//g" >plain.txt
grep -q '  1/3  loss [0-9.]*  test acc [0-9.]*$' plain.txt || fail 'expected a short line of an epoch'
[ "$(grep -v '^test acc' plain.txt | grep -v left | wc -L)" -le 40 ] || fail 'expected no line of more than 40 columns'
# Commands for the user are not broken, so that they can be copied. If one is too wide beside the
# label, they begin below it.
sed 's/"run_dir": null/"run_dir": "told"/' config.json >told.json
mv told.json config.json
on_terminal NO_COLOR=1 COLUMNS=40
tr -d '\r' <screen.txt >plain.txt
grep -qx '  next' plain.txt || fail 'expected the label on a line of its own'
grep -qx "    $program export told --to model.onnx" plain.txt || fail 'expected a whole command'
rm -r told
on_terminal NO_COLOR=1 COLUMNS=1000
tr -d '\r' <screen.txt >plain.txt
grep -qx "  next        $program eval told" plain.txt || fail 'expected the command beside the label'
grep -qx "              $program report told" plain.txt || fail 'expected a command a line'
rm -r told
on_terminal TERM=dumb
! grep -q "$escape" screen.txt || fail 'expected no escape sequences'

finish
