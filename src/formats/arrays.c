/* SPDX-License-Identifier: MIT */
/* Arrays in mapped files: NumPy's .npy (also inside .npz files, see npz.c) and tensors of
 * safetensors files. No size in a header is trusted before it has been compared with the
 * file's size. Formats: NEP 1 (numpy/lib/format.py) and the description in safetensors'
 * reference implementation. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */

#include "formats/arrays.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "base/utf8.h"
#include "json/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_HEADER ((size_t)16 << 20)

static const struct {
    const char *numpy,
        /* names of the type in .npy and in safetensors files; "": the format does not have the
         * type */
        *tensor;
    const char *name;
    size_t bytes;
} types[] = {
    [LS_ARRAY_U8] = {"u1", "U8", "u8", 1},     [LS_ARRAY_BOOL] = {"b1", "BOOL", "bool", 1},
    [LS_ARRAY_I8] = {"i1", "I8", "i8", 1},     [LS_ARRAY_U16] = {"u2", "U16", "u16", 2},
    [LS_ARRAY_I16] = {"i2", "I16", "i16", 2},  [LS_ARRAY_U32] = {"u4", "U32", "u32", 4},
    [LS_ARRAY_I32] = {"i4", "I32", "i32", 4},  [LS_ARRAY_U64] = {"u8", "U64", "u64", 8},
    [LS_ARRAY_I64] = {"i8", "I64", "i64", 8},  [LS_ARRAY_F16] = {"f2", "F16", "f16", 2},
    [LS_ARRAY_BF16] = {"", "BF16", "bf16", 2}, [LS_ARRAY_F32] = {"f4", "F32", "f32", 4},
    [LS_ARRAY_F64] = {"f8", "F64", "f64", 8},  [LS_ARRAY_TEXT] = {"", "", "texts", 0},
};

enum { TYPES = LS_ARRAY_TEXT, /* number of types of numbers */ MOST_CHARACTERS = 4096 };

/* Returns the number of bytes of an element. */
static size_t width_of(const ls_array *a)
{
    return a->type == LS_ARRAY_TEXT ? a->width : types[a->type].bytes;
}

__attribute__((format(printf, 4, 5))) static int fail_at(const ls_array *a, size_t offset,
                                                         ls_error *err, const char *format, ...)
{
    char text[LS_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ls_fail(err, LS_EDATA, "%.300s%s%s: offset %zu: %s", a->path, a->member ? ": " : "",
                   a->member ? a->member : "", offset, text);
}

int ls_file_map(ls_array *a, const char *path, const char *what, ls_error *err)
{
    *a = (ls_array){.path = path};
    int fd;
    uint64_t size;
    int status = ls_open_to_read(&fd, &size, a->path, what, LS_EDATA, err);
    if (status)
        return status;
    if (size == 0 || size > PTRDIFF_MAX) {
        status = ls_fail(err, LS_EDATA, "%.300s: offset 0: expected %s, found an empty file",
                         a->path, what);
    } else {
        void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        a->map = map == MAP_FAILED ? NULL : map;
        a->map_bytes = (size_t)size;
        if (!a->map)
            status = ls_fail(err, LS_ENOMEM, "%.300s: no address space to map its %zu bytes",
                             a->path, (size_t)size);
    }
    close(fd);
    return status;
}

void ls_array_close(ls_array *a)
{
    if (a->map)
        munmap(a->map, a->map_bytes);
    a->map = NULL;
}

size_t ls_array_row(const ls_array *a)
{
    size_t n = 1;
    for (int i = 1; i < a->rank; i++)
        n *= (size_t)a->dim[i];
    return n;
}

void ls_array_sides(uint64_t side[3], const ls_array *a, bool last)
{
    side[0] = side[1] = side[2] = 1;
    for (int i = 1; i < a->rank; i++)
        side[a->rank == 3 ? i : i - 1] = a->dim[i];
    if (last && a->rank == LS_ARRAY_RANK) {
        side[0] = a->dim[3];
        side[1] = a->dim[1];
        side[2] = a->dim[2];
    }
}

size_t ls_array_last_place(const ls_array *a, size_t i)
{
    const size_t channels = (size_t)a->dim[3], area = (size_t)a->dim[1] * (size_t)a->dim[2];
    const size_t row = i / (channels * area), channel = i / area % channels, pixel = i % area;
    return (row * area + pixel) * channels + channel;
}

/* Checks that an array of this shape and type has exactly `bytes` bytes. The check also fails if
 * the product of the sizes in a damaged header exceeds 64 bits. */
static int check_size(const ls_array *a, uint64_t bytes, size_t offset, ls_error *err)
{
    uint64_t left = bytes / width_of(a);
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] == 0)
            return fail_at(a, offset, err,
                           "expected a shape without zeros; there are no rows in it");
        left /= a->dim[i];
    }
    uint64_t product = width_of(a); /* at most `bytes` if left > 0 */
    for (int i = 0; i < a->rank; i++)
        product *= a->dim[i];
    if (left > 0 && product == bytes)
        return LS_OK;
    return fail_at(a, offset, err,
                   "expected as many bytes as shape and type make, found %llu of data; the file is "
                   "cut off, or its header damaged",
                   (unsigned long long)bytes);
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* A position in the header of an .npy file, which is the text of a Python dictionary. */
typedef struct cursor {
    const ls_array *array;
    const char *text;
    size_t at, end; /* offsets in the file */
    ls_error *err;
} cursor;

