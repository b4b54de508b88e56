/* Datasets: rows of bytes or floats, each with a class or a vector as its target, accessed through
 * a table of functions.
 *
 *     ls_dataset *train, *test;
 *     ls_dataset_spec spec = {.name = "fashion_mnist", .search = dirs, .search_count = 2};
 *     int status = ls_dataset_open(&train, &test, &spec, host, &err);
 *     const ls_dataset_info *info = ls_dataset_describe(train);
 *     ls_dataset_read(train, rows, 256, pixels, labels, &err);
 *     ls_dataset_close(train);
 *     ls_dataset_close(test);
 *
 * A row is [channels][height][width], bytes (0 … 255) or floats. Its target is a class, an int32_t,
 * or a vector of floats. To add a kind of dataset, add a source file and a row in kinds.def. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "hash/hash.h"
#include "prep/prep.h"

#include <lockstep/data_source.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_dataset ls_dataset;

/* Result of comparing a dataset's content with the published content of the same name. */
typedef enum ls_payload {
    LS_PAYLOAD_UNKNOWN = 0, /* no content is published under this name */
    LS_PAYLOAD_PUBLISHED = 1,
    LS_PAYLOAD_DIFFERS = 2 /* a warning has been logged */
} ls_payload;

enum {
    LS_FEATURES_TOLD = 4096,
    LS_FEATURES_BYTES = 1 << 20 /* size limit of info.features in bytes */
};

/* How a column of a table is used. */
typedef enum ls_column_use {
    LS_COLUMN_NUMBER,
    LS_COLUMN_LEVELS, /* texts, one-hot encoded */
    LS_COLUMN_DROPPED,
    LS_COLUMN_CLASS, /* the target, which is a class */
    LS_COLUMN_VALUE  /* the target, which is a number */
} ls_column_use;

typedef struct ls_column_seen {
    const char *name;
    ls_column_use use;
    int levels;  /* number of different texts in a column of texts or of classes; else 0 */
    int numeric; /* number of levels that are numbers */
    int broken;  /* number of levels that have, or may have, a fraction: 1.5, 1,5, 1,500 */
    bool named;  /* the column is named in data.categorical */
    /* Looks of the first text of a column that was left out: "a date", "an amount of money",
     * …; NULL: like nothing known. */
    const char *is;
    bool counts; /* the numbers increase by 1 from row to row */
    double step; /* constant difference between successive rows; 0: it is not constant */
    uint32_t missing;
    double mean, deviation; /* statistics of numbers, in the unit of the file */
} ls_column_seen;

typedef struct ls_dataset_info {
    const char *name;   /* name in the configuration: "fashion_mnist" */
    const char *split;  /* "train", "test", or "validation" */
    const char *source; /* origin of the rows: a directory, or "generated from seed 1" */
    int channels;
    int height;
    int width;
    int classes;                   /* labels are 0 … classes − 1; 0 if targets are vectors */
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    /* Meaning of each value of a row, as JSON text: an array with one object for each value.
     * {"column": C, "is": T}: the value is 1 if the row's text in column C is T, else 0.
     * {"column": C}: the value is the number in column C, or (number − mean) / deviation if the
     * object also has "mean" and "deviation". NULL: the meaning is unknown, or there are more than
     * LS_FEATURES_TOLD values, or the text is longer than LS_FEATURES_BYTES. */
    const char *features;
    /* Training data only: how the user's rows were converted to these rows; NULL: they were not. */
    const ls_prep *prep;
    /* Training data from a table only: [columns], in the order of the file; else NULL. */
    const ls_column_seen *column;
    int columns;
    int targets;       /* number of floats in a row's target; 0: the target is a class */
    ls_row_type dtype; /* type of a row's values */
    /* Type of the values in the file before their conversion to floats, such as "i64"; NULL: they
     * were not converted. */
    const char *stored;
    uint32_t rows;  /* number of rows, `limit` applied */
    bool synthetic; /* the data is artificial; every output must say so */
    ls_payload payload;
    /* SHA-256 of the complete decompressed files, including headers and rows beyond the limit; ""
     * for generated data. If images and labels share files, images_sha256 covers all files of the
     * split, one after another, and labels_sha256 is "". */
    char images_sha256[LS_SHA256_HEX];
    char labels_sha256[LS_SHA256_HEX];
} ls_dataset_info;

/* All rows of a resident dataset, in memory: images or values [rows][channels][height][width],
 * depending on dtype, and labels [rows] or targets [rows][targets]. */
