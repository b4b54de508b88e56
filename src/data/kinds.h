/* The interface of a kind of dataset (MNIST, a table, a folder of images, …), and functions that
 * all kinds share: finding and reading files (files.c), and rows in memory (dataset.c). */
#ifndef DATA_KINDS_H
#define DATA_KINDS_H

#include "data/dataset.h"

typedef struct ls_dataset_kind ls_dataset_kind;

/* Arguments of an opening, passed to the functions that carry it out. */
typedef struct ls_opening {
    const ls_dataset_kind *kind;
    const ls_dataset_spec *spec;
    const ls_host *host;
    ls_error *err;
} ls_opening;

/* Opens the training and the test split; both are NULL on entry. After a failure the caller closes
 * a split that is open. */
typedef int (*ls_dataset_opener)(ls_dataset *split[2], const ls_opening *o);

/* A kind of dataset. For each row NAME of kinds.def there is a constant ls_dataset_NAME. */
struct ls_dataset_kind {
    ls_dataset_about about;
    ls_dataset_opener open;
    const void *detail; /* parameters of the opener for this dataset */
};

#define LS_DATASET(name) extern const ls_dataset_kind ls_dataset_##name;
#include "data/kinds.def"
#undef LS_DATASET

/* Opens a dataset of a kind that need not be in the table; otherwise like ls_dataset_open. */
int ls_dataset_open_kind(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                         const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

/* Returns the description of a split, as its kind says, with `rows` rows. spec->limit is applied to
 * the training split. */
ls_dataset_info ls_dataset_split(const ls_opening *o, int test, const char *source, uint32_t rows);

/* Fails with LS_ECONFIG and "KEY: message", and reports `key` in spec->wrong. */
int ls_dataset_refuse(const ls_opening *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Checks that spec->limit is at most `rows`, the number of training rows in `from`. Errors:
 * LS_ECONFIG. */
int ls_dataset_check_limit(const ls_opening *o, uint32_t rows, const char *from);

/* Returns whether `name` is one of the words of `list`, which `separator` separates. `list` may be
 * NULL. */
bool ls_is_listed(const char *list, char separator, const char *name);

/* ---- files: finding -------------------------------------------------------------------------- */

#define LS_FILES_MAX 6

/* The files of a dataset, and where they are looked for. */
typedef struct ls_file_set {
    const char *const *name; /* [count]; each may also have the suffix ".gz" */
    int count;               /* at most LS_FILES_MAX */
    const char *folders[2];  /* tried below each search directory, before the directory itself */
    const char *remedy; /* how to get the files, for messages: "install …"; NULL: not known */
} ls_file_set;

/* Paths of the files that were found, in the order of the names in ls_file_set. */
typedef struct ls_located {
    char *directory;
    char *file[LS_FILES_MAX];
} ls_located;

/* Looks for the files of a dataset. Each may be plain or have the suffix ".gz", may have a dot in
 * place of the dash before "idx", and may lie in a directory of its own name. With a path in the
 * spec, that directory and the usual folders below it are searched; else the search directories
 * are. The first directory that contains the first file of the set decides. The caller frees the
 * result with ls_located_free, also after a failure.
 *
 * Errors: LS_ENOENT, LS_ECONFIG (the path is a file), LS_ENOMEM. */
int ls_locate(ls_located *out, const ls_file_set *files, const ls_opening *o);

/* Frees the paths and zeroes *located. */
void ls_located_free(ls_located *located, const ls_host *host);

/* Returns the path of `file`: below the spec's path, unless `file` is absolute or there is no such
 * path. The caller frees it. Returns NULL if there is no memory. */
char *ls_data_path(const ls_opening *o, const char *file);

/* ---- files: reading -------------------------------------------------------------------------- */

/* Reads a plain or gzip file directly into the caller's memory.
 *
 * The content of a file, not its name, decides whether it is compressed. Every byte read is hashed
 * while it is still in the cache; for a long read, another thread hashes. Damage is always
 * detected: a stream that ends early, a wrong checksum, bytes after the end. One thread at a
 * time. */
typedef struct ls_byte_reader ls_byte_reader;

/* Opens a plain or gzip file. `path` is kept, not copied. Errors: LS_ENOENT (only if there is no
 * such file), LS_EIO, LS_EDATA (a directory, a device, an empty file), LS_ENOMEM. */
int ls_byte_reader_open(ls_byte_reader **out, const char *path, const ls_host *host, ls_error *err);

/* Reads the next `count` bytes into `out`. `what` describes them in messages: "expected `what`".
 * Errors: LS_EDATA (the file ends early or is damaged), LS_EIO, LS_ENOMEM. */
int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what,
                        ls_error *err);

/* Turns hashing off. Must be called before the first read. The SHA-256 that ls_byte_reader_end
 * returns is then that of no bytes. */
void ls_byte_reader_leave_hash(ls_byte_reader *r);

/* Reads at most `count` of the next bytes. *got is 0 at the end. Errors: LS_EDATA (damage), LS_EIO,
 * LS_ENOMEM. */
int ls_byte_reader_some(ls_byte_reader *r, void *out, size_t count, size_t *got, ls_error *err);

/* Reads and hashes `count` bytes, and discards them. Errors: those of ls_byte_reader_read. */
int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err);

