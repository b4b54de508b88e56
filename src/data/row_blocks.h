/* SPDX-License-Identifier: MIT */
/* A list of rows that grows row by row. Rows are stored in blocks of about 1 MiB. When a
 * dataset is filled from the list, the blocks are freed one by one from the end. Therefore list and
 * dataset together never need much more memory than the larger of the two alone. */
#ifndef DATA_ROW_BLOCKS_H
#define DATA_ROW_BLOCKS_H

#include <lockstep/host.h>
#include <stddef.h>

typedef struct ls_row_blocks {
    const ls_host *host;
    size_t width; /* size of a row in bytes */
    size_t rows;
    size_t each; /* number of rows in a block; 0: no row has been added yet */
    char **block;
    size_t blocks, capacity; /* number of blocks; size of the array `block` */
} ls_row_blocks;

/* Appends a row with undefined content, and returns it. Returns NULL if there is no memory. The
 * caller initialises a list with {.host = …, .width = …}. */
void *ls_row_blocks_add(ls_row_blocks *b);
/* Returns the row with the number `row`, from 0. It must be below b->rows. */
void *ls_row_blocks_at(const ls_row_blocks *b, size_t row);
/* Removes row number `row` and all rows after it, and frees the blocks that are then empty. */
void ls_row_blocks_cut(ls_row_blocks *b, size_t row);
/* Removes all rows and frees the memory. */
void ls_row_blocks_free(ls_row_blocks *b);

#endif
