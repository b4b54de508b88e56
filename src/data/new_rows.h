/* Reads rows for a trained model from the user's files, and prepares them as the model describes
 * (prep/prep.h). */
#ifndef DATA_NEW_ROWS_H
#define DATA_NEW_ROWS_H

#include "data/dataset.h"

/* How the model reads rows. The pointers need not outlive the opening. */
typedef struct ls_new_rows {
    const ls_prep *prep;
    int channels, height, width;   /* shape of the model's input */
    bool floats;                   /* the input is floats; else bytes */
    int classes;                   /* number of classes; 0: the outputs are values */
    int targets;                   /* number of output values if `classes` is 0; else 0 */
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    const char *target;            /* Table: the column that was learnt; NULL: prep->target. */
    /* Targets are read; else they are 0, and a table need not contain their column. */
    bool labelled;
    uint32_t limit;    /* largest number of rows; 0: all */
    const char *split; /* name of the split: "test" */
    const ls_host *host;
} ls_new_rows;

/* Opens a table. Its columns may be in any order, and it may have others. Errors, with file, line
 * and column: LS_ENOENT, LS_EIO, LS_EDATA (a column is missing, or a value is not one that the
 * model can read), LS_ENOMEM, LS_EUNSUPPORTED (not a model of tables). */
int ls_new_rows_open_csv(ls_dataset **out, const ls_new_rows *of, const char *path, ls_error *err);
/* Like ls_new_rows_open_csv, for a text in memory. Messages call it `name`. */
int ls_new_rows_read_csv(ls_dataset **out, const ls_new_rows *of, const char *name,
                         const char *text, size_t bytes, ls_error *err);

/* Opens an .npy file of rows, and, for labelled rows, one of targets; or arrays in .npz files
 * (formats/arrays.h). Pictures may have their channels first or last, and classes may be one-hot.
 * For a model of tables the rows are raw rows. Errors: those of ls_new_rows_open_csv, with file and
 * row. */
int ls_new_rows_open_npy(ls_dataset **out, const ls_new_rows *of, const char *x, const char *y,
                         ls_error *err);

/* Like ls_new_rows_open_npy, for a file's bytes in memory. Messages call it `name`. The rows are
 * not labelled. */
int ls_new_rows_read_npy(ls_dataset **out, const ls_new_rows *of, const char *name,
                         const void *bytes, size_t count, ls_error *err);

/* Creates a dataset of `rows` zeroed rows, for example of labelled pictures. The caller fills
 * *values and *labels, which are the dataset's memory. Errors: LS_ENOMEM. */
int ls_new_rows_reserve(ls_dataset **out, const ls_new_rows *of, const char *source, uint32_t rows,
                        uint8_t **values, int32_t **labels, ls_error *err);

/* Returns the class of that name, or of that number if classes have no names; −1: there is none. */
int ls_new_rows_class(const ls_new_rows *of, const char *text);

#endif
