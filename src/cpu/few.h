/* SPDX-License-Identifier: MIT */
/* The layout `few`, in which tensors of at most eight rows are stored during an evaluation or a
 * prediction: forward passes without training.
 *
 * In the layout `lanes` (lanes_op.h) a vector has a place (lane) for each of sixteen rows, so one
 * row costs as much as sixteen. In the layout `few` each row is stored by itself, and the sixteen
 * lanes of a vector hold sixteen *channels* of a pixel. A *sixteen* is sixteen channels that are
 * stored like this. Then a convolution multiplies one number of x with the weights of sixteen
 * outputs, and everything else is plain arithmetic of vectors.
 *
 * Each result is the same sum in the same order as in the layout `lanes`, and therefore has the
 * same bits.
 *
 *     few     [rows][ceil(c/16)][h·w][16]; the channels beyond the last one hold any numbers, which
 *             are never part of a result
 *     flat    [rows][c·h·w, rounded up to 16]: each row in the order c, h, w. Only the gather
 *             writes it, if the first op that reads its output is a dense layer, or a convolution
 *             of fewer than sixteen channels
 *
 * The gather op stores the rows in the layout that the first op of the model prefers
 * (preferred_layout). An op that has no code for the layout of an input copies the input into
 * another layout: from `flat` into `few` if it has code for `few`, else into `lanes`. In the latter
 * case it also copies the result back.
 *
 * A tensor in the layout `few` has the same floats as a tensor in lanes of 16·rows rows and
 * ceil(c/16) channels: a row takes the place of a packet, and a sixteen that of a channel. Pools
 * and upsampling use this: their kernels for lanes compute few rows too.
 *
 * Packed weights. Convolutions read weights in another order than training stores them
 * (few_kernels.h). An op therefore has a *pack*, a copy of its weights in that order, which is
 * valid as long as the weights do not change. Ops of the same layer for other numbers of rows
 * (twins) share the pack. */
#ifndef CPU_FEW_H
#define CPU_FEW_H

#include "cpu/lanes_op.h"

/* largest number of rows for this layout; more rows are faster in lanes */
#define LS_FEW_ROWS 8

extern const ls_layout ls_layout_few, ls_layout_flat;

/* Returns true for the layout `flat`. */
static inline bool ls_is_flat(const ls_layout *layout)
{
    return layout && layout->number == LS_LAYOUT_FLAT;
}

/* Returns true for the layouts `few` and `flat`. */
static inline bool ls_is_few(const ls_layout *layout)
{
    return ls_is_flat(layout) || (layout && layout->number == LS_LAYOUT_FEW);
}

/* Returns the number of sixteens of `channels` channels. */
static inline size_t ls_few_sixteens(int channels)
{
    return ((size_t)channels + 15) / 16;
}

/* Returns the number of floats of a sixteen of a row. */
static inline size_t ls_few_plane(const ls_tensor *t)
{
    return (size_t)t->h * (size_t)t->w * LS_LANES;
}

/* Returns the number of floats from one row of a tensor to the next, in the layout `few`. */
static inline size_t ls_few_row(const ls_tensor *t)
{
    return ls_few_sixteens(t->c) * ls_few_plane(t);
}

/* Returns the number of floats from one row of a tensor to the next, in the layout `flat`. */
static inline size_t ls_flat_row(const ls_tensor *t)
{
    return ((size_t)t->c * (size_t)t->h * (size_t)t->w + 15) / 16 * 16;
}

/* Returns a tensor with dtype and shape of `like` in one of the two layouts, and sets its
 * `bytes`. */
ls_tensor ls_few_tensor(const ls_tensor *like, const ls_layout *layout);

/* Copies `rows` rows of channels from the layout `few` into the order c, h, w; `step`: floats from
 * one row of `to` to the next. */
void ls_few_to_plain(float *to, size_t step, const float *few, const ls_tensor *t);

/* The device's function preferred_layout. Returns the layout `few` or `flat` if an op with this
 * description is fastest with an input in that layout, else NULL. */
const ls_layout *ls_few_preferred(ls_device *device, const ls_op_desc *desc);

