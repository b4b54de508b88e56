#!/bin/sh
# SPDX-License-Identifier: MIT
# beyond_avx2.sh COMMAND...: runs the command if the CPU has more than AVX2. On other CPUs the
# test without a restriction has already run the same kernels.
grep -qw avx512f /proc/cpuinfo || {
    echo "skipped: this CPU has no AVX-512 to be left out; the test without _avx2 has run the same"
    exit 77
}
exec "$@"
