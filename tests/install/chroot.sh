#!/bin/sh
# SPDX-License-Identifier: MIT
# chroot.sh packages|container SUITE WORK [FORMER]: tries in a Debian of its own what a release ships. debootstrap makes
# it anew in WORK/STEP-SUITE, where it stays; nothing else on the machine changes. Needs root and a network, and about
# 20 minutes of CPU time, a few if WORK/ccache has the objects of an earlier call.
#
#     sudo sh tests/install/chroot.sh packages trixie /var/tmp/release
#     sudo sh tests/install/chroot.sh container bookworm /var/tmp/release
#
# packages: the source package of HEAD is made and builds, optimised as it is shipped; lintian finds nothing;
#     autopkgtest runs debian/tests with the packages. If there is a folder FORMER with *.deb of an earlier version,
#     these are installed first. The new packages have to take their place; libraries of another SONAME stay beside them.
# container: .ci/container-steps, which plays .ci/Containerfile and trains as its user.
# shellcheck disable=SC2016 # scripts for `inside`, which expand there
set -eu
step=$1 suite=$2
mkdir -p -- "$3/ccache"
work=$(cd -- "$3" && pwd) former=${4-}
source=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
root=$work/$step-$suite
[ "$(id -u)" -eq 0 ] || {
    echo "chroot.sh: only root can make a chroot" >&2
    exit 77
}

# inside SCRIPT: in the chroot. The mounts and all processes end with it.
inside()
{
    unshare --mount --pid --fork --kill-child sh -ec '
        mount -t proc proc "$1/proc"
        for folder in dev sys; do mount --rbind "/$folder" "$1/$folder"; done
        mount --bind "$2" "$1/ccache"
        exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TERM=dumb CI=true \
            DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/ccache http_proxy="${http_proxy-}" JOBS="${JOBS-}" sh -exc "$3"
        ' sh "$root" "$work/ccache" "$1"
}

rm -rf --one-file-system -- "$root"
debootstrap --variant=minbase --include=ca-certificates,ccache "$suite" "$root" http://deb.debian.org/debian \
    >"$root.debootstrap.log"
cp /etc/resolv.conf "$root/etc/"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no package starts a service
chmod +x "$root/usr/sbin/policy-rc.d"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # a chroot that a power cut damages is made anew
mkdir -p "$root/ccache" "$root/former"

case $step in
packages)
    git clone -q --depth 1 "file://$source" "$root/source"
    [ -z "$former" ] || cp -- "$former"/*.deb "$root/former/"
    inside '
        apt-get -q update
        apt-get -yq install --no-install-recommends git autopkgtest
        git config --global --add safe.directory /source
        cd /source
        ./dev source-package
        mkdir /build
        cd /build
        cp /source/build/source-package/* .
        dpkg-source --extract lockstep_*.dsc tree
        cd tree
        apt-get -yq build-dep --no-install-recommends ./
        dpkg-buildpackage -us -uc ${JOBS:+--jobs-force="$JOBS"} >../build.log 2>&1 || {
            tail -n 100 ../build.log
            exit 1
        }
        grep -m 1 -e "-O3 .*replica_step" ../build.log
        cd ..
        lintian --allow-root --fail-on error,warning lockstep_*_*.changes
        '
    inside '
        cd /build
        names=$(ls *.deb | sed "s/_.*//" | grep -v dbgsym)
        if ls /former/*.deb >/dev/null 2>&1; then
            apt-get -yq install --no-install-recommends /former/*.deb
            lockstep --version || trainer --version
        fi
        for name in $names; do echo "/build/${name}_"*.deb; done >list
        apt-get -yq install --no-install-recommends $(cat list)
        dpkg --audit
        [ -z "$(dpkg --audit)" ]
        for package in /former/*.deb; do
            [ -e "$package" ] || continue
            name=$(dpkg-deb -f "$package" Package) version=$(dpkg-deb -f "$package" Version)
            [ "$(dpkg-query -W -f "\${db:Status-Abbrev}\${Version}" "$name")" = "ii $version" ] || continue
            [ -z "$(dpkg --verify "$name")" ] # A library of another SONAME is still there, and whole.
            case $name in liblockstep*-dev) exit 1 ;; liblockstep*) ;; *) exit 1 ;; esac
        done
        lockstep --version
        apt-get -yq purge $names
        '
    inside 'cd /build && autopkgtest --no-built-binaries $(cat list) lockstep_*.dsc -- null'
    ;;
container)
    mkdir "$root/source"
    git -C "$source" archive HEAD | tar -x -C "$root/source"
    inside 'apt-get -q update && /source/.ci/container-steps'
    ;;
*)
    echo "chroot.sh: packages or container, not '$step'" >&2
    exit 64
    ;;
esac
echo "$step in Debian $suite: passed"
