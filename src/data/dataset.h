/* Datasets: rows of bytes or floats, with a class or a vector each, behind one table of functions.
 *
 *     ls_dataset *train, *test;
 *     ls_dataset_spec spec = {.name = "fashion_mnist", .search = dirs, .search_count = 2};
 *     int status = ls_dataset_open(&train, &test, &spec, host, &err);
 *     const ls_dataset_info *info = ls_dataset_describe(train);
 *     ls_dataset_read(train, rows, 256, pixels, labels, &err);
 *     ls_dataset_close(train);
 *     ls_dataset_close(test);
 *
 * A row is [channels][height][width], bytes (0 … 255) or floats; its target is its class, an int32_t, or
 * a vector of floats. A new kind of dataset is one file and one row in kinds.def.
 */
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

/* How a payload compares with the published one. */
typedef enum ls_payload {
    LS_PAYLOAD_UNKNOWN = 0, /* none is published under this name */
    LS_PAYLOAD_PUBLISHED = 1,
    LS_PAYLOAD_DIFFERS = 2 /* also logged as a warning */
} ls_payload;

enum { LS_FEATURES_TOLD = 4096, LS_FEATURES_BYTES = 1 << 20 /* the most of their text */ };

/* A column of a table, as it was read. */
typedef enum ls_column_use {
    LS_COLUMN_NUMBER,
    LS_COLUMN_LEVELS, /* texts, one-hot */
    LS_COLUMN_DROPPED,
    LS_COLUMN_CLASS, /* the target: a class, */
    LS_COLUMN_VALUE  /* or a value */
} ls_column_use;

typedef struct ls_column_seen {
    const char *name;
    ls_column_use use;
    int levels;  /* different texts, of columns of texts and of classes; else 0 */
    int numeric; /* of these, how many are numbers, */
    int broken;  /* and how many have a fraction, or may have: 1.5, 1,5 and 1,500 */
    bool named;  /* data.categorical has named it */
    const char *
        is; /* left out: "a date", "an amount of money", … that its first text is; NULL: nothing like that */
    bool counts; /* it goes up by one from row to row */
    double step; /* by which it goes up or down evenly from row to row; 0: it does not */
    uint32_t missing;
    double mean, deviation; /* of numbers and values, as they are in the file */
} ls_column_seen;

typedef struct ls_dataset_info {
    const char *name;   /* as in the configuration: "fashion_mnist" */
    const char *split;  /* "train", "test", or "validation" */
    const char *source; /* where it came from: a directory, or "generated from seed 1" */
    int channels;
    int height;
    int width;
    int classes;                   /* labels are 0 … classes − 1; 0 where targets are vectors */
    const char *const *class_name; /* [classes]; NULL: they have none but their numbers */
    /* What the values of a row are made of, a JSON array of an object each: {"column": TEXT, "is": TEXT}, 1 or 0, or
     * {"column": TEXT}, a number, with "mean" and "deviation" where it is (value − mean) / deviation. NULL: not
     * known, more than LS_FEATURES_TOLD, or longer than LS_FEATURES_BYTES. */
    const char *features;
    /* Of training data: how the user's rows became these; NULL: they are as they were. */
    const ls_prep *prep;
    /* Of training data from a table: its columns, in their order; NULL: there are none. */
    const ls_column_seen *column;
    int columns;
    int targets;       /* floats of a row's target; 0: it is a class */
    ls_row_type dtype; /* of a row's values */
    const char *
        stored; /* what the values were in the file before they became floats: "i64"; NULL: the same */
    uint32_t rows;  /* after `limit` */
    bool synthetic; /* not real data, and every output must say so */
    ls_payload payload;
    /* Of the whole decompressed files, header included and whatever the limit; "" if generated.
     * Where images and labels share files: images_sha256 of all the split's files one after
     * another, labels_sha256 "". */
    char images_sha256[LS_SHA256_HEX];
    char labels_sha256[LS_SHA256_HEX];
} ls_dataset_info;

/* All rows, one after another, in memory: images or values [rows][channels][height][width] by the dtype,
 * labels [rows] or targets [rows][targets]. */
