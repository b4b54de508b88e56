#!/bin/sh
# setup.sh PROJECT SCRATCH: third_party/setup.sh on a system whose apt lacks one package, which is played here:
# the others are installed, and that one is named.
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
case " \$* " in
*" libdnnl-dev "*) echo "E: Unable to locate package libdnnl-dev" >&2; exit 100 ;;
*" -s "*) ;;
*" install "*) echo "\$*" >>"$scratch/installed" ;;
esac
END

CI=true PATH="$scratch/bin:$PATH" sh "$project/third_party/setup.sh" build 2>"$scratch/said"
status=$?
fail() {
    echo "$1 (status $status)"
    cat "$scratch/said"
    exit 1
}
[ $status -eq 0 ] || fail "setup.sh failed"
grep -q '^setup: apt cannot install libdnnl-dev (oneDNN.*): left out$' "$scratch/said" ||
    fail "it does not name the package that cannot be had"
for package in libcjson-dev nettle-dev zlib1g-dev; do
    grep -q " $package" "$scratch/installed" || fail "$package was not installed"
done
rm -rf "$scratch"
