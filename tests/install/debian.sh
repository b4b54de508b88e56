#!/bin/sh
# debian.sh CPACK BUILD WORK CONTAINERFILE: a build yields Debian packages, each of which contains
# its own part; the package of pictures exists if its library does. They contain what the container
# starts, and a user other than root can start it. Skipped if the tools for that are missing.
set -eu
cpack=$1 build=$2 work=$3 containerfile=$4
for tool in dpkg-deb dpkg-shlibdeps file gzip; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool (third_party/setup.sh package)"
        exit 77
    }
done
trap 'rm -f -- "$build"/install_manifest_liblockstep*.txt "$build"/install_manifest_lockstep.txt' EXIT
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
if [ -e "$build/src/liblockstep_picture.so" ]; then
    holds liblockstep-picture0 '/usr/lib/.*liblockstep_picture[.]so[.][0-9.]*'
    dpkg-deb -f "$work"/liblockstep-picture0_*.deb Depends | grep -q 'liblockstep0 (= .*libc6 (>= ' ||
        fail "liblockstep-picture0 depends on: $(dpkg-deb -f "$work"/liblockstep-picture0_*.deb Depends)"
    ! dpkg-deb -f "$work"/liblockstep0_*.deb Depends | grep -e spng -e jpeg || fail "liblockstep0 needs them"
fi
twice=$(cat "$work"/*.files | grep -v '/$' | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
dpkg-deb -f "$work"/liblockstep-dev_*.deb Depends | grep -q 'liblockstep0 (= ' ||
    fail "liblockstep-dev does not depend on its own liblockstep0"
dpkg-deb -f "$work"/lockstep_*.deb Depends | grep -q 'libc6 (>= ' || fail "lockstep depends on nothing"

# of WORD: what the last such line of the Containerfile says
of() { sed -n "s/^$1 //p" "$containerfile" | tail -n 1 | tr -d '[]"'; }
case $(of USER) in '' | root | 0) fail "the container's program runs as root" ;; esac
for file in "/usr/bin/$(of ENTRYPOINT)" "$(of CMD)"; do
    grep -qx "$file" "$work/lockstep.files" || fail "the container starts $file, which is in no package"
done
grep -q 'install .* dataset-fashion-mnist' "$containerfile" || fail "the container has no data"
exit $failed
