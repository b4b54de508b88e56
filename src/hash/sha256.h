/* SHA-256 of bytes that arrive in pieces.
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
#ifndef HASH_SHA256_H
#define HASH_SHA256_H

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

#endif