typedef struct ls_dataset_view {
    union {
        const uint8_t *images;
        const float *values;
    };
    union {
        const int32_t *labels;
        const float *targets;
    };
    const uint32_t *row; /* row i of the dataset is number row[i] of these; NULL: number i */
    uint32_t rows;       /* of these */
} ls_dataset_view;

/* All slots are mandatory but `view`. */
typedef struct ls_dataset_ops {
    size_t size; /* sizeof(ls_dataset_ops) */
    /* Copies `count` rows, in the order of `rows`; called by several threads at once. */
    int (*read)(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                void *targets, ls_error *err);
    /* Optional: NULL for data that is not resident. */
    ls_dataset_view (*view)(const ls_dataset *ds);
    void (*close)(ls_dataset *ds);
} ls_dataset_ops;

/* The start of every dataset structure. */
struct ls_dataset {
    const ls_dataset_ops *ops;
    ls_dataset_info info;
};

/* What targets are to be. */
typedef enum ls_label_form {
    LS_LABELS_AUTO,    /* classes where they are whole numbers, one for each row; else values */
    LS_LABELS_CLASSES, /* classes, or refused */
    LS_LABELS_VALUES   /* floats */
} ls_label_form;

/* What becomes of a NaN, or of an empty field of a table. */
typedef enum ls_missing {
    LS_MISSING_REFUSED,
    LS_MISSING_ZERO, /* becomes 0 */
    LS_MISSING_MEAN  /* becomes the mean of its column over the training rows that have one */
} ls_missing;

/* The decimal mark of a table's numbers. */
typedef enum ls_decimal {
    LS_DECIMAL_AUTO, /* as each column's numbers tell */
    LS_DECIMAL_POINT,
    LS_DECIMAL_COMMA
} ls_decimal;

/* Columns that a key names: one text, in which commas may stand between several, or a list, or a number. */
typedef struct ls_names {
    const char *text;  /* NULL: see list */
    const cJSON *list; /* an array of texts and numbers, or a number; NULL: none */
} ls_names;
/* Where the channels of rows of three dimensions are. */
typedef enum ls_row_layout {
    LS_CHANNELS_FIRST, /* [channels][height][width] */
    LS_CHANNELS_LAST   /* [height][width][channels], which becomes the other */
} ls_row_layout;

/* Keys of the config for data of the user's own: `data.x` and so on. What is absent is NULL or 0. */
typedef struct ls_data_keys {
    const char *x, *y, *test_x, *test_y; /* npy: files; safetensors: names of tensors */
    const char *test_path;               /* csv, folder: where test rows are */
    ls_names target;                     /* csv: the column that is to be learned */
    ls_names categorical, drop;          /* csv: columns */
    const char *separator;               /* csv: ",", ";", "tab", "bar" or "space"; NULL: found */
    int decimal;                         /* csv: an ls_decimal */
    int latin1;                          /* csv: its texts are Windows-1252 */
    const char *packed;                  /* folder: the file it was packed to */
    int classes;                         /* 0: as many as the training rows have */
    int labels;                          /* an ls_label_form */
    int vectors; /* no key: the loss that was asked for wants vectors, so that "auto" finds no classes in them */
    int missing;              /* an ls_missing */
    int standardize;          /* csv: columns become (value − mean) / deviation */
    int standardize_target;   /* of a table or an array, so does a target of one number */
    int image_size, channels; /* folder: what its images become */
    int skip_broken;          /* folder: images that cannot be read are left out */
    int layout;               /* an ls_row_layout */
    double validation;        /* share of the training rows that is held out */
    const struct ls_new_rows
        *as; /* no key: how a model reads rows (data/new_rows.h): nothing is learnt from these */
    int lenient; /* no key: csv: columns of too many texts are left out, where they would be refused; without a target,
                    the column is taken that is called like one, or else the last */
    int judged;  /* no key: rows that are held out are not the test split where there is another */
} ls_data_keys;

