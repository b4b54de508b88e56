/* SPDX-License-Identifier: MIT */
/* Reads rows for a trained model from the user's files, and prepares them as the training rows of
 * the model were prepared (prep/prep.h). */
#ifndef DATA_NEW_ROWS_H
#define DATA_NEW_ROWS_H

#include "data/dataset.h"

/* How the model reads rows. The pointers need to stay valid only until the dataset is open. */
typedef struct ls_input_format {
    const ls_prep *prep;
    int channels, height, width;   /* shape of the model's input */
    bool floats;                   /* the model's input is floats; false: bytes */
    int classes;                   /* number of classes; 0: the outputs are values */
    int targets;                   /* number of output values of a model without classes; else 0 */
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    /* Table: name of the column with the targets; NULL: prep->target. */
    const char *target;
    /* true: the targets are read. false: all targets are 0, and a table need not have their
     * column. */
    bool labelled;
    /* Table, with `labelled`: name of the column with the weights of the rows; NULL: all are 1. */
    const char *weight;
    bool may_lack_weight; /* true: in a table without that column all weights are 1 */
    /* Table: a row with a value that the model cannot read, such as a text in a column of numbers,
     * is treated as one with an unknown value (data.unknown "empty"); false: it is an error. */
    bool skip_broken;
    /* Table: how the user sets `skip_broken`, for messages, such as "--skip-broken"; NULL: not */
    const char *skip_option;
    bool is_training;  /* a model is to be trained; it does not exist yet */
    uint32_t limit;    /* largest number of rows; 0: all */
    char separator;    /* separator of a table's fields; 0: it is detected */
    const char *split; /* name of the split: "test" */
    const ls_host *host;
} ls_input_format;

/* Opens a table. The table's columns may be in any order, and columns that the model does not use
 * are ignored. Errors, with file, line and column: LS_ENOENT, LS_EIO, LS_EDATA (a column is
 * missing, or the model cannot read a value), LS_ENOMEM, LS_EUNSUPPORTED (the model was not trained
 * on a table). */
int ls_new_rows_open_csv(ls_dataset **out, const ls_input_format *format, const char *path,
                         ls_error *err);
/* Does the same as ls_new_rows_open_csv, for a text of `bytes` bytes in memory. Messages call it
 * `name`. */
int ls_new_rows_read_csv(ls_dataset **out, const ls_input_format *format, const char *name,
                         const char *text, size_t bytes, ls_error *err);

/* Opens the rows in the .npy file `x` and, if format->labelled is set, their targets in the .npy
 * file `y`. Both may also be arrays in .npz files (formats/arrays.h). Pictures may have their
 * channels first or last, and classes may be one-hot. For a model that was trained on a table, the
 * rows are raw rows (prep/prep.h). Errors: those of ls_new_rows_open_csv, with file and row. */
int ls_new_rows_open_npy(ls_dataset **out, const ls_input_format *format, const char *x,
                         const char *y, ls_error *err);

/* Does the same as ls_new_rows_open_npy, for the `count` bytes of a file of rows in memory.
 * Messages call it `name`. Targets are not read. */
int ls_new_rows_read_npy(ls_dataset **out, const ls_input_format *format, const char *name,
                         const void *bytes, size_t count, ls_error *err);

/* Creates a dataset of `rows` rows that are all 0, and stores the addresses of its rows and labels
 * in *values and *labels. The caller fills both. Errors: LS_ENOMEM. */
int ls_new_rows_reserve(ls_dataset **out, const ls_input_format *format, const char *source,
                        uint32_t rows, uint8_t **values, int32_t **labels, ls_error *err);

#endif
