/* SPDX-License-Identifier: MIT */
#include "hash/mac.h"

#include <nettle/umac.h>

_Static_assert(sizeof(struct umac128_ctx) <= sizeof(ls_mac), "the context does not fit");
_Static_assert(_Alignof(struct umac128_ctx) <= _Alignof(ls_mac), "the context is not aligned");
_Static_assert(LS_MAC_KEY == UMAC_KEY_SIZE && LS_MAC_TAG == UMAC128_DIGEST_SIZE, "the sizes");

static struct umac128_ctx *context(ls_mac *mac)
{
    return (struct umac128_ctx *)(void *)mac->state;
}

void ls_mac_init(ls_mac *mac, const uint8_t key[LS_MAC_KEY])
{
    umac128_set_key(context(mac), key);
}

void ls_mac_begin(ls_mac *mac, uint64_t number)
{
    uint8_t nonce[8]; /* the number in big-endian order */
    for (int i = 0; i < 8; i++)
        nonce[i] = (uint8_t)(number >> (56 - 8 * i));
    umac128_set_nonce(context(mac), sizeof nonce, nonce);
}

/* UMAC works on blocks. While one block is hashed, the next one is fetched into the cache: the
 * processor does not do so early enough by itself, and hashing data that are not in the cache would
 * take three times as long. */
void ls_mac_update(ls_mac *mac, const void *bytes, size_t count)
{
    enum { BLOCK = UMAC_BLOCK_SIZE, CACHE_LINE = 64 };
    const uint8_t *next = bytes;
    while (count > 0) {
        const size_t part = count < BLOCK ? count : BLOCK;
        for (size_t i = BLOCK; i < 2 * BLOCK && i < count; i += CACHE_LINE)
            __builtin_prefetch(next + i);
        umac128_update(context(mac), part, next);
        next += part;
        count -= part;
    }
}

void ls_mac_end(ls_mac *mac, uint8_t tag[LS_MAC_TAG])
{
    umac128_digest(context(mac), LS_MAC_TAG, tag);
}

bool ls_equal_secrets(const void *a, const void *b, size_t count)
{
    const uint8_t *one = a, *other = b;
    unsigned differs = 0;
    for (size_t i = 0; i < count; i++)
        differs |= (unsigned)(one[i] ^ other[i]);
    return differs == 0;
}
