#include "hash/sha256.h"

#include <nettle/sha2.h>

_Static_assert(sizeof(struct sha256_ctx) <= sizeof(ls_sha256), "the context does not fit");
_Static_assert(_Alignof(struct sha256_ctx) <= _Alignof(ls_sha256), "the context is not aligned");

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

void ls_sha256_final_hex(ls_sha256 *hash, char hex[LS_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_SIZE];
    ls_sha256_final(hash, digest);
    for (int i = 0; i < SHA256_DIGEST_SIZE; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * SHA256_DIGEST_SIZE] = '\0';
}
