/* SPDX-License-Identifier: MIT */
/* Datasets, used through a structure of function pointers (ls_dataset_ops).
 *
 *     ls_dataset *train, *test;
 *     ls_dataset_spec spec = {.name = "fashion_mnist", .search = dirs, .search_count = 2};
 *     int status = ls_dataset_open(&train, &test, &spec, host, &err);
 *     const ls_dataset_info *info = ls_dataset_describe(train);
 *     ls_dataset_read(train, rows, 256, pixels, labels, &err);
 *     ls_dataset_close(train);
 *     ls_dataset_close(test);
 *
 * Terms, which are used in the whole directory:
 *
 * - row: an array [channels][height][width] of bytes (0 … 255) or floats. The code calls rows
 *   "images" even if they come from a table.
 * - target: a class (an int32_t from 0 on, also called a label) or a vector of floats.
 * - split: a part of a data set: the training rows, the test rows or the validation rows. A run
 *   learns from the training split, and is evaluated on one of the other two. Validation rows are
 *   rows that were *held out*: taken from the training rows, and not trained on.
 * - resident: all rows are in memory.
 * - streamed: a row is read from the caller's own data source only when it is needed.
 * - preparation: how the user's rows were converted to the rows of the dataset (prep/prep.h).
 *
 * To add a kind of dataset, add a source file and an entry in kinds.def. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/unknown.h"
#include "hash/hash.h"
#include "prep/resize.h"

#include <lockstep/data_source.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_dataset ls_dataset;

/* Whether a built-in dataset's files have the SHA-256 that its makers published. */
typedef enum ls_payload {
    LS_PAYLOAD_UNKNOWN = 0, /* no SHA-256 is published for this name */
    LS_PAYLOAD_PUBLISHED = 1,
    LS_PAYLOAD_DIFFERS = 2 /* a warning has been logged */
} ls_payload;

enum {
    LS_FEATURES_TOLD = 4096,    /* limit of the number of values that info.features describes */
    LS_FEATURES_BYTES = 1 << 20 /* limit of the length of info.features in bytes */
};

/* How a column of a table is used. */
typedef enum ls_column_use {
    LS_COLUMN_NUMBER,
    LS_COLUMN_LEVELS, /* texts; each becomes a vector with one 1 */
    LS_COLUMN_DROPPED,
    LS_COLUMN_CLASS,  /* the target, which is a class */
    LS_COLUMN_VALUE,  /* the target, which is a number */
    LS_COLUMN_WEIGHT, /* the weights of the rows */
    LS_COLUMN_DATE    /* dates, which become numbers */
} ls_column_use;

/* Summary of a column of a training table. */
typedef struct ls_column_summary {
    const char *name;
    ls_column_use use;
    /* number of levels, the different texts in a column of texts or of classes; else 0 */
    int levels;
    int numeric; /* number of levels that are numbers */
    /* number of levels that can be read as numbers with a fraction: "1.5", "1,5", and also "1,500",
     * which means 1.5 or 1500 */
    int broken;
    bool named; /* the key data.categorical names the column */
    /* For a column that was left out because of its texts: what the first text looks like, such as
     * "a date" or "an amount of money"; NULL: it looks like none of the known kinds. */
    const char *looks_like;
    /* For a column that was left out because of its dates: what is wrong with them; else NULL. */
    const char *wrong_dates;
    /* All texts or numbers look like dates in a form that is not read, such as 05.01.23 or
     * 20230105: one of them. "": they do not. */
    char unread_date[24];
    const char *part[8]; /* [parts] names of the numbers that dates become, such as "year" */
    int parts;
    bool counts; /* the numbers increase by 1 from row to row, and are not years */
    /* the column says nothing: all its numbers are equal, missing ones aside; all rows have the
     * same text; or no row has a value */
    bool constant;
    double step; /* constant difference between successive rows; 0: it is not constant */
    /* number of rows of the table, and of those without a value */
    uint32_t rows, missing;
    double mean, deviation; /* statistics of numbers, in the unit of the file */
} ls_column_summary;

