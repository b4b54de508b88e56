/* Arrays of numbers in files, mapped: .npy and .npz, and tensors of safetensors files. */
#ifndef FORMATS_ARRAYS_H
#define FORMATS_ARRAYS_H

#include "json/json.h"

#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_ARRAY_RANK = 4 };

typedef enum ls_array_type {
    LS_ARRAY_U8,
    LS_ARRAY_BOOL, /* bytes; what is not 0 is 1 */
    LS_ARRAY_I8,
    LS_ARRAY_U16,
    LS_ARRAY_I16,
    LS_ARRAY_U32,
    LS_ARRAY_I32,
    LS_ARRAY_U64,
    LS_ARRAY_I64,
    LS_ARRAY_F16,
    LS_ARRAY_BF16, /* the upper half of a float */
    LS_ARRAY_F32,
    LS_ARRAY_F64
} ls_array_type;

/* Numbers, row-major, mapped from a file. The file must not change meanwhile. */
typedef struct ls_array {
    const char *path; /* the caller's */
    ls_array_type type;
    bool big_endian;
    int rank;
    uint64_t dim[LS_ARRAY_RANK]; /* none is 0 */
    const uint8_t *data;
    void *map; /* the file, if this array is all of it; else NULL */
    size_t map_bytes;
} ls_array;

/* Maps a whole file that is not empty, privately: filling a hole in it changes nothing on the disk. `what` as
 * for ls_open_to_read. Errors: LS_ENOENT, LS_EIO, LS_EDATA, LS_ENOMEM. */
int ls_file_map(ls_array *a, const char *path, const char *what, ls_error *err);

/* Maps an array: an .npy file, or one that lies in an .npz file, "FILE.npz/NAME". Of "FILE.npz" it is the first of `names`,
 * which end with NULL, that is there; where one of them is "", also the only one. A deflated array is unpacked into memory.
 * Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA with file and offset; LS_EUNSUPPORTED (a member that is encrypted, or
 * compressed otherwise). */
int ls_array_open(ls_array *a, const char *path, const char *const *names, ls_error *err);
/* The same, of `count` bytes in memory, which messages call `name`; both outlive the array, which is closed. */
int ls_array_read(ls_array *a, const char *name, const void *bytes, size_t count,
                  const char *const *names, ls_error *err);
bool ls_array_is_npy(const void *bytes, size_t count);
bool ls_array_is_npz(const void *bytes, size_t count);
/* Whether `path` is called like an .npz file, and if so, whether it is one with an array of one of these names. */
bool ls_path_is_npz(const char *path);
bool ls_array_is_there(const char *path, const char *const *names);
void ls_array_close(ls_array *array);

/* What arrays are called in .npz files, where nothing else says so: of the rows, and of their targets. */
extern const char *const ls_names_of_rows[],
    *const ls_names_of_targets[], *const ls_names_of_test_rows[], *const ls_names_of_test_targets[];

/* ---- inside: formats in memory; a->path is set, and a->map may be what they lie in (npz.c) --------- */

int ls_array_parse_npy(ls_array *a, const void *bytes, size_t count, ls_error *err);
int ls_array_parse_npz(ls_array *a, const void *bytes, size_t count, const char *const *names,
                       ls_error *err);
bool ls_npz_has(const void *bytes, size_t count, const char *const *names);

/* A safetensors file, mapped. */
typedef struct ls_tensors {
    ls_array file;
    ls_json *header;
    size_t data; /* where tensors begin */
} ls_tensors;

/* Errors as above. */
int ls_tensors_open(ls_tensors *out, const char *path, const ls_host *host, ls_error *err);
void ls_tensors_close(ls_tensors *tensors);
/* One tensor, in the map of `t`. Errors: LS_EDATA. */
int ls_tensors_find(ls_array *a, const ls_tensors *t, const char *name, ls_error *err);
bool ls_tensors_has(const ls_tensors *tensors, const char *name);
/* A text of the header's metadata, or NULL. */
const char *ls_tensors_note(const ls_tensors *tensors, const char *key);

/* What the numbers are called: "u8", "f32". Static. */
const char *ls_array_type_name(ls_array_type type);

/* Numbers of one row; the number `i` of all; whether they are bytes, whole numbers, or can be used where they
 * lie. */
size_t ls_array_row(const ls_array *array);
/* Channels, height and width of a row of [features], [height][width] or [channels][height][width]; or where `last` is set,
 * of [height][width][channels]. */
void ls_array_sides(uint64_t side[3], const ls_array *array, bool last);
/* Where number `i` of rows of [channels][height][width] is in an array of [rows][height][width][channels]. */
size_t ls_array_last_place(const ls_array *array, size_t i);
double ls_array_number(const ls_array *array, size_t i);
bool ls_array_of_bytes(const ls_array *array);
bool ls_array_is_whole(const ls_array *array);
bool ls_array_in_place(const ls_array *array);

#endif
