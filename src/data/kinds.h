/* SPDX-License-Identifier: MIT */
/* The interface of a kind of dataset (MNIST, a table, a folder of images, …), and functions that
 * all kinds share: finding and reading files (files.c), and rows in memory (dataset.c). dataset.h
 * defines row, target, split and preparation. */
#ifndef DATA_KINDS_H
#define DATA_KINDS_H

#include "data/dataset.h"

typedef struct ls_dataset_kind ls_dataset_kind;

/* The arguments of ls_dataset_open, which it passes to the functions that open the dataset. */
typedef struct ls_opening {
    const ls_dataset_kind *kind;
    const ls_dataset_spec *spec;
    const ls_host *host;
    ls_error *err;
} ls_opening;

/* Opens the training split, split[0], and the test split, split[1]. Both are NULL on entry. If the
 * function fails after it has opened a split, its caller closes that split. */
typedef int (*ls_dataset_opener)(ls_dataset *split[2], const ls_opening *o);

/* A kind of dataset. For each entry NAME of kinds.def there is a constant ls_dataset_NAME. */
struct ls_dataset_kind {
    ls_dataset_about about;
    ls_dataset_opener open;
    const void *detail; /* parameters of the opener for this dataset */
};

#define LS_DATASET(name) extern const ls_dataset_kind ls_dataset_##name;
#include "data/kinds.def"
#undef LS_DATASET

/* All kinds, in the order of kinds.def, followed by NULL. */
extern const ls_dataset_kind *const ls_dataset_kinds[];

/* Opens a dataset of the kind `kind`, which need not be in kinds.def. Otherwise does what
 * ls_dataset_open does. */
int ls_dataset_open_kind(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                         const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

/* Returns the description of the training split (`test` 0) or the test split (`test` 1). `rows`:
 * number of rows in the files of that split. Name, shape and classes are those of the kind. If
 * spec->limit is not 0, the training split has that number of rows instead of `rows`. `source` is
 * not copied. */
ls_dataset_info ls_dataset_split_info(const ls_opening *o, int test, const char *source,
                                      uint32_t rows);

/* Fails with LS_ECONFIG and the message "KEY: …", and stores `key` in *spec->wrong. */
int ls_dataset_refuse(const ls_opening *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Checks that spec->limit is at most `rows`, the number of training rows in `from`. Errors:
 * LS_ECONFIG. */
int ls_dataset_check_limit(const ls_opening *o, uint32_t rows, const char *from);

/* Returns whether `name` is one of the words of `list`. The character `separator` stands between
 * the words. `list` may be NULL. */
bool ls_is_listed(const char *list, char separator, const char *name);

/* ---- files: finding -------------------------------------------------------------------------- */

#define LS_FILES_MAX 6

/* The names of a dataset's files, and the folders in which the files are looked for. */
typedef struct ls_file_set {
    const char *const *name; /* [count]; each may also have the suffix ".gz" */
    int count;               /* at most LS_FILES_MAX */
    /* subfolders of each search directory, which are tried before the directory itself */
    const char *folders[2];
    /* how the user can get the files, for messages: "install …"; NULL: not known */
    const char *remedy;
} ls_file_set;

/* Paths of the files that were found, in the order of the names in ls_file_set. */
typedef struct ls_located {
    char *directory;
    char *file[LS_FILES_MAX];
} ls_located;

/* Looks for the files of a dataset. Each may be plain or have the suffix ".gz", may have a dot in
 * place of the dash before "idx", and may lie in a directory of its own name. If spec->path is
 * given, only that directory and the usual folders below it are searched. Otherwise the directories
 * of spec->search are searched. The search stops at the first directory that contains the first
 * file of the set, and fails if that directory lacks another file of the set. The caller frees the
 * result with ls_located_free, also after a failure.
 *
 * Errors: LS_ENOENT; LS_ECONFIG (spec->path is a file instead of a directory); LS_ENOMEM. */
int ls_locate(ls_located *out, const ls_file_set *files, const ls_opening *o);

/* Frees the paths and zeroes *located. */
void ls_located_free(ls_located *located, const ls_host *host);

/* Returns the path of `file`, which the caller frees: spec->path/file, or a copy of `file` if
 * `file` is absolute or spec->path is NULL. Returns NULL if there is no memory. */
char *ls_data_path(const ls_opening *o, const char *file);

/* ---- files: reading -------------------------------------------------------------------------- */

/* Reads a plain or gzip file directly into the caller's memory.
 *
 * The content of a file decides whether it is compressed. The reader computes the SHA-256 of the
 * decompressed bytes, during a long read on another thread. Damage to a gzip file, bytes after its
 * end included, is always detected. One thread at a time. */
typedef struct ls_byte_reader ls_byte_reader;

/* Opens a plain or gzip file. `path` is kept, not copied. Errors: LS_ENOENT (only if there is no
 * such file), LS_EIO, LS_EDATA (a directory, a device, an empty file), LS_ENOMEM. */
int ls_byte_reader_open(ls_byte_reader **out, const char *path, const ls_host *host, ls_error *err);

/* Reads the next `count` bytes into `out`. `what` describes them in messages: "expected `what`".
 * Errors: LS_EDATA (the file ends early or is damaged), LS_EIO, LS_ENOMEM. */
int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what,
                        ls_error *err);

/* Turns hashing off. Must be called before the first read. ls_byte_reader_end then returns the
 * SHA-256 of an empty text. */
void ls_byte_reader_disable_hash(ls_byte_reader *r);

/* Reads up to `count` bytes into `out` and stores their number in *got, which is 0 only at the end
 * of the file. Errors: LS_EDATA (damage), LS_EIO, LS_ENOMEM. */
int ls_byte_reader_some(ls_byte_reader *r, void *out, size_t count, size_t *got, ls_error *err);

/* Reads and hashes `count` bytes, and discards them. Errors: those of ls_byte_reader_read. */
int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err);

