/* SPDX-License-Identifier: MIT */
/* Constants of an ONNX graph: decodes the numbers of tensors that the file, or another file beside
 * it, has. The numbers of most tensors stay where they are in the mapped file. */
#include "onnx/importer.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest number of files with external data, and of bytes of a path in the ONNX file. */
enum { MOST_DATA = 4096, MOST_PATH = 1024 };

static int fail_tensor(const ls_import *g, const ls_import_value *v, int status, const char *text)
{
    char name[128];
    return ls_import_fail(g, g->at, status, "tensor \"%s\": %s",
                          ls_onnx_copy(name, sizeof name, v->name), text);
}

void ls_import_keep(ls_import_value *v, const ls_onnx_stored *stored)
{
    v->kind = LS_VALUE_CONSTANT;
    v->stored = stored;
    v->rank = stored->rank;
    memcpy(v->dim, stored->dim, sizeof v->dim);
}

/* ---- types ---------------------------------------------------------------------------------- */

/* Types of tensors that are read, and the numbers that they are stored as. */
static const struct {
    int onnx;
    ls_array_type type;
    size_t bytes;
} types[] = {
    {LS_ONNX_FLOAT, LS_ARRAY_F32, 4},   {LS_ONNX_DOUBLE, LS_ARRAY_F64, 8},
    {LS_ONNX_FLOAT16, LS_ARRAY_F16, 2}, {LS_ONNX_BFLOAT16, LS_ARRAY_BF16, 2},
    {LS_ONNX_INT64, LS_ARRAY_I64, 8},   {LS_ONNX_INT32, LS_ARRAY_I32, 4},
    {LS_ONNX_BOOL, LS_ARRAY_BOOL, 1},
};

static int find_type(const ls_import *g, const ls_import_value *v, size_t *bytes,
                     ls_array_type *type)
{
    char text[160];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].onnx == v->stored->type) {
            *bytes = types[i].bytes;
            *type = types[i].type;
            return LS_OK;
        }
    snprintf(text, sizeof text,
             "its values have the type %s; float, double, float16, bfloat16, int64, int32 and bool "
             "are read",
             ls_onnx_type_name(v->stored->type));
    return fail_tensor(g, v, LS_EUNSUPPORTED, text);
}

/* ---- external data --------------------------------------------------------------------------- */

/* Returns whether `path` names a file in the directory of the ONNX file or below it. */
static bool is_inside(const char *path)
{
    if (!path[0] || path[0] == '/' || strchr(path, '\\'))
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        const size_t n = strcspn(part, "/");
        if (n == 0 || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    return true;
}

/* Maps the file with external data, or finds it among those that are mapped. */
static int map_data(ls_import *g, const char *name, const ls_array **out)
{
    for (int i = 0; i < g->data.count; i++)
        if (strcmp(g->data_path.at[i] + strlen(g->data_path.at[i]) + 1, name) == 0) {
            *out = &g->data.at[i];
            return LS_OK;
        }
    const char *slash = strrchr(g->file.path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - g->file.path) : 0, n = strlen(name);
    void *list =
        ls_grown(g->host, g->data.at, (size_t)g->data.count, &g->data.room, sizeof *g->data.at);
    void *paths = ls_grown(g->host, g->data_path.at, (size_t)g->data_path.count, &g->data_path.room,
                           sizeof *g->data_path.at);
    char *path = ls_alloc(g->host, folder + 2 * n + 2);
    g->data.at = list ? list : g->data.at;
    g->data_path.at = paths ? paths : g->data_path.at;
    if (!list || !paths || !path) {
        ls_free(g->host, path);
        return ls_import_no_memory(g);
    }
    /* the path by which the file is opened, a zero byte, and the name in the ONNX file */
    memcpy(path, g->file.path, folder);
    memcpy(path + folder, name, n + 1);
    memcpy(path + folder + n + 1, name, n + 1);
    g->data_path.at[g->data_path.count++] = path;
    ls_error cause;
    int status = ls_file_map(&g->data.at[g->data.count], path, "external data", &cause);
    *out = &g->data.at[g->data.count++];
    return status ? ls_import_fail(g, g->at, status, "its external data: %.250s", cause.text)
                  : LS_OK;
}

/* Reads a number of an entry of external data. Returns false if it is none. */
static bool read_size(uint64_t *out, ls_onnx_text text)
{
    *out = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9' || *out > UINT64_MAX / 100)
            return false;
        *out = *out * 10 + (uint64_t)(text.at[i] - '0');
    }
    return text.length > 0;
}

