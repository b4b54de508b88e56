/* SPDX-License-Identifier: MIT */
/* Detects the form of targets in arrays. They are values, or classes; classes are numbered from 0,
 * numbered from 1, a class for each different label, or one-hot (a row of zeros with a single 1).
 */
#ifndef DATA_TARGETS_H
#define DATA_TARGETS_H

#include "data/dataset.h"
#include "formats/arrays.h"

enum { LS_TARGET_LABELS = 256 }; /* largest number of different labels that are classes by value */

/* The form of the targets in an array. */
typedef struct ls_target_form {
    int classes;  /* number of classes; 0: targets are values */
    int first;    /* label of class 0: 0 or 1 */
    bool one_hot; /* a class is the index of the 1 in its row */
    /* Class i has the label label[i], and the labels ascend. false: class i has the label
     * first + i. */
    bool by_value;
    int32_t label[LS_TARGET_LABELS]; /* [classes] if `by_value` is set */
} ls_target_form;

/* Detects the form of the training targets `y`. keys->labels restricts which forms are possible.
 * Messages call the array `name`.
 *
 * With LS_LABELS_AUTO, these targets are classes:
 * - whole numbers of an integer type
 * - one-hot rows, if the training loss does not need vectors (keys->vectors)
 * - floats, if they contain every whole number from 0 or 1 to a largest number below 100, and the
 *   training loss does not need vectors
 *
 * In the second and the third case a line in the host's log says so. If the smallest label is 1 and
 * the largest is at most 65,536, class 0 has the label 1. With LS_LABELS_CLASSES and without
 * keys->classes, at most 256 different whole numbers that are not the numbers from 0 or 1 on, such
 * as −1 and 1, are a class each. With keys->input_format, the classes are those of the trained
 * model.
 *
 * Errors: LS_EDATA (a target does not have the form; the message names the row). */
int ls_targets_find(ls_target_form *out, const ls_array *y, const char *name,
                    const ls_data_keys *keys, const ls_host *host, ls_error *err);
/* Checks that every target in `y` has the form `form`. `cure` is the advice in the message about a
 * label that is too large. Errors: LS_EDATA. */
int ls_targets_check(const ls_target_form *form, const ls_array *y, const char *name,
                     const char *cure, ls_error *err);
/* Returns the class of a row. ls_targets_check or ls_targets_find must have accepted the array. */
int32_t ls_target_class(const ls_target_form *form, const ls_array *y, size_t row);

/* Returns the form in which `y` has the classes of a trained model. Labels begin at 1 if the names
 * of the classes are the numbers from 1 on. They are the names if these are other ascending whole
 * numbers, and begin below 0 or contain all labels. Targets are one-hot if each row of `y` has as
 * many numbers as the model has classes. */
ls_target_form ls_targets_of_model(const ls_array *y, int classes, const char *const *class_name);

#endif