static char next_of(cursor *c)
{
    while (c->at < c->end && (c->text[c->at] == ' ' || c->text[c->at] == '\n'))
        c->at++;
    return c->at < c->end ? c->text[c->at] : '\0';
}

static bool take(cursor *c, char wanted)
{
    const bool there = next_of(c) == wanted;
    c->at += there;
    return there;
}

static bool take_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    next_of(c);
    const bool there = c->end - c->at >= n && memcmp(c->text + c->at, word, n) == 0;
    c->at += there ? n : 0;
    return there;
}

/* Reads a text in quotes into `out`; the text must have fewer than `size` bytes. */
static bool take_text(cursor *c, char *out, size_t size)
{
    const char quote = next_of(c);
    size_t n = 0;
    if (quote != '\'' && quote != '"')
        return false;
    for (c->at++; c->at < c->end && c->text[c->at] != quote && n + 1 < size; c->at++)
        out[n++] = c->text[c->at];
    out[n] = '\0';
    return take(c, quote);
}

static bool take_number(cursor *c, uint64_t *out)
{
    size_t digits = 0;
    *out = 0;
    for (next_of(c); c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9'; digits++) {
        const uint64_t digit = (uint64_t)(c->text[c->at++] - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = 10 * *out + digit;
    }
    return digits > 0;
}

/* Reads a type of texts, such as "<U12" or "|S5". */
static bool read_texts(ls_array *a, const char *text)
{
    const bool unicode = text[1] == 'U';
    const long most = strtol(text + 2, NULL, 10);
    if (!a->takes_texts || (!unicode && text[1] != 'S') || text[2] < '1' || text[2] > '9' ||
        most > MOST_CHARACTERS)
        return false;
    a->type = LS_ARRAY_TEXT;
    a->is_unicode = unicode;
    a->width = (size_t)most * (unicode ? 4 : 1);
    return true;
}

static int read_descr(cursor *c, ls_array *a)
{
    char text[16] = "";
    const size_t at = c->at;
    const bool fields = at + 1 < c->end && (c->text[at] == '[' || c->text[at + 1] == '[');
    const bool read = take_text(c, text, sizeof text);
    const bool ordered = read && strchr("<>|=", text[0]) && text[0] && text[1];
    for (int i = 0; ordered && i < TYPES; i++)
        if (strcmp(text + 1, types[i].numpy) == 0) {
            a->type = (ls_array_type)i;
            a->big_endian = text[0] == '>';
            return LS_OK;
        }
    if (ordered && read_texts(a, text)) {
        a->big_endian = text[0] == '>';
        return LS_OK;
    }
    return fail_at(
        a, at, c->err,
        "expected whole numbers (u1 to u8, i1 to i8), floats (f2, f4, f8) or bool (b1)%s, "
        "found %s%s%s; save values as x.astype('<f4')%s",
        a->takes_texts ? " or texts (U, S)" : "", read ? "'" : "",
        read     ? text
        : fields ? "an array with fields, whose arrays are x['NAME']"
                 : "something else",
        read ? "'" : "", a->takes_texts ? ", texts as y.astype(str)" : "");
}

static int read_shape(cursor *c, ls_array *a)
{
    const size_t at = c->at;
    bool good = take(c, '(');
    for (a->rank = 0; good && !take(c, ')');) {
        good = a->rank < LS_ARRAY_RANK && take_number(c, &a->dim[a->rank]);
        a->rank += good;
        good = good && (take(c, ',') || next_of(c) == ')');
    }
    if (good && a->rank > 0)
        return LS_OK;
    return fail_at(a, at, c->err, "expected a shape of 1 to %d numbers, such as (60000, 784)",
                   LS_ARRAY_RANK);
}

static int read_order(cursor *c, const ls_array *a)
{
    const size_t at = c->at;
    if (take_word(c, "False"))
        return LS_OK;
    if (take_word(c, "True"))
        return fail_at(a, at, c->err,
                       "expected rows one after another, found Fortran's order; save "
                       "numpy.ascontiguousarray(x)");
    return fail_at(a, at, c->err, "expected True or False as fortran_order");
}

static int read_member(cursor *c, ls_array *a, unsigned *seen)
{
    static const char *const key[] = {"descr", "fortran_order", "shape"};
    char text[16] = "";
    const size_t at = c->at;
    bool named = take_text(c, text, sizeof text) && take(c, ':');
    for (int i = 0; named && i < 3; i++)
        if (strcmp(text, key[i]) == 0 && !(*seen & 1u << i)) {
            *seen |= 1u << i;
            return i == 0 ? read_descr(c, a) : i == 1 ? read_order(c, a) : read_shape(c, a);
        }
    return fail_at(a, at, c->err, "expected descr, fortran_order and shape, each once");
}

static int read_dictionary(cursor *c, ls_array *a)
{
    unsigned seen = 0;
    int status = take(c, '{') ? LS_OK : fail_at(a, c->at, c->err, "expected '{'");
    while (status == LS_OK && !take(c, '}')) {
        status = read_member(c, a, &seen);
        if (status == LS_OK && !take(c, ',') && next_of(c) != '}')
            status = fail_at(a, c->at, c->err, "expected ',' or '}'");
    }
    if (status == LS_OK && (seen != 7 || next_of(c) != '\0'))
        status = fail_at(a, c->at, c->err, "expected descr, fortran_order and shape, and no more");
    return status;
}

bool ls_array_is_npy(const void *bytes, size_t count)
{
    static const char magic[] = "\x93NUMPY";
    return count >= 12 && memcmp(bytes, magic, 6) == 0;
}

int ls_array_parse_npy(ls_array *a, const void *bytes, size_t count, ls_error *err)
{
    const uint8_t *b = bytes;
    if (!ls_array_is_npy(b, count))
        return fail_at(a, 0, err,
                       "expected an .npy file, as numpy.save writes it, or an .npz file of them");
    if (b[6] < 1 || b[6] > 3)
        return fail_at(a, 6, err, "expected version 1, 2 or 3 of the .npy format");
    const size_t begin = b[6] == 1 ? 10 : 12;
    const size_t length = (size_t)b[8] | (size_t)b[9] << 8 |
                          (b[6] == 1 ? 0 : (size_t)b[10] << 16 | (size_t)b[11] << 24);
    if (length > MOST_HEADER || length > count - begin)
        return fail_at(a, 8, err, "expected a header within the file; the file is cut off");
    cursor c = {a, bytes, begin, begin + length, err};
    int status = read_dictionary(&c, a);
    a->data = b + begin + length;
    return status ? status : check_size(a, count - begin - length, begin, err);
}

static int parse(ls_array *a, const void *bytes, size_t count, const char *const *names,
                 ls_error *err)
{
    return ls_array_is_npz(bytes, count) ? ls_array_parse_npz(a, bytes, count, names, err)
                                         : ls_array_parse_npy(a, bytes, count, err);
}

const char *const ls_names_of_rows[] = {"x",       "X",      "x_train", "X_train",  "train_x",
                                        "train_X", "images", "data",    "features", "train_images",
                                        "arr_0",   "",       NULL};
const char *const ls_names_of_targets[] = {"y",      "Y",      "y_train", "Y_train",      "train_y",
                                           "labels", "target", "targets", "train_labels", "arr_1",
                                           NULL};
const char *const ls_names_of_test_rows[] = {"test_x",      "x_test", "X_test", "test_X",
                                             "test_images", "val_x",  "x_val",  "X_val",
                                             "val_images",  NULL};
const char *const ls_names_of_test_targets[] = {"test_y",      "y_test", "Y_test", "test_Y",
                                                "test_labels", "val_y",  "y_val",  "Y_val",
                                                "val_labels",  NULL};

bool ls_path_is_npz(const char *path)
{
    return ls_path_ends_with(path, ".npz");
}

/* Splits "FILE.npz/NAME": copies "FILE.npz" to `file`, and returns "NAME". If `path` has another
 * form, copies the whole path and returns NULL. */
static const char *split_path(char file[LS_PATH_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    snprintf(file, LS_PATH_BYTES, "%.*s", n < LS_PATH_BYTES ? (int)n : LS_PATH_BYTES - 1, path);
    if (n < LS_PATH_BYTES && ls_path_is_npz(file))
        return slash + 1;
    snprintf(file, LS_PATH_BYTES, "%s", path);
    return NULL;
}

bool ls_path_is_in_npz(const char *path)
{
    char file[LS_PATH_BYTES];
    return split_path(file, path) != NULL;
}

static int open_array(ls_array *a, const char *path, const char *const *names, bool texts,
                      ls_error *err)
{
    char file[LS_PATH_BYTES];
    const char *name = split_path(file, path), *const only[] = {name, NULL};
    int status = ls_file_map(a, file, "an .npy or .npz file", err);
    a->path = path;
    a->takes_texts = texts;
    if (status == LS_OK)
        status = parse(a, a->map, a->map_bytes, name ? only : names, err);
    if (status)
        ls_array_close(a);
    return status;
}

int ls_array_open(ls_array *a, const char *path, const char *const *names, ls_error *err)
{
    return open_array(a, path, names, false, err);
}

int ls_array_open_labels(ls_array *a, const char *path, const char *const *names, ls_error *err)
{
    return open_array(a, path, names, true, err);
}

bool ls_array_is_there(const char *path, const char *const *names)
{
    ls_array file;
    ls_error err;
    if (ls_file_map(&file, path, "an .npz file", &err) != LS_OK)
        return false;
    const bool found =
        ls_array_is_npz(file.map, file.map_bytes) && ls_npz_has(file.map, file.map_bytes, names);
    ls_array_close(&file);
    return found;
}

int ls_array_read(ls_array *a, const char *name, const void *bytes, size_t count,
                  const char *const *names, ls_error *err)
{
    *a = (ls_array){.path = name};
    int status = parse(a, bytes, count, names, err);
    if (status)
        ls_array_close(a);
    return status;
}

/* ---- texts ------------------------------------------------------------------------------------
 */

size_t ls_array_text_bytes(const ls_array *a)
{
    return (a->is_unicode ? a->width : 3 * a->width) + 1;
}

/* Writes a character as UTF-8, and returns its end. */
static char *put_character(char *to, uint32_t c)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) || c == 0)
        c = 0xFFFD;
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(lead[more] | c >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        *to++ = (char)(0x80 | (c >> 6 * i & 0x3F));
    return to;
}

