/* SPDX-License-Identifier: MIT */
/* Labels that are texts in an array, as numpy.array(["cat", "dog"]) has them. */
#ifndef DATA_TEXT_LABELS_H
#define DATA_TEXT_LABELS_H

#include "data/levels.h"
#include "formats/arrays.h"

/* Replaces the texts of `y`, which has one for each row, by whole numbers. Texts that are all whole
 * numbers become these. Others become the index of their class: among `class_name` [classes], the
 * classes of a trained model; or, if that is NULL, among the sorted different texts of the training
 * rows (prep/level.h says which are the same). If `training` is set, these are collected in *found,
 * which is empty at first, and stays so if they are whole numbers. Does nothing if `y` has numbers.
 * Messages call the array `name`. Errors: LS_EDATA (several texts for a row, more than 65,536
 * different ones, a text that is no class), LS_ENOMEM. */
int ls_text_labels(ls_array *y, ls_levels *found, bool training, const char *name,
                   const char *const *class_name, int classes, const ls_host *host, ls_error *err);

#endif