typedef struct ls_dataset_view {
    union {
        const uint8_t *images;
        const float *values;
    };
    union {
        const int32_t *labels;
        const float *targets;
    };
    const uint32_t *row; /* row i of the dataset is row[i] of the arrays; NULL: it is row i */
    uint32_t rows;       /* number of rows in the arrays */
} ls_dataset_view;

/* Functions of a kind of dataset. All are mandatory except `view`. */
typedef struct ls_dataset_ops {
    size_t size; /* sizeof(ls_dataset_ops) */
    /* Copies `count` rows, in the order of `rows`. May be called on several threads at once. */
    int (*read)(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                void *targets, ls_error *err);
    /* Returns the rows in memory. NULL if the data is not resident. */
    ls_dataset_view (*view)(const ls_dataset *ds);
    void (*close)(ls_dataset *ds);
} ls_dataset_ops;

/* Base of every dataset structure. */
struct ls_dataset {
    const ls_dataset_ops *ops;
    ls_dataset_info info;
};

/* Requested form of the targets. */
typedef enum ls_label_form {
    LS_LABELS_AUTO,    /* classes if they are whole numbers, one for each row; else floats */
    LS_LABELS_CLASSES, /* classes; other targets are refused */
    LS_LABELS_VALUES   /* floats */
} ls_label_form;

/* Treatment of a NaN, or of an empty field of a table. */
typedef enum ls_missing {
    LS_MISSING_REFUSED,
    LS_MISSING_ZERO, /* is replaced by 0 */
    /* is replaced by the mean of its column over training rows that have a value */
    LS_MISSING_MEAN
} ls_missing;

/* Decimal separator of a table's numbers. */
typedef enum ls_decimal {
    LS_DECIMAL_AUTO, /* detected for each column from its numbers */
    LS_DECIMAL_POINT,
    LS_DECIMAL_COMMA
} ls_decimal;

/* A key's list of columns: a text, in which commas separate several names, or a JSON value. */
typedef struct ls_names {
    const char *text;  /* NULL: `list` is used */
    const cJSON *list; /* array of texts and numbers, or a single value; NULL: none */
} ls_names;
/* Position of the channels in rows of three dimensions. */
typedef enum ls_row_layout {
    LS_CHANNELS_FIRST, /* [channels][height][width] */
    LS_CHANNELS_LAST   /* [height][width][channels]; converted to channels first */
} ls_row_layout;

/* Keys of the configuration for the user's own data, such as data.x. An absent key is NULL or 0. */
typedef struct ls_data_keys {
    const char *x, *y, *test_x, *test_y; /* npy: file names; safetensors: tensor names */
    const char *test_path;               /* csv, folder: path of the test rows */
    ls_names target;                     /* csv: the column to learn */
    ls_names categorical, drop;          /* csv: columns */
    /* csv: ",", ";", "tab", "bar" or "space"; NULL: detect it */
    const char *separator;
    int decimal;        /* csv: an ls_decimal */
    int latin1;         /* csv: the text encoding is Windows-1252 */
    const char *packed; /* folder: file that contains the packed images */
    int classes;        /* 0: as many as the training rows have */
    int labels;         /* an ls_label_form */
    /* Not a key: the requested loss needs vectors, so LS_LABELS_AUTO takes no targets for classes.
     */
    int vectors;
    int missing;     /* an ls_missing */
    int standardize; /* csv: columns are scaled to (value − mean) / deviation */
    double clip;     /* csv: scaled columns are limited to −clip … clip; 0: they are not */
    int standardize_target;   /* table, array: so is a target of one number */
    int image_size, channels; /* folder: size and channels of the converted images */
    int skip_broken;          /* folder: skip images that cannot be read */
    int layout;               /* an ls_row_layout */
    double validation;        /* fraction of the training rows that is held out */
    /* Not a key: how a trained model reads rows (data/new_rows.h); nothing is learnt from the rows.
     * NULL: a training run. */
    const struct ls_new_rows *as;
    /* Not a key; csv only: columns of too many texts are left out instead of refused. Without a
     * target key, the target is the column with a customary name, such as "target" or "label", or
     * else the last column. */
    int lenient;
    int judged; /* not a key: held-out rows do not replace an existing test split */
} ls_data_keys;

