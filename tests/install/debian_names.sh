#!/bin/sh
# SPDX-License-Identifier: MIT
# debian_names.sh BUILD SOURCE WORK: each Debian package of a shared library has the name that Debian's policy derives
# from the library's SONAME, and its symbols file makes programs depend on that name and has each exported symbol; the
# plugins are packed from the folder whose name has the same version. What the build depends on, build-essential
# included, is among the packages that setup.sh installs for it. Builds no packages.
set -eu
build=$1 source=$2 work=$3
rm -rf -- "$work"
mkdir -p -- "$work"
sh "$source/src/package/debian.sh" "$work"
failed=0 count=0
fail()
{
    echo "$*"
    failed=1
}
packages=$(sed -n 's/^Package: //p' "$work/debian/control")
for library in "$build"/src/liblockstep*.so; do
    soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    name=${soname%.so.*} number=${soname##*.so.}
    case $name in
    *[0-9]) package=$name-$number ;;
    *) package=$name$number ;;
    esac
    package=$(echo "$package" | tr _ -)
    echo "$packages" | grep -qxF "$package" || fail "no package $package for $soname; the packages are" "$packages"
    [ "$(cat "$work/debian/$package.install")" = "usr/lib/*/$name.so.*" ] || fail "$package installs something else"
    symbols=$work/debian/$package.symbols
    [ "$(sed -n 1p "$symbols")" = "$soname $package #MINVER#" ] || fail "wrong: $symbols: $(sed -n 1p "$symbols")"
    for node in $(nm -D --defined-only --with-symbol-versions "$library" | sed -n 's/.* [TDBR] .*@@//p' | sort -u); do
        grep -q "^ (symver)$node [0-9.]*\$" "$symbols" || fail "$symbols has no line for the symbols of $node"
    done
    count=$((count + 1))
done
[ "$count" -ge 2 ] || fail "found only $count shared libraries"
[ "$(cat "$work/debian/lockstep-mpi.install")" = "usr/lib/*/lockstep-$number/liblockstep-mpi.so" ] ||
    fail "lockstep-mpi takes the plugin from $(cat "$work/debian/lockstep-mpi.install")"
awk '/^# / { section = $2 } section == "build" || section == "package" { print $1 }' \
    "$source/third_party/apt.txt" >"$work/installed"
sed -n '/^Build-Depends:/,/^[^ B]/{ s/^Build-Depends: *//; s/^ *\([a-z][a-z0-9.+-]*\).*/\1/p; }' "$work/debian/control" |
    sed 's/^debhelper-compat$/debhelper/' >"$work/needed"
[ "$(wc -l <"$work/needed")" -ge 10 ] || fail "found only these build dependencies: $(cat "$work/needed")"
for package in $(cat "$work/needed") build-essential; do
    grep -qxF "$package" "$work/installed" || fail "third_party/apt.txt does not have $package in build or package"
done
! grep -r @ "$work/debian" --include='*.install' --include='*.symbols' --include=control | grep SOVERSION ||
    fail "a version was not put in"
exit $failed
