/* The kinds of datasets, for the table in dataset.c. */
#ifndef DATA_KINDS_H
#define DATA_KINDS_H

#include "data/dataset.h"

typedef struct ls_dataset_kind ls_dataset_kind;

/* As ls_dataset_open. On failure nothing is left open and *train and *test are NULL. */
typedef int (*ls_dataset_opener)(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                                 const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

/* A kind; kinds.def has a row for each, which stands for ls_dataset_NAME. */
struct ls_dataset_kind {
    ls_dataset_about about;
    ls_dataset_opener open;
    const void *detail; /* what the opener wants to know about this row */
};

#define LS_DATASET(name) extern const ls_dataset_kind ls_dataset_##name;
#include "data/kinds.def"
#undef LS_DATASET

#define LS_FILES_MAX 6

/* The files of a dataset, and where they are expected. */
typedef struct ls_file_set {
    const char *const *name; /* each may also have ".gz" behind it */
    int count;               /* at most LS_FILES_MAX */
    const char *folders[2];  /* tried below each search directory, before the directory itself */
    const char *remedy;      /* how to get them, for messages: "install …"; or NULL */
} ls_file_set;

/* An IDX dataset: train images, train labels, test images, test labels. */
typedef struct ls_idx_detail {
    ls_file_set files;
    /* Published SHA-256 of the four decompressed files; NULL when there are none. */
    const char *const *published;
} ls_idx_detail;

int ls_idx_open(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

/* A dataset in CIFAR-10's binary format: the last file is the test split, those before it are the
 * training split. */
typedef struct ls_cifar_detail {
    uint32_t records; /* in each file */
    ls_file_set files;
} ls_cifar_detail;

int ls_cifar_open(ls_dataset **train, ls_dataset **test, const ls_dataset_kind *kind,
                  const ls_dataset_spec *spec, const ls_host *host, ls_error *err);

#endif
