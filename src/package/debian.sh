#!/bin/sh
# SPDX-License-Identifier: MIT
# debian.sh [--copy] TREE: puts the folder debian/ of the Debian source package into TREE, an unpacked release archive.
# With --copy TREE is made first, from the sources beside this script without what builds have left among them.
# Names and contents of src/package/debian have @SOVERSION@ in place of the version of the SONAME, which comes from
# include/lockstep/version.h.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
[ "${1-}" != --copy ] || {
    shift
    [ ! -e "$1" ] || {
        echo "debian.sh: $1 exists" >&2
        exit 73
    }
    mkdir -p -- "$1"
    excluded=$(mktemp)
    trap 'rm -f -- "$excluded"' EXIT
    trap 'exit 1' HUP INT TERM
    # What a container does not get is what is no source.
    sed -n 's|^\*\*/||p; s|^[^#*]|./&|p' "$root/.containerignore" >"$excluded"
    (cd -- "$root" && tar -c --exclude-from="$excluded" .) | tar -x -C "$1"
}
tree=$1
version=$(sed -n 's/^#define LS_VERSION "\(.*\)"/\1/p' "$root/include/lockstep/version.h")
soversion=${version%.*}
case $(head -n 1 "$root/src/package/debian/changelog") in
"lockstep ($version-"*) ;;
*)
    echo "debian.sh: the version is $version; src/package/debian/changelog begins with:" \
        "$(head -n 1 "$root/src/package/debian/changelog")" >&2
    exit 65
    ;;
esac
rm -rf -- "$tree/debian"
(cd -- "$root/src/package/debian" && find . -type f) | while read -r file; do
    to=$tree/debian/$(echo "$file" | sed "s/@SOVERSION@/$soversion/")
    mkdir -p -- "$(dirname -- "$to")"
    sed "s/@SOVERSION@/$soversion/g" "$root/src/package/debian/$file" >"$to"
    [ ! -x "$root/src/package/debian/$file" ] || chmod +x "$to"
done
