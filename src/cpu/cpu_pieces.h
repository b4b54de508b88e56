/* A tensor in pieces that fit the L1 cache: how the passes of our own over memory (batch norm, the
 * gradient of a bias) walk through the planes of cpu_layout.h.
 *
 * Planes are cut, or those of neighbouring rows put together, into pieces of at most 32 KiB. A
 * part's pieces come in order of rows, whatever the team; parts are independent of each other, so
 * that results do not depend on who works through which. Where channels lie last, a pixel's parts
 * lie side by side: then several are worked through together. */
#ifndef CPU_CPU_PIECES_H
#define CPU_CPU_PIECES_H

#include "cpu/cpu_kernels.h"
#include "cpu/cpu_layout.h"

typedef struct ls_pieces {
    ls_planes planes;
    size_t most;  /* vectors of a line of a piece */
    int rows;     /* rows of a piece */
    int together; /* parts that are worked through side by side */
    int threads;
} ls_pieces;

/* A piece of one part; tensors of this arrangement start `at` floats into their memory. */
typedef struct ls_piece {
    int part;
    size_t at;
    ls_run run, tail; /* tail.count: 1 when there is one */
    size_t tail_at;
    double values; /* of a channel, in this piece */
    double before; /* and in those before it */
    int padded;    /* lanes beyond the last row */
} ls_piece;

typedef void (*ls_piece_fn)(void *self, const ls_piece *piece);
typedef void (*ls_parts_fn)(void *self, int part, int end, unsigned flags);

ls_pieces ls_pieces_of(const ls_planes *planes, int threads);

/* Calls `visit` for every piece of the parts from `part` to before `end`, rows in order. */
void ls_pieces_walk(const ls_pieces *p, int part, int end, void *self, ls_piece_fn visit);

/* Calls `run` for all parts, `together` at a time, on `threads` threads. */
void ls_pieces_share(const ls_pieces *p, void *self, unsigned flags, ls_parts_fn run);

/* The channel in a lane of a part, −1 where there is none of the tensor's `channels`. */
int ls_pieces_channel(const ls_pieces *p, int channels, int part, int lane);

#endif
