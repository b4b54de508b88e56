/* SPDX-License-Identifier: MIT */
/* Counter-based random numbers: Philox4x32-10.
 *
 * A draw is a pure function of (seed, stream, epoch, index): there is no state to save, and the
 * order of the draws does not matter. Any thread.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* Streams: one number for each purpose of draws, so that two purposes never share random numbers.
 * The results of training depend on these numbers, so new streams are appended and none is
 * renumbered. */
enum {
    LS_STREAM_SHUFFLE = 1,      /* order of the training rows in an epoch */
    LS_STREAM_SYNTHETIC = 2,    /* synthetic datasets */
    LS_STREAM_AUGMENT = 3,      /* augmentation: crop, flip, mixup */
    LS_STREAM_HOLD_OUT = 4,     /* choice of validation rows */
    LS_STREAM_AUGMENT_MORE = 5, /* augmentation: rotation, brightness, erasing */
    LS_STREAM_AUGMENT_PART = 6, /* augmentation: the part that is enlarged */
    LS_STREAM_DROPOUT = 0x1000, /* first of the dropout layers' streams */
    LS_STREAM_INIT = 0x100000   /* initial parameters: this number plus the parameter's position */
};

/* Computes the ten-round Philox4x32 block function. `out` and `counter` may be the same array. */
void ls_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Draws four independent 32-bit words with Philox. The key is the seed, and the counter is (stream,
 * epoch, lower half of index, upper half of index). */
void ls_rng_words(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* Draws a number that is uniform in [0, 1) and a multiple of 2⁻²⁴. */
float ls_rng_uniform(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* Draws a standard normal number by the Box-Muller transform of two words, computed in double. */
float ls_rng_normal(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* Writes a permutation of the numbers 0 … n − 1 to `out`, which has n elements. The permutation is
 * drawn by the Fisher-Yates shuffle with the random numbers of (seed, LS_STREAM_SHUFFLE, epoch). */
void ls_rng_permutation(uint32_t *out, uint32_t n, uint64_t seed, uint32_t epoch);

#endif
