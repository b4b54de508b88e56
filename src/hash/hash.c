/* SPDX-License-Identifier: MIT */
#include "hash/hash.h"

#include <nettle/hmac.h>
#include <nettle/sha2.h>
#include <string.h>
#include <zlib.h>

_Static_assert(sizeof(struct sha256_ctx) <= sizeof(ls_sha256), "the context does not fit");
_Static_assert(_Alignof(struct sha256_ctx) <= _Alignof(ls_sha256), "the context is not aligned");

static const char digits[] = "0123456789abcdef";

static struct sha256_ctx *context(ls_sha256 *hash)
{
    return (struct sha256_ctx *)(void *)hash->state;
}

void ls_sha256_init(ls_sha256 *hash)
{
    sha256_init(context(hash));
}

void ls_sha256_update(ls_sha256 *hash, const void *bytes, size_t count)
{
    sha256_update(context(hash), count, bytes);
}

void ls_sha256_final(ls_sha256 *hash, uint8_t digest[32])
{
    sha256_digest(context(hash), SHA256_DIGEST_SIZE, digest);
}

void ls_sha256_hex(char hex[LS_SHA256_HEX], const uint8_t digest[LS_SHA256_BYTES])
{
    for (int i = 0; i < LS_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * LS_SHA256_BYTES] = '\0';
}

int ls_sha256_from_hex(uint8_t digest[LS_SHA256_BYTES], const char *hex)
{
    if (strlen(hex) != 2 * LS_SHA256_BYTES || strspn(hex, digits) != 2 * LS_SHA256_BYTES)
        return 0;
    for (int i = 0; i < LS_SHA256_BYTES; i++)
        digest[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) << 4 |
                              (strchr(digits, hex[2 * i + 1]) - digits));
    return 1;
}

void ls_sha256_final_hex(ls_sha256 *hash, char hex[LS_SHA256_HEX])
{
    uint8_t digest[LS_SHA256_BYTES];
    ls_sha256_final(hash, digest);
    ls_sha256_hex(hex, digest);
}

void ls_hmac_sha256(uint8_t out[32], const void *key, size_t key_bytes, const void *bytes,
                    size_t count)
{
    struct hmac_sha256_ctx hmac;
    hmac_sha256_set_key(&hmac, key_bytes, key);
    hmac_sha256_update(&hmac, count, bytes);
    hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, out);
}

/* ---- CRC-32 ---------------------------------------------------------------------------------- */

uint32_t ls_crc32(uint32_t seed, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    uLong crc = seed;
    while (count > 0) { /* zlib's function takes the length as an unsigned int */
        uInt part = count < 1u << 30 ? (uInt)count : 1u << 30;
        crc = crc32(crc, next, part);
        next += part;
        count -= part;
    }
    return (uint32_t)crc;
}

#define PRIME UINT64_C(4294967291) /* 2³² − 5 */

void ls_line_sums_add(ls_line_sums *s, uint32_t crc)
{
    const uint64_t c = crc % PRIME, number = ++s->lines % PRIME;
    s->sum = (uint32_t)((s->sum + c) % PRIME);
    s->moment = (uint32_t)((s->moment + number * c) % PRIME);
}

/* Returns the inverse of `a` modulo PRIME: a⁻¹ = aᵖ⁻² (Fermat). */
static uint64_t inverse(uint64_t a)
{
    uint64_t result = 1;
    for (uint64_t e = PRIME - 2; e > 0; e >>= 1, a = a * a % PRIME)
        if (e & 1)
            result = result * a % PRIME;
    return result;
}

uint64_t ls_line_sums_changed(const ls_line_sums *then, const ls_line_sums *now)
{
    const uint64_t d = (PRIME + now->sum - then->sum) % PRIME;
    const uint64_t kd = (PRIME + now->moment - then->moment) % PRIME;
    if (now->lines == then->lines && d == 0 && kd == 0)
        return 0;
    const uint64_t k = kd * inverse(d) % PRIME; /* 0 if d is 0 */
    return now->lines == then->lines && k >= 1 && k <= now->lines ? k : UINT64_MAX;
}