/* Description of a dataset, which is one split. */
typedef struct ls_dataset_info {
    const char *name;   /* name in the configuration: "fashion_mnist" */
    const char *split;  /* "train", "test", or "validation" */
    const char *source; /* source of the rows: a directory, or "generated from seed 1" */
    int channels;
    int height;
    int width;
    int classes;                   /* labels are 0 … classes − 1; 0 if targets are vectors */
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    /* Meaning of each value of a row, as JSON text: an array with one object for each value.
     * {"column": C, "is": T}: the value is 1 if the row's text in column C is T, else 0.
     * {"column": C, "part": P}: the value is a number into which the date in column C is taken
     * apart (prep/date.h), scaled as other numbers are. {"column": C}: the value is the number in
     * column C, or (number − mean) / deviation if the object also has "mean" and "deviation". NULL:
     * the meaning is unknown, or there are more than LS_FEATURES_TOLD values, or the text is longer
     * than LS_FEATURES_BYTES. */
    const char *features;
    /* Training data only: how the user's rows were converted to these rows; NULL: the rows are
     * unconverted. */
    const ls_prep *prep;
    /* Training data from a table only: [columns], in the order of the file; else NULL. */
    const ls_column_summary *column;
    int columns;
    int targets;          /* number of floats in a row's target; 0: the target is a class */
    ls_row_type row_type; /* type of a row's values */
    bool weighted;        /* each row has a weight (ls_dataset_view.weights) */
    /* Type of the values in the file before their conversion to floats, such as "i64"; NULL: the
     * values were not converted. */
    const char *stored;
    uint32_t rows; /* number of rows, at most the config's data.limit in the training split */
    /* number of rows of the table that are left out of the split, because the model does not know
     * a value of theirs (data.unknown) */
    uint32_t left_out;
    /* New rows without targets only: those among them that cannot be predicted. NULL: none. */
    const ls_unknown_rows *unknown;
    bool synthetic;     /* the data is generated; all output that names the data must say so */
    ls_payload payload; /* whether the files are those that the makers published */
    /* SHA-256 of the complete decompressed files, including headers and the rows that data.limit
     * leaves out; "" for generated data. If images and labels share files, images_sha256 covers all
     * files of the split, one after another, and labels_sha256 is "". */
    char images_sha256[LS_SHA256_HEX];
    char labels_sha256[LS_SHA256_HEX];
} ls_dataset_info;

/* Returns the name of a type of rows for messages, such as "LS_ROW_U8 (bytes)"; NULL if the number
 * is no type. */
const char *ls_row_type_name(ls_row_type type);

/* How several targets of a row are learnt, for messages about a table. */
#define LS_ONE_TARGET                                                                              \
    "a table has one target; save the rows and their targets as numbers in x.npy and y.npy "       \
    "(data.name \"npy\"), which may have several"

/* Which numbers are weights of rows, for messages: "expected " LS_ROW_WEIGHT. */
#define LS_ROW_WEIGHT "a weight: 0, or a number from 1e-9 to 1e9"
/* Returns whether a row may have this weight. */
bool ls_is_row_weight(double weight);

/* The arrays of a resident dataset. Rows are bytes, `images`, or floats, `values`, as info.row_type
 * says: [rows][channels][height][width]. Targets are classes, `labels` [rows], or vectors,
 * `targets` [rows][info.targets]. */
typedef struct ls_dataset_view {
    union {
        const uint8_t *images;
        const float *values;
    };
    union {
        const int32_t *labels;
        const float *targets;
    };
    const float *weights; /* [rows] weights of the rows, ≥ 0; NULL: all are 1 */
    /* [info.rows]: row i of the dataset is row row[i] of the arrays; NULL: row i of the dataset is
     * row i of the arrays */
    const uint32_t *row;
    uint32_t rows; /* number of rows in the arrays */
    /* [rows]: line of the table on which each row of the arrays begins, from 1; NULL: the rows are
     * not read from a table of new rows */
    const uint32_t *line;
    /* [rows]: image file of each row of the arrays; NULL: not known, or not images */
    const char *const *file;
} ls_dataset_view;

/* The functions by which a dataset is used. `view` may be NULL if the data is streamed; the others
 * are mandatory. */