/* Returns character `k` of a text of four bytes each. */
static uint32_t character(const ls_array *a, const uint8_t *text, size_t k)
{
    uint32_t c = 0;
    for (size_t b = 0; b < 4; b++)
        c = c << 8 | text[4 * k + (a->big_endian ? b : 3 - b)];
    return c;
}

void ls_array_text(char *out, const ls_array *a, size_t i)
{
    const uint8_t *text = a->data + i * a->width;
    size_t length = a->width, k = 0;
    while (length > 0 && text[length - 1] == 0)
        length--;
    if (a->is_unicode) {
        for (length = (length + 3) / 4; k < length; k++)
            out = put_character(out, character(a, text, k));
        *out = '\0';
        return;
    }
    while (k < length) {
        const size_t n = text[k] ? ls_utf8_length(text + k, length - k) : 0;
        if (n == 0)
            out = put_character(out, 0xFFFD);
        else
            memcpy(out, text + k, n);
        out += n;
        k += n ? n : 1;
    }
    *out = '\0';
}

int ls_array_become_labels(ls_array *a, const int32_t *label, ls_error *err)
{
    const size_t bytes = (size_t)a->dim[0] * 4;
    uint8_t *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for labels", a->path);
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)((uint32_t)label[i / 4] >> 8 * (i % 4));
    const ls_array before = *a;
    ls_array_close(a);
    *a = (ls_array){.path = before.path,
                    .member = before.member,
                    .type = LS_ARRAY_I32,
                    .rank = 1,
                    .dim = {before.dim[0]},
                    .data = to,
                    .map = to,
                    .map_bytes = bytes};
    return LS_OK;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static uint64_t read_u64(const uint8_t *b)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | b[i];
    return n;
}

