/* Which neighbouring layers may be offered to a back end as one op. Any thread; never fails.
 *
 *     conv2d [+ relu] [+ pool]      dense + relu      batch_norm [+ add] [+ relu]      add + relu
 *
 * A layer is drawn into the op of the one before it only when nobody else reads that one's output.
 * An add joins a batch_norm when its other input is there before the batch_norm runs.
 */
#ifndef NN_FUSE_H
#define NN_FUSE_H

#include "nn/model.h"

#define LS_FUSE_FORMS 3

/* Layers `first`, its only reader, that one's only reader … up to `last`, done by one op. */
typedef struct ls_fuse_form {
    int first, last;
    int relu, pool, add; /* layers, or −1 */
} ls_fuse_form;

/* The forms in which the op of layer `first` (which has one) may be tried, the richest first and
 * the layer alone last. Returns how many there are. */
int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_model *model, int first);

/* The layer's op description with what the form fuses. x, x2, y_hint, twin, training and needs_dx
 * are left zero. */
ls_op_desc ls_fuse_desc(const ls_model *model, const ls_fuse_form *form);

/* The layers (or LS_INPUT) whose outputs the form's op reads: one, or two. Returns how many. */
int ls_fuse_inputs(int out[LS_INPUTS], const ls_model *model, const ls_fuse_form *form);

/* The layer that made the tensor in which a layer's output lies: the layer itself, or, behind layers
 * without an op, the one before them. LS_INPUT stays. */
int ls_fuse_producer(const ls_model *model, int layer);

/* The first layer with an op that reads what `layer` made (or LS_INPUT), −1 when only the loss
 * does. */
int ls_fuse_reader(const ls_model *model, int layer);

#endif
