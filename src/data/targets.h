/* What targets in arrays are: classes, numbered from 0 or from 1 on, or the places of ones in rows of zeros; or
 * values. */
#ifndef DATA_TARGETS_H
#define DATA_TARGETS_H

#include "data/dataset.h"
#include "formats/arrays.h"

typedef struct ls_target_form {
    int classes;  /* 0: targets are values */
    int first;    /* the label of class 0: 0 or 1 */
    bool one_hot; /* a class is the place of the 1 in its row */
} ls_target_form;

/* What the training rows' targets `y` are, which messages call `name`, as keys.labels says. Where that is "auto", and the
 * loss is not one of vectors (keys.vectors), rows of zeros with one 1 each are classes, and so is a column of floats that
 * has all whole numbers from 0 or 1 to some below 100; the host's log says so. Labels from 1 to at most 65,536 are classes
 * from there on. With keys.as, what the model has learnt is known. Errors: LS_EDATA (a target is none, with its row). */
int ls_targets_find(ls_target_form *out, const ls_array *y, const char *name,
                    const ls_data_keys *keys, const ls_host *host, ls_error *err);
/* Whether all of `y` are such targets. `cure` is what to do about labels that are too large. Errors: LS_EDATA. */
int ls_targets_check(const ls_target_form *form, const ls_array *y, const char *name,
                     const char *cure, ls_error *err);
/* The class of a row that was checked. */
int32_t ls_target_class(const ls_target_form *form, const ls_array *y, size_t row);

/* How a model's classes are written in an array `y`: by their names where these are the numbers from 1 on, and one-hot
 * where each row has as many numbers as there are classes. */
ls_target_form ls_targets_of_model(const ls_array *y, int classes, const char *const *class_name);

#endif
