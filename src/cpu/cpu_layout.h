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

#include <lockstep/plugin.h>
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

/* Non-zero for a lanes layout; NULL is allowed. */
int ls_layout_is_lanes(const ls_layout *layout);

/* Groups of sixteen rows, the last one padded. */
size_t ls_lanes_groups(int rows);

/* Bytes of a tensor of floats, c × h × w each, in lanes layout. */
size_t ls_lanes_bytes(int rows, int c, int h, int w);

/* `like` (its dtype and shape) with lanes layout and the bytes that takes. */
ls_tensor ls_lanes_tensor(const ls_tensor *like);

/* A tensor without blocks of channels, its strides in floats. */
typedef struct ls_strided {
    int rows, c, h, w;
    ptrdiff_t row, channel, line, pixel;
} ls_strided;

/* The strides of a plain tensor. */
ls_strided ls_strided_plain(int rows, int c, int h, int w);

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
    int lanes;
} ls_planes;

/* The planes of a tensor in lanes layout. */
ls_planes ls_planes_of_lanes(int rows, int c, int h, int w);

#endif