int ls_tensors_open(ls_tensors *t, const char *path, const ls_host *host, ls_error *err)
{
    ls_error why;
    *t = (ls_tensors){0};
    int status = ls_file_map(&t->file, path, "a safetensors file", err);
    if (status)
        return status;
    const uint64_t size = t->file.map_bytes, length = size < 8 ? 0 : read_u64(t->file.map);
    if (length < 2 || length > MOST_HEADER || length > size - 8) {
        status = fail_at(&t->file, 0, err,
                         "expected the length of a header that lies in the file; it is cut off, or "
                         "no safetensors file");
    } else {
        t->data = 8 + (size_t)length;
        status = ls_json_parse(&t->header, "header", (const char *)t->file.map + 8, (size_t)length,
                               host, &why);
        if (status && status != LS_ENOMEM)
            status = ls_fail(err, LS_EDATA, "%.300s: offset 8: %.400s", path, why.text);
        else if (status)
            ls_fail(err, status, "%s", why.text);
        else if (!cJSON_IsObject(ls_json_root(t->header)))
            status = fail_at(&t->file, 8, err, "expected an object");
    }
    if (status)
        ls_tensors_close(t);
    return status;
}

void ls_tensors_close(ls_tensors *t)
{
    ls_json_destroy(t->header);
    ls_array_close(&t->file);
    t->header = NULL;
}

