/* Which neighbouring layers may be offered to a back end as one op. Any thread; never fails. */
#ifndef NN_FUSE_H
#define NN_FUSE_H

#include "nn/model.h"

#define LS_FUSE_FORMS 3

/* Layers `first`, its only reader, that one's only reader … up to `last`, done by one op. */
typedef struct ls_fuse_form {
    int first, last;
    int relu, pool; /* layers, or −1 */
} ls_fuse_form;

/* The forms in which the op of layer `first` (which has one) may be tried, the richest first and
 * the layer alone last. Returns how many there are. */
int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_model *model, int first);

/* The layer's op description with what the form fuses. x, y_hint, twin, training and needs_dx are
 * left zero. */
ls_op_desc ls_fuse_desc(const ls_model *model, const ls_fuse_form *form);

/* The only reader of a layer's output, −1 for the last layer. */
int ls_fuse_reader(const ls_model *model, int layer);

#endif
