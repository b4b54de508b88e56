/* SPDX-License-Identifier: MIT */
/* Writes safetensors files. A file of weights or with the state of a run (safetensors.h) has a
 * checksum in its header, before the data that the checksum covers. Therefore the bytes of such a
 * file are generated twice: first to compute the checksum, then to write the file. */
#include "formats/safetensors.h"

#include "base/error.h"
#include "formats/safetensors_format.h"
#include "hash/hash.h"

#include <stdio.h>
#include <string.h>

/* Encodes up to CHUNK floats as little-endian bytes. Returns the number of bytes. */
static size_t encode(uint8_t *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        put_u32(out + 4 * i, bits);
    }
    return 4 * count;
}

void ls_safetensors_put_entry(ls_json_writer *w, const char *name, const char *dtype,
                              const int64_t *dim, int rank, uint64_t bytes, uint64_t *at)
{
    ls_json_open_object(w, name);
    ls_json_put_string(w, "dtype", dtype);
    ls_json_open_array(w, "shape");
    for (int i = 0; i < rank; i++)
        ls_json_put_int(w, NULL, dim[i]);
    ls_json_close(w);
    ls_json_open_array(w, "data_offsets");
    ls_json_put_uint(w, NULL, *at);
    *at += bytes;
    ls_json_put_uint(w, NULL, *at);
    ls_json_close(w);
    ls_json_close(w);
}

static void write_entry(ls_json_writer *w, const ls_tensor_entry *e, const char *prefix,
                        uint64_t *at)
{
    char name[TENSOR_NAME];
    const int64_t dim[LS_TENSOR_RANK] = {e->dim[0], e->dim[1], e->dim[2], e->dim[3]};
    snprintf(name, sizeof name, "%s%s", prefix, e->name);
    ls_safetensors_put_entry(w, name, "F32", dim, e->rank, 4 * (uint64_t)e->count, at);
}

static bool has_checksum(const ls_tensor_notes *notes)
{
    return notes->checksum || notes->state;
}

/* Writes the header. If the file has a checksum, the metadata begin with zeros in place of the
 * hash, at offset LS_WHOLE_AT of the file. */
static void write_header(ls_json_writer *w, const ls_tensor_set *sets, int count,
                         const ls_tensor_notes *notes)
{
    uint64_t at = 0;
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "__metadata__");
    if (has_checksum(notes))
        ls_json_put_string(w, "sha256", LS_WHOLE_ZEROS);
    ls_json_put_string(w, "format", "pt");
    if (notes->state)
        ls_json_put_string(w, "lockstep", notes->state);
    if (notes->card)
        ls_json_put_string(w, "lockstep_model", notes->card);
    if (notes->steps)
        ls_json_put_string(w, "lockstep_steps", notes->steps);
    ls_json_close(w);
    for (int g = 0; g < count; g++)
        for (int i = 0; i < sets[g].entries; i++)
            write_entry(w, &sets[g].entry[i], sets[g].prefix, &at);
    ls_json_close(w);
}

/* The destination of a file's bytes: the file itself or, in the first pass, the hash. */
typedef struct target {
    ls_file_writer *file; /* NULL: `hash` receives the bytes */
    ls_sha256 *hash;
} target;

static int put(const target *to, const void *bytes, size_t count, ls_error *err)
{
    if (to->file)
        return ls_file_writer_write(to->file, bytes, count, err);
    ls_sha256_update(to->hash, bytes, count);
    return LS_OK;
}

static int write_floats(const target *to, const float *values, size_t count, ls_error *err)
{
    uint8_t bytes[4 * CHUNK];
    int status = LS_OK;
    for (size_t done = 0; done < count && status == LS_OK;) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        status = put(to, bytes, encode(bytes, values + done, n), err);
        done += n;
    }
    return status;
}

void ls_floats_hash(struct ls_sha256 *hash, const float *values, size_t count)
{
    const target to = {NULL, hash};
    (void)write_floats(&to, values, count, NULL);
}

void ls_floats_sha256(char out[65], const float *values, size_t count)
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_floats_hash(&hash, values, count);
    ls_sha256_final_hex(&hash, out);
}

/* Writes the header and, before it, its length. Spaces after the header align the data to a
 * multiple of 8 bytes. */
static int write_text(const target *to, const char *header, size_t length, ls_error *err)
{
    static const char spaces[8] = "        ";
    uint8_t preface[PREFACE];
    size_t padding = (8 - length % 8) % 8;
    put_u32(preface, (uint32_t)(length + padding));
    put_u32(preface + 4, 0);
    int status = put(to, preface, sizeof preface, err);
    if (status == LS_OK)
        status = put(to, header, length, err);
    return status == LS_OK ? put(to, spaces, padding, err) : status;
}

/* Writes header and tensors. */
static int write_all(const target *to, const char *header, size_t length, const ls_tensor_set *sets,
                     int count, ls_error *err)
{
    int status = write_text(to, header, length, err);
    for (int g = 0; g < count; g++) {
        const ls_tensor_entry *e = sets[g].entry;
        for (int i = 0; i < sets[g].entries && status == LS_OK; i++)
            status = write_floats(to, sets[g].from + e[i].offset, e[i].count, err);
    }
    return status;
}

/* Computes the SHA-256 of the whole file with zeros in place of the hash's own digits, and writes
 * the digits into the header. */
static void fill_hash(char *header, size_t length, const ls_tensor_set *sets, int count)
{
    ls_sha256 hash;
    char digits[LS_SHA256_HEX];
    const target to = {NULL, &hash};
    ls_sha256_init(&hash);
    (void)write_all(&to, header, length, sets, count, NULL);
    ls_sha256_final_hex(&hash, digits);
    memcpy(header + LS_WHOLE_AT - PREFACE, digits, LS_SHA256_HEX - 1);
}

/* Writes a whole file to `to`. `name`: the file's name in messages. */
static int write_to(const target *to, const char *name, const ls_tensor_set *sets, int count,
                    const ls_tensor_notes *notes, const ls_host *host, ls_error *err)
{
    ls_json_writer text;
    size_t length;
    ls_json_writer_init(&text, 0, host);
    write_header(&text, sets, count, notes);
    int status = ls_json_writer_text(&text, &length, err) ? LS_OK : LS_ENOMEM;
    if (status == LS_OK && length > MAX_HEADER - 8)
        status = ls_fail(err, LS_EIO, "%.300s: cannot write: too many tensors", name);
    if (status == LS_OK && has_checksum(notes))
        fill_hash(text.out.text, length, sets, count);
    if (status == LS_OK)
        status = write_all(to, text.out.text, length, sets, count, err);
    ls_json_writer_fini(&text);
    return status;
}

int ls_tensor_file_write(ls_file_writer *w, const ls_tensor_set *sets, int count,
                         const ls_tensor_notes *notes, const ls_host *host, ls_error *err)
{
    const target to = {w, NULL};
    return write_to(&to, w->target, sets, count, notes, host, err);
}

int ls_tensor_file_sha256(char out[65], const ls_tensor_set *sets, int count,
                          const ls_tensor_notes *notes, const ls_host *host, ls_error *err)
{
    ls_sha256 hash;
    const target to = {NULL, &hash};
    ls_sha256_init(&hash);
    int status = write_to(&to, "a file of weights", sets, count, notes, host, err);
    ls_sha256_final_hex(&hash, out);
    return status;
}
