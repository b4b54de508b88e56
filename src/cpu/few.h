/* Few rows: predictions of one to eight rows, in evaluation alone.
 *
 * In lanes (lanes_op.h) one row costs as much as sixteen. Here rows lie by themselves, and what fills a register
 * are outputs (dense), pixels or tiles of an image (convolutions), channels (pools), or whatever comes next (curves,
 * additions, norms). Each number is the same sum in the same order as in lanes: the same bits.
 *
 *   few     [rows][c][h·w, rounded up to 16 unless it is 1], each row rounded up to 16: what is beyond is
 *           never part of a result.
 *
 * The rows of a batch come to lie so where their gather is told to (preferred_layout). An op that has no code
 * for it is run in lanes between two copies.
 */
#ifndef CPU_FEW_H
#define CPU_FEW_H

#include "cpu/lanes_op.h"

/* More rows are faster in lanes. */
#define LS_FEW_ROWS 8

extern const ls_layout ls_layout_few;

/* Floats from one channel of a tensor to the next, and from one row to the next. */
static inline size_t ls_few_plane(const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    return pixels == 1 ? 1 : (pixels + 15) / 16 * 16;
}

static inline size_t ls_few_row(const ls_tensor *t)
{
    return ((size_t)t->c * ls_few_plane(t) + 15) / 16 * 16;
}

/* `like` (its dtype and shape) with this layout and the bytes that takes. */
ls_tensor ls_few_tensor(const ls_tensor *like);

/* The layout that rows of an op like this should have: this one, or NULL. The table's preferred_layout. */
const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc);

/* An op whose x lies so. Errors: those of the op in lanes. */
ls_cpu_create ls_few_create;

/* The op inside where `op` is one of few rows, else `op` itself (may be NULL). */
const ls_op *ls_few_inner(const ls_op *op);

/* Whether an op in lanes is made to be run on few rows: it may set `few` and `few_scratch`. */
static inline bool ls_few_wanted(const ls_op_desc *desc)
{
    return desc->y_hint == &ls_layout_few && !desc->training;
}

#endif
