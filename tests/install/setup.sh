#!/bin/sh
# SPDX-License-Identifier: MIT
# setup.sh PROJECT SCRATCH: third_party/setup.sh on simulated systems:
#   apt lacks one package, and cannot be updated: the others are installed, and that one is named
#   sudo refuses the user: the message says what an administrator has to run, and the build goes on
#   everything is installed: apt is not called
#   there is no cmake: an error only where something is to be built
# The packages that the build reports as missing must be in the list of required packages.
project=$1
scratch=$2
set -u
rm -rf "$scratch"
mkdir -p "$scratch/bin"

# program NAME: from the standard input
program() {
    { echo '#!/bin/sh' && cat; } >"$scratch/bin/$1"
    chmod +x "$scratch/bin/$1"
}
program dpkg-query </dev/null # nothing is installed
echo 'echo 0' | program id
program apt-get <<END
echo "\$*" >>"$scratch/asked"
case " \$* " in
*" update "*) echo "E: no network" >&2; exit 100 ;;
*" libspng-dev "*) echo "E: Unable to locate package libspng-dev" >&2; exit 100 ;;
*" -s "*) ;;
*" install "*) echo "\$*" >>"$scratch/installed" ;;
esac
END

# setup [SECTION [PATH]]: leaves what it said, and its status
setup() {
    CI=true PATH="$scratch/bin:${2-$PATH}" sh "$project/third_party/setup.sh" "${1-build}" 2>"$scratch/said"
    status=$?
}
fail() {
    echo "$1 (status $status)"
    cat "$scratch/said"
    exit 1
}

setup
[ $status -eq 0 ] || fail "setup.sh failed"
grep -q '^setup: apt cannot install libspng-dev (libspng.*): left out$' "$scratch/said" ||
    fail "it does not name the package that cannot be had"
for package in libcjson-dev nettle-dev zlib1g-dev; do
    grep -q " $package" "$scratch/installed" || fail "$package was not installed"
done

echo 'echo 1000' | program id
echo 'echo "sudo: a password is required" >&2; exit 1' | program sudo
setup
[ $status -eq 0 ] || fail "without root it failed"
grep -q '^  apt-get install --no-install-recommends gcc .*libcjson-dev.* nettle-dev' "$scratch/said" ||
    fail "it does not say what an administrator has to run"

echo 'echo ii' | program dpkg-query
rm "$scratch/asked"
setup
[ $status -eq 0 ] || fail "it failed where everything is there"
[ ! -e "$scratch/asked" ] || fail "it asked apt for what is there"

program dpkg-query </dev/null
mkdir "$scratch/few"
for tool in sh awk sed grep cat dirname env; do
    ln -s "$(command -v $tool)" "$scratch/few/"
done
setup package "$scratch/few"
[ $status -eq 0 ] || fail "it wants cmake for packages that need none"
setup build "$scratch/few"
{ [ $status -eq 69 ] && grep -q 'cmake is missing\|cc is missing' "$scratch/said"; } || fail "it does without cmake"

awk '/^# / { section = $2 } section == "build" { print $1 }' "$project/third_party/apt.txt" >"$scratch/listed"
echo libcmocka-dev >>"$scratch/listed" # is named for those who build the tests
sed -n -e 's/^ *require([^ ]* [^ ]* [^ ]* \(.*\))/\1/p' \
    -e "s/.*package \([a-z0-9-]*-dev\)[,.\"].*/\1/p" "$project/third_party/CMakeLists.txt" >"$scratch/named"
grep -vxFf "$scratch/listed" "$scratch/named" >"$scratch/said" && fail "apt.txt's build section lacks a package"
rm -rf "$scratch"