typedef struct ls_dataset_ops {
    size_t size; /* sizeof(ls_dataset_ops) */
    /* Copies the `count` rows whose numbers are in `rows`, in that order. Several threads may call
     * it at once. */
    int (*read)(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                void *targets, ls_error *err);
    /* Returns the arrays of a resident dataset. */
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

/* Treatment of a missing value: a NaN in an array, or an empty field of a table. */
typedef enum ls_missing {
    LS_MISSING_REFUSED,
    LS_MISSING_ZERO, /* is replaced by 0 */
    /* is replaced by the mean of its column, computed over the training rows that have a value */
    LS_MISSING_MEAN
} ls_missing;

/* Decimal separator of a table's numbers. */
typedef enum ls_decimal {
    LS_DECIMAL_AUTO, /* detected for each column from its numbers */
    LS_DECIMAL_POINT,
    LS_DECIMAL_COMMA
} ls_decimal;

/* The columns that a key of the config names: a text with commas between the names, or a JSON
 * value. */
typedef struct ls_names {
    const char *text;  /* NULL: `list` is used */
    const cJSON *list; /* array of texts and numbers, or a single value; NULL: none */
} ls_names;

/* Position of the channels in rows of three dimensions. */
typedef enum ls_row_layout {
    LS_CHANNELS_FIRST, /* [channels][height][width] */
    LS_CHANNELS_LAST   /* [height][width][channels]; converted to channels first */
} ls_row_layout;

/* The keys below `data` in the config that describe the user's own data, such as data.x. A key that
 * the config does not have is NULL or 0. "csv:", "csv, folder:" and so on at the start of a comment
 * name the kinds of dataset to which the key applies. Each kind lists the keys that it accepts
 * (ls_dataset_about.keys). */
typedef struct ls_data_keys {
    /* npy: names of the files; safetensors: names of the tensors */
    const char *x, *y, *test_x, *test_y;
    const char *test_path;      /* csv, folder: path of the test rows */
    ls_names target;            /* csv: the column with the targets */
    const char *weight;         /* csv: the column with the weights of the rows; NULL: all are 1 */
    ls_names categorical, drop; /* csv: columns */
    /* csv: ",", ";", "tab", "bar" or "space"; NULL: it is detected */
    const char *separator;
    int decimal;        /* csv: an ls_decimal */
    int latin1;         /* csv: the text encoding is Windows-1252 */
    const char *packed; /* folder: file that contains the packed images */
    int classes;        /* number of classes; 0: as many as the training rows have */
    int labels;         /* an ls_label_form */
    /* Not a key; non-zero: the training loss of the config needs vectors. Then LS_LABELS_AUTO
     * chooses floats for all targets, even if they are whole numbers.
     */
    int vectors;
    int missing; /* an ls_missing */
    int unknown; /* csv: an ls_prep_unknown */
    /* csv: columns of numbers, elsewhere: channels of floats are scaled to (value − mean) /
     * deviation */
    int standardize;
    /* columns of tables, arrays and a program's own rows: scaled values are limited to
     * −clip … clip; 0: no limit */
    double clip;
    int standardize_target; /* targets that are values are scaled as well */
    /* Fixed scales: a number, or a list of one for each channel of a row, or for each target; NULL:
     * not set. `mean` and `std` are set only if they are lists of more than four numbers. (Shorter
     * ones are those of ls_gather.) */
    const cJSON *mean, *std, *target_mean, *target_std;
    int scale_rows;           /* largest number of streamed rows from which scales are learnt */
    int image_size, channels; /* folder: size and channels of the converted images */
    /* Folder: size to which pictures are resized, and the height and width of their centre that is
     * cut out; 0: not set. A width of 0 is that of a single number. */
    ls_prep_resize resize;
    int crop[2];
    const char *pictures; /* folder: name of values for these keys, `mean` and `std` */
    int skip_broken;      /* folder: skip images that cannot be read */
    int layout;           /* an ls_row_layout */
    double validation;    /* fraction of the training rows that is held out for validation */
    /* with `validation`, number of the fold that is held out, from 1 to 1 / validation; 0: the rows
     * with the lowest random numbers are */
    int fold;
    /* Not a key: how a trained model reads rows (data/new_rows.h). Levels, means and scales are
     * then those of the model; none is computed from these rows. NULL: a training run. */
    const struct ls_input_format *input_format;
    /* Not a key; csv; non-zero: the table is only inspected. A column with too many different texts
     * is left out (a training run refuses such a table). If no key names the target column, it is
     * the one with a customary name, such as "target" or "label"; if there is none, it is the last
     * column. */
    int lenient;
    /* not a key; non-zero, with `validation`: if there are test rows, they stay the second split,
     * and the held-out rows are not used, unless `fold` is set */
    int keep_test;
    int origins; /* not a key; folder; non-zero: the names of the image files are read as well */
} ls_data_keys;

/* Describes the dataset to open. The texts need not outlive the call of ls_dataset_open. */
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
    /* The caller needs only the labels of the training split. If no rows are held out for
     * validation, the opener can skip the images; these are then zeros and have no SHA-256. */
    bool labels_only;
    /* The caller's own data sources. If `name` is the name of one of them, its rows are used. The
     * sources must outlive the opened datasets. */
    const struct ls_data_source *const *sources;
    int source_count;
    /* Output: if the status is LS_ECONFIG, the key of the config that is wrong, such as
     * "data.limit". NULL: the caller does not need it. */
    const char **wrong;
} ls_dataset_spec;

/* Opens the training and the test split of the dataset that `spec` describes. The caller closes
 * both. With keys.validation, the given fraction of the rows of each class is moved from the
 * training split to a validation split, and *test is that validation split. With keys.keep_test as
 * well, *test is the test split if it has rows. Which rows are moved depends only on the seed and
 * the labels.
 *
 * Errors: LS_ECONFIG (unknown name, limit greater than the number of rows, path not a directory);
 * LS_ENOENT (files missing; the message lists the searched directories); LS_EIO (unreadable);
 * LS_EDATA (damaged, with file and offset); LS_ENOMEM. Any thread. */
