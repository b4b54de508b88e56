/* How tensors are arranged in the CPU back end. There are three arrangements:
 *
 *   NULL           plain: [rows][c][h][w], as everywhere
 *   LS_CPU_DNNL    whatever oneDNN's memory descriptor says: channels last, blocks of channels
 *   LS_CPU_LANES   [ceil(rows/16)][c][h][w][16]: sixteen rows (images) side by side, so that one
 *                  512-bit register holds the same element of sixteen rows. Rows beyond the last
 *                  are zero in everything that this folder converts, data and gradients alike.
 *
 * Nothing here knows oneDNN's headers; `struct ls_md` is defined in cpu_dnnl.h.
 */
#ifndef CPU_CPU_LAYOUT_H
#define CPU_CPU_LAYOUT_H

#include "cpu/cpu_isa.h"

#include <lockstep/plugin.h>
#include <stdbool.h>
#include <stddef.h>

#define LS_LANES 16

typedef struct ls_md ls_md;

typedef enum ls_cpu_layout_kind { LS_CPU_DNNL = 1, LS_CPU_LANES = 2 } ls_cpu_layout_kind;

struct ls_layout {
    ls_cpu_layout_kind kind;
    const ls_md *md; /* LS_CPU_DNNL: lives as long as the op that produces the tensor */
};

/* The one lanes layout; the tensor's shape says the rest. */
extern const ls_layout ls_layout_lanes;

/* Whether it is the lanes layout; NULL is allowed. */
bool ls_layout_is_lanes(const ls_layout *layout);

/* Groups of sixteen rows, the last one padded. */
size_t ls_lanes_groups(int rows);

/* Bytes of a tensor of floats, c × h × w each, in lanes layout. */
size_t ls_lanes_bytes(int rows, int c, int h, int w);

/* `like` (its dtype and shape) with lanes layout and the bytes that takes. */
ls_tensor ls_lanes_tensor(const ls_tensor *like);

/* `lanes` ← a plain tensor of that shape; rows beyond the last become zero. And back. */
void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *shape);
void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *shape);

/* A tensor without blocks of channels, its strides in floats. */
typedef struct ls_strided {
    int rows, c, h, w;
    ptrdiff_t row, channel, line, pixel;
} ls_strided;

/* `lanes` ← `strided`; rows beyond the last become zero. Allocates nothing. */
void ls_lanes_pack(float *lanes, const float *strided, const ls_strided *shape);

/* `strided` ← `lanes`; rows beyond the last are left out. Allocates nothing. */
void ls_lanes_unpack(float *strided, const float *lanes, const ls_strided *shape);

/* A tensor as planes of vectors, for element-wise and per-channel code of our own. A *part* is
 * what lies side by side in a vector: a block of channels, or one channel's pixels. */
typedef struct ls_planes {
    int rows, parts;
    int channels;       /* of a part; 1: its vectors hold pixels */
    size_t row, part;   /* floats from one to the next */
    size_t count, step; /* vectors of a plane and the floats from one to the next */
    int width;          /* floats of a vector */
    int last_width;     /* of the last part's vectors where channels lie side by side, of the
                          last row's in lanes; else `width` */
    int tail;           /* pixels behind a plane's whole vectors */
    bool lanes;
} ls_planes;

/* The planes of a tensor in lanes layout. */
ls_planes ls_planes_of_lanes(int rows, int c, int h, int w);

/* ---- pieces ---------------------------------------------------------------------------------- */

/* A tensor in pieces that fit the L1 cache: how the passes of our own over memory (batch norm, the
 * gradient of a bias) walk through the planes above.
 *
 * Planes are cut, or those of neighbouring rows put together, into pieces of at most 32 KiB. A
 * part's pieces come in order of rows, whatever the team; parts are independent of each other, so
 * that results do not depend on who works through which. Where channels lie last, a pixel's parts
 * lie side by side: then several are worked through together. */

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
    bool padded;   /* lanes beyond the last row */
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
