/* SPDX-License-Identifier: MIT */
/* Common parts of the campaign of corrupted inputs.
 *
 * A family is a few valid files that are read together. Each file is truncated at each byte and has
 * each bit flipped, one change at a time, and the family is read again. The result must be one of
 * these:
 *
 *   refused   an error that names the file and the place (offset, or line and column)
 *   same      the data read is, byte for byte, that of the unchanged files: the change affected
 *             something without a meaning
 *   payload   the data read differs exactly as the change says: in the flipped bit of a pixel, a
 *             label or a weight, or in the one value of a text whose characters were changed. A
 *             reader cannot detect that, because such bytes have no redundancy; SHA-256s that are
 *             stored must differ.
 *
 * Anything else is a violation. */
#ifndef TESTS_CAMPAIGNS_CORRUPT_H
#define TESTS_CAMPAIGNS_CORRUPT_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

/* A buffer that grows. */
typedef struct blob {
    uint8_t *data;
    size_t size;
    size_t capacity;
} blob;

void blob_add(blob *b, const void *bytes, size_t count);
void blob_add_text(blob *b, const char *text); /* with its terminating NUL */

/* A file of a family. */
typedef struct subject {
    char path[128];   /* path under which readers find it */
    const char *name; /* text that a message must contain; NULL: the path */
    int fd;           /* descriptor for writing; −1: the family reads `bytes` itself */
    uint8_t *bytes;   /* present content, allocated with exactly `size` bytes */
    size_t size;
} subject;

enum { FAMILY_FILES = 4 };

/* A change: bit 0 … 7 of a byte is flipped, or (bit −1) the file is truncated before it. */
typedef struct change {
    int file;
    size_t byte;
    int bit;
} change;

typedef struct family {
    const char *name;
    /* Creates the files. `scale` is 1, or more for the long form. */
    void (*make)(struct family *f, unsigned scale);
    /* Reads the files, and appends the data to be compared to `out`. */
    int (*read)(const struct family *f, blob *out, ls_error *err);
    /* Returns whether `now` differs from `before` exactly as the change says. */
    int (*explains)(const struct family *f, const change *c, const blob *before, const blob *now);
    /* Returns whether a message names the place. NULL: it must contain "FILE:LINE:COLUMN:", "byte
     * N" or "offset N", or say that the file is empty. */
    int (*names_place)(const char *text, const subject *s);
    /* Removes files that `make` created elsewhere. NULL: there are none. */
    void (*finish)(struct family *f);
    int files;
    subject file[FAMILY_FILES];
    /* Counts of results. */
    unsigned long mutants, refused, same, payload, violations;
} family;

extern family corrupt_idx, corrupt_idx_gzip, corrupt_cifar, corrupt_cifar_gzip;
extern family corrupt_config, corrupt_model, corrupt_safetensors, corrupt_checkpoint;

/* A host whose allocator counts the memory in use. */
extern const ls_host corrupt_host;

/* ---- creating files ---- */

void must(int done, const char *what); /* ends the program unless `done` */

/* Creates a file in memory with the content; `s->path` is where readers find it. */
void subject_in_memory(subject *s, const blob *content);
/* The same for an existing file that is changed in place. */
void subject_on_disk(subject *s, const char *path);

void random_bytes(uint8_t *out, size_t count, uint64_t seed);
void put_big_endian(blob *b, uint32_t value);
void compress_blob(blob *out, const blob *in);

#endif
