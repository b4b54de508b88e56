#!/bin/sh
# SPDX-License-Identifier: MIT
# kernels.sh KERNELS TWINS [TOOL...]: checks that each kernel gives the results of its twin in
# plain C. With TOOL (a memory or race checker) the kernels run under it, and a report of TOOL is a
# failure too.
kernels=$1
twins=$2
shift 2
set -u
scratch=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-kernels.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
"$@" "$kernels" write "$scratch/kernels.bin" || exit
"$twins" write "$scratch/twins.bin" || exit 1
"$twins" compare "$scratch/kernels.bin" "$scratch/twins.bin"
