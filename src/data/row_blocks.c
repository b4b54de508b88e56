/* SPDX-License-Identifier: MIT */
#include "data/row_blocks.h"

#include "base/host.h"

enum { BLOCK_BYTES = 1 << 20 };

void *ls_row_blocks_add(ls_row_blocks *b)
{
    const size_t bytes = b->width;
    if (b->each == 0)
        b->each = bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
    if (b->rows == b->blocks * b->each) {
        char **block = ls_grown(b->host, b->block, b->blocks, &b->capacity, sizeof *block);
        if (!block)
            return NULL;
        b->block = block;
        block[b->blocks] = ls_alloc_unset(b->host, b->each * bytes);
        if (!block[b->blocks])
            return NULL;
        b->blocks++;
    }
    return ls_row_blocks_at(b, b->rows++);
}

void *ls_row_blocks_at(const ls_row_blocks *b, size_t row)
{
    return b->block[row / b->each] + row % b->each * b->width;
}

void ls_row_blocks_cut(ls_row_blocks *b, size_t row)
{
    if (b->each == 0)
        return;
    b->rows = row < b->rows ? row : b->rows;
    while (b->blocks > (b->rows + b->each - 1) / b->each)
        ls_free(b->host, b->block[--b->blocks]);
}

void ls_row_blocks_free(ls_row_blocks *b)
{
    ls_row_blocks_cut(b, 0);
    ls_free(b->host, b->block);
    *b = (ls_row_blocks){.host = b->host, .width = b->width};
}
