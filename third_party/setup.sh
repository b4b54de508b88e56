#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that Lockstep needs and that are missing; see --help.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
list=$here/apt.txt

help()
{
    cat <<TEXT
usage: third_party/setup.sh [-y] [-n] [SECTION...]

Installs the packages of third_party/apt.txt that are missing. SECTION is one of
  $(sed -n 's/^# \([a-z]*\)$/\1/p' "$list" | tr '\n' ' ')
and without any: build data test.

  -y, --yes      do not ask (nor when CI=true, nor without a terminal)
  -n, --dry-run  only say what is missing; exit 1 if anything is

On a system without apt it lists what to install and, if the tools to build are there or not asked for, goes on.
Exit codes: 0 done, 1 declined, 64 usage, 69 the tools to build are missing, else apt-get's.
TEXT
}

say() { printf 'setup: %s\n' "$*" >&2; }

# Packages of the sections, one a line.
packages_of()
{
    awk -v wanted=" $* " '
        /^# [a-z]+$/ { in_section = index(wanted, " " $2 " ") > 0; next }
        /^#/ || NF == 0 { next }
        in_section && !($1 in seen) { seen[$1] = 1; print $1 }' "$list"
}

# The package's line of apt.txt, without its name.
purpose() { awk -v p="$1" '$1 == p { sub(/^[^ ]+ +/, ""); print; exit }' "$list"; }

installed()
{
    case $(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null) in
    ?i*) return 0 ;;
    *) return 1 ;;
    esac
}

# Without these nothing can be built, if that is wanted; any compiler and any ninja will do.
need_tools()
{
    case " ${sections:-build} " in *' build '*) ;; *) return 0 ;; esac
    for tool in cc cmake ninja; do
        command -v "$tool" >/dev/null || {
            say "$tool is missing, so nothing can be built"
            exit 69
        }
    done
}

yes=${CI:-}
dry=
sections=
for arg; do
    case $arg in
    -h | --help)
        help
        exit 0
        ;;
    -y | --yes) yes=true ;;
    -n | --dry-run) dry=true ;;
    *)
        grep -qx "# $arg" "$list" || {
            say "no section '$arg' in third_party/apt.txt; see --help"
            exit 64
        }
        sections="$sections $arg"
        ;;
    esac
done
# shellcheck disable=SC2086 # words on purpose
wanted=$(packages_of ${sections:-build data test})

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this system has no apt. What Lockstep needs, by Debian's names:"
    for package in $wanted; do
        printf '  %-22s %s\n' "$package" "$(purpose "$package")" >&2
    done
    need_tools
    exit 0
fi

missing=
for package in $wanted; do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

say "missing packages:"
for package in $missing; do
    printf '  %-22s %s\n' "$package" "$(purpose "$package")" >&2
done
[ -z "$dry" ] || exit 1

# Whether sudo lets this user: at a terminal it may ask for a password.
may_sudo() { command -v sudo >/dev/null && { { [ "$yes" != true ] && [ -t 0 ]; } || sudo -n true 2>/dev/null; }; }

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! may_sudo; then
        say "not root, and sudo is not to be had; ask an administrator to run"
        printf '  apt-get install --no-install-recommends%s\n' "$missing" >&2
        need_tools
        exit 0
    fi
    as_root=sudo
fi

if [ "$yes" != true ] && [ -t 0 ]; then
    printf 'setup: install them with %sapt-get? [Y/n] ' "${as_root:+$as_root }" >&2
    read -r answer || answer=n
    case $answer in
    '' | [Yy]*) ;;
    *)
        say "nothing was installed"
        exit 1
        ;;
    esac
fi

apt()
{
    # shellcheck disable=SC2086 # no sudo: no word
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >&2
}

say "apt-get update"
apt update || say "apt-get update failed: going on with the packages that apt knows of"

# Another distribution of the family may lack some, such as the data sets, or forbid them; and where apt
# cannot install one it installs none.
can_have() { apt-get -q --no-install-recommends -s install "$@" >/dev/null 2>&1; }

known=$missing
# shellcheck disable=SC2086 # words on purpose
if ! can_have $missing; then
    known=
    for package in $missing; do
        if can_have "$package"; then
            known="$known $package"
        else
            say "apt cannot install $package ($(purpose "$package")): left out"
        fi
    done
fi
if [ -n "$known" ]; then
    say "apt-get install$known"
    # shellcheck disable=SC2086 # words on purpose
    apt install -y --no-install-recommends $known
fi
need_tools