const char *ls_tensors_note(const ls_tensors *t, const char *key)
{
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(ls_json_root(t->header), "__metadata__");
    const cJSON *note = cJSON_GetObjectItemCaseSensitive(notes, key);
    return cJSON_IsString(note) ? note->valuestring : NULL;
}

bool ls_tensors_has(const ls_tensors *t, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(ls_json_root(t->header), name) != NULL;
}

/* Reads a whole number that a double represents exactly. */
static bool is_whole(const cJSON *node, uint64_t *out)
{
    if (!cJSON_IsNumber(node) || !(node->valuedouble >= 0 && node->valuedouble <= 0x1p53))
        return false;
    *out = (uint64_t)node->valuedouble;
    return (double)*out == node->valuedouble;
}

static bool read_type(ls_array *a, const cJSON *type)
{
    for (int i = 0; cJSON_IsString(type) && i < TYPES; i++)
        if (strcmp(type->valuestring, types[i].tensor) == 0) {
            a->type = (ls_array_type)i;
            return true;
        }
    return false;
}

static bool read_dims(ls_array *a, const cJSON *shape)
{
    const cJSON *node;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > LS_ARRAY_RANK)
        return false;
    a->rank = 0;
    cJSON_ArrayForEach(node, shape)
    {
        if (!is_whole(node, &a->dim[a->rank++]))
            return false;
    }
    return a->rank > 0;
}

static int fail_tensor(const ls_tensors *t, const char *name, ls_error *err, const char *text)
{
    ls_fail(err, LS_EDATA, "%.300s: offset 8: tensor \"%.80s\": %s", t->file.path, name, text);
    return LS_EDATA;
}

