/* SPDX-License-Identifier: MIT */
/* bench_mac: measures the tag of a message between hosts (hash/mac.h): UMAC-128 of 128 KiB that are
 * in the cache, of 64 MiB that are not, and of short messages; the expansion of a key; and
 * HMAC-SHA-256 for comparison. Each row is the best of several rounds, in CPU time of the
 * thread. */
#include "hash/mac.h"
#include "hash/hash.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 17, PIECES = 512, ROUNDS = 7 };

/* Computes `count` tags of `bytes` bytes each. The messages are `stride` bytes apart. Returns the
 * seconds that a tag takes. */
static double tags(const char *data, size_t bytes, size_t stride, int count)
{
    ls_mac mac;
    uint8_t tag[LS_MAC_TAG];
    double best = 1e9;
    ls_mac_init(&mac, (const uint8_t *)data);
    for (int r = 0; r < ROUNDS; r++) {
        const double begun = cpu_seconds();
        for (int i = 0; i < count; i++) {
            ls_mac_begin(&mac, (uint64_t)i);
            ls_mac_update(&mac, data + (size_t)i * stride, bytes);
            ls_mac_end(&mac, tag);
        }
        const double took = (cpu_seconds() - begun) / count;
        best = took < best ? took : best;
    }
    return best;
}

static double gigabits(size_t bytes, double seconds)
{
    return (double)bytes * 8e-9 / seconds;
}

int main(void)
{
    const size_t all = (size_t)PIECE * PIECES;
    char *data = malloc(all);
    uint8_t digest[32];
    ls_mac mac;
    if (!data)
        return 71;
    memset(data, 7, all);
    printf("UMAC-128, in the cache:     %5.1f Gb/s\n", gigabits(PIECE, tags(data, PIECE, 0, 500)));
    printf("UMAC-128, not in the cache: %5.1f Gb/s\n",
           gigabits(PIECE, tags(data, PIECE, PIECE, PIECES)));
    printf("UMAC-128 of 8 bytes:        %5.0f ns\n", tags(data, 8, 0, 100000) * 1e9);
    printf("UMAC-128 of 512 bytes:      %5.0f ns\n", tags(data, 512, 0, 100000) * 1e9);
    double begun = cpu_seconds();
    for (int i = 0; i < 10000; i++)
        ls_mac_init(&mac, (const uint8_t *)data + i);
    printf("a key's expansion:          %5.0f ns\n", (cpu_seconds() - begun) * 1e5);
    begun = cpu_seconds();
    for (int i = 0; i < 100; i++)
        ls_hmac_sha256(digest, data, 32, data, PIECE);
    printf("HMAC-SHA-256, in the cache: %5.1f Gb/s\n",
           gigabits(PIECE, (cpu_seconds() - begun) / 100));
    free(data);
    return 0;
}
