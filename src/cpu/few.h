/* The layout for few rows: forward passes in evaluation (predictions) of one to eight rows.
 *
 * In the lanes layout (lanes_op.h) one row costs as much as sixteen. Here each row is stored by
 * itself. The lanes of a vector register are sixteen outputs of a dense layer, sixteen pixels or
 * tiles of an image in a convolution, sixteen channels in a pool, or sixteen consecutive numbers in
 * a curve, an addition or a norm. Each result is the same sum in the same order as in lanes, and
 * therefore has the same bits.
 *
 *     few     [rows][c][h·w, rounded up to 16 unless it is 1], each row rounded up to 16 floats;
 *             the padding is never part of a result
 *
 * The gather op stores the rows of a batch in this layout if the library creates it with the
 * device's preferred_layout. An op that has no code for this layout copies its inputs into lanes,
 * computes there, and copies the result back. */
#ifndef CPU_FEW_H
#define CPU_FEW_H

#include "cpu/lanes_op.h"

/* largest number of rows for this layout; more rows are faster in lanes */
#define LS_FEW_ROWS 8

extern const ls_layout ls_layout_few;

/* Returns the number of floats from one channel of a tensor to the next. */
static inline size_t ls_few_plane(const ls_tensor *t)
{
    const size_t pixels = (size_t)t->h * (size_t)t->w;
    return pixels == 1 ? 1 : (pixels + 15) / 16 * 16;
}

/* Returns the number of floats from one row of a tensor to the next. */
static inline size_t ls_few_row(const ls_tensor *t)
{
    return ((size_t)t->c * ls_few_plane(t) + 15) / 16 * 16;
}

/* Returns a tensor in this layout with dtype and shape of `like`, and sets its `bytes`. */
ls_tensor ls_few_tensor(const ls_tensor *like);

/* The device's function preferred_layout: returns the layout in which an op with this description
 * is fastest, this layout or NULL. */
const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc);

/* Creates an op whose x has this layout. Errors: those of the same op in lanes. */
ls_cpu_create ls_few_create;

/* Returns the op in lanes that `op` contains, if `op` is an op for few rows. Otherwise returns `op`
 * itself, which may be NULL. */
const ls_op *ls_few_inner(const ls_op *op);

/* Returns true if the op in lanes that `desc` describes is created as the inner op of an op for few
 * rows (ls_few_create). Its creator may then set `few` and `few_scratch` of ls_lanes_op. */
static inline bool ls_few_wanted(const ls_op_desc *desc)
{
    return desc->y_hint == &ls_layout_few && !desc->training;
}

#endif