int ls_tensors_find(ls_array *a, const ls_tensors *t, const char *name, ls_error *err)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(ls_json_root(t->header), name);
    const cJSON *span = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    uint64_t begin = 0, end = 0;
    *a = (ls_array){.path = t->file.path};
    if (!entry)
        return fail_tensor(t, name, err, "there is none of that name; name it in data.x or data.y");
    if (!read_type(a, cJSON_GetObjectItemCaseSensitive(entry, "dtype")))
        return fail_tensor(t, name, err,
                           "expected a dtype of BOOL, U8 to U64, I8 to I64, F16, BF16, F32 or F64; "
                           "convert it");
    if (!read_dims(a, cJSON_GetObjectItemCaseSensitive(entry, "shape")))
        return fail_tensor(t, name, err, "expected a shape of 1 to 4 whole numbers");
    if (cJSON_GetArraySize(span) != 2 || !is_whole(cJSON_GetArrayItem(span, 0), &begin) ||
        !is_whole(cJSON_GetArrayItem(span, 1), &end) || begin > end ||
        end > t->file.map_bytes - t->data)
        return fail_tensor(t, name, err,
                           "expected data_offsets [begin, end] inside the file; it is cut off or "
                           "damaged");
    a->data = (const uint8_t *)t->file.map + t->data + begin;
    return check_size(a, end - begin, 8, err);
}

const char *ls_array_type_name(ls_array_type type)
{
    return types[type].name;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Decodes the floating-point number `v`, which has a sign bit, `exponent` bits of exponent and
 * `bits` bits of fraction. */
static double float_of(uint64_t v, int bits, int exponent)
{
    const int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
    const int e = (int)(v >> bits & (uint64_t)top);
    const double fraction = ldexp((double)(v & (((uint64_t)1 << bits) - 1)), -bits);
    const double sign = v >> (bits + exponent) & 1 ? -1 : 1;
    if (e == top)
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(e ? 1 + fraction : fraction, (e ? e : 1) - bias);
}

/* Returns the bytes of element `i` as an integer. Any byte order of the file and of the machine is
 * handled. */
static uint64_t bits_of(const ls_array *a, size_t i)
{
    const size_t n = types[a->type].bytes;
    const uint8_t *b = a->data + i * n;
    uint64_t bits = 0;
    for (size_t k = 0; k < n; k++)
        bits = bits << 8 | b[a->big_endian ? k : n - 1 - k];
    return bits;
}

double ls_array_number(const ls_array *a, size_t i)
{
    const uint64_t bits = bits_of(a, i);
    const uint32_t low = (uint32_t)bits;
    float f32;
    double f64;
    switch (a->type) {
    case LS_ARRAY_TEXT: return NAN; /* texts become labels before they are read */
    case LS_ARRAY_U8:
    case LS_ARRAY_U16:
    case LS_ARRAY_U32:
    case LS_ARRAY_U64: return (double)bits;
    case LS_ARRAY_BOOL: return bits != 0;
    case LS_ARRAY_I8: return (int8_t)bits;
    case LS_ARRAY_I16: return (int16_t)bits;
    case LS_ARRAY_I32: return (int32_t)bits;
    case LS_ARRAY_I64: return (double)(int64_t)bits;
    case LS_ARRAY_F16: return float_of(bits, 10, 5);
    case LS_ARRAY_BF16: return float_of(bits, 7, 8);
    case LS_ARRAY_F32: memcpy(&f32, &low, sizeof f32); return (double)f32;
    case LS_ARRAY_F64: break;
    }
    memcpy(&f64, &bits, sizeof f64);
    return f64;
}

bool ls_array_of_bytes(const ls_array *a)
{
    return a->type == LS_ARRAY_U8;
}

bool ls_array_is_whole(const ls_array *a)
{
    return a->type < LS_ARRAY_F16;
}

/* Floats can be used in place if the file has the machine's byte order and the floats are
 * aligned. */
bool ls_array_in_place(const ls_array *a)
{
    static const uint16_t one = 1;
    uint8_t first;
    memcpy(&first, &one, 1);
    return ls_array_of_bytes(a) || (a->type == LS_ARRAY_F32 && a->big_endian == (first == 0) &&
                                    (uintptr_t)a->data % sizeof(float) == 0);
}
