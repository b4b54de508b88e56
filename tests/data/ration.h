/* SPDX-License-Identifier: MIT */
/* Allocator for an ls_host that grants a given number of allocations and refuses all later ones. It
 * counts the blocks that are not freed.
 *
 *     ration r = {3, 0};
 *     const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &r}; */
#ifndef TESTS_DATA_RATION_H
#define TESTS_DATA_RATION_H

#include <lockstep/host.h>
#include <stddef.h>
#include <stdlib.h>

/* State of the allocator: number of allocations that are still granted, number of blocks that are
 * not freed. Several threads may use it at once. */
typedef struct ration {
    _Atomic int grants, blocks;
} ration;

static inline void *ration_alloc(void *user, size_t bytes, size_t align)
{
    ration *r = user;
    if (r->grants-- <= 0)
        return NULL;
    r->blocks++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static inline void ration_free(void *user, void *memory)
{
    ((ration *)user)->blocks--;
    free(memory);
}

#endif
