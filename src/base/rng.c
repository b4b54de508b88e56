/* SPDX-License-Identifier: MIT */
#include "base/rng.h"

#include "base/portable_math.h"

#include <math.h>

/* Computes one round of Philox: multiplies two pairs of 32-bit words, splits the two 64-bit
 * products into halves, swaps the halves, and combines them with the key. */
static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t next0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k[0];
    uint32_t next2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k[1];
    c[1] = (uint32_t)p1;
    c[3] = (uint32_t)p0;
    c[0] = next0;
    c[2] = next2;
}

void ls_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u; /* fraction of the golden ratio in 32 bits */
        k[1] += 0xBB67AE85u; /* √3 − 1 in 32 bits */
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

void ls_rng_words(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {stream, epoch, (uint32_t)index, (uint32_t)(index >> 32)};
    ls_philox4x32(out, counter, key);
}

float ls_rng_uniform(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index)
{
    uint32_t w[4];
    ls_rng_words(w, seed, stream, epoch, index);
    return (float)(w[0] >> 8) * 0x1p-24f;
}

float ls_rng_normal(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t index)
{
    const double two_pi = 6.283185307179586476925;
    uint32_t w[4];
    ls_rng_words(w, seed, stream, epoch, index);
    double u = ((double)w[0] + 1.0) * 0x1p-32; /* (0, 1]: the logarithm stays finite */
    double v = (double)w[1] * 0x1p-32;
    return (float)(sqrt(-2.0 * ls_ln(u)) * ls_cos(two_pi * v));
}

/* Draws an integer from 0 to n − 1: the part of n times a 64-bit draw above bit 63. The
 * probabilities of the integers differ by at most 1 / 2⁶⁴. */
static uint32_t below(uint32_t n, uint64_t seed, uint32_t epoch, uint32_t index)
{
    uint32_t w[4];
    ls_rng_words(w, seed, LS_STREAM_SHUFFLE, epoch, index);
    uint64_t draw = (uint64_t)w[0] << 32 | w[1];
    return (uint32_t)(__extension__((unsigned __int128)draw * n) >> 64);
}

void ls_rng_permutation(uint32_t *out, uint32_t n, uint64_t seed, uint32_t epoch)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = below(i, seed, epoch, i - 1);
        uint32_t t = out[i - 1];
        out[i - 1] = out[j];
        out[j] = t;
    }
}
