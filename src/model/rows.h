/* SPDX-License-Identifier: MIT */
/* Rows for a trained model: rows of its data, or new rows in a table, an array, a folder or a
 * picture.
 *
 *     ls_trained_rows rows = {.t = &trained};
 *     status = ls_trained_rows_open(&rows, paths, 1, &err);
 *     if (status == LS_OK)
 *         … rows.images, rows.rows …
 *     ls_trained_rows_close(&rows);          // after a failure too
 */
#ifndef MODEL_ROWS_H
#define MODEL_ROWS_H

#include "data/folder.h"
#include "model/trained.h"

/* The rows. The caller sets `t`, and zeroes everything else. */
typedef struct ls_trained_rows {
    const ls_trained *t;
    /* [rows]: the image files; NULL: the rows are in `data` or are rows of the run's data */
    const ls_folder_entry *file;
    ls_folder listed; /* owns the names of the files */
    ls_folder_desc desc;
    /* rows without a prediction are left out; set by the caller, or for pictures by the key
     * data.skip_broken of the run's config */
    bool skip_broken;
    /* [rows]: why a row has no prediction: a picture cannot be read, or a row of a table has a
     * value that the model does not know (prep/prep.h) or cannot read; NULL: it has one. `why`
     * NULL: all have one. */
    char **why;
    uint32_t broken; /* number of rows without a prediction */
    /* table or array: its name, why rows have no prediction, and where the first of these are, for
     * messages */
    const char *source, *reason, *places;
    uint32_t turned;  /* number of pictures that were turned as their EXIF orientation says */
    ls_dataset *data; /* the opened table or array; NULL: none */
    uint32_t rows;
    /* rows of the run's data: they are spread evenly over the `span` rows from number `first` on;
     * span 0: the rows are numbered from 0 */
    uint32_t first, span;
    const uint8_t *images;
    uint8_t *own; /* the memory at `images` if this structure owns it; NULL: a dataset owns it */
    const ls_dataset *from; /* the dataset of rows of the run's data; NULL: new rows */
    union {                 /* the rows' targets; NULL: not known */
        int32_t *labels;
        float *targets; /* if the model predicts values */
    };
} ls_trained_rows;

/* Reads `count` rows of the training or the test split of the run's data, spread evenly over the
 * `span` rows from row `first` on; span = count: all of these rows. The data must be open, and have
 * these rows. Errors: LS_ENOMEM, those of ls_dataset_read. */
int ls_trained_rows_of_data(ls_trained_rows *r, bool train, uint32_t first, uint32_t span,
                            uint32_t count, ls_error *err);
/* Returns the number of row `i` in its table, array or split. */
uint32_t ls_trained_rows_number(const ls_trained_rows *r, uint32_t i);

/* Source of a row. */
typedef struct ls_row_origin {
    const char *file; /* the image file; NULL: the row is no image, or the file is not known */
    uint32_t line;    /* line of the table on which the row begins; 0: not known */
    uint32_t row;     /* number of the row in the file or the data set, from 0 */
} ls_row_origin;
/* Returns where row `i` of the dataset comes from. Unlike `i`, the number of the row also counts
 * rows of a training split that were held out. */
ls_row_origin ls_dataset_origin(const ls_dataset *data, uint32_t i);
/* Returns where row `i` comes from. */
ls_row_origin ls_trained_rows_origin(const ls_trained_rows *r, uint32_t i);

/* Reads new rows: one table (.csv) or one array (.npy, .npz), or pictures and folders of pictures.
 * A picture that cannot be read has grey pixels; its reason is in r->why, and is reported by the
 * trained model's folder watch if there are several pictures. Errors: LS_EDATA (also if no picture
 * can be read), LS_ENOENT, LS_EIO, LS_EUNSUPPORTED, LS_EINVAL, LS_ENOMEM. */
int ls_trained_rows_open(ls_trained_rows *r, char *const *path, int paths, ls_error *err);

/* Reads new rows from memory, which messages call `name`. If the bytes begin like an .npy or .npz
 * file, they are an array. Otherwise they are a table if the model was trained on a table, and a
 * picture if not. Errors: those of ls_trained_rows_open. */
int ls_trained_rows_read(ls_trained_rows *r, const char *name, const char *bytes, size_t count,
                         ls_error *err);

/* Frees everything. */
void ls_trained_rows_close(ls_trained_rows *r);

#endif
