#!/bin/sh
# SPDX-License-Identifier: MIT
# circles.sh ROOT: at most three files of a directory of src/ ("room") may call each other in a
# cycle (circles.awk). A file that is in no cycle can be read, tested and replaced after the files
# on which it depends.
# circles.sh --selftest: plants cycles into a directory of its own, which must be found.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
most=3
# Rooms that have a larger circle, and how large it may be: room:files.
known=''

# check ROOT
check()
{
    found=0
    for folder in "$1"/src/*/; do
        folder=${folder%/}
        room=${folder##*/}
        allowed=$most
        for exception in $known; do
            [ "${exception%:*}" != "$room" ] || allowed=${exception#*:}
        done
        # Names of sources hold no blanks: they are split on purpose.
        files=$(cd -- "$1" && find "src/$room" -name '*.c' | sort)
        # shellcheck disable=SC2086
        [ -z "$files" ] || (cd -- "$1" && awk -v room="$room" -v most="$allowed" -f "$here/circles.awk" $files) ||
            found=1
    done
    return $found
}

# plant FILE NAME CALLED: FILE defines the function NAME, which calls CALLED.
plant() { printf 'int %s(void);\n\nint %s(void)\n{\n    return %s();\n}\n' "$3" "$2" "$3" >"$copy/src/$1"; }

selftest()
{
    copy=$(mktemp -d)
    trap 'rm -rf -- "$copy"' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "$copy/src/hash/deep" "$copy/src/base"
    plant hash/a.c one two
    plant hash/b.c two three
    plant hash/c.c three one
    check "$copy" || {
        echo "a circle of three files is refused"
        return 1
    }
    plant hash/c.c three four
    plant hash/deep/d.c four one
    if said=$(check "$copy"); then
        echo "a circle of four files is passed"
        return 1
    fi
    case $said in
    *'src/hash: 4 files'*'src/hash/deep/d.c calls src/hash/a.c: one'*) ;;
    *)
        echo "the message lacks the room or a call: $said"
        return 1
        ;;
    esac
    # What only looks like a call: of a static function of that name, in a comment, in a string; and another room's.
    printf 'static int one(void)\n{\n    return 1; /* two(), "three" */\n}\n\nint four(void)\n{\n    return one();\n}\n' \
        >"$copy/src/hash/deep/d.c"
    check "$copy" || {
        echo "a static function, a comment or a string is taken for a call"
        return 1
    }
    rm "$copy/src/hash/deep/d.c"
    plant base/d.c four one
    check "$copy" || {
        echo "a circle through another room is taken for one of this room"
        return 1
    }
}

if [ "$1" = --selftest ]; then
    selftest
else
    check "$1"
fi
