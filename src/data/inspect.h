/* SPDX-License-Identifier: MIT */
/* Inspects data of unknown form at a path: which kind of data it is, and its properties. */
#ifndef DATA_INSPECT_H
#define DATA_INSPECT_H

#include "base/buffer.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "json/writer.h"

/* The keys of `data` that the user has set (config/given.h). They decide; nothing is guessed about
 * them. */
typedef struct ls_given_keys {
    const cJSON
        *set; /* the object `data` with the keys that are set; NULL: none, ignore the rest */
    const char *name;  /* data.name */
    uint32_t limit;    /* data.limit */
    ls_data_keys keys; /* a key that is not in `set` has its default */
} ls_given_keys;

/* The properties of the data that were found. */
typedef struct ls_inspection {
    /* the path, and the target column, as the user gave them; target NULL: a target is
     * chosen */
    const char *path, *target;
    /* Values of data.decimal, data.separator and data.encoding as the user gave them; NULL: detect
     * them. */
    const char *decimal, *separator, *encoding;
    ls_given_keys given;
    const ls_host *host;
    const ls_dataset_about *kind; /* kind of data, without those that have no files */
    bool known; /* the data is a public dataset, recognised by the names of its files */
    /* ---- arrays: files below `folder`, which may be "" --------------------------------------- */
    char folder[4096], x[256], y[256], test_x[256], test_y[256];
    bool last; /* rows are [height][width][channels] */
    /* Reading of the targets: one whole number for each row may be a class or a value. AUTO: the
     * targets have another form, which a run recognises. */
    ls_label_form labels;
    bool whole;         /* the targets are one whole number for each row */
    uint32_t different; /* number of different targets; counted up to LS_MOST_CLASSES + 1 */
    double least, most; /* smallest and largest target, if they are one number for each row */
    bool each; /* each column, or each channel, has its own mean and deviation, those of a run */
    ls_host silent; /* the host without its log, for a first look */
    /* ---- tables ------------------------------------------------------------------------------ */
    /* array of the names of the columns that are left out because they cannot help; empty if the
     * user has set data.drop */
    cJSON *drop;
    cJSON *target_name; /* the name of the target, a text, once it is known */
    bool commas;        /* a name in `drop` contains a comma */
    /* lines about what is left out: columns, with the reason, and arrays that are not used */
    ls_buffer left_out_why;
    bool values; /* the target is a number; false: a class */
    /* `values` was chosen here: the target's column has numbers with fractions, or too
     * many different numbers for classes */
    bool values_why;
    bool fills; /* some values are missing */
    ls_dataset *split[2];
    const ls_dataset_info *table; /* describes split[0], once the table is read */
    /* ---- pictures ---------------------------------------------------------------------------- */
    ls_folder_desc pack; /* `pictures` is set by the caller; NULL: loaded at run time */
    ls_folder listed;
    bool grey; /* no picture that was decoded has colours */
    /* How pictures become rows, as the user has set it: the size to which they are resized (all 0:
     * data.image_size), and the name that stands for it and for the scales (NULL: none). The caller
     * may change both. */
    ls_prep_resize resize;
    const char *pictures;
    /* ---- all kinds --------------------------------------------------------------------------- */
    uint32_t rows, test_rows;
    double validation; /* fraction of the training rows that is held out; 0: none */
    int classes, targets, channels, height, width;
    /* The class with the fewest rows, if these are much fewer than those of the other classes:
     * fewer than 2/5 of rows / classes, which is a fifth of the rows of two classes. −1: there is
     * no such class. */
    int rare;
    uint32_t most_rows;    /* rows of the class with the most rows; 0: not counted */
    const char *rare_name; /* NULL: its name is its number */
    uint32_t rare_rows;
    bool floats;
    double mean, deviation; /* statistics of a row's values; bytes are divided by 255 */
    double curve; /* how far values depend on the rows along a curve (curve.h); 0 for classes */
} ls_inspection;

/* Returns what the first of `decimal`, `separator` and `encoding` that has an invalid value should
 * be, as "--separator: expected …" of `trainer init`, or NULL if all are valid. */
const char *ls_inspect_forms(const ls_inspection *look);
/* Inspects the data at look->path and fills *look. The caller calls ls_inspect_end afterwards,
 * even after a failure. Errors: those of opening the data; LS_ENOENT, LS_EDATA and LS_EINVAL with
 * what was expected. */
int ls_inspect(ls_inspection *look, ls_error *err);
/* Writes the members of a config's `data` by which pictures become rows of the height and width. */
void ls_inspect_put_size(ls_json_writer *w, const ls_inspection *look);
/* Closes what ls_inspect has opened and frees its memory. */
void ls_inspect_end(ls_inspection *look);

#endif