/* Checks that the file ends here, and returns the SHA-256 of its decompressed bytes. Errors:
 * LS_EDATA (more bytes follow, or damage), LS_EIO. */
int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err);

/* Return the number of bytes read so far, and an upper bound of the number of decompressed bytes in
 * the file, computed from the file's size and the best ratio of deflate. A header that promises
 * more than the bound is wrong. */
uint64_t ls_byte_reader_offset(const ls_byte_reader *r);
uint64_t ls_byte_reader_bound(const ls_byte_reader *r);

/* Closes the reader. NULL is allowed. */
void ls_byte_reader_close(ls_byte_reader *r);

/* ---- rows in memory -------------------------------------------------------------------------- */

typedef struct ls_resident {
    ls_dataset base;
    const ls_host *host;
    char *source; /* memory of base.info.source */
    union {       /* [rows][channels][height][width]; base.info.dtype selects the member */
        uint8_t *images;
        float *values;
    };
    union { /* [rows] or [rows][targets]; base.info.targets selects the member */
        int32_t *labels;
        float *targets;
    };
    char **class_name;    /* memory of base.info.class_name */
    char *features;       /* memory of base.info.features */
    ls_prep *prep;        /* memory of base.info.prep */
    ls_column_seen *seen; /* memory of base.info.column */
    /* mapping of the file that contains the images; NULL: the host's memory contains them */
    void *map;
    size_t map_bytes;
} ls_resident;

/* Allocates zeroed memory for a dataset that `info` describes. `info->source` is copied; the other
 * texts must be static. The caller fills the rows, and closes the dataset with ls_dataset_close.
 * Errors: LS_ENOMEM. */
int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_opening *o);
/* Like ls_resident_create, for images at `images`. With `map`, they lie in a mapping of `map_bytes`
 * bytes, which is unmapped with the dataset; else they are host memory, which is freed with it.
 * After a failure the images still belong to the caller. */
int ls_resident_create_mapped(ls_resident **out, const ls_dataset_info *info, const void *images,
                              void *map, size_t map_bytes, const ls_opening *o);
/* Creates the test split of data that has none: like `train`, with 0 rows. Errors: LS_ENOMEM. */
int ls_dataset_none(ls_dataset **out, const ls_dataset_info *train, const ls_opening *o);
/* Copies the names of base.info.classes classes. Errors: LS_ENOMEM. */
int ls_resident_name_classes(ls_resident *resident, const char *const *name, ls_error *err);

/* Scales the targets of both splits if each target is one number: as keys.as says, or, with
 * keys.standardize_target, by the mean and deviation of the training rows, which are stored in
 * their preparation. Called after a kind's opener and before rows are held out. */
void ls_learn_targets(ls_dataset *split[2], const ls_opening *o);

/* Divides split[0] into a training and a validation split, as keys.validation says. The validation
 * split replaces split[1], which is closed, unless keys.judged is set and split[1] has rows. After
 * a failure both splits are unchanged. Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_hold_out(ls_dataset *split[2], const ls_opening *o);

/* ---- the kinds ------------------------------------------------------------------------------- */

/* An IDX dataset. Its files are train images, train labels, test images and test labels, in this
 * order. */
typedef struct ls_idx_detail {
    ls_file_set files;
    /* published SHA-256 of the four decompressed files; NULL: none is published */
    const char *const *published;
} ls_idx_detail;

/* Opener of IDX datasets, whose `detail` is an ls_idx_detail. */
int ls_idx_open(ls_dataset *split[2], const ls_opening *o);

/* A dataset in one of CIFAR's binary formats. The last file is the test split; the files before it
 * are the training split. */
typedef struct ls_cifar_detail {
    uint32_t records[2]; /* number of records in each training file, and in the test file */
    int labels;          /* number of label bytes before an image; the last of them is used */
    ls_file_set files;
} ls_cifar_detail;

/* Opener of CIFAR datasets, whose `detail` is an ls_cifar_detail. */
int ls_cifar_open(ls_dataset *split[2], const ls_opening *o);

#endif
