#!/bin/sh
# debian.sh CPACK BUILD WORK: three Debian packages come out of a build, and each has its own part.
# Skipped where the tools for that are missing.
set -eu
cpack=$1 build=$2 work=$3
for tool in dpkg-deb dpkg-shlibdeps file gzip; do
    command -v "$tool" >/dev/null || exit 77
done
rm -rf -- "$work"
mkdir -p -- "$work"
"$cpack" --config "$build/CPackConfig.cmake" -B "$work" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
failed=0
fail()
{
    echo "$*"
    failed=1
}

# holds PACKAGE FILE...: regular expressions; files that each must be in it
holds()
{
    package=$1
    shift
    dpkg-deb -c "$work/$package"_[0-9]*.deb | sed 's/.* \.\(\/[^ ]*\).*/\1/' >"$work/$package.files"
    for file in "$@" "/usr/share/doc/$package/copyright" "/usr/share/doc/$package/changelog.gz"; do
        grep -qx "$file" "$work/$package.files" || fail "$package lacks $file"
    done
}
holds liblockstep0 '/usr/lib/.*liblockstep[.]so[.][0-9.]*' '/usr/lib/.*liblockstep_pool[.]so[.][0-9.]*'
holds liblockstep-dev '/usr/lib/.*liblockstep[.]so' '/usr/lib/.*liblockstep[.]a' '/usr/lib/.*/lockstep[.]pc' \
    '/usr/lib/.*/lockstep-config[.]cmake' /usr/include/lockstep/trainer.h
holds lockstep /usr/bin/lockstep /usr/bin/trainer /usr/share/man/man1/lockstep.1.gz \
    /usr/share/man/man1/trainer.1.gz
twice=$(cat "$work"/*.files | grep -v '/$' | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
dpkg-deb -f "$work"/liblockstep-dev_*.deb Depends | grep -q 'liblockstep0 (= ' ||
    fail "liblockstep-dev does not depend on its own liblockstep0"
dpkg-deb -f "$work"/lockstep_*.deb Depends | grep -q 'libc6 (>= ' || fail "lockstep depends on nothing"
exit $failed
