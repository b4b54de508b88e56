#!/bin/sh
# beyond_avx2.sh COMMAND...: runs it where the CPU has more than AVX2; elsewhere the same test on the CPU as it is
# has run just those kernels.
grep -qw avx512f /proc/cpuinfo || {
    echo "skipped: this CPU has no AVX-512 to be left out; the test without _avx2 has run the same"
    exit 77
}
exec "$@"
