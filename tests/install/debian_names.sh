#!/bin/sh
# debian_names.sh BUILD: each Debian package of a shared library has the name that Debian's policy derives from the
# library's SONAME, and its file `shlibs` makes programs depend on that name; the plugins are installed in a folder
# whose name has the same version. Reads what the build would pack, and packs nothing.
set -eu
build=$1
failed=0 count=0
fail()
{
    echo "$*"
    failed=1
}
value() { sed -n "s/^set($1 \"\\(.*\\)\")\$/\\1/p" "$build/CPackConfig.cmake"; }
packages=$(value CPACK_COMPONENTS_ALL)
version=$(value CPACK_PACKAGE_VERSION)
[ -n "$packages" ] || {
    echo "skipped: the build makes no Debian packages (gzip is missing)"
    exit 77
}
for library in "$build"/src/liblockstep*.so; do
    soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    name=${soname%.so.*} number=${soname##*.so.}
    case $name in
    *[0-9]) package=$name-$number ;;
    *) package=$name$number ;;
    esac
    package=$(echo "$package" | tr _ -)
    case ";$packages;" in
    *";$package;"*) ;;
    *) fail "no package $package for $soname; the packages are $packages" ;;
    esac
    control=$build/src/package/control/$package/shlibs
    [ "$(cat "$control" 2>&1)" = "$name $number $package (>= $version)" ] ||
        fail "wrong: $control: $(cat "$control" 2>&1)"
    case $(grep -h -o "[^ ]*/lockstep[-0-9.]*\" TYPE MODULE" "$build/src/package/cmake_install.cmake" | sort -u) in
    '' | */lockstep-"$number"'" TYPE MODULE') ;;
    *) fail "the plugins are not installed in lockstep-$number" ;;
    esac
    count=$((count + 1))
done
[ "$count" -ge 2 ] || fail "found only $count shared libraries"
case ";$packages;" in
*';lockstep-mpi;'*) made=yes ;;
*) made=no ;;
esac
[ "$(grep -q 'liblockstep-mpi[.]so' "$build/src/package/cmake_install.cmake" && echo yes || echo no)" = $made ] ||
    fail "MPI is built and has no package, or has one and is not built"
exit $failed
