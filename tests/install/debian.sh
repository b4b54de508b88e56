#!/bin/sh
# SPDX-License-Identifier: MIT
# debian.sh SOURCE WORK PREFIX LIBDIR: the Debian source package of the sources builds; its packages together contain
# the files that `cmake --install` puts into PREFIX, each one once; the packages of pictures and of MPI have their
# libraries, and no other package needs those. lintian has nothing against them. They contain what the container
# starts, and a user other than root starts it. Skipped if what the source package needs is missing.
set -eu
source=$1 work=$2 prefix=$3 libdir=$4
containerfile=$source/.ci/Containerfile
for tool in dh dpkg-buildpackage; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool (third_party/setup.sh package)"
        exit 77
    }
done
rm -rf -- "$work"
mkdir -p -- "$work"
upstream=$(sed -n 's/^#define LS_VERSION "\(.*\)"/\1/p' "$source/include/lockstep/version.h")
name=lockstep-$upstream
sh "$source/src/package/debian.sh" --copy "$work/$name"
cd -- "$work"
(cd "$name" && dpkg-checkbuilddeps 2>"$work/missing") || {
    echo "skipped: $(cat missing)"
    exit 77
}
quietly()
{
    "$@" >log 2>&1 || {
        tail -n 100 log
        echo "failed: $*"
        exit 1
    }
}
# A release archive has no folder debian/.
tar -c --exclude="$name/debian" "$name" | gzip -n >"lockstep_$upstream.orig.tar.gz"
quietly dpkg-source --build "$name"
rm -rf -- "$name"
quietly dpkg-source --extract lockstep_*.dsc "$name"
if command -v ccache >/dev/null; then # debhelper sets another HOME
    CCACHE_DIR=${CCACHE_DIR:-$(ccache -k cache_dir)}
    export CCACHE_DIR
fi
# Unoptimised, which takes half the time.
quietly env -C "$name" DEB_BUILD_OPTIONS="noopt ${DEB_BUILD_OPTIONS-}" dpkg-buildpackage -b -uc -us
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
    dpkg-deb -c "$package"_[0-9]*.deb | sed 's/.* \.\(\/[^ ]*\).*/\1/' >"$package.files"
    for file in "$@" "/usr/share/doc/$package/copyright" "/usr/share/doc/$package/changelog.Debian.gz"; do
        grep -qx "$file" "$package.files" || fail "$package lacks $file"
    done
}
# The version in the SONAME, and with it in the packages' names: 0.3.
version=$(readelf -d "$prefix/$libdir/liblockstep.so" | sed -n 's/.*(SONAME).*[.]so[.]\(.*\)\]/\1/p')
library=liblockstep$version pool=liblockstep-pool$version pictures=liblockstep-picture$version
libraries="$library $pool $pictures"
depends() { dpkg-deb -f "$1"_*.deb Depends; }
holds "$library" '/usr/lib/.*-linux-gnu/liblockstep[.]so[.][0-9.]*'
holds "$pool" '/usr/lib/.*-linux-gnu/liblockstep_pool[.]so[.][0-9.]*'
holds "$pictures" '/usr/lib/.*-linux-gnu/liblockstep_picture[.]so[.][0-9.]*'
holds liblockstep-dev '/usr/lib/.*liblockstep[.]so' '/usr/lib/.*liblockstep[.]a' '/usr/lib/.*/lockstep[.]pc' \
    '/usr/lib/.*/lockstep-config[.]cmake' /usr/include/lockstep/trainer.h
holds lockstep /usr/bin/lockstep /usr/bin/trainer /usr/share/man/man1/lockstep.1.gz \
    /usr/share/man/man1/trainer.1.gz
holds lockstep-mpi "/usr/lib/.*lockstep-$version/liblockstep-mpi[.]so"
depends "$pictures" | grep -q "$library (= .*libc6 (>= " || fail "$pictures depends on: $(depends "$pictures")"
depends lockstep-mpi | grep -q "lockstep (= .*$library (= .*mpi" ||
    fail "lockstep-mpi depends on: $(depends lockstep-mpi)"
! depends "$library" | grep -e spng -e jpeg || fail "$library needs them"
for package in $libraries liblockstep-dev lockstep; do
    ! depends "$package" | grep mpi || fail "$package needs MPI"
    ! grep 'mpi[.]so' "$package.files" || fail "$package has the plugin"
done
# A library's package names itself to dpkg-shlibdeps, takes the place of the package of the former
# name, and runs no script.
for package in $libraries; do
    dpkg-deb -e "$package"_*.deb "$package.control"
    grep -q "^liblockstep[_a-z]*[.]so[.]$version $package " "$package.control/symbols" ||
        fail "$package: symbols: $(cat "$package.control/symbols")"
    [ "$(grep -c '^ l[a-z_]*@LOCKSTEP' "$package.control/symbols")" -ge 2 ] || fail "$package lists no symbols"
    former=${package%"$version"}0
    former=$(echo "$former" | sed 's/-pool0$/0/')
    [ "$(dpkg-deb -f "$package"_*.deb Conflicts) $(dpkg-deb -f "$package"_*.deb Replaces)" = "$former $former" ] ||
        fail "$package does not take the place of $former"
    for script in postinst postrm; do
        [ ! -e "$package.control/$script" ] || fail "$package has a script $script"
    done
done
twice=$(cat ./*.files | grep -v '/$' | sort | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
for package in $libraries; do
    depends liblockstep-dev | grep -qF "$package (= " || fail "liblockstep-dev does not depend on $package"
done
depends lockstep | grep -q 'libc6 (>= ' || fail "lockstep depends on nothing"

# What is installed without packages, and what is installed by them. Paths are relative to the prefix.
configuration='s/-targets-[a-z]*[.]cmake/-targets-CONFIGURATION.cmake/'
(cd "$prefix" && find . ! -type d) | sed "s|^[.]/||; s|^$libdir/|lib/|; $configuration" |
    grep -v -e 'liblockstep-cuda[.]so$' -e '^share/doc/lockstep/\(LICENSE\|README-trainer[.]md\)$' \
        -e '^share/modulefiles/' | sort >plain
cat ./*.files | sed -n "s|^/usr/||; s|^lib/[^/]*-linux-gnu[^/]*/|lib/|; s|^\(share/man/.*\)[.]gz$|\1|; $configuration; /[^/]\$/p" |
    grep -v -e '^share/doc/[^/]*/\(copyright\|changelog[.].*gz\|changelog[.]gz\)$' \
        -e '^share/doc/liblockstep-dev/README[.]md$' -e '^share/lintian/overrides/' | sort >packed
diff -u plain packed || fail "the packages contain other files (+) than cmake --install installs (-)"

! command -v lintian >/dev/null ||
    lintian --allow-root --fail-on error,warning lockstep_*.dsc ./*.deb || fail "lintian finds something"

# of WORD: what the last such line of the Containerfile says
of() { sed -n "s/^$1 //p" "$containerfile" | tail -n 1 | tr -d '[]"'; }
case $(of USER) in '' | root | 0) fail "the container's program runs as root" ;; esac
for file in "/usr/bin/$(of ENTRYPOINT)" "$(of CMD)"; do
    grep -qx "$file" lockstep.files || fail "the container starts $file, which is in no package"
done
grep -q 'install .* dataset-fashion-mnist' "$containerfile" || fail "the container has no data"
grep -q 'install .*/lockstep-mpi_[*][.]deb .* openmpi-bin' "$containerfile" || fail "the container has no MPI"
exit $failed
