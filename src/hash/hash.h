/* SHA-256, proofs by it, CRC-32, and sums that find a changed line. SHA-256 takes bytes in pieces:
 *
 *     ls_sha256 hash;
 *     char hex[LS_SHA256_HEX];
 *     ls_sha256_init(&hash);
 *     ls_sha256_update(&hash, bytes, count);      // as often as needed
 *     ls_sha256_final_hex(&hash, hex);
 *
 * The context is the caller's memory, holds nothing that must be freed, may be copied, and belongs
 * to one thread at a time. Nothing here fails or allocates.
 */
#ifndef HASH_HASH_H
#define HASH_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Room for the digest as lower-case hexadecimal, the terminating zero included. */
#define LS_SHA256_HEX 65

typedef struct ls_sha256 {
    uint64_t state[16]; /* the hash library's context */
} ls_sha256;

void ls_sha256_init(ls_sha256 *hash);
void ls_sha256_update(ls_sha256 *hash, const void *bytes, size_t count);

/* The digest of everything since init; the context starts afresh afterwards. */
void ls_sha256_final(ls_sha256 *hash, uint8_t digest[32]);
void ls_sha256_final_hex(ls_sha256 *hash, char hex[LS_SHA256_HEX]);

/* HMAC-SHA-256 of `count` bytes (RFC 2104): a proof that whoever made it knows the key. Any thread. */
void ls_hmac_sha256(uint8_t out[32], const void *key, size_t key_bytes, const void *bytes,
                    size_t count);

/* CRC-32, the one of zlib, gzip and PNG: quick enough for whole arenas, and good against accidents
 * only. Any thread; never fails; allocates nothing. */

/* The checksum of `count` bytes that follow those whose checksum is `seed`; 0 for the first. */
uint32_t ls_crc32(uint32_t seed, const void *bytes, size_t count);

/* What remains of a text of lines: enough to tell that it has changed, and in which line if it is one.
 *
 * With cᵢ the checksum of line i, counted from 1, `sum` is Σ cᵢ and `moment` Σ i·cᵢ, both modulo the
 * largest prime below 2³². If line k alone becomes another, the sum changes by some d and the moment
 * by k·d: their quotient is k. (The syndromes of a Reed-Solomon code that corrects one place.) */
typedef struct ls_line_sums {
    uint64_t lines;
    uint32_t sum, moment;
} ls_line_sums;

/* Adds a line whose checksum is `crc`. */
void ls_line_sums_add(ls_line_sums *s, uint32_t crc);

/* The number of the line in which `now` differs from `then`: 0 when it is none. If it is not a single
 * line, the result is UINT64_MAX, but for one case in 2³² / lines. */
uint64_t ls_line_sums_changed(const ls_line_sums *then, const ls_line_sums *now);

#endif
