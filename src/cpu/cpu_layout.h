/* How tensors are arranged in the CPU back end:
 *
 *   lanes   [ceil(rows/16)][c][h][w][16]: sixteen rows (images) side by side, so that one
 *           512-bit register holds the same element of sixteen rows. Lanes beyond the last row hold finite
 *           numbers in data, zeros in gradients.
 *   NULL    plain: [rows][c][h][w], as everywhere. Only what an export wrote, and inputs from outside.
 */
#ifndef CPU_CPU_LAYOUT_H
#define CPU_CPU_LAYOUT_H

#include <lockstep/plugin.h>
#include <stdbool.h>
#include <stddef.h>

#define LS_LANES 16

struct ls_layout {
    char lanes; /* there is but one */
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
void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t);
void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t);

#endif
