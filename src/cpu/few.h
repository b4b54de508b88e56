/* The layout `few`, in which tensors of at most eight rows (examples) are stored during an
 * evaluation or a prediction: forward passes without training.
 *
 * In the layout `lanes` (lanes_op.h) a vector has a place (lane) for each of sixteen rows, so one
 * row costs as much as sixteen. In the layout `few` each row is stored by itself. The sixteen
 * places of a vector are then used as follows:
 * - in a dense layer for sixteen outputs
 * - in a convolution for sixteen pixels or tiles (squares of pixels, see wino.h)
 * - in a pool for sixteen channels
 * - in an activation function such as tanh, an addition or a norm for sixteen consecutive numbers
 *
 * Each result is the same sum in the same order as in the layout `lanes`, and therefore has the
 * same bits.
 *
 *     few     [rows][c][h·w, rounded up to 16 unless it is 1], each row rounded up to 16 floats;
 *             the padding is never part of a result
 *
 * The gather op copies the rows of a batch from the dataset. The library asks the device
 * (preferred_layout) for the layout that the first op of the model prefers. If the answer is `few`,
 * the gather op stores the rows in the layout `few`. An op that has no code for this layout copies
 * its inputs into the layout `lanes`, computes there, and copies the result back. */
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

/* The device's function preferred_layout. Returns &ls_layout_few if an op with this description is
 * fastest in the layout `few`, else NULL. */
const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc);

/* Creates an op whose x has this layout. Errors: those of the same op in lanes. */
ls_cpu_create ls_few_create;

/* Returns the op in lanes that `op` contains, if `op` is an op for few rows. Otherwise returns `op`
 * itself, which may be NULL. */
const ls_op *ls_few_inner(const ls_op *op);

/* Returns true if `desc` describes an op in lanes that an op for few rows contains. (ls_few_create
 * marks such a description: it sets y_hint to ls_layout_few.) Then the creator of the op in lanes
 * can supply code for the layout `few`: the function `few` of ls_lanes_op, and in `few_scratch` the
 * size of the scratch memory that the function needs. */
static inline bool ls_few_wanted(const ls_op_desc *desc)
{
    return desc->y_hint == &ls_layout_few && !desc->training;
}

#endif
