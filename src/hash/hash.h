/* SPDX-License-Identifier: MIT */
/* SHA-256, HMAC-SHA-256, CRC-32, and checksums that locate a changed line of a text. SHA-256 takes
 * bytes in pieces:
 *
 *     ls_sha256 hash;
 *     char hex[LS_SHA256_HEX];
 *     ls_sha256_init(&hash);
 *     ls_sha256_update(&hash, bytes, count);      // as often as needed
 *     ls_sha256_final_hex(&hash, hex);
 *
 * The context owns nothing that must be freed, may be copied, and belongs to one thread at a time.
 * No function allocates memory, and only ls_sha256_of_file fails. */
#ifndef HASH_HASH_H
#define HASH_HASH_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

/* Size of a digest in bytes. */
#define LS_SHA256_BYTES 32
/* Size of the digest in lower-case hexadecimal in bytes, terminating NUL included. */
#define LS_SHA256_HEX 65

/* Context of a hash that is being computed. */
typedef struct ls_sha256 {
    uint64_t state[16]; /* context of the hash library */
} ls_sha256;

/* Initialises the context. */
void ls_sha256_init(ls_sha256 *hash);
/* Hashes the next `count` bytes. */
void ls_sha256_update(ls_sha256 *hash, const void *bytes, size_t count);

/* Stores the digest of all bytes since ls_sha256_init, and initialises the context again. */
void ls_sha256_final(ls_sha256 *hash, uint8_t digest[32]);
/* Does the same as ls_sha256_final, but writes the digest as hexadecimal digits. */
void ls_sha256_final_hex(ls_sha256 *hash, char hex[LS_SHA256_HEX]);

/* Writes a digest as lower-case hexadecimal digits. */
void ls_sha256_hex(char hex[LS_SHA256_HEX], const uint8_t digest[LS_SHA256_BYTES]);
/* Reads a digest that ls_sha256_hex has written. Returns 0 if the text is no such digest. */
int ls_sha256_from_hex(uint8_t digest[LS_SHA256_BYTES], const char *hex);

/* Computes the SHA-256 of a regular file. `what`: the expected kind of file, for messages: "a file
 * of weights". Errors: LS_ENOENT, LS_EIO, LS_EDATA (it is no regular file). Any thread. */
int ls_sha256_of_file(char hex[LS_SHA256_HEX], const char *path, const char *what, ls_error *err);

/* Computes the HMAC-SHA-256 of `count` bytes (RFC 2104). A receiver who knows the key can verify by
 * it that the sender of the bytes knows the key as well. Any thread. */
void ls_hmac_sha256(uint8_t out[32], const void *key, size_t key_bytes, const void *bytes,
                    size_t count);

/* CRC-32 is the checksum of zlib, gzip and PNG. It is fast enough for all the weights of a model,
 * but detects only accidental changes. */

/* Continues the checksum of a text with its next `count` bytes, and returns the result. `seed`: the
 * checksum of the text before these bytes; 0 for the first bytes. Any thread. */
uint32_t ls_crc32(uint32_t seed, const void *bytes, size_t count);

/* Two checksums of a text of lines. They detect a change, and locate it if it is within one line.
 *
 * With cᵢ the checksum of line i, counted from 1, `sum` is Σ cᵢ and `moment` is Σ i·cᵢ, both modulo
 * the largest prime below 2³². If only line k changes, the sum changes by some d and the moment by
 * k·d, so k is the quotient of the two changes. (They are the syndromes of a Reed-Solomon code that
 * corrects one symbol.) */
typedef struct ls_line_sums {
    uint64_t lines;
    uint32_t sum, moment;
} ls_line_sums;

/* Appends a line whose checksum is `crc`. */
void ls_line_sums_add(ls_line_sums *s, uint32_t crc);

/* `then` and `now` are the checksums of two versions of a text. Returns the number of the line in
 * which the versions differ, from 1; 0 if they are equal. Returns UINT64_MAX if they differ in
 * several lines; with a probability of lines / 2³² it returns a wrong line instead. */
uint64_t ls_line_sums_changed(const ls_line_sums *then, const ls_line_sums *now);

#endif
