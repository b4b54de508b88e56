/* The kinds of datasets, for the table in dataset.c, and what they are made of: files that are found and
 * read (files.c), rows that lie in memory (dataset.c). */
#ifndef DATA_KINDS_H
#define DATA_KINDS_H

#include "data/dataset.h"

typedef struct ls_dataset_kind ls_dataset_kind;

/* What is opened, for the functions that do it. */
typedef struct ls_opening {
    const ls_dataset_kind *kind;
    const ls_dataset_spec *spec;
    const ls_host *host;
    ls_error *err;
} ls_opening;

/* Opens the training and the test split, NULL before. What a failure leaves open, its caller closes. */
typedef int (*ls_dataset_opener)(ls_dataset *split[2], const ls_opening *o);

/* A kind; kinds.def has a row for each, which stands for ls_dataset_NAME. */
struct ls_dataset_kind {
    ls_dataset_about about;
    ls_dataset_opener open;
    const void *detail; /* what the opener wants to know about this row */
};

#define LS_DATASET(name) extern const ls_dataset_kind ls_dataset_##name;
#include "data/kinds.def"
#undef LS_DATASET

/* ls_dataset_open for a kind that need not be in the table. */
int ls_dataset_open_kind(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                         const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

/* A split as its kind says it is, of `rows` rows, or so many training rows as spec->limit leaves. */
ls_dataset_info ls_dataset_split(const ls_opening *o, int test, const char *source, uint32_t rows);

/* What is wrong with a member of the spec: fails with LS_ECONFIG and "KEY: message". */
int ls_dataset_refuse(const ls_opening *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a limit beyond the `rows` training rows that `from` has. */
int ls_dataset_check_limit(const ls_opening *o, uint32_t rows, const char *from);

/* Is `name` one of the words between separators? `list` may be NULL. */
bool ls_is_listed(const char *list, char separator, const char *name);

/* ---- files: finding --------------------------------------------------------------------------- */

#define LS_FILES_MAX 6

/* The files of a dataset, and where they are expected. */
typedef struct ls_file_set {
    const char *const *name; /* each may also have ".gz" behind it */
    int count;               /* at most LS_FILES_MAX */
    const char *folders[2];  /* tried below each search directory, before the directory itself */
    const char *remedy;      /* how to get them, for messages: "install …"; or NULL */
} ls_file_set;

/* The paths, in the order of the set's names. */
typedef struct ls_located {
    char *directory;
    char *file[LS_FILES_MAX];
} ls_located;

/* Looks for the files, plain or with ".gz", with a dot for the dash before "idx", or in directories of their names: in
 * the spec's path and the folders below it when it is given, else below the search directories. The first directory with the set's first file decides. Free the result with
 * ls_located_free, also after a failure. Errors: LS_ENOENT, LS_ECONFIG (the path is a file),
 * LS_ENOMEM. */
int ls_locate(ls_located *out, const ls_file_set *files, const ls_opening *o);

void ls_located_free(ls_located *located, const ls_host *host);

/* `file`, below the spec's path unless it is absolute or there is none; the caller frees it. NULL: no memory. */
char *ls_data_path(const ls_opening *o, const char *file);

/* ---- files: reading --------------------------------------------------------------------------- */

/* The bytes of a file that may be compressed with gzip, straight into the caller's memory.
 *
 * Whether a file is compressed is told by its content, not by its name. Every byte read is
 * hashed on the way, while it is still in the cache. Damage is noticed wherever it is: a stream
 * that ends early, a wrong check sum, bytes after the end. One thread at a time. */
typedef struct ls_byte_reader ls_byte_reader;

/* Opens a plain or gzip file; `path` is kept, not copied. Errors: LS_ENOENT (no such file,
 * nothing else), LS_EIO, LS_EDATA (a directory, a device, an empty file), LS_ENOMEM. */
int ls_byte_reader_open(ls_byte_reader **out, const char *path, const ls_host *host, ls_error *err);

/* The next `count` bytes. Errors: LS_EDATA when the file ends before, `what` being what the
 * bytes are, as in "expected `what`", or is damaged; LS_EIO; LS_ENOMEM. */
int ls_byte_reader_read(ls_byte_reader *r, void *out, size_t count, const char *what,
                        ls_error *err);

/* Up to `count` of the next bytes; none: the end. Errors: LS_EDATA (damage), LS_EIO, LS_ENOMEM. */
int ls_byte_reader_some(ls_byte_reader *r, void *out, size_t count, size_t *got, ls_error *err);

/* Reads past `count` bytes, hashed all the same. Errors as ls_byte_reader_read. */
int ls_byte_reader_skip(ls_byte_reader *r, uint64_t count, const char *what, ls_error *err);

/* Checks that the file ends here, and gives the SHA-256 of its decompressed bytes. Errors:
 * LS_EDATA for bytes that follow; LS_EIO. */
int ls_byte_reader_end(ls_byte_reader *r, char sha256[LS_SHA256_HEX], ls_error *err);

/* Bytes read so far, and a bound on all bytes the file can hold (from its size, and deflate's
 * best ratio): what a header promises beyond it cannot be true. */
uint64_t ls_byte_reader_offset(const ls_byte_reader *r);
uint64_t ls_byte_reader_bound(const ls_byte_reader *r);

/* NULL is allowed. */
void ls_byte_reader_close(ls_byte_reader *r);

/* ---- rows in memory ---------------------------------------------------------------------------- */

typedef struct ls_resident {
    ls_dataset base;
    const ls_host *host;
    char *source; /* what base.info.source points to */
    union {       /* by base.info.dtype: [rows][channels][height][width] */
        uint8_t *images;
        float *values;
    };
    union { /* by base.info.targets: [rows], or [rows][targets] */
        int32_t *labels;
        float *targets;
    };
    char **class_name;    /* what base.info.class_name points to */
    char *features;       /* what base.info.features points to */
    ls_prep *prep;        /* what base.info.prep points to */
    ls_column_seen *seen; /* what base.info.column points to */
    void *map; /* of the file in which the images lie; NULL: they are the host's memory */
    size_t map_bytes;
} ls_resident;

/* Memory for a dataset as `info` describes it, zeroed; `info->source` is copied, the other texts
 * must be static. Filled by the caller, closed with ls_dataset_close. Errors: LS_ENOMEM. */
int ls_resident_create(ls_resident **out, const ls_dataset_info *info, const ls_opening *o);
/* The same for images that lie at `images` in a map, which is unmapped with the dataset. On failure the map
 * is still the caller's. */
int ls_resident_create_mapped(ls_resident **out, const ls_dataset_info *info, const void *images,
                              void *map, size_t map_bytes, const ls_opening *o);
/* The test split of data that has none: like `train`, without rows. Errors: LS_ENOMEM. */
int ls_dataset_none(ls_dataset **out, const ls_dataset_info *train, const ls_opening *o);
/* Copies the names of base.info.classes classes. Errors: LS_ENOMEM. */
int ls_resident_name_classes(ls_resident *resident, const char *const *name, ls_error *err);

/* Scales the targets of both splits, where each is one number: as keys.as says, or, where keys.standardize_target is set,
 * by the training rows, which it writes into their preparation. Behind a kind's opener, before rows are held out. */
void ls_learn_targets(ls_dataset *split[2], const ls_opening *o);

/* Divides split[0] as keys.validation says; split[1] is closed, or stands where keys.judged says so. On failure
 * both stand. Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_hold_out(ls_dataset *split[2], const ls_opening *o);

/* ---- the kinds --------------------------------------------------------------------------------- */

/* An IDX dataset: train images, train labels, test images, test labels. */
typedef struct ls_idx_detail {
    ls_file_set files;
    /* Published SHA-256 of the four decompressed files; NULL when there are none. */
    const char *const *published;
} ls_idx_detail;

int ls_idx_open(ls_dataset *split[2], const ls_opening *o);

/* A dataset in CIFAR's binary formats: the last file is the test split, those before it are the
 * training split. */
typedef struct ls_cifar_detail {
    uint32_t records[2]; /* in each training file; in the test file */
    int labels;          /* bytes of them before an image; the last one counts */
    ls_file_set files;
} ls_cifar_detail;

int ls_cifar_open(ls_dataset *split[2], const ls_opening *o);

#endif