/* Describes the dataset to open. The texts are read only during ls_dataset_open. */
typedef struct ls_dataset_spec {
    const char *name; /* name of the dataset: "fashion_mnist", "mnist", "cifar10", "synthetic" */
    const char *path; /* directory of the files; NULL: look through `search` */
    /* Directories to look through. Each is tried as DIR/fashion-mnist (or mnist,
     * cifar-10-batches-bin), as DIR/FashionMNIST/raw (or MNIST/raw, CIFAR10/cifar-10-batches-bin)
     * and as DIR itself. The library does not read the environment; its caller composes this
     * list. */
    const char *const *search;
    size_t search_count;
    /* Number of training rows to keep, from the first row on; 0: all. The test split is always
     * complete. */
    uint32_t limit;
    uint64_t seed; /* seed of synthetic data and of the choice of held-out rows */
    ls_data_keys keys;
    /* The images of the training split are not needed. A kind may leave them unread unless rows are
     * held out; they are then zeros and have no SHA-256. */
    bool labels_alone;
    /* The caller's own datasets, which `name` may refer to. They must outlive the opened
     * datasets. */
    const struct ls_data_source *const *sources;
    int source_count;
    /* Output: the configuration key that an LS_ECONFIG is about, such as "data.limit"; NULL: not
     * wanted. */
    const char **wrong;
} ls_dataset_spec;

/* Opens the training and the test split of the dataset that `spec` describes. The caller closes
 * both. With keys.validation, a fraction of the rows of each class is moved from the training split
 * to a validation split, on which a run is evaluated while it trains. It takes the place of the
 * test split (see keys.judged). The choice depends on the seed and the labels only.
 *
 * Errors: LS_ECONFIG (unknown name, limit greater than the data, path not a directory); LS_ENOENT
 * (files missing; the message lists the searched places); LS_EIO (unreadable); LS_EDATA (damaged,
 * with file and offset); LS_ENOMEM. Any thread. */
int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err);

/* Properties of a dataset that follow from its name alone. */
typedef struct ls_dataset_about {
    const char *name;
    int channels, height, width;
    int classes;
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    /* Additional keys of the configuration's `data`, separated by blanks: "target drop"; NULL:
     * none. */
    const char *keys;
} ls_dataset_about;

/* Finds the built-in dataset that `spec` names; *out points to static memory. Errors: LS_ECONFIG
 * (unknown name; the message lists the known names). Any thread. */
int ls_dataset_find(const ls_dataset_about **out, const ls_dataset_spec *spec, ls_error *err);

/* Checks that the dataset that `spec` names accepts the key `key` of the configuration's `data`,
 * such as "target", which only some kinds accept. Errors: LS_ECONFIG, with the kinds that accept
 * it. Any thread. */
int ls_dataset_check_key(const ls_dataset_spec *spec, const char *key, ls_error *err);

/* Returns the description of the dataset, which is valid until the dataset is closed. Any
 * thread. */
const ls_dataset_info *ls_dataset_describe(const ls_dataset *ds);

/* Returns the number of rows. Any thread. */
uint32_t ls_dataset_rows(const ls_dataset *ds);

/* Returns the number of steps in an epoch of `rows` rows, which is rows / batch_size rounded up.
 * Returns UINT32_MAX if `rows` is 0, because there are no epochs then. */
uint32_t ls_steps_per_epoch(uint32_t rows, uint32_t batch_size);

/* Returns the number of rows in minibatch `index` of `total` rows, divided into minibatches of
 * `batch_size` rows. */
uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index);

/* Return the size of one row's values, and of one row's target, in bytes. Any thread. */
size_t ls_dataset_image_bytes(const ls_dataset *ds);
size_t ls_dataset_target_bytes(const ls_dataset *ds);

/* Copies `count` rows, which may repeat.
 *
 * - rows: [count] row numbers
 * - images: output buffer, count × ls_dataset_image_bytes bytes
 * - targets: output buffer, count × ls_dataset_target_bytes bytes: int32_t [count] or float
 *   [count][info.targets]
 *
 * Errors: LS_EINVAL for a row number that does not exist, in which case nothing is written; errors
 * of the kind's read function. Any thread, several at once. */
int ls_dataset_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                    void *targets, ls_error *err);

/* Returns the rows in place, or NULL pointers if the data is not resident. Any thread. */
ls_dataset_view ls_dataset_resident(const ls_dataset *ds);

/* Replaces each of the `count` row numbers of the dataset by its row number in the view. */
void ls_dataset_places(const ls_dataset *ds, uint32_t *row, uint32_t count);

/* Converts targets of one number from the user's unit to what the network learns (prep/prep.h).
 * Applies to rows that were opened from a file; must be called before any other thread reads them.
 * `prep` NULL: no conversion. */
void ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep);

/* Closes the dataset. NULL is allowed. No thread may be reading it. */
void ls_dataset_close(ls_dataset *ds);

#endif