/* Finds the bytes of a tensor with external data: the entries "location", "offset", "length". */
static int find_external(ls_import *g, const ls_import_value *v, const uint8_t **bytes,
                         uint64_t *length)
{
    ls_pb_reader r = v->stored->message, inner;
    ls_pb_field f, h;
    char path[MOST_PATH] = "";
    uint64_t offset = 0;
    bool sized = false;
    while (ls_pb_next(&f, &r)) {
        ls_onnx_text key = {0}, value = {0};
        if (f.number != TENSOR_EXTERNAL || !f.bytes)
            continue;
        inner = (ls_pb_reader){.at = f.bytes, .end = f.bytes + f.length};
        while (ls_pb_next(&h, &inner))
            if (h.bytes && h.number == ENTRY_KEY)
                key = (ls_onnx_text){(const char *)h.bytes, h.length};
            else if (h.bytes && h.number == ENTRY_VALUE)
                value = (ls_onnx_text){(const char *)h.bytes, h.length};
        if (ls_onnx_is(key, "location") && value.length < sizeof path)
            ls_onnx_copy(path, sizeof path, value);
        else if (ls_onnx_is(key, "offset") && !read_size(&offset, value))
            return fail_tensor(g, v, LS_EDATA,
                               "expected \"offset\" of its external data: a number");
        else if (ls_onnx_is(key, "length") && !(sized = read_size(length, value)))
            return fail_tensor(g, v, LS_EDATA,
                               "expected \"length\" of its external data: a number");
    }
    if (!is_inside(path))
        return fail_tensor(g, v, LS_EUNSUPPORTED,
                           "its external data must be in a file in the directory of the ONNX file "
                           "or below it, without \"..\" in its path");
    const ls_array *data = NULL;
    if (g->data.count == MOST_DATA)
        return fail_tensor(g, v, LS_EUNSUPPORTED, "more than 4096 files have external data");
    int status = map_data(g, path, &data);
    if (status)
        return status;
    if (offset > data->map_bytes || (sized && *length > data->map_bytes - offset))
        return fail_tensor(g, v, LS_EDATA, "its external data is beyond the end of its file");
    *bytes = (const uint8_t *)data->map + offset;
    *length = sized ? *length : data->map_bytes - offset;
    return LS_OK;
}

/* ---- data in the ONNX file ------------------------------------------------------------------- */

/* Decodes int32_data or int64_data (`number`) to an array of the type of the tensor. */
static int decode_varints(ls_import *g, ls_import_value *v, size_t bytes, unsigned number)
{
    ls_pb_reader r = v->stored->message;
    ls_pb_field f;
    uint64_t value;
    size_t n = 0;
    if (v->count > (size_t)(r.end - r.at))
        return fail_tensor(g, v, LS_EDATA, "it has fewer numbers than its shape needs");
    uint8_t *out = ls_import_block(g, v->count, bytes);
    if (!out)
        return ls_import_no_memory(g);
    while (ls_pb_next(&f, &r)) {
        if (f.number != number)
            continue;
        ls_pb_reader list = {.at = f.bytes, .end = f.bytes ? f.bytes + f.length : NULL};
        for (bool one = !f.bytes; one || (f.bytes && ls_pb_next_packed(&value, &list));
             one = false) {
            value = one ? f.value : value;
            for (size_t b = 0; b < bytes && n < v->count; b++)
                out[n * bytes + b] = (uint8_t)(value >> (8 * b));
            n++;
        }
    }
    if (n != v->count)
        return fail_tensor(g, v, LS_EDATA, "it has another number of numbers than its shape");
    v->numbers.data = out;
    return LS_OK;
}

/* Finds the bytes of a tensor in the message: raw data, or a packed list of floats or doubles. */
static void find_inside(const ls_import_value *v, const uint8_t **bytes, uint64_t *length)
{
    const unsigned list = v->stored->type == LS_ONNX_FLOAT    ? TENSOR_FLOATS
                          : v->stored->type == LS_ONNX_DOUBLE ? TENSOR_DOUBLES
                                                              : TENSOR_RAW;
    ls_pb_reader r = v->stored->message;
    ls_pb_field f;
    while (ls_pb_next(&f, &r))
        if (f.bytes && (f.number == TENSOR_RAW || f.number == list)) {
            *bytes = f.bytes;
            *length = f.length;
        }
}

static bool is_external(const ls_onnx_stored *t)
{
    ls_pb_reader r = t->message;
    ls_pb_field f;
    while (ls_pb_next(&f, &r))
        if (f.number == TENSOR_LOCATION && !f.bytes && f.value == 1)
            return true;
    return false;
}

static int count_numbers(const ls_import *g, ls_import_value *v)
{
    v->count = 1;
    for (int i = 0; i < v->rank; i++) {
        v->count *= (size_t)v->dim[i]; /* at most 2³¹ · 2³¹ */
        if (v->count > LS_MODEL_FLOATS)
            return fail_tensor(g, v, LS_EUNSUPPORTED, "it has too many numbers");
    }
    return LS_OK;
}

