/* Rows of floats whose number is not known before: in blocks, which are given back one by one while a dataset is made of
 * them, so that both together need little more memory than one. */
#ifndef DATA_ROW_BLOCKS_H
#define DATA_ROW_BLOCKS_H

#include <lockstep/host.h>
#include <stddef.h>

typedef struct ls_row_blocks {
    const ls_host *host;
    size_t width; /* floats of a row */
    size_t rows;
    size_t each; /* rows of a block; 0 before the first */
    float **block;
    size_t blocks, room;
} ls_row_blocks;

/* A row behind the last, unset; NULL: no memory. Begins with {.host, .width}. */
float *ls_row_blocks_add(ls_row_blocks *b);
float *ls_row_blocks_at(const ls_row_blocks *b, size_t row);
/* Row `row` and all behind it are not needed any more. */
void ls_row_blocks_cut(ls_row_blocks *b, size_t row);
void ls_row_blocks_free(ls_row_blocks *b);

#endif
