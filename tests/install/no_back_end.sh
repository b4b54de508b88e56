#!/bin/sh
# no_back_end.sh CMAKE PROJECT SCRATCH: where no back end can be built the configuration ends, and says what
# is missing; where somebody wants none it goes on.
cmake=$1
project=$2
scratch=$3
set -u
rm -rf "$scratch"

# configure LOG OPTION...: with neither oneDNN nor CUDA.
configure() {
    log=$1
    shift
    "$cmake" -S "$project" -B "$scratch" -D BUILD_TESTING=OFF -D LOCKSTEP_CUDA=OFF \
        -D CMAKE_DISABLE_FIND_PACKAGE_DNNL=ON "$@" >"$log" 2>&1
}

mkdir -p "$scratch"
if configure "$scratch/log"; then
    echo "without any back end the configuration went on"
    exit 1
fi
# CMake breaks the line.
tr -s '\n ' '  ' <"$scratch/log" | grep -q \
    "No back end can be built. That for CPUs needs oneDNN, 2.6 to 3.x, Debian's package libdnnl-dev" || {
    echo "the message does not say what is missing:"
    cat "$scratch/log"
    exit 1
}
configure "$scratch/log" -D LOCKSTEP_CPU=OFF || {
    echo "LOCKSTEP_CPU=OFF was refused:"
    cat "$scratch/log"
    exit 1
}
rm -rf "$scratch"
