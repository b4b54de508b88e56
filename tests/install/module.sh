#!/bin/sh
# SPDX-License-Identifier: MIT
# module.sh PREFIX WORK: the modulefile of an installation, which was moved, makes its program, page and library found,
# and unloading takes all of it away. Skipped without Environment Modules.
set -eu
prefix=$1 work=$2
for modulecmd in /usr/lib/*/modulecmd.tcl /usr/lib/modulecmd.tcl; do
    [ ! -x "$modulecmd" ] || break
done
[ -x "$modulecmd" ] || {
    echo "skipped: no Environment Modules (Debian's environment-modules)"
    exit 77
}
rm -rf -- "$work"
mkdir -p -- "$work"
cp -a -- "$prefix" "$work/moved"
unset MANPATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH LOADEDMODULES _LMFILES_
export MODULEPATH="$work/moved/share/modulefiles" MODULESHOME="$work"
before=$PATH
eval "$("$modulecmd" sh load lockstep)"
failed=0
fail()
{
    echo "$*"
    failed=1
}
[ "$(command -v lockstep)" = "$work/moved/bin/lockstep" ] || fail "lockstep is $(command -v lockstep)"
[ -e "${MANPATH%%:*}/man1/lockstep.1" ] || fail "MANPATH is $MANPATH"
[ -e "${PKG_CONFIG_PATH%%:*}/lockstep.pc" ] || fail "PKG_CONFIG_PATH is $PKG_CONFIG_PATH"
[ "${CMAKE_PREFIX_PATH%%:*}" = "$work/moved" ] || fail "CMAKE_PREFIX_PATH is $CMAKE_PREFIX_PATH"
lockstep --version
eval "$("$modulecmd" sh unload lockstep)"
case $PATH:${PKG_CONFIG_PATH-} in
"$before:") ;;
*) fail "unloading leaves PATH=$PATH" ;;
esac
rm -rf -- "$work/moved"
exit $failed
