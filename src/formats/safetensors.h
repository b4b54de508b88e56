/* SPDX-License-Identifier: MIT */
/* The safetensors file format: a JSON header followed by the data of named tensors.
 *
 * Source: the format's description in its reference implementation (8-byte little-endian header
 * length, JSON header with dtype, shape and data_offsets, then the data without gaps). */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "store/durable.h"
#include "json/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_TENSOR_RANK = 4 };

/* A tensor of floats: its name in the file and the location of its numbers. */
typedef struct ls_tensor_entry {
    const char *name; /* name without the set's prefix */
    int rank, dim[LS_TENSOR_RANK];
    size_t count;  /* product of dim */
    size_t offset; /* index of the tensor's first float in the set's array */
} ls_tensor_entry;

/* Tensors whose names have the same prefix. */
typedef struct ls_tensor_set {
    const char *prefix;
    const ls_tensor_entry *entry;
    int entries;
    const float *from; /* array to write from */
    float *to;         /* array to read into */
} ls_tensor_set;

/* Metadata of a file. Each field can be NULL: the file does not have that entry. */
typedef struct ls_tensor_notes {
    /* the state of a run, stored as "lockstep"; a file with a state has a checksum in any case */
    const char *state;
    bool checksum; /* the metadata begin with "sha256" (ls_tensor_file_write) */
    /* the description of the model, stored as "lockstep_model" (config/card.h) */
    const char *card;
    const char *steps; /* number of training steps, stored as "lockstep_steps"; NULL: not stored */
} ls_tensor_notes;

/* ---- writing -------------------------------------------------------------------------------- */

/* Writes the contents of a safetensors file with the tensors of all sets, as F32. The caller
 * opens the file before this call, and completes it afterwards (store/durable.h). The sets must
 * have different prefixes. If notes->checksum or notes->state is set, the header's metadata begin
 * with "sha256": the SHA-256 of the whole file as it is with zeros in place of these 64 digits.
 * Errors: LS_EIO, LS_ENOMEM. Any thread. */
int ls_tensor_file_write(ls_file_writer *w, const ls_tensor_set *sets, int count,
                         const ls_tensor_notes *notes, const ls_host *host, ls_error *err);

/* Computes the SHA-256 of the file that ls_tensor_file_write would write, as 64 hexadecimal digits
 * and a zero byte. Errors: those of ls_tensor_file_write, without writing. Any thread. */
int ls_tensor_file_sha256(char out[65], const ls_tensor_set *sets, int count,
                          const ls_tensor_notes *notes, const ls_host *host, ls_error *err);

/* Writes a tensor's entry of a header. Its shape is dim[rank], and its data begin at *at;
 * advances *at by `bytes`. */
void ls_safetensors_put_entry(ls_json_writer *w, const char *name, const char *dtype,
                              const int64_t *dim, int rank, uint64_t bytes, uint64_t *at);

/* Hashes `count` floats as they are stored in a file (little-endian). */
struct ls_sha256;
void ls_floats_hash(struct ls_sha256 *hash, const float *values, size_t count);
/* Computes the SHA-256 digest of `count` floats as they are stored in a file (little-endian).
 * `out`: 64 hexadecimal digits and a zero byte. */
void ls_floats_sha256(char out[65], const float *values, size_t count);

/* ---- reading -------------------------------------------------------------------------------- */

/* A file that is open for reading. When it is opened, its header is checked, and its checksum
 * (ls_tensor_notes), if it has one, is verified by reading the whole file. All functions below read
 * this opened file, also if another file has taken its place meanwhile. */
typedef struct ls_tensor_file ls_tensor_file;

/* Opens a file. Errors, after which *out is NULL: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA, with
 * file, offset and what was expected, if the file is damaged or not a safetensors file. Any thread.
 */
int ls_tensor_file_open(ls_tensor_file **out, const char *path, const ls_host *host, ls_error *err);
/* Closes the file. NULL is allowed. */
void ls_tensor_file_close(ls_tensor_file *file);

/* Returns the path with which the file was opened. */
const char *ls_tensor_file_path(const ls_tensor_file *file);

/* Return a text of the file's metadata (ls_tensor_notes), or NULL if the file does not have it. The
 * text is valid until the file is closed. */
const char *ls_tensor_file_state(const ls_tensor_file *file);
const char *ls_tensor_file_card(const ls_tensor_file *file);
const char *ls_tensor_file_steps(const ls_tensor_file *file);

/* Reads the set's tensors into set->to; F16 and BF16 are converted to F32. Some programs put a
 * prefix such as "module." or "_orig_mod." before all names. If all names of the file begin with
 * the same prefix, which ends with a dot, and the set has no prefix, the prefix in the file is
 * ignored, and a line in the log of `host` says so. Tensors that the set does not name are
 * ignored. Errors: LS_EIO; LS_EDATA with file, offset and what was expected; LS_ENOMEM. Any thread.
 */
int ls_tensor_file_load(const ls_tensor_set *set, const ls_tensor_file *file, ls_error *err);

/* Reads those tensors of the set that the file contains in the same shape. The other tensors of
 * the set stay unchanged. Logs a line for each tensor of the set that was not read, and for
 * each tensor of the file that was not used. Errors: those of ls_tensor_file_load, and LS_EDATA if
 * no tensor fits. */
int ls_tensor_file_load_fitting(const ls_tensor_set *set, const ls_tensor_file *file,
                                ls_error *err);

/* Reads a file that ls_tensor_file_write has written. The file must contain all tensors of all
 * sets, as F32, and no others. After a failure the contents of the arrays are undefined. Errors:
 * those of ls_tensor_file_load. */
int ls_tensor_file_load_sets(const ls_tensor_set *sets, int count, const ls_tensor_file *file,
                             ls_error *err);

/* Opens a file, copies its state to *state, and closes it. *state becomes NULL if the file has no
 * state; the caller frees it. Errors: those of ls_tensor_file_open. */
int ls_safetensors_state(char **state, const char *path, const ls_host *host, ls_error *err);

#endif