/* Checks that the file ends here, and returns the SHA-256 of its decompressed bytes. Errors:
 * LS_EDATA (more bytes follow, or damage), LS_EIO. */
int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err);

/* Returns the number of decompressed bytes that have been read. */
uint64_t ls_byte_reader_offset(const ls_byte_reader *r);
/* Returns an upper bound of the number of decompressed bytes in the whole file, computed from the
 * file's size and the best ratio of deflate. If the header of a data set promises more bytes than
 * this bound, the header is wrong. */
uint64_t ls_byte_reader_bound(const ls_byte_reader *r);

/* Closes the reader. NULL is allowed. */
void ls_byte_reader_close(ls_byte_reader *r);

/* ---- rows in memory -------------------------------------------------------------------------- */

/* A dataset whose rows are in memory. */
typedef struct ls_resident {
    ls_dataset base;
    const ls_host *host;
    char *source; /* owned text to which base.info.source points */
    union {       /* [rows][channels][height][width]; base.info.row_type selects the member */
        uint8_t *images;
        float *values;
    };
    union { /* [rows] or [rows][targets]; base.info.targets selects the member */
        int32_t *labels;
        float *targets;
    };
    float *weights; /* [rows], owned; NULL: all weights are 1 */
    /* [rows × targets]: the targets as doubles, while the dataset is opened; NULL: `targets` holds
     * them closely enough */
    double *exact;
    char **class_name;       /* owned array, base.info.class_name */
    char *features;          /* owned text, base.info.features */
    ls_prep *prep;           /* owned, base.info.prep */
    ls_unknown_rows unknown; /* owned, base.info.unknown */
    ls_column_summary *seen; /* owned array, base.info.column */
    uint32_t *line;          /* owned, [rows]: as in ls_dataset_view */
    char *file_names;        /* owned: the texts to which `file` points */
    const char **file;       /* owned array, [rows]: as in ls_dataset_view */
    /* mapping of the file in which `images` lies; NULL: `images` is memory from the host's
     * allocator */
    void *map;
    size_t map_bytes;
} ls_resident;

