/* Detects the form of targets in arrays: classes, numbered from 0 or from 1, or one-hot; or
 * values. */
#ifndef DATA_TARGETS_H
#define DATA_TARGETS_H

#include "data/dataset.h"
#include "formats/arrays.h"

typedef struct ls_target_form {
    int classes;  /* number of classes; 0: targets are values */
    int first;    /* label of class 0: 0 or 1 */
    bool one_hot; /* a class is the index of the 1 in its row */
} ls_target_form;

/* Detects the form of the training targets `y`, which messages call `name`, as keys.labels says.
 *
 * With LS_LABELS_AUTO, unless the loss needs vectors (keys.vectors), rows of zeros with a single 1
 * are classes, and so is a column of floats that contains every whole number from 0 or 1 to a
 * largest number below 100; the host's log reports it. If the labels are 1 to at most 65,536, class
 * 0 has the label 1. With keys.as, the model's classes are used.
 *
 * Errors: LS_EDATA (a target does not have the form; the message names the row). */
int ls_targets_find(ls_target_form *out, const ls_array *y, const char *name,
                    const ls_data_keys *keys, const ls_host *host, ls_error *err);
/* Checks that all of `y` has the form. `cure` is the advice in the message if a label is too large.
 * Errors: LS_EDATA. */
int ls_targets_check(const ls_target_form *form, const ls_array *y, const char *name,
                     const char *cure, ls_error *err);
/* Returns the class of a row that ls_targets_check or ls_targets_find has accepted. */
int32_t ls_target_class(const ls_target_form *form, const ls_array *y, size_t row);

/* Returns the form of a model's classes in `y`: labels are the classes' names if these are the
 * numbers from 1 on, and one-hot if each row has as many numbers as there are classes. */
ls_target_form ls_targets_of_model(const ls_array *y, int classes, const char *const *class_name);

#endif
