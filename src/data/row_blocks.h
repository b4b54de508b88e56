/* A list of rows of floats whose length is not known in advance. Rows are stored in blocks, which
 * are freed one by one while a dataset is filled from them, so that both together need little more
 * memory than one. */
#ifndef DATA_ROW_BLOCKS_H
#define DATA_ROW_BLOCKS_H

#include <lockstep/host.h>
#include <stddef.h>

typedef struct ls_row_blocks {
    const ls_host *host;
    size_t width; /* number of floats in a row */
    size_t rows;
    size_t each; /* number of rows in a block; 0 before the first */
    float **block;
    size_t blocks, room;
} ls_row_blocks;

/* Appends a row, whose content is undefined, and returns it. Returns NULL if there is no memory. A
 * list is initialised with {.host, .width}. */
float *ls_row_blocks_add(ls_row_blocks *b);
/* Returns row `row`, which is below `rows`. */
float *ls_row_blocks_at(const ls_row_blocks *b, size_t row);
/* Removes the rows from `row` on, and frees the blocks that are no longer needed. */
void ls_row_blocks_cut(ls_row_blocks *b, size_t row);
/* Removes all rows and frees the memory. */
void ls_row_blocks_free(ls_row_blocks *b);

#endif
