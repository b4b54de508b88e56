/* Counter-based random numbers: Philox4x32-10.
 *
 * A draw is a pure function of (seed, stream, epoch, index): there is no state to save, any thread
 * can make any draw, and the order of draws does not matter.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* What a draw is for; two purposes never share a stream. Appended to, never renumbered: results
 * depend on the numbers. Streams of parameters are LS_STREAM_INIT + the parameter's position. */
enum {
    LS_STREAM_SHUFFLE = 1,
    LS_STREAM_SYNTHETIC = 2,
    LS_STREAM_AUGMENT = 3,
    LS_STREAM_HOLD_OUT = 4,
    LS_STREAM_AUGMENT_MORE = 5,
    LS_STREAM_DROPOUT = 0x1000,
    LS_STREAM_INIT = 0x100000
};

/* The ten-round Philox4x32 block function; `out` and `counter` may be the same array. */
void ls_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Four independent 32-bit words: key = seed, counter = (stream, epoch, index low, index high). */
void ls_rng_words(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* Uniform in [0, 1), a multiple of 2⁻²⁴. */
float ls_rng_uniform(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* Standard normal, by Box and Muller's transform of two words, computed in double. */
float ls_rng_normal(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index);

/* A permutation of 0 … n − 1 by Fisher and Yates' shuffle, drawn from (seed, epoch). */
void ls_rng_permutation(uint32_t *out, uint32_t n, uint64_t seed, uint32_t epoch);

#endif