int ls_import_decode(ls_import *g, ls_import_value *v)
{
    const uint8_t *bytes = NULL;
    uint64_t length = 0;
    size_t size = 0;
    ls_array_type type = LS_ARRAY_F32;
    if (!v->stored)
        return LS_OK;
    int status = find_type(g, v, &size, &type);
    if (status == LS_OK)
        status = count_numbers(g, v);
    if (status)
        return status;
    v->numbers = (ls_array){.type = type, .rank = 1, .dim = {v->count}};
    if (is_external(v->stored)) {
        status = find_external(g, v, &bytes, &length);
        if (status == LS_OK)
            ls_sha256_update(&g->hash, bytes, (size_t)length);
    } else {
        find_inside(v, &bytes, &length);
    }
    if (status == LS_OK && !bytes && v->count > 0)
        status = decode_varints(g, v, size,
                                v->stored->type == LS_ONNX_INT64 ? TENSOR_INT64S : TENSOR_INT32S);
    else if (status == LS_OK && length != v->count * size)
        status = fail_tensor(g, v, LS_EDATA, "it has another number of bytes than its shape needs");
    else
        v->numbers.data = bytes;
    if (status == LS_OK)
        v->stored = NULL;
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static size_t place_of(const ls_import_value *v, size_t i)
{
    if (!v->swapped)
        return i;
    const size_t rows = (size_t)v->dim[0], columns = (size_t)v->dim[1];
    return i % columns * rows + i / columns;
}

double ls_import_number(const ls_import_value *v, size_t i)
{
    return ls_array_number(&v->numbers, place_of(v, i));
}

bool ls_import_whole(const ls_import_value *v)
{
    return ls_array_is_whole(&v->numbers);
}

/* Integers of 64 bits are not read by way of a double, which would round them. */
int64_t ls_import_integer(const ls_import_value *v, size_t i)
{
    const uint8_t *at = v->numbers.data + 8 * place_of(v, i);
    uint64_t bits = 0;
    if (v->numbers.type != LS_ARRAY_I64) {
        const double x = ls_import_number(v, i);
        return x > -9e15 && x < 9e15 ? (int64_t)x : 0;
    }
    for (int b = 0; b < 8; b++)
        bits |= (uint64_t)at[b] << (8 * b);
    return (int64_t)bits;
}

bool ls_import_scalar(double *out, const ls_import_value *v)
{
    if (v->count != 1)
        return false;
    *out = ls_import_number(v, 0);
    return true;
}

int ls_import_list(ls_import *g, const ls_onnx_node *n, int i, const char *name, int64_t *out,
                   int most, int *count)
{
    ls_import_value *v = i < 0 ? NULL : ls_import_input(g, n, i);
    *count = ls_import_has(g, n, name) ? ls_import_ints(g, n, name, out, most) : -1;
    if (!v && *count < 0 && ls_import_has(g, n, name))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "attribute \"%s\": at most %d numbers are read", name, most);
    if (!v)
        return LS_OK;
    if (v->kind != LS_VALUE_CONSTANT)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its input %d depends on the rows; constants and what follows from "
                              "shapes are read",
                              i);
    int status = ls_import_decode(g, v);
    if (status)
        return status;
    if (v->count > (size_t)most || !ls_import_whole(v))
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its input %d: at most %d integers are read, found %zu numbers", i,
                              most, v->count);
    *count = (int)v->count;
    for (int k = 0; k < *count; k++)
        out[k] = ls_import_integer(v, (size_t)k);
    return LS_OK;
}

/* ---- constants that are computed ------------------------------------------------------------- */

static int fold(ls_import *g, ls_import_value *v, ls_array_type type, int count, int rank,
                uint8_t **data)
{
    *data = ls_import_block(g, (size_t)count, 8);
    if (!*data)
        return ls_import_no_memory(g);
    v->kind = LS_VALUE_CONSTANT;
    v->stored = NULL;
    v->rank = rank;
    v->dim[0] = count;
    v->count = (size_t)count;
    v->numbers = (ls_array){.type = type, .rank = 1, .dim = {(uint64_t)count}, .data = *data};
    return LS_OK;
}

static void put_little(uint8_t out[8], uint64_t bits)
{
    for (int b = 0; b < 8; b++)
        out[b] = (uint8_t)(bits >> (8 * b));
}

void ls_import_put_double(uint8_t out[8], double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_little(out, bits);
}

int ls_import_fold_ints(ls_import *g, ls_import_value *v, const int64_t *value, int count, int rank)
{
    uint8_t *data;
    int status = fold(g, v, LS_ARRAY_I64, count, rank, &data);
    for (int i = 0; status == LS_OK && i < count; i++)
        put_little(data + 8 * i, (uint64_t)value[i]);
    return status;
}

int ls_import_fold_numbers(ls_import *g, ls_import_value *v, const double *value, int count,
                           int rank)
{
    uint8_t *data;
    int status = fold(g, v, LS_ARRAY_F64, count, rank, &data);
    for (int i = 0; status == LS_OK && i < count; i++)
        ls_import_put_double(data + 8 * i, value[i]);
    return status;
}