/* Creates an op whose x has one of the two layouts. Errors: those of the same op in lanes. */
ls_cpu_create ls_few_create;

/* Returns the op in lanes that `op` contains, if `op` is an op for few rows. Otherwise returns `op`
 * itself, which may be NULL. */
const ls_op *ls_few_inner(const ls_op *op);

/* Returns true if `desc` describes an op in lanes that an op for few rows contains. (ls_few_create
 * marks such a description: it sets y_hint to the layout of the outer op's x.) Then the creator of
 * the op in lanes can supply code for the layout `few`: the function `few` of ls_lanes_op, which
 * needs `few_scratch` bytes of scratch memory. */
static inline bool ls_few_wanted(const ls_op_desc *desc)
{
    return ls_is_few(desc->y_hint) && !desc->training;
}

/* Returns true if x of the outer op of such an op has the layout `flat`. */
static inline bool ls_few_is_flat(const ls_op_desc *desc)
{
    return ls_is_flat(desc->y_hint);
}

/* ---- batch norm in the store of a convolution --------------------------------------------------
 *
 * A convolution whose only reader is a batch norm computes the norm too, together with the addition
 * and the relu that are fused into the norm, before it stores its results. The norm is then an op
 * whose y replaces x (ls_op.y), and it has nothing left to do. */

/* Returns the convolution that computes the described batch norm, or NULL if there is none: if the
 * producer of x is no convolution or has other readers, or if x2 is not computed before the
 * convolution runs. */
ls_lanes_op *ls_few_finisher(const ls_op_desc *desc);

/* Returns the number of floats of the memory that ls_few_norm_finish needs. */
static inline size_t ls_few_norm_floats(int channels)
{
    return 3 * ls_few_sixteens(channels) * LS_LANES;
}

/* Returns the operations of the batch norm op `norm`, which is bound. Their coefficients are
 * computed into `room`. The arrays, and x2, begin at the first channel of the first row. */
ls_few_finish ls_few_norm_finish(const ls_lanes_op *norm, float *room);

/* Returns the operations after a convolution: those of its batch norm, or its own relu if `relu` is
 * set. */
static inline ls_few_finish ls_few_finish_of(const ls_lanes_op *conv, int relu, float *room)
{
    return conv->few_norm ? ls_few_norm_finish(conv->few_norm, room)
                          : (ls_few_finish){.relu = relu};
}

/* Returns the same operations for the channels from `channel` on. `at`: offset in y of the first
 * result. */
static inline ls_few_finish ls_few_finish_from(const ls_few_finish *f, size_t channel, size_t at)
{
    ls_few_finish from = *f;
    if (f->scale) {
        from.mean += channel;
        from.scale += channel;
        from.shift += channel;
    }
    from.x2 = f->x2 ? f->x2 + at : NULL;
    return from;
}

/* ---- packed weights ---------------------------------------------------------------------------
 */

/* Data that an op computes from its parameters and keeps from one call to the next. They are valid
 * as long as the parameters do not change: with the flag LS_RUN_CONSTANT or LS_RUN_SAME the caller
 * promises that they have not changed. An op and its twins share the data. */
typedef struct ls_kept {
    float *data; /* NULL: none are kept */
    /* parameters that `data` was computed from; NULL: it must be computed */
    const float *source;
    unsigned flags; /* flags of the call that computed `data` */
} ls_kept;

/* Returns whether kept data may be used in a call with `flags`: they were computed from `weights`,
 * and the caller promises that the weights have not changed since then. */
static inline bool ls_kept_is_valid(const ls_kept *kept, const float *weights, unsigned flags)
{
    const bool constant = flags & kept->flags & LS_RUN_CONSTANT;
    return kept->source == weights && (constant || flags & LS_RUN_SAME);
}

/* Allocates memory of `floats` floats for kept data, unless it has been allocated, and adds its
 * size to op->op.kept_bytes. The owner of `kept` frees `data`. Errors: LS_ENOMEM. */
int ls_kept_alloc(ls_kept *kept, size_t floats, ls_lanes_op *op, ls_error *err);

#endif