int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err);

/* Source of the rows of a kind of dataset. Code that treats kinds differently decides by the form
 * and the other properties below, not by a kind's name. */
typedef enum ls_dataset_form {
    LS_DATA_OF_CALLER, /* a data source of the calling program, or a name that no kind has */
    LS_DATA_PUBLIC,    /* files of a public dataset, whose names are known */
    LS_DATA_GENERATED, /* no files */
    LS_DATA_ARRAYS,    /* .npy and .npz files */
    LS_DATA_TENSORS,   /* tensors in a safetensors file */
    LS_DATA_TABLE,
    LS_DATA_FOLDER /* a folder with a subfolder of images for each class */
} ls_dataset_form;

/* Properties of a dataset that follow from its name alone. */
typedef struct ls_dataset_about {
    const char *name;
    int channels, height, width;
    int classes;
    const char *const *class_name; /* [classes]; NULL: classes have no names but numbers */
    /* The keys below `data` in the config that this kind accepts and some other kind refuses,
     * separated by blanks: "target drop". NULL: none. */
    const char *keys;
    ls_dataset_form form;
} ls_dataset_about;

/* Finds the built-in dataset that `spec` names; *out points to static memory. Errors: LS_ECONFIG
 * (unknown name; the message lists the known names). Any thread. */
int ls_dataset_find(const ls_dataset_about **out, const ls_dataset_spec *spec, ls_error *err);

/* Returns the separator of fields that a value of data.separator names: one of the names above, or
 * the character itself. Returns 0 if there is none. Any thread. */
char ls_separator_of(const char *name);

/* Returns the form of the kind of dataset that is called `name`, which may be NULL. Any thread. */
ls_dataset_form ls_dataset_form_of(const char *name);

/* Checks that the dataset called spec->name accepts the key data.`key` of the config. For example,
 * only some kinds accept data.target. Errors: LS_ECONFIG; the message lists the kinds that accept
 * the key. Any thread. */
int ls_dataset_check_key(const ls_dataset_spec *spec, const char *key, ls_error *err);

/* Returns the description of the dataset, which is valid until the dataset is closed. Any
 * thread. */
const ls_dataset_info *ls_dataset_describe(const ls_dataset *ds);

/* Returns the number of rows. Any thread. */
uint32_t ls_dataset_rows(const ls_dataset *ds);

/* Returns the number of steps in an epoch of `rows` rows, which is rows / batch_size rounded up.
 * Returns UINT32_MAX if `rows` is 0, because there are no epochs then. */
uint32_t ls_steps_per_epoch(uint32_t rows, uint32_t batch_size);

/* Returns the number of rows in minibatch number `index`, from 0, if `total` rows are divided into
 * minibatches of `batch_size` rows. The last minibatch may have fewer. */
uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index);

/* Returns the size of one row in bytes. Any thread. */
size_t ls_dataset_image_bytes(const ls_dataset *ds);
/* Returns the size of a row's target in bytes. Any thread. */
size_t ls_dataset_target_bytes(const ls_dataset *ds);

/* Copies `count` rows, which may repeat.
 *
 * - rows: [count] row numbers
 * - images: output buffer, count × ls_dataset_image_bytes bytes
 * - targets: output buffer, count × ls_dataset_target_bytes bytes: int32_t [count] or float
 *   [count][info.targets]
 *
 * Errors: LS_EINVAL for a row number that does not exist, and then nothing is written; the errors
 * of a caller's data source. Any thread, several at once. */
int ls_dataset_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                    void *targets, ls_error *err);

/* Returns the arrays of a resident dataset, which are not copied; all pointers are NULL if the data
 * is streamed. Any thread. */
ls_dataset_view ls_dataset_resident(const ls_dataset *ds);

/* Returns whether all rows of a resident dataset are the same bytes. */
bool ls_dataset_rows_are_equal(const ls_dataset *ds);

/* Replaces each of the `count` row numbers of the dataset by the number that the row has in the
 * arrays of ls_dataset_resident. */
void ls_dataset_view_rows(const ls_dataset *ds, uint32_t *row, uint32_t count);

/* Converts targets that are values from the user's unit to the scaled values that the network
 * learns (ls_prep_target). Does nothing for classes. `ds` must be resident and not have been
 * divided by ls_hold_out. The caller must call it before any other thread reads the dataset. `prep`
 * NULL: no conversion. Errors: LS_EDATA (a float does not hold a target). */
int ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep, const ls_host *host,
                             ls_error *err);

/* Closes the dataset. NULL is allowed. No thread may be reading it. */
void ls_dataset_close(ls_dataset *ds);

#endif