/* Creates a dataset with the description `info`, all of whose rows and targets are 0. The caller
 * fills them, and closes the dataset with ls_dataset_close. info->source is copied; the other texts
 * of `info` must be static. Errors: LS_ENOMEM. */
int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_opening *o);
/* Creates a dataset whose rows are already at `images`, and otherwise does what ls_resident_create
 * does. If `map` is given, the rows lie in a mapping of `map_bytes` bytes, which closing the
 * dataset unmaps; if not, in memory of the host's allocator, which it frees. After a failure the
 * rows still belong to the caller. */
int ls_resident_create_mapped(ls_resident **out, const ls_dataset_info *info, const void *images,
                              void *map, size_t map_bytes, const ls_opening *o);
/* Creates an empty test split for data without test rows. Its description is that of the training
 * split, `train`, with 0 rows. Errors: LS_ENOMEM. */
int ls_dataset_none(ls_dataset **out, const ls_dataset_info *train, const ls_opening *o);
/* Copies the names of base.info.classes classes. Errors: LS_ENOMEM. */
int ls_resident_name_classes(ls_resident *resident, const char *const *name, ls_error *err);

/* Copies the names of the image files of all rows from `bytes`: `count` bytes, in which each name
 * is followed by a zero byte. `from`: name of the file that has them, for messages. Errors:
 * LS_EDATA (there are more or fewer names than rows), LS_ENOMEM. */
int ls_resident_name_files(ls_resident *resident, const char *bytes, size_t count, const char *from,
                           ls_error *err);

/* Gives the dataset room for its targets as doubles, resident->exact. The caller fills these and
 * resident->targets. Errors: LS_ENOMEM. */
int ls_resident_take_exact(ls_resident *resident, ls_error *err);

/* Gives the rows weights, [rows], which are copied. NULL: all are 1. Errors: LS_ENOMEM. */
int ls_resident_take_weights(ls_resident *resident, const float *weights, ls_error *err);

/* Scales the targets of both splits to (target − mean) / deviation, each of several targets by its
 * own mean and deviation. Does nothing if a target is a class. In a training run, targets are
 * scaled only with keys.standardize_target; mean and deviation are then computed from the training
 * rows and stored in the preparation of split[0]. For a trained model (keys.input_format), mean and
 * deviation are those of the model's preparation. ls_dataset_open_kind calls it after the kind's
 * opener, and before it holds rows out for validation. Errors: LS_EDATA (a float does not hold a
 * target), LS_ENOMEM. */
int ls_scale_split_targets(ls_dataset *split[2], const ls_opening *o);

/* Moves the fraction keys.validation of the rows of split[0] to a validation split, which takes the
 * place of split[1], the test split. With keys.keep_test and a test split that has rows, split[1]
 * stays, and the validation rows are not used at all. After a failure both splits are unchanged.
 * Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_hold_out(ls_dataset *split[2], const ls_opening *o);

/* ---- the kinds ------------------------------------------------------------------------------- */

/* Parameters of an IDX dataset. Its files are training images, training labels, test images and
 * test labels, in this order. */
typedef struct ls_idx_detail {
    ls_file_set files;
    /* published SHA-256 of the four decompressed files; NULL: none is published */
    const char *const *published;
} ls_idx_detail;

/* Opener of IDX datasets, whose `detail` is an ls_idx_detail. */
int ls_idx_open(ls_dataset *split[2], const ls_opening *o);

/* Parameters of a dataset in one of CIFAR's binary formats. The last file is the test split; the
 * files before it are the training split. */
typedef struct ls_cifar_detail {
    uint32_t records[2]; /* number of records in each training file, and in the test file */
    int labels;          /* number of label bytes before an image; the last of them is used */
    ls_file_set files;
} ls_cifar_detail;

/* Opener of CIFAR datasets, whose `detail` is an ls_cifar_detail. */
int ls_cifar_open(ls_dataset *split[2], const ls_opening *o);

#endif
