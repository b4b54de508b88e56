#!/bin/sh
# debian.sh CPACK BUILD WORK CONTAINERFILE: a build yields Debian packages, each of which contains
# its own part; the packages of pictures and of MPI exist if their libraries do, and no other package
# needs their libraries. They contain what the container starts, and a user other than root can start
# it. Skipped if the tools for that are missing.
set -eu
cpack=$1 build=$2 work=$3 containerfile=$4
for tool in dpkg-deb dpkg-shlibdeps file gzip; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool (third_party/setup.sh package)"
        exit 77
    }
done
trap 'rm -f -- "$build"/install_manifest_liblockstep*.txt "$build"/install_manifest_lockstep*.txt' EXIT
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
# The version in the SONAME, and with it in the packages' names: 0.2.
version=$(readelf -d "$build/src/liblockstep.so" | sed -n 's/.*(SONAME).*[.]so[.]\(.*\)\]/\1/p')
library=liblockstep$version pool=liblockstep-pool$version pictures=liblockstep-picture$version
depends() { dpkg-deb -f "$work/$1"_*.deb Depends; }
holds "$library" '/usr/lib/.*liblockstep[.]so[.][0-9.]*'
holds "$pool" '/usr/lib/.*liblockstep_pool[.]so[.][0-9.]*'
holds liblockstep-dev '/usr/lib/.*liblockstep[.]so' '/usr/lib/.*liblockstep[.]a' '/usr/lib/.*/lockstep[.]pc' \
    '/usr/lib/.*/lockstep-config[.]cmake' /usr/include/lockstep/trainer.h
holds lockstep /usr/bin/lockstep /usr/bin/trainer /usr/share/man/man1/lockstep.1.gz \
    /usr/share/man/man1/trainer.1.gz
libraries="$library $pool"
if [ -e "$build/src/liblockstep_picture.so" ]; then
    libraries="$libraries $pictures"
    holds "$pictures" '/usr/lib/.*liblockstep_picture[.]so[.][0-9.]*'
    depends "$pictures" | grep -q "$library (= .*libc6 (>= " || fail "$pictures depends on: $(depends "$pictures")"
    ! depends "$library" | grep -e spng -e jpeg || fail "$library needs them"
fi
if grep -q 'liblockstep-mpi[.]so' "$build/src/package/cmake_install.cmake"; then
    holds lockstep-mpi "/usr/lib/.*lockstep-$version/liblockstep-mpi[.]so"
    depends lockstep-mpi | grep -q "lockstep (= .*$library (= .*mpi" ||
        fail "lockstep-mpi depends on: $(depends lockstep-mpi)"
fi
for package in $libraries liblockstep-dev lockstep; do
    ! depends "$package" | grep mpi || fail "$package needs MPI"
    ! grep 'mpi[.]so' "$work/$package.files" || fail "$package has the plugin"
done
# A library's package names itself to dpkg-shlibdeps, takes the place of the package of the former
# name, and runs no script.
for package in $libraries; do
    dpkg-deb -e "$work/$package"_*.deb "$work/$package.control"
    grep -q "^liblockstep[_a-z]* $version $package (>= " "$work/$package.control/shlibs" ||
        fail "$package: shlibs: $(cat "$work/$package.control/shlibs")"
    former=${package%"$version"}0
    former=$(echo "$former" | sed 's/-pool0$/0/')
    [ "$(dpkg-deb -f "$work/$package"_*.deb Conflicts) $(dpkg-deb -f "$work/$package"_*.deb Replaces)" = \
        "$former $former" ] ||
        fail "$package does not take the place of $former"
    for script in postinst postrm; do
        [ ! -e "$work/$package.control/$script" ] || fail "$package has a script $script"
    done
done
twice=$(cat "$work"/*.files | grep -v '/$' | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
for package in $libraries; do
    depends liblockstep-dev | grep -qF "$package (= " || fail "liblockstep-dev does not depend on $package"
done
depends lockstep | grep -q 'libc6 (>= ' || fail "lockstep depends on nothing"

# of WORD: what the last such line of the Containerfile says
of() { sed -n "s/^$1 //p" "$containerfile" | tail -n 1 | tr -d '[]"'; }
case $(of USER) in '' | root | 0) fail "the container's program runs as root" ;; esac
for file in "/usr/bin/$(of ENTRYPOINT)" "$(of CMD)"; do
    grep -qx "$file" "$work/lockstep.files" || fail "the container starts $file, which is in no package"
done
grep -q 'install .* dataset-fashion-mnist' "$containerfile" || fail "the container has no data"
exit $failed
