/* SPDX-License-Identifier: MIT */
/* Arrays with a known sum, for programs that measure a merge: float i of rank r, of n ranks, is
 * (r + 1)·(1 + i mod 1021). The sum, n(n + 1)/2·(1 + i mod 1021), is exact in fp32. A *rank* is a
 * worker. */
#ifndef BENCH_KNOWN_SUM_H
#define BENCH_KNOWN_SUM_H

#include "base/error.h"

#include <lockstep/status.h>
#include <stddef.h>

/* Period of the values in floats. A prime: if a merge exchanges two chunks by mistake, and their
 * length is a power of two, their values differ. */
enum { KNOWN_PERIOD = 1021 };

/* Fills the array of a rank. */
static inline void known_fill(float *to, size_t floats, int rank)
{
    for (size_t i = 0, phase = 1; i < floats; i++, phase = phase == KNOWN_PERIOD ? 1 : phase + 1)
        to[i] = (float)(rank + 1) * (float)phase;
}

/* Checks every float of the sum that `rank` of `ranks` has. `way`: name of the merge, for the
 * message. Errors: LS_EINTERNAL. */
static inline int known_check(const float *sum, size_t floats, int rank, int ranks, const char *way,
                              ls_error *err)
{
    const float factor = (float)(ranks * (ranks + 1) / 2);
    for (size_t i = 0, phase = 1; i < floats; i++, phase = phase == KNOWN_PERIOD ? 1 : phase + 1)
        if (sum[i] != factor * (float)phase)
            return ls_fail(err, LS_EINTERNAL,
                           "%s, %d workers, %zu floats: float %zu of worker %d is %g, not %g", way,
                           ranks, floats, i, rank, (double)sum[i], (double)(factor * (float)phase));
    return LS_OK;
}

#endif
