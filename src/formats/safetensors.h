/* The safetensors file format: named tensors behind a JSON header.
 * Source: the format's description in its reference implementation (8-byte little-endian header
 * length, JSON header with dtype, shape and data_offsets, then the data without gaps).
 */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "store/durable.h"
#include "json/writer.h"

#include <stddef.h>
#include <stdint.h>

enum { LS_TENSOR_RANK = 4 };

/* A tensor of floats: what a file calls it, and where its numbers lie. */
typedef struct ls_tensor_entry {
    const char *name; /* without the group's prefix */
    int rank, dim[LS_TENSOR_RANK];
    size_t count;  /* product of dim */
    size_t offset; /* of its first number among those of the group */
} ls_tensor_entry;

/* Tensors that have one prefix in front of their names. */
typedef struct ls_tensor_group {
    const char *prefix;
    const ls_tensor_entry *entry;
    int entries;
    const float *from; /* the numbers, for writing */
    float *to;         /* the same, for reading */
} ls_tensor_group;

/* What the metadata of a file say; NULL: nothing. */
typedef struct ls_tensor_notes {
    const char *state; /* "lockstep": with it, the file can prove that it is whole */
    const char *card;  /* "lockstep_model" */
} ls_tensor_notes;

/* ---- writing -------------------------------------------------------------------------------- */

/* Writes the groups, which have different prefixes, one after another as F32: the contents of a file, which the
 * caller opens and finishes. With notes->state the header's metadata begin with {"sha256": of the whole file with
 * zeros for these digits}. Errors: LS_EIO, LS_ENOMEM. Any thread. */
int ls_tensor_file_write(ls_file_writer *w, const ls_tensor_group *groups, int count,
                         const ls_tensor_notes *notes, const ls_host *host, ls_error *err);

/* Puts a tensor's entry into a header: its shape is dim[rank], its bytes begin at *at of the data, which is
 * moved behind them. */
void ls_safetensors_put_entry(ls_json_writer *w, const char *name, const char *dtype,
                              const int64_t *dim, int rank, uint64_t bytes, uint64_t *at);

/* SHA-256 over `count` floats as they lie in a file (little-endian), as 64 hexadecimal digits and a zero. */
void ls_floats_sha256(char out[65], const float *values, size_t count);

/* ---- reading -------------------------------------------------------------------------------- */

/* Reads the group's tensors (F32, or F16 and BF16 widened) to group->to. Where all names of the file begin with one text
 * up to a dot, such as "module." or "_orig_mod.", behind which names of the group's stand, and the group has no prefix, that
 * is taken off, as the host's log says. Tensors that the group does not name are ignored; a file that was written with a state is verified first. Errors: LS_ENOENT; LS_EIO; LS_EDATA with file,
 * offset, what was expected; LS_ENOMEM. Any thread. */
int ls_tensor_file_load(const ls_tensor_group *group, const char *path, const ls_host *host,
                        ls_error *err);

/* Reads those tensors of the group that the file has in the same shape, and leaves the others' numbers alone; the
 * host's log has a line for each that was not taken, and for each of the file that was not used. Errors: as above,
 * and LS_EDATA when none fits. */
int ls_tensor_file_load_fitting(const ls_tensor_group *group, const char *path, const ls_host *host,
                                ls_error *err);

/* Reads back what ls_tensor_file_write wrote: all tensors of all groups must be there, as F32, and no others. What
 * the numbers are after a failure is undefined. Errors: as for ls_tensor_file_load. */
int ls_tensor_file_load_groups(const ls_tensor_group *groups, int count, const char *path,
                               const ls_host *host, ls_error *err);

/* The state of a file that was written with one, which the caller frees, after its hash was verified;
 * NULL for any other safetensors file. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA, with file, offset
 * and what was expected, when the file is damaged or no safetensors file. */
int ls_safetensors_state(char **state, const char *path, const ls_host *host, ls_error *err);

/* The card of the model that the file's weights are of, which the caller frees; NULL where it has none. A
 * file with a state is verified first. Errors: as above. */
int ls_safetensors_card(char **card, const char *path, const ls_host *host, ls_error *err);

#endif
