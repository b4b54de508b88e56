#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh CMAKE BUILD WORK LIBDIR SOURCE: installs three times, under WORK:
#   all    everything; installed elsewhere and then moved, as a prefix may be
#   pool   only the component `pool`
#   stage  with DESTDIR, as packagers do
# It checks that everything required exists, in particular the public headers, and that `uninstall`
# restores a prefix to what it was before. The build's own list of its last installation is not
# changed.
set -eu
cmake=$1 build=$2 work=$3 libdir=$4 source=$5
rm -rf -- "$work"
mkdir -p -- "$work/lists"
keep()
{
    for list in "$1"/install_manifest*.txt; do
        [ ! -e "$list" ] || mv -- "$list" "$2"
    done
}
keep "$build" "$work/lists"
trap 'rm -f -- "$build"/install_manifest*.txt; keep "$work/lists" "$build"' EXIT
trap 'exit 1' HUP INT TERM
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv -- "$work/first" "$work/all"
"$cmake" --install "$build" --prefix "$work/pool" --component pool >>"$work/install.log"
DESTDIR=$work/stage "$cmake" --install "$build" >>"$work/install.log"

failed=0
fail()
{
    echo "$*"
    failed=1
}

# every FILE... is under $work/$1
there()
{
    prefix=$1
    shift
    for file; do
        [ -s "$work/$prefix/$file" ] || fail "$prefix lacks $file"
    done
}
there all bin/lockstep bin/trainer share/man/man1/lockstep.1 "$libdir/liblockstep.so" "$libdir/liblockstep.a" \
    "$libdir/liblockstep_pool.so" "$libdir/liblockstep_pool.a" share/man/man1/trainer.1 \
    share/doc/lockstep/LICENSE share/doc/lockstep/README.md share/doc/lockstep/docs/config.md
there pool "$libdir/liblockstep_pool.so" "$libdir/liblockstep_pool.a" include/lockstep/pool.h
for file in bin/lockstep bin/trainer "$libdir/liblockstep.so" include/lockstep/trainer.h; do
    [ ! -e "$work/pool/$file" ] || fail "the component pool has $file"
done
[ -n "$(find "$work/stage" -name 'liblockstep.so.?.?.?')" ] || fail "DESTDIR is not obeyed"

for header in "$source"/include/lockstep/*.h "$source"/include/lockstep/*.hpp "$source"/include/lockstep/sys/*.h; do
    [ -e "$work/all/${header#"$source"/}" ] ||
        fail "${header##*/} is not installed: add it to a list in src/package/CMakeLists.txt"
done

# Pages lead to pages and pictures that are there; not to sources and their folders.
doc=$work/all/share/doc/lockstep
for page in "$doc"/README-trainer.md "$doc"/docs/*.md; do
    grep -o '](\([^)# ]*\)' "$page" | sed 's/^](//' | sort -u >"$work/links"
    while read -r link; do
        case ${link##*/} in
        *.[ch] | CONTRIBUTING.md) continue ;;
        *.md | *.svg | *.png | *.json | *.ipynb | *.txt) case $link in http*) continue ;; esac ;;
        *) continue ;;
        esac
        [ -e "$(dirname -- "$page")/$link" ] || fail "${page#"$doc"/} leads to $link, which is not installed"
    done <"$work/links"
done

# Nothing installed knows where it was built or first installed.
found=$(grep -rlF -e "$work/first" -e "$build" "$work/all" --include='*.cmake' --include='*.pc') &&
    fail "these name a folder that may be gone: $found"
[ "$("$work/all/bin/trainer" --version)" = "$("$work/all/bin/lockstep" --version)" ] ||
    fail "trainer is not lockstep"
readelf -S "$work/all/bin/lockstep" | grep -q '\.debug_info' && fail "the installed program has debugging information"
[ "$(find "$work/all/bin" -type f)" = "$work/all/bin/lockstep" ] || fail "trainer is a copy of lockstep"
[ "$(cat "$work/all/share/man/man1/trainer.1")" = ".so man1/lockstep.1" ] || fail "the page trainer.1 is not lockstep's"

# The last installation is taken away again, and nothing else.
uninstall() { DESTDIR=$work/stage "$cmake" --build "$build" --target uninstall >>"$work/install.log" 2>&1; }
own=$(dirname -- "$(find "$work/stage" -name lockstep -path '*/bin/*')")/theirs
echo theirs >"$own"
uninstall || fail "uninstall fails"
[ "$(find "$work/stage" -not -type d)" = "$own" ] || fail "uninstall left: $(find "$work/stage" -not -type d)"
[ -z "$(find "$work/stage" -name lockstep)" ] || fail "uninstall left folders: $(find "$work/stage" -name lockstep)"
uninstall && fail "there is nothing to uninstall, and it does not say so"
exit $failed
