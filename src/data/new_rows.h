/* Rows that a model has not been trained on, from the user's files, prepared as the model says (prep/prep.h). */
#ifndef DATA_NEW_ROWS_H
#define DATA_NEW_ROWS_H

#include "data/dataset.h"

/* What the model says, which outlives the opening alone. */
typedef struct ls_new_rows {
    const ls_prep *prep;
    int channels, height, width;   /* of its input */
    bool floats;                   /* which are floats, else bytes */
    int classes;                   /* 0: it gives values, */
    int targets;                   /* so many */
    const char *const *class_name; /* [classes]; NULL: classes are their numbers */
    const char *target;            /* of a table: the column that was learnt; NULL: as prep says */
    bool labelled;     /* targets are read; else they are 0, and a table needs no such column */
    uint32_t limit;    /* the most rows; 0: all */
    const char *split; /* what the rows are called: "test" */
    const ls_host *host;
} ls_new_rows;

/* A table, whose columns may stand in any order, among others. Errors, which name file, line and column: LS_ENOENT,
 * LS_EIO, LS_EDATA (a column is not there, a value is none that the model can take), LS_ENOMEM. */
int ls_new_rows_open_csv(ls_dataset **out, const ls_new_rows *of, const char *path, ls_error *err);
/* The same, of a text, which messages call `name`. */
int ls_new_rows_read_csv(ls_dataset **out, const ls_new_rows *of, const char *name,
                         const char *text, size_t bytes, ls_error *err);

/* An .npy file of rows, and one of targets, which only labelled rows have; or arrays in .npz files (formats/arrays.h). Rows
 * of pictures may have their channels first or last, and classes may be one-hot. Of a table's model, rows are raw ones. Errors: as
 * above, with file and row. */
int ls_new_rows_open_npy(ls_dataset **out, const ls_new_rows *of, const char *x, const char *y,
                         ls_error *err);

/* The same, of bytes in memory, which messages call `name`; rows are not labelled. */
int ls_new_rows_read_npy(ls_dataset **out, const ls_new_rows *of, const char *name,
                         const void *bytes, size_t count, ls_error *err);

/* Memory for so many rows, zeroed, of `labelled` pictures, say, for the caller to fill: `rows` and `labels` lie in it. */
int ls_new_rows_reserve(ls_dataset **out, const ls_new_rows *of, const char *source, uint32_t rows,
                        uint8_t **values, int32_t **labels, ls_error *err);

/* The class of that name, or of that number where classes have none; −1: there is none. */
int ls_new_rows_class(const ls_new_rows *of, const char *text);

#endif
