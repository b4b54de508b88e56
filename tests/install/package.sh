#!/bin/sh
# SPDX-License-Identifier: MIT
# package.sh SOURCE WORK: `./dev package` puts the .changes file, by which lintian and dput find the
# packages, beside the packages. dpkg-buildpackage is replaced by a script that makes empty files.
set -eu
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/src/package" "$work/include/lockstep" "$work/third_party" "$work/bin"
cp "$source/dev" "$work"
cp "$source/include/lockstep/version.h" "$work/include/lockstep"
version=$(sed -n 's/^#define LS_VERSION "\(.*\)"/\1/p' "$source/include/lockstep/version.h")
script() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"
    chmod +x "$work/$1"
}
script third_party/setup.sh 'exit 0'
# shellcheck disable=SC2016 # for the script
script src/package/debian.sh 'mkdir -p "$2"'
script bin/dpkg-buildpackage "cd .. && touch lockstep_$version-1_amd64.deb lockstep-dbgsym_$version-1_amd64.ddeb \\
    lockstep_$version-1_amd64.changes lockstep_$version-1_amd64.buildinfo"
script bin/lintian 'exit 0'
(cd "$work" && PATH=$work/bin:$PATH ./dev package)
found=$(cd "$work/build/package/debs" && echo *)
[ "$found" = "lockstep-dbgsym_$version-1_amd64.ddeb lockstep_$version-1_amd64.buildinfo lockstep_$version-1_amd64.changes lockstep_$version-1_amd64.deb" ] || {
    echo "expected packages, .changes and .buildinfo in debs: $found"
    exit 1
}
[ "$(cd "$work/build/package" && echo *)" = debs ] || {
    echo 'expected nothing beside debs'
    exit 1
}