/* What to open. Texts are only read during ls_dataset_open. */
typedef struct ls_dataset_spec {
    const char *name; /* a row of the table: "fashion_mnist", "mnist", "cifar10", "synthetic" */
    const char *path; /* the directory that holds the files; NULL: look through `search` */
    /* Directories, each tried as DIR/fashion-mnist (or mnist, cifar-10-batches-bin), as
     * DIR/FashionMNIST/raw (or MNIST/raw, CIFAR10/cifar-10-batches-bin) and as DIR itself. The
     * library does not look at the environment; its caller composes this. */
    const char *const *search;
    size_t search_count;
    uint32_t limit; /* keep the first so many training rows; 0: all. The test split is whole. */
    uint64_t seed;  /* of synthetic data, and of the rows that are held out */
    ls_data_keys keys;
    /* The images of the training split are not asked for: where nothing is held out, a kind may leave them unread.
     * They are zeros then, without a SHA-256. */
    bool labels_alone;
    /* The caller's own, which the name may also be one of; they outlive the datasets. */
    const struct ls_data_source *const *sources;
    int source_count;
    /* Where the config's key goes that an LS_ECONFIG is about, such as "data.limit"; NULL: nowhere. */
    const char **wrong;
} ls_dataset_spec;

/* Opens the training and the test split. Both belong to the caller. With keys.validation, a share of each
 * class, drawn from seed and labels alone, is not the training split's but the test split, in place of any
 * other: what a run looks at while it trains. Errors: LS_ECONFIG (unknown
 * name, limit beyond the data, path not a directory); LS_ENOENT (files missing; the message
 * lists where they were looked for); LS_EIO (unreadable); LS_EDATA (damaged, with file and
 * offset); LS_ENOMEM. Any thread. */
int ls_dataset_open(ls_dataset **train, ls_dataset **test, const ls_dataset_spec *spec,
                    const ls_host *host, ls_error *err);

/* What is known of a dataset by its name alone. */
typedef struct ls_dataset_about {
    const char *name;
    int channels, height, width;
    int classes;
    const char *const *class_name; /* one for each class; NULL: their numbers */
    const char
        *keys; /* of the config's data, beside those that all have: "target drop"; NULL: none */
} ls_dataset_about;

/* Of the dataset that `spec` names, which is none of the caller's own. Static. Errors: LS_ECONFIG (there is
 * none; the message names those there are). */
int ls_dataset_find(const ls_dataset_about **out, const ls_dataset_spec *spec, ls_error *err);

/* Refuses a key of the config's data, such as "target", that some kinds have, but not the one that `spec` names.
 * Errors: LS_ECONFIG, with the kinds that have it. */
int ls_dataset_check_key(const ls_dataset_spec *spec, const char *key, ls_error *err);

/* Lives as long as the dataset. Any thread. */
const ls_dataset_info *ls_dataset_describe(const ls_dataset *ds);

/* How many rows it has. Any thread. */
uint32_t ls_dataset_rows(const ls_dataset *ds);

/* Minibatches of at most `batch_size` rows that `rows` rows make: the steps of an epoch. UINT32_MAX where there are no
 * rows, and so no epochs. */
uint32_t ls_steps_per_epoch(uint32_t rows, uint32_t batch_size);

/* Rows of minibatch `index` of `total` rows cut into minibatches of `batch_size`. */
uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index);

/* Bytes of one row's values, and of its target. Any thread. */
size_t ls_dataset_image_bytes(const ls_dataset *ds);
size_t ls_dataset_target_bytes(const ls_dataset *ds);

/* Copies rows: `images` takes count × ls_dataset_image_bytes, `targets` count × ls_dataset_target_bytes:
 * int32_t [count], or float [count][info.targets]. Rows may
 * repeat. Errors: LS_EINVAL for a row that does not exist; nothing is written then. Any thread,
 * also several at once. */
int ls_dataset_read(const ls_dataset *ds, const uint32_t *rows, uint32_t count, void *images,
                    void *targets, ls_error *err);

/* All rows in place, or NULLs when the data is not resident. Any thread. */
ls_dataset_view ls_dataset_resident(const ls_dataset *ds);

/* Where rows of the dataset are in its view: of each of the `count` numbers, in place. */
void ls_dataset_places(const ls_dataset *ds, uint32_t *row, uint32_t count);

/* Targets of one number, as they are in the user's file → what the network learns (prep/prep.h). Of rows that were opened
 * from a file, and before any thread reads them. `prep` NULL: they stay. */
void ls_dataset_scale_targets(ls_dataset *ds, const ls_prep *prep);

/* NULL is allowed. No thread may be reading. */
void ls_dataset_close(ls_dataset *ds);

#endif
