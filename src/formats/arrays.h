/* SPDX-License-Identifier: MIT */
/* Arrays of numbers in mapped files: .npy and .npz files, and tensors of safetensors files. */
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
    LS_ARRAY_BOOL, /* one byte for each element; any value but 0 is read as 1 */
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
    LS_ARRAY_F64,
    LS_ARRAY_TEXT /* texts of .npy files; only ls_array_open_labels accepts them */
} ls_array_type;

/* A row-major array, mapped from a file. The file must not change while it is mapped. */
typedef struct ls_array {
    const char *path;   /* belongs to the caller */
    const char *member; /* name of the .npz file's member that is parsed, for messages; else NULL */
    ls_array_type type;
    bool big_endian;
    bool takes_texts; /* texts are accepted */
    bool is_unicode;  /* texts have four bytes for each character, otherwise bytes */
    size_t width;     /* number of bytes of a text */
    int rank;
    uint64_t dim[LS_ARRAY_RANK]; /* [rank]: size of each dimension, greater than 0 */
    const uint8_t *data;
    void *map; /* the mapping that ls_array_close unmaps; NULL: none */
    size_t map_bytes;
} ls_array;

/* Maps a whole file; an empty file is an error. The mapping is private: a write to it does not
 * change the file. `what`: description of the file for messages, as for ls_open_to_read. The caller
 * closes the array. Errors: LS_ENOENT, LS_EIO, LS_EDATA, LS_ENOMEM. */
int ls_file_map(ls_array *a, const char *path, const char *what, ls_error *err);

/* Maps an array. `path` is an .npy file, or an array in an .npz file, "FILE.npz/NAME", or
 * "FILE.npz" alone. For "FILE.npz" alone, `names` (NULL-terminated) is a list of names, and the
 * first of them that the file contains is mapped. An entry "" of the list means the only array in
 * the file, whatever its name is. If the array is compressed, it is decompressed into memory.
 * `path` must outlive the array, which the caller closes. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM;
 * LS_EDATA with file and offset; LS_EUNSUPPORTED (the array is encrypted, or is compressed by
 * another method than deflate). */
int ls_array_open(ls_array *a, const char *path, const char *const *names, ls_error *err);
/* Does the same, and also accepts texts (numpy's types U and S), of up to 4096 characters each. */
int ls_array_open_labels(ls_array *a, const char *path, const char *const *names, ls_error *err);
/* Does the same as ls_array_open, for a file of `count` bytes in memory. Messages call it `name`.
 * `bytes` and `name` must outlive the array, which the caller closes. */
int ls_array_read(ls_array *a, const char *name, const void *bytes, size_t count,
                  const char *const *names, ls_error *err);
/* Returns whether the `count` bytes begin as an .npy file does. */
bool ls_array_is_npy(const void *bytes, size_t count);
/* Returns whether the `count` bytes begin as an .npz file does. */
bool ls_array_is_npz(const void *bytes, size_t count);
/* Returns whether the path ends with ".npz", whatever the case. */
bool ls_path_is_npz(const char *path);
/* Returns whether the path names an array in an .npz file, as ls_array_open takes it:
 * "FILE.npz/NAME". */
bool ls_path_is_in_npz(const char *path);
/* Returns whether the file at `path` is an .npz file that contains an array with one of the names
 * `names`. */
bool ls_array_is_there(const char *path, const char *const *names);
/* Unmaps an array. Calls after the first have no effect. */
void ls_array_close(ls_array *array);

/* NULL-terminated lists of the names by which arrays in .npz files are found: the training rows,
 * their targets, the test rows, and the targets of the test rows. */
extern const char *const ls_names_of_rows[],
    *const ls_names_of_targets[], *const ls_names_of_test_rows[], *const ls_names_of_test_targets[];

/* ---- internal: formats in memory ------------------------------------------------------------- */

/* Parses an .npy file of `count` bytes in memory. a->path must be set. Errors: those of
 * ls_array_open. */
int ls_array_parse_npy(ls_array *a, const void *bytes, size_t count, ls_error *err);
/* Parses an .npz file of `count` bytes in memory. a->path must be set. a->map is the mapping that
 * contains the bytes, or NULL. If the array is compressed, the function decompresses it, unmaps
 * this mapping and sets a->map to the decompressed array. `names`: as for ls_array_open. Errors:
 * those of ls_array_open. */
int ls_array_parse_npz(ls_array *a, const void *bytes, size_t count, const char *const *names,
                       ls_error *err);
/* Returns whether the bytes are an .npz file that contains an array with one of the names
 * `names`. */
bool ls_npz_has(const void *bytes, size_t count, const char *const *names);

/* A safetensors file, mapped. */
typedef struct ls_tensors {
    ls_array file;
    ls_json *header;
    size_t data; /* offset in the file where the tensors begin */
} ls_tensors;

/* Maps a safetensors file and parses its header. Errors: those of ls_file_map. */
int ls_tensors_open(ls_tensors *out, const char *path, const ls_host *host, ls_error *err);
/* Unmaps the file and frees the header. */
void ls_tensors_close(ls_tensors *tensors);
/* Finds a tensor. *a then points into the mapping of `t`, and is valid until ls_tensors_close.
 * Errors: LS_EDATA. */
int ls_tensors_find(ls_array *a, const ls_tensors *t, const char *name, ls_error *err);
/* Returns whether the file has a tensor of this name. */
bool ls_tensors_has(const ls_tensors *tensors, const char *name);
/* Returns the text `key` of the header's metadata, or NULL if there is none. The text belongs to
 * `tensors`. */
const char *ls_tensors_note(const ls_tensors *tensors, const char *key);

/* Returns the name of a type: "u8", "f32". The text is static. */
const char *ls_array_type_name(ls_array_type type);

/* Returns the number of elements in a row: the product of all dimensions but the first. */
size_t ls_array_row(const ls_array *array);
/* Computes the shape of a row, {channels, height, width}. A row is [features], [height][width] or
 * [channels][height][width]; if `last` is set, a row of three dimensions is
 * [height][width][channels]. */
void ls_array_sides(uint64_t side[3], const ls_array *array, bool last);
/* `array` is [rows][height][width][channels]. Returns the index in it of the element that would
 * have the index `i` if the array were [rows][channels][height][width]. */
size_t ls_array_last_place(const ls_array *array, size_t i);
/* Returns element `i` of an array of any type, converted to double. */
double ls_array_number(const ls_array *array, size_t i);
/* Returns the number of bytes of the longest text of an array of texts, in UTF-8 with a zero
 * byte. */
size_t ls_array_text_bytes(const ls_array *array);
/* Writes element `i` of an array of texts to `out` [ls_array_text_bytes], as UTF-8. Zero characters
 * at its end are no part of it; what is no character becomes U+FFFD. */
void ls_array_text(char *out, const ls_array *array, size_t i);
/* Replaces the contents of an array by `label` [rows], which are copied. Errors: LS_ENOMEM. */
int ls_array_become_labels(ls_array *array, const int32_t *label, ls_error *err);
/* Returns whether the type is u8. */
bool ls_array_of_bytes(const ls_array *array);
/* Returns whether the type is an integer type or bool. */
bool ls_array_is_whole(const ls_array *array);
/* Returns whether a->data can be used directly: bytes, or aligned floats in the
 * machine's byte order. */
bool ls_array_in_place(const ls_array *array);

#endif
